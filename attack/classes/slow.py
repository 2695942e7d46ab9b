"""Clients that are slow, silent or many, more of them than the server has descriptors for.

A server holds if honest clients, each with a new connection, are served all the same. Only readers of a few bytes are waited for until
the server gives them up.
"""

import time
from pathlib import Path

from harness import http1, http2 as h2
from harness.attack import HTTP2, PHP, PROCESS, PROXY, STATIC, TLS, attack, require
from harness.sandbox import PHP_PROCESSES

DESCRIPTORS = 256
CLIENTS = 400


def crowd(target, number=CLIENTS, *, message=b"", address=None, receive_bytes=None):
    """This number of connections, each of which sent a message; honest clients are served between them and after them."""
    clients = []
    try:
        for position in range(number):
            try:
                connection = http1.Connection(address or target.clear, timeout=3, receive_bytes=receive_bytes)
            except OSError:
                continue  # The queue of the kernel is full, which is as good as a refusal.
            connection.send(message)
            clients.append(connection)
            if position % 50 == 49:
                target.assert_serves()
        for _ in range(10):
            target.assert_serves()
            time.sleep(0.05)
    finally:
        for connection in clients:
            connection.socket.close()
    return f"{len(clients)} connections, honest clients served"


@attack("Heads that never end, more than descriptors", "CVE-2007-6750", [PROCESS], descriptors=DESCRIPTORS)
def heads(target):
    return crowd(target, message=b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")


@attack("Silent connections", "CVE-2007-6750", [PROCESS], descriptors=DESCRIPTORS)
def silence(target):
    return crowd(target)


@attack("Connections that stay idle after a response", "CWE-400", [PROCESS], descriptors=DESCRIPTORS)
def idle(target):
    return crowd(target, message=http1.request("/"))


@attack("TLS handshakes that never end", "CWE-400", [PROCESS, TLS], descriptors=DESCRIPTORS)
def handshakes(target):
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
    return crowd(target, message=hello, address=target.tls)


POST = "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\nstart"


@attack("Bodies that never end, to a handler of files", "CWE-400", [PROCESS, STATIC], descriptors=DESCRIPTORS)
def bodies(target):
    return crowd(target, message=POST.format(path="/"))


# Requests that hang hold descriptors of the origin's side, too. Files are to be served all the same.
@attack("Bodies that never end, to an origin", "CWE-400, CWE-770", [PROCESS, PROXY], descriptors=DESCRIPTORS, requests_origin=False)
def proxied_bodies(target):
    return crowd(target, message=POST.format(path="/api/slow"))


@attack("Requests that an origin never responds to", "CWE-400, CWE-770", [PROCESS, PROXY], descriptors=DESCRIPTORS, requests_origin=False)
def hanging_origin(target):
    path = f"/api/{target.token()}"
    target.origin.script(path, lambda request, connection: connection.recv(1) and None)
    return crowd(target, message=http1.request(path))


@attack("Responses that are not read", "CWE-400", [PROCESS, STATIC])
def reads(target):
    return crowd(target, 200, message=http1.request("/large.bin") * 4, receive_bytes=4096)


@attack("Pipelined requests without end, none of their responses read", "CWE-770", [PROCESS, STATIC])
def pipelines(target):
    return crowd(target, 60, message=http1.request("/large.bin") * 500, receive_bytes=4096)


@attack("Clients that disappear leave no descriptor open", "CWE-772", [PROCESS, STATIC])
def vanishing(target):
    def descriptors():
        from comparison import process
        import os
        # Without PHP, whose processes come and go by themselves.
        own = [member for member in process.tree(target.pid) if not Path(f"/proc/{member}/comm").read_text().startswith("php")]
        return sum(len(os.listdir(f"/proc/{member}/fd")) for member in own)

    target.assert_serves()
    before = descriptors()
    messages = (b"", b"GET / HT", http1.request("/large.bin"), b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000\r\n\r\nabc",
                http1.request("/large.bin") * 5)
    for number in range(300):
        with http1.Connection(target.clear) as connection:
            connection.send(messages[number % len(messages)])
    give_up = time.monotonic() + 10
    # Honest clients come and go meanwhile, so that one count decides.
    while (more := descriptors() - before) > 24 and time.monotonic() < give_up:
        time.sleep(0.1)
    require(more <= 24, f"{more} descriptors more than before")
    return "300 connections"


@attack("Slow readers of a large response occupy no PHP process", "CWE-400, CWE-770", [PHP])
def php_readers(target):
    readers = []
    try:
        for _ in range(4 * PHP_PROCESSES):
            connection = http1.Connection(target.clear, receive_bytes=4096)
            connection.send(http1.request("/large.php", host="php.test"))
            readers.append(connection)
        time.sleep(0.5)
        start = time.monotonic()
        try:
            response = target.get("/echo.php", host="php.test", timeout=5)
            require(response.status == 200, f"status {response.status} beside {len(readers)} slow readers")
        except TimeoutError:
            require(False, f"{len(readers)} slow readers hold all {PHP_PROCESSES} processes")
        return f"{len(readers)} readers of 20 MB, a response after {time.monotonic() - start:.1f} s"
    finally:
        for connection in readers:
            connection.socket.close()


@attack("Readers that take a few bytes every few seconds are given up", "CWE-400, CVE-2019-9517", [HTTP2, PROCESS, STATIC])
def dribbles(target):
    with target.h2((h2.INITIAL_WINDOW_SIZE, 16), opens_windows=False, keeps_bodies=False) as peer:
        numbers = [peer.open(h2.request_fields("/large.bin")) for _ in range(20)]
        start = time.monotonic()
        while not peer.ended and not all(peer.streams[number].ended for number in numbers):
            # Twice and a half the default of send_timeout, and of other servers.
            require(time.monotonic() - start < 150, f"streams that take 8 bytes in 3 s are open after {time.monotonic() - start:.0f} s")
            for number in numbers:
                if not peer.streams[number].ended:
                    peer.send(h2.window_update(number, 8))
            peer.wait(lambda: peer.ended, 3)
            target.assert_serves()
        return f"20 streams are given up after {time.monotonic() - start:.0f} s"
