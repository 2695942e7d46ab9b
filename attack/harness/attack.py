"""What an attack is, and its verdict."""

import dataclasses
import re

HELD, DID_NOT_HOLD, NOT_APPLICABLE = "held", "did not hold", "not applicable"

# What a server may take above what it has at its start, whatever is done to it.
MEMORY_BYTES = 128 << 20

# What of a server an attack needs. `address` is true of all.
STATIC, PROXY, CACHE, PHP, RESIDENT, TLS, HTTP2, HTTP3, PROCESS, DISK, ON_DEMAND, RULES, ADMIN = (
    "static files", "an origin", "a cache", "PHP", "resident PHP", "TLS", "HTTP/2", "HTTP/3", "a process to look at", "a cache on disk",
    "certificates on demand", "rules", "an address of the operator")


class DidNotHold(Exception):
    """What the attacker reached, in one line."""


class NotApplicable(Exception):
    """Why the attack says nothing about this server."""


@dataclasses.dataclass(frozen=True)
class Attack:
    """One row of the table: a function that takes a target and returns evidence, or raises."""

    kind: str
    name: str
    title: str
    reference: str
    needs: tuple
    # The largest growth of memory, in bytes.
    memory: int
    # Whether the server is started anew for it, with these open files at most.
    fresh: bool
    descriptors: int | None
    # Whether honest clients send requests to the origin, too, or only for files.
    requests_origin: bool
    run: object

    @property
    def id(self):
        return f"{self.kind}.{self.name}"


ALL = []


def attack(title, reference, needs=(), *, memory=MEMORY_BYTES, fresh=False, descriptors=None, requests_origin=True):
    """Registers a function as an attack of the class that its module is named after."""

    def register(function):
        kind = function.__module__.rpartition(".")[2]
        name = function.__name__.replace("_", "-")
        ALL.append(Attack(kind, name, title, reference, tuple(needs), memory, fresh or bool(descriptors), descriptors, requests_origin, function))
        return function

    return register


def require(holds, evidence):
    """Fails the attack with this evidence unless the server held."""
    if not holds:
        raise DidNotHold(evidence)


def brief(data, most=90):
    """A case as a part of one line: bytes, text, or several of them."""
    if isinstance(data, (tuple, list)):
        data = " ".join(map(str, data))
    if isinstance(data, bytes):
        data = data.decode("latin-1")
    text = re.sub(r"(.)\1{15,}", lambda run: f"{run[1]}...", data, flags=re.S)
    text = text.encode("unicode_escape").decode()
    return text if len(text) <= most else text[:most] + "..."


def each(cases, judge):
    """Judges every case of a table; the evidence is their number, or the first that did not hold."""
    broken = [(case, found) for case, found in zip(cases, judge(cases)) if found]
    if broken:
        case, found = broken[0]
        more = f"; {len(broken)} of {len(cases)} cases" if len(cases) > 1 else ""
        raise DidNotHold(f"{brief(case)}: {found}{more}")
    return f"{len(cases)} cases"
