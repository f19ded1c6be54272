"""The Nyström–DTC posterior as a BoTorch model."""

import math
from typing import Any, Self, cast

import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.utils.types import DEFAULT, _DefaultType
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods.gaussian_likelihood import _GaussianLikelihoodBase
from gpytorch.means import Mean
from gpytorch.settings import prior_mode
from linear_operator.operators import DiagLinearOperator, LowRankRootLinearOperator
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.dictionaries import CappedDictionary, DictionaryRule, PlayedPoints, RidgeLeverageSampling, Selection
from torch_kbandits.dictionaries.online import SPANNED
from torch_kbandits.errors import EmptyHistoryError, InputError
from torch_kbandits.models.base import FactoredGP
from torch_kbandits.models.data import at_dictionary
from torch_kbandits.models.normal import LowRankNormal, TraceTerm
from torch_kbandits.numerics.gram import gram, prior_mean, prior_variance
from torch_kbandits.numerics.linalg import jittered_cholesky, non_negative_variance
from torch_kbandits.numerics.rows import among, distinct_in_order
from torch_kbandits.posteriors.prediction import joined

_TRACE_TERM = "nystrom_trace_term"

#: At this size a posterior and a choice among 20,000 candidates take seconds, and in d = 8 the posterior of 3,000
#: observations is as accurate as the exact one; with 500 points it is not. Variances are those of DTC, which are honest
#: also where the points leave much.
_DEFAULT_RULE = CappedDictionary(RidgeLeverageSampling(), 1_000, "stop", learns_residual=False)


