import json
from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from benchmarks import arm_memory, long_run, many_arms
from benchmarks.arm_bandits import BANDITS, BETA, GAINS, LOSES, REGULARIZATION, STAYS, Case, Round, play, problem
from benchmarks.bandwidth import product_ms, read_rate
from benchmarks.botorch_rounds import exact_blocks, exact_search, observations, variational_blocks
from benchmarks.memory import peak_bytes, resident_bytes
from benchmarks.references import bkb_posterior
from benchmarks.report import run_module
from benchmarks.resampling_regret import play as play_resampled
from torch_kbandits.algorithms import BKB
from torch_kbandits.candidates import Arms
from torch_kbandits.environments import gaussian_bumps
from torch_kbandits.environments.arms import FiniteArms

CASE = Case(lengthscale=0.3, dictionary=12, rounds=25)


@pytest.fixture(scope="module")
def environment() -> FiniteArms:
    return gaussian_bumps(150, 2, seed=0)


def test_limits_are_measured():
    assert 0.0 < read_rate(80_000, repeats=2) < 1e14
    assert 0.0 < product_ms(100, 10, repeats=3) < 1e3


def test_the_peak_follows_an_allocation_and_stays_after_it():
    room = peak_bytes() - resident_bytes()
    before = peak_bytes()
    values = torch.ones((room + 2**26) // 8, dtype=torch.float64)
    assert peak_bytes() >= before + 2**25
    del values
    assert peak_bytes() >= before + 2**25


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


def test_bandits_that_only_grow_stop_at_their_cap(environment):
    case = replace(CASE, dictionary=8)
    run = play(BANDITS["BKB, growth only"](Arms(environment.arms), case, 0), environment, case)
    assert {each.change for each in run.rounds if len(each.dictionary) < 8} == {GAINS}
    assert max(len(each.dictionary) for each in run.rounds) == 8


def test_a_round_that_loses_points_is_called_so_even_if_it_gains_others():
    def change(added: int, dropped: int) -> str:
        return Round(1, 1.0, np.arange(3), added, dropped, 1.0, 0).change

    assert (change(0, 0), change(2, 0), change(0, 1), change(2, 1)) == (STAYS, GAINS, LOSES, LOSES)


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


def test_the_variational_round_returns_an_arm(environment):
    best = variational_blocks(environment.arms, environment.arms[:7].clone(), CASE)()
    assert len(environment.indices(best)) == 1


@pytest.mark.one_in(8)
@pytest.mark.parametrize("name", arm_memory.PROBES)
def test_every_memory_probe_says_how_many_points_its_model_had(name, environment):
    size = arm_memory.PROBES[name](environment, arm_memory.Probe(name, 150, 2, CASE, 30))
    if name in arm_memory.TABLES:
        assert 1 <= size <= CASE.rounds
    else:
        assert size == (30 if "exact" in name else CASE.dictionary)


@pytest.mark.slow
def test_memory_of_many_arms_counts_arms_and_embedding():
    sizes = many_arms.Sizes(arms=200_000, dictionary=40, rounds=1)
    measured = json.loads(run_module("benchmarks.many_arms", json.dumps(asdict(sizes))))
    assert measured["peak_bytes"] - measured["before_bytes"] >= 4 * sizes.arms * (sizes.dictionary + sizes.dimension)
    assert len(measured["seconds"]) == 1


def test_the_slope_is_that_of_a_line_and_its_test_sees_it():
    t = np.arange(50)
    fit = long_run.slope(3.0 + 0.02 * t + 1e-3 * (-1.0) ** t, np.ones((2, 50)), block=1_000)
    assert fit["slope"] == pytest.approx(2.0, rel=1e-2)  # 0.02 ms in 1,000 rounds
    assert fit["p"] < 1e-10
    assert fit["freedom"] == 48


def test_the_slope_leaves_out_what_the_size_of_the_dictionary_explains():
    rng = np.random.default_rng(0)
    size = np.arange(50) + rng.normal(size=50)
    noise = 1e-3 * rng.normal(size=50)
    fit = long_run.slope(0.1 * size + noise, np.stack([size, np.zeros(50)]), block=1_000)
    assert abs(fit["slope"]) < 4.5 * fit["error"] < 0.5  # of Student's t at 47 degrees of freedom: 5e-5
    assert fit["freedom"] == 47


def test_the_slope_test_has_the_false_alarm_rate_it_says():
    rng = np.random.default_rng(0)
    beside = rng.normal(size=(2, 30))
    alarms = sum(long_run.slope(rng.normal(size=30), beside, block=10)["p"] < 0.05 for _ in range(1000))
    # Binomial(1000, 0.05) lies in this range but for a chance of 1e-6.
    assert 20 <= alarms <= 87


def test_posterior_errors_are_rounding_unless_the_posterior_is_wrong(environment, monkeypatch):
    case = Case(long_run.LENGTHSCALE, 20, 30)
    bandit = BANDITS["BKB, coupled"](Arms(environment.arms), case, 0)
    assert isinstance(bandit, BKB)
    play(bandit, environment, case)
    errors = long_run.posterior_error(bandit, environment)
    assert max(errors.values()) < 1e-8
    panel = bandit._belief._arms.up_to_date()
    means = panel.mean.clone()
    means[3] += 0.25
    wrong = SimpleNamespace(up_to_date=lambda: replace(panel, mean=means))
    monkeypatch.setattr(type(bandit._belief), "_arms", property(lambda belief: wrong))
    assert long_run.posterior_error(bandit, environment)["mean_error"] == pytest.approx(0.25, abs=1e-6)


def test_changes_of_the_dictionary_add_up_to_its_size(environment):
    for resampling in ("fresh", "coupled", "growth"):
        played = play_resampled(environment, resampling, 3.0, rounds=20, seed=0)
        assert played["added"] - played["dropped"] == played["dictionary"]
        assert played["dropped"] == 0 or resampling != "growth"
