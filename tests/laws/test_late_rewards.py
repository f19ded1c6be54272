"""Rewards that come late: what is believed is as if they had been told in the order played."""

from datetime import UTC, datetime, timedelta

import hypothesis.strategies as st
import numpy as np
import oracles
import pandas as pd
import pytest
import torch
from forgetting import ACTIONS, ARMS, CONTEXTS, DICTIONARIES, KERNEL, LAMBDA, MEMORIES, TESTED, expected, make, reward
from hypothesis import given
from problems import DOUBLE, dense, difference, examples

from torch_kbandits import Bandit, ConstantWidth, InputError, algorithms
from torch_kbandits.acquisition import StagedRule
from torch_kbandits.bandit.adaptation import BanditOverBandit, DynamicModelSelection, ResidualTrigger
from torch_kbandits.bandit.batches import GlobalBatchRule
from torch_kbandits.candidates.timed import untimed
from torch_kbandits.memory import BackToPrior, Discount, KeepAll, SlidingWindow
from torch_kbandits.outcomes import Outcome

RATE = 0.1
ROUNDS = 24


def scripted(bandit, number):
    """The action and the words of round n."""
    if not untimed(bandit.candidates).is_contextual:
        return ARMS[[3 * number % len(ARMS)]], {}
    return ACTIONS[[number % len(ACTIONS)]], {"context": CONTEXTS[number % len(CONTEXTS)]}


def value(number):
    return float(np.sin(1.7 * number))


def told_in_order(bandit, times):
    for number, time in enumerate(times):
        x, words = scripted(bandit, number)
        bandit.tell(x, value(number), time=time, **words)
    return bandit


def told_late(bandit, times, delays, by="ids", first=0):
    """Play in order, and tell each reward so many rounds late; those due in one round in one call."""
    ids, number = {}, len(times)
    for now in range(first, number + max(delays) + 1):
        if now < number:
            x, words = scripted(bandit, now)
            ids[now] = bandit.mark_pending(x, time=times[now], **words)
        due = [each for each in range(number) if each + delays[each] == now]
        if due and by == "ids":
            bandit.tell(ids=[number for each in due for number in ids[each]], y=[value(each) for each in due])
        for each in due if by == "points" else ():
            x, words = scripted(bandit, each)
            bandit.tell(x, value(each), **words)
    return bandit


def believed(bandit, points=TESTED):
    return torch.stack(bandit._belief.moments(points))


def agrees(bandit, name, now):
    bandit.ask(time=now, **offered(bandit))
    bandit.forget(ids=bandit.pending_ids[-1])
    dense_one = expected(bandit, name, now)
    mean, variance = believed(bandit)
    return max(difference(mean, dense_one.mean), difference(variance, dense_one.variance)) < dense_one.rounding


def offered(bandit):
    words = {"context": CONTEXTS[0]} if untimed(bandit.candidates).is_contextual else {}
    return words | ({"candidates": ACTIONS} if words and untimed(bandit.candidates).set is None else {})


@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("domain", ["arms", "contexts", "box"])
@pytest.mark.parametrize("by", ["ids", "points"])
@examples(9)
@given(
    name=st.sampled_from(sorted(MEMORIES)),
    delays=st.lists(st.integers(0, 50), min_size=ROUNDS, max_size=ROUNDS),
    step=st.sampled_from([0.3, 1.0]),
)
def test_the_posterior_is_that_of_rewards_told_in_order(name, delays, step, by, domain):
    # Of two plays of a point the one asked first is told first, so points told by themselves are to differ.
    times = [step * number for number in range(ROUNDS if by == "ids" else len(ARMS))]
    late = told_late(make(name, "exact", domain), times, delays, by)
    order = told_in_order(make(name, "exact", domain), times)
    assert len(late.pending) == 0
    assert late.now == times[-1]
    assert sorted(late.history.times.tolist()) == times
    for now in (times[-1], times[-1] + 2.5):
        assert agrees(order, name, now)
        assert agrees(late, name, now)
        assert difference(believed(late), believed(order)) < 1e-8


@pytest.mark.one_in(4)
@pytest.mark.parametrize("domain", ["arms", "contexts"])
@pytest.mark.parametrize("posterior", [name for name in DICTIONARIES if name != "exact"])
@pytest.mark.parametrize("name", ["window", "window of observations", "discount", "linear", "restart"])
def test_a_dictionary_is_that_of_the_tells_and_its_posterior_the_dense_one(name, posterior, domain):
    delays = np.random.default_rng(3).integers(0, 8, size=ROUNDS).tolist()
    assert agrees(told_late(make(name, posterior, domain), range(ROUNDS), delays), name, ROUNDS + 1.0)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("domain", ["arms", "contexts", "box"])
