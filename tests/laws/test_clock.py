"""Time: rounds, numbers or dates, one kind for a bandit, never backwards."""

import math
from datetime import UTC, date, datetime, timedelta, timezone
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import torch
from forgetting import ARMS, TESTED, make, play, reward
from problems import DOUBLE, difference

from torch_kbandits import InputError
from torch_kbandits.memory import SlidingWindow

START = datetime(2024, 2, 28, 23, 0)
HOUR = timedelta(hours=1)
BERLIN = timezone(HOUR)

#: Ways to say the hours after ``START``; and in what unit the bandit then counts.
WAYS = {
    "int": (lambda hours: hours, 1.0),
    "float": (lambda hours: 1.0 * hours, 1.0),
    "fraction": (lambda hours: Fraction(hours, 2), 0.5),
    "numpy int": (lambda hours: np.int32(hours), 1.0),
    "numpy float": (lambda hours: np.float32(hours), 1.0),
    "tensor": (lambda hours: torch.tensor(hours), 1.0),
    "datetime": (lambda hours: START + hours * HOUR, 3600.0),
    "datetime with a zone": (lambda hours: (START + hours * HOUR).replace(tzinfo=UTC), 3600.0),
    "datetime with changing zones": (
        lambda hours: (START + hours * HOUR).replace(tzinfo=UTC).astimezone(BERLIN if hours % 2 else UTC),
        3600.0,
    ),
    "pandas": (lambda hours: pd.Timestamp(START) + hours * HOUR, 3600.0),
    "pandas with a zone": (lambda hours: pd.Timestamp(START, tz="UTC") + hours * HOUR, 3600.0),
    "numpy hours": (lambda hours: np.datetime64("2024-02-28T23") + np.timedelta64(hours, "h"), 3600.0),
    "numpy nanoseconds": (
        lambda hours: np.datetime64("2024-02-28T23", "ns") + np.timedelta64(hours, "h"),
        3600.0,
    ),
}


@pytest.mark.one_in(16)
@pytest.mark.parametrize("way", WAYS)
def test_times_of_all_kinds_are_the_same_times(way):
    read, hour = WAYS[way]
    bandit, plain = make(SlidingWindow(5.5 * hour)), make(SlidingWindow(5.5))
    for number, hours in enumerate([0, 0, 1, 4, 4, 7, 9]):
        X = ARMS[[number]]
        bandit.tell(X, reward(X), time=read(hours))
        plain.tell(X, reward(X), time=float(hours))
        assert bandit.history.times[-1] - bandit.history.times[0] == hour * hours
    assert difference(bandit._belief.moments(TESTED)[0], plain._belief.moments(TESTED)[0]) < 1e-12
    assert torch.equal(bandit.ask(2, time=read(12)), plain.ask(2, time=12.0))
    with pytest.raises(InputError, match="Time must not go backwards: the latest was"):
        bandit.ask(time=read(11))
    bandit.tell(ARMS[7:8], 0.5, time=read(8))  # of the past, and it does not move the present
    plain.tell(ARMS[7:8], 0.5, time=8.0)
    assert bandit.history.times[-1] - bandit.history.times[0] == hour * 8
    bandit.ask(time=read(12))
    state = bandit.state_dict()
    twin, replayed = make(SlidingWindow(5.5 * hour)), make(SlidingWindow(5.5 * hour))
    twin.load_state_dict(state)
    replayed.replay(bandit.history)
    bandit.forget()
    twin.forget()
    after = bandit.ask(2, time=read(13))
    assert torch.equal(twin.ask(2, time=read(13)), after)
    assert torch.equal(replayed.ask(2, time=read(13)), after)


def test_a_zone_is_taken_into_account():
    noon, later = datetime(2024, 5, 1, 12, 0, tzinfo=UTC), datetime(2024, 5, 1, 12, 30, tzinfo=BERLIN)
    bandit = make("window")
    bandit.ask(time=noon)
    with pytest.raises(InputError, match=r"latest was 2024-05-01T12:00:00\+00:00, got 2024-05-01T11:30:00\+00:00"):
        bandit.ask(time=later)


def test_a_date_is_its_midnight():
    bandit = make("window")
    bandit.tell(ARMS[:1], 0.5, time=date(2024, 5, 1))
    bandit.tell(ARMS[:1], 0.5, time=datetime(2024, 5, 1))
    assert bandit.history.times.diff().tolist() == [0.0]


KINDS = {
    "numbers": 5.0,
    "dates": START,
    "dates with a time zone": START.replace(tzinfo=UTC),
}


@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("second", KINDS)
def test_kinds_do_not_mix(first, second):
    for call in ("ask", "tell"):
        bandit = make("window")
        bandit.ask(time=KINDS[first])
        if first == second:
            bandit.ask(time=KINDS[second])
            continue
        before = bandit.state_dict()
        words = {} if call == "ask" else {"x": ARMS[:1], "y": 0.5}
        with pytest.raises(InputError, match=rf"times are {first} so far.*give times of one kind"):
            getattr(bandit, call)(**words, time=KINDS[second])
        assert bandit.state_dict()["clock"] == before["clock"]
        assert bandit.round == 0


