/* apus.h: the C interface of Apus, a web server and framework.
 *
 * This file is generated from crates/tools/capi/src by its test `header`. Do not edit it.
 *
 * Rules for all functions:
 *
 * - Functions that can fail return an `apus_status`. After another status than APUS_OK, apus_last_error() has a text
 *   that says what was expected, what came, and what to do. Functions that make an object return NULL then.
 * - Strings that the library returns are an `apus_str`: a pointer and a length, without a NUL at the end. They point into
 *   memory of the object that they were asked of, and are valid as long as it says; strings of a request until its response:
 *   until the handler returns, or until apus_complete(). An absent string has `data` NULL.
 * - Names and settings that are passed in are strings that end with NUL. Values and bodies are a pointer and a length; for
 *   a text that ends with NUL the length may be APUS_NTS. They are copied unless it says otherwise.
 * - An object is owned by the code that made it, until a function takes it over, which is then said ("takes over").
 *   Functions that take an object over do so even when they fail. NULL as an object is an error, never a crash.
 * - Functions may be called by any thread unless it says "on the worker": then only by the thread that runs the handler or
 *   callback. One object is used by one thread at a time, except where it says "from any thread".
 * - Handles that a program gives back (apus_deferred by apus_complete(), apus_writer by apus_writer_finish() or
 *   apus_writer_abort(), apus_sse by apus_sse_close()) are given back once, by any thread, also while the worker calls back
 *   because the client is gone. They are counted: the handle that a callback was called with stays valid until the callback
 *   returns, and fails with APUS_CLOSED or APUS_STATE when another thread has given it back. A thread that is not in its
 *   callback does not use a handle after it was given back: one of the threads gives it back, when the others use it no more.
 * - A callback may still run when the function that gave its handle back returns. What its `user` points to is freed by a
 *   `destroy`, which runs after it: the one of apus_writer_set_data(), or apus_request_set_data() of the deferred request.
 *   Functions with a `destroy` of their own, and callbacks that are called once, say so.
 * - Handles of a worker are not given back to other threads: an apus_websocket is used by its worker only, until its close
 *   event returns, an apus_timer by the worker that started it. Other threads reach them by apus_executor_post(), and sockets by
 *   apus_rooms_publish(). An apus_executor, apus_rooms or apus_server is freed when no other thread uses it.
 * - Callbacks may be called on every worker at once; `user` is shared by all of them. They must not block: a worker serves
 *   many clients. They must not unwind (no C++ exceptions, no longjmp) out of themselves.
 */

#ifndef APUS_H
#define APUS_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/**
 * The length of a text that ends with NUL.
 */
#define APUS_NTS SIZE_MAX

/**
 * The return value of a handler or a hook: the response object is the response.
 */
#define APUS_RESPOND 1

/**
 * The return value of a body callback: no more chunks until apus_deferred_resume().
 */
#define APUS_PAUSE 1

/**
 * The result of a function.
 */
enum apus_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * Done.
   */
  APUS_OK = 0,
  /**
   * An argument is not valid: a caller's mistake.
   */
  APUS_INVALID = 1,
  /**
   * The object is in a state in which this is not possible, such as a route that is added after the start.
   */
  APUS_STATE = 2,
  /**
   * There is nothing of that name.
   */
  APUS_NOT_FOUND = 3,
  /**
   * The system refused: an address is in use, a file cannot be read.
   */
  APUS_IO = 4,
  /**
   * The configuration text has mistakes.
   */
  APUS_CONFIG = 5,
  /**
   * There is no room: the client reads slowly. Wait for the callback.
   */
  APUS_FULL = 6,
  /**
   * The client is gone, or the object is closed.
   */
  APUS_CLOSED = 7,
  /**
   * The body is larger than its limit.
   */
  APUS_TOO_LARGE = 8,
  /**
   * The peer broke the protocol.
   */
  APUS_MALFORMED = 9,
  /**
   * The peer was too slow.
   */
  APUS_TIMED_OUT = 10,
  /**
   * The end of a body; or the end of a worker that was stopped.
   */
  APUS_END = 11,
  /**
   * It was called by a thread on which this is not possible.
   */
  APUS_THREAD = 12,
  /**
   * A fault of the library, which was logged. Please report it.
   */
  APUS_INTERNAL = 13,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum apus_status apus_status;
#else
typedef int32_t apus_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * The format of an error response that the client accepts.
 */
enum apus_error_format
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * Plain text.
   */
  APUS_ERROR_TEXT = 0,
  /**
   * A page in HTML.
   */
  APUS_ERROR_HTML = 1,
  /**
   * Problem details in JSON (RFC 9457).
   */
  APUS_ERROR_JSON = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum apus_error_format apus_error_format;
#else
typedef int32_t apus_error_format;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * The version of HTTP of a request.
 */
enum apus_http_version
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * HTTP/1.0.
   */
  APUS_HTTP_1_0 = 10,
  /**
   * HTTP/1.1.
   */
  APUS_HTTP_1_1 = 11,
  /**
   * HTTP/2.
   */
  APUS_HTTP_2 = 20,
  /**
   * HTTP/3.
   */
  APUS_HTTP_3 = 30,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum apus_http_version apus_http_version;
#else
typedef int32_t apus_http_version;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * How a response ended.
 */
enum apus_outcome
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * The whole response was handed to the system.
   */
  APUS_OUTCOME_COMPLETE = 0,
  /**
   * The client closed the connection before, or reset the stream.
   */
  APUS_OUTCOME_CLIENT_GONE = 1,
  /**
   * The source of the body failed.
   */
  APUS_OUTCOME_SOURCE_FAILED = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum apus_outcome apus_outcome;
#else
typedef int32_t apus_outcome;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * The kind of a message of a WebSocket.
 */
enum apus_message_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * Text in UTF-8.
   */
  APUS_MESSAGE_TEXT = 1,
  /**
   * Bytes.
   */
  APUS_MESSAGE_BINARY = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum apus_message_kind apus_message_kind;
#else
typedef int32_t apus_message_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * The certificates of clients.
 */
enum apus_client_auth
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * None is asked for.
   */
  APUS_CLIENT_AUTH_NONE = 0,
  /**
   * One is asked for; if it comes, it must be valid.
   */
  APUS_CLIENT_AUTH_OPTIONAL = 1,
  /**
   * A valid one is required.
   */
  APUS_CLIENT_AUTH_REQUIRED = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum apus_client_auth apus_client_auth;
#else
typedef int32_t apus_client_auth;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * A limit of a server, see apus_server_limit(). Times are in milliseconds.
 */