def test_under_a_prior_on_time_a_point_keeps_the_time_at_which_it_was_played(domain, seed):
    delays = np.random.default_rng(seed).integers(0, 51, size=ROUNDS).tolist()
    bandit = told_late(make(BackToPrior(RATE, 0.3), "exact", domain), range(ROUNDS), delays)
    now = ROUNDS + 2.0
    bandit.ask(time=now, remember=False, **offered(bandit))
    history = bandit.history
    assert torch.equal(history.X[:, 0], history.times)
    assert history.times.tolist() == sorted(range(ROUNDS), key=lambda number: (number + delays[number], number))
    points = torch.cat([torch.full((len(TESTED), 1), now, dtype=DOUBLE), TESTED], dim=-1)
    bandit.mark_pending(ACTIONS[:1] if domain == "contexts" else ARMS[:1], time=now, **scripted(bandit, 0)[1])
    counts = (1.0 - RATE) ** (0.5 * (now - history.times)) >= 0.3
    X, y, T = dense(history.X[counts], history.Y[counts], points)
    dense_one = oracles.exact(oracles.in_time(KERNEL, RATE), X, y, np.full(len(X), LAMBDA), T)
    mean, variance = believed(bandit, points)
    assert max(difference(mean, dense_one.mean), difference(variance, dense_one.variance)) < dense_one.rounding


@examples(15)
@given(
    name=st.sampled_from(["window", "window of observations", "discount", "quadratic", "restart"]),
    order=st.permutations(range(12)),
    size=st.sampled_from([1, 3, 12]),
)
def test_without_times_rewards_are_of_the_round_in_which_they_were_asked_for(name, order, size):
    bandit, asked = make(name), {}
    for number in order:
        if len(asked) <= number:
            while len(asked) <= number:
                for each in bandit.ask(size, return_ids=True).ids:
                    asked[each] = bandit.round
        bandit.tell(ids=number, y=value(number))
    assert bandit.history.times.tolist() == [asked[number] for number in order]
    assert bandit.round == bandit.now == 12
    dense_one = expected(bandit, name, 12.0)
    bandit.forget()
    bandit.ask(remember=False)
    mean, variance = believed(bandit)
    assert difference(mean, dense_one.mean) < dense_one.rounding
    assert difference(variance, dense_one.variance) < dense_one.rounding


@pytest.mark.parametrize("posterior", ["exact", "fresh"])
def test_in_stages_the_latest_observations_are_those_played_last(posterior):
    """No stage can tell from its own rewards which are the latest of all."""
    words = {"acquisition": StagedRule(60), "width": ConstantWidth(0.4)}
    bandit = make("window of observations", posterior, **words)
    for number in range(14):
        bandit.ask(2, time=number)
        if number % 3:
            some = bandit.pending_ids[-1:] + bandit.pending_ids[:1]
            bandit.tell(ids=some, y=reward(bandit.pending[[-1, 0]]))
    history, twin = bandit.history, make("window of observations", posterior, **words)
    assert (history.times.diff() < 0).any()
    counts = history.times.argsort(stable=True)[-7:].sort().values
    assert set(history.stages[counts].tolist()) >= {1, 2}
    for stage, part in enumerate([bandit._belief.everything, *bandit._belief.stage_beliefs]):
        own = counts if stage == 0 else counts[history.stages[counts] == stage]
        assert torch.equal(part.observations[0], history.X[own])
        assert torch.equal(part.observations[1], history.Y[own])
    twin.load_state_dict(bandit.state_dict())
    assert torch.equal(twin.ask(3, time=20.0), bandit.ask(3, time=20.0))
    more = bandit.pending_ids[0]
    for each in (bandit, twin):
        each.tell(ids=more, y=0.5)
    assert torch.equal(twin.ask(3, time=20.0), bandit.ask(3, time=20.0))


# ---------------------------------------------------------------- what is said of time


def hours(number, start):
    return start + timedelta(hours=number)


