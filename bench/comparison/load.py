"""The load where `apus bench compare` does not make it yet: wrk for HTTP/1.1, h2load for HTTP/2, and holders of idle connections."""

import json
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time

from . import host, process
from .servers import BENCH, RUN

# The fields of a browser's request, without Host and without Accept-Encoding.
BROWSER = (BENCH / "browser-head.txt").read_text().splitlines()

UNITS = {"us": 1, "ms": 1e3, "s": 1e6, "m": 60e6}


def wrk(core, url, connections, seconds, close=False, browser=False, body=""):
    """Runs wrk with one thread on `core`, with GET or, with a body in JSON, POST; what it saw."""
    command = ["taskset", "-c", str(core), host.find("wrk"), "-t1", f"-c{connections}", f"-d{seconds}s",
               "--timeout", "20s", "--latency"]
    for field in (["Connection: close"] if close else []) + (BROWSER if browser else []):
        command += ["-H", field]
    if body:
        # A request that the script does not change is made once.
        script = RUN / "post.lua"
        script.write_text(f'wrk.method = "POST"\nwrk.headers["Content-Type"] = "application/json"\nwrk.body = [[{body}]]\n')
        command += ["-s", script]
    done = subprocess.run([*command, url], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"bench: wrk failed: {done.stderr.strip() or done.stdout.strip()}")
    return parse_wrk(done.stdout)


def parse_wrk(text):
    def number(pattern):
        match = re.search(pattern, text)
        return float(match.group(1)) if match else 0.0

    def microseconds(percentile):
        match = re.search(rf"^\s+{percentile}%\s+([\d.]+)(us|ms|s|m)$", text, re.MULTILINE)
        return float(match.group(1)) * UNITS[match.group(2)] if match else 0.0

    average = re.search(r"^\s+Latency\s+([\d.]+)(us|ms|s|m)\s", text, re.MULTILINE)
    mean = float(average.group(1)) * UNITS[average.group(2)] if average else 0.0
    rate = re.search(r"^Transfer/sec:\s+([\d.]+)([KMGT]?)B$", text, re.MULTILINE)
    socket_errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text)
    kinds = dict(zip(("connect", "read", "write", "timeout"), map(int, socket_errors.groups()))) if socket_errors else {}
    kinds["status"] = int(number(r"Non-2xx or 3xx responses: (\d+)"))
    return {
        "requests": number(r"(\d+) requests in"),
        "requests_per_second": number(r"Requests/sec:\s+([\d.]+)"),
        "bytes_per_second": float(rate.group(1)) * 1024 ** " KMGT".index(rate.group(2) or " ") if rate else 0.0,
        "mean_us": mean,
        "p50_us": microseconds(50),
        "p99_us": microseconds(99),
        "errors": sum(kinds.values()),
        "errors_by_kind": {kind: count for kind, count in kinds.items() if count},
    }


# What all servers have to settle on with h2load, so that none is measured with less to do.
CIPHER = "TLS_AES_128_GCM_SHA256"
SETTLED = {"TLS Protocol": "TLSv1.3", "Cipher": CIPHER, "Server Temp Key": "X25519 253 bits",
           "Application protocol": "h2"}


def _h2load(core, url, connections, streams, *options):
    return ["taskset", "-c", str(core), host.find("h2load"), "-t1", f"-c{connections}", f"-m{streams}",
            f"--tls13-ciphers={CIPHER}", "--groups=X25519", *options, url]


def h2load_burst(core, url, connections, streams, each):
    """What h2load saw that makes `each` requests over each connection, all of them opened at once."""
    command = _h2load(core, url, connections, streams, f"-n{connections * each}")
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"bench: h2load failed: {done.stderr.strip() or done.stdout.strip()}")
    return parse_h2load(done.stdout, url)


class H2Load:
    """A run of h2load with one thread on `core`: `seconds` of load after the time that opening the connections takes.
    Connections that do not last count as errors, unless others than h2load connect to the same port.
    """

    # A server that writes to one connection as long as that takes anything, and h2load, which reads one as long as
    # that has anything, can come to look at nothing else, not even at the clock.
    ATTEMPTS = 3

    def __init__(self, core, url, connections, streams, seconds, alone=True):
        warm_up = 1 + connections // 1000
        self.url = url
        self.connections = connections
        self.seconds = seconds
        self.alone = alone
        self.too_long = 30 + 3 * (warm_up + seconds)
        self.command = _h2load(core, url, connections, streams, f"-D{seconds}", f"--warm-up-time={warm_up}")

    def run(self, on_start=lambda: None, on_end=lambda: None):
        """What h2load saw; the functions are called when the load begins and ends."""
        for _ in range(self.ATTEMPTS):
            sample = self._run_once(on_start, on_end)
            if sample:
                return sample
            print(f"bench: h2load did not end; once more: {self.url}", file=sys.stderr)
        sys.exit(f"bench: h2load did not end {self.ATTEMPTS} times: {self.url}")

    def _run_once(self, on_start, on_end):
        lines = []
        watch = ConnectionWatch(self.url, self.connections, self.seconds) if self.alone else None
        with subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as child:
            killer = threading.Timer(self.too_long, child.kill)
            killer.start()
            for line in child.stdout:
                lines.append(line)
                if line.startswith("Main benchmark duration is started"):
                    on_start()
                    if watch:
                        watch.start()
                elif line.startswith("Main benchmark duration is over"):
                    on_end()
        killer.cancel()
        text = "".join(lines)
        if child.returncode == -signal.SIGKILL:
            return None
        if child.returncode != 0:
            sys.exit(f"bench: h2load failed: {text.strip()}")
        sample = parse_h2load(text, self.url)
        if watch:
            sample["lost_connections"] = watch.lost()
            sample["errors"] += sample["lost_connections"]
        return sample


