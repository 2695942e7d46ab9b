"""Who a client is, and which scheme and host it used: nothing that it says itself counts, what a trusted proxy says always does."""

import re
import ssl

from harness import http1, http2
from harness.attack import CACHE, PHP, PROXY, STATIC, TLS, NotApplicable, attack, each, require
from harness.sandbox import SECRET
from harness.servers import TRUSTED

# Fields that applications believe: who the client is, which URL it meant, and who has logged in.
IDENTITY = (
    "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Protocol", "X-Forwarded-Port", "X-Forwarded-Prefix",
    "X-Forwarded-Server", "X-Forwarded-Scheme", "X-Forwarded-Ssl", "X-Forwarded-User", "X-Forwarded-Client-Cert", "Forwarded",
    "X-Real-IP", "True-Client-IP", "X-Client-IP", "Client-IP", "CF-Connecting-IP", "Fastly-Client-IP", "X-Scheme", "X-Url-Scheme",
    "Front-End-Https", "X-Original-URL", "X-Original-Uri", "X-Rewrite-URL", "X-Host", "X-Original-Host", "Remote-User",
    "X-Remote-User", "X-Ssl-Client-Verify", "X-Script-Name",
)


def reached_origin(target, names, source=None):
    """The fields among `names` whose value the origin gets to see as the client sent it."""

    def judge(name):
        token, evil = target.token(), target.token()
        value = f"for={evil}" if name == "Forwarded" else evil
        response = target.get(f"/api/{token}", f"{name}: {value}\r\n", source=source)
        passed = [key for seen in target.origin.seen(token) for key, value in seen.fields if evil in value]
        return f"status {response.status}, the origin saw it as {passed[0]}" if passed else None

    return each(list(names), lambda cases: target.judge_each(cases, judge))


@attack("Identity and routing fields of a stranger", "CWE-290, CWE-348", [PROXY])
def fields_of_strangers(target):
    return reached_origin(target, IDENTITY)


@attack("Identity and routing fields with underscores or dots for hyphens", "CWE-290, CVE-2025-64484", [PROXY])
def underscores(target):
    return reached_origin(target, [name.replace("-", "_") for name in IDENTITY if "-" in name])


@attack("Identity and routing fields of a stranger over HTTP/2", "CWE-290", [PROXY])
def fields_over_http2(target):
    token, evil = target.token(), target.token()
    with target.h2() as peer:
        peer.fetch(f"/api/{token}", [(name.lower(), evil) for name in IDENTITY])
    passed = sorted({key for seen in target.origin.seen(token) for key, value in seen.fields if evil in value})
    require(not passed, f"the origin saw {', '.join(passed[:3])} and so on, {len(passed)} of {len(IDENTITY)}")
    return f"{len(IDENTITY)} fields"


@attack("Fields that Connection names: those that the server adds", "CVE-2022-31813", [PROXY])
def nominated_by_connection(target):
    names = ("X-Forwarded-For", "X-Real-IP", "X-Forwarded-Proto", "X-Forwarded-Host", "Host", "Via")
    plain, token = target.token(), target.token()
    target.get(f"/api/{plain}")
    expected = [name for name in names if target.origin.seen(plain)[0].field(name.lower()) is not None]
    response = target.get(f"/api/{token}", f"Connection: close, {', '.join(names)}\r\n")
    if response.status >= 400:
        return f"refused with {response.status}"
    lost = [name for name in expected if target.origin.seen(token)[0].field(name.lower()) is None]
    require(not lost, f"the origin does not get {', '.join(lost)}")
    return f"the origin gets all of {', '.join(expected)}"


@attack("Fields that Connection names: those that the site sets", "CVE-2022-31813", [PROXY, CACHE])
def nominated_field_of_the_site(target):
    for fields in ("Connection: close, X-Role\r\n", "Connection: close, X-Role\r\nX-Role: admin\r\n", "X-Role: admin\r\n", "X_Role: admin\r\n"):
        token = target.token()
        target.get(f"/tenants/{token}", fields)
        seen = target.origin.seen(token)
        require(not seen or seen[0].field("x-role") == "guest", f"{fields.strip()!r}: X-Role is {seen and seen[0].field('x-role')!r}")
        require(not seen or seen[0].field("x_role") is None, "X_Role reached the origin")
    return "4 cases, X-Role stays as the site has it"


@attack("Hop-by-hop fields are not forwarded", "RFC 9110 section 7.6.1", [PROXY])
def hop_by_hop(target):
    token = target.token()
    names = ("Keep-Alive", "Proxy-Connection", "TE", "X-Own")
    target.get(f"/api/{token}", "Connection: close, X-Own\r\n" + "".join(f"{name}: {token}-x\r\n" for name in names))
    passed = [key for seen in target.origin.seen(token) for key, value in seen.fields if f"{token}-x" in value]
    require(not passed, f"the origin saw {', '.join(passed)}")
    return "4 fields"