enum apus_limit
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * Connections of one worker (51,200).
   */
  APUS_LIMIT_WORKER_CONNECTIONS = 0,
  /**
   * Connections of all workers; 0 is no limit (0).
   */
  APUS_LIMIT_MAX_CONNECTIONS = 1,
  /**
   * Connections from one address to one worker; 0 is no limit (16,384).
   */
  APUS_LIMIT_CONNECTIONS_PER_ADDRESS = 2,
  /**
   * Bytes of a request target (8,192).
   */
  APUS_LIMIT_TARGET_BYTES = 3,
  /**
   * Bytes of a request head, at most 65,535 (32,768).
   */
  APUS_LIMIT_HEAD_BYTES = 4,
  /**
   * Field lines of a request head (100).
   */
  APUS_LIMIT_HEAD_FIELDS = 5,
  /**
   * From the first byte of a request to the end of its head (15,000).
   */
  APUS_LIMIT_HEAD_TIMEOUT = 6,
  /**
   * Of the TLS handshake (10,000).
   */
  APUS_LIMIT_HANDSHAKE_TIMEOUT = 7,
  /**
   * Between a response and the next request (60,000).
   */
  APUS_LIMIT_IDLE_TIMEOUT = 8,
  /**
   * Between two reads of the body of a request (30,000).
   */
  APUS_LIMIT_BODY_TIMEOUT = 9,
  /**
   * The least bytes per second of the body of a request; 0 is no limit (128).
   */
  APUS_LIMIT_BODY_RATE = 10,
  /**
   * The time in which a client has to take the send rate of a response that waits for it (60,000).
   */
  APUS_LIMIT_SEND_TIMEOUT = 11,
  /**
   * Requests over one connection; 0 is no limit (0).
   */
  APUS_LIMIT_REQUESTS_PER_CONNECTION = 12,
  /**
   * Open requests of one HTTP/2 connection, at most 32,768 (256).
   */
  APUS_LIMIT_H2_STREAMS = 13,
  /**
   * How long open requests may take after a stop began (30,000).
   */
  APUS_LIMIT_STOP_TIMEOUT = 14,
  /**
   * The most bytes of a body that no handler reads, which are read and discarded to keep the connection (262,144).
   */
  APUS_LIMIT_DISCARD_BYTES = 15,
  /**
   * Bytes of the largest HTTP/2 frame that is accepted, 16,384 to 16,777,215 (16,384).
   */
  APUS_LIMIT_H2_FRAME_BYTES = 16,
  /**
   * Requests over one HTTP/2 or HTTP/3 connection; 0 is no limit (0).
   */
  APUS_LIMIT_H2_REQUESTS_PER_CONNECTION = 17,
  /**
   * How long an HTTP/2 client with open requests may be silent before it gets a PING; 0 is no PING (30,000).
   */
  APUS_LIMIT_H2_PING_INTERVAL = 18,
  /**
   * The most bytes of bodies of one HTTP/2 client that may wait to be read, at least 262,144 (16,777,216).
   */
  APUS_LIMIT_H2_RECEIVE_WINDOW = 19,
  /**
   * The least bytes per second that a client takes of a response that waits for it, measured over the send timeout;
   * 0 is one byte in this time (128).
   */
  APUS_LIMIT_SEND_RATE = 20,
  /**
   * Tunnels, such as WebSockets, that one HTTP/2 or HTTP/3 client may have open at once, at most 32,768 (64).
   */
  APUS_LIMIT_H2_TUNNELS = 21,
  /**
   * Bytes of memory for the messages of all WebSockets, at least 1,048,576 (67,108,864).
   */
  APUS_LIMIT_WEB_SOCKET_MEMORY = 22,
  /**
   * Bytes of data that came over HTTP/3 and was not read yet, over all connections, at least 1,048,576 (67,108,864).
   */
  APUS_LIMIT_H3_RECEIVE_MEMORY = 23,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum apus_limit apus_limit;
#else
typedef int32_t apus_limit;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * An application: routes, groups, hooks and mounted services. A group of it is an apus_app, too.
 */
typedef struct apus_app apus_app;

/**
 * A certificate with its key.
 */
typedef struct apus_certificate apus_certificate;

/**
 * A configuration: the text of an apus.toml, checked.
 */
typedef struct apus_config apus_config;

/**
 * A request whose response comes later, from any thread.
 */
typedef struct apus_deferred apus_deferred;

/**
 * A handle of a worker, to run functions on it.
 */
typedef struct apus_executor apus_executor;

/**
 * A request.
 */
typedef struct apus_request apus_request;

/**
 * A response, as a handler fills it in.
 */
typedef struct apus_response apus_response;

/**
 * A set of rooms: WebSockets that get the same messages, on all workers.
 */
typedef struct apus_rooms apus_rooms;

/**
 * A server: an application, its listeners and its limits.
 */
typedef struct apus_server apus_server;

/**
 * A service of the engine, to be mounted: files, a proxy, PHP, a cache, a redirect, the sites of an apus.toml.
 */
typedef struct apus_service apus_service;

/**
 * The body of a response with events (Server-Sent Events).
 */
typedef struct apus_sse apus_sse;

/**
 * A timer of a worker.
 */
typedef struct apus_timer apus_timer;

/**
 * The TLS settings of a listener.
 */
typedef struct apus_tls apus_tls;

/**
 * A group of origin servers of a proxy.
 */
typedef struct apus_upstream apus_upstream;

/**
 * A WebSocket.
 */
typedef struct apus_websocket apus_websocket;

/**
 * A worker that runs inside a loop of the program.
 */
typedef struct apus_worker apus_worker;

/**
 * The body of a response that is written in parts.
 *
 * It is counted: the program has it until it finishes it, and the connection until the end of the body. The pointer that a
 * callback gets is therefore valid until that returns, whatever other threads do meanwhile.
 */
typedef struct apus_writer apus_writer;

/**
 * The memory functions of apus_set_allocator().
 */
typedef struct apus_allocator {
  /**
   * As aligned_alloc(3): `align` is a power of two. NULL when there is no memory. By any thread.
   */
  void *(*allocate)(size_t align, size_t len, void *user);
  /**
   * Frees memory of `allocate`. `len` and `align` are the ones that were allocated with. By any thread.
   */
  void (*release)(void *memory, size_t align, size_t len, void *user);
  /**
   * Is passed to both.
   */
  void *user;
} apus_allocator;

/**
 * Responds to a request, on the worker.
 *
 * It returns 0 (or APUS_RESPOND) when it filled in `response`, called apus_defer() or apus_request_read_body(); or a
 * status of 400 to 599 for an error response in the format that the client accepts (and of apus_app_on_error()).
 * `request` and `response` are valid until it returns, unless it deferred.
 */
typedef int (*apus_handler)(struct apus_request *request, struct apus_response *response, void *user);

/**
 * Runs before the handlers of an application or group. It returns 0 to continue, APUS_RESPOND to send `response`, or a
 * status of 400 to 599 for an error response.
 */
typedef int (*apus_before_fn)(struct apus_request *request, struct apus_response *response, void *user);

/**
 * Runs after the handlers of an application or group, and may change the response.
 */
typedef void (*apus_after_fn)(struct apus_response *response, void *user);

/**
 * A string: a pointer and a length. It has no NUL at the end. `data` is NULL if there is none.
 */
typedef struct apus_str {
  /**
   * The first byte.
   */
  const char *data;
  /**
   * The number of bytes.
   */
  size_t len;
} apus_str;

/**
 * An error, for the error handler of an application. Valid during the call.
 */
typedef struct apus_error {
  /**
   * The status of the response, 400 to 599.
   */
  int32_t status;
  /**
   * What the client may know, if there is anything.
   */
  struct apus_str detail;
  /**
   * The format that the client accepts.
   */
  apus_error_format format;
} apus_error;

