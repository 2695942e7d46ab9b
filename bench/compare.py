#!/usr/bin/env python3
"""Apus, nginx, H2O, HAProxy, Varnish, web frameworks and the floors, side by side on one machine. BENCHMARKS.md explains the method."""

import argparse
import datetime
import json
import statistics
import sys
import tomllib
from pathlib import Path

from comparison import cases, compared, excerpts, host, page, report, servers

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "BENCHMARKS.md"
# With tables of some of its figures.
READMES = (ROOT / "README.md", ROOT / "README.zh-CN.md")
# The runs that the page shows; the others are kept apart.
RESULTS = servers.BENCH / "results"
TRIALS = servers.BUILD / "results"
REASONS = servers.BENCH / "reasons.toml"
MARKERS = "<!-- {}: begin -->", "<!-- {}: end -->"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    names = [case.name for case in cases.ALL]
    parser.add_argument("--rounds", type=int, help="rounds of each case (default: as its file says)")
    parser.add_argument("--seconds", type=int, help="seconds of load in a round, where no number of requests ends it (default: as the file of the case says)")
    parser.add_argument("--case", action="append", choices=names, metavar="NAME", help="only this case; may be repeated")
    parser.add_argument("--apus", type=Path, help="an apus binary, instead of building this checkout's")
    parser.add_argument("--beside", type=Path, metavar="BINARY", help="another apus binary (of embedded cases: libapus_capi.a), measured in the same rounds as the server `beside`")
    parser.add_argument("--only-apus", action="store_true", help="without the others")
    parser.add_argument("--without-apus", action="store_true", help="the others alone")
    parser.add_argument("--write", action="store_true",
                        help="store the run in bench/results and put it into BENCHMARKS.md; with --case the other cases stay")
    parser.add_argument("--report", action="store_true",
                        help="run nothing; write BENCHMARKS.md and the tables of README from the newest result of each case in bench/results")
    return parser.parse_args()


def main():
    options = arguments()
    host.end_in_order()
    if options.report:
        write_page()
        return
    host.install_what_is_missing()
    host.raise_descriptor_limit()
    chosen = [case for case in cases.ALL if not options.case or case.name in options.case]
    binary = None
    if not options.without_apus and any("apus" in case.values for case in chosen):
        binary = (options.apus or servers.build_apus()).resolve()
    beside = options.beside and options.beside.resolve()

    def say(line):
        if sys.stderr.isatty():
            print(line, file=sys.stderr, flush=True)

    results = {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC"),
        "host": host.describe(),
        "cases": {},
    }
    reports = {}
    for case in chosen:
        by_server, reports[case] = compared.run(case, options, binary, beside, say)
        results["cases"][case.name] = {
            "servers": by_server, "verdicts": report.verdicts(case, by_server), "date": results["date"]}
    results["host"] |= page.peer_versions(reports)
    # Of most of the cases: some have others.
    results["rounds"] = statistics.mode(one["rounds"] for one in reports.values())
    results["seconds"] = round(statistics.mode(one["seconds_of_load"] for one in reports.values()))

    print(report.terminal(results))
    stored = store(results, RESULTS if options.write else TRIALS)
    print(f"\nstored in {stored.relative_to(ROOT)}")
    if options.write:
        write_page()


def store(results, folder):
    folder.mkdir(parents=True, exist_ok=True)
    stamp = results["date"].removesuffix(" UTC").replace(" ", "-").replace(":", "")
    path = folder / f"{stamp}.json"
    path.write_text(json.dumps(results, indent=1) + "\n")
    return path


def newest_results(folder):
    """The stored runs by name, and the newest result of each case."""
    runs, found = {}, {}
    for path in sorted(folder.glob("2*.json")):
        run = runs[path.stem] = json.loads(path.read_text())
        for name, result in run["cases"].items():
            # Older runs also have the results that they did not replace.
            is_of_run = result.get("date", run["date"]) == run["date"]
            if is_of_run and name in page.BY_NAME and "apus" in result["servers"]:
                found[name] = {"servers": page.known_servers(result["servers"]), "run": path.stem}
    return runs, found


def replaced(text, name, table):
    """The text of a page with other lines between the markers of a name."""
    begin, end = (marker.format(name) for marker in MARKERS)
    before, _, rest = text.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        sys.exit(f"bench: a page lacks {begin} or {end}")
    return f"{before}{begin}\n\n{table}\n{end}{after}"


def rendered(text, folder=RESULTS):
    """The text of the page with the figures of a folder in it, and the cases that missed a goal for no written reason."""
    runs, results = newest_results(folder)
    reasons = tomllib.loads(REASONS.read_text())["reason"]
    return replaced(text, "figures", page.figures(runs, results, reasons)), page.unexplained(results, reasons)


def rendered_readme(path, folder=RESULTS):
    """The text of a README with the figures of a folder in its tables."""
    _, results = newest_results(folder)
    text = path.read_text()
    for name in excerpts.TABLES:
        text = replaced(text, name, excerpts.table(name, excerpts.language_of(path), results) + "\n")
    return text


def write_page():
    text, unexplained = rendered(PAGE.read_text())
    PAGE.write_text(text)
    for path in READMES:
        path.write_text(rendered_readme(path))
    print("wrote BENCHMARKS.md and the tables of README")
    if unexplained:
        sys.exit(f"bench: {', '.join(unexplained)} missed a goal: write the reason in {REASONS.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
