/* Bodies from memory with GNU libmicrohttpd: `libmicrohttpd PORT FOLDER`. */
#include <arpa/inet.h>
#include <microhttpd.h>
#include <unistd.h>

#include "bodies.h"

/* Made once, as its manual advises. */
static struct MHD_Response *responses[BODIES], *not_found;

static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *path,
	const char *method, const char *version, const char *data, size_t *length, void **state)
{
	(void)context, (void)version, (void)data, (void)length;
	/* The first of two calls: a response to it would end the connection. */
	if (!*state) {
		*state = &not_found;
		return MHD_YES;
	}
	if (!strcmp(method, "GET"))
		for (size_t i = 0; i < BODIES; i++)
			if (!strcmp(path, bodies[i].path))
				return MHD_queue_response(connection, 200, responses[i]);
	return MHD_queue_response(connection, 404, not_found);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	read_bodies(argv[2]);
	for (size_t i = 0; i < BODIES; i++) {
		responses[i] = MHD_create_response_from_buffer(bodies[i].length, bodies[i].bytes, MHD_RESPMEM_PERSISTENT);
		MHD_add_response_header(responses[i], "Content-Type", bodies[i].type);
	}
	not_found = MHD_create_response_from_buffer(0, "", MHD_RESPMEM_PERSISTENT);
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)atoi(argv[1])),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	struct MHD_Daemon *daemon = MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_TURBO, 0, NULL, NULL, handle, NULL,
		MHD_OPTION_SOCK_ADDR, (struct sockaddr *)&address, MHD_OPTION_CONNECTION_LIMIT, 16384u,
		MHD_OPTION_CONNECTION_TIMEOUT, 300u, MHD_OPTION_LISTEN_BACKLOG_SIZE, 4096u, MHD_OPTION_END);
	if (!daemon) {
		perror("MHD_start_daemon");
		return 1;
	}
	for (;;)
		pause();
}
