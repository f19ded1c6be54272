"""Points that are asked for and not told: what they do to widths, how old they are, and when they are given up."""

from datetime import datetime, timedelta

import numpy as np
import oracles
import pytest
import torch
from forgetting import ACTIONS, ARMS, KERNEL, LAMBDA, make
from problems import dense

from torch_kbandits import Bandit, InputError, ScaledWidth, StateMismatchError
from torch_kbandits.bandit.batches import GlobalBatchRule
from torch_kbandits.confidence import SelfNormalizedWidth
from torch_kbandits.memory import BackToPrior
from torch_kbandits.observations import Expiry


@pytest.mark.parametrize("memory", ["discount", "window", BackToPrior(0.1)], ids=repr)
def test_what_expires_is_as_if_forgotten(memory):
    bandit, twin = make(memory, expire_after=3.0), make(memory)
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
    bandit.ask(time=5.5)
    assert bandit.pending_ids == (3, 4, 5)
    bandit.mark_pending(ARMS[:1], time=6.5)
    assert bandit.pending_ids == (5, 6)


def test_a_reward_that_comes_after_all_is_told_with_its_time():
    bandit = make("discount", expire_after=3.0)
    for time in (0.0, 1.0, 3.0):
        x = bandit.ask(time=time)
    for call in (lambda: bandit.tell(ids=0, y=0.4), lambda: bandit.tell(ids=[1, 0], y=[0.1, 0.4])):
        before = bandit._standing
        with pytest.raises(InputError, match=r"id 0 .* it expired: expire_after=3 drops .* tell\(x, y, time=...\)"):
            call()
        assert bandit._standing is before
    bandit.tell(x, 0.4, time=0.0)
    assert bandit.history.times.tolist() == [0.0]
    assert bandit.pending_ids == (1,)  # x was asked for at 3.0 and is told
    with pytest.raises(InputError, match=r"id 0 .* forgotten already, or it expired"):
        bandit.forget(ids=0)
    plain = make("discount")
    plain.tell(plain.ask(), 0.5)
    with pytest.raises(InputError, match=r"id 0 is not pending: it was told or forgotten already\.$"):
        plain.tell(ids=0, y=0.5)


def test_without_a_clock_rounds_are_counted():
    bandit = make(None, expire_after=2)
    first = bandit.ask(return_ids=True).ids
    bandit.tell(ARMS[:1], 0.1)
    bandit.tell(ARMS[:1], 0.2)
    assert bandit.pending_ids == first
    bandit.tell(ARMS[:1], 0.3)
    assert bandit.pending_ids == ()
    with pytest.raises(InputError, match=r"expire_after=2 drops .*, and tell\(x, y\) learns it late\.$"):
        bandit.tell(ids=first, y=0.2)  # a time would be refused


def test_dates_are_in_seconds():
    bandit, start = make("window", expire_after=3600.0), datetime(2026, 1, 1)
    bandit.ask(time=start)
    bandit.ask(time=start + timedelta(minutes=59))
    bandit.ask(time=start + timedelta(minutes=61))
    assert bandit.pending_ids == (1, 2)
    assert bandit.pending_ages.tolist() == [120.0, 0.0]


def test_a_batch_goes_on_without_what_expired():
    bandit = make("window", batches=GlobalBatchRule(2.0), expire_after=5.0)
    waiting = len(bandit.ask(None, time=0.0))
    with pytest.raises(InputError, match="is complete"):
        bandit.ask(None, time=1.0)
    assert len(bandit.ask(None, time=5.0)) == waiting == len(bandit.pending_ids)


def test_a_saved_bandit_expires_what_it_would_have(tmp_path):
    bandit = make("discount", expire_after=3.0)
    bandit.ask(2, time=0.0)
    bandit.ask(time=2.0)
    bandit.save(tmp_path / "bandit")
    loaded = Bandit.load(tmp_path / "bandit")
    assert loaded.pending_ages.tolist() == [2.0, 2.0, 0.0]
    assert torch.equal(loaded.ask(time=4.0), bandit.ask(time=4.0))
    assert loaded.pending_ids == bandit.pending_ids == (2, 3)
    for other in (None, 4.0):
        with pytest.raises(StateMismatchError, match=r"expire_after"):
            make("discount", expire_after=other).load_state_dict(bandit.state_dict())
    make("discount", expire_after=Expiry(3)).load_state_dict(bandit.state_dict())


