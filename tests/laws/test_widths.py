"""Widths equal their formulas on cases computed by hand, and grow where the theory says so."""

import math
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement

import numpy as np
import pytest
import torch
from problems import DOUBLE, KERNELS, data, dense, matern, rbf
from torch import Tensor

from torch_kbandits import BKBWidth, ConstantWidth, InputError, NystromGP, ScaledWidth
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
    RandomizedWidth,
    RateGain,
    RealizedGain,
    SelfNormalizedWidth,
    SumGain,
    TheoremWidth,
    effective_dimension,
    greedy_information_gain,
    information_gain,
)


@dataclass
class Known:
    """Evidence with numbers of our choice."""

    num_observations: int = 100
    regularization_value: float = 0.25
    dimension: float = 4.0
    bound: float = 1.0
    gain: float = 3.0
    norm: float = 0.0
    left_out: float = 0.0

    @property
    def regularization(self) -> Tensor:
        return torch.tensor(self.regularization_value, dtype=DOUBLE)

    def effective_dimension(self) -> Tensor:
        return torch.tensor(self.dimension, dtype=DOUBLE)

    def information_gain(self) -> Tensor:
        return torch.tensor(self.gain, dtype=DOUBLE)

    def kernel_bound(self) -> Tensor:
        return torch.tensor(self.bound, dtype=DOUBLE)

    def projection_error(self) -> Tensor:
        return torch.tensor(self.left_out, dtype=DOUBLE)

    def mean_norm(self) -> Tensor:
        return torch.tensor(self.norm, dtype=DOUBLE)


def test_bkb_by_hand():
    # ε = 1/2: α = 3, 1 + 1/√(1/2) = 2.41421356; R = 0.1, √λ = 0.5, ln 100 = 4.60517019, ln(1/0.1) = 2.30258509
    # (0.2 / 0.5) √(3 · 4.60517019 · 4 + 2.30258509) + 2.41421356 · 2
    # = 0.4 √57.56462733 + 4.82842712 = 0.4 · 7.58713564 + 4.82842712
    width = BKBWidth(noise_scale=0.1, norm_bound=2.0, failure_probability=0.1)
    assert float(width(Known())) == pytest.approx(0.4 * math.sqrt(57.5646273248511) + 4.82842712474619, rel=1e-12)
    assert float(width(Known())) == pytest.approx(7.8632814, abs=1e-6)


def test_bkb_at_small_t_keeps_the_bound_of_the_proof():
    # κ²t = 2, λ = 1: ℓ = ½(1 + ln 3) instead of ln 2; ε = 1/2, R = 1, d = 1, δ = 1/e
    width = BKBWidth(1.0, 1.0, math.exp(-1.0))
    expected = 2.0 * math.sqrt(3.0 * 0.5 * (1.0 + math.log(3.0)) + 1.0) + 1.0 + math.sqrt(2.0)
    assert float(width(Known(2, 1.0, 1.0))) == pytest.approx(expected, rel=1e-12)
    # κ²t = 50, λ = 0.01: ℓ = ½(1 + ln 5001) = 4.7588 instead of ln 50 = 3.9120; 2R/√λ = 20
    expected = 20.0 * math.sqrt(3.0 * 0.5 * (1.0 + math.log(5001.0)) + 1.0) + 1.0 + math.sqrt(2.0)
    assert float(width(Known(50, 0.01, 1.0))) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("regularization", [1e-4, 0.01, 1.0])
@pytest.mark.parametrize("n", [1, 5, 40])
def test_bkb_covers_the_log_determinant_that_it_stands_for(regularization, n):
    """Its first term must be at least R √(2 ln det(I + K/λ)^½ / δ · λ⁻¹ · 2), whatever λ: the self-normalised bound."""
    X = torch.linspace(0.0, 1.0, n, dtype=DOUBLE).unsqueeze(-1)
    kernel = rbf(0.01)
    model = NystromGP(X, X, inducing_points=X, covar_module=kernel, regularization=regularization)
    log_det = 2.0 * float(information_gain(kernel, X, regularization))
    self_normalised = math.sqrt((log_det + 2.0 * math.log(10.0)) / regularization)
    ours = float(BKBWidth(1.0, 1e-12, 0.1, accuracy=1e-9)(model))
    assert ours >= self_normalised


