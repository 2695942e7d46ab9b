#!/usr/bin/env python3
"""Apus, nginx, H2O, HAProxy, Varnish, web frameworks and the floors, side by side on one machine. BENCHMARKS.md explains the method."""

import argparse
import contextlib
import datetime
import json
import signal
import sys
import tomllib
from pathlib import Path

from comparison import cases, compared, embedded, frameworks, host, measure, page, php, proxies, report, servers, unstable

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "BENCHMARKS.md"
# The runs that the page shows; the others are kept apart.
RESULTS = servers.BENCH / "results"
TRIALS = servers.BUILD / "results"
REASONS = servers.BENCH / "reasons.toml"
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
    parser.add_argument("--only-apus", action="store_true", help="without the others")
    parser.add_argument("--without-apus", action="store_true", help="the others alone")
    parser.add_argument("--write", action="store_true",
                        help="store the run in bench/results and put it into BENCHMARKS.md; with --case the other cases stay")
    parser.add_argument("--report", action="store_true",
                        help="run nothing; write BENCHMARKS.md from the newest result of each case in bench/results")
    return parser.parse_args()


def main():
    options = arguments()
    # What was changed or started for the run is undone also when it is terminated.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench: terminated"))
    if options.report:
        write_page()
        return
    host.install_what_is_missing()
    host.raise_descriptor_limit()
    servers.build_origins()
    chosen = [case for case in cases.ALL if not options.case or case.name in options.case]
    has_others = not options.only_apus
    with_frameworks = [case for case in chosen if isinstance(case, cases.FrameworkCase)]
    with_embedded = [case for case in chosen if isinstance(case, cases.EmbeddedCase)]
    binary = None
    beside = {path.name: path.resolve() for path in options.beside}
    if not options.without_apus and len(chosen) > len(with_frameworks) + len(with_embedded):
        binary = options.apus or servers.build_apus()
    frameworks.build({frameworks.APUS}.union(*(case.rivals for case in with_frameworks)) if with_frameworks else set())
    if with_embedded:
        embedded.build({embedded.APUS}.union(*(case.rivals for case in with_embedded if has_others)))
    servers.prepare(cases.FILES)
    cores = host.cores()

    @contextlib.contextmanager
    def start(case):
        """The servers that are compared; whatever was started for them ends with the block."""
        with contextlib.ExitStack() as stack:
            def started(server):
                stack.callback(server.stop)
                return server

            is_http3 = getattr(case, "http3", False)
            if is_http3:
                stack.enter_context(host.loopback_mtu(1500))
            running = []
            if isinstance(case, cases.PhpCase):
                pool = started(php.Stack(*php.PARTS[case.kind]))
                if binary:
                    running.append(started(php.start_apus(case, cores[0], pool, binary.resolve())))
                    running.extend(started(php.start_apus(case, cores[0], pool, other, name)) for name, other in beside.items())
                    if case.resident:
                        running.append(started(php.start_resident(case, cores[0], pool, binary.resolve())))
                    if case.proxied:
                        origin = started(php.start_resident(case, cores[0], pool, binary.resolve(), f"{php.PROXIED}-origin"))
                        running.append(started(php.start_proxied(cores[0], origin)))
                if has_others:
                    running.extend(started(php.NGINX[rival](case, cores[0], pool)) for rival in case.rivals)
                if case.has_floor and has_others:
                    running.append(started(servers.start_floor(cores[0], php.length_of(running[-1], case.path))))
            elif isinstance(case, cases.FrameworkCase):
                database = started(frameworks.Database(cores[1])) if case.database else None
                for name in (frameworks.APUS, *(case.rivals if has_others else ())):
                    running.append(started(frameworks.start(case, name, cores[0], database)))
            elif isinstance(case, cases.EmbeddedCase):
                running.extend(started(embedded.start(name, cores[0])) for name in (embedded.APUS, *(case.rivals if has_others else ())))
                if has_others:
                    running.append(started(servers.start_floor(cores[0], case.size)))
            elif isinstance(case, (cases.ProxyCase, cases.DownloadCase, cases.QueueCase)):
                def origin():
                    return started(proxies.start_origin(case, cores[1])).clear

                # What one server keeps open to a slow origin, another could not have.
                shared = None if case.kind == cases.QUEUE else origin()
                if binary:
                    running.append(started(proxies.start_apus(case, cores[0], binary.resolve(), shared or origin())))
                    running.extend(started(proxies.start_apus(case, cores[0], other, shared or origin(), name))
                                   for name, other in beside.items())
                for rival in case.rivals if has_others else ():
                    running.append(started(proxies.START[rival](case, cores[0], shared or origin())))
            else:
                if binary:
                    running.append(started(servers.start_apus(cores[0], binary.resolve())))
                    running.extend(started(servers.start_apus(cores[0], other, name)) for name, other in beside.items())
                if not has_others:
                    pass
                elif is_http3:
                    running.append(started(servers.start_nginx_http3(cores[0], unstable.nginx())))
                else:
                    running.append(started(servers.start_nginx(cores[0])))
                if case.is_http2 and has_others:
                    running.append(started(servers.start_h2o(cores[0])))
            yield running

    def say(line):
        if sys.stderr.isatty():
            print(line, file=sys.stderr, flush=True)

    results = {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "host": host.describe() | {"frameworks": frameworks.versions(), "embedded": embedded.versions(), "nginx-http3": unstable.nginx_version()},
        "rounds": options.rounds,
        "seconds": options.seconds,
        "cases": {},
    }
    for case in chosen:
        if isinstance(case, cases.Case):
            others = len(beside) > 1 and sys.exit("bench: cases of files have one other build beside")
            by_server = compared.run(case, options.rounds, options.seconds, binary and binary.resolve(), next(iter(beside.values()), others),
                                     lambda name: binary if name in ("apus", "beside") else has_others, say)
        elif isinstance(case, cases.MemoryCase):
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


def rendered(text, folder=RESULTS):
    """The text of the page with the figures of a folder in it, and the cases that missed a goal for no written reason."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"bench: BENCHMARKS.md lacks {BEGIN} or {END}")
    runs, results = newest_results(folder)
    reasons = tomllib.loads(REASONS.read_text())["reason"]
    figures = page.figures(runs, results, reasons)
    return f"{before}{BEGIN}\n\n{figures}\n{END}{after}", page.unexplained(results, reasons)


def write_page():
    text, unexplained = rendered(PAGE.read_text())
    PAGE.write_text(text)
    print("wrote BENCHMARKS.md")
    if unexplained:
        sys.exit(f"bench: {', '.join(unexplained)} missed a goal: write the reason in {REASONS.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
