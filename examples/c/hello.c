/* Hello, world: `hello [ADDRESS]`. */
#include <apus.h>
#include <stdio.h>

static int hello(apus_request *request, apus_response *response, void *user)
{
	(void)request, (void)user;
	apus_response_text(response, "Hello, world!\n", APUS_NTS);
	return 0;
}

int main(int argc, char **argv)
{
	apus_app *app = apus_app_new();
	apus_app_get(app, "/", hello, NULL);
	apus_server *server = apus_server_new(app);
	apus_server_listen(server, argc > 1 ? argv[1] : "127.0.0.1:8080");
	apus_status status = apus_server_run(server);
	if (status != APUS_OK)
		fprintf(stderr, "%s\n", apus_last_error());
	apus_server_free(server);
	return status != APUS_OK;
}
