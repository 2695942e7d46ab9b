/* Bodies from memory with libapus: `apus PORT FOLDER`. */
#include <apus.h>

#include "bodies.h"

static int handle(apus_request *request, apus_response *response, void *user)
{
	const struct body *body = user;
	(void)request;
	apus_response_set_header(response, "content-type", body->type, APUS_NTS);
	apus_response_body_static(response, body->bytes, body->length);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	read_bodies(argv[2]);
	apus_app *app = apus_app_new();
	for (struct body *body = bodies; body < bodies + BODIES; body++)
		apus_app_get(app, body->path, handle, body);
	char address[32];
	snprintf(address, sizeof address, "127.0.0.1:%s", argv[1]);
	apus_server *server = apus_server_new(app);
	apus_server_listen(server, address);
	apus_server_workers(server, 1);
	apus_status status = apus_server_run(server);
	if (status != APUS_OK)
		fprintf(stderr, "%s\n", apus_last_error());
	apus_server_free(server);
	return status != APUS_OK;
}
