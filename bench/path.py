#!/usr/bin/env python3
"""Downloads over HTTP/2 and HTTP/3 through the same path: two network namespaces, and between them bench/path.c, which delays
every packet, limits the rate, and drops some at random. Needs root."""

import argparse
import contextlib
import datetime
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from comparison import host, servers, unstable
from comparison.servers import MB

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "BENCHMARKS.md"
RESULT = ROOT / "bench" / "results" / "path.json"
BEGIN, END = "<!-- path: begin -->", "<!-- path: end -->"

SERVER, CLIENT = "apus-path-server", "apus-path-client"
SERVER_IP, CLIENT_IP = "10.99.0.1", "10.99.0.2"
PORT = 8443
RATE_MBIT = 500
# The goal: HTTP/3 takes at most this many times as long.
MOST_RATIO = 1.1
# Bytes that TCP may have in its buffers, so that they are not what limits HTTP/2.
TCP_BUFFER = 64 * MB
# Bytes that a server may send over HTTP/3 before they are read, so that this end is not what limits it.
DOWNLOAD_WINDOW = 8 * MB

APUS_CONFIGURATION = f"""\
[global]
worker_threads = 1
control_socket = "path.sock"

[[sites]]
name = "path"
listen_tls = ["{SERVER_IP}:{PORT}"]
root = "files"

[sites.tls]
cert = "cert.pem"
key = "key.pem"
"""

# As its documentation of HTTP/3 advises: segmentation by the kernel, and room for a whole response in each stream.
NGINX_CONFIGURATION = f"""\
daemon off;
{{user}}worker_processes 1;
pid path.pid;
error_log path.log warn;
events {{{{ worker_connections 512; }}}}
http {{{{
    access_log off;
    sendfile on;
    tcp_nopush on;
    open_file_cache max=1000 inactive=300s;
    keepalive_timeout 300s;
    client_body_temp_path tmp; proxy_temp_path tmp; fastcgi_temp_path tmp;
    uwsgi_temp_path tmp; scgi_temp_path tmp;
    ssl_certificate cert.pem;
    ssl_certificate_key key.pem;
    ssl_protocols TLSv1.3;
    quic_gso on;
    http3_stream_buffer_size 1m;
    server {{{{
        listen {SERVER_IP}:{PORT} quic reuseport;
        listen {SERVER_IP}:{PORT} ssl backlog=4096;
        http2 on;
        root files;
    }}}}
}}}}
"""


@dataclass(frozen=True)
class PathCase:
    round_trip_ms: int
    loss: float
    # A loss of 0.1% limits every sender to a few Mbit/s over a long path, so that 100 MB would take minutes.
    bytes: int

    @property
    def name(self):
        return f"{self.round_trip_ms}ms-{self.loss:.1%}"

    @property
    def file(self):
        return f"/{self.bytes // MB}m.bin"

    @property
    def queue(self):
        """What is in flight at the full rate."""
        return RATE_MBIT * 125 * self.round_trip_ms


CASES = (PathCase(20, 0, 100 * MB), PathCase(100, 0, 100 * MB), PathCase(20, 0.001, 20 * MB), PathCase(100, 0.001, 10 * MB))


def inside(namespace, *command):
    return [*host.DEPENDENT, "ip", "netns", "exec", namespace, *map(str, command)]


@contextlib.contextmanager
def namespaces():
    try:
        for name in (SERVER, CLIENT):
            subprocess.run(["ip", "netns", "add", name], check=True)
            subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
            for key, first in (("tcp_rmem", 128 * 1024), ("tcp_wmem", 16 * 1024)):
                subprocess.run(inside(name, "sysctl", "-qw", f"net.ipv4.{key}=4096 {first} {TCP_BUFFER}"), check=True)
        yield
    finally:
        for name in (SERVER, CLIENT):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


