"""What a round in contexts computes by loops is what plain PyTorch gives, to rounding."""

import copy
import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import PolynomialKernel
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import DOUBLE, KERNELS, as_told, rbf

from torch_kbandits import KORS, ContextualActions, use_compiled
from torch_kbandits.acquisition import KernelUCB, UpperConfidenceRule
from torch_kbandits.beliefs import Terms, belief_over
from torch_kbandits.beliefs.embedded import Embedded
from torch_kbandits.beliefs.joint_lookahead import best_of
from torch_kbandits.dictionaries import OnlineSample
from torch_kbandits.numerics.gram import gram
from torch_kbandits.posteriors.dtc import embed
from torch_kbandits.tables.lazy import SomeArms

SPREADS = [1e-7, 1e-2, 1.0]


def points(seed: int, number: int, spread: float) -> torch.Tensor:
    """Points (n, 3), every third of which equals an earlier one."""
    rng = np.random.default_rng(seed)
    X = spread * rng.random((number, 3)) + rng.integers(0, 3, size=(number, 1))
    X[2::3] = X[: len(X[2::3])]
    return torch.from_numpy(X)


@settings(deadline=None)
@given(
    name=st.sampled_from([*sorted(KERNELS), "polynomial"]),
    sizes=st.tuples(st.integers(0, 25), st.integers(0, 9), st.integers(0, 5)),
    seed=st.integers(0, 1000),
    spread=st.sampled_from(SPREADS),
    is_single=st.booleans(),
)
def test_points_are_embedded_as_by_pytorch(name, sizes, seed, spread, is_single):
    """With kernels that have a formula and with one that has none, where points nearly coincide or some are pending."""
    kernel = PolynomialKernel(2).double() if name == "polynomial" else KERNELS[name].make()
    dtype = torch.float32 if is_single else DOUBLE
    X, rng = points(seed, sizes[0], spread).to(dtype), np.random.default_rng(seed)
    belief = belief_over(
        ContextualActions(action_dim=3, context_dim=0, dtype=dtype), Terms(kernel, 0.1, 0, exact=False, online=True)
    )
    for x in X:
        told = as_told(x.unsqueeze(0), torch.tensor([rng.normal()], dtype=dtype))
        belief = belief.learned(told, KORS(0.5), torch.Generator().manual_seed(seed))
    table, at, found = belief.posterior, points(seed + 1, sizes[1], spread).to(dtype), []
    pending = points(seed + 2, sizes[2], spread).to(dtype)
    for enabled in (True, False):
        with use_compiled(enabled):
            embedded = Embedded.of(at, table.spanning_points, table.kernel, table.posterior)
            moments = belief.joint.mean_at(embedded), belief.joint.variance_at(embedded)
            moments = *moments, belief.lookahead(pending).variance_of(embedded)
            found.append((*moments, embedded.values, embedded.prior_variance, embedded.coordinates))
    scale = 1.0 + max(float(found[1][4].max()) if len(at) else 0.0, float(table.kernel_bound()))
    pivots = table.posterior.factor.diagonal()
    condition = math.sqrt(scale) / float(pivots.min()) if len(pivots) else 1.0
    tolerance = 1e3 * torch.finfo(dtype).eps * condition * scale
    for ours, theirs in zip(*found, strict=True):
        assert ours.shape == theirs.shape
        assert float((ours - theirs).abs().max()) <= tolerance if ours.numel() else True


@settings(deadline=None, max_examples=25)
@given(
    number=st.integers(1, 50),
    seed=st.integers(0, 1000),
    spread=st.sampled_from(SPREADS),
    oversampling=st.sampled_from([0.1, 0.5, 10.0]),
    is_single=st.booleans(),
)
def test_rewards_told_one_by_one_are_learned_as_by_pytorch(number, seed, spread, oversampling, is_single):
    """More than matrices keep apart; of points that join, that do not, that come again, and that nearly coincide."""
    dtype, found = torch.float32 if is_single else DOUBLE, []
    X, Y = points(seed, number, spread).to(dtype), np.random.default_rng(seed).normal(size=number)
    at, rewards = points(seed + 1, 7, spread).to(dtype), torch.from_numpy(Y).to(dtype)
    for enabled in (True, False):
        with use_compiled(enabled):
            actions = ContextualActions(action_dim=3, context_dim=0, dtype=dtype)
            belief = belief_over(actions, Terms(rbf().to(dtype), 0.1, 0, exact=False, online=True))
            for t in range(number):
                generator = torch.Generator().manual_seed(t)
                belief = belief.learned(as_told(X[t : t + 1], rewards[t : t + 1]), KORS(oversampling), generator)
            sums = belief.effective_dimension(), belief.information_gain(), belief.mean_norm(), belief.kernel_bound()
            found.append((*belief.moments(at), torch.stack(sums), belief.inducing_points, belief.dictionary_weights))
    for ours, theirs in zip(*found, strict=True):
        assert torch.allclose(
            ours, theirs, rtol=1e-6 if dtype == DOUBLE else 2e-2, atol=1e-6 if dtype == DOUBLE else 2e-2
        )


