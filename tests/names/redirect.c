/*
 * Preloaded into a server, this gives it another resolv.conf and no hosts file, sends what goes to port 53 to a
 * port of the test's, and writes down every address that the server connects to by TCP.
 *
 * MAILROOM_RESOLV names the resolv.conf, MAILROOM_DNS is the port, MAILROOM_DIALLED the file.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *other_path(const char *path)
{
	if (strcmp(path, "/etc/resolv.conf") == 0)
		return getenv("MAILROOM_RESOLV");
	if (strcmp(path, "/etc/hosts") == 0)
		return "/dev/null";
	return path;
}

#include "open.h"

/* The test's port in the place of DNS's, in a copy of the address. */
static const struct sockaddr *redirected(const struct sockaddr *to, struct sockaddr_in *copy)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *) to;

	if (!to || to->sa_family != AF_INET || in->sin_port != htons(53))
		return to;
	*copy = *in;
	copy->sin_port = htons((uint16_t) atoi(getenv("MAILROOM_DNS")));
	return (const struct sockaddr *) copy;
}

/* The way back: answers come from where they were asked for. */
static void pretend(struct sockaddr *from)
{
	struct sockaddr_in *in = (struct sockaddr_in *) from;

	if (from && from->sa_family == AF_INET && in->sin_port == htons((uint16_t) atoi(getenv("MAILROOM_DNS"))))
		in->sin_port = htons(53);
}

ssize_t sendto(int s, const void *data, size_t size, int flags, const struct sockaddr *to, socklen_t length)
{
	struct sockaddr_in copy;

	return syscall(SYS_sendto, s, data, size, flags, redirected(to, &copy), length);
}

ssize_t recvfrom(int s, void *restrict data, size_t size, int flags, struct sockaddr *restrict from,
				 socklen_t *restrict length)
{
	ssize_t got = syscall(SYS_recvfrom, s, data, size, flags, from, length);

	if (got >= 0)
		pretend(from);
	return got;
}

static void write_down(const struct sockaddr *to)
{
	char line[INET6_ADDRSTRLEN + 2] = "";
	int file;

	if (to->sa_family == AF_INET)
		inet_ntop(AF_INET, &((const struct sockaddr_in *) to)->sin_addr, line, INET6_ADDRSTRLEN);
	else if (to->sa_family == AF_INET6)
		inet_ntop(AF_INET6, &((const struct sockaddr_in6 *) to)->sin6_addr, line, INET6_ADDRSTRLEN);
	else
		return;
	strcat(line, "\n");
	file = open(getenv("MAILROOM_DIALLED"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (file < 0 || write(file, line, strlen(line)) < 0)
		abort();
	close(file);
}

int connect(int s, const struct sockaddr *to, socklen_t length)
{
	struct sockaddr_in copy;
	int type = 0;
	socklen_t size = sizeof type;

	if (getsockopt(s, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM)
		write_down(to);
	return (int) syscall(SYS_connect, s, redirected(to, &copy), length);
}
