"""Points asked for and not told: variances given them, widths, batches, how old they are and when they are given up."""

import math
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np
import oracles
import pytest
import torch
from forgetting import ARMS as FEW_ARMS
from forgetting import make as timed
from gpytorch.kernels import LinearKernel
from kinds import ARMS, composed, make, same
from problems import DOUBLE, data, dense, difference, linear, rbf, reward

from torch_kbandits import (
    ArmBlocks,
    Arms,
    Bandit,
    Box,
    ContextualActions,
    GreedyDictionary,
    InputError,
    RidgeLeverageSampling,
    ScaledWidth,
    StateMismatchError,
)
from torch_kbandits.acquisition import ExpectedImprovementRule, ProbabilityOfImprovementRule
from torch_kbandits.bandit import GlobalBatchRule, LocalBatchRule, StayRule
from torch_kbandits.confidence import SelfNormalizedWidth
from torch_kbandits.memory import BackToPrior, Linear, SlidingWindow, UncertaintyInjection
from torch_kbandits.observations import Expiry

LAMBDA, BETA = 0.05, 1.5
UNIT = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)
CONTEXTS = data(20, 1, seed=5)[0]
RBF = oracles.rbf(0.3)
FEW = {"oversampling": 0.3}
AGEING = UncertaintyInjection(Linear(0.01))


class Case(NamedTuple):
    """A bandit, the actions among which its choice is compared, whether there are contexts, and its dense kernel."""

    make: Callable[[], Bandit]
    actions: torch.Tensor = ARMS
    has_contexts: bool = False
    kernel: oracles.DenseKernel = RBF


def in_contexts(name, **words):
    actions = ARMS[:, :1]
    return Case(lambda: make(name, candidates=ContextualActions(actions, context_dim=1), **words), actions, True)


CENTRED = data(60, 4)[0] - 0.3
CASES = {
    "arms, BKB": Case(lambda: make("bkb", **FEW)),
    "arms, exact": Case(lambda: make("igp-ucb")),
    "arms, batches": Case(lambda: make("bbkb", **FEW)),
    "arms, window": Case(lambda: make("bkb", memory=SlidingWindow(2), **FEW)),
    "arms, exact, window": Case(lambda: make("sw-gp-ucb", window=2.0)),
    "arms, ageing": Case(lambda: make("bkb", memory=AGEING, **FEW)),
    "arms, exact, ageing": Case(lambda: make("ui-gp-ucb")),
    "arms, more points than needed": Case(
        lambda: make("bkb", candidates=CENTRED, kernel=linear(0.7)), CENTRED, kernel=oracles.linear(0.7)
    ),
    "contexts, EK-UCB": in_contexts("ek-ucb", **FEW),
    "contexts, batches": in_contexts("cbbkb", **FEW),
    "contexts, exact": in_contexts("k-ucb"),
    "contexts, window": in_contexts("bkb", memory=SlidingWindow(2), **FEW),
    "contexts, ageing": in_contexts("ek-ucb", memory=AGEING, **FEW),
    "timed": Case(lambda: make("tv-gp-ucb", forgetting=0.1), kernel=oracles.in_time(RBF, 0.1)),
}


def with_pending(case):
    """Play, and show the bandit again and again: with 0 to 5 points pending, and as they are told out of order."""
    bandit = case.make()
    for number in range(3):
        words = {"context": CONTEXTS[number]} if case.has_contexts else {}
        asked = bandit.ask(3, return_ids=True, **words)
        yield bandit, words
        bandit.ask(2, **words)
        yield bandit, words
        bandit.tell(ids=[asked.ids[2], asked.ids[0]], y=reward(asked.actions[[2, 0]]))
        yield bandit, words
        bandit.forget()
        yield bandit, words


def dense_moments(bandit, case, points):
    """Mean and variance from all that counts, the dictionary, and what is outstanding, given which the latter is."""
    counts, history = bandit.weights > 0.0, bandit.history
    held = history.X[bandit.state_dict()["num_learned"] :]
    X, y, P, T = dense(history.X[counts], history.Y[counts], torch.cat([held, bandit.pending]), points)
    noise = (LAMBDA / bandit.weights[counts]).numpy()

    def posterior(T):
        if bandit.dictionary is None:
            return oracles.exact(case.kernel, X, y, noise, T)
        (Z,) = dense(bandit.inducing_points)
        if case.kernel is not RBF and len(Z):  # any basis of what they span
            singular, directions = np.linalg.svd(Z, full_matrices=False)[1:]
            Z = directions[singular > 1e-10 * singular[0]]
        return oracles.dtc(case.kernel, X, y, noise, Z, T)

    found = oracles.with_pending(posterior, T, P, LAMBDA)
    return found.mean, np.maximum(found.variance, 0.0)


