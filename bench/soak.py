#!/usr/bin/env python3
"""Apus under load for minutes, reloaded every two seconds: no request may fail, nothing may grow. With PHP behind it,
PHP processes are also killed, and no client may get another's response. In a C program, with WebSockets, uploads and clients that break
off, memory stays within 1 MB."""

import argparse
import concurrent.futures
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from comparison import cases, checked, embedded, host, load, php, process, servers, visitors

# The first part of a soak fills caches and pools; growth is counted from there.
WARM_UP = 0.25
MEMORY_SLACK = 4 * cases.MB
EMBEDDED_SLACK = cases.MB
DESCRIPTOR_SLACK = 16
# With PHP, more than it has processes.
CLIENTS = 50


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=180, help="how long (default 180)")
    parser.add_argument("--php", action="store_true", help="with PHP behind it")
    parser.add_argument("--embedded", action="store_true", help="libapus in a C program, in place of the binary")
    parser.add_argument("--apus", type=Path, help="an apus binary, instead of building this checkout's")
    options = parser.parse_args()

    host.install_what_is_missing()
    host.raise_descriptor_limit()
    if options.embedded:
        sys.exit(soak_embedded(options.seconds))
    binary = (options.apus or servers.build_apus()).resolve()
    servers.prepare(cases.FILES)
    server_core, load_core = host.cores()
    if options.php:
        sys.exit(soak_php(binary, server_core, load_core, options.seconds))
    generator = servers.generator()
    server = servers.start_apus(server_core, binary)
    try:
        sys.exit(soak(server, binary, generator, load_core, options.seconds))
    finally:
        server.stop()


def soak_embedded(seconds):
    """The C program of `bench/embedded/soak.c`."""
    embedded.build({embedded.SOAK})
    servers.prepare(cases.FILES)
    server_core, load_core = host.cores()
    server = embedded.start(embedded.SOAK, server_core)
    samples = []
    try:
        with concurrent.futures.ThreadPoolExecutor() as pool, visitors.Visitors(server.clear, seconds) as visiting:
            running = {
                "kept alive": pool.submit(load.wrk, load_core, server.url("/10k.html"), 32, seconds),
                "closed": pool.submit(load.wrk, load_core, server.url("/100k.bin"), 32, seconds, close=True),
            }
            started = time.monotonic()
            while not all(one.done() for one in running.values()):
                time.sleep(0.5)
                server.check()
                samples.append((time.monotonic() - started, process.memory_bytes(server.pid), descriptors(server.pid)))
    finally:
        server.stop()
    errors = len(visiting.faults)
    for name, one in running.items():
        result = one.result()
        errors += result["errors"]
        print_load(name, result)
    for name, count in visiting.counts.items():
        print(f"{name:<20}{count:>12,} visits")
        errors += not count
    print(f"{'broken off':<20}{visiting.broken_off:>12,} of them")
    for fault in visiting.faults[:5]:
        print("visit:", fault)
    return judge(samples, seconds, 0, [], errors, EMBEDDED_SLACK)