def test_bkb_is_least_before_any_observation():
    width = BKBWidth(0.1, 1.0, 0.1, accuracy=0.3)
    nothing = float(width(Known(0, 0.25, 0.0)))
    assert width.smallest(0.25) == pytest.approx(nothing, rel=1e-12)
    assert width.smallest(0.25) < float(width(Known(1)))


def test_constant_and_scaled():
    assert float(ConstantWidth(2.0)(Known())) == 2.0
    theory = BKBWidth(0.1, 1.0, 0.1)
    assert float(ScaledWidth(theory, 0.1)(Known())) == pytest.approx(0.1 * float(theory(Known())), rel=1e-12)
    assert float(ScaledWidth(ScaledWidth(ConstantWidth(3.0), 0.5), 0.5)(Known())) == 0.75


def test_a_model_is_evidence():
    X, Y = data(30, 2)
    model = NystromGP(X, Y, inducing_points=X, covar_module=matern(), regularization=0.1)
    dimension = float(effective_dimension(matern(), X, 0.1))
    expected = 0.2 / math.sqrt(0.1) * math.sqrt(3.0 * math.log(1.7 * 30) * dimension + math.log(20.0))
    value = float(BKBWidth(0.1, 1.0, 0.05)(model))
    assert value == pytest.approx(expected + 1.0 + math.sqrt(2.0), rel=1e-6)


def test_information_gain_and_effective_dimension_by_dense_formulas():
    X, _ = data(20, 2)
    K = KERNELS["matern"].dense(*dense(X, X)) / 0.3
    assert float(information_gain(matern(), X, 0.3)) == pytest.approx(0.5 * np.linalg.slogdet(np.eye(20) + K)[1])
    eigenvalues = np.linalg.eigvalsh(K)
    assert float(effective_dimension(matern(), X, 0.3)) == pytest.approx((eigenvalues / (1.0 + eigenvalues)).sum())


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


def test_gp_ucb_by_hand():
    # B = 2, δ = 0.1, t = 101: ln 1010 = 6.9177056098, cubed 331.0443870177; √(2·4 + 300 · 3 · 331.0443870177)
    width = GPUCBWidth(norm_bound=2.0, failure_probability=0.1)
    assert float(width(Known())) == pytest.approx(math.sqrt(8.0 + 900.0 * 331.0443870177103), rel=1e-12)
    assert float(width(Known())) == pytest.approx(545.8460848, abs=1e-6)
    # Before any observation the gain is 0 and √2 B remains.
    assert float(width(Known(0, gain=0.0))) == pytest.approx(2.0 * math.sqrt(2.0), rel=1e-12)


def test_bayesian_gp_ucb_by_hand():
    # A = 50, t = 101, δ = 0.1: 50 · 10201 · 9.8696044011 / 0.6 = 8390000.3746, ln = 15.9425497; √31.8850995
    value = float(BayesianGPUCBWidth(num_arms=50, failure_probability=0.1)(Known()))
    assert value == pytest.approx(math.sqrt(2.0 * math.log(50.0 * 10201.0 * 9.869604401089358 / 0.6)), rel=1e-12)
    assert value == pytest.approx(5.6466892, abs=1e-6)


def test_igp_ucb_and_gp_ts_by_hand():
    # R = 0.1, B = 2, γ = 3, δ = 0.1: 2 + 0.1 √(2 (3 + 1 + 2.3025850930)) = 2 + 0.1 √12.6051701860
    assert float(IGPUCBWidth(0.1, 2.0, 0.1)(Known())) == pytest.approx(2.0 + 0.1 * math.sqrt(12.6051701860), rel=1e-9)
    assert float(IGPUCBWidth(0.1, 2.0, 0.1)(Known())) == pytest.approx(2.3550376, abs=1e-6)
    # ln(2/δ) = 2.9957322736: 2 + 0.1 √13.9914645471
    assert float(GPTSWidth(0.1, 2.0, 0.1)(Known())) == pytest.approx(2.0 + 0.1 * math.sqrt(13.9914645471), rel=1e-9)
    assert float(GPTSWidth(0.1, 2.0, 0.1)(Known())) == pytest.approx(2.3740517, abs=1e-6)


