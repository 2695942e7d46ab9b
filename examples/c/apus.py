"""libapus for Python, by cffi (Debian: python3-cffi): the functions of apus.h as `lib`, and WSGI applications (PEP 3333) by `serve`.

It reads the header, so that every function is there as it is documented. APUS_HEADER names a header outside of FOLDERS.
"""
import io
import os
import re
import sys
from pathlib import Path
from urllib.parse import unquote

from cffi import FFI

# Of this repository, and of `make install-c`.
FOLDERS = (Path(__file__).resolve().parent / "../../crates/tools/capi/include", Path("/usr/local/include"), Path("/usr/include"))


def _declarations(header):
    """What cffi understands: C11, without comments and directives."""
    kept, conditions = [], []
    for line in re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL).splitlines():
        directive = line.split(" ")[0] if line.startswith("#") else ""
        if directive in ("#if", "#ifdef"):  # the header's directives ask for C++ or C23
            conditions.append(False)
        elif directive == "#ifndef":
            conditions.append(True)
        elif directive == "#else":
            conditions[-1] = not conditions[-1]
        elif directive == "#endif":
            conditions.pop()
        elif all(conditions) and not directive:
            kept.append(line)
    return "\n".join(kept)


ffi = FFI()
ffi.cdef(_declarations(Path(os.environ.get("APUS_HEADER") or next(
    folder / "apus.h" for folder in FOLDERS if (folder / "apus.h").exists())).read_text()))
lib = ffi.dlopen("libapus.so.1")


class Error(Exception):
    """A call that failed: what was expected, what came, and what to do."""


def check(result):
    """The result of a function, unless it is a status other than APUS_OK, or NULL."""
    if (isinstance(result, int) and result != lib.APUS_OK) or (isinstance(result, ffi.CData) and not result):
        raise Error(ffi.string(lib.apus_last_error()).decode())
    return result


def text(string):
    """An apus_str, as WSGI has strings: a character for each byte."""
    return ffi.unpack(string.data, string.len).decode("latin-1") if string.data else ""


@ffi.callback("apus_field_fn")
def _add_field(name, value, user):
    ffi.from_handle(user).append((text(name), text(value)))
    return True


def environ(request):
    """The variables of a request whose body was read."""
    body, host, fields = lib.apus_request_body(request), text(lib.apus_request_header(request, b"host")), []
    scheme = text(lib.apus_request_scheme(request))
    handle = ffi.new_handle(fields)
    lib.apus_request_each_header(request, _add_field, handle)
    variables = {
        "REQUEST_METHOD": text(lib.apus_request_method(request)),
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote(text(lib.apus_request_path(request)), "latin-1"),
        "QUERY_STRING": text(lib.apus_request_query(request)),
        "SERVER_NAME": text(lib.apus_request_host(request)) or "localhost",
        "SERVER_PORT": (re.search(r":(\d+)$", host) or [0, {"https": "443"}.get(scheme, "80")])[1],
        "SERVER_PROTOCOL": {10: "HTTP/1.0", 11: "HTTP/1.1", 20: "HTTP/2", 30: "HTTP/3"}[lib.apus_request_version(request)],
        "REMOTE_ADDR": text(lib.apus_request_client(request)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scheme,
        "wsgi.input": io.BytesIO(ffi.unpack(body.data, body.len) if body.data else b""),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    for name, value in fields:
        name = name.upper().replace("-", "_")
        name = name if name in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{name}"
        variables[name] = f"{variables[name]},{value}" if name in variables else value
    return variables


def serve(application, address="127.0.0.1:8080", body_limit=1 << 20):
    """Serves a WSGI application until SIGTERM or SIGINT. A body of a request that is longer than the limit is a 413."""

    @ffi.callback("apus_handler", error=500)
    def respond(request, response, user):
        parts, started = [], []

        def start_response(status, headers, exc_info=None):
            started[:] = [status, headers]
            return parts.append

        result = application(environ(request), start_response)
        try:
            parts.extend(result)
        finally:
            getattr(result, "close", lambda: None)()
        status, headers = started
        check(lib.apus_response_set_status(response, int(status.split()[0])))
        for name, value in headers:
            if name.lower() != "content-length":  # the library counts
                check(lib.apus_response_add_header(response, name.encode("latin-1"), value.encode("latin-1"), len(value)))
        body = b"".join(parts)
        check(lib.apus_response_body(response, body, len(body)))
        return 0

    @ffi.callback("apus_handler", error=500)
    def read_body(request, response, user):
        check(lib.apus_request_read_body(request, body_limit, respond, ffi.NULL))
        return 0

    app = lib.apus_app_new()
    lib.apus_app_fallback(app, read_body, ffi.NULL)
    server = lib.apus_server_new(app)
    try:
        check(lib.apus_server_listen(server, address.encode()))
        check(lib.apus_server_run(server))
    finally:
        lib.apus_server_free(server)
