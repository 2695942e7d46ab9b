"""Runs cases by `apus bench compare`, and takes from its reports what the page shows."""

import json
import statistics
import subprocess
import sys

from . import cases, host, servers

# Besides those that a case has goals for.
USUAL = ("rate", "cpu", "per-core", "cpu-behind", "per-core-behind", "p50", "p99", "p99-of-mean", "memory")


def run(case, options, binary, beside, say):
    """Medians over the rounds, by server, and the report that they are from."""
    chosen = [name for name in case.servers if _is_chosen(name, options, beside)]
    command = [*host.DEPENDENT, servers.generator(), "bench", "compare", case.path, "--json", "--case", case.name]
    if options.rounds:
        command += ["--rounds", options.rounds]
    # A number of requests has no duration.
    if options.seconds and "requests" not in case.load:
        command += ["--duration", f"{options.seconds}s"]
    for name, value in (("apus", binary), (cases.BESIDE, beside)):
        if value and name in case.values:
            command += ["--set", f"{name}={value}"]
    for name in chosen:
        command += ["--server", name]
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True)
    if not done.stdout:
        sys.exit(f"bench: apus bench compare failed: {case.name}")
    result = json.loads(done.stdout)
    reports = [report for file in result["files"] for report in file["reports"]]
    failures = [failure["cause"] for file in result["files"] for failure in file["failures"]]
    failures += [report["ended_by"] for report in reports if report["has_failed"]]
    if failures or len(reports) != 1:
        sys.exit(f"bench: {case.name} was not measured: {'; '.join(failures)}")
    rows = {}
    for server in reports[0]["servers"]:
        _check_handshakes(case, server)
        name = cases.name_of(server["name"])
        rows[name] = _row(case, server)
        words = "  ".join(f"{metric} {rows[name][metric]:,.2f}" for metric in ("requests_per_second", "cpu_us", "bytes") if metric in rows[name])
        say(f"  {case.name}  {name:<12}  {words}")
    return rows, reports[0]


def _is_chosen(name, options, beside):
    if name == cases.BESIDE:
        return beside is not None
    return not (options.without_apus if name in cases.OF_APUS else options.only_apus)


def _row(case, server):
    figures = server["figures"]
    wanted = {*USUAL, *(goal["figure"] for goal in case.entry.get("goal", ()))} - {"failed"}
    if case.is_of_memory:
        wanted &= cases.SIZES.keys()
    row = {}
    for figure in wanted & figures.keys():
        metric, factor = case.metric(figure)
        row[metric] = figures[figure] * factor
    # Connections that did not last count too.
    row["errors"] = round(figures["failed"] + figures.get("reconnects", 0))
    busy = [each["responses_per_second"] * each["cpu_per_response_us"] / 1e6 for each in server["rounds"] if each["cpu_per_response_us"]]
    if busy and not case.is_of_memory:
        row["busy"] = statistics.median(busy)
    return dict(sorted(row.items()))


def _check_handshakes(case, server):
    """A handshake that should resume a session and does not, or the other way round, is not what is measured."""
    if not case.load.get("close") or "no_resumption" not in case.load:
        return
    resumes = case.load["no_resumption"] is False
    for each in server["rounds"]:
        opened, resumed = each["connections_opened"], each["handshakes_resumed"]
        if abs(resumed - (opened if resumes else 0)) > opened / 100 + case.load["connections"]:
            sys.exit(f"bench: {resumed} of {opened} handshakes resumed a session: {server['name']} in {case.name}")
