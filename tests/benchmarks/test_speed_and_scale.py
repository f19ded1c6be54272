from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import rounds
from benchmarks.arm_bandits import BETA, LENGTHSCALE, REGULARIZATION, bkb
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
def test_another_checkout_plays_in_turns():
    here = str(Path(rounds.__file__).parents[1])
    (ours,) = rounds.rounds.run(quick=True, against=here, only="length scale 1.2").tables[0].rows
    assert ours[0].startswith("EK-UCB")
    assert "" not in ours[-3:]


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
