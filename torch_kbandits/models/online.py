from dataclasses import replace
from typing import Any, Self, cast

import torch
from botorch import settings as botorch_settings
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.likelihoods.gaussian_likelihood import _GaussianLikelihoodBase
from gpytorch.likelihoods.noise_models import FixedGaussianNoise
from gpytorch.means import Mean
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError, NumericalError
from torch_kbandits.exact import ExactFactors
from torch_kbandits.gram import gram, prior_mean, prior_variance
from torch_kbandits.likelihoods import UncertaintyInjectionLikelihood
from torch_kbandits.models.base import Cache, FactoredGP, concatenate
from torch_kbandits.models.merged import Merged, sums
from torch_kbandits.rows import distinct, distinct_in_order


class OnlineGP(FactoredGP):
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

    #: Changes of the factor after which it is computed afresh, so that rounding cannot build up.
    REFRESH = 500

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
        self._changes = 0

    @property
    def num_distinct(self) -> int:
        """Number u of distinct points among the observations: what the posterior's cost depends on.

        With batch dimensions nothing is merged, and every observation counts.
        """
        if self._merged is not None and self.prediction_strategy is not None:
            return self._basis().shape[-2]
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
            Yvar: noise variances (k, o), in units of ``train_Y`` squared, where the model was made with ``train_Yvar``;
                ``regularization`` otherwise.

        Raises:
            InputError: if shapes, dtypes or values do not fit, or the model has batch dimensions.
            NumericalError: if the rewards of a point add up to more than the dtype holds, or a Gram matrix has NaN.
            NotPositiveDefiniteError: if the kernel is not a covariance.

        Cost: O(u²) for each distinct point of X but no more than O((u + k)³), and a copy of the n observations.
        """
        self._require_no_batch()
        self._require_own_times()
        train_X = self._original_inputs()
        checks.points("X", X, dimension=train_X.shape[-1], like=train_X)
        checks.points("Y", Y, like=train_X)
        if X.dim() != 2 or tuple(Y.shape) != (len(X), self.num_outputs):
            raise InputError(
                f"X must be (k, d) and Y (k, {self.num_outputs}); got {checks.describe(X)} and {checks.describe(Y)}."
            )
        fixed_noise = _has_fixed_noise(self)
        if Yvar is not None:
            if not fixed_noise:
                raise InputError("Yvar is for models made with train_Yvar; this one has one noise variance for all.")
            checks.points("Yvar", Yvar, like=train_X)
            if Yvar.shape != Y.shape:
                raise InputError(f"Yvar must have the shape of Y, {tuple(Y.shape)}; got {checks.describe(Yvar)}.")
            if bool((Yvar < 0).any()):
                raise InputError(f"Yvar must not be negative, its least entry is {float(Yvar.min())}.")
        self.eval()
        with torch.no_grad():
            state = self._state()
            inputs = self._preprocess(X)
            targets, fixed = self._as_targets(X, Y, Yvar)
            if fixed_noise:
                fixed = self._later_noises(targets.shape) if fixed is None else fixed
                fixed = FixedGaussianNoise(fixed).noise  # rounded up and warned of as in the constructor
                variances = fixed + self.likelihood.second_noise
                fixed = torch.cat([self.likelihood.noise_covar.noise, fixed], dim=-1)
            elif isinstance(self.likelihood, UncertaintyInjectionLikelihood):
                variances = self.likelihood.observation_noise(inputs).expand(targets.shape)
            else:
                variances = self.regularization.unsqueeze(-1).expand(targets.shape)
            residuals = targets - prior_mean(self.mean_module, inputs)
            factors, merged, basis = self._added(*state, inputs, residuals, variances)
            if not bool(torch.isfinite(factors.whitened).all()):
                raise NumericalError("The rewards of a point add up to more than the dtype holds.")
            self._commit(
                torch.cat([self._original_inputs(), X]), torch.cat([self.train_targets, targets], dim=-1), fixed,
                factors, merged, basis, changes=len(X),
            )  # fmt: skip

    def remove(self, rows: Tensor | list[int]) -> None:
        """Forget observations of this model; after an error it is as it was.

        Args:
            rows: which, as rows of ``train_X`` in the order told, each once.

        Raises:
            InputError: if a row is no observation, or the model has batch dimensions.

        Cost: O(u²) for each but no more than O(u³), and O(n).
        """
        self._require_no_batch()
        self._require_own_times()
        n = self.num_observations
        rows = _rows(rows, n).to(self.train_targets.device)
        self.eval()
        with torch.no_grad():
            factors, merged, basis = self._state()
            kept = torch.ones(n, dtype=torch.bool, device=rows.device)
            kept[rows] = False
            (train_X,) = self.train_inputs
            residuals = self.train_targets - prior_mean(self.mean_module, train_X)
            variances = self._noise(train_X).expand(residuals.shape)
            precisions, moments = sums(
                merged.precisions.shape[-1], merged.positions[kept], residuals[..., kept], variances[..., kept]
            )
            touched = merged.positions[rows].unique()
            remain = torch.isin(touched, merged.positions[kept])
            factors = self._reweighted(factors, basis, touched[remain], precisions, moments)
            gone = touched[~remain]
            points = torch.ones(basis.shape[-2], dtype=torch.bool, device=rows.device)
            points[gone] = False
            precisions, moments, basis = precisions[..., points], moments[..., points], basis[..., points, :]
            if _few(len(gone), len(points)):
                for position in gone.flip(0).tolist():
                    factors = factors.removed(position)
            else:
                prior_gram = gram(self.covar_module, basis)
                factors = ExactFactors.fit(prior_gram, moments / precisions, precisions.reciprocal())
            merged = merged.kept(kept, points, precisions, moments)
            fixed = self.likelihood.noise_covar.noise[..., kept] if _has_fixed_noise(self) else None
            self._commit(
                self._original_inputs()[kept], self.train_targets[..., kept], fixed,
                factors, merged, basis, changes=len(rows),
            )  # fmt: skip

    # ---------------------------------------------------------------- what it knows of itself

    def effective_dimension(self) -> Tensor:
        """Return Σ_s τ(x_s) = Tr K(K + Σ)⁻¹, (...,).

        Cost: O(u³) when first asked for. From then on ``tell`` and ``remove`` carry it along, at O(u²) a change, until
        the factor is computed afresh; then it is nothing. In single precision O(n u²) at every call, since what is
        carried would lose digits.
        """
        if self.train_targets.dtype != torch.float64:
            return super().effective_dimension()
        with torch.no_grad():
            self.eval()
            self._factors()
            kept = cast(Cache, self.prediction_strategy)
            self.prediction_strategy = kept = replace(kept, factors=kept.factors.with_noise_share())
            return kept.factors.effective_dimension()

    def kernel_bound(self) -> Tensor:
        """Return the largest prior variance k(x, x) over the observations, 0-dim; 0 if there are none.

        Cost: O(n) when first asked for, then nothing until observations are removed or the factor is computed afresh.
        """
        self.eval()
        if self._merged is None or self.prediction_strategy is None:
            return super().kernel_bound()
        if self._merged.bound is None:
            self._merged = replace(self._merged, bound=super().kernel_bound())
        return cast(Tensor, self._merged.bound).clone()

    # ---------------------------------------------------------------- conditioned copies

    def get_fantasy_model(self, inputs: Tensor, targets: Tensor, noise: Tensor | None = None, **kwargs: Any) -> Self:
        """Return a copy with more observations; all arguments already transformed.

        Without ``noise`` the new observations have variance ``regularization``. Cost: O((u + k)² k) a batch member.
        """
        conditioned = super().get_fantasy_model(inputs, targets, noise, **kwargs)
        factors, _ = self._factors()
        with torch.set_grad_enabled(torch.is_grad_enabled() and botorch_settings.propagate_grads.on()):
            variances = conditioned._noise(conditioned.train_inputs[0])[..., self.num_observations :]
            basis = self._basis()
            conditioned._merged = None
            conditioned._keep(
                factors.appended(
                    gram(self.covar_module, basis, inputs),
                    gram(self.covar_module, inputs),
                    targets - prior_mean(self.mean_module, inputs),
                    variances,
                ),
                concatenate(basis, inputs, dim=-2),
            )
        return conditioned

    # ---------------------------------------------------------------- inside

    def _fit(self) -> tuple[ExactFactors, Tensor]:
        (train_X,) = self.train_inputs
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

    def _is_batch(self) -> bool:
        """Say whether there are batch dimensions besides that of the outputs."""
        outputs = int(self.num_outputs > 1)
        return self.train_inputs[0].dim() > 2 + outputs or self.train_targets.dim() > 1 + outputs

    def _state(self) -> tuple[ExactFactors, Merged, Tensor]:
        """Return factors, merged observations and basis, computed afresh if only a conditioned copy's are known."""
        self._factors()
        if self._merged is None or self._changes >= self.REFRESH:
            self.prediction_strategy = None
        factors, _ = self._factors()
        return factors, cast(Merged, self._merged), self._basis()

    def _added(
        self,
        factors: ExactFactors,
        merged: Merged,
        basis: Tensor,
        inputs: Tensor,
        residuals: Tensor,
        variances: Tensor,
    ) -> tuple[ExactFactors, Merged, Tensor]:
        """Return the state with observations (..., k) at inputs (k, d) added."""
        u = len(merged.index)
        merged, first, touched = merged.added(inputs, residuals, variances)
        precisions, moments = merged.precisions, merged.moments
        factors = self._reweighted(factors, basis, touched, precisions, moments)
        if first:
            new = inputs[first] if self.num_outputs == 1 else inputs[first].unsqueeze(0)
            factors = factors.appended(
                gram(self.covar_module, basis, new),
                gram(self.covar_module, new),
                moments[..., u:] / precisions[..., u:],
                precisions[..., u:].reciprocal(),
            )
            basis = torch.cat([basis, new], dim=-2)
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

    def _commit(
        self,
        X: Tensor,
        targets: Tensor,
        noise: Tensor | None,
        factors: ExactFactors,
        merged: Merged,
        basis: Tensor,
        changes: int,
    ) -> None:
        """Take over new observations X (n, d) and the state they lead to; everything or, if interrupted, nothing."""
        stacked = X if self.num_outputs == 1 else X.expand(self.num_outputs, *X.shape)
        inputs = self._preprocess(stacked)
        usable = factors.is_finite()
        before, noise_before = dict(vars(self)), None if noise is None else self.likelihood.noise_covar.noise
        try:
            if getattr(self, "_has_transformed_inputs", False):
                self._original_train_inputs = stacked
            self.set_train_data(inputs, targets, strict=False)
            if noise is not None:
                self.likelihood.noise_covar.noise = noise
            self._changes += changes
            if usable:
                self._merged = merged
                self._keep(factors, basis)
        except BaseException:
            vars(self).update(before)
            if noise is not None:
                self.likelihood.noise_covar.noise = noise_before
            raise

    def _require_no_batch(self) -> None:
        if self._is_batch():
            raise InputError(
                f"tell and remove are for models without batch dimensions; the targets of this one have "
                f"shape {tuple(self.train_targets.shape)}. Use condition_on_observations."
            )

    def _require_own_times(self) -> None:
        if isinstance(self.likelihood, UncertaintyInjectionLikelihood) and self.likelihood.time_column is None:
            raise InputError(
                "tell and remove need the time of each observation among its inputs: make the likelihood with "
                "time_column instead of times."
            )


def _few(changes: int, u: int) -> bool:
    """Say whether so many changes of u points cost less than a fresh factor; measured."""
    return changes <= 4 + u // 200


def _rows(rows: Tensor | list[int], n: int) -> Tensor:
    """Return distinct row numbers below n as a tensor (k,)."""
    try:
        numbers = torch.as_tensor(rows).flatten()
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"rows must be row numbers, got {checks.describe(rows)}.") from None
    if len(numbers) and (numbers.is_floating_point() or numbers.is_complex() or numbers.dtype == torch.bool):
        raise InputError(f"rows must be whole numbers, got {checks.describe(rows)}; of a mask take mask.nonzero().")
    numbers = numbers.long()
    if len(numbers) != len(numbers.unique()) or bool(((numbers < 0) | (numbers >= n)).any()):
        raise InputError(f"rows must be distinct rows of the {n} observations, got {numbers.tolist()}.")
    return numbers


def _has_fixed_noise(model: FactoredGP) -> bool:
    return isinstance(model.likelihood, FixedNoiseGaussianLikelihood)
