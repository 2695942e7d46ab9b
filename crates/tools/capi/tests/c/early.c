/* early ADDRESS: workers that use their server when they start, which is before apus_server_start() returns. */

#include <apus.h>
#include <stdatomic.h>
#include <stdio.h>

static apus_server *server;
static atomic_int without_port, without_status, started;

static void use(void *user) {
  (void)user;
  if (apus_server_address_count(server) != 1 || !apus_server_port(server, 0)) without_port++;
  char *status = apus_server_status(server);
  if (!status) without_status++;
  apus_string_free(status);
  started++;
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  server = apus_server_new(apus_app_new());
  if (apus_server_listen(server, argv[1]) || apus_server_workers(server, 3)) return 1;
  if (apus_server_on_worker_start(server, use, NULL)) return 1;
  if (apus_server_start(server) || apus_server_start(server) != APUS_STATE) return 1;
  if (apus_server_stop(server) || apus_server_wait(server)) return 1;
  printf("%d workers, %d without port, %d without status\n", started, without_port, without_status);
  apus_server_free(server);
  return 0;
}
