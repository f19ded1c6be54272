"""Batch rules: when a batch ends, what is known meanwhile, and that rewards kept aside are not lost."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from problems import DOUBLE, data, difference, examples, rbf

from torch_kbandits import ArmBlocks, Bandit, Box, ConstantWidth, InputError, RidgeLeverageSampling, algorithms
from torch_kbandits.bandit.batches import GlobalBatchRule, LocalBatchRule, StayRule
from torch_kbandits.candidates import Arms, ContextualActions

ARMS = data(60, 2)[0]
LAMBDA = 0.05


def reward(X):
    return torch.sin(5.0 * X).sum(-1)


def bandit_with(batches, seed=0, dictionary=None):
    words = {"kernel": rbf(0.3), "regularization": LAMBDA, "width": ConstantWidth(1.5), "seed": seed}
    return Bandit(candidates=Arms(ARMS), batches=batches, dictionary=dictionary, **words)


@examples(12)
@given(seed=st.integers(0, 1000), threshold=st.sampled_from([1.2, 2.0, 5.0]))
def test_the_global_rule_ends_a_batch_when_its_scores_exceed_the_threshold(seed, threshold):
    bandit = algorithms.BBKB(
        candidates=ARMS, kernel=rbf(0.3), regularization=LAMBDA, beta=1.5, batch_threshold=threshold, seed=seed
    )
    sizes = []
    for _ in range(6):
        model = bandit.model
        X = bandit.ask(q=None)
        scores = model.posterior(X.unsqueeze(-2)).variance.flatten() / LAMBDA
        totals = 1.0 + scores.cumsum(0)
        assert bool((totals[:-1] <= threshold).all())
        assert float(totals[-1]) > threshold
        bandit.tell(X, reward(X))
        assert bandit.model.num_observations == len(bandit.history.X)
        sizes.append(len(X))
    assert sizes[0] == 1  # a prior variance is far above λ
    assert sizes[-1] >= sizes[0]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("threshold", [1.5, 3.0])
def test_the_local_rule_ends_a_batch_when_a_variance_has_shrunk_enough(threshold):
    bandit = bandit_with(LocalBatchRule(threshold))
    for _ in range(5):
        before = bandit.model.posterior(ARMS.unsqueeze(-2)).variance.flatten()
        X = bandit.ask(q=None)
        model = bandit.model
        ratios = []
        for size in range(1, len(X) + 1):
            after = model.condition_on_observations(X[:size], torch.zeros(size, 1, dtype=DOUBLE))
            ratios.append(float((before / after.posterior(ARMS.unsqueeze(-2)).variance.flatten()).max()))
        assert max(ratios[:-1], default=1.0) <= threshold
        assert ratios[-1] > threshold
        bandit.tell(X, reward(X))


def test_local_batches_are_never_shorter_than_global_ones():
    for seed in range(5):
        longer, shorter = bandit_with(LocalBatchRule(2.0), seed), bandit_with(GlobalBatchRule(2.0), seed)
        for bandit in (longer, shorter):
            bandit.tell(ARMS[:10], reward(ARMS[:10]))
        X = longer.ask(q=None)
        assert torch.equal(shorter.ask(q=None), X[: len(shorter.pending)])


@pytest.mark.one_in(6)
@pytest.mark.parametrize("dictionary", [None, RidgeLeverageSampling(1.0)])
@pytest.mark.parametrize("batches", [GlobalBatchRule(2.0), LocalBatchRule(2.0), StayRule(4.0)])
def test_rewards_told_one_by_one_count_when_the_batch_is_complete(batches, dictionary):
    at_once, one_by_one = (bandit_with(batches, dictionary=dictionary) for _ in range(2))
    for _ in range(4 if dictionary is None else 8):
        X = at_once.ask(q=None)
        at_once.tell(X, reward(X))
        for row in range(len(X)):
            x = one_by_one.ask()
            assert torch.equal(x, X[row, None])
            belief = one_by_one.model.num_observations
            one_by_one.tell(x, reward(x))
            complete = row == len(X) - 1
            assert one_by_one.model.num_observations == (len(one_by_one.history.X) if complete else belief)
        assert torch.equal(one_by_one.inducing_points, at_once.inducing_points)
    assert difference(one_by_one._belief.mean, at_once._belief.mean) < 1e-9
    assert torch.equal(one_by_one.history.Y, at_once.history.Y)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("batches", [GlobalBatchRule(6.0), LocalBatchRule(6.0), StayRule(9.0)])
def test_a_state_saved_within_a_batch_continues(batches):
    bandit, twin = bandit_with(batches), bandit_with(batches)
    X = bandit.ask(q=None)
    bandit.tell(X, reward(X))
    bandit.tell(ARMS[:10], reward(ARMS[:10]))
    x = bandit.ask(3)
    bandit.tell(x[1:2], reward(x[1:2]))
    twin.load_state_dict(bandit.state_dict())
    for _ in range(8):
        a, b = bandit.ask(), twin.ask()
        assert torch.equal(a, b)
        bandit.tell(a, reward(a))
        twin.tell(b, reward(b))
    assert bandit.model.num_observations == twin.model.num_observations


def test_staying_plays_an_arm_until_its_variance_has_shrunk():
    """⌊(C − 1)/τ⌋ plays: with τ = σ²/λ the variance then is at most σ²/C · (1 + τ), and with one more below σ²/C."""
    threshold = 9.0
    bandit = bandit_with(StayRule(threshold))
    bandit.tell(ARMS[:15], reward(ARMS[:15]))
    for _ in range(6):
        model = bandit.model
        X = bandit.ask(q=None)
        assert bool((X[0] == X).all())
        variance = float(model.posterior(X[:1]).variance)
        plays = max(1, math.floor((threshold - 1.0) / (variance / LAMBDA)))
        assert len(X) == plays
        bandit.tell(X, reward(X))
        after = float(bandit.model.posterior(X[:1]).variance)
        assert after < variance / threshold * (1.0 + variance / LAMBDA)
        assert bandit.model.num_distinct == len(bandit.history.X.unique(dim=0))


def test_a_complete_batch_wants_its_rewards():
    bandit = bandit_with(GlobalBatchRule(2.0))
    X = bandit.ask(q=None)
    with pytest.raises(InputError, match=r"The batch of 1 point\(s\) is complete: tell the 1 pending"):
        bandit.ask(q=None)
    assert len(bandit.ask(2)) == 2  # but who has idle workers may go on
    bandit.tell(X, reward(X))
    with pytest.raises(InputError, match="this bandit has none"):
        algorithms.BKB(candidates=ARMS, kernel=rbf(), regularization=LAMBDA, beta=1.0, seed=0).ask(q=None)


@pytest.mark.usefixtures("short_searches")
def test_batches_on_a_box():
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)
    for rule in ("global", "local"):
        bandit = algorithms.BBKB(
            bounds=bounds,
            kernel=rbf(0.5),
            regularization=LAMBDA,
            beta=1.5,
            batch_rule=rule,
            batch_threshold=3.0,
            seed=0,
        )
        for _ in range(3):
            X = bandit.ask(q=None)
            bandit.tell(X, reward(X))
        assert bandit.model.num_observations == len(bandit.history.X)


@pytest.mark.parametrize("rule", [GlobalBatchRule, LocalBatchRule, StayRule])
def test_a_threshold_that_ends_every_batch_is_named(rule):
    with pytest.raises(InputError, match="threshold must be above 1"):
        rule(1.0)
    with pytest.raises(InputError, match="threshold must be a finite number"):
        rule(float("nan"))


BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)


@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize(
    "candidates",
    [
        Arms(ARMS),
        Arms(ArmBlocks(ARMS.split(20).__getitem__, 3)),
        Box(BOUNDS),
        ContextualActions(ARMS, context_dim=0),
        ContextualActions(bounds=BOUNDS, context_dim=0),
    ],
    ids=["arms", "blocks", "box", "actions", "box of actions"],
)
def test_a_point_that_may_not_be_played_is_not_played_again(candidates):
    """Logged data may have points that are no arms, or outside the box. Others are."""
    words = {"kernel": rbf(0.3), "regularization": LAMBDA, "width": ConstantWidth(1.5), "seed": 0}
    bandit = Bandit(candidates=candidates, batches=StayRule(81.0), **words)
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
