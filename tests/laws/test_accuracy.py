"""Accuracy against 60 digits: no worse than ten times a fresh Cholesky fit in double precision."""

import mpmath
import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel
from problems import rbf

from torch_kbandits import Arms, Bandit, Box, ConstantWidth, ContextualActions, FixedDictionary, algorithms

#: Two fits may both be right to the last digit of double precision.
FLOOR = 2.0**-46


def points(lengthscale):
    """Points told, two pairs 1e-9 and 1e-6 length scales apart, one of them twice; rewards; points to predict at."""
    draw = np.random.default_rng(7)
    X = draw.random((10, 2)) * min(lengthscale, 1.0) * 3.0
    near = X[:2] + lengthscale * np.array([[1e-9, 0.0], [0.0, 1e-6]])
    X = np.concatenate([X, near, X[2:3]])
    T = np.concatenate([X[[0, 1, 5]], draw.random((4, 2)) * min(lengthscale, 1.0) * 3.0])
    return X, np.sin(5.0 * X.sum(1)) + 0.1 * draw.standard_normal(len(X)), T


def kernel_in(number, lengthscale):
    """Return the Gaussian kernel of rows of numbers of this kind, as a function."""
    exp = np.exp if number is float else mpmath.exp
    scale = number(lengthscale)

    def k(A, B):
        return [
            [exp(-sum((number(a) - number(b)) ** 2 for a, b in zip(x, z, strict=True)) / (2 * scale**2)) for z in B]
            for x in A
        ]

    return k


def fits(X, y, T, lengthscale, noise, Z=None):
    """Return means and variances at T by 60 digits and by Cholesky factors in double precision, each (2, t)."""
    with mpmath.workdps(60):
        k, matrix = kernel_in(mpmath.mpf, lengthscale), mpmath.matrix
        lam, rewards = mpmath.mpf(noise), matrix([mpmath.mpf(float(each)) for each in y])
        if Z is None:
            across, solve = matrix(k(X, T)), matrix(k(X, X)) + lam * mpmath.eye(len(X))
            weights, explained = across.T * mpmath.lu_solve(solve, rewards), mpmath.inverse(solve)
            variance = [1 - (across[:, j].T * explained * across[:, j])[0] for j in range(len(T))]
        else:
            seen, across, own = matrix(k(Z, X)), matrix(k(Z, T)), matrix(k(Z, Z))
            given = mpmath.inverse(own + seen * seen.T / lam)
            weights, explained = across.T * given * seen * rewards / lam, mpmath.inverse(own) - given
            variance = [1 - (across[:, j].T * explained * across[:, j])[0] for j in range(len(T))]
        reference = np.array([[float(each) for each in weights], [float(each) for each in variance]])
    k = kernel_in(float, lengthscale)
    if Z is None:
        factor = np.linalg.cholesky(np.array(k(X, X)) + noise * np.eye(len(X)))
        z = np.linalg.solve(factor, np.array(k(X, T)))
        return reference, np.stack([z.T @ np.linalg.solve(factor, y), 1.0 - (z * z).sum(0)])
    factor = np.linalg.cholesky(np.array(k(Z, Z)))
    seen, z = (np.linalg.solve(factor, np.array(k(Z, part))) for part in (X, T))
    root = np.linalg.cholesky(np.eye(len(Z)) + seen @ seen.T / noise)
    own, rest = np.linalg.solve(root, z), np.linalg.solve(root, seen @ y / noise)
    return reference, np.stack([own.T @ rest, 1.0 - (z * z).sum(0) + (own * own).sum(0)])


def compared(found, X, y, T, lengthscale, noise, Z=None):
    reference, fresh = fits(X, y, T, lengthscale, noise, Z)
    for ours, exact, double in zip(found, reference, fresh, strict=True):
        scale = max(1.0, np.abs(exact).max())
        assert np.abs(ours - exact).max() <= 10.0 * np.abs(double - exact).max() + FLOOR * scale


@pytest.mark.one_in(2)
@pytest.mark.parametrize("lengthscale", [1e-3, 0.3, 1e3])
@pytest.mark.parametrize("noise", [1e-10, 1e-5, 1.0, 1e6])
@pytest.mark.parametrize("where", ["arms", "box", "context"])
def test_bandits_are_as_accurate_as_a_fresh_fit(where, lengthscale, noise):
    X, y, T = points(lengthscale)
    told, high = torch.from_numpy(X), torch.full((2,), 4.0 * min(lengthscale, 1.0), dtype=torch.float64)
    candidates = {
        "arms": lambda: Arms(torch.from_numpy(np.concatenate([X, T]))),
        "box": lambda: Box(torch.stack([torch.zeros(2), high])),
        "context": lambda: ContextualActions(action_dim=1, context_dim=1),
    }[where]()
    bandit = algorithms.IGPUCB(candidates=candidates, kernel=rbf(lengthscale), regularization=noise, beta=2.0, seed=0)
    for x, reward in zip(told.split(1), y, strict=True):
        words = {"context": x[0, :1]} if where == "context" else {}
        bandit.tell(x[:, 1:] if where == "context" else x, reward, **words)
    shown = bandit.model.posterior(torch.from_numpy(T).unsqueeze(-2))
    found = (part.detach().flatten().numpy() for part in (shown.mean, shown.variance))
    compared(found, X, y, T, lengthscale, noise)


@pytest.mark.parametrize("noise", [1e-8, 1e-3, 1.0])
def test_a_dictionary_is_as_accurate_as_a_fresh_fit(noise):
    X, y, T = points(0.3)
    Z = X[:8:2]
    bandit = Bandit(
        candidates=Arms(torch.from_numpy(np.concatenate([X, T]))),
        kernel=rbf(0.3),
        regularization=noise,
        width=ConstantWidth(2.0),
        seed=0,
        dictionary=FixedDictionary(torch.from_numpy(Z)),
    )
    for x, reward in zip(torch.from_numpy(X).split(1), y, strict=True):
        bandit.tell(x, reward)
    shown = bandit.model.posterior(torch.from_numpy(T).unsqueeze(-2))
    compared((part.detach().flatten().numpy() for part in (shown.mean, shown.variance)), X, y, T, 0.3, noise, Z)


class Everywhere(Kernel):
    """1 everywhere, all of which is one number in memory."""

    has_lengthscale = False

    def forward(self, x1, x2, diag=False, **params):
        """Return the values of points, (n, m) or (n,)."""
        one = torch.ones((), dtype=x1.dtype)
        return one.expand(x1.shape[-2]) if diag else one.expand(x1.shape[-2], x2.shape[-2])


def test_kernel_values_that_share_memory_are_not_written_to():
    arms = torch.rand(700, 2, dtype=torch.float64)
    bandit = Bandit(candidates=Arms(arms), kernel=Everywhere(), regularization=0.1, width=ConstantWidth(2.0), seed=0)
    for x in arms[:6].split(1):
        bandit.tell(x, 1.0)
    bandit.mark_pending(arms[6:7])
    shown = bandit.model.posterior(arms.unsqueeze(-2))
    assert float((shown.mean - 6.0 / 6.1).abs().max()) < 1e-12
    assert float((shown.variance - (1.0 - 6.0 / 6.1)).abs().max()) < 1e-12
    assert bandit.pending_variance_ratio() == pytest.approx((1.0 - 6.0 / 6.1) / (1.0 - 7.0 / 7.1), rel=1e-9)
