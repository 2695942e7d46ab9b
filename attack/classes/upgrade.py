"""Upgrades: a connection becomes a tunnel only for WebSocket, and only when the origin said so."""

import time

from harness import http1
from harness.attack import HTTP2, PROXY, RESIDENT, NotApplicable, attack, each, require

KEY = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
INNER = b"GET /private/inner HTTP/1.1\r\nHost: localhost\r\n\r\n"


def tunnels(target, cases):
    """The origin accepts every upgrade. None of these may reach it as one, or make a tunnel."""

    def judge(fields):
        token = target.token()
        path = f"/api/{token}"
        with target.connect(timeout=3) as connection:
            connection.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n")
            response = connection.read()
            if response is not None and response.status == 101:
                connection.send(INNER)
                time.sleep(0.2)
                return "a tunnel to the origin" if target.origin.tunnelled.get(path) else "101"
        upgrades = [request.field("upgrade") for request in target.origin.seen(token) if request.field("upgrade")]
        return f"the origin gets Upgrade: {upgrades[0]}" if upgrades else None

    return each(list(cases), lambda cases: target.judge_each(cases, judge))


@attack("Upgrade to h2c, past locations and cache", "RFC 9113 section 3.1, CVE-2021-33193, \"h2c smuggling\"", [PROXY])
def h2c(target):
    token = "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"
    return tunnels(target, [
        f"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n{token}", "Connection: Upgrade\r\nUpgrade: h2c\r\n",
        f"Connection: Upgrade\r\nUpgrade: h2c\r\n{token}", f"Connection: Upgrade\r\nUpgrade: H2C\r\n{token}",
        f"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c, websocket\r\n{token}{KEY}",
        f"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: websocket, h2c\r\n{token}{KEY}",
        f"Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n{token}{KEY}",
        f"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c/2\r\n{token}", f"Upgrade: h2c\r\n{token}",
    ])


@attack("Upgrade to protocols that nobody allowed", "RFC 9110 section 7.8", [PROXY])
def other_protocols(target):
    return tunnels(target, [f"Connection: Upgrade\r\nUpgrade: {name}\r\n" for name in
                            ("x", "TLS/1.0", "HTTP/2.0", "h2", "tcp", "websockets", "web socket", "\"websocket\"", "SPDY/3.1")])


@attack("A WebSocket that the origin refused", "CVE-2026-2833, RFC 6455 section 4.4", [PROXY])
def refused(target):
    def judge(case):
        fields, raw = case
        token = target.token()
        path = f"/api/{token}"
        target.origin.script(path, lambda request, _: raw)
        inner = http1.request(f"/private/{token}-inner")
        with target.connect(timeout=3) as connection:
            connection.send(http1.request(path, f"Connection: Upgrade\r\nUpgrade: websocket\r\n{fields}") + inner)
            connection.read_all()
        if target.origin.seen(f"{token}-inner") or target.origin.complaints(f"{token}-inner"):
            return "what followed reached the origin past the server"
        return None

    return each([
        (KEY, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno"), (KEY, b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"),
        (KEY.replace("13", "9999"), b"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 0\r\n\r\n"),
        (KEY, b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno"),
    ], lambda cases: target.judge_each(cases, judge))


@attack("101 from an origin without an Upgrade in the request", "RFC 9110 section 15.2.2", [PROXY])
def unrequested(target):
    token = target.token()
    path = f"/api/{token}"
    target.origin.script(path, lambda request, _: b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
    with target.connect(timeout=3) as connection:
        connection.send(http1.request(path) + http1.request(f"/private/{token}-inner"))
        received = connection.read_all()
    require(not target.origin.seen(f"{token}-inner"), "a tunnel to the origin")
    require(101 not in http1.statuses(received), "101 reached the client")
    return f"the client gets {http1.statuses(received)[:1]}"


@attack("Extended CONNECT for anything but WebSocket", "RFC 8441 section 4", [PROXY, HTTP2])
def extended_connect(target):
    def judge(protocol):
        token = target.token()
        path = f"/api/{token}"
        with target.h2() as peer:
            stream = peer.open([(":method", "CONNECT"), (":protocol", protocol), (":scheme", "https"), (":authority", "localhost"),
                                (":path", path)], end=False)
            peer.wait(lambda: peer.streams[stream].status or peer.streams[stream].ended or peer.ended, 3)
            found = peer.streams[stream]
        if found.status == 200:
            return "a tunnel"
        upgrades = [request.field("upgrade") for request in target.origin.seen(token) if request.field("upgrade")]
        return f"the origin gets Upgrade: {upgrades[0]}" if upgrades else None

    return each(["h2c", "tcp", "connect-udp", "websocket\r\nx: y", "x", ""], lambda cases: target.judge_each(cases, judge))


@attack("CONNECT to any address", "RFC 9110 section 9.3.6, CWE-441", [PROXY])
def connect(target):
    def judge(head):
        with target.connect(timeout=3) as connection:
            connection.send(head)
            received = connection.read_all()
        return "a tunnel" if any(200 <= status < 300 for status in http1.statuses(received)) else None

    address = f"127.0.0.1:{target.origin.port}"
    return each([f"CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n", f"CONNECT {address} HTTP/1.1\r\nHost: localhost\r\n\r\n",
                 f"CONNECT / HTTP/1.1\r\nHost: {address}\r\n\r\n"], lambda cases: target.judge_each(cases, judge))


@attack("A WebSocket of another site's page: the handler runs with the victim's cookies", "CWE-1385 (cross-site WebSocket hijacking)", [RESIDENT])
def origin_of_a_page(target):
    opened = target.sandbox.path("sockets/opened")

    def upgrade(origin_field, cookie):
        with target.connect(timeout=20) as connection:
            connection.send(http1.request("/chat", f"Connection: Upgrade\r\nUpgrade: websocket\r\n{KEY}{origin_field}Cookie: victim={cookie}\r\n",
                                          host="sockets.test"))
            response = connection.read()
            time.sleep(0.3)
        return response.status if response else None

    # The application is known to take sockets once it is booted.
    target.get("/", host="sockets.test", timeout=30)
    mine, evil = target.token(), target.token()
    status = upgrade("Origin: http://sockets.test\r\n", mine)
    if status != 101:
        raise NotApplicable(f"a WebSocket of the site's own page gets {status}")
    status = upgrade("Origin: http://evil.test\r\n", evil)
    ran = evil in opened.read_text()
    opened.unlink()
    require(status != 101, "another site's page gets a WebSocket")
    require(not ran, f"it is refused with {status}, but the handler ran with the victim's cookie")
    return f"refused with {status} before any handler ran"
