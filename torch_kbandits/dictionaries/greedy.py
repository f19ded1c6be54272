"""Greedy dictionaries, by what points leave of each other's variances; those drawn uniformly, or given."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.dictionaries.base import DictionaryRule, PlayedPoints, Selection
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.gram import gram, prior_variance

Array = NDArray[Any]

#: A conditional variance is known to no less than this share of the largest prior variance.
_EPS = 2.0**-52


class ConditionalVariances:
    """Variances (..., q) of points, given that some of them are observed one after another: pivoted Cholesky, by rows.

    Leading dimensions are batch dimensions, whose members observe the same points.

    Prior variances, (..., q), set the scale of rounding; covariances (..., q) before are those of the point of a number
    with all. Cost: O(q t) for an observation after t others, O(q t) memory.
    """

    def __init__(self, variance: Array, prior: Array, covariance: Callable[[int], Array]) -> None:
        self.variance, self.prior, self._covariance = variance, prior, covariance
        self._rows, self._number = np.empty((*variance.shape[:-1], 8, variance.shape[-1])), 0

    @classmethod
    def of(cls, points: Tensor, kernel: Kernel) -> "ConditionalVariances":
        """Return prior variances of points (..., q, d), of which none is observed, in double precision in any case."""
        if points.dtype != torch.float64:
            points, kernel = points.double(), deepcopy(kernel).double()
        prior = host(prior_variance(kernel, points))

        def covariance(row: int) -> Array:
            return host(gram(kernel, points[..., [row], :], points).squeeze(-2))

        return cls(prior, prior, covariance)

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

    Args:
        size: at most this many points.
        tolerance: stop when no point's Schur complement exceeds this fraction of the largest prior variance.

    Cost of a selection: O(u m²) time, O(u m) memory.
    """

    size: int
    tolerance: float = 1e-10

    def __post_init__(self) -> None:
        checks.keep(self, size=checks.positive_integer, tolerance=checks.non_negative)

    def select(self, played: PlayedPoints, generator: torch.Generator | None = None) -> Selection:
        """Choose up to ``size`` points; the generator is not used."""
        played.require_some()
        return Selection.rows(played, greedy_pivots(played, self.size, self.tolerance))

    def select_sized(self, played: PlayedPoints, size: int, generator: torch.Generator | None = None) -> Selection:
        """Choose exactly ``size`` points, also after the Schur complements have vanished."""
        played.require_some()
        return Selection.rows(played, greedy_pivots(played, size, tolerance=None))


def greedy_pivots(played: PlayedPoints, size: int, tolerance: float | None) -> Tensor:
    """Return the rows (m,) of the greedy pivots in the order chosen; batch members share them, by the summed criterion.

    There are fewer than ``size`` if Schur complements fall to the tolerance, a share of the prior variance, first.
    """
    pivots: list[int] = []
    with torch.no_grad():
        left = ConditionalVariances.of(played.points, played.kernel)
        largest = left.prior.max(-1, initial=0.0, keepdims=True)
        scale = np.where(largest == 0.0, 1.0, largest)
        while len(pivots) < min(size, played.size):
            criterion = (left.variance / scale).reshape(-1, played.size).sum(0)
            criterion[pivots] = -1.0
            pivot = int(criterion.argmax())
            if pivots and tolerance is not None and criterion[pivot] <= tolerance:
                break
            pivots.append(pivot)
            left.observe(pivot)
    return torch.tensor(pivots, dtype=torch.long, device=played.points.device)


@dataclass(frozen=True)
class UniformDictionary(DictionaryRule):
    """Keep ``size`` of the played points, fewer while fewer were played, drawn uniformly: the others' baseline."""

    size: int

    def __post_init__(self) -> None:
        checks.keep(self, size=checks.positive_integer)

    def select(self, played: PlayedPoints, generator: torch.Generator | None = None) -> Selection:
        """Draw the dictionary; see ``DictionaryRule.select``. Cost: O(u)."""
        return self.select_sized(played, self.size, generator)

    def select_sized(self, played: PlayedPoints, size: int, generator: torch.Generator | None = None) -> Selection:
        """Draw ``size`` points."""
        played.require_some()
        m = min(size, played.size)
        chosen = torch.randperm(played.size, generator=generator, device="cpu")[:m]
        return Selection.rows(played, chosen, played.points.new_full((m,), m / played.size))


@dataclass(frozen=True, eq=False)
class FixedDictionary(DictionaryRule):
    """Use the given points always; they need not have been played.

    Args:
        points: (m, d), m >= 1, as the kernel sees them: a time that they know and a context come first.
    """

    points: Tensor

    def __post_init__(self) -> None:
        checks.keep(self, points=lambda name, given: checks.points(name, given).cpu())
        if self.points.dim() != 2 or len(self.points) == 0:
            raise InputError(f"points must be (m, d) with m >= 1, got {checks.describe(self.points)}.")

    def select(self, played: PlayedPoints, generator: torch.Generator | None = None) -> Selection:
        """Return the given points; the generator is not used."""
        points, like = self.points.to(played.points.device), played.points
        points = checks.rows("the fixed dictionary", points, dimension=like.shape[-1], like=like)
        points = points.expand(*like.shape[:-2], *points.shape)
        return Selection(points, points.new_ones(len(self.points)), None)

    def select_sized(self, played: PlayedPoints, size: int, generator: torch.Generator | None = None) -> Selection:
        """Return the given points, of which there must be ``size``."""
        if size != len(self.points):
            raise InputError(f"The fixed dictionary has {len(self.points)} points and {size} were asked for.")
        return self.select(played, generator)
