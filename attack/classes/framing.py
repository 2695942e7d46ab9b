"""HTTP/1.1 requests that two servers could read differently (RFC 9112 sections 2 to 7).

A case holds if it is refused, or if the origin sees exactly the one request that was meant, in a form that nobody could
read otherwise. What stands behind it in the same write is never a request.
"""

from harness import http1
from harness.attack import PROXY, STATIC, NotApplicable, attack, brief, each, require

HOST = "Host: localhost\r\n"
CHUNKED = "Transfer-Encoding: chunked\r\n"
# As a body of five bytes, or as the end of a chunked one.
BODY = "0\r\n\r\n"


def refused_or_one(target, cases, behind=True):
    """Sends messages in which `PATH` stands for a path of the case and `LENGTH` for the length of its body, each with a request
    smuggled behind it."""

    def judge(case):
        token = target.token()
        base = "/api/" if target.origin else "/"
        path = f"{base}{token}" if target.origin else "/"
        smuggled = http1.request(f"{base}{token}-smuggled").decode("latin-1") if behind else ""
        with target.connect() as connection:
            message = case.replace("PATH", path)
            message = message.replace("LENGTH", str(len(message.partition("\r\n\r\n")[2])))
            connection.send(message + smuggled)
            received = connection.read_all()
        final = [status for status in http1.statuses(received) if status >= 200]
        if not target.origin:
            good = [status for status in final if status < 400]
            return f"{len(good)} responses to one request" if len(good) > 1 else None
        complaints = target.origin.complaints(token)
        if complaints:
            return f"reached the origin as it is: {complaints[0]}"
        seen = target.origin.seen(token)
        if any(f"{token}-smuggled" in request for request in seen) or f"{token}-smuggled".encode() in received:
            return "what was behind it was taken for a request"
        if len(seen) > 1:
            return f"the origin saw {len(seen)} requests"
        if not seen and not final and received:
            return f"a response that is not HTTP: {brief(received)}"
        return None

    return each(cases, lambda cases: target.judge_each(cases, judge))


def post(fields, body=BODY, version="1.1"):
    return f"POST PATH HTTP/{version}\r\n{HOST}{fields}\r\n{body}"


@attack("Content-Length together with Transfer-Encoding", "RFC 9112 section 6.1, CVE-2021-21299")
def length_and_encoding(target):
    return refused_or_one(target, [post(fields) for fields in (
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Content-Length: 6\r\nA: b\r\ntransfer-encoding: chunked\r\n",
        "Content-Length: 0\r\nTransfer-Encoding: identity\r\n",
        "Content-Length: 100\r\nTransfer-Encoding: x\r\n",
        "Content-Length: 5\r\nTransfer-Encoding:\r\n",
    )])


@attack("Lengths that are not one number", "RFC 9110 section 8.6, CVE-2021-32715")
def lengths(target):
    values = ("+5", "-5", "0x5", "5 5", "5,6", "5, 6", "5.0", "5e0", "", "\"5\"", "5;", "5\x0b", "\xa05", "18446744073709551621",
              "5\r\nContent-Length: 6", "5\r\ncontent-length: 0", "0\r\nContent-Length: 5")
    return refused_or_one(target, [post(f"Content-Length: {value}\r\n") for value in values])


@attack("Transfer-Encoding that is not exactly chunked", "RFC 9112 section 6.1")
def transfer_encodings(target):
    return refused_or_one(target, [post(f"{field}\r\n") for field in (
        "Transfer-Encoding: xchunked", "Transfer-Encoding: chunkedx", "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: identity", "Transfer-Encoding: chunked, chunked", "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked;q=1", "Transfer-Encoding: \"chunked\"", "Transfer-Encoding:\x0bchunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding : chunked", "Transfer-Encoding\t: chunked", " Transfer-Encoding: chunked",
        "A: b\r\n Transfer-Encoding: chunked", "Transfer-Encoding:\r\n chunked", "Transfer_Encoding: chunked\r\nContent-Length: 5, 0",
        "Transfer-Encoding\0: chunked", "Transfer-Encoding: chun\0ked",
    )])


@attack("Transfer-Encoding in HTTP/1.0", "RFC 9112 section 6.1, CVE-2026-2835")
def http_1_0(target):
    return refused_or_one(target, [
        post(CHUNKED + "Connection: keep-alive\r\n", version="1.0"),
        post(CHUNKED, version="1.0"),
        post("Content-Length: 5\r\n" + CHUNKED + "Connection: keep-alive\r\n", version="1.0"),
    ])


