"""Greedy dictionaries, by what points leave of each other's variances; those drawn uniformly, or given."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from torch import Generator, Tensor

from torch_kbandits import checks
from torch_kbandits.dictionaries.base import DictionaryRule, PlayedPoints, Selection
from torch_kbandits.numerics.gram import gram, prior_variance
from torch_kbandits.posteriors.prediction import in_double

Array = NDArray[Any]

#: A conditional variance is known to no less than this share of the largest prior variance.
_EPS = 2.0**-52


class ConditionalVariances:
    """Variances (..., q) of points, given that some of them are observed one after another: pivoted Cholesky, by rows.

    Members of a batch observe the same points. Prior variances, (..., q), set the scale of rounding; covariances
    (..., q) before are those of the point of a number with all. Cost: O(q t) for an observation after t others.
    """

    def __init__(self, variance: Array, prior: Array, covariance: Callable[[int], Array]) -> None:
        self.variance, self.prior, self._covariance = variance, prior, covariance
        self._rows, self._number = np.empty((*variance.shape[:-1], 8, variance.shape[-1])), 0

    @classmethod
    def of(cls, points: Tensor, kernel: Kernel) -> "ConditionalVariances":
        """Return prior variances of points (..., q, d), of which none is observed, in double precision in any case."""
        points, kernel = points.double(), in_double(kernel)
        prior = host(prior_variance(kernel, points))
        return cls(prior, prior, lambda row: host(gram(kernel, points[..., [row], :], points).squeeze(-2)))

    def observe(self, place: int, noise: float = 0.0) -> None:
        """Observe the point of a number with a noise variance."""
        number = self._number
        if number == self._rows.shape[-2]:
            self._rows = np.concatenate((self._rows, np.empty_like(self._rows)), -2)
        known = self._rows[..., :number, :]
        left = self._covariance(place) - (known[..., place][..., None, :] @ known)[..., 0, :]
        spread = np.maximum(self.variance[..., place] + noise, _EPS * self.prior.max(-1))
        row = left / np.sqrt(np.where(spread > 0.0, spread, 1.0))[..., None]  # a kernel may vanish at all points
        self._rows[..., number, :], self._number = row, number + 1
        self.variance = np.maximum(self.variance - np.square(row), 0.0)


def host(values: Tensor) -> Array:
    """Return what PyTorch computed as an array in double precision."""
    return values.detach().double().cpu().numpy()


@dataclass(frozen=True)
class GreedyDictionary(DictionaryRule):
    """Add the point that the dictionary explains least, one after another: the maximal Schur complement.

    This is pivoted Cholesky, the greedy maximum of det K_ZZ. Deterministic: ties go to the point played first.

    Cost of a selection: O(u m²) time, O(u m) memory.
    """

    size: int  #: At most this many points.
    tolerance: float = 1e-10  #: It stops at Schur complements of this share of the prior.

    def __post_init__(self) -> None:
        checks.keep(self, size=checks.positive_integer, tolerance=checks.non_negative)

    def select(self, played: PlayedPoints, generator: Generator | None = None) -> Selection:
        """Choose the pivots; the generator is not used."""
        played.require_some()
        return Selection.rows(played, greedy_pivots(played.points, played.kernel, self.size, self.tolerance))


def greedy_pivots(points: Tensor, kernel: Kernel, size: int, tolerance: float) -> Tensor:
    """Return the rows (m,) of the greedy pivots of points (..., u, d) in the order chosen.

    Batch members share them, by the summed criterion. There are fewer than ``size`` if Schur complements fall to the
    tolerance, a share of the prior variance, first.
    """
    pivots: list[int] = []
    with torch.no_grad():
        left = ConditionalVariances.of(points, kernel)
        largest = left.prior.max(-1, initial=0.0, keepdims=True)
        scale = np.where(largest == 0.0, 1.0, largest)
        while len(pivots) < min(size, points.shape[-2]):
            criterion = (left.variance / scale).reshape(-1, points.shape[-2]).sum(0)
            criterion[pivots] = -1.0
            pivot = int(criterion.argmax())
            if pivots and criterion[pivot] <= tolerance:
                break
            pivots.append(pivot)
            left.observe(pivot)
    return torch.tensor(pivots, dtype=torch.long, device=points.device)


@dataclass(frozen=True)
class UniformDictionary(DictionaryRule):
    """Keep ``size`` of the played points, fewer while fewer were played, drawn uniformly: the others' baseline."""

    size: int

    def __post_init__(self) -> None:
        checks.keep(self, size=checks.positive_integer)

    def select(self, played: PlayedPoints, generator: Generator | None = None) -> Selection:
        """Draw the dictionary. Cost: O(u)."""
        played.require_some()
        m = min(self.size, played.size)
        order = torch.randperm(played.size, generator=generator, device="cpu")
        return Selection.rows(played, order[:m], m / played.size)


@dataclass(frozen=True, eq=False)
class FixedDictionary(DictionaryRule):
    """Use the given points always; they need not have been played."""

    points: Tensor  #: (m, d), m >= 1, as the kernel sees them: a time that they know and a context come first.

    def __post_init__(self) -> None:
        checks.keep(self, points=lambda name, given: checks.listed_points(name, given).cpu())

    def select(self, played: PlayedPoints, generator: Generator | None = None) -> Selection:
        """Return the given points; the generator is not used."""
        like = played.points
        points = checks.rows("the fixed dictionary", self.points.to(like.device), dimension=like.shape[-1], like=like)
        return Selection(points.expand(*like.shape[:-2], *points.shape), points.new_ones(len(points)), None)
