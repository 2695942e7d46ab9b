"""The same small application with Apus and with other frameworks, and the floor below them: how each is built, started, and
checked before it is measured. Their sources are in `bench/frameworks`.
"""

import http.client
import json
import os
import re
import socket
import subprocess
import sys

from . import host, php
from .servers import BENCH, BUILD, RUN, Server

SOURCES = BENCH / "frameworks"
TARGET = BUILD / "frameworks"

RAW, APUS, HYPER, AXUM, ACTIX, ROCKET, HYPERLANE = "raw", "apus", "hyper", "axum", "actix", "rocket", "hyperlane"
# With a pool that does not try its connections before each use, as that of Apus does not.
AXUM_NO_PING = "axum-no-ping"
NET_HTTP, GIN, NODE = "net/http", "gin", "node"

# Built by cargo, by the names of their packages, and the crates whose versions they are.
CARGO = {RAW: "tokio", APUS: "apus", HYPER: "hyper", AXUM: "axum", ACTIX: "actix-web", ROCKET: "rocket", HYPERLANE: "hyperlane"}
GO = {NET_HTTP: "nethttp", GIN: "gin"}

# Requests that check routes, parameters and layers: path, language, and the expected content type and body.
TEXT, JSON, HTML = "text/plain; charset=utf-8", "application/json", "text/html; charset=utf-8"
PAGE = """\
<!doctype html>
<html lang="{language}">
<head>
<meta charset="utf-8">
<title>{name}</title>
<link rel="stylesheet" href="/style.css">
</head>
<body>
<h1>{name}</h1>
<dl>
<dt>Number</dt><dd>{id}</dd>
<dt>Mail</dt><dd><a href="mailto:{email}">{email}</a></dd>
<dt>Since</dt><dd><time>{joined}</time></dd>
</dl>
<p>{welcome}!</p>
</body>
</html>"""
EXPECTED = (
    ("/hello/world", "en", TEXT, "Hello, world!"),
    ("/hello/Ada", "zh-CN", TEXT, "你好，Ada！"),
    ("/json/7", "en", JSON, {"id": 7, "name": "Apus apus", "language": "en"}),
    ("/json/4711", "zh-CN", JSON, {"id": 4711, "name": "Apus apus", "language": "zh"}),
)
PAGES = (
    ("/users/7", "en", HTML, PAGE.format(
        language="en", id=7, name="Alan Turing", email="alan7@example.org", joined="2007-08-01", welcome="Welcome back")),
    ("/users/1000", "zh-CN", HTML, PAGE.format(
        language="zh", id=1000, name="Barbara Liskov", email="barbara1000@example.org", joined="2000-05-01", welcome="欢迎回来")),
)
# What an order is answered with, and orders that break a rule each.
RECEIPT = {"customer": "Ada Lovelace", "email": "ada@example.org", "products": ["swift", "martin", "nest box"], "cents": 16948}
BROKEN = (("Ada Lovelace", ""), ("ada@example.org", "nowhere"), ('"quantity":2', '"quantity":101'), ('"cents":2450', '"cents":0'),
          ("martin", "Küstenseeschwalbe"))


def build(names):
    """Each for itself, so that none has features of its dependencies that only another one enables."""
    for name in sorted(CARGO.keys() & names):
        build_package(f"bench-{name}")
    for name in sorted(GO.keys() & names):
        _run(["go", "build", "-trimpath", "-o", TARGET / "go" / GO[name], f"./{GO[name]}"], SOURCES / "go")


def build_package(package):
    _run(["cargo", "build", "--release", "-p", package], SOURCES / "rust", CARGO_TARGET_DIR=str(TARGET))


def _run(command, folder, **environment):
    try:
        subprocess.run(command, cwd=folder, env=dict(os.environ, **environment), check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"bench: {folder.relative_to(BENCH)} needs {command[0]}, and not an old one: {error}")


def versions():
    """Of all that can be compared."""
    lock = (SOURCES / "rust" / "Cargo.lock").read_text()
    found = dict(re.findall(r'name = "([^"]+)"\nversion = "([^"]+)"', lock))
    modules = (SOURCES / "go" / "go.mod").read_text()
    crates = [f"{crate} {found[crate]}" for name, crate in CARGO.items() if name != APUS]
    go = host.first_line(["go", "version"]).removeprefix("go version go").split(" ")[0]
    return ", ".join([
        *crates, f"Go {go}", "Gin " + re.search(r"gin-gonic/gin v(\S+)", modules).group(1),
        "Node " + host.first_line(["node", "--version"]).removeprefix("v")])


