"""KORS: inclusion probabilities and weights are those of the paper's formula, however the bandit is told.

The oracle holds the paper's dictionary, and builds Z*, S* and the matrix of (41) densely for each play. A point that is
drawn gains the weight 1/p, which a saved state shows; probabilities of others show in how often they are drawn.
"""

import numpy as np
import oracles
import pytest
import torch
from problems import DOUBLE, KERNELS, data, linear, rbf, reward
from scipy.sparse.linalg import eigsh

import torch_kbandits as kb
from torch_kbandits.dictionaries import OnlineRule, theoretical_kors_oversampling

RBF = oracles.rbf(0.4)
ARMS = data(80, 2)[0]
#: It takes about half of what is played.
HALF = kb.KORS(0.6)
BOX = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)


def formula(kernel, Z, probabilities, point, projection, accuracy=0.5):
    """τ̃ by (41): Z* = Z and the point, S* = diag(1/√p) for Z and 1 for the point."""
    star = np.vstack([Z, point])
    S = np.diag(np.append(1.0 / np.sqrt(probabilities), 1.0))
    inner = S.T @ kernel(star, star) @ S + projection * np.eye(len(star))
    k = S.T @ kernel(star, point)[:, 0]
    return (1.0 + accuracy) / projection * (kernel(point, point)[0, 0] - k @ np.linalg.solve(inner, k))


def stream(n, seed, repeats=0.4, near=0.1, distance=1e-9):
    """Points (n, 2) of which some repeat earlier ones and some are nearly equal to the one before."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, 2))
    for i in range(1, n):
        kind = rng.random()
        if kind < repeats:
            X[i] = X[rng.integers(i)]
        elif kind < repeats + near:
            X[i] = X[i - 1] + distance * rng.random(2)
    return X


def make(rule=HALF, candidates=None, kernel=None, seed=5):
    return kb.Bandit(
        candidates=kb.Arms(ARMS) if candidates is None else candidates,
        kernel=rbf() if kernel is None else kernel,
        regularization=0.05,
        dictionary=rule,
        width=kb.ConstantWidth(2.0),
        seed=seed,
    )


def weights_of(bandit):
    weights = bandit.state_dict()["dictionary_weights"]
    return dict(zip(map(tuple, bandit.inducing_points.tolist()), weights.tolist(), strict=True))


def follow(bandit, X, parts, kernel=RBF, projection=0.05, tolerance=1e-9):
    """Tell points (n, 2) in parts; return the probabilities of all and which were drawn, (n,) both."""
    rule, rows, probabilities, before, start = bandit.dictionary, [], np.ones(len(X)), {}, 0
    dtype, drawn = bandit.candidates.example.dtype, np.zeros(len(X), dtype=bool)
    for size in parts:
        told = torch.tensor(X[start : start + size], dtype=dtype)
        given = {"context": told[:, :1]} if bandit.candidates.context_dim else {}
        bandit.tell(told[:, 1:] if given else told, reward(told), **given)
        after = weights_of(bandit)
        assert before.keys() <= after.keys()
        for i in range(start, start + size):
            if rows:
                score = formula(kernel, X[rows], probabilities[rows], X[i : i + 1], projection, rule.accuracy)
                probabilities[i] = np.clip(rule.oversampling * score, 0.0, 1.0)
            key = tuple(torch.tensor(X[i], dtype=dtype).tolist())
            gained = after.get(key, 0.0) - before.get(key, 0.0)
            if size == 1:
                assert {**before, key: after.get(key)} == after or (key not in after and before == after)
            if gained > 0.0:
                assert gained == pytest.approx(1.0 / probabilities[i], rel=tolerance)
                before[key] = after[key]
                drawn[i] = True
                rows.append(i)
        start += size
    return probabilities, drawn


CANDIDATES = {
    "rbf": kb.Arms(ARMS),
    "matern": kb.Box(BOX, 2, 16),
    "linear": kb.ContextualActions(ARMS[:, 1:], context_dim=1),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kernel", CANDIDATES)
@pytest.mark.parametrize(
    ("oversampling", "projection", "accuracy"), [(0.6, None, 0.5), (1.0, 1e-3, 0.1), (20.0, 50.0, 0.9)]
)
def test_what_is_drawn_gains_the_inverse_of_its_probability(kernel, oversampling, projection, accuracy):
    """Whatever may be played."""
    rule = kb.KORS(oversampling, projection=projection, accuracy=accuracy)
    bandit = make(rule, CANDIDATES[kernel], KERNELS[kernel].make())
    X = stream(60, seed=1)
    _, drawn = follow(bandit, X, [1] * 60, KERNELS[kernel].dense, 0.05 if projection is None else projection, 1e-7)
    assert 1 < drawn.sum() < 60


def test_plays_told_together_are_offered_in_the_order_told():
    X = np.concatenate([data(30, 2)[0].numpy(), data(30, 2, seed=1)[0].numpy()])
    _, drawn = follow(make(), X, [1, 20, 3, 30, 6])
    assert 1 < drawn.sum() < 60


def test_points_that_are_spanned_but_for_a_share_of_the_noise_count_as_what_is_spanned_of_them():
    """Of a variance of 1e-10 λ, so up to the root of that is missing of a covariance."""
    follow(make(), stream(60, seed=2, distance=1e-6), [1] * 60, tolerance=1e-5)


def test_in_single_precision_it_is_so_to_its_rounding():
    """Kernel values carry single precision's rounding, 6e-8, which μ = 0.05 makes 1e-6 a point and p = 1/γ more."""
    X = stream(60, seed=6, near=0.0).astype(np.float32).astype(np.float64)
    follow(make(candidates=kb.Arms(ARMS.float()), kernel=rbf().float()), X, [1] * 60, tolerance=1e-3)


