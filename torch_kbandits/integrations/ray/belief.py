"""The posterior over arms that workers hold, seen from the bandit."""

from dataclasses import dataclass, replace
from typing import Any, Self, cast

import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule, Domain
from torch_kbandits.beliefs.base import Lookahead
from torch_kbandits.beliefs.features import FeatureTable
from torch_kbandits.candidates.sources import ArmSource, UnsearchedArms
from torch_kbandits.dictionaries import Selection
from torch_kbandits.errors import InputError
from torch_kbandits.integrations.ray.course import (
    Added,
    Array,
    Course,
    Prior,
    Reweighted,
    Start,
    Step,
    TakenBack,
    Told,
    new_version,
)
from torch_kbandits.integrations.ray.questions import Best, KernelBound, Moments, Question, VarianceRatio, overall_best
from torch_kbandits.integrations.ray.taking_back import taken_back
from torch_kbandits.integrations.ray.workers import Workers
from torch_kbandits.numerics.random import seed_for
from torch_kbandits.observations.played import Plays

#: So many steps are remembered one by one for shards that are behind; those further behind are started anew.
_MOST_STEPS = 64

#: So often an arm is drawn again that is to be avoided.
_DRAWS = 100


class ShardedTable(FeatureTable):
    """The posterior over arms that workers hold: here is what concerns the played points, there what concerns the arms.

    It is the table over a single arm. Dictionary, factors and history are those of the table over all arms, and the
    shards follow it. They do when they are asked: telling sends nothing.

    Cost of a round: O(m² + u m) here, and for each shard that of ``FeatureTable`` over its arms. O(d + m) numbers to
    each shard, O(d) back.

    Args:
        example: the first arm, (1, d), on the CPU.
        source: all arms.
        kernel: the prior covariance.
        regularization: λ.
        seed: addresses the order in which ties between arms are broken.
        workers: of the shards.
        column_memory: bytes that kernel columns may occupy on each worker.
        exact: whether every played point is in the dictionary.
        mean: the prior mean; None for zero.
        full_at: as in ``FeatureTable``.
    """

    def __init__(
        self,
        example: Tensor,
        source: ArmSource,
        kernel: Kernel,
        regularization: float,
        seed: int,
        workers: Workers,
        column_memory: int,
        *,
        exact: bool,
        mean: Mean | None = None,
        full_at: int | None = None,
    ) -> None:
        words: dict[str, Any] = {"column_memory": 0, "exact": exact, "mean": mean, "full_at": full_at}
        super().__init__(UnsearchedArms(example), kernel, regularization, seed, **words)
        self._workers, self._source = workers, source
        self.num_all_arms = len(source)
        self._root, self._steps = new_version(), cast(tuple[Step, ...], ())
        prior = self.kernel, float(self.regularization), exact, seed, column_memory
        self._prior = Prior(*prior, mean=mean, full_at=full_at)
        self._last_dictionary: Tensor | None = None
        bound = self.asked_of_all(KernelBound())
        self._kernel_bound = self._kernel_bound.new_tensor(bound)
        self._prior = replace(self._prior, kernel_bound=bound)
        self._root = new_version()

    # ---------------------------------------------------------------- what the shards know

    def asked_of_all(self, question: Question, added: tuple[Added, ...] = ()) -> Any:
        """Return what the shards answer, with points pending.

        Raises:
            ShardLostError: if a worker was lost and cannot be replaced.
        """
        return self._workers.gather(self.course(added), question)

    def course(self, added: tuple[Added, ...] = ()) -> Course:
        """Return the way to this posterior with points pending, from wherever a shard stands."""
        return Course(self._root, self._steps, added, self._start)

    @property
    def mean(self) -> Tensor:
        """Posterior means of the arms, (A,): all of them are sent here."""
        return self.moments_of_all()[0]

    @property
    def variance(self) -> Tensor:
        """Posterior variances of the arms, (A,), in reward units squared: all of them are sent here."""
        return self.moments_of_all()[1]

    def lookahead(self, pending: Tensor, stages: Tensor | None = None) -> "ShardedLookahead":
        """Return the table with points (k, d) pending."""
        return ShardedLookahead(self.with_points(pending), pending)

    def arm_of_all(self, row: int) -> Tensor:
        """Return the arm of a row of the source, (1, d), on the CPU; a copy."""
        return self._source.block(row, row + 1).cpu().clone()

    def moments_of_all(self, added: tuple[Added, ...] = ()) -> tuple[Tensor, ...]:
        """Return the means of all arms, and their variances with points pending, each (A,)."""
        return tuple(map(torch.from_numpy, self.asked_of_all(Moments(), added)))

    # ---------------------------------------------------------------- what they are told

    def updated(self, X: Tensor, Y: Tensor, selection: Selection | None) -> Self:
        """Return the table conditioned on rewards Y (q,) at X (q, d), at the selected dictionary."""
        after = super().updated(X, Y, selection)
        news = None if selection is None else after._news_of(selection)
        after._remember(Told(new_version(), X.numpy(), Y.numpy(), news))
        return after

    def forgotten(self, left: Plays, gone: Plays) -> Self:
        """Return the table without rewards told before; the dictionary stays. See ``FeatureTable.forgotten``."""
        after = super().forgotten(left, gone)
        after._moved(taken_back(new_version(), left, gone, len(self._log)))
        return after

    def reweighted(self, plays: Plays) -> Self:
        """Return the table with other counts and sums; the dictionary stays. See ``FeatureTable.reweighted``."""
        after = super().reweighted(plays)
        places, counts, sums = (part.numpy() for part in plays)
        after._moved(Reweighted(new_version(), places, counts, sums))
        return after

    def _moved(self, step: TakenBack | Reweighted) -> None:
        """Remember a step after which the played points stand elsewhere."""
        if self._last_dictionary is not None and self._last_dictionary.dim() == 1:
            self._last_dictionary = None  # it is places, and these are others now
        self._remember(step)

    def _remember(self, step: Step) -> None:
        self._steps = (*self._steps, step)
        if len(self._steps) > _MOST_STEPS:
            self._root, self._steps = self._steps[0].version, self._steps[1:]

    def _news_of(self, selection: Selection) -> Array | None:
        """Return a dictionary, None if it is the last one: places among the played points if the rule gave them."""
        known, dictionary = self._last_dictionary, selection.points
        if selection.indices is not None:
            dictionary = selection.indices.to(torch.int32)
        self._last_dictionary = dictionary
        return None if known is not None and torch.equal(known, dictionary) else dictionary.numpy()

    def _start(self) -> Start:
        """Return all that was learned and counts, for a shard that knows nothing of it."""
        version = self._steps[-1].version if self._steps else self._root
        dictionary = None if self.exact or not self._steps else self.inducing_points.numpy()
        log = self._log
        return Start(self._prior, version, log.points.numpy(), log.counts.numpy(), log.sums.numpy(), dictionary)


