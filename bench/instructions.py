#!/usr/bin/env python3
"""Counts the instructions of a request with callgrind: a figure that is the same on a busy machine and on a quiet one."""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from comparison import host, php, servers

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "bench" / "results" / "instructions.json"

CONNECTIONS = 8
# The count is the difference of two runs, so that the start, the first requests and the end are not in it.
FEW, MANY = 400, 2400
# Of PHP.
PROCESSES = 5

# The fields of a browser's request, without Host and without Accept-Encoding.
BROWSER = (servers.BENCH / "browser-head.txt").read_text().splitlines()

PROXY = """\
[global]
worker_threads = 1
keepalive_timeout = 300
control_socket = "proxy.sock"

[[sites]]
name = "bench"
listen = ["127.0.0.1:{port}"]
upstream = "origin"

[[sites.upstreams]]
name = "origin"
nodes = [{{ addr = "127.0.0.1:{origin}" }}]
keepalive = {{ max_idle = 1024 }}
"""


# A file behind a rule or a limit.
GUARDED = """\
[global]
worker_threads = 1
keepalive_timeout = 300
control_socket = "guarded.sock"

[[sites]]
name = "bench"
listen = ["127.0.0.1:{port}"]
root = "files"
{guard}
"""
RULES = "".join(f"[[sites.rules]]\nwhen = 'path matches \"/app-{n}/**\" and client in [10.0.{n % 250}.0/24]'\ndeny = 403\n" for n in range(1000))
LIMIT = '[[sites.limits]]\nname = "pages"\nrate = "{rate}"\n'


class Count:
    """One case: how the server is started under callgrind, and what is requested."""

    def __init__(self, name, title, start, path, *, tls=False, streams=1, browser=False):
        self.name, self.title, self.start, self.path = name, title, start, path
        self.tls, self.streams, self.browser = tls, streams, browser

    def run(self, starts):
        """Instructions per request."""
        few, many = (self._instructions(starts, requests) for requests in (FEW, MANY))
        return round((many - few) / (MANY - FEW))

    def _instructions(self, starts, requests):
        server = self.start()
        # The server may have given up its rights since it began the files.
        for profile in starts.profiles.iterdir():
            profile.chmod(0o666)
        try:
            self._load(starts.cores[1], server, requests)
        finally:
            server.stop()
            starts.stop()
        # The first thread starts and ends the server, which takes a different time in each run: entropy is gathered.
        threads = [path for path in starts.profiles.glob(f"{server.pid}*") if not path.name.endswith("-01")]
        counts = [re.search(r"^(?:summary|totals): (\d+)", path.read_text(), re.MULTILINE) for path in threads]
        return sum(int(count[1]) for count in counts if count)

    def _load(self, core, server, requests):
        command = ["taskset", "-c", str(core), host.find("h2load"), "-t1", f"-c{CONNECTIONS}", f"-m{self.streams}", f"-n{requests}"]
        if not self.tls:
            command.append("--h1")
        if self.browser:
            for field in BROWSER:
                command += ["-H", field]
        done = subprocess.run([*command, server.url(self.path, self.tls)], capture_output=True, text=True)
        # What a limit refuses is a failure for h2load.
        if f"{requests} done" not in done.stdout or " 0 errored" not in done.stdout:
            sys.exit(f"instructions: {self.name}: {done.stdout}{done.stderr}")


class Starts:
    """How servers are started; what stands behind them ends with `stop`."""

    def __init__(self, binary, hello, cores, profiles):
        self.binary, self.hello = _counted(binary, profiles), _counted(hello, profiles)
        self.cores, self.profiles, self.behind = cores, profiles, []

    def files(self):
        return servers.start_apus(self.cores[0], self.binary)

    def guarded(self, guard):
        port = host.free_port()
        return servers.run_apus("guarded", self.binary, GUARDED.format(port=port, guard=guard), self.cores[0], port)

    def proxy(self, size):
        origin = servers.start_floor(self.cores[1], size)
        self.behind.append(origin)
        port = host.free_port()
        return servers.run_apus("proxy", self.binary, PROXY.format(port=port, origin=origin.clear), self.cores[0], port)

    def fastcgi(self):
        stack = php.Stack(PROCESSES)
        self.behind.append(stack)
        return php.start_apus("apus", self.cores[0], self.binary, stack)

    def framework(self):
        port = host.free_port()
        return servers.Server("apus", [self.hello, port], port, None, self.cores[0])

    def stop(self):
        while self.behind:
            self.behind.pop().stop()


def _counted(binary, profiles):
    """A program that runs this one under callgrind, in the same process."""
    script = servers.RUN / f"counted-{binary.name}"
    script.write_text(
        f'#!/bin/sh\nexec valgrind -q --tool=callgrind --vgdb=no --separate-threads=yes --callgrind-out-file="{profiles}/%p" "{binary}" "$@"\n')
    script.chmod(0o755)
    return script


def counts(starts):
    def proxy(size):
        return lambda: starts.proxy(size)

    def guarded(guard):
        return lambda: starts.guarded(guard)

    return (
        Count("file-12b", "file of 12 B", starts.files, "/12b.html"),
        Count("file-12b-browser", "file of 12 B, a browser's head", starts.files, "/12b.html", browser=True),
        Count("file-12b-rules", "file of 12 B, 1,000 rules of which none applies", guarded(RULES), "/12b.html"),
        Count("file-12b-limit", "file of 12 B, a limit that is not reached", guarded(LIMIT.format(rate="10000000/s")), "/12b.html"),
        Count("refused", "429 for all but one request", guarded(LIMIT.format(rate="1/h")), "/12b.html"),
        Count("file-10k-tls", "file of 10 KB, HTTP/2 over TLS, 10 streams", starts.files, "/10k.html", tls=True, streams=10),
        Count("proxy-1k", "1 KB of an origin", proxy(1024), "/"),
        Count("proxy-1k-browser", "1 KB of an origin, a browser's head", proxy(1024), "/", browser=True),
        Count("fastcgi-hello", "hello over FastCGI", starts.fastcgi, "/hello.php"),
        Count("framework-hello", "hello of the framework", starts.framework, "/hello/world"),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--apus", type=Path, help="an apus binary, instead of building this checkout's")
    parser.add_argument("--case", action="append", help="only this case; may be repeated")
    parser.add_argument("--write", action="store_true", help="store the counts, to compare the next ones with")
    options = parser.parse_args()
    host.end_in_order()
    host.install_what_is_missing()
    servers.build_floor()
    servers.prepare(servers.FILES)
    binary = (options.apus or servers.build_apus()).resolve()
    stored = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    found = {}
    with tempfile.TemporaryDirectory() as profiles:
        Path(profiles).chmod(0o777)
        starts = Starts(binary, servers.BUILD / "frameworks" / "release" / "bench-apus", host.cores(), Path(profiles))
        for case in counts(starts):
            if options.case and case.name not in options.case:
                continue
            if case.start == starts.framework:
                subprocess.run([servers.BENCH / "frameworks" / "build", "apus"], check=True)
            found[case.name] = case.run(starts)
            before = stored.get(case.name)
            change = f"{found[case.name] / before - 1:+8.1%} of {before:,}" if before else ""
            print(f"{case.name:<20}{found[case.name]:>10,}  {change:<24}{case.title}", flush=True)
    if options.write:
        RESULT.write_text(json.dumps(stored | found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
