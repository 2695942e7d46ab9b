"""What is measured, and what is to be reached."""

from dataclasses import dataclass

from . import compared

KB = 1024
MB = 1024 * KB

# Every file that a server serves.
FILES = {
    "/12b.html": 12,
    "/1k.html": KB,
    "/10k.html": 10 * KB,
    "/100k.bin": 100 * KB,
    "/1m.bin": MB,
    "/10m.bin": 10 * MB,
}


@dataclass(frozen=True)
class Target:
    """`metric` of Apus, divided by that of `versus` (nothing: as it is; several: the best of them), against a bound."""

    metric: str
    versus: str | tuple
    bound: float
    at_least: bool = False
    # Which of several ways to run Apus it is about.
    of: str = "apus"

    def is_met(self, value):
        return value >= self.bound if self.at_least else value <= self.bound

    def words(self):
        return ("at least " if self.at_least else "at most ") + f"{self.bound:.3g}"


def _target(goal):
    of = goal.get("of")
    return Target(compared.METRICS[goal["figure"]], "" if of is None else compared.name_of(of), goal.get("most", goal.get("least")),
                  at_least="least" in goal)


@dataclass(frozen=True)
class Case:
    """A load on files, of `bench/cases`, which `apus bench compare` makes."""

    name: str
    title: str
    protocol: str = ""
    targets: tuple = ()

    @property
    def is_http2(self):
        return self.protocol == "h2"

    @property
    def is_http3(self):
        return self.protocol == "h3"


# The files are sorted by their names, and the page has HTTP/1.1 first.
_OF_FILES = tuple(Case(entry["name"], entry["title"], protocol or "", tuple(_target(goal) for goal in entry.get("goal", ())))
                  for entry, protocol in compared.load())
CASES = tuple(case for case in _OF_FILES if not case.is_http3)
HTTP3_CASES = tuple(case for case in _OF_FILES if case.is_http3)


def _cpu(versus, bound):
    return Target("cpu_us", versus, bound)


NO_ERROR = Target("errors", "", 0)


@dataclass(frozen=True)
class MemoryCase:
    """Memory of a server that waits: with nothing open, or per connection that had one response."""

    name: str
    title: str
    connections: int
    tls: bool = False
    http3: bool = False
    targets: tuple = ()
    is_http2 = has_floor = False


MEMORY_CASES = (
    MemoryCase("idle-memory", "idle memory", 0, targets=(Target("bytes", "", 12 * MB),)),
    MemoryCase("idle-clear", "idle keep-alive connection, clear", 8000,
               targets=(Target("bytes", "", 4 * KB),)),
    MemoryCase("idle-tls", "idle keep-alive connection, TLS", 2000, tls=True,
               targets=(Target("bytes", "", 20 * KB),)),
    MemoryCase("idle-h3", "idle HTTP/3 connection", 2000, http3=True,
               targets=(Target("bytes", "nginx", 1.0), Target("bytes", "", 16 * KB))),
)


@dataclass(frozen=True)
class PeakCase:
    """By how much the largest resident set of a new server grows under an HTTP/2 load."""

    name: str
    title: str
    path: str
    connections: int
    streams: int
    # Requests over each connection.
    each: int
    targets: tuple = ()
    is_http2 = True
    has_floor = False


PEAK_CASES = (
    PeakCase("h2-memory", "peak of HTTP/2, 1,000 connections x 10 of 100 KB", "/100k.bin", 1000, 10, 20,
             targets=(Target("bytes", "nginx", 0.5), NO_ERROR)),
)

# What servers in front of an origin do.
PASS, CACHED, QUEUE = "pass", "cached", "queue"


@dataclass(frozen=True)
class ProxyCase:
    """One load on each server in turn, which gets the responses from an origin or from its own cache."""

    name: str
    title: str
    kind: str
    # Bytes of the response.
    size: int
    connections: int
    rivals: tuple
    targets: tuple = ()
    path: str = "/"
    # Whether the requests have the fields of a browser's, and the origin's responses those of an application's.
    browser: bool = False
    # Requests that each connection of a client has open at once, over HTTP/2 and TLS; 0 is HTTP/1.1 in clear text.
    streams: int = 0
    close = has_floor = False

    @property
    def is_http2(self):
        return self.streams > 0

    @property
    def tls(self):
        return self.is_http2


@dataclass(frozen=True)
class DownloadCase:
    """Readers of one large file that is cached: bytes per second, and by how much the server grows."""

    name: str
    title: str
    size: int
    readers: int
    rivals: tuple
    targets: tuple = ()
    path: str = "/large.bin"
    kind = CACHED
    tls = browser = has_floor = is_http2 = False


