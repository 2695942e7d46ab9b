"""Bodies of sizes below, at and above every threshold, with every byte checked, over each protocol."""

import hashlib

from harness import http1, origin
from harness.attack import HTTP2, PHP, PROXY, RESIDENT, attack, each

SIZES = sorted({0, 1, 2, *(edge + step for edge in (4096, 16384, 32768, 65535, 65536, 131072, 262144, 1 << 20) for step in (-1, 0, 1)),
                100_000, 200_000})


def body_of(size):
    """Bytes of which no two stretches are equal, so that nothing can be lost or swapped unseen."""
    return b"".join(hashlib.sha256(b"%d" % number).digest() for number in range(size // 32 + 1))[:size]


def chunked(body, piece=9000):
    pieces = [body[at:at + piece] for at in range(0, len(body), piece)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in pieces) + b"0\r\n\r\n"


def received_whole(target, path, host):
    """Posts bodies of all sizes with each framing; what reached the other side says its length and hash."""

    def judge(case):
        framing, size = case
        body = body_of(size)
        head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/octet-stream\r\n"
        if framing == "HTTP/2":
            with target.h2(name=host) as peer:
                stream = peer.fetch(path, method="POST", body=body, authority=host)
            if stream.status != 200:
                return f"status {stream.status}"
            found = target.reflected(stream)
        else:
            length = "Transfer-Encoding: chunked\r\n" if framing == "chunked" else f"Content-Length: {size}\r\n"
            response = target.send(head.encode() + length.encode() + b"\r\n" + (chunked(body) if framing == "chunked" else body), timeout=20)
            if response is None or response.status != 200:
                return f"status {response and response.status}"
            found = target.reflected(response)
        if (found["length"], found["sha256"]) != (size, hashlib.sha256(body).hexdigest()):
            return f"{found['length']} bytes arrive"
        return f"its length is said to be {found['said']}" if found.get("said", size) not in (size, -1) else None

    framings = ["length", "chunked"] + (["HTTP/2"] if HTTP2 in target.features else [])
    return each([(framing, size) for framing in framings for size in SIZES], lambda cases: target.judge_each(cases, judge))


@attack("Bodies to an origin arrive complete", "CWE-131, every threshold and one beside it", [PROXY])
def proxied(target):
    return received_whole(target, "/api/upload", "localhost")


@attack("Bodies to PHP arrive complete", "CWE-131, every threshold and one beside it", [PHP])
def php(target):
    return received_whole(target, "/echo.php", "php.test")


@attack("Bodies to resident PHP arrive complete", "CWE-131, every threshold and one beside it", [RESIDENT])
def resident_php(target):
    return received_whole(target, "/echo.php", "resident.test")


@attack("Bodies larger than allowed, by declared length or by chunks", "RFC 9110 section 15.5.14", [PROXY, HTTP2])
def too_large(target):
    def judge(length):
        path = f"/api/{target.token()}"
        with target.connect(timeout=5) as connection:
            connection.send(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\nstart")
            received = connection.read_all()
        codes = http1.statuses(received)
        return None if codes and codes[0] >= 400 else f"status {codes[:1]}"

    def endless(_):
        path = f"/api/{target.token()}"
        taken = []
        target.origin.script(path, lambda request, _: taken.append(len(request.body)) or origin.respond(request))
        with target.connect(timeout=5) as connection:
            connection.send(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
            for _ in range(60):
                if not connection.send(b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"):
                    break
            connection.send(b"0\r\n\r\n")
            received = connection.read_all()
        codes = http1.statuses(received)
        return f"the origin got {taken[0] >> 20} MB" if taken else f"status {codes}" if codes and codes[0] < 400 else None

    each(["104857600", "18446744073709551615", "9223372036854775807"], lambda cases: target.judge_each(cases, judge))
    each(["60 MB of chunks"], lambda cases: target.judge_each(cases, endless))
    return "3 lengths, and 60 MB of chunks"
