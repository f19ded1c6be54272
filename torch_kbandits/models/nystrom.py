from copy import deepcopy
from typing import Any, Self

import torch
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods.gaussian_likelihood import _GaussianLikelihoodBase
from gpytorch.means import Mean
from linear_operator.operators import DiagLinearOperator, LowRankRootLinearOperator
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.dictionaries import DictionaryRule, PlayedPoints, RidgeLeverageSampling
from torch_kbandits.dtc import DTCFactors, embed
from torch_kbandits.errors import EmptyHistoryError, InputError
from torch_kbandits.gram import gram, prior_mean, prior_variance
from torch_kbandits.linalg import jittered_cholesky
from torch_kbandits.models.base import FactoredGP
from torch_kbandits.models.collapsed_bound import LowRankNormal, TraceTerm
from torch_kbandits.models.shapes import concatenate

_TRACE_TERM = "nystrom_trace_term"


class NystromGP(FactoredGP):
    """A BoTorch model whose posterior is the Nyström–DTC one at a dictionary of m points.

    The variance keeps the exact prior term k(x, x), so it does not starve far from the dictionary as the subset of
    regressors does. With all played points as dictionary the posterior is the exact one.

    Source: Calandriello et al., COLT 2019, §3.1; Zenati et al., AISTATS 2022, Prop. 4.2. Differs: variances are in
    reward units squared (theirs are divided by λ), noise may differ by observation, and conditioning on new points also
    adds them to the dictionary, since at a fixed one the variance outside its span would not shrink.

    Differs from ``SingleTaskGP`` in its defaults: the prior mean is zero and there is no outcome transform, so that λ
    and the constants of a confidence width keep their units. ``fit_gpytorch_mll`` maximises Titsias' collapsed bound
    at the dictionary, O(n m²) an evaluation; it equals the exact marginal likelihood when the dictionary is all points.

    Args:
        train_X: played points, (..., n, d); n may be 0, then the posterior is the prior.
        train_Y: rewards, (..., n, o) for o outputs.
        train_Yvar: noise variance of each observation, shape of ``train_Y``, in units of ``train_Y`` squared. GPyTorch
            rounds values below 1e-6 up to it and says so.
            Without it every observation has variance ``regularization``.
        inducing_points: the dictionary (..., m, d), in the space of ``train_X`` before any input transform.
        dictionary: a rule that chooses it from ``train_X`` instead; by default ``RidgeLeverageSampling()``.
        regularization: λ > 0, the noise variance, in units of the (transformed) rewards squared; then it is fixed.
            Without it and without ``train_Yvar`` it is learned, under BoTorch's default prior. Beside ``train_Yvar``
            it is the noise of observations conditioned on later without a ``noise`` (default: the mean of theirs).
        likelihood: a Gaussian likelihood in place of ``regularization``.
        covar_module: any GPyTorch kernel; BoTorch's default for ``SingleTaskGP`` otherwise.
        mean_module: prior mean; zero otherwise.
        outcome_transform: as in ``SingleTaskGP``, but None unless given.
        input_transform: as in ``SingleTaskGP``.
        generator: randomness of the rule; torch's global generator unless given.

    Raises:
        InputError: on shapes, dtypes or values that do not fit, each named.
        NotPositiveDefiniteError: at the first use, if the kernel is not a covariance.

    Cost: O(n m² + m³) once, then O(m²) a point; memory O(n m).
    """

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        inducing_points: Tensor | None = None,
        dictionary: DictionaryRule | None = None,
        regularization: float | None = None,
        likelihood: _GaussianLikelihoodBase | None = None,
        covar_module: Kernel | None = None,
        mean_module: Mean | None = None,
        outcome_transform: OutcomeTransform | None = None,
        input_transform: InputTransform | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        if inducing_points is not None and dictionary is not None:
            raise InputError("Give either inducing_points or a dictionary rule, not both.")
        if dictionary is not None:
            checks.instance("dictionary", dictionary, DictionaryRule, "a rule such as RidgeLeverageSampling()")
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
        self.register_added_loss_term(_TRACE_TERM)
        if inducing_points is None:
            inducing_points = self._choose(train_X, dictionary or RidgeLeverageSampling(), generator)
        checks.points("inducing_points", inducing_points, dimension=train_X.shape[-1], like=train_X)
        if inducing_points.shape[-2] == 0 < train_X.shape[-2]:
            raise InputError("inducing_points must have at least one row when there are observations.")
        self.register_buffer("inducing_points", inducing_points.detach().clone())
        # Points added by GPyTorch's own conditioning, which model lists use: transformed, so not among the former.
        self.register_buffer("_transformed_inducing_points", None)

    inducing_points: Tensor
    _transformed_inducing_points: Tensor | None

    @classmethod
    def from_factors(
        cls,
        train_X: Tensor,
        train_Y: Tensor,
        inducing_points: Tensor,
        factors: DTCFactors,
        *,
        covar_module: Kernel,
        regularization: float,
    ) -> Self:
        """Return a model whose posterior was computed already, without a pass over the observations.

        Args:
            train_X: (n, d).
            train_Y: (n, 1).
            inducing_points: (m, d).
            factors: of the posterior of this data at these points; not checked.
            covar_module: the prior covariance; a copy is kept.
            regularization: λ.

        Cost: O(n + m²).
        """
        prior = {"covar_module": deepcopy(covar_module), "regularization": regularization}
        model = cls(train_X, train_Y, inducing_points=inducing_points, **prior).eval()
        with torch.no_grad():
            model._keep(factors, model._dictionary())
        return model

    def forward(self, x: Tensor) -> MultivariateNormal:
        """Return the prior at x or, in training mode, the Nyström prior and the trace term of the collapsed bound.

        Source: Titsias, AISTATS 2009, Eq. 9, at inducing points that are not learned.
        """
        if not self.training:
            return super().forward(x)
        if x.shape[-2] == 0:
            raise EmptyHistoryError("There is nothing to fit: the model has no observations.")
        x = self.transform_inputs(x)
        dictionary = self._dictionary()
        factor = jittered_cholesky(gram(self.covar_module, dictionary))
        embedding = embed(factor, gram(self.covar_module, dictionary, x))
        nystrom = LowRankRootLinearOperator(embedding.mT)
        zero = torch.zeros_like(embedding[..., 0, :])
        exact = MultivariateNormal(zero, DiagLinearOperator(prior_variance(self.covar_module, x)))
        trace_term = TraceTerm(exact, MultivariateNormal(zero, nystrom), self.likelihood)
        self.update_added_loss_term(_TRACE_TERM, trace_term)
        mean = prior_mean(self.mean_module, x)
        return LowRankNormal(mean.expand(embedding.shape[:-2] + mean.shape[-1:]), nystrom)

    def train(self, mode: bool = True) -> Self:
        """Put the model in training or, with ``mode=False``, in evaluation mode."""
        if not mode:
            self._added_loss_terms[_TRACE_TERM] = None  # of the last training step
        return super().train(mode)

    # ---------------------------------------------------------------- conditioning

    def condition_on_observations(self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any) -> Self:
        """Return the model conditioned on more observations, with their points added to the dictionary.

        Args:
            X: (..., k, d).
            Y: (..., k, o), in the units of ``train_Y``.
            noise: noise variances, shape of ``Y``, in outcome-transformed units squared; ``regularization`` otherwise.
            kwargs: handed on to BoTorch.

        Raises:
            InputError: if X or Y is not finite or X has other columns than ``train_X``.

        Cost: O((m + k)³ + (n + k) (m + k)²) at the first use of the result.
        """
        conditioned = super().condition_on_observations(X, Y, noise, **kwargs)
        # What ``get_fantasy_model`` added as the kernel sees it is now known as the caller gave it.
        conditioned.inducing_points = concatenate(self.inducing_points, X, dim=-2)
        conditioned._transformed_inducing_points = self._transformed_inducing_points
        return conditioned

    def get_fantasy_model(self, inputs: Tensor, targets: Tensor, noise: Tensor | None = None, **kwargs: Any) -> Self:
        """Return a copy with more observations, their points in the dictionary; all arguments already transformed.

        Without ``noise`` the new observations have variance ``regularization``.
        """
        conditioned = super().get_fantasy_model(inputs, targets, noise, **kwargs)
        earlier = self._transformed_inducing_points
        conditioned._transformed_inducing_points = inputs if earlier is None else concatenate(earlier, inputs, dim=-2)
        return conditioned

    # ---------------------------------------------------------------- inside

    def _fit(self) -> tuple[DTCFactors, Tensor]:
        (train_X,) = self.train_inputs
        dictionary = self._dictionary()
        targets = self.train_targets - prior_mean(self.mean_module, train_X)
        dictionary_gram = gram(self.covar_module, dictionary)
        cross_gram = gram(self.covar_module, dictionary, train_X)
        return DTCFactors.fit(dictionary_gram, cross_gram, targets, self._noise(train_X)), dictionary

    def _shared_buffers(self) -> tuple[Tensor | None, ...]:
        return self.inducing_points, self._transformed_inducing_points

    def _choose(self, train_X: Tensor, rule: DictionaryRule, generator: torch.Generator | None) -> Tensor:
        """Return the rows of ``train_X`` that the rule chooses; no row if there are none."""
        if train_X.shape[-2] == 0:
            return train_X
        with torch.no_grad():
            transformed = self._preprocess(train_X)
            points = transformed.unsqueeze(-3) if self._num_outputs > 1 else transformed
            counts = train_X.new_ones(train_X.shape[-2])
            noise = self._noise(points)
            selection = rule.select(PlayedPoints(points, self.covar_module, noise, counts), generator)
        if selection.indices is not None:
            return train_X[..., selection.indices, :]
        return selection.points.squeeze(-3) if self._num_outputs > 1 else selection.points

    def _dictionary(self) -> Tensor:
        """Return the dictionary as the kernel sees it: transformed, with the batch dimension of the outputs."""
        dictionary = self._preprocess(self.inducing_points)
        dictionary = dictionary.unsqueeze(-3) if self._num_outputs > 1 else dictionary
        extra = self._transformed_inducing_points
        return dictionary if extra is None else concatenate(dictionary, extra, dim=-2)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        saved = state_dict.get(f"{prefix}inducing_points")
        if saved is not None and saved.shape != self.inducing_points.shape:
            self.inducing_points = self.inducing_points.new_empty(saved.shape)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
