"""Runs the cases, interleaved: every server once a round, so that a slow minute meets all alike."""

import statistics
import sys
import time

from . import cases, crowd, host, load, process, servers

# How long connections are left alone until they count as idle.
IDLE = 10
# How long it takes at least until a queue is as long as it gets, and can be looked at.
QUEUE_SECONDS = 10
# PHP takes its time: how long a crowd requests pages, and how long each client waits for one.
CROWD_SECONDS, CROWD_PATIENCE = 40, 60.0


def run_case(case, start, cores, rounds, seconds, say):
    """Medians over the rounds, by server."""
    _, generator_core = cores
    if isinstance(case, cases.QueueCase):
        seconds = max(seconds, QUEUE_SECONDS)
    if _is_crowded(case):
        seconds = max(seconds, CROWD_SECONDS)
    samples = {}
    for number in range(rounds):
        # Where the kernel places a process in memory changes its figures by a tenth, so each round has new processes.
        with start(case) as running:
            # h2load warms up in each round, and so does a queue.
            if not case.is_http2 and not isinstance(case, cases.QueueCase) and not _is_crowded(case):
                for server in running:
                    load.wrk(generator_core, server.url(case.path, case.tls), min(case.connections, 64), 1, browser=case.browser,
                             body=getattr(case, "body", ""))
            # Nobody always goes first.
            first = number % len(running)
            for server in running[first:] + running[:first]:
                sample = _sample(server, case, generator_core, seconds)
                samples.setdefault(server.name, []).append(sample)
                say(f"  {case.name}  round {number + 1}/{rounds}  {server.name:<12}"
                    f"{sample['requests_per_second']:>10.0f}/s {sample['cpu_us']:>9.2f} us")
    return {name: _median(of_server) for name, of_server in samples.items()}


def _is_crowded(case):
    return isinstance(case, cases.PhpCase) and case.crowded


def _sample(server, case, generator_core, seconds):
    measured = Measured(server)
    if case.is_http2:
        sample = _http2_sample(server, case, generator_core, seconds, measured)
    elif isinstance(case, cases.QueueCase):
        measured.begin()
        sample = crowd.run(generator_core, server, case.path, case.connections, seconds)
        measured.end()
    elif _is_crowded(case):
        measured.begin()
        sample = crowd.run(generator_core, server, case.path, case.connections, seconds, CROWD_PATIENCE)
        measured.end()
    else:
        measured.begin()
        sample = load.wrk(generator_core, server.url(case.path, case.tls), case.connections, seconds, case.close, case.browser,
                          getattr(case, "body", ""))
        measured.end()
    server.check()
    requests = sample["requests"] or 1
    sample["cpu_us"] = measured.cpu_seconds * 1e6 / requests
    sample["busy"] = measured.cpu_seconds / measured.seconds
    sample["per_core_second"] = requests / measured.cpu_seconds if measured.cpu_seconds else 0.0
    if isinstance(case, cases.PhpCase):
        sample["php_cpu_us"] = measured.php_cpu_seconds * 1e6 / requests
        sample["php_per_core_second"] = requests / measured.php_cpu_seconds if measured.php_cpu_seconds else 0.0
    if "mean_us" in sample:
        sample["p99_of_mean"] = sample["p99_us"] / (sample["mean_us"] or 1)
    if isinstance(case, cases.EmbeddedCase):
        sample["p99_of_p50"] = sample["p99_us"] / (sample["p50_us"] or 1)
    if isinstance(case, cases.QueueCase):
        sample["of_limit"] = sample["requests_per_second"] / case.limit
    sample["memory_bytes"] = process.memory_bytes(server.pid)
    sample["peak_memory_bytes"] = process.peak_memory_bytes(server.pid)
    return sample


def _http2_sample(server, case, generator_core, seconds, measured):
    url = server.url(case.path, tls=True)

    return load.H2Load(generator_core, url, case.connections, case.streams, seconds).run(measured.begin, measured.end)


