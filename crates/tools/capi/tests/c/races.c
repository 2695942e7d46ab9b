/* races gates | races load: handles that a thread gives back while the worker calls back with them. `gates` makes each thread wait for
 * the other one, in memory that is overwritten when it is freed; `load` has many clients that leave. */

#define _GNU_SOURCE
#include <apus.h>
#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHECK(condition) ((condition) ? (void)0 : fail(#condition, __LINE__))

static void fail(const char *what, int line) {
  fprintf(stderr, "line %d: %s (%s)\n", line, what, apus_last_error());
  _exit(3);
}

/* Memory that is never used again, so that a use after its end is seen. */

static void *allocate(size_t align, size_t len, void *user) {
  (void)user;
  return aligned_alloc(align, (len + align - 1) / align * align);
}

static void release(void *memory, size_t align, size_t len, void *user) {
  (void)user, (void)align;
  memset(memory, 0xdd, len);
}

/* What the callbacks and the threads of one request share. */
struct state {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  apus_writer *writer;
  apus_deferred *deferred;
  /* The status with which the callback waits for the other thread. */
  apus_status when;
  bool is_called, is_given_back;
  unsigned calls;
};

static atomic_uint made, destroyed, completed;

static void destroy(void *data) {
  struct state *state = data;
  /* The last use by another thread came before. */
  pthread_mutex_lock(&state->lock);
  pthread_mutex_unlock(&state->lock);
  memset(state, 0xdd, sizeof *state);
  free(state);
  atomic_fetch_add(&destroyed, 1);
}

static struct state *new_state(apus_status when) {
  struct state *state = calloc(1, sizeof *state);
  pthread_mutex_init(&state->lock, NULL);
  pthread_cond_init(&state->changed, NULL);
  state->when = when;
  atomic_fetch_add(&made, 1);
  return state;
}

/* Says that the callback runs, and waits until the other thread has given the handle back. */
static void pass_gate(struct state *state) {
  pthread_mutex_lock(&state->lock);
  state->is_called = true;
  pthread_cond_broadcast(&state->changed);
  while (!state->is_given_back) pthread_cond_wait(&state->changed, &state->lock);
  pthread_mutex_unlock(&state->lock);
}

static void wait_for_callback(struct state *state) {
  pthread_mutex_lock(&state->lock);
  while (!state->is_called) pthread_cond_wait(&state->changed, &state->lock);
  pthread_mutex_unlock(&state->lock);
}

static void open_gate(struct state *state) {
  pthread_mutex_lock(&state->lock);
  state->is_given_back = true;
  pthread_cond_broadcast(&state->changed);
  pthread_mutex_unlock(&state->lock);
}

/* Clients. */

static uint16_t port;

static int request(const char *head) {
  int client = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(client, (struct sockaddr *)&address, sizeof address) || write(client, head, strlen(head)) < 0) fail("connect", 0);
  return client;
}

static void wait_until_all_is_destroyed(void) {
  while (atomic_load(&destroyed) != atomic_load(&made)) usleep(1000);
}

/* Gates. */

static _Atomic(struct state *) current;
static apus_status next_when;

static void ready(apus_writer *writer, apus_status status, void *user) {
  struct state *state = user;
  if (status != state->when) {
    apus_writer_write(writer, "some bytes", APUS_NTS);
    return;
  }
  pass_gate(state);
  unsigned before = atomic_load(&destroyed);
  CHECK(apus_writer_is_closed(writer));
  CHECK(apus_writer_write(writer, "more", 4) == APUS_CLOSED);
  CHECK(apus_writer_trailer(writer, "X-Late", "1", 1) == APUS_CLOSED);
  CHECK(apus_writer_on_ready(writer, ready, state) == APUS_CLOSED);
  CHECK(apus_writer_data(writer) == state);
  apus_writer_finish(writer);
  apus_writer_abort(writer);
  CHECK(atomic_load(&destroyed) == before);
  CHECK(state->when == status);
}

static int stream(apus_request *request_, apus_response *response, void *user) {
  (void)request_, (void)user;
  struct state *state = new_state(next_when);
  state->writer = apus_response_stream(response, 64);
  CHECK(state->writer);
  CHECK(!apus_writer_data(state->writer));
  CHECK(apus_writer_set_data(state->writer, state, destroy) == APUS_OK);
  CHECK(apus_writer_on_ready(state->writer, ready, state) == APUS_OK);
  atomic_store(&current, state);
  return 0;
}

