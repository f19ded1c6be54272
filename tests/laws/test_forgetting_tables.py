"""A table under a memory is the dense posterior of what counts, and plays as one rebuilt in every round."""

import math
from typing import NamedTuple

import hypothesis.strategies as st
import numpy as np
import oracles
import pytest
import torch
from forgetting import BETA, KERNEL, LAMBDA, MEMORIES
from hypothesis import given, settings
from problems import DOUBLE, data, dense, difference, matern, play, reward

from torch_kbandits import (
    KORS,
    Arms,
    Bandit,
    CappedDictionary,
    ConstantWidth,
    History,
    NumericalError,
    RidgeLeverageSampling,
)
from torch_kbandits.beliefs import FeatureTable, choice
from torch_kbandits.beliefs.counted import CountedBelief
from torch_kbandits.dictionaries import FixedDictionary, GreedyDictionary
from torch_kbandits.memory import KeepAll, Restart, SlidingWindow
from torch_kbandits.tables import lazy

SOME = data(30, 2, seed=51)[0]
ARMS = torch.cat([SOME, SOME[:6]])

RULES = {
    "exact": None,
    "covariances": None,
    "fresh": RidgeLeverageSampling(1.0),
    "coupled": RidgeLeverageSampling(1.0, "coupled"),
    "growth": RidgeLeverageSampling(0.5, "growth"),
    "kors": KORS(0.5),
    "capped": CappedDictionary(RidgeLeverageSampling(2.0), 4, "stop", learns_residual=False),
    "capped kors": CappedDictionary(KORS(0.5), 5, "stop", learns_residual=False),
    "greedy": GreedyDictionary(5),
    "fixed": FixedDictionary(SOME[::7]),
}


@pytest.fixture(autouse=True)
def _all_ways_are_taken(monkeypatch, request):
    """Small numbers, so that bounds, passes and looks for drift take turns; exact posteriors are of either kind."""
    for name, number in {"_WORTHWHILE": 0, "_FIRST": 3, "_LONGEST": 7, "_SHARE": 4}.items():
        monkeypatch.setattr(lazy, name, number)
    monkeypatch.setattr(FeatureTable, "CHECK", 11)
    if getattr(request.node, "callspec", None) is None or request.node.callspec.params.get("rule") != "covariances":
        monkeypatch.setattr(choice, "COVARIANCE_LIMIT", 0)


def bandit_of(rule, memory, candidates=None, **words):
    memory = MEMORIES[memory].memory if isinstance(memory, str) else memory
    words = {"kernel": matern(0.5, 1.7), "regularization": LAMBDA, "width": ConstantWidth(BETA), "seed": 5} | words
    return Bandit(candidates=candidates or Arms(ARMS), dictionary=RULES[rule], memory=memory, **words)


def rebuilt(bandit, rule, memory):
    """A bandit of the same state, whose table is fitted to what counts from scratch."""
    other = bandit_of(rule, memory)
    other.load_state_dict(bandit.state_dict())
    return other


class Dense(NamedTuple):
    """What counts and its noise variances, and the dense posterior at all arms."""

    X: np.ndarray
    noise: np.ndarray
    posterior: oracles.Marginals
    gain: float


def counted(bandit, name, now, first):
    """Points, rewards and noise variances of what counts of the rewards from ``first`` on."""
    X, y, times = dense(*(part[first:] for part in (bandit.history.X, bandit.history.Y, bandit.history.times)))
    noise = MEMORIES[name].noise(times, now)
    return (part[np.isfinite(noise)] for part in (X, y, noise))


def expected(bandit, name, now, first=0) -> Dense:
    X, y, noise = counted(bandit, name, now, first)
    T, Z = dense(ARMS, bandit.inducing_points)
    if bandit.dictionary is None or len(X) == 0:
        gain = 0.5 * np.linalg.slogdet(np.eye(len(X)) + KERNEL(X, X) / np.sqrt(np.outer(noise, noise)))[1]
        return Dense(X, noise, oracles.exact(KERNEL, X, y, noise, T), gain)
    return Dense(X, noise, oracles.dtc(KERNEL, X, y, noise, Z, T), oracles.dtc_information_gain(KERNEL, X, noise, Z))


def row_of(x):
    return int((x == ARMS).all(-1).nonzero()[0])