@pytest.mark.parametrize("seeds", [2, pytest.param(80, marks=pytest.mark.slow)])
def test_points_are_drawn_as_often_as_is_likely(seeds):
    """Σ (drawn − p) over all points and runs has mean 0 and variance Σ p (1 − p): 4.5 standard errors, 7e-6."""
    excess, variance = 0.0, 0.0
    for seed in range(seeds):
        probabilities, drawn = follow(make(seed=seed), stream(60, seed), [1] * 60, tolerance=1e-7)
        assert not (drawn[probabilities < 1e-12]).any()
        assert drawn[probabilities == 1.0].all()
        excess += (drawn - probabilities).sum()
        variance += (probabilities * (1.0 - probabilities)).sum()
    assert variance > seeds
    assert abs(excess) <= 4.5 * np.sqrt(variance)


def test_dictionaries_of_a_model_are_drawn_as_often_as_the_paths_to_them_are_likely():
    """300 selections from 4 points, against products of (41) along paths: 4.5 standard errors, 8 × 7e-6 < 1e-4."""
    X = np.array([[0.0, 0.0], [0.05, 0.1], [0.05, 0.2], [0.15, 0.0]])
    expected: dict[tuple[int, ...], float] = {}

    def paths(rows, probabilities, i, likelihood):
        if i == 4:
            expected[tuple(rows)] = likelihood
            return
        p = min(1.0, 0.7 * formula(RBF, X[rows], np.array(probabilities), X[i : i + 1], 0.05))
        paths([*rows, i], [*probabilities, p], i + 1, likelihood * p)
        paths(rows, probabilities, i + 1, likelihood * (1.0 - p))

    paths([0], [1.0], 1, 1.0)
    hits, points = dict.fromkeys(expected, 0), torch.tensor(X)
    for number in range(300):
        model = kb.NystromGP(
            points, points[:, :1], dictionary=kb.KORS(0.7), covar_module=rbf(), regularization=0.05,
            generator=torch.Generator().manual_seed(number),
        )  # fmt: skip
        hits[tuple((points[:, None] == model.inducing_points).all(-1).any(-1).nonzero().flatten().tolist())] += 1
    assert sum(expected.values()) == pytest.approx(1.0)
    assert len(expected) == 8
    assert min(expected.values()) > 0.005
    for rows, p in expected.items():
        assert abs(hits[rows] / 300 - p) <= 4.5 * np.sqrt(p * (1.0 - p) / 300), rows


def test_the_first_point_is_drawn_and_what_is_explained_never_again():
    bandit = make(kb.KORS(1e-9), kernel=linear())
    bandit.tell(torch.zeros(4, 2, dtype=DOUBLE), 0.0 * torch.ones(4, dtype=DOUBLE))
    assert weights_of(bandit) == {(0.0, 0.0): 1.0}


class Unexplained(OnlineRule):
    """Takes what has more than a tenth of the prior variance left."""

    def probabilities(self, variance, prior, noise):
        return (variance > 0.1 * prior).reshape(-1, variance.shape[-1]).any(0).astype(float)

    def projection_noise(self, noise):
        return 2.0 * noise


def test_a_rule_of_ones_own_that_decides_once_is_handed_what_the_dictionary_leaves():
    X, rows = data(60, 2)[0], [0]
    for i in range(1, 60):
        nothing = np.zeros(len(rows))
        left = oracles.exact(RBF, X[rows].numpy(), nothing, nothing + 0.1, X[[i]].numpy()).variance[0]
        rows += [i] if left > 0.1 else []
    assert 5 < len(rows) < 50
    bandit = make(Unexplained())
    for part in X.split([1, 9, 30, 20]):
        bandit.tell(part, reward(part))
    model = kb.NystromGP(X, reward(X)[:, None], dictionary=Unexplained(), covar_module=rbf(), regularization=0.05)
    for found in (bandit, model):
        assert {*map(tuple, found.inducing_points.tolist())} == {*map(tuple, X[rows].tolist())}


def projection_error(kernel, X, Z):
    """‖(I − P) F^½‖², the largest eigenvalue of K_XX − K_XZ K_ZZ⁻¹ K_ZX."""
    factor = np.linalg.cholesky(kernel(Z, Z) + 1e-11 * np.eye(len(Z)))
    whitened = np.linalg.solve(factor, kernel(Z, X))
    residual = kernel(X, X) - whitened.T @ whitened
    return float(eigsh(residual, k=1, which="LA", return_eigenvectors=False)[0])


@pytest.mark.slow
@pytest.mark.parametrize(("dimension", "projection"), [(1, 1.0), (2, 20.0)])
def test_the_projection_error_is_below_mu_at_the_theorems_oversampling(dimension, projection):
    """A tiny oversampling fails, and the theorem's does not simply keep all points."""
    X, kernel = np.random.default_rng(0).random((2_000, dimension)), oracles.rbf(1.5)
    enough, too_little = (
        kb.NystromGP(
            torch.tensor(X), torch.tensor(X[:, :1]), dictionary=kb.KORS(oversampling), covar_module=rbf(1.5),
            regularization=projection, generator=torch.Generator().manual_seed(0),
        ).inducing_points.numpy()
        for oversampling in (theoretical_kors_oversampling(0.1, 2_000), 1e-9)
    )  # fmt: skip
    assert len(enough) < 1_300
    assert projection_error(kernel, X, enough) <= projection
    assert projection_error(kernel, X, too_little) > projection


def test_the_theorems_oversampling():
    assert theoretical_kors_oversampling(0.1, 1000) == pytest.approx(12.0 * np.log(10_000.0))  # 12 ln(1000 / 0.1)
