"""The kernel on time of TV-GP-UCB."""

import math
from typing import Any, cast

import numpy as np
import torch
from botorch.exceptions.errors import UnsupportedError
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.nn import Parameter

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.kernels.hyperparameters import bounded, exact_value
from torch_kbandits.kernels.times import check_times
from torch_kbandits.loops.kernel_loops import EXPONENTIAL
from torch_kbandits.numerics.formulas import Terms, formula_of, of_distance
from torch_kbandits.numerics.waves import wave_frequencies

#: Largest ε that a fit tries by default: at 1 the kernel has no gradient. A number of every dtype.
_LARGEST = 1.0 - 2.0**-20


class ForgettingKernel(Kernel):
    """(1 − ε)^(|t − t'| / 2) on one column of time: what was seen counts less as time goes by.

    Times a spatial kernel it is the prior of TV-GP-UCB, a function of which each unit of time replaces a share ε::

        ForgettingKernel(0.03, active_dims=(2,)) * MaternKernel(active_dims=(0, 1))

    Source: Bogunovic, Scarlett and Cevher, AISTATS 2016, §2.2; times need not be whole numbers.

    ε is learned with the other hyperparameters; ``requires_grad_(False)`` fixes it. Gradients with respect to times
    exist where two times agree too, and are 0 there.

    Args:
        forgetting: ε in [0, 1); 0 is a constant function of time, exactly. Kept in double precision until ``.to`` or a
            model casts it.
        forgetting_constraint: of ε; by default a bound just below 1, which ``fit_gpytorch_mll`` keeps and ε = 0
            may meet. A loop of your own over an optimiser needs ``Interval(0.0, 1.0)``, which maps to the inside.
        kwargs: of every GPyTorch kernel: ``active_dims``, ``batch_shape``.

    Raises:
        InputError: if ε is not in [0, 1).

    Cost: O(n m) for n times against m.
    """

    def __init__(
        self, forgetting: float | Tensor = 0.1, forgetting_constraint: Interval | None = None, **kwargs: Any
    ) -> None:
        checks.absent_or("forgetting_constraint", forgetting_constraint, Interval, "a GPyTorch constraint")
        super().__init__(**kwargs)
        raw = torch.zeros(*self.batch_shape, 1, 1, dtype=torch.float64)
        self.register_parameter("raw_forgetting", Parameter(raw))
        self.register_constraint("raw_forgetting", forgetting_constraint or bounded(0.0, _LARGEST))
        self.forgetting = forgetting

    raw_forgetting: Parameter
    raw_forgetting_constraint: Interval

    @property
    def forgetting(self) -> Tensor:
        """ε (..., 1, 1)."""
        return self.raw_forgetting_constraint.transform(self.raw_forgetting)

    @forgetting.setter
    def forgetting(self, value: float | Tensor) -> None:
        exact = exact_value("forgetting", value, self.raw_forgetting)
        _check(exact)
        self.initialize(raw_forgetting=self.raw_forgetting_constraint.inverse_transform(exact))

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return the covariance of times x1 (..., n, 1) and x2 (..., m, 1), (..., n, m), or (..., n) with ``diag``.

        Raises:
            InputError: if there is more than one column, times in single precision are too large for it, or an
                optimiser took ε out of [0, 1).
        """
        check_times(x1, x2)
        forgetting = self.forgetting
        _check(forgetting)
        rate = torch.log1p(-forgetting).to(x1) / 2.0
        if diag:
            return (rate.squeeze(-1) * (x1 - x2).squeeze(-1).abs()).exp()
        return (rate * (x1 - x2.mT).abs()).exp()


@wave_frequencies.register
def _frequencies(kernel: ForgettingKernel, dimension: int, number: int, generator: torch.Generator) -> Tensor:
    """Draw from a Cauchy distribution of scale −½ ln(1 − ε), the density of an exponential."""
    if type(kernel) is not ForgettingKernel:  # a subclass may be another function
        raise UnsupportedError(f"There are no random Fourier features of {type(kernel).__name__}.")
    turns = torch.rand(number, generator=generator, dtype=torch.float64, device="cpu") - 0.5
    frequencies = torch.zeros(dimension, number, dtype=torch.float64, device="cpu")
    frequencies[0 if kernel.active_dims is None else int(cast(Tensor, kernel.active_dims))] = torch.tan(
        torch.pi * turns
    ) * (-0.5 * torch.log1p(-kernel.forgetting.squeeze()))
    return frequencies


@formula_of.register
def _formula(kernel: ForgettingKernel, columns: np.ndarray, dimension: int) -> Terms:
    """Return it as an exponential of distances in time."""
    forgetting = float(kernel.forgetting)
    if type(kernel) is not ForgettingKernel or len(columns) != 1 or not 0.0 <= forgetting < 1.0:
        return None
    return of_distance(EXPONENTIAL, -0.5 * math.log1p(-forgetting), columns, dimension)


def _check(forgetting: Tensor) -> None:
    if not bool(((forgetting >= 0.0) & (forgetting < 1.0)).all()):
        raise InputError(
            f"forgetting must be at least 0 and below 1, got {forgetting.flatten().tolist()}. If an optimiser went "
            "there, give forgetting_constraint=Interval(0.0, 1.0)."
        )