def check(bandit, name, now, first=0):
    """Belief, recommendation and incumbent are those of the dense posterior of what counts."""
    belief, wanted = bandit._belief, expected(bandit, name, now, first)
    assert isinstance(belief, CountedBelief)
    table = belief._table
    assert difference(table.mean, wanted.posterior.mean) < wanted.posterior.rounding
    assert difference(table.variance, wanted.posterior.variance) < wanted.posterior.rounding
    assert float(belief.information_gain()) == pytest.approx(wanted.gain, abs=len(wanted.X) * wanted.posterior.rounding)
    assert belief.num_observations == len(wanted.X)
    played = np.unique(wanted.X, axis=0)
    rows = [row_of(torch.tensor(x)) for x in played]
    assert len(table._log) == len(rows)
    if rows:
        seen = wanted.posterior.variance[[row_of(torch.tensor(x)) for x in wanted.X]]
        dimension = (seen / wanted.noise).sum()
        assert float(belief.effective_dimension()) == pytest.approx(
            dimension, abs=len(wanted.X) / LAMBDA * wanted.posterior.rounding
        )
        assert float(table.incumbent) == pytest.approx(wanted.posterior.mean[rows].max(), abs=wanted.posterior.rounding)
        best = row_of(bandit.recommend(time=now))
        assert wanted.posterior.mean[best] > wanted.posterior.mean[rows].max() - 2.0 * wanted.posterior.rounding
        assert best in rows
    elif len(bandit.history.X):
        assert bool((bandit.recommend(time=now) == bandit.history.X).all(-1).any())


STEPS = st.lists(
    st.tuples(st.sampled_from(["tell", "tell", "ask", "wait", "restart"]), st.sampled_from([0.0, 0.4, 1.0, 2.0, 9.0])),
    min_size=1,
    max_size=22,
)


@pytest.mark.one_in(16)
@settings(max_examples=2)
@given(steps=STEPS, name=st.sampled_from([*MEMORIES]), seed=st.integers(0, 10_000))
@pytest.mark.parametrize("rule", RULES)
def test_any_program_is_the_dense_posterior_and_plays_as_one_that_is_rebuilt(rule, steps, name, seed):
    """Duplicate arms, batches with repeats, gaps that empty the window, restarts on demand."""
    random = np.random.default_rng(seed)
    bandit, other = bandit_of(rule, name), bandit_of(rule, name)
    now, first = 0.0, 0
    for what, gap in [("tell", 0.0), ("tell", 1.0), *steps]:
        now += gap
        other = rebuilt(other, rule, name)
        if what == "restart":
            first = len(bandit.history.X)
            for each in (bandit, other):
                each.restart()
        elif what == "tell":
            X = ARMS[random.integers(len(ARMS) if seed % 2 else 8, size=int(random.integers(1, 4)))]
            Y = reward(X) + 0.1 * torch.tensor(random.standard_normal(len(X)))
            for each in (bandit, other):
                each.tell(X, Y, time=now)
        elif what == "ask":
            x = bandit.ask(time=now)
            assert torch.equal(other.ask(time=now), x)
            for each in (bandit, other):
                each.tell(x, reward(x))
        else:
            assert torch.equal(bandit.ask(time=now), other.ask(time=now))
            for each in (bandit, other):
                each.forget()
        check(bandit, name, now, first)
        if RULES[rule] is not None:  # else the dictionary is all that was played
            assert torch.equal(bandit.inducing_points, other.inducing_points)


@pytest.mark.one_in(8)
@pytest.mark.parametrize("memory", ["window", "discount to a limit"])
@pytest.mark.parametrize("rule", ["exact", "covariances", "fresh", "coupled", "kors"])
def test_many_rounds_as_one_that_is_rebuilt(rule, memory):
    bandit = bandit_of(rule, memory)
    for _ in range(15):
        other, x = rebuilt(bandit, rule, memory), bandit.ask()
        assert torch.equal(other.ask(), x)
        assert float(bandit.beta) == pytest.approx(float(other.beta), rel=1e-9)
        for each in (bandit, other):
            each.tell(x, reward(x))
        assert torch.equal(bandit.inducing_points, other.inducing_points) or RULES[rule] is None


