"""One client through another's eyes: what a stored response of one client must not do to others (RFC 9111)."""

import time

from harness import http1, http2, origin
from harness.attack import CACHE, DISK, HTTP2, DidNotHold, attack, each, require
from harness.servers import TRUSTED

from .identity import IDENTITY


def poisoned(target, path, send, honest=None):
    """Has an attacker send a request with a token in it, then an honest client request the path. Returns the harm to that client."""
    target.origin.script(path.partition("?")[0], origin.cacheable())
    token = target.token()
    send(token)
    response = honest() if honest else target.get(path)
    if token in response:
        return "an honest client sees what the attacker sent"
    return None if response.status == 200 else f"an honest client gets {response.status}"


def poison_each(target, cases, send, honest=None, prefix="/cached/"):
    """The same for each case on its own path: `send(path, case, token)`, `honest(path)`."""

    def judge(case):
        path = f"{prefix}{target.token()}"
        return poisoned(target, path, lambda token: send(path, case, token), honest and (lambda: honest(path)))

    return each(list(cases), lambda cases: target.judge_each(cases, judge))


@attack("Fields of a stranger that are not in the key and change the response", "CWE-349, CVE-2018-14773", [CACHE])
def unkeyed_fields(target):
    def send(path, name, token):
        target.get(path, f"{name}: {'host=' if name == 'Forwarded' else ''}{token}.evil\r\n")

    return poison_each(target, IDENTITY, send)


@attack("Forwarded fields of a trusted proxy that are not in the key", "CVE-2026-2836, CWE-349", [CACHE])
def unkeyed_fields_of_proxies(target):
    # What a proxy in front passes on of its clients, one of them an attacker.
    names = ("X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Prefix", "X-Forwarded-Server", "X-Original-URL",
             "X-Rewrite-URL", "X-Host")

    def send(path, name, token):
        target.get(path, f"{name}: {token}.evil\r\n", source=TRUSTED)

    evidence = poison_each(target, names, send, honest=lambda path: target.get(path, source=TRUSTED))
    # A response that was made for one scheme is not for clients of the other.
    path, other = (f"/cached/{target.token()}" for _ in range(2))
    for each_path in (path, other):
        target.origin.script(each_path, lambda request, _: origin.respond(
            request, "Cache-Control: max-age=600\r\n", body=f"for {request.field('x-forwarded-proto')}".encode()))
    target.get(path, "X-Forwarded-Proto: http\r\n", source=TRUSTED)
    found = target.get(path, "X-Forwarded-Proto: https\r\n", source=TRUSTED).text
    alone = target.get(other, "X-Forwarded-Proto: https\r\n", source=TRUSTED).text
    require(found == alone, f"a client of https gets what is {found}")
    return evidence


@attack("A GET with a body over HTTP/2, without a length", "CWE-349", [CACHE, HTTP2])
def body_over_http2(target):
    def send(path, how, token):
        with target.h2() as peer:
            if how == "trailers":
                stream = peer.open(http2.request_fields(path), end=False)
                peer.send(http2.frame(http2.DATA, 0, stream, token.encode()) + http2.headers(stream, [("x", "y")]))
                peer.respond(stream)
            else:
                peer.fetch(path, [("content-length", str(len(token)))] if how == "length" else [], body=token.encode())

    # The origin reflects the body; both name the host that HTTPS clients use.
    return poison_each(target, ("no length", "length", "trailers"), send, honest=lambda path: target.get(path, tls=bool(target.tls)))


@attack("A GET with a body over HTTP/1.1", "CWE-349", [CACHE])
def body_over_http1(target):
    def send(path, how, token):
        chunked = f"Transfer-Encoding: chunked\r\n\r\n{len(token):x}\r\n{token}\r\n0\r\n\r\n"
        body = chunked if how == "chunked" else f"Content-Length: {len(token)}\r\n\r\n{token}"
        target.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{body}")

    return poison_each(target, ("length", "chunked"), send)


@attack("Encoded, repeated and mangled names in a query of which a part is the key", "CWE-349, CVE-2021-23336", [CACHE])
def query_names(target):
    """Frameworks read `%69d` as `id`; PHP reads `a.b` as `a_b`; some split at `;`."""
    cases = ("?id=2&%69d=TOKEN", "?%69d=TOKEN&id=2", "?id=2&i%64=TOKEN", "?id=2;id=TOKEN", "?id=2&id=TOKEN", "?id=2&a.b=TOKEN", "?id=2&a%20b=TOKEN",
             "?id=2&a[b=TOKEN", "?id=2&+id=TOKEN", "?id=2&%00id=TOKEN")

    def judge(query):
        path = f"/ids/{target.token()}"
        target.origin.script(path, reads_parameters)
        token = target.token()
        target.get(path + query.replace("TOKEN", token))
        return "an honest client sees what the attacker sent" if token in target.get(f"{path}?id=2") else None

    return each(cases, lambda cases: target.judge_each(cases, judge))


