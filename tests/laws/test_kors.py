"""KORS: inclusion probabilities are those of the paper's formula, and what is kept of the dictionary never drifts.

The oracle holds the paper's dictionary as it stands, a point drawn twice being there twice, and builds Z*, S* and the
matrix of (41) densely at every offer. Draws share their uniforms with the package.
"""

from typing import NamedTuple

import hypothesis.strategies as st
import numpy as np
import oracles
import pytest
import torch
from hypothesis import given, settings
from problems import DOUBLE, KERNELS, data, dense, difference, exactly, linear, matern, play, rbf, reward
from scipy.sparse.linalg import eigsh

from torch_kbandits import (
    Arms,
    Bandit,
    Box,
    ConstantWidth,
    EmptyHistoryError,
    InputError,
    NumericalError,
    NystromGP,
    StateMismatchError,
)
from torch_kbandits.dictionaries import (
    KORS,
    CappedDictionary,
    OnlineSample,
    PlayedPoints,
    theoretical_kors_oversampling,
)
from torch_kbandits.numerics.gram import gram, prior_variance
from torch_kbandits.numerics.random import generator_for

RBF = oracles.rbf(0.4)


def formula(kernel, Z, probabilities, point, projection, accuracy=0.5):
    """τ̃ by (41): Z* = Z and the point, S* = diag(1/√p) for Z and 1 for the point."""
    star = np.vstack([Z, point])
    S = np.diag(np.append(1.0 / np.sqrt(probabilities), 1.0))
    inner = S.T @ kernel(star, star) @ S + projection * np.eye(len(star))
    k = S.T @ kernel(star, point)[:, 0]
    return (1.0 + accuracy) / projection * (kernel(point, point)[0, 0] - k @ np.linalg.solve(inner, k))


class Drawn(NamedTuple):
    """What the oracle offered: probabilities (n,), and which were taken (n,)."""

    probabilities: np.ndarray
    chosen: np.ndarray


def drawn(kernel, X, uniforms, oversampling, projection, accuracy=0.5):
    """Alg. 5 point by point; the first point is in the dictionary."""
    probabilities, rows = np.ones(len(X)), [0]
    for i in range(1, len(X)):
        score = formula(kernel, X[rows], probabilities[rows], X[i : i + 1], projection, accuracy)
        probabilities[i] = np.clip(oversampling * score, 0.0, 1.0)
        if uniforms[i] < probabilities[i]:
            rows.append(i)
    return Drawn(probabilities, np.isin(np.arange(len(X)), rows))


def stream(n, seed, repeats=0.4, near=0.1, distance=1e-7, pool=None):
    """Points (n, 2) of which some repeat earlier ones and some are nearly equal to the one before; uniforms (n,)."""
    rng = np.random.default_rng(seed)
    fresh = rng.random((n, 2))
    X = fresh[np.minimum(np.arange(n), (n if pool is None else pool) - 1)]
    for i in range(1, n):
        kind = rng.random()
        if kind < repeats:
            X[i] = X[rng.integers(i)]
        elif kind < repeats + near:
            X[i] = X[i - 1] + distance * rng.random(2)
    return X, rng.random(n)


def empty(kernel, projection, oversampling, accuracy=0.5, example=None):
    example = torch.zeros(1, 2, dtype=DOUBLE) if example is None else example
    return OnlineSample.empty(kernel, projection, accuracy, oversampling, example)


def played(X, **known):
    noise = torch.tensor(0.05, dtype=X.dtype)
    known = {"counts": X.new_ones(len(X))} | known
    return PlayedPoints(X, rbf().to(X).requires_grad_(False), noise, **known)


