from collections.abc import Callable
from copy import deepcopy
from typing import Any, Self, cast

import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from gpytorch import settings as gpytorch_settings
from gpytorch.constraints import Positive
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.likelihoods.gaussian_likelihood import _GaussianLikelihoodBase
from gpytorch.means import Mean, ZeroMean
from gpytorch.mlls import MarginalLogLikelihood
from linear_operator.operators import DenseLinearOperator, DiagLinearOperator, LowRankRootLinearOperator
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.dictionaries import DictionaryRule, PlayedPoints, RidgeLeverageSampling
from torch_kbandits.dtc import DTCFactors, embed
from torch_kbandits.errors import EmptyHistoryError, InputError
from torch_kbandits.gram import gram, prior_mean, prior_variance
from torch_kbandits.linalg import jittered_cholesky
from torch_kbandits.models.collapsed_bound import LowRankNormal, TraceTerm

_TRACE_TERM = "nystrom_trace_term"


class NystromGP(SingleTaskGP):
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
        _check_data(train_X, train_Y, train_Yvar)
        if inducing_points is not None and dictionary is not None:
            raise InputError("Give either inducing_points or a dictionary rule, not both.")
        if dictionary is not None:
            checks.instance("dictionary", dictionary, DictionaryRule, "a rule such as RidgeLeverageSampling()")
        if likelihood is not None and regularization is not None:
            raise InputError("Give either a likelihood or a regularization, not both: each sets the noise variance.")
        if likelihood is not None and train_Yvar is not None:
            raise InputError("Give either a likelihood or train_Yvar, not both: each sets the noise variances.")
        if regularization is not None and train_Yvar is None:
            likelihood = _fixed_gaussian(checks.positive("regularization", regularization), train_X, train_Y)
        super().__init__(
            train_X,
            train_Y,
            train_Yvar,
            likelihood=likelihood,
            covar_module=covar_module,
            mean_module=ZeroMean() if mean_module is None else mean_module,
            outcome_transform=outcome_transform,
            input_transform=input_transform,
        )
        self.register_added_loss_term(_TRACE_TERM)
        self._later_noise = None if train_Yvar is None or regularization is None else float(regularization)
        if inducing_points is None:
            inducing_points = self._choose(train_X, dictionary or RidgeLeverageSampling(), generator)
        checks.points("inducing_points", inducing_points, dimension=train_X.shape[-1], like=train_X)
        if inducing_points.shape[-2] == 0 < train_X.shape[-2]:
            raise InputError("inducing_points must have at least one row when there are observations.")
        self.register_buffer("inducing_points", inducing_points.detach().clone())
        # Points added by GPyTorch's own conditioning, which model lists use: transformed, so not among the former.
        self.register_buffer("_transformed_inducing_points", None)

    covar_module: Kernel
    likelihood: Any
    mean_module: Mean
    inducing_points: Tensor
    _transformed_inducing_points: Tensor | None
    train_inputs: tuple[Tensor]

    # ---------------------------------------------------------------- what the model knows of itself

    @property
    def num_observations(self) -> int:
        """Number n of observations conditioned on."""
        return self.train_targets.shape[-1]

    @property
    def regularization(self) -> Tensor:
        """λ (...,), in (transformed) reward units squared: the noise variance, its mean where observations differ."""
        if self._later_noise is not None:
            return self.train_targets.new_tensor(self._later_noise)
        noise = self.likelihood.noise.detach()
        return noise.mean(-1)

    def leverage_scores(self) -> Tensor:
        """Return τ̃(x_s) = σ̃²(x_s) / λ_s of every observation, (..., n); close to [0, 1], exactly so if Z is all points.

        Outputs come as a last batch dimension. Cost: O(n m²).
        """
        with torch.no_grad():
            self.eval()
            (train_X,) = self.train_inputs
            factors, _ = self._factors()
            variance = factors.variance(
                prior_variance(self.covar_module, train_X), factors.embed(self._cross_gram(train_X))
            )
            return variance / self._noise(train_X)

    def effective_dimension(self) -> Tensor:
        """Return Σ_s τ̃(x_s), (...,): the DTC estimate of Tr K(K + λI)⁻¹. Cost: O(n m²)."""
        return self.leverage_scores().sum(-1)

    def information_gain(self) -> Tensor:
        """Return ½ log det(I + Σ^-½ Q Σ^-½), (...,), in nats, with Q = K_XZ K_ZZ⁻¹ K_ZX.

        It never exceeds the exact ½ log det(I + K/λ) and equals it when the dictionary is all points. Cost: O(m).
        """
        with torch.no_grad():
            self.eval()
            return self._factors()[0].information_gain()

    def kernel_bound(self) -> Tensor:
        """Return the largest prior variance k(x, x) over the observations, 0-dim; 0 if there are none."""
        with torch.no_grad():
            self.eval()
            variance = prior_variance(self.covar_module, self.train_inputs[0])
            return variance.max() if variance.numel() else variance.new_zeros(())

    # ---------------------------------------------------------------- the posterior

    def __call__(self, X: Tensor, **kwargs: Any) -> MultivariateNormal:
        """Return the posterior at X (..., q, d), already input-transformed; in training mode the distribution to fit.

        Cost: O(q m²) a batch member, plus O(q² m) when q > 1.
        """
        if self.training or gpytorch_settings.prior_mode.on():
            return super().__call__(X, **kwargs)
        factors, batch_dims = self._factors()
        flat, unflatten = _flatten_t_batch(X, batch_dims)
        embedding = factors.embed(self._cross_gram(flat))
        mean = prior_mean(self.mean_module, X) + unflatten(factors.mean(embedding))
        if X.shape[-2] == 1:
            variance = unflatten(factors.variance(prior_variance(self.covar_module, flat), embedding))
            mean, variance = torch.broadcast_tensors(mean, variance)
            return MultivariateNormal(mean, DiagLinearOperator(variance))
        covariance = factors.covariance(gram(self.covar_module, X), unflatten(embedding))
        shape = torch.broadcast_shapes(mean.shape, covariance.shape[:-1])
        # An operator, since MultivariateNormal would factorise a plain tensor without jitter.
        return MultivariateNormal(mean.expand(shape), DenseLinearOperator(covariance.expand(*shape, shape[-1])))

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

    @property
    def custom_fit(self) -> Callable[..., MarginalLogLikelihood]:
        """What ``fit_gpytorch_mll`` calls when every hyperparameter is fixed: nothing to do. Absent otherwise.

        BoTorch's own fit raises when it finds nothing to optimise.
        """
        if any(parameter.requires_grad for parameter in self.parameters()):
            raise AttributeError("custom_fit")
        return lambda mll, **_: mll.eval()

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
        checks.points("X", X, dimension=self.inducing_points.shape[-1], like=self.inducing_points)
        checks.finite("Y", Y)
        self.eval()  # transforms must not learn from the new observations
        if noise is not None:
            kwargs["noise"] = noise
        conditioned = cast(Self, super().condition_on_observations(X, Y, **kwargs))
        # What ``get_fantasy_model`` added as the kernel sees it is now known as the caller gave it.
        conditioned.inducing_points = _concatenate(self.inducing_points, X, dim=-2)
        conditioned._transformed_inducing_points = self._transformed_inducing_points
        return conditioned

    def get_fantasy_model(self, inputs: Tensor, targets: Tensor, noise: Tensor | None = None, **kwargs: Any) -> Self:
        """Return a copy with more observations, their points in the dictionary; all arguments already transformed.

        Without ``noise`` the new observations have variance ``regularization``.
        """
        (train_X,), train_Y, likelihood = self.train_inputs, self.train_targets, self.likelihood
        # Shared instead of copied: the copy gets its own below, and tensors that carry a graph cannot be copied.
        parts = (train_X, train_Y, likelihood, self.inducing_points, self._transformed_inducing_points)
        shared = {id(part): part for part in parts}
        conditioned = deepcopy(self, memo=shared)
        # Rewards fantasised at the same points share them: expanding the points would repeat the factorisation.
        conditioned.train_inputs = (_concatenate(train_X, inputs, dim=-2),)
        conditioned.train_targets = _concatenate(train_Y, targets, dim=-1)
        if noise is None and isinstance(likelihood, FixedNoiseGaussianLikelihood):
            noise = self.regularization.unsqueeze(-1).expand(targets.shape)
        conditioned.likelihood = likelihood.get_fantasy_likelihood(**({} if noise is None else {"noise": noise}))
        earlier = self._transformed_inducing_points
        conditioned._transformed_inducing_points = inputs if earlier is None else _concatenate(earlier, inputs, dim=-2)
        return conditioned

    # ---------------------------------------------------------------- inside

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
        return dictionary if extra is None else _concatenate(dictionary, extra, dim=-2)

    def _preprocess(self, X: Tensor) -> Tensor:
        """Transform points as the played points are; unlike ``transform_inputs`` it never learns bounds from them."""
        transform = getattr(self, "input_transform", None)
        return X if transform is None else transform.preprocess_transform(X)

    def _noise(self, X: Tensor) -> Tensor:
        """Return the noise variances λ_s of observations at X (..., n, d), (..., n)."""
        return self.likelihood._shaped_noise_covar(X.shape[:-1], X).diagonal(dim1=-1, dim2=-2)

    def _cross_gram(self, X: Tensor) -> Tensor:
        return gram(self.covar_module, self._dictionary(), X)

    def _factors(self) -> tuple[DTCFactors, int]:
        """Return the factors of the posterior and their number of batch dimensions, computed once for given data."""
        if self.prediction_strategy is None:
            keep_graph = torch.is_grad_enabled() and gpytorch_settings.detach_test_caches.off()
            with torch.set_grad_enabled(keep_graph):
                (train_X,) = self.train_inputs
                targets = self.train_targets - prior_mean(self.mean_module, train_X)
                dictionary_gram = gram(self.covar_module, self._dictionary())
                factors = DTCFactors.fit(dictionary_gram, self._cross_gram(train_X), targets, self._noise(train_X))
            self.prediction_strategy = _Cache((factors, factors.weights.dim() - 1))
        return self.prediction_strategy

    def _apply(self, fn: Callable[[Tensor], Tensor], *args: Any, **kwargs: Any) -> Self:
        self.prediction_strategy = None  # its tensors are neither parameters nor buffers
        return super()._apply(fn, *args, **kwargs)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        saved = state_dict.get(f"{prefix}inducing_points")
        if saved is not None and saved.shape != self.inducing_points.shape:
            self.inducing_points = self.inducing_points.new_empty(saved.shape)
        self.prediction_strategy = None
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def _flatten_t_batch(X: Tensor, batch_dims: int) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Merge the t-batch dimensions of X (*t, *b, q, d) into its points: (*b, t q, d), and how to undo it.

    Candidates come as b x 1 x d; broadcasting the factors over that layout would repeat them for every candidate.

    Returns:
        The flat points, and a function that takes (*b, ..., t q) to (*t, *b, ..., q).
    """
    t_dims = max(X.dim() - 2 - batch_dims, 0)
    t_shape, q = X.shape[:t_dims], X.shape[-2]
    front, back = tuple(range(t_dims)), tuple(range(-2 - t_dims, -2))
    flat = X.movedim(front, back).flatten(-2 - t_dims, -2)

    def unflatten(values: Tensor) -> Tensor:
        return values.unflatten(-1, (*t_shape, q)).movedim(tuple(range(-1 - t_dims, -1)), front)

    return flat, unflatten


class _Cache(tuple):
    """Factors kept where GPyTorch clears them; like its own prediction strategies, never deep-copied."""

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        return None


def _concatenate(old: Tensor, new: Tensor, dim: int) -> Tensor:
    """Concatenate along ``dim`` after broadcasting the batch dimensions before it."""
    batch_shape = torch.broadcast_shapes(old.shape[:dim], new.shape[:dim])
    return torch.cat([part.expand(*batch_shape, *part.shape[dim:]) for part in (old, new)], dim=dim)


def _fixed_gaussian(regularization: float, train_X: Tensor, train_Y: Tensor) -> GaussianLikelihood:
    """Return a Gaussian likelihood with the given noise variance for every output, not to be learned."""
    _, batch_shape = SingleTaskGP.get_batch_dimensions(train_X, train_Y)
    likelihood = GaussianLikelihood(noise_constraint=Positive(), batch_shape=batch_shape).to(train_X)
    likelihood.noise = train_X.new_tensor(regularization)
    return likelihood.requires_grad_(False)


def _check_data(train_X: Tensor, train_Y: Tensor, train_Yvar: Tensor | None) -> None:
    checks.points("train_X", train_X)
    checks.points("train_Y", train_Y, like=train_X)
    if train_Y.shape[:-1] != train_X.shape[:-1]:
        raise InputError(
            "train_Y must have a row for each row of train_X and a column for each output, shape "
            f"{(*train_X.shape[:-1], 1)} for one output; got {checks.describe(train_Y)}."
        )
    if train_Yvar is not None:
        checks.points("train_Yvar", train_Yvar, like=train_X)
        if train_Yvar.shape != train_Y.shape:
            raise InputError(
                f"train_Yvar must have the shape of train_Y, {tuple(train_Y.shape)}; got {checks.describe(train_Yvar)}."
            )
        if bool((train_Yvar < 0).any()):
            raise InputError(f"train_Yvar must not be negative, its least entry is {float(train_Yvar.min())}.")