@pytest.mark.parametrize("kind", KINDS)
def test_times_and_rounds_do_not_mix(kind):
    rounds = make("window")
    rounds.tell(ARMS[:1], 0.5)
    for call in (rounds.ask, rounds.acquisition, rounds.recommend):
        with pytest.raises(InputError, match=r"times are rounds so far.*leave out time"):
            call(time=KINDS[kind])
    with pytest.raises(InputError, match="leave out time"):
        rounds.tell(ARMS[:1], 0.5, time=KINDS[kind])
    timed = make("window")
    timed.tell(ARMS[:1], 0.5, time=KINDS[kind])
    for call in (timed.ask, timed.acquisition, timed.recommend):
        with pytest.raises(InputError, match=f"time is missing: this bandit's times are {kind}"):
            call()
    assert len(timed.ask(time=KINDS[kind])) == 1


def test_a_reward_without_a_time_has_that_of_the_last_ask():
    bandit = make("window")
    x = bandit.ask(time=3.5)
    bandit.tell(x, 0.5)
    bandit.tell(ARMS[:1], 0.5, time=4.0)
    bandit.tell(ARMS[:1], 0.5)
    assert bandit.history.times.tolist() == [3.5, 4.0, 4.0]


def test_looking_decides_no_kind():
    bandit = make("window")
    bandit.ask(remember=False)
    bandit.acquisition()
    bandit.ask(time=START, remember=False)
    bandit.ask(time=7.0)
    assert bandit.state_dict()["clock"] == {"now": 7.0, "kind": "numbers"}


@pytest.mark.parametrize(
    "time",
    [
        "2024-05-01", b"5", True, np.bool_(True), [1.0], torch.tensor([1.0]), torch.tensor(True), torch.tensor(1j), 1j,
        math.nan, math.inf, -math.inf, np.nan, 10**400, pd.NaT, np.datetime64("NaT"), np.datetime64("20000-01-01"),
        timedelta(hours=1), pd.Timedelta("1h"), np.timedelta64(1, "h"), np.array([1.0]), object(), pd.Timestamp,
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_is_no_time_is_refused(time):
    bandit = make("window")
    tells = [lambda time: bandit.tell(ARMS[:2], [0.5, 0.6], time=time)]
    for call in (bandit.ask, bandit.acquisition, *tells):
        with pytest.raises(InputError, match="time"):
            call(time=time)
    assert bandit.state_dict()["clock"] == {"now": -math.inf, "kind": None}
    assert bandit.round == 0
    assert len(bandit.pending) == 0


def test_a_bandit_without_a_memory_knows_no_time():
    bandit = make(None)
    bandit.tell(ARMS[:1], 0.5)
    for call in (bandit.ask, bandit.acquisition, bandit.recommend, lambda time: bandit.tell(ARMS[:1], 0.5, time=time)):
        with pytest.raises(InputError, match="has no memory, so it knows no time"):
            call(time=3.0)
    assert bandit.history.times is None
    assert bandit.round == 1
    timed = make("window")
    play(timed, 4)
    bandit = make(None)
    bandit.replay(timed.history)
    assert bandit.history.times is None
    assert bandit.state_dict()["clock"] == {"now": -math.inf, "kind": None}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("posterior", ["exact", "fresh", "kors"])
def test_a_history_whose_times_are_its_rounds_may_go_on_either_way(posterior):
    """It may be of a bandit without times or of one that was told 0.0, 1.0, …: both have learned the same."""
    rounds, timed = make("window", posterior), make("window", posterior)
    play(rounds, 9)
    play(timed, 9, times=[float(number) for number in range(9)])
    assert torch.equal(rounds.history.X, timed.history.X)
    assert torch.equal(rounds.history.times, timed.history.times)
    first, second = make("window", posterior), make("window", posterior)
    first.replay(rounds.history)
    second.replay(timed.history)
    assert torch.equal(first.ask(3), rounds.ask(3))
    assert torch.equal(second.ask(3, time=9.0), timed.ask(3, time=9.0))
    with pytest.raises(InputError, match="leave out time"):
        first.ask(time=20.0)
    with pytest.raises(InputError, match="time is missing"):
        second.ask()


def test_a_history_that_begins_like_rounds_is_replayed_at_its_times():
    bandit, twin = make("quadratic"), make("quadratic")
    play(bandit, 4, times=[0.0, 1.0, 1.5, 1.5])
    twin.replay(bandit.history)
    assert difference(twin._belief.moments(TESTED)[0], bandit._belief.moments(TESTED)[0]) < 1e-12
    with pytest.raises(InputError, match="time is missing: this bandit's times are numbers or dates"):
        twin.ask()
    twin.tell(ARMS[:1], 0.5)
    assert float(twin.history.times[-1]) == 1.5
    assert twin.history.times.dtype == DOUBLE
    twin.ask(time=2.0)
    with pytest.raises(InputError, match="times are numbers so far"):
        twin.ask(time=START)
