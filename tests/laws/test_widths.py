"""Widths equal their formulas on cases computed by hand, and grow where the theory says so."""

import math
from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np
import oracles
import pytest
import torch
from problems import KERNELS, Known, data, matern

import torch_kbandits as kb
from torch_kbandits import BKBWidth, ConstantWidth, InputError, NystromGP, ScaledWidth, algorithms
from torch_kbandits.confidence import (
    BayesianGPUCBWidth,
    ConstantGain,
    EKUCBWidth,
    GPTSWidth,
    GPUCBWidth,
    GreedyGain,
    GuessAndDouble,
    IGPUCBWidth,
    KUCBWidth,
    MartingaleMixtureWidth,
    MemoryWidth,
    NystromWidth,
    RandomizedWidth,
    RateGain,
    RealizedGain,
    SelfNormalizedWidth,
    SparQWidth,
    TheoremWidth,
    TVGPUCBWidth,
    greedy_information_gain,
    restart_period,
    sparq_cutoff,
    sparq_questions,
    window_size,
)

#: Unless said t = 100, λ = 0.25, d_eff = 4, γ = 3, κ = 1: √λ = 0.5, κ²t/λ = 400; R = 0.1, B = 2, ln(1/δ) = 2.302585093.
BY_HAND = [
    # ε = 1/2: α = 3, 1 + 1/√(1/2) = 2.41421356, ln 100 = 4.60517019
    # (0.2 / 0.5) √(3 · 4.60517019 · 4 + 2.30258509) + 2.41421356 · 2 = 0.4 · 7.58713564 + 4.82842712
    (BKBWidth(0.1, 2.0, 0.1), Known(), 0.4 * math.sqrt(57.5646273248511) + 4.82842712474619),
    # At small t the bound of the proof. κ²t = 2, λ = 1: ℓ = ½(1 + ln 3) instead of ln 2; ε = 1/2, R = 1, d = 1, δ = 1/e
    (
        BKBWidth(1.0, 1.0, math.exp(-1.0)),
        Known(2, 1.0, 1.0),
        2.0 * math.sqrt(1.5 * (1.0 + math.log(3.0)) + 1.0) + 1.0 + math.sqrt(2.0),
    ),
    # κ²t = 50, λ = 0.01: ℓ = ½(1 + ln 5001) = 4.7588 instead of ln 50 = 3.9120; 2R/√λ = 20
    (
        BKBWidth(1.0, 1.0, math.exp(-1.0)),
        Known(50, 0.01, 1.0),
        20.0 * math.sqrt(1.5 * (1.0 + math.log(5001.0)) + 1.0) + 1.0 + math.sqrt(2.0),
    ),
    (ConstantWidth(2.0), Known(), 2.0),
    (ScaledWidth(ScaledWidth(ConstantWidth(3.0), 0.5), 0.5), Known(), 0.75),
    # ln(1010) = 6.9177056098, cubed 331.0443870177; √(2·4 + 300 · 3 · 331.0443870177)
    (GPUCBWidth(2.0, 0.1), Known(), math.sqrt(8.0 + 900.0 * 331.0443870177103)),
    (GPUCBWidth(2.0, 0.1), Known(0, gain=0.0), 2.0 * math.sqrt(2.0)),
    # A = 50, t = 101: A t² π² / 6δ = 8390000.3746, ln = 15.9425497; √31.8850995
    (BayesianGPUCBWidth(50, 0.1), Known(), math.sqrt(2.0 * math.log(50.0 * 10201.0 * 9.869604401089358 / 0.6))),
    # 2 + 0.1 √(2 (3 + 1 + 2.3025850930)); with ln(2/δ) = 2.9957322736; with γ = 1
    (IGPUCBWidth(0.1, 2.0, 0.1), Known(), 2.0 + 0.1 * math.sqrt(12.6051701860)),
    (GPTSWidth(0.1, 2.0, 0.1), Known(), 2.0 + 0.1 * math.sqrt(13.9914645471)),
    (IGPUCBWidth(0.1, 2.0, 0.1, gain=ConstantGain(1.0)), Known(), 2.0 + 0.1 * math.sqrt(8.6051701860)),
    # ln(e + 400 e) = 1 + ln 401 = 6.9939614273: 2 + (0.1 / 0.5) √(4.6051701860 + 4 · 6.9939614273)
    (KUCBWidth(0.1, 2.0, 0.1), Known(), 2.0 + 0.2 * math.sqrt(32.5810158952)),
    # μ = 1: (1 + 2) · 2 = 6; 6 + (0.1 / 0.5) √(9.2103403720 + 55.9516914181). Without μ it is λ: the norm counts twice.
    (EKUCBWidth(0.1, 2.0, 0.1, projection=1.0), Known(), 6.0 + 0.2 * math.sqrt(65.1620317901)),
    (EKUCBWidth(0.1, 2.0, 0.1), Known(), 4.0 + 0.2 * math.sqrt(65.1620317901)),
    (SelfNormalizedWidth(0.1, 2.0, 0.1), Known(), 2.0 + 0.2 * math.sqrt(10.6051701860)),
    # 2² + 0.2² · 10.6051701860
    (MartingaleMixtureWidth(0.1, 2.0, 0.1), Known(), math.sqrt(4.4242068074)),
    # ρ = 0.2 √10.6051701860 = 0.6513116055. ‖μ‖ = 5 asks for G >= 4.3486883945: 0.3 · 2⁴ = 4.8.
    (GuessAndDouble(SelfNormalizedWidth(0.1, 0.3, 0.1)), Known(norm=5.0), 4.8 + 0.2 * math.sqrt(10.6051701860)),
    # It is that theorem's width at the guess.
    *(
        (GuessAndDouble(kind(0.1, 0.3, 0.1)), Known(norm=5.0), float(kind(0.1, 4.8, 0.1)(Known())))
        for kind in (BKBWidth, EKUCBWidth, KUCBWidth, IGPUCBWidth)
    ),
    # ρ = 2.25: (1 + 1.5) · 2 + 0.2 √(2 · 3 + 2.25 + 4.6051701860)
    (NystromWidth(0.1, 2.0, 0.1), Known(projection_error=2.25), 5.0 + 0.2 * math.sqrt(12.8551701860)),
    (NystromWidth(0.1, 2.0, 0.1), Known(), 2.0 + 0.2 * math.sqrt(10.6051701860)),
    # In time. n = 500: ln(500/0.1) = 8.5171931914
    (MemoryWidth(0.1, 2.0, 0.1), Known(), 2.0 + 0.2 * math.sqrt(10.6051701860)),
    (MemoryWidth(0.1, 2.0, 0.1, num_bounds=500), Known(), 2.0 + 0.2 * math.sqrt(23.0343863828)),
    # ln(2/0.1) = 2.9957322736: 2 + √(2 · 3 + 2 · 2.9957322736)
    (SparQWidth(2.0, 0.1), Known(), 2.0 + math.sqrt(11.9914645471)),
    # t = 101: ln 40.4 = 3.6988297850; t = 1: ln 4; 0.4 t is 0.4, 0.8 and 1.2 in the first three rounds.
    (TVGPUCBWidth(), Known(), math.sqrt(2.9590638280)),
    (TVGPUCBWidth(scale=2.0, rate=4.0), Known(0), math.sqrt(2.7725887222)),
    *((TVGPUCBWidth(), Known(t), value) for t, value in ((0, 0.0), (1, 0.0), (2, math.sqrt(0.8 * math.log(1.2))))),
    # Gains. ln 100 cubed; 100^{2/7} = 3.7275937203 times ln 100
    (RealizedGain(), Known(gain=7.0), 7.0),
    (ConstantGain(1.0), Known(gain=7.0), 1.0),
    (RateGain("rbf", 2), Known(), 97.6645724301),
    (RateGain("matern", 1, nu=2.5), Known(), 17.1662034663),
    (RateGain("linear", 3, constant=2.0), Known(), 27.6310211159),
]


