"""Changes of a Cholesky factor equal factorising what they lead to, and the exact factors equal dense formulas."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from problems import DOUBLE, difference

from torch_kbandits.errors import NumericalError
from torch_kbandits.numerics import bordered
from torch_kbandits.numerics.bordered import BorderedFactor
from torch_kbandits.numerics.linalg import NotPositiveDefiniteError, cholesky_rank_one, cholesky_remove, schur_factor
from torch_kbandits.posteriors.exact import ExactFactors

SHAPES = st.sampled_from([(), (3,), (2, 1)])


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def covariance(*shape, seed=0, least=0.1):
    """Positive definite (..., m, m) with eigenvalues of at least ``least``."""
    root = random(*shape, shape[-1], seed=seed)
    return root @ root.mT / shape[-1] + least * torch.eye(shape[-1], dtype=DOUBLE)


def numpy_cholesky(matrix):
    return np.linalg.cholesky(matrix.numpy())


# -------------------------------------------------------------------- rank one


@given(batch=SHAPES, m=st.integers(1, 12), seed=st.integers(0, 10_000), size=st.sampled_from([0.0, 1e-8, 1.0, 1e4]))
def test_rank_one_updates_equal_a_fresh_factor(batch, m, seed, size):
    A, v = covariance(*batch, m, seed=seed), random(*batch, m, seed=seed + 1)
    scale = size * random(*batch, seed=seed + 2).square()
    updated = cholesky_rank_one(torch.linalg.cholesky(A), v, scale)
    expected = numpy_cholesky(A + scale[..., None, None] * v.unsqueeze(-1) * v.unsqueeze(-2))
    assert difference(updated, expected) < 1e-12 * max(1.0, float(abs(expected).max())) * m
    assert difference(updated, updated.tril()) == 0.0


@given(batch=SHAPES, m=st.integers(1, 12), seed=st.integers(0, 10_000), left=st.sampled_from([0.9, 0.5, 1e-3]))
def test_rank_one_downdates_equal_a_fresh_factor(batch, m, seed, left):
    """Taken away is a share 1 − left of what may be: det A' = left · det A."""
    A, v = covariance(*batch, m, seed=seed), random(*batch, m, seed=seed + 1)
    most = torch.linalg.solve(A, v.unsqueeze(-1)).squeeze(-1).mul(v).sum(-1).reciprocal()
    scale = -(1.0 - left) * most
    downdated = cholesky_rank_one(torch.linalg.cholesky(A), v, scale)
    expected = numpy_cholesky(A + scale[..., None, None] * v.unsqueeze(-1) * v.unsqueeze(-2))
    assert difference(downdated, expected) < 1e-10 / left


@given(m=st.integers(2, 10), seed=st.integers(0, 10_000), data=st.data())
def test_columns_before_the_start_stay(m, seed, data):
    start = data.draw(st.integers(0, m - 1))
    A, v = covariance(m, seed=seed), random(m, seed=seed + 1)
    v[:start] = 0.0
    L = torch.linalg.cholesky(A)
    updated = cholesky_rank_one(L, v, torch.tensor(0.7, dtype=DOUBLE), start=start)
    assert difference(updated, numpy_cholesky(A + 0.7 * torch.outer(v, v))) < 1e-12 * m
    assert torch.equal(updated[:, :start], L[:, :start])


@pytest.mark.parametrize("m", [1, 4])
@pytest.mark.parametrize("excess", [1.0, 1.5])
def test_what_is_not_positive_definite_any_more_is_nan_in_its_own_member_only(m, excess):
    """At excess 1 the result is singular, beyond it indefinite."""
    L = 2.0 * torch.eye(m, dtype=DOUBLE).expand(2, m, m)
    v = torch.zeros(2, m, dtype=DOUBLE)
    v[:, 0] = 1.0
    changed = cholesky_rank_one(L, v, torch.tensor([-4.0 * excess, -3.0], dtype=DOUBLE))
    assert bool(changed[0].isnan().any())
    assert float(changed[1, 0, 0]) == pytest.approx(1.0, abs=1e-15)
    assert bool(torch.isfinite(changed[1]).all())


def test_autograd_goes_through_a_rank_one_change():
    A, v = covariance(4).requires_grad_(), random(4, seed=1).requires_grad_()
    scale = torch.tensor(0.3, dtype=DOUBLE, requires_grad=True)

    def changed(A, v, scale):
        return cholesky_rank_one(torch.linalg.cholesky(0.5 * (A + A.mT)), v, scale)

    assert torch.autograd.gradcheck(changed, (A, v, scale))


