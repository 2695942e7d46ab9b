#!/usr/bin/env python3
"""Apus, nginx, H2O, HAProxy, Varnish, web frameworks and the floors, side by side on one machine. BENCHMARKS.md explains the method."""

import argparse
import contextlib
import datetime
import json
import sys
from pathlib import Path

from comparison import cases, frameworks, host, measure, php, proxies, report, servers

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).resolve().parent / "results"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    names = [case.name for case in cases.ALL]
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each case (default 5)")
    parser.add_argument("--seconds", type=int, default=3, help="seconds of load in a round (default 3)")
    parser.add_argument("--case", action="append", choices=names, help="only this case; may be repeated")
    parser.add_argument("--apus", type=Path, help="an apus binary, instead of building this checkout's")
    parser.add_argument("--beside", type=Path, action="append", default=[], metavar="BINARY",
                        help="another apus binary, measured in the same rounds under its file's name; may be repeated")
    parser.add_argument("--without-apus", action="store_true", help="the others alone")
    parser.add_argument("--write", action="store_true",
                        help="put the figures into BENCHMARKS.md; with --case the others stay as they were")
    return parser.parse_args()


def main():
    options = arguments()
    before = last_written() if options.write and options.case else None
    if before and (before["rounds"], before["seconds"]) != (options.rounds, options.seconds):
        sys.exit(f"bench: the other figures are of {before['rounds']} rounds of {before['seconds']} s; these have to be, too")
    host.install_what_is_missing()
    host.raise_descriptor_limit()
    servers.build_origins()
    chosen = [case for case in cases.ALL if not options.case or case.name in options.case]
    with_frameworks = [case for case in chosen if isinstance(case, cases.FrameworkCase)]
    binary = None
    beside = {path.name: path.resolve() for path in options.beside}
    if not options.without_apus and len(chosen) > len(with_frameworks):
        binary = options.apus or servers.build_apus()
    frameworks.build({frameworks.APUS}.union(*(case.rivals for case in with_frameworks)) if with_frameworks else set())
    servers.prepare(cases.FILES)
    cores = host.cores()

    @contextlib.contextmanager
    def start(case):
        """The servers that are compared; whatever was started for them ends with the block."""
        with contextlib.ExitStack() as stack:
            def started(server):
                stack.callback(server.stop)
                return server

            running = []
            if isinstance(case, cases.PhpCase):
                pool = started(php.Stack(*php.PARTS[case.kind]))
                if binary:
                    running.append(started(php.start_apus(case, cores[0], pool, binary.resolve())))
                    running.extend(started(php.start_apus(case, cores[0], pool, other, name)) for name, other in beside.items())
                    if case.resident:
                        running.append(started(php.start_resident(case, cores[0], pool, binary.resolve())))
                running.extend(started(php.NGINX[rival](case, cores[0], pool)) for rival in case.rivals)
                if case.has_floor:
                    running.append(started(servers.start_floor(cores[0], php.length_of(running[-1], case.path))))
            elif isinstance(case, cases.FrameworkCase):
                database = started(frameworks.Database(cores[1])) if case.database else None
                for name in (frameworks.APUS, *case.rivals):
                    running.append(started(frameworks.start(case, name, cores[0], database)))
            elif isinstance(case, (cases.ProxyCase, cases.DownloadCase, cases.QueueCase)):
                def origin():
                    return started(proxies.start_origin(case, cores[1])).clear

                # What one server keeps open to a slow origin, another could not have.
                shared = None if case.kind == cases.QUEUE else origin()
                if binary:
                    running.append(started(proxies.start_apus(case, cores[0], binary.resolve(), shared or origin())))
                    running.extend(started(proxies.start_apus(case, cores[0], other, shared or origin(), name))
                                   for name, other in beside.items())
                for rival in case.rivals:
                    running.append(started(proxies.START[rival](case, cores[0], shared or origin())))
            else:
                if binary:
                    running.append(started(servers.start_apus(cores[0], binary.resolve())))
                    running.extend(started(servers.start_apus(cores[0], other, name)) for name, other in beside.items())
                running.append(started(servers.start_nginx(cores[0])))
                if case.is_http2:
                    running.append(started(servers.start_h2o(cores[0])))
                if case.has_floor:
                    running.append(started(servers.start_floor(cores[0], case.size)))
            yield running

    def say(line):
        if sys.stderr.isatty():
            print(line, file=sys.stderr, flush=True)

    results = {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "host": host.describe() | {"frameworks": frameworks.versions()},
        "rounds": options.rounds,
        "seconds": options.seconds,
        "written": options.write,
        "cases": {},
    }
    for case in chosen:
        if isinstance(case, cases.MemoryCase):
            by_server = measure.run_memory_case(case, start, say)
        elif isinstance(case, cases.PeakCase):
            by_server = measure.run_peak_case(case, start, cores, say)
        elif isinstance(case, cases.DownloadCase):
            by_server = measure.run_download_case(case, start, cores, options.rounds, options.seconds, say)
        else:
            by_server = measure.run_case(case, start, cores, options.rounds, options.seconds, say)
        results["cases"][case.name] = {
            "servers": by_server, "verdicts": report.verdicts(case, by_server), "date": results["date"]}

    print(report.terminal(results))
    if before:
        keep_others(results, before)
    stored = store(results)
    print(f"\nstored in {stored.relative_to(ROOT)}")
    if options.write:
        write(results)


def last_written():
    """The run whose figures BENCHMARKS.md has."""
    runs = (json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"), reverse=True))
    return next((run for run in runs if run.get("written")), None)


def keep_others(results, before):
    """Takes the cases that were not measured now from the run before."""
    measured = results["cases"]
    results["cases"] = {
        case.name: measured.get(case.name) or before["cases"][case.name]
        for case in cases.ALL if case.name in measured or case.name in before["cases"]}


def store(results):
    RESULTS.mkdir(exist_ok=True)
    stamp = results["date"].removesuffix(" UTC").replace(" ", "-").replace(":", "")
    path = RESULTS / f"{stamp}.json"
    path.write_text(json.dumps(results, indent=1) + "\n")
    return path


def write(results):
    (RESULTS / "cpu.svg").write_text(report.svg(results))
    page = ROOT / "BENCHMARKS.md"
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"bench: BENCHMARKS.md lacks {BEGIN} or {END}")
    page.write_text(f"{before}{BEGIN}\n\n{report.markdown(results)}\n{END}{after}")
    print("wrote BENCHMARKS.md and bench/results/cpu.svg")


if __name__ == "__main__":
    main()
