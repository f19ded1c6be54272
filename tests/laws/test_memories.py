"""Memories: which observations count, with what noise, and what follows; the moments are in ``test_posterior``."""

import math
from itertools import product

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from forgetting import (
    ARMS,
    DICTIONARIES,
    DOMAINS,
    FORGETS_NOTHING,
    LAMBDA,
    MEMORIES,
    TESTED,
    expected,
    make,
    odd_times,
    play,
    reward,
)
from hypothesis import given
from kinds import same
from oracles import exact
from oracles import rbf as dense_rbf
from problems import DOUBLE, believed, data, dense, difference, examples, rbf

import torch_kbandits as kb
from torch_kbandits.acquisition import ThompsonRule
from torch_kbandits.bandit.batches import GlobalBatchRule, LocalBatchRule, StayRule
from torch_kbandits.memory import (
    Discount,
    ExponentialGrowth,
    LinearGrowth,
    Restart,
    SlidingWindow,
    Stationary,
    UncertaintyInjection,
)


def agrees(bandit, name, now, **part):
    """Whether the model is that of the dense formulas."""
    dense_one, (mean, variance) = expected(bandit, name, now, **part), believed(bandit, TESTED)
    return max(difference(mean, dense_one.mean), difference(variance, dense_one.variance)) < dense_one.rounding


# ---------------------------------------------------------------- memories as values


@examples(60)
@given(
    name=st.sampled_from(sorted(MEMORIES)),
    steps=st.lists(st.sampled_from([0.0, 0.25, 1.0, 3.0]), max_size=20),
    gaps=st.lists(st.floats(0.0, 40.0), min_size=1, max_size=4),
)
def test_noises_are_the_formulas_and_what_is_forgotten_never_counts_again(name, steps, gaps):
    times, case = np.cumsum([0.0, *steps]), MEMORIES[name]
    now, gone = times[-1], np.zeros(len(times), dtype=bool)
    for gap in [0.0, *gaps]:
        now = now + gap
        noise = case.memory.noise(torch.as_tensor(times), now, LAMBDA).numpy()
        assert noise.dtype == np.float64
        assert (noise >= LAMBDA).all()
        assert not np.isfinite(noise[gone]).any()
        gone |= ~np.isfinite(noise)
        if name.endswith("limit"):  # rounding decides at the limit itself
            continue
        wanted = case.noise(times, now)
        np.testing.assert_allclose(noise, np.where(wanted > LAMBDA * 2.0**104 * (1 - 1e-9), np.inf, wanted), rtol=1e-11)


def test_a_fresh_observation_has_the_noise_of_the_model():
    """Also where rounding could put the present into the past."""
    times = torch.tensor([0.1, 0.3, 0.7999999999999999, 1.7e9 + 0.1], dtype=DOUBLE)
    for memory in (Stationary(), *(case.memory for case in MEMORIES.values())):
        for number in range(1, 5):
            noise = memory.noise(times[:number], float(times[number - 1]), LAMBDA)
            assert noise.shape == (number,)
            assert float(noise[-1]) == LAMBDA
    for period, number, end in product((0.1, 1 / 3, 0.7, 49.0), range(1, 100), (0.0, None, math.inf)):
        now = number * period if end is None else math.nextafter(number * period, end)
        assert float(Restart(period).noise(torch.tensor([now], dtype=DOUBLE), now, LAMBDA)) == LAMBDA


def test_ageing_without_a_limit_drops_what_counts_nothing_and_memories_are_values():
    times = torch.tensor([0.0, 99.0, 100.0], dtype=DOUBLE)
    for memory in (Discount(0.01), Discount(0.01, 1e-300), UncertaintyInjection(ExponentialGrowth(0.01), 1e300)):
        assert memory.noise(times, 100.0, LAMBDA).isfinite().tolist() == [False, True, True]
    assert (SlidingWindow(3), Discount(1)) == (SlidingWindow(3.0), Discount(1.0))
    assert len({case.memory for case in MEMORIES.values()} | {Restart(2), Restart(2, 1.0)}) == len(MEMORIES) + 2


