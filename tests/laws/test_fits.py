"""Fits of a prior: maxima of the marginal posterior in any units, and rewards far below the others."""

import math
import warnings

import numpy as np
import oracles
import pytest
import torch
from gpytorch.kernels import RBFKernel
from kinds import same
from problems import DOUBLE, data, dense, difference, matern, on_a_cube

from torch_kbandits import InputError, KernelBanditWarning, StateMismatchError, fit_prior
from torch_kbandits.errors import NumericalError
from torch_kbandits.memory import SlidingWindow
from torch_kbandits.priors import default_kernel, marginal, units


def bowl(x):
    return -(x - 0.3).square().sum(-1)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("groups", [(0, 1), (0, 1, 1)])
def test_a_fit_is_a_maximum_of_the_marginal_posterior(seed, groups):
    X, Y = data(40, len(groups), seed)
    fit = fit_prior(X, Y[:, 0], default_kernel(len(groups), groups))
    scale = float(Y.std())
    points, y = dense(X, (Y[:, 0] - fit.mean) / scale)
    lengthscale, variance = dense(fit.kernel.base_kernel.lengthscale[0], fit.kernel.outputscale / scale**2)
    found = np.array([*lengthscale, variance, fit.regularization / scale**2])

    def at(parameters):
        return oracles.log_posterior(points, y, parameters[:2], *parameters[2:], groups)

    for place in range(4):
        for factor in (0.8, 0.95, 1.05, 1.25):
            changed = found.copy()
            changed[place] *= factor
            assert at(changed) < at(found)


def test_the_default_kernel_has_a_length_scale_for_each_parameter():
    X = data(9, 4)[0]
    several, each, alone = default_kernel(4, [0, 1, 1, 1]), default_kernel(4), default_kernel(4, range(4))
    assert [kernel.base_kernel.lengthscale.shape for kernel in (several, each)] == [(1, 2), (1, 4)]
    assert torch.equal(each(X).to_dense(), alone(X).to_dense())
    X = (X - X.amin(0)) / (X.amax(0) - X.amin(0))  # unless a kernel is given columns are divided by their ranges
    ours, theirs = (fit_prior(X, X[:, 0], kernel).kernel(X).to_dense() for kernel in (None, each))
    assert difference(ours, theirs) < 1e-12
    with pytest.raises(InputError, match="one number for each of the 4 columns"):
        default_kernel(4, [0, 1])


@pytest.mark.parametrize(("groups", "expected"), [([0] * 9 + [1], [1.5]), ([*range(10)], [1.5] * 9)])
def test_the_length_scale_of_a_context_grows_with_the_root_of_its_columns(groups, expected):
    """It is ½√9 as a fit begins, and in the median of its prior: one for all columns, or one for each."""
    kernel = default_kernel(10, groups, 9)
    near = kernel.kernels[0].kernels[1].base_kernel
    assert near.lengthscale.tolist() == [pytest.approx(expected)]
    assert float(near.lengthscale_prior.base_dist.loc.exp()) == pytest.approx(1.5)


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("groups", [(0, 1), (0, 1, 1)])
def test_a_fit_is_the_same_whatever_the_default_dtype(groups):
    """Priors and bounds of the kernel have the same numbers, and so does what is fitted under them."""
    (X, Y), before, states = data(12, len(groups)), torch.get_default_dtype(), []
    for dtype in (torch.float32, DOUBLE):
        torch.set_default_dtype(dtype)
        try:
            kernel = default_kernel(len(groups), groups)
            states.append([kernel.state_dict(), fit_prior(X, Y[:, 0], kernel).kernel.state_dict()])
        finally:
            torch.set_default_dtype(before)
    assert same(*states)


def test_a_fit_does_not_depend_on_the_units_of_the_rewards_nor_on_their_precision():
    X, Y = data(30, 2, 5)
    here, there = fit_prior(X, Y[:, 0]), fit_prior(X, 1e4 * Y[:, 0] - 7e5)
    assert there.mean == pytest.approx(1e4 * here.mean - 7e5, rel=1e-9)
    assert there.regularization == pytest.approx(1e8 * here.regularization, rel=1e-3)
    assert difference(here.kernel(X).to_dense(), 1e-8 * there.kernel(X).to_dense()) < 1e-3
    X, Y = X.float(), Y[:, 0].float()
    ours, theirs = fit_prior(X, Y), fit_prior(X.double(), Y.double())
    assert (ours.regularization, ours.mean) == (theirs.regularization, theirs.mean)
    assert torch.equal(ours.kernel.base_kernel.lengthscale, theirs.kernel.base_kernel.lengthscale)


def test_a_fit_copies_the_kernel_given_and_one_that_fails_keeps_it_and_says_so(monkeypatch):
    def failing(*_, **words):
        raise NumericalError("No attempt comes to an end.")

    X, Y = data(20, 2)
    kernel, same = matern(0.5, 1.7), matern(0.5, 1.7)
    fit = fit_prior(X, Y[:, 0], kernel)
    assert type(fit.kernel.base_kernel) is type(kernel.base_kernel)
    assert difference(fit.kernel(X).to_dense(), kernel(X).to_dense()) > 0.01
    monkeypatch.setattr(marginal, "minimize", failing)
    with pytest.warns(KernelBanditWarning, match="could not be fitted to 20 reward"):
        fit = fit_prior(X, Y[:, 0], kernel)
    for kept in (kernel, fit.kernel):
        assert torch.equal(kept.base_kernel.lengthscale, same.base_kernel.lengthscale)


