"""What a process and its children used, as the kernel counts it."""

import os
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def tree(pid):
    """A process and all its descendants."""
    found = [pid]
    for parent in found:
        try:
            tasks = list(Path(f"/proc/{parent}/task").iterdir())
            for task in tasks:
                found.extend(int(child) for child in (task / "children").read_text().split())
        except OSError:
            continue  # It ended while we looked.
    return found


def cpu_seconds(pid):
    """User and system time of the tree."""
    ticks = 0
    for member in tree(pid):
        try:
            # The name, in parentheses, may hold spaces; counting starts behind it.
            fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS_PER_SECOND


def memory_bytes(pid):
    """Proportional set size of the tree: shared pages count once."""
    return 1024 * sum(_kilobytes(f"/proc/{member}/smaps_rollup", "Pss:") for member in tree(pid))


def _kilobytes(path, field):
    try:
        for line in Path(path).read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1])
    except OSError:
        pass
    return 0
