"""Factors stay finite and honest: no more jitter than needed, no silence about what rounding cannot explain."""

import hypothesis.strategies as st
import numpy as np
import oracles
import pytest
import torch
from hypothesis import given
from problems import DOUBLE, data, difference

from torch_kbandits.errors import NumericalError
from torch_kbandits.numerics.linalg import (
    NotPositiveDefiniteError,
    jittered_cholesky,
    lower_inverse,
    non_negative_variance,
    spanning_pivots,
)
from torch_kbandits.numerics.random import generator_for, seed_for


def gram(rows, columns, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    A = torch.randn(rows, columns, generator=generator, dtype=DOUBLE)
    return scale * A @ A.mT


def test_a_well_conditioned_matrix_gets_no_jitter():
    K = gram(6, 9)
    assert torch.equal(jittered_cholesky(K), torch.linalg.cholesky(K))


@given(
    m=st.integers(1, 20), rank=st.integers(1, 20), scale=st.sampled_from([1e-8, 1.0, 1e8]), seed=st.integers(0, 1000)
)
def test_singular_matrices_are_factorised_to_rounding(m, rank, scale, seed):
    K = gram(m, min(m, rank), seed, scale)
    L = jittered_cholesky(K)
    assert difference(L @ L.mT / scale, K / scale) < 1e-11 * float(K.diagonal().max()) / scale


def test_only_the_members_that_need_it_get_jitter():
    good, bad = gram(4, 8), gram(4, 2)
    L = jittered_cholesky(torch.stack([good, bad]))
    assert torch.equal(L[0], torch.linalg.cholesky(good))
    assert difference(L[1] @ L[1].mT, bad) < 1e-11


def test_an_empty_matrix_has_an_empty_factor():
    assert jittered_cholesky(torch.empty(0, 0, dtype=DOUBLE)).shape == (0, 0)
    assert jittered_cholesky(torch.empty(3, 0, 0, dtype=DOUBLE)).shape == (3, 0, 0)


def test_autograd_goes_through_the_jitter():
    K = gram(5, 2).requires_grad_()
    jittered_cholesky(K).sum().backward()
    assert bool(torch.isfinite(K.grad).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_no_gram_matrix_is_refused(dtype):
    K = gram(5, 9).to(dtype)
    with pytest.raises(NotPositiveDefiniteError, match="smallest eigenvalue is -"):
        jittered_cholesky(K - 2.0 * K.diagonal().max() * torch.eye(5, dtype=dtype))
    with pytest.raises(NumericalError, match="NaN or infinite"):
        jittered_cholesky(K * float("nan"))


def test_rounding_is_zeroed_and_more_is_an_error():
    prior = torch.tensor([2.0, 2.0, 2.0], dtype=DOUBLE)
    variance = torch.tensor([0.3, -1e-9, 0.0], dtype=DOUBLE)
    assert non_negative_variance(variance, prior).tolist() == [0.3, 0.0, 0.0]
    with pytest.raises(NumericalError, match=r"-0\.005 times the prior variance"):
        non_negative_variance(torch.tensor([0.3, -0.01, 0.0], dtype=DOUBLE), prior)


def test_draws_have_addresses():
    first = torch.rand(3, generator=generator_for(1, 2, "noise"))
    assert torch.equal(first, torch.rand(3, generator=generator_for(1, 2, "noise")))
    for other in ((2, 2, "noise"), (1, 3, "noise"), (1, 2, "dictionary"), (12, 2, "noise"), (-1, 2, "noise")):
        assert seed_for(*other) != seed_for(1, 2, "noise")
        assert not torch.equal(first, torch.rand(3, generator=generator_for(*other)))


def test_a_well_conditioned_matrix_is_factored_as_it_is():
    K = torch.eye(5, dtype=torch.float64) + 0.5
    assert torch.equal(jittered_cholesky(K, for_solving=True), torch.linalg.cholesky(K))


@pytest.mark.parametrize("scale", [1.0, 1e-4, 1e-9, 0.0])
def test_pivots_span_all_points_the_least_explained_first(scale):
    X = torch.cat([data(12, 2)[0], 0.3 + scale * data(8, 2)[0]])
    left = oracles.rbf(0.5)(X.numpy(), X.numpy())
    pivots = spanning_pivots(torch.from_numpy(left), 1e-10).tolist()
    for pivot in pivots:
        assert left.diagonal().max() > 1e-10 * (1.0 - 1e-2)
        assert left[pivot, pivot] > left.diagonal().max() * (1.0 - 1e-2)
        left -= np.outer(left[pivot], left[pivot]) / left[pivot, pivot]
    assert left.diagonal().max() < 1e-10 * (1.0 + 1e-2)


def test_points_that_have_no_variance_are_spanned_by_one_and_none_by_none():
    assert len(spanning_pivots(torch.zeros(3, 3, dtype=DOUBLE), 1e-10)) == 1
    assert len(spanning_pivots(torch.zeros(0, 0, dtype=DOUBLE), 1e-10)) == 0


@pytest.mark.parametrize("m", [0, 1, 64, 65, 131, 350])
def test_a_triangular_inverse_by_halves_is_the_inverse(m):
    factor = torch.rand(m, m, dtype=torch.float64, generator=torch.Generator().manual_seed(m)).tril() / max(m, 1)
    factor.diagonal().add_(1.0)
    inverse, expected = lower_inverse(factor), torch.linalg.inv(factor)
    condition = factor.norm() * expected.norm()
    assert torch.equal(inverse, inverse.tril())
    assert (inverse - expected).norm() <= 10.0 * torch.finfo(torch.float64).eps * condition * expected.norm()
