from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import long_run, rounds
from benchmarks.arm_bandits import BETA, LENGTHSCALE, REGULARIZATION, bkb
from benchmarks.peer_rounds import exact_blocks, exact_search
from benchmarks.references import Problem, bkb_posterior
from torch_kbandits.environments import FiniteArms, gaussian_bumps


@pytest.fixture(scope="module")
def environment() -> FiniteArms:
    return gaussian_bumps(150, 2, seed=0)


def test_rounds_are_told_apart_by_what_they_did_to_the_dictionary():
    dictionaries = [[0.0], [0.0], [0.0, 1.0], [1.0], [1.0, 2.0], [1.0, 3.0], [3.0, 1.0]]
    shown = [torch.tensor(each).unsqueeze(-1) for each in dictionaries]
    case = rounds.Case(lambda: ((float(t), lambda t=t: shown[t]) for t in range(7)), first=1, arms=5)
    found = rounds.measure(case)
    assert {change: [*map(round, times)] for change, times in found["rounds"].items()} == {
        rounds.ANY: [1, 2, 3, 4, 5, 6],
        rounds.STAYS: [1, 6],
        rounds.GAINS: [2, 4],
        rounds.LOSES: [3, 5],
    }
    assert found["points"] == 2
    assert found["product_ms"] > 0.0


@pytest.mark.slow
def test_another_checkout_plays_in_turns_and_leaves_blank_what_it_cannot():
    """It is this one, which has no case that it cannot play: but others' rounds are played here alone."""
    report = rounds.run(quick=True, against=Path(rounds.__file__).parents[1], only="length scale 1.2")
    (ours, numpys) = report.tables[0].rows
    assert ours[0].startswith("EK-UCB")
    assert "" not in ours[-3:]
    assert numpys[0].startswith("NumPy")
    assert [*numpys[-3:]] == ["", "", ""]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("resampling", ["growth", "coupled", "fresh"])
def test_bkb_chooses_as_numpy_does_at_its_dictionary(resampling, environment):
    problem = Problem(environment.arms.numpy(), LENGTHSCALE, REGULARIZATION, BETA)
    bandit = bkb(environment.arms, 0, resampling=resampling)
    for t in range(25):
        (row,) = environment.indices(x := bandit.ask())
        if t:
            played = np.array(environment.indices(bandit.history.X))
            dictionary = np.array(environment.indices(bandit.inducing_points))
            mean, variance = bkb_posterior(problem, dictionary, played, bandit.history.Y.numpy())
            scores = mean + BETA * np.sqrt(variance)
            assert scores[row] >= scores.max() - 1e-8
        bandit.tell(x, environment.pull(x, t))


def test_botorch_rounds_choose_the_best_arm_of_the_dense_posterior(environment):
    X, Y = environment.arms[:20], environment.pull(environment.arms[:20], 0)
    arms = environment.arms.numpy()
    squares = ((arms[:, None] - X.numpy()) ** 2).sum(-1)
    cross = np.exp(-squares / (2 * LENGTHSCALE**2))
    gram = cross[:20] + REGULARIZATION * np.eye(20)
    mean = cross @ np.linalg.solve(gram, Y.numpy())
    variance = 1 - (cross * np.linalg.solve(gram, cross.T).T).sum(1)
    best = environment.arms[int(np.argmax(mean + BETA * np.sqrt(variance))), None]
    assert torch.equal(exact_search(environment.arms, X, Y, LENGTHSCALE)(), best)
    assert torch.equal(exact_blocks(environment.arms, X, Y, LENGTHSCALE)(), best)


def test_the_slope_is_that_of_a_line_and_its_test_has_the_false_alarm_rate_it_says():
    t = np.arange(50)
    fit = long_run.slope(3.0 + 0.02 * t + 1e-3 * (-1.0) ** t, np.ones((2, 50)), block=1_000)
    assert fit["slope"] == pytest.approx(2.0, rel=1e-2)  # 0.02 ms in 1,000 rounds
    assert (fit["p"] < 1e-10, fit["freedom"]) == (True, 48)
    rng = np.random.default_rng(0)
    beside = rng.normal(size=(2, 30))
    alarms = sum(long_run.slope(rng.normal(size=30), beside, block=10)["p"] < 0.05 for _ in range(1000))
    # Binomial(1000, 0.05) lies in this range but for a chance of 1e-6.
    assert 20 <= alarms <= 87