# ------------------------------------------------------------------------------------------------ the formula


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("projection", "oversampling", "pool"),
    [(0.05, 0.2, None), (0.2, 1.0, 20), (1e-3, 0.03, None), (50.0, 0.5, None), (20.0, 4.0, 10)],
)
@pytest.mark.parametrize("number", [500, pytest.param(5_000, marks=pytest.mark.slow)])
def test_probabilities_equal_the_formula_after_many_points(number, projection, oversampling, pool):
    X, uniforms = stream(number, seed=1, pool=pool)
    offer = empty(rbf(), projection, oversampling).offered(torch.tensor(X), torch.tensor(uniforms))
    expected = drawn(RBF, X, uniforms, oversampling, projection)
    assert difference(offer.probabilities, expected.probabilities) < 1e-10
    assert np.array_equal(offer.chosen.numpy(), expected.chosen)
    taken = X[expected.chosen]
    points, weights = dense(offer.sample.points, offer.sample.weights)
    assert len(points) > 5
    assert len(taken) > len(points) or pool is None
    assert np.array_equal(points, X[offer.joined.numpy()])
    sums = [(1.0 / expected.probabilities)[expected.chosen][(taken == point).all(1)].sum() for point in points]
    assert weights == pytest.approx(np.array(sums), rel=1e-9)


@settings(deadline=None)
@given(
    n=st.integers(1, 60),
    seed=st.integers(0, 10_000),
    kernel=st.sampled_from(sorted(KERNELS)),
    projection=st.sampled_from([1e-5, 1e-2, 1.0, 1e3]),
    oversampling=st.sampled_from([0.05, 1.0, 30.0]),
    accuracy=st.sampled_from([0.1, 0.5, 0.9]),
    repeats=st.sampled_from([0.0, 0.5]),
    near=st.sampled_from([0.0, 0.5]),
    distance=st.sampled_from([1e-12, 1e-8, 1e-4]),
)
def test_probabilities_equal_the_formula(n, seed, kernel, projection, oversampling, accuracy, repeats, near, distance):
    """To 1e-10, or to γ/μ roundings of the dense residual where that is more: 60 points of prior variance up to 2.5."""
    X, uniforms = stream(n, seed, repeats, near, distance)
    pair = KERNELS[kernel]
    offer = empty(pair.make(), projection, oversampling, accuracy).offered(torch.tensor(X), torch.tensor(uniforms))
    expected = drawn(pair.dense, X, uniforms, oversampling, projection, accuracy)
    tolerance = max(1e-10, oversampling / projection * 60 * 2.5 * 1e-15)
    assert difference(offer.probabilities, expected.probabilities) < tolerance
    close = np.abs(uniforms - expected.probabilities) < tolerance
    assert np.array_equal(offer.chosen.numpy()[~close], expected.chosen[~close])


def test_a_score_by_hand():
    """One point of weight 4 and k = 1: r = 1 − c²/(1 + μ/4); at c = 0.5 and μ = 1 r = 0.8, τ̃ = 1.5 · 0.8/1.8."""
    distance = 0.4 * np.sqrt(2.0 * np.log(2.0))
    origin = torch.zeros(1, 1, dtype=DOUBLE)
    sample = OnlineSample.from_points(origin, torch.tensor([4.0]), rbf(), 1.0, 0.5, 1.0)
    assert float(sample.score(origin + distance)) == pytest.approx(1.5 * 0.8 / 1.8, abs=1e-12)
    # A point of the dictionary itself is its own neighbour: r = 1 − 1/1.25 = 0.2.
    assert float(sample.score(origin)) == pytest.approx(1.5 * 0.2 / 1.2, abs=1e-12)


def test_the_first_point_is_taken_and_points_without_variance_never_again():
    kernel, origin = linear(), torch.zeros(1, 2, dtype=DOUBLE)
    sample, chosen, joined, probabilities = empty(kernel, 0.1, 1e-9).offered(origin, torch.tensor([0.999]))
    assert chosen.tolist() == joined.tolist() == [True]
    assert probabilities.tolist() == sample.weights.tolist() == [1.0]
    again = sample.offered(origin.expand(3, 2), torch.zeros(3))
    assert again.probabilities.tolist() == [0.0, 0.0, 0.0]
    assert again.sample.size == 1
    # (1 + ε) k / (k + μ) at k = 0.8 · 4
    assert float(sample.score(origin + torch.tensor([[2.0, 0.0]]))) == pytest.approx(1.5 * 3.2 / 3.3)


