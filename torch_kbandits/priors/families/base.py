"""A family of hypotheses: what may be true of the function, what each has shown so far, and the rule between them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.memory import Memory
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.priors.means import PriorMean, own_mean


@dataclass(frozen=True, eq=False)
class Variant:
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
        for name, kind, hint in (("kernel", Kernel, "a GPyTorch kernel"), ("memory", Memory, "a memory")):
            if (value := getattr(self, name)) is not None:
                checks.instance(name, value, kind, f"{hint}, or None")
        if self.mean is not None:
            mean = own_mean(self.mean)
            object.__setattr__(self, "mean", 0.0 if mean is None else mean)


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

    def confidence(self, failure_probability: float, noise_scale: Tensor) -> Tensor:
        """Return ξ_t = 2R² ln(K π² t² / 6δ), (K,): sums of n noises stay within √(ξ_t n) for all hypotheses and rounds.

        Args:
            failure_probability: δ.
            noise_scale: R of each hypothesis, (K,).
        """
        t = max(1, self.number)
        odds = len(self.plays) * (torch.pi * t) ** 2 / (6.0 * failure_probability)
        return 2.0 * noise_scale.square() * torch.tensor(odds, dtype=torch.float64).log()


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
        """Return how much each hypothesis is believed, (K,), as the rule understands it; they sum to 1."""

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

    variants: tuple[Variant, ...]
    rule: FamilyRule

    def __post_init__(self) -> None:
        if not isinstance(self.variants, (tuple, list)) or not self.variants:
            raise InputError(f"variants must be one or more hypotheses, got {checks.describe(self.variants)}.")
        for number, variant in enumerate(self.variants):
            checks.instance(f"variants[{number}]", variant, Variant, "a Variant(kernel=...)")
        checks.instance("rule", self.rule, FamilyRule, "a rule such as Sampling() or Balancing()")
        object.__setattr__(self, "variants", tuple(self.variants))


def shares(active: Tensor) -> Tensor:
    """Return the same weight for each hypothesis that is not rejected, (K,)."""
    return active.double() / active.sum()


def drawn(probabilities: Tensor, seed: int) -> int:
    """Return a hypothesis drawn with these probabilities (K,)."""
    lot = torch.rand((), generator=generator_for(seed, 0, "hypothesis"), dtype=torch.float64, device="cpu")
    below = int((probabilities.cumsum(0) <= lot).sum())
    return min(below, int(probabilities.nonzero().max()))


def noise_scales(noise_scale: float | None, noise: Tensor) -> Tensor:
    """Return R of each hypothesis, (K,): one for all, or √λ of each."""
    return noise.sqrt() if noise_scale is None else torch.full_like(noise, noise_scale)


def checked_rule(rule: Any) -> None:
    """Check and keep δ and R, which the rules that reject have in common."""
    checks.keep(rule, failure_probability=checks.open_unit_interval, noise_scale=checks.optional(checks.positive))
