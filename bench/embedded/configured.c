/* `apus serve` in C, of what libapus has: the load of `make bench` reaches the protocols, TLS, files and proxying in the library.
 * `configured serve FILE.toml`, or `configured --version`.
 */
#include <apus.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char text[1 << 16];

static int failed(void)
{
	fprintf(stderr, "%s\n", apus_last_error());
	return 1;
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "--version")) {
		printf("libapus %s\n", apus_version());
		return 0;
	}
	if (argc != 3 || strcmp(argv[1], "serve"))
		return 2;
	FILE *file = fopen(argv[2], "rb");
	if (!file) {
		perror(argv[2]);
		return 1;
	}
	size_t length = fread(text, 1, sizeof text, file);
	fclose(file);

	apus_config *config = apus_config_parse(text, length, dirname(argv[2]));
	if (!config)
		return failed();
	apus_app *app = apus_app_new();
	apus_server *server = apus_server_new(app);
	int status = apus_server_config(server, config) == APUS_OK && apus_server_run(server) == APUS_OK ? 0 : failed();
	apus_server_free(server);
	apus_config_free(config);
	return status;
}
