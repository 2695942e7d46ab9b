/* run ADDRESS ROOT: a server in front of PHP, which runs until SIGTERM. */

#include <apus.h>
#include <stdio.h>

static apus_server *server;

static int stop(apus_request *request, apus_response *response, void *user) {
  (void)request, (void)user;
  if (apus_server_wait(server) != APUS_THREAD) return 500;
  if (apus_server_stop(server)) return 500;
  return apus_response_text(response, "stopping", APUS_NTS) ? 500 : 0;
}

static void announce(void *user) {
  (void)user;
  printf("started\n");
  fflush(stdout);
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  apus_app *app = apus_app_new();
  apus_service *php = apus_php_new(argv[1], argv[2]);
  if (!php || apus_app_mount(app, "/php", php) || apus_app_get(app, "/stop", stop, NULL)) return 1;
  server = apus_server_new(app);
  if (apus_server_listen(server, argv[3]) || apus_server_workers(server, 1)) return 1;
  if (apus_server_on_worker_start(server, announce, NULL)) return 1;
  apus_status status = apus_server_run(server);
  apus_server_free(server);
  printf("%s\n", apus_status_name(status));
  return 0;
}
