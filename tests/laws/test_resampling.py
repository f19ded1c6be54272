"""How a dictionary depends on the last one: redrawn, with kept uniforms, or growing only."""

from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from problems import DOUBLE, data, difference, rbf, reward, seeded

import torch_kbandits as kb
from torch_kbandits import algorithms, environments
from torch_kbandits.dictionaries import PlayedPoints

ARMS = data(60, 2)[0]
WAYS = ["fresh", "coupled", "growth"]
Q = 1.5


def rule(resampling):
    return kb.RidgeLeverageSampling(Q, resampling)


def played(scores, counts=None, in_dictionary=None, new_counts=None):
    scores = torch.as_tensor(scores, dtype=DOUBLE)
    counts = torch.ones_like(scores) if counts is None else torch.as_tensor(counts, dtype=DOUBLE)
    held = None if in_dictionary is None else torch.as_tensor(in_dictionary)
    new = None if new_counts is None else torch.as_tensor(new_counts, dtype=DOUBLE)
    return PlayedPoints(data(len(scores), 2)[0], rbf(), torch.tensor(0.1, dtype=DOUBLE), counts, scores, held, new)


def chosen(resampling, points, seed):
    """Which points are in the dictionary, (u,) bool."""
    held = np.zeros(points.size, dtype=bool)
    held[rule(resampling).select(points, seeded(seed, 0)).indices.numpy()] = True
    return held


def hits(resampling, *columns, seed=0):
    """Which of u points are in 4,000 dictionaries, (4000, u): 200 drawn, each of 20 copies of the points."""
    points = played(*(np.tile(column, 20) for column in columns))
    return np.array([chosen(resampling, points, seed + number) for number in range(200)]).reshape(4_000, -1)


def bkb(resampling, seed=3, name="bkb", **settings):
    words = {"kernel": rbf(0.3), "regularization": 0.05, "beta": 1.5, "seed": seed, "resampling": resampling}
    return algorithms.build(name, **({"candidates": ARMS} | words | settings))


def changes(dictionaries):
    return sum(len(old ^ new) for old, new in pairwise(dictionaries))


@pytest.mark.parametrize("resampling", ["fresh", "coupled"])
def test_every_point_is_there_with_its_probability(resampling):
    """4,000 draws, 12 points; |frequency − p| within 4.5 standard errors: false alarms 12 × 7e-6 < 1e-4."""
    merged, counts = np.linspace(0.02, 0.75, 12), np.arange(1, 13)
    expected = np.minimum(1.0, Q * merged)
    found = hits(resampling, merged / counts, counts).mean(0)
    assert (np.abs(found - expected) <= 4.5 * np.sqrt(expected * (1.0 - expected) / 4_000) + 1e-12).all()


@pytest.mark.parametrize("resampling", ["fresh", "coupled"])
def test_two_rounds_have_equal_marginals_and_another_joint_law(resampling):
    """Probabilities change between rounds. Both rounds: min(p, p') if coupled, p p' if fresh.

    4,000 draws, 3 frequencies of 8 points within 4.5 standard errors: false alarms 24 × 7e-6 < 2e-4.
    """
    first, second = np.linspace(0.1, 0.6, 8), np.linspace(0.5, 0.2, 8)
    p, q = Q * first, Q * second
    before = hits(resampling, first)
    after = hits(resampling, second, seed=0 if resampling == "coupled" else 4_000)
    both = np.minimum(p, q) if resampling == "coupled" else p * q
    for found, expected in ((before, p), (after, q), (before & after, both)):
        assert (np.abs(found.mean(0) - expected) <= 4.5 * np.sqrt(expected * (1.0 - expected) / 4_000) + 1e-12).all()


def test_growth_only_keeps_what_is_there_and_draws_for_all_else_whenever_it_was_played():
    """4,000 draws, 5 points with chances: within 4.5 standard errors, false alarms 5 × 7e-6 < 1e-4."""
    scores = np.array([0.3, 0.1, 1.0, 0.1, 0.05, 0.01, 0.06])
    held = np.array([True, True, False, False, False, False, False])
    new = np.array([0, 2, 0, 0, 1, 3, 5])
    points = played(scores, counts=new + 4, in_dictionary=held, new_counts=new)
    expected = np.where(held, 1.0, np.minimum(1.0, Q * (new + 4) * scores))
    assert difference(rule("growth").probabilities(points), expected) < 1e-12
    found = hits("growth", scores, new + 4, held, new)
    assert found[:, :3].all()
    error = np.sqrt(expected * (1.0 - expected) / 4_000)
    assert (np.abs(found.mean(0) - expected) <= 4.5 * error + 1e-12).all()


