"""A full dictionary is exchanged for what spans more, and what it does not span is learned, on all candidates."""

from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import oracles
import pytest
import torch
from hypothesis import assume, given
from problems import DOUBLE, data, dense, difference, examples, rbf, reward

from torch_kbandits import (
    KORS,
    Arms,
    Bandit,
    Box,
    CappedDictionary,
    ConstantWidth,
    ContextualActions,
    InputError,
    NystromGP,
    RidgeLeverageSampling,
    UniformDictionary,
    use_compiled,
)
from torch_kbandits.dictionaries import PlayedPoints
from torch_kbandits.memory import Discount, SlidingWindow
from torch_kbandits.posteriors.residual import learned_residual, residual_share

LAMBDA, BETA, CAP = 0.05, 1.5, 6
DENSE = oracles.rbf(0.4)
ARMS = data(40, 2)[0]
BOX = torch.tensor([[-1.0, -1.0], [1.0, 1.0]], dtype=DOUBLE)
CANDIDATES = {
    "arms": lambda: Arms(ARMS),
    "actions": lambda: ContextualActions(ARMS, context_dim=0),
    "actions in a context": lambda: ContextualActions(ARMS[:, :1], context_dim=1),
    "box": lambda: Box(BOX, num_restarts=2, raw_samples=16),
}
RULES = {
    "resampled": CappedDictionary(RidgeLeverageSampling(3.0, "coupled"), CAP, "stop"),
    "kors": CappedDictionary(KORS(3.0), CAP, "stop"),
}
MEMORIES = {"all": None, "window": SlidingWindow(12), "discount": Discount(0.9)}


def written_out(prior, spanned, left):
    """The variance with a learned residual, as ``residual_share`` states it."""
    residual = prior - spanned
    precision = (spanned / left - 1.0) / prior
    return left + residual / (1.0 + spanned / (spanned + 0.3 * prior) * residual * precision)


def dense_covariance(X, noise, Z, T):
    """The covariance at points T after plays of points X whose variances are these, from dense matrices."""
    factor = np.linalg.cholesky(DENSE(Z, Z))
    seen, at = np.linalg.solve(factor, DENSE(Z, X)), np.linalg.solve(factor, DENSE(Z, T))
    left = at.T @ np.linalg.solve(np.eye(len(Z)) + (seen / noise) @ seen.T, at)
    residual, wanted = DENSE(T, T) - at.T @ at, written_out(np.ones(len(T)), (at**2).sum(0), np.diag(left))
    root = np.sqrt(np.maximum(wanted - np.diag(left), 0.0) / np.maximum(np.diag(residual), 1e-12))
    return left + np.outer(root, root) * residual


def dense_learned(X, noise, Z, T):
    """Its diagonal."""
    return np.diag(dense_covariance(X, noise, Z, T))


def bandit_of(candidates, rule, memory=None, seed=0):
    return Bandit(
        candidates=CANDIDATES[candidates](), kernel=rbf(0.4), regularization=LAMBDA, dictionary=RULES[rule],
        width=ConstantWidth(BETA), memory=MEMORIES["all" if memory is None else memory], seed=seed,
    )  # fmt: skip


def played(bandit, rounds, seed=0):
    contexts = torch.rand(rounds, 1, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)
    for number in range(rounds):
        words = {"context": contexts[number]} if bandit.candidates.context_dim else {}
        x = bandit.ask(**words)
        joint = torch.cat([contexts[number, None], x], 1) if words else x
        bandit.tell(x, reward(joint), **words)
    return bandit


# ------------------------------------------------------------------------------------------------ the variance


@examples(60)
@given(
    prior=st.floats(1e-3, 1e3), share=st.floats(1e-3, 1.0), left=st.floats(1e-5, 1.0), plays=st.integers(1, 10_000),
)  # fmt: skip
def test_the_residual_is_learned_as_stated(prior, share, left, plays):
    k, q = torch.tensor([prior], dtype=DOUBLE), torch.tensor([prior * share], dtype=DOUBLE)
    variance = k - q + left * q
    found, expected = float(learned_residual(k, q, variance)), written_out(prior, prior * share, left * prior * share)
    assert found == pytest.approx(expected, rel=1e-3 if left * share < 1e-6 else 1e-6)
    assert found <= float(variance) * (1.0 + 1e-12)
    assert float(residual_share(k, q, k)) == pytest.approx(1.0, rel=1e-12)  # before any reward
    assert float(learned_residual(k, k, variance)) == pytest.approx(float(variance))  # all is spanned
    own = 1.0 / (1.0 / (prior * share) + plays / LAMBDA)  # what is left of q after plays of the point itself
    assert float(learned_residual(k, q, k - q + own)) >= (1.0 - 1e-9) / (1.0 / prior + plays / LAMBDA)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_edges_of_the_residual_are_finite_and_not_negative(dtype):
    prior = torch.tensor([0.0, 1.0, 1.0, 1.0, 1e-30, 2.0], dtype=dtype)
    spanned = torch.tensor([0.0, 0.0, 1.0, 1e-14, 0.0, 2.0 + 1e-6], dtype=dtype)
    variance = torch.tensor([0.0, 1.0, 0.0, 1.0, 1e-30, 1e-9], dtype=dtype, requires_grad=True)
    found = learned_residual(prior, spanned, variance)
    assert bool((found >= 0.0).all())
    assert torch.equal(found[:2], prior[:2])
    assert bool((found <= variance + 1e-6).all())
    (gradient,) = torch.autograd.grad(found.sum(), variance)
    assert bool(gradient.isfinite().all())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("number", [0, 1, 40])