/**
 * Makes the response to an error. It returns APUS_RESPOND if it did, or 0 to leave it to the library.
 */
typedef int (*apus_error_fn)(const struct apus_error *error, struct apus_response *response, void *user);

/**
 * Frees data.
 */
typedef void (*apus_destroy_fn)(void *data);

/**
 * Takes a part of the body of a request, on the worker. `status` is APUS_OK with a part (valid during the call), or
 * APUS_END at the end, or APUS_TOO_LARGE, APUS_CLOSED, APUS_MALFORMED, APUS_TIMED_OUT, APUS_IO: nothing comes after it.
 * It returns 0 to continue or APUS_PAUSE. It may complete the deferred request; nothing comes after that either.
 */
typedef int (*apus_body_fn)(struct apus_deferred *deferred, apus_status status, const char *data, size_t len, void *user);

/**
 * A function that runs on a worker.
 */
typedef void (*apus_task_fn)(void *user);

/**
 * Takes a line of the log. `level` is 1 (error) to 5 (trace). It may be called by any thread.
 */
typedef void (*apus_log_fn)(int level, struct apus_str message, void *user);

/**
 * Sees the fields of a message, one after another; false ends it.
 */
typedef bool (*apus_field_fn)(struct apus_str name, struct apus_str value, void *user);

/**
 * Is called once for a request, when its response has ended.
 */
typedef void (*apus_done_fn)(apus_outcome outcome, void *user);

/**
 * A field of a message.
 */
typedef struct apus_field {
  /**
   * Its name, in lower case where the library returns it.
   */
  struct apus_str name;
  /**
   * Its value.
   */
  struct apus_str value;
} apus_field;

/**
 * A request that has ended, for the access log. Valid during the call.
 */
typedef struct apus_access_entry {
  /**
   * The method.
   */
  struct apus_str method;
  /**
   * The path, as it came.
   */
  struct apus_str path;
  /**
   * The query without its question mark, if there is one.
   */
  struct apus_str query;
  /**
   * The host that the request names.
   */
  struct apus_str host;
  /**
   * The address of the client.
   */
  struct apus_str client;
  /**
   * The field User-Agent.
   */
  struct apus_str user_agent;
  /**
   * The field Referer.
   */
  struct apus_str referer;
  /**
   * The version of HTTP.
   */
  apus_http_version version;
  /**
   * The status of the response; 499 if the client was gone before there was one.
   */
  int32_t status;
  /**
   * The bytes of the body that were sent.
   */
  uint64_t body_bytes;
  /**
   * The time from the first byte of the request to the last one of the response, in microseconds.
   */
  uint64_t duration_us;
  /**
   * How it ended.
   */
  apus_outcome outcome;
} apus_access_entry;

/**
 * Takes a request that has ended, on its worker.
 */
typedef void (*apus_access_fn)(const struct apus_access_entry *entry, void *user);

/**
 * The settings of apus_files_new(). Set `size` to sizeof(apus_files_options), all others to 0 for the defaults.
 */
typedef struct apus_files_options {
  /**
   * sizeof(apus_files_options).
   */
  size_t size;
  /**
   * The name of the page of a folder (index.html).
   */
  const char *index;
  /**
   * Lists folders that have no such page.
   */
  bool listing;
  /**
   * Serves files whose names begin with a dot.
   */
  bool hidden_files;
  /**
   * The page that answers requests for a page without a file, with status 200: an application of one page. Missing scripts,
   * images and data stay 404.
   */
  const char *spa;
  /**
   * The value of Cache-Control of all files.
   */
  const char *cache_control;
  /**
   * The memory for small files, in bytes (64 MiB).
   */
  uint64_t cache_bytes;
} apus_files_options;

/**
 * Returns the certificate for a server name in lower case, or NULL if there is none. The library takes it over. It is
 * called for names that have no certificate yet; a certificate is kept for its name. It must not block.
 */
typedef struct apus_certificate *(*apus_certificate_fn)(struct apus_str server_name, void *user);

/**
 * The functions that are called for a WebSocket, on its worker, one after another. Any may be NULL.
 * Set `size` to sizeof(apus_websocket_events).
 */
typedef struct apus_websocket_events {
  /**
   * sizeof(apus_websocket_events).
   */
  size_t size;
  /**
   * Before the handshake: 0 accepts the request, APUS_RESPOND sends `response` instead, 400 to 599 is an error.
   */
  int (*request)(struct apus_request *request, struct apus_response *response, void *user);
  /**
   * The socket is open. `request` is valid during the call.
   */
  void (*open)(struct apus_websocket *socket, struct apus_request *request, void *user);
  /**
   * A message came. `data` is valid during the call.
   */
  void (*message)(struct apus_websocket *socket, apus_message_kind kind, const char *data, size_t len, void *user);
  /**
   * There is room again after apus_websocket_send() returned APUS_FULL.
   */
  void (*drained)(struct apus_websocket *socket, void *user);
  /**
   * The socket is closed, with the code of the close frame, or 1006 if none came. The last call; the socket is freed
   * after it.
   */
  void (*close)(struct apus_websocket *socket, int code, struct apus_str reason, void *user);
  /**
   * The most bytes of a message (0: 1 MiB).
   */
  size_t max_message;
  /**
   * The most bytes that wait for a slow client (0: 256 KiB).
   */
  size_t send_buffer;
  /**
   * Milliseconds without a message after which a ping is sent (0: 30,000).
   */
  uint32_t ping_interval_ms;
  /**
   * Milliseconds without a byte after which the socket is closed (0: 75,000).
   */
  uint32_t idle_timeout_ms;
  /**
   * Offers no compression (permessage-deflate).
   */
  bool no_compression;
  /**
   * Accepts pages of all origins. By default, only pages of the same host may open a socket.
   */
  bool any_origin;
  /**
   * Milliseconds in which a message of the client has to be complete, unless it comes at the least rate of the body of a
   * request (0: 60,000).
   */
  uint32_t message_timeout_ms;
  /**
   * The subprotocols that are offered, separated by commas, in any order; NULL for none.
   */
  const char *protocols;
} apus_websocket_events;

/**
 * Is called on the worker when the client can take more of a body (APUS_OK), or is gone (APUS_CLOSED, the last call).
 * The writer still has to be finished after APUS_CLOSED.
 */
typedef void (*apus_ready_fn)(struct apus_writer *writer, apus_status status, void *user);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Makes all memory of the library come from these functions, except for its cryptography and compression, which are in C and
 * use malloc(3). It has to be the first call of the library in the process.
 * Errors: APUS_STATE if the library has memory already; APUS_INVALID if a function is NULL.
 */
apus_status apus_set_allocator(const struct apus_allocator *allocator);

/**
 * An application without routes. Free it by apus_app_free(), unless a server or a service takes it over.
 */
struct apus_app *apus_app_new(void);

/**
 * Frees an application that was not taken over, with its groups. NULL is ignored.
 */
void apus_app_free(struct apus_app *app);

