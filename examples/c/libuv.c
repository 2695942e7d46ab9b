/* A server inside a loop of libuv (Debian: libuv1-dev), beside other work on the same thread: `libuv [ADDRESS]`. */
#define _POSIX_C_SOURCE 200809L
#include <apus.h>
#include <signal.h>
#include <stdio.h>
#include <uv.h>

static apus_worker *worker;
static uv_poll_t readable;
static uv_timer_t deadline, clock_timer;
static uv_signal_t terminated;
static unsigned ticks;

/* Other work of the loop, which handlers may use without locks: everything is on one thread. */
static void tick(uv_timer_t *timer)
{
	(void)timer;
	ticks++;
}

static int show_ticks(apus_request *request, apus_response *response, void *user)
{
	char text[32];
	(void)request, (void)user;
	int length = snprintf(text, sizeof text, "%u\n", ticks);
	apus_response_text(response, text, (size_t)length);
	return 0;
}

static void expire(uv_timer_t *timer);

/* Lets the worker do what there is to do, and notes when it wants to be called again. */
static void step(void)
{
	if (apus_worker_step(worker) == APUS_END) {
		uv_close((uv_handle_t *)&readable, NULL);
		uv_close((uv_handle_t *)&deadline, NULL);
		uv_close((uv_handle_t *)&clock_timer, NULL);
		uv_close((uv_handle_t *)&terminated, NULL);
		return;
	}
	int timeout = apus_worker_timeout(worker);
	if (timeout < 0)
		uv_timer_stop(&deadline);
	else
		uv_timer_start(&deadline, expire, (uint64_t)timeout, 0);
}

static void expire(uv_timer_t *timer)
{
	(void)timer;
	step();
}

static void read_ready(uv_poll_t *poll, int status, int events)
{
	(void)poll, (void)status, (void)events;
	step();
}

static void stop(uv_signal_t *handle, int signal)
{
	(void)handle, (void)signal;
	apus_worker_stop(worker);
	step();
}

int main(int argc, char **argv)
{
	apus_app *app = apus_app_new();
	apus_app_get(app, "/", show_ticks, NULL);
	apus_server *server = apus_server_new(app);
	apus_server_listen(server, argc > 1 ? argv[1] : "127.0.0.1:8080");
	worker = apus_worker_new(server);
	if (!worker) {
		fprintf(stderr, "%s\n", apus_last_error());
		return 1;
	}
	uv_loop_t *loop = uv_default_loop();
	uv_poll_init(loop, &readable, apus_worker_fd(worker));
	uv_poll_start(&readable, UV_READABLE, read_ready);
	uv_timer_init(loop, &deadline);
	uv_timer_init(loop, &clock_timer);
	uv_timer_start(&clock_timer, tick, 50, 50);
	uv_signal_init(loop, &terminated);
	uv_signal_start(&terminated, stop, SIGTERM);
	step();
	uv_run(loop, UV_RUN_DEFAULT);
	uv_loop_close(loop);
	apus_worker_free(worker);
	return 0;
}
