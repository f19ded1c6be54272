"""Few arms under a prior on time: the filter is the dense posterior and the joint belief, and bandits stay the same."""

import hypothesis.strategies as st
import numpy as np
import oracles
import pytest
import torch
from hypothesis import given
from problems import DOUBLE, KERNELS, data, dense, difference, examples, rbf

from torch_kbandits import Bandit, ConstantWidth, NumericalError, RidgeLeverageSampling, algorithms, use_compiled
from torch_kbandits.acquisition import ExpectedImprovementRule, ThompsonRule, UpperConfidenceRule
from torch_kbandits.bandit.batches import GlobalBatchRule, LocalBatchRule
from torch_kbandits.bandit.pieces import Pieces
from torch_kbandits.beliefs import CountedBelief, FilteredArms
from torch_kbandits.candidates import Arms, TimedActions
from torch_kbandits.kernels import ForgettingKernel, SpaceTimeKernel
from torch_kbandits.memory import BackToPrior, Discount, KeepAll, SlidingWindow
from torch_kbandits.observations.ledger import History

LAMBDA = 0.05
ARMS = data(12, 2, seed=3)[0]
KERNEL = KERNELS["matern"]


FORGETS = BackToPrior(0.1)
WORDS = {"regularization": LAMBDA, "seed": 3}


def made(candidates, memory=FORGETS, **words):
    words = {"width": ConstantWidth(1.5), "kernel": KERNEL.make()} | words
    return Bandit(candidates=candidates, memory=memory, **words, **WORDS)


def at(arms, times):
    return torch.cat([times.unsqueeze(-1), arms], -1)


def told(belief, X, Y):
    return belief.learned(History(X, Y, torch.zeros(len(X), dtype=torch.long), None, X[:, 0]), None, None)


def expected(x):
    """A prior mean of points (n, d)."""
    return 0.3 * x[:, 0] - 1.0


def within(ours, theirs, oracle):
    return difference(ours, theirs) < oracle.rounding


@examples(20)
@given(
    num_arms=st.integers(1, 9),
    rounds=st.integers(0, 12),
    late=st.floats(0.0, 6.0),
    near=st.booleans(),
    kernel=st.sampled_from(["rbf", "matern", "linear"]),
    forgetting=st.sampled_from([0.0, 0.02, 0.5, 0.999]),
    mean=st.sampled_from([None, expected]),
    enabled=st.booleans(),
    seed=st.integers(0, 10_000),
)
def test_the_filter_is_the_dense_posterior(num_arms, rounds, late, near, kernel, forgetting, mean, enabled, seed):
    """Duplicate and nearly equal arms; times that are late or equal; what is asked about the past; points pending."""
    random, now = np.random.default_rng(seed), rounds + 0.5
    arms = data(num_arms, 2, seed)[0]
    arms = torch.cat([arms, arms[:2], arms[:2] + 1e-9 * near])

    def some(number, time):
        times = torch.tensor(np.round(time - late * random.random(number), 1))
        return at(arms[random.integers(len(arms), size=number)], times)

    def shift(X):
        return torch.zeros(len(X), dtype=DOUBLE) if mean is None else mean(X[:, 1:])

    with use_compiled(enabled):
        bandit = made(Arms(arms), BackToPrior(forgetting), kernel=KERNELS[kernel].make(), mean=mean)
        belief, domain = bandit._belief, bandit.candidates.in_round(None, None, now)
        X, Y = torch.zeros(0, 3, dtype=DOUBLE), torch.zeros(0, dtype=DOUBLE)
        for t in range(rounds):
            news = some(int(random.integers(4)), float(t))
            rewards = torch.tensor(random.standard_normal(len(news)))
            belief, X, Y = told(belief, news, rewards), torch.cat([X, news]), torch.cat([Y, rewards])
        assert isinstance(belief, FilteredArms)
        pending, asked = some(2, float(rounds)), some(5, rounds + 2.0)
        offered = at(arms, torch.full((len(arms),), now, dtype=DOUBLE))
        known, rests, both, T, A = dense(X, Y - shift(X), torch.cat([X, pending]), asked, offered)

        def oracle(X, y, T):
            return oracles.exact(oracles.in_time(KERNELS[kernel].dense, forgetting), X, y, np.full(len(X), LAMBDA), T)

        wanted, at_arms, ahead = oracle(known, rests, T), oracle(known, rests, A), oracle(both, np.zeros(len(both)), A)
        mean_asked, variance_asked = belief.moments(asked)
        assert within(mean_asked - shift(asked), wanted.mean, wanted)
        assert within(variance_asked, wanted.variance.clip(0.0), wanted)
        assert within(belief.covariance_at(now), at_arms.covariance, at_arms)
        looking = belief.lookahead(pending[:1])
        offer = looking.offered(domain)
        assert within(offer.mean - shift(offered), at_arms.mean, at_arms)
        looking.add(pending[1:])
        assert within(looking.offered(domain).variance, ahead.variance.clip(0.0), ahead)
        assert within(belief.lookahead(pending[:0]).offered(domain).variance, at_arms.variance.clip(0.0), at_arms)
        gram = oracles.in_time(KERNELS[kernel].dense, forgetting)(known, known)
        gain = 0.5 * np.linalg.slogdet(np.eye(len(X)) + gram / LAMBDA)[1]
        assert float(belief.information_gain()) == pytest.approx(gain, rel=1e-9, abs=1e-9)

        joint, theirs = belief.joint, belief.joint.lookahead(pending)
        assert torch.equal(belief.inducing_points, joint.inducing_points)
        assert torch.equal(belief.played, joint.played)
        # That belief leaves out points which others span, to rounding.
        for ours, others in ((mean_asked, joint.moments(asked)[0]), (variance_asked, joint.moments(asked)[1])):
            assert difference(ours, others) < 1e-4
        assert difference(looking.pending_scores(), theirs.pending_scores()) < 1e-3
        assert float(looking.variance_ratio()) == pytest.approx(float(theirs.variance_ratio()), rel=1e-3)


