"""Coordinates in the units that users know, where a column spec says how they became what the kernel sees."""

from typing import Any

import torch
from torch import Tensor

from torch_kbandits.bandit import Bandit
from torch_kbandits.candidates import ContextualActions
from torch_kbandits.candidates.timed import untimed
from torch_kbandits.extras import require
from torch_kbandits.observations.column_spec import ColumnSpec
from torch_kbandits.observations.columns import Number


def column_spec(bandit: Bandit, column: int) -> tuple[ColumnSpec | None, int]:
    """Return what a coordinate is made by, if a column spec is given for it, and which of its columns it is."""
    kind, place = untimed(bandit.candidates), column - int(bandit.candidates.is_timed)
    if place < 0 or not isinstance(kind, ContextualActions):
        return None, place
    start = kind.context_dim
    return (kind.context_columns, place) if place < start else (kind.action_columns, place - start)


def number_column(bandit: Bandit, column: int) -> Number | None:
    """Return how a coordinate is made from a number that users know, if a column spec says so."""
    spec, place = column_spec(bandit, column)
    if spec is None:
        return None
    (owner,) = [entry for entry in spec.columns if place in spec.columns_of(entry.name)]
    return owner if isinstance(owner, Number) else None


def shown_values(bandit: Bandit, column: int, values: Tensor) -> Any:
    """Return values (k,) of a coordinate in the units of its column, as an array; as they are if no spec knows it."""
    number = number_column(bandit, column)
    known = values.tolist() if number is None else number.decode(values.unsqueeze(-1))
    return torch.tensor(known, dtype=torch.float64).numpy()


def scale_axis(bandit: Bandit, column: int, ax: Any, which: str) -> None:
    """Give the axis "x" or "y" the logarithmic scale of the column that it shows, if that has one; plain numbers."""
    number = number_column(bandit, column)
    if number is None or not number.log:
        return
    getattr(ax, f"set_{which}scale")("log")
    plain_logarithmic(getattr(ax, f"{which}axis"))


def plain_logarithmic(axis: Any, subs: tuple[float, ...] = (1.0, 2.0, 5.0)) -> None:
    """Label a logarithmic axis with plain numbers, in each decade with these: 1, 2, 5, 10 and so on."""
    ticker = require("matplotlib.ticker")
    axis.set_major_locator(ticker.LogLocator(subs=subs))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(ticker.NullFormatter())
