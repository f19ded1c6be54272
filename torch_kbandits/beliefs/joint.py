"""The posterior of what counts at points that are not listed: of boxes, and joint points."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, cast

import torch
from torch import Tensor

from torch_kbandits.acquisition import Domain
from torch_kbandits.beliefs import joint_loops
from torch_kbandits.beliefs.box_search import BoxSearch
from torch_kbandits.beliefs.cube_search import CubeSearch
from torch_kbandits.beliefs.embedded import Embedded
from torch_kbandits.beliefs.features import FeatureTable
from torch_kbandits.beliefs.table import wave_prior
from torch_kbandits.models import NystromGP
from torch_kbandits.numerics.formulas import known_formula
from torch_kbandits.numerics.gram import as_array, gram, prior_mean
from torch_kbandits.numerics.linalg import non_negative_variance
from torch_kbandits.posteriors.conditional import Conditional, Seen
from torch_kbandits.posteriors.residual import learned_residual, residual_share

if TYPE_CHECKING:
    from torch_kbandits.beliefs.counted import CountedBelief


@dataclass(frozen=True, eq=False)
class Place:
    """What is known beforehand of points that are not listed.

    Attributes:
        search: where in a box that is always the same, or on a cube, the next point is sought.
        tie_rank: the order in which ties between arms are broken, (A,), if the candidates are always the same.
    """

    search: BoxSearch | CubeSearch | None = None
    tie_rank: Tensor | None = None


class Hallucinated(NamedTuple):
    """Points that are observed at their posterior means, (k, d), and what they take from variances."""

    points: Tensor
    conditional: Conditional


@dataclass(frozen=True, eq=False)
class JointPosterior:
    """A table without arms, and the belief that it is of: points are embedded when they are asked about. A value.

    Attributes:
        belief: what counts.
        table: its table.
        place: what is known of the points.
    """

    belief: "CountedBelief"
    table: FeatureTable
    place: Place

    def embed(self, X: Tensor) -> Embedded:
        """Return points (k, d) as the posterior sees them. Cost: O(k m d + k m²)."""
        return self.table.embedded(X)

    def mean_at(self, at: Embedded) -> Tensor:
        """Return posterior means, (k,)."""
        learned, mean = at.learned, self.table.prior_mean
        if learned is None:
            learned = self.table.posterior.weights @ at.coordinates
        return learned if mean is None else learned + prior_mean(mean, at.points).double()

    def variance_at(self, at: Embedded) -> Tensor:
        """Return posterior variances, (k,)."""
        variance = self.dtc_variance_at(at)
        if not self.table.learns_residual:
            return variance
        return learned_residual(at.prior_variance, self._spanned(at), variance)

    def dtc_variance_at(self, at: Embedded) -> Tensor:
        """Return posterior variances in which all stays that the dictionary does not span, (k,)."""
        if (known := at.variance) is not None:
            return known
        variance = self.table.posterior.quick_variance(at.prior_variance, at.coordinates)
        return non_negative_variance(variance.to(at.points), at.prior_variance.to(at.points)).double()

    def covariance_at(self, left: Embedded, right: Embedded) -> Tensor:
        """Return posterior covariances, (k, l)."""
        prior = gram(self.table.kernel, left.points, right.points).double()
        spanned = left.coordinates.mT @ right.coordinates
        return prior - spanned + self.table.posterior.inverse_product(left.coordinates, right.coordinates)

    def draw(self, seed: int) -> Callable[[Tensor], Tensor]:
        """Return a draw of f − mean as a function of points, (k, d) to (k,): the same one in whatever blocks.

        Raises:
            InputError: if there are no waves of the kernel.
        """
        table, generator = self.table, torch.Generator().manual_seed(seed)
        waves = wave_prior(table.kernel, table.no_points.shape[-1]).draw(generator)
        correction = table.draw_correction(lambda rows: waves.at(table.points_of(rows)), generator)
        return lambda X: waves.at(X) + correction @ self.embed(X).coordinates

    def seen(self, at: Embedded) -> Seen:
        """Return points as ``Conditional`` takes them."""
        if not self.table.learns_residual:
            return Seen(at.coordinates, None)
        share = residual_share(at.prior_variance, self._spanned(at), self.dtc_variance_at(at))
        return Seen(at.coordinates, share.sqrt())

    def _spanned(self, at: Embedded) -> Tensor:
        """Return what the dictionary spans of prior variances, (k,)."""
        return self.table.posterior.spanned(at.coordinates) if at.spanned is None else at.spanned

    def values(self, points: Tensor, at: Embedded) -> Tensor:
        """Return kernel values of points (k, d) against embedded ones, (k, l)."""
        return gram(self.table.kernel, at.points, points).double().mT

    def hallucinating(self, points: Tensor, before: "Hallucinated | None" = None) -> "Hallucinated":
        """Return what observing points (k, d) at their means takes from variances, besides that of points before.

        Cost: O(k m² + l k (m + l)) for l points in all.
        """
        dtc = self.table.posterior
        if before is None:
            none = Conditional.none(dtc.size, dtc.moment, learns_residual=self.table.learns_residual)
            before = Hallucinated(points[:0], none)
        points, counts = points.unique_consecutive(dim=0, return_counts=True)
        at, everything = self.embed(points), torch.cat([before.points, points])
        seen, noise = self.seen(at), self.belief.regularization.double() / counts
        known = dtc.explained(at.coordinates), None if seen.roots is None else dtc.inside(at.coordinates)
        return Hallucinated(everything, before.conditional.given(seen, *known, self.values(everything, at), noise))

    def variance_given(self, at: Embedded, hallucinated: "Hallucinated") -> Tensor:
        """Return posterior variances given points pending, (k,). Cost: O(k l (m + l)) for l of them."""
        (points, conditional), seen, variance = hallucinated, self.seen(at), self.variance_at(at)
        formula = known_formula(self.table.kernel, points.shape[1])
        if formula is None or not conditional.loops_over(seen, points):
            return (variance - conditional.taken(self.values(points, at), seen)).clamp_min(0.0)
        given = formula, as_array(at.points), as_array(points), points.dtype == torch.float32
        left = joint_loops.variance_given(*given, *conditional.arrays, *seen.arrays, variance.numpy())
        return torch.from_numpy(left)

    @cached_property
    def domain(self) -> Domain:
        """What may be played in a box that stays, with where to start the search."""
        search, belief = cast(BoxSearch, self.place.search), self.belief
        return search.domain(belief.latest, belief.recommend()) if belief.num_observations else search.box.domain

    @cached_property
    def model(self) -> NystromGP:
        """The posterior as a BoTorch model, whose factors are taken from here. Cost: O(m³) after a reward."""
        points, factors = self.table.restricted_factors()
        X, Y = self.belief.observations
        return cast(NystromGP, self.belief.model(X, Y, points, self.belief.noise, factors))