@dataclass(frozen=True)
class QueueCase:
    """More clients than an origin works for at a time."""

    name: str
    title: str
    connections: int
    # What the origin does at once, and how long each takes.
    at_a_time: int
    milliseconds: int
    rivals: tuple
    targets: tuple = ()
    path: str = "/"
    kind = QUEUE
    tls = close = browser = has_floor = is_http2 = False

    @property
    def limit(self):
        """Responses of the origin per second."""
        return self.at_a_time * 1000 / self.milliseconds


_PROXIES = ("nginx", "haproxy", "floor")
_AS_CACHE = (_cpu("nginx", 0.60), _cpu("varnish", 0.60), NO_ERROR)


def _as_proxy(of_nginx, of_haproxy):
    return _cpu("nginx", of_nginx), _cpu("haproxy", of_haproxy), NO_ERROR


PROXY_CASES = (
    ProxyCase("proxy-1k", "1 KB of an origin, 64 connections", PASS, KB, 64, _PROXIES, _as_proxy(0.85, 0.85)),
    ProxyCase("proxy-1k-browser", "1 KB of an origin, a browser's head", PASS, KB, 64, _PROXIES,
              _as_proxy(0.85, 0.85), browser=True),
    ProxyCase("proxy-10k", "10 KB of an origin, 64 connections", PASS, 10 * KB, 64, _PROXIES, _as_proxy(0.80, 0.80)),
    ProxyCase("proxy-100k", "100 KB of an origin, 64 connections", PASS, 100 * KB, 64, _PROXIES, _as_proxy(0.80, 0.80)),
    ProxyCase("proxy-h2-1k", "HTTP/2, 1 KB of an origin, 64 x 10", PASS, KB, 64,
              ("nginx", "haproxy"), _as_proxy(0.60, 0.80), streams=10),
    ProxyCase("cached-10k", "10 KB that is cached, 64 connections", CACHED, 10 * KB, 64, ("nginx", "varnish"),
              _AS_CACHE),
)

DOWNLOAD_CASES = (
    DownloadCase("cached-1g", "1 GB that is cached, 10 readers", 1024 * MB, 10, ("nginx",),
                 (Target("bytes_per_second", "nginx", 1.0, at_least=True), Target("growth_bytes", "", 8 * MB), NO_ERROR)),
)

QUEUE_CASES = (
    QueueCase("slow-origin", "an origin that does 50 at a time, 50 ms each, 500 connections", 500, 50, 50,
              ("nginx", "haproxy"),
              (NO_ERROR, Target("p99_of_mean", "", 1.5), Target("of_limit", "", 0.95, at_least=True))),
)



@dataclass(frozen=True)
class PhpCase:
    """PHP behind each server in turn: one load, and what it costs the server and PHP, apart."""

    name: str
    title: str
    # The requested application; `comparison/php.py` knows where it is.
    kind: str
    path: str
    connections: int
    targets: tuple = ()
    cached: bool = False
    # Whether there is a queue, whose clients are looked after one by one.
    crowded: bool = False
    # How the application takes requests if it stays in memory, as `mode` of its workers; nothing: it does not.
    resident: str = ""
    # Whether that is measured behind a reverse proxy, too.
    proxied: bool = False
    rivals: tuple = ("nginx",)
    tls = close = browser = is_http2 = False

    @property
    def has_floor(self):
        return self.cached


# As it is by default, and with connections to PHP-FPM that stay open.
_NGINX_OF_PHP = ("nginx", "nginx-keepalive")

PHP_CASES = (
    PhpCase("wordpress-c10", "WordPress front page, 10 connections", "wordpress", "/", 10,
            (Target("requests_per_second", _NGINX_OF_PHP, 1.0, at_least=True), NO_ERROR), rivals=_NGINX_OF_PHP),
    PhpCase("wordpress-c500", "WordPress front page, 500 connections", "wordpress", "/", 500,
            (Target("p99_of_mean", "", 1.5), NO_ERROR), crowded=True),
    PhpCase("wordpress-cached-c10", "WordPress front page, cached, 10 connections", "wordpress", "/", 10,
            (Target("per_core_second", "nginx", 1.5, at_least=True), NO_ERROR), cached=True),
    PhpCase("wordpress-cached-c500", "WordPress front page, cached, 500 connections", "wordpress", "/", 500,
            (Target("per_core_second", "nginx", 1.5, at_least=True), NO_ERROR), cached=True),
    PhpCase("php-example", "example application, 100 connections", "example", "/users/7", 100,
            (Target("requests_per_second", "nginx", 4.0, at_least=True, of="resident"), NO_ERROR,
             Target("errors", "", 0, of="resident")), resident="native"),
    PhpCase("php-rabbit", "page with Eloquent and Blade, 100 connections", "rabbit", "/", 100,
            (Target("requests_per_second", "nginx", 4.0, at_least=True, of="resident"),
             Target("requests_per_second", "resident", 0.95, at_least=True, of="resident-behind-nginx"),
             NO_ERROR, Target("errors", "", 0, of="resident"), Target("errors", "", 0, of="resident-behind-nginx")),
            resident="native", proxied=True),
    PhpCase("php-hello", "hello world of PHP, 64 connections", "hello", "/hello.php", 64,
            (Target("cpu_us", "", 60, of="resident"), Target("php_per_core_second", "", 20_000, at_least=True, of="resident"),
             _cpu("nginx-keepalive", 0.80), _cpu("nginx", 0.60), NO_ERROR, Target("errors", "", 0, of="resident")),
            resident="worker", rivals=_NGINX_OF_PHP),
)


