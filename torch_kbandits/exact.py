"""The exact Gaussian-process posterior as algebra on Gram matrices; it knows no kernel, model or candidate set."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from torch_kbandits.linalg import (
    cholesky_append,
    cholesky_rank_one,
    cholesky_remove,
    jittered_cholesky,
    non_negative_variance,
)


@dataclass(frozen=True, eq=False)
class ExactFactors:
    """The factors of the exact posterior at u distinct points, repeated observations of a point merged into one.

    With A = K_UU + D = L Lᵀ and z(x) = L⁻¹ k_U(x):

        mean(x)   = z(x)ᵀ L⁻¹ ȳ
        cov(x,x') = k(x,x') − z(x)ᵀ z(x')

    where ȳ are the precision-weighted mean rewards of the points and D their variances, λ/c for c observations of
    noise variance λ. Merging changes no posterior: only Σ 1/λ_s and Σ y_s/λ_s of a point enter it.

    Embeddings are feature-major: (..., u, N) for N points. Leading dimensions are batch dimensions and broadcast.

    Attributes:
        factor: L (..., u, u), lower triangular.
        noise: the diagonal of D, (..., u).
        targets: ȳ less the prior mean, (..., u).
        whitened: L⁻¹ ȳ, (..., u).
    """

    factor: Tensor
    noise: Tensor
    targets: Tensor
    whitened: Tensor

    @classmethod
    def fit(cls, prior_gram: Tensor, targets: Tensor, noise: Tensor) -> Self:
        """Condition on the mean rewards of u points.

        Args:
            prior_gram: K_UU (..., u, u).
            targets: mean rewards less the prior mean, (..., u).
            noise: variances of the mean rewards, (..., u).

        Raises:
            NotPositiveDefiniteError: if K_UU has a clearly negative eigenvalue.

        Cost: O(u³).
        """
        factor = jittered_cholesky(prior_gram + torch.diag_embed(noise))
        return cls._with(factor, noise, targets)

    def embed(self, cross_gram: Tensor) -> Tensor:
        """Return z(x) for each column of K_Ux: (..., u, N) to (..., u, N). Cost: O(N u²)."""
        return torch.linalg.solve_triangular(self.factor, cross_gram, upper=False)

    def mean(self, embedding: Tensor) -> Tensor:
        """Return the posterior mean less the prior mean, (..., N). Cost: O(N u)."""
        return (self.whitened.unsqueeze(-2) @ embedding).squeeze(-2)

    def variance(self, prior_variance: Tensor, embedding: Tensor) -> Tensor:
        """Return the posterior variances (..., N) from k(x, x) (..., N). Cost: O(N u)."""
        return non_negative_variance(prior_variance - embedding.square().sum(-2), prior_variance)

    def covariance(self, prior_covariance: Tensor, embedding: Tensor) -> Tensor:
        """Return the posterior covariance (..., q, q) from the prior one and (..., u, q). Cost: O(q² u)."""
        return prior_covariance - embedding.mT @ embedding

    def coefficients(self) -> Tensor:
        """Return α = A⁻¹ ȳ (..., u): the mean is α k_U(x), plus the prior mean. Cost: O(u²)."""
        return torch.linalg.solve_triangular(self.factor.mT, self.whitened.unsqueeze(-1), upper=True).squeeze(-1)

    def information_gain(self) -> Tensor:
        """Return ½ log det(I + Σ^-½ K Σ^-½) (...,) of all observations, merged or not, in nats."""
        return self.factor.diagonal(dim1=-2, dim2=-1).log().sum(-1) - 0.5 * self.noise.log().sum(-1)

    def mean_norm(self) -> Tensor:
        """Return the RKHS norm of the posterior mean less the prior mean, (...,), in reward units."""
        squared = self.whitened.square().sum(-1) - (self.noise * self.coefficients().square()).sum(-1)
        return squared.clamp_min(0.0).sqrt()

    def draw_correction(self, prior: Tensor, generator: torch.Generator) -> Tensor:
        """Return w (u,) such that g(x) + z(x)ᵀ w is a draw of f − mean, for a prior draw g with values ``prior`` (u,).

        Source: Matheron's rule, Wilson et al., ICML 2020. Cost: O(u²).
        """
        normals = torch.randn(len(prior), generator=generator, dtype=torch.float64).to(prior)
        return -self._whiten(self.factor, prior + self.noise.sqrt() * normals)

    @property
    def batch_dims(self) -> int:
        """Number of batch dimensions."""
        return self.whitened.dim() - 1

    # ---------------------------------------------------------------- changes, O(u²) each

    def appended(self, cross_gram: Tensor, corner: Tensor, targets: Tensor, noise: Tensor) -> Self:
        """Return the factors with k more points.

        Args:
            cross_gram: the old points against the new, (..., u, k).
            corner: the prior covariance of the new points, (..., k, k).
            targets: their mean rewards less the prior mean, (..., k).
            noise: variances of these, (..., k).
        """
        factor = cholesky_append(self.factor, cross_gram, corner + torch.diag_embed(noise))
        return self._with(factor, _join(self.noise, noise), _join(self.targets, targets))

    def reweighted(self, index: int, target: Tensor, noise: Tensor) -> Self:
        """Return the factors with another mean reward (...,) of another variance (...,) at point ``index``."""
        change = noise - self.noise[..., index]
        noises, targets = self.noise.clone(), self.targets.clone()
        noises[..., index], targets[..., index] = noise, target
        unit = torch.zeros_like(self.noise)
        unit[..., index] = 1.0
        factor = cholesky_rank_one(self.factor, unit, change, start=index)
        return self._with(factor, noises, targets)

    def removed(self, index: int) -> Self:
        """Return the factors without point ``index``."""
        keep = torch.arange(self.noise.shape[-1], device=self.noise.device) != index
        return self._with(cholesky_remove(self.factor, index), self.noise[..., keep], self.targets[..., keep])

    def is_finite(self) -> bool:
        """Say whether rounding has left the factors usable; a change that failed shows on the diagonal. Cost: O(u)."""
        return bool(torch.isfinite(self.factor.diagonal(dim1=-2, dim2=-1)).all())

    @classmethod
    def _with(cls, factor: Tensor, noise: Tensor, targets: Tensor) -> Self:
        return cls(factor, noise, targets, cls._whiten(factor, targets))

    @staticmethod
    def _whiten(factor: Tensor, values: Tensor) -> Tensor:
        return torch.linalg.solve_triangular(factor, values.unsqueeze(-1), upper=False).squeeze(-1)


def _join(old: Tensor, new: Tensor) -> Tensor:
    shape = torch.broadcast_shapes(old.shape[:-1], new.shape[:-1])
    return torch.cat([old.expand(*shape, old.shape[-1]), new.expand(*shape, new.shape[-1])], dim=-1)