@contextlib.contextmanager
def path(case, congestion, seed):
    """The path, with both ends configured; what it counted is added to the dictionary at the end."""
    command = [servers.BUILD / "path", SERVER, CLIENT, case.round_trip_ms * 500, RATE_MBIT, case.queue, case.loss, seed]
    counted = {}
    child = subprocess.Popen([*host.DEPENDENT, *map(str, command)], stdout=subprocess.PIPE, text=True)
    try:
        if child.stdout.readline() != "ready\n":
            sys.exit("path: no TUN device could be made")
        for name, own, peer in ((SERVER, SERVER_IP, CLIENT_IP), (CLIENT, CLIENT_IP, SERVER_IP)):
            for arguments in (
                ["addr", "add", own, "peer", peer, "dev", "path"],
                # What a burst of a sender has in it must not be lost before the path.
                ["link", "set", "path", "up", "mtu", "1500", "txqueuelen", "10000"],
                # The congestion control of TCP, which a namespace may not choose for all connections.
                ["route", "replace", peer, "dev", "path", "congctl", congestion],
            ):
                subprocess.run(["ip", "-n", name, *arguments], check=True)
        yield counted
    finally:
        child.send_signal(signal.SIGTERM)
        output, _ = child.communicate()
        for line, name in zip(output.splitlines(), ("to_client", "to_server")):
            counted[name] = dict(zip(("carried", "queue_full", "lost"), map(int, re.findall(r"\d+", line))))


class HttpServer:
    """A server in its namespace. It is there when a client gets a small file."""

    def __init__(self, name, command):
        self.name = name
        log = (servers.RUN / f"{name}.output").open("ab")
        self.process = host.Dependent(inside(SERVER, *command), cwd=servers.RUN, stdout=log, stderr=log)
        give_up = time.monotonic() + 30
        while subprocess.run(inside(SERVER, "curl", "-sko", "/dev/null", f"https://{SERVER_IP}:{PORT}/12b.html")).returncode:
            if self.process.poll() is not None or time.monotonic() > give_up:
                sys.exit(f"path: {name} does not start; see {servers.RUN}/{name}.output")
            time.sleep(0.1)

    def stop(self):
        self.process.terminate()
        self.process.wait()


def start_apus(binary, congestion):
    more = "" if congestion == "cubic" else f'\n[sites.tls.http3]\ncongestion = "{congestion}"\n'
    (servers.RUN / "path.toml").write_text(APUS_CONFIGURATION + more)
    return HttpServer("apus", [binary, "serve", servers.RUN / "path.toml"])


def start_nginx():
    user = "user root;\n" if os.geteuid() == 0 else ""
    (servers.RUN / "path.conf").write_text(NGINX_CONFIGURATION.format(user=user))
    return HttpServer("nginx", [*unstable.nginx(), "-p", servers.RUN, "-c", servers.RUN / "path.conf", "-e", servers.RUN / "path.log"])


def http2_seconds(url, size):
    command = inside(CLIENT, host.find("h2load"), "-n1", "-c1", "-m1", "-w30", "-W30", url)
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    seconds = time.monotonic() - began
    if "1 succeeded" not in done.stdout or f"({size}) data" not in done.stdout:
        sys.exit(f"path: h2load failed: {done.stdout}{done.stderr}")
    return seconds


def http3_seconds(program, url, size):
    # With a connection for each request, its time has the handshake in it, as the time of h2load has.
    command = inside(CLIENT, program, "bench", url, "--http3", "--insecure", "--json", "--i-own-this-host", "--no-probe", "--close",
                     "--connections", 1, "--requests", 1, "--timeout", "1h", "--receive-window", DOWNLOAD_WINDOW, "--length", size)
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"path: apus bench failed: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)["latency"]["max_ms"] / 1e3


