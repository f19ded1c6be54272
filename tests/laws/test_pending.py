"""Points asked for and not told: variances given them, widths, batches, how old they are and when they are given up."""

import math
from datetime import datetime, timedelta

import pytest
import torch
from forgetting import ARMS as FEW_ARMS
from forgetting import make as timed
from gpytorch.kernels import LinearKernel
from kinds import ARMS, composed, make, same
from problems import DOUBLE, in_a_file, rbf, reward

import torch_kbandits as kb
from torch_kbandits.bandit import GlobalBatchRule, LocalBatchRule, StayRule
from torch_kbandits.confidence import SelfNormalizedWidth
from torch_kbandits.memory import TemporalPrior
from torch_kbandits.observations import Expiry

LAMBDA = 0.05
UNIT = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)


def test_a_guarantee_is_about_the_next_choice():
    width = SelfNormalizedWidth(noise_scale=0.2, norm_bound=1.0, failure_probability=0.1)
    bandit = timed(None, width=width)
    assert not bandit.guarantee().with_status("fails")
    bandit.ask(2)
    ratio = bandit.pending_variance_ratio()
    (failing,) = bandit.guarantee().with_status("fails")
    assert failing.name == "rewards learned at once"
    assert f"√{ratio:.4g}" in failing.sentence
    wide = timed(None, width=kb.ScaledWidth(width, 1.01 * ratio**0.5))
    wide.mark_pending(bandit.pending)
    assert not wide.guarantee().with_status("fails")


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
        with pytest.raises(
            kb.InputError, match=rf"The batch of {len(X)} point\(s\) is complete: tell the {len(X)} pend"
        ):
            bandit.ask(None)
        assert len(bandit.ask(2)) == 2  # but who has idle workers may go on
        bandit.forget(ids=bandit.pending_ids[-2:])
        bandit.tell(X, reward(X))
        assert bandit.model.num_observations == bandit.num_observations


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


@pytest.mark.one_in(2)
@pytest.mark.parametrize("memory", [None, TemporalPrior(0.1)], ids=["all", "prior on time"])
@pytest.mark.parametrize("dictionary", [None, kb.RidgeLeverageSampling(1.0)], ids=["exact", "dictionary"])
@pytest.mark.parametrize("rule", [GlobalBatchRule(2.0), LocalBatchRule(2.0), StayRule(4.0)], ids=repr)
def test_rewards_told_one_by_one_count_when_the_batch_is_complete(rule, dictionary, memory):
    memory = None if isinstance(rule, StayRule) else memory  # which plays a point that is another in each round
    at_once, one_by_one = (batching(rule, dictionary=dictionary, memory=memory) for _ in range(2))
    for number in range(6):
        when = {} if memory is None else {"time": float(number)}
        X = at_once.ask(None, **when)
        at_once.tell(X, reward(X))
        for row in range(len(X)):
            x, learned = one_by_one.ask(**when), one_by_one.model.num_observations
            assert torch.equal(x, X[row, None])
            one_by_one.tell(x, reward(x))
            complete = row == len(X) - 1
            assert one_by_one.model.num_observations == (one_by_one.num_observations if complete else learned)
        assert torch.equal(one_by_one.inducing_points, at_once.inducing_points)


def test_an_arm_of_which_all_is_known_ends_the_batch():
    """A linear function vanishes at the origin: its variance there is 0 from the start."""
    arms = torch.linspace(0.0, 1.0, 11, dtype=DOUBLE).unsqueeze(-1)
    for name, words in (("mini-gp-ucb", {}), ("bbkb", {}), ("bbkb", {"batch_rule": "local"})):
        bandit = make(name, candidates=arms, kernel=LinearKernel().double(), **words)
        for _ in range(4):
            X = bandit.ask(None)
            bandit.tell(X, -X[:, 0])
        assert bandit.model.num_observations == bandit.num_observations
        assert float(bandit.recommend()) == 0.0