# ------------------------------------------------------------------------------------------------ the value


@pytest.mark.one_in(2)
@pytest.mark.parametrize("pool", [None, 20])
def test_a_restored_sample_equals_the_incremental_one(pool):
    X, uniforms = stream(3_000, seed=2, pool=pool)
    sample = empty(rbf(), 0.01, 1.0).offered(torch.tensor(X), torch.tensor(uniforms)).sample
    restored = OnlineSample.from_points(sample.points, sample.weights, rbf(), 0.01, 0.5, 1.0)
    T, _ = data(200, 2, seed=7)
    everywhere = torch.cat([T, sample.points, sample.points + 1e-7])
    assert difference(restored.score(everywhere), sample.score(everywhere)) < 1e-10
    more, further = (torch.tensor(part) for part in stream(200, seed=3))
    assert difference(restored.offered(more, further).probabilities, sample.offered(more, further).probabilities) < 1e-9


@pytest.mark.one_in(6)
@pytest.mark.parametrize("with_values", [False, True])
@pytest.mark.parametrize("sizes", [[1], [1, 7, 40], [300]])
def test_points_may_be_offered_in_pieces_and_with_known_kernel_values(sizes, with_values):
    kernel = matern().requires_grad_(False)
    X, uniforms = (torch.tensor(part) for part in stream(300, seed=4))
    at_once = empty(kernel, 0.05, 1.0).offered(X, uniforms)
    sample, parts, start = empty(kernel, 0.05, 1.0), [], 0
    while start < len(X):
        piece = slice(start, start + sizes[len(parts) % len(sizes)])
        known = ()
        if with_values:
            known = (gram(kernel, sample.points, X[piece]) if sample.size else None), prior_variance(kernel, X[piece])
        parts.append(sample.offered(X[piece], uniforms[piece], *known))
        sample, start = parts[-1].sample, piece.stop
    assert torch.equal(torch.cat([part.chosen for part in parts]), at_once.chosen)
    assert torch.equal(torch.cat([part.joined for part in parts]), at_once.joined)
    assert difference(torch.cat([part.probabilities for part in parts]), at_once.probabilities) < 1e-11
    assert torch.equal(sample.points, at_once.sample.points)


def test_a_score_is_the_next_probability_over_the_oversampling_and_offers_change_nothing():
    X, uniforms = (torch.tensor(part) for part in stream(300, seed=5))
    sample = empty(rbf(), 0.05, 0.5).offered(X, uniforms).sample
    points, weights = sample.points.clone(), sample.weights.clone()
    T, _ = data(40, 2, seed=8)
    scores = sample.score(T)
    known = sample.score(T, gram(rbf(), sample.points, T), prior_variance(rbf(), T))
    assert difference(known, scores) < 1e-11
    each = torch.cat([sample.offered(T[i : i + 1], torch.zeros(1)).probabilities for i in range(40)])
    assert difference(each, (0.5 * scores).clamp_max(1.0)) < 1e-11
    assert torch.equal(sample.points, points)
    assert torch.equal(sample.weights, weights)
    assert difference(sample.score(T), scores) == 0.0
    assert len(sample.offered(X[:0], uniforms[:0]).probabilities) == 0


def test_single_precision_points_are_scored_in_double_precision():
    """Kernel values carry single precision's rounding, 6e-8, which μ = 0.05 makes 1e-6 a point and p = 1/γ more."""
    X, uniforms = stream(1_500, seed=6, pool=60, near=0.2, distance=1e-3)
    X = X.astype(np.float32)
    single = empty(rbf().float(), 0.05, 0.5, example=torch.tensor(X)).offered(torch.tensor(X), torch.tensor(uniforms))
    expected = drawn(RBF, X.astype(np.float64), uniforms, 0.5, 0.05)
    assert single.probabilities.dtype == single.sample.weights.dtype == DOUBLE
    assert single.sample.points.dtype == torch.float32
    assert difference(single.probabilities, expected.probabilities) < 1e-3
    assert np.mean(single.chosen.numpy() != expected.chosen) < 0.01


