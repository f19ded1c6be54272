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
from importlib.metadata import PackageNotFoundError, version
from inspect import signature
from pathlib import Path
from typing import Any

import psutil
import torch
from rich import box
from rich.table import Table as RichTable

from benchmarks.report import write_record
from torch_kbandits.files import write_text

ROOT = Path(__file__).resolve().parent.parent

#: The module of each benchmark, a function of its name there. Modules are imported when they are run.
BENCHMARKS = {
    "rounds": "rounds",
    "first_use": "first_use",
    "many_arms": "many_arms",
    "long_run": "long_run",
    "bkb_regret": "bkb",
    "ada_bkb": "ada_bkb",
    "variance_ratio": "bkb",
    "contexts": "contexts",
    "authors_bkb": "authors_bkb",
    "authors_moving": "authors_moving",
    "replays": "replays",
    "profiles": "replays",
    "transfer": "transfer",
    "discrete_acquisition": "models",
    "box_search": "models",
    "model_rounds": "models",
    "online_tells": "models",
    "tuning": "tuning",
    "mixed_parameters": "mixed_parameters",
    "serving": "serving",
    "context_fits": "contexts",
    "moving_linear": "moving_linear",
    "moving_records": "moving_records",
    "costs": "costs",
    "fidelities": "fidelities",
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
    """A table of finished text: the same cells on the terminal, in Markdown and in JSON."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """Return the table as Markdown, its title in bold above it."""
        lines = [f"**{self.title}**", ""]
        lines += [f"| {' | '.join(self.columns)} |", f"|{'|'.join(' --- ' for _ in self.columns)}|"]
        lines += [f"| {' | '.join(row)} |" for row in self.rows]
        return "\n".join(lines) + "\n"

    def rich(self) -> RichTable:
        """Return the table for a rich console."""
        table = RichTable(title=self.title, title_justify="left", box=box.SIMPLE_HEAD)
        for column in self.columns:
            table.add_column(column, overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        return table


#: What a benchmark returns.
Found = tuple[list[Table], list[Measurement]]


@dataclass(frozen=True)
class Record:
    """What a benchmark found: what was run, the raw numbers, and what a reader should see of them."""

    name: str
    sizes: dict[str, Any]
    tables: list[Table]
    measurements: list[Measurement]

    def markdown(self, machine: dict[str, Any]) -> str:
        """Return all tables, the sizes and the machine."""
        sizes = ", ".join(f"{key} {value}" for key, value in self.sizes.items())
        tables = "\n".join(table.markdown() for table in self.tables)
        return f"{tables}\n*Measured on {describe_machine(machine)}. Sizes: {sizes}.*\n"

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


def mark(kept: bool) -> str:
    """Return the sign of a claim that was kept, or was not."""
    return " ✓" if kept else " ✗"


# ---------------------------------------------------------------- times, memory and processes


def seconds_of(call: Callable[[], object]) -> float:
    """Return the seconds of a call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def in_turns(calls: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Return the seconds of calls that are made in turns, so often."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            seconds[name].append(seconds_of(call))
    return seconds


def read_rate(num_bytes: int, repeats: int = 9) -> float:
    """Return the bytes a second of the fastest of some streaming reads, with torch's threads in force.

    The read is the sum of a tensor: of sum, dot product, product with a vector, norm and maximum it was the fastest.
    """
    doubles = torch.ones(max(1, num_bytes // 8), dtype=torch.float64)
    return 8 * len(doubles) / min(in_turns({"": doubles.sum}, repeats + 1)[""][1:])


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


def describe_machine(machine: dict[str, Any]) -> str:
    """Return the machine in one line."""
    packages = ", ".join(f"{name} {number}" for name, number in machine["packages"].items())
    return (
        f"{machine['cpu']}, {machine['cores']} cores, torch threads {machine['torch_threads']}, "
        f"{machine['memory_gib']} GiB, {machine['system']}; Python {machine['python']}, {packages}; "
        f"commit {machine['commit'] or 'unknown'}"
    )


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