class NystromGP(FactoredGP):
    """A BoTorch model whose posterior is the Nyström–DTC one at a dictionary of m points.

    The variance keeps the exact prior term k(x, x), so it does not starve far from the dictionary. With all played
    points as dictionary the posterior is the exact one.

    Source: Calandriello et al., COLT 2019, §3.1; Zenati et al., AISTATS 2022, Prop. 4.2. Differs: variances are in
    reward units squared (theirs are divided by λ), noise may differ by observation, and ``condition_on_observations``
    also adds new points to the dictionary, since at a fixed one the variance outside its span would not shrink.

    Defaults are those of ``FactoredGP``. ``fit_gpytorch_mll`` maximises the exact likelihood of at most five blocks of
    400 observations, whatever the dictionary, and goes on with Titsias' collapsed bound of all observations where a
    dictionary of at most 400 points leaves next to nothing. Then the rule chooses the dictionary again. In training
    mode the model has the bound, O(n m²), which is the exact marginal likelihood when the dictionary is all points.

    Args:
        train_X: played points, (..., n, d); n may be 0, then the posterior is the prior.
        train_Y: rewards, (..., n, o) for o outputs.
        train_Yvar: noise variance of each observation, shape of ``train_Y``, in units of ``train_Y`` squared, in place
            of ``regularization``. GPyTorch rounds values below 1e-6 up to it and says so, here and later.
        inducing_points: the dictionary (..., m, d), in the space of ``train_X`` before any input transform.
        dictionary: a rule that chooses it from ``train_X`` instead, again after a fit; by default
            ``RidgeLeverageSampling()``, of which at most 1,000 points are kept.
        regularization: λ > 0, the noise variance, in units of the (transformed) rewards squared; then it is fixed.
            Without it and without ``train_Yvar`` it is learned, under BoTorch's default prior. Beside ``train_Yvar``
            it is the noise of observations conditioned on later without a ``noise`` (default: the mean of theirs).
        likelihood: a Gaussian likelihood in place of both.
        covar_module: any GPyTorch kernel; and the others as in ``SingleTaskGP``.
        outcome_transform: by default ``Standardize``; none where ``regularization`` or ``likelihood`` is given.
        learns_residual: whether the variance that the dictionary does not span counts as observed as often as what it
            does; see ``CappedDictionary``. By default where a rule chose a dictionary that is full.
        generator: randomness of the rule; torch's global generator unless given.

    Raises:
        InputError: on shapes, dtypes or values that do not fit, each named.
        NotPositiveDefiniteError: at the first use, if the kernel is not a covariance.

    Cost: O(n m² + m³) once, then O(m²) a point of the posterior and an observation that ``tell`` adds or ``remove``
    takes back; memory O(n m).
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
        outcome_transform: OutcomeTransform | _DefaultType | None = DEFAULT,
        input_transform: InputTransform | None = None,
        learns_residual: bool | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        if inducing_points is not None and dictionary is not None:
            raise InputError("Give either inducing_points or a dictionary rule, not both.")
        checks.absent_or("dictionary", dictionary, DictionaryRule, "a rule such as RidgeLeverageSampling()")
        checks.absent_or("generator", generator, torch.Generator, "a torch.Generator")
        if learns_residual is not None:
            learns_residual = checks.flag("learns_residual", learns_residual)
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
        self.register_added_loss_term(_TRACE_TERM)
        train_X = checks.points("train_X", train_X)
        self._rule = dictionary or _DEFAULT_RULE if inducing_points is None else None
        self._generator, self._always_learns = generator, learns_residual
        if self._rule is not None:
            inducing_points = self._chosen(train_X, self._rule, generator)
        inducing_points = checks.points("inducing_points", inducing_points, dimension=train_X.shape[-1], like=train_X)
        if inducing_points.shape[-2] == 0 < train_X.shape[-2]:
            raise InputError("inducing_points must have at least one row when there are observations.")
        self.register_buffer("inducing_points", inducing_points.detach().clone())
        self.learns_residual = self._learns(inducing_points)

    inducing_points: Tensor

    def forward(self, x: Tensor) -> MultivariateNormal:
        """Return the Nyström prior and the trace term of the collapsed bound; not training the prior.

        Source: Titsias, AISTATS 2009, Eq. 9, at inducing points that are not learned.
        """
        if not self.training and prior_mode.on():
            return super().forward(x)
        if not self.training:
            raise UnsupportedError(
                "A Nyström posterior does not follow from the prior and the observations alone. For the prior: with "
                "gpytorch.settings.prior_mode(): model(X). For loo_cv: remove rows from copies."
            )
        if x.shape[-2] == 0:
            raise EmptyHistoryError("There is nothing to fit: the model has no observations.")
        x, dictionary, kernel = self.transform_inputs(x), self._dictionary(), self.covar_module
        factor = jittered_cholesky(gram(kernel, dictionary))
        z = torch.linalg.solve_triangular(factor, gram(kernel, dictionary, x), upper=False)
        nystrom, zero = LowRankRootLinearOperator(z.mT), torch.zeros_like(z[..., 0, :])
        exact = MultivariateNormal(zero, DiagLinearOperator(prior_variance(kernel, x)))
        trace_term = TraceTerm(exact, MultivariateNormal(zero, nystrom), self.likelihood)
        self.update_added_loss_term(_TRACE_TERM, trace_term)
        return LowRankNormal(prior_mean(self.mean_module, x).expand(zero.shape), nystrom)

    def train(self, mode: bool = True) -> Self:
        """Put the model in training or, with ``mode=False``, in evaluation mode."""
        if not mode:
            self._added_loss_terms[_TRACE_TERM] = None  # of the last training step
        return super().train(mode)

    def tell(self, X: Tensor, Y: Tensor, Yvar: Tensor | None = None, *, add_to_dictionary: bool = False) -> None:
        """Condition this model on more observations; after an error it is as it was.

        What the dictionary does not span of a point stays as uncertain as it was, however often the point is observed.

        Args:
            X: (k, d).
            Y: (k, o), in the units of ``train_Y``.
            Yvar: noise variances (k, o), in units of ``train_Y`` squared; ``regularization`` otherwise.
            add_to_dictionary: whether points of X join the dictionary, but for those that it spans to rounding.

        Raises:
            InputError: if an argument does not fit, there are batch dimensions, or the dictionary stays empty.
            NumericalError: if rewards add up to more than the dtype holds, or the kernel is not a finite covariance.

        Cost: O(m²) for each observation, and a copy of the n there are; O(n m + m²) more for each point that joins. As
        a fresh fit, O(n m² + m³), if there are many, and once in some hundred changes, to clear rounding.
        """
        joins = checks.flag("add_to_dictionary", add_to_dictionary)
        X, targets, noise = self._checked(X, Y, Yvar)
        model = self.eval()
        if joins and (rows := self._unspanned(X)):
            model = self._at_dictionary(torch.cat([self.inducing_points, X[rows]]), self.learns_residual)
        if model._dictionary().shape[-2] == 0 < len(X):
            raise InputError("The dictionary is empty: let the points join, with add_to_dictionary=True.")
        self._become(model._told(X, targets, noise))

    def set_dictionary(self, dictionary: Tensor | DictionaryRule, generator: torch.Generator | None = None) -> None:
        """Move this model to another dictionary, on the same observations; after an error it is as it was.

        A rule chooses among the points of the observations, by their leverage scores under the current posterior, as
        BKB does in every round.

        Args:
            dictionary: any points (m, d), in the space of ``train_X`` before any input transform; or a rule.
            generator: randomness of the rule; torch's global generator unless given.

        Raises:
            InputError: if the points do not fit, are none beside observations, or there are batch dimensions.
            EmptyHistoryError: if a rule is to choose among no points.
            NumericalError: if the kernel is not a finite covariance.

        Cost: O(n m + m²) for each point that joins or leaves, and no more than O(n m² + m³).
        """
        checks.absent_or("generator", generator, torch.Generator, "a torch.Generator")
        self._require_change()
        rule, learns_residual = None, self.eval().learns_residual
        if isinstance(dictionary, DictionaryRule):
            points = self._rescored(dictionary, generator)
            learns_residual, rule, dictionary = len(points) >= (dictionary.full_at or math.inf), dictionary, points
        train_X = self._given_inputs()
        dictionary = checks.points("dictionary", dictionary, dimension=train_X.shape[-1], like=train_X)
        if dictionary.dim() != 2 or len(dictionary) == 0 < self.num_observations:
            raise InputError(f"dictionary must be points (m, d), at least one; got {checks.describe(dictionary)}.")
        other = self._at_dictionary(dictionary.detach().clone(), learns_residual)
        other._rule, other._generator = rule, generator
        self._become(other)

    def _choose_again(self) -> None:
        """Let the rule, if one chose, choose as when the model was made."""
        if self._rule is None or self.num_observations == 0:
            return
        given = cast(
            Tensor, self.eval()._original_train_inputs if self._has_transformed_inputs else self.train_inputs[0]
        )
        given = given[..., 0, :, :] if self._num_outputs > 1 else given
        self.inducing_points = self._chosen(given, self._rule, self._generator).detach().clone()
        self.learns_residual = self._learns(self.inducing_points)

    def _learns(self, points: Tensor) -> bool:
        """Say whether the residual is learned at a dictionary (..., m, d) of the rule."""
        full_at = None if self._rule is None else self._rule.full_at
        return points.shape[-2] >= (full_at or math.inf) if self._always_learns is None else self._always_learns

    @torch.no_grad()
    def _at_dictionary(self, points: Tensor, learns_residual: bool) -> Self:
        """Return the model at a dictionary of points (m, d)."""
        learned, other = self._learned(), self._shared()
        other.inducing_points, other.learns_residual = points, learns_residual
        return other._keep(None if learned is None else at_dictionary(learned, other._dictionary()))

    def _extend(self, conditioned: Self, inputs: Tensor, targets: Tensor, given: Tensor | None) -> None:
        """Let the points join the dictionary, where they are as they were told."""
        if given is None:
            transform = cast(InputTransform | None, getattr(self, "input_transform", None))
            given = inputs if transform is None else transform.untransform(inputs)
        conditioned.inducing_points = joined(self.inducing_points, given, -2)

    @torch.no_grad()
    def _unspanned(self, points: Tensor) -> list[int]:
        """Return which points (k, d), as they are told, are spanned by no dictionary nor by those before."""
        strategy, X, rows = self.kept.strategy, self._seen(points), list[int]()
        at = strategy.at(X)
        left, least = gram(strategy.kernel, at.X) - at.inside.mT @ at.inside, SPANNED[points.dtype] * at.prior
        non_negative_variance(left.diagonal(dim1=-2, dim2=-1), at.prior)
        for row in range(len(points)):
            pivot, outside = left[..., row, row], left[..., row, row] > least[..., row]
            if bool(outside.any()):
                rows.append(row)
                column = left[..., row] * torch.where(outside, pivot, torch.inf).rsqrt().unsqueeze(-1)
                left = left - column.unsqueeze(-1) * column.unsqueeze(-2)
        return rows

    @torch.no_grad()
    def _chosen(self, train_X: Tensor, rule: DictionaryRule, generator: torch.Generator | None) -> Tensor:
        """Return the rows of points (..., n, d), as they are told, that a rule chooses; none if there are none."""
        if train_X.shape[-2] == 0:
            return train_X
        points, counts = self._seen(train_X), train_X.new_ones(train_X.shape[-2])
        played = PlayedPoints(points, self.covar_module, self._noise(points), counts)
        return self._selected(rule.select(played, generator), train_X)

    @torch.no_grad()
    def _rescored(self, rule: DictionaryRule, generator: torch.Generator | None) -> Tensor:
        """Return the points (m, d) that a rule chooses of those observed, by the current posterior.

        A point observed with several noise variances has their harmonic mean; its score is the largest over outputs.
        """
        X, variances = self._given_inputs(), self._observations().variances
        rows, places = distinct_in_order(X)
        first = places.new_full((len(rows),), len(X))
        first = first.scatter_reduce(0, places, torch.arange(len(X), device=X.device), "amin")
        counts = torch.bincount(places).to(X)
        precision = torch.zeros_like(variances[..., : len(rows)]).index_add(-1, places, variances.reciprocal())
        strategy = self.kept.strategy
        scores = self._number(strategy.own_variance(strategy.at(self._points())))[..., first] * precision / counts
        scores = scores.flatten(end_dim=-2).amax(0) if scores.dim() > 1 else scores
        held, seen = among(rows, self.inducing_points), self._seen(X)[..., first, :]
        played = PlayedPoints(seen, self.covar_module, counts / precision, counts, scores, held)
        return self._selected(rule.select(played, generator), rows)

    def _selected(self, selection: Selection, points: Tensor) -> Tensor:
        """Return the points that a rule selected of points (..., n, d), or others, as they were told."""
        if selection.indices is not None:
            return points[..., selection.indices, :]
        return selection.points.squeeze(-3) if self._num_outputs > 1 else selection.points

    def _dictionary(self) -> Tensor:
        """Return the dictionary as the kernel sees it: transformed, with the batch dimension of the outputs."""
        return self._seen(self.inducing_points)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        saved = state_dict.get(f"{prefix}inducing_points")
        if saved is not None:
            self.inducing_points = self.inducing_points.new_empty(saved.shape)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