@pytest.mark.parametrize(
    ("said", "hour"),
    [
        (lambda hour: [float(h) for h in hour], 1.0),
        (lambda hour: tuple(hour), 1.0),
        (lambda hour: np.array(hour), 1.0),
        (lambda hour: np.array(hour, dtype=np.float32), 1.0),
        (lambda hour: torch.tensor(hour), 1.0),
        (lambda hour: torch.tensor(hour, dtype=torch.bfloat16), 1.0),
        (lambda hour: [torch.tensor(h) for h in hour], 1.0),
        (lambda hour: pd.Series(hour, index=list("abcd")), 1.0),
        (lambda hour: [hours(h, datetime(2026, 1, 1)) for h in hour], 3600.0),
        (lambda hour: [hours(h, datetime(2026, 1, 1, tzinfo=UTC)) for h in hour], 3600.0),
        (lambda hour: np.array([hours(h, datetime(2026, 1, 1)) for h in hour], dtype="datetime64[ns]"), 3600.0),
        (lambda hour: pd.Series([hours(h, datetime(2026, 1, 1)) for h in hour]), 3600.0),
        (lambda hour: pd.DatetimeIndex([hours(h, datetime(2026, 1, 1)) for h in hour], tz="UTC"), 3600.0),
    ],
)
def test_a_log_is_told_in_one_call_with_a_time_for_each(said, hour):
    played = [7, 2, 5, 0]
    bandit, one_by_one = make(SlidingWindow(6.0 * hour)), make(SlidingWindow(6.0))
    bandit.tell(ARMS[:4], [0.1, 0.2, 0.3, 0.4], time=said(played))
    for row in (3, 1, 2, 0):
        one_by_one.tell(ARMS[[row]], 0.1 * (row + 1), time=float(played[row]))
    times = bandit.history.times
    assert ((times - times.min()) / hour).tolist() == played
    assert bandit.now == times.max()
    assert bandit.weights.tolist() == [1.0, 1.0, 1.0, 0.0]
    assert difference(believed(bandit), believed(one_by_one)) < 1e-12


@pytest.mark.parametrize(
    ("time", "words"),
    [
        ([1.0, 2.0], "one for each; got 2"),
        ([], "one for each; got 0"),
        ([1.0, 2.0, float("nan")], "finite"),
        (np.array([1.0, 2.0, np.inf]), "finite"),
        ([1.0, 2.0, "3"], "must be a number or a date"),
        ([1.0, 2.0, True], "must be a number or a date"),
        ([1.0, 2.0, None], "must be a number or a date"),
        ([1.0, 2.0, datetime(2026, 1, 1)], "one kind"),
        ([[1.0], [2.0], [3.0]], "must be a number or a date"),
        (torch.ones(3, 1), "must be a number or a date"),
        (torch.ones(3, dtype=torch.bool), "must be a number or a date"),
        (torch.ones(3).to_sparse(), "must be a number or a date"),
        ("abc", "must be a number or a date"),
        ({1.0, 2.0, 3.0}, "must be a number or a date"),
        ({1.0: 1, 2.0: 2, 3.0: 3}, "must be a number or a date"),
        (pd.DataFrame({"t": [1.0, 2.0, 3.0]}), "must be a number or a date"),
        ([datetime(2026, 1, 1)] * 3, "times are numbers so far"),
    ],
    ids=repr,
)
def test_what_are_no_times_changes_nothing(time, words):
    bandit = make("window")
    bandit.tell(ARMS[:1], 0.5, time=4.0)
    before = bandit._standing
    with pytest.raises(InputError, match=words):
        bandit.tell(ARMS[:3], [0.1, 0.2, 0.3], time=time)
    assert bandit._standing is before


def test_the_present_is_the_latest_time_and_goes_on_alone():
    bandit = make("window")
    ids = [bandit.ask(time=time, return_ids=True).ids[0] for time in (1.0, 2.0, 4.0)]
    assert bandit.pending_ages.tolist() == [3.0, 2.0, 0.0]
    bandit.tell(ids=ids[1], y=0.1)
    assert (bandit.now, bandit.history.times.tolist()) == (4.0, [2.0])
    bandit.tell(ids=ids[0], y=0.1, time=1.5)  # it was played later than asked for
    assert (bandit.now, bandit.history.times.tolist()) == (4.0, [2.0, 1.5])
    bandit.tell(ARMS[:2], [0.1, 0.2], time=[-3.0, 6.0])
    assert (bandit.now, bandit.pending_ages.tolist()) == (6.0, [2.0])
    bandit.tell(ARMS[:1], 0.3)  # nobody asked for it: it is of the present
    assert bandit.history.times.tolist() == [2.0, 1.5, -3.0, 6.0, 6.0]
    with pytest.raises(InputError, match="must not go backwards: the latest was 6, got 5"):
        bandit.ask(time=5.0)
    bandit.tell(ids=ids[2], y=0.2)
    assert bandit.history.times[-1] == 4.0
    assert bandit.pending_ages.shape == (0,)


