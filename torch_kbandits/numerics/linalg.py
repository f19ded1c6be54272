"""Factors, densities and variances that stay meaningful in finite precision."""

import math

import torch
from linear_operator.utils.errors import NotPSDError
from scipy.linalg import get_lapack_funcs
from torch import Tensor

from torch_kbandits.errors import NumericalError

#: Largest jitter, relative to the mean diagonal, that rounding alone can call for.
_MAX_RELATIVE_JITTER = {torch.float64: 1e-6, torch.float32: 1e-3}

#: A variance below minus this fraction of the prior variance is an error, above it is rounding.
_NEGATIVE_VARIANCE_TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-2}


class NotPositiveDefiniteError(NumericalError, NotPSDError):
    """A Gram matrix has a clearly negative eigenvalue. As ``NotPSDError``, BoTorch's fits try again after it."""


def jittered_cholesky(matrix: Tensor, *, for_solving: bool = False) -> Tensor:
    """Return the lower Cholesky factor of ``matrix`` plus the least jitter on its diagonal that makes it succeed.

    The jitter starts at 0, then at ten times the rounding error of the mean diagonal, and grows tenfold. Members of a
    batch that need none get none.

    Args:
        matrix: symmetric, (..., m, m); m may be 0.
        for_solving: whether the factor of a nearly singular matrix counts as a failure: L⁻¹ may turn the rounding of
            kernel values into errors of the size of the result. Points in the order of ``spanning_pivots`` need it not.

    Raises:
        NumericalError: if the matrix has NaN or infinite entries.
        NotPositiveDefiniteError: if more jitter would be needed than rounding explains.

    Cost: O(m³) a batch member and attempt; one attempt unless the matrix is singular to rounding.
    """
    factor, info = torch.linalg.cholesky_ex(matrix)
    diagonal = factor.diagonal(dim1=-2, dim2=-1)
    failed = (info > 0) | ~torch.isfinite(diagonal).all(-1)  # some LAPACKs take NaN for a success
    failed = failed | _is_lost(factor) if for_solving else failed
    if not bool(failed.any()):
        return factor
    if not bool(torch.isfinite(matrix).all()):
        raise NumericalError("The Gram matrix has NaN or infinite entries: check the kernel and the inputs.")
    scale = matrix.diagonal(dim1=-2, dim2=-1).mean(-1)
    scale = torch.where(scale == 0.0, 1.0, scale)  # a kernel may vanish at all points, as a linear one at the origin
    limit = _MAX_RELATIVE_JITTER[matrix.dtype]
    relative = 10.0 * matrix.shape[-1] * torch.finfo(matrix.dtype).eps
    while relative <= limit:
        jitter = torch.where(failed, relative * scale, 0.0).unsqueeze(-1).expand(matrix.shape[:-1])
        factor, info = torch.linalg.cholesky_ex(matrix + torch.diag_embed(jitter))
        if not bool((info > 0).any()):
            return factor
        failed = failed | (info > 0)
        relative *= 10.0
    raise _not_a_covariance(matrix.detach(), limit * float(scale.detach().abs().amax()))


def normal_log_density(covariance: Tensor, y: Tensor) -> Tensor:
    """Return log N(y | 0, C) of values (..., n) under covariances (..., n, n), (...,).

    With α = C⁻¹ y its gradients are ½ (α αᵀ − C⁻¹) and −α, for less than they cost through the factor: what is added
    to the value is 0 and has these gradients. Cost: O(n³) a batch member, once for all.
    """
    factor, targets = jittered_cholesky(covariance.detach()), y.detach()
    solved = torch.cholesky_solve(targets.unsqueeze(-1), factor).squeeze(-1)
    constant = y.shape[-1] * math.log(2.0 * math.pi)
    value = -0.5 * ((targets * solved).sum(-1) + constant) - factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    slope = 0.5 * (solved.unsqueeze(-1) * solved.unsqueeze(-2) - torch.cholesky_inverse(factor))
    return value + (slope * (covariance - covariance.detach())).sum((-2, -1)) - (solved * (y - targets)).sum(-1)


