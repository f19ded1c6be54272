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
        points: P, (l, d).
        own: z − cov z of each, (m, l).
        inside: z projected on what the dictionary spans, (m, l).
        roots: of the share of its residual variance that is left, (l,); see ``residual_share``.
        factor: C, (l, l).
        taken: F at the arms, (l, A); None without arms.
    """

    posterior: Posterior
    points: Tensor
    own: Array
    inside: Array
    roots: Array
    factor: Array
    taken: Any

    @classmethod
    def none(cls, posterior: Posterior) -> Self:
        """Return a posterior with nothing pending."""
        none, arms = np.empty((posterior.size, 0)), posterior.arms
        taken = None if arms is None else arms.untaken
        return cls(posterior, posterior.told.points[:0], none, none, np.empty(0), np.empty((0, 0)), taken)

    def given(self, point: Tensor, times: int = 1) -> Self:
        """Return it with a point (1, d) pending, so many times. Cost: O(m² + l m), and one read of the arms."""
        posterior = self.posterior
        at = posterior.at(point)
        below = self._taken_of(at)
        own, inside = at.own, posterior.inside(at.z)
        roots = posterior.residual_roots(at)
        noise = posterior.prior.noise / times
        corner = float(np.sqrt(max(posterior.variance_at(at)[0] - below[:, 0] @ below[:, 0], 0.0) + noise))
        after = changed(
            self,
            points=torch.cat([self.points, point]),
            own=np.hstack((self.own, own)),
            inside=np.hstack((self.inside, inside)),
            roots=np.append(self.roots, roots),
            factor=bordered(self.factor, below[:, 0], corner),
        )
        arms = posterior.arms
        if arms is None:
            return after
        learned = (inside[:, 0], float(roots[0])) if posterior.learns_residual else None
        return changed(after, taken=arms.taken(self.taken, point, own[:, 0], below[:, 0], corner, learned))

    def variance_at(self, at: Points) -> Array:
        """Return the variances of points, (q,)."""
        variance = self.posterior.variance_at(at)
        return np.maximum(variance - np.square(self._taken_of(at)).sum(0), 0.0)

    def arm_variance(self) -> Any:
        """Return the variances of the arms, (A,)."""
        return cast(Arms, self.posterior.arms).steps.left(self.posterior.arm_variance(), self.taken)

    def _taken_of(self, at: Points) -> Array:
        """Return F at points, (l, q)."""
        if not len(self.roots):
            return np.empty((0, at.z.shape[1]))
        values = self.posterior.prior.between(self.points, at.X)
        cov = values - self.own.T @ at.z
        if self.posterior.learns_residual:
            roots = np.outer(self.roots, self.posterior.residual_roots(at))
            cov = cov - (1.0 - roots) * (values - self.inside.T @ at.z)
        return scipy.linalg.solve_triangular(self.factor, cov, lower=True)
