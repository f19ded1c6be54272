"""A full dictionary is exchanged for what spans more, what does not count leaves, what is not spanned is learned."""

from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import oracles
import pytest
import torch
from hypothesis import assume, given
from problems import DOUBLE, data, difference, examples, rbf, reward

import torch_kbandits as kb
from torch_kbandits.dictionaries import PlayedPoints
from torch_kbandits.memory import SlidingWindow

LAMBDA, CAP = 0.05, 6
DENSE = oracles.rbf(0.4)


def model_of(X, Y, Z, **words):
    return kb.NystromGP(X, Y, inducing_points=Z, covar_module=rbf(0.4), regularization=LAMBDA, **words)


@examples(20)
@given(seed=st.integers(0, 10_000), m=st.integers(1, 6), plays=st.integers(0, 40))
def test_a_learned_residual_is_at_most_that_of_the_dictionary_and_its_covariance_is_one(seed, m, plays):
    """It is none before any reward. Its formula is in ``oracles``."""
    (Z, _), (T, _), (X, Y) = data(m, 2, seed), data(7, 2, seed + 1), data(plays, 2, seed + 2)
    learned, plain = (model_of(X, Y, Z, learns_residual=value).posterior(T) for value in (True, False))
    assert bool((learned.variance <= plain.variance + 1e-12).all())
    assert plays or difference(learned.variance, plain.variance) < 1e-12
    alone = model_of(X, Y, Z, learns_residual=True).posterior(T.unsqueeze(-2))
    assert difference(learned.variance.flatten(), alone.variance.flatten()) < 1e-9
    assert float(torch.linalg.eigvalsh(learned.distribution.covariance_matrix.detach())[0]) > -1e-9


def test_a_model_learns_the_residual_while_its_rule_says_that_the_dictionary_is_full():
    X, Y = data(30, 2)
    rule = kb.CappedDictionary(kb.UniformDictionary(20), 7, "stop")
    model = kb.NystromGP(X, Y, dictionary=rule, covar_module=rbf(0.4), regularization=LAMBDA)
    assert model.learns_residual
    model.set_dictionary(kb.UniformDictionary(20))
    assert not model.learns_residual
    for value in ("yes", 1):
        with pytest.raises(kb.InputError, match="learns_residual must be True"):
            model_of(X, Y, X[:3], learns_residual=value)
        with pytest.raises(kb.InputError, match="learns_residual must be True"):
            kb.CappedDictionary(kb.KORS(), 3, "stop", value)


# ---------------------------------------------------------------- exchanges


@examples(25)
@given(seed=st.integers(0, 10_000), cap=st.integers(1, 8), new=st.integers(1, 6))
def test_new_points_replace_those_that_tell_least(seed, cap, new):
    """Against determinants written out, none of them at the edge of a decision; of equal points the first leaves."""
    rng = np.random.default_rng(seed)
    X, counts = rng.uniform(-2.0, 2.0, (cap + new, 2)), rng.integers(1, 5, cap + new).astype(float)
    held = [*range(cap)]

    def told(rows):
        root = np.sqrt(counts[rows])
        return np.linalg.slogdet(np.eye(len(rows)) + root[:, None] * DENSE(X[rows], X[rows]) * root / LAMBDA)[1]

    for row in range(cap, cap + new):
        gains = np.array([told([*held[:i], *held[i + 1 :], row]) - told(held) for i in range(cap)])
        lost = gains.max() - gains
        assume(abs(gains.max() - np.log(1.1)) > 1e-6)
        assume(not ((lost > 1e-7) & (lost < 1e-5)).any())
        if gains.max() > np.log(1.1):
            equal = [i for i in range(cap) if lost[i] < 1e-6]
            held[min(equal, key=held.__getitem__)] = row
    assert exchanged(X, counts, cap, LAMBDA) == sorted(held)


def exchanged(X, counts, cap, noise):
    """The rows that a full dictionary has, whose first points were in it."""
    held, scores = torch.arange(len(X)) < cap, torch.full((len(X),), 1e9, dtype=DOUBLE)
    level, counts = torch.tensor(noise, dtype=DOUBLE), torch.tensor(counts)
    points = PlayedPoints(torch.tensor(X), rbf(0.4), level, counts, scores, held, (~held).double())
    rule = kb.CappedDictionary(kb.RidgeLeverageSampling(), cap, "stop")
    return rule.select(points, torch.Generator().manual_seed(0)).indices.tolist()


def test_of_equal_points_the_first_leaves():
    """Which rounding would decide: those on a circle are equal for its centre."""
    for angle in (0.1, 0.55, 1.0):
        turns = angle + 2.0 * np.pi * np.arange(6) / 6
        X = np.concatenate([0.7 * np.stack([np.cos(turns), np.sin(turns)], 1), [[0.0, 0.0]]])
        assert exchanged(X, [2.0] * 6 + [50.0], 6, 0.1) == [1, 2, 3, 4, 5, 6]


def bandit_of(rule, memory=None):
    candidates = kb.ContextualActions(action_dim=2, context_dim=0, dtype=DOUBLE)
    words = {"kernel": rbf(0.4 if memory is None and rule.full_at else 0.3), "regularization": LAMBDA, "seed": 0}
    return kb.Bandit(candidates=candidates, dictionary=rule, memory=memory, width=kb.ConstantWidth(1.5), **words)


def test_exchanges_are_few_however_many_points_are_offered():
    """Each makes det K_ZZ grow by a tenth, and det K_ZZ <= 1."""
    bandit = bandit_of(kb.CappedDictionary(kb.KORS(3.0), CAP, "stop"))
    sets, bound = [], 0.0
    for number in range(200):
        X = 2.0 * torch.rand(1, 2, generator=torch.Generator().manual_seed(number), dtype=DOUBLE) - 1.0
        bandit.tell(X, reward(X))
        sets.append({tuple(row) for row in bandit.inducing_points.tolist()})
        if len(sets[-1]) == CAP and not bound:
            Z = bandit.inducing_points.numpy()
            bound = -np.linalg.slogdet(DENSE(Z, Z))[1] / np.log(1.1)
    exchanges = sum(len(after - before) for before, after in pairwise(sets) if len(before) == CAP)
    assert 0 < exchanges <= bound


@pytest.mark.parametrize("window", [20, pytest.param(60, marks=pytest.mark.slow)])
def test_points_that_no_longer_count_leave_the_dictionary(window):
    """A region that drifts: the dictionary is as large as that of a fresh run on what counts, within 1.3 times."""
    rng, bandit, told, sizes = np.random.default_rng(0), bandit_of(kb.KORS(), SlidingWindow(window)), [], []
    for number in range(160):
        x = torch.tensor(rng.uniform(0.0, 1.0, (1, 2)) + 0.01 * number)
        bandit.tell(x, reward(x))
        told.append(x)
        if number % 40 == 39 and number > window:
            again = bandit_of(kb.KORS())
            for each in told[-window:]:
                again.tell(each, reward(each))
            sizes.append((len(bandit.inducing_points), len(again.inducing_points)))
            X = torch.cat(told[-window:])
            counting = (bandit.inducing_points[:, None] == X[None]).all(-1).any(-1)
            assert int((~counting).sum()) <= 1 + len(counting) // 8
    ours, theirs = map(np.array, zip(*sizes, strict=True))
    assert 1.0 / 1.3 < ours.sum() / theirs.sum() < 1.3
