"""A full dictionary exchanges the same points whatever an inverse remembers of rounds before."""

from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from problems import DOUBLE, KERNELS, dense, examples

from torch_kbandits.dictionaries import PlayedPoints, exchanges
from torch_kbandits.dictionaries.exchanges import _Inverse, exchanged

GAIN = 1.1


def points_of(rng, number, kind):
    """Points in the plane: anywhere, or in pairs that nearly coincide."""
    X = rng.uniform(-1.5, 1.5, (number, 2))
    if kind == "pairs":
        X[1::2] = X[: number // 2 * 2 : 2][: len(X[1::2])] + 1e-5 * rng.standard_normal((len(X[1::2]), 2))
    return torch.from_numpy(X)


def rounds(seed, kernel, noise, kind, number, cap):
    """What a bandit asks in so many rounds: points are played again, and new ones are offered, alone or together."""
    rng = np.random.default_rng(seed)
    X, counts, kept, known = points_of(rng, number, kind), np.zeros(number), torch.arange(cap), cap
    counts[:cap] = 1.0
    while known < number:
        new = int(rng.integers(0, 4))
        for row in rng.integers(0, known, int(rng.integers(0, 3))):
            counts[row] += 1.0
        offered = torch.arange(known, min(known + new, number))
        counts[offered.numpy()] = rng.integers(1, 4, len(offered))
        known = min(known + new, number)
        if rng.random() < 0.1:  # something else was selected
            kept = torch.from_numpy(np.sort(rng.choice(known, cap, replace=False)))
            offered = torch.tensor([row for row in offered.tolist() if row not in kept.tolist()], dtype=torch.long)
        level = torch.tensor(noise, dtype=DOUBLE)
        kept = yield X[:known], KERNELS[kernel].make(), level, torch.from_numpy(counts[:known].copy()), kept, offered


@examples(30)
@given(
    seed=st.integers(0, 10_000), kernel=st.sampled_from(["rbf", "matern"]), noise=st.sampled_from([1e-6, 0.01, 1.0]),
    kind=st.sampled_from(["apart", "pairs"]), cap=st.integers(1, 12),
)  # fmt: skip
def test_what_is_remembered_changes_no_exchange(seed, kernel, noise, kind, cap):
    memory, play = {}, rounds(seed, kernel, noise, kind, 40, cap)
    given = next(play)
    while True:
        *known, kept, offered = given
        remembered = exchanged(PlayedPoints(*known, memory=memory), kept, offered, GAIN)
        afresh = exchanged(PlayedPoints(*known), kept, offered, GAIN)
        assert torch.equal(remembered, afresh)
        assert bool((remembered.diff() > 0).all())
        try:
            given = play.send(remembered)
        except StopIteration:
            break


@pytest.mark.parametrize("kernel", ["rbf", "matern"])
def test_nothing_drifts_while_few_numbers_change(kernel, monkeypatch):
    begun = []
    real = _Inverse.__init__
    monkeypatch.setattr(_Inverse, "__init__", lambda self, *given: (begun.append(1), real(self, *given))[1])
    rng, memory, cap = np.random.default_rng(0), {}, 40
    X, counts, kept, changes = points_of(rng, 600, "apart"), np.zeros(600), torch.arange(cap), 0
    counts[:cap] = 1.0
    for row in range(cap, 600):
        counts[rng.choice(kept.numpy())] += 1.0
        counts[row] = rng.integers(1, 4)
        points, plays = X[: row + 1], torch.from_numpy(counts[: row + 1].copy())
        played = PlayedPoints(points, KERNELS[kernel].make(), torch.tensor(0.1, dtype=DOUBLE), plays, memory=memory)
        before, kept = kept, exchanged(played, kept, torch.tensor([row]), GAIN)
        changes += not torch.equal(before, kept)
    assert changes > 20
    assert len(begun) == 1
    Z = X[kept]
    W = KERNELS[kernel].dense(*dense(Z, Z)) + np.diag(0.1 / counts[kept.numpy()])
    found = memory[_Inverse].matrix.numpy()
    assert np.abs(found @ W - np.eye(cap)).max() < 1e-12 * changes * np.linalg.cond(W)


def test_another_points_inverse_is_not_taken():
    X, memory = points_of(np.random.default_rng(1), 9, "apart"), {}
    for points in (X, X + 0.25, X[:, :1].contiguous()):
        one = PlayedPoints(points, KERNELS["rbf"].make(), torch.tensor(0.1, dtype=DOUBLE), torch.ones(9, dtype=DOUBLE))
        same = PlayedPoints(one.points, one.kernel, one.noise, one.counts, memory=memory)
        rows = torch.arange(4), torch.arange(4, 9)
        assert torch.equal(exchanged(same, *rows, GAIN), exchanged(one, *rows, GAIN))


@pytest.mark.parametrize("angle", np.linspace(0.1, 1.0, 7))
def test_of_equal_points_the_first_leaves(angle):
    """Which rounding would decide: those on a circle are equal for its centre."""
    angles = torch.tensor(angle) + 2.0 * np.pi * torch.arange(6, dtype=DOUBLE) / 6
    X = torch.cat([0.7 * torch.stack([angles.cos(), angles.sin()], -1), torch.zeros(1, 2, dtype=DOUBLE)])
    counts = torch.tensor([2.0] * 6 + [50.0], dtype=DOUBLE)
    played = PlayedPoints(X, KERNELS["rbf"].make(), torch.tensor(0.1, dtype=DOUBLE), counts)
    assert exchanged(played, torch.arange(6), torch.tensor([6]), GAIN).tolist() == [1, 2, 3, 4, 5, 6]


def test_an_inverse_that_is_computed_afresh_each_time_changes_no_exchange(monkeypatch):
    """As where a change would cost accuracy, also between two exchanges of one call."""
    found = []
    for accuracy in (exchanges._ACCURACY, 0.0):
        monkeypatch.setattr(exchanges, "_ACCURACY", accuracy)
        play, memory = rounds(3, "matern", 0.01, "apart", 80, 6), {}
        given, kept = next(play), [torch.arange(6)]
        while given is not None:
            *known, before, offered = given
            kept.append(exchanged(PlayedPoints(*known, memory=memory), before, offered, GAIN))
            try:
                given = play.send(kept[-1])
            except StopIteration:
                given = None
        found.append(kept)
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))
    assert sum(not torch.equal(*pair) for pair in pairwise(found[0])) > 10
