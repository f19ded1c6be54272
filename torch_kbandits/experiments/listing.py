"""What a spec may name, as tables for a terminal."""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch_kbandits.algorithms import registry as algorithms
from torch_kbandits.environments import registry as environments
from torch_kbandits.experiments.pieces import GAINS, KERNELS, WIDTHS, kernel_options, width_options
from torch_kbandits.experiments.spec import algorithm_options
from torch_kbandits.extras import require

#: The table of each kind, of rich.
TABLES: dict[str, Callable[[], Any]] = {
    "algorithms": lambda: _table(
        "Algorithms", ((name, algorithms.summary(name), algorithm_options(name)) for name in algorithms.names())
    ),
    "environments": lambda: _table(
        "Environments", ((name, *environments.describe(name)) for name in environments.names())
    ),
    "widths": lambda: _table(
        f'Widths, for beta = {{width = "…", scale = 0.1, gain = "{GAINS[0]}"}}; '
        f'gain: {", ".join(GAINS)}, a number, or {{rate = "rbf"}}',
        (
            (name, (inspect.getdoc(width) or "").partition("\n")[0], width_options(name))
            for name, width in WIDTHS.items()
        ),
    ),
    "kernels": lambda: _table(
        'Kernels, for kernel = {name = "…", lengthscale = 0.2, outputscale = 1.0}',
        ((name, summary, kernel_options(name)) for name, summary in KERNELS.items()),
    ),
}


def _table(title: str, entries: Iterable[tuple[str, str, Mapping[str, Any]]]) -> Any:
    table = require("rich.table").Table(title=title, title_justify="left", show_lines=True)
    for column in ("name", "what it is", "options and defaults"):
        table.add_column(column, overflow="fold", no_wrap=column == "name")
    for name, summary, options in entries:
        table.add_row(name, summary, ", ".join(f"{key}{_default(value)}" for key, value in options.items()))
    return table


def _default(value: Any) -> str:
    """Return "=value", or nothing for an option that the problem fills in or that must be given."""
    unknown = value is inspect.Parameter.empty or value is dataclasses.MISSING or value is None
    return "" if unknown else f"={value!r}" if isinstance(value, str) else f"={value}"
