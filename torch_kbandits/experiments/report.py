"""An experiment as one page of HTML that needs nothing else: no network, no other file."""

import base64
import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import torch_kbandits
from torch_kbandits.experiments.directory import experiment_name, named_runs
from torch_kbandits.experiments.plots import figures
from torch_kbandits.experiments.records import Record, records_file
from torch_kbandits.experiments.run import FAILURES_FILE, load_experiment
from torch_kbandits.experiments.specification import spec_text, specs_of
from torch_kbandits.experiments.summary import Row, by_environment, cells, legend, summarize
from torch_kbandits.extras import require
from torch_kbandits.files import write_text

REPORT_FILE = "report.html"
#: So much of the end of the log of failures is shown, in bytes.
_LOG_SHOWN = 20_000
_DOTS_PER_INCH = 130
_CAPTIONS = {
    "regret": (
        "Cumulative regret over rounds",
        "Cumulative pseudo-regret. Lower is better; a flat line loses no more.",
    ),
    "average-regret": (
        "Average regret over rounds",
        "The same, divided by the rounds: it goes to zero where an algorithm finds what is best.",
    ),
    "difference": (
        "Difference of cumulative regret from the baseline's over rounds",
        "Cumulative regret less the baseline's of the same seed: below zero an algorithm is better than the baseline.",
    ),
    "regret-against-time": (
        "Cumulative regret over seconds of computation",
        "The same against the seconds of ask and tell: what an algorithm costs for what it loses.",
    ),
    "dictionary": ("Dictionary size over rounds", "Inducing points; for exact posteriors distinct points played."),
    "time": ("Seconds over rounds", "Cumulative seconds of ask and tell. A straight line is a constant cost a round."),
}


def write_report(
    path: str | Path,
    output: str | Path | None = None,
    *,
    baseline: str | None = None,
    band: str = "quartiles",
    scale: str = "auto",
) -> Path:
    """Write a report of finished runs: results, figures, what was run, what failed, and how to run it again.

    The page holds its figures and its style, loads nothing, and reads well on light and dark screens.

    Args:
        path: the directory of a run, or its records file.
        output: the file to write; None for ``report.html`` beside the records.
        baseline: label of the algorithm from which paired differences of regret are taken.
        band: what is drawn around the curves, as in ``plot``.
        scale: of regret, as in ``plot``.

    Returns:
        The file, which is written whole or not at all.

    Raises:
        InputError: if there are no records, or no run has the baseline's label.
        FileError: if the file cannot be written.
        MissingExtraError: if Jinja2 or matplotlib is not installed.
    """
    records, losses = load_experiment(path)
    folder = records_file(path).parent
    file = folder / REPORT_FILE if output is None else Path(output)
    page = _render(records, losses, folder, baseline=baseline, band=band, scale=scale)
    write_text(file, page)
    return file


# ---------------------------------------------------------------- inside


def _render(
    records: Sequence[Record], losses: Sequence[str], folder: Path, *, baseline: str | None, band: str, scale: str
) -> str:
    jinja, rows = require("jinja2"), summarize(records, baseline)
    text = resources.files("torch_kbandits.experiments").joinpath("templates", REPORT_FILE).read_text(encoding="utf-8")
    environment = jinja.Environment(
        autoescape=True, undefined=jinja.StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    name = experiment_name(folder) or folder.resolve().name
    failures, is_cut = _log_of_failures(folder)
    return environment.from_string(text).render(
        name=name,
        version=torch_kbandits.__version__,
        num_runs=len(records),
        num_seeds=len({record.seed for record in records}),
        rounds=sorted({record.rounds for record in records}),
        tables=_tables(rows),
        legend=legend(rows),
        baseline=baseline,
        figures=_figures(figures(records, band=band, scale=scale, baseline=baseline)),
        algorithms=_entries([record.algorithm for record in records], None),
        environments=_entries([record.environment for record in records], [record.settings for record in records]),
        versions=_versions(records),
        missing=_missing(folder, records),
        losses=losses,
        failures=failures,
        is_cut=is_cut,
        specs=_specs(records, name),
    )


def _tables(rows: Sequence[Row]) -> list[dict[str, Any]]:
    tables = []
    for part in by_environment(rows):
        heads, lines = cells(part)
        tables.append({"title": part[0].environment, "heads": heads, "lines": lines})
    return tables


def _figures(named: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return each figure as a PNG in base 64, with what it shows in words."""
    drawn = []
    for name, figure in named.items():
        stream = io.BytesIO()
        figure.savefig(stream, format="png", dpi=_DOTS_PER_INCH)
        alt, caption = _CAPTIONS[name]
        drawn.append({"data": base64.b64encode(stream.getvalue()).decode(), "alt": alt, "caption": caption})
    return drawn


def _entries(parts: Sequence[dict[str, Any]], settings: Sequence[dict[str, Any]] | None) -> list[dict[str, str]]:
    """Return distinct algorithms or environments as words."""
    entries = []
    for part, given in zip(parts, settings or [None] * len(parts), strict=True):
        options = dict(part["options"])
        if part.get("batch", 1) != 1:
            options["batch"] = part["batch"]
        words = {"label": part["label"], "name": part["name"], "options": _words(options)}
        entries.append(words | {"settings": "" if given is None else _words(given)})
    return list({json.dumps(entry): entry for entry in entries}.values())


def _words(options: dict[str, Any]) -> str:
    return ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in options.items())


def _versions(records: Sequence[Record]) -> list[tuple[int, str]]:
    """Return each set of versions with the number of runs that were made with it."""
    counts = Counter(", ".join(f"{name} {number}" for name, number in run.versions.items()) for run in records)
    return [(number, words) for words, number in counts.most_common()]


def _missing(folder: Path, records: Sequence[Record]) -> list[str]:
    """Return the runs that were to be made and are not there, in words, those of a label together."""
    finished = {record.key for record in records}
    wanted = Counter(
        f"{algorithm} on {where}" for key, where, algorithm in named_runs(folder) or [] if key not in finished
    )
    return [f"{words}: {number} seed{'s' * (number > 1)}" for words, number in wanted.items()]


def _log_of_failures(folder: Path) -> tuple[str, bool]:
    """Return the end of the log of failures, and whether that is not all of it."""
    file = folder / FAILURES_FILE
    if not file.is_file():
        return "", False
    content = file.read_bytes()
    return content[-_LOG_SHOWN:].decode(errors="replace"), len(content) > _LOG_SHOWN


def _specs(records: Sequence[Record], name: str) -> list[dict[str, str]]:
    """Return the specs that make the records again, each with a name for its file."""
    specs = specs_of(records, name)
    stem = (
        "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name).strip("-.") or "experiment"
    )
    numbers = [""] if len(specs) == 1 else [f"-{i}" for i in range(1, len(specs) + 1)]
    return [
        {"file": f"{stem}{number}.json", "directory": f"runs/{stem}-again", "text": spec_text(spec)}
        for spec, number in zip(specs, numbers, strict=True)
    ]
