"""The Nyström–DTC posterior as algebra on Gram matrices; it knows no kernel, model or candidate set."""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from torch_kbandits.numerics.linalg import (
    LEAST_SHARE,
    bordered,
    cholesky_rank_one,
    is_finite,
    jittered_cholesky,
    magnitude,
    non_negative_variance,
)

#: Observations that are cheaper to follow one by one than by a product of factors.
_FEW = 4

#: What an observation must leave of the variance that it explains, to be taken back.
_LEAST_SHARE = {torch.float64: LEAST_SHARE, torch.float32: 1e-2}

#: What must remain of the largest trace of V: its rounding errors stay where it shrinks.
_LEAST_REMAINDER = {torch.float64: 1e-4, torch.float32: 1e-1}

#: What the dictionary must leave of the prior variance of a point that joins it without a fresh factor.
_LEAST_PIVOT = {torch.float64: 1e-4, torch.float32: 1e-2}


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
        peak: the largest trace of V since it was computed, (...,), which its rounding errors are relative to; None if
            it was not changed since.
    """

    dictionary_factor: Tensor
    precision_factor: Tensor
    weights: Tensor
    peak: Tensor | None = None

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

    def observed(self, embedding: Tensor, targets: Tensor, noise: Tensor) -> Self:
        """Condition on k more observations at the same dictionary.

        Args:
            embedding: z of each, (..., m, k).
            targets: rewards less the prior mean, (..., k).
            noise: noise variances λ_s, (..., k).

        Cost: O(k m²), and O(m³) where they are many.
        """
        factor = self._changed_factor(embedding, noise, 1.0)
        return self._changed(factor, embedding, targets, noise, 1.0)

    def forgotten(self, embedding: Tensor, targets: Tensor, noise: Tensor) -> Self | None:
        """Take back k observations that are among those conditioned on; arguments as for ``observed``.

        Returns:
            The factors without them; None where rounding would be left of a variance, or of what V was before.

        Cost: O(k m² + k³), and O(m³) where they are many.
        """
        whitened = self._whiten(embedding) / noise.sqrt().unsqueeze(-2)
        left = torch.eye(whitened.shape[-1], dtype=whitened.dtype, device=whitened.device) - whitened.mT @ whitened
        shares, info = torch.linalg.cholesky_ex(left)
        least = _LEAST_SHARE[whitened.dtype]
        if bool((info > 0).any()) or not bool((shares.diagonal(dim1=-2, dim2=-1).square() >= least).all()):
            return None
        factor = self._changed_factor(embedding, noise, -1.0)
        after = self._changed(factor, embedding, targets, noise, -1.0)
        remains = bool((after._trace() >= _LEAST_REMAINDER[whitened.dtype] * after._peak()).all())  # no NaN does
        return after if remains and bool(torch.isfinite(after.weights).all()) else None

    def grown(self, cross: Tensor, corner: Tensor, played: Tensor, targets: Tensor, noise: Tensor) -> Self | None:
        """Add a points to the dictionary, on the same n observations.

        Args:
            cross: the dictionary against the new points, (..., m, a).
            corner: the prior covariance of the new points, (..., a, a).
            played: the dictionary and the new points after it against the played points, (..., m + a, n).
            targets: rewards less the prior mean, (..., n).
            noise: noise variances λ_s, (..., n).

        Returns:
            The factors at m + a points, the new ones last; None where the others leave so little of a new one that
            its coordinates would lose digits.

        Cost: O(a (n m + m²)): no coordinates of the observations are needed, only two products with ``played``.
        """
        m = cross.shape[-2]
        played, played_new = played[..., :m, :], played[..., m:, :]
        own = self.embed(cross)
        schur, info = torch.linalg.cholesky_ex(corner - own.mT @ own)
        shares = schur.diagonal(dim1=-2, dim2=-1).square() / corner.diagonal(dim1=-2, dim2=-1)
        if bool((info > 0).any()) or not bool((shares >= _LEAST_PIVOT[shares.dtype]).all()):
            return None
        duals = torch.linalg.solve_triangular(self.dictionary_factor.mT, own, upper=True)
        fresh = torch.linalg.solve_triangular(schur, played_new - duals.mT @ played, upper=False)
        weighted = fresh / noise.unsqueeze(-2)
        across = self.embed(played @ weighted.mT)
        whitened = self._whiten(across)
        identity = torch.eye(fresh.shape[-2], dtype=fresh.dtype, device=fresh.device)
        corner_factor, info = torch.linalg.cholesky_ex(identity + weighted @ fresh.mT - whitened.mT @ whitened)
        # V is the identity and more, so what rounding leaves of it shows in pivots below one.
        if bool((info > 0).any()) or not bool((corner_factor.diagonal(dim1=-2, dim2=-1) >= 0.9).all()):
            return None
        factor = bordered(self.precision_factor, whitened, corner_factor)
        unexplained = (weighted @ targets.unsqueeze(-1)) - across.mT @ self.weights.unsqueeze(-1)
        padded = torch.cat([torch.zeros_like(self.weights).unsqueeze(-1), unexplained], dim=-2)
        weights = torch.cholesky_solve(padded, factor).squeeze(-1)
        weights[..., :m] += self.weights
        return self._became(bordered(self.dictionary_factor, own, schur), factor, weights)

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

    def reducible(self, prior_variance: Tensor, embedding: Tensor) -> Tensor:
        """Return zᵀV⁻¹z (..., N): of the variances, what more observations could take away. Cost: O(N m²)."""
        return self._whiten(embedding).square().sum(-2)

    def covariance(self, prior_covariance: Tensor, embedding: Tensor) -> Tensor:
        """Return the posterior covariance (..., q, q) from the prior one and (..., m, q). Cost: O(q m² + q² m)."""
        return prior_covariance - self.explained(embedding, embedding)

    def explained(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the prior less the posterior covariance (..., k, l), from (..., m, k) and (..., m, l)."""
        whitened = self._whiten(left)
        return left.mT @ right - whitened.mT @ (whitened if right is left else self._whiten(right))

    def solved(self, embedding: Tensor) -> Tensor:
        """Return V⁻¹z for each column of (..., m, N). Cost: O(N m²)."""
        return torch.cholesky_solve(embedding, self.precision_factor)

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
        scale = magnitude(self.weights)
        return (self.weights / scale).norm(dim=-1) * scale.squeeze(-1)

    def draw_correction(self, prior: Tensor, generator: torch.Generator) -> Tensor:
        """Return w (m,) such that g(x) + z(x)ᵀ w is a draw of f − mean, for a prior draw g with values ``prior`` (m,).

        Source: Matheron's rule, Wilson et al., ICML 2020, with weights N(0, V⁻¹). Cost: O(m²).
        """
        normals = torch.randn(len(prior), 1, generator=generator, dtype=torch.float64, device="cpu").to(prior)
        weights = torch.linalg.solve_triangular(self.precision_factor.mT, normals, upper=True)
        return (weights - embed(self.dictionary_factor, prior.unsqueeze(-1))).squeeze(-1)

    def is_finite(self) -> bool:
        """Say whether neither a kernel value nor a sum of rewards has made them NaN. Cost: O(m)."""
        diagonal = self.precision_factor.diagonal(dim1=-2, dim2=-1)
        return bool(is_finite(diagonal).all() and is_finite(self.weights).all())

    @property
    def batch_dims(self) -> int:
        """Number of batch dimensions."""
        return self.weights.dim() - 1

    # ---------------------------------------------------------------- inside

    def _changed_factor(self, embedding: Tensor, noise: Tensor, sign: float) -> Tensor:
        """Return the factor of V + sign Σ_s z_s z_sᵀ / λ_s."""
        factor = self.precision_factor
        if embedding.shape[-1] <= _FEW:
            for column in range(embedding.shape[-1]):
                factor = cholesky_rank_one(factor, embedding[..., column], sign / noise[..., column])
            return factor
        whitened = self._whiten(embedding) / noise.sqrt().unsqueeze(-2)
        identity = torch.eye(whitened.shape[-2], dtype=whitened.dtype, device=whitened.device)
        inner, info = torch.linalg.cholesky_ex(identity + sign * (whitened @ whitened.mT))
        return factor @ torch.where((info > 0)[..., None, None], torch.nan, inner)

    def _changed(self, factor: Tensor, embedding: Tensor, targets: Tensor, noise: Tensor, sign: float) -> Self:
        """Return the posterior whose V has another factor, by observations that come (sign 1) or go (sign -1).

        Either way w' = w ± V'⁻¹ Σ_s z_s (y_s − z_sᵀw) / λ_s.
        """
        surprise = (targets - self.mean(embedding)) / noise
        step = torch.cholesky_solve(embedding @ surprise.unsqueeze(-1), factor).squeeze(-1)
        return self._became(self.dictionary_factor, factor, self.weights + sign * step)

    def _became(self, dictionary_factor: Tensor, precision_factor: Tensor, weights: Tensor) -> Self:
        """Return what comes of a change, which remembers the largest trace."""
        after = type(self)(dictionary_factor, precision_factor, weights)
        return replace(after, peak=torch.maximum(self._peak(), after._trace()))

    def _peak(self) -> Tensor:
        return self._trace() if self.peak is None else self.peak

    def _trace(self) -> Tensor:
        """Return the trace of V, (...,)."""
        return self.precision_factor.square().sum((-2, -1))

    def _whiten(self, embedding: Tensor) -> Tensor:
        return torch.linalg.solve_triangular(self.precision_factor, embedding, upper=False)


def embed(dictionary_factor: Tensor, cross_gram: Tensor) -> Tensor:
    """Return L⁻¹ k_Z(x) for each column of K_Zx, (..., m, N). Cost: O(N m²)."""
    return torch.linalg.solve_triangular(dictionary_factor, cross_gram, upper=False)
