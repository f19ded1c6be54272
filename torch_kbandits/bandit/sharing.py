"""Which outcomes are told beside rewards, at the same plays under the same assumptions, so that work is shared."""

import math
from typing import Any

import torch
from gpytorch.kernels import Kernel
from gpytorch.module import Module
from torch import Tensor

from torch_kbandits.beliefs import Belief, PosteriorBelief

#: What every module has for itself; its parameters, buffers and parts are compared as such.
_OF_MODULES = frozenset(vars(Module()))


def differs_in_numbers_alone(config: Any, own: Any) -> bool:
    """Say whether an outcome's posterior would differ from the reward's in the mean alone, were every play measured.

    It would if kernel, λ, memory and what points know of the time are the same, and each play is learned when it is
    told, in one posterior, under a prior that is given. An expert's answers are about rewards alone, and a trigger or
    a choice of memories forgets by them. Several objectives draw from their posteriors, which takes one of its own.
    """
    deciding = config.batches, config.trigger, config.memories, config.advice, config.family, config.objective
    learning = config.learning, own.learning
    return (
        all(piece is None for piece in (*deciding, *learning))
        and config.num_stages == 0
        and own.start.floor == -math.inf
        and own.start.regularization == config.start.regularization
        and own.memory == config.memory
        and (own.hidden_columns, own.has_clock) == (config.hidden_columns, config.has_clock)
        and _are_equal(own.start.kernel, config.start.kernel)
    )


def beside(host: Belief, outcome: int) -> PosteriorBelief | None:
    """Return the posterior of the outcome of a number beside that of rewards; None if it has its own."""
    return host.seen_as(outcome) if isinstance(host, PosteriorBelief) else None


def number_beside(belief: Belief) -> int | None:
    """Return the number of the outcome that a belief beside that of rewards is about; None for another belief."""
    return belief.outcome if isinstance(belief, PosteriorBelief) else None


def is_measured_throughout(rewards: Tensor, outcomes: Tensor | None, number: int) -> bool:
    """Say whether all plays have a reward (n,), and a finite value in a column of the outcomes (n, k)."""
    return outcomes is not None and bool(rewards.isfinite().all()) and bool(outcomes[:, number].isfinite().all())


def _are_equal(left: Kernel, right: Kernel) -> bool:
    """Say whether two kernels are known to be the same function: of the same parts, with the same numbers."""
    ours, theirs = [*left.named_modules()], [*right.named_modules()]
    if [(name, type(part)) for name, part in ours] != [(name, type(part)) for name, part in theirs]:
        return False
    pairs = [(vars(one), vars(other)) for (_, one), (_, other) in zip(ours, theirs, strict=True)]
    own = [({key: value for key, value in each.items() if key not in _OF_MODULES} for each in pair) for pair in pairs]
    numbers = ({**dict(each.named_parameters()), **dict(each.named_buffers())} for each in (left, right))
    return all(_are_same(*pair) for pair in (numbers, *own))


def _are_same(ours: dict[str, object], theirs: dict[str, object]) -> bool:
    return ours.keys() == theirs.keys() and all(_equals(one, theirs[name]) for name, one in ours.items())


def _equals(one: object, other: object) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    try:
        return one is other or bool(one == other)
    except (TypeError, ValueError, RuntimeError):  # of what has no truth value
        return False