@dataclass(frozen=True, eq=False)
class _Gathered:
    """What is believed of the arms of all shards, as ``Offered``: O(A) numbers in this process, and no arms."""

    table: ShardedTable
    mean: Tensor
    variance: Tensor

    def chosen(self, row: int) -> Tensor:
        """Return the arm of a row, (1, d)."""
        return self.table.arm_of_all(row)


class ShardedLookahead(Lookahead):
    """The posterior over the arms of all shards with points pending.

    Args:
        table: without them.
        pending: (k, d).
    """

    def __init__(self, table: ShardedTable, pending: Tensor) -> None:
        super().__init__(pending)
        self._table = table
        self._added: tuple[Added, ...] = (_added(pending, 1),) if len(pending) else ()
        self._rows: list[int] = []

    def choose(self, rule: AcquisitionRule, beta: Tensor, seed: int, domain: Domain | None = None) -> Tensor:
        """Return the arm (1, d) of the highest score.

        Raises:
            InputError: if the rule needs more of an arm than its own mean, variance and deviation in a draw, or draws
                and there are no waves of the kernel.
            ShardLostError: if a worker was lost and cannot be replaced.
        """
        avoided = None if domain is None or domain.avoided is None or not len(domain.avoided) else domain.avoided
        row = rule.drawn_row(self._table.num_all_arms, seed)
        if row is not None:
            return self._drawn(rule, row, seed, avoided)
        if not (rule.grows_with_mean_and_variance or rule.scores_arms_apart):
            raise InputError(
                f"{type(rule).__name__} needs all arms in one process: shards take rules whose score depends on what "
                "is believed of the arm alone, as those of this package do. Give Arms instead, or say so of the rule: "
                "scores_arms_apart = True."
            )
        if rule.needs_incumbent:
            rule = rule.scaled_to(self._table)
        answer = self._table.asked_of_all(
            Best(rule, beta.numpy(), seed, None if avoided is None else avoided.numpy()), self._added
        )
        self.visited_share = answer.visited / self._table.num_all_arms
        self.best_score = answer.scores.max().item
        return overall_best(answer, beta, self._table.kernel_bound())

    def _drawn(self, rule: AcquisitionRule, row: int, seed: int, avoided: Tensor | None) -> Tensor:
        """Return the arm (1, d) of a row that was drawn, or of one drawn instead if that is to be avoided."""
        arm = self._table.arm_of_all(row)
        for number in range(1, _DRAWS if avoided is not None else 1):
            if not bool((avoided == arm).all(-1).any()):  # pyright: ignore[reportOptionalMemberAccess]
                break
            again = rule.drawn_row(self._table.num_all_arms, seed_for(seed, number, "drawn again"))
            arm = self._table.arm_of_all(row if again is None else again)
        return arm

    def offered(self, domain: Domain | None) -> _Gathered:
        """Return the posterior at all arms, which all shards send here."""
        return _Gathered(self._table, *self._table.moments_of_all(self._added))

    def _add(self, point: Tensor, times: int) -> None:
        self._added = (*self._added, _added(point, times))

    def pending_scores(self) -> Tensor:
        """Return the scores of the pending points without anything pending, (k,)."""
        known = len(self._rows)
        self._table = self._table.with_points(self.pending[known:])
        self._rows = [*self._rows, *self._table.rows_of(self.pending[known:]).tolist()]
        return self._table.leverage_scores(torch.tensor(self._rows))

    def variance_ratio(self) -> Tensor:
        """Return the largest ratio over the arms of the variance without and with pending points, 0-dim."""
        return self._table.kernel_bound().new_tensor(self._table.asked_of_all(VarianceRatio(), self._added))


def _added(points: Tensor, times: int) -> Added:
    return Added(new_version(), points.numpy(), times)