# -------------------------------------------------------------------- append and remove


def cholesky_append(L, cross, corner):
    """The factor of [[L Lᵀ, C], [Cᵀ, S]]."""
    factor = BorderedFactor.of(L)
    across = factor.solve(cross)
    return factor.appended(across, schur_factor(corner, across)).dense()


@given(batch=SHAPES, m=st.integers(0, 8), k=st.integers(0, 5), seed=st.integers(0, 10_000))
def test_appending_equals_a_fresh_factor(batch, m, k, seed):
    """Also to nothing, and nothing: then the factor is as it was."""
    A = covariance(*batch, m + k, seed=seed) if m + k else torch.empty(*batch, 0, 0, dtype=DOUBLE)
    L = torch.linalg.cholesky(A[..., :m, :m])
    appended = cholesky_append(L, A[..., :m, m:], A[..., m:, m:])
    assert difference(appended, numpy_cholesky(A)) < 1e-12 * (m + k + 1)
    if k == 0:
        assert torch.equal(appended, L)


def test_appending_broadcasts_over_batches():
    A = covariance(5)
    many = A.expand(3, 5, 5)
    appended = cholesky_append(torch.linalg.cholesky(A[:3, :3]), many[..., :3, 3:], A[3:, 3:])
    assert difference(appended, numpy_cholesky(many)) < 1e-14


def test_appending_a_point_twice_gets_just_the_jitter_that_it_needs():
    A = covariance(4)
    twice = torch.cat([A, A[:1]], 0)
    twice = torch.cat([twice, twice[:, :1]], 1)
    appended = cholesky_append(torch.linalg.cholesky(A), twice[:4, 4:], twice[4:, 4:])
    assert difference(appended @ appended.mT, twice) < 1e-11


def test_appending_what_no_covariance_has_is_refused():
    L = torch.eye(2, dtype=DOUBLE)
    with pytest.raises(NotPositiveDefiniteError, match="smallest eigenvalue is -3"):
        cholesky_append(L, torch.tensor([[2.0], [0.0]], dtype=DOUBLE), torch.ones(1, 1, dtype=DOUBLE))
    with pytest.raises(NumericalError, match="NaN or infinite"):
        cholesky_append(L, torch.full((2, 1), torch.nan, dtype=DOUBLE), torch.ones(1, 1, dtype=DOUBLE))


@given(batch=SHAPES, m=st.integers(1, 10), seed=st.integers(0, 10_000), data=st.data())
def test_removing_equals_a_fresh_factor(batch, m, seed, data):
    index = data.draw(st.integers(0, m - 1))
    A = covariance(*batch, m, seed=seed)
    L = torch.linalg.cholesky(A)
    before = L.clone()
    keep = [i for i in range(m) if i != index]
    removed = cholesky_remove(L, index)
    assert difference(removed, numpy_cholesky(A[..., keep, :][..., keep])) < 1e-12 * m
    assert torch.equal(L, before)


# -------------------------------------------------------------------- the factors


def dense_posterior(K, cross, prior, targets, noise):
    A = K + np.diag(noise)
    return cross.T @ np.linalg.solve(A, targets), prior - cross.T @ np.linalg.solve(A, cross)


