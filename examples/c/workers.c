/* Threads of the program that respond when they are done, while the server goes on: `workers [ADDRESS]`. */
#define _POSIX_C_SOURCE 200809L
#include <apus.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 4, MOST_JOBS = 1000 };

struct job {
	apus_deferred *deferred;
	uint64_t n;
};

/* The jobs that wait, in a ring. */
static struct job jobs[MOST_JOBS];
static size_t first, waiting;
static bool ends;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

/* Slow on purpose. */
static uint64_t fibonacci(uint64_t n)
{
	return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

static void *work(void *user)
{
	(void)user;
	for (;;) {
		pthread_mutex_lock(&lock);
		while (!waiting && !ends)
			pthread_cond_wait(&changed, &lock);
		if (!waiting) {
			pthread_mutex_unlock(&lock);
			return NULL;
		}
		struct job job = jobs[first];
		first = (first + 1) % MOST_JOBS;
		waiting--;
		pthread_mutex_unlock(&lock);

		/* Every deferred request is completed, also when its client is gone and nobody needs the result. */
		if (!apus_deferred_is_cancelled(job.deferred)) {
			char text[32];
			int length = snprintf(text, sizeof text, "%" PRIu64 "\n", fibonacci(job.n));
			apus_response_text(apus_deferred_response(job.deferred), text, (size_t)length);
		}
		apus_complete(job.deferred, 0);
	}
}

static int compute(apus_request *request, apus_response *response, void *user)
{
	uint64_t n;
	int result = 0;
	(void)response, (void)user;
	if (apus_request_param_u64(request, "n", &n) != APUS_OK || n > 40)
		return 400;
	pthread_mutex_lock(&lock);
	if (waiting == MOST_JOBS) {
		result = 503;
	} else {
		jobs[(first + waiting++) % MOST_JOBS] = (struct job){ apus_defer(request), n };
		pthread_cond_signal(&changed);
	}
	pthread_mutex_unlock(&lock);
	return result;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	for (int at = 0; at < THREADS; at++)
		if (pthread_create(&threads[at], NULL, work, NULL)) {
			perror("pthread_create");
			return 1;
		}
	apus_app *app = apus_app_new();
	apus_app_get(app, "/fibonacci/{n}", compute, NULL);
	apus_server *server = apus_server_new(app);
	apus_server_listen(server, argc > 1 ? argv[1] : "127.0.0.1:8080");
	apus_status status = apus_server_run(server);
	if (status != APUS_OK)
		fprintf(stderr, "%s\n", apus_last_error());

	/* The server has ended, and with it all requests. */
	pthread_mutex_lock(&lock);
	ends = true;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	for (int at = 0; at < THREADS; at++)
		pthread_join(threads[at], NULL);
	apus_server_free(server);
	return status != APUS_OK;
}
