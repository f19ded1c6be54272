"""The observations of a model and their noise, under BoTorch's contract, and what its posterior follows from."""

from copy import deepcopy
from typing import Any, NamedTuple, Self, cast

import numpy as np
import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.utils.types import DEFAULT, _DefaultType
from gpytorch.constraints import Positive
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.likelihoods.gaussian_likelihood import _GaussianLikelihoodBase
from gpytorch.likelihoods.noise_models import FixedGaussianNoise
from gpytorch.means import Mean, ZeroMean
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.likelihoods import GivenNoiseLikelihood, UncertaintyInjectionLikelihood
from torch_kbandits.numerics.gram import prior_mean
from torch_kbandits.numerics.shallow import changed
from torch_kbandits.posteriors.dictionary_posterior import DictionaryPosterior
from torch_kbandits.posteriors.exact_posterior import ExactPosterior
from torch_kbandits.posteriors.prediction import joined

Learned = ExactPosterior | DictionaryPosterior

#: Of more points than this those that no observation is left of are dropped, once they are three in four.
_MANY = 64


class Observations(NamedTuple):
    """Points as the kernel sees them (..., n, d); rewards less the prior mean, and noise variances, (..., n)."""

    inputs: Tensor
    residuals: Tensor
    variances: Tensor

    @property
    def are_shared(self) -> bool:
        """Whether all outputs have the same noise, so that one posterior has them as its columns."""
        return self.variances.dim() == 1 or bool((self.variances == self.variances[..., :1, :]).all())

    def told(self, posterior: Learned, sign: float = 1.0) -> Learned:
        """Return a posterior with these observations; with a sign of −1 without them, which it was told."""
        X, residuals, variances = (part.detach() for part in self)
        posterior, places = posterior.knowing(X if X.dim() == 2 else X[0])
        if len(places):
            residuals, variances = (part.double().reshape(-1, len(places)).numpy() for part in (residuals, variances))
            with np.errstate(all="ignore"):  # the posterior looks whether it is finite
                posterior = posterior.learned(places, sign * posterior.prior.noise / variances[0], residuals)
        known = len(posterior.told)
        is_mostly_forgotten = known > _MANY and 4 * np.count_nonzero(posterior.told.counts) < known
        return posterior.without_forgotten()[0] if sign < 0.0 and is_mostly_forgotten else posterior


def at_dictionary(posterior: Learned, dictionary: Tensor | None) -> Learned:
    """Return a posterior at a dictionary (..., m, d); None for the exact one."""
    if dictionary is None:
        return posterior
    posterior, places = posterior.knowing(dictionary.detach() if dictionary.dim() == 2 else dictionary.detach()[0])
    with np.errstate(all="ignore"):  # the posterior looks whether it is finite
        return cast(DictionaryPosterior, posterior).at_dictionary(np.unique(places))


