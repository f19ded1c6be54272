"""Arms split over shards under a memory: what no longer counts is taken back there as it is in one table."""

import hypothesis.strategies as st
import numpy as np
import oracles
import pytest
import torch
from hypothesis import given
from local_workers import sharded
from problems import DOUBLE, data, dense, difference, matern
from sharded_play import CUTS, noisy, rounds, some_arms

from torch_kbandits import KORS, Arms, Bandit, ConstantWidth, MappedArms, RidgeLeverageSampling, algorithms
from torch_kbandits.acquisition import ThompsonRule
from torch_kbandits.beliefs import FeatureTable, choice
from torch_kbandits.dictionaries import FixedDictionary
from torch_kbandits.integrations.ray import belief, taking_back
from torch_kbandits.memory import (
    Discount,
    KeepAll,
    Memory,
    Quadratic,
    Restart,
    SlidingWindow,
    UncertaintyInjection,
)
from torch_kbandits.memory.base import where_counted
from torch_kbandits.observations.played import Plays

LAMBDA = 0.02

RULES = {
    "exact": None,
    "fresh": RidgeLeverageSampling(1.0),
    "coupled": RidgeLeverageSampling(1.0, "coupled"),
    "growth": RidgeLeverageSampling(1.0, "growth"),
    "kors": KORS(0.5),
    "fixed": FixedDictionary(data(160, 2)[0][::23] + 0.01),
}


MEMORIES = {
    "window": SlidingWindow(5.0),
    "observations": SlidingWindow(7, "observations"),
    "restart": Restart(6.0),
    "all": KeepAll(),
    "discount": Discount(0.8, 0.05),
    "injection": UncertaintyInjection(Quadratic(0.3), 30.0 * LAMBDA),
}


@pytest.fixture(autouse=True)
def _all_ways_are_taken(monkeypatch):
    """Everything is computed afresh every few rounds, and the one table is one of features."""
    monkeypatch.setattr(FeatureTable, "CHECK", 7)
    monkeypatch.setattr(choice, "COVARIANCE_LIMIT", 0)


def make(candidates, rule="coupled", memory="window", **settings):
    memory = MEMORIES[memory] if isinstance(memory, str) else memory
    words = {"kernel": matern(0.4), "regularization": LAMBDA, "width": ConstantWidth(2.0), "seed": 0}
    return Bandit(candidates=candidates, dictionary=RULES[rule], memory=memory, **(words | settings))


def assert_equal_posteriors(ours, theirs, tolerance=1e-9):
    mine, other = ours._belief._table, theirs._belief._table
    assert difference(mine.mean, other.mean) < tolerance
    assert difference(mine.variance, other.variance) < tolerance
    assert torch.equal(ours.inducing_points, theirs.inducing_points)
    assert ours._belief.num_observations == theirs._belief.num_observations


# ---------------------------------------------------------------- the same arms and posteriors


@pytest.mark.one_in(8)
@pytest.mark.parametrize(
    ("rule", "memory", "number", "count"),
    [
        ("coupled", "window", 3, 10),
        ("fresh", "restart", 2, 10),
        ("exact", "observations", 3, 10),
        ("fixed", "restart", 1, 10),
        ("fresh", "discount", 3, 10),
        ("exact", "injection", 2, 10),
        *(
            pytest.param(rule, memory, number, 200, marks=pytest.mark.slow)
            for rule, memory, number in [
                ("coupled", "window", 2),
                ("coupled", "observations", 7),
                ("coupled", "restart", 3),
                ("fresh", "observations", 3),
                ("growth", "window", 3),
                ("growth", "all", 2),
                ("kors", "restart", 2),
                ("kors", "window", 7),
                ("exact", "window", 3),
                ("exact", "restart", 2),
                ("fixed", "observations", 3),
                ("coupled", "discount", 2),
                ("kors", "discount", 3),
                ("exact", "discount", 2),
                ("growth", "injection", 7),
            ]
        ),
    ],
)
def test_shards_choose_the_arms_of_one_table(rule, memory, number, count):
    """With workers lost on the way."""
    arms = some_arms()
    bandits = [make(candidates, rule, memory) for candidates in (Arms(arms), sharded(arms, number, CUTS[number]))]
    for first in range(0, count, 5):
        rounds(bandits, 5, first)
        if first % 2:
            bandits[1].candidates.workers.lose(first % number)
        assert_equal_posteriors(bandits[1], bandits[0])


