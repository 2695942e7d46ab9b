"""Servers: how Apus and the floor are configured, and how any is started, pinned and stopped."""

import functools
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

from . import host

BENCH = Path(__file__).resolve().parent.parent
BUILD = BENCH / ".build"
RUN = BENCH / ".run"

KB = 1024
MB = 1024 * KB

# Every file that a server serves.
FILES = {
    "/12b.html": 12,
    "/1k.html": KB,
    "/10k.html": 10 * KB,
    "/100k.bin": 100 * KB,
    "/1m.bin": MB,
    "/10m.bin": 10 * MB,
}

APUS_CONFIGURATION = """\
[global]
worker_threads = 1
keepalive_timeout = 300
control_socket = "{name}.sock"

[[sites]]
name = "bench"
listen = ["127.0.0.1:{clear}"]
listen_tls = ["127.0.0.1:{tls}"]
root = "files"

[sites.tls]
cert = "cert.pem"
key = "key.pem"
"""

class Server:
    """A server that runs, pinned to one core."""

    def __init__(self, name, command, clear, tls, core):
        self.name = name
        self.clear = clear
        self.tls = tls
        log = (RUN / f"{name}.output").open("ab")
        self.process = host.Dependent(
            ["taskset", "-c", core, *command],
            cwd=RUN, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
        )
        for port in filter(None, (clear, tls)):
            self._wait_for(port)

    @property
    def pid(self):
        return self.process.pid

    def url(self, path, tls=False):
        return f"https://127.0.0.1:{self.tls}{path}" if tls else f"http://127.0.0.1:{self.clear}{path}"

    def check(self):
        if self.process.poll() is not None:
            sys.exit(f"bench: {self.name} ended with {self.process.returncode}; see {RUN}/{self.name}.output")

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _wait_for(self, port):
        give_up = time.monotonic() + 60
        while True:
            self.check()
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                if time.monotonic() > give_up:
                    self.stop()
                    sys.exit(f"bench: {self.name} does not listen on {port}; see {RUN}/{self.name}.output")
                time.sleep(0.02)


def start_apus(core, binary, name="apus"):
    clear, tls = host.free_port(), host.free_port()
    return run_apus(name, binary, APUS_CONFIGURATION.format(name=name, clear=clear, tls=tls), core, clear, tls)


def run_apus(name, binary, configuration, core, clear, tls=None):
    (RUN / f"{name}.toml").write_text(configuration)
    return Server(name, [binary, "serve", RUN / f"{name}.toml"], clear, tls, core)


def start_floor(core, body_bytes):
    clear = host.free_port()
    return Server("floor", [BUILD / "floor", clear, body_bytes], clear, None, core)


def build_floor():
    BUILD.mkdir(exist_ok=True)
    subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-pthread", "-o", BUILD / "floor", BENCH / "floor.c"], check=True)


def build_apus():
    return _build("apus-cli", "apus")


@functools.cache
def generator():
    """`apus`, whose `bench` is the load generator for HTTP/3: the program in `APUS_GENERATOR`, or the one of this checkout, which is
    built once. It stays the same when another build is measured."""
    given = os.environ.get("APUS_GENERATOR")
    return Path(given).resolve() if given else build_apus().resolve()


def _build(package, program):
    root = BENCH.parent
    subprocess.run(["cargo", "build", "--release", "--locked", "-p", package], cwd=root, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
    return target / "release" / program


def prepare(sizes, address="127.0.0.1"):
    """A fresh working folder with a certificate for this address and a file of each size."""
    shutil.rmtree(RUN, ignore_errors=True)
    (RUN / "files").mkdir(parents=True)
    (RUN / "tmp").mkdir()
    for path, size in sizes.items():
        text = b"<!doctype html><title>Swift</title><p>Apus apus sleeps on the wing.</p>\n"
        (RUN / "files" / path.lstrip("/")).write_bytes((text * (size // len(text) + 1))[:size])
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
         "-keyout", "key.pem", "-out", "cert.pem", "-days", "30", "-subj", "/CN=bench.test",
         "-addext", f"subjectAltName=DNS:bench.test,IP:{address}"],
        cwd=RUN, check=True, capture_output=True)
