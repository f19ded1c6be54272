"""Models that change in place: what is common to telling them observations and making them forget."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.likelihoods import UncertaintyInjectionLikelihood
from torch_kbandits.models.arguments import checked_variances
from torch_kbandits.models.base import FactoredGP
from torch_kbandits.numerics.gram import prior_mean


@dataclass(frozen=True, eq=False)
class Observations:
    """Observations as the posterior takes them, with outputs as batch dimension.

    Attributes:
        inputs: points as the kernel sees them, (k, d) or (o, k, d).
        residuals: rewards less the prior mean, (k,) or (o, k).
        variances: noise variances, shape of ``residuals``.
    """

    inputs: Tensor
    residuals: Tensor
    variances: Tensor

    def rows(self, rows: Tensor) -> "Observations":
        """Return some of them, by row numbers or a mask."""
        return Observations(self.inputs[..., rows, :], self.residuals[..., rows], self.variances[..., rows])


@dataclass(frozen=True, eq=False)
class Change:
    """The posterior that a change of the observations leads to.

    Attributes:
        factors: of the posterior.
        basis: the points that they stand on.
        changes: how often the factors were changed since they were computed afresh.
        also: other attributes of the model, with what they become.
    """

    factors: Any
    basis: Tensor
    changes: int
    also: Mapping[str, Any] = field(default_factory=dict)


class ToldGP(FactoredGP):
    """A model whose posterior follows ``tell`` and ``remove`` by changes of its factors.

    A subclass says what becomes of the factors: in ``_without``, and in what it hands to ``_tell``. Checks come first,
    then the change is computed, and then the model takes it over; so an error leaves the model as it was.
    """

    #: Changes of the factors after which they are computed afresh, so that rounding cannot build up.
    REFRESH = 500

    _changes = 0

    @abstractmethod
    def _without(self, rows: Tensor, kept: Tensor, before: Observations) -> Change:
        """Return what comes of forgetting rows (k,) of the observations before, of which a mask (n,) is kept."""

    # ---------------------------------------------------------------- the order of a change

    def _tell(self, X: Any, Y: Any, Yvar: Any, after: Callable[[Tensor, Observations], Change]) -> None:
        """Condition this model on observations, by what ``after`` says comes of the points, as told, and of these."""
        self._require_no_batch()
        self._require_own_times()
        X, Y, Yvar = self._checked(X, Y, Yvar)
        self.eval()
        with torch.no_grad():
            targets, noise = self._as_targets(X, Y, Yvar)
            new, noise = self._observed(X, targets, noise)
            change = after(X, new)
            everything = torch.cat([self._original_inputs(), X])
            self._commit(change, (everything, torch.cat([self.train_targets, targets], dim=-1), noise))

    def _remove(self, rows: Tensor | list[int]) -> None:
        """Forget rows of the observations."""
        self._require_no_batch()
        self._require_own_times()
        n = self.num_observations
        rows = _rows(rows, n).to(self.train_targets.device)
        self.eval()
        with torch.no_grad():
            kept = torch.ones(n, dtype=torch.bool, device=rows.device)
            kept[rows] = False
            change = self._without(rows, kept, self._observations())
            own = self._own_noise()
            noise = None if own is None else own[..., kept]
            self._commit(change, (self._original_inputs()[kept], self.train_targets[..., kept], noise))

    def _commit(self, change: Change, data: tuple[Tensor, Tensor, Tensor | None] | None = None) -> None:
        """Take over a change; everything or, if interrupted, nothing.

        Args:
            change: what becomes of the posterior.
            data: the observations that it is of, if they are others: points (n, d), targets (..., n) and the noise
                variances that they have of their own, if any.
        """
        before, buffers, modules = dict(vars(self)), dict(self._buffers), dict(self._modules)
        own = self._own_noise()
        try:
            if data is not None:
                self._replace_data(*data)
            self._changes = change.changes
            for name, value in change.also.items():
                setattr(self, name, value)
            self.prediction_strategy = None
            self._keep(change.factors, change.basis)
        except BaseException:
            vars(self).update(before)
            self._buffers.update(buffers)
            self._modules.update(modules)
            self._hold_noise(own)
            raise

    def _replace_data(self, X: Tensor, targets: Tensor, own: Tensor | None) -> None:
        """Take over observations X (n, d), whatever becomes of the factors."""
        stacked = X if self.num_outputs == 1 else X.expand(self.num_outputs, *X.shape)
        inputs = self._preprocess(stacked)
        if getattr(self, "_has_transformed_inputs", False):
            self._original_train_inputs = stacked
        self.set_train_data(inputs, targets, strict=False)
        self._hold_noise(own)

    # ---------------------------------------------------------------- the state

    def _state(self) -> tuple[Any, Tensor]:
        """Return factors and basis, without gradients and computed afresh if they were changed often."""
        kept = self._kept()
        if kept is not None and (kept.has_graph or self._changes >= self.REFRESH):
            self.prediction_strategy = None
        kept = self._current()
        return kept.factors, kept.basis

    def _observations(self) -> Observations:
        """Return all observations."""
        self._transform_again()
        (train_X,) = self.train_inputs
        residuals = self.train_targets - prior_mean(self.mean_module, train_X)
        return Observations(train_X, residuals, self._noise(train_X).expand(residuals.shape))

    def _observed(self, X: Tensor, targets: Tensor, noise: Tensor | None) -> tuple[Observations, Tensor | None]:
        """Return new observations, and the variances that all have of their own from then on, if any."""
        inputs, own = self._preprocess(X), self._joined_noise(len(X), noise)
        variances = self._fresh_noise(inputs)
        if own is not None:
            new = own[..., self.num_observations :] + getattr(self.likelihood, "second_noise", 0.0)
            variances = torch.where(new.isnan(), variances, new)
        residuals = targets - prior_mean(self.mean_module, inputs)
        return Observations(inputs, residuals, variances.expand(targets.shape)), own

    def _as_targets(self, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return rewards and variances transformed and with outputs as batch dimension: (k,) or (o, k)."""
        transform = getattr(self, "outcome_transform", None)
        if transform is not None:
            Y, Yvar = transform(Y, Yvar, X=X)
        if self.num_outputs == 1:
            return Y.squeeze(-1), None if Yvar is None else Yvar.squeeze(-1)
        return Y.mT, None if Yvar is None else Yvar.mT

    def _original_inputs(self) -> Tensor:
        """Return the observed points as they were told, (n, d)."""
        inputs = self._given_inputs()
        return inputs if inputs.dim() == 2 else inputs[0]

    def _is_batch(self) -> bool:
        """Say whether there are batch dimensions besides that of the outputs."""
        outputs = int(self.num_outputs > 1)
        return self.train_inputs[0].dim() > 2 + outputs or self.train_targets.dim() > 1 + outputs

    # ---------------------------------------------------------------- checks

    def _require_no_batch(self) -> None:
        if self._is_batch():
            raise InputError(
                "Only models without batch dimensions change in place; the targets of this one have "
                f"shape {tuple(self.train_targets.shape)}. Use condition_on_observations."
            )

    def _require_own_times(self) -> None:
        if isinstance(self.likelihood, UncertaintyInjectionLikelihood) and self.likelihood.time_column is None:
            raise InputError(
                "tell and remove need the time of each observation among its inputs: make the likelihood with "
                "time_column instead of times."
            )

    def _checked(self, X: Any, Y: Any, Yvar: Any) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return observations as tensors, or refuse them if shapes, dtypes or values do not fit."""
        train_X = self._original_inputs()
        X = checks.points("X", X, dimension=train_X.shape[-1], like=train_X)
        Y = checks.finite("Y", checks.rows("Y", Y, like=train_X))
        if X.dim() != 2 or tuple(Y.shape) != (len(X), self.num_outputs):
            raise InputError(
                f"X must be (k, d) and Y (k, {self.num_outputs}); got {checks.describe(X)} and {checks.describe(Y)}."
            )
        return X, Y, None if Yvar is None else checked_variances("Yvar", Yvar, "Y", Y)


def _rows(rows: Tensor | list[int], n: int) -> Tensor:
    """Return distinct row numbers below n as a tensor (k,)."""
    numbers = torch.tensor(checks.whole_numbers("rows", rows), dtype=torch.long)
    if len(numbers) != len(numbers.unique()) or bool(((numbers < 0) | (numbers >= n)).any()):
        raise InputError(f"rows must be distinct rows of the {n} observations, got {numbers.tolist()}.")
    return numbers
