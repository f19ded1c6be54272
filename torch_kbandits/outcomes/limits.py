"""Limits that an outcome must keep."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.confidence import ConstantWidth, Width
from torch_kbandits.confidence.base import DEFAULT_BETA, Mode
from torch_kbandits.errors import InputError
from torch_kbandits.outcomes.outcome import Outcome


@dataclass(frozen=True, eq=False)
class Limit:
    """A limit on an outcome c with posterior mean μ_c and deviation σ_c; give ``AtMost`` or ``AtLeast``.

    "safe" plays only points of which c is surely within the limit, μ_c + β σ_c <= h where c is to be at most h. That
    holds of no point before anything is known, so ``safe_seed`` names points known to be safe. Points are then safe, or
    not, by what is told, with the confidence of the width. While a point that may be safe promises the most reward,
    safe points are played that are expected to show that it is. A learned prior is trusted once it was fitted; before
    that only the seed is played.

    "optimistic" plays points of which c may be within the limit, μ_c − β σ_c <= h. Some plays break the limit; by how
    much they do altogether grows more slowly than the rounds under the assumptions of the source. If no candidate is
    left, ``ask`` says so with an ``InfeasibleError``.

    Points pending do not count as seen here: only what was told makes a point safe.

    Source: safe: Sui et al., "Safe exploration for optimization with Gaussian processes", ICML 2015, and Sui et al.,
    "Stagewise safe Bayesian optimization with Gaussian processes", ICML 2018; that only what looks best is worth
    expanding to is from Turchetta et al., "Safe exploration for interactive machine learning", NeurIPS 2019 (GoOSE).
    Differs: no Lipschitz constant is needed, points are safe by the posterior alone; and a play expands the safe set by
    the outcome expected of it, not by the best possible one. Optimistic: Xu et al., "Constrained efficient global
    optimization of expensive black-box functions", ICML 2023 (CONFIG).

    Args:
        outcome: its name, or an ``Outcome`` with prior and memory.
        value: h, in the units of the outcome.
        mode: "safe" or "optimistic".
        beta: the multiplier of the outcome's standard deviation, or a ``Width``, such as
            ``SelfNormalizedWidth(noise_scale, norm_bound, failure_probability)`` of the outcome. Unless given 3 for
            "safe", 2 for "optimistic", which no theorem is behind.
        safe_seed: what is known to be safe at any time: points (k, d), with contexts actions (k, a) that are safe in
            every context, configurations of a parameter space, a ``Box`` of such points, or a function that says of
            points (k, d), with contexts (context, action), whether they are, (k,) bool. Only for "safe".

    Raises:
        InputError: if an argument does not fit.
    """

    #: 1 where the outcome is to be at most the value, −1 where at least.
    sign: ClassVar[float] = 1.0

    outcome: str | Outcome
    value: float
    mode: Mode = "safe"
    beta: float | Width | None = None
    safe_seed: Tensor | Sequence[Any] | Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.outcome, (str, Outcome)) or not self.name:
            raise InputError(f"outcome must be a name or an Outcome, got {checks.describe(self.outcome)}.")
        checks.keep(self, value=checks.finite_number)
        checks.one_of("mode", self.mode, DEFAULT_BETA)
        beta = DEFAULT_BETA[self.mode] if self.beta is None else self.beta
        object.__setattr__(self, "beta", beta if isinstance(beta, Width) else ConstantWidth(beta))
        if self.safe_seed is not None and self.mode != "safe":
            raise InputError('safe_seed is what "safe" starts from: leave it out with mode="optimistic".')

    @property
    def name(self) -> str:
        """The name of the outcome."""
        return self.outcome.name if isinstance(self.outcome, Outcome) else self.outcome

    @property
    def width(self) -> Width:
        """What the outcome's standard deviation is multiplied by."""
        return cast(Width, self.beta)

    @property
    def is_safe(self) -> bool:
        """Whether only what is surely within the limit is played."""
        return self.mode == "safe"

    def excess(self, mean: Tensor, variance: Tensor, beta: Tensor, *, surely: bool) -> Tensor:
        """Return by how much a bound of the outcome is beyond the limit, of the shape of the means; <= 0 is within.

        Args:
            mean: posterior means of the outcome.
            variance: posterior variances.
            beta: the multiplier.
            surely: whether by the bound that is worse, or by the one that is better.
        """
        width = beta * variance.clamp_min(0.0).sqrt()
        return self.sign * (mean - self.value) + (width if surely else -width)


@dataclass(frozen=True, eq=False)
class AtMost(Limit):
    """The outcome is to be at most a value; see ``Limit``."""


@dataclass(frozen=True, eq=False)
class AtLeast(Limit):
    """The outcome is to be at least a value; see ``Limit``."""

    sign = -1.0