def test_a_loop_learns_the_residual_as_plain_pytorch_does(number, dtype):
    generator = torch.Generator().manual_seed(number)
    shares = torch.rand(3, number, generator=generator, dtype=DOUBLE)
    prior = 2.0 * shares[0]
    spanned = prior * (1.2 * shares[1]).clamp_max(1.0)  # many wholly
    given = [each.to(dtype) for each in (prior, spanned, prior - spanned + (1.2 * shares[2] - 0.1) * spanned)]
    given[0][:1] = given[1][:1] = given[2][:1] = 0.0
    with use_compiled(True):
        found = learned_residual(*given)
    with use_compiled(False):
        expected = learned_residual(*given)
    assert found.dtype == dtype
    assert torch.allclose(found, expected, rtol=100.0 * torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps)


def test_covariances_of_a_learned_residual_are_those_of_its_variances():
    X, Y = data(30, 2)
    T = data(12, 2, seed=5)[0]
    rule = CappedDictionary(UniformDictionary(20), 7, "stop")
    model = NystromGP(X, Y, dictionary=rule, covar_module=rbf(0.4), regularization=LAMBDA)
    assert model.learns_residual
    joint, alone = model.posterior(T), model.posterior(T.unsqueeze(-2))
    wanted = dense_learned(*dense(X), LAMBDA, *dense(model.inducing_points, T))
    assert difference(alone.variance.flatten(), wanted) < 1e-9
    assert difference(joint.variance.flatten(), wanted) < 1e-9
    assert float(torch.linalg.eigvalsh(joint.distribution.covariance_matrix.detach())[0]) > -1e-12
    model.set_dictionary(UniformDictionary(20))
    assert not model.learns_residual


@pytest.mark.usefixtures("short_searches")
@pytest.mark.one_in(4)
@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("candidates", CANDIDATES)
def test_every_belief_and_model_has_the_learned_variance(candidates, rule, memory):
    bandit = played(bandit_of(candidates, rule, memory), 25)
    counts = bandit.weights > 0.0
    X, T = bandit.history.X[counts], data(9, 2, seed=7)[0]
    Z = bandit.inducing_points
    assert len(Z) == CAP
    wanted = dense_learned(*dense(X, LAMBDA / bandit.weights[counts], Z, T))
    assert difference(bandit._belief.moments(T)[1], wanted) < 1e-8
    assert difference(bandit.model.posterior(T.unsqueeze(-2)).variance.flatten(), wanted) < 1e-8
    if candidates == "arms":
        wanted = dense_learned(*dense(X, LAMBDA / bandit.weights[counts], Z, ARMS))
        belief = bandit._belief
        table = belief if hasattr(belief, "variance") else belief.posterior
        assert difference(table.variance, wanted) < 1e-8


@pytest.mark.usefixtures("short_searches")
@pytest.mark.one_in(4)
@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("candidates", CANDIDATES)
def test_given_points_pending_every_belief_and_model_has_the_conditional_variance(candidates, rule, memory):
    """One point twice, one beside it, and one that is in the dictionary; no variance rises."""
    bandit = played(bandit_of(candidates, rule, memory), 25)
    counts = bandit.weights > 0.0
    X, T, Z = bandit.history.X[counts], data(9, 2, seed=7)[0], bandit.inducing_points
    T = ARMS if candidates == "arms" else T
    P = torch.cat([T[:1], T[:1], T[1:2] + 1e-7, Z[:1]])
    C = dense_covariance(*dense(X, LAMBDA / bandit.weights[counts], Z, torch.cat([T, P])))
    n = len(T)
    taken = C[:n, n:] @ np.linalg.solve(C[n:, n:] + LAMBDA * np.eye(len(P)), C[n:, :n])
    wanted = np.diag(C[:n, :n] - taken)
    ahead = bandit._belief.lookahead(P)
    found = ahead.variance if candidates == "arms" else ahead.variance_at(T)
    assert difference(found, wanted) < 1e-8
    before = bandit._belief.lookahead(P[:0])
    assert bool((found <= (before.variance if candidates == "arms" else before.variance_at(T)) + 1e-12).all())
    model = bandit.model.hallucinated(P)
    assert difference(model.posterior(T.unsqueeze(-2)).variance.flatten(), wanted) < 1e-8
    assert difference(model.posterior(T).variance.flatten(), wanted) < 1e-8


