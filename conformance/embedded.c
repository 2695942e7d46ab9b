/* A C program with libapus, for the suites of `conformance/embedded`:
 *
 *     embedded ADDRESS                                 echoes over WebSocket at "/"
 *     embedded ADDRESS TLS_ADDRESS CERTIFICATE KEY     responds to all requests; a body comes back
 */
#include <apus.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE_BYTES = 100000, MOST_BYTES = 1 << 20, LONGEST_MESSAGE = 64 << 20 };

static char page[PAGE_BYTES];

static int respond(apus_request *request, apus_response *response, void *user)
{
	apus_str body = apus_request_body(request);
	(void)user;
	apus_response_set_header(response, "content-type", "text/plain", APUS_NTS);
	if (body.len)
		apus_response_body(response, body.data, body.len);
	else /* Flow control shows only in a body that does not fit the windows that suites offer. */
		apus_response_body_static(response, page, sizeof page);
	return 0;
}

static int read_body(apus_request *request, apus_response *response, void *user)
{
	(void)response;
	return apus_request_read_body(request, MOST_BYTES, respond, user) == APUS_OK ? 0 : 500;
}

/* Each socket is alone in a room that is named by its number. */
static void enter(apus_websocket *socket, apus_request *request, void *rooms)
{
	char *room = calloc(1, 24);
	(void)request;
	if (!room) {
		apus_websocket_close(socket, 1011, "no memory");
		return;
	}
	snprintf(room, 24, "%" PRIu64, apus_websocket_id(socket));
	apus_websocket_set_data(socket, room, free);
	apus_rooms_join(rooms, room, socket);
}

/* A text comes back as from examples/c/chat.c, through a room; bytes are sent back at once. */
static void echo(apus_websocket *socket, apus_message_kind kind, const char *data, size_t len, void *rooms)
{
	if (kind == APUS_MESSAGE_TEXT)
		apus_rooms_publish(rooms, apus_websocket_data(socket), kind, data, len, NULL);
	else
		apus_websocket_send(socket, kind, data, len);
}

int main(int argc, char **argv)
{
	if (argc != 2 && argc != 5) {
		fprintf(stderr, "usage: %s ADDRESS [TLS_ADDRESS CERTIFICATE KEY]\n", argv[0]);
		return 2;
	}
	memset(page, 'x', sizeof page);
	apus_app *app = apus_app_new();
	apus_rooms *rooms = apus_rooms_new();
	apus_tls *tls = NULL;
	if (argc == 2) {
		apus_websocket_events events = { .size = sizeof events, .open = enter, .message = echo, .max_message = LONGEST_MESSAGE,
			.send_buffer = LONGEST_MESSAGE, .any_origin = true };
		apus_app_websocket(app, "/", &events, rooms);
	} else {
		apus_certificate *certificate = apus_certificate_files(argv[3], argv[4]);
		if (!certificate) {
			fprintf(stderr, "%s\n", apus_last_error());
			return 1;
		}
		tls = apus_tls_new();
		apus_tls_certificate(tls, NULL, certificate);
		apus_app_route(app, "*", "/", read_body, NULL);
		apus_app_route(app, "*", "/{*path}", read_body, NULL);
	}
	apus_server *server = apus_server_new(app);
	apus_server_listen(server, argv[1]);
	if (tls)
		apus_server_listen_tls(server, argv[2], tls);
	apus_status status = apus_server_run(server);
	if (status != APUS_OK)
		fprintf(stderr, "%s\n", apus_last_error());
	apus_server_free(server);
	apus_rooms_free(rooms);
	return status != APUS_OK;
}
