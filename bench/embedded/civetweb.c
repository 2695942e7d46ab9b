/* Bodies from memory with CivetWeb: `civetweb PORT FOLDER`. */
#include <civetweb.h>
#include <unistd.h>

#include "bodies.h"

/* Bodies up to this length leave in one write with their head. */
enum { SHORT_BODY = 16 * 1024 };

static int handle(struct mg_connection *connection, void *context)
{
	(void)context;
	const char *path = mg_get_request_info(connection)->local_uri;
	for (struct body *body = bodies; body < bodies + BODIES; body++) {
		if (strcmp(path, body->path))
			continue;
		char response[512 + SHORT_BODY];
		size_t length = (size_t)snprintf(response, 512,
			"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n", body->type, body->length);
		if (body->length <= SHORT_BODY) {
			memcpy(response + length, body->bytes, body->length);
			length += body->length;
		}
		mg_write(connection, response, length);
		if (body->length > SHORT_BODY)
			mg_write(connection, body->bytes, body->length);
		return 200;
	}
	mg_send_http_error(connection, 404, "%s", "there is no such body");
	return 404;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	read_bodies(argv[2]);
	char address[32];
	snprintf(address, sizeof address, "127.0.0.1:%s", argv[1]);
	/* Each open connection occupies a thread. */
	const char *options[] = { "listening_ports", address, "num_threads", "128", "enable_keep_alive", "yes",
		"keep_alive_timeout_ms", "300000", "tcp_nodelay", "1", NULL };
	struct mg_callbacks callbacks;
	memset(&callbacks, 0, sizeof callbacks);
	mg_init_library(0);
	struct mg_context *server = mg_start(&callbacks, NULL, options);
	if (!server) {
		fprintf(stderr, "CivetWeb cannot listen on %s\n", address);
		return 1;
	}
	mg_set_request_handler(server, "/", handle, NULL);
	for (;;)
		pause();
}
