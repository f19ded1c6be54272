from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import rounds
from benchmarks.arm_bandits import BETA, LENGTHSCALE, REGULARIZATION, bkb
from benchmarks.references import Problem, bkb_posterior
from benchmarks.rounds import exact_blocks, exact_search
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
    here = str(Path(rounds.__file__).parents[1])
    (ours, numpys) = rounds.rounds.run(quick=True, against=here, only="length scale 1.2").tables[0].rows
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