/**
 * Adds a route. `method` is a method in upper case, or "*" for all that have no route of their own; GET is also HEAD.
 * `path` has parameters as `/users/{id}` and `/files/{*rest}`. `user` has to live as long as the server (see
 * apus_app_own()). Errors: APUS_INVALID. Conflicts between routes are found by apus_app_check().
 */
apus_status apus_app_route(struct apus_app *app,
                           const char *method,
                           const char *path,
                           apus_handler handler,
                           void *user);

/**
 * As apus_app_route() with "GET".
 */
apus_status apus_app_get(struct apus_app *app, const char *path, apus_handler handler, void *user);

/**
 * As apus_app_route() with "POST".
 */
apus_status apus_app_post(struct apus_app *app, const char *path, apus_handler handler, void *user);

/**
 * As apus_app_route() with "PUT".
 */
apus_status apus_app_put(struct apus_app *app, const char *path, apus_handler handler, void *user);

/**
 * As apus_app_route() with "DELETE".
 */
apus_status apus_app_delete(struct apus_app *app, const char *path, apus_handler handler, void *user);

/**
 * A group of routes whose paths begin with `prefix`. It belongs to `app`: do not free it, and do not use it after `app` was
 * taken over or freed. NULL is an error (APUS_INVALID).
 */
struct apus_app *apus_app_group(struct apus_app *app,
                                const char *prefix);

/**
 * A group of routes for a host: `example.com`, `*.example.com`, `www.example.*`, `~regex`. As apus_app_group().
 */
struct apus_app *apus_app_host(struct apus_app *app, const char *host);

/**
 * Adds a hook before all handlers of the application or group. Errors: APUS_INVALID.
 */
apus_status apus_app_before(struct apus_app *app, apus_before_fn hook, void *user);

/**
 * Adds a hook after all handlers of the application or group. Errors: APUS_INVALID.
 */
apus_status apus_app_after(struct apus_app *app, apus_after_fn hook, void *user);

/**
 * Sets the handler of paths without a route. Errors: APUS_INVALID.
 */
apus_status apus_app_fallback(struct apus_app *app, apus_handler handler, void *user);

/**
 * Sets the function that makes the responses to errors. Errors: APUS_INVALID.
 */
apus_status apus_app_on_error(struct apus_app *app, apus_error_fn hook, void *user);

/**
 * Mounts a service under a path, without which it sees the paths of requests. Takes over `service`.
 * Errors: APUS_INVALID.
 */
apus_status apus_app_mount(struct apus_app *app, const char *path, struct apus_service *service);

/**
 * Allows `%2F` in the rest of a path: behind the path of a mounted service, such as a proxy or PHP, which gets it as it was
 * sent, and in a parameter `{*name}`. Without this, such paths get 400. Errors: APUS_INVALID.
 */
apus_status apus_app_allow_encoded_slashes(struct apus_app *app);

/**
 * Frees `data` by `destroy` when the application ends, that is when its server has ended: for the `user` of its handlers.
 * Errors: APUS_INVALID.
 */
apus_status apus_app_own(struct apus_app *app,
                         void *data,
                         apus_destroy_fn destroy);

/**
 * Checks the application: paths, conflicts of routes. A server does it before it listens. Errors: APUS_INVALID, with all
 * mistakes in the text.
 */
apus_status apus_app_check(const struct apus_app *app);

/**
 * An application as a service. Takes it over. NULL is an error (APUS_INVALID).
 */
struct apus_service *apus_app_service(struct apus_app *app);

/**
 * Reads the text of an apus.toml. Paths in it are relative to `folder` (NULL: the current folder), and `${NAME}` reads the
 * environment. Certificates that are ordered by ACME and resident PHP workers need the program `apus`. NULL is an error
 * (APUS_CONFIG: all mistakes with line and column are in the text). Free it by apus_config_free().
 */
struct apus_config *apus_config_parse(const char *toml,
                                      size_t len,
                                      const char *folder);

/**
 * Frees a configuration. NULL is ignored.
 */
void apus_config_free(struct apus_config *config);

/**
 * The sites of a configuration, found by the host of the request. Settings of a whole server, such as its limits, are taken
 * from the server that serves them. The configuration stays with the caller. NULL is an error (APUS_IO: a log or a folder
 * cannot be opened).
 */
struct apus_service *apus_config_service(const struct apus_config *config);

/**
 * Bans a client from all services and servers of a configuration for `seconds`, and longer if it was banned before, as
 * `[global.bans]` says: it gets 403, and the connections of a server end before TLS. `address` is an IP address; an IPv6 network
 * of 64 bits is one client. Bans are kept in memory. APUS_INVALID is no address, or one that `never` names.
 */
apus_status apus_config_ban(const struct apus_config *config,
                            const char *address,
                            uint32_t seconds);

/**
 * Ends the ban of a client, and forgets that it was banned.
 */
apus_status apus_config_unban(const struct apus_config *config, const char *address);

/**
 * Puts a site of a configuration, named by its `name`, into maintenance or out of it, whatever its `maintenance` says, while it is
 * served. APUS_INVALID is a site that the configuration does not have.
 */
apus_status apus_config_maintenance(const struct apus_config *config,
                                    const char *site,
                                    bool on);

/**
 * Takes the request and its response out of a handler, which returns 0 after this. On the worker, in a handler. Every
 * deferred request has to be completed exactly once, also when its client is gone. NULL is an error (APUS_INVALID,
 * APUS_STATE).
 */
struct apus_deferred *apus_defer(struct apus_request *request);

/**
 * Its request. Valid until apus_complete().
 */
struct apus_request *apus_deferred_request(struct apus_deferred *deferred);

/**
 * Its response. Valid until apus_complete().
 */
struct apus_response *apus_deferred_response(struct apus_deferred *deferred);

/**
 * Whether its client is gone, so that the work can end. From any thread.
 */
bool apus_deferred_is_cancelled(const struct apus_deferred *deferred);

/**
 * Reads the body of the request in parts, at most `limit` bytes (0: no limit). On the worker.
 * Errors: APUS_INVALID; APUS_STATE if the body is being read already; APUS_THREAD; APUS_CLOSED if the client is gone: the
 * function is not called then.
 */
apus_status apus_deferred_read(struct apus_deferred *deferred,
                               uint64_t limit,
                               apus_body_fn chunk,
                               void *user);

/**
 * Continues after APUS_PAUSE. From any thread. Errors: APUS_INVALID.
 */
apus_status apus_deferred_resume(const struct apus_deferred *deferred);

/**
 * Sends the response, and takes over `deferred`. `result` is as the return value of a handler. From any thread, once.
 * Errors: APUS_INVALID; APUS_CLOSED if the client is gone; APUS_STATE in a callback, if another thread has completed it
 * meanwhile.
 */
apus_status apus_complete(struct apus_deferred *deferred, int result);

/**
 * The name of a status, such as "APUS_INVALID". It is static; "unknown" for other numbers.
 */
const char *apus_status_name(int status);

/**
 * The handle of the worker of this thread. Free it by apus_executor_free(). NULL is an error (APUS_THREAD: this thread is
 * not a worker).
 */
struct apus_executor *apus_executor_current(void);

