/* A C program with libapus, for the suites of `conformance/embedded`:
 *
 *     embedded ADDRESS                                 echoes over WebSocket at "/"
 *     embedded ADDRESS TLS_ADDRESS CERTIFICATE KEY     responds to all requests; a body comes back
 */
#include <apus.h>
#include <stdio.h>
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

static void echo(apus_websocket *socket, apus_message_kind kind, const char *data, size_t len, void *user)
{
	(void)user;
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
	apus_tls *tls = NULL;
	if (argc == 2) {
		apus_websocket_events events = { .size = sizeof events, .message = echo, .max_message = LONGEST_MESSAGE,
			.send_buffer = LONGEST_MESSAGE, .any_origin = true };
		apus_app_websocket(app, "/", &events, NULL);
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
	return status != APUS_OK;
}
