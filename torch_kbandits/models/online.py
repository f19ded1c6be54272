from dataclasses import dataclass
from typing import Any, Self, cast

import torch
from botorch import settings as botorch_settings
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.likelihoods.gaussian_likelihood import _GaussianLikelihoodBase
from gpytorch.means import Mean
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError, NumericalError
from torch_kbandits.exact import ExactFactors
from torch_kbandits.gram import gram, prior_mean
from torch_kbandits.models.base import FactoredGP, concatenate
from torch_kbandits.prior_draws import distinct


@dataclass(frozen=True, eq=False)
class _Merged:
    """Which distinct point each observation is of, and what the observations of each point add up to.

    Attributes:
        positions: (n,) the point of each observation.
        precisions: Σ 1/λ_s of each point, (..., u).
        moments: Σ (y_s − prior mean)/λ_s of each point, (..., u).
        index: the point of each row of numbers, as bytes.
    """

    positions: Tensor
    precisions: Tensor
    moments: Tensor
    index: dict[bytes, int]


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
        self._merged: _Merged | None = None
        self._changes = 0

    @property
    def num_distinct(self) -> int:
        """Number u of distinct points among the observations: what the posterior's cost depends on."""
        return self._basis().shape[-2]

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

        Cost: O(u²) for each distinct point of X, and a copy of the n observations.
        """
        self._require_no_batch()
        (train_X,) = self.train_inputs
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
            if Yvar.shape != Y.shape or bool((Yvar <= 0).any()):
                raise InputError(f"Yvar must be positive, of the shape of Y {tuple(Y.shape)}; got {Yvar.tolist()}.")
        self.eval()
        with torch.no_grad():
            factors, merged, basis = self._state()
            inputs = self._preprocess(X)
            targets, variances = self._as_targets(X, Y, Yvar)
            if variances is None:
                variances = self.regularization.unsqueeze(-1).expand(targets.shape)
            residuals = targets - prior_mean(self.mean_module, inputs)
            keys = _keys(inputs)
            for key in dict.fromkeys(keys):
                rows = [row for row, other in enumerate(keys) if other == key]
                factors, merged, basis = self._added(
                    factors, merged, basis, key, inputs[rows[0], None], residuals[..., rows], variances[..., rows]
                )
            positions = torch.tensor([merged.index[key] for key in keys], device=X.device, dtype=torch.long)
            merged = _Merged(torch.cat([merged.positions, positions]), merged.precisions, merged.moments, merged.index)
            if not bool(torch.isfinite(factors.targets).all()):
                raise NumericalError("The rewards of a point add up to more than the dtype holds.")
            noise = torch.cat([self.likelihood.noise, variances], dim=-1) if fixed_noise else None
            self._commit(
                torch.cat([self._original_inputs(), X]), torch.cat([self.train_targets, targets], dim=-1), noise,
                factors, merged, basis, changes=len(keys),
            )  # fmt: skip

    def remove(self, rows: Tensor | list[int]) -> None:
        """Forget observations of this model; after an error it is as it was.

        Args:
            rows: which, as rows of ``train_X`` in the order told, each once.

        Raises:
            InputError: if a row is no observation, or the model has batch dimensions.

        Cost: O(u²) for each, and O(n).
        """
        self._require_no_batch()
        rows = torch.as_tensor(rows, dtype=torch.long, device=self.train_targets.device).flatten()
        n = self.num_observations
        if len(rows) != len(rows.unique()) or bool(((rows < 0) | (rows >= n)).any()):
            raise InputError(f"rows must be distinct rows of the {n} observations, got {rows.tolist()}.")
        self.eval()
        with torch.no_grad():
            factors, merged, basis = self._state()
            kept = torch.ones(n, dtype=torch.bool, device=rows.device)
            kept[rows] = False
            (train_X,) = self.train_inputs
            variances = self._noise(train_X)
            residuals = self.train_targets - prior_mean(self.mean_module, train_X)
            for position in merged.positions[rows].unique().flip(0).tolist():
                remaining = kept & (merged.positions == position)
                if bool(remaining.any()):
                    factors, merged = _reweighted(
                        factors, merged, position, residuals[..., remaining], variances[..., remaining]
                    )
                else:
                    factors, merged, basis = _without(factors, merged, basis, position)
            merged = _Merged(merged.positions[kept], merged.precisions, merged.moments, merged.index)
            noise = self.likelihood.noise[..., kept] if _has_fixed_noise(self) else None
            self._commit(
                self._original_inputs()[kept], self.train_targets[..., kept], noise, factors, merged, basis,
                changes=len(rows),
            )  # fmt: skip

    # ---------------------------------------------------------------- conditioned copies

    def get_fantasy_model(self, inputs: Tensor, targets: Tensor, noise: Tensor | None = None, **kwargs: Any) -> Self:
        """Return a copy with more observations; all arguments already transformed.

        Without ``noise`` the new observations have variance ``regularization``. Cost: O((u + k)² k) a batch member.
        """
        conditioned = super().get_fantasy_model(inputs, targets, noise, **kwargs)
        factors, _ = self._factors()
        with torch.set_grad_enabled(torch.is_grad_enabled() and botorch_settings.propagate_grads.on()):
            variances = self._noise(inputs) if noise is None and not _has_fixed_noise(self) else noise
            if variances is None:
                variances = self.regularization.unsqueeze(-1).expand(targets.shape)
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
        self._changes = 0
        if self._input_batch_shape:
            self._merged = None
            return ExactFactors.fit(gram(self.covar_module, train_X), residuals, variances), train_X
        points, positions = distinct(train_X if self.num_outputs == 1 else train_X[0])
        zeros = residuals.new_zeros(*residuals.shape[:-1], len(points))
        precisions = zeros.index_add(-1, positions, variances.reciprocal())
        moments = zeros.index_add(-1, positions, residuals / variances)
        index = {key: position for position, key in enumerate(_keys(points))}
        self._merged = _Merged(positions, precisions.detach(), moments.detach(), index)
        basis = points if self.num_outputs == 1 else points.unsqueeze(0)
        return ExactFactors.fit(gram(self.covar_module, basis), moments / precisions, precisions.reciprocal()), basis

    def _state(self) -> tuple[ExactFactors, _Merged, Tensor]:
        """Return factors, merged observations and basis, computed afresh if only a conditioned copy's are known."""
        self._factors()
        if self._merged is None or self._changes >= self.REFRESH:
            self.prediction_strategy = None
        factors, _ = self._factors()
        return factors, cast(_Merged, self._merged), self._basis()

    def _added(
        self,
        factors: ExactFactors,
        merged: _Merged,
        basis: Tensor,
        key: bytes,
        point: Tensor,
        residuals: Tensor,
        variances: Tensor,
    ) -> tuple[ExactFactors, _Merged, Tensor]:
        """Return the state with observations (..., k) of one point (1, d) added."""
        position = merged.index.get(key)
        precision = variances.reciprocal().sum(-1)
        moment = (residuals / variances).sum(-1)
        if position is not None:
            precisions, moments = merged.precisions.clone(), merged.moments.clone()
            precisions[..., position] += precision
            moments[..., position] += moment
            target = moments[..., position] / precisions[..., position]
            factors = factors.reweighted(position, target, precisions[..., position].reciprocal())
            return factors, _Merged(merged.positions, precisions, moments, merged.index), basis
        new = point if self.num_outputs == 1 else point.unsqueeze(0)
        factors = factors.appended(
            gram(self.covar_module, basis, new),
            gram(self.covar_module, new),
            (moment / precision).unsqueeze(-1),
            precision.reciprocal().unsqueeze(-1),
        )
        merged = _Merged(
            merged.positions,
            torch.cat([merged.precisions, precision.unsqueeze(-1)], dim=-1),
            torch.cat([merged.moments, moment.unsqueeze(-1)], dim=-1),
            merged.index | {key: len(merged.index)},
        )
        return factors, merged, torch.cat([basis, new], dim=-2)

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
        transformed = getattr(self, "_has_transformed_inputs", False)
        inputs = cast(Tensor, self._original_train_inputs if transformed else self.train_inputs[0])
        return inputs if inputs.dim() == 2 else inputs[0]

    def _commit(
        self,
        X: Tensor,
        targets: Tensor,
        noise: Tensor | None,
        factors: ExactFactors,
        merged: _Merged,
        basis: Tensor,
        changes: int,
    ) -> None:
        """Take over new observations X (n, d) and the state they lead to."""
        stacked = X if self.num_outputs == 1 else X.expand(self.num_outputs, *X.shape)
        if getattr(self, "_has_transformed_inputs", False):
            self._original_train_inputs = stacked
            stacked = self._preprocess(stacked)
        self.set_train_data(stacked, targets, strict=False)
        if noise is not None:
            self.likelihood.noise_covar.noise = noise
        self._changes += changes
        if factors.is_finite():
            self._merged = merged
            self._keep(factors, basis)

    def _require_no_batch(self) -> None:
        if self._input_batch_shape:
            raise InputError(
                f"tell and remove are for models without batch dimensions; the inputs of this one have "
                f"{tuple(self._input_batch_shape)}. Use condition_on_observations."
            )


