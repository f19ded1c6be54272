"""A family of hypotheses: what may be true of the function, what each has shown so far, and the rule between them."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.memory import Memory
from torch_kbandits.priors.prior import PriorMean, own_mean


@dataclass(frozen=True, eq=False)
class ModelSpec:
    """A hypothesis by what it assumes otherwise than the bandit: what is None is as the bandit has it.

    Args:
        kernel: the prior covariance of the function.
        regularization: λ > 0, in reward units squared.
        memory: which observations count at a time.
        mean: the prior mean, as ``Bandit`` takes it.
    """

    kernel: Kernel | None = None
    regularization: float | None = None
    memory: Memory | None = None
    mean: PriorMean | None = None

    def __post_init__(self) -> None:
        checks.keep(self, regularization=checks.optional(checks.positive))
        checks.absent_or("kernel", self.kernel, Kernel, "a GPyTorch kernel, or None")
        checks.absent_or("memory", self.memory, Memory, "a memory, or None")
        if self.mean is not None:
            object.__setattr__(self, "mean", own_mean(self.mean))


@dataclass(frozen=True, eq=False)
class Trials:
    """What each of K hypotheses u has shown. S_u are the rounds whose point it chose; σ and μ are of before the reward.

    In double precision on the CPU, whatever the points are.

    Attributes:
        plays: n_u = |S_u|, (K,).
        rewards: Σ_{S_u} y, (K,).
        widths: Σ_{S_u} β σ_u(x), (K,).
        residuals: Σ_{S_u} (y − μ_u(x)), (K,).
        scores: Σ log p_u(y | what was told before) over all rewards, whoever chose the point, (K,), in nats; older ones
            count α^age where the rule forgets.
        active: which are not rejected, (K,) bool.
        rates: by which the optimistic regret bounds grow, (K,): R_u(n) = rates √n; see ``Balancing``.
        number: t, how many rewards were learned.
    """

    plays: Tensor
    rewards: Tensor
    widths: Tensor
    residuals: Tensor
    scores: Tensor
    active: Tensor
    rates: Tensor
    number: int = 0

    @property
    def probabilities(self) -> Tensor:
        """Those of the hypotheses that are not rejected if all were as likely before any reward, (K,)."""
        scores = torch.where(self.active, self.scores, -torch.inf)
        return torch.softmax(scores - scores.max(), 0)

    @property
    def likeliest(self) -> int:
        """The hypothesis, of those not rejected, that predicted best; of equals the first."""
        return int(torch.where(self.active, self.scores, -torch.inf).argmax())


class FamilyRule(ABC):
    """How hypotheses take turns. A value: it holds settings and no state.

    All hypotheses learn from all rewards. So which of them chooses decides what is played, and never what is known.
    """

    #: The factor by which a score loses weight in a round, in (0, 1].
    score_discount: float = 1.0

    @abstractmethod
    def kept(self, trials: Trials, noise: Tensor) -> Tensor:
        """Return which hypotheses are not rejected after a round, (K,) bool: at least one, and none that was before.

        Args:
            trials: of after the round.
            noise: λ of each hypothesis, (K,).
        """

    @abstractmethod
    def weights(self, trials: Trials) -> Tensor:
        """Return the weight of each hypothesis, (K,), as the rule understands it; they sum to 1."""

    @abstractmethod
    def leader(self, trials: Trials) -> int:
        """Return the hypothesis that speaks for the family: of its posterior are the model and what is recommended."""

    @abstractmethod
    def offering(self, trials: Trials, seed: int) -> tuple[int, ...]:
        """Return the hypotheses that offer the point they would play next, of which the highest score is played.

        Args:
            trials: so far.
            seed: addresses a draw, if there is one.
        """


@dataclass(frozen=True, eq=False)
class Family:
    """Several hypotheses, one of which may be true, and the rule by which they take turns.

    Args:
        variants: the hypotheses, K >= 1. Of equals the first is preferred.
        rule: ``Balancing``, ``Elimination``, ``Sampling`` or ``Prediction``.

    Raises:
        InputError: if an argument does not fit.

    A restart of the bandit forgets what the hypotheses have shown.

    Cost: K times that of one hypothesis, in time and memory.
    """

    variants: tuple[ModelSpec, ...]
    rule: FamilyRule

    def __post_init__(self) -> None:
        if not isinstance(self.variants, (tuple, list)) or not self.variants:
            raise InputError(f"variants must be one or more hypotheses, got {checks.describe(self.variants)}.")
        for number, variant in enumerate(self.variants):
            checks.instance(f"variants[{number}]", variant, ModelSpec, "a ModelSpec(kernel=...)")
        checks.instance("rule", self.rule, FamilyRule, "a rule such as Sampling() or Balancing()")
        object.__setattr__(self, "variants", tuple(self.variants))


def shrinking_scales(number: int, dimension: int) -> tuple[float, ...]:
    """Return e^(−i/d) for i = 0 … number − 1: each bounds the regret at most about e times as high as the one before.

    Source: Ziomek, Adachi and Osborne, NeurIPS 2024, for Gaussian kernels.

    Args:
        number: how many, at least 1.
        dimension: d >= 1.
    """
    number, dimension = checks.size("number", number), checks.positive_integer("dimension", dimension)
    return tuple(math.exp(-i / dimension) for i in range(number))


def of_length_scales(kernel: Kernel, scales: Sequence[float]) -> tuple[ModelSpec, ...]:
    """Return hypotheses whose kernels have the length scales of a kernel, all of them, times each number.

    Args:
        kernel: any GPyTorch kernel in which a part has length scales; a copy is changed.
        scales: numbers above 0, at least one.

    Raises:
        InputError: if no part of the kernel has length scales, or they may not become that long or short.
    """
    checks.instance("kernel", kernel, Kernel, "a GPyTorch kernel")
    if not isinstance(scales, (tuple, list)) or not scales:
        raise InputError(f"scales must be one or more numbers above 0, got {checks.describe(scales)}.")
    if not any(part.has_lengthscale for part in _parts(kernel)):
        raise InputError(
            f"No part of this {type(kernel).__name__} has a length scale to multiply by scales: give kernels=, one for "
            "each hypothesis."
        )
    factors = [checks.positive(f"scales[{place}]", scale) for place, scale in enumerate(scales)]
    return tuple(ModelSpec(kernel=_stretched(kernel, factor)) for factor in factors)


def _parts(kernel: Kernel) -> list[Any]:
    return [part for part in kernel.modules() if isinstance(part, Kernel)]


def _stretched(kernel: Kernel, factor: float) -> Kernel:
    """Return a kernel whose length scales are those of another times a factor."""
    other = deepcopy(kernel)
    for part in _parts(other):
        if not part.has_lengthscale or factor == 1.0:  # which would change its last digits
            continue
        longer, constraint = part.lengthscale.detach() * factor, part.raw_lengthscale_constraint
        if not constraint.check(longer):
            raise InputError(
                f"A length scale of the {type(part).__name__}, times {factor:g}, is {longer.flatten().tolist()}, and "
                f"must be in {constraint}: give other scales, or a kernel without that constraint."
            )
        with torch.no_grad():
            part.raw_lengthscale.copy_(constraint.inverse_transform(longer))
    return other