def test_bad_settings_are_refused():
    for make_one, words in (
        (lambda: SlidingWindow(5, "rounds"), '"time" or "observations"'),
        (lambda: make(UncertaintyInjection(LinearGrowth(0.1), 0.01)), "drops what is told at noise variance"),
    ):
        with pytest.raises(kb.InputError, match=words):
            make_one()


# ---------------------------------------------------------------- what is believed


@pytest.mark.one_in(31)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("name", FORGETS_NOTHING)
@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("posterior", DICTIONARIES)
def test_what_forgets_nothing_plays_as_without_a_memory(name, posterior, domain):
    rounds = 3 if domain == "box" else 15
    domain = kb.Arms(data(60, 2, seed=31)[0]) if domain == "arms" else domain
    plain, bandit = make(None, posterior, domain), make(FORGETS_NOTHING[name], posterior, domain)
    assert difference(play(bandit, rounds), play(plain, rounds)) < (1e-6 if domain == "box" else 1e-15)
    points = (each.inducing_points.sort(0).values for each in (bandit, plain))
    assert domain == "box" or torch.equal(*points)
    twins = [make(memory, posterior, acquisition=ThompsonRule()) for memory in (FORGETS_NOTHING[name], Stationary())]
    assert torch.equal(*(play(twin, 5) for twin in twins))  # the arms of no memory come from another form of the draw


def test_a_coupled_dictionary_stays_coupled_where_points_are_forgotten():
    """Each point keeps its uniform, so few points come and go beside those that are told and forgotten."""
    arms, changes = data(200, 2, seed=41)[0], {}
    for posterior in ("fresh", "coupled"):
        bandit, before, changes[posterior] = make(SlidingWindow(20), posterior, kb.Arms(arms)), set(), 0
        for number in range(40):
            told = arms[number % 200, None]
            bandit.tell(told, reward(told))
            now = {tuple(row) for row in bandit.inducing_points.tolist()}
            counts = {tuple(row) for row in arms[max(0, number - 18) : number].tolist()}
            changes[posterior] += len((now ^ before) & counts)
            before = now
    assert changes["coupled"] < 0.5 * changes["fresh"]


# ---------------------------------------------------------------- saved, replayed, interleaved


@pytest.mark.one_in(5)
@pytest.mark.parametrize("posterior", DICTIONARIES)
@pytest.mark.parametrize("name", ["window", "restart", "quadratic"])
def test_looks_at_a_later_time_change_nothing_and_what_is_asked_and_forgotten_does_the_time(name, posterior):
    bandit, twin = make(name, posterior), make(name, posterior)
    times = odd_times(10, 9)
    play(bandit, 6, times=times)
    play(twin, 6, times=times)
    later = times[5] + 50.0
    bandit.ask(2, time=later, remember=False)
    bandit.acquisition(time=later)
    bandit.recommend(time=later)
    with pytest.raises(kb.NumericalError):
        bandit.tell(TESTED[:1].repeat(40, 1), torch.full((40,), 1.7e308, dtype=DOUBLE), time=later)
    assert torch.equal(play(bandit, 4, 6, times), play(twin, 4, 6, times))
    bandit.ask(3, time=later)
    bandit.forget()
    with pytest.raises(kb.InputError, match="backwards"):
        bandit.ask(time=later - 1.0)
    assert torch.equal(bandit.ask(2, time=later), twin.ask(2, time=later))


@pytest.mark.one_in(5)
@pytest.mark.parametrize("memory", [None, "window", "quadratic"])
@pytest.mark.parametrize("posterior", DICTIONARIES)
def test_a_restart_forgets_what_was_told_so_far(memory, posterior):
    """And what a batch rule holds. Points stay pending, and their rewards count."""
    bandit, fresh = make(memory, posterior), make(memory, posterior)
    play(bandit, 5)
    ids, recommended = bandit.ask(2, details=True).ids, bandit.recommend()
    bandit.restart()
    assert (len(bandit.history.X), bandit.pending_ids, bandit.model.num_observations) == (5, ids, 0)
    # Until something counts again; with noises as at the last reward, where these grow.
    assert memory == "quadratic" or torch.equal(bandit.recommend(), recommended)
    bandit.tell(ids=ids[0], y=0.7)
    fresh.tell(bandit.history.X[-1:], 0.7)
    for ours, theirs in zip(believed(bandit, TESTED), believed(fresh, TESTED), strict=True):
        assert difference(ours, theirs) < 1e-10
    held = make(memory, posterior, batches=GlobalBatchRule(50.0))
    held.tell(ARMS[:1], 0.4)
    assert held.model.num_observations == 0
    held.restart()
    assert held.pending_variance_ratio() == 1.0


