"""Joint points in the coordinates of a posterior."""

from functools import cached_property
from typing import NamedTuple, cast

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from torch import Tensor

from torch_kbandits.beliefs import embedded_loops
from torch_kbandits.numerics.compiled import runs_compiled
from torch_kbandits.numerics.formulas import known_formula
from torch_kbandits.numerics.gram import as_array, gram, prior_variance
from torch_kbandits.numerics.linalg import require_rounding
from torch_kbandits.numerics.places import beside
from torch_kbandits.posteriors.dtc import embed
from torch_kbandits.posteriors.online_dtc import OnlineDTC

Array = NDArray[np.float64]

#: More points than this are embedded by PyTorch, whose products have threads.
MOST_LOOPED = 1024

_NO_FORMULA = np.zeros((0, 0))


class Arrays(NamedTuple):
    """What a loop finds of points: see ``embedded_loops.embedded``."""

    values: Array
    prior: Array
    rows: Array
    spanned: Array
    learned: Array
    variance: Array


class Embedded:
    """Points as a posterior over joint points sees them.

    Args:
        points: (k, d).
        known: their coordinates, prior variances and kernel values, where PyTorch computed these; see below.
        arrays: the same, with means and variances, where a loop did.
        worst: the lowest variance as a share of the prior one, at most 0, of which rounding was cleared.
    """

    def __init__(
        self,
        points: Tensor,
        known: tuple[Tensor, Tensor, Tensor] | None,
        arrays: Arrays | None = None,
        worst: float = 0.0,
    ) -> None:
        self.points, self._known, self.arrays, self._worst = points, known, arrays, worst

    @classmethod
    def of(cls, X: Tensor, spanning: Tensor, kernel: Kernel, dtc: OnlineDTC) -> "Embedded":
        """Return points (k, d) in the coordinates of spanning points (m, d), those of the posterior.

        Cost: O(k m d + k m²).
        """
        if X.shape[0] <= MOST_LOOPED and runs_compiled(X, spanning, dtc.moment):
            return cls._quickly(X, spanning, kernel, dtc)
        with torch.no_grad():
            prior = beside(prior_variance(kernel, X), dtc.moment).double()
            values = dtc.moment.new_empty(dtc.size, X.shape[0])
            if dtc.size:
                values = beside(gram(kernel, spanning, X), dtc.moment).double()
        return cls(X, (embed(dtc.factor, values), prior, values))

    @classmethod
    def _quickly(cls, X: Tensor, spanning: Tensor, kernel: Kernel, dtc: OnlineDTC) -> "Embedded":
        """Return the same by a loop, with means and variances, which cost less than to ask for them."""
        formula, values, prior = known_formula(kernel, X.shape[1]), embedded_loops.NOTHING, embedded_loops.NONE
        if formula is None:
            formula, prior = _NO_FORMULA, as_array(prior_variance(kernel, X))
            values = as_array(gram(kernel, X, spanning)) if dtc.size else np.zeros((len(X), 0))
        *parts, worst = embedded_loops.embedded(
            formula,
            as_array(X),
            as_array(spanning),
            X.dtype == torch.float32,
            values,
            prior,
            dtc.factor_rows,
            *dtc.tracked_inverse.arrays,
            dtc.weights.numpy(),
            dtc.arrays[2],
        )
        return cls(X, None, Arrays(*parts), worst)

    @cached_property
    def coordinates(self) -> Tensor:
        """L⁻¹ times their kernel values with the m points that the posterior stands on, (m, k)."""
        return self._known[0] if self._known is not None else torch.from_numpy(self._found.rows).mT

    @cached_property
    def prior_variance(self) -> Tensor:
        """Their prior variances, (k,)."""
        return self._known[1] if self._known is not None else torch.from_numpy(self._found.prior)

    @cached_property
    def values(self) -> Tensor:
        """Their kernel values with the points that the posterior stands on, (m, k)."""
        return self._known[2] if self._known is not None else torch.from_numpy(self._found.values).mT

    @cached_property
    def spanned(self) -> Tensor | None:
        """What the dictionary spans of their prior variances, (k,), if it is known already."""
        return None if self.arrays is None else torch.from_numpy(self.arrays.spanned)

    @cached_property
    def learned(self) -> Tensor | None:
        """Posterior means less the prior ones, (k,), if they are known already."""
        return None if self.arrays is None else torch.from_numpy(self.arrays.learned)

    @cached_property
    def variance(self) -> Tensor | None:
        """Posterior variances, (k,), likewise; none is negative.

        Raises:
            NumericalError: if one was beyond rounding.
        """
        if self.arrays is None:
            return None
        if self._worst < 0.0:
            require_rounding(self._worst, self.points.dtype)
        return torch.from_numpy(self.arrays.variance)

    def column(self, number: int, point: Tensor) -> "Embedded":
        """Return one of the points alone, which is given, (1, d)."""
        one = slice(number, number + 1)
        if self.arrays is None:
            known = self.coordinates[:, one], self.prior_variance[one], self.values[:, one]
            return Embedded(point, known)
        return Embedded(point, None, Arrays(*(part[one] for part in self.arrays)), self._worst)

    def renamed(self, points: Tensor) -> "Embedded":
        """Return the same of equal points (k, d), another object."""
        return Embedded(points, self._known, self.arrays, self._worst)

    @property
    def _found(self) -> Arrays:
        return cast(Arrays, self.arrays)
