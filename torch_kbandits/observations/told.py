"""What is told of plays: rewards, which of them failed, and what else was measured."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError


def real_numbers(y: Any, like: Tensor) -> Tensor:
    """Return rewards in any form as a tensor on the CPU of the dtype of ``like``, of the shape they came in.

    Args:
        y: as ``checks.real_numbers`` takes it.
        like: whatever has the dtype.

    Raises:
        InputError: if it is anything else, or not finite, or beyond the range of the dtype.
    """
    given = checks.real_numbers("y", y)
    if isinstance(given, Tensor) and given.dtype == like.dtype:
        return checks.finite("y", given.detach().cpu()).clone()
    values = (given.cpu() if isinstance(given, Tensor) else torch.from_numpy(given)).double()
    converted = checks.finite("y", values).to(like.dtype)
    if converted is not values and not checks.all_finite(converted):
        raise InputError(
            f"y must be within ±{torch.finfo(like.dtype).max:.3g}, the range of the points' {like.dtype}; got "
            f"{float(values[~torch.isfinite(converted)][0])!r}."
        )
    return converted


def rewards(y: Any, X: Tensor, *, missing: bool = False) -> Tensor:
    """Return rewards (q,) of the points X (q, d), converted to their kind; see ``real_numbers``.

    Args:
        y: a reward for each.
        X: (q, d).
        missing: whether NaN stands for a play that failed.

    Raises:
        InputError: if they cannot be, or there is not one for each point: y of shape (q,) or (q, 1), or () if q = 1.
    """
    there = y.isfinite() if missing and isinstance(y, Tensor) else None
    Y = real_numbers(y if there is None else torch.where(y.isnan(), 0.0, y), X)
    Y = Y if there is None else torch.where(there, Y, torch.nan)
    number = X.shape[0]
    if tuple(Y.shape) not in ((number,), (number, 1)) and not (number == 1 and Y.dim() == 0):
        raise InputError(f"y must have a reward for each of the {number} point(s), got {checks.describe(y)}.")
    return Y.reshape(-1)


def told_rewards(y: Any, failed: Any, X: Tensor) -> Tensor:
    """Return rewards (q,) of the points X (q, d), NaN of those that failed.

    Args:
        y: as ``rewards`` takes it; with several that failed or not None or NaN for those that did; None for none.
        failed: whether all failed, or which of them did, (q,).
        X: (q, d).

    Raises:
        InputError: if a reward is missing, or there is one of a play that failed.
    """
    lost = _which(failed, len(X))
    if bool(lost.all()) and y is None:
        return X.new_full((len(X),), torch.nan)
    if y is None:
        raise InputError(
            "y is missing: give a reward for each point, tell(x, y) or tell(ids=ids, y=y), or say failed=True."
        )
    if not bool(lost.any()):
        return rewards(y, X)
    given = _listed(y)
    if len(given) != len(X):
        raise InputError(f"y must have a reward for each of the {len(X)} point(s), got {checks.describe(y)}.")
    for reward, is_lost in zip(given, lost.tolist(), strict=True):
        if is_lost and not (reward is None or (isinstance(reward, float) and reward != reward)):
            raise InputError(
                "A play that failed has no reward: leave out y, or say None or NaN for it, or failed=False; got "
                f"{checks.shown(reward)}."
            )
    Y = X.new_full((len(X),), torch.nan)
    there = ~lost
    if bool(there.any()):
        left = [reward for reward, is_lost in zip(given, lost.tolist(), strict=True) if not is_lost]
        Y[there] = rewards(left, X[there])
    return Y


def _which(failed: Any, number: int) -> Tensor:
    """Return which of so many plays failed, (q,)."""
    if isinstance(failed, (bool, np.bool_)):
        return torch.full((number,), bool(failed), dtype=torch.bool, device="cpu")
    given = checks.listed("failed", failed)
    given = [checks.scalar(each) for each in given] if isinstance(given, (list, tuple)) else given
    if not isinstance(given, (list, tuple)) or not all(isinstance(each, (bool, np.bool_)) for each in given):
        raise InputError(
            f"failed must be True or False, or a list of them for the points, got {checks.describe(failed)}."
        )
    if len(given) != number:
        raise InputError(f"failed must be one for all {number} point(s), or one for each; got {len(given)}.")
    return torch.tensor([bool(each) for each in given])


def _listed(y: Any) -> list[Any]:
    """Return rewards as a list of them."""
    plain = checks.listed("y", y)
    if not isinstance(plain, (list, tuple)):
        return [plain]
    return [each[0] if isinstance(each, (list, tuple)) and len(each) == 1 else each for each in plain]


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
