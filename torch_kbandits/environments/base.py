"""What an environment is."""

from abc import ABC, abstractmethod

from torch import Tensor

from torch_kbandits.environments.problem import Problem


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
        """Return noisy rewards (q,) of X (q, d) in a round; here with Gaussian noise of deviation ``noise_scale``."""
        return self.with_noise(self.mean(X), round)

    def regret(self, X: Tensor) -> Tensor:
        """Return the pseudo-regrets (q,) >= 0 of X (q, d): from means, without randomness."""
        return self.best_mean - self.mean(X)
