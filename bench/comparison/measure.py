"""Runs the cases, interleaved: every server once a round, so that a slow minute meets all alike."""

import statistics
import time

from . import load, process, servers


def run_case(case, start, cores, rounds, seconds, say):
    """Medians over the rounds, by server."""
    _, generator_core = cores
    running = start(case.size if case.has_floor else None)
    samples = {server.name: [] for server in running}
    try:
        for server in running:
            load.wrk(generator_core, server.url(case.path, case.tls), min(case.connections, 64), 1)
        for number in range(rounds):
            # Nobody always goes first.
            for server in running[number % len(running):] + running[:number % len(running)]:
                sample = _sample(server, case, generator_core, seconds)
                samples[server.name].append(sample)
                say(f"  {case.name}  round {number + 1}/{rounds}  {server.name:<6}"
                    f"{sample['requests_per_second']:>10.0f}/s {sample['cpu_us']:>9.2f} us")
    finally:
        for server in running:
            server.stop()
    return {name: _median(of_server) for name, of_server in samples.items()}


def _sample(server, case, generator_core, seconds):
    before = process.cpu_seconds(server.pid)
    sample = load.wrk(generator_core, server.url(case.path, case.tls), case.connections, seconds, case.close)
    used = process.cpu_seconds(server.pid) - before
    server.check()
    requests = sample["requests"] or 1
    sample["cpu_us"] = used * 1e6 / requests
    sample["per_core_second"] = requests / used if used else 0.0
    sample["memory_bytes"] = process.memory_bytes(server.pid)
    sample["peak_memory_bytes"] = process.peak_memory_bytes(server.pid)
    return sample


def _median(samples):
    of_all = {metric: statistics.median(sample[metric] for sample in samples) for metric in samples[0]}
    of_all["errors"] = sum(sample["errors"] for sample in samples)
    of_all["peak_memory_bytes"] = max(sample["peak_memory_bytes"] for sample in samples)
    return of_all


def run_memory_case(case, start, say):
    """Bytes, by server."""
    result = {}
    for server in start(None):
        try:
            before = _settled_memory(server)
            if not case.connections:
                value = before
            else:
                # What the first connections of a process allocate once is not what one costs.
                with load.IdleConnections(server, "/12b.html", 64, case.tls):
                    before = _settled_memory(server)
                with load.IdleConnections(server, "/12b.html", case.connections, case.tls):
                    value = (_settled_memory(server) - before) / case.connections
        finally:
            server.stop()
        result[server.name] = {"bytes": value}
        say(f"  {case.name}  {server.name:<6}{value:>12.0f} bytes")
    return result


def _settled_memory(server):
    """Memory once it has stopped moving."""
    last = -1
    while True:
        now = process.memory_bytes(server.pid)
        if now == last:
            return now
        last = now
        time.sleep(0.3)