class Held:
    """Factors of some points of a pool of 25, in the order of ``places``; a changed copy leaves this as it is."""

    def __init__(self, pool, places, targets, noise, factors):
        self.pool, self.places, self.targets, self.noise, self.factors = pool, places, targets, noise, factors

    @classmethod
    def fit(cls, u, seed):
        pool = covariance(25, seed=seed, least=0.0)
        targets, noise = random(25, seed=seed + 1), random(25, seed=seed + 2).square() + 0.01
        held = list(range(u))
        factors = ExactFactors.fit(pool[held][:, held], targets[held], noise[held])
        return cls(pool, held, targets, noise, factors)

    def after(self, step, rng):
        """What one change of a kind leads to; itself where there is nothing to change."""
        held, pool, targets, noise = self.places, self.pool, self.targets.clone(), self.noise.clone()
        unused = [place for place in range(22) if place not in held]
        if step == 0 and unused:
            new = unused[: int(rng.integers(1, 3))]
            factors = self.factors.appended(pool[held][:, new], pool[new][:, new], targets[new], noise[new])
            return Held(pool, held + new, targets, noise, factors)
        if held and step == 1:
            index = int(rng.integers(len(held)))
            noise[held[index]] = noise[held[index]] * float(rng.uniform(0.2, 3.0))
            targets[held[index]] = float(rng.normal())
            factors = self.factors.reweighted(index, targets[held[index]], noise[held[index]])
            return Held(pool, held, targets, noise, factors)
        if held and step == 2:
            index = int(rng.integers(len(held)))
            return Held(pool, held[:index] + held[index + 1 :], targets, noise, self.factors.removed(index))
        return self

    def assert_dense(self):
        """The factors give what dense formulas give."""
        K, held, T = self.pool.numpy(), self.places, [22, 23, 24]
        prior, noise = K[np.ix_(held, held)], self.noise[held].numpy()
        mean, covariance_ = dense_posterior(
            prior, K[np.ix_(held, T)], K[np.ix_(T, T)], self.targets[held].numpy(), noise
        )
        embedding = self.factors.embed(self.pool[held][:, T])
        assert difference(self.factors.mean(embedding), mean) < 1e-9
        assert difference(self.factors.covariance(self.pool[T][:, T], embedding), covariance_) < 1e-9
        assert (
            difference(self.factors.variance(self.pool.diagonal()[T], embedding), covariance_.diagonal().copy()) < 1e-9
        )
        assert difference(self.factors.noise, self.noise[held]) < 1e-12
        weights = np.linalg.solve(prior + np.diag(noise), self.targets[held].numpy())
        assert difference(self.factors.coefficients(), weights) < 1e-8
        dimension = np.trace(np.linalg.solve(prior + np.diag(noise), prior))
        assert float(self.factors.effective_dimension()) == pytest.approx(dimension, rel=1e-9, abs=1e-12)


PARTS = st.sampled_from([(400, 128), (0, 3), (2, 4), (5, 100)])


@given(
    u=st.integers(0, 8), seed=st.integers(0, 10_000), steps=st.lists(st.integers(0, 2), max_size=12), parts=PARTS,
    asked=st.integers(0, 12),
)  # fmt: skip
def test_any_chain_of_changes_equals_a_fresh_fit(u, seed, steps, parts, asked):
    """However many rows are held apart, and from whenever on the effective dimension is carried along."""
    rng, held = np.random.default_rng(seed), Held.fit(u, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bordered, "_HEAD", parts[0])
        patch.setattr(bordered, "_TAIL", parts[1])
        for number, step in enumerate(steps):
            if number == asked:
                held.factors = held.factors.with_noise_share()
            held = held.after(step, rng)
            assert (held.factors.noise_share is not None) == (number >= asked)
    held.assert_dense()


@given(seed=st.integers(0, 10_000), steps=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2)), max_size=20))
def test_values_branch_without_seeing_each_other(seed, steps):
    """Each step changes any value there was; one that fails in the midst is forgotten. In the end all are as made."""
    rng, values = np.random.default_rng(seed), [Held.fit(4, seed)]
    values[0].factors = values[0].factors.with_noise_share()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bordered, "_HEAD", 3)
        patch.setattr(bordered, "_TAIL", 5)
        for number, step in steps:
            start = values[number % len(values)]
            cross = start.pool[start.places][:, :2]
            with pytest.raises(NumericalError):
                start.factors.appended(cross, torch.full((2, 2), torch.nan, dtype=DOUBLE), cross[0], cross[0])
            values.append(start.after(step, rng))
    for value in values:
        value.assert_dense()


def test_an_append_to_a_large_factor_copies_the_latest_rows_only():
    A = covariance(500, least=1.0)
    factor = BorderedFactor.of(torch.linalg.cholesky(A[:400, :400]))
    heads = set()
    for row in range(400, 500):
        across = factor.solve(A[:row, row, None])
        factor = factor.appended(across, schur_factor(A[row, row].reshape(1, 1), across))
        heads.add(factor.head.data_ptr())
    assert len(heads) == 1
    assert all(part.is_contiguous() or part.mT.is_contiguous() for part in vars(factor).values())
    expected = numpy_cholesky(A)
    assert difference(factor.dense(), expected) < 1e-12
    assert difference(factor.diagonal(), expected.diagonal().copy()) < 1e-12
    T = random(500, 3)
    assert difference(factor.solve(T), np.linalg.solve(expected, T.numpy())) < 1e-11
    assert difference(factor.solve_transposed(T), np.linalg.solve(expected.T, T.numpy())) < 1e-11


