"""Memory for nobody: requests that make the server hold much and read nothing. 128 MB above its start are allowed."""

import contextlib
import struct
import time
import zlib

from harness import http1, http2 as h2, origin
from harness.attack import HTTP2, PROCESS, PROXY, RESIDENT, STATIC, NotApplicable, attack, require
from harness.sandbox import prose


# What leaves the server no choice.
COMPRESSED = [("accept-encoding", "br, identity;q=0")]


def held(target, sentence):
    """Lets the server work until its memory stands still."""
    last, give_up = 0, time.monotonic() + 8
    while time.monotonic() < give_up:
        now = target.memory()
        if abs(now - last) < 1 << 20:
            break
        last = now
        time.sleep(0.5)

    return sentence


def streams(target, path, fields, connections, number):
    """Connections of many streams each, all with a window of 0."""
    peers = []
    try:
        for _ in range(connections):
            peer = target.h2((h2.INITIAL_WINDOW_SIZE, 0), keeps_bodies=False)
            peers.append(peer)
            for stream in range(number):
                peer.open(h2.request_fields(path, fields=fields))
        give_up = time.monotonic() + 15
        for peer in peers:
            # With their heads, the server has begun all of them, or refused them.
            peer.wait(lambda: peer.ended or all(stream.status or stream.ended for stream in list(peer.streams.values())),
                      max(give_up - time.monotonic(), 0.1))
        return held(target, f"{connections} connections of {number} streams")
    finally:
        for peer in peers:
            peer.socket.close()


@attack("256 streams with a window of 0, each a text to be compressed", "CWE-770, CVE-2019-9517", [HTTP2, PROCESS, STATIC], fresh=True)
def compressed_streams(target):
    return streams(target, "/text.txt", COMPRESSED, 1, 256)


@attack("1,024 streams with a window of 0, each a text to be compressed", "CWE-770, CVE-2019-9517", [HTTP2, PROCESS, STATIC], fresh=True)
def many_compressed_streams(target):
    return streams(target, "/text.txt", COMPRESSED, 4, 256)


@attack("1,024 streams with a window of 0, compressed as an origin sends them", "CWE-770", [HTTP2, PROCESS, PROXY], fresh=True)
def compressed_proxied_streams(target):
    path = f"/api/{target.token()}"
    text = prose(300_000)
    target.origin.script(path, lambda request, _: origin.respond(request, body=text))
    return streams(target, path, COMPRESSED, 4, 256)


@attack("1,024 streams with a window of 0, each of 4 MB from an origin", "CWE-770, CVE-2019-9517", [HTTP2, PROCESS, PROXY], fresh=True)
def proxied_streams(target):
    path = f"/api/{target.token()}"
    # Made once, so that what is waited for is the server and not its origin.
    target.origin.script(path, b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (4 << 20) + b"x" * (4 << 20))
    return streams(target, path, [], 4, 256)


@attack("Many clients that wait for one large response that cannot be stored, and read nothing", "CWE-770", [PROCESS, PROXY], fresh=True)
def collapsed(target):
    path = f"/cached/{target.token()}"
    body = b"x" * (2 << 20)
    target.origin.script(path, lambda request, _: origin.respond(request, "Cache-Control: no-store\r\n", body=body))
    clients = []
    try:
        for _ in range(300):
            connection = http1.Connection(target.clear, receive_bytes=4096)
            connection.send(http1.request(path))
            clients.append(connection)
        return held(target, "300 clients of 2 MB each")
    finally:
        for connection in clients:
            connection.socket.close()


@attack("Uploads that stop before their end", "CWE-770", [PROCESS, PROXY], fresh=True)
def uploads(target):
    clients = []
    try:
        for number in range(200):
            connection = http1.Connection(target.clear, timeout=2)
            connection.send(f"POST /api/upload-{number} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000000\r\n\r\n")
            try:
                connection.send(b"x" * 1_000_000)
            except TimeoutError:
                pass
            clients.append(connection)
        return held(target, "200 uploads of 1 MB of 4")
    finally:
        for connection in clients:
            connection.socket.close()


@attack("Heads and cookies without end", "CWE-400", [PROCESS], fresh=True)
def heads(target):
    bombs = ["".join(f"X-{n}: y\r\n" for n in range(10_000)), "".join(f"X-{n}: {'x' * 1000}\r\n" for n in range(400)),
             f"Cookie: {'c=1; ' * 200_000}\r\n", "Cookie: a=b\r\n" * 20_000, f"X: {'x' * 5_000_000}\r\n"]
    for bomb in bombs * 4:
        with target.connect() as connection:
            connection.send(http1.request("/", bomb))
            received = connection.read_all(quiet=2)
        require(not any(200 <= status < 400 for status in http1.statuses(received)), "a head of several MB was taken")
    return held(target, "20 heads of up to 5 MB, refused")