@pytest.mark.parametrize(("width", "known", "value"), BY_HAND)
def test_widths_and_gains_by_hand(width, known, value):
    assert float(width(known)) == pytest.approx(value, rel=1e-9)


def test_a_model_is_evidence():
    X, Y = data(30, 2)
    model = NystromGP(X, Y, inducing_points=X, covar_module=matern(), regularization=0.1)
    exact = oracles.evidence(KERNELS["matern"].dense, X.numpy(), np.zeros(30), np.full(30, 0.1), None)
    dimension = exact["effective_dimension"]
    expected = 0.2 / math.sqrt(0.1) * math.sqrt(3.0 * math.log(1.7 * 30) * dimension + math.log(20.0))
    value = float(BKBWidth(0.1, 1.0, 0.05)(model))
    assert value == pytest.approx(expected + 1.0 + math.sqrt(2.0), rel=1e-6)


@pytest.mark.parametrize("level", [0.003, 0.01, 0.1, 1.2])
def test_the_data_fit_of_a_mixture_is_that_of_dense_formulas(level):
    """Also where points are told twice, after rewards were taken back, and, where the noises agree, without a fit."""
    width = MartingaleMixtureWidth(0.1, 2.0, 0.1, mixture=1.0)
    arms, dense_kernel, rng = data(12, 2)[0], KERNELS["matern"].dense, np.random.default_rng(0)
    bandit = algorithms.GPUCB(candidates=arms, kernel=matern(), regularization=level, beta=width, seed=0)
    for x in arms[rng.integers(12, size=40)].split(1):
        bandit.tell(x, float(torch.sin(5.0 * x).sum()) + 0.1 * rng.normal())
    X, y = bandit.history.X.numpy(), bandit.history.Y.numpy().ravel()
    K = dense_kernel(X, X)
    (fit, gain), (own, _) = (
        (r * y @ np.linalg.solve(K + r * np.eye(40), y), 0.5 * np.linalg.slogdet(np.eye(40) + K / r)[1])
        for r in (0.01, level)
    )
    squared = 4.0 + (fit - own + 2.0 * 0.01 * (gain + math.log(10.0))) / level
    condition = np.linalg.cond(K + min(level, 0.01) * np.eye(40))
    assert float(bandit.beta) ** 2 == pytest.approx(max(squared, 0.0), rel=1e-13 * condition, abs=1e-13 * condition)
    if level == 0.01:
        plain = MartingaleMixtureWidth(0.1, 2.0, 0.1)(bandit._state.surrogate)
        assert float(bandit.beta) == pytest.approx(float(plain), rel=1e-12 * condition)