def test_single_precision_survives_a_tiny_projection():
    """The Gram matrix of 300 rounded values has eigenvalues below −μ, so its factor needs jitter of that size."""
    X, _ = data(300, 2)
    X = X.float()
    weights = torch.ones(300)
    sample = OnlineSample.from_points(X, weights, rbf(2.0).float(), 1e-9, 0.5, 1.0)
    assert float(torch.linalg.eigvalsh(gram(rbf(2.0).float(), X).detach().double()).min()) < -1e-9
    assert bool(torch.isfinite(sample.score(X)).all())
    grown = empty(rbf(2.0).float(), 1e-9, 1.0, example=X).offered(X.repeat(3, 1), torch.rand(900)).sample
    assert bool(torch.isfinite(grown.score(X)).all())


def test_batches_share_their_rows_by_the_largest_score():
    X = torch.stack([data(30, 2, seed)[0] for seed in range(3)])
    uniforms = torch.rand(30, generator=torch.Generator().manual_seed(0))
    offer = empty(rbf(), 0.05, 1.0, example=X).offered(X, uniforms)
    rows = [0]
    for i in range(1, 30):
        scores = [formula(RBF, *dense(X[b, rows], offer.probabilities[rows], X[b, i : i + 1]), 0.05) for b in range(3)]
        assert float(offer.probabilities[i]) == pytest.approx(min(1.0, max(scores)), abs=1e-10)
        if uniforms[i] < min(1.0, max(scores)):
            rows.append(i)
    assert torch.equal(offer.sample.points, X[:, rows])


# ------------------------------------------------------------------------------------------------ the draws


@pytest.mark.slow
def test_frequencies_match_the_probabilities():
    """1,000 runs over 25 points. At each point Σ (taken − p) over the runs has mean 0 and variance Σ p (1 − p).

    |sum| within 4.5 standard errors at all points: false alarms 25 × 7e-6 < 2e-4.
    """
    X = torch.tensor(stream(25, seed=7, pool=8)[0])
    excess, variance = np.zeros(25), np.zeros(25)
    for number in range(1_000):
        uniforms = torch.rand(25, generator=generator_for(2, number, "test"), dtype=DOUBLE)
        _, chosen, _, probabilities = empty(rbf(), 0.2, 0.4).offered(X, uniforms)
        excess += (chosen.double() - probabilities).numpy()
        variance += (probabilities * (1.0 - probabilities)).numpy()
    assert (variance[1:] > 10.0).all()
    assert (np.abs(excess) <= 4.5 * np.sqrt(variance) + 1e-9).all()


def test_dictionaries_are_drawn_as_often_as_the_paths_to_them_are_likely():
    """300 selections from 4 points, against the products of (41) along each path to a dictionary.

    Frequencies of the 8 dictionaries within 4.5 standard errors: false alarms 8 × 7e-6 < 1e-4.
    """
    X = np.array([[0.0, 0.0], [0.05, 0.1], [0.05, 0.2], [0.15, 0.0]])
    expected: dict[tuple[int, ...], float] = {}

    def follow(rows, probabilities, i, likelihood):
        if i == 4:
            expected[tuple(rows)] = likelihood
            return
        p = min(1.0, 0.7 * formula(RBF, X[rows], np.array(probabilities), X[i : i + 1], 0.05))
        follow([*rows, i], [*probabilities, p], i + 1, likelihood * p)
        follow(rows, probabilities, i + 1, likelihood * (1.0 - p))

    follow([0], [1.0], 1, 1.0)
    points, hits = played(torch.tensor(X)), dict.fromkeys(expected, 0)
    for number in range(300):
        hits[tuple(KORS(0.7).select(points, generator_for(3, number, "test")).indices.tolist())] += 1
    assert sum(expected.values()) == pytest.approx(1.0)
    assert len(expected) == 8
    assert min(expected.values()) > 0.005
    for rows, p in expected.items():
        assert abs(hits[rows] / 300 - p) <= 4.5 * np.sqrt(p * (1.0 - p) / 300), rows


