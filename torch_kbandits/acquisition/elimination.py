"""Phased elimination: play what is least known, and drop at the end of each phase what cannot be the best."""

import math
from dataclasses import dataclass
from typing import Any, Never, Self

import torch
from botorch.models.model import Model
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition.domain import Domain
from torch_kbandits.acquisition.rules import AcquisitionRule, ArmPosterior
from torch_kbandits.errors import InputError
from torch_kbandits.models.normal import deviation_of
from torch_kbandits.numerics.random import generator_for


@dataclass(frozen=True)
class PhasedEliminationRule(AcquisitionRule):
    """Play in phases the arms of the largest variance, and after each drop those that cannot be the best.

    The N_i plays of phase i are chosen before its first, each where the variance is largest given those before it, from
    a posterior that knows nothing but this phase (maximum variance reduction). With widths w = β σ of the posterior of
    the rewards of a phase that is over, arms with μ + w < max (μ − w) are not played in later ones. Rewards decide
    nothing within a phase, so any number of its plays may be asked for at once; one that is not told of all of its own
    drops nothing yet.

    After the last phase the highest upper bound of its posterior is played, and no phase learns the reward.

    Source: Li and Scarlett, AISTATS 2022 (BPE); Vakili et al., NeurIPS 2021 (MVR: one phase); Iwazaki and Takeno,
    AISTATS 2025 (random permutation).

    Args:
        lengths: N_1, N_2, … of the phases.
        order: addresses the random permutation in which the plays of each phase are made; None for the order chosen.
    """

    lengths: tuple[int, ...]
    order: int | None = None

    uses_width = True

    def __post_init__(self) -> None:
        checks.keep(self, lengths=_lengths, order=checks.optional(checks.whole_number))
        object.__setattr__(self, "num_stages", len(self.lengths))

    @classmethod
    def of_horizon(cls, horizon: int, *, doubling_from: int | None = None, order: int | None = None) -> Self:
        """Return phases of T rounds together: N_i = ⌈√(T N_{i−1})⌉ with N_0 = 1, or such that double from a first."""
        horizon, lengths = checks.positive_integer("horizon", horizon), list[int]()
        first = checks.optional(checks.positive_integer)("doubling_from", doubling_from)
        while (left := horizon - sum(lengths)) > 0:
            before = lengths[-1] if lengths else 1
            own = math.ceil(math.sqrt(horizon * before)) if first is None else first * 2 ** len(lengths)
            lengths.append(min(own, left))
        return cls(tuple(lengths), order)

    def permuted(self, rows: Tensor, phase: int, epoch: int) -> Tensor:
        """Return the rows (N,) that a phase plays, in the order of play; an epoch is from one restart to the next."""
        if self.order is None:
            return rows
        generator = generator_for(self.order, epoch, f"permutation {phase}")
        return rows[torch.randperm(len(rows), generator=generator, device="cpu")]

    def kept(self, mean: Tensor, width: Tensor) -> Tensor:
        """Return which arms with means and widths β σ, (A,), may be the best, (A,) bool."""
        return mean + width >= (mean - width).max()

    def on_arms(self, posterior: ArmPosterior, beta: Tensor, seed: int) -> Tensor:
        """Return μ + β σ, (A,), of a posterior that is that of no phase."""
        return posterior.mean + beta * deviation_of(posterior.variance)

    def function(self, model: Model, beta: Tensor, X_pending: Tensor | None, domain: Domain, seed: int) -> Never:
        """Raise: no one function is maximised."""
        raise InputError("A choice in phases maximises no acquisition function.")


def _lengths(name: str, lengths: Any) -> tuple[int, ...]:
    several = checks.entries(name, lengths)
    found = tuple(checks.positive_integer(f"{name}[{place}]", each) for place, each in enumerate(several))
    if not found:
        raise InputError(f"{name} must be the length of one phase or more, got none.")
    return found
