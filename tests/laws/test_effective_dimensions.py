"""Valko's effective dimension d̃, how far it is from d_eff and I_n, and the λ that they call for."""

import math

import hypothesis.strategies as st
import numpy as np
import oracles
import pytest
import torch
from gpytorch.kernels import RBFKernel
from hypothesis import given
from problems import DOUBLE, KERNELS, data, examples, rbf

from torch_kbandits import InputError
from torch_kbandits.confidence import greedy_information_gain, regularization_for, valko_dimension


def test_valkos_dimension_by_hand():
    apart = 100.0 * torch.arange(6, dtype=DOUBLE).unsqueeze(-1)
    # Six eigenvalues of 1: j λ ln T >= 6 − j, so j >= 6 / (1 + λ ln T); ½ ln 7 = 0.972955, ln 2 / 8 = 0.086643
    assert valko_dimension(rbf(0.4), apart, 0.5, 7) == 4  # 3.0411
    assert valko_dimension(rbf(0.4), apart, 0.125, 2) == 6  # 5.5216
    assert valko_dimension(rbf(0.4), apart, 10.0, 7) == 1  # 0.2933
    assert valko_dimension(rbf(0.4), apart, 0.5, 1) == 6
    # One eigenvalue of 5, and the rest to rounding nothing, whatever T.
    assert {valko_dimension(rbf(0.4), apart[:1].expand(5, 1), 1e-9, T) for T in (1, 2, 1000)} == {1}
    # However small the eigenvalues, j = 0 leaves too much out.
    assert valko_dimension(rbf(0.4, 1e-12), apart, 1.0, 3) == 1


@examples(60)
@given(
    st.sampled_from(sorted(KERNELS)),
    st.integers(1, 25),
    st.integers(1, 3),
    st.sampled_from([1e-3, 0.1, 1.0, 30.0]),
    st.integers(3, 10_000),
    st.floats(1e-3, 3.0),
    st.integers(0, 99),
)
def test_effective_dimensions_and_information_gain_are_equal_up_to_logarithms(name, n, d, level, horizon, side, seed):
    X = side * data(n, d, seed)[0]
    dense = KERNELS[name].dense(X.numpy(), X.numpy())
    values = np.linalg.eigvalsh(dense)[::-1].clip(0.0)
    ours = valko_dimension(KERNELS[name].make(), X, level, horizon)
    slack = oracles.rounding(n, 1.0, float(values.sum()))
    assert ours * level * math.log(horizon) >= values[ours:].sum() - slack
    assert ours == 0 or (ours - 1) * level * math.log(horizon) < values[ours - 1 :].sum() + slack

    shares = values / level
    dimension, gain = float((shares / (1.0 + shares)).sum()), 0.5 * float(np.log1p(shares).sum())
    slack, bound = slack / level, float(np.diag(dense).max())
    assert ours <= 1.0 + 2.0 * dimension + slack
    assert dimension <= ours * (1.0 + math.log(horizon)) + slack
    assert dimension <= 2.0 * gain + slack
    assert 2.0 * gain <= ours * (math.log(horizon) + math.log1p(shares[0])) + slack
    assert 2.0 * gain <= math.log(math.e + math.e * n * bound / level) * dimension + slack  # Proposition 3.1


def test_the_information_gain_alone_may_be_less_than_the_effective_dimension():
    """Appendix D of Zenati et al. leaves the ½ out: of six eigenvalues λ/10 d_eff is 6/11, and I_n 3 ln 1.1."""
    share = 0.1 * np.ones(6)
    assert 0.5 * np.log1p(share).sum() == pytest.approx(0.285930540)
    assert (share / (1.0 + share)).sum() == pytest.approx(0.545454545)


def test_regularization_by_hand():
    assert regularization_for(2_000) == pytest.approx(44.72135955)  # √2000
    assert regularization_for(2_000, 0.0) == 1.0
    assert regularization_for(2_000, 0.5) == pytest.approx(12.59921050)  # 2000^⅓
    # 10,000 / 10², / 21²; from 10,000^⅓ = 21.54 points on that
    assert regularization_for(10_000, 0.5, dictionary_size=10) == pytest.approx(100.0)
    assert regularization_for(10_000, 0.5, dictionary_size=21) == pytest.approx(22.67573696)
    assert regularization_for(10_000, 0.5, dictionary_size=22) == pytest.approx(21.54434690)
    assert regularization_for(10_000, 0.0, dictionary_size=1) == 1.0


@given(st.integers(1, 10**9), st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.integers(1, 10**6), st.integers(1, 10**6))
def test_regularization_grows_with_rounds_and_capacity_and_falls_with_the_dictionary(T, capacity, other, m, more):
    low, high = sorted((capacity, other))
    assert 1.0 <= regularization_for(T, low) <= regularization_for(T, high) <= math.sqrt(T) * (1.0 + 1e-12)
    assert regularization_for(T, capacity) <= regularization_for(2 * T, capacity)
    few, many = (regularization_for(T, capacity, dictionary_size=size) for size in sorted((m, more)))
    assert regularization_for(T, capacity) * (1.0 - 1e-9) <= many <= few * (1.0 + 1e-9)
    if m <= T ** (capacity / (1.0 + capacity)) and capacity > 0.0:
        # What the corollary asks for: then the effective dimension, at most (T/λ)^α, is m.
        level = regularization_for(T, capacity, dictionary_size=m)
        assert (T / level) ** capacity == pytest.approx(m, rel=1e-9)


@pytest.mark.parametrize("words", [{"horizon": 0}, {"capacity": 1.01}, {"capacity": -0.1}, {"dictionary_size": 0}])
def test_errors_name_the_argument(words):
    with pytest.raises(InputError, match=next(iter(words))):
        regularization_for(**({"horizon": 100} | words))


def test_a_kernel_of_several_batches_is_refused():
    kernel, X = RBFKernel(batch_shape=torch.Size([2])).double(), torch.rand(4, 2, dtype=torch.float64)
    for call in (lambda: valko_dimension(kernel, X, 0.1, 10), lambda: greedy_information_gain(kernel, X, 2, 0.1)):
        with pytest.raises(InputError, match=r"kernel (must give a finite number|cannot be evaluated)"):
            call()
