"""What all problems with known means share."""

from collections.abc import Callable
from typing import TypedDict

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.numerics.random import generator_for

#: Returns the rewards (q,) of points X (q, d), given X, their means (q,) and the round.
Noise = Callable[[Tensor, Tensor, int], Tensor]


class Known(TypedDict, total=False):
    """What is known of a problem, for the algorithms that play it; see ``Environment`` for each."""

    kernel: Kernel | None
    regularization: float | None
    norm_bound: float | None
    center: float


class Problem:
    """What every bandit problem with known means has: rewards, and what it tells algorithms; see ``Environment``."""

    def __init__(
        self,
        noise_scale: float,
        seed: int,
        *,
        kernel: Kernel | None = None,
        regularization: float | None = None,
        norm_bound: float | None = None,
        center: float = 0.0,
        noise: Noise | None = None,
    ) -> None:
        if kernel is not None:
            checks.instance("kernel", kernel, Kernel, "a GPyTorch kernel")
        self.noise_scale = checks.non_negative("noise_scale", noise_scale)
        self.seed = checks.whole_number("seed", seed)
        self.kernel = kernel
        self.regularization = None if regularization is None else checks.positive("regularization", regularization)
        self.norm_bound = None if norm_bound is None else checks.non_negative("norm_bound", norm_bound)
        self.center = checks.finite_number("center", center)
        self._noise = noise

    def rewards(self, X: Tensor, means: Tensor, round: int) -> Tensor:
        """Return the rewards (q,) of points X (q, d) with means (q,) in a round."""
        if self._noise is not None:
            return self._noise(X, means, round)
        noise = torch.randn(
            len(means), generator=generator_for(self.seed, round, "noise"), dtype=torch.float64, device="cpu"
        )
        return means + self.noise_scale * noise.to(means)


def noiseless(X: Tensor, means: Tensor, round: int) -> Tensor:
    """Return the means: rewards without noise, whatever ``noise_scale`` algorithms are told."""
    return means