# ------------------------------------------------------------------------------------------------ exchanges


@examples(25)
@given(seed=st.integers(0, 10_000), cap=st.integers(1, 8), new=st.integers(1, 6))
def test_new_points_replace_those_that_tell_least(seed, cap, new):
    """Against determinants written out, none of them at the edge of a decision; of equal points the first leaves."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (cap + new, 2))
    counts = rng.integers(1, 5, cap + new).astype(float)
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
    in_dictionary = torch.arange(cap + new) < cap
    points = PlayedPoints(
        torch.tensor(X), rbf(0.4), torch.tensor(LAMBDA, dtype=DOUBLE), torch.tensor(counts),
        torch.full((cap + new,), 1e9, dtype=DOUBLE), in_dictionary, (~in_dictionary).double(),
    )  # fmt: skip
    chosen = CappedDictionary(RidgeLeverageSampling(), cap, "stop").select(points, torch.Generator().manual_seed(0))
    assert chosen.indices.tolist() == sorted(held)


def test_exchanges_are_few_however_many_points_are_offered():
    """Each makes det K_ZZ grow by a tenth, and det K_ZZ <= 1."""
    bandit = bandit_of("actions", "kors")
    sets, bound = [], 0.0
    for number in range(300):
        X = 2.0 * torch.rand(1, 2, generator=torch.Generator().manual_seed(number), dtype=DOUBLE) - 1.0
        bandit.tell(X, reward(X))
        sets.append({tuple(row) for row in bandit.inducing_points.tolist()})
        if len(sets[-1]) == CAP and not bound:
            Z = bandit.inducing_points.numpy()
            bound = -np.linalg.slogdet(DENSE(Z, Z))[1] / np.log(1.1)
    exchanges = sum(len(after - before) for before, after in pairwise(sets) if len(before) == CAP)
    assert 0 < exchanges <= bound


# ------------------------------------------------------------------------------------------------ forgetting


@pytest.mark.parametrize("window", [20, 60])
def test_points_that_no_longer_count_leave_the_dictionary(window):
    """A region that drifts: the dictionary is as large as that of a fresh run on what counts, within 1.3 times."""
    kernel, sizes = rbf(0.3), []
    rng = np.random.default_rng(0)

    def fresh(memory):
        candidates = ContextualActions(action_dim=2, context_dim=0, dtype=DOUBLE)
        return Bandit(
            candidates=candidates,
            kernel=kernel,
            regularization=LAMBDA,
            dictionary=KORS(),
            memory=memory,
            width=ConstantWidth(BETA),
            seed=0,
        )

    bandit, told = fresh(SlidingWindow(window)), []
    for number in range(400):
        x = torch.tensor(rng.uniform(0.0, 1.0, (1, 2)) + 0.01 * number)
        bandit.tell(x, reward(x))
        told.append(x)
        if number % 40 == 39:
            again = fresh(None)
            for each in told[-window:]:
                again.tell(each, reward(each))
            sizes.append((len(bandit.inducing_points), len(again.inducing_points)))
            X = torch.cat(told[-window:])
            counting = (bandit.inducing_points[:, None] == X[None]).all(-1).any(-1)
            assert int((~counting).sum()) <= 1 + len(counting) // 8
    ours, theirs = map(np.array, zip(*sizes, strict=True))
    assert 1.0 / 1.3 < ours.sum() / theirs.sum() < 1.3


@pytest.mark.parametrize("value", ["yes", 1])
def test_words_that_are_no_truth_values_are_refused(value):
    X, Y = data(9, 2)
    with pytest.raises(InputError, match="learns_residual must be True"):
        NystromGP(X, Y, inducing_points=X[:3], covar_module=rbf(), regularization=LAMBDA, learns_residual=value)
    with pytest.raises(InputError, match="learns_residual must be True"):
        CappedDictionary(KORS(), 3, "stop", value)