def test_without_a_clock_ages_are_rounds():
    bandit = make(None)
    bandit.ask(2)
    bandit.tell(bandit.ask(), 0.5)
    bandit.ask()
    assert bandit.pending_ages.tolist() == [1.0, 1.0, 0.0]
    assert bandit.pending_ages.dtype == DOUBLE
    with pytest.raises(InputError, match="no memory, so it knows no time"):
        bandit.tell(ARMS[:2], [0.1, 0.2], time=[0.0, 1.0])


def test_of_two_plays_of_a_point_the_one_asked_first_is_told_first():
    bandit = make("discount")
    for time in (0.0, 3.0):
        bandit.mark_pending(ARMS[:1], time=time)
    bandit.mark_pending(ARMS[1:2], time=5.0)
    bandit.tell(ARMS[[0, 1, 0, 2]], [0.1, 0.2, 0.3, 0.4])
    assert bandit.history.times.tolist() == [0.0, 5.0, 3.0, 5.0]


# ---------------------------------------------------------------- beside all else


@pytest.mark.one_in(6)
@pytest.mark.parametrize("posterior", ["exact", "fresh", "kors"])
@pytest.mark.parametrize("name", ["window", "window of observations", "discount", "restart", "prior on time"])
@pytest.mark.parametrize("timed", [False, True])
def test_saved_and_replayed_bandits_go_on_as_the_original(name, posterior, timed, tmp_path):
    memory = BackToPrior(RATE, 0.2) if name == "prior on time" else MEMORIES[name].memory
    bandit, replayed = make(memory, posterior), make(memory, posterior)
    generator = np.random.default_rng(8)
    for number in range(16):
        bandit.ask(**({"time": 0.7 * number} if timed else {}))
        count = len(bandit.pending_ids)
        due = generator.permutation(count)[: generator.integers(1, 3)] if count > 3 or not timed else []
        if len(due):
            bandit.tell(ids=[bandit.pending_ids[row] for row in due], y=generator.standard_normal(len(due)))
    assert (bandit.history.times.diff() < 0).any() or not timed
    bandit.save(tmp_path / "bandit")
    loaded = Bandit.load(tmp_path / "bandit")
    assert torch.equal(loaded.pending_ages, bandit.pending_ages)
    replayed.replay(bandit.history)
    assert torch.equal(replayed.history.times, bandit.history.times)
    later = {"time": 12.0} if timed else {}
    for each in (bandit, loaded):
        each.tell(ids=each.pending_ids[0], y=0.3) if len(each.pending_ids) else None
        assert torch.equal(each.history.times, bandit.history.times)
    assert torch.equal(loaded.ask(3, **later), bandit.ask(3, **later))
    bandit.forget()
    replayed = make(memory, posterior)
    replayed.replay(bandit.history)
    assert torch.equal(replayed.ask(3, **later), bandit.ask(3, **later))


def test_a_history_says_when_rewards_were_told_so_its_rounds_are_known():
    bandit, days = make("discount"), make("discount")
    for number in bandit.ask(3, return_ids=True).ids:
        bandit.tell(ids=number, y=value(number))
    for number in range(3):
        days.tell(bandit.history.X[[number]], value(number), time=0)
    assert torch.equal(bandit.history.times, days.history.times)
    assert bandit.history.told_at.tolist() == [0.0, 1.0, 2.0]
    rounds, numbers = make("discount"), make("discount")
    rounds.replay(bandit.history)
    numbers.replay(days.history)
    assert (rounds.now, numbers.now) == (3.0, 0.0)
    assert torch.equal(rounds.ask(2), bandit.ask(2))
    assert torch.equal(numbers.ask(2, time=0.5), days.ask(2, time=0.5))


