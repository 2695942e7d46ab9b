/* A server with a route for each part of apus.h. It prints its ports, and reads commands from standard input. */

#define _GNU_SOURCE
#include <apus.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_int done_calls, freed_data, owned_freed, gone_calls, worker_starts, after_calls, log_lines, entries, freed_app;
static atomic_int cancelled_seen, body_freed, socket_closes, socket_freed, writer_closed;
static apus_rooms *rooms;
static char *root;

#define CHECK(call)                                                                             \
  do {                                                                                          \
    apus_status status_ = (call);                                                               \
    if (status_ != APUS_OK) {                                                                   \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, apus_last_error());         \
      exit(1);                                                                                  \
    }                                                                                           \
  } while (0)

#define MAKE(name, call)                                                                        \
  name = (call);                                                                                \
  if (!name) {                                                                                  \
    fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, apus_last_error());           \
    exit(1);                                                                                    \
  }

static int put(apus_response *response, const char *text) { return apus_response_text(response, text, APUS_NTS) ? 500 : 0; }

static int hello(apus_request *request, apus_response *response, void *user) {
  (void)request;
  return apus_response_body_static(response, user, APUS_NTS) ? 500 : 0;
}

static int parameters(apus_request *request, apus_response *response, void *user) {
  (void)user;
  int64_t signed_number = 0;
  uint64_t number = 0;
  if (apus_request_param_u64(request, "id", &number) || apus_request_param_i64(request, "id", &signed_number)) {
    apus_response_set_status(response, 422);
    return apus_response_text(response, apus_last_error(), APUS_NTS) ? 500 : 0;
  }
  apus_str name = apus_request_param(request, "name"), none = apus_request_param(request, "other");
  char text[256];
  snprintf(text, sizeof text, "%llu %lld %.*s %s", (unsigned long long)number, (long long)signed_number, (int)name.len, name.data,
           none.data ? "?" : "none");
  return put(response, text);
}

static bool count_field(apus_str name, apus_str value, void *user) {
  (void)name, (void)value;
  ++*(int *)user;
  return true;
}

static int facts(apus_request *request, apus_response *response, void *user) {
  (void)user;
  int fields = 0;
  apus_request_each_header(request, count_field, &fields);
  apus_str method = apus_request_method(request), path = apus_request_path(request), query = apus_request_query(request);
  apus_str value = apus_request_query_value(request, "a b"), host = apus_request_host(request), scheme = apus_request_scheme(request);
  apus_str cookie = apus_request_cookie(request, "taste"), header = apus_request_header(request, "X-Case");
  apus_str client = apus_request_client(request), body = apus_request_body(request), data = apus_request_client_certificate(request);
  char text[1024];
  snprintf(text, sizeof text, "%.*s %.*s q=%.*s v=%.*s h=%.*s s=%.*s c=%.*s x=%.*s ip=%.*s version=%d fields=%d body=%d cert=%d",
           (int)method.len, method.data, (int)path.len, path.data, (int)query.len, query.data ? query.data : "", (int)value.len,
           value.data ? value.data : "", (int)host.len, host.data, (int)scheme.len, scheme.data, (int)cookie.len,
           cookie.data ? cookie.data : "", (int)header.len, header.data ? header.data : "", (int)client.len,
           client.data ? client.data : "", (int)apus_request_version(request), fields, body.data != NULL, data.data != NULL);
  return put(response, text);
}

static int headers(apus_request *request, apus_response *response, void *user) {
  (void)request, (void)user;
  CHECK(apus_response_set_status(response, 201));
  CHECK(apus_response_set_header(response, "X-One", "first", APUS_NTS));
  CHECK(apus_response_set_header(response, "X-One", "second", 6));
  CHECK(apus_response_add_header(response, "X-Many", "a", APUS_NTS));
  CHECK(apus_response_add_header(response, "X-Many", "b", APUS_NTS));
  CHECK(apus_response_set_header(response, "X-Removed", "a", APUS_NTS));
  CHECK(apus_response_remove_header(response, "x-removed"));
  if (apus_response_remove_header(response, "x-removed") != APUS_NOT_FOUND) return 500;
  if (apus_response_set_header(response, "X-Bad", "a\r\nInjected: b", APUS_NTS) != APUS_INVALID) return 501;
  if (apus_response_set_status(response, 99) != APUS_INVALID || apus_response_status(response) != 201) return 502;
  apus_str one = apus_response_header(response, "x-one");
  if (one.len != 6 || memcmp(one.data, "second", 6)) return 503;
  return apus_response_json(response, "{\"ok\":true}", APUS_NTS) ? 500 : 0;
}

