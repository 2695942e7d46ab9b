"""Past rules, networks, limits and bans: by another spelling of what they name, or by another client's address."""

from harness import http2
from harness.attack import HTTP2, PHP, RULES, TLS, attack, each, require
from harness.sandbox import SECRET
from harness.servers import TRUSTED

HOST, CLOSED_HOST = "guarded.test", "closed.test"
# Clients that the configuration names: one that a rule refuses, one that alone may enter /staff/, and others.
REFUSED, STAFF, STRANGER, TRAPPED = "127.0.0.66", "127.0.0.77", "127.0.0.88", "203.0.113.55"

FORWARDED = ("X-Forwarded-For: {0}", "x-forwarded-for: {0}", "X-Forwarded-For: {0}, {0}", "X-Forwarded-For: {0}\r\nX-Forwarded-For: {0}",
             "X_Forwarded_For: {0}", "X-Real-IP: {0}", "Forwarded: for={0}", "Client-IP: {0}", "True-Client-IP: {0}", "CF-Connecting-IP: {0}",
             "X-Client-IP: {0}", "Connection: X-Forwarded-For\r\nX-Forwarded-For: {0}")


def spellings(name):
    """Paths that a server, or a program behind it, may read as /admin/NAME."""
    return [form.format(name=name) for form in (
        "/admin/{name}", "//admin/{name}", "/admin//{name}", "/./admin/{name}", "/admin/./{name}", "/x/../admin/{name}", "/admin/x/../{name}",
        "/%61dmin/{name}", "/%2561dmin/{name}", "/%2e/admin/{name}", "/x/%2e%2e/admin/{name}", "/x%2f..%2fadmin/{name}", "/admin%2f{name}",
        "/admin%2F{name}", "/admin%252f{name}", "/admin%5c{name}", "/admin\\{name}", "/admin;/{name}", "/admin;x=y/{name}", "/;/admin/{name}",
        "/admin/{name}?", "/admin/{name}?x=/public", "/admin/{name};x", "/admin/{name}%00", "/admin%00/{name}", "/admin/{name}%20",
        "/admin/{name}/", "/admin/{name}/x.php", "/public/..;/admin/{name}", "/%c0%aeadmin/{name}", "/ADMIN/{name}", "/admin/{name}%0a",
        "/admin/{name}%23", "/%09/../admin/{name}", f"http://{HOST}/admin/{{name}}", f"http://{HOST}//admin/{{name}}",
        f"http://other.test/admin/{{name}}")]


def no_secret(target, paths, **how):
    """No path may lead to the secret; a refusal of any kind is fine."""

    def judge(path):
        response = target.get(path, host=HOST, **how)
        return f"status {response.status} with what nobody may see" if SECRET in response else None

    return each(paths, lambda cases: target.judge_each(cases, judge))


@attack("A path that a rule refuses, in every spelling", "CWE-647, CWE-178", [RULES])
def paths(target):
    return no_secret(target, spellings("a.txt"))


@attack("A path that a rule refuses, over HTTP/2 and with pseudo-fields that differ", "CWE-647", [RULES, HTTP2, TLS])
def paths_over_http2(target):
    cases = [(path, fields, authority) for path in spellings("a.txt") if path.startswith("/")
             for fields, authority in (((), HOST), ((("host", "other.test"),), HOST), ((("host", HOST),), "other.test"))]
    with target.h2(name=HOST) as peer:
        numbers = [peer.open(http2.request_fields(path, "GET", fields, authority)) for path, fields, authority in cases]
        leaks = [case for case, number in zip(cases, numbers) if SECRET in peer.respond(number).text]
    require(not leaks, f"{leaks[:1]} leads to what nobody may see")
    return f"{len(cases)} cases"


@attack("A script that a rule refuses, with PATH_INFO and in every spelling", "CWE-647, CVE-2019-11043", [RULES, PHP])
def scripts(target):
    forms = ("/echo.php", "/echo.php/", "/echo.php/x", "/echo.php/x.php", "/echo.php/x/../y", "//echo.php", "/./echo.php", "/x/../echo.php",
             "/%65cho.php", "/echo%2ephp", "/echo.php%2fx", "/echo.php;x", "/echo.php;/x", "/echo.php?x=/public.php", "/echo.php%00", "/echo.php%20",
             "/echo.php.", "/echo.PHP", "/ECHO.php", "/echo.php%0a", "/echo.php/%2e%2e/x")

    def judge(path):
        response = target.get(path, host="guarded-php.test")
        return f"status {response.status}, and the script ran" if '"server"' in response.text else None

    return each(list(forms), lambda cases: target.judge_each(cases, judge))


