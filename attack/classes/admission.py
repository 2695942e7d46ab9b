"""Past who may enter: bots that sign, forward authentication, signed links, one of several ways in, and challenges."""

import base64
import hashlib
import hmac
import json
import re
import time

from harness.attack import PROXY, RULES, attack, each, require
from harness.sandbox import SECRET
from harness.servers import TRUSTED

HOST, NEIGHBOUR = "guarded.test", "neighbour.test"
MEMBER = "Cookie: member=ada\r\n"
# The longest that a client may wait for an authority or a directory that does not respond.
PATIENCE_SECONDS = 8


def unpadded(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def admits_nobody(target, cases, path, **how):
    """No case, which is the fields of a request, leads to the secret; an honest client is looked at by the caller."""

    def judge(fields):
        response = target.get(path, fields, host=HOST, **how)
        return f"status {response.status} with what nobody may see" if SECRET in response else None

    return each(cases, lambda cases: target.judge_each(cases, judge))


def admits(target, fields, path, **how):
    response = target.get(path, fields, host=HOST, **how)
    require(SECRET in response, f"who may enter {path} got {response.status}")


# Bots that sign their requests (RFC 9421).


def thumbprint(x):
    return unpadded(hashlib.sha256(json.dumps({"crv": "Ed25519", "kty": "OKP", "x": x}, separators=(",", ":")).encode()).digest())


def signature(sandbox, *, key="crawler", claims=None, authority=HOST, agent=None, parts=None, created=0, expires=60, tag="web-bot-auth", leave_out=()):
    """The fields of a signed request; `claims` is another key whose name it has, `parts` what is covered in place of the authority."""
    now = int(time.time())
    parts = [("@authority", authority)] if parts is None else parts
    if agent:
        parts = [*parts, ("signature-agent", f'"{agent}"')]
    identifiers = " ".join(f'"{name}"' for name, _ in parts)
    parameters = {"created": now + created, "expires": now + expires, "keyid": f'"{thumbprint(sandbox.public_key(claims or key))}"', "tag": f'"{tag}"'}
    given = f"({identifiers})" + "".join(f";{name}={value}" for name, value in parameters.items() if name not in leave_out)
    base = "\n".join([*(f'"{name}": {value}' for name, value in parts), f'"@signature-params": {given}'])
    signed = base64.b64encode(sandbox.sign(key, base)).decode()
    return {**({"Signature-Agent": f'"{agent}"'} if agent else {}), "Signature-Input": f"s={given}", "Signature": f"s=:{signed}:"}


def lines(fields):
    return "".join(f"{name}: {value}\r\n" for name, value in fields.items())


@attack("Signatures of bots: of another key, another site, another time, another request, and none at all", "CWE-347, CWE-294", [RULES])
def signatures_of_bots(target):
    sandbox = target.sandbox

    def signed(**how):
        return signature(sandbox, **how)

    good = signed()
    number, value = good["Signature-Input"], good["Signature"]
    empty = "s=:" + base64.b64encode(bytes(64)).decode() + ":"
    forged = [
        signed(key="stranger"), signed(key="stranger", claims="crawler"), signed(authority="other.test"), signed(authority=f"{HOST}:80"),
        signed(created=-7200, expires=-3600), signed(created=3600, expires=7200), signed(created=-10, expires=2 * 86400),
        signed(leave_out=("created",)), signed(leave_out=("expires",)), signed(leave_out=("created", "expires")), signed(tag="web-bot"),
        signed(parts=[]), signed(parts=[("@method", "GET")]), signed(parts=[("@path", "/bots/a.txt")]),
        signed(parts=[("@authority", HOST), ("@path", "/index.html")]), signed(parts=[("@authority", HOST), ("@path", "/bots/A.txt")]),
        signed(parts=[("@authority", HOST), ("@method", "POST")]), signed(parts=[("@authority", HOST), ("@query", "?x=1")]),
        signed(parts=[("@target-uri", "http://other.test/bots/a.txt")]), signed(parts=[("@authority", HOST), ("@authority", HOST)]),
        {**signed(parts=[("@authority", HOST), ("x-role", "guest")]), "X-Role": "admin"}, signed(parts=[("@authority", HOST), ("x-absent", "")]),
        {"Signature-Input": number}, {"Signature": value}, {"Signature-Input": number, "Signature": empty}, {"Signature-Input": number, "Signature": "s=::"},
        {"Signature-Input": number, "Signature": value.replace("s=", "t=", 1)}, {"Signature-Input": number, "Signature": value[:-8] + "AAAA==:"},
        {"Signature-Input": re.sub(r"expires=\d+", "expires=9999999999", number), "Signature": value},
        {"Signature-Input": number + ";alg=\"none\"", "Signature": value}, {"Signature-Input": number.replace('"@authority"', ""), "Signature": value},
        {"Signature-Input": f"{number}, {signed(key='stranger')['Signature-Input']}", "Signature": value},
        {"Signature-Input": "s=" + "(" * 2000 + ")" * 2000, "Signature": value}, {"Signature-Agent": '"https://crawler.test"', "User-Agent": "crawler"},
        {**signed(), "Signature-Agent": '"https://other.test"', "Signature": empty},
    ]
    evidence = admits_nobody(target, [lines(fields) for fields in forged], "/bots/a.txt")
    admits(target, lines(good), "/bots/a.txt")
    elsewhere = target.get("/bots/a.txt", lines(good), host=NEIGHBOUR)
    require(SECRET not in elsewhere, "the signature for one site is good at another")
    return evidence


@attack("Key directories of bots that are endless, enormous, silent, redirected or no key sets", "CWE-400, CWE-770, CWE-918", [RULES, PROXY])
def directories_of_bots(target):
    origin, sandbox = target.origin, target.sandbox
    agent = f"http://127.0.0.1:{origin.port}"
    stranger = lines(signature(sandbox, key="stranger", agent=agent))
    fetched = []

    def endless(_, connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(4096):
            connection.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")

    def silent(*_):
        time.sleep(3)

    def scripted(respond):
        def script(request, connection):
            fetched.append(request)
            return respond(request, connection) if callable(respond) else respond
        return script

    key = json.dumps({"kty": "OKP", "crv": "Ed25519", "x": sandbox.public_key("stranger")})
    many = ('{"keys":[' + ",".join([key] * 40_000) + "]}").encode()
    cases = [endless, silent, b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{", b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(many) + many,
             b"HTTP/1.1 302 Found\r\nLocation: %s/stolen\r\nContent-Length: 0\r\n\r\n" % agent.encode(),
             b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + b"[" * 2000, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"]
    try:
        for number, case in enumerate(cases):
            origin.script("/keys-of-bots", scripted(case))
            give_up = time.monotonic() + 20
            while len(fetched) <= number and time.monotonic() < give_up:
                start, before = time.monotonic(), len(fetched)
                admits_nobody(target, [stranger] * 16, "/bots/a.txt")
                require(time.monotonic() - start < PATIENCE_SECONDS, "requests wait for a directory")
                require(len(fetched) - before <= 1, f"16 requests had it fetched {len(fetched) - before} times")
        require(not origin.seen("/stolen"), "a redirect of the directory was followed")
    finally:
        body = json.dumps({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": sandbox.public_key("crawler")}]}).encode()
        origin.script("/keys-of-bots", b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    return f"{len(cases)} directories, fetched {len(fetched)} times"


# Forward authentication.


@attack("Fields of identity that a client sends itself, where an authority says who it is", "CWE-290, CWE-348", [RULES, PROXY])
def identity_beside_an_authority(target):
    target.origin.script("/may-enter", may_enter)
    names = ("Remote-User", "REMOTE-USER", "remote_user", "Remote.User", "X-Groups", "x_groups", "X_Groups", "X-Remote-User", "X-Forwarded-User", "Remote-Groups")

    def judge(name):
        token = target.token()
        target.get(f"/api/members/{token}", f"{MEMBER}{name}: root\r\nConnection: close, {name}\r\n", host=HOST)
        seen = [one for one in target.origin.seen(f"/api/members/{token}") if one.target.startswith("/api/")]
        if not seen:
            return "the member did not reach the origin"
        passed = [key for key, value in seen[0].fields if "root" in value]
        if passed:
            return f"the origin saw it as {passed[0]}"
        return None if seen[0].field("x-groups") == "staff" else f"the groups are {seen[0].field('x-groups')!r}"

    return each(list(names), lambda cases: target.judge_each(cases, judge))


@attack("Requests that want the authority to decide about another one", "CWE-441, CWE-444", [RULES, PROXY])
def what_the_authority_gets(target):
    target.origin.script("/may-enter", may_enter)
    cases = ["X-Forwarded-Uri: /open/", "X_Forwarded_Uri: /open/", "X-Original-URL: http://guarded.test/open/", "X-Original-Uri: /open/", "X-Rewrite-URL: /open/",
             "X-Forwarded-Method: OPTIONS", "X-Original-Method: OPTIONS", "X-HTTP-Method-Override: OPTIONS", "X-Forwarded-Host: open.test",
             "X-Forwarded-Proto: ftp", "X-Forwarded-For: 127.0.0.77", "X-Real-IP: 127.0.0.77", "Forwarded: for=127.0.0.77;host=open.test",
             "Connection: X-Forwarded-Uri, X-Original-URL, X-Forwarded-For", "Content-Length: 5", "Transfer-Encoding: chunked", "Expect: 100-continue",
             "Upgrade: websocket\r\nConnection: upgrade", "TE: trailers", "Range: bytes=0-0", "If-None-Match: *"]

    def judge(fields):
        token = target.token()
        method = "POST" if fields.startswith(("Content-Length", "Transfer-Encoding", "Expect")) else "GET"
        body = {"Content-Length: 5": "hello", "Transfer-Encoding: chunked": "5\r\nhello\r\n0\r\n\r\n", "Expect: 100-continue": ""}.get(fields, "")
        close = "" if "onnection: " in fields else "Connection: close\r\n"
        length = "Content-Length: 0\r\n" if fields.startswith("Expect") else ""
        target.send(f"{method} /members/{token} HTTP/1.1\r\nHost: {HOST}\r\n{fields}\r\n{length}{close}\r\n{body}", source="127.0.0.88")
        seen = [one for one in target.origin.seen(token) if one.target == "/may-enter"]
        if not seen:
            return "the authority was not asked"
        asked = seen[0]
        expected = {"x-forwarded-uri": f"/members/{token}", "x-forwarded-method": method, "x-forwarded-host": HOST, "x-forwarded-for": "127.0.0.88",
                    "x-original-url": f"http://{HOST}/members/{token}", "x-original-method": method, "upgrade": None, "transfer-encoding": None, "range": None}
        wrong = [f"{name} {asked.field(name)!r}" for name, value in expected.items() if asked.field(name) != value]
        if asked.method != "GET" or asked.body or asked.field("content-length") not in (None, "0"):
            wrong.append(f"{asked.method} with a body of {len(asked.body)} bytes")
        if "open" in asked or "127.0.0.77" in asked:
            wrong.append("what the client says of itself")
        return f"the authority got {wrong[0]}" if wrong else None

    evidence = each(cases, lambda cases: target.judge_each(cases, judge))
    require(not target.origin.complaints("/may-enter"), "the authority got a request that can be read in two ways")
    return evidence


@attack("Responses of an authority that are slow, endless, split, broken or no success", "CWE-444, CWE-754", [RULES, PROXY])
def responses_of_an_authority(target):
    def slow(_, connection):
        for byte in b"HTTP/1.1 200 OK\r\nX-Slow: " + b"x" * 200:
            connection.sendall(bytes([byte]))
            time.sleep(0.1)

    def endless(_, connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        for number in range(100_000):
            connection.sendall(b"X-%d: %s\r\n" % (number, b"x" * 1000))

    two = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\nRemote-User: eve\r\n\r\n"
    cases = [slow, endless, lambda *_: time.sleep(5), lambda *_: None, two, two * 4,
             b"HTTP/1.1 403 Forbidden\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000 + two,
             b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n",
             b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx", b"HTTP/1.1 200 OK\r\nContent-Length: +0\r\n\r\n",
             b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"HTTP/1.1 200 OK\r\nX : y\r\nContent-Length: 0\r\n\r\n",
             b"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n", b"ICY 200 OK\r\nContent-Length: 0\r\n\r\n",
             b"200 OK\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: \0\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 200 OK\r\nRemote-User: a", b"\0" * 70_000]
    origin = target.origin
    try:
        for case in cases:
            origin.script("/may-enter", case)
            start = time.monotonic()
            # Several, as what is left of one response may be taken for the next.
            admits_nobody(target, [""] * 4, "/members/a.txt")
            took = time.monotonic() - start
            require(took < PATIENCE_SECONDS, f"clients waited {took:.0f} s for an authority")
    finally:
        origin.script("/may-enter", may_enter)
    deadline = time.monotonic() + 20
    while SECRET not in target.get("/members/a.txt", MEMBER, host=HOST):
        require(time.monotonic() < deadline, "the member is not admitted any more when the authority is well again")
        time.sleep(0.1)
    return f"{len(cases)} responses"


def may_enter(request, _):
    """The authority: who has the cookie of a member may enter."""
    found = re.search(r"member=(ada|bob)\b", request.field("cookie") or "")
    if not found:
        return b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"
    return f"HTTP/1.1 200 OK\r\nRemote-User: {found[1]}\r\nX-Groups: staff\r\nContent-Length: 0\r\n\r\n".encode()


@attack("What an authority has decided about one client, for another one", "CWE-524, CWE-639", [RULES, PROXY])
def remembered_decisions(target):
    target.origin.script("/may-enter", may_enter)
    for _ in range(4):
        admits(target, MEMBER, "/remembered/a.txt", source="127.0.0.70")
    strangers = ["", "Cookie: member=\r\n", "Cookie: member=eve\r\n", "Cookie: member=ad\r\nX-Cookie: member=ada\r\n", "Cookie2: member=ada\r\n",
                 "X-Forwarded-For: 127.0.0.70\r\n", "Authorization: member=ada\r\n", "Connection: close, Cookie\r\n", "Remote-User: ada\r\n", "Host2: guarded.test\r\n"]
    evidence = admits_nobody(target, strangers * 2, "/remembered/a.txt", source="127.0.0.70")
    admits_nobody(target, strangers, "/remembered/a.txt", source="127.0.0.71")

    def judge(number):
        name, token = ("ada", "bob")[number % 2], target.token()
        target.get(f"/api/remembered/{token}", f"Cookie: member={name}\r\n", host=HOST, source="127.0.0.70")
        seen = [one for one in target.origin.seen(token) if one.target.startswith("/api/")]
        user = seen[0].field("remote-user") if seen else "nobody"
        return None if user == name else f"{name} is taken for {user}"

    each(list(range(16)), lambda cases: target.judge_each(cases, judge))
    return evidence


# Signed links, one of several ways in, and challenges.


def link(sandbox, path, expires):
    """A link as docs/access.md has it."""
    def sha256(key, text):
        return hmac.new(key, text, hashlib.sha256).digest()

    secret = sandbox.path("links.key").read_bytes().strip()
    url = f"{path}?expires={expires}"
    return f"{url}&signature={unpadded(sha256(sha256(sha256(b'apus', secret), b'signed urls' + bytes([1])), url.encode()))}"


@attack("Signed links that are changed, expired, of another path, or spelt in another way", "CWE-347, CWE-345", [RULES])
def signed_links(target):
    now = int(time.time())
    good, late = link(target.sandbox, "/links/a.txt", now + 600), link(target.sandbox, "/links/a.txt", now - 5)
    path, _, query = good.partition("?")
    signed = query.partition("&")[2]
    other = link(target.sandbox, "/links/b.txt", now + 600).partition("?")[2]
    cases = [path, f"{path}?{signed}", late, f"{late}&expires={now + 600}", late.replace(f"expires={now - 5}", f"expires={now + 600}"), f"{path}?{other}",
             good[:-1], good[:-2] + "AA", f"{good}&x=1", f"{path}?x=1&{query}", f"{good}&{signed}", f"{path}?{signed}&{query.partition('&')[0]}",
             good.replace("expires=", "expires=0"), good.replace("expires=", "Expires="), good.replace("signature=", "signature=="), good.replace("signature", "Signature"),
             good.replace("/links/", "//links/"), good.replace("/links/", "/x/../links/"), good.replace("a.txt", "%61.txt"), good.replace("/links/", "/links/./"),
             good.replace("expires", "%65xpires"), f"{path}?expires={now + 600}", f"{path}?expires={now + 600}&signature=", f"{path}%3f{query}",
             f"/links/b.txt/..%2fa.txt?{other}", f"/links/b.txt/../a.txt?{other}", f"{path};x?{query}"]

    def judge(case):
        response = target.get(case, host=HOST)
        return f"status {response.status} with what nobody may see" if SECRET in response else None

    evidence = each(cases, lambda cases: target.judge_each(cases, judge))
    response = target.get(good, host=HOST)
    require(SECRET in response, f"the link itself got {response.status}")
    return evidence


@attack("One of several ways in, by none of them", "CWE-287, CWE-290", [RULES])
def either_way(target):
    def basic(text):
        return f"Authorization: Basic {base64.b64encode(text.encode()).decode()}\r\n"

    right = basic("ada:correct")
    cases = ["", basic("ada:wrong"), basic("ada:"), basic(":correct"), basic("eve:correct"), basic("ada"), "Authorization: Basic\r\n", "Authorization: Bearer YWRhOmNvcnJlY3Q=\r\n",
             "Authorization: Basic !!!!\r\n", basic("ada:wrong") + right, right + basic("ada:wrong"), f"Proxy-{right}", f"X-{right}", "Remote-User: ada\r\n", "REMOTE_USER: ada\r\n",
             "X-Forwarded-For: 127.0.0.77\r\n", "X-Real-IP: 127.0.0.77\r\n", "Forwarded: for=127.0.0.77\r\n"]
    evidence = admits_nobody(target, cases, "/either/a.txt", source="127.0.0.88")
    admits_nobody(target, ["X-Forwarded-For: 127.0.0.77, 127.0.0.88\r\n", "X-Forwarded-For: 127.0.0.88\r\n"], "/either/a.txt", source=TRUSTED)
    admits(target, right, "/either/a.txt", source="127.0.0.88")
    admits(target, "", "/either/a.txt", source="127.0.0.77")
    return evidence


BROWSER = "Accept: text/html\r\nSec-Fetch-Dest: document\r\nAccept-Language: en\r\n"


def cookies(response):
    return {name: value for key, text in response.fields if key.lower() == "set-cookie" for name, _, value in [text.partition(";")[0].partition("=")]}


def clearance(target, host, source):
    """What a browser has after the first level: it comes again when the page says so."""
    page = target.get("/challenged/a.txt", BROWSER, host=host, source=source)
    ticket = cookies(page)
    require(page.status in (403, 429) and ticket, f"there is no challenge, but {page.status}")
    sent = "; ".join(f"{name}={value}" for name, value in ticket.items())
    refresh = re.search(r'http-equiv="?refresh"? content="?\d+; *url=([^">]+)', page.text)
    path = refresh[1].replace("&amp;", "&") if refresh else "/challenged/a.txt"
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        response = target.get(path, f"{BROWSER}Cookie: {sent}\r\n", host=host, source=source)
        passed = {name: value for name, value in cookies(response).items() if name.startswith("apus_clearance") and value}
        if passed:
            return sent, "; ".join(f"{name}={value}" for name, value in passed.items())
        time.sleep(0.2)
    require(False, "a browser does not pass the first level")


@attack("Tokens of a challenge: of another site, another address, changed, and without having waited", "CWE-294, CWE-345", [RULES])
def tokens_of_challenges(target):
    ticket, passed = clearance(target, NEIGHBOUR, "127.0.0.72")
    own_ticket, own = clearance(target, HOST, "127.0.0.73")
    name, _, value = own.partition("=")
    flipped = value[:-1] + ("A" if value[-1] != "A" else "B")
    cases = [("127.0.0.72", text) for text in (passed, ticket, f"{passed}; {ticket}", own, own_ticket, "", f"{name}=", f"{name}={flipped}", f"{name}={value[:-4]}", f"{name}=1",
                                               f"{name}={'A' * 4000}", f"{name}={flipped}; {name}={value}")]
    cases += [("127.0.0.73", f"{name}={flipped}"), ("127.0.0.74", f"{own}; {own_ticket}")]

    def judge(case):
        source, text = case
        response = target.get("/challenged/a.txt", f"{BROWSER}Cookie: {text}\r\n", host=HOST, source=source)
        return f"status {response.status} with what nobody may see" if SECRET in response else None

    evidence = each(cases, lambda cases: target.judge_each(cases, judge))
    admits(target, f"{BROWSER}Cookie: {own}\r\n", "/challenged/a.txt", source="127.0.0.73")
    return evidence
