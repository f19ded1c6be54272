"""An experiment as one page of HTML that needs nothing else: no network, no other file."""

import base64
import io
import json
from collections import Counter
from importlib import resources
from pathlib import Path
from typing import Any

import torch_kbandits
from torch_kbandits.experiments import own
from torch_kbandits.experiments.directory import index_of
from torch_kbandits.experiments.plots import figures
from torch_kbandits.experiments.records import records_file
from torch_kbandits.experiments.run import FAILURES_FILE, load_experiment
from torch_kbandits.experiments.summary import legend, summarize, tables
from torch_kbandits.extras import require
from torch_kbandits.files import write_text

REPORT_FILE = "report.html"
#: So much of the end of the log of failures is shown, in bytes.
_LOG_SHOWN = 20_000
_DOTS_PER_INCH = 130


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
    (records, losses), folder = load_experiment(path), records_file(path).parent
    index, rows, log = index_of(folder), summarize(records, baseline), folder / FAILURES_FILE
    finished, failures = {record.key for record in records}, log.read_bytes() if log.is_file() else b""
    missing = Counter(f"{runs[2]} on {runs[1]}" for runs in index.get("runs", ()) if runs[0] not in finished)
    drawn = figures(records, band=band, scale=scale, baseline=baseline)
    jinja = require("jinja2")
    environment = jinja.Environment(autoescape=True, undefined=jinja.StrictUndefined, trim_blocks=True)
    environment.filters["words"] = _words
    text = resources.files("torch_kbandits.experiments").joinpath("templates", REPORT_FILE).read_text(encoding="utf-8")
    page = environment.from_string(text).render(
        name=index.get("name") or folder.resolve().name,
        version=torch_kbandits.__version__,
        records=records,
        tables=tables(rows),
        legend=legend(rows),
        baseline=baseline,
        figures={name: _png(figure) for name, figure in drawn.items()},
        algorithms=_distinct([each.algorithm for each in records]),
        environments=_distinct([{**each.environment, "settings": each.settings} for each in records]),
        versions=_distinct([each.versions for each in records]),
        missing=[f"{words}: {number} seed{'s' * (number > 1)}" for words, number in missing.items()],
        losses=losses,
        failures=failures[-_LOG_SHOWN:].decode(errors="replace"),
        is_cut=len(failures) > _LOG_SHOWN,
        spec=json.dumps(own.portable(index.get("spec", {})), indent=2, ensure_ascii=False),
    )
    file = folder / REPORT_FILE if output is None else Path(output)
    write_text(file, page)
    return file


def _png(figure: Any) -> str:
    """Return a figure as a PNG in base 64."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=_DOTS_PER_INCH)
    return base64.b64encode(stream.getvalue()).decode()


def _distinct(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return list({json.dumps(entry): entry for entry in entries}.values())


def _words(options: dict[str, Any]) -> str:
    return ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in options.items())