@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("value", [0.0, -3.0, 1e9])
def test_equal_rewards_keep_their_unit(value):
    X = data(6, 2)[0]
    fit = fit_prior(X, torch.full((6,), value, dtype=DOUBLE))
    assert fit.mean == value
    assert 1e-4 < float(fit.kernel(X).to_dense().max()) < 10.0


def test_fits_that_make_no_sense_are_refused():
    X, Y = data(20, 2)
    huge, gap = torch.tensor([-1.7e308, 1.7e308], dtype=DOUBLE), Y[:, 0].masked_fill(torch.arange(20) == 3, torch.nan)
    for bad, words in (
        *(((x, y), None) for x, y in ((X[:1], Y[:1, 0]), (X, Y[None]), (X, Y[:5, 0]), (X[0], Y[:2, 0]))),
        ((X, Y[:, 0], "rbf"), "a GPyTorch kernel"),
        ((X, Y[:, 0], RBFKernel(ard_num_dims=3)), "points of 2 columns"),
        ((X, gap), "finite"),
        ((X[:2], huge), "differs by more than double precision holds"),
    ):
        with pytest.raises(InputError, match=words):
            fit_prior(*bad)


def test_the_floor_is_where_it_is_said_to_be_in_any_units():
    Y = torch.tensor([-1e6, 2.0, 0.0, -1e6, 3.0, 1.0, -1e6, -1e6, -1e6], dtype=DOUBLE)
    assert units.floor_below(Y) == 1.0 - 5.0 * (3.0 - 1.0)
    assert units.floor_below(Y[Y > -1.0]) == 1.0 - 20.0**2 * (3.0 - 1.0)
    assert units.floor_below(Y[Y > -1.0], -900.0) == 1.0 - 5.0 * (3.0 - 1.0)
    many = torch.arange(10.0, dtype=DOUBLE)
    assert units.floor_below(many) == 4.0 - 20.0 * (9.0 - 4.0)
    assert units.floor_below(many, -100.0) == 4.0 - 5.0 * (9.0 - 4.0)
    for factor, shift in ((0.5, 0.0), (8.0, 1024.0), (2.0**-40, 0.0)):
        assert units.floor_below(factor * Y + shift) == factor * units.floor_below(Y) + shift
    for few in (Y[:0], Y[:2], Y[[0, 1, 0, 1]]):
        assert units.floor_below(few, -1e9) == -math.inf


def told(penalty=None, **words):
    """A bandit that was told a bowl, with holes if there is a penalty."""
    bandit, X = on_a_cube(num_initial=8, **words), data(9, 2)[0]
    Y = bowl(X)
    if penalty is not None:
        Y[[2, 5, 8]] = penalty
    bandit.replay(bandit.history._replace(X=X, Y=Y, rounds=torch.arange(9)))
    return bandit


@pytest.mark.usefixtures("short_searches")
def test_the_size_of_a_penalty_changes_nothing():
    with pytest.warns(KernelBanditWarning, match=r"reward\(s\) lie far below the others.*say clip=False"):
        one, other = (told(penalty) for penalty in (-1e3, -1e300))
    assert one.prior.floor == other.prior.floor > -5.0
    expected = one.ask()
    assert torch.equal(other.ask(), expected)
    assert other.history.Y.min() == -1e300
    loaded = on_a_cube(num_initial=8)
    loaded.load_state_dict(one.state_dict())
    for bandit in (one, loaded):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # each bandit says it once, and the loaded one has not yet
            bandit.tell(expected, -1e9)
    assert torch.equal(loaded.ask(), one.ask())


@pytest.mark.usefixtures("short_searches")
def test_clipping_is_said_once_and_can_be_left_out():
    bandit, X = told(), data(9, 2)[0]
    before = str(bandit.state_dict())
    with pytest.raises(KernelBanditWarning, match=r"reward\(s\) lie far below"):  # warnings are errors in these tests
        bandit.tell(X[:1], -1e6)
    assert str(bandit.state_dict()) == before
    bandit.tell(X[:1], -1e6)
    with pytest.raises(StateMismatchError, match="clip"):
        on_a_cube(num_initial=8, clip=False).load_state_dict(bandit.state_dict())
    with pytest.raises(InputError, match="clip must be True or False"):
        on_a_cube(clip=3.0)
    for words in ({"clip": False}, {"memory": SlidingWindow(50), "algorithm": "igp-ucb"}):
        whole = on_a_cube(num_initial=2, **words)
        for x, y in zip(X[:4], (0.0, 0.5, 1.0, -1e6), strict=True):
            whole.tell(x[None], y)
        whole.recommend()
        assert whole.prior.floor == -math.inf
        assert float(whole.prior.kernel(X).to_dense().max()) > 1e9


@pytest.mark.usefixtures("short_searches")
def test_what_is_recommended_before_the_first_fit_does_not_depend_on_units():
    bandits = [on_a_cube(), on_a_cube()]
    X = data(6, 2)[0]
    for bandit, factor, shift in zip(bandits, (1.0, 64.0), (0.0, 4096.0), strict=True):
        bandit.tell(X, factor * bowl(X) + shift)
    assert all(torch.equal(bandit.recommend()[0], X[bowl(X).argmax()]) for bandit in bandits)
