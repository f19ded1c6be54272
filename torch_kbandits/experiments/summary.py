"""Finished runs: as JSON lines, and as tables of medians, quartiles, means and paired differences from a baseline."""

import importlib.metadata
import json
import math
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from scipy.stats import binom

from torch_kbandits.environments.options import pick
from torch_kbandits.errors import InputError
from torch_kbandits.files import file_error
from torch_kbandits.version import __version__

#: Finished runs, in the directory of an experiment.
RECORDS_FILE = "records.jsonl"
#: Of fewer values quartiles say nothing that the least and the largest do not say better.
_QUARTILES_FROM = 5


@dataclass(frozen=True)
class Record:
    """One finished run: what was run, and what came out.

    Args:
        key: the digest of the configuration; equal keys are the same run.
        algorithm, environment: label, name and options; the algorithm's batch.
        settings, rounds, record_every, seed: as in ``ExperimentSpec``.
        versions: of the packages and of Python.
        recorded_rounds: counted from 1; one entry for each of the next three.
        cumulative_regret, cumulative_seconds: pseudo-regret, in reward units; processor seconds of ask and tell.
        dictionary_size: inducing points.
        recommended_mean: the true mean reward of the point recommended at the end; None if there is none.
        best_mean: the largest mean reward; None with contexts and where means change, as is the former.
    """

    key: str
    algorithm: dict[str, Any]
    environment: dict[str, Any]
    settings: dict[str, Any]
    rounds: int
    record_every: int
    seed: int
    versions: dict[str, str]
    recorded_rounds: list[int]
    cumulative_regret: list[float]
    cumulative_seconds: list[float]
    dictionary_size: list[int]
    recommended_mean: float | None
    best_mean: float | None

    def __post_init__(self) -> None:
        series = self.recorded_rounds, self.cumulative_regret, self.cumulative_seconds, self.dictionary_size
        if len(set(map(len, series))) > 1 or not self.recorded_rounds:
            raise InputError("The series of a record must have equal lengths, of at least 1.")

    def line(self) -> bytes:
        """Return the record as one line of JSON, with its end."""
        return json.dumps(asdict(self), allow_nan=False).encode() + b"\n"


@dataclass(frozen=True)
class Summary:
    """What some seeds say of a number: its median and mean.

    Attributes:
        lower, upper: the first and the third quartile; of fewer than five seeds the least and the largest value.
        error: the standard error of the mean, s/√n with s² over n − 1; None where there is one seed.
    """

    median: float
    lower: float
    upper: float
    mean: float
    error: float | None

    def __str__(self) -> str:
        return _between(self.median, self.lower, self.upper)

    @property
    def mean_and_error(self) -> str:
        """The mean with its standard error, with two digits of the latter."""
        return f"{self.mean:.4g}" if self.error is None else " ± ".join(_rounded(self.error, self.mean, self.error))


@dataclass(frozen=True)
class Difference:
    """What is the difference from a baseline, seed by seed: its median.

    Attributes:
        lower, upper: hold the median of all seeds there could be with 95 % probability, whatever their distribution;
            None of fewer than six differences.
        wins, pairs: how many differences are below zero, and how many there are.
    """

    median: float
    lower: float | None
    upper: float | None
    wins: int
    pairs: int

    def __str__(self) -> str:
        return _between(self.median, self.lower, self.upper)


@dataclass(frozen=True)
class Row:
    """What the seeds of one algorithm on one environment say.

    Attributes:
        environment, algorithm: their labels.
        rounds, seeds: T, and how many runs.
        regret: cumulative pseudo-regret after T rounds, in reward units.
        simple_regret: the largest mean reward less that of the recommended point; None if a run recommends none.
        seconds, dictionary_size: processor seconds of ask and tell in all T rounds; inducing points at the end.
        difference: regret less the baseline's, on the seeds that both have; None without baseline or common seeds.
    """

    environment: str
    algorithm: str
    rounds: int
    seeds: int
    regret: Summary
    simple_regret: Summary | None
    seconds: Summary
    dictionary_size: Summary
    difference: Difference | None = None


def append_record(folder: Path, record: Record) -> None:
    """Write a record at the end of a directory's file, and wait until the disk has it; a part would be left out."""
    file = folder / RECORDS_FILE
    try:
        with file.open("ab") as stream:
            stream.write(record.line())
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise file_error("written", file, error) from error


@cache
def versions() -> dict[str, str]:
    """Return the versions that a run depends on."""
    packages = {name: importlib.metadata.version(name) for name in ("torch", "gpytorch", "botorch")}
    return {"torch_kbandits": __version__, **packages, "python": platform.python_version()}


def summary_of(values: Sequence[float]) -> Summary:
    """Return what at least one value says."""
    n, lower, upper = len(values), min(values), max(values)
    if n >= _QUARTILES_FROM:
        lower, _, upper = statistics.quantiles(values, n=4, method="inclusive")
    error = statistics.stdev(values) / math.sqrt(n) if n > 1 else None
    return Summary(statistics.median(values), lower, upper, math.fsum(values) / n, error)


def difference(values: Sequence[float]) -> Difference:
    """Return what at least one difference says. Source of the interval: the sign test, inverted."""
    ordered, n = sorted(values), len(values)
    outside = outside_median(n)
    lower, upper = (ordered[outside - 1], ordered[-outside]) if outside else (None, None)
    return Difference(statistics.median(ordered), lower, upper, sum(value < 0.0 for value in ordered), n)


