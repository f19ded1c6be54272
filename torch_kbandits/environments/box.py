"""Problems on boxes."""

from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments.base import Environment
from torch_kbandits.environments.problem import Known
from torch_kbandits.errors import InputError


class BoxFunction(Environment):
    """A function on a box with Gaussian noise; regret is measured against its known maximum.

    Args:
        function: from points (q, d) in the box to mean rewards (q,), without noise or randomness.
        bounds: (2, d), lower then upper.
        best_mean: the maximum of the function over the box, in reward units.
        noise_scale: standard deviation of the noise, at least 0.
        seed: addresses the noise.
        known: kernel, regularization, norm_bound and center: as in ``Environment``.

    Raises:
        InputError: on shapes, dtypes or values that do not fit, each named.
    """

    bounds: Tensor

    def __init__(
        self,
        function: Callable[[Tensor], Tensor],
        bounds: Tensor,
        best_mean: float,
        noise_scale: float,
        seed: int,
        **known: Unpack[Known],
    ) -> None:
        super().__init__(noise_scale, seed, **known)
        if not callable(function):
            raise InputError(f"function must be callable, got {checks.describe(function)}.")
        self.function = function
        self.bounds = checks.bounds(bounds)
        self.best_mean = self.bounds.new_tensor(checks.finite_number("best_mean", best_mean))

    def mean(self, X: Tensor) -> Tensor:
        """Return the expected rewards (q,) of points X (q, d) in the box.

        Raises:
            InputError: if a row lies outside the box, or the function does not return a finite (q,).
        """
        X = checks.points("X", X, dimension=self.bounds.shape[1], like=self.bounds)
        if X.dim() != 2:
            raise InputError(f"X must have shape (q, {self.bounds.shape[1]}), got {checks.describe(X)}.")
        lower, upper = self.bounds
        outside = (X.clamp(lower, upper) != X).any(1)
        if bool(outside.any()):
            raise InputError(f"Row(s) {outside.nonzero().flatten().tolist()} of X lie outside the box.")
        with torch.no_grad():
            means = self.function(X)
        if not isinstance(means, Tensor) or means.shape != X.shape[:1]:
            raise InputError(f"function must return one number a row, ({len(X)},); got {checks.describe(means)}.")
        return checks.finite("the function's values", means)
