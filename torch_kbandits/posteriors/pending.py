"""A posterior with points observed at their posterior means: variances shrink, means stay."""

from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np
import scipy.linalg
import torch
from numpy.typing import NDArray
from torch import Tensor

from torch_kbandits.numerics.shallow import changed
from torch_kbandits.posteriors.posterior import Arms, Points, Posterior, bordered

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Pending:
    """A posterior with l points P hallucinated: each is taken to have returned its posterior mean.

        var(x | P) = var(x) − ‖F(x)‖²,    F(x) = C⁻¹ cov(P, x),    C Cᵀ = cov(P, P) + diag λ_p.

    The noise λ_p keeps C well-conditioned however close points are. No variance rises.

    Source: Desautels, Krause and Burdick, JMLR 2014 (GP-BUCB), for exact posteriors.

    Attributes:
        posterior: without them.
        pending: P.
        factor: C, (l, l).
        taken: F at the arms, (l, A); None without arms.
    """

    posterior: Posterior
    pending: Points
    factor: Array
    taken: Any

    @classmethod
    def none(cls, posterior: Posterior) -> Self:
        """Return a posterior with nothing pending."""
        none, arms = np.empty((posterior.size, 0)), posterior.arms
        pending = Points(posterior.told.points[:0], none, np.empty(0), none, posterior.gaussian.cov)
        return cls(posterior, pending, np.empty((0, 0)), None if arms is None else arms.untaken)

    def given(self, point: Tensor, times: int = 1) -> Self:
        """Return it with a point (1, d) pending, so many times. Cost: O(m² + l m), and one read of the arms."""
        posterior, (X, z, prior, own, cov) = self.posterior, self.pending
        at, arms = posterior.at(point), posterior.arms
        below = self._taken_of(at)[:, 0]
        left = max(posterior.variance_at(at)[0] - below @ below, 0.0)
        corner = float(np.sqrt(left + posterior.prior.noise / times))
        z, prior, own = np.hstack((z, at.z)), np.append(prior, at.prior), np.hstack((own, at.own))
        pending = Points(torch.cat([X, point]), z, prior, own, cov)
        after = changed(self, pending=pending, factor=bordered(self.factor, below, corner))
        if arms is None:
            return after
        learned = None
        if posterior.learns_residual:
            learned = posterior.inside(at.z)[:, 0], float(posterior.residual_roots(at)[0])
        return changed(after, taken=arms.taken(self.taken, point, at.own[:, 0], below, corner, learned))

    def variance_at(self, at: Points) -> Array:
        """Return the variances of points, (q,)."""
        variance = self.posterior.variance_at(at)
        return np.maximum(variance - np.square(self._taken_of(at)).sum(0), 0.0)

    def arm_variance(self) -> Any:
        """Return the variances of the arms, (A,)."""
        return cast(Arms, self.posterior.arms).steps.left(self.posterior.arm_variance(), self.taken)

    def _taken_of(self, at: Points) -> Array:
        """Return F at points, (l, q)."""
        posterior, before = self.posterior, self.pending
        if not len(before.prior):
            return np.empty((0, at.z.shape[1]))
        values = posterior.prior.between(before.X, at.X)
        cov = values - before.own.T @ at.z
        if posterior.learns_residual:
            roots = np.outer(posterior.residual_roots(before), posterior.residual_roots(at))
            cov = cov - (1.0 - roots) * (values - posterior.inside(before.z).T @ at.z)
        return scipy.linalg.solve_triangular(self.factor, cov, lower=True)
