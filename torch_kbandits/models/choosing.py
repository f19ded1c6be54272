"""Which points span a Nyström posterior: chosen by a rule, or those that a dictionary does not span."""

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.dictionaries import PlayedPoints
from torch_kbandits.dictionaries.kors import SPANNED
from torch_kbandits.numerics.gram import gram, prior_variance
from torch_kbandits.numerics.linalg import non_negative_variance
from torch_kbandits.numerics.rows import distinct_in_order, row_keys
from torch_kbandits.posteriors.dtc import DTCFactors


def unspanned(kernel: Kernel, factors: DTCFactors, dictionary: Tensor, points: Tensor) -> list[int]:
    """Return which of the points (..., k, d) neither a dictionary (..., m, d) nor those before them span.

    In a batch these are the points that some member does not span.

    Raises:
        NumericalError: if the kernel is no covariance.

    Cost: O(k m² + k³).
    """
    own, prior = factors.embed(gram(kernel, dictionary, points)), prior_variance(kernel, points)
    left = gram(kernel, points) - own.mT @ own
    non_negative_variance(left.diagonal(dim1=-2, dim2=-1), prior)
    least = SPANNED[left.dtype] * prior
    rows = []
    for row in range(points.shape[-2]):
        pivot, column, left = left[..., 0, 0], left[..., 1:, 0], left[..., 1:, 1:]
        outside = pivot > least[..., row]
        if bool(outside.any()):
            rows.append(row)
            column = column * torch.where(outside, pivot, torch.inf).rsqrt().unsqueeze(-1)
            left = left - column.unsqueeze(-1) * column.unsqueeze(-2)
    return rows


def played_points(
    points: Tensor, seen: Tensor, kernel: Kernel, variances: Tensor, posterior: Tensor, dictionary: Tensor
) -> tuple[Tensor, PlayedPoints]:
    """Return the distinct points among n observations, and what a rule may know of them.

    Args:
        points: as they were told, (n, d).
        seen: as the kernel sees them, (..., n, d).
        kernel: the prior covariance.
        variances: noise variances of the observations, (..., n).
        posterior: the variances of the present posterior there, (..., n).
        dictionary: the present dictionary, as it was told, (m, d).

    Returns:
        The points (u, d), as they were told and in the order of their first observation, and the same for a rule: a
        point observed with several noise variances has their harmonic mean, and its score is the largest over outputs.
    """
    rows, places = distinct_in_order(points)
    u, numbers = len(rows), torch.arange(len(points), device=points.device)
    first = numbers.new_full((u,), len(points)).scatter_reduce(0, places, numbers, "amin")
    counts = torch.bincount(places, minlength=u).to(points)
    noise = counts / variances.new_zeros(*variances.shape[:-1], u).index_add(-1, places, variances.reciprocal())
    scores = posterior[..., first] / noise
    held = set(row_keys(dictionary))
    in_dictionary = torch.tensor([key in held for key in row_keys(rows)], device=points.device, dtype=torch.bool)
    scores = scores.flatten(end_dim=-2).amax(0) if scores.dim() > 1 else scores
    return rows, PlayedPoints(seen[..., first, :], kernel, noise, counts, scores, in_dictionary)