def test_the_posterior_is_the_dense_one_of_what_counts():
    arms = some_arms(90)
    bandit = make(sharded(arms, 4), memory="observations")
    for number in range(7):
        X = bandit.ask(1 + number % 2)
        bandit.tell(X, noisy(X, number))
    history = bandit.history.rows(slice(len(bandit.history.X) - 7, None))
    X, Y, Z, T = dense(history.X, history.Y, bandit.inducing_points, arms)
    expected = oracles.dtc(oracles.matern52(0.4, 1.7), X, Y, np.full(len(Y), LAMBDA), Z, T)
    assert difference(bandit._belief._table.mean, expected.mean) < expected.rounding
    assert difference(bandit._belief._table.variance, expected.variance) < expected.rounding
    assert bool((bandit.recommend() == history.X).all(-1).any())


def test_the_posterior_is_the_dense_one_where_observations_age():
    """Also in a shard that was lost and is built from what counts, and how much."""
    arms = some_arms(90)
    bandit = make(sharded(arms, 3), "fresh", "discount")
    for number in range(6):
        X = bandit.ask(1 + number % 2)
        bandit.tell(X, noisy(X, number))
    bandit.candidates.workers.lose(1)
    bandit.ask(remember=False)
    weights = 0.8 ** (6.0 - bandit.history.times.numpy())
    X, Y, Z, T = dense(bandit.history.X, bandit.history.Y, bandit.inducing_points, arms)
    expected = oracles.dtc(oracles.matern52(0.4, 1.7), X, Y, LAMBDA / weights, Z, T)
    assert difference(bandit._belief._table.mean, expected.mean) < expected.rounding
    assert difference(bandit._belief._table.variance, expected.variance) < expected.rounding


def test_draws_are_those_of_one_table_where_observations_age(tmp_path):
    arms = some_arms(60)
    np.save(tmp_path / "arms.npy", arms.numpy())
    words = {"memory": "discount", "acquisition": ThompsonRule()}
    rounds([make(given, **words) for given in (Arms(MappedArms(tmp_path / "arms.npy")), sharded(arms, 3))], 6)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["sw-gp-ucb", "r-gp-ucb"])
def test_named_algorithms(name):
    words = {"kernel": matern(0.4), "regularization": LAMBDA, "beta": 2.0, "seed": 0}
    words |= {"window": 4.0} if name == "sw-gp-ucb" else {"period": 4.0}
    arms = some_arms(90)
    bandits = [algorithms.build(name, candidates=given, **words) for given in (Arms(arms), sharded(arms, 2))]
    rounds(bandits, 7)
    assert_equal_posteriors(bandits[1], bandits[0])


def test_what_a_memory_of_your_own_forgets_in_the_middle():
    arms = some_arms()
    bandits = [make(candidates, "fresh", Forgetful()) for candidates in (Arms(arms), sharded(arms, 2))]
    rounds(bandits, 8)
    assert_equal_posteriors(bandits[1], bandits[0])
    assert 0 < bandits[1]._belief.num_observations < len(bandits[1].history.X)


class Forgetful(Memory):
    """Of observations made at even times those of the last four units of time count, of the others all."""

    def noise(self, times, now, regularization):
        return where_counted((now - times <= 4.0) | (times % 2.0 == 1.0), regularization)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("gap", [3.0, 50.0])
def test_times_of_ones_own(gap):
    """After the longest gap nothing counts any more, and the dictionary is one of points that are forgotten."""
    arms, time = some_arms(), 0.0
    bandits = [make(candidates) for candidates in (Arms(arms), sharded(arms, 2))]
    for number in range(7):
        time += gap if number == 5 else 0.4
        X = [bandit.ask(2, time=time) for bandit in bandits]
        assert torch.equal(*X)
        assert_equal_posteriors(bandits[1], bandits[0])
        for bandit in bandits:
            bandit.tell(X[0], noisy(X[0], number), time=time + 0.1)
    seen = [bandit.ask(3, time=time + 5.0, remember=False) for bandit in bandits]
    assert torch.equal(*seen)
    X = [bandit.ask(3, time=time + 0.1) for bandit in bandits]  # shards went ahead of it, and are built anew
    assert torch.equal(*X)


# ---------------------------------------------------------------- what is sent


def test_a_round_sends_what_is_taken_back_and_not_what_counts():
    sent = {}
    for size in (10, 40):
        bandit = make(sharded(some_arms(), 2), "fixed", SlidingWindow(size, "observations"))
        workers = bandit.candidates.workers
        bandit.tell(some_arms()[:size], noisy(some_arms()[:size], 0))
        bandit.ask(remember=False)
        workers.sent.clear()
        for number in range(5):
            X = bandit.ask()
            bandit.tell(X, noisy(X, number))
        assert len(workers.sent) == 10
        sent[size] = max(workers.sent)
    assert sent[40] < sent[10] + 64 < 3000


