/* HTTP/1.1, HTTP/2 and HTTP/3 over TLS: `tls ADDRESS CERTIFICATE KEY`. Responses over TCP tell clients that there is HTTP/3. */
#include <apus.h>
#include <stdio.h>

static int hello(apus_request *request, apus_response *response, void *user)
{
	apus_http_version version = apus_request_version(request);
	(void)user;
	apus_response_text(response,
		version == APUS_HTTP_3 ? "Hello over HTTP/3\n" :
		version == APUS_HTTP_2 ? "Hello over HTTP/2\n" : "Hello over HTTP/1\n", APUS_NTS);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc != 4) {
		fprintf(stderr, "usage: %s ADDRESS CERTIFICATE KEY\n", argv[0]);
		return 2;
	}
	apus_certificate *certificate = apus_certificate_files(argv[2], argv[3]);
	if (!certificate) {
		fprintf(stderr, "%s\n", apus_last_error());
		return 1;
	}
	apus_tls *tls = apus_tls_new();
	apus_tls_certificate(tls, NULL, certificate);
	apus_app *app = apus_app_new();
	apus_app_get(app, "/", hello, NULL);
	apus_server *server = apus_server_new(app);
	apus_server_listen_tls(server, argv[1], tls);
	apus_status status = apus_server_run(server);
	if (status != APUS_OK)
		fprintf(stderr, "%s\n", apus_last_error());
	apus_server_free(server);
	return status != APUS_OK;
}
