"""Problems with contexts and a known function."""

from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments.contextual import ContextualEnvironment
from torch_kbandits.environments.problem import Known
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.random import generator_for


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
        if not callable(function):
            raise InputError(f"function must be callable, got {checks.describe(function)}.")
        self.function = function
        self.context_dim = checks.positive_integer("context_dim", context_dim)
        self.actions = actions = checks.points("actions", actions)
        if actions.dim() != 2 or len(actions) == 0:
            raise InputError(f"actions must be (A, a) with A >= 1, got {checks.describe(actions)}.")

    def context(self, round: int) -> Tensor:
        """Return the context (c,) of a round, uniform in the unit cube."""
        generator = generator_for(self.seed, round, "context")
        return torch.rand(self.context_dim, generator=generator, dtype=torch.float64, device="cpu").to(self.actions)

    def mean(self, X: Tensor, round: int = 0) -> Tensor:
        """Return the expected rewards (q,) of joint points X (q, c + a), the same in every round.

        X need not have the context of the round, nor an action of the set.

        Raises:
            InputError: if X does not fit, or the function does not return a finite (q,).
        """
        self.check_joint_points(X, self.actions)
        with torch.no_grad():
            means = self.function(X)
        if not isinstance(means, Tensor) or means.shape != X.shape[:1]:
            raise InputError(f"function must return one number a row, ({len(X)},); got {checks.describe(means)}.")
        return checks.finite("the function's values", means)
