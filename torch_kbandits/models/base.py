"""What the models of this package share: one posterior, and BoTorch's contract around it."""

from abc import abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple, Self, cast

import torch
from botorch import settings as botorch_settings
from botorch.models.utils.assorted import fantasize
from botorch.posteriors import GPyTorchPosterior, TransformedPosterior
from gpytorch import settings as gpytorch_settings
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.mlls import MarginalLogLikelihood
from linear_operator.operators import DenseLinearOperator, DiagLinearOperator
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError, NumericalError
from torch_kbandits.likelihoods import UncertaintyInjectionLikelihood
from torch_kbandits.models.data import Learned, ObservedGP, at_dictionary, checked_variances, is_same
from torch_kbandits.models.fits import Loss, fitted, let_older_botorch_fit
from torch_kbandits.models.normal import unrounded
from torch_kbandits.numerics.gram import prior_mean, prior_variance
from torch_kbandits.numerics.rows import distinct
from torch_kbandits.numerics.shallow import changed
from torch_kbandits.posteriors.dictionary_posterior import DictionaryPosterior
from torch_kbandits.posteriors.exact_posterior import ExactPosterior
from torch_kbandits.posteriors.posterior import Prior
from torch_kbandits.posteriors.prediction import PredictionStrategy, in_double, joined


class Cache(NamedTuple):
    """How a model predicts, kept where GPyTorch clears it; like its strategies, never deep-copied.

    It follows from what was ``learned``, None in a batch, on a device, with gradients or after conditioning; and from a
    ``source``, of which tensors are copied, since they may be written to without a trace.
    """

    strategy: PredictionStrategy
    learned: Learned | None
    has_graph: bool
    source: list[Any]

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        return None


