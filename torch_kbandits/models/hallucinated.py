"""What points observed at their posterior means take from a model's variances, kept while its factors stay."""

from typing import Any

from torch import Tensor

from torch_kbandits.numerics.gram import gram, prior_variance
from torch_kbandits.posteriors.conditional import Conditional, Seen
from torch_kbandits.posteriors.residual import residual_share


class Hallucinated:
    """What points take from the variances of a Nyström model, for its factors as they are; never deep-copied.

    Args:
        model: its learned residual counts.
        points: as the kernel sees them, (..., k, d).
        noise: their noise variances, (..., k) or broadcastable to it.

    Cost: O(k m² + k² m + k³) a batch member.
    """

    def __init__(self, model: Any, points: Tensor, noise: Tensor) -> None:
        self._model, self._points, self.factors = model, points, model.factors
        embedding = model.embed(points)
        none = Conditional.none(embedding.shape[-2], embedding, learns_residual=model.learns_residual)
        own, inside = embedding - self.factors.solved(embedding), embedding if model.learns_residual else None
        values = gram(model.covar_module, points)
        self._conditional = none.given(self._seen(points, embedding), own, inside, values, noise)

    def rows(self, points: Tensor, embedding: Tensor) -> Tensor:
        """Return F at points (..., N, d) of these embeddings (..., m, N), (..., k, N); see ``Conditional``."""
        values = gram(self._model.covar_module, self._points, points)
        return self._conditional.rows(values, self._seen(points, embedding))

    def _seen(self, points: Tensor, embedding: Tensor) -> Seen:
        """Return points (..., N, d) as ``Conditional`` takes them."""
        if not self._model.learns_residual:
            return Seen(embedding, None)
        prior = prior_variance(self._model.covar_module, points)
        variance = self.factors.variance(prior, embedding)
        return Seen(embedding, residual_share(prior, embedding.square().sum(-2), variance).sqrt())

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        return None
