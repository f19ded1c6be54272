"""Time, and rewards that come late: which time a reward is of, and what a time is.

That what is known is as if all had been told in the order played is in ``test_posterior``.
"""

import math
from datetime import UTC, date, datetime, timedelta, timezone
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
import torch
from forgetting import ARMS, TESTED, expected, make, play
from hypothesis import given
from kinds import same
from problems import believed, difference, examples, matern

from torch_kbandits import InputError, algorithms
from torch_kbandits.memory import SlidingWindow


def value(number):
    return float(np.sin(1.7 * number))


def is_as(bandit, dense_one, points=TESTED):
    mean, variance = believed(bandit, points)
    return max(difference(mean, dense_one.mean), difference(variance, dense_one.variance)) < dense_one.rounding


@examples(12)
@given(
    name=st.sampled_from(["window", "window of observations", "discount", "quadratic", "restart"]),
    order=st.permutations(range(12)),
    size=st.sampled_from([1, 3, 12]),
)
def test_without_times_rewards_are_of_the_round_in_which_they_were_asked_for(name, order, size):
    bandit, asked = make(name), {}
    for number in order:
        while len(asked) <= number:
            asked |= dict.fromkeys(bandit.ask(size, details=True).ids, bandit.round)
        bandit.tell(ids=number, y=value(number))
    assert bandit.history.times.tolist() == [asked[number] for number in order]
    assert bandit.round == bandit.now == 12
    assert is_as(bandit, expected(bandit, name, 12.0))


def test_the_present_is_the_latest_time_and_goes_on_alone():
    bandit = make("window")
    ids = [bandit.ask(time=time, details=True).ids[0] for time in (1.0, 2.0, 4.0)]
    assert bandit.pending_ages.tolist() == [3.0, 2.0, 0.0]
    bandit.tell(ids=ids[1], y=0.1)
    assert (bandit.now, bandit.history.times.tolist()) == (4.0, [2.0])
    bandit.tell(ids=ids[0], y=0.1, time=1.5)  # it was played later than asked for
    bandit.tell(ARMS[:2], [0.1, 0.2], time=[-3.0, 6.0])
    assert (bandit.now, bandit.pending_ages.tolist()) == (6.0, [2.0])
    bandit.tell(ARMS[:1], 0.3)  # nobody asked for it: it is of the present
    assert bandit.history.times.tolist() == [2.0, 1.5, -3.0, 6.0, 6.0]
    for time in (5.0, np.float32(5.5)):
        with pytest.raises(InputError, match="must not go backwards: the latest was 6, got 5"):
            bandit.ask(time=time)
    bandit.tell(ids=ids[2], y=0.2)
    assert bandit.history.times[-1] == 4.0
    plain = make(None)
    plain.ask(2)
    plain.tell(plain.ask(), 0.5)
    assert plain.pending_ages.tolist() == [1.0, 1.0]


def test_of_two_plays_of_a_point_the_one_asked_first_is_told_first_and_after_a_restart_late_ones_count():
    bandit = make("discount")
    for time in (0.0, 3.0):
        bandit.mark_pending(ARMS[:1], time=time)
    bandit.mark_pending(ARMS[1:2], time=5.0)
    bandit.tell(ARMS[[0, 1, 0, 2]], [0.1, 0.2, 0.3, 0.4])
    assert bandit.history.times.tolist() == [0.0, 5.0, 3.0, 5.0]
    (number,) = bandit.ask(time=6.0, details=True).ids
    bandit.ask(time=8.0)
    bandit.restart()
    bandit.tell(ids=number, y=0.6)
    assert bandit.weights.tolist() == [0.0] * 4 + [pytest.approx(0.8**2)]
    assert bandit.model.train_targets.tolist() == [0.6]


def test_a_history_says_when_rewards_were_told_so_its_rounds_are_known():
    bandit, days = make("discount"), make("discount")
    for number in bandit.ask(3, details=True).ids:
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
    for bandit, message in ((rounds, "leave out time"), (days, "must not go backwards")):
        with pytest.raises(InputError, match=message):
            bandit.ask(time=0.1)
    window, twin = make("window"), make("window")
    for number, time in enumerate([0.0, 5.0, 3.0, 9.0]):
        window.tell(ARMS[[number]], value(number), time=time)
    twin.replay(window.history._replace(told_at=None))  # it does not say so: it was told in its order
    assert twin.history.told_at.tolist() == window.history.told_at.tolist() == [0.0, 5.0, 5.0, 9.0]
    with pytest.raises(InputError, match="time is missing: this bandit's times are numbers or dates"):
        twin.ask()


