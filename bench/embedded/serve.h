/* The bodies of the embedded servers, served by libapus with one worker. */
#ifndef SERVE_H
#define SERVE_H

#include <apus.h>

#include "bodies.h"

static int respond_body(apus_request *request, apus_response *response, void *user)
{
	const struct body *body = user;
	(void)request;
	apus_response_set_header(response, "content-type", body->type, APUS_NTS);
	apus_response_body_static(response, body->bytes, body->length);
	return 0;
}

/* An application with the files of this folder. */
static apus_app *app_of_bodies(const char *folder)
{
	read_bodies(folder);
	apus_app *app = apus_app_new();
	for (struct body *body = bodies; body < bodies + BODIES; body++)
		apus_app_get(app, body->path, respond_body, body);
	return app;
}

/* Serves an application until the end of the process, and returns the exit status. */
static int serve(apus_app *app, const char *port)
{
	char address[32];
	snprintf(address, sizeof address, "127.0.0.1:%s", port);
	apus_server *server = apus_server_new(app);
	apus_server_listen(server, address);
	apus_server_workers(server, 1);
	apus_status status = apus_server_run(server);
	if (status != APUS_OK)
		fprintf(stderr, "%s\n", apus_last_error());
	apus_server_free(server);
	return status != APUS_OK;
}

#endif