/**
 * Runs a function on the worker soon. From any thread. Errors: APUS_INVALID; APUS_CLOSED if the worker has ended: the
 * function is not called then.
 */
apus_status apus_executor_post(const struct apus_executor *executor, apus_task_fn task, void *user);

/**
 * Frees a handle. From any thread. NULL is ignored.
 */
void apus_executor_free(struct apus_executor *executor);

/**
 * Calls a function on the worker of this thread after `after_ms` milliseconds, and then every `every_ms` (0: once). The
 * timer belongs to the caller; apus_timer_free() stops it. NULL is an error (APUS_INVALID, APUS_THREAD).
 */
struct apus_timer *apus_timer_start(uint64_t after_ms, uint64_t every_ms, apus_task_fn task, void *user);

/**
 * Stops a timer and frees it: its function is not called any more. On the worker on which it was started, also in its own
 * function. NULL is ignored.
 */
void apus_timer_free(struct apus_timer *timer);

/**
 * The text of the last error of this thread: what was expected, what came, what to do. "" if there was none. It is valid
 * until the next call of this thread that fails.
 */
const char *apus_last_error(void);

/**
 * The parts of the last error of this thread: what was expected, what came, and what to do. Each pointer may be NULL. The
 * strings are valid as long as the string of apus_last_error(). Returns the status of that error, or APUS_OK if there was
 * none.
 */
apus_status apus_last_error_parts(struct apus_str *expected,
                                  struct apus_str *got,
                                  struct apus_str *advice);

/**
 * Sends the log to a function, from level `level` (1 errors, 2 warnings, 3 information, 4 debug, 5 trace). Without it, and
 * without apus_log_stderr(), nothing is logged. Errors: APUS_STATE if a log is set already; APUS_INVALID.
 */
apus_status apus_log_callback(int level,
                              apus_log_fn log,
                              void *user);

/**
 * Writes the log to standard error, from level `level` (1 to 5). Errors: as apus_log_callback().
 */
apus_status apus_log_stderr(int level);

/**
 * Frees a text that a function of this library returned as `char *`. NULL is ignored.
 */
void apus_string_free(char *text);

/**
 * The method.
 */
struct apus_str apus_request_method(const struct apus_request *request);

/**
 * The path as it came, percent-encoded; in a mounted application without the path of the mount.
 */
struct apus_str apus_request_path(const struct apus_request *request);

/**
 * The query without its question mark, as it came. Absent if there is none.
 */
struct apus_str apus_request_query(const struct apus_request *request);

/**
 * The first value of this name in the query, decoded. Absent if there is none.
 */
struct apus_str apus_request_query_value(struct apus_request *request, const char *field);

/**
 * A parameter of the path, decoded. Absent if the route has none of that name.
 */
struct apus_str apus_request_param(const struct apus_request *request, const char *parameter);

/**
 * A parameter of the path as a number. Errors: APUS_NOT_FOUND; APUS_INVALID if it is not such a number.
 */
apus_status apus_request_param_i64(const struct apus_request *request, const char *parameter, int64_t *value);

/**
 * A parameter of the path as a number. Errors: APUS_NOT_FOUND; APUS_INVALID if it is not such a number.
 */
apus_status apus_request_param_u64(const struct apus_request *request, const char *parameter, uint64_t *value);

/**
 * The first field of this name, in any case. Absent if there is none.
 */
struct apus_str apus_request_header(const struct apus_request *request, const char *field);

/**
 * Calls a function with each field.
 */
void apus_request_each_header(const struct apus_request *request, apus_field_fn each, void *user);

/**
 * The value of a cookie. Absent if there is none.
 */
struct apus_str apus_request_cookie(const struct apus_request *request, const char *cookie);

/**
 * The host that the request names, without the port, in lower case. Absent if there is none.
 */
struct apus_str apus_request_host(const struct apus_request *request);

/**
 * "http" or "https", as the client sees it.
 */
struct apus_str apus_request_scheme(const struct apus_request *request);

/**
 * The version of HTTP.
 */
apus_http_version apus_request_version(const struct apus_request *request);

/**
 * The address of the client. Absent for a client over a Unix socket.
 */
struct apus_str apus_request_client(struct apus_request *request);

/**
 * The certificate of the client, as DER. Absent if it presented none.
 */
struct apus_str apus_request_client_certificate(const struct apus_request *request);

/**
 * The body of the request, in the function that apus_request_read_body() calls. Absent elsewhere.
 */
struct apus_str apus_request_body(const struct apus_request *request);

/**
 * A field of the trailer section, once the body was read. Absent if there is none.
 */
struct apus_str apus_request_trailer(const struct apus_request *request, const char *field);

/**
 * Attaches a pointer to the request, which `destroy` (may be NULL) frees on the worker when the response has ended, or, if a
 * mounted service responds, when that has taken the request. If a deferred request is completed after the end of its server,
 * `destroy` is called then, by one thread at a time. It replaces, and frees, an earlier one. Errors: APUS_INVALID; the data stays
 * with the caller then.
 */
apus_status apus_request_set_data(struct apus_request *request,
                                  void *data,
                                  apus_destroy_fn destroy);

/**
 * The pointer that was attached, in a hook for example. NULL if there is none.
 */
void *apus_request_data(const struct apus_request *request);

/**
 * Calls a function on the worker once when the response has ended, also when the client is gone before. On the worker, in a
 * handler. Errors: APUS_INVALID; APUS_STATE in a hook.
 */
apus_status apus_request_on_done(struct apus_request *request,
                                 apus_done_fn done,
                                 void *user);

/**
 * Sends an interim response: 102, 103. On the worker. Errors: APUS_INVALID.
 */
apus_status apus_request_interim(struct apus_request *request, int code, const struct apus_field *fields, size_t count);

/**
 * Reads the whole body, at most `limit` bytes, and then calls `then` as the handler of the request, in which
 * apus_request_body() has it. The handler returns 0 after this. A longer body is a 413. On the worker, in a handler.
 * Errors: APUS_INVALID; APUS_STATE if the response was deferred, or the body is being read already.
 */
apus_status apus_request_read_body(struct apus_request *request, size_t limit, apus_handler then, void *user);

/**
 * Sets the status (200), 200 to 599. Errors: APUS_INVALID.
 */
apus_status apus_response_set_status(struct apus_response *response, int code);

/**
 * The status. -1 is an error (APUS_INVALID).
 */
int apus_response_status(const struct apus_response *response);

/**
 * Sets a field, in place of all others of its name. Errors: APUS_INVALID.
 */
apus_status apus_response_set_header(struct apus_response *response, const char *field, const char *value, size_t len);

/**
 * Adds a field. Errors: APUS_INVALID.
 */
apus_status apus_response_add_header(struct apus_response *response, const char *field, const char *value, size_t len);

/**
 * Removes all fields of a name. Errors: APUS_INVALID; APUS_NOT_FOUND if there is none.
 */
apus_status apus_response_remove_header(struct apus_response *response, const char *field);

/**
 * The first field of this name. Absent if there is none. Valid until the response is changed.
 */
struct apus_str apus_response_header(const struct apus_response *response, const char *field);

/**
 * Sets the body, which is copied. Errors: APUS_INVALID.
 */
