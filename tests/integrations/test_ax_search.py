"""Kernel bandits in Ax beside random search, and memories where the function moves.

Beside random search, what is asked for was fixed before the first run: of ten seeds at least nine must do better at an
equal number of trials. If both were equally good that would happen with probability 11/1024, the false-alarm rate.
"""

import numpy as np
import pandas as pd
import pytest
from ax_clients import BRANIN, MIXED, RANDOM, UNIT, branin, client_of, play, validation_error
from problems import rbf

from torch_kbandits import Linear
from torch_kbandits.memory import Discount, Restart, SlidingWindow, UncertaintyInjection

SEEDS = range(10)


def random_best(problem, reward, trials, seed):
    rng = np.random.default_rng(1_000 + seed)
    return min(reward(**RANDOM[problem](rng)) for _ in range(trials))


@pytest.mark.slow
@pytest.mark.parametrize("problem", ["branin", "noisy branin in batches", "mixed"])
def test_functions_are_minimised_better_than_at_random(problem):
    parameters, reward, name = (MIXED, validation_error, "mixed") if problem == "mixed" else (BRANIN, branin, "branin")
    better = []
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        if problem == "noisy branin in batches":
            client = client_of(parameters, "-score", seed=seed, model="exact")
            tried, _ = play(client, lambda **p: (branin(**p) + 2.0 * rng.normal(), 2.0), 8, parallel=3)  # noqa: B023
        else:
            tried, _ = play(client_of(parameters, "-score", seed=seed), reward, 22 if problem == "branin" else 20)
        better.append(min(reward(**p) for p in tried) < random_best(name, reward, len(tried), seed))
    assert sum(better) >= 9, better


MEMORIES = {
    "window": SlidingWindow(10),
    "restart": Restart(12),
    "discount": Discount(0.8),
    "injection": UncertaintyInjection(Linear(0.03)),
}
FRESH_SEEDS = range(200, 208)


def lost_to_a_moving_peak(memory, seed):
    """The regret of 36 trials while a peak of height 1 goes 0.7 of the way; rewards have noise of deviation 0.1."""
    rng = np.random.default_rng(seed)
    start, is_flipped = rng.uniform(0.0, 0.3), rng.integers(2)
    client = client_of(
        UNIT,
        seed=seed,
        candidates=pd.DataFrame({"x": np.linspace(0.0, 1.0, 41)}),
        kernel=rbf(0.15, float(np.log(2.0))),
        regularization=0.01,
        memory=memory,
        initialization_trials=3,
    )
    lost = 0.0
    for t in range(36):
        peak = start + 0.02 * t
        peak = 1.0 - peak if is_flipped else peak
        for index, p in client.get_next_trials(1).items():
            reward = float(np.exp(-((p["x"] - peak) ** 2) / 0.02))
            client.complete_trial(index, {"score": reward - 0.5 + 0.1 * rng.normal()})
            lost += 1.0 - reward
    return lost


@pytest.mark.slow
def test_a_moving_optimum_is_followed():
    """What fades loses less than what keeps all for seven of eight seeds, and 0.85 in all; what drops, 0.95 in all.

    Fixed on the fourteen seeds 0 to 5 and 100 to 107, where seven of eight and 0.9 in all for all four were too much,
    and run once on these. Were fading as good as keeping all, seven of eight would happen with probability 9/256; the
    ratios of single seeds have a deviation of 0.1, so 0.95 in all would happen in about one of twelve runs.
    """
    static = np.array([lost_to_a_moving_peak(None, seed) for seed in FRESH_SEEDS])
    lost = {
        name: np.array([lost_to_a_moving_peak(memory, seed) for seed in FRESH_SEEDS])
        for name, memory in MEMORIES.items()
    }
    seen = {name: (int((each < static).sum()), each.sum() / static.sum()) for name, each in lost.items()}
    for name in ("discount", "injection"):
        assert seen[name][0] >= 7, seen
        assert seen[name][1] <= 0.85, seen
    for name in ("window", "restart"):
        assert seen[name][1] <= 0.95, seen
