"""Stations about cities, and what their first days say, against formulas written out."""

import sys
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import benchmarks.ozone2 as ozone2
from torch_kbandits.environments import sensor_replay

RNG = np.random.default_rng(0)
PLACES = RNG.uniform((-90.0, 38.0), (-82.0, 44.0), (120, 2))


def _covariance(places, length, variance):
    return np.array([[variance * np.exp(-sum((a - b) ** 2) / (2 * length**2)) for a in places] for b in places])


def test_stations_are_the_nearest_that_are_free_and_miss_few_days():
    missing, taken = RNG.integers(0, 4, 120), {3, 50}
    rows = ozone2.about(PLACES, missing, (-85.0, 60.0), 1, taken)
    allowed = [i for i in range(120) if missing[i] <= 1 and i not in taken]
    east, north = PLACES.T - np.array([[-85.0], [60.0]])
    far = (east / 2) ** 2 + north**2  # a degree east is half as long at 60 degrees north
    assert rows == sorted(allowed, key=lambda i: far[i])[:28]


def test_what_is_learned_maximises_the_likelihood_of_independent_days():
    places = PLACES[:12]
    days = RNG.multivariate_normal(np.full(12, 50.0), _covariance(places, 2.0, 100.0) + 20.0 * np.eye(12), size=40)
    learned = ozone2.learn(places, days)
    assert learned.center == pytest.approx(days.mean())

    def likelihood(length, variance, noise):
        covariance = _covariance(places, length, variance) + noise * np.eye(12)
        return multivariate_normal(np.full(12, days.mean()), covariance).logpdf(days).sum()

    best = likelihood(*learned[1:])
    for factor in np.exp(0.05 * RNG.normal(size=(20, 3))):
        assert likelihood(*(factor * learned[1:])) < best


def test_norms_are_those_of_the_fitted_days():
    places, learned = PLACES[:6], ozone2.Learned(50.0, 1.0, 100.0, 30.0)
    days = 50.0 + 10.0 * RNG.normal(size=(5, 6))
    covariance = _covariance(places, 1.0, 100.0)
    fitted = (covariance @ np.linalg.inv(covariance + 30.0 * np.eye(6)) @ (days - 50.0).T).T

    def norm(f):
        return np.sqrt(f @ np.linalg.inv(covariance) @ f)

    largest, change = ozone2.norms(places, days, learned)
    assert largest == pytest.approx(max(norm(f) for f in fitted))
    assert change == pytest.approx(np.mean([norm(b - a) for a, b in pairwise(fitted)]))


def test_who_looks_at_all_stations_without_noise_loses_nothing_and_at_one_what_random_play_does():
    lost = np.abs(RNG.normal(size=(40, 28)))
    lost -= lost.min(1, keepdims=True)
    assert ozone2.looked(lost, 0.01, 1.0, 4000) == pytest.approx(lost.mean(), abs=0.02)
    assert ozone2.looked(lost, 1e6, 0.0) == pytest.approx(
        lost[0].mean() / 40, rel=0.1
    )  # ln 1 = 0: one on the first day
    assert ozone2.looked(lost, 2.0, 0.0) < ozone2.looked(lost, 2.0, 1.0) < ozone2.looked(lost, 2.0, 100.0)


def test_files_are_read_by_sensor_replay(tmp_path, monkeypatch, capsys):
    readings = 50.0 + 10.0 * RNG.normal(size=(89, 120))
    readings[40, 7] = np.nan
    table = {
        "y": readings,
        "lon.lat": PLACES,
        "station.id": [str(100 + i) for i in range(120)],
        "dates": [f"87{6 + t // 30:02d}{t % 30 + 1:02d}" for t in range(89)],
    }
    monkeypatch.setitem(sys.modules, "rdata", SimpleNamespace(read_rda=lambda path: {"ozone2": table}))
    monkeypatch.setattr(sys, "argv", ["ozone2", "ozone2.rda", str(tmp_path)])
    ozone2.main()
    assert capsys.readouterr().out.count("kernel = { name =") == 3
    seen = set()
    for city in ozone2.CITIES:
        parts = [
            sensor_replay(
                f"{tmp_path}/{name}.csv", locations=f"{tmp_path}/{city}-places.csv", train_fraction=0.0, seed=0
            )
            for name in (f"{city}-first", city)
        ]
        assert [len(part.readings) for part in parts] == [29, 60]
        rows = [int(np.abs(PLACES - place.numpy()).sum(1).argmin()) for place in parts[0].arms]
        assert len(rows) == 28
        assert not seen & set(rows)
        seen |= set(rows)
        center = np.where(np.isnan(readings), 0.0, readings)[:29, rows].mean()
        np.testing.assert_allclose(parts[0].readings, readings[:29, rows] - center, atol=1e-3)
        later = readings[29:, rows] - center
        there = ~np.isnan(later)
        np.testing.assert_allclose(parts[1].readings.numpy()[there], later[there], atol=1e-3)
