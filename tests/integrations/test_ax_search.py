"""Kernel bandits in Ax beside random search, and memories where the function moves.

Beside random search, what is asked for was fixed before the first run: of ten seeds at least nine must do better at an
equal number of trials. If both were equally good that would happen with probability 11/1024, the false-alarm rate.
"""

import numpy as np
import pandas as pd
import pytest
from ax_clients import BRANIN, MIXED, RANDOM, UNIT, branin, client_of, play, validation_error
from gpytorch.kernels import RBFKernel, ScaleKernel
from problems import exactly

from torch_kbandits import Linear
from torch_kbandits.memory import Discount, Restart, SlidingWindow, UncertaintyInjection

SEEDS = range(10)


def random_best(problem, reward, trials, seed):
    rng = np.random.default_rng(1_000 + seed)
    return min(reward(**RANDOM[problem](rng)) for _ in range(trials))


@pytest.mark.slow
def test_branin_is_minimised_better_than_at_random():
    better = []
    for seed in SEEDS:
        _, seen = play(client_of(BRANIN, "-score", seed=seed), branin, 22)
        better.append(min(seen) < random_best("branin", branin, 22, seed))
    assert sum(better) >= 9, better


@pytest.mark.slow
def test_noisy_branin_is_minimised_better_than_at_random_in_batches():
    better = []
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        client = client_of(BRANIN, "-score", seed=seed, model="exact")
        tried, _ = play(client, lambda **p: (branin(**p) + 2.0 * rng.normal(), 2.0), 8, parallel=3)  # noqa: B023
        better.append(min(branin(**p) for p in tried) < random_best("branin", branin, 24, seed))
    assert sum(better) >= 9, better


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Optimization failed in .gen_candidates_scipy:RuntimeWarning")  # BoTorch tries again
def test_a_mixed_space_is_searched_better_than_at_random():
    better = []
    for seed in SEEDS:
        _, seen = play(client_of(MIXED, "-score", seed=seed), validation_error, 20)
        better.append(min(seen) < random_best("mixed", validation_error, 20, seed))
    assert sum(better) >= 9, better


MEMORIES = {
    "window": SlidingWindow(10),
    "restart": Restart(12),
    "discount": Discount(0.8),
    "injection": UncertaintyInjection(Linear(0.03)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MEMORIES)
def test_a_moving_optimum_is_followed(name):
    """The peak goes from 0.2 to 0.9 in 36 trials; what forgets loses at most nine tenths of what keeps all does."""
    pool = pd.DataFrame({"x": np.linspace(0.0, 1.0, 41)})
    base = RBFKernel().double()
    base.lengthscale = exactly(0.15)
    lost = {}
    for memory in (MEMORIES[name], None):
        client = client_of(
            UNIT, candidates=pool, kernel=ScaleKernel(base), regularization=0.01, memory=memory, initialization_trials=3
        )
        lost[memory] = 0.0
        for t in range(36):
            peak = 0.2 + 0.02 * t
            for index, p in client.get_next_trials(1).items():
                reward = float(np.exp(-((p["x"] - peak) ** 2) / 0.02))
                client.complete_trial(index, {"score": reward - 0.5})
                lost[memory] += 1.0 - reward
    assert lost[MEMORIES[name]] < 0.9 * lost[None], lost