def parse_h2load(text, url):
    def number(pattern):
        match = re.search(pattern, text)
        return float(match.group(1)) if match else 0.0

    for name, expected in SETTLED.items():
        found = re.search(rf"^{name}: (.*)$", text, re.MULTILINE)
        if not found or found.group(1).strip() != expected:
            sys.exit(f"bench: {url} should settle on {name} {expected}, not {found and found.group(1)}:\n{text.strip()}")
    requests = number(r"(\d+) succeeded")
    if not requests:
        sys.exit(f"bench: {url} responded to no request:\n{text.strip()}")
    return {
        "requests": requests,
        "requests_per_second": number(r"([\d.]+) req/s"),
        # Those that broke off or timed out are among the failed.
        "errors": int(number(r"(\d+) failed") + number(r"(\d+) 3xx")),
    }


class ConnectionWatch:
    """Counts connections that never come to be, or that are there when the load begins and do not stay until shortly
    before its end, because of a GOAWAY or for any other reason. h2load opens others in their place and does not report it.
    """

    # Looking at thousands of connections takes some time, and they have to be open still.
    BEFORE_THE_END = 0.4

    def __init__(self, url, connections, seconds):
        self.port = int(url.split(":")[2].split("/")[0])
        self.connections = connections
        self.seconds = seconds
        self.before = self.after = frozenset()

    def start(self):
        self.before = self._open()
        self.timer = threading.Timer(self.seconds - self.BEFORE_THE_END, self._look_again)
        self.timer.start()

    def _look_again(self):
        self.after = self._open()

    def lost(self):
        self.timer.join()
        never_open = max(0, self.connections - len(self.before | self.after))
        return never_open + len(self.before - self.after)

    def _open(self):
        command = ["ss", "-Htn", "state", "established", f"sport = :{self.port}"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return frozenset(line.split()[-1] for line in done.stdout.splitlines())


class H3Load:
    """`apus bench --http3`, with one thread on `core`. Connections that do not last count as errors."""

    def __init__(self, program, core, url, connections, *options):
        self.url = url
        self.connections = connections
        self.command = list(map(str, ["taskset", "-c", core, program, "bench", url, "--http3", "--insecure", "--json", "--threads", 1,
                                      "--connections", connections, "--allow-errors", *options]))

    def run(self):
        """What it saw. With `--pid`, the CPU time of that process is in it."""
        done = subprocess.run(self.command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"bench: apus bench failed: {self.url}: {done.stderr.strip()}")
        return parse_bench(json.loads(done.stdout))


def parse_bench(report):
    sample = {
        "requests": report["responses_per_second"] * report["seconds"],
        "requests_per_second": report["responses_per_second"],
        "p50_us": report["latency"]["p50_ms"] * 1e3,
        "p99_us": report["latency"]["p99_ms"] * 1e3,
        "errors": report["failed"],
        "errors_by_kind": {failure["kind"]: failure["count"] for failure in report["failures"]},
        "opened": report["connections_opened"],
        "resumed": report["handshakes_resumed"],
        "seconds": report["seconds"],
    }
    if report["keep_alive"] and report["connections_opened"] > report["connections"]:
        lost = report["connections_opened"] - report["connections"]
        sample["errors"] += lost
        sample["errors_by_kind"]["lost connections"] = lost
    if report["server"]:
        sample["cpu_seconds"] = report["server"]["cpu_per_response_us"] * sample["requests"] / 1e6
    return sample


class IdleHttp3Connections:
    """Connections over HTTP/3 that have had one response each and stay open: their clients think for an hour."""

    def __init__(self, program, core, server, path, count):
        self.count = count
        self.url = server.url(path, tls=True)
        self.pid = server.pid
        self.load = H3Load(program, core, self.url, count, "--no-probe", "--warm-up", 0, "--duration", "1h", "--think-time", "1h")

    def __enter__(self):
        """Returns once the server has nothing to do any more; what it did is checked at the end."""
        self.child = subprocess.Popen(self.load.command, stdout=subprocess.PIPE, text=True)
        started, last = process.cpu_seconds(self.pid), -1.0
        while (now := process.cpu_seconds(self.pid)) != last or now == started:
            if self.child.poll() is not None:
                sys.exit(f"bench: apus bench failed: {self.url}")
            last = now
            time.sleep(0.5)
        return self

    def __exit__(self, *_):
        self.child.send_signal(signal.SIGINT)
        report = json.loads(self.child.communicate()[0])
        if report["connections_opened"] != self.count or report["responses"] != self.count:
            sys.exit(f"bench: {report['responses']} responses over {report['connections_opened']} connections of {self.count}: {self.url}")


class IdleConnections:
    """Connections that have had one response each and stay open."""

    def __init__(self, server, path, count, tls):
        request = f"GET {path} HTTP/1.1\r\nHost: bench.test\r\n\r\n".encode()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        self.sockets = []
        for _ in range(count):
            connection = socket.create_connection(("127.0.0.1", server.tls if tls else server.clear), 20)
            if tls:
                connection = context.wrap_socket(connection, server_hostname="bench.test")
            connection.sendall(request)
            self._read_response(connection)
            self.sockets.append(connection)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for connection in self.sockets:
            connection.close()

    @staticmethod
    def _read_response(connection):
        got = b""
        while b"\r\n\r\n" not in got:
            got += connection.recv(65536) or sys.exit("bench: the server closed an idle connection")
        head, _, body = got.partition(b"\r\n\r\n")
        length = int(re.search(rb"content-length: *(\d+)", head, re.IGNORECASE).group(1))
        while len(body) < length:
            body += connection.recv(65536) or sys.exit("bench: a response broke off")
