/*
 * Preloaded into a server, this makes the event loop of the sending thread fail, once for each file that the test
 * puts where MAILROOM_BREAK says. The runtime panics over that. The server's own threads are left alone.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

static int is_sending_thread(void)
{
	char name[16] = "";

	prctl(PR_GET_NAME, name);
	return strcmp(name, "mailroom sender") == 0;
}

int epoll_wait(int epoll, struct epoll_event *events, int limit, int timeout)
{
	int (*real)(int, struct epoll_event *, int, int) = dlsym(RTLD_NEXT, "epoll_wait");
	const char *order = getenv("MAILROOM_BREAK");
	int count = real(epoll, events, limit, timeout);

	if (order != NULL && is_sending_thread() && unlink(order) == 0) {
		errno = EBADF;
		return -1;
	}
	return count;
}
