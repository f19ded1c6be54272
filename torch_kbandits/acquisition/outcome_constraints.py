"""Constraints on the outcomes of a model, kept by bounds of its posterior while an acquisition function is climbed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Self, cast

import torch
from botorch.acquisition.objective import PosteriorTransform, ScalarizedPosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models import ModelListGP
from botorch.models.gpytorch import BatchedMultiOutputGPyTorchModel
from botorch.models.model import Model
from botorch.posteriors import GPyTorchPosterior
from gpytorch.distributions import MultitaskMultivariateNormal
from gpytorch.settings import prior_mode
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition.pending import observed_inputs
from torch_kbandits.confidence import Width
from torch_kbandits.confidence.base import Mode, multiplier
from torch_kbandits.errors import InputError
from torch_kbandits.models.normal import deviation_of, posterior_variance

#: The most outputs of a model: a constraint is evaluated at 2ᵐ corners.
MOST_OUTPUTS = 8

#: Within this share of a prior deviation of a limit the barrier begins.
_NEAR = 0.1

#: The barrier is this share of a prior deviation of what is maximised, for each factor e that the limit is nearer.
_STEEPNESS = 3e-3

#: What is beyond a limit scores so many prior deviations below all that was seen.
_BELOW = 3.0


@dataclass(frozen=True, eq=False)
class OutcomeConstraints:
    """Callables on the outcomes of a model, negative where they are kept, as BoTorch has them.

    What is compared with the limit is a callable's largest value over all outcomes μ_j ± β_j σ_j of a point ("safe"),
    or its least ("optimistic"). That is exact for callables that are linear, or monotone, in each outcome: they take
    both at corners.

    Attributes:
        callables: each takes outcomes (..., q, m) to (..., q), as those of BoTorch's Monte-Carlo acquisition functions.
        is_safe: whether the worse bound is to be within the limit, or the better.
        beta: the multiplier of the deviation of each outcome, (m,).
    """

    callables: Sequence[Callable[[Tensor], Tensor]]
    is_safe: bool
    beta: Tensor

    @classmethod
    def of(
        cls, model: Model, constraints: Sequence[Callable[[Tensor], Tensor]], mode: Mode, beta: float | Width
    ) -> Self:
        """Return the constraints on the outcomes of a model, or refuse them."""
        for each in constraints:
            if not callable(each):
                raise InputError(
                    "constraints must be callables on outcomes (..., q, m), negative where they are kept, such as "
                    f"lambda Z: Z[..., 1] - 80.0; got {checks.describe(each)}."
                )
        if model.num_outputs > MOST_OUTPUTS:
            raise UnsupportedError(
                f"Constraints are evaluated at all corners of the outcomes, and there are {model.num_outputs} outputs, "
                f"more than {MOST_OUTPUTS}: see model.subset_output."
            )
        parts = list(model.models) if isinstance(model, ModelListGP) else [model]
        each = [multiplier(beta, part).expand(cast(Model, part).num_outputs) for part in parts]
        return cls(tuple(constraints), mode == "safe", torch.cat(each))

    def excess(self, posterior: Any) -> Tensor:
        """Return by how much single points (..., 1, d) are beyond the limits, (..., k), in the mode; <= 0 is within."""
        worst, least = self._range(posterior, self.beta)
        return worst if self.is_safe else least

    def scales(self, prior: Any) -> Tensor:
        """Return the prior deviations of what the callables bound, (k,): the largest at single points (..., 1, d)."""
        worst, least = self._range(prior, torch.ones_like(self.beta))
        return _or_one((worst - least).flatten(0, -2).amax(0) / 2.0)

    def _range(self, posterior: Any, beta: Tensor) -> tuple[Tensor, Tensor]:
        """Return the largest and the least value of the callables within so many deviations, both (..., k)."""
        mean, width = posterior.mean.squeeze(-2), deviation_of(posterior_variance(posterior).squeeze(-2))
        signs = mean.new_tensor(list(product((-1.0, 1.0), repeat=mean.shape[-1])))
        signs = signs.reshape(len(signs), *[1] * (mean.dim() - 1), -1)
        corners = (mean + signs * beta.to(mean) * width).unsqueeze(-2)  # (2^m, ..., q = 1, m)
        values = []
        for each in self.callables:
            found = each(corners)
            if found.shape != corners.shape[:-1]:
                raise InputError(
                    f"A constraint must take outcomes of shape (..., q, m) to (..., q): of {tuple(corners.shape)} it "
                    f"made {tuple(found.shape)}."
                )
            values.append(found.squeeze(-1))
        every = torch.stack(values, -1)
        return every.amax(0), every.amin(0)


@dataclass(frozen=True, eq=False)
class Barrier:
    """What keeps a search within constraints, in units of the model's prior, so that it needs no numbers of the user.

    Attributes:
        unit: the largest prior deviation of what is maximised at a point observed, 0-dim.
        floor: a value that nothing within the limits is expected to score below, 0-dim.
        scales: prior deviations of what the constraints bound, (k,).
    """

    unit: Tensor
    floor: Tensor
    scales: Tensor

    @classmethod
    def of(
        cls, model: Model, constraints: OutcomeConstraints, score: Callable[[Any, Tensor], tuple[Tensor, Tensor]]
    ) -> Self:
        """Return that of a model; a score takes a posterior and its points to moments of what is maximised."""
        given = [X[(0,) * (X.dim() - 2)] for X, _ in observed_inputs(model)]
        if not given:
            raise UnsupportedError(
                f"Constraints need a model that has the points it was told, got {type(model).__name__}."
            )
        X = torch.cat(given).unique(dim=0)
        X = X if len(X) else X.new_full((1, X.shape[-1]), 0.5)
        X = X.reshape(len(X), *[1] * len(model.batch_shape), 1, X.shape[-1])
        with torch.no_grad():
            mean, _ = score(model.posterior(X), X)
            prior = _prior(model, X)
            prior_mean, prior_variance = score(prior, X)
            unit = _or_one(prior_variance.clamp_min(0.0).sqrt().max())
            floor = torch.minimum(mean.min(), prior_mean.min()) - _BELOW * unit
            return cls(unit, floor, constraints.scales(prior))

    def within(self, bound: Tensor, excess: Tensor) -> Tensor:
        """Return a bound (...,) where the excess (..., k) keeps the constraints, and what leads there elsewhere.

        Beyond a limit the value is below the floor, and falls with the excess. Near a limit a logarithmic barrier is
        added, without which a search by gradients would end wherever it meets the limit. It is 0 where all limits are
        kept by a tenth of a prior deviation; the maximiser loses about 0.003 prior deviations for each limit it is at.
        """
        share = excess / self.scales.to(excess)
        near = (-share / _NEAR).clamp(torch.finfo(share.dtype).eps, 1.0)
        inside = bound + _STEEPNESS * self.unit.to(bound) * near.log().sum(-1)
        outside = self.floor.to(bound) - self.unit.to(bound) * share.clamp_min(0.0).sum(-1)
        return torch.where((excess <= 0.0).all(-1), inside, outside)


def scored_part(model: Model, transform: PosteriorTransform | None) -> Model:
    """Return the model of the one output that a transform picks from a list of models; else the model itself."""
    if isinstance(model, ModelListGP) and isinstance(transform, ScalarizedPosteriorTransform):
        weighed = cast(Tensor, transform.weights).nonzero().flatten().tolist()
        if len(weighed) == 1 and len(model.models) == model.num_outputs:
            return cast(Model, model.models[weighed[0]])
    return model


def _prior(model: Model, X: Tensor) -> Any:
    """Return the posterior at points (n, ..., 1, d) if nothing had been observed."""
    with prior_mode():
        if not isinstance(model, BatchedMultiOutputGPyTorchModel) or model.num_outputs == 1:
            return model.posterior(X)
        # GPyTorch's prior forgets that there are several outputs where kernel and mean are common to all.
        shape = [*X.shape[:-2], model.num_outputs, *X.shape[-2:]]
        prior = cast(Any, model)(model.transform_inputs(X).unsqueeze(-3).expand(shape))
        posterior = GPyTorchPosterior(MultitaskMultivariateNormal.from_batch_mvn(prior))
        transform = getattr(model, "outcome_transform", None)
        return posterior if transform is None else transform.untransform_posterior(posterior, X=X)


def _or_one(scale: Tensor) -> Tensor:
    return torch.where(scale > 0.0, scale, 1.0)
