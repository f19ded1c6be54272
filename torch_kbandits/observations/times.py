"""Times as numbers: what may be given as one, and of which kind it is."""

from collections.abc import Iterable
from datetime import UTC, date, datetime
from numbers import Real
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError

#: What the times of a bandit are: its own rounds, numbers of any unit, or dates without or with a time zone. A history
#: that was replayed does not say which of the latter.
Kind = Literal["rounds", "numbers", "dates", "dates with a time zone", "numbers or dates"]


def read_time(time: Any) -> tuple[Kind, float]:
    """Return the kind and the value of a time; of a date the seconds since 1970, without a time zone as if in UTC.

    Args:
        time: a number, or a date of Python, NumPy or pandas.

    Raises:
        InputError: if it is none.
    """
    given = time
    if isinstance(time, datetime) and hasattr(type(time), "to_pydatetime"):
        time = time.to_pydatetime(warn=False)  # pyright: ignore[reportAttributeAccessIssue]
    elif type(time).__name__ == "datetime64":
        time = np.datetime64(time, "us").item()  # pyright: ignore[reportCallIssue, reportArgumentType]
        if not isinstance(time, datetime):
            raise InputError(f"time must be a date of the years 1 to 9999, got {given!r}.")
    elif isinstance(time, date) and not isinstance(time, datetime):
        time = datetime(time.year, time.month, time.day)
    if isinstance(time, datetime):
        if time != time:  # the date of pandas that is none
            raise InputError(f"time must be a number or a date, got {given!r}.")
        if time.tzinfo is None:
            return "dates", time.replace(tzinfo=UTC).timestamp()
        return "dates with a time zone", time.timestamp()
    if isinstance(time, bool) or not isinstance(checks.scalar(time), Real):
        raise InputError(f"time must be a number or a date, got {checks.describe(given)}.")
    return "numbers", checks.finite_number("time", time)


def read_times(time: Any, number: int) -> tuple[Kind, Tensor]:
    """Return the kind and the values (q,) of the times of so many rewards, in double precision.

    Args:
        time: one for all, as ``read_time`` takes it; or one for each: a list, a tuple, an array, a tensor, or a series
            or an index of pandas, (q,).
        number: q >= 1.

    Raises:
        InputError: if it is neither, or they are of several kinds.
    """
    if not _is_column(time):
        kind, value = read_time(time)
        return kind, torch.full((number,), value, dtype=torch.float64)
    if len(time) != number:
        raise InputError(f"time must be one for all {number} reward(s), or one for each; got {len(time)}.")
    if isinstance(time, Tensor):
        time = time.detach().to("cpu", torch.float64).numpy()
    column = time if isinstance(time, (list, tuple)) else np.asarray(time)
    if isinstance(column, np.ndarray) and column.dtype.kind in "fiu":
        return "numbers", checks.finite("time", torch.from_numpy(column.astype(np.float64)))
    kinds, values = zip(*map(read_time, column), strict=True)
    if len(set(kinds)) > 1:
        raise InputError(f"time must be of one kind for all rewards, got {' and '.join(sorted(set(kinds)))}.")
    return kinds[0], torch.tensor(values, dtype=torch.float64)


def _is_column(time: Any) -> bool:
    """Say whether a time is a list of them."""
    if isinstance(time, Tensor):
        is_real = not time.is_complex() and time.dtype != torch.bool
        return is_real and time.dim() == 1 and time.layout == torch.strided and not time.is_meta
    if isinstance(time, np.ndarray):
        return time.ndim == 1
    if isinstance(time, (list, tuple)):
        return True
    return isinstance(time, Iterable) and hasattr(time, "to_numpy") and getattr(time, "ndim", 1) == 1
