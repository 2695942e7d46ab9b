"""Cases that `apus bench compare` makes: the files in `bench/cases`, which have the servers, the loads and the goals."""

import json
import statistics
import subprocess
import sys
import tomllib

from . import servers

FOLDER = servers.BENCH / "cases"
FILES = tuple(sorted(FOLDER.glob("*.toml")))

# The figures of a comparison, as the page names them.
METRICS = {"cpu": "cpu_us", "rate": "requests_per_second", "p99": "p99_us", "per-core": "per_core_second", "failed": "errors"}


def name_of(server):
    """The name on the page: there is a floor for each size."""
    return "floor" if server.startswith("floor of ") else server


def load():
    """The cases of each file, in the order of the file: the file, and each case as it is there."""
    for path in FILES:
        file = tomllib.loads(path.read_text())
        protocol = file.get("load", {}).get("protocol")
        for case in file["case"]:
            yield case, case["load"].get("protocol", protocol)


def run(case, rounds, seconds, binary, beside, chosen, say):
    """Medians over the rounds, by server. `chosen` says of a name whether that server is measured."""
    entry = next(entry for entry, _ in load() if entry["name"] == case.name)
    names = [server for server in entry["servers"] if chosen(name_of(server))]
    command = [servers.generator(), "bench", "compare", *FILES, "--json", "--case", case.name, "--rounds", rounds,
               "--duration", f"{seconds}s", "--set", f"beside={beside or 'none'}"]
    command += ["--set", f"apus={binary}"] if binary else []
    for name in names:
        command += ["--server", name]
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True)
    if not done.stdout:
        sys.exit(f"bench: apus bench compare failed: {case.name}")
    reports = [report for file in json.loads(done.stdout)["files"] for report in file["reports"]]
    if len(reports) != 1 or reports[0]["has_failed"]:
        sys.exit(f"bench: {case.name} was not measured: {reports and reports[0]['ended_by']}")
    result = {}
    for server in reports[0]["servers"]:
        _check_handshakes(entry, server)
        name = beside.name if server["name"] == "beside" else name_of(server["name"])
        result[name] = _row(server)
        say(f"  {case.name}  {name:<12}{result[name]['requests_per_second']:>10.0f}/s {result[name]['cpu_us']:>9.2f} us")
    return result


def _row(server):
    median = server["median"]
    cpu = median["cpu_per_response_us"]
    busy = [each["responses_per_second"] * each["cpu_per_response_us"] / 1e6 for each in server["rounds"]]
    return {
        "requests_per_second": median["responses_per_second"],
        "cpu_us": cpu,
        "busy": statistics.median(busy),
        "per_core_second": 1e6 / cpu,
        "p50_us": median["p50_ms"] * 1e3,
        "p99_us": median["p99_ms"] * 1e3,
        "peak_memory_bytes": median["memory_bytes"],
        # Connections that did not last count too.
        "errors": median["failed"] + (median["reconnects"] or 0),
    }


def _check_handshakes(entry, server):
    """A handshake that should resume a session and does not, or the other way round, is not what is measured."""
    if not entry["load"].get("close"):
        return
    resumes = entry["load"].get("no_resumption") is False
    for each in server["rounds"]:
        opened, resumed = each["connections_opened"], each["handshakes_resumed"]
        if abs(resumed - (opened if resumes else 0)) > opened / 100 + entry["load"]["connections"]:
            sys.exit(f"bench: {resumed} of {opened} handshakes resumed a session: {server['name']} in {entry['name']}")