def reads_parameters(request, _):
    """An origin that responds by the parameters `id` and `a_b` alone, which it reads as PHP and others do."""
    from urllib.parse import unquote_plus
    found = {}
    for part in request.target.partition("?")[2].replace(";", "&").split("&"):
        name, _, value = part.partition("=")
        name = unquote_plus(name).strip(" \0")
        for mangled in ".[ ":
            name = name.replace(mangled, "_")
        if name in ("id", "a_b"):
            found[name] = value
    return origin.respond(request, "Cache-Control: max-age=600\r\n", body=repr(found).encode())


@attack("Fields of the key and of Vary that Connection names", "CVE-2022-31813", [CACHE])
def nominated_by_connection(target):
    def swapped(path, field):
        vary = f"Vary: {field}\r\n" if path.startswith("/cached/") else ""
        target.origin.script(path, lambda request, _: origin.respond(
            request, f"Cache-Control: max-age=600\r\n{vary}", body=f"for {request.field(field.lower())}".encode()))
        target.get(path, f"{field}: blue\r\nConnection: close, {field}\r\n")
        blue = target.get(path, f"{field}: blue\r\n")
        plain = target.get(path)
        if blue.text != "for blue":
            return f"a request for blue gets {blue.text!r}"
        return None if plain.text == "for None" else f"a request without the field gets {plain.text!r}"

    def judge(case):
        prefix, field = case
        return swapped(f"{prefix}{target.token()}", field)

    return each([("/cached/", "X-Language"), ("/tenants/", "X-Tenant"), ("/cached/", "Accept-Language")],
                lambda cases: target.judge_each(cases, judge))


@attack("Cookies that bypass the cache, with encoded or invalid names", "CWE-349", [CACHE])
def bypass_cookies(target):
    """An origin that decodes the names of cookies shows a draft; it must not be stored."""
    def judge(cookie):
        path = f"/preview/{target.token()}"

        def respond(request, _):
            from urllib.parse import unquote_plus
            names = [unquote_plus(part.partition("=")[0]).strip() for part in (request.field("cookie") or "").replace(",", ";").split(";")]
            return origin.respond(request, "Cache-Control: max-age=600\r\n", body=b"a draft" if "preview" in names else b"public")

        target.origin.script(path, respond)
        target.get(path, f"Cookie: {cookie}\r\n")
        found = target.get(path).text
        return None if found == "public" else f"an honest client sees {found}"

    return each(["preview=1", "a=b; preview=1", "%70review=1", "a=b;preview=1", "preview%20=1", "a=b; %70%72eview=1", "preview", "a=b\r\nCookie: preview=1"],
                lambda cases: target.judge_each(cases, judge))


@attack("Responses to requests with Authorization or a session cookie", "RFC 9111 section 3.5", [CACHE])
def private_responses(target):
    def judge(field):
        path = f"/preview/{target.token()}" if "sid" in field else f"/cached/{target.token()}"
        # Without a word about how long: the case of frameworks that say nothing.
        target.origin.script(path, lambda request, _: origin.respond(
            request, "Last-Modified: Thu, 01 Jan 2015 00:00:00 GMT\r\nETag: \"1\"\r\n"))
        token = target.token()
        target.get(path, field.replace("TOKEN", token))
        return "an honest client sees another's" if token in target.get(path) else None

    return each(["Authorization: Bearer TOKEN\r\n", "authorization: Basic TOKEN\r\n", "Cookie: sid=TOKEN\r\n", "Cookie: a=b; sid=TOKEN\r\n"],
                lambda cases: target.judge_each(cases, judge))


@attack("Set-Cookie stored for others", "CWE-524", [CACHE])
def set_cookie(target):
    path = f"/cached/{target.token()}"
    serial = iter(range(1000))
    target.origin.script(path, lambda request, _: origin.respond(
        request, f"Cache-Control: max-age=600\r\nSet-Cookie: sid=secret-{next(serial)}\r\n"))
    target.get(path)
    second = target.get(path)
    require("secret-0" not in second, "a second client gets the first one's cookie")
    return "not shared"


