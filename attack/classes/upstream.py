"""Responses of an origin that contradict themselves: each is one response for one client, or none."""

from harness import http1, origin
from harness.attack import PROXY, STATIC, DidNotHold, attack, brief, each, require

HIDDEN = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\npoisoned"


def close_after(connection, raw):
    """Sends these bytes and has the origin close."""
    connection.sendall(raw)


def one_response(target, cases, method="GET"):
    """What the origin sends is bytes; the client sees at most one response in them, and others never any of it."""

    def judge(raw):
        path = f"/api/{target.token()}"
        target.origin.script(path, raw)
        with target.connect(timeout=5) as connection:
            connection.send(http1.request(path, method=method))
            first = None
            try:
                first = connection.read(method)
            except (TimeoutError, http1.Malformed) as error:
                if isinstance(error, http1.Malformed):
                    return f"it reached the client: {error}"
            if first is None or not connection.send(http1.request("/files/a.txt")):
                second = None
            else:
                try:
                    second = connection.read()
                except TimeoutError:
                    second = None
        if second is not None and second.text != "a":
            return f"the next response of the connection is {brief(second.text, 40)!r}"
        if first is not None and b"poisoned" in first.body and first.status == 200 and first.whole and b"Content-Length: 2" in raw:
            return "bytes beyond the response reached the client"
        target.assert_serves()
        return None

    return each(list(cases), lambda cases: target.judge_each(cases, judge))


@attack("Bytes beyond the end of a response", "CWE-444 (response queue poisoning)", [PROXY, STATIC])
def beyond_the_end(target):
    return one_response(target, [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + HIDDEN,
        b"HTTP/1.1 204 No Content\r\n\r\n" + HIDDEN,
        b"HTTP/1.1 304 Not Modified\r\n\r\n" + HIDDEN,
        b"HTTP/1.1 204 No Content\r\nContent-Length: 20\r\n\r\n" + HIDDEN,
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 71\r\n\r\n" + HIDDEN,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n" + HIDDEN,
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" + HIDDEN,
    ])


@attack("A response to HEAD with a body", "CWE-444", [PROXY, STATIC])
def head_with_body(target):
    return one_response(target, [
        b"HTTP/1.1 200 OK\r\nContent-Length: 47\r\n\r\n" + HIDDEN,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n" + HIDDEN,
    ], "HEAD")


@attack("Interim responses that are taken for final ones, or never end", "RFC 9110 section 15.2", [PROXY, STATIC])
def interim(target):
    final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    return one_response(target, [
        b"HTTP/1.1 100 Continue\r\n\r\n" + final, b"HTTP/1.1 100 Continue\r\nContent-Length: 47\r\n\r\n" + final,
        b"HTTP/1.1 103 Early Hints\r\nTransfer-Encoding: chunked\r\n\r\n" + final, b"HTTP/1.1 199 X\r\n\r\n" + final,
        b"HTTP/1.1 102 Processing\r\n\r\n" * 2000 + final, b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 2000 + final,
    ])


@attack("Framing that contradicts itself", "RFC 9112 section 6.3", [PROXY, STATIC])
def framing(target):
    heads = (
        "Content-Length: 2\r\nContent-Length: 47", "Content-Length: 2\r\nTransfer-Encoding: chunked", "Content-Length: +2", "Content-Length: 2, 47",
        "Content-Length: -1", "Content-Length: 99999999999999999999", "Transfer-Encoding: chunked, identity", "Transfer-Encoding: xchunked",
        "Transfer-Encoding : chunked", "Content-Length : 2", "X: a\r\n Content-Length: 2", "X: a\0b", "X: a\rb", "No colon", ": x", "X Y: z",
        "X: a\nSet-Cookie: b",
    )
    return one_response(target, [f"HTTP/1.1 200 OK\r\n{head}\r\n\r\nok".encode("latin-1") + HIDDEN for head in heads])


@attack("Chunks that contradict themselves", "RFC 9112 section 7.1", [PROXY, STATIC])
def chunks(target):
    start = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return one_response(target, [start + body + HIDDEN for body in (
        b"zz\r\n", b"ffffffffffffffff\r\nok", b"-2\r\nok\r\n", b"0x2\r\nok\r\n0\r\n\r\n", b"2\r\nokXX0\r\n\r\n", b"2\nok\n0\n\n",
        b"2;" + b"x" * 100_000 + b"\r\nok\r\n0\r\n\r\n", b"2\r\nok\r\n0\r\nContent-Length: 5\r\n\r\n",
    )])


