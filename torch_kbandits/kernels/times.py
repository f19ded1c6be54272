"""The check of columns of time."""

from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError


def check_times(*points: Tensor) -> None:
    """Refuse points (..., n, d) of more columns than the one of time, or of times that their precision cannot tell."""
    for X in points:
        if X.shape[-1] != 1:
            raise InputError(
                f"A kernel on time takes one column, the time; got {checks.describe(X)}. Name it: active_dims=(i,)."
            )
        checks.precise_times(X)
