"""Prior draws have the prior's law. Statistics have fixed seeds; ``standardised`` says how often chance would fail."""

import numpy as np
import oracles
import pytest
import torch
from botorch.exceptions.errors import UnsupportedError
from gpytorch.kernels import MaternKernel, PeriodicKernel, RBFKernel, RQKernel
from problems import DOUBLE, KERNELS, data, difference, exactly, linear, matern, rbf, scaled

from torch_kbandits.kernels import ForgettingKernel, GroupedKernel, SpaceTimeKernel
from torch_kbandits.numerics import prior_draws as module
from torch_kbandits.numerics import waves
from torch_kbandits.numerics.prior_draws import FourierDraws, JointDraws, LowRankDraws, prior_draws
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.numerics.rows import distinct
from torch_kbandits.numerics.waves import WavePrior

X, _ = data(10, 2)


def sample(draws, count, seed=0):
    return torch.stack([draws.draw(generator_for(seed, i, "test")) for i in range(count)])


def standardised(draws, mean, covariance):
    """The largest deviation of the means and second moments of draws (n, N) from what they should be, in its errors.

    For N = 10 there are 65 of them, so by chance it exceeds 5 with probability 65 · 6e-7 = 4e-5. Draws (n, c N) are at
    c copies of the points, over which means and products are averaged first.
    """
    n = len(draws)
    copies = draws.double().numpy().reshape(n, -1, len(covariance)) - mean
    centred, products = copies.mean(1), copies.mT @ copies / copies.shape[1]
    off_mean = np.abs(centred.mean(0)) / (centred.std(0) / np.sqrt(n))
    off_covariance = np.abs(products.mean(0) - covariance) / (products.std(0) / np.sqrt(n))
    return max(off_mean.max(), off_covariance.max())


@pytest.fixture
def few_features(monkeypatch):
    """Over draws the covariance is exact however few features a draw has."""
    monkeypatch.setattr(waves, "_FEATURES", 64)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", KERNELS)
def test_joint_draws_have_the_prior_covariance(name):
    kernel, dense = KERNELS[name]
    assert standardised(sample(JointDraws(kernel(), X), 3000), 0.0, dense(X.numpy(), X.numpy())) < 5.0


def far_copies(points):
    """Ten copies (10 N, d) of points, so far from each other that a stationary kernel sees nothing between them.

    A draw at all of them says more, and most of what one takes are its frequencies.
    """
    return torch.cat([points + 20.0 * number for number in range(10)])


class InBlocks:
    """The waves of a kernel at points that are never together."""

    def __init__(self, kernel, points):
        self.prior, self.points = WavePrior(kernel, points.shape[-1]), points

    def draw(self, generator):
        drawn = self.prior.draw(generator)
        return torch.cat([drawn.at(block) for block in self.points.split(37)])


@pytest.mark.one_in(6)
@pytest.mark.parametrize("kind", [FourierDraws, InBlocks])
@pytest.mark.parametrize("name", ["matern", "scaled rbf", "rbf"])
def test_fourier_draws_have_the_prior_covariance(name, kind, few_features):
    kernel, dense = KERNELS[name]
    assert standardised(sample(kind(kernel(), far_copies(X)), 150), 0.0, dense(X.numpy(), X.numpy())) < 5.0


@pytest.mark.parametrize(
    ("kernel", "dimension"),
    [
        (ForgettingKernel(0.1), 1),
        (SpaceTimeKernel(rbf(0.5), ForgettingKernel(0.1)), 2),
        (GroupedKernel(rbf(0.5), (0, 0, 1)), 3),
    ],
)
def test_a_subclass_has_no_waves_of_its_parent(kernel, dimension):
    """It may be another function."""
    WavePrior(kernel, dimension)
    kernel.__class__ = type("Other", (type(kernel),), {})
    with pytest.raises(UnsupportedError, match="Other"):
        WavePrior(kernel, dimension)


def test_waves_in_time_and_space_have_the_covariance_of_the_product(few_features):
    """Also where two kernels on time are one another's factor, as under two memories that are priors on time."""
    in_time = MaternKernel(nu=2.5).double() * ForgettingKernel(0.3)
    in_time.kernels[0].lengthscale = 2.0
    points = torch.cat([torch.arange(len(X), dtype=DOUBLE).unsqueeze(-1), X], dim=1)
    times = points[:, :1].numpy()
    expected = 0.7 ** (np.abs(times - times.T) / 2.0) * oracles.matern52(2.0)(times, times)
    expected *= oracles.rbf(0.5, 1.7)(X.numpy(), X.numpy())
    draws = InBlocks(SpaceTimeKernel(scaled(rbf(0.5), 1.7), in_time), far_copies(points))
    assert standardised(sample(draws, 150), 0.0, expected) < 5.0


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", [FourierDraws, InBlocks])
def test_fourier_draws_know_ard_lengthscales_and_active_dimensions(kind, few_features):
    base = RBFKernel(ard_num_dims=2, active_dims=(2, 0)).double()
    base.lengthscale = torch.tensor([[0.2, 0.9]], dtype=DOUBLE)
    points, _ = data(10, 3)
    scaled_points = points.numpy()[:, [2, 0]] / np.array([0.2, 0.9])
    expected = oracles.rbf(1.0, 1.3)(scaled_points, scaled_points)
    assert standardised(sample(kind(scaled(base, 1.3), far_copies(points)), 150), 0.0, expected) < 5.0


