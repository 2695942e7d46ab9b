"""The verdicts as a table: for a terminal, for a pipe, for docs/security.md, and as JSON."""

import dataclasses
import json
import sys
from collections import Counter

from .attack import DID_NOT_HOLD, HELD, NOT_APPLICABLE

COLORS = {HELD: "32", DID_NOT_HOLD: "1;31", NOT_APPLICABLE: "2"}
SIGNS = {HELD: "held", DID_NOT_HOLD: "**did not hold**", NOT_APPLICABLE: "-"}
EVIDENCE_CHARACTERS = 150


def colored(result, text, stream=sys.stdout):
    return f"\033[{COLORS[result]}m{text}\033[0m" if stream.isatty() else text


class Progress:
    """One line on a terminal that says which attack runs. A pipe gets nothing of it."""

    def __init__(self, total):
        self.total, self.number = total, 0

    def __call__(self, name, attack):
        self.number += 1
        if sys.stderr.isatty():
            print(f"\r\033[K{self.number}/{self.total} {name}: {attack.id}", end="", file=sys.stderr, flush=True)

    def end(self):
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def terminal(by_server):
    lines = []
    for server, verdicts in by_server.items():
        lines.append(f"{server}\n")
        width = max((len(verdict.attack) for verdict in verdicts), default=0)
        for verdict in verdicts:
            result = colored(verdict.result, f"{verdict.result:<14}")
            lines.append(f"  {result}  {verdict.attack:<{width}}  {verdict.title} ({verdict.reference})")
            lines.append(f"  {'':<14}  {'':<{width}}  {shortened(verdict.evidence)}, {verdict.seconds} s, {verdict.memory_mb} MB"
                         if verdict.result != NOT_APPLICABLE else f"  {'':<14}  {'':<{width}}  {verdict.evidence}")
        lines.append(f"\n  {summary(verdicts)}\n")
    return "\n".join(lines)


def summary(verdicts):
    counts = Counter(verdict.result for verdict in verdicts)
    return (f"{counts[HELD]} held, {counts[DID_NOT_HOLD]} did not hold, {counts[NOT_APPLICABLE]} not applicable, "
            f"{sum(verdict.seconds for verdict in verdicts):.0f} s")


def shortened(text):
    return text if len(text) <= EVIDENCE_CHARACTERS else text[:EVIDENCE_CHARACTERS] + "..."


def as_json(by_server):
    return json.dumps({server: [dataclasses.asdict(verdict) for verdict in verdicts] for server, verdicts in by_server.items()}, indent=1)


def markdown(by_server, versions):
    """A row for each attack, a column for each server; below it, why something did not hold."""
    servers = list(by_server)
    lines = ["Run on " + "; ".join(f"{server}: {versions[server]}" for server in servers) + ".", "",
             "| attack | what it is | known as | " + " | ".join(servers) + " |", "| --- | --- | --- |" + " --- |" * len(servers)]
    reasons = []
    for row in zip(*by_server.values()):
        first = row[0]
        cells = []
        for server, verdict in zip(servers, row):
            sign = SIGNS[verdict.result]
            if verdict.result == DID_NOT_HOLD:
                reasons.append(f"- {server}, `{verdict.attack}`: {escaped(shortened(verdict.evidence))}")
            cells.append(sign)
        lines.append(f"| `{first.attack}` | {escaped(first.title)} | {escaped(first.reference)} | {' | '.join(cells)} |")
    lines.append("| | | | " + " | ".join(summary(verdicts).rpartition(",")[0].replace(", ", "<br>") for verdicts in by_server.values()) + " |")
    if reasons:
        lines += ["", "What did not hold, and what was seen:", "", *reasons]
    return "\n".join(lines) + "\n"


def escaped(text):
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
