"""The figures of BENCHMARKS.md: a table for each kind of load, and below it the goals that were missed, with their reasons."""

import textwrap
from dataclasses import dataclass, replace

from . import report
from .cases import ALL, MB, OF_APUS, of_files

BY_NAME = {case.name: case for case in ALL}
NAMES = {"apus": "Apus", "resident": "Apus, resident", "resident-behind-nginx": "nginx and Apus, resident", "h2o": "H2O",
         "haproxy": "HAProxy", "varnish": "Varnish", "floor": "the floor", "raw": "raw tokio", "actix": "actix-web",
         "rocket": "Rocket", "hyperlane": "Hyperlane", "gin": "Gin", "node": "Node", "apus-rust": "Apus in Rust",
         "civetweb": "CivetWeb", "without": "Apus without"}
SIZES = {"bytes", "growth_bytes"}
# Columns of Apus's own figures.
COLUMNS = {"requests_per_second": "requests/s", "cpu_us": "CPU, us", "php_cpu_us": "PHP's CPU, us", "busy": "core busy",
           "per_core_second": "requests/s of a core", "bytes": "Apus", "p99_us": "p99, ms (nginx)"}
LOAD = ("requests_per_second", "cpu_us", "busy", "p99_us")


@dataclass(frozen=True)
class Table:
    """One row for each case, with ratios of one metric of Apus to the same metric of each peer."""

    title: str
    cases: tuple
    peers: tuple
    metric: str = "cpu_us"
    columns: tuple = LOAD


TABLES = (
    Table("Files over HTTP/1.1", [case for case in of_files("http1", "tls") if not case.is_http2], ("nginx", "floor")),
    Table("Files over HTTP/2", [case for case in of_files("tls") if case.is_http2], ("nginx", "h2o")),
    Table("Files over HTTP/3", of_files("http3"), ("nginx", "quinn")),
    Table("Proxy and cache", of_files("proxies", "downloads", "queues"), ("nginx", "haproxy", "varnish", "floor")),
    Table("Rules and limits", of_files("limits"), ("without", "nginx", "haproxy")),
    Table("What it costs to observe requests", of_files("observation"), ("without", "records", "traces")),
    Table("PHP", of_files("php"), ("nginx", "nginx-keepalive", "floor"),
          columns=("requests_per_second", "cpu_us", "php_cpu_us", "busy", "p99_us")),
    Table("Frameworks", of_files("frameworks", "frameworks-page"),
          ("raw", "hyper", "axum", "axum-no-ping", "actix", "rocket", "hyperlane", "net/http", "gin", "node"),
          "per_core_second", ("per_core_second",)),
    Table("Embedded in a C program", of_files("embedded"), ("apus-rust", "libmicrohttpd", "civetweb", "libh2o", "floor")),
    Table("Memory", of_files("memory", "memory-http3", "memory-peak"), ("nginx", "h2o"), "bytes", ("bytes",)),
)

# What the peers of some files are called together, by the names of the files.
PEERS = {"frameworks": "frameworks", "frameworks-page": "frameworks", "embedded": "embedded"}


def peer_versions(reports):
    """Of those that no other run tells, from the reports of cases."""
    found = {}
    for case, report in reports.items():
        versions = {server["name"]: server["version"] for server in report["servers"] if server["version"]}
        if case.file in PEERS:
            peers = [version for name, version in versions.items() if not version.startswith("apus ")]
            found[PEERS[case.file]] = list(dict.fromkeys([*found.get(PEERS[case.file], ()), *peers]))
        elif case.load.get("protocol") == "h3" and "nginx" in versions:
            found["nginx-http3"] = [versions["nginx"].removeprefix("nginx version: ")]
            if "quinn" in versions:
                found["nginx-http3"].append(versions["quinn"])
    return {name: ", ".join(versions) for name, versions in found.items()}


def known_servers(servers):
    """Without other builds of Apus."""
    known = set(OF_APUS).union(*(table.peers for table in TABLES))
    return {name: row for name, row in servers.items() if name in known}


def figures(runs, results, reasons):
    """Markdown, from the runs by name, the result of each case, and why goals are missed."""
    parts = [_origin(runs, results)]
    for table in TABLES:
        cases = [case for case in table.cases if case.name in results]
        # A peer that no run has measured yet has no column.
        measured = {server for case in cases for server in results[case.name]["servers"]}
        table = replace(table, peers=tuple(peer for peer in table.peers if peer in measured))
        rows = [row for case in cases for row in _rows(table, case, results[case.name])]
        if rows:
            parts += [f"### {table.title}", "\n".join([*_header(table), *rows])]
            parts += _falls_short({case.name: results[case.name] for case in cases}, reasons)
    parts += [_errors(results), _summary(results)]
    return "\n\n".join(parts) + "\n"


def _extent(rounds, seconds):
    extent = "1 round" if rounds == 1 else f"{rounds} rounds"
    # A number of requests, or of connections, may end a round.
    return f"{extent} of {seconds} s" if seconds else f"{extent} of a number of requests"


def _origin(runs, results):
    """On what, with what and when it was measured."""
    used = sorted({result["run"] for result in results.values()})

    def version(name):
        """As the newest run tells it that has it."""
        return next((runs[run]["host"][name] for run in reversed(used) if runs[run]["host"].get(name)), None)

    versions = [version(name) for name in ("nginx", "h2o", "haproxy", "varnish", "frameworks", "embedded")]
    of_http3 = version("nginx-http3")
    versions = [*filter(None, versions), *([f"over HTTP/3 {of_http3}"] if of_http3 else [])]
    by_host = {}
    for name in used:
        run = runs[name]
        host = f"{run['host']['cpu']} ({run['host']['cores']} cores, Linux {run['host']['kernel'].split('-')[0]})"
        by_host.setdefault((host, run["rounds"], run["seconds"]), []).append(
            f"[{name}](bench/results/{name}.json) at {run['host']['commit']}")
    # A list, as machines differ: rows of one are not to be compared with rows of another.
    lines = [f"- {host}, {_extent(rounds, seconds)}: {', '.join(stored)}." for (host, rounds, seconds), stored in by_host.items()]
    return "\n".join([_wrapped(f"Measured with {', '.join(versions)}. The runs:", ""), "", *map(_wrapped, lines)])


