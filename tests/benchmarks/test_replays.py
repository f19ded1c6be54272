"""The players and stretches of the benchmark of sensor replays, against loops over sensors and rounds."""

import math

import numpy as np
import pytest
import torch

from benchmarks.sensor_replays import Known, fixed_players, relative_regret
from benchmarks.sensor_stretches import Stretch, _filled, stretches


@pytest.fixture
def stretch() -> Stretch:
    generator = torch.Generator().manual_seed(0)
    readings = torch.randn(40, 4, generator=generator, dtype=torch.float64)
    readings[:, 2] += 1.0
    phases = torch.arange(40) % 2
    return Stretch("made up", 0, readings[:24], phases[:24], readings[24:], phases[24:])


def test_a_missing_reading_is_the_one_before_or_the_first_there_is():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(30, 3))
    values[rng.random(values.shape) < 0.4] = np.nan
    values[:2, 1] = np.nan
    filled = _filled(values)
    for sensor in range(3):
        seen = [value for value in values[:, sensor] if not math.isnan(value)]
        last = seen[0]
        for t in range(30):
            last = last if math.isnan(values[t, sensor]) else values[t, sensor]
            assert filled[t, sensor] == last


def test_a_replay_plays_what_comes_after_what_it_learns_from():
    for choosing, (train, test) in ((False, (183, 183)), (True, (110, 73))):
        (made,) = stretches("nitrogen oxides, days", 1, choosing=choosing)
        assert made.train.shape == (train, 10)
        assert made.test.shape == (test, 10)
        assert len(made.train_phases) == train
        assert len(made.test_phases) == test
    (judged,), (before,) = (list(stretches("nitrogen oxides, days", 1, choosing=each)) for each in (False, True))
    assert torch.equal(judged.train, torch.cat([before.train, before.test]))


def test_players_without_a_model_know_the_past_alone(stretch):
    chosen = fixed_players(stretch, Known(stretch))
    train, test = stretch.train.numpy(), stretch.test.numpy()
    assert set(chosen["best historical mean, one sensor"].tolist()) == {int(train.mean(0).argmax())}
    hourly = [int(train[t % 2 :: 2].mean(0).argmax()) for t in range(24, 40)]
    assert chosen["best historical mean of the hour"].tolist() == hourly
    assert chosen["best of the round before, all seen"].tolist()[1:] == test[:-1].argmax(1).tolist()
    assert set(chosen["one sensor, best in hindsight"].tolist()) == {int(test.mean(0).argmax())}
    off = np.zeros(4)
    for t, arm in enumerate(chosen["profile and the last reading of each sensor"].tolist()):
        profile = train[t % 2 :: 2].mean(0)
        assert arm == int((profile + off).argmax())
        off[arm] = test[t, arm] - profile[arm]


def test_regret_is_relative_to_that_of_random_play(stretch):
    test = stretch.test.numpy()
    chosen = torch.arange(16) % 4
    mine = sum(test[t].max() - test[t, t % 4] for t in range(16))
    random = sum(test[t].max() - test[t].mean() for t in range(16))
    assert relative_regret(stretch, chosen) == pytest.approx(mine / random, rel=1e-12)
    assert relative_regret(stretch, stretch.test.argmax(1)) == 0.0


def test_the_prior_is_that_of_the_second_half_and_the_mean_that_of_all(stretch):
    known = Known(stretch)
    assert known.X.shape == (12, 2)
    for (phase, arm), reward in zip(known.X.long().tolist(), known.Y.tolist(), strict=True):
        assert reward in stretch.train[12:, arm][phase::2].tolist()
    points = torch.cartesian_prod(torch.arange(2.0, dtype=torch.float64), torch.arange(4.0, dtype=torch.float64))
    for readings, mean in ((stretch.train[:12], known.by_profile(True)), (stretch.train, known.by_profile(False))):
        expected = [float(readings[int(phase) :: 2, int(arm)].mean()) for phase, arm in points.tolist()]
        assert mean(points).tolist() == pytest.approx(expected, rel=1e-12)
