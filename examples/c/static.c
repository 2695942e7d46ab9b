/* A folder of files, with ranges, validators and media types: `static ADDRESS FOLDER`. */
#include <apus.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: %s ADDRESS FOLDER\n", argv[0]);
		return 2;
	}
	apus_files_options options = { .size = sizeof options, .cache_control = "max-age=60" };
	apus_app *app = apus_app_new();
	apus_app_mount(app, "/", apus_files_new(argv[2], &options));
	apus_server *server = apus_server_new(app);
	apus_server_listen(server, argv[1]);
	apus_status status = apus_server_run(server);
	if (status != APUS_OK)
		fprintf(stderr, "%s\n", apus_last_error());
	apus_server_free(server);
	return status != APUS_OK;
}
