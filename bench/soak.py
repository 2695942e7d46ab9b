#!/usr/bin/env python3
"""Apus under load for minutes, reloaded every two seconds: no request may fail, nothing may grow. With PHP behind it,
PHP processes are also killed, and no client may get another's response. In a C program, with WebSockets, uploads and clients that break
off, memory stays within 1 MB."""

import argparse
import concurrent.futures
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from comparison import checked, host, php, process, servers, visitors

# The first part of a soak fills caches and pools; growth is counted from there.
WARM_UP = 0.25
MEMORY_SLACK = 4 * servers.MB
EMBEDDED_SLACK = servers.MB
DESCRIPTOR_SLACK = 16
# With PHP, more than it has processes.
CLIENTS, PROCESSES = 50, 5
# Of each load on files.
CONNECTIONS = 32


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=180, help="how long (default 180)")
    parser.add_argument("--php", action="store_true", help="with PHP behind it")
    parser.add_argument("--embedded", action="store_true", help="libapus in a C program, in place of the binary")
    parser.add_argument("--apus", type=Path, help="an apus binary, instead of building this checkout's")
    options = parser.parse_args()

    host.end_in_order()
    host.install_what_is_missing()
    host.raise_descriptor_limit()
    if options.embedded:
        sys.exit(soak_embedded(options.seconds))
    binary = (options.apus or servers.build_apus()).resolve()
    servers.prepare(servers.FILES)
    server_core, load_core = host.cores()
    if options.php:
        sys.exit(soak_php(binary, server_core, load_core, options.seconds))
    servers.generator()
    server = servers.start_apus(server_core, binary)
    try:
        sys.exit(soak(server, binary, load_core, options.seconds))
    finally:
        server.stop()


def load(core, url, seconds, *options):
    """What `apus bench` saw, with one thread on this core. Connections over HTTP/2 and HTTP/3 that do not last count as errors."""
    command = [*host.DEPENDENT, "taskset", "-c", core, servers.generator(), "bench", url, "--insecure", "--json", "--threads", 1, "--connections", CONNECTIONS,
               "--duration", f"{seconds}s", "--warm-up", 0, "--timeout", "20s", "--allow-errors", *options]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"soak: apus bench failed: {url}: {done.stderr.strip()}")
    report = json.loads(done.stdout)
    errors = {failure["kind"]: failure["count"] for failure in report["failures"]}
    lost = report["connections_opened"] - report["connections"]
    if report["keep_alive"] and lost > 0 and not report["protocol"].startswith("HTTP/1"):
        errors["lost connections"] = lost
    return report["responses"], errors


def of(path):
    """What a response with this file is."""
    return "--length", servers.FILES[path]


def report_load(name, result):
    """Says how a load went; the number of its errors."""
    responses, errors = result
    count = sum(errors.values()) + (not responses)
    print(f"{name:<20}{responses:>12,} responses  {count} errors", *errors.items())
    return count


def soak_embedded(seconds):
    """The C program of `bench/embedded/soak.c`."""
    subprocess.run([servers.BENCH / "embedded" / "build", "soak"], check=True)
    servers.generator()
    servers.prepare(servers.FILES)
    server_core, load_core = host.cores()
    port = host.free_port()
    server = servers.Server("soak", [servers.BUILD / "embedded" / "soak", port, servers.RUN / "files"], port, None, server_core)
    samples = []
    try:
        with concurrent.futures.ThreadPoolExecutor() as pool, visitors.Visitors(server.clear, seconds) as visiting:
            running = {
                "kept alive": pool.submit(load, load_core, server.url("/10k.html"), seconds, *of("/10k.html")),
                "closed": pool.submit(load, load_core, server.url("/100k.bin"), seconds, "--close", *of("/100k.bin")),
            }
            started = time.monotonic()
            while not all(one.done() for one in running.values()):
                time.sleep(0.5)
                server.check()
                samples.append((time.monotonic() - started, process.memory_bytes(server.pid), descriptors(server.pid)))
    finally:
        server.stop()
    errors = len(visiting.faults) + sum(report_load(name, one.result()) for name, one in running.items())
    for name, count in visiting.counts.items():
        print(f"{name:<20}{count:>12,} visits")
        errors += not count
    print(f"{'broken off':<20}{visiting.broken_off:>12,} of them")
    for fault in visiting.faults[:5]:
        print("visit:", fault)
    return judge(samples, seconds, 0, [], errors, EMBEDDED_SLACK)


