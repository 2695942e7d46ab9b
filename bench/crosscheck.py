#!/usr/bin/env python3
"""What `apus bench` reports, beside h2load, k6 and wrk, on servers whose schedule is known.

Each generator sends the same load to `crosscheck/server.go`, over HTTP/1.1 and HTTP/2, and its counts and percentiles are compared with the
schedule, and with the other generators. The exit status is 1 if they are apart by more than the bound.

The bound is 1% and 3 ms, and for h2load in the open loop the time that it sends late. Histograms have three digits, which is less than 1%. All times come from timers, which wake a program up after up
to a millisecond on a machine whose few processors are shared by the server and the generator; k6 adds most, since it interprets JavaScript."""

import argparse
import contextlib
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from comparison import host, servers

HERE = Path(__file__).resolve().parent / "crosscheck"
BUILD = servers.BUILD / "crosscheck"
K6_MODULE = "go.k6.io/k6@v1.8.1"

CLIENTS, REQUESTS = 20, 4000
# Of the open loop: enough connections for all requests that become due in the pause.
OPEN_CLIENTS, RATE, SECONDS = 240, 200, 5

FIGURES = ("p50", "p90", "p99", "max", "mean")


@dataclass
class Measured:
    """What a generator reports. Times are in milliseconds."""

    responses: int
    failed: int
    times: dict = field(default_factory=dict)

    @staticmethod
    def of_latencies(latencies, failed=0):
        """Percentiles as they are defined: the smallest latency that this share of all latencies does not exceed."""
        ordered = sorted(latencies)
        at = {name: ordered[max(math.ceil(share * len(ordered)), 1) - 1] for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1))}
        return Measured(len(ordered), failed, at | {"mean": sum(ordered) / len(ordered)})