@attack("Invalid status lines and heads, and heads that never end", "RFC 9112 section 4, CVE-2023-26048", [PROXY, STATIC])
def heads(target):
    return one_response(target, [
        b"", b"\r\n\r\n", b"ok", b"HTTP/1.1\r\n\r\n", b"HTTP/1.1 20 OK\r\n\r\n", b"HTTP/1.1 2000 OK\r\n\r\n", b"HTTP/1.1 099 X\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n", b"HTTP/3.0 200 OK\r\n\r\n", b"HTTP/1.1 200 O\0K\r\nContent-Length: 0\r\n\r\n", b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000 + b"\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"y" * 2_000_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 " + b"O" * 1_000_000 + b"\r\n\r\n",
    ])


@attack("A truncated response is not forwarded as complete", "RFC 9112 section 8", [PROXY])
def truncated(target):
    def judge(raw):
        path = f"/api/{target.token()}"
        target.origin.script(path, lambda request, connection: close_after(connection, raw))
        with target.connect(timeout=5) as connection:
            connection.send(http1.request(path))
            try:
                response = connection.read()
            except http1.Malformed:
                return None
        if response is not None and response.status == 200 and response.whole:
            return f"{len(response.body)} bytes as the whole"
        with target.h2() as peer:
            stream = peer.fetch(path)
        return "as the whole over HTTP/2" if stream.status == 200 and stream.ended and stream.reset is None else None

    return each([b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
                 b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nhalf"], lambda cases: target.judge_each(cases, judge))


@attack("Lengths that would reserve memory", "CWE-789", [PROXY], memory=64 << 20)
def enormous_lengths(target):
    for length in (1 << 40, (1 << 62), (1 << 63) - 1):
        path = f"/api/{target.token()}"
        target.origin.script(path, lambda request, connection, length=length: close_after(
            connection, f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\nhalf".encode()))
        with target.connect(timeout=5) as connection:
            connection.send(http1.request(path))
            connection.read_all()
    return "3 lengths of up to 8 EB"


@attack("A POST that an origin may have seen is not repeated", "RFC 9110 section 9.2.2", [PROXY])
def repeated(target):
    def judge(method):
        path = f"/api/{target.token()}"
        target.origin.script(path, lambda request, connection: None)
        try:
            target.get(path, method=method, body=b"an order", timeout=5)
        except (TimeoutError, DidNotHold):
            pass
        count = len(target.origin.seen(path))
        return f"the origin saw {count}" if count > 1 else None

    return each(["POST", "PATCH", "FOO"], lambda cases: target.judge_each(cases, judge))


@attack("Fields of an origin that are meant for the server alone", "CWE-200", [PROXY])
def internal_fields(target):
    token = target.token()
    path = f"/api/{token}"
    names = ("X-Accel-Redirect", "X-Accel-Buffering", "X-Accel-Expires", "X-Accel-Charset", "X-Accel-Limit-Rate", "X-Sendfile")
    target.origin.script(path, lambda request, _: origin.respond(
        request, "".join(f"{name}: {'/private/a.txt' if 'Redirect' in name or 'Send' in name else '0'}\r\n" for name in names), body=b"page"))
    response = target.get(path)
    passed = [name for name in names if response.field(name.lower()) is not None]
    require(not passed, f"clients see {', '.join(passed)}")
    require(response.text in ("page", "") or response.status >= 400, f"the origin has {brief(response.text)} sent")
    return f"{response.status}, none of them"


@attack("Hop-by-hop fields of an origin, and those that its Connection names", "RFC 9110 section 7.6.1", [PROXY])
def hop_by_hop(target):
    path = f"/api/{target.token()}"
    target.origin.script(path, lambda request, _: origin.respond(
        request, "Connection: keep-alive, X-Internal\r\nX-Internal: secret\r\nKeep-Alive: timeout=5\r\nProxy-Connection: close\r\n", body=b"page"))
    response = target.get(path)
    passed = [name for name in ("x-internal", "proxy-connection") if response.field(name) is not None]
    require(not passed, f"clients see {', '.join(passed)}")
    return "none of them"
