"""Rewards of plays of which some failed."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.observations.ledger import rewards


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
