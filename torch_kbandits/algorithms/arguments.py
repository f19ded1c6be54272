"""The words that every named algorithm takes, turned into pieces."""

import warnings
from typing import cast

from torch import Tensor

from torch_kbandits.candidates import Arms, Box, Candidates
from torch_kbandits.confidence import ConstantWidth, Width
from torch_kbandits.errors import InputError, TheoryWarning


def resolve_candidates(candidates: Tensor | Candidates | None, bounds: Tensor | None) -> Candidates:
    """Return arms from ``candidates`` or a box from ``bounds``; exactly one must be given."""
    if (candidates is None) == (bounds is None):
        raise InputError("Give either candidates, a tensor of arms (A, d), or bounds of a box, (2, d); one of the two.")
    if bounds is not None:
        return Box(bounds)
    if isinstance(candidates, Candidates):
        return candidates
    return Arms(cast(Tensor, candidates))


def resolve_width(beta: float | Width | None, theory: Width | None, smallest: float | None, needed: str) -> Width:
    """Return the width that ``beta`` names, or the theorem's.

    Args:
        beta: a multiplier of the standard deviation, a width, or None for the theorem's.
        theory: the theorem's width, or None if its constants were not given.
        smallest: the least value that the theorem's width takes; a constant below it draws a ``TheoryWarning``.
        needed: the words that the theorem's width needs, for the error message.
    """
    if beta is None:
        if theory is None:
            raise InputError(f"Without beta the width of the theorem is used, which needs {needed}.")
        return theory
    if isinstance(beta, Width):
        return beta
    width = ConstantWidth(beta)
    if smallest is not None and width.value < smallest:
        warnings.warn(
            f"beta={width.value:g} is below the theorem's width (at least {smallest:.3g}): the run is valid, "
            "its regret bound is not. That is what works in practice; leave out the theorem's constants to say so.",
            TheoryWarning,
            stacklevel=4,
        )
    return width