def test_given_its_frequencies_a_fourier_draw_errs_by_one_over_root_f(monkeypatch):
    """The root mean square error over 100 sets of frequencies; its own error is below a tenth, four of them are left.

    The covariance given frequencies ω_j is (2/F) Σ_j cos(ω_jᵀ(x − x')).
    """
    monkeypatch.setattr(waves, "_FEATURES", 256)
    prior, errors = WavePrior(matern(0.5, 1.7), 2), []
    for i in range(100):
        phases = 2.0 * np.pi * X.numpy() @ prior.draw(generator_for(0, i, "test")).frequencies.numpy()
        given = 1.7 * np.cos(phases[:, None, :] - phases[None, :, :]).mean(-1)
        errors.append(given - oracles.matern52(0.5, 1.7)(X.numpy(), X.numpy()))
    worst = np.sqrt(np.square(errors).mean(0)).max() / 1.7
    assert worst < 1.4 / np.sqrt(256)
    assert worst > 0.2 / np.sqrt(256)


def in_numpy(drawn, points):
    """Waves at points (N, d) as NumPy has them."""
    turns = points.double().numpy() @ drawn.frequencies.numpy() + drawn.phases.numpy()
    return np.cos(2.0 * np.pi * turns) @ drawn.amplitudes.numpy()


@pytest.mark.parametrize("offset", [0.0, 1e8])
@pytest.mark.parametrize("spread", [1.0, 1e6])
def test_rounding_in_fourier_draws_is_far_below_their_error(offset, spread):
    """Points far from the origin, or many lengthscales apart: in single and in double precision."""
    points = offset + spread * X
    ours = FourierDraws(rbf(0.4), points).draw(generator_for(0, 0, "test"))
    drawn = WavePrior(rbf(0.4), 2).draw(generator_for(0, 0, "test"))
    assert ours.dtype == DOUBLE
    assert difference(ours, in_numpy(drawn, points)) < 3e-3
    # Phases of so many turns are off by this in any order of summation, and all cosines together by its sum.
    turns = float((points.abs() @ drawn.frequencies.abs()).max()) + 1.0
    rounding = 2.0 * np.pi * 4.0 * np.finfo(float).eps * turns + 3e-11
    assert difference(drawn.at(points), in_numpy(drawn, points)) < rounding * float(drawn.amplitudes.sum())


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", [DOUBLE, torch.float32])
def test_a_wave_at_a_point_has_the_same_bits_in_whatever_block_and_order_and_on_however_many_threads(dtype):
    points = (10.0 * data(2000, 3)[0]).to(dtype)
    drawn = WavePrior(matern(), 3).draw(generator_for(0, 0, "test"))
    values = drawn.at(points)
    assert values.dtype == DOUBLE
    for size in (1, 129, 997):
        assert torch.equal(torch.cat([drawn.at(block) for block in points[:500].split(size)]), values[:500])
    order = torch.randperm(2000, generator=generator_for(0, 0, "order"))
    assert torch.equal(drawn.at(points[order]), values[order])
    assert torch.equal(drawn.at(points.mT.contiguous().mT), values)
    assert torch.equal(drawn.at(points.double()), values)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert torch.equal(drawn.at(points), values)
    finally:
        torch.set_num_threads(threads)


def test_waves_of_a_kernel_in_single_precision_are_those_of_the_same_in_double():
    single = rbf().float()
    double = rbf()
    double.lengthscale = single.lengthscale.double()
    ours, theirs = (WavePrior(kernel, 2).draw(generator_for(0, 0, "a")) for kernel in (single, double))
    assert difference(ours.at(X), theirs.at(X)) < 1e-6


def test_low_rank_draws_are_exact_for_kernels_of_low_rank(monkeypatch):
    monkeypatch.setattr(module, "_RANK", 3)
    draws = LowRankDraws(linear(0.8), X)
    assert len(draws._root) == 2
    assert float(draws._residual_deviation.max()) < 1e-6
    assert standardised(sample(draws, 3000), 0.0, KERNELS["linear"].dense(X.numpy(), X.numpy())) < 5.0


def test_low_rank_draws_are_exact_where_the_rank_is_the_number_of_points():
    draws = LowRankDraws(matern(0.5, 1.7), X)
    root = draws._root.mT
    assert difference(root @ root.mT + draws._residual_deviation.square().diag(), dense_matern()) < 1e-12
    assert standardised(sample(draws, 3000), 0.0, dense_matern()) < 5.0


