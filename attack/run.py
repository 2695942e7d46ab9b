#!/usr/bin/env python3
"""Attacks a server as docs/security.md describes, and says what held. Apus is started with its defaults, others for comparison."""

import argparse
import contextlib
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Processes and ports are looked at in the same way when servers are compared.
sys.path.insert(0, str(ROOT / "bench"))

from comparison import host  # noqa: E402

import classes  # noqa: E402, F401
from harness import attack, report, runner, servers  # noqa: E402
from harness.origin import Origin  # noqa: E402
from harness.sandbox import Sandbox  # noqa: E402
from harness.target import Target, loopback  # noqa: E402

PAGE = ROOT / "docs" / "security.md"
BEGIN, END = "<!-- attacks: begin -->", "<!-- attacks: end -->"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "apus"
    parser.add_argument("--binary", type=Path, default=default, help="the apus binary (default: the release build)")
    parser.add_argument("--address", metavar="127.0.0.1:PORT",
                        help="a server that runs on this machine, in place of the binary; only what needs no configuration is tried")
    parser.add_argument("--tls-port", type=int, help="where the server of --address speaks TLS")
    parser.add_argument("--pid", type=int, help="its process, for its memory")
    parser.add_argument("--peer", action="append", default=[], choices=["all", *servers.PEERS],
                        help="another server, beside Apus; may be repeated; `all`: those that are installed")
    parser.add_argument("--without-apus", action="store_true", help="the peers alone")
    parser.add_argument("--only", action="append", metavar="CLASS", help="a class as `cache`, or one attack as `cache.vary`; may be repeated")
    parser.add_argument("--json", action="store_true", help="the verdicts as JSON")
    parser.add_argument("--markdown", action="store_true", help=f"puts the table into {PAGE.relative_to(ROOT)}, too")
    parser.add_argument("--list", action="store_true", help="the attacks, without running them")
    parser.add_argument("--self-check", action="store_true", help="shows of each attack that it can fail, against a careless server")
    return parser.parse_args()


def chosen(only):
    found = [one for one in attack.ALL if not only or one.kind in only or one.id in only]
    unknown = [name for name in only or () if not any(name in (one.kind, one.id) for one in attack.ALL)]
    if unknown:
        sys.exit(f"attack: there is no class or attack {unknown[0]}; --list has them")
    return found


def main():
    options = arguments()
    attacks = chosen(options.only)
    if options.list:
        for one in attacks:
            print(f"{one.id:<45} {one.title} ({one.reference})")
        return 0
    host.end_in_order()
    host.raise_descriptor_limit()
    with contextlib.ExitStack() as stack:
        by_server, versions = {}, {}
        running = targets(options, stack)
        progress = report.Progress(len(attacks) * len(running))
        for target in running:
            by_server[target.name] = runner.run(target, attacks, lambda one, name=target.name: progress(name, one))
            versions[target.name] = version(target)
            if target.server:
                target.server.stop()
        progress.end()
    print(report.as_json(by_server) if options.json else report.terminal(by_server))
    if options.markdown:
        write(by_server, versions)
    if options.self_check:
        return self_check(by_server["careless"])
    first = next(iter(by_server.values()))
    return 1 if any(verdict.result == attack.DID_NOT_HOLD for verdict in first) else 0


def targets(options, stack):
    """The servers to attack, none of them started yet."""
    if options.address:
        clear = loopback(options.address)
        features = {feature for feature, there in ((attack.TLS, options.tls_port), (attack.HTTP2, True), (attack.PROCESS, options.pid)) if there}
        tls = (clear[0], options.tls_port) if options.tls_port else None
        return [Target(options.address, clear, tls, features=frozenset(features), pid=options.pid)]
    sandbox, origin = Sandbox(), Origin()
    stack.callback(sandbox.close)
    stack.callback(origin.close)
    found = []
    if options.self_check:
        found.append(servers.Careless(sandbox, origin))
    elif not options.without_apus:
        if not options.binary.exists():
            sys.exit(f"attack: {options.binary} is not there: `cargo build --release -p apus-cli` makes it, --binary names another")
        found.append(servers.Apus(sandbox, origin, options.binary))
    names = servers.installed_peers() if "all" in options.peer else options.peer
    found += [servers.PEERS[name](sandbox, origin) for name in dict.fromkeys(names)]
    for server in found:
        stack.callback(server.stop)
    return [Target(server.name, ("127.0.0.1", server.clear), ("127.0.0.1", server.tls), features=server.features, server=server, origin=origin)
            for server in found]


def version(target):
    return target.server.version() if target.server else "as it runs"


def self_check(verdicts):
    """Every attack has to find the careless server out, and by itself where it does not look at memory and at others who wait."""
    watched = ("memory", "slow", "http2", "upstream.enormous-lengths")
    blind = [verdict.attack for verdict in verdicts if verdict.result == attack.HELD
             or verdict.noticed_by == "watch" and not verdict.attack.startswith(watched)]
    if blind:
        print("these attacks do not notice a careless server:", *blind, sep="\n  ")
    return 1 if blind else 0


def write(by_server, versions):
    before, begin, rest = PAGE.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"attack: {PAGE.relative_to(ROOT)} lacks {BEGIN} or {END}")
    PAGE.write_text(f"{before}{BEGIN}\n\n{report.markdown(by_server, versions)}\n{END}{after}")
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    sys.exit(main())
