"""Finished runs as tables: mean ± standard error over seeds, and paired differences from a baseline."""

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch_kbandits.experiments.nearest import unknown
from torch_kbandits.experiments.records import Record
from torch_kbandits.extras import require

FORMATS = ("table", "markdown", "csv")


#: An error below this fraction of the mean is rounding: the values are equal.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and its standard error, None where there is one seed."""

    mean: float
    error: float | None

    def __str__(self) -> str:
        if self.error is None or self.error <= _ROUNDING * abs(self.mean):
            return f"{self.mean:.4g}" if self.error is None else f"{self.mean:.4g} ± 0"
        # As many decimals as make two digits of the error.
        decimals = max(0, 1 - math.floor(math.log10(self.error)))
        return f"{self.mean:.{decimals}f} ± {self.error:.{decimals}f}"


@dataclass(frozen=True)
class Group:
    """The runs of one algorithm on one environment, that differ in the seed alone; sorted by seed."""

    environment: str
    algorithm: str
    runs: list[Record]


@dataclass(frozen=True)
class Row:
    """What the seeds of one algorithm on one environment say.

    Args:
        environment: its label.
        algorithm: its label.
        rounds: T.
        seeds: how many runs.
        regret: cumulative pseudo-regret after T rounds, in reward units.
        seconds: of ask and tell in all T rounds.
        dictionary_size: inducing points at the end.
        recommended_mean: the true mean of the recommended point; None if not all runs have one.
        difference: regret minus the baseline's, on the seeds that both have; None without baseline or common seeds.
        pairs: how many common seeds.
    """

    environment: str
    algorithm: str
    rounds: int
    seeds: int
    regret: Estimate
    seconds: Estimate
    dictionary_size: Estimate
    recommended_mean: Estimate | None
    difference: Estimate | None = None
    pairs: int = 0


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of at least one value and its standard error, s/√n with s² over n − 1."""
    n = len(values)
    mean = math.fsum(values) / n
    if n == 1:
        return Estimate(mean, None)
    return Estimate(mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1) / n))


def group(records: Sequence[Record]) -> list[Group]:
    """Return the runs that differ in the seed alone, together, in the order in which they come.

    Two configurations under one label, as a records file has after a change of the spec, get a number behind it.
    """
    groups: dict[str, Group] = {}
    labels: dict[tuple[str, str], int] = {}
    for record in records:
        environment, algorithm = record.environment["label"], record.algorithm["label"]
        kind = [record.environment, record.algorithm, record.settings, record.rounds, record.record_every]
        key = json.dumps(kind, sort_keys=True)
        if key not in groups:
            number = labels[environment, algorithm] = labels.get((environment, algorithm), 0) + 1
            name = algorithm if number == 1 else f"{algorithm} ({number})"
            groups[key] = Group(environment, name, [])
        groups[key].runs.append(record)
    for entry in groups.values():
        entry.runs.sort(key=lambda record: record.seed)
    order = list(dict.fromkeys(entry.environment for entry in groups.values()))
    return sorted(groups.values(), key=lambda entry: order.index(entry.environment))


def summarize(records: Sequence[Record], baseline: str | None = None) -> list[Row]:
    """Return a row for each algorithm on each environment.

    Args:
        records: finished runs.
        baseline: the label of the algorithm from which the paired differences are taken.

    Raises:
        InputError: if no run has the baseline's label; the message has the nearest.
    """
    groups = group(records)
    if baseline is not None and baseline not in {entry.algorithm for entry in groups}:
        raise unknown("baseline", "algorithm", baseline, {entry.algorithm for entry in groups})
    return [_row(entry, _baseline(entry, groups, baseline)) for entry in groups]


def render(rows: Sequence[Row], format: str = "markdown") -> str:
    """Return the rows as text: "table" for a terminal, "markdown", or "csv" with errors in columns of their own.

    Raises:
        InputError: if the format is another one.
    """
    if format == "csv":
        return _csv(rows)
    if format == "markdown":
        return "\n".join(_markdown(part) for part in by_environment(rows))
    if format == "table":
        # Wider than any table, which takes what it needs: a broken cell would be no number any more.
        console = require("rich.console").Console(file=io.StringIO(), width=1000)
        for part in by_environment(rows):
            console.print(rich_table(part))
        return console.file.getvalue()
    raise unknown("format", "format", format, FORMATS)


def rich_table(rows: Sequence[Row]) -> Any:
    """Return the rows of one environment as a table of rich."""
    columns, lines = cells(rows)
    table = require("rich.table").Table(title=_title(rows), title_justify="left")
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left")
    for line in lines:
        table.add_row(*line)
    return table


def by_environment(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the rows of each environment, in their order."""
    names = dict.fromkeys(row.environment for row in rows)
    return [[row for row in rows if row.environment == name] for name in names]


