"""Lines of the log that clients cause: a flood of them fills a disk and hides what matters.

A server holds if each kind of line is limited, however many clients cause it.
"""

import os
import struct
import time

from harness import http1
from harness.attack import PROCESS, PROXY, TLS, attack, require

EVENTS = 1000

# A burst, ten lines in each second of the attack, and the reports of what was withheld, of 500 bytes each.
MOST_BYTES = 150_000


def client_hello(name):
    """A ClientHello with this server name (RFC 6066 section 3), as a record."""
    def vector(size, data):
        return len(data).to_bytes(size, "big") + data

    def extension(kind, data):
        return struct.pack(">H", kind) + vector(2, data)

    extensions = b"".join((
        extension(0, vector(2, b"\0" + vector(2, name))),
        extension(43, vector(1, b"\x03\x04\x03\x03")),
        extension(10, vector(2, b"\0\x1d\0\x17")),
        extension(13, vector(2, b"\x04\x03\x08\x04\x04\x01")),
    ))
    body = b"\x03\x03" + os.urandom(32) + vector(1, b"") + vector(2, b"\x13\x01\xc0\x2b\xc0\x2f") + b"\x01\x00" + vector(2, extensions)
    return b"\x16\x03\x01" + vector(2, b"\x01" + vector(3, body))


def log_bytes(target):
    """The size of what the server wrote to its standard error and to its error log."""
    names = (f"{target.name}.output", f"{target.name}.log")
    found = [target.sandbox.path(name) for name in names]
    return sum(path.stat().st_size for path in found if path.exists())


def flood(target, cause):
    """Many events of one cause; honest clients are served between them."""
    before = log_bytes(target)
    for number in range(EVENTS):
        cause(number)
        if number % 500 == 499:
            target.assert_serves()
    # Lines, and the reports of what was withheld, are written a little later.
    time.sleep(1.5)
    grown = log_bytes(target) - before
    require(grown <= MOST_BYTES, f"{EVENTS} events made {grown} bytes of log")
    return f"{EVENTS} events, {grown} bytes of log"


@attack("Log lines by handshakes with names that are none", "CWE-779", [PROCESS, TLS])
def handshakes(target):
    names = (b"192.0.2.1", b"a..b", b"[::1]", b"-", b"x" * 200)

    def cause(number):
        with http1.Connection(target.tls) as connection:
            connection.send(client_hello(names[number % len(names)]))

    return flood(target, cause)


@attack("Log lines by responses of an origin that break off", "CWE-779", [PROCESS, PROXY])
def broken_bodies(target):
    path = f"/api/{target.token()}"
    broken = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbroken"
    target.origin.script(path, lambda request, connection: connection.sendall(broken))

    def cause(_):
        with target.connect() as connection:
            connection.send(http1.request(path))
            while connection.receive():
                pass

    return flood(target, cause)


@attack("Log lines by responses that are none", "CWE-779", [PROCESS, PROXY])
def malformed_responses(target):
    path = f"/api/{target.token()}"
    target.origin.script(path, b"malformed\r\n\r\n")

    def cause(_):
        target.send(http1.request(path))

    return flood(target, cause)