def assert_largest(bandit, words, values, tolerance=1e-8):
    """What is asked for next has the largest of the values (A,) of the acquisition, to rounding."""
    x = bandit.ask(remember=False, **words)
    value = float(bandit.acquisition(**words)(x.unsqueeze(-2)))
    assert value >= float(values.max()) - tolerance * max(1.0, abs(value))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", CASES)
def test_variances_are_conditional_on_pending_points_and_the_largest_bound_is_asked_for(name):
    case, seen = CASES[name], 0
    for bandit, words in with_pending(case):
        joint = case.actions
        if case.has_contexts:
            joint = torch.cat([words["context"].expand(len(joint), -1), joint], dim=-1)
        if name == "timed":
            joint = torch.cat([torch.full_like(joint[:, :1], bandit.now), joint], dim=-1)
        mean, variance = dense_moments(bandit, case, joint)
        values = bandit.acquisition(**words)(case.actions.unsqueeze(-2)).detach()
        assert difference(values, mean + BETA * np.sqrt(variance)) < 1e-7
        assert_largest(bandit, words, values)
        seen = max(seen, len(bandit.pending))
    assert seen >= 5


@pytest.mark.one_in(2)
@pytest.mark.parametrize("rule", [ExpectedImprovementRule(), ProbabilityOfImprovementRule()])
@pytest.mark.parametrize("context_dim", [None, 0, 1])
def test_the_largest_improvement_is_asked_for(rule, context_dim):
    """In contexts of so many columns, and on arms of which observations age."""
    actions, memory = ARMS[:, context_dim or 0 :], AGEING if context_dim is None else None
    candidates = ContextualActions(actions, context_dim=context_dim or 0) if memory is None else Arms(ARMS)
    words = {"kernel": rbf(0.3), "dictionary": RidgeLeverageSampling(0.3), "memory": memory, "width": None}
    case = Case(lambda: composed(candidates=candidates, acquisition=rule, **words), actions, context_dim == 1)
    for bandit, offered in with_pending(case):
        assert_largest(bandit, offered, bandit.acquisition(**offered)(actions.unsqueeze(-2)))


@pytest.mark.parametrize("domain", ["arms", "contexts", "box"])
@pytest.mark.parametrize("memory", ["none", "discount"])
def test_the_ratio_is_at_least_that_of_variances_everywhere_and_at_most_of_the_information_gain(memory, domain):
    """Of dense formulas: with k points pending whose rewards are fresh."""
    bandit = timed(None if memory == "none" else memory, "exact", domain)
    words, start = ({"context": FEW_ARMS[0, :1]}, 1) if domain == "contexts" else ({}, 0)
    bandit.tell(FEW_ARMS[:3, start:], [0.3, 0.1, 0.4], **words)
    ratios = [bandit.pending_ratio()]
    for row in (5, 5, 2, 4):
        bandit.mark_pending(FEW_ARMS[[row], start:], **words)
        history = bandit.history
        pending, X, y, arms = dense(bandit.pending, history.X, history.Y, FEW_ARMS)
        noise = np.full(len(X), LAMBDA) if memory == "none" else LAMBDA * 0.8 ** (history.times.numpy() - bandit.now)
        kernel, where = oracles.matern52(0.5, 1.7), np.concatenate([arms, pending])
        known = oracles.exact(kernel, X, y, noise, where)
        all_noise = np.concatenate([noise, np.full(len(pending), LAMBDA)])
        both = np.concatenate([X, pending]), np.concatenate([y, np.zeros(len(pending))])
        after = oracles.exact(kernel, *both, all_noise, where).variance
        largest, mutual = (known.variance / after).max(), known.covariance[len(arms) :, len(arms) :] / LAMBDA
        ratios.append(bandit.pending_ratio())
        assert largest * (1.0 - 1e-8) <= ratios[-1] <= np.linalg.det(np.eye(len(pending)) + mutual) * (1.0 + 1e-8)
        assert domain != "arms" or ratios[-1] == pytest.approx(largest, rel=1e-6)
    assert ratios == sorted(ratios)
    bandit.forget()
    assert bandit.pending_ratio() == ratios[0] == 1.0