def run(command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"crosscheck: {command[0]} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


class ApusBench:
    name = "apus bench"
    protocols = ("HTTP/1.1", "HTTP/2")

    def __init__(self, program):
        self.program = program

    def measure(self, url, protocol, *arguments):
        version = ["--http2"] if protocol == "HTTP/2" else []
        report = json.loads(run([self.program, "bench", url, "--insecure", "--allow-errors", "--json", *version, *arguments]))
        if (reason := report["generator"]["bottleneck"]) and "--rate" in arguments:
            print(f"  apus bench says that it was the bottleneck: {reason}", file=sys.stderr)
        latency = report["latency"]
        times = {name: latency[f"{name}_ms"] for name in FIGURES}
        return Measured(report["responses"], report["failed"], times)

    def closed(self, url, protocol):
        return self.measure(url, protocol, "-c", CLIENTS, "-n", REQUESTS)

    def open(self, url, protocol):
        return self.measure(url, protocol, "-c", OPEN_CLIENTS, "--rate", RATE, "-d", f"{SECONDS}s", "--warm-up", 0)


class H2load:
    name = "h2load"
    protocols = ("HTTP/1.1", "HTTP/2")
    # How late it sends what is due by a schedule, in milliseconds: 8 to 17 were seen.
    lateness = 20

    def log(self, url, protocol, *arguments):
        """The start in seconds, the latency in milliseconds, and the status of each request."""
        with tempfile.NamedTemporaryFile("r") as log:
            version = ["--h1"] if protocol == "HTTP/1.1" else []
            run([host.find("h2load"), *version, *arguments, f"--log-file={log.name}", url])
            rows = [line.split("\t") for line in log.read().splitlines()]
        return [(int(start) / 1e6, int(took) / 1e3, int(status)) for start, status, took in rows]

    def closed(self, url, protocol):
        log = self.log(url, protocol, "-n", REQUESTS, "-c", CLIENTS)
        failed = sum(status != 200 for _, _, status in log)
        measured = Measured.of_latencies([took for _, took, _ in log], failed)
        measured.responses -= failed
        return measured

    def open(self, url, protocol):
        """h2load sends by a schedule over each connection, and counts from when it has sent. Its log has all that wrk2 needs to count
        from when the request was due. Over HTTP/1.1 it would need as many connections as requests wait, each with its own schedule. It
        sends what is due in bursts (`lateness`): that is most of the short latencies, and they are not compared."""
        if protocol == "HTTP/1.1":
            return None
        log = sorted(self.log(url, protocol, "-n", RATE * SECONDS, "-c", 1, "-m", 1000, f"--rps={RATE}"))
        begin = min(start - number / RATE for number, (start, _, _) in enumerate(log))
        due = (begin + number / RATE for number in range(len(log)))
        measured = Measured.of_latencies([(start - due) * 1e3 + took for (start, took, _), due in zip(log, due)])
        measured.times = {name: measured.times[name] for name in ("p90", "p99", "max")}
        return measured


class K6:
    name = "k6"
    protocols = ("HTTP/1.1", "HTTP/2")

    def __init__(self, program):
        self.program = program

    def measure(self, url, **settings):
        with tempfile.NamedTemporaryFile("r") as output:
            environment = {"URL": url, "OUTPUT": output.name} | {name: str(value) for name, value in settings.items()}
            run([self.program, "run", "--quiet", "--no-usage-report", HERE / "load.js"], env=dict(os.environ, **environment))
            metrics = json.loads(output.read())
        values = metrics["http_req_duration"]["values"]
        times = dict(zip(FIGURES, (values[name] for name in ("med", "p(90)", "p(99)", "max", "avg"))))
        # The passes of this rate are the requests that failed.
        failed = metrics["http_req_failed"]["values"]["passes"]
        return Measured(values["count"] - failed, failed, times)

    def closed(self, url, protocol):
        return self.measure(url, CLIENTS=CLIENTS, REQUESTS=REQUESTS)

    def open(self, url, protocol):
        """Each request has a client that waits for it, so that it is sent when it is due."""
        return self.measure(url, CLIENTS=OPEN_CLIENTS, RATE=RATE, SECONDS=SECONDS)


class Wrk:
    """It has no number of requests, and no mean of latencies apart from failures."""

    name = "wrk"
    protocols = ("HTTP/1.1",)

    def closed(self, url, protocol):
        text = run([host.find("wrk"), "-t2", f"-c{CLIENTS}", "-d6s", "--latency", url])
        unit = {"us": 1e-3, "ms": 1, "s": 1e3}
        shown = re.findall(r"^\s*(50|90|99)%\s+([\d.]+)(us|ms|s)$", text, re.M)
        times = {f"p{percent}": float(number) * unit[name] for percent, number, name in shown}
        return Measured(None, None, times)

    def open(self, url, protocol):
        return None


def scheduled_delays():
    """What crosscheck/server.go does at /delays."""
    return [80 if place in (25, 75) else 40 if place % 7 == 3 else 20 for place in range(100)]


def scheduled_pause():
    """Latencies from when requests are due, by the schedule of crosscheck/server.go at /pause: those that are due in the pause wait for its
    end. `apus bench` sends a request before the load, so that the pause is one request earlier, which changes no latency."""
    begin = 100 / RATE + 1
    due = (number / RATE for number in range(RATE * SECONDS))
    return [(begin + 1 - at) * 1e3 if begin <= at < begin + 1 else 0 for at in due]


@dataclass
class Check:
    name: str
    loop: str
    path: str
    expected: Measured
    figures: tuple


def checks():
    delays = Measured.of_latencies(scheduled_delays() * (REQUESTS // 100))
    pause = Measured.of_latencies(scheduled_pause())
    wrong = Measured(REQUESTS - REQUESTS // 1000, REQUESTS // 1000)
    return (
        Check(f"closed loop, delays of 20, 40 and 80 ms ({REQUESTS:,} requests, {CLIENTS} connections)", "closed", "/delays", delays, ("p50", "p90", "p99", "mean")),
        Check(f"open loop, a pause of one second ({RATE} requests/s for {SECONDS} s)", "open", "/pause", pause, FIGURES),
        Check(f"every 1,000th response is a 500 ({REQUESTS:,} requests)", "closed", "/errors", wrong, ()),
    )


def is_within(found, expected, lateness):
    most = expected * 0.01 + 3
    return -most <= found - expected <= most + lateness


def row(label, measured, figures):
    number = lambda value: "-" if value is None else f"{value:,}"
    times = "".join(f"{measured.times[name]:>10.1f}" if name in measured.times else f"{'-':>10}" for name in figures)
    return f"  {label:<22}{number(measured.responses):>10}{number(measured.failed):>8}{times}"


def run_check(check, protocol, url, generators):
    """Prints a table, and returns what is wrong."""
    print(f"\n{protocol}, {check.name}")
    print(f"  {'':<22}{'responses':>10}{'failed':>8}" + "".join(f"{name + ' ms':>10}" for name in check.figures))
    print(row("by the schedule", check.expected, check.figures))
    wrong = []
    for generator in generators:
        if protocol not in generator.protocols:
            continue
        fetch(f"{url}/reset")
        measured = getattr(generator, check.loop)(url + check.path, protocol)
        if measured is None:
            continue
        print(row(generator.name, measured, check.figures), flush=True)
        # A schedule may begin or end with one request more.
        slack = 2 if check.loop == "open" else 0
        expected = check.expected
        for what, found, right in (("responses", measured.responses, expected.responses), ("failures", measured.failed, expected.failed)):
            if found is not None and abs(found - right) > slack:
                wrong.append(f"{generator.name}, {protocol}, {check.name}: {found} {what} instead of {right}")
        lateness = getattr(generator, "lateness", 0) if check.loop == "open" else 0
        for name in check.figures:
            if name in measured.times and not is_within(measured.times[name], expected.times[name], lateness):
                wrong.append(f"{generator.name}, {protocol}, {check.name}: {name} is {measured.times[name]:.1f} ms instead of {expected.times[name]:.1f} ms")
    return wrong


def fetch(url):
    """With curl, which speaks HTTP/2."""
    run([host.find("curl"), "--silent", "--show-error", "--fail", "--insecure", url])


def build_k6():
    """k6 in the version that is compared, built by Go: two to four minutes the first time."""
    program = BUILD / "k6"
    if not program.exists():
        print(f"building {K6_MODULE}", file=sys.stderr, flush=True)
        run(["go", "install", K6_MODULE], env=dict(os.environ, GOBIN=str(BUILD), GOFLAGS="-buildvcs=false"), cwd=BUILD)
    return program


@contextlib.contextmanager
def server():
    """The server, and its addresses: over HTTP/1.1 in clear text, and over HTTP/1.1 and HTTP/2 under TLS."""
    key, certificate = BUILD / "key.pem", BUILD / "cert.pem"
    run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1", "-days", "30", "-keyout", key, "-out", certificate])
    run(["go", "build", "-buildvcs=false", "-o", BUILD / "server", "."], cwd=HERE)
    child = subprocess.Popen([*host.DEPENDENT, BUILD / "server", certificate, key], stdout=subprocess.PIPE, text=True)
    try:
        yield [child.stdout.readline().strip() for _ in range(3)]
    finally:
        child.terminate()
        child.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--apus", type=Path, help="an apus binary, instead of building this checkout's")
    parser.add_argument("--k6", type=Path, help="a k6 binary, instead of building it with Go")
    parser.add_argument("--without-k6", action="store_true", help="only the generators of Debian")
    options = parser.parse_args()
    host.end_in_order()
    host.install_what_is_missing()
    if not host.find("go"):
        sys.exit("crosscheck: please install Go 1.24 or later")
    host.raise_descriptor_limit()
    BUILD.mkdir(parents=True, exist_ok=True)
    generators = [ApusBench((options.apus or servers.build_apus()).resolve()), H2load(), Wrk()]
    if not options.without_k6:
        generators.append(K6((options.k6 or build_k6()).resolve()))
    with server() as (clear, tls, http2):
        wrong = []
        for check in checks():
            for protocol, url in (("HTTP/1.1", clear), ("HTTP/1.1", tls), ("HTTP/2", http2)):
                wrong += run_check(check, protocol, url, generators)
    print()
    print("\n".join(wrong) or "all generators report what the schedules say")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
