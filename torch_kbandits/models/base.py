"""What the models of this package share: a posterior held as factors, and BoTorch's contract around it."""

from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import replace
from typing import Any, Self, cast

import torch
from botorch.cross_validation import CVResults
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.models.utils.assorted import fantasize
from botorch.posteriors import GPyTorchPosterior, TransformedPosterior
from gpytorch import settings as gpytorch_settings
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.likelihoods.gaussian_likelihood import _GaussianLikelihoodBase
from gpytorch.likelihoods.noise_models import FixedGaussianNoise
from gpytorch.means import Mean, ZeroMean
from gpytorch.mlls import MarginalLogLikelihood
from linear_operator.operators import DenseLinearOperator, DiagLinearOperator
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError, NumericalError
from torch_kbandits.likelihoods import GivenNoiseLikelihood, UncertaintyInjectionLikelihood
from torch_kbandits.models.arguments import check_likelihood, checked_data, checked_variances, fixed_gaussian
from torch_kbandits.models.cache import Cache, PosteriorFactors, Source, same_values
from torch_kbandits.models.hallucinated import Hallucinated
from torch_kbandits.models.leaving_out import cross_validation, left_out
from torch_kbandits.models.normal import Normal, unrounded
from torch_kbandits.models.shapes import concatenate, flatten_t_batch, unrepeated, with_column
from torch_kbandits.numerics.gram import gram, prior_mean, prior_variance
from torch_kbandits.posteriors.residual import learned_residual, learned_residual_covariance