@attack("Chunks with invalid framing", "RFC 9112 section 7.1, CVE-2025-55315, CVE-2023-38697")
def chunks(target):
    return refused_or_one(target, [post(CHUNKED, body) for body in (
        "zz\r\n", "10000000000000005\r\nhello\r\n0\r\n\r\n", "ffffffffffffffff\r\nhello\r\n0\r\n\r\n", "-5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n", "+5\r\nhello\r\n0\r\n\r\n", "5_0\r\nhello\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n", "5\rhello\r\n0\r\n\r\n", "5\r\nhelloXX0\r\n\r\n", "5\r\nhello\n0\r\n\r\n", "5\r\nhello0\r\n\r\n",
        "5;a\nhello\r\n0\r\n\r\n", "5;a=\"\n\"\r\nhello\r\n0\r\n\r\n", "5;a\rb\r\nhello\r\n0\r\n\r\n", "5;\0\r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n", "5\r\nhello\r\n0\n\n", "5\r\nhello\r\n0\r\n\n", " 5\r\nhello\r\n0\r\n\r\n", ";5\r\nhello\r\n0\r\n\r\n",
    )])


@attack("Chunk extensions without end, and zeros before a size", "RFC 9112 section 7.1.1")
def long_chunk_heads(target):
    return refused_or_one(target, [post(CHUNKED, body) for body in (
        "5;" + "x" * 20_000 + "\r\nhello\r\n0\r\n\r\n", "0" * 5_000 + "5\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n" + "0" * 5_000 + "\r\n\r\n", "1;" + "x" * 4_000 + "\r\nh\r\n",
    )], behind=False)


@attack("Trailers that would frame, route or identify", "RFC 9110 section 6.5.1")
def trailers(target):
    fields = ("Content-Length: 5", "Transfer-Encoding: chunked", "Host: evil", "X : y", "X: y\r\n folded", "X: a\rb", "X: a\0b", "No colon")
    return refused_or_one(target, [post(CHUNKED, f"5\r\nhello\r\n0\r\n{field}\r\n\r\n") for field in fields], behind=False)


@attack("Trailers that become fields of the head", "RFC 9110 section 6.5.1, CVE-2025-12642", [PROXY])
def merged_trailers(target):
    token = target.token()
    target.send(post(CHUNKED, f"5\r\nhello\r\n0\r\nX-Real-IP: {token}\r\nX-Role: {token}\r\nCookie: {token}\r\n\r\n")
                .replace("PATH", f"/api/{token}-x"))
    seen = target.origin.seen(f"{token}-x")
    for request in seen:
        found = [name for name, value in request.fields if value == token]
        require(not found, f"the trailer {found and found[0]} reached the origin as a field")
    return f"the origin saw {len(seen)} requests, none with them"


@attack("Bare CR and NUL, folded lines, spaces around names", "RFC 9112 sections 2.2 and 5")
def lines(target):
    return refused_or_one(target, [
        f"GET PATH HTTP/1.1\r\n{HOST}X: y\rContent-Length: 40\r\n\r\n",
        f"GET PATH HTTP/1.1\r\n{HOST}X: a\0b\r\nContent-Length: 40\r\n X: b\r\n\r\n",
        f"GET PATH HTTP/1.1\r\n{HOST}X: a\0\r\n\r\n",
        f"GET PATH HTTP/1.1\r\n{HOST}X\0: b\r\n\r\n",
        f"GET PATH HTTP/1.1\r\n{HOST}X: a\r\n folded\r\n\r\n",
        f"GET PATH HTTP/1.1\r\n{HOST}X: a\r\n\tContent-Length: 40\r\n\r\n",
        f"GET PATH HTTP/1.1\r\n Host: localhost\r\n{HOST}\r\n",
        f"GET PATH HTTP/1.1\r\nHost : localhost\r\n\r\n",
        f"GET PATH HTTP/1.1\r\n{HOST}Content-Length : 40\r\n\r\n",
        f"GET PATH HTTP/1.1\r\n{HOST}No colon\r\n\r\n",
        f"GET PATH HTTP/1.1\r\n{HOST}: nameless\r\n\r\n",
        f"GET PATH HTTP/1.1\r\n{HOST}A B: c\r\n\r\n",
        f"GET PATH HTTP/1.1\r\n{HOST}Content-Length\xff: 40\r\n\r\n",
        f"\rGET PATH HTTP/1.1\r\n{HOST}\r\n",
    ], behind=False)