def test_a_data_fit_needs_an_exact_posterior_and_doubling_a_bound_on_the_noise_alone():
    width = MartingaleMixtureWidth(0.1, 2.0, 0.1, mixture=1.0)
    words = {"candidates": data(12, 2)[0], "kernel": matern(), "regularization": 0.1, "seed": 0}
    with pytest.warns(kb.TheoryWarning, match="exact posterior"):
        bandit = algorithms.BKB(**words, beta=width)
    with pytest.raises(InputError, match="mixture=None"):
        bandit.ask()
    for refused in (MartingaleMixtureWidth(0.1, 2.0, 0.1), width):
        with pytest.raises(InputError, match="SelfNormalizedWidth"):
            GuessAndDouble(refused)
    assert width.smallest(0.1) == 0.0


def test_greedy_information_gain_by_brute_force():
    candidates, _ = data(8, 2)
    gains = greedy_information_gain(matern(), candidates, 6, 0.3)
    dense_kernel, chosen = KERNELS["matern"].dense, []
    for k in range(6):
        values = []
        for i in range(8):
            P = candidates[[*chosen, i]].numpy()
            values.append(0.5 * np.linalg.slogdet(np.eye(k + 1) + dense_kernel(P, P) / 0.3)[1])
        chosen.append(int(np.argmax(values)))
        assert float(gains[k]) == pytest.approx(max(values), abs=1e-10)
    assert bool((gains.diff() > 0).all())


