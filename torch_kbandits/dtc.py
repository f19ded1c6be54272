"""The Nyström–DTC posterior as algebra on Gram matrices; it knows no kernel, model or candidate set."""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from torch_kbandits.linalg import LEAST_SHARE, cholesky_rank_one, jittered_cholesky, non_negative_variance


@dataclass(frozen=True, eq=False)
class DTCFactors:
    """The factors of a deterministic-training-conditional posterior at a dictionary Z of m points.

    With K_ZZ = L Lᵀ, z(x) = L⁻¹ k_Z(x) and V = I + Σ_s z_s z_sᵀ / λ_s:

        mean(x)   = z(x)ᵀ V⁻¹ Σ_s z_s y_s / λ_s
        cov(x,x') = k(x,x') − z(x)ᵀ z(x') + z(x)ᵀ V⁻¹ z(x')

    Source: Calandriello et al., COLT 2019, between (3) and (4); Zenati et al., AISTATS 2022, Prop. 4.2. Differs: their
    V is λ times this one and their variance is divided by λ; here variances are in reward units squared, and
    observations may have noise variances λ_s of their own.

    Embeddings are feature-major: (..., m, N) for N points. Leading dimensions are batch dimensions and broadcast.

    Attributes:
        dictionary_factor: L (..., m, m), lower triangular.
        precision_factor: lower Cholesky factor of V, (..., m, m).
        weights: V⁻¹ Σ_s z_s y_s / λ_s, (..., m), in reward units.
    """

    dictionary_factor: Tensor
    precision_factor: Tensor
    weights: Tensor

    @classmethod
    def fit(cls, dictionary_gram: Tensor, cross_gram: Tensor, targets: Tensor, noise: Tensor) -> Self:
        """Condition on n observations.

        Args:
            dictionary_gram: K_ZZ (..., m, m).
            cross_gram: K_ZX (..., m, n), the dictionary against the played points.
            targets: rewards less the prior mean, (..., n).
            noise: noise variances λ_s > 0, (..., n) or broadcastable to it.

        Raises:
            NotPositiveDefiniteError: if K_ZZ has a clearly negative eigenvalue.

        Cost: O(m³ + n m²) time, O(n m) memory.
        """
        dictionary_factor = jittered_cholesky(dictionary_gram, for_solving=True)
        embedding = embed(dictionary_factor, cross_gram)
        return cls.fit_embedded(dictionary_factor, embedding, targets, noise)

    @classmethod
    def fit_embedded(cls, dictionary_factor: Tensor, embedding: Tensor, targets: Tensor, noise: Tensor) -> Self:
        """Condition on n observations whose embeddings (..., m, n) are known. Cost: O(m³ + n m²)."""
        weighted = embedding / noise.unsqueeze(-2)
        identity = torch.eye(embedding.shape[-2], dtype=embedding.dtype, device=embedding.device)
        precision_factor = jittered_cholesky(identity + weighted @ embedding.mT)
        moment = weighted @ targets.unsqueeze(-1)
        weights = torch.cholesky_solve(moment, precision_factor).squeeze(-1)
        return cls(dictionary_factor, precision_factor, weights)

    def forgotten(self, embedding: Tensor, targets: Tensor, noise: Tensor) -> Self | None:
        """Take back k observations that are among those conditioned on, without batch dimensions.

        Args:
            embedding: z of each, (m, k).
            targets: rewards less the prior mean, (k,).
            noise: noise variances λ_s, (k,).

        Returns:
            The factors without them; None where rounding would be left of a variance.

        Source: w − V'⁻¹ z (y − zᵀw) / λ are the weights after V' = V − z zᵀ / λ. Cost: O(k m²).
        """
        factor, weights = self.precision_factor, self.weights
        for z, y, variance in zip(embedding.mT, targets, noise, strict=True):
            whitened = torch.linalg.solve_triangular(factor, z.unsqueeze(-1), upper=False)
            if bool(1.0 - whitened.square().sum() / variance < LEAST_SHARE):
                return None
            factor = cholesky_rank_one(factor, z, -1.0 / variance)
            solved = torch.cholesky_solve(z.unsqueeze(-1), factor).squeeze(-1)
            weights = weights - solved * ((y - z @ weights) / variance)
        return replace(self, precision_factor=factor, weights=weights)

    def embed(self, cross_gram: Tensor) -> Tensor:
        """Return z(x) for each column of K_Zx: (..., m, N) to (..., m, N). Cost: O(N m²)."""
        return embed(self.dictionary_factor, cross_gram)

    def mean(self, embedding: Tensor) -> Tensor:
        """Return the posterior mean less the prior mean, (..., N). Cost: O(N m)."""
        return (self.weights.unsqueeze(-2) @ embedding).squeeze(-2)

    def variance(self, prior_variance: Tensor, embedding: Tensor) -> Tensor:
        """Return the posterior variances (..., N) from k(x, x) (..., N). Cost: O(N m²)."""
        explained = embedding.square().sum(-2) - self._whiten(embedding).square().sum(-2)
        return non_negative_variance(prior_variance - explained, prior_variance)

    def covariance(self, prior_covariance: Tensor, embedding: Tensor) -> Tensor:
        """Return the posterior covariance (..., q, q) from the prior one and (..., m, q). Cost: O(q m² + q² m)."""
        return prior_covariance - self.explained(embedding, embedding)

    def explained(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the prior less the posterior covariance (..., k, l), from (..., m, k) and (..., m, l)."""
        whitened = self._whiten(left)
        return left.mT @ right - whitened.mT @ (whitened if right is left else self._whiten(right))

    def coefficients(self) -> Tensor:
        """Return α = L⁻ᵀ V⁻¹ Σ_s z_s y_s / λ_s (..., m): the mean is α k_Z(x), plus the prior mean. Cost: O(m²)."""
        return torch.linalg.solve_triangular(self.dictionary_factor.mT, self.weights.unsqueeze(-1), upper=True).squeeze(
            -1
        )

    def information_gain(self) -> Tensor:
        """Return ½ log det V (...,): the information gain of the observations under the Nyström kernel, in nats."""
        return self.precision_factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def mean_norm(self) -> Tensor:
        """Return the RKHS norm of the posterior mean less the prior mean, (...,), in reward units."""
        return self.weights.norm(dim=-1)

    def draw_correction(self, prior: Tensor, generator: torch.Generator) -> Tensor:
        """Return w (m,) such that g(x) + z(x)ᵀ w is a draw of f − mean, for a prior draw g with values ``prior`` (m,).

        Source: Matheron's rule, Wilson et al., ICML 2020, with weights N(0, V⁻¹). Cost: O(m²).
        """
        normals = torch.randn(len(prior), 1, generator=generator, dtype=torch.float64).to(prior)
        weights = torch.linalg.solve_triangular(self.precision_factor.mT, normals, upper=True)
        return (weights - embed(self.dictionary_factor, prior.unsqueeze(-1))).squeeze(-1)

    @property
    def batch_dims(self) -> int:
        """Number of batch dimensions."""
        return self.weights.dim() - 1

    def _whiten(self, embedding: Tensor) -> Tensor:
        return torch.linalg.solve_triangular(self.precision_factor, embedding, upper=False)


def embed(dictionary_factor: Tensor, cross_gram: Tensor) -> Tensor:
    """Return L⁻¹ k_Z(x) for each column of K_Zx, (..., m, N). Cost: O(N m²)."""
    return torch.linalg.solve_triangular(dictionary_factor, cross_gram, upper=False)