def test_k_ucb_by_hand():
    # √λ = 0.5, d_eff = 4, κ²t/λ = 400: ln(e + 400 e) = 1 + ln 401 = 6.9939614273; 2 ln 10 = 4.6051701860
    # 2 + (0.1 / 0.5) √(4.6051701860 + 4 · 6.9939614273) = 2 + 0.2 √32.5810158952 = 3.1415956534
    value = float(KUCBWidth(0.1, 2.0, 0.1)(Known()))
    assert value == pytest.approx(2.0 + 0.2 * math.sqrt(32.5810158952), rel=1e-9)
    assert value == pytest.approx(3.1415956534, abs=1e-6)


def test_ek_ucb_by_hand():
    # √λ = 0.5, μ = 1: (1 + 2) · 2 = 6; 4 ln 10 = 9.2103403720; 2 · 4 · (1 + ln 401) = 55.9516914181
    # 6 + (0.1 / 0.5) √(9.2103403720 + 55.9516914181) = 6 + 0.2 √65.1620317901 = 7.6144600
    value = float(EKUCBWidth(0.1, 2.0, 0.1, projection=1.0)(Known()))
    assert value == pytest.approx(6.0 + 0.2 * math.sqrt(65.1620317901), rel=1e-9)
    assert value == pytest.approx(7.6144600, abs=1e-6)
    # Without μ it is λ, so the norm counts twice: 4 in place of 6.
    assert float(EKUCBWidth(0.1, 2.0, 0.1)(Known())) == pytest.approx(value - 2.0, rel=1e-12)
    assert EKUCBWidth(0.1, 2.0, 0.1).smallest(0.25) == pytest.approx(4.0 + 0.2 * math.sqrt(9.2103403720), rel=1e-9)


def test_self_normalised_by_hand():
    # 2 + (0.1 / 0.5) √(2 · 3 + 2 · 2.3025850930) = 2 + 0.2 √10.6051701860 = 2.6513116055
    value = float(SelfNormalizedWidth(0.1, 2.0, 0.1)(Known()))
    assert value == pytest.approx(2.0 + 0.2 * math.sqrt(10.6051701860), rel=1e-9)
    assert value == pytest.approx(2.6513116, abs=1e-6)


def test_randomised_has_the_law_of_its_paper():
    """5,000 draws of ζ − 2 ln(A/2) against Exp(½), F(z) = 1 − exp(−z/2): false alarm 2 exp(−2 · 2.8²) = 3e-7."""
    zeta = np.array([float(RandomizedWidth(40, seed=7)(Known(t))) ** 2 for t in range(5_000)])
    distribution = 1.0 - np.exp(-(np.sort(zeta) - 2.0 * math.log(20.0)) / 2.0)
    steps = np.arange(5_001) / 5_000
    distance = max(np.abs(distribution - steps[1:]).max(), np.abs(distribution - steps[:-1]).max())
    assert distance < 2.8 / math.sqrt(5_000)


def test_randomised_is_a_value_of_its_seed_and_round():
    width = RandomizedWidth(10, seed=3)
    assert float(width(Known(5))) == float(RandomizedWidth(10, seed=3)(Known(5, gain=9.0)))
    assert float(width(Known(5))) != float(width(Known(6)))
    assert float(width(Known(5))) != float(RandomizedWidth(10, seed=4)(Known(5)))
    # The same uniform number for every A: ζ moves by 2 ln(20/10).
    larger = float(RandomizedWidth(20, seed=3)(Known(5)))
    assert larger**2 - float(width(Known(5))) ** 2 == pytest.approx(2.0 * math.log(2.0), rel=1e-9)


