/*
 * open() and open64() of a preloaded library, which defines other_path(): the file that is opened instead.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

static int open_other(const char *path, int flags, va_list more)
{
	mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;

	return (int) syscall(SYS_openat, AT_FDCWD, other_path(path), flags, mode);
}

int open(const char *path, int flags, ...)
{
	va_list more;
	int file;

	va_start(more, flags);
	file = open_other(path, flags, more);
	va_end(more);
	return file;
}

int open64(const char *path, int flags, ...)
{
	va_list more;
	int file;

	va_start(more, flags);
	file = open_other(path, flags | O_LARGEFILE, more);
	va_end(more);
	return file;
}