def projection_error(kernel, X, Z):
    """‖(I − P) F^½‖², the largest eigenvalue of K_XX − K_XZ K_ZZ⁻¹ K_ZX."""
    factor = np.linalg.cholesky(kernel(Z, Z) + 1e-11 * np.eye(len(Z)))
    whitened = np.linalg.solve(factor, kernel(Z, X))
    residual = kernel(X, X) - whitened.T @ whitened
    return float(eigsh(residual, k=1, which="LA", return_eigenvectors=False)[0])


@pytest.mark.slow
@pytest.mark.parametrize(("dimension", "projection"), [(1, 1.0), (2, 20.0)])
def test_the_projection_error_is_below_mu_at_the_theorems_oversampling(dimension, projection):
    """In both of 2 runs; by the theorem each may fail with probability 0.1, in truth far more seldom.

    A tiny oversampling fails in all of them, and the theorem's does not simply keep all points.
    """
    kernel = oracles.rbf(1.5)
    for seed in range(2):
        X = np.random.default_rng(seed).random((2_000, dimension))
        points = PlayedPoints(torch.tensor(X), rbf(1.5), exactly(projection), torch.ones(2_000))
        enough, too_little = (
            KORS(oversampling).select(points, generator_for(seed, 0, "test")).points.numpy()
            for oversampling in (theoretical_kors_oversampling(0.1, 2_000), 1e-3)
        )
        assert len(enough) < 1_300
        assert projection_error(kernel, X, enough) <= projection
        assert projection_error(kernel, X, too_little) > projection


# ------------------------------------------------------------------------------------------------ the rule


def test_all_plays_are_offered_where_nothing_is_known():
    X, _ = data(12, 2)
    counts = torch.arange(1, 13).double()
    selection = KORS(0.7, projection=0.3).select(played(X, counts=counts), generator_for(0, 0, "test"))
    offered = X.repeat_interleave(torch.arange(1, 13), 0)
    uniforms = torch.rand(len(offered), generator=generator_for(0, 0, "test"), dtype=DOUBLE)
    offer = empty(rbf(), 0.3, 0.7).offered(offered, uniforms)
    assert torch.equal(selection.points, offer.sample.points)
    assert torch.equal(selection.weights, offer.sample.weights)
    assert torch.equal(selection.probabilities, offer.probabilities[offer.joined])
    # Without weights, what is in the dictionary is of no use.
    known = played(X, counts=counts, in_dictionary=counts < 4.0, new_counts=torch.ones(12))
    again = KORS(0.7, projection=0.3).select(known, generator_for(0, 0, "test"))
    assert torch.equal(again.points, selection.points)


def test_only_new_plays_are_offered_to_a_known_dictionary():
    X, _ = data(40, 2)
    rule = KORS(1.0)
    before = rule.select(played(X[:30]), generator_for(0, 0, "test"))
    new_counts = torch.cat([torch.zeros(28), torch.tensor([2.0, 3.0]), torch.ones(10)]).double()
    held = torch.zeros(40, dtype=torch.bool)
    held[before.indices] = True
    weights = torch.full((40,), torch.nan, dtype=DOUBLE)
    weights[before.indices] = before.weights
    known = {"in_dictionary": held, "new_counts": new_counts, "weights": weights}
    after = rule.select(played(X, counts=new_counts + 1.0, **known), generator_for(0, 1, "test"))
    sample = OnlineSample.from_points(before.points, before.weights, rbf(), 0.05, 0.5, 1.0)
    offered = torch.arange(40).repeat_interleave(new_counts.long())
    uniforms = torch.rand(len(offered), generator=generator_for(0, 1, "test"), dtype=DOUBLE)
    offer = sample.offered(X[offered], uniforms)
    assert set(after.indices.tolist()) == {*before.indices.tolist(), *offered[offer.joined].tolist()}
    assert bool(offer.joined.any())
    assert bool(held[after.indices[: len(before.indices)]].all())
    order = torch.cat([before.indices, offered[offer.joined]]).argsort()
    assert torch.equal(after.weights, offer.sample.weights[order])
    certain = after.probabilities[held[after.indices]]
    assert torch.equal(certain, torch.ones_like(certain))


