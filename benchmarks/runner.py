"""What every benchmark is and uses: sizes, a record, tables, turns, processes of their own, and the machine."""

import importlib
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from inspect import signature
from itertools import product
from pathlib import Path
from typing import Any

import psutil
import torch
from tqdm import tqdm

from benchmarks.report import write_record
from torch_kbandits.files import write_text

ROOT = Path(__file__).resolve().parent.parent

#: The module of each benchmark, a function of its name there. Modules are imported when they are run.
BENCHMARKS = {
    "rounds": "rounds",
    "many_arms": "many_arms",
    "bkb_regret": "bkb",
    "ada_bkb": "ada_bkb",
    "variance_ratio": "bkb",
    "contexts": "contexts",
    "authors_bkb": "authors_bkb",
    "replays": "replays",
    "profiles": "replays",
    "transfer": "transfer",
    "discrete_acquisition": "models",
    "model_rounds": "models",
    "online_tells": "models",
    "tuning": "tuning",
    "context_fits": "contexts",
    "moving_linear": "moving_linear",
    "moving_records": "moving_records",
    "costs": "costs",
    "noise_told": "noise_told",
    "off_policy": "off_policy",
    "fidelities": "fidelities",
    "sketches": "sketches",
    "dictionary_sizes": "sketches",
    "stopping": "stopping",
    "stopping_coverage": "stopping",
    "successors": "successors",
    "defaults": "defaults",
}

#: One measurement, as JSON has it.
Measurement = dict[str, Any]

_PACKAGES = ("torch-kbandits", "torch", "gpytorch", "botorch", "numpy", "scipy", "optuna", "ax-platform")


@dataclass(frozen=True)
class Table:
    """A table of finished text: the same cells in Markdown and in JSON."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """Return the table as Markdown, its title in bold above it."""
        lines = [f"**{self.title}**", ""]
        lines += [f"| {' | '.join(self.columns)} |", f"|{'|'.join(' --- ' for _ in self.columns)}|"]
        lines += [f"| {' | '.join(row)} |" for row in self.rows]
        return "\n".join(lines) + "\n"


#: What a benchmark returns.
Found = tuple[list[Table], list[Measurement]]


@dataclass(frozen=True)
class Record:
    """What a benchmark found: what was run, the raw numbers, and what a reader should see of them."""

    name: str
    sizes: dict[str, Any]
    tables: list[Table]
    measurements: list[Measurement]

    def publish(self, folder: Path, machine: dict[str, Any], command: str) -> Path:
        """Write the record of benchmarks/records that docs/results.md is rendered from, and return its path."""
        packages = ", ".join(f"{name} {number}" for name, number in machine["packages"].items())
        shown = {
            "name": self.name,
            "command": command,
            "commit": machine["commit"] or "unknown",
            "date": date.today().isoformat(),
            "machine": f"{machine['cpu']}, {machine['cores']} cores, torch threads {machine['torch_threads']}",
            "sizes": ", ".join(f"{key} {value}" for key, value in self.sizes.items()),
            "note": f"Python {machine['python']}, {packages}",
            "tables": [asdict(table) for table in self.tables],
        }
        return write_record(folder, shown)

    def save(self, folder: Path, machine: dict[str, Any]) -> Path:
        """Write ``NAME.json`` into a folder, whole or not at all, and return its path."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.json"
        write_text(path, json.dumps({"machine": machine, **asdict(self)}, indent=1, ensure_ascii=False) + "\n")
        return path


class Parts:
    """A file of JSON lines, a measurement each, so that a benchmark that was stopped goes on; without a path none.

    A line that was left unfinished is cut off. What was kept is never measured again, also where the code has changed.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._kept: list[Measurement] = []
        if path is not None and path.exists():
            whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
            path.write_text(f"{whole}\n" if whole else "", encoding="utf-8")
            self._kept = [json.loads(line) for line in whole.splitlines()]

    def measured(self, key: Measurement, measure: Callable[[], Measurement]) -> Measurement:
        """Return the measurement that has the entries of ``key``: one that was kept, or else a new one, to be kept."""
        for each in chosen(self._kept, **key):
            return each
        found = key | measure()
        self._kept.append(found)
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found, ensure_ascii=False) + "\n")
        return found

    def all(self, title: str, keys: Sequence[Measurement], measure: Callable[..., Measurement]) -> list[Measurement]:
        """Return the measurements of these keys, whose entries are words of ``measure``."""
        return [self.measured(key, partial(measure, **key)) for key in tqdm(keys, title)]


@dataclass(frozen=True)
class Benchmark:
    """A function of its sizes that returns tables and measurements, and sizes that show that it runs.

    One that takes ``parts`` keeps its measurements one by one.
    """

    measure: Callable[..., Found]
    quick: dict[str, Any]

    @property
    def sizes(self) -> dict[str, Any]:
        """The sizes that are measured, by name."""
        return {name: each.default for name, each in signature(self.measure).parameters.items() if name != "parts"}

    def run(self, *, quick: bool = False, parts: Parts | None = None, **sizes: Any) -> Record:
        """Measure, with some sizes other than they come."""
        sizes = self.sizes | (self.quick if quick else {}) | sizes
        words = {"parts": parts or Parts()} if "parts" in signature(self.measure).parameters else {}
        tables, measurements = self.measure(**sizes, **words)
        return Record(self.measure.__name__, sizes, tables, measurements)


def benchmark(**quick: Any) -> Callable[[Callable[..., Found]], Benchmark]:
    """Make a function a benchmark, whose keyword arguments are its sizes; given are those that measure nothing."""
    return lambda measure: Benchmark(measure, quick)


def load(name: str) -> Benchmark:
    """Return the benchmark of a name in ``BENCHMARKS``."""
    return getattr(importlib.import_module(f"benchmarks.{BENCHMARKS[name]}"), name)


# ---------------------------------------------------------------- measurements and cells


def chosen(measurements: Iterable[Measurement], **given: Any) -> list[Measurement]:
    """Return the measurements that have these entries."""
    return [each for each in measurements if given.items() <= each.items()]


def crossed(**entries: Iterable[Any]) -> list[Measurement]:
    """Return all combinations of values of some entries, those of the last in turn first."""
    return [dict(zip(entries, each, strict=True)) for each in product(*entries.values())]


def values(measurements: Iterable[Measurement], entry: str, **given: Any) -> list[Any]:
    """Return an entry of the measurements that have some others."""
    return [each[entry] for each in chosen(measurements, **given)]


def kinds(measurements: Iterable[Measurement], entry: str) -> list[Any]:
    """Return the different values of an entry, in the order in which they come."""
    return list(dict.fromkeys(each[entry] for each in measurements))


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Return "median (min–max)"; a single value stands alone."""
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"