@pytest.mark.parametrize("posterior", ["exact", pytest.param("fresh", marks=pytest.mark.slow)])
def test_a_history_whose_times_are_its_rounds_may_go_on_either_way(posterior):
    """It may be of a bandit without times or of one that was told 0.0, 1.0, …: both have learned the same."""
    rounds, timed, first, second = (make("window", posterior) for _ in range(4))
    play(rounds, 9)
    play(timed, 9, times=[float(number) for number in range(9)])
    assert torch.equal(rounds.history.times, timed.history.times)
    first.replay(rounds.history)
    second.replay(timed.history)
    assert torch.equal(first.ask(3), rounds.ask(3))
    assert torch.equal(second.ask(3, time=9.0), timed.ask(3, time=9.0))


def test_the_named_algorithms_date_a_reward_by_its_ask():
    words = {"candidates": ARMS, "kernel": matern(), "regularization": 0.01, "beta": 2.0, "seed": 0}
    bandit = algorithms.WGPUCB(discount=0.5, **words)
    first, second = (bandit.ask(time=time, details=True) for time in (0.0, 9.0))
    bandit.tell(ids=second.ids, y=1.0, time=9.5)
    bandit.tell(ids=first.ids, y=0.3)
    assert bandit.history.times.tolist() == [9.5, 0.0]
    assert bandit.weights.tolist() == pytest.approx([1.0, 0.5**9.5])
    timed = algorithms.TVGPUCB(forgetting=0.1, **words)
    first, second = (timed.ask(time=time, details=True) for time in (0.0, 9.0))
    timed.tell(second.x, 1.0)
    timed.tell(first.x, 0.3)
    assert timed.history.X[:, 0].tolist() == [9.0, 0.0]


# ---------------------------------------------------------------- what is a time

START, HOUR = datetime(2024, 2, 28, 23, 0), timedelta(hours=1)
BERLIN = timezone(HOUR)
#: Ways to say the hours after ``START``; and in what unit the bandit then counts.
WAYS = {
    "int": (lambda hours: hours, 1.0),
    "fraction": (lambda hours: Fraction(hours, 2), 0.5),
    "numpy int": (lambda hours: np.int32(hours), 1.0),
    "numpy float": (lambda hours: np.float32(hours), 1.0),
    "tensor": (lambda hours: torch.tensor(hours), 1.0),
    "datetime": (lambda hours: START + hours * HOUR, 3600.0),
    "datetime with changing zones": (
        lambda hours: (START + hours * HOUR).replace(tzinfo=UTC).astimezone(BERLIN if hours % 2 else UTC),
        3600.0,
    ),
    "pandas": (lambda hours: pd.Timestamp(START) + hours * HOUR, 3600.0),
    "pandas with a zone": (lambda hours: pd.Timestamp(START, tz="UTC") + hours * HOUR, 3600.0),
    "numpy nanoseconds": (lambda hours: np.datetime64("2024-02-28T23", "ns") + np.timedelta64(hours, "h"), 3600.0),
}
#: Ways to say the times of several points at once.
SEVERAL = (list, np.array, pd.Series)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("way", WAYS)
def test_times_of_all_kinds_are_the_same_times(way):
    read, hour = WAYS[way]
    bandit, plain, at_once, twin = (make(SlidingWindow(5.5 * unit)) for unit in (hour, 1.0, hour, hour))
    told = [0, 0, 1, 4, 4, 7, 3, 9]  # 3 is of the past
    for number, hours in enumerate(told):
        bandit.tell(ARMS[[number]], value(number), time=read(hours))
        plain.tell(ARMS[[number]], value(number), time=float(hours))
        assert bandit.history.times[-1] - bandit.history.times[0] == hour * hours
    kind = SEVERAL[[*WAYS].index(way) % 3]
    at_once.tell(ARMS[:8], [value(number) for number in range(8)], time=kind([read(hours) for hours in told]))
    assert torch.equal(at_once.history.times, bandit.history.times)
    for each in (bandit, at_once):
        assert difference(believed(each, TESTED)[0], believed(plain, TESTED)[0]) < 1e-12
    assert torch.equal(bandit.ask(2, time=read(12)), plain.ask(2, time=12.0))
    with pytest.raises(InputError, match="Time must not go backwards: the latest was"):
        bandit.ask(time=read(11))
    twin.load_state_dict(bandit.state_dict())
    assert torch.equal(twin.ask(time=read(13)), bandit.ask(time=read(13)))


