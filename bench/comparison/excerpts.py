"""The tables of figures in README, in each of its languages: some rows of the tables of BENCHMARKS.md."""

from dataclasses import dataclass

from .page import NAMES, number
from .servers import MB


@dataclass(frozen=True)
class Row:
    """A case, what it is called in each language, and which way to run Apus it shows."""

    case: str
    titles: dict
    apus: str = "apus"


LOADS = (
    Row("12b-c64", {"en": "12 B, 64 connections", "zh": "12 B，64 个连接"}),
    Row("10k-c64", {"en": "10 KB, 64 connections", "zh": "10 KB，64 个连接"}),
    Row("1m-c32", {"en": "1 MB, 32 connections", "zh": "1 MB，32 个连接"}),
    Row("tls-10k-c64", {"en": "10 KB over TLS 1.3", "zh": "10 KB，TLS 1.3"}),
    Row("h2-10k-c64", {"en": "10 KB over HTTP/2", "zh": "10 KB，HTTP/2"}),
    Row("h3-10k-c64", {"en": "10 KB over HTTP/3", "zh": "10 KB，HTTP/3"}),
    Row("handshakes", {"en": "a full TLS 1.3 handshake", "zh": "一次完整的 TLS 1.3 握手"}),
    Row("proxy-1k", {"en": "1 KB from an origin, proxied", "zh": "源站的 1 KB，反向代理"}),
    Row("cached-10k", {"en": "10 KB from an origin, cached", "zh": "源站的 10 KB，已缓存"}),
    Row("wordpress-cached-c10", {"en": "the front page of WordPress, 60 KB, cached, 10 connections",
                                 "zh": "WordPress 首页（60 KB），已缓存，10 个连接"}),
    Row("php-hello", {"en": "hello world of PHP, PHP-FPM", "zh": "PHP 的 hello world，经 PHP-FPM"}),
    Row("php-hello", {"en": "hello world of PHP, in memory", "zh": "PHP 的 hello world，常驻内存"}, "resident"),
    Row("idle-memory", {"en": "memory, idle", "zh": "空闲时的内存"}),
)
APPLICATIONS = (
    Row("framework-hello-c360", {"en": "a greeting", "zh": "一句问候"}),
    Row("framework-json-c360", {"en": "JSON", "zh": "JSON"}),
    Row("framework-page-c64", {"en": "a page from MariaDB, 64 connections", "zh": "来自 MariaDB 的页面，64 个连接"}),
)
PEERS = ("nginx", "floor")
FRAMEWORKS = ("hyper", "actix", "axum", "hyperlane", "rocket", "net/http", "gin", "node")
HEADERS = {"en": {"load": "load", "floor": "the floor"}, "zh": {"load": "负载", "floor": "下限"}}

# The tables by the names of their markers.
TABLES = {"loads": (LOADS, PEERS), "applications": (APPLICATIONS, FRAMEWORKS)}


def language_of(page):
    return "zh" if ".zh" in page.name else "en"


def table(name, language, results):
    """Markdown of a table, from the newest result of each case."""
    rows, peers = TABLES[name]
    words = HEADERS[language]
    headers = [words["load"] if name == "loads" else "", "Apus", *(words.get(peer, NAMES.get(peer, peer)) for peer in peers)]
    lines = ["| " + " | ".join(headers) + " |", "| --- |" + " ---: |" * (len(headers) - 1)]
    for row in rows:
        servers = results[row.case]["servers"]
        lines.append("| " + " | ".join([row.titles[language], *(_figure(servers.get(server)) for server in (row.apus, *peers))]) + " |")
    return "\n".join(lines)


def _figure(server):
    if server is None:
        return ""
    return f"{server['bytes'] / MB:.1f} MB" if "bytes" in server else number(server["cpu_us"]) + " us"
