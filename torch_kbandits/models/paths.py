"""Pathwise samples of the Nyström posterior for BoTorch's ``draw_matheron_paths`` and ``PathwiseThompsonSampling``."""

from typing import cast

import torch
from botorch.sampling.pathwise.features.maps import KernelEvaluationMap
from botorch.sampling.pathwise.paths import GeneralizedLinearPath
from botorch.sampling.pathwise.posterior_samplers import DrawMatheronPaths, MatheronPath
from botorch.sampling.pathwise.prior_samplers import TPathwisePriorSampler
from botorch.sampling.pathwise.update_strategies import TPathwiseUpdate
from botorch.sampling.pathwise.utils import get_input_transform, get_output_transform
from botorch.utils.context_managers import delattr_ctx
from torch import Size

from torch_kbandits.models.nystrom import NystromGP
from torch_kbandits.numerics.gram import prior_mean


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
    k − zᵀz + zᵀ cov z.

    Source: Wilson et al., ICML 2020, with the DTC weights. Differs: BoTorch's ``update_strategy`` is not used, since
    it would condition on the observations instead of the dictionary.

    Args:
        model: the posterior.
        sample_shape: shape of the samples.
        prior_sampler: draws the prior paths (random features by default, so RBF and Matérn kernels and scalings).
        update_strategy: not used.

    Cost: O(s (m² + m F)) for s samples of F features; then O(m + F) an evaluation.
    """
    model.eval()
    strategy = model._strategy()
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