KINDS = {"numbers": 5.0, "dates": START, "dates with a time zone": START.replace(tzinfo=UTC)}


@pytest.mark.parametrize("first", KINDS)
def test_kinds_of_times_do_not_mix_nor_do_times_and_rounds(first):
    for second in {*KINDS} - {first}:
        bandit = make("window")
        bandit.ask(time=KINDS[first])
        before = bandit.state_dict()
        for call in (bandit.ask, lambda time, bandit=bandit: bandit.tell(ARMS[:1], 0.5, time=time)):
            with pytest.raises(InputError, match=rf"times are {first} so far.*give times of one kind"):
                call(time=KINDS[second])
            assert same(bandit.state_dict(), before)
    rounds, timed = make("window"), make("window")
    rounds.tell(ARMS[:1], 0.5)
    timed.tell(ARMS[:1], 0.5, time=KINDS[first])
    for name in ("ask", "acquisition", "recommend"):
        with pytest.raises(InputError, match=r"times are rounds so far.*leave out time"):
            getattr(rounds, name)(time=KINDS[first])
        with pytest.raises(InputError, match=f"time is missing: this bandit's times are {first}"):
            getattr(timed, name)()
    assert len(timed.ask(time=KINDS[first])) == 1


def test_zones_midnights_and_looks():
    bandit = make("window")
    bandit.ask(remember=False)
    bandit.acquisition()
    bandit.ask(time=7.0, remember=False)  # looking decides no kind
    bandit.ask(time=datetime(2024, 5, 1, 12, 0, tzinfo=UTC))
    with pytest.raises(InputError, match=r"latest was 2024-05-01T12:00:00\+00:00, got 2024-05-01T11:30:00\+00:00"):
        bandit.ask(time=datetime(2024, 5, 1, 12, 30, tzinfo=BERLIN))
    days = make("window")
    days.tell(ARMS[:1], 0.5, time=date(2024, 5, 1))
    days.tell(ARMS[:1], 0.5, time=datetime(2024, 5, 1))
    days.tell(days.ask(time=datetime(2024, 5, 1, 1)), 0.5)  # of the last ask
    assert days.history.times.diff().tolist() == [0.0, 3600.0]


#: What is none in itself is in ``test_odd_arguments`` too.
NO_TIMES = [True, [1.0], torch.tensor([1.0]), -math.inf, pd.NaT, np.datetime64("20000-01-01"), timedelta(hours=1)]
NOT_ONE_FOR_EACH = [
    ([1.0, 2.0], "one for each; got 2"),
    ([1.0, 2.0, math.nan], "finite"),
    ([1.0, 2.0, None], "must be a number or a date"),
    (torch.ones(3).to_sparse(), "must be a plain tensor"),
]


def test_what_is_no_time_is_refused_and_changes_nothing():
    bandit = make("window")
    bandit.tell(ARMS[:1], 0.5, time=4.0)
    before = bandit.state_dict()
    for time in NO_TIMES:
        for call in (bandit.ask, bandit.acquisition, lambda time: bandit.tell(ARMS[:2], [0.5, 0.6], time=time)):
            with pytest.raises(InputError, match="time"):
                call(time=time)
    for time, message in NOT_ONE_FOR_EACH:
        with pytest.raises(InputError, match=message):
            bandit.tell(ARMS[:3], [0.1, 0.2, 0.3], time=time)
    assert same(bandit.state_dict(), before)


def test_a_bandit_without_a_memory_knows_no_time():
    bandit, replayed, timed = make(None), make(None), make("window")
    bandit.tell(ARMS[:1], 0.5)
    for call in (bandit.ask, bandit.acquisition, bandit.recommend, lambda time: bandit.tell(ARMS[:1], 0.5, time=time)):
        with pytest.raises(InputError, match="has no memory, so it knows no time"):
            call(time=3.0)
    play(timed, 4)
    replayed.replay(timed.history)
    assert replayed.history.times is None
