/* The memory of connections and requests, as the functions of apus_set_allocator() see it. One line has the bytes of an idle
 * connection, the most bytes of a request beside them, the allocations of a request, and what 10,000 requests left. */

#define _GNU_SOURCE
#include <apus.h>
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECTIONS = 200, REQUESTS = 10000 };

static size_t live, peak, allocations;

static void *allocate(size_t align, size_t len, void *user) {
  void *memory = NULL;
  (void)user;
  ++allocations;
  live += len;
  if (live > peak) peak = live;
  return posix_memalign(&memory, align < sizeof(void *) ? sizeof(void *) : align, len) ? NULL : memory;
}

static void release(void *memory, size_t align, size_t len, void *user) {
  (void)align, (void)user;
  live -= len;
  free(memory);
}

static int hello(apus_request *request, apus_response *response, void *user) {
  (void)request, (void)user;
  return apus_response_text(response, "Hello, world!\n", APUS_NTS) == APUS_OK ? 0 : 500;
}

static apus_worker *worker;

static int open_client(void) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(apus_worker_port(worker, 0)), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  int client = socket(AF_INET, SOCK_STREAM, 0);
  if (client < 0 || connect(client, (struct sockaddr *)&at, sizeof at)) exit(1);
  return client;
}

/* Everything is on this thread, so that nothing else allocates meanwhile. */
static void get(int client) {
  static const char request[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  char response[4096];
  if (write(client, request, sizeof request - 1) != sizeof request - 1) exit(1);
  ssize_t got;
  while ((got = recv(client, response, sizeof response, MSG_DONTWAIT)) < 0) apus_worker_step(worker);
  if (got < 14 || memcmp(response + got - 14, "Hello, world!\n", 14)) exit(1);
  apus_worker_step(worker);
}

int main(void) {
  apus_allocator functions = {allocate, release, NULL};
  if (apus_set_allocator(&functions) != APUS_OK) return 1;
  apus_app *app = apus_app_new();
  apus_app_get(app, "/", hello, NULL);
  apus_server *server = apus_server_new(app);
  apus_server_listen(server, "127.0.0.1:0");
  worker = apus_worker_new(server);
  if (!worker) return 1;
  int clients[CONNECTIONS];
  /* What is made once, and tables that grow. */
  for (int i = 0; i < CONNECTIONS; ++i) get(clients[i] = open_client());
  for (int i = 0; i < CONNECTIONS; ++i) close(clients[i]);
  for (int i = 0; i < 10; ++i) apus_worker_step(worker);

  size_t before = live;
  for (int i = 0; i < CONNECTIONS; ++i) get(clients[i] = open_client());
  size_t of_connection = (live - before) / CONNECTIONS;

  get(clients[0]);
  before = peak = live, allocations = 0;
  for (int i = 0; i < REQUESTS; ++i) get(clients[0]);
  printf("%zu %zu %.2f %td\n", of_connection, peak - before, (double)allocations / REQUESTS, (ptrdiff_t)(live - before));
  apus_worker_free(worker);
  return 0;
}