class FactoredGP(SingleTaskGP):
    """A BoTorch model whose posterior is held as factors on a basis of points, computed once for given data.

    Everything that differs between the exact and the Nyström posterior is in ``_fit``.

    Differs from ``SingleTaskGP`` in its defaults: the prior mean is zero and there is no outcome transform, so that λ
    and the constants of a confidence width keep their units.
    """

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None,
        *,
        regularization: float | None,
        likelihood: _GaussianLikelihoodBase | None,
        covar_module: Kernel | None,
        mean_module: Mean | None,
        outcome_transform: OutcomeTransform | None,
        input_transform: InputTransform | None,
    ) -> None:
        train_X, train_Y, train_Yvar = checked_data(train_X, train_Y, train_Yvar)
        checks.absent_or("likelihood", likelihood, _GaussianLikelihoodBase, "a Gaussian likelihood of GPyTorch")
        checks.absent_or("covar_module", covar_module, Kernel, "a GPyTorch kernel")
        checks.absent_or("mean_module", mean_module, Mean, "a GPyTorch mean")
        checks.absent_or("outcome_transform", outcome_transform, OutcomeTransform, "a BoTorch outcome transform")
        checks.absent_or("input_transform", input_transform, InputTransform, "a BoTorch input transform")
        check_likelihood(likelihood)
        if likelihood is not None and regularization is not None:
            raise InputError("Give either a likelihood or a regularization, not both: each sets the noise variance.")
        if likelihood is not None and train_Yvar is not None:
            raise InputError("Give either a likelihood or train_Yvar, not both: each sets the noise variances.")
        if regularization is not None:
            regularization = checks.positive("regularization", regularization)
            likelihood = fixed_gaussian(regularization, train_X, train_Y) if train_Yvar is None else None
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
        self._later_noise = None if train_Yvar is None else regularization
        self._check_time_column(train_X)
        # Points (..., k, d) that posteriors take as observed at their means; None for none.
        self.register_buffer("_pending", None, persistent=False)

    #: Whether what the basis does not span of a variance counts as observed like what it does; see ``residual_share``.
    learns_residual: bool = False

    _hallucination: Hallucinated | None = None

    _pending: Tensor | None
    covar_module: Kernel
    likelihood: Any
    mean_module: Mean
    prediction_strategy: Any
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
        """Return τ(x_s) = σ²(x_s) / λ_s of every observation, (..., n); in [0, 1] if the posterior is exact.

        Outputs come as a last batch dimension. Cost: O(n m²).
        """
        with torch.no_grad():
            self.eval()
            train_X = self._points()
            factors, _ = self._factors()
            variance = factors.variance(prior_variance(self.covar_module, train_X), self.embed(train_X))
            return variance / self._noise(train_X)

    @abstractmethod
    def effective_dimension(self) -> Tensor:
        """Return Σ_s τ(x_s), (...,): Tr K(K + λI)⁻¹, or its estimate if the posterior is not exact."""

    def information_gain(self) -> Tensor:
        """Return ½ log det(I + Σ^-½ Q Σ^-½), (...,), in nats, with Q = K_XZ K_ZZ⁻¹ K_ZX or, if exact, K.

        The former never exceeds the latter and equals it when the dictionary is all points. Cost: O(m).
        """
        with torch.no_grad():
            self.eval()
            return self._factors()[0].information_gain()

    @abstractmethod
    def projection_error(self) -> Tensor:
        """Return Σ_s (k(x_s, x_s) − z_sᵀz_s) / λ_s, (...,): what the dictionary does not span; 0 if exact."""

    @abstractmethod
    def kernel_bound(self) -> Tensor:
        """Return the largest prior variance k(x, x) over the observations, 0-dim; 0 if there are none."""

    def mean_norm(self) -> Tensor:
        """Return the RKHS norm ‖μ‖_k of the posterior mean less the prior mean, (...,), in reward units."""
        with torch.no_grad():
            self.eval()
            return self._factors()[0].mean_norm()

    def observed_means(self) -> Tensor:
        """Return the posterior means at the observations, (..., n), in (transformed) reward units.

        Without embeddings, so less accurate than ``posterior`` where the basis is close to dependent. Outputs come as
        a last batch dimension. Cost: O(n m + m²).
        """
        with torch.no_grad():
            self.eval()
            train_X = self._points()
            coefficients = self._factors()[0].coefficients().unsqueeze(-2)
            means = (coefficients @ gram(self.covar_module, self._basis(), train_X)).squeeze(-2)
            return prior_mean(self.mean_module, train_X) + means

    def leave_one_out(self, *, observation_noise: bool = True) -> CVResults:
        """Return what the model says of each observation without it, in closed form.

        As BoTorch's ``loo_cv``: hyperparameters and, if there is one, the dictionary stay as they are. Variances are
        those of DTC also where the residual is learned.

        Args:
            observation_noise: whether the variances are of the reward, and not of the mean reward.

        Returns:
            The posterior of n x 1 x o values, those observed, and the noise variances that these have of their own.

        Raises:
            NumericalError: if the noise is too small for what an observation adds to be more than rounding.

        Cost: O(n m²).
        """
        with torch.no_grad():
            self.eval()
            train_X, Y = self._points(), self.train_targets
            factors, _ = self._factors()
            embedding, prior, noise = (
                self.embed(train_X),
                prior_variance(self.covar_module, train_X),
                self._noise(train_X),
            )
            reducible = factors.reducible(prior, embedding)
            means = prior_mean(self.mean_module, train_X) + factors.mean(embedding)
            means, without = left_out(Y, means, reducible, noise)
            variances = factors.variance(prior, embedding) - reducible + without
            if checks.flag("observation_noise", observation_noise):
                variances = variances + noise
            own = None if self._own_noise() is None else noise.expand(Y.shape)
            return cross_validation(self, means, variances.expand(Y.shape), Y, own)

    # ---------------------------------------------------------------- the posterior

    def __call__(self, X: Tensor, **kwargs: Any) -> MultivariateNormal:
        """Return the posterior at X (..., q, d), already input-transformed; in training mode the distribution to fit.

        Cost: O(q m²) a batch member, plus O(q² m) when q > 1.
        """
        X = with_column(X)
        if self.training or gpytorch_settings.prior_mode.on():
            return super().__call__(X, **kwargs)
        torch.broadcast_shapes(X.shape[:-2], self.train_inputs[0].shape[:-2])  # where they do not fit, torch's words
        kept = self._current()
        factors = kept.factors
        flat, unflatten = flatten_t_batch(X, factors.batch_dims)
        embedding = factors.embed(gram(self.covar_module, kept.basis, flat))
        mean = prior_mean(self.mean_module, X) + unflatten(factors.mean(embedding))
        if X.shape[-2] == 1:
            variance = self._variance(factors, prior_variance(self.covar_module, flat), embedding)
            if self._pending is not None:
                variance = (variance - self._taken(flat, embedding, factors).square().sum(-2)).clamp_min(0.0)
            variance = unflatten(variance)
            mean, variance = torch.broadcast_tensors(mean, variance)
            return Normal(mean, DiagLinearOperator(variance))
        covariance = self._covariance(factors, gram(self.covar_module, X), unflatten(embedding))
        if self._pending is not None:
            rows = unflatten(self._taken(flat, embedding, factors))
            covariance = covariance - rows.mT @ rows
        shape = torch.broadcast_shapes(mean.shape, covariance.shape[:-1])
        # An operator, since MultivariateNormal would factorise a plain tensor without jitter.
        return Normal(mean.expand(shape), DenseLinearOperator(covariance.expand(*shape, shape[-1])))

    def posterior(self, X: Tensor, *args: Any, **kwargs: Any) -> GPyTorchPosterior | TransformedPosterior:
        """Return the posterior at X (..., q, d), as BoTorch does, with variances that are not rounded up."""
        return cast(GPyTorchPosterior, unrounded(super().posterior(X, *args, **kwargs)))

    @property
    def custom_fit(self) -> Callable[..., MarginalLogLikelihood]:
        """What ``fit_gpytorch_mll`` calls when every hyperparameter is fixed: nothing to do. Absent otherwise.

        BoTorch's own fit raises when it finds nothing to optimise.
        """
        if any(parameter.requires_grad for parameter in self.parameters()):
            raise AttributeError("custom_fit")
        return lambda mll, **_: mll.eval()

    # ---------------------------------------------------------------- conditioning

    def condition_on_observations(self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any) -> Self:
        """Return the model conditioned on more observations; this one stays as it is.

        Args:
            X: (..., k, d).
            Y: (..., k, o), in the units of ``train_Y``.
            noise: noise variances, shape of ``Y``, in outcome-transformed units squared; ``regularization`` otherwise.
                GPyTorch rounds values below 1e-6 up to it and says so.
            kwargs: handed on to BoTorch.

        Raises:
            InputError: if X, Y or noise is not finite, noise is negative or not allowed by the likelihood, or X has
                other columns than ``train_X``.
            NumericalError: if rewards add up to more than the dtype holds; at the latest at the first use.
        """
        given = self._given_inputs()
        X = checks.points("X", X, dimension=given.shape[-1], like=given)
        Y = checks.finite("Y", checks.rows("Y", Y, dimension=self.num_outputs, like=given))
        if Y.shape[-2] != X.shape[-2]:
            raise InputError(f"Y must have a row for each of the {X.shape[-2]} points of X, got {checks.describe(Y)}.")
        self.eval()  # transforms must not learn from the new observations
        if noise is not None:
            # Fantasies of a point share its noise, so it comes without their dimension.
            noise = checks.rows("noise", noise, dimension=self.num_outputs, like=given)
            kwargs["noise"] = checked_variances("noise", noise, "Y", Y[(0,) * (Y.dim() - noise.dim())])
        with self.at_points():
            conditioned = cast(Self, super().condition_on_observations(X, Y, **kwargs))
        kept = cast(Cache | None, conditioned.prediction_strategy)
        if kept is not None:  # BoTorch has noted the points as they were given since the factors were kept
            conditioned.prediction_strategy = replace(kept, source=conditioned._source().kept())
        return conditioned

    def at_points(self) -> AbstractContextManager[Any]:
        """Return a context in which points are those observed, not all that InputPerturbation and such make of one."""
        is_one_to_many = getattr(getattr(self, "input_transform", None), "is_one_to_many", False)
        return fantasize() if is_one_to_many else nullcontext()

    def get_fantasy_model(self, inputs: Tensor, targets: Tensor, noise: Tensor | None = None, **kwargs: Any) -> Self:
        """Return a copy with more observations; all arguments already transformed.

        Without ``noise`` the new observations have variance ``regularization``.
        """
        inputs = checks.within_reach("inputs", with_column(inputs))
        train_Y, likelihood = self.train_targets, self.likelihood
        # Shared instead of copied: the copy gets its own below, and tensors that carry a graph cannot be copied.
        shared = {id(part): part for part in (*self.train_inputs, train_Y, likelihood, *self._shared_buffers())}
        conditioned = deepcopy(self, memo=shared)
        points = concatenate(self._points(), inputs, dim=-2)
        conditioned.train_targets = concatenate(train_Y, targets, dim=-1)
        batch_shape = torch.broadcast_shapes(points.shape[:-2], conditioned.train_targets.shape[:-1])
        conditioned.train_inputs = (points.expand(*batch_shape, *points.shape[-2:]),)
        if isinstance(likelihood, UncertaintyInjectionLikelihood):
            conditioned.likelihood = likelihood.joined_by(targets.shape[-1], noise)
        else:
            own = self._joined_noise(targets.shape[-1], noise)
            conditioned.likelihood = deepcopy(likelihood, memo={id(self._own_noise()): None})
            conditioned._hold_noise(own)
        self._extend(conditioned, inputs, targets)
        return conditioned

    def subset_output(self, idcs: list[int]) -> Self:
        """Return the model of some outputs; BoTorch leaves it the points, as they were given, of all outputs."""
        subset = cast(Self, super().subset_output(idcs))
        if subset._has_transformed_inputs and self.num_outputs > 1:
            points = cast(Tensor, subset._original_train_inputs)[..., 0, :, :]  # of all outputs alike
            if len(idcs) > 1:
                points = points.unsqueeze(-3).expand(subset.train_inputs[0].shape[:-2] + points.shape[-2:])
            subset._original_train_inputs = points
        return subset

    # ---------------------------------------------------------------- inside

    @abstractmethod
    def _fit(self) -> tuple[PosteriorFactors, Tensor]:
        """Return the factors of the posterior and the basis (..., m, d) they stand on, both as the kernel sees them."""

    def _variance(self, factors: Any, prior: Tensor, embedding: Tensor) -> Tensor:
        """Return the posterior variances (..., N) from k(x, x) (..., N) and embeddings (..., m, N)."""
        variance = factors.variance(prior, embedding)
        return learned_residual(prior, embedding.square().sum(-2), variance) if self.learns_residual else variance

    def _covariance(self, factors: Any, prior: Tensor, embedding: Tensor) -> Tensor:
        """Return the posterior covariance (..., q, q) from the prior one and embeddings (..., m, q)."""
        covariance = factors.covariance(prior, embedding)
        return learned_residual_covariance(prior, embedding, covariance) if self.learns_residual else covariance

    def _taken(self, points: Tensor, embedding: Tensor, factors: Any) -> Tensor:
        """Return F at points (..., N, d) of these embeddings (..., m, N), (..., k, N); see ``Hallucinated``."""
        if self._hallucination is None or self._hallucination.factors is not factors:
            with torch.no_grad():
                pending = self._seen(cast(Tensor, self._pending))
                self._hallucination = Hallucinated(self, pending, self._fresh_noise(pending))
        return self._hallucination.rows(points, embedding)

    def _fresh_noise(self, inputs: Tensor) -> Tensor:
        """Return the noise variances of observations that are made now at inputs (..., k, d), without any of their own.

        They are (..., k), or (..., 1) where all are the same.
        """
        likelihood = self.likelihood
        if isinstance(likelihood, UncertaintyInjectionLikelihood) and likelihood.time_column is not None:
            return likelihood.observation_noise(inputs)
        return self.regularization.unsqueeze(-1)

    @abstractmethod
    def _extend(self, conditioned: Self, inputs: Tensor, targets: Tensor) -> None:
        """Let a conditioned copy of this model, whose data is there already, know of what it was conditioned on."""

    @abstractmethod
    def _shared_buffers(self) -> tuple[Any, ...]:
        """Return what else a conditioned copy replaces."""

    def _largest_variance(self) -> Tensor:
        """Return what ``kernel_bound`` does, from the observations. Cost: O(n)."""
        with torch.no_grad():
            self.eval()
            variance = prior_variance(self.covar_module, self._points())
            return variance.max() if variance.numel() else variance.new_zeros(())

    def _factors(self) -> tuple[Any, int]:
        """Return the factors of the posterior and their number of batch dimensions."""
        factors = self._current().factors
        return factors, factors.batch_dims

    def _current(self) -> Cache:
        """Return the factors of the posterior and what belongs to them, computed once for given data.

        They are computed again where gradients through them are asked for and those kept have none. Points observed
        that ask for a gradient, as fantasies do in a search, get all of it: not what is left without the factors'.
        """
        kept = self._kept()
        asked = gpytorch_settings.detach_test_caches.off() or self.train_inputs[0].requires_grad
        with_graph = torch.is_grad_enabled() and asked
        if kept is None or (with_graph and not kept.has_graph and self._requires_grad()):
            with torch.set_grad_enabled(with_graph):
                kept = self._keep(*self._fit())
        return kept

    def _kept(self) -> Cache | None:
        """Return what is kept of the posterior, if everything that it follows from has the values it had."""
        kept = cast(Cache | None, self.prediction_strategy)
        return kept if kept is not None and kept.source.equals(self._source()) else None

    def _keep(self, factors: Any, basis: Tensor) -> Cache:
        """Keep the factors where GPyTorch clears them.

        Raises:
            NumericalError: if they are not finite.
        """
        if not factors.is_finite():
            raise NumericalError(
                f"The rewards add up to more than the dtype holds ({self.train_targets.dtype}), or a kernel value is "
                "not finite: choose another unit, or check the kernel."
            )
        self.prediction_strategy = kept = Cache(factors, basis, torch.is_grad_enabled(), self._source().kept())
        return kept

    def _source(self) -> Source:
        """Return what the factors follow from, as it is."""
        modules = list(self.modules())
        settings: list[Any] = []
        for module in modules[1:]:
            settings.append(type(module))
            settings += [value for value in vars(module).values() if type(value) in (int, float)]
        return Source(self._tensors(modules), settings)

    def _requires_grad(self) -> bool:
        """Say whether anything that the factors follow from asks for a gradient."""
        return any(tensor.requires_grad for tensor in self._tensors(list(self.modules())))

    def _tensors(self, modules: list[torch.nn.Module]) -> list[Tensor]:
        """Return the data, and the tensors that modules have as parameters, buffers or attributes."""
        places = [place for module in modules for place in (module._parameters, module._buffers, vars(module))]
        found = [value for place in places for value in place.values() if isinstance(value, Tensor)]
        return [*self.train_inputs, *found]

    def _transform_again(self) -> None:
        """Let the observed points be what the input transform makes of them now."""
        given = self._original_train_inputs
        # GPyTorch's own conditioning, which model lists use, does not have new points as they were given.
        if not self._has_transformed_inputs or given is None or given.shape[-2] != self.num_observations:
            return
        with torch.no_grad():
            inputs = self._preprocess(given)
        if not same_values(inputs.expand_as(self.train_inputs[0]), self.train_inputs[0]):
            self.set_train_data(inputs, strict=False)

    def _basis(self) -> Tensor:
        """Return the points (..., m, d) that the factors stand on."""
        return self._current().basis

    @property
    def factors(self) -> PosteriorFactors:
        """The posterior as algebra on embeddings, computed once for given data."""
        return self._factors()[0]

    def embed(self, X: Tensor) -> Tensor:
        """Return the embeddings (..., m, N) of points (..., N, d), already transformed, that ``factors`` work on."""
        kept = self._current()
        return kept.factors.embed(gram(self.covar_module, kept.basis, X))

    def _points(self) -> Tensor:
        """Return the observed points (..., n, d) as the kernel sees them, once where rewards of a batch share them."""
        self._transform_again()
        return unrepeated(self.train_inputs[0], 2 if self._num_outputs == 1 else 3)

    def _given_inputs(self) -> Tensor:
        """Return the observed points (..., n, d) as they were given, where a transform may have other columns."""
        transformed = getattr(self, "_has_transformed_inputs", False)
        return cast(Tensor, self._original_train_inputs if transformed else self.train_inputs[0])

    def _preprocess(self, X: Tensor) -> Tensor:
        """Transform points as the played points are; unlike ``transform_inputs`` it never learns bounds from them."""
        transform = getattr(self, "input_transform", None)
        return X if transform is None else transform.preprocess_transform(X)

    def _seen(self, points: Tensor) -> Tensor:
        """Return points (..., k, d) as the kernel sees them: transformed, with the batch dimension of the outputs."""
        points = self._preprocess(points)
        return points.unsqueeze(-3) if self._num_outputs > 1 else points

    def _noise(self, X: Tensor) -> Tensor:
        """Return the noise variances λ_s of the observations, which are at X (..., n, d), (..., n)."""
        if isinstance(self.likelihood, (UncertaintyInjectionLikelihood, GivenNoiseLikelihood)):
            return self.likelihood.observation_noise(X)
        return self.likelihood._shaped_noise_covar(X.shape[:-1], X).diagonal(dim1=-1, dim2=-2)

    def _own_noise(self) -> Tensor | None:
        """Return the variances (..., n) that observations have of their own, NaN for one without; None if none has."""
        covar = self.likelihood.noise_covar
        if isinstance(covar, FixedGaussianNoise):
            return covar.noise
        return self.likelihood.given if isinstance(self.likelihood, GivenNoiseLikelihood) else None

    def _hold_noise(self, own: Tensor | None) -> None:
        """Take over variances (..., n) that observations have of their own."""
        covar = self.likelihood.noise_covar
        if own is None:
            return
        if isinstance(covar, FixedGaussianNoise):
            covar.noise = own
        elif isinstance(self.likelihood, GivenNoiseLikelihood):
            self.likelihood.given = own
        else:
            self.likelihood = GivenNoiseLikelihood(covar, own)

    def _joined_noise(self, k: int, noise: Tensor | None) -> Tensor | None:
        """Return the variances (..., n + k) that observations have of their own once k more came with ``noise``.

        Raises:
            InputError: if there is noise and the likelihood says already what that of each observation is.
        """
        own = self._own_noise()
        if noise is not None:
            if own is None and not isinstance(self.likelihood, GaussianLikelihood):
                raise InputError(
                    f"The {type(self.likelihood).__name__} of this model says itself what the noise of an observation "
                    "is: leave noise and Yvar out."
                )
            noise = FixedGaussianNoise(noise).noise  # rounded up and warned of as in the constructor
        elif own is None:
            return None
        elif isinstance(self.likelihood, FixedNoiseGaussianLikelihood):
            noise = self._later_noise_level().expand(*own.shape[:-1], k)
        else:
            noise = own.new_full((*own.shape[:-1], k), torch.nan)
        return concatenate(torch.full_like(self.train_targets, torch.nan) if own is None else own, noise, dim=-1)

    def _check_time_column(self, train_X: Tensor) -> None:
        """Refuse an input transform that changes the times from which a likelihood takes ages."""
        column = getattr(self.likelihood, "time_column", None)
        if column is None or getattr(self, "input_transform", None) is None:
            return
        with torch.no_grad():
            transformed = self._preprocess(train_X)
        if not torch.equal(transformed[..., column], train_X[..., column]):
            raise InputError(
                f"The input transform changes column {column}, the time from which the likelihood takes ages: leave "
                "it out, as Normalize(d, indices=[...]) does."
            )

    def _later_noise_level(self) -> Tensor:
        """Return the fixed noise variance (..., 1) of later observations that come without theirs."""
        noise = self.regularization.unsqueeze(-1) - getattr(self.likelihood, "second_noise", 0.0)
        if not bool(torch.isfinite(noise).all()):
            raise InputError(
                "There is no observation whose noise variance the new ones could have: give theirs, or make the model "
                "with a regularization."
            )
        return noise

    def _apply(self, fn: Callable[[Tensor], Tensor], *args: Any, **kwargs: Any) -> Self:
        if self._original_train_inputs is not None:
            self._original_train_inputs = fn(self._original_train_inputs)
        super()._apply(fn, *args, **kwargs)
        # BoTorch's analytic acquisition functions cast themselves and the model, mostly to what it is, at every call.
        # A graph may be walked backwards once only, so factors that carry one are for one call.
        kept = cast(Cache | None, self.prediction_strategy)
        if kept is not None and kept.has_graph:
            self.prediction_strategy = None
        return self
