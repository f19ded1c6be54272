"""What all problems with known means share."""

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.numerics.random import generator_for


class Problem:
    """What every bandit problem with known means has: noise with an address, and what it tells algorithms.

    Args:
        noise_scale: R, the noise scale to give to an algorithm, in reward units; for Gaussian noise its standard
            deviation. At least 0.
        seed: addresses the noise, by (seed, round): it does not depend on what is played or measured.
        kernel: the covariance that the problem was drawn from or that suits it, in reward units squared; None if
            unknown.
        regularization: λ, the noise variance for a surrogate, in reward units squared; None if unknown.
        norm_bound: B, the RKHS norm of the mean function under ``kernel``; None if unknown.
        center: constant to subtract from rewards before telling them to a model of prior mean zero.
    """

    def __init__(
        self,
        noise_scale: float,
        seed: int,
        *,
        kernel: Kernel | None = None,
        regularization: float | None = None,
        norm_bound: float | None = None,
        center: float = 0.0,
    ) -> None:
        if kernel is not None:
            checks.instance("kernel", kernel, Kernel, "a GPyTorch kernel")
        self.noise_scale = checks.non_negative("noise_scale", noise_scale)
        self.seed = checks.whole_number("seed", seed)
        self.kernel = kernel
        self.regularization = None if regularization is None else checks.positive("regularization", regularization)
        self.norm_bound = None if norm_bound is None else checks.non_negative("norm_bound", norm_bound)
        self.center = checks.finite_number("center", center)

    def with_noise(self, means: Tensor, round: int) -> Tensor:
        """Return means (q,) with the Gaussian noise of a round, of deviation ``noise_scale``."""
        noise = torch.randn(
            len(means), generator=generator_for(self.seed, round, "noise"), dtype=torch.float64, device="cpu"
        )
        return means + self.noise_scale * noise.to(means)
