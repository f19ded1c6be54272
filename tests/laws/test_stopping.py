"""Bounds on the regret of what is recommended are right, and stop a run when they say."""

import math

import numpy as np
import oracles
import pytest
import torch
from problems import DOUBLE, data, dense, rbf, scaled, seeded
from scipy.stats import binom

import torch_kbandits as kb
from torch_kbandits import StopWhen, algorithms
from torch_kbandits.confidence import BayesianGPUCBWidth

KERNEL, NOISE, BETA = oracles.rbf(0.3), 0.04, 2.0
ARMS = data(40, 2)[0]


def kernel():
    return scaled(rbf(0.3), 1.0)


def drawn(seed, arms=ARMS):
    """A function drawn from the prior at arms."""
    X = arms.numpy()
    root = np.linalg.cholesky(KERNEL(X, X) + 1e-10 * np.eye(len(X)))
    return torch.from_numpy(root) @ torch.randn(len(X), generator=seeded(seed, 1), dtype=DOUBLE)


def bandit_of(seed=0, candidates=None, **words):
    given = {"kernel": kernel(), "regularization": NOISE, "beta": BETA} | words
    return algorithms.GPUCB(candidates=kb.Arms(ARMS) if candidates is None else candidates, seed=seed, **given)


def row_of(x):
    return int((x == ARMS).all(-1).nonzero()[0])


def played(bandit, f, rounds, seed=0, **words):
    noise = seeded(seed, 2)
    return bandit.run(lambda x: f[row_of(x)] + 0.2 * torch.randn((), generator=noise, dtype=DOUBLE), rounds, **words)


def test_it_is_what_dense_formulas_say():
    bandit, f = bandit_of(), drawn(0)
    assert bandit.regret_bound() == bandit.largest_expected_improvement() == math.inf
    played(bandit, f, 12)
    X, y, T = dense(bandit.history.X, bandit.history.Y, ARMS)
    noise = np.full(len(y), NOISE)
    there = oracles.exact(KERNEL, X, y, noise, T)
    deviation, row = np.sqrt(there.variance), row_of(bandit.recommend())
    tolerance = 4.0 * there.upper_rounding(BETA)
    for x, at in ((None, row), (ARMS[7, None], 7)):
        expected = (there.mean + BETA * deviation).max() - (there.mean - BETA * deviation)[at]
        assert bandit.regret_bound(x) == pytest.approx(expected, abs=tolerance)
    narrower = (there.mean + 0.5 * deviation).max() - (there.mean - 0.5 * deviation)[row]
    assert bandit.regret_bound(beta=0.5) == pytest.approx(narrower, abs=tolerance)
    seen = [row_of(x) for x in bandit.history.X]
    gain = there.mean - there.mean[seen].max()
    z = gain / deviation
    phi, Phi = np.exp(-(z**2) / 2.0) / math.sqrt(2.0 * math.pi), np.array([0.5 * math.erfc(-v / 2**0.5) for v in z])
    assert bandit.largest_expected_improvement() == pytest.approx(
        (gain * Phi + deviation * phi).max(), abs=2 * tolerance
    )


def test_bounds_are_exceeded_as_seldom_as_they_say():
    """Wrong once in ten thousand times."""
    runs, confidence = 80, 0.8
    worse = {"theorem": 0, "draws": 0}
    for seed in range(runs):
        width, f = BayesianGPUCBWidth(len(ARMS), 0.1), drawn(seed)
        bandit = kb.Bandit(candidates=kb.Arms(ARMS), kernel=kernel(), regularization=NOISE, width=width, seed=seed)
        played(bandit, f, 8, seed)
        regret = float(f.max() - f[row_of(bandit.recommend())])
        worse["theorem"] += regret > bandit.regret_bound()
        worse["draws"] += regret > bandit.regret_bound(confidence=confidence)
    assert worse["theorem"] <= binom.ppf(1.0 - 1e-4, runs, 0.1)
    assert 0 < worse["draws"] <= binom.ppf(1.0 - 1e-4, runs, 1.0 - confidence)