@pytest.mark.one_in(17)
@pytest.mark.parametrize("rule", [GlobalBatchRule(50.0), LocalBatchRule(20.0), StayRule(144.0)], ids=repr)
@pytest.mark.parametrize("name", MEMORIES)
@pytest.mark.parametrize("posterior", ["exact", "coupled"])
def test_in_batches_what_was_learned_counts_as_at_other_times(rule, name, posterior):
    """Also the model shown while rewards are kept aside: time goes on meanwhile."""
    bandit, learned = make(name, posterior, batches=rule), set()
    for number in range(10):
        X = bandit.ask()
        bandit.tell(X, reward(X))
        agreeing = [held for held in range(number + 2) if agrees(bandit, name, number + 1.0, learned=held)]
        assert agreeing, number
        learned |= {held for held in agreeing if held not in (0, number + 1)}
    assert learned
    replayed = make(name, posterior, batches=rule)
    replayed.replay(bandit.history)
    assert torch.equal(replayed.ask(None), bandit.ask(None))


def test_a_history_that_does_not_fit_is_refused_and_leaves_the_bandit_empty():
    bandit = make("window")
    play(bandit, 6, times=odd_times(6, 14))
    history = bandit.history
    for bad, words in (
        (history._replace(times=None), "needs times"),
        (history._replace(times=history.times[:3]), "a row for each"),
        (history._replace(times=history.times + 0.1), "played before or when"),
        (history._replace(told_at=history.told_at.flip(0)), "must not decrease"),
        (history._replace(rounds=torch.zeros(6, dtype=torch.long)), "one for each round"),
        (history._replace(rounds=history.rounds.flip(0)), "must not decrease"),
        (history._replace(Y=history.Y[:1]), "a row for each of its rewards"),
        (history._replace(Y=history.Y.masked_fill(history.Y[1] == history.Y, math.inf)), "y must be finite"),
    ):
        twin = make("window")
        with pytest.raises(kb.InputError, match=words):
            twin.replay(bad)
        assert same(twin.state_dict(), make("window").state_dict())
    with pytest.raises(kb.InputError, match="told 6 round"):
        bandit.replay(history)
    bandit = make("window")
    bandit.ask(time=history.times[0] + 1.0)
    with pytest.raises(kb.InputError, match="the history begins at"):
        bandit.replay(history)


@pytest.mark.parametrize("regularization", [1e-8, 1.0])
def test_what_is_all_but_forgotten_leaves_the_rest_right(regularization):
    """Seven of the points count 10⁻⁹⁰ times at the end: a factor that is only changed loses all digits."""
    X = torch.rand(12, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    words = {"kernel": rbf(0.5), "regularization": regularization, "memory": Discount(0.5), "seed": 0}
    bandit = kb.Bandit(candidates=kb.Arms(X), width=kb.ConstantWidth(2.0), **words)
    for number in range(600):
        bandit.tell(
            X[number % (12 if number < 300 else 5), None], torch.tensor([float(number % 5)], dtype=torch.float64)
        )
    points, rewards, weights = dense(bandit.history.X[-60:], bandit.history.Y[-60:], bandit.weights[-60:])
    truth = exact(dense_rbf(0.5), points, rewards, regularization / weights, dense(X)[0])
    shown = bandit.model.posterior(X.unsqueeze(-2))
    assert difference(shown.variance.flatten(), truth.variance) < 1e-9
    assert difference(shown.mean.flatten(), truth.mean) < 1e-6