def test_many_late_rewards_are_as_if_told_in_order():
    random, empty = np.random.default_rng(0), made(Arms(ARMS))._belief
    times = torch.arange(200, dtype=DOUBLE) - torch.tensor(random.exponential(8.0, 200))
    times[150] = 2.0
    X, Y = at(ARMS[random.integers(len(ARMS), size=200)], times), torch.tensor(random.standard_normal(200))
    late, order = empty, times.argsort()
    for row in range(200):
        late = told(late, X[row : row + 1], Y[row : row + 1])
    at_once, in_order = told(empty, X, Y), told(empty, X[order], Y[order])
    asked = at(ARMS, torch.linspace(0.0, 210.0, len(ARMS), dtype=DOUBLE))
    for one, *others in zip(*(belief.moments(asked) for belief in (late, at_once, in_order)), strict=True):
        assert all(difference(one, other) < 1e-10 for other in others)
    assert float(late.information_gain()) == pytest.approx(float(in_order.information_gain()), rel=1e-10)
    assert late.num_observations == 200


RULES = {
    "ucb": UpperConfidenceRule(),
    "ei": ExpectedImprovementRule(),
    "ts": ThompsonRule(),
}


@pytest.mark.parametrize("rule", RULES)
def test_the_same_choices_as_over_joint_points(rule):
    """Batches that are told out of order, an action twice at a time, points marked as pending, what is recommended."""
    arms = torch.cat([ARMS, ARMS[:1]])
    few, joint = (made(kind, acquisition=RULES[rule]) for kind in (Arms(arms), TimedActions(arms)))
    assert isinstance(few._belief, FilteredArms)
    assert isinstance(joint._belief, CountedBelief)
    joint._belief._place = few._belief._empty._place  # the order in which ties are broken
    for t in range(12):
        both = [each.ask(1 + t % 4, time=0.7 * t) for each in (few, joint)]
        assert torch.equal(*both)
        if t == 5:
            for each in (few, joint):
                each.mark_pending(arms[:2], time=0.7 * t)
        played = torch.cat([both[0], arms[:2]]) if t == 5 else both[0]
        for number, X in enumerate(played.flip(0).split(1)):
            if number != t % 3 or t == 11:
                for each in (few, joint):
                    each.tell(X, torch.cos(4.0 * X.sum() + 0.1 * t), time=0.7 * t)
        if t:
            assert torch.equal(few.recommend(time=0.7 * t), joint.recommend(time=0.7 * t))
        assert difference(few.beta, joint.beta) == 0.0
    assert few.pending_ratio() == pytest.approx(joint.pending_ratio(), rel=1e-6)
    assert few.health() is not None


@pytest.mark.parametrize("rule", [GlobalBatchRule(1.5), LocalBatchRule(1.5)])
def test_batches_are_complete_at_the_same_time(rule):
    few, joint = (made(kind, batches=rule) for kind in (Arms(ARMS), TimedActions(ARMS)))
    joint._belief._place = few._belief._empty._place
    for t in range(4):
        both = [each.ask(None) for each in (few, joint)]
        assert torch.equal(*both)
        for each in (few, joint):
            each.tell(both[0], torch.cos(4.0 * both[0].sum(-1) + 0.1 * t))


def test_points_that_are_no_arms_are_learned_all_the_same(tmp_path):
    few, joint = (made(kind) for kind in (Arms(ARMS), TimedActions(ARMS)))
    joint._belief._place = few._belief._empty._place
    for t in range(6):
        X = few.ask()
        assert torch.equal(joint.ask(), X)
        X = X if t != 3 else torch.full_like(X, 0.3)
        for each in (few, joint):
            each.tell(X, torch.cos(4.0 * X.sum(-1)))
        assert isinstance(few._belief, FilteredArms if t < 3 else CountedBelief)
    few.save(tmp_path / "bandit.kb")
    assert torch.equal(Bandit.load(tmp_path / "bandit.kb").ask(), joint.ask())
    few.restart()
    assert isinstance(few._belief, FilteredArms)