class Measured:
    """The CPU time of a server, and of PHP behind it, between two moments."""

    def __init__(self, server):
        self.pids = [of.pid for of in (server, server.origin) if of]
        self.php_pid = server.php_pid

    def begin(self):
        self.began = time.monotonic()
        self.before, self.php_before = self._now()

    def end(self):
        now, php_now = self._now()
        self.cpu_seconds = now - self.before
        self.php_cpu_seconds = php_now - self.php_before
        self.seconds = time.monotonic() - self.began

    def _now(self):
        return sum(map(process.cpu_seconds, self.pids)), process.cpu_seconds(self.php_pid) if self.php_pid else 0.0


def _median(samples):
    of_all = {metric: statistics.median(sample[metric] for sample in samples) for metric in samples[0]}
    of_all["errors"] = sum(sample["errors"] for sample in samples)
    of_all["peak_memory_bytes"] = max(sample["peak_memory_bytes"] for sample in samples)
    return of_all


def run_memory_case(case, start, say):
    """Bytes, by server."""
    result = {}
    with start(case) as running:
        for server in running:
            before = _settled_memory(server)
            if not case.connections:
                value = before
            else:
                # What the first connections of a process allocate once is not what one costs.
                with _idle_connections(case, server, 64):
                    time.sleep(IDLE)
                    before = _settled_memory(server)
                with _idle_connections(case, server, case.connections):
                    time.sleep(IDLE)
                    value = (_settled_memory(server) - before) / case.connections
            server.stop()
            result[server.name] = {"bytes": value}
            say(f"  {case.name}  {server.name:<12}{value:>12.0f} bytes")
    return result


def _idle_connections(case, server, count):
    if case.http3:
        return load.IdleHttp3Connections(servers.generator(), host.cores()[1], server, "/12b.html", count)
    return load.IdleConnections(server, "/12b.html", count, case.tls)


def run_peak_case(case, start, cores, say):
    """By how much the largest resident set grows, by server."""
    _, generator_core = cores
    result = {}
    with start(case) as running:
        for server in running:
            url = server.url(case.path, tls=True)
            # What the first request makes a process allocate is not what many cost.
            load.h2load_burst(generator_core, url, 1, 1, 1)
            before = process.peak_memory_bytes(server.pid)
            sample = load.h2load_burst(generator_core, url, case.connections, case.streams, case.each)
            server.check()
            value = process.peak_memory_bytes(server.pid) - before
            server.stop()
            result[server.name] = {"bytes": value, "errors": sample["errors"]}
            say(f"  {case.name}  {server.name:<12}{value:>12.0f} bytes")
    return result


def run_download_case(case, start, cores, rounds, seconds, say):
    """Bytes per second and growth of the largest resident set, by server."""
    _, generator_core = cores
    result = {}
    with start(case) as running:
        samples = {server.name: [] for server in running}
        before = {}
        for server in running:
            # Once past the origin, and a start of what readers of the stored file cost.
            load.wrk(generator_core, server.url(case.path), 1, 5)
            load.wrk(generator_core, server.url(case.path), case.readers, 1)
            before[server.name] = process.peak_memory_bytes(server.pid)
        for number in range(rounds):
            for server in running[number % len(running):] + running[:number % len(running)]:
                sample = load.wrk(generator_core, server.url(case.path), case.readers, seconds)
                server.check()
                samples[server.name].append(sample)
                say(f"  {case.name}  round {number + 1}/{rounds}  {server.name:<12}"
                    f"{sample['bytes_per_second'] / cases.MB:>10.0f} MB/s")
        for server in running:
            of_server = samples[server.name]
            result[server.name] = {
                "bytes_per_second": statistics.median(sample["bytes_per_second"] for sample in of_server),
                "growth_bytes": process.peak_memory_bytes(server.pid) - before[server.name],
                "errors": sum(sample["errors"] for sample in of_server),
            }
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
