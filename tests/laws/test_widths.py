"""Widths equal their formulas on cases computed by hand, and grow where the theory says so."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from problems import DOUBLE, KERNELS, data, dense, matern, rbf
from torch import Tensor

from torch_kbandits import BKBWidth, ConstantWidth, InputError, NystromGP, ScaledWidth
from torch_kbandits.confidence import effective_dimension, greedy_information_gain, information_gain


@dataclass
class Known:
    """Evidence with numbers of our choice."""

    num_observations: int = 100
    regularization_value: float = 0.25
    dimension: float = 4.0
    bound: float = 1.0

    @property
    def regularization(self) -> Tensor:
        return torch.tensor(self.regularization_value, dtype=DOUBLE)

    def effective_dimension(self) -> Tensor:
        return torch.tensor(self.dimension, dtype=DOUBLE)

    def information_gain(self) -> Tensor:
        return torch.tensor(3.0, dtype=DOUBLE)

    def kernel_bound(self) -> Tensor:
        return torch.tensor(self.bound, dtype=DOUBLE)


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


def test_bkb_grows_with_time_noise_norm_confidence_and_dimension():
    base = float(BKBWidth(0.1, 1.0, 0.1)(Known()))
    assert float(BKBWidth(0.2, 1.0, 0.1)(Known())) > base
    assert float(BKBWidth(0.1, 2.0, 0.1)(Known())) > base
    assert float(BKBWidth(0.1, 1.0, 0.01)(Known())) > base
    assert float(BKBWidth(0.1, 1.0, 0.1)(Known(dimension=8.0))) > base
    assert float(BKBWidth(0.1, 1.0, 0.1)(Known(bound=3.0))) > base
    values = [float(BKBWidth(0.1, 1.0, 0.1)(Known(t))) for t in range(60)]
    assert all(np.diff(values) > 0.0)


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


def test_information_gain_of_duplicates():
    # n equal points: eigenvalues n k / λ and zeros.
    X = torch.full((9, 1), 0.5, dtype=DOUBLE)
    assert float(information_gain(matern(outputscale=2.0), X, 0.5)) == pytest.approx(0.5 * math.log(1.0 + 9 * 4.0))
    assert float(effective_dimension(matern(outputscale=2.0), X, 0.5)) == pytest.approx(36.0 / 37.0)


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
    ],
)
def test_bad_settings_are_named(make, message):
    with pytest.raises(InputError, match=message):
        make()
