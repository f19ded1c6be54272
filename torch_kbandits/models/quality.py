"""How well a dictionary stands for all points: DTC variances against exact ones, and what it leaves out."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.dictionaries.greedy import greedy_pivots
from torch_kbandits.errors import EmptyHistoryError, InputError
from torch_kbandits.models.nystrom import NystromGP
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
        projection_error: ‖(I − P)F^½‖²/λ, the largest eigenvalue of (K − K̃)/λ over the observations.
        margin: the exact variances are known within this factor, 1 but for rounding unless more distinct points count
            than the reference may have.
        points: where variances were compared, (k, d), as the kernel sees them.
        ratios: the model's over exact variance there, (k,), in double precision: below 1 the posterior is surer than
            the rewards allow, above 1 it has forgotten what they say.
        learns_residual: whether the model's variance takes as learned what the dictionary does not span.
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
        """The least ratio."""
        return float(self.ratios.min())

    @property
    def median(self) -> float:
        """The median ratio."""
        return float(self.ratios.median())

    @property
    def largest(self) -> float:
        """The largest ratio."""
        return float(self.ratios.max())

    @property
    def bound(self) -> float:
        """The factor within which all ratios are, at whatever point: 1 + (ρ + √(ρ² + 4ρ))/2, ρ the projection error.

        With P the projection on the dictionary's span, PFP <= (1 + a)F + (1 + 1/a)ρλ and the same with F and PFP
        exchanged, for every a > 0, best where a = (1 + 1/a)ρ. Infinite where the residual is learned.
        """
        return math.inf if self.learns_residual else _factor(self.projection_error)

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


@torch.no_grad()
def dictionary_quality(model: NystromGP, X: Tensor | None = None, *, max_reference: int = 2000) -> DictionaryQuality:
    """Compare the variances of a Nyström model with the exact ones of the same observations, kernel and noise.

    The exact posterior is that of the dictionary of the points that pivoted Cholesky takes one after another until they
    span all, to rounding, or until there are ``max_reference``; by how much it may be off then is its ``margin``.

    Args:
        model: with one output and no batch dimensions; it stays as it is.
        X: where to compare, (k, d), as the model takes points; None for all points of the observations.
        max_reference: the most points of the reference.

    Raises:
        EmptyHistoryError: if there are no observations.
        InputError: if an argument does not fit.

    Cost: O(u r² + r³ + k r²) time and O(u r) memory for u distinct points and r of the reference, m <= r.
    """
    max_reference = checks.positive_integer("max_reference", max_reference)
    checks.instance("model", model, NystromGP, "a NystromGP: an exact posterior has no dictionary")
    if model.train_targets.dim() != 1:
        raise InputError("A dictionary has the quality of one posterior: give a model with one output and no batch.")
    if model.num_observations == 0:
        raise EmptyHistoryError("Nothing was learned that counts, so there is no dictionary to measure: tell first.")
    given = model.train_inputs[0]
    X = None if X is None else checks.listed_points("X", X, dimension=given.shape[-1], like=given)
    ours, seen = model.kept.strategy, model._points()
    U, places = distinct_in_order(seen.double())
    precision = torch.zeros_like(U[:, 0]).index_add(0, places, 1.0 / model._noise(seen).double())
    at = U if X is None else model._preprocess(X).double()
    known = ours.at(U)
    tolerance = max(_LEFT_OUT / float(precision @ known.prior), _ROUNDING)
    pivots = greedy_pivots(U, ours.kernel, max_reference, tolerance)
    exact, z = PredictionStrategy.nystrom(ours.kernel, U[pivots], U, 0.0 * precision, 1.0 / precision)
    left_out = float(precision @ (known.prior - z.square().sum(0)).clamp_min(0.0))
    return DictionaryQuality(
        size=len(model._dictionary()),
        num_points=len(U),
        effective_dimension=float(precision @ exact.variance(exact.at(U, z))),
        projection_error=_largest_difference(z * precision.sqrt(), known.inside * precision.sqrt()) + left_out,
        margin=_factor(left_out),
        points=at.to(seen),
        ratios=ours.variance(ours.at(at)) / exact.variance(exact.at(at)),
        learns_residual=model.learns_residual,
    )


def _factor(error: float) -> float:
    """Return 1 + (ρ + √(ρ² + 4ρ))/2."""
    return 1.0 + 0.5 * (error + math.sqrt(error * (error + 4.0)))


def _largest_difference(more: Tensor, less: Tensor) -> float:
    """Return the largest eigenvalue of GᵀG − HᵀH, at least 0, for G (r, u) and H (m, u). Cost: O(u (r + m)²).

    With S the rows of both and SSᵀ = CCᵀ it is that of CᵀJC, J the signs of the rows.
    """
    rows = torch.cat([more, less])
    values, vectors = torch.linalg.eigh(rows @ rows.mT)
    root = vectors * values.clamp_min(0.0).sqrt()
    signs = torch.cat([torch.ones_like(more[:, :1]), -torch.ones_like(less[:, :1])])
    return float(torch.linalg.eigvalsh(root.mT @ (signs * root))[-1].clamp_min(0.0))