def test_randomised_has_the_law_of_its_paper():
    """5,000 draws of ζ − 2 ln(A/2) against Exp(½), F(z) = 1 − exp(−z/2): false alarm 2 exp(−2 · 2.8²) = 3e-7."""
    zeta = np.array([float(RandomizedWidth(40, seed=7)(Known(t))) ** 2 for t in range(5_000)])
    distribution = 1.0 - np.exp(-(np.sort(zeta) - 2.0 * math.log(20.0)) / 2.0)
    steps = np.arange(5_001) / 5_000
    distance = max(np.abs(distribution - steps[1:]).max(), np.abs(distribution - steps[:-1]).max())
    assert distance < 2.8 / math.sqrt(5_000)


def test_randomised_is_a_value_of_its_seed_and_round():
    value = float(RandomizedWidth(10, seed=3)(Known(5)))
    assert value == float(RandomizedWidth(10, seed=3)(Known(5, gain=9.0)))
    assert value not in (float(RandomizedWidth(10, seed=3)(Known(6))), float(RandomizedWidth(10, seed=4)(Known(5))))
    # The same uniform number for every A: ζ moves by 2 ln(20/10).
    larger = float(RandomizedWidth(20, seed=3)(Known(5)))
    assert larger**2 - value**2 == pytest.approx(2.0 * math.log(2.0), rel=1e-9)


def test_guesses_are_doubled_where_the_norm_contradicts_them():
    doubled = GuessAndDouble(SelfNormalizedWidth(0.1, 0.3, 0.1))  # ρ = 0.6513116055
    assert [doubled.guess(Known(norm=norm)) for norm in (0.95, 0.96, 5.0)] == pytest.approx([0.3, 0.6, 4.8])
    assert GuessAndDouble(MemoryWidth(0.1, 0.3, 0.1)).guess(Known(norm=5.0)) == pytest.approx(4.8)
    # Noise bounded by √λ, so ρ = √10.6051701860 = 3.2565580: ‖μ‖ = 5 asks for G >= 1.743442: 0.3 · 2³.
    for width in (GPUCBWidth(0.3, 0.1), SparQWidth(0.3, 0.1)):
        assert GuessAndDouble(width).guess(Known(norm=5.0)) == pytest.approx(2.4)


WITH_NORM_BOUND = [
    GPUCBWidth(1.0, 0.1),
    IGPUCBWidth(0.1, 1.0, 0.1),
    GPTSWidth(0.1, 1.0, 0.1),
    KUCBWidth(0.1, 1.0, 0.1),
    EKUCBWidth(0.1, 1.0, 0.1),
    EKUCBWidth(0.1, 1.0, 0.1, projection=0.3),
    SelfNormalizedWidth(0.1, 1.0, 0.1),
    MartingaleMixtureWidth(0.1, 1.0, 0.1),
    MemoryWidth(0.1, 1.0, 0.1),
    MemoryWidth(0.1, 1.0, 0.1, 20),
    SparQWidth(1.0, 0.1),
]
THEOREMS = [
    *WITH_NORM_BOUND,
    BKBWidth(0.1, 1.0, 0.1),
    NystromWidth(0.1, 1.0, 0.1),
    BayesianGPUCBWidth(10, 0.1),
    RandomizedWidth(10, 0),
    GuessAndDouble(SelfNormalizedWidth(0.1, 1.0, 0.1)),
    IGPUCBWidth(0.1, 1.0, 0.1, gain=ConstantGain(2.0)),
    GPUCBWidth(1.0, 0.1, gain=RateGain("linear", 2)),
    SelfNormalizedWidth(0.1, 1.0, 0.1, gain=RateGain("rbf", 1)),
    MemoryWidth(0.1, 1.0, 0.1, 500, gain=RateGain("rbf", 1)),
    SparQWidth(1.0, 0.1, gain=ConstantGain(2.0)),
]