@attack("Targets without end", "CWE-400", [PROCESS], fresh=True)
def targets(target):
    for path in ("/" + "a" * 100_000, "/?" + "a=b&" * 300_000, "/a" * 500_000, "/.." * 300_000):
        with target.connect() as connection:
            connection.send(http1.request(path))
            received = connection.read_all(quiet=2)
        require(not any(200 <= status < 400 for status in http1.statuses(received)), f"a target of {len(path)} bytes was taken")
    return held(target, "4 targets of up to 1 MB, refused")


@attack("1,000 connections that wait, and heads at the limit on 400", "CWE-770", [PROCESS], fresh=True)
def connections(target):
    clients = []
    try:
        for number in range(1000):
            connection = http1.Connection(target.clear)
            connection.send(http1.request("/") if number % 5 > 1 else f"GET / HTTP/1.1\r\nHost: localhost\r\nX: {'x' * 30_000}")
            clients.append(connection)
        return held(target, "1,000 connections")
    finally:
        for connection in clients:
            connection.socket.close()


@attack("Memory is released when the attackers have disconnected", "CWE-401", [HTTP2, PROCESS, STATIC], fresh=True)
def returned(target):
    before = target.memory()
    for _ in range(2):
        streams(target, "/text.txt", COMPRESSED, 2, 128)
    give_up = time.monotonic() + 30
    while (kept := (target.memory() - before) >> 20) > 48 and time.monotonic() < give_up:
        time.sleep(0.25)
    require(kept <= 48, f"{kept} MB are kept 30 s after")
    return f"{max(kept, 0)} MB are kept"


UPGRADE = ("Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
           "Sec-WebSocket-Extensions: permessage-deflate\r\n")
# What the sockets of all attackers may take together: no kilobyte of theirs becomes a megabyte of ours.
SOCKETS_BYTES = 48 << 20


def bomb():
    """A kilobyte of a message that is a megabyte when it is inflated, and is not complete."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = deflate.compress(bytes(1 << 20)) + deflate.flush(zlib.Z_SYNC_FLUSH)
    return socket_frame(0x42, data[:-4])


def socket_frame(first, payload, announced=None):
    """A frame of a client, masked with zeros (RFC 6455 section 5.2)."""
    length = len(payload) if announced is None else announced
    head = struct.pack(">BB", first, 0x80 | length) if length < 126 else struct.pack(">BBH", first, 0xFE, length) \
        if length < 1 << 16 else struct.pack(">BBQ", first, 0xFF, length)
    return head + bytes(4) + payload


def sockets(target, number, sent):
    """This number of WebSockets, each of which sent these bytes."""
    # The application is known to take sockets once it is booted.
    target.get("/", host="sockets.test", timeout=30)
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(number):
            connection = stack.enter_context(http1.Connection(target.clear))
            connection.send(http1.request("/chat", UPGRADE, host="sockets.test"))
            response = connection.read()
            if not response or response.status != 101:
                raise NotApplicable(f"a WebSocket gets {response and response.status}")
            connection.send(sent)
            clients.append(connection)
        return held(target, f"{number} WebSockets that sent {len(sent) * number >> 10} KB")


@attack("200 WebSockets, each with a compressed message that is not complete", "CWE-409, RFC 7692 section 8", [PROCESS, RESIDENT], fresh=True,
        memory=SOCKETS_BYTES)
def websocket_messages(target):
    return sockets(target, 200, bomb())


@attack("200 WebSockets, each with a frame that announces a megabyte and ends after a byte", "CWE-789", [PROCESS, RESIDENT], fresh=True,
        memory=SOCKETS_BYTES)
def websocket_frames(target):
    return sockets(target, 200, socket_frame(0x82, b"x", announced=1 << 20))


@attack("200 WebSockets, each with most of a megabyte in a message that is not complete", "CWE-770", [PROCESS, RESIDENT], fresh=True)
def websocket_fragments(target):
    return sockets(target, 200, socket_frame(2, bytes(900_000)))


@attack("One connection of 250 WebSockets over HTTP/2, each with a compressed message that is not complete", "CWE-409, CWE-770",
        [HTTP2, PROCESS, RESIDENT], fresh=True, memory=SOCKETS_BYTES)
def websocket_tunnels(target):
    fields = [(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "https"), (":authority", "sockets.test"), (":path", "/chat"),
              ("sec-websocket-version", "13"), ("sec-websocket-extensions", "permessage-deflate")]
    target.get("/", host="sockets.test", timeout=30)
    with target.h2(name="sockets.test") as peer:
        numbers = [peer.open(fields, end=False) for _ in range(250)]
        peer.wait(lambda: peer.ended or all(peer.streams[number].status or peer.streams[number].ended for number in numbers))
        opened = [number for number in numbers if peer.streams[number].status == 200]
        require(not peer.ended, "the connection ends")
        if not opened:
            raise NotApplicable("no WebSocket over HTTP/2")
        for number in opened:
            peer.send_body(number, bomb(), end=False)
        require(peer.settle(), "no response to a PING")
        return held(target, f"{len(opened)} of 250 WebSockets are opened")