apus_status apus_response_body(struct apus_response *response, const void *data, size_t len);

/**
 * Sets the body without a copy: the bytes have to stay until the process ends, such as a string constant.
 * Errors: APUS_INVALID.
 */
apus_status apus_response_body_static(struct apus_response *response, const void *data, size_t len);

/**
 * Sets the body without a copy: `destroy` is called with `owner` when it is not needed any more, by any thread, also when
 * the function fails. Errors: APUS_INVALID.
 */
apus_status apus_response_body_owned(struct apus_response *response,
                                     const void *data,
                                     size_t len,
                                     apus_destroy_fn destroy,
                                     void *owner);

/**
 * Sets the body to a text, which is copied, and Content-Type to text/plain in UTF-8. Errors: APUS_INVALID.
 */
apus_status apus_response_text(struct apus_response *response, const char *text, size_t len);

/**
 * Sets the body to a page, which is copied, and Content-Type to text/html in UTF-8. Errors: APUS_INVALID.
 */
apus_status apus_response_html(struct apus_response *response, const char *html, size_t len);

/**
 * Sets the body to a JSON text, which is copied, and Content-Type to application/json. Errors: APUS_INVALID.
 */
apus_status apus_response_json(struct apus_response *response, const char *json, size_t len);

/**
 * Sets status and Location of a redirect: 301, 302, 303, 307, 308. Errors: APUS_INVALID.
 */
apus_status apus_response_redirect(struct apus_response *response, int code, const char *location);

/**
 * Sets the body to a part of a file, which the kernel sends. The descriptor is duplicated: close yours when you like.
 * Errors: APUS_INVALID; APUS_IO if it is not a file, or shorter than that.
 */
apus_status apus_response_sendfile(struct apus_response *response, int fd, uint64_t offset, uint64_t len);

/**
 * A set of rooms. Free it by apus_rooms_free().
 */
struct apus_rooms *apus_rooms_new(void);

/**
 * Frees a set of rooms. It does not close its sockets. NULL is ignored.
 */
void apus_rooms_free(struct apus_rooms *rooms);

/**
 * Adds a socket to a room, which it leaves when it closes. On the worker. Errors: APUS_INVALID, APUS_THREAD.
 */
apus_status apus_rooms_join(const struct apus_rooms *rooms, const char *room, const struct apus_websocket *socket);

/**
 * Removes a socket from a room. On the worker. Errors: APUS_INVALID, APUS_NOT_FOUND, APUS_THREAD.
 */
apus_status apus_rooms_leave(const struct apus_rooms *rooms, const char *room, const struct apus_websocket *socket);

/**
 * Sends a message to all sockets in a room, on all workers, except `except` (may be NULL). `kind` is an apus_message_kind.
 * From any thread, but with `except` only on the worker; on a thread that is not a worker it waits for workers that are
 * busy. A socket that reads too slowly is closed. Errors: APUS_INVALID, APUS_THREAD.
 */
apus_status apus_rooms_publish(const struct apus_rooms *rooms,
                               const char *room,
                               int kind,
                               const void *data,
                               size_t len,
                               const struct apus_websocket *except);

/**
 * A server of an application, which it takes over. NULL is an error (APUS_INVALID). Free it by apus_server_free().
 */
struct apus_server *apus_server_new(struct apus_app *app);

/**
 * Listens on an address: `127.0.0.1:8080`, `[::]:80`, `localhost:8080`; port 0 picks a free one. HTTP/1.1, and HTTP/2 with
 * prior knowledge. Errors: APUS_INVALID, APUS_STATE.
 */
apus_status apus_server_listen(struct apus_server *server,
                               const char *address);

/**
 * Listens on a Unix socket, which every user of the machine may connect to. Errors: APUS_INVALID, APUS_STATE.
 */
apus_status apus_server_listen_unix(struct apus_server *server, const char *path);

/**
 * Listens on an address with TLS, and for HTTP/3 on its UDP port. Takes over `tls`. Errors: APUS_INVALID, APUS_STATE.
 */
apus_status apus_server_listen_tls(struct apus_server *server, const char *address, struct apus_tls *tls);

/**
 * Listens on the addresses of a configuration, too, and serves its sites there. The workers, the limits and `server_header` of
 * its `[global]` apply to the server from then on, in place of what was set before: call setters after it. The account, the
 * control socket and the level of the log are for the program `apus`. The configuration stays with the caller.
 * Errors: APUS_INVALID, APUS_STATE, APUS_IO.
 */
apus_status apus_server_config(struct apus_server *server,
                               const struct apus_config *config);

/**
 * The number of workers (threads); 0 is one for each core, the default. Errors: APUS_INVALID, APUS_STATE.
 */
apus_status apus_server_workers(struct apus_server *server, size_t workers);

/**
 * Sets a limit. `limit` is an apus_limit. Errors: APUS_INVALID, APUS_STATE.
 */
apus_status apus_server_limit(struct apus_server *server, int limit, uint64_t value);

/**
 * Calls a function for each request that has ended. Errors: APUS_INVALID, APUS_STATE.
 */
apus_status apus_server_access_log(struct apus_server *server, apus_access_fn log, void *user);

/**
 * Writes an access log to a file: `format` is `combined`, `json`, or a template as in apus.toml.
 * Errors: APUS_INVALID, APUS_STATE, APUS_IO.
 */
apus_status apus_server_access_log_file(struct apus_server *server, const char *path, const char *format);

/**
 * Calls a function on each worker when it starts, before its first request. Errors: APUS_INVALID, APUS_STATE.
 */
apus_status apus_server_on_worker_start(struct apus_server *server, apus_task_fn start, void *user);

/**
 * Forgets the calls that failed so far, with which the server would not start: for a program that has looked at their statuses.
 * Errors: APUS_INVALID, APUS_STATE.
 */
apus_status apus_server_forget_failures(struct apus_server *server);

/**
 * Starts the server, on threads of its own: it accepts connections when this returns. Errors: APUS_INVALID: the application
 * has mistakes, or no address; APUS_IO: an address cannot be bound; APUS_STATE: it was started before; the error of the first call
 * that failed, of those that set the server, its application, its services and its TLS up. A server whose start failed can only
 * be freed.
 */
apus_status apus_server_start(struct apus_server *server);

/**
 * Starts the server and serves until SIGTERM or SIGINT, or apus_server_stop(). Errors: as apus_server_start().
 */
apus_status apus_server_run(struct apus_server *server);

/**
 * Begins to stop: no new connections, open requests end. From any thread, and more than once. Not for signal handlers.
 * Errors: APUS_INVALID; APUS_STATE if it was not started.
 */
apus_status apus_server_stop(const struct apus_server *server);

/**
 * Waits until the server has stopped. Not on a worker. Errors: APUS_INVALID; APUS_STATE if it was not started;
 * APUS_THREAD.
 */
apus_status apus_server_wait(const struct apus_server *server);

/**
 * The number of addresses that the server listens on, without Unix sockets. 0 before the start.
 */
size_t apus_server_address_count(const struct apus_server *server);

/**
 * The address with its actual port, in the order in which they were added. Absent before the start and past the end. Valid
 * until the server is freed.
 */