@attack("Cache deception: a private page under the name of a style sheet", "CWE-525", [CACHE])
def deception(target):
    def judge(suffix):
        base = f"/cached/{target.token()}"
        path = base + suffix
        # A router that ignores what follows, and says nothing of storing.
        target.origin.script(path, lambda request, _: origin.respond(
            request, "Content-Type: text/html\r\nLast-Modified: Thu, 01 Jan 2015 00:00:00 GMT\r\n").replace(b"Content-Type: text/plain\r\n", b""))
        token = target.token()
        target.get(path, f"Cookie: session={token}\r\n")
        return "the attacker sees the victim's page" if token in target.get(path) else None

    return each(["/x.css", ";x.css", "%2fx.css", "%3bx.css", "/x.js", "%00.css", "/..%2fx.png", "%23x.css", "%3fx.css", "/robots.txt"],
                lambda cases: target.judge_each(cases, judge))


@attack("Vary: fields, `*`, and without end", "RFC 9111 section 4.1", [CACHE])
def vary(target):
    for value, fields in (("X-Language", "X-Language: blue\r\n"), ("*", "X: blue\r\n"),
                          (", ".join(f"X-{n}" for n in range(60)), "X-59: blue\r\n")):
        path = f"/cached/{target.token()}"
        target.origin.script(path, origin.cacheable(f"Vary: {value}\r\n"))
        target.get(path, fields)
        require("blue" not in target.get(path), f"Vary: {value[:20]}: a client sees another's")
    path = f"/cached/{target.token()}"
    target.origin.script(path, origin.cacheable("Vary: X-Language\r\n"))
    for number in range(300):
        target.get(path, f"X-Language: {number}\r\n")
    require(target.get(path).status == 200, "after 300 variants the page is gone")
    return "3 cases, and 300 variants of one page"


@attack("Errors that a crafted request causes, stored for all", "CVE-2019-0941 (cache-poisoned denial of service)", [CACHE])
def stored_errors(target):
    def judge(fields):
        path = f"/cached/{target.token()}"

        def respond(request, _):
            bad = len(request.head) > 6000 or any("override" in name.lower() or name.lower() in ("x-evil", "range") for name, _ in request.fields)
            status = "400 Bad Request" if bad else "200 OK"
            return origin.respond(request, "Cache-Control: max-age=600\r\n" if not bad else "", status, b"page")

        target.origin.script(path, respond)
        target.get(path, fields)
        found = target.get(path)
        return None if found.status == 200 else f"an honest client gets {found.status}"

    return each([f"X: {'y' * 8000}\r\n", "X-HTTP-Method-Override: DELETE\r\n", "X-Evil: \x07\r\n", "X-Evil: 1\r\n", "Range: bytes=99999999-\r\n"],
                lambda cases: target.judge_each(cases, judge))


@attack("HEAD stored as GET, and a partial response as complete", "RFC 9111 sections 3 and 3.3", [CACHE])
def incomplete(target):
    def judge(how):
        path = f"/cached/{target.token()}"

        def respond(request, _):
            fields = "Cache-Control: max-age=600\r\nETag: \"1\"\r\n"
            ranges = request.field("range")
            if ranges == "bytes=0-3":
                return origin.respond(request, fields + "Content-Range: bytes 0-3/10\r\n", "206 Partial Content", b"whol")
            return origin.respond(request, fields, body=b"whole-page")

        target.origin.script(path, respond)
        with target.connect() as connection:
            connection.send(http1.request(path, "Range: bytes=0-3\r\n" if how == "part" else "", "HEAD" if how == "HEAD" else "GET"))
            connection.read("HEAD" if how == "HEAD" else "GET")
        found = target.get(path)
        return None if (found.status, found.text) == (200, "whole-page") else f"an honest client gets {found.status} {found.text!r}"

    return each(["HEAD", "part"], lambda cases: target.judge_each(cases, judge))


@attack("A truncated response stored as complete", "CWE-354", [CACHE])
def truncated(target):
    def judge(head):
        path = f"/cached/{target.token()}"
        attempts = iter(range(1000))

        def respond(request, connection):
            if next(attempts) == 0:
                connection.sendall(f"HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\n{head}".encode())
                return None
            return origin.respond(request, "Cache-Control: max-age=600\r\n", body=b"whole-page")

        target.origin.script(path, respond)
        try:
            target.get(path)
        except (OSError, http1.Malformed, DidNotHold):
            pass  # That it broke off may be seen.
        found = target.get(path)
        return None if found.text == "whole-page" else f"an honest client gets {found.text!r}"

    return each(["Content-Length: 10\r\n\r\nwhol", "Transfer-Encoding: chunked\r\n\r\n4\r\nwhol\r\n", "Transfer-Encoding: chunked\r\n\r\na\r\nwhol"],
                lambda cases: target.judge_each(cases, judge))


