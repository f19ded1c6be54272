"""Joint points in the coordinates of a posterior."""

from typing import NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.beliefs import embedded_loops
from torch_kbandits.numerics.compiled import runs_compiled
from torch_kbandits.numerics.formulas import known_formula
from torch_kbandits.numerics.gram import as_array, gram, prior_variance
from torch_kbandits.posteriors.dtc import embed
from torch_kbandits.posteriors.online_dtc import OnlineDTC
from torch_kbandits.posteriors.squares import as_rows

#: More points than this are embedded by PyTorch, whose products have threads.
_FEW = 1024

_NO_FORMULA, _NOTHING, _NONE = np.zeros((0, 0)), np.zeros((0, 0)), np.zeros(0)


class Embedded(NamedTuple):
    """Points as a posterior over joint points sees them.

    Attributes:
        points: (k, d).
        coordinates: L⁻¹ times their kernel values with the m points that the posterior stands on, (m, k).
        prior_variance: (k,).
        values: these kernel values, (m, k).
        learned: posterior means less the prior ones, (k,), if they are known already.
        variance: posterior variances, (k,), likewise; rounding may have made them slightly negative.
    """

    points: Tensor
    coordinates: Tensor
    prior_variance: Tensor
    values: Tensor
    learned: Tensor | None = None
    variance: Tensor | None = None

    @classmethod
    def of(cls, X: Tensor, spanning: Tensor, kernel: Kernel, dtc: OnlineDTC) -> "Embedded":
        """Return points (k, d) in the coordinates of spanning points (m, d), those of the posterior.

        Cost: O(k m d + k m²).
        """
        if X.shape[0] <= _FEW and runs_compiled(X, spanning, dtc.moment):
            return cls._quickly(X, spanning, kernel, dtc)
        with torch.no_grad():
            prior, values = prior_variance(kernel, X).double(), dtc.moment.new_empty(dtc.size, X.shape[0])
            if dtc.size:
                values = gram(kernel, spanning, X).double()
        return cls(X, embed(dtc.factor, values), prior, values)

    @classmethod
    def _quickly(cls, X: Tensor, spanning: Tensor, kernel: Kernel, dtc: OnlineDTC) -> "Embedded":
        """Return the same by a loop, with means and variances, which cost less than to ask for them."""
        formula, values, prior = known_formula(kernel, X.shape[1]), _NOTHING, _NONE
        if formula is None:
            formula, prior = _NO_FORMULA, as_array(prior_variance(kernel, X))
            values = as_array(gram(kernel, X, spanning)) if dtc.size else np.zeros((len(X), 0))
        parts = embedded_loops.embedded(
            formula,
            as_array(X),
            as_array(spanning),
            X.dtype == torch.float32,
            values,
            prior,
            as_rows(dtc.factor),
            *dtc.tracked_inverse.arrays,
            dtc.weights.numpy(),
        )
        values, prior, coordinates, learned, variance = map(torch.from_numpy, parts)
        return cls(X, coordinates.mT, prior, values.mT, learned, variance)

    def column(self, number: int) -> "Embedded":
        """Return one of the points alone."""
        one = slice(number, number + 1)
        learned = None if self.learned is None else self.learned[one]
        variance = None if self.variance is None else self.variance[one]
        return Embedded(
            self.points[one],
            self.coordinates[:, one],
            self.prior_variance[one],
            self.values[:, one],
            learned,
            variance,
        )
