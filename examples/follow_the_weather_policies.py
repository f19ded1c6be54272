"""Ways to choose what to prepare for, for ``follow_the_weather.py``; settings that have a choice were made on 2012."""

from collections.abc import Callable
from typing import Any

import torch
from gpytorch.kernels import RBFKernel

from torch_kbandits import Bandit, ContextualActions, algorithms
from torch_kbandits.environments import SeattleWeather

#: The multiplier of σ of all bandits.
BETA = 2.0
#: w, in days: the best of 10, 20, 40, 80 and 160.
WINDOW = 80
#: The variance that an observation's noise gains in a day: the best of 0.0005, 0.001, 0.002, 0.005, 0.01 and 0.02.
GROWTH = 0.001
#: Lengthscale of yesterday's temperature in °C, and λ, of the bandit that is told it: the best of 8, 12 and 18, and of
#: 0.003, 0.01 and 0.03.
CONTEXT_LENGTHSCALE = 12.0
CONTEXT_REGULARIZATION = 0.01

STATIC, FADING = "IGP-UCB, forgets nothing", "UI-GP-UCB, memory that fades"


def static(seed: int, problem: SeattleWeather) -> Bandit:
    """Return IGP-UCB, which forgets nothing."""
    return algorithms.IGPUCB(**_words(seed, problem))


def window(seed: int, problem: SeattleWeather, size: float = WINDOW) -> Bandit:
    """Return SW-GP-UCB, which knows the last days."""
    return algorithms.SWGPUCB(window=size, **_words(seed, problem))


def fading(seed: int, problem: SeattleWeather, growth: float = GROWTH) -> Bandit:
    """Return UI-GP-UCB, in whose memory what is old counts less and less."""
    return algorithms.UIGPUCB(growth=growth, **_words(seed, problem))


def triggered(seed: int, problem: SeattleWeather) -> Bandit:
    """Return ET-GP-UCB, which starts anew when a reward surprises it, and needs no rate of change."""
    return algorithms.ETGPUCB(noise_scale=problem.noise_scale, **_words(seed, problem))


def with_context(
    seed: int,
    problem: SeattleWeather,
    lengthscale: float = CONTEXT_LENGTHSCALE,
    regularization: float = CONTEXT_REGULARIZATION,
) -> Bandit:
    """Return BKB on yesterday's maximum and what is prepared for: it forgets nothing and sees what moves."""
    kernel = RBFKernel(ard_num_dims=2).double()
    kernel.lengthscale = torch.tensor([[lengthscale, 5.0]], dtype=torch.float64)
    return algorithms.CBKB(
        candidates=ContextualActions(problem.arms, context_dim=1),
        kernel=kernel,
        regularization=regularization,
        beta=BETA,
        seed=seed,
    )


POLICIES: dict[str, Callable[[int, SeattleWeather], Bandit]] = {
    STATIC: static,
    f"SW-GP-UCB, last {WINDOW} days": window,
    FADING: fading,
    "ET-GP-UCB, rate unknown": triggered,
    "BKB told yesterday's maximum": with_context,
}

#: What was tried on 2012 for those that have a setting.
TRIED: dict[str, Callable[[int, SeattleWeather], Bandit]] = (
    {f"window {size}": lambda seed, problem, size=size: window(seed, problem, size) for size in (10, 20, 40, 80, 160)}
    | {
        f"growth {growth:g}": lambda seed, problem, growth=growth: fading(seed, problem, growth)
        for growth in (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02)
    }
    | {
        f"context {length:g} °C, λ {level:g}": lambda seed, problem, length=length, level=level: with_context(
            seed, problem, length, level
        )
        for length in (8.0, 12.0, 18.0)
        for level in (0.003, 0.01, 0.03)
    }
)


def _words(seed: int, problem: SeattleWeather) -> dict[str, Any]:
    return {
        "candidates": problem.arms,
        "kernel": problem.kernel,
        "regularization": problem.regularization,
        "beta": BETA,
        "seed": seed,
    }