@attack("Host and scheme are a part of the key", "CVE-2026-2836", [CACHE])
def hosts_and_schemes(target):
    path = f"/cached/{target.token()}"
    target.origin.script(path, lambda request, _: origin.respond(
        request, "Cache-Control: max-age=600\r\n",
        body=f"for {request.field('host')} over {request.field('x-forwarded-proto')}".encode()))
    first = target.get(path, host="a.test").text
    second = target.get(path, host="b.test").text
    require(first != second, f"a client of b.test gets {second!r}")
    absolute = target.send(f"GET http://c.test{path} HTTP/1.1\r\nHost: a.test\r\n\r\n")
    require(absolute is None or absolute.status >= 400 or absolute.text != first, "http://c.test/ with Host: a.test gets what is a.test's")
    if target.tls:
        secured = target.get(path, host="a.test", tls=True).text
        require(secured != first, f"a client of https gets {secured!r}")
    return "each client gets its own"


@attack("Spellings of a host that the key does not distinguish", "CWE-349, CVE-2021-41267", [CACHE])
def spelled_hosts(target):
    def judge(host):
        path = f"/cached/{target.token()}"
        target.origin.script(path, origin.cacheable())
        target.get(path, host=host)
        received = target.reflected(target.get(path))
        found = next((value for name, value in received["fields"] if name.lower() == "host"), None)
        return f"what was made for {found!r} is sent to an honest client" if found != "localhost" else None

    return each(["LOCALHOST", "localhost:80", "localhost:", "localhost.", "localhost:0080", "localhost:8080"],
                lambda cases: target.judge_each(cases, judge))


@attack("Purging without credentials", "CWE-306", [CACHE])
def purge(target):
    path = f"/cached/{target.token()}"
    serial = iter(range(1000))
    target.origin.script(path, lambda request, _: origin.respond(
        request, "Cache-Control: max-age=600\r\n", body=f"number {next(serial)}".encode()))
    before = target.get(path).text
    for method in ("PURGE", "BAN", "REFRESH"):
        for fields in ("", "Authorization: Bearer \r\n", "X-Purge: 1\r\nPurge-Prefix: 1\r\n", "X-Forwarded-For: 127.0.0.1\r\n"):
            target.get(path, fields, method=method)
            # Some pass unknown methods on, which may outdate their own target and no more than that.
            if method != "PURGE" and target.origin.seen(f"{method} {path}"):
                target.get(path)
                before = target.get(path).text
    after = target.get(path).text
    require(target.origin.seen(f"PURGE {path}") or after == before, "PURGE of a stranger took the response out")
    return "the response stays"


@attack("Clients that force every response to be fetched again", "CWE-400, RFC 9111 section 5.2.1", [CACHE])
def client_directives(target):
    path = f"/cached/{target.token()}"
    target.origin.script(path, origin.cacheable())
    target.get(path)
    for fields in ("Cache-Control: no-cache\r\n", "Cache-Control: max-age=0\r\n", "Pragma: no-cache\r\n", "Cache-Control: no-store\r\n") * 5:
        target.get(path, fields)
    count = len(target.origin.seen(path))
    # no-store costs a fetch in some caches, as RFC 9111 section 5.2.1.5 allows.
    require(count <= 6, f"{count} fetches for 20 requests")
    return f"{count} fetches for 21 requests"


@attack("One byte changed in a file of the cache", "CWE-354", [CACHE, DISK])
def altered_files(target):
    path = f"/cached/{target.token()}"
    size = 3 << 20
    target.origin.script(path, lambda request, _: origin.respond(
        request, "Cache-Control: max-age=600\r\nETag: \"1\"\r\n", body=b"x" * size))
    target.get(path)
    folder = target.sandbox.path(f"{target.name}-cache")
    altered, give_up = 0, time.monotonic() + 5
    while not altered and time.monotonic() < give_up:
        for file in folder.rglob("*"):
            if file.is_file() and file.stat().st_size >= size and b"x" * 1000 in file.read_bytes()[-2000:]:
                data = bytearray(file.read_bytes())
                data[-700_000] = ord("!")
                # In place, as a disk that fails would have it.
                with file.open("r+b") as opened:
                    opened.seek(len(data) - 700_000)
                    opened.write(b"!")
                altered += 1
        time.sleep(0.2)
    require(altered, "no file of the cache was found")
    for _ in range(3):
        found = target.get(path)
        require(b"!" not in found.body, "the altered byte is sent")
    return "the altered byte is not sent"
