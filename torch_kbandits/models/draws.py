"""Functions drawn from the posteriors, also by BoTorch."""

from typing import cast

import torch
from botorch.sampling.pathwise.features.maps import KernelEvaluationMap
from botorch.sampling.pathwise.paths import GeneralizedLinearPath
from botorch.sampling.pathwise.posterior_samplers import DrawMatheronPaths, MatheronPath
from botorch.sampling.pathwise.prior_samplers import TPathwisePriorSampler
from botorch.sampling.pathwise.update_strategies import TPathwiseUpdate
from botorch.sampling.pathwise.utils import get_input_transform, get_output_transform
from botorch.utils.context_managers import delattr_ctx
from torch import Size, Tensor

from torch_kbandits.models.base import FactoredGP
from torch_kbandits.models.nystrom import NystromGP
from torch_kbandits.numerics.gram import prior_mean
from torch_kbandits.numerics.prior_draws import PriorDraws
from torch_kbandits.numerics.rows import distinct


class PosteriorDraws:
    """Draws of f − mean from the posterior of a model at fixed points; equal points get equal values.

    Source: Matheron's rule, Wilson et al., ICML 2020, with the DTC weights.

    Args:
        model: with one output, no batch and no outcome transform.
        points: (N, d).

    Cost: O(N m²) once, then O(N m) a draw and what the prior draw costs; memory O(N m).
    """

    def __init__(self, model: FactoredGP, points: Tensor) -> None:
        model.eval()
        with torch.no_grad():
            self._strategy = model.kept.strategy
            basis = self._strategy.basis.to(points)
            everything, self._rows = distinct(torch.cat([basis, model._preprocess(points)]))
            self._num_basis = len(basis)
            self._features = self._strategy.features(everything).to(points).contiguous()  # a draw is one pass over it
            self._prior = PriorDraws(model.covar_module, everything, first=self._rows[: len(basis)])

    def draw(self, generator: torch.Generator) -> Tensor:
        """Return a fresh draw of f − mean, (N,)."""
        with torch.no_grad():
            prior = self._prior.draw(generator)
            weights = self._strategy.draw_correction(prior[self._rows[: self._num_basis]], generator)
            return (prior + weights.to(prior) @ self._features)[self._rows[self._num_basis :]]


@DrawMatheronPaths.register(NystromGP)
def draw_nystrom_paths(
    model: NystromGP,
    *,
    sample_shape: Size,
    prior_sampler: TPathwisePriorSampler,
    update_strategy: TPathwiseUpdate,
) -> MatheronPath:
    """Draw functions from the DTC posterior; BoTorch's own rule would sample the exact one.

    A prior path g is corrected by a draw w ~ N(mean, cov): f(x) = g(x) + z(x)ᵀ(w − W g(Z)), whose covariance is
    k − zᵀz + zᵀ cov z. So ``update_strategy``, which would condition on the observations, is not used.

    Source: Wilson et al., ICML 2020, with the DTC weights.

    Cost: O(s (m² + m F)) for s samples of F features; then O(m + F) an evaluation.
    """
    model.eval()
    strategy = model.kept.strategy
    dictionary = strategy.basis.to(model.train_targets)
    with delattr_ctx(model, "outcome_transform"):
        prior_paths = cast(GeneralizedLinearPath, prior_sampler(model, sample_shape))
        deviation = (prior_paths.forward(dictionary) - prior_mean(model.mean_module, dictionary)).to(strategy.white)
    noise = torch.randn_like(deviation).unsqueeze(-1)
    weights = strategy.mean.unsqueeze(-1) + strategy.root() @ noise - strategy.white @ deviation.unsqueeze(-1)
    update_paths = GeneralizedLinearPath(
        feature_map=KernelEvaluationMap(model.covar_module, dictionary, input_transform=get_input_transform(model)),
        weight=(strategy.white.mT @ weights).squeeze(-1).to(dictionary),
    )
    return MatheronPath(prior_paths, update_paths, output_transform=get_output_transform(model))