static int page(apus_request *request, apus_response *response, void *user) {
  (void)request, (void)user;
  return apus_response_html(response, "<p>hi", APUS_NTS) ? 500 : 0;
}

static int redirect(apus_request *request, apus_response *response, void *user) {
  (void)request, (void)user;
  return apus_response_redirect(response, 303, "/hello") ? 500 : 0;
}

static void free_body(void *data) {
  ++body_freed;
  free(data);
}

static int owned(apus_request *request, apus_response *response, void *user) {
  (void)request, (void)user;
  char *bytes = strdup("owned bytes");
  return apus_response_body_owned(response, bytes, strlen(bytes), free_body, bytes) ? 500 : 0;
}

static int copied(apus_request *request, apus_response *response, void *user) {
  (void)request, (void)user;
  char bytes[] = "copied bytes";
  int failed = apus_response_body(response, bytes, strlen(bytes)) != APUS_OK;
  memset(bytes, 'x', sizeof bytes);
  return failed ? 500 : 0;
}

static int send_file(apus_request *request, apus_response *response, void *user) {
  (void)request, (void)user;
  char path[512];
  snprintf(path, sizeof path, "%s/big.txt", root);
  int fd = open(path, O_RDONLY);
  struct stat found;
  fstat(fd, &found);
  if (apus_response_sendfile(response, fd, 0, (uint64_t)found.st_size + 1) != APUS_IO) return 500;
  apus_status status = apus_response_sendfile(response, fd, 10, (uint64_t)found.st_size - 10);
  close(fd);
  return status ? 500 : 0;
}

static int status_of_route(apus_request *request, apus_response *response, void *user) {
  (void)response, (void)user;
  int64_t status = 0;
  apus_request_param_i64(request, "status", &status);
  return (int)status;
}

/* The body. */
static int with_body(apus_request *request, apus_response *response, void *user) {
  apus_str body = apus_request_body(request), trailer = apus_request_trailer(request, "X-Sum");
  char text[128];
  int len = snprintf(text, sizeof text, "%s %zu %.*s", (char *)user, body.len, (int)trailer.len, trailer.data ? trailer.data : "");
  return apus_response_text(response, text, (size_t)len) ? 500 : 0;
}

static int read_body(apus_request *request, apus_response *response, void *user) {
  (void)response;
  if (apus_request_read_body(request, 100000, with_body, user)) return 500;
  return apus_request_read_body(request, 100000, with_body, user) == APUS_STATE ? 0 : 500;
}

struct upload {
  size_t bytes;
  unsigned parts;
  apus_deferred *deferred;
};

static void *resume_later(void *data) {
  usleep(1000);
  apus_deferred_resume(data);
  return NULL;
}

static int take_part(apus_deferred *deferred, apus_status status, const char *data, size_t len, void *user) {
  struct upload *upload = user;
  (void)data;
  if (status == APUS_OK) {
    upload->bytes += len;
    if (++upload->parts == 1) {
      pthread_t thread;
      pthread_create(&thread, NULL, resume_later, deferred);
      pthread_detach(thread);
      return APUS_PAUSE;
    }
    return 0;
  }
  char text[100];
  snprintf(text, sizeof text, "%s %zu", apus_status_name(status), upload->bytes);
  apus_response_text(apus_deferred_response(deferred), text, APUS_NTS);
  free(upload);
  if (status == APUS_CLOSED) ++gone_calls;
  apus_complete(deferred, status == APUS_TOO_LARGE ? 413 : 0);
  return 0;
}

static int upload(apus_request *request, apus_response *response, void *user) {
  (void)response, (void)user;
  apus_deferred *deferred = apus_defer(request);
  if (!deferred) return 500;
  struct upload *state = calloc(1, sizeof *state);
  return apus_deferred_read(deferred, 1 << 20, take_part, state) ? 500 : 0;
}

/* Deferred responses. */
static void *work(void *data) {
  apus_deferred *deferred = data;
  apus_request *request = apus_deferred_request(deferred);
  apus_str name = apus_request_param(request, "name");
  char text[200];
  snprintf(text, sizeof text, "deferred %.*s", (int)name.len, name.data);
  apus_response_text(apus_deferred_response(deferred), text, APUS_NTS);
  apus_complete(deferred, 0);
  return NULL;
}