@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize(
    "candidates",
    [
        kb.Arms(ARMS),
        kb.Arms(in_a_file(ARMS)),
        kb.Box(UNIT),
        kb.ContextualActions(ARMS, context_dim=0),
    ],
    ids=["arms", "file", "box", "actions"],
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


@pytest.mark.parametrize("memory", ["discount", "window", TemporalPrior(0.1)], ids=repr)
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
        with pytest.raises(kb.InputError, match=r"id 0 .* it expired: expire_after=3 drops .* tell\(x, y, time=...\)"):
            bandit.tell(ids=ids, y=y)
        assert same(bandit.state_dict(), before)
    bandit.tell(x, 0.4, time=0.0)
    assert (bandit.history.times.tolist(), bandit.pending_ids) == ([0.0], (1,))  # x was asked for at 3.0 and is told
    with pytest.raises(kb.InputError, match=r"id 0 .* forgotten already, or it expired"):
        bandit.forget(ids=0)


def test_ages_are_rounds_without_a_clock_and_seconds_of_dates():
    bandit = timed(None, expire_after=2)
    first = bandit.ask(details=True).ids
    for y in (0.1, 0.2):
        bandit.tell(FEW_ARMS[:1], y)
    assert bandit.pending_ids == first
    bandit.tell(FEW_ARMS[:1], 0.3)
    with pytest.raises(kb.InputError, match=r"expire_after=2 drops .*, and tell\(x, y\) learns it late\.$"):
        bandit.tell(ids=first, y=0.2)  # a time would be refused
    dated, start = timed("window", expire_after=3600.0), datetime(2026, 1, 1)
    for minutes in (0, 59, 61):
        dated.ask(time=start + timedelta(minutes=minutes))
    assert (dated.pending_ids, dated.pending_ages.tolist()) == ((1, 2), [120.0, 0.0])


def test_a_batch_goes_on_without_what_expired_and_expiry_belongs_to_a_state():
    bandit = timed("window", batches=GlobalBatchRule(2.0), expire_after=5.0)
    waiting = len(bandit.ask(None, time=0.0))
    with pytest.raises(kb.InputError, match="is complete"):
        bandit.ask(None, time=1.0)
    assert len(bandit.ask(None, time=5.0)) == waiting == len(bandit.pending_ids)
    state = timed("discount", expire_after=3.0).state_dict()
    for other in (None, 4.0):
        with pytest.raises(kb.StateMismatchError, match=r"expire_after"):
            timed("discount", expire_after=other).load_state_dict(state)
    timed("discount", expire_after=Expiry(3)).load_state_dict(state)
    for word in (0.0, float("inf"), "soon", [3.0], timedelta(1)):
        with pytest.raises(kb.InputError, match="must be a"):
            timed("discount", expire_after=word)
    with pytest.raises(kb.InputError, match='then must be "drop"'):
        Expiry(3.0, "tell")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("memory", [None, "discount", "window", TemporalPrior(0.1)], ids=repr)
def test_what_expires_may_count_as_failed(memory):
    """As if it had been told just before the call, in a round of its own."""
    bandit, twin = timed(memory, expire_after=Expiry(2.0, "fail")), timed(memory)
    for each in (bandit, twin):
        lost = each.ask(details=True)
        for _ in range(2):
            each.tell(each.ask(), 0.5)
    twin.tell(ids=lost.ids, failed=True)
    seen = bandit.ask(remember=False)  # a look learns it, too, and keeps nothing
    assert bandit.num_observations == 2
    assert torch.equal(bandit.ask(), twin.ask())
    assert torch.equal(seen, bandit.candidates.actions(bandit.pending[-1:]))
    assert torch.equal(bandit.history.X, twin.history.X)
    assert bandit.history.lost.tolist() == [False, False, True]
    assert memory is None or torch.equal(bandit.history.times, twin.history.times)
    with pytest.raises(kb.InputError, match="expire_after=2 fails what is pending so long"):
        bandit.tell(ids=lost.ids, y=1.0)
