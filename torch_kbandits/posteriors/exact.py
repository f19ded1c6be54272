"""The exact Gaussian-process posterior as algebra on Gram matrices; it knows no kernel, model or candidate set."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self, cast

import torch
from torch import Tensor

from torch_kbandits.numerics.bordered import BorderedFactor
from torch_kbandits.numerics.linalg import is_finite, jittered_cholesky, magnitude, non_negative_variance, schur_factor


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
        noise_share: Tr D A⁻¹ (...,), without gradients, if it is carried along.
    """

    factor: BorderedFactor
    noise: Tensor
    targets: Tensor
    whitened: Tensor
    noise_share: Tensor | None = None

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
        factor = BorderedFactor.of(jittered_cholesky(prior_gram + torch.diag_embed(noise)))
        return cls(factor, noise, targets, _column(factor.solve, targets))

    def embed(self, cross_gram: Tensor) -> Tensor:
        """Return z(x) for each column of K_Ux: (..., u, N) to (..., u, N). Cost: O(N u²)."""
        return self.factor.solve(cross_gram)

    def mean(self, embedding: Tensor) -> Tensor:
        """Return the posterior mean less the prior mean, (..., N). Cost: O(N u)."""
        return (self.whitened.unsqueeze(-2) @ embedding).squeeze(-2)

    def variance(self, prior_variance: Tensor, embedding: Tensor) -> Tensor:
        """Return the posterior variances (..., N) from k(x, x) (..., N). Cost: O(N u)."""
        return non_negative_variance(prior_variance - embedding.square().sum(-2), prior_variance)

    def reducible(self, prior_variance: Tensor, embedding: Tensor) -> Tensor:
        """Return what more observations could take away of the variances (..., N): all of them. Cost: O(N u)."""
        return self.variance(prior_variance, embedding)

    def covariance(self, prior_covariance: Tensor, embedding: Tensor) -> Tensor:
        """Return the posterior covariance (..., q, q) from the prior one and (..., u, q). Cost: O(q² u)."""
        return prior_covariance - self.explained(embedding, embedding)

    def explained(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the prior less the posterior covariance (..., k, l), from (..., u, k) and (..., u, l)."""
        return left.mT @ right

    def coefficients(self) -> Tensor:
        """Return α = A⁻¹ ȳ (..., u): the mean is α k_U(x), plus the prior mean. Cost: O(u²)."""
        return _column(self.factor.solve_transposed, self.whitened)

    def information_gain(self) -> Tensor:
        """Return ½ log det(I + Σ^-½ K Σ^-½) (...,) of all observations, merged or not, in nats."""
        return self.factor.diagonal().log().sum(-1) - 0.5 * self.noise.log().sum(-1)

    def mean_norm(self) -> Tensor:
        """Return the RKHS norm of the posterior mean less the prior mean, (...,), in reward units."""
        scale = magnitude(self.whitened)
        whitened, coefficients = self.whitened / scale, self.coefficients() / scale
        squared = whitened.square().sum(-1) - (self.noise * coefficients.square()).sum(-1)
        return squared.clamp_min(0.0).sqrt() * scale.squeeze(-1)

    def draw_correction(self, prior: Tensor, generator: torch.Generator) -> Tensor:
        """Return w (u,) such that g(x) + z(x)ᵀ w is a draw of f − mean, for a prior draw g with values ``prior`` (u,).

        Source: Matheron's rule, Wilson et al., ICML 2020. Cost: O(u²).
        """
        normals = torch.randn(len(prior), generator=generator, dtype=torch.float64, device="cpu").to(prior)
        return -_column(self.factor.solve, prior + self.noise.sqrt() * normals)

    def with_noise_share(self) -> Self:
        """Return the same factors with Tr D A⁻¹, which changes then carry along at O(u²) each. Cost: O(u³)."""
        if self.noise_share is not None:
            return self
        with torch.no_grad():
            inverse = torch.cholesky_inverse(self.factor.dense())
            return replace(self, noise_share=(inverse.diagonal(dim1=-2, dim2=-1) * self.noise).sum(-1))

    def effective_dimension(self) -> Tensor:
        """Return Σ_s τ(x_s) = Tr K(K + Σ)⁻¹ of all observations, merged or not, (...,), without gradients.

        With merged points it is Tr K_UU A⁻¹ = u − Tr D A⁻¹, also where observations of a point differ in variance: its
        τ sum to σ²(x) Σ 1/λ_s, and D holds 1 / Σ 1/λ_s. Cost: O(u³) unless ``noise_share`` is carried.
        """
        share = cast(Tensor, self.with_noise_share().noise_share)
        return (len(self.factor) - share).clamp_min(0.0)

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
        across = self.factor.solve(cross_gram)
        schur = schur_factor(corner + torch.diag_embed(noise), across)
        unexplained = targets - (across.mT @ self.whitened.unsqueeze(-1)).squeeze(-1)
        whitened = torch.linalg.solve_triangular(schur, unexplained.unsqueeze(-1), upper=False).squeeze(-1)
        return type(self)(
            self.factor.appended(across, schur),
            _join(self.noise, noise),
            _join(self.targets, targets),
            _join(self.whitened, whitened),
            self._appended_share(across, schur, noise),
        )

    def reweighted(self, index: int, target: Tensor, noise: Tensor) -> Self:
        """Return the factors with another mean reward (...,) of another variance (...,) at point ``index``."""
        change = noise - self.noise[..., index]
        noises, targets = self.noise.clone(), self.targets.clone()
        noises[..., index], targets[..., index] = noise, target
        factor = self.factor.reweighted(index, change)
        share = self._reweighted_share(index, change, noises)
        return type(self)(factor, noises, targets, _column(factor.solve, targets), share)

    def removed(self, index: int) -> Self:
        """Return the factors without point ``index``."""
        keep = torch.arange(self.noise.shape[-1], device=self.noise.device) != index
        factor, targets = self.factor.removed(index), self.targets[..., keep]
        share = self._removed_share(index)
        return type(self)(factor, self.noise[..., keep], targets, _column(factor.solve, targets), share)

    def is_finite(self) -> bool:
        """Say whether neither rounding nor a kernel value or a sum of rewards has made them NaN. Cost: O(u)."""
        return bool(is_finite(self.factor.diagonal()).all() and is_finite(self.whitened).all())

    # ---------------------------------------------------------------- Tr D A⁻¹ after a change

    @torch.no_grad()
    def _appended_share(self, across: Tensor, schur: Tensor, noise: Tensor) -> Tensor | None:
        """Return it after a border C with V = A⁻¹C and S the Schur complement: Tr S⁻¹(VᵀDV + D_new) more."""
        if self.noise_share is None:
            return None
        old = self.factor.solve_transposed(across) * self.noise.sqrt().unsqueeze(-1)
        both = torch.cat([old, torch.diag_embed(noise.sqrt()).expand(*old.shape[:-2], -1, -1)], dim=-2)
        return self.noise_share + torch.linalg.solve_triangular(schur, both.mT, upper=False).square().sum((-2, -1))

    @torch.no_grad()
    def _reweighted_share(self, index: int, change: Tensor, noises: Tensor) -> Tensor | None:
        """Return it after D changed by δ at i to D', with w = A⁻¹eᵢ: δ(wᵢ − wᵀD'w / (1 + δwᵢ)) more."""
        if self.noise_share is None:
            return None
        column = self._inverse_column(index)
        own = column[..., index]
        return self.noise_share + change * (own - (noises * column.square()).sum(-1) / (1.0 + change * own))

    @torch.no_grad()
    def _removed_share(self, index: int) -> Tensor | None:
        """Return it without point i, with w = A⁻¹eᵢ: wᵀDw / wᵢ less."""
        if self.noise_share is None:
            return None
        column = self._inverse_column(index)
        return self.noise_share - (self.noise * column.square()).sum(-1) / column[..., index]

    def _inverse_column(self, index: int) -> Tensor:
        unit = torch.zeros_like(self.noise)
        unit[..., index] = 1.0
        return _column(self.factor.solve_transposed, _column(self.factor.solve, unit))


def _column(solve: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
    """Return the solution (..., u) for one column (..., u)."""
    return solve(values.unsqueeze(-1)).squeeze(-1)


def _join(old: Tensor, new: Tensor) -> Tensor:
    shape = torch.broadcast_shapes(old.shape[:-1], new.shape[:-1])
    return torch.cat([old.expand(*shape, old.shape[-1]), new.expand(*shape, new.shape[-1])], dim=-1)
