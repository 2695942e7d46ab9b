/* An origin with a limit: it works on a number of requests at a time, each for a fixed time.
 *
 *     slow_origin PORT WORKERS MILLISECONDS
 *
 * Each worker is a thread that takes a connection, and has it to itself until it is closed, as many
 * application servers do. Whoever opens more connections than there are workers waits in the queue of
 * the listening socket until others are closed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const char response[] =
	"HTTP/1.1 200 OK\r\n"
	"content-type: text/plain\r\n"
	"content-length: 13\r\n"
	"\r\n"
	"worked for it";

static int listener;
static struct timespec work;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* Responds to requests without a body until the connection ends. */
static void serve(int connection)
{
	char buffer[16 * 1024];
	size_t have = 0;

	for (;;) {
		ssize_t got = read(connection, buffer + have, sizeof buffer - have);
		if (got <= 0)
			return;
		have += (size_t)got;
		char *end;
		while ((end = memmem(buffer, have, "\r\n\r\n", 4))) {
			size_t used = (size_t)(end - buffer) + 4;
			have -= used;
			memmove(buffer, buffer + used, have);
			clock_nanosleep(CLOCK_MONOTONIC, 0, &work, NULL);
			if (send(connection, response, sizeof response - 1, MSG_NOSIGNAL) != sizeof response - 1)
				return;
		}
		if (have == sizeof buffer)
			return;
	}
}

static void *worker(void *unused)
{
	(void)unused;
	for (;;) {
		int one = 1;
		int connection = accept(listener, NULL, NULL);
		if (connection < 0) {
			if (errno == EINTR || errno == ECONNABORTED)
				continue;
			die("accept");
		}
		setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		serve(connection);
		close(connection);
	}
	return NULL;
}

int main(int count, char **arguments)
{
	if (count != 4) {
		fprintf(stderr, "usage: slow_origin PORT WORKERS MILLISECONDS\n");
		return 2;
	}
	int one = 1, workers = atoi(arguments[2]), milliseconds = atoi(arguments[3]);
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = htons((unsigned short)atoi(arguments[1])),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	work = (struct timespec){ milliseconds / 1000, milliseconds % 1000 * 1000000L };
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (listener < 0)
		die("socket");
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 4096))
		die("listen");
	for (int i = 0; i < workers; i++) {
		pthread_t thread;
		if (pthread_create(&thread, NULL, worker, NULL))
			die("pthread_create");
	}
	for (;;)
		pause();
}