static int defer(apus_request *request, apus_response *response, void *user) {
  (void)response, (void)user;
  apus_deferred *deferred = apus_defer(request);
  pthread_t thread;
  pthread_create(&thread, NULL, work, deferred);
  pthread_detach(thread);
  return 0;
}

static int defer_error(apus_request *request, apus_response *response, void *user) {
  (void)response, (void)user;
  apus_complete(apus_defer(request), 429);
  return 0;
}

static void *wait_for_cancel(void *data) {
  apus_deferred *deferred = data;
  while (!apus_deferred_is_cancelled(deferred)) usleep(1000);
  if (apus_complete(deferred, 0) == APUS_CLOSED) ++cancelled_seen;
  return NULL;
}

static void count_done(apus_outcome outcome, void *user) {
  ++done_calls;
  if (outcome == APUS_OUTCOME_CLIENT_GONE) ++*(atomic_int *)user;
}

static void free_data(void *data) {
  ++freed_data;
  free(data);
}

static int slow(apus_request *request, apus_response *response, void *user) {
  (void)response, (void)user;
  CHECK(apus_request_on_done(request, count_done, &gone_calls));
  CHECK(apus_request_set_data(request, malloc(10), free_data));
  pthread_t thread;
  pthread_create(&thread, NULL, wait_for_cancel, apus_defer(request));
  pthread_detach(thread);
  return 0;
}

static int with_data(apus_request *request, apus_response *response, void *user) {
  (void)user;
  CHECK(apus_request_on_done(request, count_done, &gone_calls));
  return put(response, apus_request_data(request) ? apus_request_data(request) : "no data");
}

static int interim(apus_request *request, apus_response *response, void *user) {
  (void)user;
  apus_field field = {{"link", 4}, {"</a.css>; rel=preload", 21}};
  CHECK(apus_request_interim(request, 103, &field, 1));
  if (apus_request_interim(request, 200, NULL, 0) != APUS_INVALID) return 500;
  return put(response, "final");
}

/* Bodies in parts. */
struct numbers {
  int next, last;
};

static void write_numbers(apus_writer *writer, apus_status status, void *user) {
  struct numbers *numbers = user;
  if (status == APUS_CLOSED) {
    ++writer_closed;
    free(numbers);
    apus_writer_finish(writer);
    return;
  }
  while (numbers->next < numbers->last) {
    char line[1024];
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\n';
    snprintf(line, 20, "%d", numbers->next);
    if (apus_writer_write(writer, line, sizeof line) != APUS_OK) return;
    ++numbers->next;
  }
  apus_writer_trailer(writer, "X-Lines", "done", APUS_NTS);
  free(numbers);
  apus_writer_finish(writer);
}

static int stream(apus_request *request, apus_response *response, void *user) {
  (void)user;
  uint64_t lines = 0;
  apus_request_param_u64(request, "lines", &lines);
  struct numbers *numbers = calloc(1, sizeof *numbers);
  numbers->last = (int)lines;
  apus_writer *writer = apus_response_stream(response, 16 * 1024);
  return apus_writer_on_ready(writer, write_numbers, numbers) ? 500 : 0;
}

static void *write_from_thread(void *data) {
  apus_writer *writer = data;
  for (int i = 0; i < 3; ++i) {
    char text[20];
    snprintf(text, sizeof text, "part %d\n", i);
    if (apus_writer_write(writer, text, strlen(text))) break;
    usleep(1000);
  }
  char path[512];
  snprintf(path, sizeof path, "%s/small.txt", root);
  int fd = open(path, O_RDONLY);
  apus_writer_sendfile(writer, fd, 0, 5);
  close(fd);
  apus_writer_finish(writer);
  return NULL;
}

static int stream_thread(apus_request *request, apus_response *response, void *user) {
  (void)request, (void)user;
  pthread_t thread;
  pthread_create(&thread, NULL, write_from_thread, apus_response_stream(response, 0));
  pthread_detach(thread);
  return 0;
}

static int stream_abort(apus_request *request, apus_response *response, void *user) {
  (void)request, (void)user;
  apus_writer *writer = apus_response_stream(response, 0);
  apus_writer_write(writer, "not all", APUS_NTS);
  if (apus_writer_is_closed(writer)) return 500;
  apus_writer_abort(writer);
  return 0;
}

