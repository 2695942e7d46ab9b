/* The floor of a benchmark: what the kernel alone costs for an HTTP/1.1 response over loopback.
 *
 *     floor PORT BODY_BYTES [FIELD...]
 *
 * One epoll loop responds to every request on 127.0.0.1:PORT with the same bytes, whose head has six fields and
 * each FIELD (`name: value`) behind them. It looks for the
 * empty line that ends a head and for nothing else: no method, no target, no limit, no time-out, no
 * request body. Keep-alive and pipelining work. Short bodies are written with their head in one
 * call; long ones are sent by the kernel from a file in memory, which costs less. A server that does its job has to cost more;
 * how much more is the question. It is a yardstick and must never face a network.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { EVENTS = 512, READ_BYTES = 16 * 1024, PIPELINED = 64, LONG_BODY = 16 * 1024 };

struct connection {
	uint64_t owed;         /* bytes of responses still to be written */
	unsigned char matched; /* bytes of CR LF CR LF seen last */
	unsigned char writing; /* waits for room to write, and reads nothing */
};

static struct connection *connections; /* by descriptor */
static rlim_t descriptors;
static char *response;
static size_t response_bytes;
static size_t head_bytes;
static int body_file = -1; /* the response, if its body is long */
static int poller;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void prepare_response(size_t body_bytes, char **fields)
{
	char head[4096];
	head_bytes = (size_t)snprintf(head, sizeof head,
		"HTTP/1.1 200 OK\r\n"
		"date: Fri, 20 Nov 2026 12:00:00 GMT\r\n"
		"content-type: text/html; charset=utf-8\r\n"
		"content-length: %zu\r\n"
		"last-modified: Fri, 20 Nov 2026 12:00:00 GMT\r\n"
		"etag: \"67a1b2c3-%zx\"\r\n"
		"accept-ranges: bytes\r\n", body_bytes, body_bytes);
	for (; *fields && head_bytes < sizeof head; fields++)
		head_bytes += (size_t)snprintf(head + head_bytes, sizeof head - head_bytes, "%s\r\n", *fields);
	if (head_bytes + 2 > sizeof head) {
		fprintf(stderr, "the fields do not fit into %zu bytes\n", sizeof head);
		exit(2);
	}
	memcpy(head + head_bytes, "\r\n", 2);
	head_bytes += 2;
	response_bytes = head_bytes + body_bytes;
	response = malloc(response_bytes);
	if (!response)
		die("malloc");
	memcpy(response, head, head_bytes);
	memset(response + head_bytes, 'x', body_bytes);
	if (body_bytes < LONG_BODY)
		return;
	body_file = memfd_create("response", MFD_CLOEXEC);
	if (body_file < 0)
		die("memfd_create");
	for (size_t at = 0; at < response_bytes;) {
		ssize_t written = write(body_file, response + at, response_bytes - at);
		if (written < 0)
			die("write");
		at += (size_t)written;
	}
}

static int listen_on(uint16_t port)
{
	int one = 1;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	if (fd < 0)
		die("socket");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 4096))
		die("listen");
	return fd;
}

static void watch(int operation, int fd, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.fd = fd };
	if (epoll_ctl(poller, operation, fd, &event))
		die("epoll_ctl");
}

static void accept_all(int listener)
{
	int one = 1;
	for (;;) {
		int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0)
			return;
		if ((rlim_t)fd >= descriptors) {
			close(fd);
			continue;
		}
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		connections[fd] = (struct connection){ 0 };
		watch(EPOLL_CTL_ADD, fd, EPOLLIN);
	}
}

/* The number of heads that end in `bytes`; a head may have begun in an earlier read. */
static unsigned count_heads(struct connection *c, const char *bytes, size_t n)
{
	static const char end[4] = { '\r', '\n', '\r', '\n' };
	unsigned heads = 0;
	for (size_t i = 0; i < n;) {
		if (c->matched == 0) { /* skip to the next CR at the speed of memchr */
			const char *cr = memchr(bytes + i, '\r', n - i);
			if (!cr)
				break;
			i = (size_t)(cr - bytes);
		}
		if (bytes[i] == end[c->matched])
			c->matched++;
		else
			c->matched = bytes[i] == '\r';
		i++;
		if (c->matched == sizeof end) {
			c->matched = 0;
			heads++;
		}
	}
	return heads;
}

/* The next piece of a response with a long body: the rest of the head, or the rest of the body. */
static ssize_t send_piece(int fd, uint64_t owed)
{
	size_t left = owed % response_bytes ? owed % response_bytes : response_bytes;
	off_t at = (off_t)(response_bytes - left);
	if ((size_t)at < head_bytes)
		return send(fd, response + at, head_bytes - (size_t)at, MSG_NOSIGNAL | MSG_MORE);
	return sendfile(fd, body_file, &at, left);
}

/* Writes of what is owed what the socket takes. -1: the connection is over. */
static int write_owed(int fd, struct connection *c)
{
	while (c->owed && body_file >= 0) {
		ssize_t written = send_piece(fd, c->owed);
		if (written < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -1;
		c->owed -= (uint64_t)written;
	}
	while (c->owed) {
		struct iovec parts[PIPELINED];
		uint64_t left = c->owed;
		size_t n = 0;
		ssize_t written;
		while (left && n < PIPELINED) {
			size_t part = left % response_bytes ? left % response_bytes : response_bytes;
			parts[n++] = (struct iovec){ response + response_bytes - part, part };
			left -= part;
		}
		written = n == 1 ? send(fd, parts[0].iov_base, parts[0].iov_len, MSG_NOSIGNAL)
				 : sendmsg(fd, &(struct msghdr){ .msg_iov = parts, .msg_iovlen = n },
					   MSG_NOSIGNAL);
		if (written < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -1;
		c->owed -= (uint64_t)written;
	}
	return 0;
}

static int serve(int fd, struct connection *c)
{
	static char bytes[READ_BYTES];
	if (!c->writing) {
		ssize_t n = recv(fd, bytes, sizeof bytes, 0);
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			return -1;
		if (n > 0)
			c->owed += (uint64_t)count_heads(c, bytes, (size_t)n) * response_bytes;
	}
	if (write_owed(fd, c))
		return -1;
	if (c->writing != (c->owed > 0)) {
		c->writing = c->owed > 0;
		watch(EPOLL_CTL_MOD, fd, c->writing ? EPOLLOUT : EPOLLIN);
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct epoll_event events[EVENTS];
	struct rlimit limit;
	int listener;

	if (argc < 3) {
		fprintf(stderr, "usage: %s PORT BODY_BYTES [FIELD...]\n", argv[0]);
		return 2;
	}
	signal(SIGPIPE, SIG_IGN); /* sendfile has no flag that prevents it */
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	descriptors = limit.rlim_cur > 65536 ? 65536 : limit.rlim_cur;
	connections = calloc(descriptors, sizeof *connections);
	if (!connections)
		die("calloc");

	prepare_response(strtoul(argv[2], NULL, 10), argv + 3);
	poller = epoll_create1(EPOLL_CLOEXEC);
	listener = listen_on((uint16_t)strtoul(argv[1], NULL, 10));
	watch(EPOLL_CTL_ADD, listener, EPOLLIN);
	for (;;) {
		int n = epoll_wait(poller, events, EVENTS, -1);
		for (int i = 0; i < n; i++) {
			int fd = events[i].data.fd;
			if (fd == listener)
				accept_all(listener);
			else if (serve(fd, &connections[fd]))
				close(fd);
		}
	}
}
