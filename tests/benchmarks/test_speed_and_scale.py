import numpy as np
import pytest
import torch

from benchmarks import long_run
from benchmarks.arm_bandits import BANDITS, BETA, REGULARIZATION, Case, play, problem
from benchmarks.botorch_rounds import exact_blocks, exact_search, observations
from benchmarks.references import bkb_posterior
from torch_kbandits.candidates import Arms
from torch_kbandits.environments import gaussian_bumps
from torch_kbandits.environments.arms import FiniteArms

CASE = Case(lengthscale=0.3, dictionary=12, rounds=25)


@pytest.fixture(scope="module")
def environment() -> FiniteArms:
    return gaussian_bumps(150, 2, seed=0)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", BANDITS)
def test_rounds_report_the_dictionary_of_the_bandit(name, environment):
    run = play(BANDITS[name](Arms(environment.arms), CASE, 0), environment, CASE)
    held: set[int] = set()
    for each in run.rounds:
        now = set(each.dictionary.tolist())
        assert (each.added, each.dropped) == (len(now - held), len(held - now))
        assert 0.0 < each.visited <= 1.0
        held = now
    assert [each.told for each in run.rounds] == list(range(1, CASE.rounds + 1))
    assert len(run.played) == len(run.rewards) == CASE.rounds
    # What a round chose is what the next one told.
    assert [each.choice for each in run.rounds[:-1]] == run.played[1:].tolist()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["BKB, growth only", "BKB, coupled", "BKB, fresh"])
def test_rounds_choose_as_numpy_does_at_their_dictionary(name, environment):
    run = play(BANDITS[name](Arms(environment.arms), CASE, 0), environment, CASE)
    reference = problem(environment, CASE)
    for each in run.rounds:
        if name.endswith("growth only") and len(each.dictionary) == CASE.dictionary:
            continue  # full, so that variances are others
        told = slice(each.told)
        mean, variance = bkb_posterior(reference, each.dictionary, run.played[told], run.rewards[told])
        scores = mean + BETA * np.sqrt(variance)
        assert scores[each.choice] >= scores.max() - 1e-8


def test_botorch_rounds_choose_the_best_arm_of_the_dense_posterior(environment):
    X, Y = observations(environment, 20)
    arms = environment.arms.numpy()
    squares = ((arms[:, None] - X.numpy()) ** 2).sum(-1)
    cross = np.exp(-squares / (2 * CASE.lengthscale**2))
    gram = cross[:20] + REGULARIZATION * np.eye(20)
    mean = cross @ np.linalg.solve(gram, Y.numpy())
    variance = 1 - (cross * np.linalg.solve(gram, cross.T).T).sum(1)
    best = environment.arms[int(np.argmax(mean + BETA * np.sqrt(variance))), None]
    assert torch.equal(exact_search(environment.arms, X, Y, CASE)(), best)
    assert torch.equal(exact_blocks(environment.arms, X, Y, CASE)(), best)


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