@pytest.mark.parametrize("width", WITH_NORM_BOUND, ids=repr)
def test_widths_grow_with_norm_confidence_and_what_was_learnt(width):
    base = float(width(Known()))
    assert float(replace(width, norm_bound=2.0)(Known())) > base
    assert float(replace(width, failure_probability=0.01)(Known())) > base
    if isinstance(width, (EKUCBWidth, KUCBWidth)):
        assert float(width(Known(dimension=5.0))) > base
        assert float(width(Known(kernel_bound=2.0))) > base
    else:
        assert float(width(Known(gain=4.0))) > base
    if not isinstance(width, (GPUCBWidth, SparQWidth)):
        assert float(replace(width, noise_scale=0.2)(Known())) > base
    if isinstance(width, (EKUCBWidth, KUCBWidth, SelfNormalizedWidth, MartingaleMixtureWidth, MemoryWidth)):
        assert float(width(Known(level=0.1))) > base


@pytest.mark.parametrize("width", THEOREMS, ids=repr)
def test_the_smallest_width_is_a_floor_met_before_any_observation(width):
    """That of the random one is the floor of its law, met within 0.2 in 400 draws. Those with a clock grow with it."""
    assert isinstance(width, TheoremWidth)
    smallest, is_random = width.smallest(0.25), isinstance(width, RandomizedWidth)
    rounds = range(400 if is_random else 40)
    values = [float(width(Known(t, 0.25, 0.05 * t, gain=0.05 * t, norm=0.1 * t))) for t in rounds]
    assert min(values) >= smallest * (1.0 - 1e-12)
    assert min(values) == pytest.approx(smallest, abs=0.2 if is_random else 1e-12)
    if type(width) in (GPUCBWidth, KUCBWidth, EKUCBWidth, BayesianGPUCBWidth) and "Rate" not in repr(width):
        assert all(np.diff([float(width(Known(t))) for t in range(60)]) > 0.0)


@pytest.mark.parametrize("n", [1, 5, 40])
@pytest.mark.parametrize("regularization", [1e-4, 0.01, 1.0])
def test_the_older_bounds_are_at_least_the_self_normalised_one(n, regularization):
    """Whatever the norm: so BKB's first term covers the log-determinant that it stands for."""
    X, noise, norm = np.linspace(0.0, 1.0, n)[:, None], np.full(n, regularization), 1e-12
    for lengthscale in (0.01, 0.1):
        exact = oracles.evidence(oracles.rbf(lengthscale), X, np.zeros(n), noise, None)
        known = Known(n, regularization, exact["effective_dimension"], exact["information_gain"])
        sharp = float(SelfNormalizedWidth(1.0, norm, 0.1)(known))
        for bound in (norm, 1.0, 30.0):
            tight = float(MartingaleMixtureWidth(1.0, bound, 0.1)(known))
            assert tight <= float(SelfNormalizedWidth(1.0, bound, 0.1)(known))
            if regularization == 1.0:
                assert tight <= float(IGPUCBWidth(1.0, bound, 0.1)(known))
        assert float(KUCBWidth(1.0, norm, 0.1)(known)) >= sharp
        assert float(BKBWidth(1.0, norm, 0.1, accuracy=1e-9)(known)) >= sharp
        bounded = SelfNormalizedWidth(math.sqrt(regularization), norm, 0.1)  # GP-UCB's noise is bounded by √λ
        assert float(GPUCBWidth(norm, 0.1)(known)) >= float(bounded(known))
        if regularization == 1.0:
            assert float(IGPUCBWidth(1.0, norm, 0.1)(known)) > sharp