@attack("httpoxy: the field Proxy becomes HTTP_PROXY", "CVE-2016-5385", [PHP])
def httpoxy(target):
    received = target.reflected(target.get("/echo.php", "Proxy: http://evil/\r\n", host="php.test"))["server"]
    require("HTTP_PROXY" not in received, "PHP has HTTP_PROXY")
    return "PHP has no HTTP_PROXY"


@attack("Fields of a stranger that become variables of a program", "CWE-348", [PHP])
def variables_of_programs(target):
    evil = target.token()
    fields = "".join(f"{name}: {evil}\r\n" for name in (*IDENTITY, "X_Real_IP", "X_Forwarded_For", "X_Role", "HTTPS", "Https", "Remote_Addr",
                                                         "Content_Length", "Script_Filename", "Document_Root", "Redirect_Status"))
    received = target.reflected(target.get("/echo.php", fields, host="php.test"))["server"]
    for name in ("REMOTE_ADDR", "HTTPS", "SERVER_NAME", "REQUEST_SCHEME", "SCRIPT_FILENAME", "DOCUMENT_ROOT", "REQUEST_URI", "REMOTE_USER"):
        require(evil not in str(received.get(name, "")), f"{name} is the client's")
    passed = [name for name, value in received.items() if value == evil]
    underscored = [name for name in passed if name in ("HTTP_X_ROLE", "HTTP_REMOTE_ADDR", "HTTP_CONTENT_LENGTH")]
    require(not underscored, f"{underscored[:1]} comes from a name with an underscore")
    believed = [name for name in passed if name.startswith(("HTTP_X_FORWARDED", "HTTP_X_REAL", "HTTP_REMOTE_USER", "HTTP_FORWARDED",
                                                            "HTTP_X_ORIGINAL", "HTTP_X_REWRITE", "HTTP_CLIENT_IP"))]
    require(not believed, f"PHP sees {', '.join(believed[:3])} as a stranger sent it, {len(believed)} in all")
    return "none of them"


@attack("Redirects of the server to a host or scheme that a stranger names", "CWE-601, CWE-644", [STATIC])
def redirects(target):
    evil = target.token()
    response = target.get("/moved", "".join(f"{name}: {evil}\r\n" for name in IDENTITY if name != "Forwarded")
                          + f"Forwarded: for=1.2.3.4;proto=https;host={evil}\r\n")
    location = response.field("location") or ""
    if response.status != 301:
        raise NotApplicable(f"no redirect: {response.status}")
    require(evil not in location and location.startswith("http://localhost"), f"Location: {location}")
    return f"Location: {location}"


@attack("Origin, redirects and log use the same values of a trusted proxy", "CWE-346", [PROXY, STATIC])
def trusted_proxies(target):
    token = target.token()
    fields = "X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https\r\n"
    response = target.get(f"/api/{token}", fields, source=TRUSTED)
    seen = target.origin.seen(token)
    require(response.status == 200 and seen, f"status {response.status}")
    chain = seen[0].field("x-forwarded-for") or ""
    require(chain.startswith("192.0.2.7"), f"the origin's X-Forwarded-For is {chain!r}")
    require(seen[0].field("x-real-ip") in (None, "192.0.2.7"), f"X-Real-IP is {seen[0].field('x-real-ip')!r}, X-Forwarded-For {chain!r}")
    log = target.sandbox.path("access.log" if target.name == "apus" else f"access-{target.name}.log")
    target.get("/moved", fields, source=TRUSTED)
    if log.exists():
        lines = [line for line in _log_lines(log, token) if token in line]
        require(lines and lines[0].startswith("192.0.2.7 "), f"the access log has {lines[0].split()[0] if lines else 'nothing'}")
    return "the client's address is the same everywhere"


def _log_lines(log, token):
    """Lines of a log, which are written a little later."""
    import time
    for _ in range(40):
        lines = log.read_text(errors="replace").splitlines()
        if any(token in line for line in lines):
            return lines
        time.sleep(0.1)
    return []


