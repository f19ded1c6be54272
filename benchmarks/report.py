"""What a benchmark returns, and how it is shown and saved."""

import json
import platform
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import torch
from rich import box
from rich.table import Table as RichTable

from torch_kbandits.files import write_text

ROOT = Path(__file__).resolve().parent.parent

_PACKAGES = ("torch-kbandits", "torch", "gpytorch", "botorch", "numpy", "scipy")


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


@dataclass(frozen=True)
class Report:
    """The result of one benchmark.

    Attributes:
        name: of the benchmark.
        sizes: what was run.
        tables: what a reader should see.
        measurements: the raw numbers behind the tables, JSON-able.
    """

    name: str
    sizes: dict[str, Any]
    tables: list[Table]
    measurements: list[dict[str, Any]]

    def markdown(self, machine: dict[str, Any]) -> str:
        """Return the block that docs/benchmarks.md has for this benchmark."""
        sizes = ", ".join(f"{key} {value}" for key, value in self.sizes.items())
        tables = "\n".join(table.markdown() for table in self.tables)
        return f"{tables}\n*Measured on {describe_machine(machine)}. Sizes: {sizes}.*\n"

    def save(self, folder: Path, machine: dict[str, Any]) -> Path:
        """Write ``<name>.json`` and ``<name>.md`` into a folder, each whole or not at all; return the JSON's path."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.json"
        write_text(path, json.dumps({"machine": machine, **asdict(self)}, indent=1, ensure_ascii=False) + "\n")
        write_text(folder / f"{self.name}.md", self.markdown(machine))
        return path


def save_summary(folder: Path, names: Sequence[str]) -> Path:
    """Write ``summary.json``: machine, sizes and tables of each named benchmark that the folder has a result of.

    Results stay until they are measured again, so machines and commits may differ from one benchmark to the next.
    """
    summary = {}
    for name in names:
        path = folder / f"{name}.json"
        if path.exists():
            saved = json.loads(path.read_text(encoding="utf-8"))
            summary[name] = {key: saved[key] for key in ("machine", "sizes", "tables")}
    path = folder / "summary.json"
    write_text(path, json.dumps(summary, indent=1, ensure_ascii=False) + "\n")
    return path


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


def machine() -> dict[str, Any]:
    """Return what the numbers depend on beside the code under test."""
    return {
        "cpu": _cpu_model(),
        "cores": psutil.cpu_count(logical=True),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "torch_threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: version(name) for name in _PACKAGES},
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


def run_module(module: str, *arguments: str) -> str:
    """Run a module in a fresh interpreter from the repository root and return what it prints."""
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
