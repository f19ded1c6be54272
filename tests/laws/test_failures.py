"""Plays that failed: not asked again at once, no invented reward, and how likely points are to fail is learned."""

import math
from itertools import pairwise

import numpy as np
import oracles
import pytest
import torch
from kinds import KINDS, make, points
from problems import DOUBLE, believed, data, dense, difference, matern, rbf, reward

import torch_kbandits as kb
from torch_kbandits.memory import LinearGrowth, SlidingWindow, UncertaintyInjection

ARMS = data(30, 2, 5)[0]


def bandit_of(candidates=None, **words):
    words = {"kernel": matern(0.4, 1.3), "regularization": 0.05, "width": kb.ConstantWidth(1.5), "seed": 4} | words
    return kb.Bandit(candidates=kb.Arms(ARMS) if candidates is None else candidates, **words)


def play_failing(bandit, rounds, fails):
    """Play, and tell what fails as failed; return what was asked for."""
    asked = []
    for _ in range(rounds):
        asked.append(bandit.ask())
        bandit.tell(asked[-1], **({"failed": True} if fails(asked[-1]) else {"y": reward(asked[-1])}))
    return torch.cat(asked)


@pytest.mark.one_in(5)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("name", KINDS)
def test_a_point_that_failed_is_not_asked_for_at_once(name):
    kind, asked = KINDS[name], []
    bandit, words = kind.make(), kind.words(0)
    for number in range(4):
        asked.append(points(bandit.ask(**words)))
        told = {"failed": True} if number % 2 == 0 else kind.told(bandit.pending, 1)
        bandit.tell(ids=bandit.pending_ids, **told)
        if number % 2 == 0:
            assert difference(points(bandit.ask(remember=False, **words)), asked[-1]) > 0.0
            x = bandit.candidates.actions(bandit.history.X[-1:])
            likely = bandit.failure_probability(x, context=words.get("context"), time=words.get("time"))
            assert 0.0 < float(likely) <= 1.0
    x = bandit.recommend(**words)
    assert isinstance(x, dict) or x.shape == asked[0].shape


@pytest.mark.parametrize("space", ["arms", "many arms", "box", "contexts"])
def test_the_probability_is_that_of_a_dense_regression(space):
    """With mean 0.1 and a twentieth of the prior variance as noise, cut off; told one by one, and at once."""
    X, at = data(12, 2, 7)[0], data(9, 2, 8)[0]
    candidates = {
        "arms": kb.Arms(torch.cat([X, at])),
        "many arms": kb.Arms(torch.cat([X, at, data(600, 2, 9)[0]])),
        "box": kb.Box(torch.tensor([[-3.0, -3.0], [3.0, 3.0]], dtype=DOUBLE)),
        "contexts": kb.ContextualActions(torch.cat([X, at])[:, 1:], context_dim=1),
    }[space]

    def split(X):
        return ((X[:, 1:],), {"context": X[:, :1]}) if space == "contexts" else ((X,), {})

    failed, points = torch.tensor([False, True, False, False, True, False] * 2), torch.cat([at, X])
    kernel, noise = oracles.matern52(0.4, 1.3), 0.05 * 1.3 * np.eye(12)
    known, lost, at = dense(X, failed, points)
    weights = np.linalg.solve(kernel(known, known) + noise, lost - 0.1)
    expected = np.clip(0.1 + kernel(at, known) @ weights, 0.0, 1.0)
    (args, words), one_by_one = split(points), [slice(number, number + 1) for number in range(12)]
    for parts in (one_by_one, [slice(0, 12)]):
        bandit = bandit_of(candidates)
        assert not bandit.failure_probability(*args, **words).any()
        for rows in parts:
            told, where = split(X[rows])
            y = [None if lost else 1.0 for lost in failed[rows].tolist()]
            bandit.tell(*told, y, failed=failed[rows], **where)
        assert difference(bandit.failure_probability(*args, **words), expected) < 1e-9


@pytest.mark.parametrize("prior", [kb.Prior(rbf(0.4, 50.0), 0.01), kb.Prior(rbf(0.4, 1e-4), 1e-3), kb.LearnedPrior()])
@pytest.mark.parametrize("memory", [None, SlidingWindow(50.0), UncertaintyInjection(LinearGrowth(1e-6), 1.0)])
def test_one_failure_is_believed_unless_the_point_went_well(prior, memory):
    bandit = bandit_of(kernel=None, regularization=None, prior=prior, memory=memory)
    bandit.tell(ARMS[:1], failed=True)
    assert float(bandit.failure_probability(ARMS[:1])) >= 0.5
    bandit.tell(ARMS[:1], 0.1)
    assert float(bandit.failure_probability(ARMS[:1])) < 0.5


@pytest.mark.parametrize("dictionary", [None, kb.RidgeLeverageSampling(3.0)])
def test_rewards_are_believed_as_without_failures_and_a_restart_forgets_these(dictionary):
    with_failures, without = bandit_of(dictionary=dictionary), bandit_of(dictionary=dictionary)
    for number, x in enumerate(ARMS[:8].split(1)):
        with_failures.tell(x, float(number))
        without.tell(x, float(number))
    with_failures.tell(ARMS[9:12], failed=True)
    for ours, theirs in zip(believed(with_failures, ARMS), believed(without, ARMS), strict=True):
        assert difference(ours, theirs) < 1e-9
    assert with_failures.failure_probability(ARMS[9:12]).min() > 0.5
    with_failures.restart()
    with_failures.tell(ARMS[4:5], 1.0)
    assert not with_failures.failure_probability(ARMS).any()


