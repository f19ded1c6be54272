"""Problems given by a function: on a box, or of context and action."""

from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments.base import (
    ContextualEnvironment,
    Environment,
    Known,
    checked_rows,
    finite_rows,
    values_of,
)
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.random import generator_for


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
        self.function = _callable(function)
        self.bounds = checks.bounds(bounds)
        self.best_mean = self.bounds.new_tensor(checks.finite_number("best_mean", best_mean))

    def mean(self, X: Tensor) -> Tensor:
        """Return the expected rewards (q,) of points X (q, d) in the box."""
        X = checked_rows(X, self.bounds)
        lower, upper = self.bounds
        outside = (X.clamp(lower, upper) != X).any(1)
        if bool(outside.any()):
            raise InputError(f"Row(s) {outside.nonzero().flatten().tolist()} of X lie outside the box.")
        return values_of(self.function, X)


class ContextualFunction(ContextualEnvironment):
    """A function of context and action: contexts uniform in [0, 1]^c, the same finite actions in every round.

    Args:
        function: from joint points (q, c + a) to mean rewards (q,), without noise or randomness.
        context_dim: c.
        actions: (A, a).
        noise_scale: standard deviation of the noise, at least 0.
        seed: addresses contexts and noise.
        known: kernel, regularization, norm_bound and center: as in ``ContextualEnvironment``.

    Raises:
        InputError: on shapes, dtypes or values that do not fit, each named.
    """

    actions: Tensor

    def __init__(
        self,
        function: Callable[[Tensor], Tensor],
        context_dim: int,
        actions: Tensor,
        noise_scale: float,
        seed: int,
        **known: Unpack[Known],
    ) -> None:
        super().__init__(noise_scale, seed, **known)
        self.function = _callable(function)
        self.context_dim = checks.size("context_dim", context_dim)
        self.actions = finite_rows("actions", actions, "(A, a) with A >= 1")

    def context(self, round: int) -> Tensor:
        """Return the context (c,) of a round, uniform in the unit cube."""
        generator = generator_for(self.seed, round, "context")
        return torch.rand(self.context_dim, generator=generator, dtype=torch.float64, device="cpu").to(self.actions)

    def mean(self, X: Tensor, round: int = 0) -> Tensor:
        """Return the expected rewards (q,) of any joint points X (q, c + a), the same in every round."""
        return values_of(self.function, checked_rows(X, self.joint_points(self.actions[:1], 0)))


def _callable(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    if not callable(function):
        raise InputError(f"function must be callable, got {checks.describe(function)}.")
    return function
