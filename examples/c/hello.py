#!/usr/bin/env python3
"""A WSGI application served by libapus, by cffi (Debian: python3-cffi): `hello.py [ADDRESS]`."""
import sys
from urllib.parse import unquote

from cffi import FFI

ffi = FFI()
ffi.cdef("""
typedef struct { const char *data; size_t len; } apus_str;
typedef int (*apus_handler)(void *request, void *response, void *user);
void *apus_app_new(void);
int32_t apus_app_fallback(void *app, apus_handler handler, void *user);
apus_str apus_request_method(void *request);
apus_str apus_request_path(void *request);
int32_t apus_response_set_status(void *response, int status);
int32_t apus_response_add_header(void *response, const char *name, const char *value, size_t len);
int32_t apus_response_body(void *response, const void *data, size_t len);
void *apus_server_new(void *app);
int32_t apus_server_listen(void *server, const char *address);
int32_t apus_server_run(void *server);
void apus_server_free(void *server);
const char *apus_last_error(void);
""")
apus = ffi.dlopen("libapus.so.1")


def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain; charset=utf-8")])
    return [f"Hello, {environ['PATH_INFO'].strip('/') or 'world'}!\n".encode()]


def text(value):
    return ffi.unpack(value.data, value.len).decode() if value.data else ""


@ffi.callback("apus_handler", error=500)
def handle(request, response, user):
    def start_response(status, headers):
        apus.apus_response_set_status(response, int(status.split()[0]))
        for name, value in headers:
            apus.apus_response_add_header(response, name.encode(), value.encode(), len(value.encode()))

    method, path = text(apus.apus_request_method(request)), text(apus.apus_request_path(request))
    body = b"".join(application({"REQUEST_METHOD": method, "PATH_INFO": unquote(path)}, start_response))
    apus.apus_response_body(response, body, len(body))
    return 0


app = apus.apus_app_new()
apus.apus_app_fallback(app, handle, ffi.NULL)
server = apus.apus_server_new(app)
apus.apus_server_listen(server, (sys.argv[1:] or ["127.0.0.1:8080"])[0].encode())
if apus.apus_server_run(server):
    sys.exit(ffi.string(apus.apus_last_error()).decode())
apus.apus_server_free(server)
