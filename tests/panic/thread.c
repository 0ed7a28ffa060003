/*
 * Preloaded into a server, this refuses a new thread, once for each file that the test puts where MAILROOM_BREAK says,
 * as a system does that has none to spare.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument)
{
	int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = dlsym(RTLD_NEXT, "pthread_create");
	const char *order = getenv("MAILROOM_BREAK");

	if (order != NULL && unlink(order) == 0)
		return EAGAIN;
	return real(thread, attributes, start, argument);
}