def _reweighted(
    factors: ExactFactors, merged: _Merged, position: int, residuals: Tensor, variances: Tensor
) -> tuple[ExactFactors, _Merged]:
    """Return the state where a point has just the given observations (..., k)."""
    precisions, moments = merged.precisions.clone(), merged.moments.clone()
    precisions[..., position] = variances.reciprocal().sum(-1)
    moments[..., position] = (residuals / variances).sum(-1)
    target = moments[..., position] / precisions[..., position]
    factors = factors.reweighted(position, target, precisions[..., position].reciprocal())
    return factors, _Merged(merged.positions, precisions, moments, merged.index)


def _without(
    factors: ExactFactors, merged: _Merged, basis: Tensor, position: int
) -> tuple[ExactFactors, _Merged, Tensor]:
    """Return the state without a point that no observation is of any more."""
    keep = torch.arange(basis.shape[-2], device=basis.device) != position
    index = {key: other - (other > position) for key, other in merged.index.items() if other != position}
    positions = merged.positions - (merged.positions > position).long()
    merged = _Merged(positions, merged.precisions[..., keep], merged.moments[..., keep], index)
    return factors.removed(position), merged, basis[..., keep, :]


def _has_fixed_noise(model: FactoredGP) -> bool:
    return isinstance(model.likelihood, FixedNoiseGaussianLikelihood)


def _keys(points: Tensor) -> list[bytes]:
    """Return a hashable key for each row of points (k, d); adding 0 turns -0 into 0."""
    return [row.tobytes() for row in (points.detach() + 0.0).cpu().numpy()]
