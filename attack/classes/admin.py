"""The address of the operator: read by pages of other sites, by other machines, and taken by clients that hold it."""

from harness import http1
from harness.attack import ADMIN, attack, each, require

# What only the operator may read.
SECRET = "apus_connections"
PATHS = ("/metrics", "/status", "/")
STRANGER = "127.0.0.88"


def address(target):
    return "127.0.0.1", target.server.admin


def ask(target, request, **how):
    """The response at the address of the operator; none if the connection is closed."""
    with http1.Connection(address(target), **how) as connection:
        connection.send(request)
        return connection.read(request.partition(b" ")[0].decode())


def get(path="/metrics", host="127.0.0.1", fields="", method="GET"):
    return f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{fields}Connection: close\r\n\r\n".encode("latin-1")


def operator_is_served(target):
    response = ask(target, get(host="operator.test"))
    require(response is not None and response.status == 200 and SECRET in response.text, "the operator gets no metrics")


@attack("Pages whose name resolves to this machine (DNS rebinding)", "CWE-350", [ADMIN])
def names(target):
    operator_is_served(target)
    hosts = ("evil.test", "localhost.evil.test", "operator.test.evil.test", "127.0.0.1.evil.test", "evil.test:9180", "xlocalhost", "evil.localhost",
             "127.0.0.1@evil.test", "evil.test#127.0.0.1", "evil.test, 127.0.0.1", "2130706433", "0x7f000001", "")
    cases = [get(path, host) for path in PATHS for host in hosts]
    cases += [get(f"http://evil.test{path}") for path in PATHS]
    cases += [b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.test\r\nConnection: close\r\n\r\n", b"GET /metrics HTTP/1.0\r\n\r\n"]

    def judge(case):
        response = ask(target, case)
        return f"status {response.status}" if response and response.status < 400 else None

    return each(cases, lambda cases: target.judge_each(cases, judge))


@attack("Pages of another site that have a browser ask", "CWE-352, CWE-942", [ADMIN])
def pages(target):
    operator_is_served(target)
    origins = ("http://evil.test", "https://evil.test", "null", "http://127.0.0.1:1", "http://127.0.0.1.evil.test", "file://", "http://operator.test.evil.test")
    cases = [(method, path, origin) for method in ("GET", "POST", "OPTIONS", "DELETE") for path in PATHS for origin in origins]

    def judge(case):
        method, path, origin = case
        fields = f"Origin: {origin}\r\nAccess-Control-Request-Method: GET\r\nContent-Length: 0\r\n"
        response = ask(target, get(path, fields=fields, method=method))
        if response is None:
            return None
        if any(name.lower().startswith("access-control-") for name, _ in response.fields):
            return "the page may read the response"
        return f"status {response.status}" if response.status < 400 else None

    return each(cases, lambda cases: target.judge_each(cases, judge))


@attack("Clients that the configuration does not allow", "CWE-306", [ADMIN])
def strangers(target):
    operator_is_served(target)
    forged = ("", "X-Forwarded-For: 127.0.0.1\r\n", "Forwarded: for=127.0.0.1\r\n", "X-Real-IP: 127.0.0.1\r\n")
    cases = [(path, fields) for path in PATHS for fields in forged]

    def judge(case):
        path, fields = case
        try:
            response = ask(target, get(path, fields=fields), source=STRANGER)
        except ConnectionError:
            return None
        return f"status {response.status}" if response and response.status < 400 else None

    return each(cases, lambda cases: target.judge_each(cases, judge))


@attack("Forged, guessed and missing tokens", "CWE-306, CWE-345", [ADMIN])
def tokens(target):
    operator_is_served(target)
    forged = ("", "Authorization: Bearer\r\n", "Authorization: Bearer apus_" + "0" * 64 + "\r\n", "Authorization: Bearer apus_session_" + "0" * 64 + "\r\n",
              "Authorization: Basic b3BlcmF0b3I6\r\n", "Authorization: Bearer null\r\nAuthorization: Bearer undefined\r\n", "Cookie: token=apus_0\r\n",
              "X-Forwarded-User: operator\r\n", "X-Real-IP: 127.0.0.1\r\nX-Forwarded-For: 127.0.0.1\r\n")
    cases = [("GET", path, fields) for path in ("status", "sites", "bans", "audit", "session", "config", "config/versions", "config/version?id=1", "../../api/v1/status")
             for fields in forged]
    cases += [(method, path, fields) for method, path in (("POST", "reload"), ("POST", "bans"), ("DELETE", "bans?network=10.0.0.1"), ("PUT", "maintenance"),
                                                         ("PUT", "config"), ("PATCH", "config"), ("POST", "config/restore"), ("POST", "config/check"))
              for fields in forged]

    def judge(case):
        method, path, fields = case
        body = "" if method == "GET" else "Content-Length: 0\r\n"
        response = ask(target, get(f"/api/v1/{path}", fields=fields + body, method=method))
        return f"status {response.status}" if response and response.status < 400 else None

    return each(cases, lambda cases: target.judge_each(cases, judge))


@attack("Codes and passwords that are guessed", "CWE-307", [ADMIN])
def guesses(target):
    operator_is_served(target)
    statuses = []
    for number in range(40):
        body = f'{{"code":"{number:032x}"}}'
        fields = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        response = ask(target, get("/api/v1/session", fields=fields, method="POST") + body.encode())
        statuses.append(response.status if response else 0)
    require(200 not in statuses, "a guess was a log-in")
    require(statuses.count(401) <= 10 and statuses[-1] == 429, f"guesses are not limited: {statuses}")
    operator_is_served(target)
    return f"{len(statuses)} guesses"


@attack("What the operator reads, by the addresses of the sites", "CWE-668", [ADMIN])
def through_sites(target):
    hosts = ("localhost", "127.0.0.1", "operator.test", f"127.0.0.1:{target.server.admin}")
    cases = [(path, host) for path in ("/metrics", "/status", "//metrics", "/%6detrics", "/api/../metrics") for host in hosts]

    def judge(case):
        path, host = case
        response = target.get(path, host=host)
        return f"status {response.status} with metrics" if SECRET in response.text else None

    each(cases, lambda cases: target.judge_each(cases, judge))
    operator_is_served(target)
    return f"{len(cases)} cases"


@attack("Connections that take all places and say nothing", "CWE-400, CWE-770", [ADMIN])
def held_connections(target):
    held = []
    try:
        for source, count in ((STRANGER, 150), ("127.0.0.89", 150), (None, 60)):
            for _ in range(count):
                try:
                    held.append(http1.Connection(address(target), source=source, timeout=2))
                    held[-1].send(b"GET /metrics HT")
                except OSError:
                    pass
        response = ask(target, get(), timeout=5)
        require(response is not None and response.status == 200, "the operator gets no metrics while others hold connections")
    finally:
        for connection in held:
            connection.socket.close()
    return f"{len(held)} connections"
