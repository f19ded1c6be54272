"""How well a dictionary stands for all points: DTC variances beside exact ones, and what it leaves out."""

import math
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.dictionaries import PlayedPoints
from torch_kbandits.dictionaries.greedy import greedy_pivots
from torch_kbandits.errors import EmptyHistoryError, InputError
from torch_kbandits.models.nystrom import NystromGP
from torch_kbandits.numerics.gram import prior_variance
from torch_kbandits.numerics.rows import distinct_in_order
from torch_kbandits.posteriors.prediction import PredictionStrategy

#: The reference stops where it leaves so little of all that counts, in units of λ, unless that is below rounding.
_LEFT_OUT, _ROUNDING = 1e-6, 1e-12


@dataclass(frozen=True, eq=False)
class DictionaryQuality:
    """How far the posterior of a dictionary is from the exact one of the same rewards, kernel and noise.

    Attributes:
        size: m, of the dictionary.
        num_points: u, how many distinct points count.
        effective_dimension: Σ_s τ(x_s) of the exact posterior: what m is to be measured by.
        projection_error: ‖(I − P)F^½‖²/λ, the largest eigenvalue of (K − K̃)/λ over the observations; 0 if the
            dictionary spans all of them.
        margin: the exact variances are known within this factor, at least 1: it is 1 but for rounding unless more
            distinct points count than the reference may have.
        points: where variances were compared, (k, d), as the kernel sees them.
        ratios: the model's over exact variance there, (k,), in double precision.
        learns_residual: whether the model's variance takes as learned what the dictionary does not span, which no bound
            is known of.
    """

    size: int
    num_points: int
    effective_dimension: float
    projection_error: float
    margin: float
    points: Tensor = field(repr=False)
    ratios: Tensor = field(repr=False)
    learns_residual: bool = False

    @property
    def least(self) -> float:
        """The least ratio: below 1 the posterior is surer than the rewards allow."""
        return float(self.ratios.min())

    @property
    def median(self) -> float:
        """The median ratio."""
        return float(self.ratios.median())

    @property
    def largest(self) -> float:
        """The largest ratio: above 1 the posterior has forgotten what the rewards say."""
        return float(self.ratios.max())

    @property
    def bound(self) -> float:
        """The factor within which all ratios are, at whatever point: 1 + (ρ + √(ρ² + 4ρ))/2, ρ the projection error.

        With P the projection on the dictionary's span, PFP <= (1 + a)F + (1 + 1/a)ρλ and the same with F and PFP
        exchanged, for every a > 0; the best a is the root of a = (1 + 1/a)ρ. Infinite where the residual is learned.
        """
        if self.learns_residual:
            return math.inf
        return _factor(self.projection_error)

    def is_within(self, factor: float) -> bool:
        """Say whether all ratios seen are within a factor, whatever the margin hides."""
        least, largest = self.least / self.margin, self.largest * self.margin
        return self.bound <= factor or (least >= 1.0 / factor and largest <= factor)

    def __str__(self) -> str:
        """Return one line."""
        margin = "" if self.margin < 1.005 else f" (each within a factor {self.margin:.3g})"
        return (
            f"{self.size} of {self.num_points} points span; effective dimension {self.effective_dimension:.3g}; "
            f"variance over the exact one at {len(self.ratios)} points: least {self.least:.3g}, median "
            f"{self.median:.3g}, largest {self.largest:.3g}{margin}; projection error {self.projection_error:.3g} λ"
            + ("." if self.learns_residual else f", so nowhere beyond a factor {self.bound:.3g}.")
        )