def cells(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return the heads and the lines of a table; columns without any value are left out."""
    columns = {
        "algorithm": [row.algorithm for row in rows],
        "T": [str(row.rounds) for row in rows],
        "seeds": [str(row.seeds) for row in rows],
        "regret": [str(row.regret) for row in rows],
        "regret − baseline": [
            "" if row.difference is None else f"{row.difference} ({row.pairs} pairs)" for row in rows
        ],
        "recommended mean": ["" if row.recommended_mean is None else str(row.recommended_mean) for row in rows],
        "seconds": [str(row.seconds) for row in rows],
        "dictionary": [str(row.dictionary_size) for row in rows],
    }
    shown = {head: cells for head, cells in columns.items() if any(cells)}
    return list(shown), [list(line) for line in zip(*shown.values(), strict=True)]


# ---------------------------------------------------------------- inside


def _baseline(entry: Group, groups: Sequence[Group], baseline: str | None) -> Group | None:
    """Return the baseline's runs on the same environment for as many rounds, or None."""
    for other in groups:
        same = other.environment == entry.environment and other.runs[0].rounds == entry.runs[0].rounds
        if same and other.algorithm == baseline and other is not entry:
            return other
    return None


def _row(entry: Group, baseline: Group | None) -> Row:
    runs = entry.runs
    recommended = [run.recommended_mean for run in runs if run.recommended_mean is not None]
    differences = []
    if baseline is not None:
        theirs = {run.seed: run.cumulative_regret[-1] for run in baseline.runs}
        differences = [run.cumulative_regret[-1] - theirs[run.seed] for run in runs if run.seed in theirs]
    return Row(
        environment=entry.environment,
        algorithm=entry.algorithm,
        rounds=runs[0].rounds,
        seeds=len(runs),
        regret=estimate([run.cumulative_regret[-1] for run in runs]),
        seconds=estimate([run.cumulative_seconds[-1] for run in runs]),
        dictionary_size=estimate([run.dictionary_size[-1] for run in runs]),
        recommended_mean=estimate(recommended) if len(recommended) == len(runs) else None,
        difference=estimate(differences) if differences else None,
        pairs=len(differences),
    )


def _title(rows: Sequence[Row]) -> str:
    return f"{rows[0].environment} (mean ± standard error over seeds)"


def _markdown(rows: Sequence[Row]) -> str:
    columns, lines = cells(rows)
    rule = [":--"] + ["--:"] * (len(columns) - 1)
    # A bar in a label would end its cell.
    escaped = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return f"**{_title(rows)}**\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in [columns, rule, *escaped])


def _csv(rows: Sequence[Row]) -> str:
    estimates = ("regret", "difference", "recommended_mean", "seconds", "dictionary_size")
    plain = ("environment", "algorithm", "rounds", "seeds", "pairs")
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*plain, *(head for name in estimates for head in (name, f"{name}_error"))])
    for row in rows:
        values = [getattr(row, name) or Estimate(math.nan, None) for name in estimates]
        numbers = [number for value in values for number in (value.mean, value.error)]
        cells = ["" if number is None or math.isnan(number) else repr(number) for number in numbers]
        writer.writerow([*(getattr(row, name) for name in plain), *cells])
    return out.getvalue()