@pytest.mark.one_in(16)
@pytest.mark.parametrize("memory", [KeepAll(), SlidingWindow(math.inf), Restart(math.inf), SlidingWindow(60)], ids=repr)
@pytest.mark.parametrize("rule", ["exact", "covariances", "fresh", "coupled", "kors"])
def test_what_forgets_nothing_is_the_static_table(rule, memory):
    """To the last bit, also in batches."""
    bandit, static = bandit_of(rule, memory), bandit_of(rule, None)
    assert torch.equal(play(bandit, 8, q=3), play(static, 8, q=3))
    assert torch.equal(bandit._belief._table.mean, getattr(static._belief, "_table", static._belief).mean)
    assert torch.equal(bandit._belief._table.variance, getattr(static._belief, "_table", static._belief).variance)
    assert torch.equal(bandit.inducing_points, static.inducing_points)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("rule", ["exact", "covariances", "fresh", "kors"])
def test_points_that_are_no_arms_are_forgotten_too(rule):
    bandit, strangers = bandit_of(rule, "window"), torch.rand(9, 2, dtype=DOUBLE) + 0.2
    for number in range(13):
        X = torch.cat([strangers[number % 9, None], ARMS[number, None]])
        bandit.tell(X, reward(X))
        wanted = expected(bandit, "window", number + 1.0)
        mean, variance = bandit._belief.moments(torch.cat([ARMS, strangers[:2] + 0.01]))
        assert difference(mean[: len(ARMS)], wanted.posterior.mean) < wanted.posterior.rounding
        assert difference(variance[: len(ARMS)], wanted.posterior.variance) < wanted.posterior.rounding
        assert len(bandit._belief._table._log) == len(np.unique(wanted.X, axis=0))


@pytest.mark.one_in(4)
@pytest.mark.parametrize("rule", ["exact", "covariances", "fresh", "kors", "capped"])
def test_arms_maximise_the_acquisition_function_with_points_pending(rule):
    """As without a memory: points pending join the dictionary."""
    bandit = bandit_of(rule, "window")
    for _ in range(4):
        for _ in range(3):
            function = bandit.acquisition()
            x = bandit.ask()
            values = function(ARMS.unsqueeze(-2)).detach()
            assert float(values.max() - function(x.unsqueeze(-2))) < 1e-8
        bandit.tell(bandit.pending, reward(bandit.pending))
        bandit.tell(ARMS[:2], reward(ARMS[:2]))


def test_rows_of_points_that_are_no_arms_go_with_them(monkeypatch):
    """Else every round of few arms would cost a little more for ever."""
    monkeypatch.setattr(choice, "COVARIANCE_LIMIT", 512)
    strangers, sizes = torch.rand(60, 2, dtype=DOUBLE, generator=torch.Generator().manual_seed(3)) + 0.2, []
    bandit = bandit_of("covariances", "window")
    for number, stranger in enumerate(strangers):
        X = torch.stack([stranger, ARMS[number % 8]])
        bandit.tell(X, reward(X))
        sizes.append(len(bandit._belief._table._points))
    assert max(sizes) < len(ARMS) + 16 + 20
    assert min(sizes[30:]) < max(sizes[20:30])
    wanted = expected(bandit, "window", 60.0)
    mean, variance = bandit._belief.moments(ARMS)
    assert difference(mean, wanted.posterior.mean) < wanted.posterior.rounding
    assert difference(variance, wanted.posterior.variance) < wanted.posterior.rounding


def test_bounds_hold_while_variances_rise():
    """A window at a dictionary that stays: an arm that bounds exclude has no higher score, and few are looked at."""
    arms = data(240, 2, seed=3)[0]
    bandit = bandit_of("fixed", SlidingWindow(15), Arms(arms))
    shares = []
    for number in range(40):
        x = bandit.ask()
        shares.append(bandit.visited_share)
        X, Y = bandit.history.X[-15:], bandit.history.Y[-15:]
        noise = torch.full((len(X),), LAMBDA, dtype=DOUBLE)
        if number:
            wanted = oracles.dtc(KERNEL, *dense(X, Y, noise, bandit.inducing_points, arms))
            scores = wanted.mean + BETA * np.sqrt(wanted.variance)
            bounds = bandit._belief._table._arms._bounds(lambda mean, variance, _: mean + BETA * variance.sqrt())
            assert (scores - bounds.numpy()).max() < wanted.upper_rounding(BETA)
            assert scores[int((arms == x).all(-1).nonzero()[0])] > scores.max() - 2.0 * wanted.upper_rounding(BETA)
        bandit.tell(x, 0.02 * reward(x) + 0.002 * math.sin(number))  # so that it matters how variances rise
    assert min(shares[20:]) < 0.3