static int stream_full(apus_request *request, apus_response *response, void *user) {
  (void)request, (void)user;
  apus_writer *writer = apus_response_stream(response, 4);
  if (apus_writer_write(writer, "123456", 6) != APUS_OK) return 500;
  if (apus_writer_write(writer, "7", 1) != APUS_FULL) return 501;
  apus_writer_finish(writer);
  return 0;
}

/* Events. */
static void *send_events(void *data) {
  apus_sse *sse = data;
  apus_sse_send(sse, "greeting", "1", "hello\nworld", APUS_NTS);
  apus_sse_send(sse, NULL, NULL, "last", 4);
  if (apus_sse_is_closed(sse)) ++gone_calls;
  apus_sse_close(sse);
  return NULL;
}

static int events(apus_request *request, apus_response *response, void *user) {
  (void)request, (void)user;
  pthread_t thread;
  pthread_create(&thread, NULL, send_events, apus_response_sse(response));
  pthread_detach(thread);
  return 0;
}

/* WebSockets. */
static int ask_socket(apus_request *request, apus_response *response, void *user) {
  (void)response, (void)user;
  return apus_request_query_value(request, "forbidden").data ? 403 : 0;
}

static void free_socket(void *data) {
  ++socket_freed;
  free(data);
}

static void socket_open(apus_websocket *socket, apus_request *request, void *user) {
  (void)user;
  apus_str room = apus_request_param(request, "room");
  char *name = strndup(room.data, room.len);
  CHECK(apus_websocket_set_data(socket, name, free_socket));
  CHECK(apus_rooms_join(rooms, name, socket));
  apus_str protocol = apus_websocket_protocol(socket);
  char text[100];
  snprintf(text, sizeof text, "welcome to %s by %.*s", name, (int)protocol.len, protocol.data ? protocol.data : "");
  CHECK(apus_websocket_send(socket, APUS_MESSAGE_TEXT, text, APUS_NTS));
}

static void socket_message(apus_websocket *socket, apus_message_kind kind, const char *data, size_t len, void *user) {
  (void)user;
  char *room = apus_websocket_data(socket);
  if (len == 4 && !memcmp(data, "quit", 4)) {
    CHECK(apus_websocket_close(socket, 1000, "bye"));
  } else if (len == 5 && !memcmp(data, "leave", 5)) {
    CHECK(apus_rooms_leave(rooms, room, socket));
    if (apus_rooms_leave(rooms, room, socket) != APUS_NOT_FOUND) abort();
    CHECK(apus_websocket_send(socket, APUS_MESSAGE_TEXT, "left", APUS_NTS));
  } else if (kind == APUS_MESSAGE_BINARY) {
    CHECK(apus_websocket_send(socket, kind, data, len));
  } else {
    CHECK(apus_rooms_publish(rooms, room, kind, data, len, socket));
  }
}

static void socket_close(apus_websocket *socket, int code, apus_str reason, void *user) {
  (void)user, (void)reason;
  if (apus_websocket_id(socket) && code) ++socket_closes;
}

/* A socket that sends until the client is slow, and the rest when there is room. */
static atomic_int flooded, drained;

static void flood(apus_websocket *socket) {
  static char block[8192];
  while (flooded < 400) {
    apus_status status = apus_websocket_send(socket, APUS_MESSAGE_BINARY, block, sizeof block);
    if (status == APUS_FULL) return;
    if (status != APUS_OK) abort();
    ++flooded;
  }
  apus_websocket_close(socket, 3000, NULL);
}

static void flood_open(apus_websocket *socket, apus_request *request, void *user) {
  (void)request, (void)user;
  flood(socket);
}

static void flood_drained(apus_websocket *socket, void *user) {
  (void)user;
  ++drained;
  flood(socket);
}

/* Timers, and functions on a worker. */
struct ticking {
  apus_deferred *deferred;
  apus_timer *timer;
  int ticks;
};

static void tick(void *data) {
  struct ticking *ticking = data;
  if (++ticking->ticks < 3) return;
  apus_timer_free(ticking->timer);
  put(apus_deferred_response(ticking->deferred), "three ticks");
  apus_complete(ticking->deferred, 0);
  free(ticking);
}