def test_guess_and_double_by_hand():
    # R/√λ = 0.2: ρ = 0.2 √10.6051701860 = 0.6513116055. ‖μ‖ = 5 asks for G >= 4.3486883945: 0.3 · 2⁴ = 4.8.
    doubled = GuessAndDouble(SelfNormalizedWidth(0.1, 0.3, 0.1))
    assert doubled.guess(Known(norm=5.0)) == pytest.approx(4.8)
    assert float(doubled(Known(norm=5.0))) == pytest.approx(4.8 + 0.2 * math.sqrt(10.6051701860), rel=1e-9)
    # Not contradicted: ‖μ‖ = 0.95 < 0.3 + ρ. Contradicted once: ‖μ‖ = 0.96.
    assert doubled.guess(Known(norm=0.95)) == 0.3
    assert doubled.guess(Known(norm=0.96)) == 0.6
    # GP-UCB's noise is bounded by √λ, so ρ = √10.6051701860 = 3.2565580: ‖μ‖ = 5 asks for G >= 1.743442: 0.3 · 2³.
    assert GuessAndDouble(GPUCBWidth(0.3, 0.1)).guess(Known(norm=5.0)) == pytest.approx(2.4)
    # It wraps any theorem with a norm bound and is that theorem's width at the guess.
    for kind in (BKBWidth, EKUCBWidth, KUCBWidth, IGPUCBWidth):
        width = kind(0.1, 0.3, 0.1)
        at_guess = replace(width, norm_bound=4.8)
        assert float(GuessAndDouble(width)(Known(norm=5.0))) == pytest.approx(float(at_guess(Known())), rel=1e-12)


WITH_NORM_BOUND = [
    GPUCBWidth(1.0, 0.1),
    IGPUCBWidth(0.1, 1.0, 0.1),
    GPTSWidth(0.1, 1.0, 0.1),
    KUCBWidth(0.1, 1.0, 0.1),
    EKUCBWidth(0.1, 1.0, 0.1),
    EKUCBWidth(0.1, 1.0, 0.1, projection=0.3),
    SelfNormalizedWidth(0.1, 1.0, 0.1),
]
THEOREMS = [
    *WITH_NORM_BOUND,
    BKBWidth(0.1, 1.0, 0.1),
    BayesianGPUCBWidth(10, 0.1),
    RandomizedWidth(10, 0),
    GuessAndDouble(SelfNormalizedWidth(0.1, 1.0, 0.1)),
    IGPUCBWidth(0.1, 1.0, 0.1, gain=ConstantGain(2.0)),
    GPUCBWidth(1.0, 0.1, gain=RateGain("linear", 2)),
    SelfNormalizedWidth(0.1, 1.0, 0.1, gain=SumGain((ConstantGain(1.0), RateGain("rbf", 1)))),
]


@pytest.mark.parametrize("width", WITH_NORM_BOUND, ids=repr)
def test_widths_grow_with_norm_confidence_and_what_was_learnt(width):
    base = float(width(Known()))
    assert float(replace(width, norm_bound=2.0)(Known())) > base
    assert float(replace(width, failure_probability=0.01)(Known())) > base
    if isinstance(width, (EKUCBWidth, KUCBWidth)):
        assert float(width(Known(dimension=5.0))) > base
        assert float(width(Known(bound=2.0))) > base
    else:
        assert float(width(Known(gain=4.0))) > base
    if not isinstance(width, GPUCBWidth):
        assert float(replace(width, noise_scale=0.2)(Known())) > base
    if isinstance(width, (EKUCBWidth, KUCBWidth, SelfNormalizedWidth)):
        assert float(width(Known(regularization_value=0.1))) > base


@pytest.mark.parametrize(
    "width",
    [GPUCBWidth(1.0, 0.1), KUCBWidth(0.1, 1.0, 0.1), EKUCBWidth(0.1, 1.0, 0.1), BayesianGPUCBWidth(10, 0.1)],
    ids=repr,
)
def test_widths_with_a_clock_grow_with_time(width):
    values = [float(width(Known(t))) for t in range(60)]
    assert all(np.diff(values) > 0.0)