def test_waits_double_and_a_success_ends_them():
    best, other = torch.tensor([[0.0], [9.0]], dtype=DOUBLE).split(1)  # independent
    bandit = bandit_of(kb.Arms(torch.cat([best, other])), kernel=rbf(0.1))
    bandit.tell(best.repeat(30, 1), [5.0] * 30)  # that it fails is not likely
    missed = []
    for _ in range(3):
        assert torch.equal(bandit.ask(remember=False), best)
        bandit.tell(best, failed=True)
        missed.append(0)
        while not torch.equal(bandit.ask(remember=False), best):
            bandit.tell(other, 0.0)
            missed[-1] += 1
    assert missed == [1, 3, 7]
    bandit.tell(best, 5.0)
    bandit.tell(best, failed=True)
    bandit.tell(other, 0.0)
    assert torch.equal(bandit.ask(remember=False), best)  # a success ended the streak


def test_where_all_fail_all_are_tried_in_turn():
    for number in (1, 4):
        bandit = bandit_of(kb.Arms(ARMS[:number]), kernel=rbf(0.01))
        asked = play_failing(bandit, 10 * number, lambda x: True)
        assert number == 1 or all(difference(*pair) > 0.0 for pair in pairwise(asked))
        assert torch.unique(asked, dim=0, return_counts=True)[1].min() >= 7
        assert float(bandit.failure_probability(ARMS[:number]).min()) > 0.5


@pytest.mark.parametrize("name", ["gp-ucb", "gp-ts", "gp-ei", "random"])
def test_a_failing_region_is_left(name):
    bandit = make(name, candidates=data(200, 2, 11)[0], kernel=rbf(0.3))
    asked = play_failing(bandit, 60, lambda x: bool(x[0, 0] > 0.6))
    lost = asked[:, 0] > 0.6
    assert lost[:20].any()
    assert lost[30:].double().mean() < 0.1
    assert bandit.recommend()[0, 0] <= 0.6


@pytest.mark.parametrize("first_fails", [False, True])
def test_what_fails_by_chance_is_not_lost(first_fails):
    """Eight independent arms, of which each play fails with probability 0.05; the best one's first play fails."""
    bandit = bandit_of(kb.Arms(torch.arange(8, dtype=DOUBLE)[:, None]), kernel=rbf(0.1), width=kb.ConstantWidth(2.0))
    draw, played = np.random.default_rng(3), []
    for _ in range(100):
        x = bandit.ask()
        best = bool(x == 3.0)
        fails = draw.random() < 0.05 or (first_fails and best and not any(played))
        played.append(best)
        y = best + 0.1 * draw.normal()
        bandit.tell(x, **({"failed": True} if fails else {"y": y}))
    assert np.mean(played[50:]) > 0.8
    assert float(bandit.recommend()) == 3.0


def test_in_another_context_the_action_that_failed_may_be_played():
    offers = kb.ContextualActions(torch.arange(3, dtype=DOUBLE)[:, None], context_dim=1)
    bandit = bandit_of(offers, kernel=rbf(0.3))
    here, there = torch.tensor([0.0], dtype=DOUBLE), torch.tensor([5.0], dtype=DOUBLE)
    for context in (here, there):
        bandit.tell(torch.tensor([[1.0]], dtype=DOUBLE), 5.0, context=context)
    x = bandit.ask(context=here)
    assert float(x) == 1.0
    bandit.tell(x, failed=True, context=here)
    assert float(bandit.ask(context=here, remember=False)) != 1.0
    assert float(bandit.ask(context=there, remember=False)) == 1.0


def test_on_a_box_the_neighbourhood_waits_too():
    ranges = torch.tensor([1.0, 100.0], dtype=DOUBLE)
    box = kb.Box(torch.stack([0.0 * ranges, ranges]), num_restarts=2, raw_samples=16)
    bandit = bandit_of(box, kernel=rbf(30.0), regularization=1e-3, width=kb.ConstantWidth(0.1))
    X = torch.quasirandom.SobolEngine(2, scramble=True, seed=1).draw(60, dtype=DOUBLE) * ranges
    bandit.tell(X, -((X / ranges - 0.5) ** 2).sum(-1))
    x = bandit.ask()
    bandit.tell(x, failed=True)
    assert ((bandit.ask() - x).abs() / ranges > 0.01).any()


@pytest.mark.filterwarnings("ignore:.*fitted to a small part")
@pytest.mark.parametrize(("kind", "rounds"), [("arms", 12), ("box", 5)])
def test_limits_are_kept_where_plays_fail(kind, rounds):
    unit = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)
    candidates = kb.Box(unit) if kind == "box" else kb.Arms(ARMS)
    limit = kb.AtMost("heat", 0.6, mode="safe", beta=2.0, safe_seed=lambda X: X[:, 1] < 0.2)
    bandit, lost = bandit_of(candidates, constraints=[limit], kernel=rbf(0.3)), 0
    for _ in range(rounds):
        x = bandit.ask()
        fails = bool(x[0, 0] > 0.6)
        lost += fails
        assert x[0, 1] <= 0.75
        bandit.tell(x, outcomes={"heat": x[:, 1]}, **({"failed": True} if fails else {"y": reward(x)}))
    assert lost < 6
    assert bandit.recommend()[0, 0] <= 0.6


def test_what_is_told_of_failures_is_checked():
    bandit = bandit_of()
    for words, said in (
        ({"y": [1.0, 2.0], "failed": True}, "no reward"),
        ({"y": [None, None], "failed": [True, False]}, "y must"),
        ({"y": [None, 2.0], "failed": [True]}, "one for each"),
        ({"y": [None, 2.0], "failed": [1, 0]}, "True or False"),
        ({"y": [math.nan, 2.0]}, "finite"),
    ):
        with pytest.raises(kb.InputError, match=said):
            bandit.tell(ARMS[:2], **words)
    assert bandit.num_observations == 0
