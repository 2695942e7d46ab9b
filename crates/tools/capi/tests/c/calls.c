/* Calls with wrong arguments, in wrong states and in random orders: errors with a text, and never a crash.
 *
 * calls errors | allocator | random SEED COUNT | handlers SEED COUNT */

#define _GNU_SOURCE
#include <apus.h>
#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define EXPECT(expected, call)                                                                                        \
  do {                                                                                                                \
    int got_ = (int)(call);                                                                                           \
    if (got_ != (int)(expected)) {                                                                                    \
      printf("%d: %s: %s instead of %s (%s)\n", __LINE__, #call, apus_status_name(got_), #expected, apus_last_error()); \
      return 1;                                                                                                       \
    }                                                                                                                 \
  } while (0)

#define TRUE(condition)                                                    \
  do {                                                                     \
    if (!(condition)) {                                                    \
      printf("%d: %s (%s)\n", __LINE__, #condition, apus_last_error());    \
      return 1;                                                            \
    }                                                                      \
  } while (0)

static int handler(apus_request *request, apus_response *response, void *user) {
  (void)request, (void)response, (void)user;
  return 0;
}

static void after(apus_response *response, void *user) { (void)response, (void)user; }
static int on_error(const apus_error *error, apus_response *response, void *user) {
  (void)error, (void)response, (void)user;
  return 0;
}
static void task(void *user) { (void)user; }
static void access_entry(const apus_access_entry *entry, void *user) { (void)entry, (void)user; }
static void ready(apus_writer *writer, apus_status status, void *user) { (void)writer, (void)status, (void)user; }
static int part(apus_deferred *deferred, apus_status status, const char *data, size_t len, void *user) {
  (void)deferred, (void)status, (void)data, (void)len, (void)user;
  return 0;
}
static void done(apus_outcome outcome, void *user) { (void)outcome, (void)user; }
static bool field(apus_str name, apus_str value, void *user) {
  (void)name, (void)value, (void)user;
  return true;
}
static void log_line(int level, apus_str message, void *user) { (void)level, (void)message, (void)user; }
static apus_certificate *find(apus_str name, void *user) {
  (void)name, (void)user;
  return NULL;
}
static int freed;
static void count(void *data) { ++*(int *)data; }

/* NULL in the place of each object. */
static int nulls(void) {
  int64_t i = 0;
  uint64_t u = 0;
  apus_field one = {{"a", 1}, {"b", 1}};
  EXPECT(APUS_INVALID, apus_set_allocator(NULL) == APUS_OK ? APUS_OK : APUS_INVALID);
  EXPECT(APUS_INVALID, apus_app_route(NULL, "GET", "/", handler, NULL));
  EXPECT(APUS_INVALID, apus_app_get(NULL, "/", handler, NULL));
  EXPECT(APUS_INVALID, apus_app_post(NULL, "/", handler, NULL));
  EXPECT(APUS_INVALID, apus_app_put(NULL, "/", handler, NULL));
  EXPECT(APUS_INVALID, apus_app_delete(NULL, "/", handler, NULL));
  EXPECT(APUS_INVALID, apus_app_websocket(NULL, "/", NULL, NULL));
  TRUE(!apus_app_group(NULL, "/a") && !apus_app_host(NULL, "a"));
  EXPECT(APUS_INVALID, apus_app_before(NULL, handler, NULL));
  EXPECT(APUS_INVALID, apus_app_after(NULL, after, NULL));
  EXPECT(APUS_INVALID, apus_app_fallback(NULL, handler, NULL));
  EXPECT(APUS_INVALID, apus_app_on_error(NULL, on_error, NULL));
  EXPECT(APUS_INVALID, apus_app_mount(NULL, "/", NULL));
  EXPECT(APUS_INVALID, apus_app_own(NULL, &freed, count));
  EXPECT(APUS_INVALID, apus_app_check(NULL));
  TRUE(!apus_files_new(NULL, NULL) && !apus_redirect_new(301, NULL) && !apus_proxy_new(NULL) && !apus_cache_new(NULL, 1));
  TRUE(!apus_php_new(NULL, NULL) && !apus_config_service(NULL) && !apus_app_service(NULL) && !apus_config_parse(NULL, 3, NULL));
  EXPECT(APUS_INVALID, apus_upstream_node(NULL, "127.0.0.1:1", 1));
  EXPECT(APUS_INVALID, apus_upstream_strategy(NULL, "p2c"));
  EXPECT(APUS_INVALID, apus_upstream_path(NULL, "raw"));
  EXPECT(APUS_INVALID, apus_upstream_host(NULL, "raw"));
  EXPECT(APUS_INVALID, apus_upstream_lenient(NULL, true));
  EXPECT(APUS_INVALID, apus_upstream_response_head(NULL, 65536, 256));
  EXPECT(APUS_INVALID, apus_app_allow_encoded_slashes(NULL));
  TRUE(!apus_request_method(NULL).data && !apus_request_path(NULL).data && !apus_request_query(NULL).data);
  TRUE(!apus_request_query_value(NULL, "a").data && !apus_request_param(NULL, "a").data && !apus_request_header(NULL, "a").data);
  EXPECT(APUS_INVALID, apus_request_param_i64(NULL, "a", &i));
  EXPECT(APUS_INVALID, apus_request_param_u64(NULL, "a", &u));
  apus_request_each_header(NULL, field, NULL);
  TRUE(!apus_request_cookie(NULL, "a").data && !apus_request_host(NULL).data && !apus_request_scheme(NULL).data);
  TRUE(apus_request_version(NULL) == APUS_HTTP_1_1 && !apus_request_client(NULL).data);
  TRUE(!apus_request_client_certificate(NULL).data && !apus_request_body(NULL).data && !apus_request_trailer(NULL, "a").data);
  EXPECT(APUS_INVALID, apus_request_set_data(NULL, NULL, NULL));
  TRUE(!apus_request_data(NULL));
  EXPECT(APUS_INVALID, apus_request_on_done(NULL, done, NULL));
  EXPECT(APUS_INVALID, apus_request_interim(NULL, 103, &one, 1));
  EXPECT(APUS_INVALID, apus_request_read_body(NULL, 1, handler, NULL));
  EXPECT(APUS_INVALID, apus_response_set_status(NULL, 200));
  TRUE(apus_response_status(NULL) == -1);
  EXPECT(APUS_INVALID, apus_response_set_header(NULL, "a", "b", 1));
  EXPECT(APUS_INVALID, apus_response_add_header(NULL, "a", "b", 1));
  EXPECT(APUS_INVALID, apus_response_remove_header(NULL, "a"));
  TRUE(!apus_response_header(NULL, "a").data);
  EXPECT(APUS_INVALID, apus_response_body(NULL, "a", 1));
  EXPECT(APUS_INVALID, apus_response_body_static(NULL, "a", 1));
  freed = 0;
  EXPECT(APUS_INVALID, apus_response_body_owned(NULL, "a", 1, count, &freed));
  TRUE(freed == 1);
  EXPECT(APUS_INVALID, apus_response_text(NULL, "a", 1));
  EXPECT(APUS_INVALID, apus_response_html(NULL, "a", 1));
  EXPECT(APUS_INVALID, apus_response_json(NULL, "a", 1));
  EXPECT(APUS_INVALID, apus_response_redirect(NULL, 301, "/"));
  EXPECT(APUS_INVALID, apus_response_sendfile(NULL, 0, 0, 0));
  TRUE(!apus_response_stream(NULL, 0) && !apus_response_sse(NULL) && !apus_defer(NULL));
  TRUE(!apus_deferred_request(NULL) && !apus_deferred_response(NULL) && !apus_deferred_is_cancelled(NULL));
  EXPECT(APUS_INVALID, apus_deferred_read(NULL, 0, part, NULL));
  EXPECT(APUS_INVALID, apus_deferred_resume(NULL));
  EXPECT(APUS_INVALID, apus_complete(NULL, 0));
  EXPECT(APUS_INVALID, apus_writer_write(NULL, "a", 1));
  EXPECT(APUS_INVALID, apus_writer_sendfile(NULL, -1, 0, 1));
  EXPECT(APUS_INVALID, apus_writer_trailer(NULL, "a", "b", 1));
  EXPECT(APUS_INVALID, apus_writer_on_ready(NULL, ready, NULL));
  TRUE(!apus_writer_is_closed(NULL) && !apus_sse_is_closed(NULL));
  EXPECT(APUS_INVALID, apus_sse_send(NULL, NULL, NULL, "a", 1));
  EXPECT(APUS_INVALID, apus_websocket_send(NULL, 1, "a", 1));
  EXPECT(APUS_INVALID, apus_websocket_close(NULL, 1000, NULL));
  TRUE(!apus_websocket_id(NULL) && !apus_websocket_protocol(NULL).data && !apus_websocket_data(NULL));
  EXPECT(APUS_INVALID, apus_websocket_set_data(NULL, NULL, NULL));
  EXPECT(APUS_INVALID, apus_rooms_join(NULL, "a", NULL));
  EXPECT(APUS_INVALID, apus_rooms_leave(NULL, "a", NULL));
  EXPECT(APUS_INVALID, apus_rooms_publish(NULL, "a", 1, "a", 1, NULL));
  TRUE(!apus_executor_current() && !apus_timer_start(1, 1, task, NULL));
  EXPECT(APUS_THREAD, apus_last_error_parts(NULL, NULL, NULL));
  EXPECT(APUS_INVALID, apus_executor_post(NULL, task, NULL));
  TRUE(!apus_certificate_files(NULL, NULL) && !apus_certificate_pem(NULL, 0, NULL, 0));
  EXPECT(APUS_INVALID, apus_tls_certificate(NULL, "a", NULL));
  EXPECT(APUS_INVALID, apus_tls_on_server_name(NULL, find, NULL));
  EXPECT(APUS_INVALID, apus_tls_client_auth(NULL, 1, "", 0));
  EXPECT(APUS_INVALID, apus_tls_min_version(NULL, 12));
  EXPECT(APUS_INVALID, apus_tls_protocols(NULL, true, true));
  EXPECT(APUS_INVALID, apus_tls_policy(NULL, "modern"));
  TRUE(!apus_server_new(NULL));
  EXPECT(APUS_INVALID, apus_server_listen(NULL, "127.0.0.1:0"));
  EXPECT(APUS_INVALID, apus_server_listen_unix(NULL, "/a"));
  EXPECT(APUS_INVALID, apus_server_listen_tls(NULL, "127.0.0.1:0", NULL));
  EXPECT(APUS_INVALID, apus_server_config(NULL, NULL));
  EXPECT(APUS_INVALID, apus_server_workers(NULL, 1));
  EXPECT(APUS_INVALID, apus_server_limit(NULL, 0, 1));
  EXPECT(APUS_INVALID, apus_server_access_log(NULL, access_entry, NULL));
  EXPECT(APUS_INVALID, apus_server_access_log_file(NULL, "/a", "json"));
  EXPECT(APUS_INVALID, apus_server_on_worker_start(NULL, task, NULL));
  EXPECT(APUS_INVALID, apus_server_start(NULL));
  EXPECT(APUS_INVALID, apus_server_run(NULL));
  EXPECT(APUS_INVALID, apus_server_stop(NULL));
  EXPECT(APUS_INVALID, apus_server_wait(NULL));
  TRUE(!apus_server_address_count(NULL) && !apus_server_address(NULL, 0).data && !apus_server_port(NULL, 0));
  TRUE(!apus_server_status(NULL) && !apus_worker_new(NULL) && apus_worker_fd(NULL) == -1 && apus_worker_timeout(NULL) == -1);
  EXPECT(APUS_INVALID, apus_worker_step(NULL));
  EXPECT(APUS_INVALID, apus_worker_stop(NULL));
  TRUE(!apus_worker_port(NULL, 0));
  apus_app_free(NULL), apus_upstream_free(NULL), apus_service_free(NULL), apus_config_free(NULL), apus_writer_finish(NULL);
  apus_writer_abort(NULL), apus_sse_close(NULL), apus_rooms_free(NULL), apus_executor_free(NULL), apus_timer_free(NULL);
  apus_certificate_free(NULL), apus_tls_free(NULL), apus_server_free(NULL), apus_worker_free(NULL), apus_string_free(NULL);
  return 0;
}

static bool says(const char *part) {
  if (strstr(apus_last_error(), part)) return true;
  printf("%s: no %s\n", apus_last_error(), part);
  return false;
}

/* Expects that the start of a server reports this call, the first one that failed, and frees the server. */
static int reports(apus_server *server, apus_status status, const char *call) {
  char text[100];
  EXPECT(status, apus_server_start(server));
  snprintf(text, sizeof text, "apus_server_start: expected that each call before it succeeded; got %s: ", call);
  TRUE(says(text));
  apus_server_free(server);
  return 0;
}

static apus_server *listening(apus_app *app) {
  apus_server *server = apus_server_new(app);
  if (apus_server_listen(server, "127.0.0.1:0") != APUS_OK) abort();
  return server;
}

/* A program that looks only at the status of the start learns what was wrong first. */
static int first_failures(void) {
  apus_app *app = apus_app_new();
  apus_server *server = apus_server_new(app);
  EXPECT(APUS_INVALID, apus_server_listen(server, "nonsense"));
  EXPECT(APUS_INVALID, apus_server_limit(server, 99, 1));
  EXPECT(APUS_INVALID, apus_server_run(server));
  TRUE(says("apus_server_run: ") && says("apus_server_listen: expected an address") && says("\"nonsense\""));
  TRUE(!strstr(apus_last_error(), "apus_limit") && says("no address"));
  apus_server_free(server);
  server = listening(apus_app_new());
  EXPECT(APUS_IO, apus_server_access_log_file(server, "/nowhere/log", "json"));
  if (reports(server, APUS_IO, "apus_server_access_log_file")) return 1;
  server = listening(apus_app_new());
  EXPECT(APUS_INVALID, apus_server_workers(server, 100000));
  if (reports(server, APUS_INVALID, "apus_server_workers")) return 1;
  /* Calls on the application, its groups and their groups. */
  app = apus_app_new();
  EXPECT(APUS_INVALID, apus_app_get(app, "users", handler, NULL));
  if (reports(listening(app), APUS_INVALID, "apus_app_get")) return 1;
  app = apus_app_new();
  TRUE(!apus_app_group(app, "admin"));
  if (reports(listening(app), APUS_INVALID, "apus_app_group")) return 1;
  app = apus_app_new();
  EXPECT(APUS_INVALID, apus_app_post(apus_app_group(apus_app_host(app, "a.example"), "/a"), "b", handler, NULL));
  if (reports(listening(app), APUS_INVALID, "apus_app_post")) return 1;
  app = apus_app_new();
  EXPECT(APUS_INVALID, apus_app_websocket(app, "/", NULL, NULL));
  if (reports(listening(app), APUS_INVALID, "apus_app_websocket")) return 1;
  /* Objects that were not made, and what objects are made of. */
  app = apus_app_new();
  EXPECT(APUS_INVALID, apus_app_mount(app, "/files", apus_cache_new(apus_files_new("/nowhere", NULL), 1000)));
  if (reports(listening(app), APUS_INVALID, "apus_files_new")) return 1;
  app = apus_app_new();
  apus_upstream *upstream = apus_upstream_new();
  EXPECT(APUS_INVALID, apus_upstream_node(upstream, "localhost:1", 1));
  EXPECT(APUS_OK, apus_upstream_node(upstream, "127.0.0.1:1", 1));
  EXPECT(APUS_OK, apus_app_mount(app, "/", apus_cache_new(apus_proxy_new(upstream), 1000)));
  if (reports(listening(app), APUS_INVALID, "apus_upstream_node")) return 1;
  apus_app *inner = apus_app_new();
  app = apus_app_new();
  EXPECT(APUS_INVALID, apus_app_before(inner, NULL, NULL));
  EXPECT(APUS_OK, apus_app_mount(app, "/", apus_app_service(inner)));
  if (reports(listening(app), APUS_INVALID, "apus_app_before")) return 1;
  server = listening(apus_app_new());
  apus_tls *tls = apus_tls_new();
  EXPECT(APUS_INVALID, apus_tls_certificate(tls, NULL, apus_certificate_files("/nowhere/a", "/nowhere/b")));
  EXPECT(APUS_INVALID, apus_server_listen_tls(server, "127.0.0.1:0", tls));
  if (reports(server, APUS_IO, "apus_certificate_files")) return 1;
  server = listening(apus_app_new());
  EXPECT(APUS_INVALID, apus_server_config(server, apus_config_parse("nonsense", APUS_NTS, NULL)));
  if (reports(server, APUS_CONFIG, "apus_config_parse")) return 1;
  /* A loop of the program, and a program that looks at each status. */
  server = listening(apus_app_new());
  EXPECT(APUS_INVALID, apus_server_limit(server, 99, 1));
  TRUE(!apus_worker_new(server) && says("apus_worker_new: ") && says("got apus_server_limit: "));
  app = apus_app_new();
  EXPECT(APUS_INVALID, apus_app_get(app, "users", handler, NULL));
  server = listening(app);
  EXPECT(APUS_OK, apus_server_forget_failures(server));
  EXPECT(APUS_OK, apus_server_start(server));
  EXPECT(APUS_STATE, apus_server_forget_failures(server));
  apus_server_free(server);
  return 0;
}

static int errors(void) {
  TRUE(!strcmp(apus_last_error(), ""));
  EXPECT(APUS_OK, apus_last_error_parts(NULL, NULL, NULL));
  TRUE(strchr(apus_version(), '.'));
  TRUE(!strcmp(apus_status_name(APUS_TOO_LARGE), "APUS_TOO_LARGE") && !strcmp(apus_status_name(99), "unknown"));
  if (nulls()) return 1;
  EXPECT(APUS_INVALID, apus_log_stderr(9));
  EXPECT(APUS_INVALID, apus_log_callback(1, NULL, NULL));
  EXPECT(APUS_OK, apus_log_stderr(1));
  EXPECT(APUS_STATE, apus_log_callback(1, log_line, NULL));
  apus_app *app = apus_app_new();
  EXPECT(APUS_INVALID, apus_app_get(app, "users", handler, NULL));
  apus_str expected, got, advice;
  EXPECT(APUS_INVALID, apus_last_error_parts(&expected, &got, &advice));
  TRUE(got.len == 7 && !memcmp(got.data, "\"users\"", 7) && expected.len && advice.len);
  TRUE(says("apus_app_get: expected a path that begins with a slash; got \"users\"; write it as /users/{id}"));
  EXPECT(APUS_INVALID, apus_app_get(app, NULL, handler, NULL));
  EXPECT(APUS_INVALID, apus_app_get(app, "/\xff", handler, NULL));
  EXPECT(APUS_INVALID, apus_app_get(app, "/", NULL, NULL));
  EXPECT(APUS_INVALID, apus_app_route(app, "GE T", "/", handler, NULL));
  EXPECT(APUS_INVALID, apus_app_own(app, NULL, NULL));
  apus_websocket_events events = {.size = 3};
  EXPECT(APUS_INVALID, apus_app_websocket(app, "/", &events, NULL));
  TRUE(says("`size`"));
  EXPECT(APUS_OK, apus_app_get(app, "/{a}", handler, NULL));
  EXPECT(APUS_OK, apus_app_get(app, "/{b}", handler, NULL));
  EXPECT(APUS_OK, apus_app_get(app, "/{b", handler, NULL));
  EXPECT(APUS_INVALID, apus_app_check(app));
  TRUE(says("already has a handler") && says("/{b\"") && !strstr(apus_last_error(), ".rs"));
  freed = 0;
  EXPECT(APUS_OK, apus_app_own(app, &freed, count));
  apus_server *server = apus_server_new(app);
  EXPECT(APUS_STATE, apus_server_stop(server));
  EXPECT(APUS_STATE, apus_server_wait(server));
  TRUE(!apus_server_status(server) && !apus_server_port(server, 0));
  EXPECT(APUS_INVALID, apus_server_listen(server, "nowhere"));
  EXPECT(APUS_INVALID, apus_server_limit(server, APUS_LIMIT_HEAD_BYTES, 1));
  EXPECT(APUS_INVALID, apus_server_limit(server, 99, 1));
  EXPECT(APUS_INVALID, apus_server_workers(server, 100000));
  for (int limit = APUS_LIMIT_WORKER_CONNECTIONS; limit <= APUS_LIMIT_STOP_TIMEOUT; ++limit) {
    EXPECT(APUS_OK, apus_server_limit(server, limit, 1000));
  }
  for (int limit = APUS_LIMIT_DISCARD_BYTES; limit <= APUS_LIMIT_H2_RECEIVE_WINDOW; ++limit) {
    EXPECT(APUS_OK, apus_server_limit(server, limit, 300000));
  }
  EXPECT(APUS_INVALID, apus_server_limit(server, APUS_LIMIT_H2_FRAME_BYTES, 16383));
  EXPECT(APUS_INVALID, apus_server_limit(server, APUS_LIMIT_H2_RECEIVE_WINDOW, 1000));
  EXPECT(APUS_OK, apus_server_limit(server, APUS_LIMIT_SEND_RATE, 0));
  EXPECT(APUS_OK, apus_server_limit(server, APUS_LIMIT_H2_TUNNELS, 0));
  EXPECT(APUS_INVALID, apus_server_limit(server, APUS_LIMIT_H2_TUNNELS, 32769));
  EXPECT(APUS_OK, apus_server_limit(server, APUS_LIMIT_WEB_SOCKET_MEMORY, 1048576));
  EXPECT(APUS_INVALID, apus_server_limit(server, APUS_LIMIT_WEB_SOCKET_MEMORY, 1048575));
  EXPECT(APUS_OK, apus_server_limit(server, APUS_LIMIT_H3_RECEIVE_MEMORY, 1 << 20));
  EXPECT(APUS_INVALID, apus_server_limit(server, APUS_LIMIT_H3_RECEIVE_MEMORY, (1 << 20) - 1));
  EXPECT(APUS_INVALID, apus_server_limit(server, APUS_LIMIT_H3_RECEIVE_MEMORY + 1, 1 << 20));
  EXPECT(APUS_INVALID, apus_server_access_log_file(server, "/dev/null", "unknown"));
  EXPECT(APUS_INVALID, apus_server_access_log_file(server, "/dev/null", "$nothing"));
  EXPECT(APUS_IO, apus_server_access_log_file(server, "/nowhere/log", "json"));
  EXPECT(APUS_OK, apus_server_listen(server, "127.0.0.1:0"));
  EXPECT(APUS_INVALID, apus_server_start(server));
  TRUE(says("already has a handler"));
  EXPECT(APUS_STATE, apus_server_start(server));
  TRUE(freed == 1);
  apus_server_free(server);
  server = apus_server_new(apus_app_new());
  EXPECT(APUS_INVALID, apus_server_run(server));
  TRUE(says("apus_server_listen()"));
  apus_server_free(server);
  if (first_failures()) return 1;
  /* An address that is in use. */
  server = apus_server_new(apus_app_new());
  EXPECT(APUS_OK, apus_server_listen_unix(server, "/nowhere/socket"));
  EXPECT(APUS_IO, apus_server_start(server));
  apus_server_free(server);

  TRUE(!apus_files_new("/nowhere", NULL) && says("/nowhere"));
  TRUE(!apus_redirect_new(200, "/") && says("301"));
  apus_upstream *upstream = apus_upstream_new();
  EXPECT(APUS_INVALID, apus_upstream_node(upstream, "localhost:1", 1));
  EXPECT(APUS_INVALID, apus_upstream_node(upstream, "127.0.0.1:1", 0));
  EXPECT(APUS_INVALID, apus_upstream_strategy(upstream, "best"));
  EXPECT(APUS_INVALID, apus_upstream_path(upstream, "cooked"));
  EXPECT(APUS_OK, apus_upstream_path(upstream, "normalized"));
  EXPECT(APUS_OK, apus_upstream_path(upstream, "raw"));
  EXPECT(APUS_INVALID, apus_upstream_host(upstream, ""));
  EXPECT(APUS_INVALID, apus_upstream_host(upstream, "a b"));
  EXPECT(APUS_OK, apus_upstream_host(upstream, "app.example:8080"));
  EXPECT(APUS_OK, apus_upstream_host(upstream, "raw"));
  EXPECT(APUS_OK, apus_upstream_lenient(upstream, true));
  EXPECT(APUS_INVALID, apus_upstream_response_head(upstream, 1023, 256));
  EXPECT(APUS_INVALID, apus_upstream_response_head(upstream, 1048577, 256));
  EXPECT(APUS_INVALID, apus_upstream_response_head(upstream, 65536, 0));
  EXPECT(APUS_OK, apus_upstream_response_head(upstream, 1024, 10000));
  EXPECT(APUS_OK, apus_upstream_strategy(upstream, "round_robin"));
  EXPECT(APUS_OK, apus_upstream_strategy(upstream, "ip_hash"));
  EXPECT(APUS_OK, apus_upstream_strategy(upstream, "p2c"));
  TRUE(!apus_proxy_new(upstream) && says("apus_upstream_node()"));
  TRUE(!apus_cache_new(apus_redirect_new(308, "/"), 0));
  TRUE(!apus_php_new("nowhere", "/"));
  apus_service *php = apus_php_new("127.0.0.1:1", "/tmp");
  TRUE(php);
  apus_service_free(php);
  TRUE(!apus_config_parse("[[sites]]\nnonsense = 1\n", APUS_NTS, "/tmp") && says("apus.toml:2:") && says("nonsense"));
  EXPECT(APUS_CONFIG, apus_last_error_parts(NULL, NULL, NULL));
  TRUE(!apus_certificate_files("/nowhere", "/nowhere") && says("/nowhere"));
  TRUE(!apus_certificate_pem("a", 1, "b", 1) && says("PEM"));
  apus_tls *tls = apus_tls_new();
  EXPECT(APUS_INVALID, apus_tls_min_version(tls, 11));
  EXPECT(APUS_INVALID, apus_tls_policy(tls, "old"));
  TRUE(says("`modern`, `intermediate` or `legacy`"));
  EXPECT(APUS_INVALID, apus_tls_policy(tls, NULL));
  EXPECT(APUS_INVALID, apus_tls_client_auth(tls, 7, "", 0));
  EXPECT(APUS_INVALID, apus_tls_client_auth(tls, APUS_CLIENT_AUTH_REQUIRED, "nonsense", APUS_NTS));
  EXPECT(APUS_INVALID, apus_tls_certificate(tls, "a", NULL));
  server = apus_server_new(apus_app_new());
  EXPECT(APUS_INVALID, apus_server_listen_tls(server, "127.0.0.1:0", tls));
  TRUE(says("apus_tls_certificate()"));
  tls = apus_tls_new();
  EXPECT(APUS_OK, apus_tls_on_server_name(tls, find, NULL));
  EXPECT(APUS_OK, apus_tls_policy(tls, "modern"));
  EXPECT(APUS_OK, apus_tls_min_version(tls, 12));
  EXPECT(APUS_INVALID, apus_server_listen_tls(server, "127.0.0.1:0", tls));
  TRUE(says("\"modern\""));
  apus_server_free(server);
  printf("no mistakes\n");
  return 0;
}

static size_t allocated, released;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *allocate(size_t align, size_t len, void *user) {
  pthread_mutex_lock(&lock);
  ++*(size_t *)user;
  pthread_mutex_unlock(&lock);
  void *memory = NULL;
  return posix_memalign(&memory, align < sizeof(void *) ? sizeof(void *) : align, len) ? NULL : memory;
}

static void release(void *memory, size_t align, size_t len, void *user) {
  (void)align, (void)len, (void)user;
  pthread_mutex_lock(&lock);
  ++released;
  pthread_mutex_unlock(&lock);
  free(memory);
}

static int allocator(void) {
  apus_allocator functions = {allocate, release, &allocated};
  EXPECT(APUS_OK, apus_set_allocator(&functions));
  apus_app *app = apus_app_new();
  EXPECT(APUS_OK, apus_app_get(app, "/", handler, NULL));
  apus_server *server = apus_server_new(app);
  EXPECT(APUS_OK, apus_server_listen(server, "127.0.0.1:0"));
  EXPECT(APUS_OK, apus_server_start(server));
  apus_server_free(server);
  TRUE(allocated > 100 && released > 100 && released <= allocated);
  EXPECT(APUS_STATE, apus_set_allocator(&functions));
  printf("no mistakes\n");
  return 0;
}

/* Random calls: objects are made, used, passed on and freed, and NULL is among them. */
static uint64_t state;

static unsigned random_number(unsigned below) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return (unsigned)(state % below);
}

static const char *random_text(void) {
  static const char *texts[] = {"/", "/a", "/{id}", "/{*rest}", "/{", "", "GET", "*", "127.0.0.1:0", "unix:/tmp/none", "combined", "a.example",
                                "\xff\xfe", "p2c", "[[sites]]\nlisten = [0]\n", "text/plain", "a\r\nb", NULL};
  return texts[random_number(sizeof texts / sizeof *texts)];
}

#define SLOTS 4
#define TAKE(slot) take((void **)&(slot))

static void *take(void **slot) {
  void *object = *slot;
  *slot = NULL;
  return object;
}

static int random_calls(unsigned calls) {
  apus_app *apps[SLOTS] = {0};
  apus_server *servers[SLOTS] = {0};
  apus_service *services[SLOTS] = {0};
  apus_upstream *upstreams[SLOTS] = {0};
  apus_tls *tls[SLOTS] = {0};
  apus_config *configs[SLOTS] = {0};
  apus_rooms *rooms[SLOTS] = {0};
  unsigned failures = 0;
  for (unsigned call = 0; call < calls; ++call) {
    unsigned a = random_number(SLOTS), b = random_number(SLOTS);
    apus_status status = APUS_OK;
    switch (random_number(45)) {
    case 0: apus_app_free(TAKE(apps[a])), apps[a] = apus_app_new(); break;
    case 1: status = apus_app_get(apps[a], random_text(), handler, NULL); break;
    case 2: status = apus_app_route(apps[a], random_text(), random_text(), handler, NULL); break;
    case 3: status = apus_app_before(apps[a], handler, NULL); break;
    case 4: status = apus_app_after(apps[a], after, NULL); break;
    case 5: status = apus_app_fallback(apps[a], random_number(2) ? handler : NULL, NULL); break;
    case 6: status = apus_app_on_error(apps[a], on_error, NULL); break;
    case 7: status = apus_app_mount(apps[a], random_text(), TAKE(services[b])); break;
    case 8: status = apus_app_check(apps[a]); break;
    case 9: status = apus_app_get(apus_app_group(apps[a], random_text()), random_text(), handler, NULL); break;
    case 10: status = apus_app_get(apus_app_host(apps[a], random_text()), random_text(), handler, NULL); break;
    case 11: status = apus_app_own(apps[a], &freed, random_number(2) ? count : (apus_destroy_fn)NULL); break;
    case 12: apus_service_free(TAKE(services[a])), services[a] = apus_files_new(random_number(2) ? "/tmp" : random_text(), NULL); break;
    case 13: apus_service_free(TAKE(services[a])), services[a] = apus_redirect_new((int)random_number(400), random_text()); break;
    case 14: apus_service_free(TAKE(services[a])), services[a] = apus_proxy_new(TAKE(upstreams[b])); break;
    case 15: if (a != b) services[a] = (apus_service_free(TAKE(services[a])), apus_cache_new(TAKE(services[b]), random_number(3) << 20)); break;
    case 16: apus_service_free(TAKE(services[a])), services[a] = apus_app_service(TAKE(apps[b])); break;
    case 17: apus_service_free(TAKE(services[a])), services[a] = apus_php_new(random_text(), "/tmp"); break;
    case 18: apus_service_free(TAKE(services[a])), services[a] = apus_config_service(configs[b]); break;
    case 19: apus_upstream_free(TAKE(upstreams[a])), upstreams[a] = apus_upstream_new(); break;
    case 20: status = apus_upstream_node(upstreams[a], random_text(), random_number(3)); break;
    case 21: status = apus_upstream_strategy(upstreams[a], random_text()); break;
    case 22: apus_config_free(TAKE(configs[a])), configs[a] = apus_config_parse(random_text(), APUS_NTS, NULL); break;
    case 23: apus_tls_free(TAKE(tls[a])), tls[a] = apus_tls_new(); break;
    case 24: status = apus_tls_certificate(tls[a], random_text(), apus_certificate_pem(random_text(), APUS_NTS, random_text(), 0)); break;
    case 25: status = apus_tls_on_server_name(tls[a], find, NULL); break;
    case 26: status = apus_tls_min_version(tls[a], (int)random_number(15)); break;
    case 27: apus_server_free(TAKE(servers[a])), servers[a] = apus_server_new(TAKE(apps[b])); break;
    case 28: status = apus_server_listen(servers[a], random_number(3) ? "127.0.0.1:0" : random_text()); break;
    case 29: status = apus_server_listen_tls(servers[a], "127.0.0.1:0", TAKE(tls[b])); break;
    case 30: status = apus_server_workers(servers[a], 1 + random_number(2)); break;
    case 31: status = apus_server_limit(servers[a], (int)random_number(21), random_number(70000)); break;
    case 32: status = apus_server_access_log(servers[a], access_entry, NULL); break;
    case 33: status = apus_server_on_worker_start(servers[a], task, NULL); break;
    case 34: status = apus_server_start(servers[a]); break;
    case 35: status = apus_server_stop(servers[a]); break;
    case 36: if (!apus_server_stop(servers[a])) status = apus_server_wait(servers[a]); break;
    case 37: apus_string_free(apus_server_status(servers[a])); break;
    case 38: apus_server_address(servers[a], b), apus_server_port(servers[a], b); break;
    case 39: apus_rooms_free(TAKE(rooms[a])), rooms[a] = apus_rooms_new(); break;
    case 40: status = apus_rooms_publish(rooms[a], random_text(), (int)random_number(4), random_text(), random_number(2), NULL); break;
    case 41: apus_timer_free(apus_timer_start(random_number(10), 1, task, NULL)); break;
    case 42: apus_executor_free(apus_executor_current()); break;
    case 43: {
      apus_worker *worker = apus_worker_new(TAKE(servers[a]));
      for (int step = 0; worker && step < 3; ++step) apus_worker_step(worker);
      if (worker && random_number(2)) apus_worker_stop(worker), apus_worker_step(worker);
      apus_worker_free(worker);
      break;
    }
    case 44: status = apus_tls_policy(tls[a], random_number(2) ? "modern" : random_text()); break;
    }
    if (status != APUS_OK) {
      ++failures;
      if (!*apus_last_error() || !strcmp(apus_status_name(status), "APUS_INTERNAL")) {
        printf("%u: %s: %s\n", call, apus_status_name(status), apus_last_error());
        return 1;
      }
    }
  }
  for (int slot = 0; slot < SLOTS; ++slot) {
    apus_app_free(apps[slot]), apus_server_free(servers[slot]), apus_service_free(services[slot]), apus_upstream_free(upstreams[slot]);
    apus_tls_free(tls[slot]), apus_config_free(configs[slot]), apus_rooms_free(rooms[slot]);
  }
  printf(failures ? "no mistakes\n" : "no failures\n");
  return 0;
}

/* Random calls in handlers: on the request and the response, with what they make, also after a deferral. */
static _Thread_local uint64_t handler_state;

static unsigned number_here(unsigned below) {
  handler_state ^= handler_state << 13, handler_state ^= handler_state >> 7, handler_state ^= handler_state << 17;
  return (unsigned)(handler_state % below);
}

static const char *text_here(void) {
  static const char *texts[] = {"x-field", "content-length", "a b", "", "text", "\xff", "line\r\nbreak", NULL, "/place", "transfer-encoding", "seed"};
  return texts[number_here(sizeof texts / sizeof *texts)];
}

static void free_copy(void *data) { free(data); }

static void finish_writer(apus_writer *writer, apus_status status, void *user) {
  (void)user;
  if (status == APUS_OK) apus_writer_write(writer, "ready", 5);
  apus_writer_finish(writer);
}

static int take_parts(apus_deferred *deferred, apus_status status, const char *data, size_t len, void *user) {
  (void)data, (void)len, (void)user;
  if (status != APUS_OK) apus_complete(deferred, status == APUS_END ? 0 : 400);
  return 0;
}

static void *complete_later(void *data) {
  apus_complete(data, 0);
  return NULL;
}

static int random_handler(apus_request *request, apus_response *response, void *user);

static void use_messages(apus_request *request, apus_response *response, unsigned calls) {
  int64_t number;
  uint64_t unsigned_number;
  apus_field fields[] = {{{"link", 4}, {"</a>", 4}}, {{"bad name", 8}, {"x", 1}}};
  for (unsigned call = 0; call < calls; ++call) {
    const char *text = text_here(), *name = text_here();
    switch (number_here(26)) {
    case 0: apus_request_query_value(request, text); break;
    case 1: apus_request_param(request, name), apus_request_param_i64(request, name, &number); break;
    case 2: apus_request_param_u64(request, "seed", &unsigned_number); break;
    case 3: apus_request_header(request, name), apus_request_cookie(request, name); break;
    case 4: apus_request_each_header(request, field, NULL); break;
    case 5: apus_request_client(request), apus_request_host(request), apus_request_version(request); break;
    case 6: apus_request_set_data(request, malloc(1), free_copy); break;
    case 7: apus_request_data(request), apus_request_body(request), apus_request_trailer(request, name); break;
    case 8: apus_request_on_done(request, done, NULL); break;
    case 9: apus_request_interim(request, (int)number_here(300), fields, number_here(3)); break;
    case 10: apus_response_set_status(response, (int)number_here(700)); break;
    case 11: apus_response_set_header(response, name, text, text ? APUS_NTS : 0); break;
    case 12: apus_response_add_header(response, name, text, text ? APUS_NTS : 3); break;
    case 13: apus_response_remove_header(response, name), apus_response_header(response, name); break;
    case 14: apus_response_body(response, "some bytes", number_here(10)); break;
    case 15: apus_response_body_static(response, "some bytes", number_here(10)); break;
    case 16: {
      void *bytes = calloc(1, 100);
      apus_response_body_owned(response, bytes, number_here(100), free_copy, bytes);
      break;
    }
    case 17: apus_response_json(response, text, text ? APUS_NTS : 0); break;
    case 18: apus_response_redirect(response, 300 + (int)number_here(10), text); break;
    case 19: apus_response_sendfile(response, (int)number_here(5) - 1, number_here(3), number_here(100)); break;
    case 20: {
      apus_writer *writer = apus_response_stream(response, number_here(3));
      for (unsigned part = number_here(4); part; --part) apus_writer_write(writer, "part", 4);
      apus_writer_trailer(writer, name, "x", 1);
      if (number_here(2)) apus_writer_abort(writer);
      else apus_writer_finish(writer);
      break;
    }
    case 21: {
      apus_writer *writer = apus_response_stream(response, 0);
      /* The callback, or the end of the response, finishes it. */
      if (apus_writer_on_ready(writer, finish_writer, NULL)) apus_writer_finish(writer);
      break;
    }
    case 22: {
      apus_sse *sse = apus_response_sse(response);
      apus_sse_send(sse, text, name, "data", 4);
      apus_sse_close(sse);
      break;
    }
    case 23: apus_timer_free(apus_timer_start(number_here(5), 1, task, NULL)); break;
    case 24: {
      apus_executor *executor = apus_executor_current();
      apus_executor_post(executor, task, NULL);
      apus_executor_free(executor);
      break;
    }
    case 25: apus_response_status(response), apus_response_text(response, text, text ? APUS_NTS : 0); break;
    }
  }
}

static int random_handler(apus_request *request, apus_response *response, void *user) {
  apus_str seed = apus_request_query_value(request, "seed");
  char text[32] = {0};
  if (seed.data) memcpy(text, seed.data, seed.len < 31 ? seed.len : 31);
  handler_state = (strtoull(text, NULL, 10) + (user ? 77 : 0)) * 2654435761u + 1;
  use_messages(request, response, number_here(20));
  switch (number_here(8)) {
  case 0: return (int)number_here(700) - 50;
  case 1:
  case 2: {
    if (!user && !apus_request_read_body(request, number_here(100), random_handler, &state)) return 0;
    return 0;
  }
  case 3:
  case 4: {
    apus_deferred *deferred = apus_defer(request);
    use_messages(apus_deferred_request(deferred), apus_deferred_response(deferred), number_here(20));
    pthread_t thread;
    if (number_here(2) && !pthread_create(&thread, NULL, complete_later, deferred)) pthread_detach(thread);
    else apus_complete(deferred, (int)number_here(700));
    return (int)number_here(600);
  }
  case 5: {
    apus_deferred *deferred = apus_defer(request);
    if (apus_deferred_read(deferred, number_here(100), take_parts, NULL)) apus_complete(deferred, 0);
    return 0;
  }
  }
  return (int)number_here(2);
}

static int random_requests(unsigned seed, unsigned requests) {
  apus_app *app = apus_app_new();
  apus_app_route(app, "*", "/{seed}", random_handler, NULL);
  apus_server *server = apus_server_new(app);
  apus_server_listen(server, "127.0.0.1:0");
  apus_server_limit(server, APUS_LIMIT_STOP_TIMEOUT, 2000);
  EXPECT(APUS_OK, apus_server_start(server));
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(apus_server_port(server, 0)), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  for (unsigned count = 0; count < requests; ++count) {
    int client = socket(AF_INET, SOCK_STREAM, 0);
    TRUE(!connect(client, (struct sockaddr *)&at, sizeof at));
    char message[300], response[4096];
    unsigned len = count % 3 * 40;
    int written = snprintf(message, sizeof message,
                           "POST /9?seed=%u HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %u\r\n\r\n%.*s", seed + count, len,
                           (int)len, "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789");
    TRUE(write(client, message, (size_t)written) == written);
    /* Some clients do not wait. */
    if (count % 7) {
      ssize_t got, all = 0;
      while ((got = read(client, response, sizeof response)) > 0) all += got;
      if (all == 0) printf("no response to seed %u\n", seed + count);
    }
    close(client);
  }
  apus_server_free(server);
  printf("no mistakes\n");
  return 0;
}

int main(int argc, char **argv) {
  signal(SIGPIPE, SIG_IGN);
  if (argc == 4 && !strcmp(argv[1], "handlers")) {
    return random_requests((unsigned)strtoul(argv[2], NULL, 10), (unsigned)strtoul(argv[3], NULL, 10));
  }
  if (argc == 2 && !strcmp(argv[1], "errors")) return errors();
  if (argc == 2 && !strcmp(argv[1], "allocator")) return allocator();
  if (argc == 4 && !strcmp(argv[1], "random")) {
    state = strtoull(argv[2], NULL, 10) * 2654435761u + 1;
    return random_calls((unsigned)strtoul(argv[3], NULL, 10));
  }
  return 2;
}