@pytest.mark.one_in(3)
@pytest.mark.parametrize("rule", ["exact", "fresh", "coupled"])
def test_nothing_grows_with_the_rounds(rule):
    bandit, sizes = bandit_of(rule, SlidingWindow(10), Arms(data(80, 2, seed=3)[0])), []
    arms = bandit.candidates.source.tensor
    for number in range(40):
        bandit.tell(arms[2 * number, None], reward(arms[2 * number, None]))
        table = bandit._belief._table
        sizes.append(table._dtc.size)
        assert len(table._log) <= 10
        assert table._played.store.num_points == len(table._log)
        assert len(table._positions) <= table._dtc.size
    assert max(sizes) <= 11 + 5 + 16


def test_where_hardly_anything_would_be_left_all_is_computed_afresh(monkeypatch):
    """λ = 1e-9: what a reward explains is all but the whole variance, and its difference to it mere rounding.

    M alone, of entries of 1/λ, loses eps/λ = 2e-7.
    """
    arms, refits = data(40, 2, seed=4)[0], []
    original = FeatureTable._recount
    monkeypatch.setattr(FeatureTable, "_recount", lambda self: (refits.append(0), original(self)))
    monkeypatch.setattr(FeatureTable, "CHECK", 10**6)
    bandit = bandit_of("fixed", SlidingWindow(3), Arms(arms), regularization=1e-9)
    for number in range(15):
        bandit.tell(arms[[7 * number % 40]], reward(arms[[7 * number % 40]]))
    X, Y = bandit.history.X[-3:], bandit.history.Y[-3:]
    wanted = oracles.dtc(KERNEL, *dense(X, Y, torch.full((3,), 1e-9, dtype=DOUBLE), bandit.inducing_points, arms))
    table = bandit._belief._table
    assert refits
    assert difference(table.mean, wanted.mean) < 1e-5
    assert difference(table.variance, wanted.variance) < 1e-5


def rolled(rule, window, rounds):
    """A bandit with a window that was told so many random arms."""
    arms = data(6 * window, 2, seed=30)[0]
    bandit = bandit_of(rule, SlidingWindow(window), Arms(arms))
    random = np.random.default_rng(0)
    for row, error in zip(random.integers(len(arms), size=rounds), random.standard_normal(rounds), strict=True):
        bandit.tell(arms[row, None], reward(arms[row, None]) + error)
    return bandit, arms


def check_rolled(rule, window, rounds):
    bandit, arms = rolled(rule, window, rounds)
    rebuilt = bandit_of(rule, SlidingWindow(window), bandit.candidates)
    rebuilt.load_state_dict(bandit.state_dict())
    X, Y = bandit.history.X[-window:], bandit.history.Y[-window:]
    inputs = dense(X, Y, torch.full((window,), LAMBDA, dtype=DOUBLE))
    Z, T = dense(bandit.inducing_points, arms)
    wanted = oracles.exact(KERNEL, *inputs, T) if RULES[rule] is None else oracles.dtc(KERNEL, *inputs, Z, T)
    for each in (bandit, rebuilt):
        assert difference(each._belief._table.mean, wanted.mean) < wanted.rounding
        assert difference(each._belief._table.variance, wanted.variance) < wanted.rounding
    for what in ("information_gain", "effective_dimension", "mean_norm"):
        ours, theirs = (float(getattr(each._belief, what)()) for each in (bandit, rebuilt))
        assert ours == pytest.approx(theirs, abs=1e-6)
    assert torch.equal(rebuilt.ask(3), bandit.ask(3))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("rule", ["exact", "covariances", "coupled"])
def test_a_window_that_rolled_on_is_what_rebuilding_gives(rule, monkeypatch):
    monkeypatch.setattr(FeatureTable, "CHECK", 200)
    check_rolled(rule, 15, 35)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["exact", "covariances", "fresh", "coupled", "kors", "fixed"])
def test_a_window_that_rolled_on_for_long_is_what_rebuilding_gives(rule, monkeypatch):
    monkeypatch.setattr(FeatureTable, "CHECK", 512)
    check_rolled(rule, 50, 10_000)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("rule", ["exact", "covariances", "fresh", "kors"])