@attack("A redirect to HTTPS behind a proxy that terminates TLS does not loop", "CWE-835", [STATIC])
def https_behind_a_proxy(target):
    first = target.get("/", host="secure.test")
    if first.status not in (301, 302, 307, 308) or not (first.field("location") or "").startswith("https://"):
        raise NotApplicable("no site that redirects to HTTPS")
    fields = "X-Forwarded-Proto: https\r\n"
    for more in ("", "X-Forwarded-For: 192.0.2.7\r\n"):
        response = target.get("/", fields + more, host="secure.test", source=TRUSTED)
        require(response.status == 200, f"{(fields + more).strip()!r}: {response.status} to {response.field('location')}")
    # The field that the proxy does not write is the client's own.
    response = target.get("/", "Forwarded: for=192.0.2.7;proto=https\r\n", host="secure.test", source=TRUSTED)
    require(response.status != 200, "a field that the trusted proxy does not write is believed")
    stranger = target.get("/", "X-Forwarded-Proto: https\r\n", host="secure.test")
    require(stranger.status != 200, "a stranger passes for one who uses HTTPS")
    return "the trusted proxy's clients get the page, strangers the redirect"


@attack("Invalid schemes and hosts from a trusted proxy", "CWE-20", [PROXY])
def impossible_schemes(target):
    def judge(case):
        field, value = case
        token = target.token()
        response = target.get(f"/api/{token}", f"{field}: {value}\r\n", source=TRUSTED)
        passed = [key for seen in target.origin.seen(token) for key, found in seen.fields if value in found and key.lower() != "forwarded"]
        return f"status {response.status}, the origin gets it in {passed[0]}" if passed else None

    cases = [("X-Forwarded-Proto", "javascript"), ("X-Forwarded-Proto", "https://evil/"), ("X-Forwarded-Proto", "\"><script>"),
             ("X-Forwarded-Host", "evil/path"), ("X-Forwarded-Host", "a b"), ("X-Forwarded-Host", "\"><script>"),
             ("X-Forwarded-Port", "80x"), ("X-Forwarded-Port", "99999999"), ("X-Forwarded-Port", "\"><script>")]
    return each(cases, lambda cases: target.judge_each(cases, judge))


@attack("Hosts in every spelling are one host to the origin", "RFC 9110 section 4.2.3", [PROXY])
def hosts(target):
    def judge(host):
        token = target.token()
        response = target.get(f"/api/{token}", host=host)
        if response.status >= 400:
            return None
        found = target.origin.seen(token)[0].field("host")
        return None if found == "localhost" else f"the origin gets {found!r}"

    return each(["localhost", "LOCALHOST", "localhost:80", "localhost:"],
                lambda cases: target.judge_each(cases, judge))


@attack("A PROXY protocol header from a stranger", "CWE-290", [STATIC])
def proxy_protocol(target):
    def judge(head):
        with target.connect() as connection:
            connection.send(head + http1.request("/files/a.txt"))
            received = connection.read_all()
        return "it was taken" if re.match(rb"HTTP/1\.1 200", received) else None

    heads = [b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x0a\0\0\x01\x0a\0\0\x02\0\x01\0\x02"]
    return each(heads, lambda cases: target.judge_each(cases, judge))


def _tls(target, name, session=None, version=None):
    context = http2.client_context(["http/1.1"])
    if version:
        context.minimum_version = context.maximum_version = version
    import socket
    raw = socket.create_connection(target.tls, 10)
    return context.wrap_socket(raw, server_hostname=name, session=session), context


def _fetch(secured, host):
    """The response, or what the server sends if it rejects the handshake."""
    try:
        secured.sendall(http1.request("/", "Connection: close\r\n", host=host))
        received = b""
        while data := secured.recv(1 << 16):
            received += data
    except OSError:
        pass
    return received


@attack("A site that requires client certificates, reached through the handshake of another site", "CWE-295", [STATIC, TLS])
def hosts_beside_the_handshake(target):
    for name, host in (("localhost", "only.test"), ("localhost", "ONLY.test"), ("localhost", "only.test."), ("other.test", "only.test"),
                       ("only.test", "only.test"), ("only.test", "localhost")):
        try:
            secured, _ = _tls(target, name)
        except OSError:
            continue
        with secured:
            require(SECRET.encode() not in _fetch(secured, host), f"handshake for {name}, Host: {host}: its page")
    with target.connect() as connection:
        connection.send(http1.request("/", host="only.test"))
        require(SECRET.encode() not in connection.read_all(), "its page in clear text")
    return "7 cases"


@attack("A TLS session of one site resumed for another", "CVE-2025-23419", [STATIC, TLS])
def sessions(target):
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        secured, context = _tls(target, "localhost", version=version)
        with secured:
            _fetch(secured, "localhost")
            session = secured.session
        import socket
        try:
            with context.wrap_socket(socket.create_connection(target.tls, 10), server_hostname="only.test", session=session) as again:
                require(SECRET.encode() not in _fetch(again, "only.test"), f"{version.name}: its page without a certificate")
        except OSError:
            pass
    return "TLS 1.2 and 1.3"
