"""The machine: tools to install, cores to pin to, descriptors, free ports, and the name of it all."""

import os
import platform
import resource
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

# The program that is needed, and the Debian package that has it.
PACKAGES = {"nginx": "nginx-light", "h2o": "h2o", "wrk": "wrk", "h2load": "nghttp2-client", "cc": "gcc",
            "openssl": "openssl", "haproxy": "haproxy", "varnishd": "varnish", "taskset": "util-linux", "ss": "iproute2",
            "node": "nodejs", "valgrind": "valgrind", "curl": "curl"}


# Before a command: it gets SIGTERM when this program ends, even if it is killed.
DEPENDENT = ["setpriv", "--pdeathsig", "TERM"]

# Ends a process when standard input ends: politely at first, and by force ten seconds later.
GUARD = """read -r _
kill -s TERM "$1"
n=0
while kill -s 0 "$1" && [ "$n" -lt 100 ]; do sleep 0.1; n=$((n + 1)); done
kill -s KILL "$1"
"""


class Dependent(subprocess.Popen):
    """A process that ends with this program, even if this is killed, and if the process gives up root, by which it loses the signal
    that `DEPENDENT` has for it."""

    def __init__(self, command, **options):
        super().__init__(list(map(str, command)), **options)
        self.guard = subprocess.Popen(["sh", "-c", GUARD, "guard", str(self.pid)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL, start_new_session=True)

    def poll(self):
        return self._released(super().poll())

    def wait(self, timeout=None):
        return self._released(super().wait(timeout))

    def _released(self, code):
        """Once it has ended, its number may be another process."""
        if code is not None and self.guard:
            guard, self.guard = self.guard, None
            guard.kill()
            guard.wait()
            guard.stdin.close()
        return code


def end_in_order():
    """What was changed or started for a run is undone also when it is terminated."""
    for end in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(end, lambda *_: sys.exit("terminated"))


def find(program):
    """The path of a program; Debian keeps nginx where only root looks."""
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


def install_what_is_missing():
    _install(sorted(package for program, package in PACKAGES.items() if not find(program)))


def _install(missing):
    if not missing:
        return
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing]
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        sys.exit("bench: please install: " + " ".join(missing) + "\n  sudo " + " ".join(command))
    print("installing", *missing, flush=True)
    # The packaged servers would start, on port 80.
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive", RUNLEVEL="1")
    for step in (["apt-get", "update", "-qq"], command):
        subprocess.run(step, env=environment, check=True, stdout=subprocess.DEVNULL)


def cores():
    """The core of the servers and the core of the load generator."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        sys.exit("bench: needs two cores, one for the server and one for the load generator")
    return allowed[0], allowed[-1]


def raise_descriptor_limit():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def describe():
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "nginx": first_line([find("nginx"), "-v"]).removeprefix("nginx version: "),
        "h2o": first_line([find("h2o"), "--version"]).replace(" version ", "/"),
        "haproxy": first_line([find("haproxy"), "-v"]).replace(" version ", "/").split(" ")[0],
        "varnish": first_line([find("varnishd"), "-V"]).removeprefix("varnishd (").split(" revision")[0],
        "openssl": first_line(["openssl", "version"]),
        "commit": first_line(["git", "rev-parse", "--short", "HEAD"]),
    }


def first_line(command):
    """What a command says first, as its version."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent)
    except OSError:
        return "unknown"
    return ((done.stdout or done.stderr).splitlines() or ["unknown"])[0].strip()
