"""What is measured, and what is to be reached: the files in `bench/cases`, which have the servers, the loads and the goals."""

import tomllib
from dataclasses import dataclass

from .servers import BENCH, MB

FOLDER = BENCH / "cases"

# The ways to run Apus that have their own rows.
OF_APUS = ("apus", "resident", "resident-behind-nginx")
# Another build of Apus.
BESIDE = "beside"

# The figures of `apus bench compare`, and what they are called and measured in on the page.
METRICS = {
    "rate": ("requests_per_second", 1),
    "of-limit": ("of_limit", 1),
    "transfer": ("bytes_per_second", 1e6),
    "cpu": ("cpu_us", 1),
    "per-core": ("per_core_second", 1),
    "cpu-behind": ("php_cpu_us", 1),
    "per-core-behind": ("php_per_core_second", 1),
    "p50": ("p50_us", 1e3),
    "p99": ("p99_us", 1e3),
    "p99-of-mean": ("p99_of_mean", 1),
    "p99-of-p50": ("p99_of_p50", 1),
    "memory": ("peak_memory_bytes", 1e6),
    "growth": ("growth_bytes", 1e6),
    "failed": ("errors", 1),
}
# Where memory is what is measured, each case has one figure of it.
SIZES = {"pss": ("bytes", 1e6), "per-connection": ("bytes", 1), "growth": ("bytes", 1e6)}


@dataclass(frozen=True)
class Target:
    """`metric` of Apus, divided by the same of `versus` (nothing: as it is; several: the best of them), against a bound."""

    metric: str
    versus: str | tuple
    bound: float
    at_least: bool = False
    # Which of several ways to run Apus it is about.
    of: str = "apus"

    def is_met(self, value):
        return value >= self.bound if self.at_least else value <= self.bound

    def words(self):
        return ("at least " if self.at_least else "at most ") + f"{self.bound:.3g}"


@dataclass(frozen=True, eq=False)
class Case:
    """A case of a file."""

    name: str
    title: str
    # The name of the file, and its text.
    file: str
    entry: dict
    # The values that `--set` can replace.
    values: tuple
    servers: tuple
    load: dict
    targets: tuple

    @property
    def path(self):
        return FOLDER / f"{self.file}.toml"

    @property
    def is_of_memory(self):
        return self.file.startswith("memory")

    @property
    def is_http2(self):
        return self.load.get("protocol") == "h2"

    def metric(self, figure):
        """What a figure is called in results, and by what it is multiplied."""
        return SIZES[figure] if self.is_of_memory and figure in SIZES else METRICS[figure]


def name_of(server):
    """The name in results: there is a floor for each size."""
    return "floor" if server.startswith("floor of ") else server


def _target(goal, metric):
    name, factor = metric
    of = goal.get("of", "")
    bound = goal.get("most", goal.get("least"))
    return Target(name, name_of(of) if isinstance(of, str) else tuple(map(name_of, of)), bound if of else bound * factor,
                  at_least="least" in goal, of=name_of(goal["server"]))


def _read(path):
    """The cases of a file, in its order."""
    file = tomllib.loads(path.read_text())
    for entry in file["case"]:
        load = file.get("load", {}) | entry.get("load", {})
        if "duration" in entry.get("load", {}):
            load.pop("requests", None)
        case = Case(entry["name"], entry.get("title", entry["name"]), path.stem, entry, tuple(file.get("values", {})),
                    tuple(entry.get("servers", [server["name"] for server in file["server"]])), load, ())
        targets = tuple(_target(goal, case.metric(goal["figure"])) for goal in entry.get("goal", ()))
        yield Case(**vars(case) | {"targets": targets})


ALL = tuple(case for path in sorted(FOLDER.glob("*.toml")) for case in _read(path))


def of_files(*names):
    """The cases of files with these names."""
    return tuple(case for name in names for case in ALL if case.file == name)