@dataclass(frozen=True)
class FrameworkCase:
    """One load on the same application with each framework in turn."""

    name: str
    title: str
    path: str
    connections: int
    # Those that it is written with, besides Apus; `comparison/frameworks.py` knows them.
    rivals: tuple
    targets: tuple = ()
    close: bool = False
    # Whether there is a database behind it.
    database: bool = False
    # The JSON that is sent with POST; nothing: GET.
    body: str = ""
    tls = browser = has_floor = is_http2 = False


_FRAMEWORKS = ("hyper", "axum", "actix", "rocket", "hyperlane", "net/http", "gin", "node")


def _per_core(versus, bound):
    return Target("per_core_second", versus, bound, at_least=True)


# A JSON body whose fields have rules, in the form of the validator of each framework.
ORDER = ('{"customer":"Ada Lovelace","email":"ada@example.org","items":[{"product":"swift","quantity":2,"cents":1999},'
         '{"product":"martin","quantity":1,"cents":2450},{"product":"nest box","quantity":3,"cents":3500}]}')

_AHEAD = (_per_core("hyper", 1.15), _per_core("actix", 1.15), _per_core(_FRAMEWORKS, 1.0), NO_ERROR)

FRAMEWORK_CASES = (
    FrameworkCase("framework-hello-c360", "hello, 360 connections", "/hello/world", 360, ("raw", *_FRAMEWORKS), _AHEAD),
    FrameworkCase("framework-json-c360", "JSON, 360 connections", "/json/7", 360, ("raw", *_FRAMEWORKS), _AHEAD),
    FrameworkCase("framework-close-c360", "hello, Connection: close, 360 at a time", "/hello/world", 360, ("raw", *_FRAMEWORKS),
                  (_per_core(_FRAMEWORKS, 1.0), NO_ERROR), close=True),
    FrameworkCase("framework-hello-c1000", "hello, 1,000 connections", "/hello/world", 1000, ("raw", *_FRAMEWORKS), _AHEAD),
    FrameworkCase("framework-page-c64", "page with a row of a database, 64 connections", "/users/7", 64, ("axum", "axum-no-ping", "gin"),
                  (_per_core("axum", 1.2), _per_core("gin", 1.0), NO_ERROR), database=True),
    FrameworkCase("framework-valid-c64", "JSON that is validated, by POST, 64 connections", "/orders", 64, ("axum", "gin"),
                  (_per_core("axum", 1.1), _per_core("gin", 1.0), NO_ERROR), body=ORDER),
)


@dataclass(frozen=True)
class EmbeddedCase:
    """One load on a C program with each embedded server in turn; all respond from memory."""

    name: str
    title: str
    path: str
    connections: int
    targets: tuple = ()
    # `comparison/embedded.py` knows them.
    rivals: tuple = ("apus-rust", "libmicrohttpd", "civetweb", "libh2o")
    tls = close = browser = is_http2 = False
    has_floor = True

    @property
    def size(self):
        return FILES[self.path]


EMBEDDED_PATHS = ("/12b.html", "/1k.html", "/10k.html", "/100k.bin")


def _embedded(name, title, path, connections):
    peers = tuple(_cpu(peer, 0.70) for peer in ("libmicrohttpd", "civetweb", "libh2o"))
    return EmbeddedCase(f"c-{name}-c{connections}", f"{title}, {connections} connections", path, connections,
                        (_cpu("apus-rust", 1.05), *peers, Target("p99_of_p50", "", 3.0), NO_ERROR))


EMBEDDED_CASES = tuple(
    _embedded(name, title, path, connections)
    for name, title, path in (("12b", "12 B", "/12b.html"), ("1k", "page of 1 KB", "/1k.html"), ("10k", "10 KB", "/10k.html"),
                              ("100k", "100 KB", "/100k.bin"))
    for connections in (50, 100)
)

ALL = (*CASES, *HTTP3_CASES, *MEMORY_CASES, *PEAK_CASES, *PROXY_CASES, *DOWNLOAD_CASES, *QUEUE_CASES, *PHP_CASES, *FRAMEWORK_CASES, *EMBEDDED_CASES)
