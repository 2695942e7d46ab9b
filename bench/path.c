/* A path between two network namespaces: delay, a bottleneck with a drop-tail queue, and loss.
 *
 *     path NAMESPACE NAMESPACE DELAY_US RATE_MBIT QUEUE_BYTES LOSS SEED
 *
 * It makes a TUN device `path` in each namespace (ip-netns(8)), and carries every packet from one to the other, whatever its
 * protocol: after the time that the bottleneck takes for it and those before it, and the delay. A packet that finds more than
 * the bytes of the queue waiting is dropped, and so is this share of all packets, at random. It prints `ready` when both
 * devices exist, and what each direction did when it gets SIGTERM.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { PACKET_BYTES = 1536, PACKETS = 65536, BATCH = 64 };

struct packet {
	int64_t arrival; /* nanoseconds */
	size_t bytes;
	char contents[PACKET_BYTES];
};

struct direction {
	int from, to;
	struct packet *packets; /* a ring */
	uint32_t first, end;
	int64_t idle_at; /* when the bottleneck has sent everything */
	uint64_t random;
	uint64_t carried, queue_full, lost;
};

static int64_t delay;
static double byte_time, queue_time, loss; /* nanoseconds */
static volatile sig_atomic_t is_over;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void finish(int signal)
{
	(void)signal;
	is_over = 1;
}

static int64_t now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

/* A TUN device in a namespace. The descriptor works from everywhere. */
static int device(const char *namespace)
{
	char path[256];
	snprintf(path, sizeof path, "/run/netns/%s", namespace);
	int entered = open(path, O_RDONLY | O_CLOEXEC);
	if (entered < 0 || setns(entered, CLONE_NEWNET))
		die(path);
	close(entered);
	int tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	struct ifreq request = { .ifr_name = "path", .ifr_flags = IFF_TUN | IFF_NO_PI };
	if (tun < 0 || ioctl(tun, TUNSETIFF, &request))
		die("/dev/net/tun");
	return tun;
}

/* SplitMix64. */
static double random_share(uint64_t *state)
{
	uint64_t number = *state += 0x9e3779b97f4a7c15;
	number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9;
	number = (number ^ number >> 27) * 0x94d049bb133111eb;
	return (double)((number ^ number >> 31) >> 11) / (double)(1ULL << 53);
}

/* Takes packets from a device. */
static void take(struct direction *path, int64_t at)
{
	for (int count = 0; count < BATCH; count++) {
		struct packet *packet = &path->packets[path->end % PACKETS];
		if (path->end - path->first == PACKETS)
			return;
		ssize_t bytes = read(path->from, packet->contents, PACKET_BYTES);
		if (bytes <= 0)
			return;
		int64_t begins = path->idle_at > at ? path->idle_at : at;
		if ((double)(begins - at) + (double)bytes * byte_time > queue_time) {
			path->queue_full++;
			continue;
		}
		path->idle_at = begins + (int64_t)((double)bytes * byte_time);
		if (random_share(&path->random) < loss) {
			path->lost++;
			continue;
		}
		packet->arrival = path->idle_at + delay;
		packet->bytes = (size_t)bytes;
		path->end++;
	}
}

/* Gives a device the packets that have arrived; returns when the next one does. */
static int64_t give(struct direction *path, int64_t at)
{
	for (; path->first != path->end; path->first++) {
		struct packet *packet = &path->packets[path->first % PACKETS];
		if (packet->arrival > at)
			return packet->arrival;
		/* A device that takes nothing loses it. */
		if (write(path->to, packet->contents, packet->bytes) < 0 && errno != EAGAIN && errno != EIO)
			die("write");
		path->carried++;
	}
	return INT64_MAX;
}

int main(int count, char **arguments)
{
	if (count != 8) {
		fprintf(stderr, "usage: path NAMESPACE NAMESPACE DELAY_US RATE_MBIT QUEUE_BYTES LOSS SEED\n");
		return 2;
	}
	delay = atoll(arguments[3]) * 1000;
	byte_time = 8000 / atof(arguments[4]);
	queue_time = atof(arguments[5]) * byte_time;
	loss = atof(arguments[6]);
	int own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	int devices[] = { device(arguments[1]), device(arguments[2]) };
	if (own < 0 || setns(own, CLONE_NEWNET))
		die("setns");
	struct direction paths[2];
	for (int at = 0; at < 2; at++) {
		paths[at] = (struct direction){
			.from = devices[at],
			.to = devices[1 - at],
			.packets = calloc(PACKETS, sizeof(struct packet)),
			.random = (uint64_t)atoll(arguments[7]) * 2 + (uint64_t)at,
		};
		if (!paths[at].packets)
			die("calloc");
	}
	prctl(PR_SET_TIMERSLACK, 1);
	struct sigaction action = { .sa_handler = finish };
	sigaction(SIGTERM, &action, NULL);
	puts("ready");
	fflush(stdout);
	while (!is_over) {
		int64_t at = now(), next = INT64_MAX;
		for (int which = 0; which < 2; which++) {
			take(&paths[which], at);
			int64_t arrival = give(&paths[which], at);
			next = arrival < next ? arrival : next;
		}
		struct pollfd waits[2] = {
			{ .fd = devices[0], .events = POLLIN },
			{ .fd = devices[1], .events = POLLIN },
		};
		int64_t wait = next == INT64_MAX ? 1000000000 : next - now();
		struct timespec time = { .tv_sec = 0, .tv_nsec = wait < 0 ? 0 : wait > 999999999 ? 999999999 : wait };
		if (ppoll(waits, 2, &time, NULL) < 0 && errno != EINTR)
			die("ppoll");
	}
	for (int which = 0; which < 2; which++)
		printf("%llu carried, %llu found the queue full, %llu lost\n", (unsigned long long)paths[which].carried,
		       (unsigned long long)paths[which].queue_full, (unsigned long long)paths[which].lost);
	return 0;
}