def dictionary_quality(model: NystromGP, X: Tensor | None = None, *, max_reference: int = 2000) -> DictionaryQuality:
    """Compare the variances of a Nyström model with the exact ones of the same observations, kernel and noise.

    The exact posterior is that of a reference: the dictionary of the points that pivoted Cholesky takes one after
    another until they span all, or until there are ``max_reference``. In the first case it is exact to rounding. In the
    second ``margin`` says by how much it may be off, by the bound of ``DictionaryQuality.bound``, and no chance enters.
    All is computed afresh in double precision, and the model stays as it is.

    Args:
        model: with one output and no batch dimensions.
        X: where to compare, (k, d), as the model takes points; None for all points of the observations.
        max_reference: the most points of the reference, at least 1.

    Raises:
        EmptyHistoryError: if there are no observations.
        InputError: if an argument does not fit.

    Cost: O(u r² + r³ + k r²) time and O(u r) memory for u distinct points and r of the reference, m <= r.
    """
    max_reference = checks.positive_integer("max_reference", max_reference)
    checks.instance("model", model, NystromGP, "a NystromGP: an exact posterior has no dictionary")
    if model.train_targets.dim() != 1:
        raise InputError(
            "The quality of a dictionary is that of one posterior: give a model with one output, no batch."
        )
    if model.num_observations == 0:
        raise EmptyHistoryError("Nothing was learned that counts, so there is no dictionary to measure: tell first.")
    with torch.no_grad():
        model.eval()
        seen, Z = model._points(), model._dictionary().double()
        kernel = deepcopy(model.covar_module).double()
        U, places = distinct_in_order(seen.double())
        precision = torch.zeros_like(U[:, 0]).index_add(0, places, 1.0 / model._noise(seen).double())
        if X is not None:
            X = checks.points("X", X, dimension=model.train_inputs[0].shape[-1], like=model.train_inputs[0])
            if X.dim() != 2 or len(X) == 0:
                raise InputError(f"X must be points (k, d) with k >= 1, got {checks.describe(X)}.")
        at = U if X is None else model._preprocess(X).double()
        one = torch.ones_like(precision)
        tolerance = max(_LEFT_OUT / float(precision @ prior_variance(kernel, U)), _ROUNDING)
        pivots = greedy_pivots(PlayedPoints(U, kernel, one, one), max_reference, tolerance)
        ours, reference = (_Spanned.by(points, U, precision, kernel) for points in (Z, U[pivots]))
        said = replace(ours.strategy, learns_residual=model.learns_residual)
        left_out = reference.left_out(precision)
        return DictionaryQuality(
            size=len(Z),
            num_points=len(U),
            effective_dimension=float(precision @ reference.strategy.variance(U, reference.z)),
            projection_error=_largest_difference(reference.scaled(precision), ours.scaled(precision)) + left_out,
            margin=_factor(left_out),
            points=at.to(seen),
            ratios=said.variance(at, said.features(at)) / reference.variance(at),
            learns_residual=model.learns_residual,
        )


class _Spanned(NamedTuple):
    """The DTC posterior at a dictionary, coordinates (m, u) of what counts, and what is left of its variances, (u,)."""

    strategy: PredictionStrategy
    z: Tensor
    residual: Tensor

    @classmethod
    def by(cls, points: Tensor, U: Tensor, precision: Tensor, kernel: Kernel) -> Self:
        strategy = PredictionStrategy.nystrom(kernel, points, U, torch.zeros_like(precision), 1.0 / precision)
        z = strategy.features(U)
        return cls(strategy, z, (prior_variance(kernel, U) - z.square().sum(0)).clamp_min(0.0))

    def variance(self, X: Tensor) -> Tensor:
        return self.strategy.variance(X, self.strategy.features(X))

    def scaled(self, precision: Tensor) -> Tensor:
        return self.z * precision.sqrt()

    def left_out(self, precision: Tensor) -> float:
        return float(precision @ self.residual)


def _factor(error: float) -> float:
    """Return 1 + (ρ + √(ρ² + 4ρ))/2."""
    return 1.0 + 0.5 * (error + math.sqrt(error * (error + 4.0)))


def _largest_difference(more: Tensor, less: Tensor) -> float:
    """Return the largest eigenvalue of GᵀG − HᵀH, at least 0, for G (r, u) and H (m, u).

    With S the rows of both and SSᵀ = CCᵀ it is that of CᵀJC, J the signs of the rows. Cost: O(u (r + m)²).
    """
    rows = torch.cat([more, less])
    values, vectors = torch.linalg.eigh(rows @ rows.mT)
    root = vectors * values.clamp_min(0.0).sqrt()
    signs = torch.cat([torch.ones_like(more[:, 0]), -torch.ones_like(less[:, 0])])
    return float(torch.linalg.eigvalsh(root.mT @ (signs[:, None] * root))[-1].clamp_min(0.0))
