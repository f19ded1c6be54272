"""The best arm that stays, beside which a table of regrets can be read; and the expert of a run."""

from typing import Any, cast

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments import AnyEnvironment, DynamicEnvironment, Environment
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.random import generator_for


class EnvironmentExpert:
    """Answers with the current mean rewards of a problem that changes, less its centre, with Gaussian noise.

    The noise is independent of that of the rewards and, without ``noise_scale`` in reward units, as large. A round r of
    the bandit, of so many rewards as a batch has, begins at the environment's round r · batch.
    """

    def __init__(self, environment: AnyEnvironment, noise_scale: Any = None, batch: Any = 1) -> None:
        kinds = "a problem that changes with time, such as moving-peak, where an expert is asked"
        checks.instance("environment", environment, DynamicEnvironment, kinds)
        self.environment = cast(DynamicEnvironment, environment)
        self.batch = checks.positive_integer("batch, where an expert is asked,", batch)
        noise_scale = environment.noise_scale if noise_scale is None else noise_scale
        self.noise_scale = checks.non_negative("expert", noise_scale)

    def __call__(self, X: Tensor, time: float) -> tuple[Tensor, float]:
        """Return values (Q,) at arms X (Q, d) in a round of the bandit, and the variance of their noise."""
        round = int(time) * self.batch
        generator = generator_for(self.environment.seed, round, "expert")
        noise = torch.randn(len(X), generator=generator, dtype=torch.float64, device="cpu").to(X)
        values = self.environment.mean(X, round) - self.environment.center
        return values + self.noise_scale * noise, self.noise_scale**2


class BestFixed:
    """Plays the one arm, or action, whose mean reward over all T rounds is the largest: the best that stays.

    It is told the means, so it is no algorithm: one without less regret has learned nothing that one good arm would not
    have given. On a box, or where actions differ by round, ``InputError``. Cost: all means in all rounds, once.
    """

    def __init__(self, *, environment: AnyEnvironment, horizon: int) -> None:
        fixed = environment.arms if isinstance(environment, Environment | DynamicEnvironment) else environment.actions
        if fixed is None:
            raise InputError("There is no best fixed arm: the environment is a box, or its rounds bring their own.")
        if isinstance(environment, Environment):
            total = environment.mean(fixed)
        else:
            total = torch.as_tensor(sum(environment.means_of_round(round) for round in range(horizon)))
        self.arm = fixed[int(total.argmax()), None].clone()

    def ask(self, context: Tensor | None = None) -> Tensor:
        """Return the arm, (1, d)."""
        return self.arm

    def tell(self, x: Tensor, y: Tensor, context: Tensor | None = None) -> None:
        """Learn nothing."""

    recommend = ask