def test_a_guarantee_is_about_the_next_choice():
    width = SelfNormalizedWidth(noise_scale=0.2, norm_bound=1.0, failure_probability=0.1)
    bandit = timed(None, width=width)
    assert not bandit.guarantee().with_status("fails")
    bandit.ask(2)
    ratio = bandit.pending_ratio()
    (failing,) = bandit.guarantee().with_status("fails")
    assert failing.name == "rewards learned at once"
    assert f"√{ratio:.4g}" in failing.sentence
    wide = timed(None, width=ScaledWidth(width, 1.01 * ratio**0.5))
    wide.mark_pending(bandit.pending)
    assert not wide.guarantee().with_status("fails")


@pytest.mark.parametrize("name", ["ek-ucb", "gp-ts", "bkb", "bbkb"])
def test_points_marked_as_pending_count_like_points_asked_for(name):
    asking, marking = make(name), make(name)
    for t in range(4):
        assert marking.mark_pending(asking.ask()) == (t,)
        for bandit in (asking, marking):
            bandit.tell(ids=t, y=0.1 * t)
    assert marking.mark_pending(asking.ask(3)) == (4, 5, 6)
    assert torch.equal(marking.pending, asking.pending)
    assert torch.equal(marking.ask(2), asking.ask(2))


# ---------------------------------------------------------------- batches


def batching(rule, **words):
    return composed(kernel=rbf(0.3), batches=rule, **words)


@pytest.mark.parametrize("rule", [GlobalBatchRule(2.0), GlobalBatchRule(5.0), LocalBatchRule(1.5), LocalBatchRule(3.0)])
def test_a_batch_ends_when_its_scores_exceed_the_threshold_or_a_variance_has_shrunk_enough(rule):
    bandit = batching(rule)
    for _ in range(5):
        model, points = bandit.model, ARMS.unsqueeze(-2)
        X = bandit.ask(None)
        if isinstance(rule, GlobalBatchRule):
            ratios = (1.0 + (model.posterior(X.unsqueeze(-2)).variance.flatten() / LAMBDA).cumsum(0)).tolist()
        else:
            before, ratios = model.posterior(points).variance.flatten(), []
            for size in range(1, len(X) + 1):
                after = model.condition_on_observations(X[:size], torch.zeros(size, 1, dtype=DOUBLE))
                ratios.append(float((before / after.posterior(points).variance.flatten()).max()))
        assert max(ratios[:-1], default=1.0) <= rule.threshold < ratios[-1]
        with pytest.raises(InputError, match=rf"The batch of {len(X)} point\(s\) is complete: tell the {len(X)} pend"):
            bandit.ask(None)
        assert len(bandit.ask(2)) == 2  # but who has idle workers may go on
        bandit.forget(ids=bandit.pending_ids[-2:])
        bandit.tell(X, reward(X))
        assert bandit.model.num_observations == bandit.num_told


def test_staying_plays_an_arm_until_its_variance_has_shrunk():
    """⌊(C − 1)/τ⌋ plays: with τ = σ²/λ the variance then is at most σ²/C · (1 + τ), and with one more below σ²/C."""
    bandit = batching(StayRule(9.0))
    bandit.tell(ARMS[:15], reward(ARMS[:15]))
    for _ in range(6):
        model, X = bandit.model, bandit.ask(None)
        assert bool((X[0] == X).all())
        variance = float(model.posterior(X[:1]).variance)
        assert len(X) == max(1, math.floor(8.0 / (variance / LAMBDA)))
        bandit.tell(X, reward(X))
        assert float(bandit.model.posterior(X[:1]).variance) < variance / 9.0 * (1.0 + variance / LAMBDA)


