"""When the rewards of a batch are learned: rules that end a batch, one a class."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.selection import FantasyPosterior

#: A leverage score below this is a variance of 0 to rounding: playing the point on changes nothing.
_KNOWN = 1e-12


class BatchRule(ABC):
    """Decides when a batch is complete. Until then rewards are kept aside: means and dictionary stay as they were.

    The points of the batch shrink the variance meanwhile, as pending points do. A value without state.
    """

    #: Whether a method ``repeats(posterior)`` says how often a batch's first point is played again before another.
    repeats_points: ClassVar[bool] = False
    #: By how much variances may shrink before a batch's last point is chosen; infinite if nothing is known of it.
    largest_ratio: float = math.inf

    @abstractmethod
    def is_complete(self, posterior: FantasyPosterior) -> bool:
        """Say whether the batch of k >= 1 points is complete, given the posterior with them pending; then more are."""


@dataclass(frozen=True)
class GlobalBatchRule(BatchRule):
    """End the batch when 1 + Σ_s τ(x_s) > C, the scores being those at its start.

    Before its last point no variance of an exact posterior has shrunk by more than a factor C, so the widths at the
    start hold up to √C; where the batch's points join a dictionary, nearly so. Cost: O(k).

    Source: Calandriello et al., "Near-linear time Gaussian process optimization with adaptive batching and
    resparsification", ICML 2020, Alg. 1.

    Args:
        threshold: C > 1.
    """

    threshold: float = 1.2

    def __post_init__(self) -> None:
        checks.keep(self, threshold=_ratio)
        object.__setattr__(self, "largest_ratio", self.threshold)

    def is_complete(self, posterior: FantasyPosterior) -> bool:
        """Say whether 1 + Σ τ(x_s) > C."""
        scores = posterior.pending_scores()
        return 1.0 + float(scores.sum()) > self.threshold or float(scores[-1]) <= _KNOWN


@dataclass(frozen=True)
class LocalBatchRule(BatchRule):
    """End the batch when some candidate's variance has shrunk by more than a factor C since its start.

    On the exact posterior its batches are never shorter than the global rule's at the same C; where the batch's points
    join a dictionary they may be.

    Source: Calandriello et al., ICML 2020, whose analysis needs just this ratio.

    Args:
        threshold: C > 1.
    """

    threshold: float = 1.2

    def __post_init__(self) -> None:
        checks.keep(self, threshold=_ratio)
        object.__setattr__(self, "largest_ratio", self.threshold)

    def is_complete(self, posterior: FantasyPosterior) -> bool:
        """Say whether the largest ratio of variances exceeds C. Cost: O(A), and O(A m) for each point of the batch."""
        return float(posterior.variance_ratio()) > self.threshold or float(posterior.pending_scores()[-1]) <= _KNOWN


@dataclass(frozen=True)
class StayRule(BatchRule):
    """Play a point again until its variance has shrunk by a factor C: ⌊(C − 1) / τ(x)⌋ times, at least once.

    The score is that of the first play. So few points are distinct, which is what the exact posterior costs.

    Source: Calandriello et al., "Scaling Gaussian process optimization by evaluating a few unique candidates multiple
    times", ICML 2022, mini-GP-Opt. Differs: the paper's C is a factor of the standard deviation; here it is squared.

    Args:
        threshold: C > 1.
    """

    threshold: float = 4.0

    repeats_points = True
    largest_ratio = 1.0  # no other point is chosen in a batch than its first

    def __post_init__(self) -> None:
        checks.keep(self, threshold=_ratio)

    def is_complete(self, posterior: FantasyPosterior) -> bool:
        """Say whether the batch's first point was played often enough."""
        return self.repeats(posterior) == 0

    def repeats(self, posterior: FantasyPosterior) -> int:
        """Return how many plays of the batch's first point are missing. Cost: O(k)."""
        batch, score = posterior.pending, float(posterior.pending_scores()[0])
        plays = 1 if score <= _KNOWN else max(1, math.floor((self.threshold - 1.0) / score))
        return max(0, plays - int((batch == batch[0]).all(-1).sum()))


@dataclass(frozen=True)
class RandomizedKrigingBeliever(BatchRule):
    """Believe draws: pending points count as told at the values of one function drawn from the posterior.

    Rewards are learned at once. Without it pending points are believed at their posterior means, which leaves means
    where they are (GP-BUCB). The function is drawn anew in each round; the width is that of the rewards told. For one
    prior and one reward.

    Source: Sugiura, Takeuchi and Takeno, "Randomized kriging believer for parallel Bayesian optimization with regret
    bounds", arXiv 2603.01470, of Bayesian regret. Differs: their text could not be had; values count with noise λ, and
    there is no initial phase of largest variances.
    """

    def is_complete(self, posterior: FantasyPosterior) -> bool:
        """Return that it is: rewards are learned at once."""
        return True


def _ratio(name: str, value: float) -> float:
    if (ratio := checks.positive(name, value)) <= 1.0:
        raise InputError(f"{name} must be above 1: at 1 every batch is one point; got {ratio!r}.")
    return ratio
