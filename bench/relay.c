/* The floor of proxied cases: what the kernel alone costs to forward requests and responses.
 *
 *     relay PORT ORIGIN_PORT
 *
 * Each client of 127.0.0.1:PORT gets its own connection to 127.0.0.1:ORIGIN_PORT, and all bytes from one of
 * the two are forwarded to the other unchanged. Nothing is parsed, shared, timed or added. A proxy
 * that does its job has to cost more; how much more is the question. It is a yardstick and must never face a
 * network.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { EVENTS = 512, READ_BYTES = 64 * 1024 };

struct side {
	int other;            /* the socket to forward to */
	char *kept;           /* what the other has no room for; nothing is read meanwhile */
	size_t kept_bytes;
};

static struct side *sides; /* by descriptor */
static rlim_t descriptors;
static int poller;
static char buffer[READ_BYTES];

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static struct sockaddr_in loopback(const char *port)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = htons((unsigned short)atoi(port)),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	return address;
}

static void watch(int socket, unsigned events, int how)
{
	struct epoll_event event = { .events = events, .data.fd = socket };
	if (epoll_ctl(poller, how, socket, &event))
		die("epoll_ctl");
}

static void end(int socket)
{
	int other = sides[socket].other;
	free(sides[socket].kept);
	free(sides[other].kept);
	memset(&sides[socket], 0, sizeof *sides);
	memset(&sides[other], 0, sizeof *sides);
	close(socket);
	close(other);
}

/* Sends bytes to the other side of `from`; keeps what its socket does not take. */
static int forward(int from, const char *bytes, size_t len)
{
	int to = sides[from].other;
	while (len > 0) {
		ssize_t sent = send(to, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent < 0 && errno == EAGAIN)
			break;
		if (sent < 0)
			return -1;
		bytes += sent;
		len -= (size_t)sent;
	}
	char *rest = NULL;
	if (len > 0) {
		rest = malloc(len);
		if (!rest)
			die("malloc");
		memcpy(rest, bytes, len);
	}
	free(sides[from].kept);
	if ((sides[from].kept_bytes > 0) != (len > 0)) {
		watch(from, len > 0 ? 0 : EPOLLIN, EPOLL_CTL_MOD);
		watch(to, len > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN, EPOLL_CTL_MOD);
	}
	sides[from].kept = rest;
	sides[from].kept_bytes = len;
	return 0;
}

static void enter(int client, const struct sockaddr_in *origin)
{
	int one = 1, server = socket(AF_INET, SOCK_STREAM, 0);
	if (server < 0 || connect(server, (const struct sockaddr *)origin, sizeof *origin))
		die("origin");
	if ((rlim_t)client >= descriptors || (rlim_t)server >= descriptors)
		exit(1);
	setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	sides[client].other = server;
	sides[server].other = client;
	watch(client, EPOLLIN, EPOLL_CTL_ADD);
	watch(server, EPOLLIN, EPOLL_CTL_ADD);
}

static void go_on(int socket, unsigned events)
{
	int other = sides[socket].other;
	if (!other)
		return; /* ended in this turn */
	if (events & EPOLLOUT && forward(other, sides[other].kept, sides[other].kept_bytes)) {
		end(socket);
		return;
	}
	if (!(events & ~(unsigned)EPOLLOUT))
		return;
	ssize_t got = recv(socket, buffer, sizeof buffer, MSG_DONTWAIT);
	if (got < 0 && errno == EAGAIN)
		return;
	if (got <= 0 || forward(socket, buffer, (size_t)got))
		end(socket);
}

int main(int count, char **arguments)
{
	if (count != 3) {
		fprintf(stderr, "usage: relay PORT ORIGIN_PORT\n");
		return 2;
	}
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit))
		die("getrlimit");
	descriptors = limit.rlim_cur;
	sides = calloc(descriptors, sizeof *sides);
	if (!sides)
		die("calloc");
	struct sockaddr_in own = loopback(arguments[1]), origin = loopback(arguments[2]);
	int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(listener, (struct sockaddr *)&own, sizeof own) || listen(listener, 4096))
		die("listen");
	poller = epoll_create1(0);
	watch(listener, EPOLLIN, EPOLL_CTL_ADD);
	for (;;) {
		struct epoll_event events[EVENTS];
		int ready = epoll_wait(poller, events, EVENTS, -1);
		for (int at = 0; at < ready; at++) {
			if (events[at].data.fd != listener) {
				go_on(events[at].data.fd, events[at].events);
				continue;
			}
			int client = accept(listener, NULL, NULL);
			if (client >= 0)
				enter(client, &origin);
		}
	}
}