def _not_a_covariance(matrix: Tensor, limit: float) -> NotPositiveDefiniteError:
    return NotPositiveDefiniteError(
        f"The Gram matrix of {matrix.shape[-1]} points is not positive semi-definite: its smallest eigenvalue is "
        f"{float(torch.linalg.eigvalsh(matrix).amin()):.3g} and rounding explains down to {-limit:.3g}. "
        "The kernel is not a valid covariance."
    )


def _is_lost(factor: Tensor) -> Tensor:
    """Say whether L Lᵀ, scaled to a diagonal of ones, has an eigenvalue of less than √eps / 10, (...,).

    Kernel values that are off by δ explain up to δ / eigenvalue more than there is, and no more than δ with a jitter of
    at least δ. The eigenvalue is estimated by inverse iteration, where a small pivot gives reason to. Cost: O(m²).
    """
    m, root = factor.shape[-1], torch.finfo(factor.dtype).eps ** 0.5
    with torch.no_grad():
        scaled = factor / factor.norm(dim=-1, keepdim=True)
        suspicious = (scaled.diagonal(dim1=-2, dim2=-1).square() < root).any(-1)
        if not bool(suspicious.any()):
            return suspicious
        growth = torch.cos(torch.arange(m, dtype=factor.dtype, device=factor.device))
        growth = growth.unsqueeze(-1).expand_as(scaled[..., :1])
        for _ in range(3):
            growth = torch.cholesky_solve(growth / growth.norm(dim=-2, keepdim=True), scaled)
        return suspicious & ~(growth.norm(dim=(-2, -1)) * root < 10.0)


def magnitude(values: Tensor) -> Tensor:
    """Return the largest of |values| (..., m), (..., 1), to take squares of the rest; 1 where there is none but 0."""
    if values.shape[-1] == 0:
        return values.new_ones(()).expand(*values.shape[:-1], 1)
    largest = values.detach().abs().amax(-1, keepdim=True)
    return torch.where(largest == 0.0, 1.0, largest)


def spanning_pivots(gram: Tensor, tolerance: float) -> Tensor:
    """Return the numbers (m,) of points that span all of them, the least explained first: those of pivoted Cholesky.

    Given are their kernel values (n, n), and what of a variance may be left, as a fraction of the largest; of any
    points there is one. Cost: O(n m²), on the CPU in double precision.

    Raises:
        NotPositiveDefiniteError: if others leave of a variance what is clearly negative.
    """
    values = gram.double().cpu().numpy()
    largest = float(values.diagonal().max(initial=0.0))
    (pivoted_cholesky,) = get_lapack_funcs(("pstrf",), (values,))
    factor, pivots, rank, _ = pivoted_cholesky(values, tol=tolerance * largest, lower=1)
    order, limit = pivots.astype("int64") - 1, _MAX_RELATIVE_JITTER[torch.float64] * largest
    left = values.diagonal()[order[rank:]] - (factor[rank:, :rank] ** 2).sum(1)
    if bool((left < -limit).any()):
        raise _not_a_covariance(torch.from_numpy(values), limit)
    return torch.from_numpy(order[: max(rank, 1)]).to(gram.device)


def covariance_root(covariance: Tensor) -> Tensor:
    """Return the symmetric R (n, n) with R R = covariance; eigenvalues that rounding made negative become 0.

    Draws by it move by no more than the root of rounding, as by a triangular root they may not. ``NumericalError`` if
    the covariance is not finite. Cost: O(n³).
    """
    if not bool(torch.isfinite(covariance).all()):
        raise NumericalError("The covariance to draw from is not finite: check the kernel and the inputs.")
    values, vectors = torch.linalg.eigh(covariance)
    return (vectors * values.clamp_min(0.0).sqrt()) @ vectors.mT


def non_negative_variance(variance: Tensor, prior_variance: Tensor) -> Tensor:
    """Return variances (...,), 0 where rounding, to the scale of the prior variances (...,), made them negative.

    Raises:
        NumericalError: if a variance is negative beyond rounding.
    """
    tolerance = _NEGATIVE_VARIANCE_TOLERANCE[variance.dtype]
    if bool((variance < -tolerance * prior_variance).any()):
        worst = float((variance / prior_variance).detach().amin())
        raise NumericalError(
            f"A posterior variance came out at {worst:.3g} times the prior variance, beyond rounding "
            f"({-tolerance:.0e}): use float64, a larger regularization, or check that the kernel is a covariance."
        )
    return variance.clamp_min(0.0)