@pytest.mark.parametrize("resampling", WAYS)
@given(size=st.integers(1, 12), seed=st.integers(0, 10_000))
def test_no_dictionary_is_empty(resampling, size, seed):
    """Scores of 1e-13: no draw succeeds, and the likeliest is kept."""
    scores = np.full(size, 1e-13)
    scores[seed % size] = 2e-13
    assert chosen(resampling, played(scores), seed).nonzero()[0].tolist() == [seed % size]


@pytest.mark.parametrize("resampling", ["coupled", "growth"])
def test_selections_of_a_given_size_are_those_of_fresh(resampling):
    points = played(np.linspace(0.01, 0.6, 20), np.arange(1, 21), np.arange(20) < 7, np.arange(20) >= 15)
    for size in (1, 8, 20):
        ours, fresh = (rule(way).select_sized(points, size, seeded(1, 0)) for way in (resampling, "fresh"))
        assert torch.equal(ours.indices, fresh.indices)
        assert torch.equal(ours.probabilities, fresh.probabilities)


@given(first=st.integers(1, 40), more=st.integers(0, 40), seed=st.integers(0, 10_000))
def test_kept_uniforms_make_dictionaries_monotone(first, more, seed):
    """Later points do not disturb earlier ones, and larger probabilities only add points."""
    scores = np.random.default_rng(seed).uniform(0.1, 0.6, first + more)
    scores[0] = 1.0  # certain, so that no fallback is needed
    few, many = chosen("coupled", played(scores[:first]), seed), chosen("coupled", played(scores), seed)
    assert (many[:first] == few).all()
    assert not (many & ~chosen("coupled", played(1.3 * scores), seed)).any()


@pytest.mark.slow
def test_far_fewer_changes_at_the_same_size_and_regret():
    """200 rounds on 300 arms, six problems; changes are points that came or went in the last 100 rounds.

    Runs differ, and in some nothing comes or goes that late, so totals are compared.
    """
    late, sizes, regret = ({way: np.zeros(6) for way in WAYS} for _ in range(3))
    for seed in range(6):
        problem = environments.gaussian_bumps(300, 2, seed=seed)
        for way in WAYS:
            bandit = bkb(way, seed=seed, candidates=problem.arms, regularization=0.01, beta=2.0)
            dictionaries = []
            for number in range(200):
                X = bandit.ask()
                regret[way][seed] += float(problem.regret(X))
                bandit.tell(X, problem.pull(X, number) - 0.5)
                dictionaries.append(set(map(tuple, bandit.inducing_points.tolist())))
            late[way][seed], sizes[way][seed] = changes(dictionaries[100:]), len(dictionaries[-1])
            if way == "growth":
                assert all(old <= new for old, new in pairwise(dictionaries))
    assert late["fresh"].sum() > 500
    assert late["coupled"].sum() < 0.1 * late["fresh"].sum()
    assert late["growth"].sum() < 0.02 * late["fresh"].sum()
    assert 0.7 < sizes["coupled"].sum() / sizes["fresh"].sum() < 1.4
    assert max(regret["coupled"].sum(), regret["growth"].sum()) < 1.25 * regret["fresh"].sum()


class HalfAndHalf(kb.RidgeLeverageSampling):
    def probabilities(self, played, generator=None):
        return torch.full_like(played.counts, 0.5)


@pytest.mark.parametrize(("way", "kept"), [("coupled", True), ("fresh", False)])
def test_the_uniforms_of_a_bandit_are_kept(way, kept):
    """With probabilities near ½ for ever, the dictionary of a growing history only grows."""
    words = {"kernel": rbf(), "regularization": 0.1, "width": kb.ConstantWidth(1.0), "seed": 0}
    bandit, dictionaries = kb.Bandit(candidates=kb.Arms(ARMS), dictionary=HalfAndHalf(1.0, way), **words), []
    for number in range(0, 40, 2):
        bandit.tell(ARMS[number : number + 2], torch.zeros(2, dtype=DOUBLE))
        dictionaries.append({*map(tuple, bandit.inducing_points.tolist())})
    grown = [old <= new for old, new in pairwise(dictionaries[3:])]
    assert all(grown) is kept
    assert 8 <= len(dictionaries[-1]) <= 32


@pytest.mark.one_in(2)
@pytest.mark.parametrize("resampling", ["coupled", "growth"])
def test_a_batch_told_in_parts_is_a_batch_told_at_once(resampling):
    whole, parts = (bkb(resampling, name="bbkb", regularization=0.01, batch_threshold=1.5) for _ in range(2))
    for _ in range(12):
        X = whole.ask(None)
        whole.tell(X, reward(X))
        for x in X:
            parts.tell(x[None], reward(x[None]))
        assert torch.equal(parts.inducing_points, whole.inducing_points)
    assert len(X) > 1


def test_words_that_mean_nothing_are_named():
    for call in (lambda: kb.RidgeLeverageSampling(3.0, "often"), lambda: bkb("often")):
        with pytest.raises(kb.InputError, match='resampling must be "fresh" or "coupled" or "growth", got \'often\''):
            call()
