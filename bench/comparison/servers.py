"""The servers: how each is configured, started, pinned and stopped."""

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

# What every nginx that is compared has, whatever it does.
NGINX_FRAME = """\
daemon off;
{user}worker_processes 1;
worker_rlimit_nofile {descriptors};
pid {name}.pid;
error_log {name}.log warn;
events {{ worker_connections {connections}; }}
http {{
    access_log off;
    server_tokens off;
    sendfile on;
    tcp_nopush on;
    open_file_cache max=1000 inactive=300s;
    open_file_cache_valid {checked_after};
    keepalive_timeout 300s;
    keepalive_requests 1000000000;
    client_body_temp_path tmp; proxy_temp_path tmp; fastcgi_temp_path tmp;
    uwsgi_temp_path tmp; scgi_temp_path tmp;
{http}}}
"""

NGINX_HTTP = """\
    types {{ text/html html; application/octet-stream bin; }}
    ssl_certificate cert.pem;
    ssl_certificate_key key.pem;
    ssl_protocols TLSv1.3;
    server {{
        listen 127.0.0.1:{clear} backlog=4096;
        listen 127.0.0.1:{tls} ssl http2 backlog=4096;
        root files;
    }}
"""

# As its documentation of HTTP/3 advises: segmentation by the kernel, and room for a whole response in each stream.
NGINX_HTTP3 = """\
    types {{ text/html html; application/octet-stream bin; }}
    ssl_certificate cert.pem;
    ssl_certificate_key key.pem;
    ssl_protocols TLSv1.3;
    ssl_session_cache shared:sessions:10m;
    ssl_session_timeout 1h;
    quic_gso on;
    http3_stream_buffer_size 1m;
    server {{
        listen 127.0.0.1:{tls} quic reuseport;
        listen 127.0.0.1:{tls} ssl backlog=4096;
        root files;
    }}
"""

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

# Names are resolved from RUN, where it is started. Compression is off in all servers' responses to h2load, which
# accepts no coding; casper is about pushes.
H2O_CONFIGURATION = """\
{user}num-threads: 1
max-connections: 16384
error-log: h2o.log
http2-casper: OFF
http2-idle-timeout: 300
hosts:
  default:
    listen:
      host: 127.0.0.1
      port: {tls}
      ssl:
        certificate-file: cert.pem
        key-file: key.pem
        minimum-version: TLSv1.3
        ocsp-update-interval: 0
    paths:
      /:
        file.dir: files
        file.send-compressed: OFF
"""


class Server:
    """A server that runs, pinned to one core."""

    def __init__(self, name, command, clear, tls, core, php_pid=None):
        self.name = name
        # The master of the PHP processes that work for it.
        self.php_pid = php_pid
        # The server that it is in front of, whose CPU counts as its own.
        self.origin = None
        self.clear = clear
        self.tls = tls
        log = (RUN / f"{name}.output").open("ab")
        self.process = subprocess.Popen(
            ["taskset", "-c", str(core), *map(str, command)],
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
        give_up = time.monotonic() + 15
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


def start_nginx(core):
    clear, tls = host.free_port(), host.free_port()
    return run_nginx(NGINX_HTTP.format(clear=clear, tls=tls), core, clear, tls)


def start_nginx_http3(core, command):
    """nginx with HTTP/3, by the command that runs a version that has it."""
    tls = host.free_port()
    # Each stream counts as a connection, and none of them has a descriptor.
    return run_nginx(NGINX_HTTP3.format(tls=tls), core, None, tls, command=command, connections=65536)


def run_nginx(http, core, clear, tls=None, php_pid=None, checked_after="1s", name="nginx", command=None, connections=None):
    """nginx with these lines of `http`, which looks at its files again after so long."""
    descriptors = host.raise_descriptor_limit()
    user = "user root;\n" if os.geteuid() == 0 else ""
    text = NGINX_FRAME.format(
        name=name, user=user, descriptors=descriptors, connections=connections or min(descriptors, 16384), checked_after=checked_after, http=http)
    (RUN / f"{name}.conf").write_text(text)
    command = [*(command or [host.find("nginx")]), "-p", RUN, "-c", RUN / f"{name}.conf", "-e", RUN / f"{name}.log"]
    return Server(name, command, clear, tls, core, php_pid)


def start_h2o(core):
    tls = host.free_port()
    user = "user: root\n" if os.geteuid() == 0 else ""
    (RUN / "h2o.yaml").write_text(H2O_CONFIGURATION.format(tls=tls, user=user))
    return Server("h2o", [host.find("h2o"), "-c", RUN / "h2o.yaml"], None, tls, core)


def start_apus(core, binary, name="apus"):
    clear, tls = host.free_port(), host.free_port()
    return run_apus(name, binary, APUS_CONFIGURATION.format(name=name, clear=clear, tls=tls), core, clear, tls)


def run_apus(name, binary, configuration, core, clear, tls=None, php_pid=None):
    (RUN / f"{name}.toml").write_text(configuration)
    return Server(name, [binary, "serve", RUN / f"{name}.toml"], clear, tls, core, php_pid)


def start_floor(core, body_bytes):
    clear = host.free_port()
    return Server("floor", [BUILD / "floor", clear, body_bytes], clear, None, core)


def build_origins():
    """The floor, which is the fast origin too, the slow origin, and the floor of proxies."""
    BUILD.mkdir(exist_ok=True)
    for name in ("floor", "slow_origin", "relay"):
        subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-pthread", "-o", BUILD / name, BENCH / f"{name}.c"], check=True)


def build_apus():
    return _build("apus-cli", "apus")


@functools.cache
def generator():
    """`apus`, whose `bench` is the load generator for HTTP/3: the program in `APUS_GENERATOR`, or that of this checkout, which is
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
