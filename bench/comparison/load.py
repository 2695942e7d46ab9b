"""The load: wrk for requests, and a holder of idle connections."""

import re
import socket
import ssl
import subprocess
import sys

from . import host

UNITS = {"us": 1, "ms": 1e3, "s": 1e6, "m": 60e6}


def wrk(core, url, connections, seconds, close=False):
    """Runs wrk with one thread on `core`; what it saw."""
    command = ["taskset", "-c", str(core), host.find("wrk"), "-t1", f"-c{connections}", f"-d{seconds}s",
               "--timeout", "20s", "--latency"]
    if close:
        command += ["-H", "Connection: close"]
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

    socket_errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text)
    errors = sum(map(int, socket_errors.groups())) if socket_errors else 0
    return {
        "requests": number(r"(\d+) requests in"),
        "requests_per_second": number(r"Requests/sec:\s+([\d.]+)"),
        "p50_us": microseconds(50),
        "p99_us": microseconds(99),
        "errors": errors + int(number(r"Non-2xx or 3xx responses: (\d+)")),
    }


class IdleConnections:
    """Connections that have had one answer each and stay open."""

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
            self._read_answer(connection)
            self.sockets.append(connection)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for connection in self.sockets:
            connection.close()

    @staticmethod
    def _read_answer(connection):
        got = b""
        while b"\r\n\r\n" not in got:
            got += connection.recv(65536) or sys.exit("bench: the server closed an idle connection")
        head, _, body = got.partition(b"\r\n\r\n")
        length = int(re.search(rb"content-length: *(\d+)", head, re.IGNORECASE).group(1))
        while len(body) < length:
            body += connection.recv(65536) or sys.exit("bench: an answer broke off")
