"""Runs one attack after another, an honest client beside each."""

import dataclasses
import ssl
import threading
import time

from . import http1
from .attack import DID_NOT_HOLD, HELD, NOT_APPLICABLE, DidNotHold, NotApplicable

# The longest that an honest client may wait. Far more than a server needs, as the attackers share its machine.
HONEST_SECONDS = 6


@dataclasses.dataclass
class Verdict:
    attack: str
    title: str
    reference: str
    result: str
    evidence: str
    seconds: float = 0
    memory_mb: int = 0
    # What of the harm was noticed by: the attack itself, or what is watched beside it.
    noticed_by: str = ""


class Beside:
    """An honest client and the memory of the server, while an attack runs."""

    def __init__(self, target):
        self.target = target
        self.stopped = threading.Event()
        self.served, self.slowest, self.failure, self.peak = 0, 0.0, None, 0
        self.threads = [threading.Thread(target=work, daemon=True) for work in (self._request, self._look)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        for thread in self.threads:
            thread.join()

    def _request(self):
        while True:
            start = time.monotonic()
            try:
                self.target.assert_serves()
                self.served += 1
            except DidNotHold as evidence:
                self.failure = self.failure or str(evidence)
            self.slowest = max(self.slowest, time.monotonic() - start)
            if self.stopped.wait(0.03):
                return

    def _look(self):
        while self.target.pid:
            self.peak = max(self.peak, self.target.memory())
            if self.stopped.wait(0.1):
                return


def run(target, attacks, say):
    """The verdicts on all attacks of one class or several."""
    verdicts, kind, at_start = [], None, 0
    for attack in attacks:
        say(attack)
        lacking = [need for need in attack.needs if need not in target.features]
        if lacking:
            verdicts.append(Verdict(attack.id, attack.title, attack.reference, NOT_APPLICABLE, f"without {lacking[0]}"))
            continue
        target.requests_origin = attack.requests_origin
        if attack.fresh or attack.kind != kind or not target.is_running():
            target.start(attack.descriptors)
            target.assert_serves()
            at_start = target.memory()
        # A server that was started with few descriptors is not for others.
        kind = attack.kind if not attack.fresh else None
        if target.origin:
            target.origin.forget()
        verdicts.append(_run_one(target, attack, at_start))
    return verdicts


def _run_one(target, attack, at_start):
    verdict = Verdict(attack.id, attack.title, attack.reference, HELD, "")
    start = time.monotonic()
    with Beside(target) as beside:
        try:
            verdict.evidence = attack.run(target) or ""
        except DidNotHold as evidence:
            verdict.result, verdict.evidence, verdict.noticed_by = DID_NOT_HOLD, str(evidence), "attack"
        except NotApplicable as reason:
            verdict.result, verdict.evidence = NOT_APPLICABLE, str(reason)
        except (OSError, http1.Malformed, ssl.SSLError) as error:
            verdict.result, verdict.noticed_by = DID_NOT_HOLD, "attack"
            verdict.evidence = f"the attacker's connection broke: {error or type(error).__name__}"
    verdict.seconds = round(time.monotonic() - start, 1)
    grown = max(beside.peak - at_start, 0)
    verdict.memory_mb = grown >> 20
    if verdict.result == HELD:
        failure = _what_suffered(target, attack, beside, grown)
        if failure:
            verdict.result, verdict.evidence, verdict.noticed_by = DID_NOT_HOLD, failure, "watch"
    return verdict


def _what_suffered(target, attack, beside, grown):
    if not target.is_running():
        return "the server ended"
    if beside.failure:
        return beside.failure
    if beside.slowest > HONEST_SECONDS:
        return f"an honest client waited {beside.slowest:.0f} s"
    if grown > attack.memory:
        return f"{grown >> 20} MB of memory more than at its start, of {attack.memory >> 20} allowed"
    return None