static int timer(apus_request *request, apus_response *response, void *user) {
  (void)response, (void)user;
  struct ticking *ticking = calloc(1, sizeof *ticking);
  ticking->deferred = apus_defer(request);
  ticking->timer = apus_timer_start(1, 2, tick, ticking);
  apus_timer *never = apus_timer_start(100000, 0, tick, NULL);
  apus_timer_free(never);
  return ticking->timer ? 0 : 500;
}

struct posted {
  apus_deferred *deferred;
  apus_executor *executor, *found;
};

static void on_worker(void *data) {
  struct posted *posted = data;
  posted->found = apus_executor_current();
  put(apus_deferred_response(posted->deferred), posted->found ? "on a worker" : "elsewhere");
  apus_complete(posted->deferred, 0);
  apus_executor_free(posted->found);
  apus_executor_free(posted->executor);
  free(posted);
}

static void *post(void *data) {
  struct posted *posted = data;
  if (apus_executor_current()) abort();
  apus_executor_post(posted->executor, on_worker, posted);
  return NULL;
}

static int executor(apus_request *request, apus_response *response, void *user) {
  (void)response, (void)user;
  struct posted *posted = calloc(1, sizeof *posted);
  posted->executor = apus_executor_current();
  posted->deferred = apus_defer(request);
  pthread_t thread;
  pthread_create(&thread, NULL, post, posted);
  pthread_detach(thread);
  return 0;
}

/* Hooks. */
static int before(apus_request *request, apus_response *response, void *user) {
  (void)user;
  if (apus_request_header(request, "x-stop").data) {
    apus_response_set_status(response, 418);
    apus_response_text(response, "stopped", APUS_NTS);
    return APUS_RESPOND;
  }
  if (apus_request_header(request, "x-refuse").data) return 401;
  if (apus_request_header(request, "x-user").data) {
    CHECK(apus_request_set_data(request, strdup("data of the hook"), free_data));
  }
  if (apus_defer(request)) abort();
  if (apus_request_on_done(request, count_done, NULL) != APUS_STATE) abort();
  return 0;
}

static void after(apus_response *response, void *user) {
  (void)user;
  ++after_calls;
  apus_response_set_header(response, "X-After", "yes", APUS_NTS);
}

static int on_error(const apus_error *error, apus_response *response, void *user) {
  (void)user;
  if (error->status == 404) return 0;
  char text[200];
  snprintf(text, sizeof text, "error %d %.*s format %d", error->status, (int)error->detail.len,
           error->detail.data ? error->detail.data : "", (int)error->format);
  put(response, text);
  return APUS_RESPOND;
}

static void log_entry(const apus_access_entry *entry, void *user) {
  (void)user;
  if (entry->method.len && entry->path.len && entry->status) ++entries;
}

static void log_line(int level, apus_str message, void *user) {
  (void)user;
  if (level >= 1 && level <= 5 && message.len) ++log_lines;
}

static void start_worker(void *user) {
  (void)user;
  ++worker_starts;
}

static void free_owned(void *data) {
  ++*(atomic_int *)data;
}

static int show_counts(apus_request *request, apus_response *response, void *user) {
  (void)request, (void)user;
  char text[512];
  snprintf(text, sizeof text,
           "done=%d data=%d gone=%d starts=%d after=%d log=%d entries=%d cancelled=%d body=%d closes=%d sockets=%d writer=%d "
           "flooded=%d drained=%d.",
           done_calls, freed_data, gone_calls, worker_starts, after_calls, log_lines > 0, entries, cancelled_seen, body_freed,
           socket_closes, socket_freed, writer_closed, flooded, drained > 0);
  return put(response, text);
}

static apus_certificate *find_certificate(apus_str name, void *user) {
  if (name.len != 13 || memcmp(name.data, "found.example", 13)) return NULL;
  char **files = user;
  return apus_certificate_files(files[0], files[1]);
}

static char *read_all(const char *path) {
  FILE *file = fopen(path, "r");
  char *text = calloc(1, 65536);
  size_t len = fread(text, 1, 65535, file);
  (void)len;
  fclose(file);
  return text;
}

