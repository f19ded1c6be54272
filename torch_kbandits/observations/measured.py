"""What was measured of plays beside their rewards, as columns of numbers."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError


def measured(outcomes: Mapping[str, Any] | None, names: Sequence[str], X: Tensor) -> Tensor | None:
    """Return outcomes (q, k) of the points X (q, d), in the order of their names, NaN where one was not measured.

    Args:
        outcomes: for each name a number, or one for each point; None or NaN where it was not measured. Names may be
            missing; None for all of them.
        names: of the outcomes that are declared.
        X: (q, d).

    Returns:
        Of the dtype of X; None if no outcome is declared.

    Raises:
        InputError: if a name is not declared, or there is not one number for each point.
    """
    given = {} if outcomes is None else outcomes
    if not isinstance(given, Mapping):
        raise InputError(f"outcomes must be a mapping from names to numbers, got {checks.describe(given)}.")
    if unknown := [name for name in given if name not in names]:
        near = checks.nearest_name(unknown[0], names)
        hint = f"did you mean {near!r}?" if near else f"this bandit has {list(names) or 'none'}: declare it, outcomes=."
        raise InputError(f"The outcome {unknown[0]!r} is not declared; {hint}")
    if not names:
        return None
    columns = [_column(name, given.get(name), len(X)) for name in names]
    values = torch.stack(columns, dim=-1)
    converted = values.to(X.dtype)
    if bool((converted.isinf() | (converted.isnan() & ~values.isnan())).any()):
        raise InputError(f"outcomes must be finite numbers within the range of {X.dtype}.")
    return converted


def saved_columns(outcomes: Tensor | None, X: Tensor, number: int) -> Tensor | None:
    """Return recorded outcomes (n, k) of points X (n, d), of which there must be a number; None of none.

    Raises:
        InputError: if there are others, or one is infinite.
    """
    if number == 0 and outcomes is None:
        return None
    if outcomes is None or outcomes.shape != (len(X), number) or not outcomes.is_floating_point():
        got = "none" if outcomes is None else checks.describe(outcomes)
        raise InputError(f"The history must have {number} outcome(s) of each of {len(X)} play(s), got {got}.")
    columns = outcomes.to(X).clone()
    if bool(columns.isinf().any()):
        raise InputError("The outcomes of a history must be finite, or NaN where they were not measured.")
    return columns


def _column(name: str, values: Any, number: int) -> Tensor:
    """Return the values (q,) of an outcome, in double precision."""
    what = f"outcome {name!r}"
    if values is None:
        return torch.full((number,), torch.nan, dtype=torch.float64)
    if isinstance(values, (list, tuple)):
        values = [math.nan if each is None else each for each in values]
    column = torch.as_tensor(checks.real_numbers(what, values)).to("cpu", torch.float64)
    if tuple(column.shape) not in ((number,), (number, 1)) and not (number == 1 and column.dim() == 0):
        raise InputError(f"{what} must have a number for each of {number} play(s), got {checks.describe(values)}.")
    if bool(column.isinf().any()):
        raise InputError(f"{what} must be a finite number, or NaN where it was not measured.")
    return column.reshape(-1)