@attack("Bare LF as the end of a line", "RFC 9112 section 2.2")
def bare_lf(target):
    return refused_or_one(target, [
        f"GET PATH HTTP/1.1\n{HOST}\r\n",
        "GET PATH HTTP/1.1\r\nHost: localhost\n\r\n",
        "GET PATH HTTP/1.1\r\nHost: localhost\n\n",
        f"GET PATH HTTP/1.1\r\n{HOST}X: y\nContent-Length: 1\n\nz",
        f"POST PATH HTTP/1.1\r\n{HOST}Content-Length: 5\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ], behind=False)


@attack("Request lines and hosts that are not exact", "RFC 9112 section 3")
def request_lines(target):
    return refused_or_one(target, [
        f"GET  PATH HTTP/1.1\r\n{HOST}\r\n", f"GET PATH HTTP/1.1 \r\n{HOST}\r\n", f"GET PATH x HTTP/1.1\r\n{HOST}\r\n",
        f"GET PATH http/1.1\r\n{HOST}\r\n", f"GET PATH HTTP/1.2x\r\n{HOST}\r\n", f"GET PATH HTTP/2.0\r\n{HOST}\r\n",
        f"GET PATH HTTP/1.1\x0b\r\n{HOST}\r\n", f"GET\tPATH\tHTTP/1.1\r\n{HOST}\r\n", f"G\0ET PATH HTTP/1.1\r\n{HOST}\r\n",
        "GET PATH HTTP/1.1\r\n\r\n", f"GET PATH HTTP/1.1\r\n{HOST}Host: b\r\n\r\n", "GET PATH HTTP/1.1\r\nHost: a b\r\n\r\n",
        "GET PATH HTTP/1.1\r\nHost: a/b\r\n\r\n", "GET PATH HTTP/1.1\r\nHost: user@localhost\r\n\r\n",
        "GET PATH HTTP/1.1\r\nHost: localhost, evil\r\n\r\n",
    ], behind=False)


INNER = f"GET PATH-inner HTTP/1.1\r\n{HOST}\r\n"


@attack("A request in the body of a GET, HEAD or OPTIONS", "RFC 9110 section 9.3.1")
def bodies_where_none_is_expected(target):
    return refused_or_one(target, [
        f"{method} PATH HTTP/1.1\r\n{HOST}Content-Length: LENGTH\r\n\r\n{INNER}"
        for method in ("GET", "HEAD", "OPTIONS", "DELETE", "TRACE", "FOO")], behind=False)


@attack("A request behind CONNECT or an Upgrade that was refused", "CVE-2026-2833, RFC 9110 section 7.8", [PROXY])
def after_refusal(target):
    token = target.token()
    target.origin.script(f"/api/{token}-up", lambda request, _: b"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 2\r\n\r\nno")
    inner = http1.request(f"/private/{token}-inner").decode()
    for head in (f"CONNECT localhost:443 HTTP/1.1\r\n{HOST}\r\n",
                 f"GET /api/{token}-up HTTP/1.1\r\n{HOST}Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 9\r\n"
                 "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
                 f"GET /api/{token}-up HTTP/1.1\r\n{HOST}Connection: Upgrade\r\nUpgrade: x\r\n\r\n"):
        with target.connect() as connection:
            connection.send(head + inner)
            connection.read_all()
        require(not target.origin.seen(f"{token}-inner"), f"{brief(head)}: what followed reached the origin past the server")
        require(not target.origin.complaints(token), f"{brief(head)}: what followed reached the origin in the same stream")
    return "3 cases; nothing reached the origin past the server"


@attack("Expect: 100-continue with an early response and an unsent body", "RFC 9110 section 10.1.1, CVE-2025-32094")
def expectations(target):
    return refused_or_one(target, [
        f"{method} PATH HTTP/1.1\r\n{HOST}Expect:{value}\r\nContent-Length: LENGTH\r\n\r\n{INNER}"
        for method in ("GET", "OPTIONS", "POST", "HEAD")
        for value in (" 100-continue", " 100-Continue, x", "\r\n 100-continue")
    ], behind=False)


@attack("Names that other servers read as framing fields", "CWE-444", [PROXY])
def framing_fields_with_underscores(target):
    names = ("Content_Length: 40", "Content.Length: 40", "Transfer_Encoding: chunked", "Content-Length_: 40")

    def judge(name):
        token = target.token()
        response = target.get(f"/api/{token}", f"{name}\r\n")
        if response.status != 200:
            return None
        passed = [key for key, _ in target.origin.seen(token)[0].fields if "_" in key and key.lower().replace("_", "-") in
                  ("content-length", "transfer-encoding")]
        return f"{passed[0]} reached the origin" if passed else None

    return each(names, lambda cases: target.judge_each(cases, judge))


@attack("Responses to pipelined requests stay in order and with their client", "RFC 9112 section 9.3.2", [PROXY, STATIC])
def pipelining(target):
    token = target.token()
    with target.connect() as connection:
        connection.send(b"".join(
            http1.request(f"/api/{token}-{number}", method="POST" if number % 3 == 0 else "GET", body=b"x" * (number % 3 == 0))
            if number % 4 else http1.request("/files/a.txt") for number in range(100)))
        for number in range(100):
            response = connection.read()
            if response is None:
                raise NotApplicable(f"the connection ends after {number} pipelined requests")
            expected = f"{token}-{number}\"" if number % 4 else "a"
            require(expected in response.text, f"response {number} is another's: {brief(response.text)}")
    return "100 responses, each its own"