@pytest.mark.parametrize("dictionary", [None, RidgeLeverageSampling(1.0)], ids=["exact", "dictionary"])
@pytest.mark.parametrize("rule", [GlobalBatchRule(2.0), LocalBatchRule(2.0), StayRule(4.0)], ids=repr)
def test_rewards_told_one_by_one_count_when_the_batch_is_complete(rule, dictionary):
    at_once, one_by_one = (batching(rule, dictionary=dictionary) for _ in range(2))
    for _ in range(6):
        X = at_once.ask(None)
        at_once.tell(X, reward(X))
        for row in range(len(X)):
            x, learned = one_by_one.ask(), one_by_one.model.num_observations
            assert torch.equal(x, X[row, None])
            one_by_one.tell(x, reward(x))
            complete = row == len(X) - 1
            assert one_by_one.model.num_observations == (one_by_one.num_told if complete else learned)
        assert torch.equal(one_by_one.inducing_points, at_once.inducing_points)


def test_an_arm_of_which_all_is_known_ends_the_batch():
    """A linear function vanishes at the origin: its variance there is 0 from the start."""
    arms = torch.linspace(0.0, 1.0, 11, dtype=DOUBLE).unsqueeze(-1)
    for name, words in (("mini-gp-ucb", {}), ("bbkb", {}), ("bbkb", {"batch_rule": "local"})):
        bandit = make(name, candidates=arms, kernel=LinearKernel().double(), **words)
        for _ in range(4):
            X = bandit.ask(None)
            bandit.tell(X, -X[:, 0])
        assert bandit.model.num_observations == bandit.num_told
        assert float(bandit.recommend()) == 0.0


@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize(
    "candidates",
    [Arms(ARMS), Arms(ArmBlocks(ARMS.split(20).__getitem__, 3)), Box(UNIT), ContextualActions(ARMS, context_dim=0)],
    ids=["arms", "blocks", "box", "actions"],
)
def test_a_point_that_may_not_be_played_is_not_played_again(candidates):
    """Logged data may have points that are no arms, or outside the box. Others are."""
    bandit = batching(StayRule(81.0), candidates=candidates)
    stranger = torch.full((1, 2), 1.5, dtype=DOUBLE)
    bandit.tell(stranger, 0.0)
    assert bandit.model.num_observations == 1  # nobody waits for more of it
    bandit.mark_pending(stranger)
    first = bandit.ask()
    assert not bool((first == stranger).all())
    bandit.forget()
    bandit.tell(first, 0.0)
    assert bandit.model.num_observations == 1
    assert torch.equal(bandit.ask(), first)  # as before


def test_an_incomplete_batch_of_a_dictionary_and_thresholds_that_end_every_batch():
    bandit = batching(GlobalBatchRule(100.0), dictionary=GreedyDictionary(3))
    bandit.tell(bandit.ask(2), [0.1, 0.2])
    assert (bandit.model.num_observations, bandit.weights.tolist()) == (0, [0.0, 0.0])
    for rule in (GlobalBatchRule, LocalBatchRule, StayRule):
        with pytest.raises(InputError, match="threshold must be above 1"):
            rule(1.0)
        with pytest.raises(InputError, match="threshold must be a finite number"):
            rule(float("nan"))


# ---------------------------------------------------------------- when they are given up


@pytest.mark.parametrize("memory", ["discount", "window", BackToPrior(0.1)], ids=repr)
def test_what_expires_is_as_if_forgotten(memory):
    bandit, twin = timed(memory, expire_after=3.0), timed(memory)
    for time in (0.0, 1.0, 2.5):
        x = bandit.ask(time=time)
        assert torch.equal(twin.ask(time=time), x)
    assert bandit.pending_ages.tolist() == [2.5, 1.5, 0.0]
    twin.forget(ids=0)
    for each in (bandit, twin):  # looking drops nothing for good, and looks at what an ask would
        each.acquisition(time=3.5)
    assert torch.equal(bandit.ask(time=3.5, remember=False), twin.ask(time=3.5, remember=False))
    assert bandit.pending_ids == (0, 1, 2)
    assert torch.equal(bandit.ask(2, time=3.5), twin.ask(2, time=3.5))
    assert bandit.pending_ids == twin.pending_ids == (1, 2, 3, 4)
    bandit.mark_pending(FEW_ARMS[:1], time=5.6)
    assert bandit.pending_ids == (3, 4, 5)