def run_case(case, options, generator, start):
    """The seconds of each round, by protocol, and what the path did to packets."""
    seconds = {"http2": [], "http3": []}
    counted = {"http2": [], "http3": []}
    url = f"https://{SERVER_IP}:{PORT}{case.file}"
    download = {"http2": lambda: http2_seconds(url, case.bytes), "http3": lambda: http3_seconds(generator, url, case.bytes)}
    for number in range(options.rounds):
        # Nobody always goes first. Both meet the same losses, packet by packet.
        for protocol in sorted(seconds, reverse=number % 2 == 1):
            with path(case, options.congestion, number + 1) as counts:
                server = start()
                try:
                    seconds[protocol].append(download[protocol]())
                finally:
                    server.stop()
            counted[protocol].append(counts["to_client"])
            print(f"  {case.name} {protocol}: {seconds[protocol][-1]:.2f} s, {counts['to_client']}", file=sys.stderr, flush=True)
    return seconds, counted


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="downloads of each protocol (default 5)")
    parser.add_argument("--case", action="append", choices=[case.name for case in CASES], help="only this path; may be repeated")
    parser.add_argument("--congestion", choices=("cubic", "bbr"), default="cubic", help="of TCP and QUIC (default cubic)")
    parser.add_argument("--apus", type=Path, help="an apus binary, instead of building this checkout's")
    parser.add_argument("--nginx", action="store_true", help="nginx of Debian unstable instead of Apus")
    parser.add_argument("--write", action="store_true", help="store the result in bench/results/path.json, and put it into BENCHMARKS.md")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("path: needs root, for network namespaces and TUN devices")
    host.end_in_order()
    host.install_what_is_missing()
    servers.BUILD.mkdir(exist_ok=True)
    subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-o", servers.BUILD / "path", servers.BENCH / "path.c"], check=True)
    generator = servers.generator()
    servers.prepare({"/12b.html": 12, **{case.file: case.bytes for case in CASES}}, SERVER_IP)
    if options.nginx:
        start = start_nginx
    else:
        binary = (options.apus or servers.build_apus()).resolve()
        start = lambda: start_apus(binary, options.congestion)

    results = {}
    with namespaces():
        for case in CASES:
            if options.case and case.name not in options.case:
                continue
            seconds, counted = run_case(case, options, generator, start)
            date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
            results[case.name] = {"date": date, "bytes": case.bytes, "seconds": seconds, "packets": counted}
    text, is_good = table(results)
    print(text)
    if options.write:
        write(results, options)
    return 0 if is_good else 1


def table(results):
    """The medians as a table, and whether all reach the goal."""
    lines = ["| round trip | loss | download | HTTP/2, s | HTTP/3, s | of HTTP/2 |", "| ---: | ---: | ---: | ---: | ---: | ---: |"]
    is_good = True
    for case in CASES:
        if case.name not in results:
            continue
        middle = {protocol: statistics.median(values) for protocol, values in results[case.name]["seconds"].items()}
        ratio = middle["http3"] / middle["http2"]
        is_good = is_good and ratio <= MOST_RATIO
        shown = f"{ratio:.2f}" if ratio <= MOST_RATIO else f"**{ratio:.2f}**"
        lines.append(f"| {case.round_trip_ms} ms | {case.loss:.1%} | {case.bytes // MB} MB | {middle['http2']:.2f} | {middle['http3']:.2f} | {shown} |")
    return "\n".join(lines), is_good


def write(results, options):
    """Stores the run, beside the cases that it does not have."""
    cases = (json.loads(RESULT.read_text())["cases"] if RESULT.exists() else {}) | results
    machine = host.describe()
    stored = {"host": machine, "congestion": options.congestion, "rate_mbit": RATE_MBIT, "rounds": options.rounds, "cases": cases}
    RESULT.write_text(json.dumps(stored, indent=1) + "\n")
    before, begin, rest = PAGE.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"path: BENCHMARKS.md lacks {BEGIN} or {END}")
    text, _ = table(cases)
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\nMedians of {options.rounds} downloads, {min(case['date'] for case in cases.values())[:10]}.\n\n{END}{after}")


if __name__ == "__main__":
    sys.exit(main())
