"""Joint draws of a posterior at many fixed points without their covariance."""

import torch
from torch import Tensor

from torch_kbandits.models.base import FactoredGP
from torch_kbandits.numerics.prior_draws import prior_draws
from torch_kbandits.numerics.rows import distinct


class PosteriorDraws:
    """Draws of f − mean from the posterior of a model at fixed points, by Matheron's rule.

    A prior draw at all points is corrected by what the posterior knows; equal points get equal values.

    Source: Wilson et al., ICML 2020, with the DTC weights. Differs: the coordinates of the points are kept, so a draw
    costs one pass over it.

    Args:
        model: with one output, no batch and no outcome transform.
        points: (N, d).

    Cost: O(N m²) once, then O(N m) a draw and what the prior draw costs; memory O(N m).
    """

    def __init__(self, model: FactoredGP, points: Tensor) -> None:
        model.eval()
        with torch.no_grad():
            self._strategy = model._strategy()
            basis = self._strategy.basis.to(points)
            everything, self._rows = distinct(torch.cat([basis, model._preprocess(points)]))
            self._num_basis = len(basis)
            self._features = self._strategy.features(everything).to(points).contiguous()  # a draw is one pass over it
            self._prior = prior_draws(model.covar_module, everything, first=self._rows[: len(basis)])

    def draw(self, generator: torch.Generator) -> Tensor:
        """Return a fresh draw of f − mean, (N,)."""
        with torch.no_grad():
            prior = self._prior.draw(generator)
            weights = self._strategy.draw_correction(prior[self._rows[: self._num_basis]], generator)
            return (prior + weights.to(prior) @ self._features)[self._rows[self._num_basis :]]