class FactoredGP(ObservedGP):
    """A BoTorch model whose posterior is one of this package, computed once for given data and then followed.

    Differs from ``SingleTaskGP`` in its defaults: the prior mean is zero; and rewards are not standardised where a
    ``regularization`` or a likelihood is given, so that λ and the constants of a confidence width keep their units, nor
    where there is no observation yet. The posterior is in double precision whatever the dtype. What is known of the
    observations comes with batch dimensions first, then that of the outputs.
    """

    _loss: Loss | None = None  # what a fit that runs minimises
    is_final = False  # whether nobody changes it, so that nothing is compared before what is kept is used

    @torch.no_grad()
    def leverage_scores(self) -> Tensor:
        """Return τ(x_s) = σ²(x_s) / λ_s of each observation, (..., n); in [0, 1] if exact. Cost: O(n m²)."""
        strategy, X = self.kept.strategy, self._points()
        return self._number(strategy.own_variance(strategy.at(X)) / self._noise(X))

    @torch.no_grad()
    def effective_dimension(self) -> Tensor:
        """Return Σ_s τ(x_s), (...,): Tr K(K + Σ)⁻¹, or its estimate at a dictionary. Cost: O(m³), or O(n m²) there."""
        strategy = self.kept.strategy
        return self._number(strategy.effective_dimension()) if strategy.is_exact else self.leverage_scores().sum(-1)

    @torch.no_grad()
    def projection_error(self) -> Tensor:
        """Return Σ_s (k(x_s, x_s) − z_sᵀz_s) / λ_s, (...,): what the dictionary does not span; 0 if exact. O(n m²)."""
        if self.kept.strategy.is_exact:
            return torch.zeros_like(self.information_gain())
        X = self._points()
        at = self.kept.strategy.at(X)
        return self._number(((at.prior - at.inside.square().sum(-2)).clamp_min(0.0) / self._noise(X)).sum(-1))

    def information_gain(self) -> Tensor:
        """Return ½ log det(I + Σ^-½ Q Σ^-½), (...,), in nats, with Q = K_XZ K_ZZ⁻¹ K_ZX, at most that of K, or K."""
        return self._number(0.5 * self.kept.strategy.log_det)

    @torch.no_grad()
    def kernel_bound(self) -> Tensor:
        """Return the largest prior variance k(x, x) over the observations, 0-dim; 0 if there are none. Cost: O(n)."""
        variance = prior_variance(self.kept.strategy.kernel, self._points().double())
        return self._number(variance.max() if variance.numel() else variance.new_zeros(()))

    def mean_norm(self) -> Tensor:
        """Return the RKHS norm ‖μ‖_k of the posterior mean less the prior mean, (...,), in reward units."""
        return self._number(self.kept.strategy.mean_norm())

    @torch.no_grad()
    def observed_means(self) -> Tensor:
        """Return the posterior means at the observations, (..., n), in (transformed) reward units. Cost: O(n m²)."""
        strategy, X = self.kept.strategy, self._points()
        return prior_mean(self.mean_module, X) + self._number(strategy.mean_at(strategy.at(X)))

    def _number(self, values: Tensor) -> Tensor:
        return values.detach().to(self.train_targets)

    def __call__(self, X: Tensor, **kwargs: Any) -> MultivariateNormal:
        """Return the posterior at X (..., q, d), already input-transformed; in training mode the distribution to fit.

        Cost: O(q m²) a batch member, plus O(q² m) when q > 1.
        """
        X = X.unsqueeze(-1) if X.dim() == 1 else X  # as GPyTorch takes points of one input
        if self.training or gpytorch_settings.prior_mode.on():
            return super().__call__(X, **kwargs)
        torch.broadcast_shapes(X.shape[:-2], self.train_inputs[0].shape[:-2])  # where they do not fit, torch's words
        strategy = self._current().strategy
        flat, unflatten = _flatten(X, strategy.batch_dims)
        at = strategy.at(flat)
        mean = prior_mean(self.mean_module, X) + unflatten(strategy.mean_at(at)).to(X)
        if X.shape[-2] == 1:
            variance = unflatten(strategy.variance(at)).to(X)
            mean, variance = torch.broadcast_tensors(mean, variance)
            return MultivariateNormal(mean, DiagLinearOperator(variance))
        covariance = strategy.covariance(at.laid_out(X, unflatten)).to(X)
        shape = torch.broadcast_shapes(mean.shape, covariance.shape[:-1])
        # An operator, since MultivariateNormal would factorise a plain tensor without jitter.
        return MultivariateNormal(mean.expand(shape), DenseLinearOperator(covariance.expand(*shape, shape[-1])))

    @property
    def is_untransformed(self) -> bool:
        """Whether it predicts one outcome in the units told, without a transform or a batch; see ``marginals``."""
        transforms = (getattr(self, name, None) for name in ("input_transform", "outcome_transform"))
        return self.num_outputs == 1 and not self._is_batch() and all(each is None for each in transforms)

    def marginals(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the means and variances (...,) of ``posterior`` at points X (..., d), without making a distribution.

        For searches, of a model that ``is_untransformed`` and evaluates.
        """
        strategy = (self.eval() if self.training else self)._current().strategy
        mean, variance = (each.reshape(X.shape[:-1]).to(X) for each in strategy.marginals(X.reshape(-1, X.shape[-1])))
        return prior_mean(self.mean_module, X) + mean, variance

    def posterior(self, X: Tensor, *args: Any, **kwargs: Any) -> GPyTorchPosterior | TransformedPosterior:
        """Return the posterior at X (..., q, d), as BoTorch does, with variances that are not rounded up."""
        return cast(GPyTorchPosterior, unrounded(super().posterior(X, *args, **kwargs)))

    def _apply_noise(self, X: Tensor, mvn: MultivariateNormal, observation_noise: bool | Tensor = False) -> Any:
        """Add noise to a posterior, of observations with noise of their own that of later ones."""
        if observation_noise is True and isinstance(self.likelihood, FixedNoiseGaussianLikelihood):
            level = self.regularization - self.likelihood.second_noise  # which the likelihood adds
            level = level if level.dim() and self.num_outputs > 1 else level.unsqueeze(-1)
            observation_noise = level.expand(*level.shape[:-1], self.num_outputs).unsqueeze(-2)
        return super()._apply_noise(X, mvn, observation_noise)

    @property
    def custom_fit(self) -> Callable[..., MarginalLogLikelihood]:
        """What ``fit_gpytorch_mll`` calls; absent while it runs, so that it can call BoTorch's own fit."""
        if self._loss is not None:
            raise AttributeError("custom_fit")
        is_fixed = not any(parameter.requires_grad for parameter in self.parameters())
        return (lambda mll, **_: mll.eval()) if is_fixed else partial(fitted, self)

    @property
    def compute_custom_loss(self) -> Loss:
        """What BoTorch's fit minimises while ``custom_fit`` runs; absent otherwise."""
        if self._loss is None:
            raise AttributeError("compute_custom_loss")
        return partial(self._loss, self)

    @torch.no_grad()
    def predicting_by(self, posterior: Learned) -> Self:
        """Return this model, which from now on predicts by a posterior of its observations.

        Cost: O(m²); at a dictionary O(u m² + m³), which clears the rounding of changes, without a kernel value.
        """
        if isinstance(posterior, DictionaryPosterior) and posterior.num_changes:
            posterior = changed(posterior, arms=None).refitted()
        strategy = PredictionStrategy.of(posterior, learns_residual=self.learns_residual)
        return self.eval()._keep(strategy)

    @torch.no_grad()
    def _told(self, X: Tensor, targets: Tensor, noise: Tensor | None) -> Self:
        """Return the model with more observations, as ``_checked`` returns them."""
        learned, own = self._learned(), self._joined_noise(len(X), noise)
        everything = torch.cat([self._given_inputs(), X])
        other = self._with_data(everything, torch.cat([self.train_targets, targets], -1), own)
        new = other._observations(slice(self.num_observations, None))
        return other._keep(new.told(learned) if learned is not None and new.are_shared else None)

    @torch.no_grad()
    def remove(self, rows: Tensor | list[int]) -> None:
        """Forget observations, rows of those told, each once; the dictionary stays.

        Raises:
            InputError: if a row is no observation, or the model has batch dimensions; then it is as it was.

        Cost: O(m²) for each, m basis points, and O(n). As a fresh fit if there are many, once in some hundred changes
        to clear rounding, on a device, and where outputs differ in kernel or noise.
        """
        self._require_change()
        numbers, n = checks.whole_numbers("rows", rows), self.num_observations
        if len({*numbers}) < len(numbers) or not all(0 <= number < n for number in numbers):
            raise InputError(f"rows must be distinct rows of the {n} observations, got {numbers}.")
        kept = torch.ones(n, dtype=torch.bool, device=self.train_targets.device)
        kept[numbers] = False
        learned, own = self.eval()._learned(), self._own_noise()
        learned = None if learned is None else self._observations(numbers).told(learned, -1.0)
        own = None if own is None else own[..., kept]
        other = self._with_data(self._given_inputs()[kept], self.train_targets[..., kept], own)
        self._become(other._keep(learned))

    def _become(self, other: Self) -> None:
        """Take over all that another model has, in one assignment, which no interrupt can come in between."""
        object.__setattr__(self, "__dict__", vars(other))

    def _learned(self) -> Learned | None:
        """Return what was learned of the observations there are; None where all is computed afresh."""
        known = (self._current().learned or self._fitted()) if self._is_plain() else None
        return None if isinstance(known, PredictionStrategy) else known

    def condition_on_observations(self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any) -> Self:
        """Return the model conditioned on more observations, whose points join a dictionary; this one stays as it is.

        Args:
            X: (..., k, d).
            Y: (..., k, o), in the units of ``train_Y``.
            noise: noise variances, shape of ``Y``, in outcome-transformed units squared; ``regularization`` otherwise.
            kwargs: handed on to BoTorch.

        Raises:
            InputError: if an argument does not fit or is not finite, or noise is negative or said by the likelihood.
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
        # Points are those observed, not all that InputPerturbation and such make of one.
        is_one_to_many = getattr(getattr(self, "input_transform", None), "is_one_to_many", False)
        with fantasize() if is_one_to_many else nullcontext():
            conditioned = cast(Self, super().condition_on_observations(X, Y, given=X, **kwargs))
        kept = cast(Cache | None, conditioned.prediction_strategy)
        if kept is not None:  # BoTorch has noted the points as they were given since the posterior was kept
            conditioned.prediction_strategy = kept._replace(source=_copied(conditioned._source()))
        return conditioned

    def with_pending(self, X: Tensor) -> Self:
        """Return a copy conditioned on its posterior mean at X (..., k, d): the mean stays and no variance rises.

        Data, dictionary and what the model knows of itself stay. Gradients reach through what it is asked at alone.

        Source: Desautels, Krause and Burdick, JMLR 2014 (GP-BUCB).

        Raises:
            InputError: if X does not fit the model or is not finite.

        Cost: O(k m² + k² m + k³), and O(k (m + k)) more for a point of the posterior.
        """
        given = self._given_inputs()
        X = checks.points("X", X, dimension=given.shape[-1], like=given)
        shared = [*self.train_inputs, self.train_targets, *self._buffers.values()]
        other = deepcopy(self, memo={id(part): part for part in shared})
        other._pending = X if self._pending is None else joined(self._pending, X, -2)
        with torch.no_grad():
            kept = self.eval()._current()
            return other.eval()._keep(None if kept.has_graph else kept.learned or kept.strategy)

    def get_fantasy_model(
        self, inputs: Tensor, targets: Tensor, noise: Tensor | None = None, given: Tensor | None = None, **kwargs: Any
    ) -> Self:
        """Return a copy with more observations, already transformed; points to be told are those given, if they are."""
        inputs = checks.within_reach("inputs", inputs.unsqueeze(-1) if inputs.dim() == 1 else inputs)
        # Shared instead of copied: the copy gets its own below, and tensors that carry a graph cannot be copied.
        shared = [*self.train_inputs, self.train_targets, self._own_noise(), *self._buffers.values()]
        conditioned = deepcopy(self, memo={id(part): part for part in shared})
        points = joined(self._points(), inputs, -2)
        conditioned.train_targets = joined(self.train_targets, targets, -1)
        batch_shape = torch.broadcast_shapes(points.shape[:-2], conditioned.train_targets.shape[:-1])
        conditioned.train_inputs = (points.expand(*batch_shape, *points.shape[-2:]),)
        if isinstance(self.likelihood, UncertaintyInjectionLikelihood):
            conditioned.likelihood = self.likelihood.get_fantasy_likelihood(noise=noise)
        else:
            conditioned.likelihood = conditioned._with_noise(self._joined_noise(targets.shape[-1], noise))
        self._extend(conditioned, inputs, targets, given)
        return conditioned

    @abstractmethod
    def _dictionary(self) -> Tensor | None:
        """Return the dictionary as the kernel sees it, (..., m, d); None where the posterior is exact."""

    @abstractmethod
    def _choose_again(self) -> None:
        """Let the rule that chose the dictionary, if one did, choose again under the hyperparameters there are."""

    @abstractmethod
    def _extend(self, conditioned: Self, inputs: Tensor, targets: Tensor, given: Tensor | None) -> None:
        """Let a conditioned copy of this model, which has the data already, know of what it was conditioned on."""

    @property
    @torch.no_grad()
    def kept(self) -> Cache:
        """What is kept of the posterior as it is now: another object once anything that it follows from has changed."""
        return (self.eval() if self.training else self)._current()

    def _current(self) -> Cache:
        """Return what is kept of the posterior, computed again where what it follows from is not as it was.

        Also where it has no graph and gradients are asked for, as points observed do that are fantasies of a search.
        """
        kept = cast(Cache | None, self.prediction_strategy)
        if self.is_final and kept is not None:
            return kept
        asked = gpytorch_settings.detach_test_caches.off() or self.train_inputs[0].requires_grad
        with_graph = torch.is_grad_enabled() and asked
        is_current = kept is not None and is_same(self._source(), kept.source)
        if kept is not None and is_current and (kept.has_graph or not (with_graph and self._requires_grad())):
            return kept
        with torch.set_grad_enabled(with_graph):
            return self._keep().prediction_strategy

    def _keep(self, posterior: PredictionStrategy | Learned | None = None) -> Self:
        """Keep a posterior, or a fresh one, where GPyTorch clears it; raise ``NumericalError`` if it is not finite."""
        posterior = posterior or self._fitted()
        learned, strategy = (None, posterior) if isinstance(posterior, PredictionStrategy) else (posterior, None)
        strategy = strategy or PredictionStrategy.of(cast(Learned, learned), learns_residual=self.learns_residual)
        if not strategy.is_finite():
            raise NumericalError("The rewards add up to more than the dtype holds, or the kernel is not finite.")
        if self._pending is not None:
            with torch.no_grad():
                pending, noise = self._seen(self._pending), self.regularization.unsqueeze(-1)
                if getattr(self.likelihood, "time_column", None) is not None:
                    noise = self.likelihood.observation_noise(pending)
                strategy = strategy.with_pending(pending, noise)
        self.prediction_strategy = Cache(strategy, learned, torch.is_grad_enabled(), _copied(self._source()))
        return self

    def _fitted(self) -> PredictionStrategy | Learned:
        """Return the posterior of all observations, computed afresh."""
        observations, Z, kernel = self._observations(), self._dictionary(), self.covar_module
        if self._is_plain() and observations.are_shared and not (torch.is_grad_enabled() and self._requires_grad()):
            level = float(self.regularization.mean())  # to which noise variances are relative
            prior = Prior(in_double(kernel), (None,) * self.num_outputs, level if 0.0 < level < torch.inf else 1.0)
            kind = ExactPosterior if Z is None else DictionaryPosterior
            return at_dictionary(observations.told(kind.of(prior, observations.inputs.flatten(0, -2)[:0])), Z)
        if Z is None:
            return PredictionStrategy.exact(kernel, *observations)
        return PredictionStrategy.nystrom(kernel, Z, *observations, learns_residual=self.learns_residual)[0]

    def _is_plain(self) -> bool:
        """Say whether all outputs have one prior covariance, without a batch, on the CPU."""
        return self.train_targets.is_cpu and not self._is_batch() and not self.covar_module.batch_shape

    def _apply(self, fn: Callable[[Tensor], Tensor], *args: Any, **kwargs: Any) -> Self:
        if self._original_train_inputs is not None:
            self._original_train_inputs = fn(self._original_train_inputs)
        super()._apply(fn, *args, **kwargs)
        # BoTorch's analytic acquisition functions cast themselves and the model, mostly to what it is, at every call.
        # A graph may be walked backwards once only, so what carries one is for one call.
        kept = cast(Cache | None, self.prediction_strategy)
        if kept is not None and kept.has_graph:
            self.prediction_strategy = None
        return self


let_older_botorch_fit(FactoredGP)


class OnlineGP(FactoredGP):
    """A BoTorch model whose posterior is the exact one, kept up to date by ``tell`` and ``remove``.

    With u distinct points among n observations it costs what u observations cost: repeats are merged into counts and
    sums, and the posterior at the distinct points follows by changes of rank one.

    Source: Rasmussen and Williams, 2006, Alg. 2.1; Calandriello et al., ICML 2022, §3 (merging repeats).

    ``fit_gpytorch_mll`` maximises the exact likelihood of all observations, O(n³) an evaluation. Defaults are those of
    ``FactoredGP``.

    Args: those of ``NystromGP`` but for the dictionary's.

    Raises:
        InputError: on shapes, dtypes or values that do not fit, each named.
        NotPositiveDefiniteError: at the first use, if the kernel is not a covariance.

    Cost: O(u³ + n) once, then O(u²) a change and O(u²) a point of the posterior; memory O(u² + n).
    """

    @property
    def num_distinct(self) -> int:
        """Number u of distinct points among the observations; in a batch, where nothing is merged, that of all."""
        X = self.train_inputs[0]
        return self.num_observations if self._is_batch() else len(distinct(X if self.num_outputs == 1 else X[0])[0])

    def tell(self, X: Tensor, Y: Tensor, Yvar: Tensor | None = None) -> None:
        """Condition this model on more observations; see ``NystromGP.tell``.

        Cost: O(u²) for each distinct point of X but no more than O((u + k)³), and a copy of the n observations.
        """
        told = self._checked(X, Y, Yvar)
        self._become(self.eval()._told(*told))

    def _dictionary(self) -> None:
        return None

    def _choose_again(self) -> None:
        return None

    def _extend(self, conditioned: Self, inputs: Tensor, targets: Tensor, given: Tensor | None) -> None:
        """Condition the posterior on new observations, which are not merged with others."""
        strategy, with_graph = self._current().strategy, botorch_settings.propagate_grads.on() or inputs.requires_grad
        with torch.set_grad_enabled(torch.is_grad_enabled() and with_graph):
            variances = conditioned._noise(conditioned._points())[..., self.num_observations :]
            residuals = targets - prior_mean(self.mean_module, inputs)
            conditioned._keep(strategy.conditioned(inputs, residuals, variances))


def _copied(source: list[Any]) -> list[Any]:
    return [value.detach().clone() if isinstance(value, Tensor) else value for value in source]


def _flatten(X: Tensor, batch_dims: int) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Merge the t-batch dimensions of X (*t, *b, q, d) into its points, (*b, t q, d), and return how to undo it.

    Candidates come as b x 1 x d; broadcasting over that layout would repeat the posterior for every candidate.
    """
    dims = max(X.dim() - 2 - batch_dims, 0)
    front, sizes = tuple(range(dims)), (*X.shape[:dims], X.shape[-2])

    def unflatten(values: Tensor) -> Tensor:
        return values.unflatten(-1, sizes).movedim(tuple(range(-1 - dims, -1)), front)

    return X.movedim(front, tuple(range(-2 - dims, -2))).flatten(-2 - dims, -2), unflatten