def soak_php(binary, core, load_core, seconds):
    """Over FastCGI, where a killed process costs the request that it worked on, and with workers, where the request is sent again."""
    case = cases.PhpCase("soak", "", php.HELLO, "/mixed.php", CLIENTS, resident="classic")
    exits = []
    for start, costs in ((php.start_apus, 1), (php.start_resident, 0)):
        stack = php.Stack("scripts")
        try:
            server = start(case, core, stack, binary)
            try:
                exits.append(kill_and_reload(server, binary, load_core, seconds // 2, costs))
            finally:
                server.stop()
        finally:
            stack.stop()
    return max(exits)


def kill_and_reload(server, binary, core, seconds, costs):
    """Each killed process may cost so many responses."""
    reloads, killed, failures, samples = 0, 0, [], []
    with concurrent.futures.ThreadPoolExecutor() as pool:
        requesting = pool.submit(checked.run, core, server.clear, "/mixed.php", CLIENTS, seconds)
        started = time.monotonic()
        while not requesting.done():
            time.sleep(1)
            server.check()
            if workers := process.tree(server.php_pid)[1:]:
                os.kill(random.choice(workers), signal.SIGKILL)
                killed += 1
            if killed % 10 == 0:
                os.kill(server.php_pid, signal.SIGUSR2)
            if killed % 2 == 0:
                done = subprocess.run([binary, "reload", servers.RUN / f"{server.name}.toml"], capture_output=True, text=True)
                reloads += 1
                if done.returncode:
                    failures.append(done.stderr.strip())
            samples.append((time.monotonic() - started, process.memory_bytes(server.pid), descriptors(server.pid)))
    result = requesting.result()
    print(f"{server.name}: {result['requests']:,} requests, {killed} processes killed, {result['lost']} without a response, "
          f"{result['errors']} errors")
    for fault in result["faults"]:
        print("response:", fault)
    errors = result["errors"] + max(0, result["lost"] - killed * costs)
    return judge(samples, seconds, reloads, failures, errors)


def soak(server, binary, generator, core, seconds):
    def run(path, tls, close):
        return load.wrk(core, server.url(path, tls), 32, seconds, close)

    def run_http2(path, streams):
        return load.H2Load(core, server.url(path, tls=True), 32, streams, seconds, alone=False).run()

    def run_http3(path, *options):
        url = server.url(path, tls=True)
        return load.H3Load(generator, core, url, 32, "--duration", f"{seconds}s", "--length", cases.FILES[path], *options).run()

    loads = {
        "clear, kept alive": ("/1k.html", False, False),
        "clear, closed": ("/10k.html", False, True),
        "TLS, kept alive": ("/100k.bin", True, False),
        "TLS, closed": ("/12b.html", True, True),
    }
    reloads, failures, samples = 0, [], []
    with concurrent.futures.ThreadPoolExecutor() as pool:
        running = {name: pool.submit(run, *what) for name, what in loads.items()}
        running["HTTP/2"] = pool.submit(run_http2, "/100k.bin", 10)
        running["HTTP/3"] = pool.submit(run_http3, "/100k.bin", "--streams", 10)
        running["HTTP/3, closed"] = pool.submit(run_http3, "/10k.html", "--close", "--no-resumption")
        started = time.monotonic()
        while not all(one.done() for one in running.values()):
            time.sleep(2)
            server.check()
            done = subprocess.run([binary, "reload", servers.RUN / "apus.toml"], capture_output=True, text=True)
            reloads += 1
            if done.returncode:
                failures.append(done.stderr.strip())
            samples.append((time.monotonic() - started, process.memory_bytes(server.pid), descriptors(server.pid)))

    errors = 0
    for name, one in running.items():
        result = one.result()
        errors += result["errors"]
        print_load(name, result)
    return judge(samples, seconds, reloads, failures, errors)


def print_load(name, result):
    kinds = ", ".join(f"{kind} {count}" for kind, count in result.get("errors_by_kind", {}).items())
    print(f"{name:<20}{result['requests']:>12,.0f} requests  {result['errors']} errors{kinds and f': {kinds}'}")


def judge(samples, seconds, reloads, failures, errors, slack=MEMORY_SLACK):
    """Says how it went; the exit status."""
    settled = [sample for sample in samples if sample[0] >= seconds * WARM_UP] or samples
    # Halves are compared by their peaks: what is held for a moment does not count as growth.
    middle = len(settled) // 2
    early, late = settled[: middle or 1], settled[middle:]
    memory = max(s[1] for s in late) - max(s[1] for s in early)
    files = max(s[2] for s in late) - max(s[2] for s in early)
    if reloads:
        print(f"{reloads} reloads, {len(failures)} failed")
    print(f"memory: peak {max(s[1] for s in settled) / cases.MB:.1f} MB, {memory / cases.MB:+.1f} MB in the second half")
    print(f"descriptors: peak {max(s[2] for s in settled)}, {files:+} in the second half")
    for failure in failures[:3]:
        print("reload:", failure)
    good = not errors and not failures and memory <= slack and files <= DESCRIPTOR_SLACK
    print("good" if good else "FAILED")
    return 0 if good else 1


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


if __name__ == "__main__":
    main()
