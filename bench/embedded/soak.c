/* What `bench/soak.py --embedded` loads: the bodies, and uploads, streams, responses of another thread and WebSockets:
 * `soak PORT FOLDER`.
 */
#include <pthread.h>

#include "serve.h"

enum { STREAM_BYTES = 1000000, MOST_WAITING = 1024 };

/* Responds with the number of bytes that came. */
static int count_part(apus_deferred *deferred, apus_status status, const char *data, size_t len, void *user)
{
	size_t *length = user;
	(void)data;
	if (status == APUS_OK) {
		*length += len;
		return 0;
	}
	char text[32];
	snprintf(text, sizeof text, "%zu", *length);
	free(length);
	apus_response_text(apus_deferred_response(deferred), text, APUS_NTS);
	apus_complete(deferred, status == APUS_END ? 0 : 400);
	return 0;
}

static int upload(apus_request *request, apus_response *response, void *user)
{
	size_t *length = calloc(1, sizeof *length);
	(void)response, (void)user;
	if (!length)
		return 503;
	apus_deferred_read(apus_defer(request), 0, count_part, length);
	return 0;
}

static void write_stream(apus_writer *writer, apus_status status, void *user)
{
	static const char bytes[10000];
	size_t *written = user;
	while (status == APUS_OK && *written < STREAM_BYTES) {
		status = apus_writer_write(writer, bytes, sizeof bytes);
		if (status == APUS_OK)
			*written += sizeof bytes;
	}
	if (status == APUS_FULL)
		return;
	free(written);
	apus_writer_finish(writer);
}

static int stream(apus_request *request, apus_response *response, void *user)
{
	size_t *written = calloc(1, sizeof *written);
	(void)request, (void)user;
	if (!written)
		return 503;
	apus_writer_on_ready(apus_response_stream(response, 0), write_stream, written);
	return 0;
}

/* Requests that the other thread completes. */
static apus_deferred *waiting[MOST_WAITING];
static size_t count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void *complete(void *user)
{
	(void)user;
	for (;;) {
		pthread_mutex_lock(&lock);
		while (!count)
			pthread_cond_wait(&changed, &lock);
		apus_deferred *deferred = waiting[--count];
		pthread_mutex_unlock(&lock);
		apus_response_text(apus_deferred_response(deferred), "later", APUS_NTS);
		apus_complete(deferred, 0);
	}
	return NULL;
}

static int later(apus_request *request, apus_response *response, void *user)
{
	int result = 0;
	(void)response, (void)user;
	pthread_mutex_lock(&lock);
	if (count < MOST_WAITING) {
		waiting[count++] = apus_defer(request);
		pthread_cond_signal(&changed);
	} else {
		result = 503;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

static void echo(apus_websocket *socket, apus_message_kind kind, const char *data, size_t len, void *user)
{
	(void)user;
	apus_websocket_send(socket, kind, data, len);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	pthread_t completing;
	if (pthread_create(&completing, NULL, complete, NULL)) {
		perror("pthread_create");
		return 1;
	}
	/* As Autobahn wants it: long messages, from pages of all origins, to a client that reads when it likes. */
	apus_websocket_events events = { .size = sizeof events, .message = echo, .max_message = 64 << 20, .send_buffer = 64 << 20,
		.any_origin = true };
	apus_app *app = app_of_bodies(argv[2]);
	apus_app_post(app, "/upload", upload, NULL);
	apus_app_get(app, "/stream", stream, NULL);
	apus_app_get(app, "/later", later, NULL);
	apus_app_websocket(app, "/socket", &events, NULL);
	return serve(app, argv[1]);
}
