"""What points observed at their posterior means take from a model's variances, kept while its factors stay."""

from typing import Any

import torch
from torch import Tensor

from torch_kbandits.numerics.gram import gram, prior_variance
from torch_kbandits.numerics.linalg import jittered_cholesky
from torch_kbandits.posteriors.residual import residual_share


class Hallucinated:
    """What points take from the variances of a Nyström model, for its factors as they are; never deep-copied.

    Given points P observed at their means, means stay and the variance at x is that before less ‖F(x)‖², with
    F(x) = C⁻¹ cov(P, x) and C Cᵀ = cov(P, P) + diag λ_p; see ``posteriors.pending``, which computes the same.

    Args:
        model: its learned residual counts.
        points: as the kernel sees them, (..., k, d).
        noise: their noise variances, (..., k) or broadcastable to it.

    Cost: O(k m² + k² m + k³) a batch member.
    """

    def __init__(self, model: Any, points: Tensor, noise: Tensor) -> None:
        self._model, self._points, self.factors = model, points, model.factors
        self._embedding = model.embed(points)
        self._own = self._embedding - self.factors.solved(self._embedding)
        self._roots = self._roots_at(points, self._embedding)
        cov = self._covariance(points, self._embedding)
        self._factor = jittered_cholesky(cov + torch.diag_embed(noise.expand(cov.shape[:-1])))

    def rows(self, points: Tensor, embedding: Tensor) -> Tensor:
        """Return F at points (..., N, d) of these embeddings (..., m, N), (..., k, N)."""
        return torch.linalg.solve_triangular(self._factor, self._covariance(points, embedding), upper=False)

    def _covariance(self, points: Tensor, embedding: Tensor) -> Tensor:
        """Return cov(P, x) of points x (..., N, d), (..., k, N)."""
        values = gram(self._model.covar_module, self._points, points)
        covariance = values - self._own.mT @ embedding
        if self._roots is None:
            return covariance
        shares = self._roots.unsqueeze(-1) * self._roots_at(points, embedding).unsqueeze(-2)
        return covariance - (1.0 - shares) * (values - self._embedding.mT @ embedding)

    def _roots_at(self, points: Tensor, embedding: Tensor) -> Any:
        """Return the root of the share of the residual variance that is left, (..., N); None where all of it is."""
        if not self._model.learns_residual:
            return None
        prior = prior_variance(self._model.covar_module, points)
        variance = self.factors.variance(prior, embedding)
        return residual_share(prior, embedding.square().sum(-2), variance).sqrt()

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        return None