def test_the_projection_is_the_noise_unless_given():
    X, _ = data(60, 2)
    generators = [generator_for(0, 0, "test") for _ in range(4)]
    by_noise = KORS().select(played(X), generators[0])
    assert torch.equal(by_noise.indices, KORS(projection=0.05).select(played(X), generators[1]).indices)
    assert not torch.equal(by_noise.indices, KORS(projection=5.0).select(played(X), generators[2]).indices)
    differing = PlayedPoints(X, rbf(), torch.linspace(0.05, 4.0, 60, dtype=DOUBLE), torch.ones(60))
    assert torch.equal(by_noise.indices, KORS().select(differing, generators[3]).indices)


@pytest.mark.slow
def test_sized_draws_follow_the_chances_of_those_left():
    """3,000 draws of 2 of 4 points, against min(1, γ c τ̃) with τ̃ by (41).

    Ordered pairs are not seen, so frequencies of the 6 pairs within 4.5 standard errors: false alarms 6 × 7e-6 < 1e-4.
    """
    X = np.array([[0.0, 0.0], [0.05, 0.0], [0.6, 0.4], [0.3, 0.1]])
    counts = np.array([1.0, 3.0, 1.0, 2.0])

    def chances(rows):
        scores = [formula(RBF, X[rows], np.ones(len(rows)), X[i : i + 1], 0.05) for i in range(4)]
        p = np.minimum(1.0, 0.3 * counts * np.array(scores))
        p[rows] = 0.0
        return p / p.sum()

    expected = np.zeros((4, 4))
    first = chances([])
    for i in range(4):
        expected[i] += first[i] * chances([i])
    expected += expected.T
    points, hits = played(torch.tensor(X), counts=torch.tensor(counts)), np.zeros((4, 4))
    for number in range(3_000):
        a, b = KORS(0.3).select_sized(points, 2, generator_for(4, number, "test")).indices.tolist()
        hits[a, b] += 1.0
    above = np.triu_indices(4, 1)
    error = np.sqrt(expected * (1.0 - expected) / 3_000)[above]
    assert (np.abs(hits / 3_000 - expected)[above] <= 4.5 * error).all()


@pytest.mark.parametrize("size", [1, 7, 20, 50])
def test_sized_draws_are_different_rows_also_where_everything_is_explained(size):
    X = data(4, 2)[0].repeat(5, 1)
    selection = KORS().select_sized(played(X), size, generator_for(0, 0, "test"))
    assert len(selection.indices.unique()) == min(size, 20)


def test_a_cap_cuts_what_joins_and_keeps_weights_beside_their_points():
    X, _ = data(16, 2)
    everything = KORS(1.5).select(played(X), generator_for(0, 0, "test"))
    capped = CappedDictionary(KORS(1.5), 6, "stop").select(played(X), generator_for(0, 0, "test"))
    assert len(capped.indices) == len(capped.weights) == 6
    first = [row for row in everything.indices.tolist() if row < everything.indices[6]]
    weights = zip(everything.indices.tolist(), everything.weights.tolist(), strict=True)
    weight_of = {row: weight for row, weight in weights if row in first}
    assert capped.weights.tolist() == [weight_of.get(row, 1.0) for row in capped.indices.tolist()]
    assert 0 < len(weight_of.keys() - capped.indices.tolist()) < 6  # some gave way to others
    held = torch.zeros(16, dtype=torch.bool)
    held[capped.indices] = True
    weights = X.new_ones(16).masked_scatter(held, capped.weights)
    known = played(X, in_dictionary=held, new_counts=torch.zeros(16), weights=weights)
    again = CappedDictionary(KORS(1.5), 6, "stop").select(known, generator_for(0, 1, "test"))
    assert torch.equal(again.indices, capped.indices)
    assert bool((again.weights >= capped.weights).all())


