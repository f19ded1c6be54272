"""When the rewards of a batch are learned: rules that end a batch, one a class, and how batches fill."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, cast

from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.beliefs import Lookahead
from torch_kbandits.candidates import Candidates
from torch_kbandits.errors import InputError
from torch_kbandits.outcomes.streaks import among

#: A leverage score below this is a variance of 0 to rounding.
_KNOWN = 1e-12


class BatchPosterior(Protocol):
    """What a batch rule may read of the posterior."""

    @property
    def pending(self) -> Tensor:
        """The points of the batch, (k, d)."""
        ...

    def pending_scores(self) -> Tensor:
        """Return the ridge leverage scores of the batch's points at its start, (k,)."""
        ...

    def variance_ratio(self) -> Tensor:
        """Return the largest ratio over the candidates of the variances before and after the batch, 0-dim."""
        ...


class BatchRule(ABC):
    """Decides when a batch is complete. Until then rewards are kept aside: means and dictionary stay as they were.

    The points of the batch shrink the variance meanwhile, as pending points do. Where stages choose, a score is that of
    the posterior that learns the point, and the ratio is the largest of all posteriors. A value without state.
    """

    #: Whether a point may be played again without being chosen, which it cannot in another context: ``RepeatingRule``.
    repeats_points: ClassVar[bool] = False

    #: By how much variances may shrink before a batch's last point is chosen; infinite if nothing is known of it.
    largest_ratio: float = math.inf

    @abstractmethod
    def is_complete(self, posterior: BatchPosterior) -> bool:
        """Say whether the batch of k >= 1 points is complete, given the posterior with them pending.

        A batch that is complete with its first points stays so with more.
        """


class RepeatingRule(Protocol):
    """A ``BatchRule`` whose ``repeats_points`` is true."""

    def repeats(self, posterior: BatchPosterior) -> int:
        """Return how often the batch's first point is to be played again before anything else."""
        ...


@dataclass(frozen=True)
class GlobalBatchRule(BatchRule):
    """End the batch when 1 + Σ_s τ(x_s) > C, the scores being those at its start.

    Before its last point no variance of an exact posterior has shrunk by more than a factor C, so the widths at the
    start hold up to √C; where the batch's points join a dictionary, nearly so.

    Source: Calandriello et al., "Near-linear time Gaussian process optimization with adaptive batching and
    resparsification", ICML 2020, Alg. 1.

    Args:
        threshold: C > 1.
    """

    threshold: float = 1.2

    def __post_init__(self) -> None:
        checks.keep(self, threshold=_ratio)
        object.__setattr__(self, "largest_ratio", self.threshold)

    def is_complete(self, posterior: BatchPosterior) -> bool:
        """Say whether 1 + Σ τ(x_s) > C. Cost: O(k)."""
        scores = posterior.pending_scores()
        return 1.0 + float(scores.sum()) > self.threshold or _is_known(scores[-1])


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

    def is_complete(self, posterior: BatchPosterior) -> bool:
        """Say whether the largest ratio of variances exceeds C. Cost: O(A), and O(A m) for each point of the batch."""
        return float(posterior.variance_ratio()) > self.threshold or _is_known(posterior.pending_scores()[-1])


@dataclass(frozen=True)
class StayRule(BatchRule):
    """Play a point again until its variance has shrunk by a factor C: ⌊(C − 1) / τ(x)⌋ times, at least once.

    The scores are those of the first play. So the history has few distinct points, which is what the exact posterior
    costs.

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

    def is_complete(self, posterior: BatchPosterior) -> bool:
        """Say whether the batch's first point was played often enough."""
        return self.repeats(posterior) == 0

    def repeats(self, posterior: BatchPosterior) -> int:
        """Return how many plays of the batch's first point are missing. Cost: O(k)."""
        batch = posterior.pending
        score = posterior.pending_scores()[0]
        plays = 1 if _is_known(score) else max(1, math.floor((self.threshold - 1.0) / float(score)))
        return max(0, plays - int((batch == batch[0]).all(-1).sum()))


class Batches(NamedTuple):
    """The batches of a bandit.

    Attributes:
        rule: None where there are none, and every reward is learned at once.
        candidates: what may be played. Logged data and other workers may bring other points: none is played again.
        waiting: points (d,) that failed and are not played again at once.
    """

    rule: BatchRule | None
    candidates: Candidates
    waiting: Sequence[Tensor] = ()

    def is_complete(self, posterior: BatchPosterior) -> bool:
        """Say whether a batch is complete, also because it would wait for repeats of what may not be played."""
        if self.rule is None or (self.rule.repeats_points and not self._may_play_first(posterior)):
            return True
        return self.rule.is_complete(posterior)

    def fill(self, ahead: Lookahead, size: int, choose: Callable[[int], Tensor], *, until_complete: bool) -> None:
        """Make points pending until there are so many, or until the rule says that the batch is complete.

        Args:
            ahead: the posterior with the points so far pending; it changes.
            size: how many are to be pending.
            choose: returns the point (1, d) to add when so many are pending.
            until_complete: whether the rule may end it before.
        """
        while (number := ahead.num_pending) < size:
            again = 0
            if self.rule is not None and self.rule.repeats_points and self._may_play_first(ahead):
                again = cast(RepeatingRule, self.rule).repeats(ahead)
            if again:
                ahead.add(ahead.pending[:1], min(again, size - number))
            else:
                ahead.add(choose(number))
            if until_complete and self.is_complete(ahead):
                return

    def require_open(self, ahead: Lookahead, num_pending: int) -> None:
        """Refuse to fill a batch without a rule, or one that is complete.

        Args:
            ahead: the posterior with the batch so far pending.
            num_pending: how many of its points are not told.

        Raises:
            InputError: if there is no rule, or the batch is complete.
        """
        if self.rule is None:
            raise InputError("ask(q=None) lets a batch rule decide, and this bandit has none: give q.")
        # What is kept aside may be a complete batch by now, where variances grow as time passes: one more point then.
        if num_pending and self.is_complete(ahead):
            raise InputError(
                f"The batch of {len(ahead.pending)} point(s) is complete: tell the {num_pending} pending one(s), or "
                "give q to go on without their rewards."
            )

    def _may_play_first(self, posterior: BatchPosterior) -> bool:
        first = posterior.pending[:1]
        may = len(first) == 1 and bool(self.candidates.offers(first))
        return may and not bool(among(first, self.waiting).any())


def _is_known(score: Tensor) -> bool:
    """Say whether a point of this leverage score has nothing left to learn, so that playing it on changes nothing."""
    return float(score) <= _KNOWN


def _ratio(name: str, value: float) -> float:
    if (ratio := checks.positive(name, value)) <= 1.0:
        raise InputError(f"{name} must be above 1: at 1 every batch is one point; got {ratio!r}.")
    return ratio