def outside_median(number: int) -> int:
    """Return the largest k with P(Bin(n, ½) < k) ≤ 2.5 %, where the 95 % interval of a median begins; 0 for n < 6."""
    return int(binom.ppf(0.025, number, 0.5))


def group(records: Sequence[Record]) -> dict[tuple[str, str], list[Record]]:
    """Return the runs that differ in the seed alone, sorted by it, under the labels of environment and algorithm.

    Environments stay together. Of several configurations under one label, after a change of the spec, later ones are
    numbered.
    """
    kinds: dict[str, list[Record]] = {}
    for record in records:
        kind = [record.environment, record.algorithm, record.settings, record.rounds, record.record_every]
        kinds.setdefault(json.dumps(kind, sort_keys=True), []).append(record)
    groups: dict[str, dict[str, list[Record]]] = {}
    for runs in kinds.values():
        there, label = groups.setdefault(runs[0].environment["label"], {}), runs[0].algorithm["label"]
        algorithm, number = label, 1
        while algorithm in there:
            number += 1
            algorithm = f"{label} ({number})"
        there[algorithm] = sorted(runs, key=lambda run: run.seed)
    return {(environment, label): runs for environment, there in groups.items() for label, runs in there.items()}


def summarize(records: Sequence[Record], baseline: str | None = None) -> list[Row]:
    """Return a row for each algorithm on each environment, in the order in which they come.

    A baseline is the label of the algorithm from which differences are taken; ``InputError`` if no run has it, and if
    there are no runs.
    """
    if not records:
        raise InputError("There is no finished run to summarise.")
    rows, groups = [], group(records)
    if baseline is not None:
        pick("baseline", "algorithm", baseline, {algorithm for _, algorithm in groups})
    for (environment, algorithm), runs in groups.items():
        others = groups.get((environment, baseline or ""), []) if algorithm != baseline else []
        theirs = {run.seed: run.cumulative_regret[-1] for run in others if run.rounds == runs[0].rounds}
        apart = [run.cumulative_regret[-1] - theirs[run.seed] for run in runs if run.seed in theirs]
        means = [(run.best_mean, run.recommended_mean) for run in runs]
        simple = [best - mean for best, mean in means if best is not None and mean is not None]
        regret, seconds, size = (
            summary_of([getattr(run, name)[-1] for run in runs])
            for name in ("cumulative_regret", "cumulative_seconds", "dictionary_size")
        )
        missed = summary_of(simple) if len(simple) == len(runs) else None
        known = (environment, algorithm, runs[0].rounds, len(runs), regret, missed, seconds, size)
        rows.append(Row(*known, difference(apart) if apart else None))
    return rows


def render(rows: Sequence[Row]) -> str:
    """Return the rows as a table of Markdown for each environment, aligned so that they read well as they are."""
    text = []
    for environment, own in groupby(rows, key=lambda row: row.environment):
        cells = [_cells(row) for row in own]
        heads = [head for head in cells[0] if any(line[head] for line in cells)]
        # A bar in a label would end its cell.
        lines = [heads, *([line[head].replace("|", "\\|") for head in heads] for line in cells)]
        widths = [max(2, *map(len, column)) for column in zip(*lines, strict=True)]
        lines.insert(1, [":" + "-" * (widths[0] - 1), *("-" * (width - 1) + ":" for width in widths[1:])])
        sides = [str.ljust, *[str.rjust] * (len(heads) - 1)]
        filled = [[side(cell, width) for side, cell, width in zip(sides, line, widths, strict=True)] for line in lines]
        text += [f"**{environment}**\n", *(f"| {' | '.join(line)} |" for line in filled), ""]
    words = f"Medians over seeds [quartiles; of fewer than {_QUARTILES_FROM} the range], and means ± standard errors."
    if pairs := [row.difference.pairs for row in rows if row.difference is not None]:
        interval = " [95% interval of the median]" if outside_median(max(pairs)) else ""
        words += f" Differences are paired by seed: their median{interval}, and in how many seeds regret is below."
    return "\n".join([*text, words, ""])


def _cells(row: Row) -> dict[str, str]:
    """Return the cells of a line of a table, by the heads of their columns; empty where there is nothing to say."""
    apart = row.difference
    return {
        "algorithm": row.algorithm,
        "T": str(row.rounds),
        "seeds": str(row.seeds),
        "regret": str(row.regret),
        "its mean": row.regret.mean_and_error if row.seeds > 1 else "",
        "regret − baseline": "" if apart is None else str(apart),
        "below it": "" if apart is None else f"{apart.wins} of {apart.pairs}",
        "simple regret": "" if row.simple_regret is None else str(row.simple_regret),
        "seconds": str(row.seconds),
        "dictionary": str(row.dictionary_size),
    }


def _between(value: float, lower: float | None, upper: float | None) -> str:
    """Return a number with what it lies between, if that is known and another."""
    if lower is None or upper is None:
        return f"{value:.4g}"
    middle, low, high = _rounded(upper - lower, value, lower, upper)
    return middle if low == high else f"{middle} [{low}, {high}]"


def _rounded(spread: float, *numbers: float) -> list[str]:
    """Return numbers with two digits of their spread, with four of their own where that is rounding."""
    if spread <= 1e-12 * abs(numbers[0]):
        return [f"{number:.4g}" for number in numbers]
    decimals = max(0, 1 - math.floor(math.log10(spread)))
    # Adding zero turns a negative zero into one without a sign.
    return [f"{round(number, decimals) + 0.0:.{decimals}f}" for number in numbers]