@given(places=st.lists(st.integers(0, 6), min_size=1, max_size=30), data=st.data())
def test_what_is_taken_back_arrives_as_it_was(places, data):
    """Of observations in any order, forgotten in any order."""
    counts = data.draw(st.lists(st.booleans(), min_size=len(places), max_size=len(places)))
    known = {place: number for number, place in enumerate(dict.fromkeys(places))}
    rewards = np.sqrt(np.arange(1.0, len(places) + 1))
    rows = [(known[place], float(reward)) for place, reward in zip(places, rewards, strict=True)]
    before, left, gone = (
        plays([row for row, counted in zip(rows, counts, strict=True) if counted in wanted])
        for wanted in ((True, False), (True,), (False,))
    )
    step = taking_back.taken_back("v", left, gone, len(before.places))
    ours = taking_back.plays_of(step, before.counts, before.sums)
    for mine, theirs in zip(ours, (left, gone), strict=True):
        assert mine.places.tolist() == theirs.places.tolist()
        assert mine.counts.tolist() == theirs.counts.tolist()
        assert mine.sums.tolist() == theirs.sums.tolist()


def plays(rows):
    """How often each place was played, and the sum of its rewards, in the order of first plays."""
    places = list(dict.fromkeys(place for place, _ in rows))
    rewards = [[reward for other, reward in rows if other == place] for place in places]
    tensors = (torch.tensor([float(len(own)) for own in rewards]), torch.tensor([sum(own) for own in rewards]))
    return Plays(torch.tensor(places, dtype=torch.long), *(tensor.to(DOUBLE) for tensor in tensors))


# ---------------------------------------------------------------- workers that are lost, shards that are behind


def test_a_lost_worker_is_built_from_what_counts():
    arms = some_arms()
    bandits = [make(candidates, "coupled", "observations") for candidates in (Arms(arms), sharded(arms, 3))]
    rounds(bandits, 5, 4)
    workers = bandits[1].candidates.workers
    workers.starts.clear()
    workers.lose(1)
    workers.line.dies_on_receipt = {2}
    rounds(bandits, 2, 9)
    assert sorted(shard for shard, _ in workers.starts) == [1, 2]
    assert all(count <= 7 for _, count in workers.starts)
    assert_equal_posteriors(bandits[1], bandits[0])


@pytest.mark.one_in(2)
@pytest.mark.parametrize("behind", [2, 12])
def test_shards_that_are_far_behind_are_started_anew(behind, monkeypatch):
    monkeypatch.setattr(belief, "_MOST_STEPS", 10)
    arms = some_arms()
    bandits = [make(candidates, "fresh", "observations") for candidates in (Arms(arms), sharded(arms, 2))]
    rounds(bandits, 6)
    starts = bandits[1].candidates.workers.starts
    starts.clear()
    for bandit in bandits:
        for number in range(behind):
            X = arms[number : number + 2]
            bandit.tell(X, noisy(X, number))
    rounds(bandits, 2, 6)
    assert_equal_posteriors(bandits[1], bandits[0])
    assert [number for number, _ in starts] == ([0, 1] if behind == 12 else [])


def test_a_shard_that_fails_while_it_forgets_is_started_anew(monkeypatch):
    arms = some_arms()
    memory = SlidingWindow(6.0)
    bandits = [make(candidates, memory=memory) for candidates in (Arms(arms), sharded(arms, 2))]
    rounds(bandits, 5)
    ours = bandits[1]
    ours.candidates.workers.starts.clear()
    calls, original = [], taking_back.plays_of

    def failing(*arguments):
        calls.append(0)
        if len(calls) == 2:
            raise MemoryError("too many arms")
        return original(*arguments)

    for bandit in bandits:
        for _ in range(3):
            bandit.tell(arms[:2], noisy(arms[:2], 0))
    monkeypatch.setattr("torch_kbandits.integrations.ray.table.plays_of", failing)
    with pytest.raises(MemoryError):
        ours.ask()
    monkeypatch.undo()
    bandits[0].ask(remember=False)
    assert_equal_posteriors(ours, bandits[0])
    assert [shard for shard, _ in ours.candidates.workers.starts] == [1]


# ---------------------------------------------------------------- the whole bandit


def test_saved_states_go_from_one_form_to_the_other():
    arms = some_arms()
    ours, single = make(sharded(arms, 2)), make(Arms(arms))
    rounds([ours], 4, 4)
    single.load_state_dict(ours.state_dict())
    assert torch.equal(single.ask(5, remember=False), ours.ask(5, remember=False))
    again = make(sharded(arms, 3))
    again.load_state_dict(single.state_dict())
    rounds([again, single], 2, 8)
    replayed = make(sharded(arms, 4))
    replayed.replay(single.history)
    assert torch.equal(replayed.recommend(), single.recommend())
    for bandit in (again, single):
        bandit.restart()
    rounds([again, single], 1, 20)
    assert_equal_posteriors(again, single)
