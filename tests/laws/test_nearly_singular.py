"""Dictionaries whose Gram matrix is singular to rounding, though no two of their points are equal."""

import numpy as np
import oracles
import pytest
import torch
from problems import DOUBLE, data, dense, difference, rbf

from torch_kbandits import KORS, Arms, Bandit, ConstantWidth, ContextualActions, RidgeLeverageSampling, algorithms
from torch_kbandits.beliefs import FeatureTable
from torch_kbandits.environments.anchors import chessboard
from torch_kbandits.experiments.loop import play
from torch_kbandits.numerics.gram import gram
from torch_kbandits.posteriors.dtc import DTCFactors


def test_no_dictionary_explains_more_than_there_is():
    """Dictionaries crowd on three lines: seen is 1e-15 too much, and without a jitter 5e-6."""
    T, kernel = torch.rand(300, 2, dtype=DOUBLE), rbf(0.2).requires_grad_(False)
    T[:, 1] = (3.0 * T[:, 1]).floor() / 3.0
    for size in range(15, 65):
        Z = T[torch.randperm(len(T))[:size]]
        cross_gram = gram(kernel, Z, T)
        factors = DTCFactors.fit(gram(kernel, Z), cross_gram, T[:, 0], T.new_ones(1))
        assert factors.embed(cross_gram).square().sum(0).max() < 1.0 + 1e-12


@pytest.mark.slow
def test_no_more_is_explained_than_there_is():
    """In round 375 the smallest eigenvalue is 1e-16, and without a jitter 5 times the prior variance was explained."""
    environment = chessboard(seed=0)
    settings = {"regularization": 1.0, "beta": 0.1, "candidates": environment.actions, "context_dim": 1, "seed": 0}
    bandit = algorithms.CBKB(kernel=environment.kernel, **settings)
    play(bandit, environment, 400)
    assert bandit.round == 400


# ---------------------------------------------------------------- what nearly spanned points cost


class Work:
    """Counts full fits, and the features that join and join again, from when it is made.

    Attributes:
        fits: how often everything was fitted afresh.
        joined: how many points joined the span, again or for the first time.
    """

    def __init__(self, monkeypatch) -> None:
        self.fits = self.joined = 0
        replace, growth = FeatureTable._replace, FeatureTable._growth

        def replaced(table, *args):
            self.fits += 1
            return replace(table, *args)

        def grown(table, joining, *args):
            self.joined += len(joining)
            return growth(table, joining, *args)

        monkeypatch.setattr(FeatureTable, "_replace", replaced)
        monkeypatch.setattr(FeatureTable, "_growth", grown)


#: How far apart points are told that are nearly one; None where only a smooth kernel makes them so.
GAPS = [None, 1e-1, 1e-3, 1e-5, 1e-7, 1e-9]
RULES = {
    "exact": None,
    "kors": KORS(oversampling=1e8),
    "growth": RidgeLeverageSampling(oversampling=1e8, resampling="growth"),
}


def nearly_spanned(n: int, gap: float | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Points (n, 3), every other one as near to one before as ``gap`` says, and rewards (n,)."""
    (X, Y), random = data(n, 3, seed=1), np.random.default_rng(2)
    for row in range(1, n, 2) if gap is not None else ():
        X[row] = X[int(random.integers(row))] + gap * X[row]
    return X, Y.squeeze(-1)


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("candidates", "rule"),
    [("actions", "exact"), *((kind, rule) for kind in ("actions", "arms") for rule in ("kors", "growth"))],
)
@pytest.mark.parametrize("gap", GAPS)
def test_points_that_are_nearly_spanned_make_few_full_fits(gap, candidates, rule, monkeypatch):
    """All points are in the dictionary, so the posterior is the exact one. There were up to 81 full fits."""
    n, work = 150, Work(monkeypatch)
    X, Y = nearly_spanned(n, gap)
    domain = Arms(X) if candidates == "arms" else ContextualActions(action_dim=3, context_dim=0)
    bandit = Bandit(
        candidates=domain,
        kernel=rbf(0.6),
        regularization=0.1,
        dictionary=RULES[rule],
        width=ConstantWidth(2.0),
        seed=0,
    )
    for row in range(n):
        bandit.tell(X[row, None], Y[row, None])
    assert work.fits <= 1
    assert work.joined < 0.1 * n**2  # a full fit in every round would be 0.5 n²
    expected = oracles.exact(oracles.rbf(0.6), *dense(X, Y), np.full(n, 0.1), X.numpy())
    mean, variance = bandit._belief.moments(X)
    assert difference(mean, expected.mean) < expected.rounding
    assert difference(variance, expected.variance) < expected.rounding


@pytest.mark.parametrize("gap", [1e-2, 1e-3])
def test_single_precision_bears_points_that_are_nearly_spanned(gap):
    """A coordinate of a point that all but spans another is known to two digits, and those after it to fewer."""
    X, Y = (part.float() for part in nearly_spanned(300, gap))
    domain = ContextualActions(action_dim=3, context_dim=0, dtype=torch.float32)
    words = {"regularization": 1.0, "dictionary": None, "width": ConstantWidth(2.0), "seed": 0}
    bandit = Bandit(candidates=domain, kernel=rbf(0.4).float(), **words)
    for row in range(len(X)):
        bandit.tell(X[row, None], Y[row, None])
    expected = oracles.exact(oracles.rbf(0.4), *dense(X, Y), np.ones(len(X)), X.double().numpy())
    mean, variance = bandit._belief.moments(X)
    # Points of which 1e-5 is not spanned are taken for spanned, up to 300 of them.
    assert difference(mean, expected.mean) < 3e-3
    assert difference(variance, expected.variance) < 3e-3
