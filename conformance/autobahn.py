"""Reads the reports of the Autobahn test suite, and fails unless every case passed.

    python3 conformance/autobahn.py [--all] REPORT/index.json...

With --all, cases of every group have to be there.
"""

import json
import sys

# The suite has no cases of 8 and 11. What is below 1 to 10, 12 and 13 it had 517 of when this was written.
GROUPS = {1, 2, 3, 4, 5, 6, 7, 9, 10, 12, 13}
CASES = 517

# "Non-strict" is allowed by RFC 6455, if not what the suite likes best; "informational" is no verdict.
PASSED = {"OK", "NON-STRICT", "INFORMATIONAL"}
CLOSED = {"OK", "INFORMATIONAL"}


def main(arguments):
    wants_all = arguments[:1] == ["--all"]
    cases = {}
    for path in arguments[wants_all:]:
        with open(path, encoding="utf-8") as report:
            for found in json.load(report).values():
                cases.update(found)

    def order(case):
        return [int(part) for part in case.split(".")]

    failed = False
    verdicts = {}
    for case in sorted(cases, key=order):
        behavior, close = cases[case]["behavior"], cases[case]["behaviorClose"]
        verdicts.setdefault(behavior, []).append(case)
        if behavior not in PASSED or close not in CLOSED:
            print(f"case {case}: {behavior}, closing: {close}", file=sys.stderr)
            failed = True
    for verdict in ("NON-STRICT", "INFORMATIONAL"):
        if verdict in verdicts:
            print(f"    {verdict.lower()}: {', '.join(verdicts[verdict])}")
    groups = {order(case)[0] for case in cases}
    if not cases or wants_all and (groups != GROUPS or len(cases) < CASES):
        print(f"only {len(cases)} cases were run, of the groups {sorted(groups)}", file=sys.stderr)
        failed = True
    print(f"{'not ok' if failed else 'ok'}  Autobahn: {len(verdicts.get('OK', []))} of {len(cases)} cases OK")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
