"""The exact posterior as a BoTorch model."""

from typing import Self

import torch
from botorch import settings as botorch_settings
from torch import Tensor

from torch_kbandits.models.base import FactoredGP
from torch_kbandits.models.data import Learned, Observations
from torch_kbandits.numerics.gram import prior_mean
from torch_kbandits.numerics.rows import distinct
from torch_kbandits.posteriors.exact_posterior import ExactPosterior
from torch_kbandits.posteriors.posterior import Prior
from torch_kbandits.posteriors.prediction import PredictionStrategy


class OnlineGP(FactoredGP):
    """A BoTorch model whose posterior is the exact one, kept up to date by ``tell`` and ``remove``.

    With u distinct points among n observations the posterior costs what u observations cost: repeats are merged into
    counts and sums, and the posterior at the distinct points follows by changes of rank one.

    Source: Rasmussen and Williams, 2006, Alg. 2.1; Calandriello et al., ICML 2022, §3 (merging repeats).

    ``fit_gpytorch_mll`` maximises the exact likelihood of all observations, O(n³) an evaluation. Defaults are those of
    ``NystromGP``.

    Args: those of ``NystromGP`` but for the dictionary's.

    Raises:
        InputError: on shapes, dtypes or values that do not fit, each named.
        NotPositiveDefiniteError: at the first use, if the kernel is not a covariance.

    Cost: O(u³ + n) once, then O(u²) a change and O(u²) a point of the posterior; memory O(u² + n).
    """

    @property
    def num_distinct(self) -> int:
        """Number u of distinct points among the observations: what the posterior's cost depends on.

        With batch dimensions, several outputs or gradients nothing is merged, and every observation counts.
        """
        X = self.train_inputs[0]
        return self.num_observations if self._is_batch() else len(distinct(X if self.num_outputs == 1 else X[0])[0])

    def tell(self, X: Tensor, Y: Tensor, Yvar: Tensor | None = None) -> None:
        """Condition this model on more observations; see ``NystromGP.tell``.

        Cost: O(u²) for each distinct point of X but no more than O((u + k)³), and a copy of the n observations.
        """
        self._tell(*self._checked(X, Y, Yvar))

    def _learn(self, prior: Prior, observations: Observations) -> Learned:
        return observations.told(ExactPosterior.of(prior, observations.inputs.flatten(0, -2)[:0]))

    def _fit(self, observations: Observations) -> PredictionStrategy:
        return PredictionStrategy.exact(self.covar_module, *observations)

    def _extend(self, conditioned: Self, inputs: Tensor, targets: Tensor) -> None:
        """Condition the posterior on new observations, which are not merged with others."""
        strategy, with_graph = self._current().strategy, botorch_settings.propagate_grads.on() or inputs.requires_grad
        with torch.set_grad_enabled(torch.is_grad_enabled() and with_graph):
            variances = conditioned._noise(conditioned._points())[..., self.num_observations :]
            residuals = targets - prior_mean(self.mean_module, inputs)
            conditioned._keep(strategy.conditioned(inputs, residuals, variances))