def mean_and_error(values: Sequence[float], digits: int = 2) -> str:
    """Return "mean ± standard error"; a single value stands alone."""
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    error = statistics.stdev(values) / len(values) ** 0.5
    return f"{statistics.fmean(values):.{digits}f} ± {error:.{digits}f}"


def tabulated(
    measurements: Sequence[Measurement],
    title: str,
    row: str,
    column: str | None,
    entries: Sequence[str],
    digits: int = 3,
) -> Table:
    """Return a table of means: a column for each value of an entry, or for each entry that is averaged."""
    if column is None:
        heads: list[tuple[str, str, dict[str, Any]]] = [(entry, entry, {}) for entry in entries]
    else:
        heads = [
            (f"{each}, {entry}" if len(entries) > 1 else str(each), entry, {column: each})
            for each in kinds(measurements, column)
            for entry in entries
        ]
    rows = []
    for name in kinds(measurements, row):
        cells = [values(measurements, entry, **{row: name}, **given) for _, entry, given in heads]
        rows.append([str(name), *(mean_and_error(cell, digits) if cell else "–" for cell in cells)])
    return Table(title, [row, *(head for head, _, _ in heads)], rows)


def mark(kept: bool) -> str:
    """Return the sign of a claim that was kept, or was not."""
    return " ✓" if kept else " ✗"


# ---------------------------------------------------------------- times, memory and processes


def seconds_of(call: Callable[[], object]) -> float:
    """Return the seconds of a call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def in_turns(calls: Mapping[Any, Callable[[], object]], repeats: int) -> dict[Any, list[float]]:
    """Return the seconds of calls that are made in turns, so often."""
    seconds: dict[Any, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            seconds[name].append(seconds_of(call))
    return seconds


def product_ms(rows: int, columns: int, dtype: torch.dtype = torch.float64, repeats: int = 51) -> float:
    """Return the median milliseconds of a matrix, row by row, times a vector (gemv); a cache may hold the matrix."""
    matrix, vector = torch.ones(rows, columns, dtype=dtype), torch.ones(columns, dtype=dtype)
    return 1e3 * statistics.median(in_turns({"": lambda: torch.mv(matrix, vector)}, repeats + 1)[""][1:])


def resident_bytes() -> int:
    """Return the memory that this process holds now."""
    return psutil.Process().memory_info().rss


def peak_bytes() -> int:
    """Return the most memory that this process has held so far."""
    status = Path("/proc/self/status")
    if status.exists():
        # On Linux a process inherits the ru_maxrss of the one that started it; VmHWM is its own.
        (peak,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return 1024 * int(peak.split()[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of a module of ``benchmarks`` in a fresh interpreter; arguments and result are JSON."""
    name, module = function.__name__, function.__module__
    code = f"import json, sys\nfrom {module} import {name}\nprint(json.dumps({name}(*json.loads(sys.argv[1]))))"
    command = [sys.executable, "-c", code, json.dumps(arguments)]
    said = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    return json.loads(said.splitlines()[-1])


# ---------------------------------------------------------------- the machine


def machine() -> dict[str, Any]:
    """Return what the numbers depend on beside the code under test."""
    return {
        "cpu": _cpu_model(),
        "cores": psutil.cpu_count(logical=True),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "torch_threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: number for name in _PACKAGES if (number := _version(name))},
        "commit": _commit(),
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _commit() -> str | None:
    """Return the short hash of the checked-out commit, marked if files differ from it; None without git."""
    try:
        commit = _git("rev-parse", "--short", "HEAD")
        return f"{commit} with local changes" if _git("status", "--porcelain") else commit
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