def test_a_reward_that_comes_after_all_is_told_with_its_time():
    bandit = timed("discount", expire_after=3.0)
    for time in (0.0, 1.0, 3.0):
        x = bandit.ask(time=time)
    for ids, y in ((0, 0.4), ([1, 0], [0.1, 0.4])):
        before = bandit.state_dict()
        with pytest.raises(InputError, match=r"id 0 .* it expired: expire_after=3 drops .* tell\(x, y, time=...\)"):
            bandit.tell(ids=ids, y=y)
        assert same(bandit.state_dict(), before)
    bandit.tell(x, 0.4, time=0.0)
    assert (bandit.history.times.tolist(), bandit.pending_ids) == ([0.0], (1,))  # x was asked for at 3.0 and is told
    with pytest.raises(InputError, match=r"id 0 .* forgotten already, or it expired"):
        bandit.forget(ids=0)


def test_ages_are_rounds_without_a_clock_and_seconds_of_dates():
    bandit = timed(None, expire_after=2)
    first = bandit.ask(return_ids=True).ids
    for y in (0.1, 0.2):
        bandit.tell(FEW_ARMS[:1], y)
    assert bandit.pending_ids == first
    bandit.tell(FEW_ARMS[:1], 0.3)
    with pytest.raises(InputError, match=r"expire_after=2 drops .*, and tell\(x, y\) learns it late\.$"):
        bandit.tell(ids=first, y=0.2)  # a time would be refused
    dated, start = timed("window", expire_after=3600.0), datetime(2026, 1, 1)
    for minutes in (0, 59, 61):
        dated.ask(time=start + timedelta(minutes=minutes))
    assert (dated.pending_ids, dated.pending_ages.tolist()) == ((1, 2), [120.0, 0.0])


def test_a_batch_goes_on_without_what_expired():
    bandit = timed("window", batches=GlobalBatchRule(2.0), expire_after=5.0)
    waiting = len(bandit.ask(None, time=0.0))
    with pytest.raises(InputError, match="is complete"):
        bandit.ask(None, time=1.0)
    assert len(bandit.ask(None, time=5.0)) == waiting == len(bandit.pending_ids)


def test_a_saved_bandit_expires_what_it_would_have(tmp_path):
    bandit = timed("discount", expire_after=3.0)
    bandit.ask(2, time=0.0)
    bandit.ask(time=2.0)
    bandit.save(tmp_path / "bandit")
    loaded = Bandit.load(tmp_path / "bandit")
    assert torch.equal(loaded.ask(time=4.0), bandit.ask(time=4.0))
    assert loaded.pending_ids == bandit.pending_ids == (2, 3)
    for other in (None, 4.0):
        with pytest.raises(StateMismatchError, match=r"expire_after"):
            timed("discount", expire_after=other).load_state_dict(bandit.state_dict())
    timed("discount", expire_after=Expiry(3)).load_state_dict(bandit.state_dict())
    for word in (0.0, -1.0, float("nan"), float("inf"), "soon", True, [3.0], timedelta(1)):
        with pytest.raises(InputError, match="must be a"):
            timed("discount", expire_after=word)
    with pytest.raises(InputError, match='then must be "drop"'):
        Expiry(3.0, "tell")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("memory", [None, "discount", "window", BackToPrior(0.1)], ids=repr)
def test_what_expires_may_count_as_failed(memory):
    """As if it had been told just before the call, in a round of its own."""
    bandit, twin = timed(memory, expire_after=Expiry(2.0, "fail")), timed(memory)
    for each in (bandit, twin):
        lost = each.ask(return_ids=True)
        for _ in range(2):
            each.tell(each.ask(), 0.5)
    twin.tell(ids=lost.ids, failed=True)
    seen = bandit.ask(remember=False)  # a look learns it, too, and keeps nothing
    assert bandit.num_told == 2
    assert torch.equal(bandit.ask(), twin.ask())
    assert torch.equal(seen, bandit.candidates.actions(bandit.pending[-1:]))
    assert torch.equal(bandit.history.X, twin.history.X)
    assert bandit.history.lost.tolist() == [False, False, True]
    assert memory is None or torch.equal(bandit.history.times, twin.history.times)
    with pytest.raises(InputError, match="expire_after=2 fails what is pending so long"):
        bandit.tell(ids=lost.ids, y=1.0)
