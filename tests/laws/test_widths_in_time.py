"""Widths of functions that change and how long to remember: formulas by hand, and evidence of ageing models.

How often the widths cover is in test_coverage_in_time.py.
"""

import math

import hypothesis.strategies as st
import numpy as np
import oracles
import pytest
import torch
from hypothesis import given
from problems import rbf

import torch_kbandits as kb
from torch_kbandits.confidence import (
    GreedyGain,
    IGPUCBWidth,
    MemoryWidth,
    RateGain,
    SparQWidth,
    restart_period,
    sparq_cutoff,
    sparq_questions,
    window_size,
)

R, B, DELTA, LEVEL = 0.1, 2.0, 0.1, 0.25


def rounds(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Points (n, 2) whose second column is the time 0, 1, …, some of them played often, and rewards (n, 1)."""
    rng = np.random.default_rng(n)
    X = np.stack([rng.choice([0.1, 0.5, 0.51, rng.uniform(), rng.uniform()], size=n), np.arange(n)], axis=1)
    return X, rng.normal(size=(n, 1))


def ageing_model(growth, n: int, now: float) -> kb.OnlineGP:
    likelihood = kb.UncertaintyInjectionLikelihood(growth, regularization=LEVEL, now=now, time_column=1)
    kernel = rbf(0.3)
    kernel.active_dims = torch.tensor([0])
    X, Y = (torch.from_numpy(values) for values in rounds(n))
    return kb.OnlineGP(X, Y, covar_module=kernel, likelihood=likelihood)


def dense_gain(places: np.ndarray, noise: np.ndarray) -> float:
    return oracles.evidence(oracles.rbf(0.3), places, np.zeros(len(places)), noise, None)["information_gain"]


@pytest.mark.parametrize(
    ("growth", "formula"),
    [
        (kb.ExponentialGrowth(0.9), lambda age: LEVEL * 0.9**-age),
        (kb.ExponentialGrowth(1.0), lambda age: np.full(len(age), LEVEL)),
        (kb.QuadraticGrowth(1.0), lambda age: LEVEL * (age**2 + 1.0)),
        (kb.LinearGrowth(0.02), lambda age: LEVEL + 0.02 * age),
    ],
)
@pytest.mark.parametrize("now", [12.0, 30.0])
def test_w_gp_ucb_reads_the_weighted_gain_of_an_ageing_model(growth, formula, now):
    model = ageing_model(growth, 12, 12.0)
    kb.at_time(model, now)
    X, _ = rounds(12)
    gain = dense_gain(X[:, :1], formula(now - X[:, 1]))
    expected = B + R / math.sqrt(LEVEL) * math.sqrt(2.0 * gain + 2.0 * math.log(40 / DELTA))
    assert float(MemoryWidth(R, B, DELTA, 40)(model)) == pytest.approx(expected, rel=1e-8)
    expected = B + math.sqrt(2.0 * gain + 2.0 * math.log(2.0 / DELTA))
    assert float(SparQWidth(B, DELTA)(model)) == pytest.approx(expected, rel=1e-8)


@given(st.integers(1, 25), st.integers(1, 10))
def test_sw_and_r_gp_ucb_read_the_gain_of_what_is_left(n, w):
    """A model that forgot all but the window, or the block, has the width of its observations alone."""
    X, Y = rounds(n)
    model = kb.OnlineGP(torch.from_numpy(X[:, :1]), torch.from_numpy(Y), covar_module=rbf(0.3), regularization=LEVEL)
    model.remove(list(range(max(0, n - w))))
    left = X[max(0, n - w) :, :1]
    gain = dense_gain(left, np.full(len(left), LEVEL))
    assert model.num_observations == min(n, w)
    # Algorithms 1 and 2 of Zhou & Shroff have the width of IGP-UCB, their proofs the self-normalised one.
    printed = B + R * math.sqrt(2.0 * (gain + 1.0 + math.log(1.0 / DELTA)))
    assert float(IGPUCBWidth(R, B, DELTA)(model)) == pytest.approx(printed, rel=1e-8)
    proved = B + R / math.sqrt(LEVEL) * math.sqrt(2.0 * gain + 2.0 * math.log(n / DELTA))
    assert float(MemoryWidth(R, B, DELTA, n)(model)) == pytest.approx(proved, rel=1e-8)
    # γ_{min(t, w)}: the number that counts is all that a rate or a greedy gain reads.
    rate = RateGain("linear", 1)
    assert float(IGPUCBWidth(R, B, DELTA, gain=rate)(model)) == pytest.approx(
        B + R * math.sqrt(2.0 * (math.log(max(min(n, w), math.e)) + 1.0 + math.log(1.0 / DELTA))), rel=1e-12
    )
    greedy = GreedyGain(rbf(0.3), torch.from_numpy(left), n, LEVEL, certified=True)
    assert float(greedy(model)) >= gain - 1e-9


def test_lengths_by_hand():
    # γ = 16, T = 400, P = 4: 2 · √100 = 20; unknown: 2 · 20 = 40
    assert restart_period(400, 4.0, gain=16.0) == window_size(400, 4.0, gain=16.0) == 20
    assert restart_period(400, gain=16.0) == window_size(400, gain=16.0) == 40
    # γ = 81, T = 500, P = 7: 3 · √71.428571 = 25.354627641; γ = 5: 1.495348781 · 8.451542547 = 12.637997
    assert window_size(500, 7.0, gain=81.0) == 25
    assert window_size(500, 7.0, gain=5.0) == 13
    # A rate: (ln 500)² = 38.62141; 38.62141^¼ · √500 = 2.4928965 · 22.3606798 = 55.7429
    assert restart_period(500, gain=RateGain("rbf", 1).at(500)) == 56


def test_the_numbers_of_sparq_by_hand():
    # 6 ln t: 0, 4.1589, 6.5917, 13.8155, 37.2876; 2 (ln 500)² = 77.2428
    assert [sparq_questions(t) for t in (1, 2, 3, 10, 500)] == [0, 5, 7, 14, 38]
    assert sparq_questions(500, factor=2.0, dimension=2) == 78
    assert all(np.diff([sparq_questions(t) for t in range(1, 300)]) >= 0)
    assert sparq_cutoff(500, 0.01) == pytest.approx(0.0621460810, rel=1e-8)
    assert sparq_cutoff(1, 0.01) == 0.0
    assert sparq_cutoff(256, 0.5, lambda t: t**0.125) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        *[
            (lambda length=length, arguments=arguments, gain=gain: length(*arguments, gain=gain), message)
            for length in (restart_period, window_size)
            for arguments, gain, message in [
                ((0,), 1.0, "horizon must be a whole number of at least 1"),
                ((10, -1.0), 1.0, "variation_budget must be a finite number of at least 0"),
                ((10, "unknown"), 1.0, "variation_budget must be a number"),
                ((10,), 0.0, "gain must be a finite number above 0"),
                ((10,), RateGain("rbf", 1), "gain must be a number"),
            ]
        ],
        (lambda: sparq_questions(0), "round must be a whole number of at least 1"),
        (lambda: sparq_questions(3, factor=0.0), "factor"),
        (lambda: sparq_questions(3, dimension=0), "dimension"),
        (lambda: sparq_cutoff(0, 0.1), "round"),
        (lambda: sparq_cutoff(3, 0.0), "regularization"),
        (lambda: sparq_cutoff(3, 0.1, 2.0), "g must be a function of the round"),
        (lambda: sparq_cutoff(3, 0.1, lambda t: -t), r"g\(3\) must be a finite number of at least 0"),
        (lambda: sparq_cutoff(3, 0.1, lambda t: None), r"g\(3\) must be a number"),
    ],
)
def test_bad_settings_are_named(make, message):
    with pytest.raises(kb.InputError, match=message):
        make()
