"""The line of progress says what is true, reads no more than it must, and changes nothing."""

import io

import pytest
import torch
from problems import DOUBLE, data, rbf

from torch_kbandits import InputError, algorithms
from torch_kbandits.plotting import Progress

ARMS = data(30, 2)[0]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def make(**words):
    settings = {"candidates": ARMS, "kernel": rbf(0.3), "regularization": 0.05, "beta": 1.5, "seed": 0}
    return algorithms.BKB(**(settings | words))


def play(bandit, rewards):
    for reward in rewards:
        bandit.tell(bandit.ask(), float(reward))


def test_what_is_read_is_of_the_rewards_since_it_began():
    bandit = make()
    play(bandit, [99.0, 98.0])  # before it began
    line = Progress(bandit, center=10.0)
    assert "best" not in line.reading()
    rewards = torch.linspace(-1.0, 1.0, 60, dtype=DOUBLE).tolist()
    play(bandit, rewards[:25])
    line.reading()
    play(bandit, rewards[25:])
    recent = 10.0 + sum(rewards[-50:]) / 50
    said = f"best 11, recent {recent:.3g}, m = {len(bandit.inducing_points)}, β = 1.5"
    assert line.reading() == said
    bandit.load_state_dict(make().state_dict())  # an empty one
    assert "best 11, " in line.reading()


def test_a_turn_reads_nothing_until_a_reading_is_due(monkeypatch):
    bandit = make()
    play(bandit, [0.0] * 5)
    looked = []
    for name in ("history", "inducing_points", "beta", "model"):
        value = getattr(type(bandit), name).fget
        monkeypatch.setattr(
            type(bandit), name, property(lambda self, name=name, value=value: (looked.append(name), value(self))[1])
        )
    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setattr("torch_kbandits.plotting.progress._INTERVAL", 3600.0)
    progress = Progress(bandit, 10)
    play(bandit, [1.0] * 3)
    looked.clear()
    progress.update()
    assert looked == []
    progress.close()  # the last reading
    assert sorted(looked) == ["beta", "inducing_points"]  # never the whole history


def test_it_is_silent_without_a_terminal_and_looks_at_nothing(monkeypatch):
    bandit, stream = make(), io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(Progress, "reading", lambda self: pytest.fail("nobody looks"))
    assert list(Progress(bandit, 3)) == [0, 1, 2]
    assert stream.getvalue() == ""


def test_what_does_not_fit_is_named():
    with pytest.raises(InputError, match="bandit must be"):
        Progress("bkb", 3)