def test_a_failed_tell_that_also_forgets_changes_nothing(rule):
    """The table is shared by the belief of now and that of later, which writes beyond the features of the former."""
    bandit, twin = bandit_of(rule, "window"), bandit_of(rule, "window")
    for each in (bandit, twin):
        for number in range(9):
            each.tell(ARMS[[number, 2 * number]], reward(ARMS[[number, 2 * number]]), time=float(number))
    asked = bandit.ask(3, time=9.0, remember=False)
    bandit.ask(2, time=14.0, remember=False)
    with pytest.raises(NumericalError):
        bandit.tell(ARMS[20:21].repeat(40, 1), torch.full((40,), 1.7e308, dtype=DOUBLE), time=13.0)
    assert torch.equal(bandit.ask(3, time=9.0, remember=False), asked)
    check(bandit, "window", 8.0)
    for each in (bandit, twin):
        each.tell(ARMS[25:27], reward(ARMS[25:27]), time=13.0)
    check(bandit, "window", 13.0)
    assert torch.equal(bandit.ask(3, time=13.0), twin.ask(3, time=13.0))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("rule", ["exact", "covariances", "fresh", "kors"])
def test_a_state_of_which_nothing_counts_any_more_loads(rule):
    """Saved just after the end of a period, before the first reward of the next."""
    bandit, loaded = bandit_of(rule, Restart(3.0)), bandit_of(rule, Restart(3.0))
    play(bandit, 3)
    assert not bool(bandit.weights.any())
    loaded.load_state_dict(bandit.state_dict())
    assert torch.equal(loaded.ask(3), bandit.ask(3))


def test_arms_that_do_not_fit_into_memory_go_with_a_window(tmp_path):
    from torch_kbandits import MappedArms

    np.save(tmp_path / "arms.npy", ARMS.numpy())
    there, here = (bandit_of("coupled", "window", Arms(each)) for each in (MappedArms(tmp_path / "arms.npy"), ARMS))
    assert torch.equal(play(there, 12), play(here, 12))


def test_single_precision():
    bandit = bandit_of("coupled", "window", Arms(ARMS.float()), kernel=matern(0.5, 1.7).float())
    for number in range(14):
        X = ARMS[[number, number // 2]]
        bandit.tell(X.float(), reward(X).float())
    wanted = expected(bandit, "window", 14.0)
    assert difference(bandit._belief._table.mean, wanted.posterior.mean) < 1e-3
    assert difference(bandit._belief._table.variance, wanted.posterior.variance) < 1e-3


def test_a_rule_is_shown_how_much_rewards_count_that_are_learned_late(monkeypatch):
    """Rewards of a batch are learned together, the first of them when they have aged; one point was played twice."""
    shown, rule, original = [], RULES["fresh"], RidgeLeverageSampling.select

    def select(self, played, generator):
        shown.append(played)
        return original(self, played, generator)

    monkeypatch.setattr(RidgeLeverageSampling, "select", select)
    bandit = bandit_of("fresh", "discount")
    bandit.tell(ARMS[:3], reward(ARMS[:3]), time=0.0)
    belief = bandit._belief.at(2.0)
    X, times = ARMS[[4, 0, 4]], torch.tensor([1.0, 1.5, 2.0], dtype=DOUBLE)
    late = History(X, reward(X), torch.ones(3).long(), None, times)
    belief = belief.learned(late, rule, torch.Generator().manual_seed(0))
    fresh = np.array([0.8**0.5, 0.0, 0.0, 0.8 + 1.0])
    assert shown[-1].counts.tolist() == pytest.approx(fresh + 0.64 * np.array([1.0, 1.0, 1.0, 0.0]))
    assert shown[-1].new_counts.tolist() == pytest.approx(fresh)
    noise = LAMBDA / np.array([0.64, 0.64, 0.64, 0.8, 0.8**0.5, 1.0])
    told = torch.cat([ARMS[:3], X])
    wanted = oracles.dtc(KERNEL, *dense(told, reward(told)), noise, *dense(belief.inducing_points, ARMS))
    assert difference(belief.posterior.mean, wanted.mean) < wanted.rounding
    assert difference(belief.posterior.variance, wanted.variance) < wanted.rounding