def test_a_history_that_does_not_say_so_was_told_in_its_order():
    bandit, twin, same = make("window"), make("window"), make("window")
    for number, time in enumerate([0.0, 5.0, 3.0, 9.0]):
        bandit.tell(ARMS[[number]], value(number), time=time)
    twin.replay(bandit.history._replace(told_at=None))
    assert twin.history.told_at.tolist() == bandit.history.told_at.tolist() == [0.0, 5.0, 5.0, 9.0]
    same.load_state_dict(twin.state_dict() | {"clock": bandit.state_dict()["clock"]})
    assert torch.equal(same.ask(2, time=10.0), bandit.ask(2, time=10.0))


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "words",
    [
        {"memories": DynamicModelSelection((Discount(0.8), SlidingWindow(5.0), KeepAll()), 3)},
        {"memories": DynamicModelSelection((BackToPrior(0.3), SlidingWindow(5, "observations")), 3)},
        {"memories": BanditOverBandit((SlidingWindow(3, "observations"), Discount(0.9)), 3, 0.5)},
        {"memory": Discount(0.9), "trigger": ResidualTrigger(0.3)},
        {"memory": SlidingWindow(6.0), "batches": GlobalBatchRule(2.0)},
    ],
    ids=["selection", "selection with time", "bandit over bandit", "trigger", "batches"],
)
def test_bandits_that_adapt_take_late_rewards_and_are_saved_and_replayed(words, tmp_path):
    settings = {"memory": None} | words
    bandit, twin = make(**settings), make(**settings)
    delays = np.random.default_rng(4).integers(0, 12, size=ROUNDS).tolist()
    told_late(bandit, [0.5 * number for number in range(ROUNDS)], delays)
    twin.replay(bandit.history)
    bandit.save(tmp_path / "bandit")
    loaded = Bandit.load(tmp_path / "bandit")
    x = bandit.ask(3, time=30.0)
    assert torch.equal(twin.ask(3, time=30.0), x)
    assert torch.equal(loaded.ask(3, time=30.0), x)


def test_outcomes_and_failures_of_late_plays_are_of_their_time(tmp_path):
    """Each outcome has a posterior of its own, of when it was measured."""
    memory, names = MEMORIES["discount"].memory, ["heat", "cost"]
    late, order = (make(memory, outcomes=[Outcome("heat", memory=KeepAll()), "cost"]) for _ in range(2))
    plays = [(number, {"heat": value(number), "cost": None if number % 3 else value(-number)}) for number in range(8)]
    for number, _ in plays:
        late.mark_pending(ARMS[[number]], time=number)
    for number, outcomes in [plays[place] for place in (3, 7, 0, 1, 6, 2, 5, 4)]:
        words = {"failed": True} if number == 5 else {"y": value(number)}
        late.tell(ids=number, outcomes=outcomes, **words)
    for number, outcomes in plays:
        words = {"failed": True} if number == 5 else {"y": value(number)}
        order.tell(ARMS[[number]], outcomes=outcomes, time=number, **words)
    late.save(tmp_path / "bandit")
    replayed = make(memory, outcomes=[Outcome("heat", memory=KeepAll()), "cost"])
    replayed.replay(late.history)
    for bandit in (late, Bandit.load(tmp_path / "bandit"), replayed):
        assert bandit.history.times.tolist() == [3.0, 7.0, 0.0, 1.0, 6.0, 2.0, 5.0, 4.0]
        assert difference(believed(bandit), believed(order)) < 1e-8
        for mine, theirs in zip(bandit._standing.outcomes, order._standing.outcomes, strict=True):
            moments = [torch.stack(each.told.moments(TESTED)) for each in (mine, theirs)]
            assert difference(*moments) < 1e-8
    assert list(late.outcomes) == names


def test_after_a_restart_late_rewards_count():
    bandit = make("discount")
    (number,) = bandit.ask(time=0.0, return_ids=True).ids
    bandit.tell(ARMS[:1], 0.5, time=1.0)
    bandit.ask(time=2.0)
    bandit.restart()
    bandit.tell(ids=number, y=0.4)
    assert bandit.weights.tolist() == [0.0, pytest.approx(0.8**2)]
    assert torch.equal(bandit._belief.observations[1], torch.tensor([0.4], dtype=DOUBLE))


def test_the_named_algorithms_date_a_reward_by_its_ask():
    kernel = make("window").prior.kernel
    bandit = algorithms.WGPUCB(candidates=ARMS, kernel=kernel, regularization=0.01, discount=0.5, beta=2.0, seed=0)
    first, second = (bandit.ask(time=time, return_ids=True) for time in (0.0, 9.0))
    bandit.tell(ids=second.ids, y=1.0, time=9.5)
    bandit.tell(ids=first.ids, y=0.3)
    assert bandit.history.times.tolist() == [9.5, 0.0]
    assert bandit.weights.tolist() == pytest.approx([1.0, 0.5**9.5])
    timed = algorithms.TVGPUCB(candidates=ARMS, kernel=kernel, regularization=0.01, forgetting=0.1, beta=2.0, seed=0)
    first, second = (timed.ask(time=time, return_ids=True) for time in (0.0, 9.0))
    timed.tell(second.actions, 1.0)
    timed.tell(first.actions, 0.3)
    assert timed.history.X[:, 0].tolist() == [9.0, 0.0]
