"""The expert of a run: the environment's own mean rewards of the present, with noise."""

from typing import Any

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments import DynamicEnvironment
from torch_kbandits.numerics.random import generator_for


class EnvironmentExpert:
    """Answers with the present mean rewards of a problem that changes, less its centre, with Gaussian noise.

    The noise has an address, (seed, round), and is independent of that of the rewards.

    Args:
        environment: what is played.
        noise_scale: standard deviation of the noise, at least 0, in reward units.
        batch: rewards told in a round of the bandit; its round r begins at the environment's round r · batch.

    Raises:
        InputError: if the noise scale is not a number of at least 0.
    """

    def __init__(self, environment: DynamicEnvironment, noise_scale: Any, batch: int = 1) -> None:
        self.environment, self.batch = environment, batch
        self.noise_scale = checks.non_negative("expert", noise_scale)

    def __call__(self, X: Tensor, time: float) -> tuple[Tensor, float]:
        """Return values (Q,) at arms X (Q, d) in a round of the bandit, and the variance of their noise."""
        round = int(time) * self.batch
        generator = generator_for(self.environment.seed, round, "expert")
        noise = torch.randn(len(X), generator=generator, dtype=torch.float64, device="cpu").to(X)
        values = self.environment.mean(X, round) - self.environment.center
        return values + self.noise_scale * noise, self.noise_scale**2
