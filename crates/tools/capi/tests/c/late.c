/* late server CERT KEY, or late worker: requests that are deferred, and completed by threads once the server has ended. */

#define _GNU_SOURCE
#include <apus.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 64, THREADS = 3 };

static apus_deferred *held[MOST];
static atomic_size_t count, next, freed, closed;

static void forget(void *data) {
  free(data);
  atomic_fetch_add(&freed, 1);
}

static int take(apus_deferred *deferred, apus_status status, const char *data, size_t len, void *user) {
  (void)deferred, (void)data, (void)len, (void)user;
  if (status == APUS_CLOSED) atomic_fetch_add(&closed, 1);
  return 0;
}

static int hold(apus_request *request, apus_response *response, void *user) {
  (void)response;
  if (apus_request_set_data(request, malloc(100), forget)) return 500;
  apus_deferred *deferred = apus_defer(request);
  if (!deferred) return 500;
  if (user && apus_deferred_read(deferred, 0, take, NULL)) return 500;
  held[atomic_fetch_add(&count, 1)] = deferred;
  return 0;
}

static void *complete(void *data) {
  (void)data;
  for (;;) {
    size_t at = atomic_fetch_add(&next, 1);
    if (at >= atomic_load(&count)) return NULL;
    apus_status expected = apus_deferred_is_cancelled(held[at]) ? APUS_CLOSED : APUS_OK;
    apus_response_text(apus_deferred_response(held[at]), "late", APUS_NTS);
    if (apus_complete(held[at], 0) != expected) exit(3);
  }
}

/* Completes those that are held, by threads at the same time. */
static void complete_all(void) {
  pthread_t threads[THREADS];
  atomic_store(&next, 0);
  for (int at = 0; at < THREADS; at++)
    if (pthread_create(&threads[at], NULL, complete, NULL)) exit(5);
  for (int at = 0; at < THREADS; at++)
    pthread_join(threads[at], NULL);
}

static apus_server *new_server(void) {
  apus_app *app = apus_app_new();
  apus_app_get(app, "/hold", hold, NULL);
  apus_app_post(app, "/hold", hold, NULL);
  apus_app_post(app, "/read", hold, app);
  apus_server *server = apus_server_new(app);
  apus_server_limit(server, APUS_LIMIT_STOP_TIMEOUT, 0);
  return server;
}

static void report(const char *when) {
  printf("%s: held %zu, freed %zu, closed %zu\n", when, atomic_load(&count), atomic_load(&freed), atomic_load(&closed));
  fflush(stdout);
}

static int serve(const char *certificate, const char *key) {
  apus_tls *tls = apus_tls_new();
  apus_tls_certificate(tls, NULL, apus_certificate_files(certificate, key));
  apus_server *server = new_server();
  apus_server_workers(server, 2);
  if (apus_server_listen(server, "127.0.0.1:0") || apus_server_listen_tls(server, "127.0.0.1:0", tls) ||
      apus_server_start(server)) {
    fprintf(stderr, "%s\n", apus_last_error());
    return 1;
  }
  printf("%u %u\n", apus_server_port(server, 0), apus_server_port(server, 1));
  fflush(stdout);
  char line[20];
  while (fgets(line, sizeof line, stdin)) report("running");
  apus_server_stop(server);
  apus_server_wait(server);
  report("ended");
  complete_all();
  report("completed");
  apus_server_free(server);
  report("freed");
  return 0;
}

static apus_worker *new_worker(void) {
  apus_server *server = new_server();
  apus_server_listen(server, "127.0.0.1:0");
  apus_worker *worker = apus_worker_new(server);
  if (!worker) {
    fprintf(stderr, "%s\n", apus_last_error());
    exit(1);
  }
  printf("%u\n", apus_worker_port(worker, 0));
  fflush(stdout);
  return worker;
}

/* Serves until a line of the input begins with an e, and reports for one with an r. */
static void run_worker(apus_worker *worker) {
  struct pollfd waits[2] = {{.fd = apus_worker_fd(worker), .events = POLLIN}, {.fd = 0, .events = POLLIN}};
  for (;;) {
    if (poll(waits, 2, apus_worker_timeout(worker)) < 0) exit(6);
    if (waits[1].revents) {
      char line;
      if (read(0, &line, 1) != 1 || line == 'e') return;
      if (line == 'r') report("running");
    }
    if (apus_worker_step(worker) != APUS_OK) exit(7);
  }
}

static int embed(void) {
  apus_worker *worker = new_worker();
  run_worker(worker);
  apus_worker_stop(worker);
  while (apus_worker_step(worker) != APUS_END) {
  }
  complete_all();
  apus_worker_free(worker);
  report("freed");
  /* Too late: their memory is kept until there is another worker. */
  atomic_store(&count, 0);
  worker = new_worker();
  run_worker(worker);
  apus_worker_free(worker);
  complete_all();
  report("kept");
  worker = new_worker();
  report("another");
  apus_worker_free(worker);
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 4 && !strcmp(argv[1], "server")) return serve(argv[2], argv[3]);
  return embed();
}
