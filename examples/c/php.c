/* A front for PHP over FastCGI, beside the files of its folder: `php ADDRESS FASTCGI FOLDER`, such as
 *     php 127.0.0.1:8080 unix:/run/php/php-fpm.sock /srv/site
 */
#include <apus.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	if (argc != 4) {
		fprintf(stderr, "usage: %s ADDRESS FASTCGI FOLDER\n", argv[0]);
		return 2;
	}
	apus_app *app = apus_app_new();
	apus_app_mount(app, "/", apus_php_new(argv[2], argv[3]));
	apus_server *server = apus_server_new(app);
	apus_server_listen(server, argv[1]);
	apus_status status = apus_server_run(server);
	if (status != APUS_OK)
		fprintf(stderr, "%s\n", apus_last_error());
	apus_server_free(server);
	return status != APUS_OK;
}