@settings(deadline=None)
@given(
    number=st.integers(1, 150),
    seed=st.integers(0, 1000),
    asked=st.sets(st.integers(0, 149), max_size=6),
    branch=st.integers(0, 149),
    is_single=st.booleans(),
)
def test_what_was_told_of_each_point_is_known_whenever_it_is_asked_for(number, seed, asked, branch, is_single):
    """Of the last belief, of those that are asked late, of copies, and of another that goes on from an earlier one."""
    dtype, rng = torch.float32 if is_single else DOUBLE, np.random.default_rng(seed)
    X, Y = points(seed, number, 0.3).to(dtype), torch.from_numpy(rng.normal(size=number)).to(dtype)
    candidates = ContextualActions(action_dim=3, context_dim=0, dtype=dtype)
    beliefs = [belief_over(candidates, Terms(rbf(0.5).to(dtype), 0.1, 0, exact=False, online=True))]

    def learn(belief, row, y):
        generator = torch.Generator().manual_seed(seed + row)
        return belief.learned(as_told(X[row : row + 1], y), KORS(0.2), generator)

    def check(belief, rewards):
        table, sums = belief.posterior, {}
        for x, y in zip(X.tolist(), rewards.double().tolist(), strict=False):
            count, total = sums.get(tuple(x), (0, 0.0))
            sums[tuple(x)] = count + 1, total + y
        assert [tuple(x) for x in table.played.tolist()] == list(sums)
        assert table._log.counts.tolist() == [count for count, _ in sums.values()]
        assert np.allclose(table._log.sums, [total for _, total in sums.values()], rtol=0.0, atol=1e-12)
        assert table.num_observations == belief.num_observations == len(rewards)
        assert torch.equal(table.rows_of(table.played), table._played_rows)
        assert torch.equal(belief.observations[0], X[: len(rewards)])
        assert torch.equal(belief.observations[1], rewards)
        features = embed(table.posterior.factor, gram(table.kernel, table.spanning_points, table.played).double())
        assert (table._played.store.block(slice(0, len(sums))) - features).abs().max() < 1e6 * torch.finfo(dtype).eps

    with use_compiled(True):
        for row in range(number):
            beliefs.append(learn(beliefs[-1], row, Y[row : row + 1]))
            if row in asked:
                check(beliefs[-1], Y[: row + 1])
        first = branch % number
        other, rewards = copy.deepcopy(beliefs[first]), Y.clone()
        for row in range(first, number):
            rewards[row] += 1.0
            other = learn(other, row, rewards[row : row + 1])
        check(beliefs[-1], Y)
        check(other, rewards)
        check(beliefs[first + 1], Y[: first + 1])
        assert torch.equal(beliefs[-1].kernel_bound(), other.kernel_bound())


@settings(deadline=None)
@given(
    number=st.integers(1, 30),
    seed=st.integers(0, 1000),
    spread=st.sampled_from(SPREADS),
    projection=st.sampled_from([1e-5, 1e-2, 1.0]),
    tolerance=st.sampled_from([None, 1e-6, 0.1]),
)
def test_points_are_taken_as_by_pytorch(number, seed, spread, projection, tolerance):
    X, found = points(seed, number, spread), []
    uniforms = torch.from_numpy(np.random.default_rng(seed).random(number))
    for enabled in (True, False):
        with use_compiled(enabled):
            settings, chances = (rbf(), projection, 0.5, 0.5), list[float]()
            sample = OnlineSample.from_points(X[:0], uniforms[:0], *settings, tolerance=tolerance)
            for x, uniform in zip(X.split(1), uniforms.split(1), strict=True):
                offer = sample.offered(x, uniform)
                assert bool(offer.joined) == (offer.sample.size > sample.size)
                sample = offer.sample
                chances.append(float(offer.probabilities))
            found.append((sample, chances))
    (ours, mine), (theirs, others) = found
    assert mine == pytest.approx(others, abs=1e-8)
    assert torch.equal(ours.points, theirs.points)
    torch.testing.assert_close(ours.weights, theirs.weights, rtol=1e-6, atol=0.0)
    torch.testing.assert_close(ours.score(X), theirs.score(X), rtol=1e-6, atol=1e-8)


@given(
    scores=st.lists(st.sampled_from([-1.0, 0.0, 1.0, 1.0 + 1e-13, 1.0 + 1e-9, -math.inf]), min_size=1, max_size=9),
    beta=st.sampled_from([0.0, 2.0]),
    seed=st.integers(0, 3),
)
def test_the_best_is_found_and_ties_are_broken_by_the_same_lots(scores, beta, seed):
    results = []
    for enabled in (True, False):
        with use_compiled(enabled):
            words = torch.tensor(beta, dtype=DOUBLE), torch.tensor(1.0, dtype=DOUBLE), seed
            row, score = best_of(torch.tensor(scores, dtype=DOUBLE), *words)
            results.append((row, score()))
    assert results[0] == results[1]


@pytest.mark.parametrize("number", [0, 1, 7])
def test_upper_bounds_are_those_of_the_acquisition_function(number):
    mean, variance = torch.randn(2, number, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    variance, beta = variance.clamp_min(0.0), torch.tensor(1.5)
    scores = UpperConfidenceRule().on_arms(SomeArms(mean, variance, lambda: mean.max()), beta, 0)
    torch.testing.assert_close(scores, KernelUCB.score(mean, variance, beta), rtol=1e-14, atol=1e-14)