def soak_php(binary, core, load_core, seconds):
    """Over FastCGI, where a killed process costs the request that it worked on, and with workers, where the request is sent again."""
    workers = f'fastcgi = {{ front_controller = "/mixed.php", workers = {{ mode = "classic", min = {PROCESSES}, max = {PROCESSES} }} }}'
    exits = []
    # One process is left for requests that no worker handles.
    for name, processes, fastcgi, costs in (("apus", PROCESSES, "", 1), ("resident", PROCESSES + 1, workers, 0)):
        stack = php.Stack(processes)
        try:
            server = php.start_apus(name, core, binary, stack, fastcgi)
            try:
                exits.append(kill_and_reload(server, stack.pid, binary, load_core, seconds // 2, costs))
            finally:
                server.stop()
        finally:
            stack.stop()
    return max(exits)


def kill_and_reload(server, php_pid, binary, core, seconds, costs):
    """Each killed process may cost `costs` responses."""
    reloads, killed, failures, samples = 0, 0, [], []
    with concurrent.futures.ThreadPoolExecutor() as pool:
        requesting = pool.submit(checked.run, core, server.clear, "/mixed.php", CLIENTS, seconds)
        started = time.monotonic()
        while not requesting.done():
            time.sleep(1)
            server.check()
            if workers := process.tree(php_pid)[1:]:
                os.kill(random.choice(workers), signal.SIGKILL)
                killed += 1
            if killed % 10 == 0:
                os.kill(php_pid, signal.SIGUSR2)
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


def soak(server, binary, core, seconds):
    def over_tls(path):
        return server.url(path, tls=True)

    loads = {
        "clear, kept alive": (server.url("/1k.html"), seconds, *of("/1k.html")),
        "clear, closed": (server.url("/10k.html"), seconds, "--close", *of("/10k.html")),
        "TLS, kept alive": (over_tls("/100k.bin"), seconds, *of("/100k.bin")),
        "TLS, closed": (over_tls("/12b.html"), seconds, "--close", "--no-resumption", *of("/12b.html")),
        "HTTP/2": (over_tls("/100k.bin"), seconds, "--http2", "--streams", 10, *of("/100k.bin")),
        "HTTP/3": (over_tls("/100k.bin"), seconds, "--http3", "--streams", 10, *of("/100k.bin")),
        "HTTP/3, closed": (over_tls("/10k.html"), seconds, "--http3", "--close", "--no-resumption", *of("/10k.html")),
    }
    reloads, failures, samples = 0, [], []
    with concurrent.futures.ThreadPoolExecutor() as pool:
        running = {name: pool.submit(load, core, *what) for name, what in loads.items()}
        started = time.monotonic()
        while not all(one.done() for one in running.values()):
            time.sleep(2)
            server.check()
            done = subprocess.run([binary, "reload", servers.RUN / "apus.toml"], capture_output=True, text=True)
            reloads += 1
            if done.returncode:
                failures.append(done.stderr.strip())
            samples.append((time.monotonic() - started, process.memory_bytes(server.pid), descriptors(server.pid)))

    errors = sum(report_load(name, one.result()) for name, one in running.items())
    return judge(samples, seconds, reloads, failures, errors)


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
    print(f"memory: peak {max(s[1] for s in settled) / servers.MB:.1f} MB, {memory / servers.MB:+.1f} MB in the second half")
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
