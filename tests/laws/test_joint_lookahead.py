"""Points pending under a dictionary that only grows: variances are conditional on them until the next reward."""

from functools import partial

import hypothesis.strategies as st
import numpy as np
import oracles
import pytest
import torch
from gpytorch.kernels import RBFKernel
from hypothesis import given
from problems import DOUBLE, as_told, data, dense, difference, exactly, examples, rbf

from torch_kbandits import KORS, ContextualActions, use_compiled
from torch_kbandits.acquisition import Domain, ThompsonRule, UpperConfidenceRule
from torch_kbandits.beliefs import Terms, belief_over
from torch_kbandits.beliefs.joint import JointPosterior
from torch_kbandits.beliefs.joint_lookahead import _Offer
from torch_kbandits.numerics.shallow import shallow_copy

LAMBDA = 0.1
KERNEL = oracles.rbf(0.6)
ARMS = data(25, 2, seed=9)[0]


def told(n=40, seed=0, kernel=None):
    """A belief that learned n rewards, and what it learned."""
    X, Y = data(n, 2, seed)
    candidates = ContextualActions(action_dim=2, context_dim=0)
    belief = belief_over(candidates, Terms(kernel or rbf(0.6), LAMBDA, 0, exact=False, online=True))
    for row in range(n):
        belief = belief.learned(as_told(X[row, None], Y[row]), KORS(0.3), torch.Generator().manual_seed(row))
    return belief, X, Y.squeeze(-1)


def with_pending(belief, X, Y, pending, points=ARMS, kernel=KERNEL):
    """Mean, variance and rounding at points by dense formulas, the latter two with others pending."""
    Z, P, T, X, Y = dense(belief.inducing_points, pending, points, X, Y)
    posterior = partial(oracles.dtc, kernel, X, Y, np.full(len(X), LAMBDA), Z)
    found = oracles.with_pending(posterior, T, P, LAMBDA)
    return found.mean, found.variance, found.rounding


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("n", [1, 40])
@pytest.mark.parametrize("k", [1, 2, 9])
def test_variances_are_conditional_on_pending_points(n, k, enabled):
    belief, X, Y = told(n)
    pending = data(k, 2, seed=3)[0]
    pending[-1] = pending[0]  # a point may be pending twice
    mean, variance, rounding = with_pending(belief, X, Y, pending)
    offer = _Offer(belief.lookahead(pending), Domain(ARMS))
    with use_compiled(enabled):
        assert difference(offer.variance, variance) < rounding
        assert difference(offer.mean, mean) < rounding
        assert difference(offer.mean, _Offer(belief.lookahead(pending[:0]), Domain(ARMS)).mean) == 0.0


@examples(20)
@given(seed=st.integers(0, 10_000), k=st.integers(1, 8), first=st.integers(0, 8))
def test_pending_points_come_one_by_one_or_at_once_in_any_order(seed, k, first):
    belief, _, _ = PREPARED
    generator = torch.Generator().manual_seed(seed)
    pending = torch.rand(k, 2, generator=generator, dtype=DOUBLE)
    if seed % 3 == 0:
        pending = pending[torch.randint(k, (k,), generator=generator)] + 1e-9 * pending
    at_once = belief.lookahead(pending)
    pieces = belief.lookahead(pending[:first])
    for row in range(first, k):
        if row % 2:
            assert pieces.pending_scores().shape == (row,)
        pieces.add(pending[row, None])
    shuffled = belief.lookahead(pending[torch.randperm(k, generator=generator)])
    expected = _Offer(at_once, Domain(ARMS)).variance
    assert difference(_Offer(pieces, Domain(ARMS)).variance, expected) < 1e-9
    assert difference(_Offer(shuffled, Domain(ARMS)).variance, expected) < 1e-9
    assert difference(pieces.pending_scores(), at_once.pending_scores()) < 1e-9
    assert float(pieces.variance_ratio()) == pytest.approx(float(at_once.variance_ratio()), rel=1e-7)
    assert bool((expected >= 0.0).all())


def test_pending_points_are_taken_in_once_by_all_that_look_from_them(monkeypatch):
    belief, _, _ = PREPARED
    taken, plain = list[int](), JointPosterior.hallucinating

    def counted(posterior, points, before=None):
        taken.append(len(points))
        return plain(posterior, points, before)

    monkeypatch.setattr(JointPosterior, "hallucinating", counted)
    known = belief.lookahead(ARMS[:3])
    for point in ARMS[5:8].split(1):
        ahead = shallow_copy(known)
        before = ahead.variance_at(ARMS)
        ahead.add(point)
        afresh = belief.lookahead(torch.cat([ARMS[:3], point]))
        assert difference(ahead.variance_at(ARMS), afresh.variance_at(ARMS)) < 1e-14
        assert difference(known.variance_at(ARMS), before) < 1e-14
    assert taken == [3, 1, 4, 1, 4, 1, 4]


