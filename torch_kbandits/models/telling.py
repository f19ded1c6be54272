"""Models that change in place: what is common to telling them observations and making them forget."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.likelihoods import UncertaintyInjectionLikelihood
from torch_kbandits.models.base import FactoredGP, Learned, Observations
from torch_kbandits.models.inputs import checked_rows, checked_variances
from torch_kbandits.numerics.gram import prior_mean


class ToldGP(FactoredGP):
    """A model whose posterior follows ``tell`` and ``remove`` by changes of rank one; an error leaves it as it was.

    With several outputs, and on a device, the posterior is computed afresh instead.
    """

    def _tell(self, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> None:
        """Condition this model on observations, which were checked."""
        with self._changing():
            targets, noise = self._as_targets(X, Y, Yvar)
            new, own = self._observed(X, targets, noise)
            learned, everything = self._known(), torch.cat([self._original_inputs(), X])
            learned = None if learned is None else learned.followed(new)
            self._replace_data(everything, torch.cat([self.train_targets, targets], dim=-1), own)
            self._keep_learned(learned)

    def remove(self, rows: Tensor | list[int]) -> None:
        """Forget observations of this model, whose dictionary stays; after an error it is as it was.

        Args:
            rows: which, as rows of ``train_X`` in the order told, each once.

        Raises:
            InputError: if a row is no observation, or the model has batch dimensions.

        Cost: O(m²) for each, m basis points, and O(n); as a fresh fit if there are many, and once in some hundred
        changes, to clear rounding. With several outputs, and on a device, as a fresh fit.
        """
        self._require_no_batch()
        self._require_own_times()
        rows = checked_rows(rows, self.num_observations).to(self.train_targets.device)
        with self._changing():
            kept = torch.ones(self.num_observations, dtype=torch.bool, device=rows.device)
            kept[rows] = False
            learned, own = self._known(), self._own_noise()
            if learned is not None:
                learned = learned.without(self._observations().rows(rows), kept)
            noise = None if own is None else own[..., kept]
            self._replace_data(self._original_inputs()[kept], self.train_targets[..., kept], noise)
            self._keep_learned(learned)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Change everything or, if interrupted, nothing."""
        self.eval()
        before, buffers, modules = dict(vars(self)), dict(self._buffers), dict(self._modules)
        own = self._own_noise()
        try:
            with torch.no_grad():
                yield
        except BaseException:
            vars(self).update(before)
            self._buffers.update(buffers)
            self._modules.update(modules)
            self._hold_noise(own)
            raise

    def _known(self) -> Learned | None:
        """Return what was learned of the observations there are; None where all is computed afresh."""
        kept = self._current() if self._is_plain() else None
        return None if kept is None else kept.learned or self._fitted()[1]

    def _keep_learned(self, learned: Learned | None) -> None:
        """Take over what was learned; None: all afresh."""
        self.prediction_strategy = None
        self._keep(*(self._fitted() if learned is None else (self._of(learned), learned)))

    def _replace_data(self, X: Tensor, targets: Tensor, own: Tensor | None) -> None:
        """Take over observations X (n, d), with the noise variances that they have of their own, if any."""
        stacked = X if self.num_outputs == 1 else X.expand(self.num_outputs, *X.shape)
        inputs = self._preprocess(stacked)
        if getattr(self, "_has_transformed_inputs", False):
            self._original_train_inputs = stacked
        self.set_train_data(inputs, targets, strict=False)
        self._hold_noise(own)

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
        """Return observations to be told as tensors, or refuse them if shapes, dtypes or values do not fit."""
        self._require_no_batch()
        self._require_own_times()
        train_X = self._original_inputs()
        X = checks.points("X", X, dimension=train_X.shape[-1], like=train_X)
        Y = checks.finite("Y", checks.rows("Y", Y, like=train_X))
        if X.dim() != 2 or tuple(Y.shape) != (len(X), self.num_outputs):
            raise InputError(
                f"X must be (k, d) and Y (k, {self.num_outputs}); got {checks.describe(X)} and {checks.describe(Y)}."
            )
        return X, Y, None if Yvar is None else checked_variances("Yvar", Yvar, "Y", Y)