class ObservedGP(SingleTaskGP):
    """BoTorch's model of observations that may have noise of their own, with what its posterior follows from."""

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
        outcome_transform: OutcomeTransform | _DefaultType | None = DEFAULT,
        input_transform: InputTransform | None = None,
    ) -> None:
        checks.absent_or("likelihood", likelihood, _GaussianLikelihoodBase, "a Gaussian likelihood of GPyTorch")
        checks.absent_or("covar_module", covar_module, Kernel, "a GPyTorch kernel")
        checks.absent_or("mean_module", mean_module, Mean, "a GPyTorch mean")
        if outcome_transform is not DEFAULT:
            checks.absent_or("outcome_transform", outcome_transform, OutcomeTransform, "a BoTorch outcome transform")
        checks.absent_or("input_transform", input_transform, InputTransform, "a BoTorch input transform")
        for name, other in (("a regularization", regularization), ("train_Yvar", train_Yvar)):
            if likelihood is not None and other is not None:
                raise InputError(f"Give either a likelihood or {name}, not both: each sets the noise variance.")
        train_X = checks.points("train_X", train_X)
        train_Y = checks.finite("train_Y", checks.rows("train_Y", train_Y, like=train_X))
        if train_Y.shape[:-1] != train_X.shape[:-1]:
            shape = f"shape {(*train_X.shape[:-1], 1)} for one output"
            raise InputError(f"train_Y must have the rows of train_X, {shape}; got {checks.describe(train_Y)}.")
        if train_Yvar is not None:
            train_Yvar = checked_variances("train_Yvar", train_Yvar, "train_Y", train_Y)
        is_in_units = regularization is not None or likelihood is not None  # of the rewards
        if outcome_transform is DEFAULT and (is_in_units or train_Y.shape[-2] == 0):
            outcome_transform = None
        if regularization is not None:
            regularization = checks.positive("regularization", regularization)
            if train_Yvar is None:
                _, batch_shape = SingleTaskGP.get_batch_dimensions(train_X, train_Y)
                likelihood = GaussianLikelihood(noise_constraint=Positive(), batch_shape=batch_shape).to(train_X)
                likelihood.noise = train_X.new_tensor(regularization)
                likelihood.requires_grad_(False)
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

    _pending: Tensor | None
    covar_module: Kernel
    likelihood: Any
    mean_module: Mean
    prediction_strategy: Any
    train_inputs: tuple[Tensor]

    #: Whether what the dictionary does not span of a variance counts as observed like the rest; see ``residual_share``.
    learns_residual: bool = False

    @property
    def num_observations(self) -> int:
        """Number n of observations conditioned on."""
        return self.train_targets.shape[-1]

    @property
    def regularization(self) -> Tensor:
        """λ (...,), in (transformed) reward units squared: the noise variance, its mean where observations differ."""
        if self._later_noise is not None:
            return self.train_targets.new_tensor(self._later_noise)
        return self.likelihood.noise.detach().mean(-1)

    def subset_output(self, idcs: list[int]) -> Self:
        """Return the model of some outputs; BoTorch leaves it the points, as they were given, of all outputs."""
        subset = cast(Self, super().subset_output(idcs))
        if subset._has_transformed_inputs and self.num_outputs > 1:
            points = cast(Tensor, subset._original_train_inputs)[..., 0, :, :]  # of all outputs alike
            subset._original_train_inputs = points if len(idcs) == 1 else points.expand(len(idcs), *points.shape)
        return subset

    def _points(self) -> Tensor:
        """Return the observed points (..., n, d) as the kernel sees them now, once where a batch shares them."""
        given = self._original_train_inputs  # of model lists, which GPyTorch conditions, they may not be all
        if self._has_transformed_inputs and given is not None and given.shape[-2] == self.num_observations:
            with torch.no_grad():
                inputs = self._preprocess(given)
            if not is_same(inputs.expand_as(self.train_inputs[0]), self.train_inputs[0]):
                self.set_train_data(inputs, strict=False)
        X = self.train_inputs[0]
        while X.dim() > (2 if self._num_outputs == 1 else 3) and X.stride(0) == 0:
            X = X[0]
        return X

    def _given_inputs(self) -> Tensor:
        """Return the observed points as they were given, (n, d); of a batch those of its first member."""
        transformed = getattr(self, "_has_transformed_inputs", False)
        X = cast(Tensor, self._original_train_inputs if transformed else self.train_inputs[0])
        return X.flatten(0, -3)[0] if X.dim() > 2 else X

    def _preprocess(self, X: Tensor) -> Tensor:
        """Transform points as the played points are; unlike ``transform_inputs`` it never learns bounds from them."""
        transform = getattr(self, "input_transform", None)
        return X if transform is None else transform.preprocess_transform(X)

    def _seen(self, points: Tensor) -> Tensor:
        """Return points (..., k, d) as the kernel sees them: transformed, with the batch dimension of the outputs."""
        points = self._preprocess(points)
        return points.unsqueeze(-3) if self._num_outputs > 1 else points

    def _observations(self, rows: slice | list[int] = slice(None)) -> Observations:
        """Return observations, all but for some rows."""
        X = self._points()
        residuals = self.train_targets - prior_mean(self.mean_module, X)
        variances = self._noise(X).expand(residuals.shape)
        return Observations(X[..., rows, :], residuals[..., rows], variances[..., rows])

    def _noise(self, X: Tensor) -> Tensor:
        """Return the noise variances λ_s of the observations, which are at X (..., n, d), (..., n)."""
        if isinstance(self.likelihood, (UncertaintyInjectionLikelihood, GivenNoiseLikelihood)):
            return self.likelihood.observation_noise(X)
        return self.likelihood._shaped_noise_covar(X.shape[:-1], X).diagonal(dim1=-1, dim2=-2)

    def _own_noise(self) -> Tensor | None:
        """Return the variances (..., n) that observations have of their own, NaN for one without; None if none has."""
        covar = self.likelihood.noise_covar
        return covar.noise if isinstance(covar, FixedGaussianNoise) else getattr(self.likelihood, "given", None)

    def _with_noise(self, own: Tensor | None) -> Any:
        """Return the likelihood, or another of the same parameters for variances (..., n) of observations' own."""
        known = self._own_noise()
        if own is None:
            return self.likelihood
        if known is None:
            return GivenNoiseLikelihood(self.likelihood.noise_covar, own)
        return deepcopy(self.likelihood, {id(known): own} | {id(each): each for each in self.parameters()})

    def _joined_noise(self, k: int, noise: Tensor | None) -> Tensor | None:
        """Return the variances (..., n + k) that observations have of their own once k more came with ``noise``."""
        own, likelihood = self._own_noise(), self.likelihood
        if noise is None and own is None:
            return None
        if noise is not None:
            if own is None and not isinstance(likelihood, GaussianLikelihood):
                name = type(likelihood).__name__
                raise InputError(f"A {name} says itself what the noise is: leave noise and Yvar out.")
            new = FixedGaussianNoise(noise).noise  # rounded up and warned of as in the constructor
        elif isinstance(likelihood, FixedNoiseGaussianLikelihood):
            new = self.regularization.unsqueeze(-1) - getattr(likelihood, "second_noise", 0.0)
            if not bool(torch.isfinite(new).all()):
                raise InputError("No noise is known: give it, or make the model with a regularization.")
            new = new.expand(*new.shape[:-1], k)
        else:
            new = self.train_targets.new_full((k,), torch.nan)
        return joined(torch.full_like(self.train_targets, torch.nan) if own is None else own, new, -1)

    def _with_data(self, X: Tensor, targets: Tensor, own: Tensor | None) -> Self:
        """Return a model that shares all but its observations, at X (n, d), and noise (..., n) of their own, if any."""
        other = self._shared()
        stacked = X if self.num_outputs == 1 else X.expand(self.num_outputs, *X.shape)
        if getattr(self, "_has_transformed_inputs", False):
            other._original_train_inputs = stacked
        other.set_train_data(self._preprocess(stacked), targets, strict=False)
        other.likelihood = self._with_noise(own)
        return other

    def _shared(self) -> Self:
        """Return a model that shares all, of which parts can be replaced."""
        return changed(self, _buffers=dict(self._buffers), _modules=dict(self._modules), prediction_strategy=None)

    def _source(self) -> list[Any]:
        """Return what the posterior follows from: data, and types, tensors and numbers of modules."""
        found = [*self.train_inputs, self.learns_residual]
        for module in self.modules():
            values = [*module._parameters.values(), *module._buffers.values(), *vars(module).values()]
            found.append(type(module))
            found += [each for each in values if isinstance(each, Tensor) or type(each) in (int, float)]
        return found

    def _requires_grad(self) -> bool:
        """Say whether anything that the posterior follows from asks for a gradient."""
        return any(isinstance(value, Tensor) and value.requires_grad for value in self._source())

    def _is_batch(self) -> bool:
        """Say whether there are batch dimensions besides that of the outputs."""
        outputs, parts = int(self.num_outputs > 1), [self.train_inputs[0], self.train_targets.unsqueeze(-1)]
        dictionary = self._buffers.get("inducing_points")
        return any(part.dim() > 2 + outputs for part in parts) or (dictionary is not None and dictionary.dim() > 2)

    def _require_change(self) -> None:
        """Refuse to change a model in place that cannot."""
        if self._is_batch():
            raise InputError("Only models without batch dimensions change in place. Use condition_on_observations.")

    def _check_time_column(self, train_X: Tensor) -> None:
        """Refuse an input transform that changes the times from which a likelihood takes ages."""
        column = getattr(self.likelihood, "time_column", None)
        if column is None or getattr(self, "input_transform", None) is None:
            return
        if not torch.equal(self._preprocess(train_X)[..., column], train_X[..., column]):
            raise InputError(f"The input transform changes column {column}, the time: leave it out, by indices=...")

    def _checked(self, X: Any, Y: Any, Yvar: Any) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return points (k, d), targets and noise variances as the model takes them, (k,) or (o, k); or refuse them."""
        self._require_change()
        train_X, transform = self._given_inputs(), getattr(self, "outcome_transform", None)
        X = checks.points("X", X, dimension=train_X.shape[-1], like=train_X)
        Y = checks.finite("Y", checks.rows("Y", Y, like=train_X))
        if X.dim() != 2 or tuple(Y.shape) != (len(X), self.num_outputs):
            got = f"{checks.describe(X)} and {checks.describe(Y)}"
            raise InputError(f"X must be (k, d) and Y (k, {self.num_outputs}); got {got}.")
        Yvar = None if Yvar is None else checked_variances("Yvar", Yvar, "Y", Y)
        with torch.no_grad():
            Y, Yvar = (Y, Yvar) if transform is None else transform.eval()(Y, Yvar, X=X)
        _, targets, variances = self._transform_tensor_args(X, Y, Yvar)
        return X, targets, variances


def checked_variances(name: str, variances: Any, of: str, rewards: Tensor) -> Tensor:
    """Return noise variances of rewards, called ``of``, as a tensor, or refuse them."""
    variances = checks.finite(name, checks.same_kind(name, checks.floating_tensor(name, variances, rewards), rewards))
    if variances.shape != rewards.shape:
        shape = tuple(rewards.shape)
        raise InputError(f"{name} must have the shape of {of}, {shape}; got {checks.describe(variances)}.")
    if bool((variances < 0).any()):
        raise InputError(f"{name} must not be negative, its least entry is {float(variances.min())}.")
    return variances


def is_same(left: Any, right: Any) -> bool:
    """Say whether two values are the same, tensors in kind and entries; NaN, for what is not known, is itself."""
    if isinstance(left, list):
        return len(left) == len(right) and all(map(is_same, left, right))
    if not (isinstance(left, Tensor) and isinstance(right, Tensor)):
        return type(left) is type(right) and left == right
    is_alike = left.dtype == right.dtype and left.device == right.device and left.shape == right.shape
    equal = is_alike and torch.equal(left, right)
    return equal or (is_alike and bool(torch.isclose(left, right, rtol=0.0, atol=0.0, equal_nan=True).all()))