def test_what_batch_rules_read_is_the_dense_formula():
    belief, X, Y = told()
    pending = data(6, 2, seed=3)[0]
    ahead = belief.lookahead(pending)
    _, before, rounding = with_pending(belief, X, Y, pending[:0], pending)
    _, after, _ = with_pending(belief, X, Y, pending, pending)
    assert difference(ahead.pending_scores(), before / LAMBDA) < rounding / LAMBDA
    assert float(ahead.variance_ratio()) == pytest.approx((before / after).max(), rel=1e-7)


def test_the_choice_is_the_best_upper_confidence_bound():
    belief, X, Y = told()
    ahead, beta = belief.lookahead(ARMS[:0]), torch.tensor(2.0, dtype=DOUBLE)
    domain = Domain(arms=ARMS, context=ARMS[0, :0])
    for _ in range(8):
        mean, variance, _ = with_pending(belief, X, Y, ahead.pending)
        chosen = ahead.choose(UpperConfidenceRule(), beta, 0, domain)
        assert torch.equal(chosen, ARMS[int((mean + 2.0 * np.sqrt(variance)).argmax()), None])
        ahead.add(chosen)


@pytest.mark.slow
def test_thompson_draws_have_the_mean_and_covariance_of_the_posterior():
    """4,000 draws at 25 arms: fixed seeds, means and covariances within 6 standard errors; false alarms below 1e-5."""
    belief, X, Y = told(12)
    Z = belief.inducing_points
    posterior = oracles.dtc(KERNEL, *dense(X, Y), np.full(12, LAMBDA), *dense(Z, ARMS))
    offer, number = _Offer(belief.lookahead(ARMS[:0]), Domain(ARMS)), 4_000
    beta = torch.tensor(1.0, dtype=DOUBLE)
    draws = np.stack([ThompsonRule().on_arms(offer, beta, seed).numpy() for seed in range(number)])
    deviation, c = np.sqrt(posterior.variance), posterior.covariance
    assert (np.abs(draws.mean(0) - posterior.mean) < 6.0 * deviation / np.sqrt(number)).all()
    spread = np.sqrt((np.outer(posterior.variance, posterior.variance) + c**2) / number)
    assert (np.abs(np.cov(draws.T) - c) < 6.0 * spread).all()


def test_equal_actions_get_equal_draws_whatever_their_order():
    belief, _, _ = PREPARED
    doubled = torch.cat([ARMS, ARMS[:5]])
    order = torch.randperm(len(doubled))
    plain = _Offer(belief.lookahead(ARMS[:0]), Domain(doubled)).deviation(7)
    assert difference(plain[:5], plain[len(ARMS) :]) == 0.0
    shuffled = _Offer(belief.lookahead(ARMS[:0]), Domain(doubled[order])).deviation(7)
    assert difference(shuffled, plain[order]) < 1e-12


def test_draws_over_many_actions_have_the_marginals_of_the_posterior(monkeypatch):
    """Beyond the limit of joint draws: 200 draws of fixed seeds, 6 standard errors; false alarms below 1e-5 in all."""
    monkeypatch.setattr("torch_kbandits.beliefs.joint_lookahead.JOINT_LIMIT", 10)
    belief, X, Y = told(12)
    posterior = oracles.dtc(KERNEL, *dense(X, Y), np.full(12, LAMBDA), *dense(belief.inducing_points, ARMS))
    offer, number = _Offer(belief.lookahead(ARMS[:0]), Domain(ARMS)), 200
    draws = np.stack([offer.deviation(seed).numpy() for seed in range(number)])
    deviation = np.sqrt(posterior.variance)
    assert (np.abs(draws.mean(0)) < 6.0 * deviation / np.sqrt(number)).all()
    assert (np.abs(draws.var(0) - posterior.variance) < 6.0 * posterior.variance * np.sqrt(2.0 / number)).all()


def test_a_kernel_with_a_scale_of_its_own_for_each_column():
    """A product over context and action: what is pending in one context shrinks what is near in both alone."""
    kernel = (RBFKernel(active_dims=(0,)) * RBFKernel(active_dims=(1,))).double()
    for part, scale in zip(kernel.kernels, (0.2, 0.5), strict=True):
        part.lengthscale = exactly(scale)
    belief, X, Y = told(kernel=kernel)

    def product(A, B):
        return oracles.rbf(0.2)(A[:, :1], B[:, :1]) * oracles.rbf(0.5)(A[:, 1:], B[:, 1:])

    pending = ARMS[:1]
    _, expected, rounding = with_pending(belief, X, Y, pending, kernel=product)
    assert difference(_Offer(belief.lookahead(pending), Domain(ARMS)).variance, expected) < rounding


PREPARED = told()