/* server ROOT [CERT KEY CERT2 KEY2 AUTHORITY]: ROOT has files, and gets a Unix socket and an access log. */
int main(int argc, char **argv) {
  root = argv[1];
  CHECK(apus_log_callback(2, log_line, NULL));
  apus_app *MAKE(app, apus_app_new());
  rooms = apus_rooms_new();
  CHECK(apus_app_own(app, &freed_app, free_owned));
  CHECK(apus_app_get(app, "/hello", hello, "hello, world\n"));
  CHECK(apus_app_get(app, "/users/{id}/{name}", parameters, NULL));
  CHECK(apus_app_route(app, "*", "/facts", facts, NULL));
  CHECK(apus_app_post(app, "/headers", headers, NULL));
  CHECK(apus_app_put(app, "/headers", headers, NULL));
  CHECK(apus_app_delete(app, "/headers", headers, NULL));
  CHECK(apus_app_get(app, "/page", page, NULL));
  CHECK(apus_app_get(app, "/redirect", redirect, NULL));
  CHECK(apus_app_get(app, "/owned", owned, NULL));
  CHECK(apus_app_get(app, "/copied", copied, NULL));
  CHECK(apus_app_get(app, "/sendfile", send_file, NULL));
  CHECK(apus_app_get(app, "/status/{status}", status_of_route, NULL));
  CHECK(apus_app_post(app, "/body", read_body, "read"));
  CHECK(apus_app_post(app, "/upload", upload, NULL));
  CHECK(apus_app_get(app, "/defer/{name}", defer, NULL));
  CHECK(apus_app_get(app, "/defer-error", defer_error, NULL));
  CHECK(apus_app_get(app, "/slow", slow, NULL));
  CHECK(apus_app_get(app, "/data", with_data, NULL));
  CHECK(apus_app_get(app, "/interim", interim, NULL));
  CHECK(apus_app_get(app, "/stream/{lines}", stream, NULL));
  CHECK(apus_app_get(app, "/stream-thread", stream_thread, NULL));
  CHECK(apus_app_get(app, "/stream-abort", stream_abort, NULL));
  CHECK(apus_app_get(app, "/stream-full", stream_full, NULL));
  CHECK(apus_app_get(app, "/events", events, NULL));
  CHECK(apus_app_get(app, "/timer", timer, NULL));
  CHECK(apus_app_get(app, "/executor", executor, NULL));
  CHECK(apus_app_get(app, "/counts", show_counts, NULL));
  apus_websocket_events chat = {.size = sizeof chat, .request = ask_socket, .open = socket_open, .message = socket_message,
                                .close = socket_close, .protocols = "chat, superchat"};
  CHECK(apus_app_websocket(app, "/chat/{room}", &chat, NULL));
  apus_websocket_events flooding = {.size = sizeof flooding, .open = flood_open, .drained = flood_drained, .no_compression = true};
  CHECK(apus_app_websocket(app, "/flood", &flooding, NULL));
  CHECK(apus_app_before(app, before, NULL));
  CHECK(apus_app_after(app, after, NULL));
  CHECK(apus_app_on_error(app, on_error, NULL));
  apus_app *MAKE(group, apus_app_group(app, "/api"));
  CHECK(apus_app_get(group, "/hello", hello, "hello from the group\n"));
  apus_app *MAKE(inner, apus_app_group(group, "/v1"));
  CHECK(apus_app_get(inner, "/hello", hello, "hello from v1\n"));
  apus_app *MAKE(host, apus_app_host(app, "other.example"));
  CHECK(apus_app_get(host, "/hello", hello, "hello from the host\n"));
  CHECK(apus_app_fallback(group, hello, "fallback\n"));

  apus_files_options options = {.size = sizeof options, .cache_control = "max-age=60", .listing = true};
  apus_service *MAKE(files, apus_files_new(root, &options));
  CHECK(apus_app_mount(app, "/files", files));
  apus_service *MAKE(moved, apus_redirect_new(301, "https://example.com/"));
  CHECK(apus_app_mount(app, "/moved", moved));
  apus_app *MAKE(small, apus_app_new());
  CHECK(apus_app_get(small, "/inside", facts, NULL));
  CHECK(apus_app_own(small, &owned_freed, free_owned));
  apus_service *MAKE(mounted, apus_app_service(small));
  CHECK(apus_app_mount(app, "/mounted", mounted));
  char socket_path[512], log_path[512], toml[1024];
  snprintf(socket_path, sizeof socket_path, "unix:%s/server.sock", root);
  apus_upstream *MAKE(upstream, apus_upstream_new());
  CHECK(apus_upstream_node(upstream, socket_path, 2));
  CHECK(apus_upstream_strategy(upstream, "least_conn"));
  apus_service *MAKE(proxy, apus_proxy_new(upstream));
  apus_service *MAKE(cache, apus_cache_new(proxy, 1 << 20));
  CHECK(apus_app_mount(app, "/proxied", cache));
  CHECK(apus_app_allow_encoded_slashes(app));
  CHECK(apus_app_get(app, "/object/{*key}", facts, NULL));
  apus_upstream *MAKE(raw_upstream, apus_upstream_new());
  CHECK(apus_upstream_node(raw_upstream, socket_path, 1));
  CHECK(apus_upstream_path(raw_upstream, "raw"));
  CHECK(apus_upstream_host(raw_upstream, "raw"));
  CHECK(apus_upstream_lenient(raw_upstream, true));
  CHECK(apus_upstream_response_head(raw_upstream, 8192, 50));
  apus_service *MAKE(raw_proxy, apus_proxy_new(raw_upstream));
  CHECK(apus_app_mount(app, "/raw", raw_proxy));
  snprintf(toml, sizeof toml,
           "[[sites]]\nname = \"configured\"\nserver_name = [\"configured.example\"]\nlisten = [\"127.0.0.1:%s\"]\nroot = \"%s\"\n"
           "[[sites.locations]]\npath = \"= /text\"\nreturn = { status = 200, text = \"configured\" }\n",
           argv[2], root);
  apus_config *MAKE(config, apus_config_parse(toml, APUS_NTS, NULL));
  apus_service *MAKE(sites, apus_config_service(config));
  CHECK(apus_app_mount(app, "/sites", sites));
  CHECK(apus_app_check(app));

  apus_server *MAKE(server, apus_server_new(app));
  CHECK(apus_server_listen(server, "127.0.0.1:0"));
  CHECK(apus_server_listen_unix(server, socket_path + 5));
  if (argc > 3) {
    apus_tls *MAKE(tls, apus_tls_new());
    char *certificate_text = read_all(argv[3]), *key_text = read_all(argv[4]), *authority = read_all(argv[7]);
    apus_certificate *MAKE(certificate, apus_certificate_pem(certificate_text, APUS_NTS, key_text, APUS_NTS));
    CHECK(apus_tls_certificate(tls, "localhost,*.example.com", certificate));
    CHECK(apus_tls_on_server_name(tls, find_certificate, argv + 5));
    CHECK(apus_tls_client_auth(tls, APUS_CLIENT_AUTH_OPTIONAL, authority, APUS_NTS));
    CHECK(apus_tls_min_version(tls, 13));
    CHECK(apus_tls_protocols(tls, true, true));
    CHECK(apus_server_listen_tls(server, "127.0.0.1:0", tls));
    free(certificate_text), free(key_text), free(authority);
  }
  CHECK(apus_server_config(server, config));
  apus_config_free(config);
  CHECK(apus_server_workers(server, 2));
  CHECK(apus_server_limit(server, APUS_LIMIT_HEAD_FIELDS, 50));
  CHECK(apus_server_limit(server, APUS_LIMIT_STOP_TIMEOUT, 5000));
  CHECK(apus_server_access_log(server, log_entry, NULL));
  snprintf(log_path, sizeof log_path, "%s/access.log", root);
  CHECK(apus_server_access_log_file(server, log_path, "combined"));
  CHECK(apus_server_on_worker_start(server, start_worker, NULL));
  CHECK(apus_server_start(server));
  if (apus_server_start(server) != APUS_STATE || apus_server_workers(server, 1) != APUS_STATE) return 1;
  printf("%zu", apus_server_address_count(server));
  for (size_t i = 0; i < apus_server_address_count(server); ++i) {
    if (!apus_server_address(server, i).data) return 1;
    printf(" %u", apus_server_port(server, i));
  }
  printf("\n");
  fflush(stdout);
  char command[100];
  while (fgets(command, sizeof command, stdin)) {
    if (!strcmp(command, "status\n")) {
      char *status = apus_server_status(server);
      printf("%s\n", status);
      apus_string_free(status);
    } else if (!strcmp(command, "publish\n")) {
      CHECK(apus_rooms_publish(rooms, "lobby", APUS_MESSAGE_TEXT, "from outside", APUS_NTS, NULL));
      printf("published\n");
    }
    fflush(stdout);
  }
  CHECK(apus_server_stop(server));
  CHECK(apus_server_wait(server));
  apus_server_free(server);
  apus_rooms_free(rooms);
  printf("freed %d %d\n", freed_app, owned_freed);
  return freed_app == 1 && owned_freed == 1 ? 0 : 1;
}