struct apus_str apus_server_address(const struct apus_server *server,
                                    size_t index);

/**
 * The port of an address. 0 before the start and past the end.
 */
uint16_t apus_server_port(const struct apus_server *server, size_t index);

/**
 * The status as JSON: workers, connections, requests, routes. Free it by apus_string_free(). From any thread. NULL is an
 * error (APUS_INVALID, APUS_STATE).
 */
char *apus_server_status(const struct apus_server *server);

/**
 * Stops the server, waits for its end, and frees it with its application. Not on a worker. NULL is ignored.
 */
void apus_server_free(struct apus_server *server);

/**
 * The files of a folder. `options` may be NULL. NULL is an error (APUS_INVALID).
 */
struct apus_service *apus_files_new(const char *root, const struct apus_files_options *options);

/**
 * A redirect of all requests to `location`, with status 301, 302, 303, 307 or 308. NULL is an error (APUS_INVALID).
 */
struct apus_service *apus_redirect_new(int code, const char *location);

/**
 * An empty group of origin servers. Free it by apus_upstream_free(), unless apus_proxy_new() takes it over.
 */
struct apus_upstream *apus_upstream_new(void);

/**
 * Adds an origin: `127.0.0.1:9000`, `[::1]:9000`, `unix:/run/app.sock`. `weight` is 1 to 65,535.
 * Errors: APUS_INVALID.
 */
apus_status apus_upstream_node(struct apus_upstream *upstream, const char *address, uint32_t weight);

/**
 * How an origin is chosen: `round_robin`, `least_conn`, `ip_hash`, `p2c`. Errors: APUS_INVALID.
 */
apus_status apus_upstream_strategy(struct apus_upstream *upstream, const char *strategy);

/**
 * The path that origins get: `normalized`, as the client sent it with `//` as one slash and dot segments resolved, or `raw`,
 * byte for byte as the client sent it; paths with dot segments then get 400. Errors: APUS_INVALID.
 */
apus_status apus_upstream_path(struct apus_upstream *upstream,
                               const char *form);

/**
 * The `Host` that origins get: `raw` for the client's host exactly as it was sent, otherwise this host. By default it is
 * the client's host in lower case and without the default port. Errors: APUS_INVALID.
 */
apus_status apus_upstream_host(struct apus_upstream *upstream,
                               const char *host);

/**
 * Whether responses are accepted as old origins send them, where no recipient reads that in another way: lines that end with
 * LF alone, lines without a colon, which are dropped, and equal repetitions of Content-Length. Errors: APUS_INVALID.
 */
apus_status apus_upstream_lenient(struct apus_upstream *upstream,
                                  bool is_lenient);

/**
 * The largest head of a response, in bytes, and its most field lines; by default 65,536 and 256. A larger head is a 502.
 * Errors: APUS_INVALID.
 */
apus_status apus_upstream_response_head(struct apus_upstream *upstream,
                                        uint32_t bytes,
                                        uint32_t fields);

/**
 * Frees a group that was not taken over. NULL is ignored.
 */
void apus_upstream_free(struct apus_upstream *upstream);

/**
 * A reverse proxy in front of a group, which it takes over. NULL is an error (APUS_INVALID: there is no origin).
 */
struct apus_service *apus_proxy_new(struct apus_upstream *upstream);

/**
 * A shared cache (RFC 9111) of at most `bytes` in memory in front of a service, which it takes over. NULL is an error
 * (APUS_INVALID).
 */
struct apus_service *apus_cache_new(struct apus_service *service, uint64_t bytes);

/**
 * PHP over FastCGI: `address` is `127.0.0.1:9000` or `unix:/run/php/php-fpm.sock`, `root` the folder of the scripts. Files
 * that are not scripts are served from there, too; paths without a file go to `index.php`. NULL is an error (APUS_INVALID).
 */
struct apus_service *apus_php_new(const char *address,
                                  const char *root);

/**
 * As apus_php_new(), with the form of paths: `raw` passes paths with `%2F` on to scripts in `REQUEST_URI`, as applications
 * need that have slashes in names (the application of the mount has to allow them: apus_app_allow_encoded_slashes());
 * `normalized` is the form of apus_php_new(), by which they get 400. NULL is an error (APUS_INVALID).
 */
struct apus_service *apus_php_new_with_path(const char *address,
                                            const char *root,
                                            const char *form);

/**
 * Frees a service that was not taken over. NULL is ignored.
 */
void apus_service_free(struct apus_service *service);

/**
 * Makes the response an event stream (text/event-stream), and returns its sender, which has to be closed. A comment is
 * sent after 15 seconds without an event. NULL is an error (APUS_INVALID).
 */
struct apus_sse *apus_response_sse(struct apus_response *response);

/**
 * Sends an event. `event` (its type) and `id` may be NULL. From any thread. Errors: APUS_FULL (64 KiB wait), APUS_CLOSED,
 * APUS_INVALID.
 */
apus_status apus_sse_send(const struct apus_sse *sse,
                          const char *event,
                          const char *id,
                          const char *data,
                          size_t len);

/**
 * Whether the client is gone. From any thread.
 */
bool apus_sse_is_closed(const struct apus_sse *sse);

/**
 * Ends the stream, and takes over `sse`. NULL is ignored.
 */
void apus_sse_close(struct apus_sse *sse);

/**
 * The version of the library, such as "0.1.0". It is static.
 */
const char *apus_version(void);

/**
 * A certificate chain and its key, of files in PEM form. No service of this process sends the file of the key. NULL is an
 * error (APUS_IO, APUS_INVALID). Free it by apus_certificate_free(), unless it is taken over.
 */
struct apus_certificate *apus_certificate_files(const char *certificate,
                                                const char *key);

/**
 * A certificate chain and its key, of texts in PEM form. NULL is an error (APUS_INVALID).
 */
struct apus_certificate *apus_certificate_pem(const char *certificate,
                                              size_t certificate_len,
                                              const char *key,
                                              size_t key_len);

/**
 * Frees a certificate that was not taken over. NULL is ignored.
 */
void apus_certificate_free(struct apus_certificate *certificate);

/**
 * TLS settings without a certificate: TLS 1.2 and 1.3, HTTP/1.1, HTTP/2 and HTTP/3. Free them by apus_tls_free(), unless
 * apus_server_listen_tls() takes them over.
 */
struct apus_tls *apus_tls_new(void);

/**
 * Adds a certificate for server names, separated by commas: `example.com,*.example.com`. The first one also serves clients
 * that name none, or another. Takes over `certificate`. `names` may be NULL. Errors: APUS_INVALID.
 */
apus_status apus_tls_certificate(struct apus_tls *tls,
                                 const char *names,
                                 struct apus_certificate *certificate);

/**
 * Sets the function that finds certificates of names that have none (SNI). Errors: APUS_INVALID.
 */
apus_status apus_tls_on_server_name(struct apus_tls *tls, apus_certificate_fn find, void *user);

/**
 * Asks clients for certificates that the authorities (PEM) signed. `mode` is an apus_client_auth. Errors: APUS_INVALID.
 */