@pytest.mark.one_in(6)
@pytest.mark.parametrize("rank", [1, 4])
@pytest.mark.parametrize("first", [None, [7], [3, 8, 3, 1]])
def test_low_rank_draws_have_exact_marginals_and_are_exact_with_the_first_points(rank, first, monkeypatch):
    monkeypatch.setattr(module, "_RANK", rank)
    draws = LowRankDraws(matern(0.5, 1.7), X, None if first is None else torch.tensor(first))
    rows = first or []
    assert len(draws._root) == rank + len(set(rows))
    covariance = draws._root.mT @ draws._root + draws._residual_deviation.square().diag()
    assert difference(covariance.diagonal(), np.diag(dense_matern())) < 1e-12
    assert difference(covariance[rows], dense_matern()[rows]) < 1e-12
    # What is missing is correlation of the others: the test of marginals alone would pass for independent values.
    assert difference(covariance, dense_matern()) > 1e-3
    assert standardised(sample(draws, 3000), 0.0, covariance.numpy()) < 5.0


def dense_matern():
    return oracles.matern52(0.5, 1.7)(X.numpy(), X.numpy())


@pytest.mark.parametrize("kind", [JointDraws, FourierDraws, LowRankDraws])
def test_a_draw_is_a_value_of_its_generator(kind):
    draws, again = kind(rbf(), X), kind(rbf(), X)
    state = torch.random.get_rng_state()
    first = draws.draw(generator_for(3, 0, "a"))
    assert torch.equal(torch.random.get_rng_state(), state)
    draws.draw(generator_for(3, 1, "a"))
    torch.rand(3)
    assert torch.equal(draws.draw(generator_for(3, 0, "a")), first)
    assert torch.equal(again.draw(generator_for(3, 0, "a")), first)
    assert not torch.equal(draws.draw(generator_for(4, 0, "a")), first)
    assert bool(first.std() > 0)


@pytest.mark.parametrize("kind", [JointDraws, FourierDraws, LowRankDraws])
def test_draws_keep_single_precision(kind):
    draw = kind(rbf().float(), X.float()).draw(generator_for(0, 0, "a"))
    assert draw.dtype == torch.float32
    assert bool(torch.isfinite(draw).all())


@pytest.mark.parametrize("kind", [JointDraws, LowRankDraws])
def test_a_kernel_that_vanishes_draws_zeros_there(kind):
    """Jitter where the covariance is singular may leave 1e-5 of a prior deviation of about 1."""
    points = torch.cat([torch.zeros(1, 2, dtype=DOUBLE), X])
    draws = sample(kind(linear(), points), 5)
    assert float(draws[:, 0].abs().max()) < 1e-5
    assert float(draws[:, 1:].abs().max()) > 0.1
    zeros = sample(kind(linear(), points[:1]), 5)
    assert float(zeros.abs().max()) < 1e-5


class Quarter(RBFKernel):
    """Another function than its parent, whose features must not be taken for its own."""

    def forward(self, x1, x2, **params):
        return 0.25 * super().forward(x1, x2, **params)


def test_the_route_is_the_most_exact_one(monkeypatch):
    periodic = PeriodicKernel().double()
    assert isinstance(prior_draws(periodic, X), JointDraws)
    monkeypatch.setattr(module, "JOINT_LIMIT", 10)
    assert isinstance(prior_draws(rbf(), X), JointDraws)
    monkeypatch.setattr(module, "JOINT_LIMIT", 9)
    for kernel in (rbf(), matern(), scaled(matern(), 2.0), MaternKernel(nu=0.5).double()):
        assert isinstance(prior_draws(kernel, X), FourierDraws)
    for kernel in (periodic, RQKernel().double(), linear(), rbf() + matern(), Quarter().double()):
        assert isinstance(prior_draws(kernel, X), LowRankDraws)
        with pytest.raises(UnsupportedError, match=type(kernel).__name__):
            FourierDraws(kernel, X)


def test_draws_need_no_gradient_of_a_kernel_that_has_one():
    kernel = rbf()
    kernel.lengthscale = exactly(0.3)
    assert kernel.raw_lengthscale.requires_grad
    for kind in (JointDraws, FourierDraws, LowRankDraws):
        assert not kind(kernel, X).draw(generator_for(0, 0, "a")).requires_grad


def test_distinct_merges_equal_rows_and_the_two_zeros():
    points = torch.tensor([[0.0, 1.0], [2.0, 1.0], [-0.0, 1.0], [2.0, 1.0]], dtype=DOUBLE)
    rows, which = distinct(points)
    assert rows.shape == (2, 2)
    assert torch.equal(rows[which], points)
    assert which[0] == which[2]
    assert which[1] == which[3]
    assert which[0] != which[1]