@pytest.mark.one_in(2)
@pytest.mark.parametrize("batch", [(), (3,)])
def test_autograd_goes_through_rows_held_apart(batch, monkeypatch):
    monkeypatch.setattr(bordered, "_HEAD", 0)
    A, T = covariance(*batch, 5).requires_grad_(), random(*batch, 5, 2, seed=1).requires_grad_()

    def solved(A, T):
        A = 0.5 * (A + A.mT)
        factor = BorderedFactor.of(torch.linalg.cholesky(A[..., :3, :3]))
        across = factor.solve(A[..., :3, 3:])
        factor = factor.appended(across, schur_factor(A[..., 3:, 3:], across))
        assert factor.corner.shape[-1] == 2
        return factor.solve(T), factor.solve_transposed(T), factor.diagonal()

    assert torch.autograd.gradcheck(solved, (A, T))


@given(batch=SHAPES, seed=st.integers(0, 10_000), index=st.integers(0, 5))
def test_effective_dimensions_of_batches(batch, seed, index):
    """Each change of the carried trace, for every member."""
    K, noise = covariance(*batch, 8, seed=seed), random(*batch, 8, seed=seed + 1).square() + 0.01
    targets = random(*batch, 8, seed=seed + 2)
    factors = ExactFactors.fit(K[..., :6, :6], targets[..., :6], noise[..., :6]).with_noise_share()
    factors = factors.appended(K[..., :6, 6:], K[..., 6:, 6:], targets[..., 6:], noise[..., 6:])
    noise[..., index] = 3.0 * noise[..., index]
    factors = factors.reweighted(index, targets[..., index], noise[..., index]).removed(0)
    assert factors.noise_share is not None
    A = (K + torch.diag_embed(noise))[..., 1:, 1:].numpy()
    expected = np.trace(np.linalg.solve(A, K[..., 1:, 1:].numpy()), axis1=-2, axis2=-1)
    assert factors.effective_dimension().shape == batch
    assert difference(factors.effective_dimension(), np.asarray(expected)) < 1e-10


def test_gain_and_norm_equal_their_dense_formulas():
    K, targets, noise = covariance(6), random(6, seed=1), random(6, seed=2).square() + 0.05
    factors = ExactFactors.fit(K, targets, noise)
    K, targets, noise = K.numpy(), targets.numpy(), noise.numpy()
    weights = np.linalg.solve(K + np.diag(noise), targets)
    assert float(factors.mean_norm()) == pytest.approx(np.sqrt(weights @ K @ weights), rel=1e-10)
    gain = 0.5 * np.linalg.slogdet(np.eye(6) + K / np.sqrt(np.outer(noise, noise)))[1]
    assert float(factors.information_gain()) == pytest.approx(gain, rel=1e-10)


def test_draws_have_the_moments_of_the_posterior():
    """4,000 draws at 3 points, ten at a time of copies that know nothing of each other.

    4.5 σ/√4000 in each mean, 4.5 √2 σ²/√4000 in each covariance; 9 comparisons, so a false alarm in about 6e-5 of the
    seeds.
    """
    pool, held, T = covariance(7), list(range(4)), [4, 5, 6]
    alone, copies = pool[held][:, held], torch.eye(10, dtype=DOUBLE)
    factors = ExactFactors.fit(torch.kron(copies, alone), random(40), torch.full((40,), 0.2, dtype=DOUBLE))
    embedding, root = factors.embed(torch.kron(copies, pool[held][:, T])), torch.linalg.cholesky(pool)
    generator = torch.Generator().manual_seed(0)
    draws = []
    for _ in range(400):
        prior = torch.randn(10, 7, generator=generator, dtype=DOUBLE) @ root.mT
        correction = factors.draw_correction(prior[:, held].flatten(), generator) @ embedding
        draws.append(prior[:, T] + correction.reshape(10, 3))
    draws, noisy = torch.cat(draws), alone + 0.2 * torch.eye(4, dtype=DOUBLE)
    expected = pool[T][:, T] - pool[T][:, held] @ torch.linalg.solve(noisy, pool[held][:, T])
    deviation = expected.diagonal().sqrt()
    assert bool((draws.mean(0).abs() < 4.5 * deviation / 4_000**0.5).all())
    assert bool(((draws.T.cov() - expected).abs() < 4.5 * torch.outer(deviation, deviation) * (2 / 4_000) ** 0.5).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_dtype_stays(dtype):
    K = covariance(4).to(dtype)
    one = torch.ones((), dtype=dtype)
    factors = ExactFactors.fit(K[:3, :3], K[0, :3], K.diagonal()[:3])
    factors = factors.appended(K[:3, 3:], K[3:, 3:], K[0, 3:], K[3, 3:]).reweighted(1, one, one).removed(0)
    parts = [factors.factor.dense(), factors.noise, factors.targets, factors.whitened, factors.effective_dimension()]
    assert {t.dtype for t in parts} == {dtype}
    assert factors.batch_dims == 0
