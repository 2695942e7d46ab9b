#!/usr/bin/env python3
"""The CPU that load generators use for a request, side by side: `apus bench` and wrk over HTTP/1.1, h2load over HTTP/2, oha over
HTTP/3, each with one thread on one core, against a server on another one."""

import argparse
import json
import re
import resource
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from comparison import host, servers

# The file that is requested, and its bytes: as little work for the server as possible.
FILE, BYTES = "/1k.html", 1024


@dataclass(frozen=True)
class GeneratorCase:
    name: str
    peer: str
    # What `apus bench` may use at most, as a share of the peer.
    most: float
    connections: int
    streams: int
    url: Callable
    # The arguments of `apus bench`, and the command of the peer.
    own: Callable
    other: Callable
    requests: Callable


def wrk_command(url, case, seconds):
    return [host.find("wrk"), "-t1", f"-c{case.connections}", f"-d{seconds}s", url]


def h2load_command(url, case, seconds):
    return [host.find("h2load"), "-t1", f"-c{case.connections}", f"-m{case.streams}", f"-D{seconds}", url]


def oha_command(url, case, seconds):
    return [host.find("oha"), "--no-tui", "--insecure", "--http-version", "3", "-c", str(case.connections), "-p", str(case.streams),
            "-z", f"{seconds}s", "--output-format", "json", url]


def of_wrk(text):
    return int(re.search(r"(\d+) requests in", text).group(1))


def of_h2load(text):
    return int(re.search(r"(\d+) succeeded", text).group(1))


def of_oha(text):
    return sum(json.loads(text)["statusCodeDistribution"].values())


CASES = (
    GeneratorCase("http1", "wrk", 1.0, 64, 1, lambda floor, apus: f"http://127.0.0.1:{floor.clear}/", lambda case: [],
                  wrk_command, of_wrk),
    GeneratorCase("http2", "h2load", 0.8, 64, 10, lambda floor, apus: apus.url(FILE, tls=True), lambda case: ["--http2", "--insecure"],
                  h2load_command, of_h2load),
    GeneratorCase("http3", "oha", 0.8, 64, 10, lambda floor, apus: apus.url(FILE, tls=True), lambda case: ["--http3", "--insecure"],
                  oha_command, of_oha),
)


def cpu_per_request(command, core, requests):
    """Microseconds of CPU for each request, of a generator from its start to its end, and requests per second."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([*host.DEPENDENT, "taskset", "-c", str(core), *map(str, command)], capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"generators: {command[0]} failed: {done.stderr.strip() or done.stdout.strip()}")
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used * 1e6 / requests(done.stdout)


def own_command(program, url, case, seconds):
    command = [program, "bench", url, "-t", 1, "-c", case.connections, "-d", f"{seconds}s", "--warm-up", 0, "--json", *case.own(case)]
    return command + (["-m", case.streams] if case.streams > 1 else [])


def of_own(text):
    return json.loads(text)["responses"]


def run_case(case, options, cores, running):
    _, core = cores
    url = case.url(*running)
    program = servers.generator()
    samples = {"apus bench": [], case.peer: []}
    for number in range(options.rounds):
        measures = {
            "apus bench": lambda: cpu_per_request(own_command(program, url, case, options.seconds), core, of_own),
            case.peer: lambda: cpu_per_request(case.other(url, case, options.seconds), core, case.requests),
        }
        # Nobody always goes first.
        for name in sorted(measures, reverse=number % 2 == 1):
            samples[name].append(measures[name]())
            print(f"  {case.name}  round {number + 1}/{options.rounds}  {name:<12}{samples[name][-1]:>9.2f} us", file=sys.stderr, flush=True)
    own, other = (statistics.median(samples[name]) for name in ("apus bench", case.peer))
    ratio = own / other
    verdict = "met" if ratio <= case.most else "MISSED"
    print(f"{case.name:<8}apus bench {own:>8.2f} us   {case.peer:<8}{other:>8.2f} us   ratio {ratio:.2f} (at most {case.most}): {verdict}")
    return ratio <= case.most


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each case (default 5)")
    parser.add_argument("--seconds", type=int, default=5, help="seconds of load in a round (default 5)")
    parser.add_argument("--case", action="append", choices=[case.name for case in CASES], help="only this case; may be repeated")
    parser.add_argument("--apus", type=Path, help="an apus binary as the server, instead of building this checkout's")
    options = parser.parse_args()
    host.end_in_order()
    host.install_what_is_missing()
    host.raise_descriptor_limit()
    servers.build_floor()
    cores = host.cores()
    binary = (options.apus or servers.build_apus()).resolve()
    servers.prepare({FILE: BYTES})
    floor = servers.start_floor(cores[0], BYTES)
    apus = servers.start_apus(cores[0], binary)
    try:
        good = True
        for case in CASES:
            if options.case and case.name not in options.case:
                continue
            if not host.find(case.peer):
                print(f"{case.name:<8}{case.peer} is not installed (cargo install {case.peer} --features http3)", file=sys.stderr)
                continue
            good = run_case(case, options, cores, (floor, apus)) and good
    finally:
        apus.stop()
        floor.stop()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