def test_widths_keep_the_dtype_of_the_evidence():
    greedy = GreedyGain(matern(), data(4, 1)[0], 10, 0.25)
    widths = ConstantWidth(2.0), BayesianGPUCBWidth(10, 0.1), RandomizedWidth(10, 0), TVGPUCBWidth()
    for each in (*widths, ConstantGain(1.0), RateGain("rbf", 1), greedy):
        assert each(Known(5, dtype=torch.float32)).dtype == torch.float32


def largest_gains(kernel, candidates, horizon, regularization):
    """γ_n for n = 0, …, horizon by trying every multiset of plays."""
    K = kernel(candidates, candidates)
    gains = [0.0]
    for n in range(1, horizon + 1):
        plays = [list(choice) for choice in combinations_with_replacement(range(len(candidates)), n)]
        grams = np.stack([K[np.ix_(play, play)] for play in plays])
        gains.append(float(0.5 * np.linalg.slogdet(np.eye(n) + grams / regularization)[1].max()))
    return np.array(gains)


def test_greedy_gain_brackets_the_maximum():
    candidates, _ = data(5, 2)
    largest = largest_gains(KERNELS["matern"].dense, candidates.numpy(), 5, 0.25)
    lower, upper = (
        np.array([float(GreedyGain(matern(), candidates, 5, 0.25, certified=certified)(Known(n))) for n in range(6)])
        for certified in (False, True)
    )
    assert lower[0] == upper[0] == 0.0
    assert np.all(lower <= largest + 1e-12)
    assert np.all(upper >= largest)
    assert upper[1:] == pytest.approx(lower[1:] / (1.0 - math.exp(-1.0)), rel=1e-12)
    assert lower[1] == pytest.approx(largest[1], rel=1e-12)


@pytest.mark.parametrize("width", [*THEOREMS, ScaledWidth(ConstantWidth(2.0), 0.5), TVGPUCBWidth()], ids=repr)
def test_widths_are_values_that_print_as_what_makes_them(width):
    assert eval(repr(width)) == width
    assert len({width, eval(repr(width))}) == 1


# ---------------------------------------------------------------- how long to remember, and whom to ask how much


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


def test_bad_settings_are_named():
    """What is of another kind, and ranges of numbers, are laws of all that takes them, in ``test_odd_arguments``."""
    X = data(3, 1)[0]
    for make, message in (
        (lambda: GuessAndDouble(ConstantWidth(1.0)), "theorem's width with a norm_bound"),
        (lambda: GuessAndDouble(GuessAndDouble(GPUCBWidth(1.0, 0.1))), "theorem's width with a norm_bound"),
        (lambda: GuessAndDouble(ScaledWidth(GPUCBWidth(1.0, 0.1), 0.1)), "Scale the result"),
        (lambda: RateGain("RBF", 1), 'kernel must be "rbf" or "matern" or "linear"'),
        (lambda: RateGain("rbf", 1, nu=2.5), "nu belongs to the Matérn kernel alone"),
        (lambda: GreedyGain(matern(), torch.rand(2, 3, 2).double(), 5, 0.1), r"candidates must be \(n, d\)"),
        (lambda: GreedyGain(matern(), X, 5, 0.25)(Known(6)), "up to horizon=5 observations and there are"),
        (lambda: GreedyGain(matern(), X, 5, 0.1)(Known(3)), "give both the same"),
        (lambda: sparq_cutoff(3, 0.1, lambda t: -t), r"g\(3\) must be a finite number of at least 0"),
        (lambda: sparq_cutoff(3, 0.1, lambda t: None), r"g\(3\) must be a number"),
    ):
        with pytest.raises(InputError, match=message):
            make()
