"""What a policy would have earned, how far off that may be, and how much of the log speaks of it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri
from torch import Tensor

from torch_kbandits import checks

#: So many numbers are drawn at a time for a bootstrap.
_DRAWN_AT_A_TIME = 2**22
#: The end of an interval is looked for in steps that double; one that is beyond so many of them is infinite.
_MOST_STEPS = 60


@dataclass(frozen=True, eq=False)
class Estimate:
    """The mean reward of a policy, estimated from the log of another: a mean of terms, or a ratio of two means.

    Attributes:
        terms: (m,) one for each round of the log, or of slates for each slate, in reward units.
        normalizers: (m,) what their sum is divided by: ones, or the importance weights where these are normalised.
        weights: (n,) the importance weights of the rows, before they are clipped; None where none are used.
        span: by how much two terms can differ: the largest weight × the range of rewards, as far as the log shows them.
    """

    terms: Tensor
    normalizers: Tensor
    weights: Tensor | None
    span: float

    @property
    def value(self) -> float:
        """The mean reward of a round, or of a slate."""
        return float(self.terms.sum() / self.normalizers.sum())

    @property
    def standard_error(self) -> float:
        """The standard error of the value, of a ratio by linearisation; NaN of one round."""
        m = len(self.terms)
        return float(self._influence.std() / math.sqrt(m)) if m > 1 else math.nan

    @property
    def effective_sample_size(self) -> float:
        """Kish's (Σ w)² / Σ w²: how many rewards of the policy's own would say as much; the rows without weights."""
        return float(len(self.terms)) if self.weights is None else effective_size(self.weights)

    def bootstrap(self, level: float = 0.95, *, resamples: int = 1000, seed: int = 0) -> tuple[float, float]:
        """Return the ends of a bootstrap interval: rounds are drawn again, corrected for bias and skewness (BCa).

        Right as far as the log is like another one; too short where few rewards carry the value.

        Source: Efron, JASA 1987, with the acceleration of the linearised estimate.

        Args:
            level: how often it shall hold the true value.
            resamples: how often the log is drawn.
            seed: addresses the draws.

        Cost: O(m) a draw.
        """
        level = checks.open_unit_interval("level", level)
        generator = np.random.default_rng(checks.non_negative_integer("seed", seed))
        n, left = len(self.terms), checks.size("resamples", resamples)
        terms, normalizers, drawn = self.terms.numpy(), self.normalizers.numpy(), list[np.ndarray]()
        while left:
            number = min(left, max(1, _DRAWN_AT_A_TIME // n))
            rows = generator.integers(n, size=(number, n))
            with np.errstate(invalid="ignore"):
                drawn.append(terms[rows].sum(1) / normalizers[rows].sum(1))
            left -= number
        values, influence = np.concatenate(drawn), self._influence.numpy()
        values = values[~np.isnan(values)]  # of draws in which all weights are 0
        below = float(np.mean(values < self.value) + np.mean(values == self.value) / 2)
        spread = float((influence**2).sum()) ** 1.5
        if not 0.0 < below < 1.0 or not spread:
            return float(values.min()), float(values.max())
        bias, acceleration = float(ndtri(below)), float((influence**3).sum()) / (6.0 * spread)
        ends = bias + ndtri(np.array([(1.0 - level) / 2.0, (1.0 + level) / 2.0]))
        ends = bias + ends / np.maximum(1.0 - acceleration * ends, 1e-9)
        lower, upper = np.quantile(values, ndtr(ends))
        return float(lower), float(upper)

    def empirical_bernstein(self, level: float = 0.95, *, span: float | None = None) -> tuple[float, float]:
        """Return the ends of an interval that holds the true value at least so often, however many rounds there are.

        Needs that the propensities are right and rounds are drawn independently. With normalised weights it is the
        values θ for which the mean of w (r − θ) is within its bound.

        Source: Maurer and Pontil, COLT 2009, Theorem 4, on both sides.

        Args:
            level: how often it shall hold the true value.
            span: by how much two terms can differ at most, in reward units: for rewards in [0, 1] the largest weight,
                1 / (lowest propensity). None: that of the attribute, which is what the log shows and may be too small.
        """
        level = checks.open_unit_interval("level", level)
        span = self.span if span is None else checks.non_negative("span", span)
        terms, normalizers, m = self.terms.numpy(), self.normalizers.numpy(), len(self.terms)
        if m < 2:
            return -math.inf, math.inf
        logarithm = math.log(4.0 / (1.0 - level))

        def excess(value: float) -> float:
            """By how much the mean of what has mean 0 at the true value is beyond its bound."""
            centered = terms - value * normalizers
            bound = math.sqrt(2.0 * centered.var(ddof=1) * logarithm / m) + 7.0 * span * logarithm / (3.0 * (m - 1))
            return abs(centered.mean()) - bound

        return self._edge(excess, -1.0), self._edge(excess, 1.0)

    def __str__(self) -> str:
        return f"{self.value:.4g} ± {self.standard_error:.2g} (effective sample size {self.effective_sample_size:.0f})"

    @property
    def _influence(self) -> Tensor:
        """What each round adds to the value, linearised, (m,): their mean is 0."""
        return (self.terms - self.value * self.normalizers) / self.normalizers.mean()

    def _edge(self, excess: Callable[[float], float], side: float) -> float:
        """Return where an interval around the value ends on one side, ±1: where the excess becomes 0."""
        inside, step = self.value, max(self.standard_error, 1e-12 * abs(self.value), 1e-300)
        for _ in range(_MOST_STEPS):
            outside = inside + side * step
            if excess(outside) > 0.0:
                return cast(float, brentq(excess, inside, outside))
            inside, step = outside, 2.0 * step
        return side * math.inf


def effective_size(values: Tensor) -> float:
    """Return as how many equal ones values (n,) count, (Σ |v|)² / Σ v²; 0 of none that differ from 0."""
    squares = float(values.square().sum())
    return float(values.abs().sum()) ** 2 / squares if squares else 0.0