apus_status apus_tls_client_auth(struct apus_tls *tls, int mode, const char *authorities, size_t len);

/**
 * The oldest version that is accepted: 12 for TLS 1.2, 13 for TLS 1.3. Errors: APUS_INVALID.
 */
apus_status apus_tls_min_version(struct apus_tls *tls, int version);

/**
 * Which versions and cipher suites are accepted, as `tls.policy` in apus.toml: `modern` is TLS 1.3 alone; `intermediate` (the
 * default) is TLS 1.2, too, with forward secrecy and AEAD; `legacy` is the same with the cipher suites in the order of the server.
 * Errors: APUS_INVALID. apus_server_listen_tls() refuses `modern` with apus_tls_min_version() of 12.
 */
apus_status apus_tls_policy(struct apus_tls *tls,
                            const char *policy);

/**
 * Which protocols are offered beside HTTP/1.1 (both). Errors: APUS_INVALID.
 */
apus_status apus_tls_protocols(struct apus_tls *tls, bool http2, bool http3);

/**
 * Frees settings that were not taken over. NULL is ignored.
 */
void apus_tls_free(struct apus_tls *tls);

/**
 * Adds a route for WebSockets. `events` is copied. Errors: APUS_INVALID.
 */
apus_status apus_app_websocket(struct apus_app *app,
                               const char *path,
                               const struct apus_websocket_events *events,
                               void *user);

/**
 * Sends a message, which is copied. `kind` is an apus_message_kind. On the worker. Errors: APUS_FULL, APUS_CLOSED,
 * APUS_INVALID (a text that is not UTF-8, another kind), APUS_THREAD.
 */
apus_status apus_websocket_send(const struct apus_websocket *socket, int kind, const void *data, size_t len);

/**
 * Begins to close the socket with a code (1000) and a reason (NULL: none). On the worker.
 * Errors: APUS_CLOSED, APUS_INVALID, APUS_THREAD.
 */
apus_status apus_websocket_close(const struct apus_websocket *socket, int code, const char *reason);

/**
 * A number that no other socket of the process has. On the worker.
 */
uint64_t apus_websocket_id(const struct apus_websocket *socket);

/**
 * The subprotocol that was agreed on. On the worker. Absent if there is none.
 */
struct apus_str apus_websocket_protocol(const struct apus_websocket *socket);

/**
 * Attaches a pointer to the socket, which `destroy` (may be NULL) frees after its close event. It replaces, and frees, an
 * earlier one. On the worker. Errors: APUS_INVALID, APUS_THREAD; the data stays with the caller then.
 */
apus_status apus_websocket_set_data(const struct apus_websocket *socket,
                                    void *data,
                                    apus_destroy_fn destroy);

/**
 * The pointer that was attached. On the worker. NULL if there is none.
 */
void *apus_websocket_data(const struct apus_websocket *socket);

/**
 * Starts a server with this thread as its only worker, and takes the server over. Several processes of one user may listen on
 * one address. It accepts connections before this returns: what a handler needs, and what asks for a stop, is set up before.
 * NULL is an error (as of apus_server_start()).
 */
struct apus_worker *apus_worker_new(struct apus_server *server);

/**
 * The descriptor that is readable when there is work. It belongs to the worker. -1 is an error (APUS_INVALID).
 */
int apus_worker_fd(const struct apus_worker *worker);

/**
 * The milliseconds after which apus_worker_step() has to be called, even if the descriptor is not readable. -1 is an error
 * (APUS_INVALID, APUS_THREAD).
 */
int apus_worker_timeout(const struct apus_worker *worker);

/**
 * Does all that there is to do, without waiting. Returns APUS_OK, or APUS_END once a stop has ended.
 * Errors: APUS_INVALID, APUS_THREAD, APUS_STATE (inside a callback).
 */
apus_status apus_worker_step(struct apus_worker *worker);

/**
 * Begins to stop: no new connections, open requests end while apus_worker_step() is called. Errors: APUS_INVALID,
 * APUS_THREAD, APUS_STATE (inside a callback).
 */
apus_status apus_worker_stop(struct apus_worker *worker);

/**
 * The port of an address of its server. 0 past the end.
 */
uint16_t apus_worker_port(const struct apus_worker *worker, size_t index);

/**
 * Closes all connections and frees the worker with its application. All deferred requests are completed before: the memory of
 * those that are completed later is freed when this thread makes its next worker. By the thread that made it, outside of its callbacks:
 * elsewhere it is an error, and the worker stays. NULL is ignored.
 */
void apus_worker_free(struct apus_worker *worker);

/**
 * Makes the body one that is written in parts, and returns its writer, which has to be finished. `limit` is the most bytes
 * that wait for the client before a write returns APUS_FULL (0: 64 KiB). NULL is an error (APUS_INVALID).
 */
struct apus_writer *apus_response_stream(struct apus_response *response,
                                         size_t limit);

/**
 * Appends bytes, which are copied. From any thread. Errors: APUS_FULL: nothing was taken, as the limit or more waits already
 * (a write that goes past the limit is taken); APUS_CLOSED: the client is gone, or the writer was finished; APUS_INVALID.
 */
apus_status apus_writer_write(const struct apus_writer *writer,
                              const void *data,
                              size_t len);

/**
 * Appends a part of a file, which the kernel sends. The descriptor is duplicated. From any thread. Errors: as
 * apus_writer_write(), APUS_IO.
 */
apus_status apus_writer_sendfile(const struct apus_writer *writer, int fd, uint64_t offset, uint64_t len);

/**
 * Adds a field to the trailer section. From any thread. Errors: APUS_INVALID, APUS_CLOSED.
 */
apus_status apus_writer_trailer(const struct apus_writer *writer, const char *field, const char *value, size_t len);

/**
 * Calls a function on the worker whenever the client can take more and nothing waits, so that it writes, or finishes the
 * writer. It is not called again until something was written. From any thread. Errors: APUS_INVALID; APUS_CLOSED: the client
 * is gone, or the writer was finished, and the function is not called.
 */
apus_status apus_writer_on_ready(const struct apus_writer *writer,
                                 apus_ready_fn ready,
                                 void *user);

/**
 * Whether the client is gone, or the writer was finished. From any thread.
 */
bool apus_writer_is_closed(const struct apus_writer *writer);

/**
 * Attaches a pointer to the writer, which `destroy` (may be NULL) frees once the writer was finished and its body has ended, by
 * the thread that comes last: no callback of the writer runs any more then. It replaces, and frees, an earlier one. From any
 * thread. Errors: APUS_INVALID; the data stays with the caller then.
 */
apus_status apus_writer_set_data(const struct apus_writer *writer,
                                 void *data,
                                 apus_destroy_fn destroy);

/**
 * The pointer that was attached. From any thread. NULL if there is none.
 */
void *apus_writer_data(const struct apus_writer *writer);

/**
 * Ends the body, and takes over the writer. From any thread, once. NULL is ignored.
 */
void apus_writer_finish(struct apus_writer *writer);

/**
 * Ends the body as incomplete, so that the client notices, and takes over the writer. From any thread, once. NULL is ignored.
 */
void apus_writer_abort(struct apus_writer *writer);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* APUS_H */