@pytest.mark.parametrize("width", THEOREMS, ids=repr)
def test_smallest_is_a_floor(width):
    """The width before any observation; for the random one the floor of its law, met within 0.2 in 400 draws."""
    assert isinstance(width, TheoremWidth)
    smallest, rounds = width.smallest(0.25), 400 if isinstance(width, RandomizedWidth) else 40
    values = [float(width(Known(t, 0.25, 0.05 * t, gain=0.05 * t, norm=0.1 * t))) for t in range(rounds)]
    assert min(values) >= smallest * (1.0 - 1e-12)
    tolerance = 0.2 if isinstance(width, RandomizedWidth) else 1e-12
    assert min(values) == pytest.approx(smallest, abs=tolerance)


@pytest.mark.parametrize("n", [1, 5, 40])
@pytest.mark.parametrize("regularization", [1e-4, 0.01, 1.0])
def test_the_older_bounds_are_at_least_the_self_normalised_one(n, regularization):
    X, _ = data(n, 1)
    gain = float(information_gain(rbf(0.1), X, regularization))
    known = Known(n, regularization, float(effective_dimension(rbf(0.1), X, regularization)), 1.0, gain)
    sharp = float(SelfNormalizedWidth(1.0, 1.0, 0.1)(known))
    assert float(KUCBWidth(1.0, 1.0, 0.1)(known)) >= sharp
    assert float(BKBWidth(1.0, 1.0, 0.1, accuracy=1e-9)(known)) >= sharp
    # GP-UCB's noise is bounded by √λ.
    assert float(GPUCBWidth(1.0, 0.1)(known)) >= float(SelfNormalizedWidth(math.sqrt(regularization), 1.0, 0.1)(known))
    if regularization == 1.0:
        assert float(IGPUCBWidth(1.0, 1.0, 0.1)(known)) > sharp


def test_widths_keep_the_dtype_of_the_evidence():
    class Single(Known):
        @property
        def regularization(self) -> Tensor:
            return torch.tensor(self.regularization_value, dtype=torch.float32)

    for width in (ConstantWidth(2.0), BayesianGPUCBWidth(10, 0.1), RandomizedWidth(10, 0)):
        assert width(Single()).dtype == torch.float32
    greedy = GreedyGain(matern(), data(4, 1)[0], 10, 0.25)
    for gain in (ConstantGain(1.0), RateGain("rbf", 1), greedy, SumGain((greedy,))):
        assert gain(Single(5)).dtype == torch.float32


def test_realised_and_constant_gain():
    assert float(RealizedGain()(Known(gain=7.0))) == 7.0
    assert float(ConstantGain(1.0)(Known(gain=7.0))) == 1.0
    # γ = 1, R = 0.1, B = 2: 2 + 0.1 √(2 (1 + 1 + ln 10)) = 2 + 0.1 √8.6051701860
    width = IGPUCBWidth(0.1, 2.0, 0.1, gain=ConstantGain(1.0))
    assert float(width(Known())) == pytest.approx(2.0 + 0.1 * math.sqrt(8.6051701860), rel=1e-9)


def test_rates_by_hand():
    # ln 100 = 4.6051701860: cubed 97.6645724301; 100^{2/7} = 3.7275937203, times ln 100 = 17.1662034663
    assert float(RateGain("rbf", 2)(Known(100))) == pytest.approx(97.6645724301, rel=1e-9)
    assert float(RateGain("matern", 1, nu=2.5)(Known(100))) == pytest.approx(17.1662034663, rel=1e-9)
    assert float(RateGain("linear", 3)(Known(100))) == pytest.approx(13.8155105580, rel=1e-9)
    assert float(RateGain("linear", 3, constant=2.0)(Known(100))) == pytest.approx(27.6310211159, rel=1e-9)


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
    greedy = GreedyGain(matern(), candidates, 5, 0.25)
    certified = GreedyGain(matern(), candidates, 5, 0.25, certified=True)
    lower = np.array([float(greedy(Known(n))) for n in range(6)])
    upper = np.array([float(certified(Known(n))) for n in range(6)])
    assert lower[0] == upper[0] == 0.0
    assert np.all(lower <= largest + 1e-12)
    assert np.all(upper >= largest)
    assert upper[1:] == pytest.approx(lower[1:] / (1.0 - math.exp(-1.0)), rel=1e-12)
    assert lower[1] == pytest.approx(largest[1], rel=1e-12)


