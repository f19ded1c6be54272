"""Which outcomes are told beside rewards, at the same plays under the same assumptions, so that work is shared."""

import math
from itertools import zip_longest
from typing import Any

import torch
from gpytorch.kernels import Kernel
from gpytorch.module import Module
from torch import Tensor

from torch_kbandits.beliefs import Belief, PosteriorBelief

#: What every module has for itself; its parameters, buffers and parts are compared as such.
_OF_MODULES = frozenset(vars(Module()))


def differs_in_numbers_alone(pieces: Any, own: Any) -> bool:
    """Say whether an outcome's posterior would differ from the reward's in the mean alone, were every play measured.

    It would if kernel, λ, memory and what points know of the time are the same, and each play is learned when it is
    told, in one posterior, under a prior that is given. An expert's answers are about rewards alone, and a trigger or
    a choice of memories forgets by them. Several objectives draw from their posteriors, which takes one of its own.

    Args:
        pieces: of the bandit.
        own: of the outcome.
    """
    deciding = pieces.batches, pieces.trigger, pieces.memories, pieces.advice, pieces.family, pieces.objective
    learning = pieces.learning, own.learning
    return (
        all(piece is None for piece in (*deciding, *learning))
        and pieces.num_stages == 0
        and own.start.floor == -math.inf
        and own.start.regularization == pieces.start.regularization
        and own.memory == pieces.memory
        and (own.hidden_columns, own.has_clock) == (pieces.hidden_columns, pieces.has_clock)
        and are_equal(own.start.kernel, pieces.start.kernel)
    )


def beside(host: Belief, outcome: int) -> PosteriorBelief | None:
    """Return the posterior of the outcome of a number beside that of rewards; None if it has its own."""
    return host.seen_as(outcome) if isinstance(host, PosteriorBelief) else None


def number_beside(belief: Belief) -> int | None:
    """Return the number of the outcome that a belief beside that of rewards is about; None for another belief."""
    return belief.outcome if isinstance(belief, PosteriorBelief) else None


def is_measured_throughout(rewards: Tensor, outcomes: Tensor | None, number: int) -> bool:
    """Say whether all plays have a reward and the outcome of a number.

    Args:
        rewards: (n,), NaN of plays that failed.
        outcomes: (n, k), NaN where one was not measured; None where none is declared.
        number: of the outcome.
    """
    return outcomes is not None and bool(rewards.isfinite().all()) and bool(outcomes[:, number].isfinite().all())


def are_equal(left: Kernel, right: Kernel) -> bool:
    """Say whether two kernels are known to be the same function: of the same parts, with the same numbers."""
    for one, other in zip_longest(left.named_modules(), right.named_modules()):
        if one is None or other is None or one[0] != other[0] or type(one[1]) is not type(other[1]):
            return False
        ours, theirs = (
            {key: value for key, value in vars(part[1]).items() if key not in _OF_MODULES} for part in (one, other)
        )
        if not _are_same(ours, theirs):
            return False
    ours, theirs = ([*kernel.named_parameters(), *kernel.named_buffers()] for kernel in (left, right))
    return _are_same(dict(ours), dict(theirs))


def _are_same(ours: dict[str, object], theirs: dict[str, object]) -> bool:
    if ours.keys() != theirs.keys():
        return False
    for name, one in ours.items():
        other = theirs[name]
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
            if one.dtype != other.dtype or not torch.equal(one, other):
                return False
        elif one is not other and not _equals(one, other):
            return False
    return True


def _equals(one: object, other: object) -> bool:
    try:
        return bool(one == other)
    except (TypeError, ValueError, RuntimeError):  # of what has no truth value
        return False