@attack("A host that a rule refuses, in every spelling", "CWE-178, RFC 9112 section 3.2.2", [RULES])
def hosts(target):
    plain = "GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    cases = [plain.format(target="/", host=host) for host in (
        CLOSED_HOST, CLOSED_HOST.upper(), f"{CLOSED_HOST}.", f"{CLOSED_HOST}:80", f"{CLOSED_HOST}.:8080", f"{CLOSED_HOST}:", f" {CLOSED_HOST} ",
        f"x@{CLOSED_HOST}", "%63losed.test", f"{CLOSED_HOST}\t")]
    cases += [plain.format(target=f"http://{CLOSED_HOST}/", host="localhost"), plain.format(target=f"HTTP://{CLOSED_HOST}./", host="localhost"),
              f"GET / HTTP/1.1\r\nHost: localhost\r\nHost: {CLOSED_HOST}\r\n\r\n", f"GET / HTTP/1.1\r\nHost: {CLOSED_HOST}\r\nHost: localhost\r\n\r\n",
              f"GET / HTTP/1.1\r\nHost: {CLOSED_HOST}\r\nHost : localhost\r\n\r\n"]

    def judge(case):
        response = target.send(case.encode("latin-1"))
        return f"status {response.status}" if response and response.status < 400 else None

    return each(cases, lambda cases: target.judge_each(cases, judge))


@attack("A field, cookie, parameter or method that a rule refuses, several times and in other spellings", "CWE-235", [RULES])
def repeated(target):
    cases = ["X-Key: good\r\nX-Key: bad", "X-Key: bad\r\nX-Key: good", "x-key:bad", "X-Key:\t bad \t",
             "Cookie: role=bad; role=good", "Cookie: role=good; role=bad", "Cookie: role=good\r\nCookie: role=bad", "Cookie: a=1;role=bad",
             "Cookie: a=1;  role=bad;"]
    cases = [("GET", "/", f"{fields}\r\n") for fields in cases]
    cases += [("GET", f"/?{query}", "") for query in ("key=bad", "key=good&key=bad", "key=bad&key=good", "k%65y=bad", "key=%62ad", "key=b%61d&x", "x&&key=bad",
                                                    "key=good;&key=bad")]
    cases += [("DELETE", "/", ""), ("DELETE", "/", "X-HTTP-Method-Override: GET\r\n")]

    def judge(case):
        method, path, fields = case
        response = target.get(path, fields, method=method, host=HOST)
        return None if response.status == 403 else f"status {response.status}"

    return each(cases, lambda cases: target.judge_each(cases, judge))


@attack("Another client's address, as a stranger names it", "CWE-290, CWE-348", [RULES])
def forged_addresses(target):
    cases = [(REFUSED, "/", field.format(STRANGER)) for field in FORWARDED] + [(STRANGER, "/staff/a.txt", field.format(STAFF)) for field in FORWARDED]
    cases += [(REFUSED, "/", ""), (STRANGER, "/staff/a.txt", "")]

    def judge(case):
        source, path, fields = case
        response = target.get(path, fields + "\r\n" if fields else "", host=HOST, source=source)
        return None if response.status == 403 else f"status {response.status}"

    evidence = each(cases, lambda cases: target.judge_each(cases, judge))
    allowed = target.get("/staff/a.txt", host=HOST, source=STAFF)
    require(allowed.status == 200, f"the client that may enter got {allowed.status}")
    return evidence