class Database:
    """MariaDB with the users of `examples/php`, on the core of the load generator."""

    def __init__(self, core):
        self.stack = php.Stack(*php.PARTS[php.EXAMPLE], core=core)

    def address(self, name):
        """The address in the form that the driver of each language expects."""
        path = self.stack.folder / "db.sock"
        if name in GO:
            return f"example:of the example@unix({path})/example"
        return f"mysql://example:of%20the%20example@localhost/example?socket={path}"

    def stop(self):
        self.stack.stop()


def start(case, name, core, database):
    """A server of a case, whose responses were checked."""
    port = host.free_port()
    if name == RAW:
        command = [TARGET / "release" / "bench-raw", port, RUN / "response"]
    elif name in CARGO or name == AXUM_NO_PING:
        command = [TARGET / "release" / f"bench-{name.removesuffix('-no-ping')}", port]
    elif name in GO:
        command = ["env", "GOMAXPROCS=1", TARGET / "go" / GO[name], port]
    else:
        command = ["node", SOURCES / "node" / "server.js", port]
    if database:
        command.append(database.address(name))
    if name == AXUM_NO_PING:
        command.append("no-ping")
    server = Server(name.replace("/", "-"), command, port, None, core)
    server.name = name
    if name == RAW:
        # It repeats the response of Apus, which is started first.
        return server
    for path, language, kind, body in PAGES if database else EXPECTED:
        _check(server, path, language, kind, body)
    if case.body:
        _check_orders(server, case)
    if name == APUS:
        (RUN / "response").write_bytes(_response(server, case))
    return server


def _response(server, case):
    """The response to the request of the case, with its head."""
    fields = "Host: bench.test\r\n" + ("Connection: close\r\n" if case.close else "")
    with socket.create_connection(("127.0.0.1", server.clear), 20) as connection:
        connection.sendall(f"GET {case.path} HTTP/1.1\r\n{fields}\r\n".encode())
        response = http.client.HTTPResponse(connection)
        response.begin()
        body = response.read()
        head = "".join(f"{name}: {value}\r\n" for name, value in response.getheaders())
        return f"HTTP/1.1 {response.status} {response.reason}\r\n{head}\r\n".encode() + body


def _check(server, path, language, kind, body):
    response, got = _get(server, path, language)
    received = json.loads(got) if kind == JSON and response.status == 200 else got.decode()
    # Some name the one coding that JSON has (RFC 8259 section 8.1).
    found_kind = (response.getheader("Content-Type") or "").replace(f"{JSON}; charset=utf-8", JSON)
    found = (response.status, found_kind, response.getheader("X-Served-By"), received)
    expected = (200, kind, "bench", body)
    if found != expected or response.getheader("Content-Length") != str(len(got)):
        server.stop()
        sys.exit(f"bench: {server.name} should respond to {path} with {expected}, not {found}")
    missing, _ = _get(server, f"/not{path}", language)
    if missing.status != 404:
        server.stop()
        sys.exit(f"bench: {server.name} should respond to /not{path} with 404, not {missing.status}")


def _check_orders(server, case):
    """An order is accepted, and one that breaks a rule is not."""
    for language in "en", "zh":
        response, got = _request(server, "POST", case.path, language, case.body)
        kind = (response.getheader("Content-Type") or "").removesuffix("; charset=utf-8")
        found = (response.status, kind, response.getheader("X-Served-By"), json.loads(got) if response.status == 200 else got)
        expected = (200, JSON, "bench", RECEIPT | {"language": language})
        if found != expected:
            server.stop()
            sys.exit(f"bench: {server.name} should respond to an order with {expected}, not {found}")
    for valid, broken in BROKEN:
        response, _ = _request(server, "POST", case.path, "en", case.body.replace(valid, broken))
        if response.status != 422:
            server.stop()
            sys.exit(f"bench: {server.name} should respond with 422 to {broken!r} for {valid!r}, not {response.status}")


def _get(server, path, language):
    return _request(server, "GET", path, language)


def _request(server, method, path, language, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.clear, timeout=20)
    kind = {"Content-Type": "application/json"} if body else {}
    connection.request(method, path, body=body and body.encode(), headers={"Accept-Language": language, **kind})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body
