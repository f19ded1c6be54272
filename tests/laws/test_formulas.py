"""Kernels that are known as formulas: loops give the values of the plain formula and of GPyTorch, for frozen ones."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, PolynomialKernel, RBFKernel, RQKernel, ScaleKernel
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import DOUBLE, exactly, scaled

from torch_kbandits import ForgettingKernel, use_compiled
from torch_kbandits.kernels import GroupedKernel, PerActionLinearKernel, SpaceTimeKernel
from torch_kbandits.numerics import formula_loops
from torch_kbandits.numerics.formulas import frozen, known_formula
from torch_kbandits.numerics.gram import gram, prior_variance

EPS = float(np.finfo(float).eps)


def stretched(kernel, *lengthscales):
    kernel = kernel.double()
    kernel.lengthscale = torch.tensor([lengthscales], dtype=DOUBLE)
    return kernel


def squares(weights):
    return lambda a, b: ((weights * (a[:, None] - b[None])) ** 2).sum(-1)


def matern(nu, weights):
    def dense(a, b):
        r = np.sqrt(2.0 * nu * squares(np.array(weights))(a, b))
        return {0.5: 1.0, 1.5: 1.0 + r, 2.5: 1.0 + r + r**2 / 3.0}[nu] * np.exp(-r)

    return dense


def rational():
    kernel = stretched(RQKernel(), 0.7)
    kernel.alpha = exactly(1.5)
    return kernel


def linear(**words):
    kernel = LinearKernel(**words).double()
    kernel.variance = exactly(0.8)
    return kernel


def rbf_of(*weights):
    return lambda a, b: np.exp(-0.5 * squares(np.array(weights))(a, b))


#: Kernels on three columns, each beside the plain formula in NumPy.
KNOWN = {
    "rbf": (lambda: stretched(RBFKernel(), 0.4), rbf_of(2.5, 2.5, 2.5)),
    "ard": (lambda: stretched(RBFKernel(ard_num_dims=3), 0.5, 1.0, 4.0), rbf_of(2.0, 1.0, 0.25)),
    "some columns": (lambda: stretched(RBFKernel(ard_num_dims=2, active_dims=(2, 0)), 0.5, 4.0), rbf_of(0.25, 0, 2.0)),
    "matern 1/2": (lambda: stretched(MaternKernel(0.5), 0.5), matern(0.5, [2.0, 2.0, 2.0])),
    "matern 3/2": (lambda: stretched(MaternKernel(1.5, active_dims=(1,)), 0.5), matern(1.5, [0.0, 2.0, 0.0])),
    "matern 5/2": (
        lambda: scaled(stretched(MaternKernel(2.5, ard_num_dims=3), 1.0, 2.0, 0.5), 1.7),
        lambda a, b: 1.7 * matern(2.5, [1.0, 0.5, 2.0])(a, b),
    ),
    "rational": (rational, lambda a, b: (1.0 + squares(np.full(3, 1.0 / 0.7))(a, b) / 3.0) ** -1.5),
    "linear": (lambda: scaled(linear(), 2.0), lambda a, b: 1.6 * a @ b.T),
    "sum of products": (
        lambda: scaled(stretched(RBFKernel(active_dims=(0,)), 2.0), 3.0) + linear() * stretched(MaternKernel(0.5), 1.0),
        lambda a, b: 3.0 * rbf_of(0.5, 0, 0)(a, b) + 0.8 * (a @ b.T) * matern(0.5, [1.0] * 3)(a, b),
    ),
    "product of sums": (
        lambda: scaled((stretched(RBFKernel(), 1.0) + linear(active_dims=(1,))) * stretched(RBFKernel(), 1.0), 0.5),
        lambda a, b: 0.5 * (rbf_of(1, 1, 1)(a, b) + 0.8 * a[:, 1:2] @ b[:, 1:2].T) * rbf_of(1, 1, 1)(a, b),
    ),
    "grouped": (
        lambda: stretched(GroupedKernel(MaternKernel(2.5), [0, 1, 1]), 0.5, 2.0),
        matern(2.5, [2.0, 0.5, 0.5]),
    ),
    "grouped, linear": (
        lambda: stretched(GroupedKernel(linear(), [0, 1, 1]), 0.5, 2.0),
        lambda a, b: 0.8 * (a * [2.0, 0.5, 0.5]) @ (b * [2.0, 0.5, 0.5]).T,
    ),
    "in time": (
        lambda: SpaceTimeKernel(stretched(RBFKernel(), 1.0), ForgettingKernel(0.19)).double(),
        lambda a, b: 0.9 ** np.abs(a[:, :1] - b[:, :1].T) * rbf_of(0, 1, 1)(a, b),
    ),
    "per action": (
        lambda: PerActionLinearKernel(1).double(),
        lambda a, b: (1.0 + a[:, :1] @ b[:, :1].T) * (a[:, None, 1:] == b[None, :, 1:]).all(-1),
    ),
}


def points(seed, n, spread, is_near):
    rng = np.random.default_rng(seed)
    X = spread * rng.normal(size=(n, 3))
    if is_near:  # equal to others in some columns, or nearly equal in all
        X[n // 2 :] = X[: n - n // 2] + 1e-9 * rng.integers(0, 2, size=(n - n // 2, 1))
        X[:, 1] = X[0, 1] if n else 0.0
    return X


@settings(deadline=None)
@given(
    name=st.sampled_from(sorted(KNOWN)),
    sizes=st.tuples(st.integers(0, 12), st.integers(0, 12)),
    seed=st.integers(0, 1000),
    spread=st.sampled_from([1e-3, 1.0, 30.0, 1e6]),
    is_near=st.booleans(),
    is_single=st.booleans(),
)
def test_loops_give_the_values_of_the_formula(name, sizes, seed, spread, is_near, is_single):
    """To a few roundings of what is summed: of the prior variance, however far apart points are."""
    make, dense = KNOWN[name]
    kernel = frozen(make().requires_grad_(False))
    assert known_formula(kernel, 3) is not None
    X, Z = points(seed, sizes[0], spread, is_near), points(seed + 1, sizes[1], spread, is_near)
    if is_single:
        X, Z = X.astype(np.float32), Z.astype(np.float32)
    pair = [torch.from_numpy(each.copy()) for each in (X, Z)]
    with use_compiled(True):
        ours, prior = gram(kernel, *pair), prior_variance(kernel, pair[0])
    a, b = X.astype(float), Z.astype(float)
    is_scaled = "linear" in name or "sum" in name or "per action" in name
    scale = 4.0 + (8.0 * np.abs(a).max(initial=0.0) * np.abs(b).max(initial=0.0) if is_scaled else 0.0)
    tolerance = (float(np.finfo(np.float32).eps) if is_single else 32.0 * EPS) * scale
    assert ours.dtype == prior.dtype == pair[0].dtype
    assert ours.shape == sizes
    assert np.abs(ours.numpy() - dense(a, b)).max(initial=0.0) <= tolerance
    own = 4.0 + (8.0 * np.abs(a).max(initial=0.0) ** 2 if is_scaled else 0.0)
    assert np.abs(prior.numpy() - dense(a, a).diagonal()).max(initial=0.0) <= tolerance / scale * own


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_loops_give_the_values_that_gpytorch_gives(name):
    kernel = frozen(KNOWN[name][0]().requires_grad_(False))
    X = torch.rand(9, 3, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    X[3], X[5, 1:] = X[2], X[4, 1:]
    results = []
    for enabled in (True, False):
        with use_compiled(enabled):
            results.append((gram(kernel, X, X[:4]), gram(kernel, X), prior_variance(kernel, X)))
    for ours, theirs in zip(*results, strict=True):
        # GPyTorch takes roots of squared distances that are off by rounding.
        assert float((ours - theirs).abs().max()) < (1e-7 if "matern" in name or "grouped" in name else 1e-12)


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_a_point_that_repeats_has_its_value_everywhere(name):
    """Its Gram matrix has rank 1, so that any factor of it on the way would take jitter."""
    X = torch.tensor([[0.3, 0.7, 0.2]], dtype=DOUBLE).repeat(9, 1)
    kernel = KNOWN[name][0]().requires_grad_(False)
    with use_compiled(False):
        values = gram(kernel, X)
    assert np.abs(values.numpy() - KNOWN[name][1](X.numpy(), X.numpy())).max() < 1e-12


def test_exponentials_are_exact_to_rounding_and_vanish_far_away():
    numbers = -np.concatenate([np.linspace(0.0, 2.0, 1001), np.logspace(-300, 3, 2001), [700.0, 1e300, np.inf]])
    ours = numbers.copy()
    formula_loops.exponentials(ours)
    assert np.abs(ours - np.exp(numbers)).max() <= 2.0 * EPS
    assert ours[-2:].tolist() == [0.0, 0.0]
    missing = np.array([np.nan, -1.0])
    formula_loops.exponentials(missing)
    assert np.isnan(missing[0])


class Another(RBFKernel):
    """A function of its own."""

    def forward(self, x1, x2, diag=False, **params):
        return 2.0 * super().forward(x1, x2, diag=diag, **params)


class Called(ScaleKernel):
    def __call__(self, x1, x2=None, diag=False, **params):
        return super().__call__(-x1, x2, diag=diag, **params)


@pytest.mark.parametrize(
    "kernel",
    [
        Another(),
        ScaleKernel(Another()),
        Called(RBFKernel()),
        RBFKernel() + PolynomialKernel(2),
        RBFKernel() * Called(RBFKernel()),
        RBFKernel(batch_shape=torch.Size([2])),
        RBFKernel(ard_num_dims=2),
    ],
    ids=lambda kernel: type(kernel).__name__,
)
def test_what_is_not_known_has_no_formula(kernel: Kernel):
    assert known_formula(frozen(kernel.double().requires_grad_(False)), 3) is None


def test_copies_of_a_frozen_kernel_may_change():
    kernel = frozen(stretched(RBFKernel(), 0.4).requires_grad_(False))
    X = torch.rand(5, 3, dtype=DOUBLE)
    before = gram(kernel, X)
    other = deepcopy(kernel)
    other.lengthscale = exactly(0.8)
    assert torch.allclose(gram(other, X), torch.from_numpy(rbf_of(1.25, 1.25, 1.25)(X.numpy(), X.numpy())))
    assert torch.equal(gram(kernel, X), before)
    assert known_formula(other, 3) is None
