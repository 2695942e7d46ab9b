/* A reverse proxy with a cache in front of origins: `proxy ADDRESS ORIGIN...`. */
#include <apus.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	if (argc < 3) {
		fprintf(stderr, "usage: %s ADDRESS ORIGIN...\n", argv[0]);
		return 2;
	}
	apus_upstream *upstream = apus_upstream_new();
	apus_upstream_strategy(upstream, "least_conn");
	for (int at = 2; at < argc; at++)
		if (apus_upstream_node(upstream, argv[at], 1) != APUS_OK) {
			fprintf(stderr, "%s\n", apus_last_error());
			return 1;
		}
	apus_app *app = apus_app_new();
	apus_app_mount(app, "/", apus_cache_new(apus_proxy_new(upstream), 64 << 20));
	apus_server *server = apus_server_new(app);
	apus_server_listen(server, argv[1]);
	apus_status status = apus_server_run(server);
	if (status != APUS_OK)
		fprintf(stderr, "%s\n", apus_last_error());
	apus_server_free(server);
	return status != APUS_OK;
}
