"""What a dictionary leaves out bounds the gain, and widths made of it cover."""

import numpy as np
import oracles
import pytest
import torch
from problems import believed, data, matern
from scipy.stats import binom

import torch_kbandits as kb
from torch_kbandits.confidence import (
    NystromWidth,
    SelfNormalizedWidth,
)
from torch_kbandits.dictionaries import theoretical_oversampling


@pytest.mark.parametrize("seed", range(3))
def test_the_gain_is_at_least_the_exact_one_at_any_dictionary(seed):
    rng = np.random.default_rng(seed)
    X, Y = data(30, 2, seed)
    Z = X[rng.permutation(30)[: rng.integers(1, 20)]]
    words = {"covar_module": matern(0.3, 1.0), "regularization": 0.1}
    model, exact = kb.NystromGP(X, Y, inducing_points=Z, **words), kb.OnlineGP(X, Y, **words)
    whole, truth = kb.NystromGP(X, Y, inducing_points=X, **words), float(exact.information_gain())
    assert float(model.information_gain()) < truth < float(model.information_gain() + 0.5 * model.projection_error())
    assert float(whole.information_gain()) == pytest.approx(truth, rel=1e-6)


# ---------------------------------------------------------------- coverage

GRID = np.linspace(0.0, 1.0, 25)[:, None]
KERNEL = oracles.matern52(0.2)
GRAM = KERNEL(GRID, GRID)
ROUNDS, DELTA = 40, 0.3


def allowed(simulations: int) -> int:
    """More misses have probability below 1e-6 if each simulation misses with probability δ."""
    return int(binom.ppf(1.0 - 1e-6, simulations, DELTA))


def misses(width, rule, noise_scale, norm, simulations, every=1):
    """Return in how many runs by UCB f leaves the band at any arm in any round, or any of so many."""
    missed, arms = 0, torch.from_numpy(GRID)
    for seed in range(simulations):
        rng = np.random.default_rng([seed, 18])
        weights = rng.normal(size=len(GRID))
        f = GRAM @ (norm * weights / np.sqrt(weights @ GRAM @ weights))
        words = {"kernel": matern(0.2, 1.0), "regularization": noise_scale**2, "seed": seed}
        bandit, left = kb.Bandit(candidates=kb.Arms(arms), dictionary=rule, width=width, **words), False
        for number in range(ROUNDS):
            if number % every == every - 1:
                mean, variance = believed(bandit, arms)
                band = float(bandit.beta) * variance.sqrt().numpy()
                left |= bool((np.abs(f - mean.numpy()) > band + 1e-9).any())
            x = bandit.ask()
            row = int((arms == x).all(-1).nonzero()[0])
            bandit.tell(x, f[row] + noise_scale * rng.normal())
        missed += left
    return missed


RULES = {
    "default": kb.RidgeLeverageSampling(),
    "theorem": kb.RidgeLeverageSampling(theoretical_oversampling(DELTA, ROUNDS)),
    "coupled, q̄ = 1": kb.RidgeLeverageSampling(1.0, "coupled"),
    "capped": kb.CappedDictionary(kb.RidgeLeverageSampling(), 3, "stop", learns_residual=False),
    "uniform": kb.UniformDictionary(2),
}


@pytest.mark.one_in(10)
@pytest.mark.filterwarnings("ignore::torch_kbandits.TheoryWarning")
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
@pytest.mark.parametrize(("noise_scale", "norm"), [(0.5, 0.01), (0.02, 3.0)], ids=["noise", "norm"])
def test_it_covers_at_dictionaries_as_they_are_drawn(rule, noise_scale, norm, quick):
    """A false alarm has probability below 1e-6."""
    number, every = (12, 20) if quick else (25, 1)
    assert misses(NystromWidth(noise_scale, norm, DELTA), rule, noise_scale, norm, number, every) <= allowed(number)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::torch_kbandits.TheoryWarning")
def test_without_what_the_dictionary_leaves_out_it_is_caught():
    width = SelfNormalizedWidth(0.02, 3.0, DELTA)
    assert misses(width, RULES["uniform"], 0.02, 3.0, 14, every=10) > allowed(14)