def test_a_model_takes_the_rule():
    """With every play kept the posterior is the exact one."""
    X, Y = data(50, 2)
    model = NystromGP(X, Y, dictionary=KORS(1e6), covar_module=rbf(), regularization=0.05)
    T, _ = data(20, 2, seed=9)
    expected = oracles.exact(RBF, *dense(X, Y.squeeze(-1)), np.full(50, 0.05), T.numpy())
    posterior = model.posterior(T)
    assert difference(posterior.mean.squeeze(-1), expected.mean) < expected.rounding
    assert difference(posterior.variance.squeeze(-1), expected.variance) < expected.rounding
    small = NystromGP(X, Y, dictionary=KORS(0.1), covar_module=rbf(), regularization=0.05)
    assert len(small.inducing_points) < 30


# ------------------------------------------------------------------------------------------------ in a bandit

ARMS = data(80, 2)[0]
PLACES = {"arms": Arms(ARMS), "box": Box(torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE), 2, 16)}


def bandit(place="arms", dictionary=None, beta=2.0):
    """A bandit whose rule takes about half of what is played."""
    return Bandit(
        candidates=PLACES[place],
        kernel=rbf(),
        regularization=0.05,
        dictionary=KORS(0.6) if dictionary is None else dictionary,
        width=ConstantWidth(beta),
        seed=5,
    )


def followed(asked, sizes):
    """Offer what was played, in rounds of the given sizes, to a sample that is kept; its points and weights."""
    sample, start = empty(rbf().requires_grad_(False), 0.05, 0.6), 0
    for size in sizes:
        uniforms = torch.rand(size, generator=generator_for(5, start, "dictionary"), dtype=DOUBLE)
        sample = sample.offered(asked[start : start + size], uniforms).sample
        start += size
    return dict(zip(map(tuple, sample.points.tolist()), sample.weights.tolist(), strict=True))


def remembered(bandit):
    weights = bandit.state_dict()["dictionary_weights"]
    return dict(zip(map(tuple, bandit.inducing_points.tolist()), weights.tolist(), strict=True))


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("place", "rounds"), [("arms", 50), ("box", 25)])
def test_a_bandit_offers_each_play_once(place, rounds):
    """So its dictionary is that of Alg. 5 on the stream of its plays, with the same uniforms."""
    ours, asked, sizes, before = bandit(place), [], [], set()
    stranger = torch.tensor([[0.111, 0.222]], dtype=DOUBLE)
    for number in range(rounds):
        X = stranger if number % 10 == 5 else ours.ask(remember=False)
        ours.tell(X, reward(X))
        asked.append(X)
        sizes.append(len(X))
        assert before <= set(remembered(ours))
        before = set(remembered(ours))
    expected = followed(torch.cat(asked), sizes)
    assert remembered(ours) == pytest.approx(expected, rel=1e-9)
    assert 1 < len(expected) < len(torch.cat(asked).unique(dim=0))
    assert max(expected.values()) > 1.0


def test_plays_told_together_are_offered_in_the_order_told():
    X = ARMS[[0, 1, 2, 1, 3, 4]]
    ours = bandit()
    ours.tell(X, reward(X))
    ours.tell(ARMS[[5, 4, 0, 4]], reward(ARMS[[5, 4, 0, 4]]))
    offered = ARMS[[0, 1, 2, 1, 3, 4, 5, 4, 0, 4]]
    assert remembered(ours) == pytest.approx(followed(offered, [6, 4]), rel=1e-12)