@pytest.mark.parametrize("word", [0.0, -1.0, float("nan"), float("inf"), "soon", True, [3.0], timedelta(1)])
def test_what_is_no_age_is_refused(word):
    with pytest.raises(InputError, match="must be a"):
        make("discount", expire_after=word)
    with pytest.raises(InputError, match="must be a"):
        Expiry(word)


def test_what_is_to_become_of_it_is_known():
    with pytest.raises(InputError, match='then must be "drop"'):
        Expiry(3.0, "tell")  # pyright: ignore[reportArgumentType]


# ---------------------------------------------------------------- what they do to widths


@pytest.mark.parametrize("domain", ["arms", "contexts", "box"])
@pytest.mark.parametrize("memory", ["none", "discount"])
def test_the_ratio_is_at_least_that_of_variances_everywhere_and_at_most_of_the_information_gain(memory, domain):
    """Of dense formulas: with k points pending whose rewards are fresh."""
    bandit = make(None if memory == "none" else memory, "exact", domain)
    assert bandit.pending_ratio() == 1.0
    words = {"context": ARMS[0, :1]} if domain == "contexts" else {}
    bandit.tell(ACTIONS[:3] if words else ARMS[:3], [0.3, 0.1, 0.4], **words)
    assert bandit.pending_ratio() == 1.0
    ratios = []
    for row in (5, 5, 2, 4):
        bandit.mark_pending(ACTIONS[[row]] if words else ARMS[[row]], **words)
        history = bandit.history
        pending, X, y, arms = dense(bandit.pending, history.X, history.Y, ARMS)
        noise = np.full(len(X), LAMBDA) if memory == "none" else LAMBDA * 0.8 ** (history.times.numpy() - bandit.now)
        where = np.concatenate([arms, pending])
        known = oracles.exact(KERNEL, X, y, noise, where)
        all_noise = np.concatenate([noise, np.full(len(pending), LAMBDA)])
        both = np.concatenate([X, pending]), np.concatenate([y, np.zeros(len(pending))])
        after = oracles.exact(KERNEL, *both, all_noise, where).variance
        largest, mutual = (known.variance / after).max(), known.covariance[len(arms) :, len(arms) :] / LAMBDA
        ratios.append(bandit.pending_ratio())
        assert largest * (1.0 - 1e-8) <= ratios[-1] <= np.linalg.det(np.eye(len(pending)) + mutual) * (1.0 + 1e-8)
        if domain == "arms":
            assert ratios[-1] == pytest.approx(largest, rel=1e-6)
    assert ratios == sorted(ratios)
    bandit.forget()
    assert bandit.pending_ratio() == 1.0


def test_a_guarantee_is_about_the_next_choice():
    width = SelfNormalizedWidth(noise_scale=0.2, norm_bound=1.0, failure_probability=0.1)
    bandit = make(None, width=width)
    assert not bandit.guarantee().with_status("fails")
    bandit.ask(2)
    ratio = bandit.pending_ratio()
    (failing,) = bandit.guarantee().with_status("fails")
    assert failing.name == "rewards learned at once"
    assert f"√{ratio:.4g}" in failing.sentence
    wide = make(None, width=ScaledWidth(width, 1.01 * ratio**0.5))
    wide.mark_pending(bandit.pending)
    assert not wide.guarantee().with_status("fails")


@pytest.mark.parametrize("memory", [None, "discount", "window", BackToPrior(0.1)], ids=repr)
def test_what_expires_may_count_as_failed(memory):
    """As if it had been told just before the call, in a round of its own."""
    bandit, twin = make(memory, expire_after=Expiry(2.0, "fail")), make(memory)
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
    if bandit.history.times is not None:
        assert torch.equal(bandit.history.times, twin.history.times)
    with pytest.raises(InputError, match="expire_after=2 fails what is pending so long"):
        bandit.tell(ids=lost.ids, y=1.0)