@attack("Another client's address in front of what a trusted proxy adds, and other forms of an address", "CWE-290, CWE-178", [RULES])
def forged_behind_proxies(target):
    forms = (REFUSED, f"::ffff:{REFUSED}", f"::FFFF:{REFUSED}", "::ffff:7f00:42", f"[::ffff:{REFUSED}]", f"{REFUSED}:80", f"[::ffff:{REFUSED}]:80",
             f"0:0:0:0:0:ffff:{REFUSED}")
    cases = [("/", f"X-Forwarded-For: {form}") for form in forms]
    cases += [("/", f"X-Forwarded-For: {STRANGER}, {form}") for form in forms]
    cases += [("/", f"X-Forwarded-For: {STRANGER}\r\nX-Forwarded-For: {REFUSED}"), ("/", f"X-Forwarded-For: {STRANGER},{REFUSED},{TRUSTED}")]
    cases += [("/staff/a.txt", f"X-Forwarded-For: {STAFF}, {STRANGER}"), ("/staff/a.txt", f"X-Forwarded-For: {STAFF}\r\nX-Forwarded-For: {STRANGER}"),
              ("/staff/a.txt", f"X-Forwarded-For: {STRANGER}\r\nX-Real-IP: {STAFF}"), ("/staff/a.txt", f"X-Forwarded-For: {STRANGER}\r\nForwarded: for={STAFF}"),
              ("/staff/a.txt", f"X-Forwarded-For: {STAFF}, unknown"), ("/staff/a.txt", f"X-Forwarded-For: {STAFF}, 999.1.1.1")]

    def judge(case):
        path, fields = case
        response = target.get(path, f"{fields}\r\n", host=HOST, source=TRUSTED)
        return None if response.status in (400, 403) else f"status {response.status}"

    return each(cases, lambda cases: target.judge_each(cases, judge))


@attack("More requests than a limit allows, each in another form", "CWE-770, CWE-307", [RULES])
def limits(target):
    source = "127.0.0.99"
    fields = ["", "X-Key: 1", "X-Key: 1\r\nX-Key: 2", "X-Key:", *(field.format(f"192.0.2.{number}") for number, field in enumerate(FORWARDED))]
    paths = ("/limited/a.txt", "//limited/a.txt", "/limited/./a.txt", "/%6cimited/a.txt", f"http://{HOST}/limited/a.txt")
    statuses = []
    for number in range(30):
        field = fields[number % len(fields)]
        how = {"tls": True} if number % 5 == 4 and target.tls else {}
        response = target.get(paths[number % len(paths)], f"{field}\r\n" if field else "", host=HOST, source=source, **how)
        statuses.append(response.status)
    passed = statuses.count(200)
    require(passed <= 3, f"{passed} of 30 passed, of which 3 may: {statuses}")
    other = target.get("/limited/a.txt", host=HOST, source="127.0.0.98")
    require(other.status == 200, f"another client got {other.status}")
    return f"{passed} of 30 passed"


@attack("A banned client in other forms of its address, over TLS and to other sites", "CWE-290, CWE-178", [RULES])
def bans(target):
    # No client of this machine is banned, so they come through the proxy.
    first = target.get("/trap", f"X-Forwarded-For: {TRAPPED}\r\n", host=HOST, source=TRUSTED)
    require(first.status == 403, f"the trap responds with {first.status}")
    forms = [TRAPPED, f"::ffff:{TRAPPED}", "::ffff:cb00:7137", f"[::ffff:{TRAPPED}]:80", f"{TRAPPED}:80", f"{STRANGER}, {TRAPPED}", f"{TRAPPED}, {TRUSTED}",
             f"203.0.113.54, {TRAPPED}", f"203.0.113.54\r\nX-Forwarded-For: {TRAPPED}", f"{TRAPPED}\r\nX-Real-IP: {STRANGER}",
             f"{TRAPPED}\r\nForwarded: for={STRANGER}"]
    cases = [(form, host, tls) for form in forms for host in (HOST, "localhost") for tls in (False, True) if target.tls or not tls]

    def judge(case):
        form, host, tls = case
        response = target.get("/", f"X-Forwarded-For: {form}\r\n", host=host, source=TRUSTED, **({"tls": True} if tls else {}))
        return None if response.status in (400, 403) else f"status {response.status}"

    evidence = each(cases, lambda cases: target.judge_each(cases, judge))
    other = target.get("/", "X-Forwarded-For: 203.0.113.54\r\n", host=HOST, source=TRUSTED)
    require(other.status == 200, f"another client got {other.status}")
    return evidence