@pytest.mark.one_in(4)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("cap", [None, 5])
@pytest.mark.parametrize(("place", "rounds"), [("arms", 20), ("box", 4)])
def test_weights_survive_saving_and_replaying(place, rounds, cap, tmp_path):
    rule = KORS(0.6) if cap is None else CappedDictionary(KORS(0.6), cap, "stop")
    ours = bandit(place, rule)
    play(ours, rounds)
    torch.save(ours.state_dict(), tmp_path / "state.pt")
    loaded, replayed = bandit(place, rule), bandit(place, rule)
    loaded.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    replayed.replay(ours.history)
    assert remembered(loaded) == remembered(ours)
    assert remembered(replayed) == pytest.approx(remembered(ours))
    assert cap is None or len(remembered(ours)) <= cap
    asked = play(ours, rounds)
    assert difference(play(loaded, rounds), asked) < 1e-6
    assert difference(play(replayed, rounds), asked) < 1e-6
    # On a box points agree to the search's tolerance only, and weights with them.
    assert sorted(remembered(loaded).values()) == pytest.approx(sorted(remembered(ours).values()), rel=1e-5)


def test_a_failed_tell_leaves_the_weights():
    ours = bandit()
    play(ours, 20)
    before = remembered(ours)
    with pytest.raises(NumericalError, match="not finite"):
        ours.tell(ARMS[:2], torch.tensor([1e308, 1e308], dtype=DOUBLE) * 1.7)
    assert remembered(ours) == before


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (torch.ones(1000, dtype=DOUBLE), "saved weights must be a number for each"),
        (torch.full((3,), torch.nan, dtype=DOUBLE), "saved weights must be finite"),
        ("one", "dictionary_weights must be"),
    ],
)
def test_damaged_weights_are_named(weights, message):
    ours = bandit()
    play(ours, 10)
    with pytest.raises(StateMismatchError, match=message):
        bandit().load_state_dict(ours.state_dict() | {"dictionary_weights": weights})


def test_theoretical_oversampling_equals_its_formula():
    # 12 ln(1000 / 0.1) = 12 ln 10⁴
    assert theoretical_kors_oversampling(0.1, 1000) == pytest.approx(12.0 * np.log(10_000.0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: KORS(0.0), "oversampling must be a finite number above 0"),
        (lambda: KORS(projection=-1.0), "projection must be a finite number above 0"),
        (lambda: KORS(accuracy=1.0), "accuracy must lie strictly between 0 and 1"),
        (lambda: theoretical_kors_oversampling(0.0, 10), "failure_probability"),
        (lambda: theoretical_kors_oversampling(0.1, 0), "horizon"),
        (lambda: empty(rbf(), 0.0, 1.0), "projection"),
        (lambda: empty(rbf(), 1.0, float("inf")), "oversampling"),
        (lambda: empty(rbf(), 1.0, 1.0, accuracy=0.0), "accuracy"),
        (
            lambda: OnlineSample.from_points(data(3, 2)[0], torch.ones(2), rbf(), 1.0, 0.5, 1.0),
            r"weights must be .* each of the 3 points",
        ),
        (
            lambda: OnlineSample.from_points(data(2, 2)[0], torch.tensor([1.0, 0.0]), rbf(), 1.0, 0.5, 1.0),
            "weights must be a finite number above 0",
        ),
        (lambda: empty(rbf(), 1.0, 1.0).offered(data(3, 2)[0], torch.rand(2)), "a uniform for each of the 3 points"),
        (
            lambda: OnlineSample.from_points(data(2, 2)[0], torch.ones(2), rbf(), 1.0, 0.5, 1.0).score(
                data(3, 2)[0], cross=torch.ones(3, 3)
            ),
            "cross must hold the kernel of 2 points of the sample against 3 offered",
        ),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_nothing_played_is_an_error():
    with pytest.raises(EmptyHistoryError, match="nothing was played"):
        KORS().select(played(torch.empty(0, 2, dtype=DOUBLE)))