def _header(table):
    headers = ["load", *(COLUMNS[metric] for metric in table.columns), *(f"of {NAMES.get(peer, peer)}" for peer in table.peers),
               "goals met", "run"]
    right = len(headers) - 2
    return ["| " + " | ".join(headers) + " |", "| --- |" + " ---: |" * right + " --- |"]


def _rows(table, case, result):
    """The row of a case, and another for each further way to run Apus."""
    servers = result["servers"]
    verdicts = _verdicts(case, result)
    for server in OF_APUS:
        if server not in servers:
            continue
        title = case.title if server == "apus" else f"the same, {server.replace('-', ' ')}"
        if table.title.endswith(("HTTP/2", "HTTP/3")):
            title = title.partition(", ")[2]
        yield "| " + " | ".join([
            f"{title} `{case.name}`",
            *(_cell(metric, servers[server], servers.get("nginx", {})) for metric in table.columns),
            *(_ratio(servers[server], servers.get(peer, {}), table.metric) for peer in table.peers),
            _met([verdict for verdict in verdicts if verdict["of"] == server]),
            result["run"],
        ]) + " |"


def _cell(metric, row, nginx):
    if metric == "requests_per_second" and "growth_bytes" in row:
        return f"{row['bytes_per_second'] / MB:,.0f} MB/s"
    if metric not in row:
        return ""
    if metric == "p99_us":
        return number(row[metric] / 1000) + (f" ({number(nginx[metric] / 1000)})" if metric in nginx else "")
    if metric == "busy":
        return f"{row[metric]:.0%}"
    return _value(metric, row[metric]).removesuffix(" us")


def _ratio(row, peer, metric):
    return f"{row[metric] / peer[metric]:.2f}" if metric in row and peer.get(metric) else ""


def _verdicts(case, result):
    """Of the goals that the case has today. That no request fails is said once for all cases, unless one does."""
    return [verdict for verdict in report.verdicts(case, result["servers"]) if verdict["metric"] != "errors" or not verdict["met"]]


def _met(verdicts):
    """How many goals are met; bold if one is not."""
    met = sum(verdict["met"] for verdict in verdicts)
    text = f"{met} of {len(verdicts)}" if verdicts else ""
    return text if met == len(verdicts) else f"**{text}**"


def _goals(verdicts):
    """Goals that were missed, and what was reached."""
    by_bound = {}
    for verdict in verdicts:
        metric, versus = verdict["metric"], verdict["versus"]
        bound, reached = (f"{verdict['bound']:.3g}", f"{verdict['reached']:#.3g}") if versus else (
            _value(metric, verdict["bound"]), _value(metric, verdict["reached"]))
        peer = f" of {NAMES.get(versus, versus)}" + (" (the best)" if verdict["best"] else "") if versus else ""
        by_bound.setdefault(f"{report.METRICS[metric]} {'≥' if verdict['at_least'] else '≤'} {bound}", []).append(f"{peer}: {reached}")
    return "; ".join(bound + ",".join(reached) for bound, reached in by_bound.items())


def _errors(results):
    found = [f"{NAMES.get(server, server)} {row['errors']:,} in `{name}`" for name, result in results.items()
             for server, row in result["servers"].items() if row.get("errors")]
    return f"Errors: {', '.join(found)}; of others none." if found else "No server had an error in any case."


def missed(results):
    """The missed goals of each case that has some."""
    found = {}
    for name, result in results.items():
        verdicts = [verdict for verdict in _verdicts(BY_NAME[name], result) if not verdict["met"]]
        for server in OF_APUS:
            goals = _goals([verdict for verdict in verdicts if verdict["of"] == server])
            if goals:
                found.setdefault(name, []).append(goals if server == "apus" else f"{server}: {goals}")
    return found


def unexplained(results, reasons):
    """Cases that missed a goal for which no reason is written."""
    return sorted(missed(results).keys() - {name for reason in reasons for name in reason["cases"]})


def _falls_short(results, reasons):
    """The missed goals of the cases of a table: a list of groups, each with the reason of its cases."""
    found = missed(results)
    groups = [([name for name in reason["cases"] if name in found], " ".join(reason["why"].split())) for reason in reasons]
    groups.append((unexplained(results, reasons), "No reason is known yet."))
    items = []
    for names, why in groups:
        if not names:
            continue
        goals = [f"  - `{name}`: {'; '.join(found[name])}" for name in names]
        items.append("\n".join(["- " + _wrapped(why), *goals]))
    return ["Goals that are missed, and why:", "\n".join(items)] if items else []


def _wrapped(text, indent="  "):
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _summary(results):
    verdicts = [verdict for name, result in results.items() for verdict in _verdicts(BY_NAME[name], result)]
    return f"{sum(verdict['met'] for verdict in verdicts)} of {len(verdicts)} goals are met."


def _value(metric, value):
    if metric in SIZES:
        return f"{value / MB:.1f} MB" if value >= MB or not value else f"{value:,.0f} B"
    return number(value) + (" us" if metric == "cpu_us" else "")


def number(value):
    """Three digits that matter, and the whole number where it has more."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