@pytest.mark.parametrize(
    "stop", [StopWhen(regret=0.5), StopWhen(regret=0.2, confidence=0.9), StopWhen(no_better_by=0.05, every=3)], ids=str
)
def test_a_run_ends_where_it_says_and_looking_changes_nothing(stop):
    f, bandit, other = drawn(3), bandit_of(), bandit_of()
    rounds = len(played(bandit, f, 200, stop=stop))
    assert rounds < 200
    assert rounds % stop.every == 0
    assert stop(bandit)
    played(other, f, rounds)
    before = other.state_dict()
    assert stop(other)
    assert str(before) == str(other.state_dict())
    assert torch.equal(bandit.ask(), other.ask())
    if rounds > stop.every:
        other = bandit_of()
        played(other, f, rounds - stop.every)
        assert not stop(other)


def test_contexts_boxes_and_learned_priors():
    actions = ARMS[:9, :1]
    bandit = bandit_of(candidates=kb.ContextualActions(actions, context_dim=1))
    context = torch.tensor([0.4], dtype=DOUBLE)
    for _ in range(5):
        x = bandit.ask(context=context)
        bandit.tell(x, x.sum(), context=context)
    joint = torch.cat([context.expand(9, 1), actions], 1)
    mean, variance = (each.squeeze(-1) for each in (lambda p: (p.mean, p.variance))(bandit.model.posterior(joint)))
    edge = BETA * variance.sqrt()
    expected = (mean + edge).max() - (mean - edge)[int(mean.argmax())]
    bound = bandit.regret_bound(context=context)
    assert bound == pytest.approx(float(expected.detach()), rel=1e-9)
    assert StopWhen(regret=1.001 * bound)(bandit, context=context)
    assert not StopWhen(regret=0.999 * bound)(bandit, context=context)
    box = bandit_of(candidates=kb.Box([[0.0, 0.0], [1.0, 1.0]]))
    box.run(lambda x: -(x - 0.3).square().sum(), 8)
    grid = torch.cartesian_prod(*[torch.linspace(0.0, 1.0, 21, dtype=DOUBLE)] * 2)
    posterior, best = box.model.posterior(grid), box.model.posterior(box.recommend())
    lower = best.mean - BETA * best.variance.sqrt()
    least = float(((posterior.mean + BETA * posterior.variance.sqrt()).max() - lower).detach())
    assert least - 1e-6 <= box.regret_bound() <= least + 0.2
    learned = algorithms.GPUCB(candidates=kb.Arms(ARMS), prior=kb.LearnedPrior(), seed=0)
    assert not StopWhen(regret=1e9)(learned)
    assert learned.regret_bound(ARMS[:1]) == math.inf


def test_what_does_not_fit_says_what_to_do():
    for words in (
        {},
        {"confidence": 0.9},
        {"regret": -1.0},
        {"regret": 1.0, "confidence": 1.0},
        {"regret": 1, "every": 0},
        {"no_better_by": 1.0, "beta": 2.0},
    ):
        with pytest.raises(kb.InputError):
            StopWhen(**words)  # pyright: ignore[reportArgumentType]
    bandit = algorithms.GPEI(candidates=kb.Arms(ARMS), kernel=kernel(), regularization=NOISE, seed=0)
    played(bandit, drawn(0), 3)
    with pytest.raises(kb.InputError, match="give beta"):
        bandit.regret_bound()
    assert StopWhen(regret=1.0, beta=0.7).measured(bandit) == {"regret": bandit.regret_bound(beta=0.7)}
    with pytest.raises(kb.InputError, match="one point"):
        bandit.regret_bound(ARMS[:2])
    with pytest.raises(kb.InputError, match="one of the candidates"):
        bandit.regret_bound(ARMS[:1] + 0.5, confidence=0.5)
    box = bandit_of(candidates=kb.Box([[0.0, 0.0], [1.0, 1.0]]))
    box.tell([[0.5, 0.5]], [1.0])
    with pytest.raises(kb.InputError, match="finitely many"):
        box.regret_bound(confidence=0.5)
    with pytest.raises(kb.InputError, match="stop must be a function"):
        played(bandit, drawn(0), 3, stop=7)
