"""The exact posterior as a BoTorch model."""

from typing import Self

import numpy as np
import torch
from botorch import settings as botorch_settings
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from gpytorch.kernels import Kernel
from gpytorch.likelihoods.gaussian_likelihood import _GaussianLikelihoodBase
from gpytorch.means import Mean
from torch import Tensor

from torch_kbandits.models.base import Learned, Observations
from torch_kbandits.models.telling import ToldGP
from torch_kbandits.numerics.gram import prior_mean
from torch_kbandits.numerics.rows import distinct
from torch_kbandits.posteriors.exact_posterior import ExactPosterior
from torch_kbandits.posteriors.posterior import Prior
from torch_kbandits.posteriors.prediction import PredictionStrategy


class OnlineGP(ToldGP):
    """A BoTorch model whose posterior is the exact one, kept up to date by ``tell`` and ``remove``.

    With u distinct points among n observations the posterior costs what u observations cost: repeats are merged into
    counts and sums, and the Cholesky factor of K + D on the distinct points is bordered, updated or downdated.
    ``condition_on_observations`` returns a conditioned copy as BoTorch's models do; ``tell`` changes the model itself.

    Source: Rasmussen and Williams, 2006, Alg. 2.1; Calandriello et al., ICML 2022, §3 (merging repeats).

    Differs from ``SingleTaskGP`` in its defaults: the prior mean is zero and there is no outcome transform, so that λ
    and the constants of a confidence width keep their units. ``fit_gpytorch_mll`` maximises the exact likelihood of
    all observations, O(n³) an evaluation, as for ``SingleTaskGP``.

    Args:
        train_X: played points, (..., n, d); n may be 0, then the posterior is the prior.
        train_Y: rewards, (..., n, o) for o outputs.
        train_Yvar: noise variance of each observation, shape of ``train_Y``, in units of ``train_Y`` squared. GPyTorch
            rounds values below 1e-6 up to it and says so.
            Without it every observation has variance ``regularization``.
        regularization: λ > 0, the noise variance, in units of the (transformed) rewards squared; then it is fixed.
            Without it and without ``train_Yvar`` it is learned, under BoTorch's default prior. Beside ``train_Yvar``
            it is the noise of later observations without one (default: the mean of theirs).
        likelihood: a Gaussian likelihood in place of ``regularization``.
        covar_module: any GPyTorch kernel; BoTorch's default for ``SingleTaskGP`` otherwise.
        mean_module: prior mean; zero otherwise.
        outcome_transform: as in ``SingleTaskGP``, but None unless given.
        input_transform: as in ``SingleTaskGP``.

    Raises:
        InputError: on shapes, dtypes or values that do not fit, each named.
        NotPositiveDefiniteError: at the first use, if the kernel is not a covariance.

    Cost: O(u³ + n) once, then O(u²) a change and O(u²) a point of the posterior; memory O(u² + n).
    """

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        regularization: float | None = None,
        likelihood: _GaussianLikelihoodBase | None = None,
        covar_module: Kernel | None = None,
        mean_module: Mean | None = None,
        outcome_transform: OutcomeTransform | None = None,
        input_transform: InputTransform | None = None,
    ) -> None:
        super().__init__(
            train_X,
            train_Y,
            train_Yvar,
            regularization=regularization,
            likelihood=likelihood,
            covar_module=covar_module,
            mean_module=mean_module,
            outcome_transform=outcome_transform,
            input_transform=input_transform,
        )

    @property
    def num_distinct(self) -> int:
        """Number u of distinct points among the observations: what the posterior's cost depends on.

        With batch dimensions, several outputs or gradients nothing is merged, and every observation counts.
        """
        X = self.train_inputs[0]
        return self.num_observations if self._is_batch() else len(distinct(X if self.num_outputs == 1 else X[0])[0])

    # ---------------------------------------------------------------- changing the model itself

    def tell(self, X: Tensor, Y: Tensor, Yvar: Tensor | None = None) -> None:
        """Condition this model on more observations; after an error it is as it was.

        Args:
            X: (k, d).
            Y: (k, o), in the units of ``train_Y``.
            Yvar: noise variances (k, o), in units of ``train_Y`` squared; ``regularization`` otherwise.

        Raises:
            InputError: if shapes, dtypes or values do not fit, or the model has batch dimensions.
            NumericalError: if rewards add up to more than the dtype holds, or a kernel value is not finite.
            NotPositiveDefiniteError: if the kernel is not a covariance.

        Cost: O(u²) for each distinct point of X but no more than O((u + k)³), and a copy of the n observations.
        """
        self._tell(*self._checked(X, Y, Yvar))

    def effective_dimension(self) -> Tensor:
        """Return Σ_s τ(x_s) = Tr K(K + Σ)⁻¹, (...,). Cost: O(u²)."""
        return self._number(self._strategy().effective_dimension())

    def projection_error(self) -> Tensor:
        """Return 0, (...,): the posterior is exact."""
        return torch.zeros_like(self.information_gain())

    # ---------------------------------------------------------------- inside

    def _learn(self, prior: Prior, observations: Observations) -> Learned:
        return Learned(ExactPosterior.of(prior, observations.inputs[:0]), np.empty(0, np.int64)).followed(observations)

    def _fit(self, observations: Observations) -> PredictionStrategy:
        return PredictionStrategy.exact(self.covar_module, *observations)

    def _extend(self, conditioned: Self, inputs: Tensor, targets: Tensor) -> None:
        """Condition the posterior on new observations, which are not merged with others."""
        strategy, with_graph = self._current().strategy, botorch_settings.propagate_grads.on() or inputs.requires_grad
        with torch.set_grad_enabled(torch.is_grad_enabled() and with_graph):
            variances = conditioned._noise(conditioned._points())[..., self.num_observations :]
            residuals = targets - prior_mean(self.mean_module, inputs)
            conditioned._keep(strategy.conditioned(inputs, residuals, variances))