def test_who_gets_a_filter():
    def has_one(candidates, memory=FORGETS, **words):
        return isinstance(made(candidates, memory, **words)._belief, FilteredArms)

    assert has_one(Arms(ARMS))
    assert has_one(Arms(ARMS), BackToPrior(0.0))
    twice = SpaceTimeKernel(KERNEL.make(), ForgettingKernel(0.1))
    assert has_one(Arms(ARMS), kernel=twice)
    assert isinstance(algorithms.TVGPUCB(candidates=ARMS, kernel=KERNEL.make(), **WORDS)._belief, FilteredArms)
    for candidates, memory, words in (
        (Arms(ARMS), BackToPrior(0.1, 0.5), {}),
        (Arms(ARMS), BackToPrior(0.1), {"dictionary": RidgeLeverageSampling(2.0)}),
        (Arms(ARMS.float()), BackToPrior(0.1), {}),
        (Arms(data(513, 2, seed=0)[0]), BackToPrior(0.1), {}),
        (Arms(ARMS), BackToPrior(0.1), {"kernel": SpaceTimeKernel(KERNEL.make(), rbf())}),
    ):
        assert not has_one(candidates, memory, **words)
    assert not has_one(TimedActions(ARMS))


def test_rewards_that_are_too_large_are_refused():
    bandit = made(Arms(ARMS))
    for _ in range(2):
        with pytest.raises(NumericalError, match="not finite"):
            bandit.tell(ARMS[:2], torch.tensor([1.7e308, -1.7e308], dtype=DOUBLE))


COMPARED = {
    "rates": lambda **words: algorithms.DMSTVGPUCB(forgettings=(0.3, 0.05, 0.0), **words),
    "discounts": lambda **words: algorithms.DMSGPUCB(memories=(Discount(0.7), SlidingWindow(6), KeepAll()), **words),
}


@pytest.mark.parametrize("kind", COMPARED)
def test_memories_are_compared_as_by_posteriors_computed_afresh(kind):
    """Rewards come late; all is forgotten once; a bandit that is loaded computes anew what this one has."""

    def one():
        return COMPARED[kind](candidates=ARMS, kernel=KERNEL.make(), beta=1.5, block_size=3, **WORDS)

    bandit, late = one(), None
    for t in range(20):
        x = bandit.ask()
        for point in [x] if t % 7 else [late, x]:
            if point is not None:
                bandit.tell(point, torch.cos(4.0 * point.sum(-1)) * (-1.0) ** (t // 8))
        late = bandit.ask() if t % 7 == 6 else None
        if t == 12:
            bandit.restart()
        afresh = one()
        afresh.load_state_dict(bandit.state_dict())
        assert bandit.memory == afresh.memory
        assert bandit.memory_probabilities == pytest.approx(afresh.memory_probabilities, rel=1e-8, abs=1e-12)
        first = bandit.history.X[:3]
        for ours, theirs in zip(bandit._belief.moments(first), afresh._belief.moments(first), strict=True):
            assert difference(ours, theirs) < 1e-9


@pytest.mark.parametrize("kind", COMPARED)
def test_what_was_compared_is_not_learned_again(kind, monkeypatch):
    """Every posterior goes on from what it was when the block before ended, so a block costs the same in any round."""
    afresh, learned = [], Pieces.learned_in_passes

    def counting(pieces, belief, told, num_learned):
        afresh.append(len(told.X))
        return learned(pieces, belief, told, num_learned)

    monkeypatch.setattr(Pieces, "learned_in_passes", counting)
    bandit = COMPARED[kind](candidates=ARMS, kernel=KERNEL.make(), beta=1.5, block_size=3, **WORDS)
    for t in range(60):
        x = bandit.ask()
        bandit.tell(x, torch.cos(4.0 * x.sum(-1)) * (-1.0) ** (t // 20))
    assert sum(afresh) <= 3 * 3  # the first block, by three posteriors


def test_few_arms_need_drop_nothing():
    def least(**words):
        bandit = algorithms.DMSTVGPUCB(kernel=KERNEL.make(), beta=1.5, **WORDS, **words)
        return {memory.least_correlation for memory in bandit.memories.memories}

    assert least(candidates=ARMS) == {None}
    assert least(candidates=ARMS, least_correlation=0.5) == {0.5}
    assert least(candidates=ARMS.float()) == {1e-3}
    assert least(candidates=ARMS, dictionary=RidgeLeverageSampling(2.0)) == {1e-3}
    assert least(bounds=torch.tensor([[0.0], [1.0]], dtype=DOUBLE)) == {1e-3}