static int chunk(apus_deferred *deferred, apus_status status, const char *data, size_t len, void *user) {
  struct state *state = user;
  (void)data, (void)len;
  if (status != state->when) return 0;
  pass_gate(state);
  unsigned before = atomic_load(&destroyed);
  CHECK(status == APUS_CLOSED || !apus_deferred_is_cancelled(deferred));
  CHECK(apus_deferred_resume(deferred) == APUS_OK);
  CHECK(apus_request_data(apus_deferred_request(deferred)) == state);
  CHECK(apus_complete(deferred, 0) == APUS_STATE);
  CHECK(apus_complete(deferred, 500) == APUS_STATE);
  CHECK(atomic_load(&destroyed) == before);
  CHECK(state->when == status);
  return 0;
}

static int upload(apus_request *request_, apus_response *response, void *user) {
  (void)response, (void)user;
  struct state *state = new_state(next_when);
  CHECK(apus_request_set_data(request_, state, destroy) == APUS_OK);
  state->deferred = apus_defer(request_);
  CHECK(state->deferred);
  CHECK(apus_deferred_read(state->deferred, 0, chunk, state) == APUS_OK);
  atomic_store(&current, state);
  return 0;
}

static void pass_gates(void) {
  for (int round = 0; round < 12; round++) {
    bool leaves = round % 2, is_deferred = round % 4 < 2;
    next_when = leaves ? APUS_CLOSED : APUS_OK;
    atomic_store(&current, NULL);
    int client = request(is_deferred ? "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n12345"
                                     : "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    struct state *state;
    while (!(state = atomic_load(&current))) usleep(1000);
    if (leaves) close(client);
    wait_for_callback(state);
    if (is_deferred) {
      /* The end of the body may be seen before the end of the connection. */
      apus_status status = apus_complete(state->deferred, 0);
      CHECK(status == APUS_OK || (leaves && status == APUS_CLOSED));
    } else if (round < 6) apus_writer_finish(state->writer);
    else apus_writer_abort(state->writer);
    open_gate(state);
    if (!leaves) close(client);
    wait_until_all_is_destroyed();
  }
}

/* Load: threads that write and give back, and clients that leave at any time. */

enum { CLIENTS = 4, REQUESTS = 60, WRITERS = 3 };

static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t queue_changed = PTHREAD_COND_INITIALIZER;
static void *queue[CLIENTS * REQUESTS + WRITERS + 1];
static bool queue_is_sse[CLIENTS * REQUESTS + WRITERS + 1];
static size_t queue_start, queue_end;

static void push(void *work, bool is_sse) {
  pthread_mutex_lock(&queue_lock);
  queue_is_sse[queue_end] = is_sse;
  queue[queue_end++] = work;
  pthread_cond_signal(&queue_changed);
  pthread_mutex_unlock(&queue_lock);
}

static void room(apus_writer *writer, apus_status status, void *user) {
  struct state *state = user;
  pthread_mutex_lock(&state->lock);
  state->calls++;
  pthread_cond_broadcast(&state->changed);
  pthread_mutex_unlock(&state->lock);
  if (status == APUS_OK) apus_writer_write(writer, "ready\n", 6);
  else CHECK(apus_writer_is_closed(writer));
}

static int many(apus_request *request_, apus_response *response, void *user) {
  (void)request_, (void)user;
  struct state *state = new_state(APUS_OK);
  state->writer = apus_response_stream(response, 100);
  CHECK(apus_writer_set_data(state->writer, state, destroy) == APUS_OK);
  CHECK(apus_writer_on_ready(state->writer, room, state) == APUS_OK);
  push(state, false);
  return 0;
}

static int events(apus_request *request_, apus_response *response, void *user) {
  (void)request_, (void)user;
  push(apus_response_sse(response), true);
  return 0;
}

static void *write_all(void *user) {
  (void)user;
  for (;;) {
    pthread_mutex_lock(&queue_lock);
    while (queue_start == queue_end) pthread_cond_wait(&queue_changed, &queue_lock);
    bool is_sse = queue_is_sse[queue_start];
    void *work = queue[queue_start++];
    pthread_mutex_unlock(&queue_lock);
    if (!work) return NULL;
    if (is_sse) {
      for (int event = 0; event < 50 && apus_sse_send(work, NULL, NULL, "an event", APUS_NTS) == APUS_OK; event++) {
      }
      apus_sse_close(work);
      atomic_fetch_add(&completed, 1);
      continue;
    }
    struct state *state = work;
    apus_writer *writer = state->writer;
    unsigned parts = 0;
    while (parts < 50) {
      pthread_mutex_lock(&state->lock);
      unsigned calls = state->calls;
      pthread_mutex_unlock(&state->lock);
      apus_status status = apus_writer_write(writer, "a part of the body\n", 19);
      if (status == APUS_CLOSED) break;
      if (status == APUS_OK) {
        parts++;
        continue;
      }
      pthread_mutex_lock(&state->lock);
      while (state->calls == calls && !apus_writer_is_closed(writer)) {
        struct timespec soon;
        clock_gettime(CLOCK_REALTIME, &soon);
        soon.tv_nsec += 1000000;
        if (soon.tv_nsec >= 1000000000) soon.tv_sec++, soon.tv_nsec -= 1000000000;
        pthread_cond_timedwait(&state->changed, &state->lock, &soon);
      }
      pthread_mutex_unlock(&state->lock);
    }
    if (parts % 2) apus_writer_abort(writer);
    else apus_writer_finish(writer);
    atomic_fetch_add(&completed, 1);
  }
}

static void *leave(void *user) {
  unsigned seed = *(unsigned *)user;
  for (int at = 0; at < REQUESTS; at++) {
    int client = request(rand_r(&seed) % 4 ? "GET /many HTTP/1.1\r\nHost: a\r\n\r\n" : "GET /events HTTP/1.1\r\nHost: a\r\n\r\n");
    char bytes[256];
    for (int reads = rand_r(&seed) % 4; reads > 0 && read(client, bytes, sizeof bytes) > 0; reads--) {
    }
    struct linger reset = {.l_onoff = rand_r(&seed) % 2};
    setsockopt(client, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(client);
  }
  return NULL;
}

static void load(apus_server *server) {
  pthread_t clients[CLIENTS], writers[WRITERS];
  unsigned seeds[CLIENTS];
  for (int at = 0; at < WRITERS; at++) CHECK(!pthread_create(&writers[at], NULL, write_all, NULL));
  for (int at = 0; at < CLIENTS; at++) {
    seeds[at] = (unsigned)at + 1;
    CHECK(!pthread_create(&clients[at], NULL, leave, &seeds[at]));
  }
  for (int at = 0; at < CLIENTS; at++) pthread_join(clients[at], NULL);
  /* Requests of clients that have left may still come to their handlers. */
  apus_server_stop(server);
  apus_server_wait(server);
  wait_until_all_is_destroyed();
  for (int at = 0; at < WRITERS; at++) push(NULL, false);
  for (int at = 0; at < WRITERS; at++) pthread_join(writers[at], NULL);
}

int main(int argc, char **argv) {
  bool has_gates = argc == 2 && !strcmp(argv[1], "gates");
  if (has_gates) {
    apus_allocator functions = {allocate, release, NULL};
    CHECK(apus_set_allocator(&functions) == APUS_OK);
  }
  apus_app *app = apus_app_new();
  CHECK(apus_app_get(app, "/stream", stream, NULL) == APUS_OK);
  CHECK(apus_app_post(app, "/upload", upload, NULL) == APUS_OK);
  CHECK(apus_app_get(app, "/many", many, NULL) == APUS_OK);
  CHECK(apus_app_get(app, "/events", events, NULL) == APUS_OK);
  apus_server *server = apus_server_new(app);
  apus_server_workers(server, has_gates ? 1 : 2);
  CHECK(apus_server_listen(server, "127.0.0.1:0") == APUS_OK);
  CHECK(apus_server_start(server) == APUS_OK);
  port = apus_server_port(server, 0);
  if (has_gates) pass_gates();
  else load(server);
  apus_server_free(server);
  CHECK(atomic_load(&destroyed) == atomic_load(&made));
  puts("passed");
  return 0;
}
