"""Libraries that a C program embeds as its server, each with the same bodies from memory: how each is built, started, and checked
before it is measured. Their sources are in `bench/embedded`, and that of Apus in Rust is beside the frameworks.
"""

import os
import re
import subprocess
import sys
import urllib.request
import urllib.error

from . import cases, frameworks, host
from .servers import BENCH, BUILD, RUN, Server

SOURCES = BENCH / "embedded"
TARGET = BUILD / "embedded"

APUS, APUS_RUST = "apus", "apus-rust"
# What `soak.py` loads.
SOAK = "soak"
LIBMICROHTTPD, CIVETWEB, LIBH2O = "libmicrohttpd", "civetweb", "libh2o"
# How each is linked, and the Debian package of its header. mongoose and lwan are not packaged.
LINKED = {LIBMICROHTTPD: ["-lmicrohttpd"], CIVETWEB: ["-lcivetweb"], LIBH2O: ["-lh2o-evloop", "-lssl", "-lcrypto"]}
PACKAGES = {LIBMICROHTTPD: "libmicrohttpd-dev", CIVETWEB: "libcivetweb-dev", LIBH2O: "libh2o-evloop-dev"}
HEADERS = {"/usr/include/microhttpd.h": PACKAGES[LIBMICROHTTPD], "/usr/include/civetweb.h": PACKAGES[CIVETWEB],
           "/usr/include/h2o.h": PACKAGES[LIBH2O], "/usr/include/openssl/ssl.h": "libssl-dev"}
# What libapus.a needs of the system, as apus.pc names it.
APUS_LIBRARIES = ["-pthread", "-ldl", "-lm", "-lrt", "-lgcc_s"]


def build(names):
    if LINKED.keys() & names:
        host.install_headers(HEADERS)
    TARGET.mkdir(parents=True, exist_ok=True)
    for name in sorted(LINKED.keys() & names):
        _compile(name, LINKED[name])
    of_apus = sorted({APUS, SOAK} & names)
    if of_apus:
        library = _library()
    for name in of_apus:
        _compile(name, ["-I", BENCH.parent / "crates/capi/include", library, *APUS_LIBRARIES])
    if APUS_RUST in names:
        frameworks.build_package("bench-embedded")


def _library():
    """libapus.a of this checkout, as it is released, under the name that cargo gives it."""
    root = BENCH.parent
    subprocess.run(["cargo", "build", "--release", "--locked", "-p", "apus-capi"], cwd=root, check=True)
    return os.path.join(os.environ.get("CARGO_TARGET_DIR", root / "target"), "release", "libapus_capi.a")


def _compile(name, options):
    command = ["cc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-o", TARGET / name, SOURCES / f"{name}.c", *options]
    subprocess.run(list(map(str, command)), check=True)


def versions():
    """Of those that are installed."""
    found = {name: host.package_version(package) for name, package in PACKAGES.items()}
    return ", ".join(f"{name} {version}" for name, version in found.items() if version)


def start(name, core):
    """A server whose responses were checked."""
    port = host.free_port()
    program = frameworks.TARGET / "release" / "bench-embedded" if name == APUS_RUST else TARGET / name
    server = Server(name, [program, port, RUN / "files"], port, None, core)
    for path in cases.EMBEDDED_PATHS:
        _check(server, path)
    return server


def _check(server, path):
    expected = (RUN / "files" / path.lstrip("/")).read_bytes()
    with urllib.request.urlopen(server.url(path), timeout=20) as response:
        body = response.read()
        length, kind = response.headers["Content-Length"], response.headers["Content-Type"]
    kind_expected = "application/octet-stream" if path.endswith(".bin") else "text/html; charset=utf-8"
    if body != expected or length != str(len(expected)) or kind != kind_expected:
        server.stop()
        sys.exit(f"bench: {server.name} should respond to {path} with {len(expected)} bytes of {kind_expected}, "
                 f"not {len(body)} of {kind}, and say so: Content-Length {length}")
    try:
        urllib.request.urlopen(server.url(f"/not{path}"), timeout=20).close()
        status = 200
    except urllib.error.HTTPError as error:
        status = error.code
    if status != 404:
        server.stop()
        sys.exit(f"bench: {server.name} should respond to /not{path} with 404, not {status}")
