"""What is left of the variance that a full dictionary does not span."""

import torch
from torch import Tensor

#: Of this share of the prior variance rounding may leave nothing: what is left of the spanned part counts as that much.
_ROUNDING = {torch.float64: 1e-9, torch.float32: 1e-5}

#: Where a dictionary spans less than this share of the prior variance, its rewards say less than half of what they
#: would. With 0.01 bandits settled sooner, with 1 they explored more, and in the long run regrets were alike.
_REACH = 0.3


def residual_share(prior: Tensor, spanned: Tensor, variance: Tensor) -> Tensor:
    """Return the share of the residual variance that is left where it is learned like what is spanned, in (0, 1].

    Let a dictionary span q = zᵀz of the prior variance k = k(x, x), r = k − q its residual, and s = zᵀV⁻¹z what
    rewards left of q, so that the DTC variance is r + s. If all of k were spanned, to leave the share s/q of it rewards
    would have to tell of f(x) with precision n = (q/s − 1)/k. That much less is left of the residual:

        share = 1 / (1 + g r n),    g = q / (q + 0.3 k)

    where g is for points that the dictionary hardly reaches, of which its rewards say little.

    The DTC variance keeps r for good, so that a bandit explores for ever what a dictionary that is full cannot learn.
    The variance s + share r equals the DTC one before any reward, and the exact one where r = 0. It is never above the
    former, and not below the latter where all rewards are of the point itself. Between points that a larger dictionary
    would tell apart it may come out too small: no theorem covers it.

    Source: ours.

    Args:
        prior: k(x, x), in reward units squared; all have one shape.
        spanned: q.
        variance: r + s.
    """
    return _split(prior, spanned, variance)[2]


def learned_residual(prior: Tensor, spanned: Tensor, variance: Tensor) -> Tensor:
    """Return the variance whose residual is learned like what is spanned; see ``residual_share``."""
    residual, left, share = _split(prior, spanned, variance)
    return left + share * residual


def _split(prior: Tensor, spanned: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return r, s between 0 and q, and the share of r that is left, all of it where there is no prior variance."""
    residual = (prior - spanned).clamp_min(0.0)
    left = torch.minimum((variance - residual).clamp_min(0.0), spanned)
    at_least = torch.maximum(left, _ROUNDING[prior.dtype] * prior)
    reached = spanned / (spanned + _REACH * prior).clamp_min(torch.finfo(prior.dtype).tiny)
    kept, taught = prior * at_least, reached * residual * (spanned - left)
    total = kept + taught
    return residual, left, torch.where(total > 0.0, kept / torch.where(total > 0.0, total, 1.0), 1.0)
