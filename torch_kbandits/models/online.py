"""The exact posterior as a BoTorch model."""

from dataclasses import replace
from typing import Any, Self, cast

import torch
from botorch import settings as botorch_settings
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from gpytorch.kernels import Kernel
from gpytorch.likelihoods.gaussian_likelihood import _GaussianLikelihoodBase
from gpytorch.means import Mean
from torch import Tensor

from torch_kbandits.models.merged import Merged, sums
from torch_kbandits.models.shapes import concatenate
from torch_kbandits.models.telling import Change, Observations, ToldGP
from torch_kbandits.numerics.gram import border, gram, prior_mean, prior_variance
from torch_kbandits.numerics.rows import distinct, distinct_in_order
from torch_kbandits.posteriors.exact import ExactFactors


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
        self._merged: Merged | None = None

    @property
    def num_distinct(self) -> int:
        """Number u of distinct points among the observations: what the posterior's cost depends on.

        With batch dimensions nothing is merged, and every observation counts.
        """
        kept = self._kept()
        if self._merged is not None and kept is not None:
            return kept.basis.shape[-2]
        if self._is_batch():
            return self.num_observations
        (train_X,) = self.train_inputs
        return len(distinct(train_X if self.num_outputs == 1 else train_X[0])[0])

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
        self._tell(X, Y, Yvar, lambda _, new: self._with(new))

    def remove(self, rows: Tensor | list[int]) -> None:
        """Forget observations of this model; after an error it is as it was.

        Args:
            rows: which, as rows of ``train_X`` in the order told, each once.

        Raises:
            InputError: if a row is no observation, or the model has batch dimensions.

        Cost: O(u²) for each but no more than O(u³), and O(n).
        """
        self._remove(rows)

    # ---------------------------------------------------------------- what it knows of itself

    def effective_dimension(self) -> Tensor:
        """Return Σ_s τ(x_s) = Tr K(K + Σ)⁻¹, (...,).

        Cost: O(u³) when first asked for. From then on ``tell`` and ``remove`` carry it along, at O(u²) a change, until
        the factor is computed afresh; then it is nothing. In single precision O(n u²) at every call, since what is
        carried would lose digits.
        """
        if self.train_targets.dtype != torch.float64:
            return self.leverage_scores().sum(-1)
        with torch.no_grad():
            self.eval()
            kept = self._current()
            self.prediction_strategy = kept = replace(kept, factors=kept.factors.with_noise_share())
            return kept.factors.effective_dimension()

    def projection_error(self) -> Tensor:
        """Return 0, (...,): the posterior is exact."""
        return torch.zeros_like(self.information_gain())

    def kernel_bound(self) -> Tensor:
        """Return the largest prior variance k(x, x) over the observations, 0-dim; 0 if there are none.

        Cost: O(n) when first asked for, then nothing until observations are removed or the factor is computed afresh.
        """
        self.eval()
        if self._merged is None or self._kept() is None:
            return self._largest_variance()
        if self._merged.bound is None:
            self._merged = replace(self._merged, bound=self._largest_variance())
        return cast(Tensor, self._merged.bound).clone()

    # ---------------------------------------------------------------- inside

    def _with(self, new: Observations) -> Change:
        factors, basis = self._state()
        merged = cast(Merged, self._merged)
        factors, merged, basis = self._added(factors, merged, basis, new)
        return self._changed(factors, basis, merged, len(new.inputs))

    def _without(self, rows: Tensor, kept: Tensor, before: Observations) -> Change:
        factors, basis = self._state()
        merged, left = cast(Merged, self._merged), before.rows(kept)
        positions = merged.positions[kept]
        precisions, moments = sums(merged.precisions.shape[-1], positions, left.residuals, left.variances)
        touched = merged.positions[rows].unique()
        remain = torch.isin(touched, positions)
        factors = self._reweighted(factors, basis, touched[remain], precisions, moments)
        gone = touched[~remain]
        points = torch.ones(basis.shape[-2], dtype=torch.bool, device=rows.device)
        points[gone] = False
        precisions, moments, basis = precisions[..., points], moments[..., points], basis[..., points, :]
        if _few(len(gone), len(points)):
            for position in gone.flip(0).tolist():
                factors = factors.removed(position)
        else:
            factors = ExactFactors.fit(gram(self.covar_module, basis), moments / precisions, precisions.reciprocal())
        return self._changed(factors, basis, merged.kept(kept, points, precisions, moments), len(rows))

    def _changed(self, factors: ExactFactors, basis: Tensor, merged: Merged, changes: int) -> Change:
        if not factors.is_finite():
            factors = ExactFactors.fit(gram(self.covar_module, basis), factors.targets, factors.noise)
            changes = -self._changes
        return Change(factors, basis, self._changes + changes, {"_merged": merged})

    def _extend(self, conditioned: Self, inputs: Tensor, targets: Tensor) -> None:
        """Border the factor, O((u + k)² k) a batch member."""
        factors, _ = self._factors()
        with_graph = botorch_settings.propagate_grads.on() or inputs.requires_grad
        with torch.set_grad_enabled(torch.is_grad_enabled() and with_graph):
            variances = conditioned._noise(conditioned._points())[..., self.num_observations :]
            basis = concatenate(self._basis(), inputs, dim=-2)
            grams = border(self.covar_module, basis, inputs.shape[-2])
            residuals = targets - prior_mean(self.mean_module, inputs)
            # Its factors are of points that are not merged, so they are computed afresh before they change.
            conditioned._merged, conditioned._changes = None, self.REFRESH
            conditioned._keep(factors.appended(*grams, residuals, variances), basis)

    def _fit(self) -> tuple[ExactFactors, Tensor]:
        train_X = self._points()
        residuals = self.train_targets - prior_mean(self.mean_module, train_X)
        variances = self._noise(train_X)
        self.prediction_strategy, self._changes = None, 0  # kept factors do not go with the merged points below
        if self._is_batch() or (torch.is_grad_enabled() and train_X.requires_grad):  # merged points have no gradient
            self._merged = None
            return ExactFactors.fit(gram(self.covar_module, train_X), residuals, variances), train_X
        points, positions = distinct_in_order(train_X if self.num_outputs == 1 else train_X[0])
        merged = Merged.of(points, positions, residuals, variances.expand(residuals.shape))
        self._merged = merged.detached()
        basis = points if self.num_outputs == 1 else points.unsqueeze(0)
        targets, noise = merged.moments / merged.precisions, merged.precisions.reciprocal()
        return ExactFactors.fit(gram(self.covar_module, basis), targets, noise), basis

    def _shared_buffers(self) -> tuple[Any, ...]:
        return (self._merged,)

    def _added(
        self,
        factors: ExactFactors,
        merged: Merged,
        basis: Tensor,
        observations: Observations,
    ) -> tuple[ExactFactors, Merged, Tensor]:
        """Return the state with observations added."""
        u, inputs = len(merged.index), observations.inputs
        merged, first, touched = merged.added(inputs, observations.residuals, observations.variances)
        precisions, moments = merged.precisions, merged.moments
        factors = self._reweighted(factors, basis, touched, precisions, moments)
        if first:
            new = inputs[first] if self.num_outputs == 1 else inputs[first].unsqueeze(0)
            basis = torch.cat([basis, new], dim=-2)
            grams, noise = border(self.covar_module, basis, len(first)), precisions[..., u:].reciprocal()
            factors = factors.appended(*grams, moments[..., u:] * noise, noise)
            if merged.bound is not None:
                variance = prior_variance(self.covar_module, new)
                merged = replace(merged, bound=torch.maximum(merged.bound, variance.max()))
        return factors, merged, basis

    def _reweighted(
        self, factors: ExactFactors, basis: Tensor, touched: Tensor, precisions: Tensor, moments: Tensor
    ) -> ExactFactors:
        """Return the factors where the points ``touched`` (r,) have other sums of observations."""
        if _few(len(touched), basis.shape[-2]):
            for position in touched.tolist():
                precision = precisions[..., position]
                factors = factors.reweighted(position, moments[..., position] / precision, precision.reciprocal())
            if factors.is_finite():
                return factors
        noise = factors.noise.clone()
        noise[..., touched] = precisions[..., touched].reciprocal()
        targets = factors.targets.clone()
        targets[..., touched] = moments[..., touched] / precisions[..., touched]
        return ExactFactors.fit(gram(self.covar_module, basis), targets, noise)


def _few(changes: int, u: int) -> bool:
    """Say whether so many changes of u points cost less than a fresh factor; measured."""
    return changes <= 4 + u // 200
