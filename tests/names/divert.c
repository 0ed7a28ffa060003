/*
 * Preloaded into a program, this gives it another hosts file, and sends what goes to port 443 to a port of this machine.
 *
 * MAILROOM_HOSTS names the hosts file, MAILROOM_PORT is the port.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *other_path(const char *path)
{
	return strcmp(path, "/etc/hosts") == 0 ? getenv("MAILROOM_HOSTS") : path;
}

#include "open.h"

int connect(int s, const struct sockaddr *to, socklen_t length)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *) to;
	struct sockaddr_in copy;

	if (to && to->sa_family == AF_INET && in->sin_port == htons(443)) {
		copy = *in;
		copy.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		copy.sin_port = htons((uint16_t) atoi(getenv("MAILROOM_PORT")));
		to = (const struct sockaddr *) &copy;
	}
	return (int) syscall(SYS_connect, s, to, length);
}
