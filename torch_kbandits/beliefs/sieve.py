"""Which of many points in a round may have the highest score, by a bound that costs their kernel values alone."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torch_kbandits.numerics.gram import gram, prior_mean, prior_variance
from torch_kbandits.posteriors.residual import learned_residual

if TYPE_CHECKING:
    from torch_kbandits.beliefs.joint import JointPosterior

#: Fewer points than this are looked at one and all.
WORTHWHILE = 2048

#: Points of the round from whose variances those of the others are bounded.
_BOUNDING = 32

#: Directions in which these have less than this share of the largest variance explained say nothing but rounding.
_SHARE = 1e-9

#: Kernel values that are computed at a time, so that they stay in cache.
_VALUES = 2**17


def score_bounds(
    posterior: "JointPosterior",
    points: Tensor,
    score: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """Return upper bounds of the scores of points (A, d), (A,).

    With z = L⁻¹ k_Z(x) the coordinates of a point and G = I − K⁻¹, its variance is k(x, x) − zᵀGz. Let S be some points
    of the round and Z_S their coordinates. By Cauchy's inequality in the norm of G,

        zᵀGz >= zᵀG Z_S (Z_Sᵀ G Z_S)⁺ Z_Sᵀ G z,

    with equality where S spans the dictionary, and nearly so where points are like those of S. The right side is the
    squared norm of at most 32 linear functions of the kernel values, and the mean is one more. Where the residual of a
    full dictionary is learned, which makes variances grow with this one, what is spanned is computed as it is.

    Args:
        posterior: without anything pending, which makes no variance larger.
        points: (A, d), A >= 1.
        score: returns scores (k,) from means (k,) and variances (k,), and grows with both.

    Cost: O(A m (d + 32)), and O(m²) for each of 32 points; of all points where the residual is learned.
    """
    table, dtc = posterior.table, posterior.table.posterior
    functions = torch.cat([_weights(posterior).unsqueeze(0), _functions(posterior, points)])
    parts, size = [], max(1, _VALUES // max(1, dtc.size))
    spanning = dtc.spanning_functions() if table.learns_residual else None
    for part, prior in zip(points.split(size), prior_variance(table.kernel, points).double().split(size), strict=True):
        at_part = gram(table.kernel, table.spanning_points, part).double()
        values = functions @ at_part
        learned, values = values[0], values[1:]
        if table.prior_mean is not None:
            learned = learned + prior_mean(table.prior_mean, part).double()
        variance = (prior - values.square().sum(0)).clamp_min(0.0)
        if spanning is not None:
            variance = learned_residual(prior, (spanning @ at_part).square().sum(0), variance)
        parts.append(score(learned, variance))
    return torch.cat(parts)


def _weights(posterior: "JointPosterior") -> Tensor:
    """Return the weights of kernel values that the mean is, (m,)."""
    dtc = posterior.table.posterior
    return torch.linalg.solve_triangular(dtc.factor.mT, dtc.weights.unsqueeze(-1), upper=True).squeeze(-1)


def _functions(posterior: "JointPosterior", points: Tensor) -> Tensor:
    """Return weights of kernel values (r, m), r <= 32: the squares of these functions add up to the bound."""
    dtc, number = posterior.table.posterior, min(_BOUNDING, len(points))
    rows = torch.linspace(0, len(points) - 1, number, dtype=torch.float64, device=points.device).round().long()
    some = posterior.table.embedded(points[rows]).coordinates
    explained = dtc.explained(some)
    values, vectors = torch.linalg.eigh(some.mT @ explained)
    kept = values > _SHARE * values[-1].clamp_min(0.0)
    directions = explained @ (vectors[:, kept] / values[kept].sqrt())
    return torch.linalg.solve_triangular(dtc.factor.mT, directions, upper=True).mT.contiguous()
