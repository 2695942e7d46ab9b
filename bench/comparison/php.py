"""PHP-FPM with scripts that do one thing each, and Apus in front of it."""

import shutil
import subprocess
import sys

from . import host
from .servers import BENCH, RUN, run_apus

STACK = BENCH.parent / "crates" / "tools" / "cli" / "tests" / "origins" / "php" / "stack"

APUS = """\
[global]
worker_threads = 1
keepalive_timeout = 300
control_socket = "{name}.sock"

[[sites]]
name = "bench"
listen = ["127.0.0.1:{port}"]
root = "{folder}/scripts"
php_fastcgi = "{folder}/fpm.sock"
{fastcgi}
"""


class Stack:
    """A PHP-FPM with a number of processes, and its scripts."""

    def __init__(self, children):
        self.folder = RUN / "php"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.process = subprocess.Popen([*host.DEPENDENT, STACK, self.folder, str(children), "scripts"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline().strip() != "ready":
            sys.exit("bench: PHP does not start; `make tools` installs what it needs")
        self.pid = int((self.folder / "fpm.pid").read_text())

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


def start_apus(name, core, binary, stack, fastcgi=""):
    """Apus with a site for the scripts, with this further line."""
    port = host.free_port()
    text = APUS.format(name=name, port=port, folder=stack.folder, fastcgi=fastcgi)
    return run_apus(name, binary, text, core, port)
