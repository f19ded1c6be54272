"""The posterior over points that are not listed: boxes, and joint points."""

from collections.abc import Callable
from copy import copy
from typing import Self, cast

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.beliefs.base import Belief
from torch_kbandits.beliefs.box_search import BoxSearch
from torch_kbandits.beliefs.embedded import Embedded
from torch_kbandits.beliefs.features import FeatureTable
from torch_kbandits.beliefs.forgetting import ForgettingTable
from torch_kbandits.beliefs.joint_lookahead import JointLookahead
from torch_kbandits.beliefs.table import wave_prior
from torch_kbandits.candidates.sources import UnsearchedArms
from torch_kbandits.dictionaries import DictionaryRule, Selection
from torch_kbandits.memory import Memory
from torch_kbandits.models import NystromGP, OnlineGP
from torch_kbandits.numerics.gram import gram, prior_variance
from torch_kbandits.numerics.linalg import non_negative_variance
from torch_kbandits.observations.experts import Answers
from torch_kbandits.observations.ledger import History


class JointBelief(Belief):
    """The posterior of rewards at points of any kind, the exact one or that at a dictionary.

    It is that of a table without arms: rewards, points that join or leave the dictionary and rewards that are forgotten
    are low-rank changes. Other points are embedded when they are asked about. The exact posterior has all played points
    in the dictionary but for those that the others span to rounding; where points nearly coincide, means may be off by
    about 1e-6 of the rewards for that.

    Args:
        example: points (k, d), k >= 1, whose dtype and device all tensors have, and whose prior variance is known of.
        kernel: the prior covariance.
        regularization: λ.
        exact: whether the posterior is the exact one.
        online: whether the dictionary rule decides about each point once, when it is told.
        memory: which observations count at a time, and with what noise; None where all do for ever.
        tie_rank: the order in which ties between arms are broken, (A,), if the candidates are always the same.
        search: where in a box the next point is sought, if it is always the same.
        row_memory: bytes that features of played points may occupy, see ``FeatureTable``.

    Cost of a reward: O(m² + u m) for u distinct points, and as much for each point that joins or leaves; O(u m² + m³)
    at another time where observations age, and where a point that joins is nearly spanned.
    """

    def __init__(
        self,
        example: Tensor,
        kernel: Kernel,
        regularization: float,
        *,
        exact: bool,
        online: bool = False,
        memory: Memory | None = None,
        tie_rank: Tensor | None = None,
        search: BoxSearch | None = None,
        row_memory: int | None = None,
    ) -> None:
        super().__init__(example, kernel, regularization, exact=exact)
        table = FeatureTable(UnsearchedArms(example[:0]), kernel, regularization, 0, 0, row_memory, exact=exact)
        self._counted, self._table = ForgettingTable(table, memory, online=online), table
        self._built: NystromGP | None = None
        self.tie_rank = None if tie_rank is None else tie_rank.to(example.device)
        self._search = search
        with torch.no_grad():
            self._kernel_bound = prior_variance(self.kernel, example).max()

    # ---------------------------------------------------------------- what is known

    @property
    def num_observations(self) -> int:
        """Number t of observations that count."""
        return self._counted.num_observations

    @property
    def latest(self) -> Tensor:
        """The point learned last, (1, d); none before any."""
        return self._counted.observations[0][-1:]

    @property
    def inducing_points(self) -> Tensor:
        """The dictionary, (m, d): all played points that count if the posterior is exact."""
        return self._counted.inducing_points

    @property
    def dictionary_weights(self) -> Tensor | None:
        """What the dictionary rule wants handed back of each of ``inducing_points``, (m,); None if nothing."""
        return self._counted.dictionary_weights

    def effective_dimension(self) -> Tensor:
        """Return Σ_s τ(x_s) over what counts, 0-dim. Cost: O(u)."""
        return self._counted.effective_dimension()

    def information_gain(self) -> Tensor:
        """Return ½ log det V, 0-dim, in nats."""
        return self._counted.information_gain()

    def kernel_bound(self) -> Tensor:
        """Return the largest prior variance of the example and the played points, 0-dim."""
        return torch.maximum(self._kernel_bound, self._counted.kernel_bound())

    def mean_norm(self) -> Tensor:
        """Return the RKHS norm of the posterior mean, 0-dim. Cost: O(m)."""
        return self._counted.mean_norm()

    def recommend(self) -> Tensor:
        """Return the played point (1, d) of the largest posterior mean, of those that count. Cost: O(u)."""
        return self._counted.recommend()

    def moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the posterior means and variances at points X (q, d), each (q,). Cost: O(q m d + q m²)."""
        with torch.no_grad():
            at = self.embed(X)
            return self.mean_at(at).to(X), self.variance_at(at).to(X)

    # ---------------------------------------------------------------- learning

    def learned(self, told: History, rule: DictionaryRule | None, generator: torch.Generator | None) -> Self:
        """Return the belief conditioned on more rewards, made now if they have no times."""
        return self._of(self._counted.learned(told, rule, generator))

    def restored(self, told: History, dictionary: Selection) -> Self:
        """Return the empty belief conditioned, at the present time, on what counts of a history."""
        return self._of(self._counted.restored(told, dictionary))

    def at(self, now: float) -> Self:
        """Return the belief at a time, which is not before the present one; this one stays as it is."""
        counted = self._counted.at(now)
        return self if counted is self._counted else self._of(counted)

    def advised(self, answers: Answers) -> Self:
        """Return the belief conditioned on an expert's answers as well; see ``ForgettingTable.advised``."""
        counted = self._counted.advised(answers)
        return self if counted is self._counted else self._of(counted)

    def lookahead(self, pending: Tensor, stages: Tensor | None = None) -> JointLookahead:
        """Return the posterior with points (k, d) pending."""
        return JointLookahead(self, pending, self._search)

    def shown(self, told: History) -> NystromGP | OnlineGP:
        """Return the posterior of what counts as a BoTorch model of its own."""
        return self._counted.shown(told)

    def _of(self, counted: ForgettingTable, table: FeatureTable | None = None) -> Self:
        """Return the belief of what counts, seen in a table: its own, or one that looks ahead."""
        other = copy(self)
        other._counted, other._table = counted, counted.table if table is None else table
        other._built = None
        return other

    # ---------------------------------------------------------------- the posterior at points

    def embed(self, X: Tensor) -> Embedded:
        """Return points (k, d) as the posterior sees them. Cost: O(k m d + k m²)."""
        return self._table.embedded(X)

    def mean_at(self, at: Embedded) -> Tensor:
        """Return posterior means, (k,)."""
        return self._table.posterior.weights @ at.coordinates

    def variance_at(self, at: Embedded) -> Tensor:
        """Return posterior variances, (k,)."""
        variance = self._table.posterior.quick_variance(at.prior_variance, at.coordinates)
        return non_negative_variance(variance.to(at.points), at.prior_variance.to(at.points)).double()

    def covariance_at(self, left: Embedded, right: Embedded) -> Tensor:
        """Return posterior covariances, (k, l)."""
        prior = gram(self.kernel, left.points, right.points).double()
        spanned = left.coordinates.mT @ right.coordinates
        return prior - spanned + self._table.posterior.inverse_product(left.coordinates, right.coordinates)

    def draw(self, seed: int) -> Callable[[Tensor], Tensor]:
        """Return a draw of f − mean as a function of points, (k, d) to (k,): the same one in whatever blocks.

        Raises:
            InputError: if there are no waves of the kernel.
        """
        generator = torch.Generator().manual_seed(seed)
        waves = wave_prior(self.kernel, self._table.no_points.shape[-1]).draw(generator)
        correction = self._table.draw_correction(lambda rows: waves.at(self._table.points_of(rows)), generator)
        return lambda X: waves.at(X) + correction @ self.embed(X).coordinates

    def hallucinated(self, points: Tensor) -> Self:
        """Return the posterior with points (k, d) observed, which join the dictionary; this one stays as it is.

        To read variances from: what was played stays that of this one. One posterior that looks ahead at a time, since
        it writes to features that this one does not use yet.
        """
        table = self._table.with_points(points)
        for row in table.rows_of(points).tolist():
            table = table.hallucinated(row)
        return self._of(self._counted, table)

    def remember(self, at: Embedded) -> None:
        """Keep a point (1, d) that was chosen, so that it need not be embedded again when it is told."""
        self._table.remember(at)

    @property
    def posterior_model(self) -> NystromGP:
        """The posterior as a BoTorch model, whose factors are taken from here. Cost: O(m³) after a reward."""
        if self._built is None:
            points, factors = self._table.restricted_factors()
            X, Y = self._counted.observations
            built = self.model(X, Y, points, self._counted.noise, factors)
            self._built = cast(NystromGP, built)
        return self._built
