"""Hyperparameters by marginal likelihood, in the units of the rewards whatever those are."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import cast

from botorch.fit import fit_gpytorch_mll
from botorch.models.utils.gpytorch_modules import get_gaussian_likelihood_with_lognormal_prior
from gpytorch.constraints import Positive
from gpytorch.kernels import Kernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import LogNormalPrior
from gpytorch.settings import min_fixed_noise
from torch import Tensor

from torch_kbandits.likelihoods import UncertaintyInjectionLikelihood
from torch_kbandits.memory import Growth, LinearGrowth
from torch_kbandits.models import OnlineGP
from torch_kbandits.numerics.random import seeded
from torch_kbandits.priors.fitting import center_and_scale, default_kernel


@dataclass(frozen=True, eq=False)
class Ageing:
    """How the noise of observations grows with their age.

    Attributes:
        growth: in reward units.
        times: when they were made, (n,).
        now: the present.
    """

    growth: Growth
    times: Tensor
    now: float

    def scaled(self, factor: float) -> "Ageing":
        """Return it for rewards times ``factor``."""
        growth = self.growth
        # The other growths are factors of λ.
        return replace(self, growth=LinearGrowth(growth.rate * factor**2)) if isinstance(growth, LinearGrowth) else self

    def likelihood(self, regularization: float) -> UncertaintyInjectionLikelihood:
        """Return the likelihood, its growth fixed and its λ not."""
        likelihood = UncertaintyInjectionLikelihood(
            self.growth, regularization=regularization, now=self.now, times=self.times
        )
        likelihood.noise_covar.requires_grad_(False)
        likelihood.noise_covar.raw_noise.requires_grad_(True)
        return likelihood


@dataclass(frozen=True, eq=False)
class Observations:
    """What hyperparameters are fitted to.

    Attributes:
        X: points in the unit cube, (n, d).
        Y: rewards, (n, 1).
        Yvar: noise variances, (n, 1), if they are known.
        ageing: how noise grows with age, if it does and is not in ``Yvar`` already.
    """

    X: Tensor
    Y: Tensor
    Yvar: Tensor | None
    ageing: Ageing | None


@dataclass(frozen=True, eq=False)
class Hyperparameters:
    """What a model is built with, in reward units.

    Attributes:
        kernel: the prior covariance on the unit cube.
        regularization: λ > 0, the noise variance of a fresh observation; None if the noise is known.
        prior_mean: the constant prior mean.
    """

    kernel: Kernel
    regularization: float | None
    prior_mean: float


def own_least_noise() -> AbstractContextManager[None]:
    """Keep GPyTorch from raising known noise variances to 1e-6, which means nothing where units are the user's."""
    return min_fixed_noise(float_value=0.0, double_value=0.0, half_value=0.0)


def scaled_kernel(groups: Sequence[int]) -> ScaleKernel:
    """Return the default kernel of every fit, with a variance that is not fitted, as BoTorch's own models have it.

    Args:
        groups: of each column of the cube the number of its parameter.
    """
    base = default_kernel(len(groups), groups).base_kernel
    return ScaleKernel(base, outputscale_constraint=Positive()).double()


def fit_hyperparameters(
    data: Observations,
    *,
    kernel: Kernel | None,
    regularization: float | None,
    prior_mean: float | None,
    groups: Sequence[int],
    seed: int,
) -> Hyperparameters:
    """Return hyperparameters by the exact marginal likelihood; what is given stays as it is.

    The fit is in standardised units, for which BoTorch's priors on lengthscales and noise are made. The default kernel
    has prior variance 1 there, as BoTorch's own model has, so that of the rewards in theirs.

    Args:
        data: the observations; there may be none, then nothing is learned.
        kernel: the prior covariance in reward units squared; None for a fitted ``scaled_kernel``.
        regularization: λ in reward units squared, or None; not used where the data knows its noise.
        prior_mean: in reward units, or None: fitted where a kernel or λ is, else 0.
        groups: of each column of the cube the number of its parameter, for the default kernel.
        seed: of the starting points of further attempts, if the first fails.

    Raises:
        ModelFittingError: BoTorch's, if no attempt succeeds.

    Cost: O(n³) an evaluation of the likelihood.
    """
    count = len(data.X)
    known_noise = data.Yvar is not None or regularization is not None
    if prior_mean is None and kernel is not None and known_noise:
        prior_mean = 0.0
    center, scale = center_and_scale(data.Y.squeeze(-1))
    if kernel is None:
        chosen = standardised = scaled_kernel(groups).to(data.X)
        standardised.outputscale = data.X.new_tensor(1.0)
    else:
        chosen = deepcopy(kernel).requires_grad_(False)
        standardised = ScaleKernel(chosen).to(data.X)
        standardised.outputscale = data.X.new_tensor(scale**-2)
    standardised.raw_outputscale.requires_grad_(False)
    if count == 0:
        return Hyperparameters(chosen.requires_grad_(False), regularization, prior_mean or 0.0)
    mean = ConstantMean().to(data.X)
    if prior_mean is not None:
        mean.initialize(constant=data.X.new_tensor((prior_mean - center) / scale)).requires_grad_(False)
    with own_least_noise():
        model = OnlineGP(
            data.X,
            (data.Y - center) / scale,
            None if data.Yvar is None else data.Yvar / scale**2,
            likelihood=_likelihood(data, regularization, scale),
            covar_module=standardised,
            mean_module=mean,
        )
    with seeded(seed):
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    if kernel is None:
        standardised.outputscale = data.X.new_tensor(scale**2)
    level = None if data.Yvar is not None else regularization
    if not known_noise:
        level = float(model.likelihood.noise.detach()) * scale**2
    if prior_mean is None:
        prior_mean = center + scale * float(cast(Tensor, mean.constant).detach())
    return Hyperparameters(chosen.requires_grad_(False), level, prior_mean)


def _likelihood(
    data: Observations, regularization: float | None, scale: float
) -> GaussianLikelihood | UncertaintyInjectionLikelihood | None:
    """Return the likelihood of standardised rewards, its λ free unless given; None where the noise is known."""
    if data.Yvar is not None:
        return None
    level = None if regularization is None else data.Y.new_tensor(regularization / scale**2)
    if data.ageing is None:
        if level is None:
            return get_gaussian_likelihood_with_lognormal_prior()
        likelihood = GaussianLikelihood(noise_constraint=Positive()).to(data.Y)
    else:
        prior = LogNormalPrior(loc=-4.0, scale=1.0)
        likelihood = data.ageing.scaled(1.0 / scale).likelihood(float(prior.mode))
        likelihood.noise_covar.register_prior("noise_prior", prior, lambda module: module.noise)
    if level is not None:
        likelihood.noise = level
        likelihood.requires_grad_(False)
    return likelihood
