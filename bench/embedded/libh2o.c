/* Bodies from memory with H2O's library and its own event loop: `libh2o PORT FOLDER`. */
#define H2O_USE_LIBUV 0
#include <arpa/inet.h>
#include <signal.h>
#include <h2o.h>
#include <h2o/http1.h>

#include "bodies.h"

static h2o_globalconf_t config;
static h2o_context_t context;
static h2o_accept_ctx_t accept_context;

static int handle(h2o_handler_t *handler, h2o_req_t *request)
{
	static h2o_generator_t generator = { NULL, NULL };
	(void)handler;
	if (!h2o_memis(request->method.base, request->method.len, H2O_STRLIT("GET")))
		return -1;
	for (struct body *body = bodies; body < bodies + BODIES; body++) {
		if (!h2o_memis(request->path_normalized.base, request->path_normalized.len, body->path, strlen(body->path)))
			continue;
		h2o_iovec_t bytes = { body->bytes, body->length };
		request->res.status = 200;
		request->res.reason = "OK";
		request->res.content_length = body->length;
		h2o_add_header(&request->pool, &request->res.headers, H2O_TOKEN_CONTENT_TYPE, NULL, body->type, strlen(body->type));
		h2o_start_response(request, &generator);
		h2o_send(request, &bytes, 1, H2O_SEND_STATE_FINAL);
		return 0;
	}
	return -1;
}

static void on_accept(h2o_socket_t *listener, const char *error)
{
	h2o_socket_t *socket;
	if (!error && (socket = h2o_evloop_socket_accept(listener)))
		h2o_accept(&accept_context, socket);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	read_bodies(argv[2]);
	signal(SIGPIPE, SIG_IGN);
	h2o_config_init(&config);
	config.http1.req_timeout = 300 * 1000;
	h2o_hostconf_t *host = h2o_config_register_host(&config, h2o_iovec_init(H2O_STRLIT("default")), 65535);
	h2o_create_handler(h2o_config_register_path(host, "/", 0), sizeof(h2o_handler_t))->on_req = handle;
	h2o_context_init(&context, h2o_evloop_create(), &config);
	accept_context.ctx = &context;
	accept_context.hosts = config.hosts;

	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)atoi(argv[1])),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) ||
	    bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 4096)) {
		perror(argv[1]);
		return 1;
	}
	h2o_socket_read_start(h2o_evloop_socket_create(context.loop, fd, H2O_SOCKET_FLAG_DONT_READ), on_accept);
	while (h2o_evloop_run(context.loop, INT32_MAX) == 0)
		;
	return 1;
}
