"""What an environment is."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from torch_kbandits.environments.problem import Problem
from torch_kbandits.errors import NumericalError


class Environment(Problem, ABC):
    """A bandit problem whose mean rewards are known, so that regret is measured without noise.

    Exactly one of ``arms`` and ``bounds`` is not None: what may be played. The noise of a round has an address,
    (seed, round), so it does not depend on what is played or measured.

    Attributes:
        arms: (A, d), or None on a box.
        bounds: (2, d), lower then upper, or None on arms.
        best_mean: the largest mean reward, 0-dim; on a box the known optimum.

    Args:
        noise_scale: R, the noise scale to give to an algorithm, in reward units; for Gaussian noise its standard
            deviation. At least 0.
        seed: addresses the noise.
        kernel: the covariance that the problem was drawn from or that suits it, in reward units squared; None if
            unknown.
        regularization: λ, the noise variance for a surrogate, in reward units squared; None if unknown.
        norm_bound: B, the RKHS norm of the mean function under ``kernel``; None if unknown.
        center: constant to subtract from rewards before telling them to a model of prior mean zero.
        noise: returns the rewards (q,), given X (q, d), their means (q,) and the round, its randomness addressed by
            seed and round; None: Gaussian noise of deviation ``noise_scale`` is added to the means.
    """

    arms: Tensor | None = None
    bounds: Tensor | None = None
    best_mean: Tensor

    @abstractmethod
    def mean(self, X: Tensor) -> Tensor:
        """Return the mean rewards (q,) of X (q, d), without noise.

        Raises:
            InputError: if a row cannot be played.
        """

    def pull(self, X: Tensor, round: int) -> Tensor:
        """Return noisy rewards (q,) of X (q, d) in a round."""
        return self.rewards(X, self.mean(X), round)

    def regret(self, X: Tensor) -> Tensor:
        """Return the pseudo-regrets (q,) >= 0 of X (q, d): from means, without randomness.

        Raises:
            NumericalError: if a mean exceeds ``best_mean`` by more than rounding: then that is not the largest.
        """
        regret = self.best_mean - self.mean(X)
        rounding = 1e-8 if regret.dtype == torch.float64 else 1e-4
        if bool((regret < -rounding * (1.0 + abs(self.best_mean))).any()):
            raise NumericalError(
                f"best_mean {float(self.best_mean):.10g} is not the maximum: row {int(regret.argmin())} of X has mean "
                f"{float(self.best_mean - regret.min()):.10g}."
            )
        return regret.clamp_min(0.0)