def test_sum_gain_bounds_the_gain_of_the_sum():
    candidates, _ = data(4, 2)

    def total(A, B):
        return KERNELS["matern"].dense(A, B) + KERNELS["linear"].dense(A, B)

    parts = tuple(
        GreedyGain(KERNELS[name].make(), candidates, 5, 0.25, certified=True) for name in ("matern", "linear")
    )
    bound = [float(SumGain(parts)(Known(n))) for n in range(6)]
    assert np.all(np.array(bound) >= largest_gains(total, candidates.numpy(), 5, 0.25))
    # γ₁ + γ₂ + γ₃ + 2 · 2 ln 100 = 1 + 2 + 3 + 18.4206807440
    three = SumGain((ConstantGain(1.0), ConstantGain(2.0), ConstantGain(3.0)))
    assert float(three(Known(100))) == pytest.approx(24.4206807440, rel=1e-9)
    assert float(three(Known(0))) == 6.0


def test_values_print_and_compare():
    assert repr(IGPUCBWidth(0.1, 2.0, 0.05)) == (
        "IGPUCBWidth(noise_scale=0.1, norm_bound=2.0, failure_probability=0.05, gain=RealizedGain())"
    )
    assert repr(GuessAndDouble(GPUCBWidth(1.0, 0.1, ConstantGain(1.0)))) == (
        "GuessAndDouble(width=GPUCBWidth(norm_bound=1.0, failure_probability=0.1, gain=ConstantGain(value=1.0)))"
    )
    assert repr(RandomizedWidth(10, 3)) == "RandomizedWidth(num_arms=10, seed=3)"
    assert repr(GreedyGain(matern(), data(4, 1)[0], 10, 0.25)) == (
        "GreedyGain(horizon=10, regularization=0.25, certified=False)"
    )
    assert repr(SumGain([RateGain("matern", 1, nu=2.5)])) == (
        "SumGain(parts=(RateGain(kernel='matern', dimension=1, nu=2.5, constant=1.0),))"
    )
    assert IGPUCBWidth(0.1, 2.0, 0.05) == IGPUCBWidth(0.1, 2.0, 0.05)
    assert len({KUCBWidth(0.1, 2.0, 0.05), KUCBWidth(0.1, 2.0, 0.05)}) == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ConstantWidth(-1.0), "value must be a finite number of at least 0"),
        (lambda: ConstantWidth(True), "value must be a number"),
        (lambda: ScaledWidth(ConstantWidth(1.0), float("inf")), "factor"),
        (lambda: BKBWidth(0.0, 1.0, 0.1), "noise_scale must be a finite number above 0"),
        (lambda: BKBWidth(0.1, -1.0, 0.1), "norm_bound"),
        (lambda: BKBWidth(0.1, 1.0, 0.0), "failure_probability must lie strictly between 0 and 1"),
        (lambda: BKBWidth(0.1, 1.0, 1.0), "failure_probability"),
        (lambda: BKBWidth(0.1, 1.0, 0.1, accuracy=1.0), "accuracy"),
        (lambda: greedy_information_gain(matern(), torch.rand(3, 2).double(), 0, 0.1), "n must be"),
        (lambda: information_gain(matern(), torch.rand(3, 2).double(), 0.0), "regularization must be"),
        (lambda: ScaledWidth(2.0, 0.5), "width must be a confidence width"),
        (lambda: GPUCBWidth(0.0, 0.1), "norm_bound"),
        (lambda: GPUCBWidth(1.0, 1.0), "failure_probability"),
        (lambda: GPUCBWidth(1.0, 0.1, gain=3.0), "gain must be an information gain"),
        (lambda: BayesianGPUCBWidth(0, 0.1), "num_arms"),
        (lambda: BayesianGPUCBWidth(10, 0.0), "failure_probability"),
        *[
            (lambda kind=kind, arguments=arguments: kind(*arguments), message)
            for kind in (IGPUCBWidth, GPTSWidth, KUCBWidth, EKUCBWidth, SelfNormalizedWidth)
            for arguments, message in [
                ((0.0, 1.0, 0.1), "noise_scale"),
                ((0.1, float("nan"), 0.1), "norm_bound"),
                ((0.1, 1.0, -0.1), "failure_probability"),
            ]
        ],
        (lambda: EKUCBWidth(0.1, 1.0, 0.1, projection=0.0), "projection must be a finite number above 0"),
        (lambda: IGPUCBWidth(0.1, 1.0, 0.1, gain=RealizedGain), "gain must be an information gain"),
        (lambda: GPTSWidth(0.1, 1.0, 0.1, gain=None), "gain must be an information gain"),
        (lambda: SelfNormalizedWidth(0.1, 1.0, 0.1, gain="rbf"), "gain must be an information gain"),
        (lambda: RandomizedWidth(1, 0), "num_arms must be at least 2"),
        (lambda: RandomizedWidth(2.0, 0), "num_arms must be a whole number"),
        (lambda: RandomizedWidth(2, 0.5), "seed must be a whole number"),
        (lambda: RandomizedWidth(2, True), "seed must be a whole number"),
        (lambda: GuessAndDouble(ConstantWidth(1.0)), "theorem's width with a norm_bound"),
        (lambda: GuessAndDouble(BayesianGPUCBWidth(3, 0.1)), "theorem's width with a norm_bound"),
        (lambda: GuessAndDouble(GuessAndDouble(GPUCBWidth(1.0, 0.1))), "theorem's width with a norm_bound"),
        (lambda: GuessAndDouble(ScaledWidth(GPUCBWidth(1.0, 0.1), 0.1)), "Scale the result"),
        (lambda: ConstantGain(-1.0), "value"),
        (lambda: RateGain("RBF", 1), 'kernel must be "rbf" or "matern" or "linear"'),
        (lambda: RateGain("rbf", 0), "dimension"),
        (lambda: RateGain("rbf", 1, nu=2.5), "nu belongs to the Matérn kernel alone"),
        (lambda: RateGain("matern", 1), "nu must be a number"),
        (lambda: RateGain("matern", 1, nu=0.0), "nu must be a finite number above 0"),
        (lambda: RateGain("linear", 1, constant=0.0), "constant"),
        (lambda: SumGain(()), "parts must be one or more information gains"),
        (lambda: SumGain(ConstantGain(1.0)), "parts must be one or more information gains"),
        (lambda: SumGain((1.0,)), "parts must be gains of single kernels"),
        (lambda: SumGain((RealizedGain(),)), "parts must be gains of single kernels"),
        (lambda: GreedyGain("rbf", data(3, 1)[0], 5, 0.1), "kernel must be a GPyTorch kernel"),
        (lambda: GreedyGain(matern(), torch.rand(3).double(), 5, 0.1), "candidates must have a row"),
        (lambda: GreedyGain(matern(), torch.rand(0, 2).double(), 5, 0.1), "A >= 1"),
        (lambda: GreedyGain(matern(), torch.rand(2, 3, 2).double(), 5, 0.1), r"candidates must be \(A, d\)"),
        (lambda: GreedyGain(matern(), data(3, 1)[0], 0, 0.1), "horizon"),
        (lambda: GreedyGain(matern(), data(3, 1)[0], 5, 0.0), "regularization"),
        (lambda: GreedyGain(matern(), data(3, 1)[0], 5, 0.1, certified=1), "certified must be True or False"),
        (
            lambda: GreedyGain(matern(), data(3, 1)[0], 5, 0.25)(Known(6)),
            "up to horizon=5 observations and there are 6",
        ),
        (lambda: GreedyGain(matern(), data(3, 1)[0], 5, 0.1)(Known(3)), "give both the same"),
    ],
)
def test_bad_settings_are_named(make, message):
    with pytest.raises(InputError, match=message):
        make()


# ---------------------------------------------------------------- widths by the information gain alone
