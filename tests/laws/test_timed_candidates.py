"""Candidates whose points know the time: whatever they are and however they are described, beside dense formulas."""

from itertools import pairwise

import numpy as np
import oracles
import pytest
import torch
from forgetting import ACTIONS, ARMS, BETA, BOUNDS, DICTIONARIES, KERNEL, LAMBDA, offer, reward
from gpytorch.kernels import RBFKernel
from problems import DOUBLE, dense, difference, matern

from torch_kbandits import (
    Arms,
    Bandit,
    Box,
    Category,
    ColumnSpec,
    ConstantWidth,
    ContextualActions,
    InputError,
    Number,
)
from torch_kbandits.bandit.adaptation import BanditOverBandit, ResidualTrigger
from torch_kbandits.bandit.batches import GlobalBatchRule, LocalBatchRule
from torch_kbandits.candidates import Timed, TimedActions
from torch_kbandits.kernels import ForgettingKernel, PrecomputedKernel, SpaceTimeKernel
from torch_kbandits.memory import BackToPrior, Discount, SlidingWindow

RATE, LEAST = 0.1, 0.6
PRIOR = BackToPrior(RATE, LEAST)
EFFORT = {"num_restarts": 2, "raw_samples": 16}
KINDS = {
    "arms": lambda: Arms(ARMS),
    "actions": lambda: ContextualActions(ACTIONS, context_dim=1),
    "actions of the round": lambda: ContextualActions(action_dim=1, context_dim=1),
    "box": lambda: Box(BOUNDS, **EFFORT),
    "box in a context": lambda: ContextualActions(bounds=BOUNDS[:, :1], context_dim=1, **EFFORT),
}
#: The same set, or the same box, described in several ways.
SAME = {
    "arms": (
        lambda: Arms(ARMS),
        lambda: Timed(Arms(ARMS)),
        lambda: ContextualActions(ARMS, context_dim=0),
        lambda: TimedActions(ARMS),
    ),
    "box": (
        lambda: Box(BOUNDS, **EFFORT),
        lambda: ContextualActions(bounds=BOUNDS, context_dim=0, **EFFORT),
        lambda: TimedActions(bounds=BOUNDS, **EFFORT),
    ),
}


def make(candidates, kind=Bandit, **words):
    settings = {"kernel": matern(0.5, 1.7), "regularization": LAMBDA, "width": ConstantWidth(BETA), "seed": 5}
    settings |= {} if "memories" in words else {"memory": PRIOR}
    return kind(candidates=candidates, **(settings | words))


def play(bandit, moments, q=1):
    """Ask and tell at each of some times; return what was asked for."""
    asked = []
    for number, now in enumerate(moments):
        words = offer(bandit, number)
        asked.append(bandit.ask(q, time=now, **words))
        bandit.tell(asked[-1], reward(asked[-1].expand(-1, 2)) + 0.1 * now, context=words.get("context"))
    return asked


@pytest.mark.one_in(10)
@pytest.mark.parametrize("dictionary", ["exact", "fresh"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_posterior_is_that_of_the_product_kernel_and_ask_maximises_it(kind, dictionary):
    bandit = make(KINDS[kind](), dictionary=DICTIONARIES[dictionary])
    moments = [0.0, 1.0, 1.0, 2.5, 4.0, 9.0, 9.5]
    asked = play(bandit, moments)
    words = offer(bandit, 3)
    context = words.get("context", ARMS[0, :0])
    history, x = bandit.history, torch.cat(asked)
    assert history.X[:, 0].tolist() == history.times.tolist() == moments
    assert torch.equal(bandit.candidates.actions(history.X), x)

    domain = bandit.candidates.in_round(context if len(context) else None, words.get("candidates"), 12.0)
    offered = domain.arms if domain.arms is not None else domain.in_context(torch.rand(50, 3, dtype=DOUBLE))
    assert offered[:, : 1 + len(context)].unique(dim=0).tolist() == [[12.0, *context.tolist()]]
    before = bandit.state_dict()
    best, chosen = bandit.recommend(time=12.0, **words), bandit.ask(time=12.0, **words)
    points = torch.cat([offered, bandit.candidates.points(torch.cat([best, chosen]), words.get("context"), 12.0)])
    counts = (1.0 - RATE) ** (0.5 * (12.0 - history.times)) >= LEAST
    assert 0 < int(counts.sum()) < len(counts)
    X, y, T, Z = dense(history.X[counts], history.Y[counts], points, bandit.inducing_points)
    noise = np.full(len(X), LAMBDA)
    kernel = oracles.in_time(KERNEL, RATE)
    is_exact = dictionary == "exact"
    expected = oracles.exact(kernel, X, y, noise, T) if is_exact else oracles.dtc(kernel, X, y, noise, Z, T)
    posterior = bandit.model.posterior(points.unsqueeze(-2))
    assert difference(posterior.mean.flatten(), expected.mean) < expected.rounding
    assert difference(posterior.variance.flatten(), expected.variance) < expected.rounding
    bound = expected.mean + BETA * np.sqrt(np.maximum(expected.variance, 0.0))
    assert expected.mean[-2] >= expected.mean.max() - 1e-6
    assert bound[-1] >= bound.max() - 1e-6
    assert bandit.pending.shape == (1, points.shape[-1])
    assert torch.equal(bandit.pending, points[-1:])

    bandit.forget()
    again = make(KINDS[kind](), dictionary=DICTIONARIES[dictionary])
    again.load_state_dict(before)
    # The posterior is computed afresh, so a search ends elsewhere by rounding.
    torch.testing.assert_close(again.ask(time=12.0, **words), chosen, rtol=0.0, atol=1e-4 if "box" in kind else 0.0)


@pytest.mark.one_in(4)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("dictionary", ["exact", "fresh", "kors"])
@pytest.mark.parametrize("described", SAME)
def test_the_same_set_is_the_same_however_it_is_described(described, dictionary):
    bandits = [make(candidates(), dictionary=DICTIONARIES[dictionary]) for candidates in SAME[described]]
    for number in range(4):
        # Before any reward all arms are alike, and only who has arms has an order of them.
        asked = [bandit.ask(2) for bandit in bandits]
        assert all(torch.equal(left, right) for left, right in pairwise(asked[: None if number else 2]))
        for bandit in bandits:
            bandit.forget()
            bandit.tell(asked[0], reward(asked[0]) * (-1.0) ** (number // 2))
        assert all(torch.equal(left.recommend(), right.recommend()) for left, right in pairwise(bandits))
        assert all(torch.equal(left.history.X, right.history.X) for left, right in pairwise(bandits))


def test_ties_between_arms_are_broken_in_their_own_order_also_with_a_time():
    still, moving = make(Arms(ARMS), memory=None), make(Arms(ARMS))
    assert torch.equal(moving.ask(), still.ask())


def test_the_kernel_may_know_the_time_itself():
    """Then there need be no memory, and a prior on time as a memory goes with it as a factor."""
    kernel = SpaceTimeKernel(matern(0.5, 1.7), ForgettingKernel(0.2))
    alone, as_memory = make(Timed(Arms(ARMS)), kernel=kernel, memory=None), make(Arms(ARMS), memory=BackToPrior(0.2))
    twice = make(Arms(ARMS), kernel=kernel, memory=BackToPrior(0.1))
    product = make(Arms(ARMS), memory=BackToPrior(1.0 - 0.8 * 0.9))
    for one, other in ((alone, as_memory), (twice, product)):
        assert torch.equal(torch.cat(play(one, range(5))), torch.cat(play(other, range(5))))


def test_a_kernel_that_counts_its_columns_counts_them_without_the_time():
    kernel = RBFKernel(ard_num_dims=2).double()
    kernel.lengthscale = torch.tensor([[0.3, 0.6]], dtype=DOUBLE)
    bandit = make(Arms(ARMS), kernel=kernel)
    play(bandit, range(3))
    X, y, T = dense(bandit.history.X, bandit.history.Y, bandit.candidates.points(ARMS, None, 3.0))
    squares = oracles.in_time(oracles.rbf(1.0), RATE)
    scale = np.array([1.0, 0.3, 0.6])
    bandit.ask(time=3.0)
    expected = oracles.exact(squares, X / scale, y, np.full(3, LAMBDA), T / scale)
    found = bandit.model.posterior(torch.from_numpy(T).unsqueeze(-2))
    assert difference(found.mean.flatten(), expected.mean) < expected.rounding
    assert difference(found.variance.flatten(), expected.variance) < expected.rounding
    with pytest.raises(InputError):
        make(Arms(ARMS), kernel=RBFKernel(ard_num_dims=3).double())


def test_arms_that_a_kernel_knows_by_number():
    covariance = torch.from_numpy(KERNEL(ARMS.numpy(), ARMS.numpy()))
    numbers = torch.arange(len(ARMS), dtype=DOUBLE).unsqueeze(-1)
    by_number, by_place = make(Arms(numbers), kernel=PrecomputedKernel(covariance)), make(Arms(ARMS))
    for number in range(6):
        row = by_number.ask()
        assert torch.equal(by_place.ask(), ARMS[row.long().flatten()])
        by_number.tell(row, float(number % 2))
        by_place.tell(ARMS[row.long().flatten()], float(number % 2))


def test_what_candidates_are_made_of_is_kept(tmp_path):
    contexts = ColumnSpec([Number("age", 0.0, 100.0), Category("plan", ["basic", "full"])])
    actions = ContextualActions(
        ACTIONS, context_columns=contexts, num_restarts=3, raw_samples=17, row_memory=0, dtype=DOUBLE
    )
    bandit = make(actions, dictionary=DICTIONARIES["kors"])
    assert bandit.candidates.untimed is actions
    assert bandit.candidates.describe() == actions.describe() | {"context_dim": 1 + contexts.width}
    for number in range(5):
        context = {"age": 10.0 * number, "plan": "basic"}
        bandit.tell(bandit.ask(context=context), float(number), context=context)
    bandit.save(tmp_path / "bandit")
    loaded = Bandit.load(tmp_path / "bandit")
    kept = loaded.candidates.untimed
    assert (kept.num_restarts, kept.raw_samples, kept.row_memory) == (3, 17, 0)
    assert kept.context_columns == contexts
    context = {"age": 70.0, "plan": "full"}
    assert torch.equal(loaded.ask(context=context), bandit.ask(context=context))
    assert torch.equal(loaded.history.X, bandit.history.X)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("described", SAME)
@pytest.mark.parametrize("dictionary", ["exact", "kors"])
def test_saved_and_loaded_it_goes_on_however_it_is_described(described, dictionary, tmp_path):
    for number, candidates in enumerate(SAME[described]):
        bandit = make(candidates(), dictionary=DICTIONARIES[dictionary])
        play(bandit, range(4))
        bandit.ask(2, time=4.0)
        bandit.save(tmp_path / str(number))
        loaded = Bandit.load(tmp_path / str(number))
        assert type(loaded.candidates) is type(bandit.candidates)
        assert torch.equal(loaded.pending, bandit.pending)
        after = loaded.ask(time=5.0), bandit.ask(time=5.0)
        torch.testing.assert_close(*after, rtol=0.0, atol=1e-4 if described == "box" else 0.0)


def test_states_of_timed_actions_are_what_they_were():
    described = ContextualActions(ACTIONS, context_dim=2).describe()
    assert TimedActions(ACTIONS, context_dim=2).describe() == described | {"context_dim": 3}
    window = make(Arms(ARMS), memory=SlidingWindow(5.0))
    assert isinstance(window.candidates, Arms)
    assert set(window.candidates.describe()) == {"arms"}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("rule", [GlobalBatchRule(60.0), LocalBatchRule(40.0)])
def test_a_batch_told_at_one_time_is_learned_alike_in_one_call_and_in_many(rule):
    at_once, one_by_one = (make(Arms(ARMS), batches=rule) for _ in range(2))
    sizes = []
    for now in (0.0, 1.0):
        x = at_once.ask(None, time=now)
        assert torch.equal(one_by_one.ask(None, time=now), x)
        sizes.append(len(x))
        at_once.tell(x, reward(x))
        for each in x.split(1):
            one_by_one.tell(each, reward(each))
        assert torch.equal(one_by_one.history.X, at_once.history.X)
        assert len(at_once.pending) == len(one_by_one.pending) == 0
    assert max(sizes) > 1
    assert torch.equal(one_by_one.ask(time=2.5), at_once.ask(time=2.5))


def test_points_are_known_again_whenever_they_are_told():
    bandit = make(Arms(ARMS))
    x = bandit.ask(3, time=0.0)
    (number,) = bandit.mark_pending(ARMS[-1:], time=1.0)
    bandit.tell(x[:1], 1.0, time=2.0)
    assert torch.equal(bandit.history.X, torch.cat([torch.full((1, 1), 2.0, dtype=DOUBLE), x[:1]], -1))
    bandit.forget(x[1:2])
    assert torch.equal(bandit.pending[:, 1:], torch.cat([x[2:], ARMS[-1:]]))
    assert bandit.pending[:, 0].tolist() == [0.0, 1.0]
    # It is of the time at which it was asked for, unless another is given.
    bandit.tell(ids=number, y=1.0)
    assert bandit.history.X[-1, 0] == bandit.history.times[-1] == 1.0
    assert bandit.now == 2.0
    bandit.tell(x[2:], 1.0, time=0.5)
    assert bandit.history.X[-1, 0] == bandit.history.times[-1] == 0.5
    assert bandit.now == 2.0


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "words",
    [
        {"memories": BanditOverBandit((BackToPrior(0.3), BackToPrior(0.05)), 2, 0.5)},
        {"trigger": ResidualTrigger(0.3)},
    ],
    ids=["memories", "trigger"],
)
def test_bandits_that_adapt_take_any_candidates(words, tmp_path):
    bandits = [make(candidates(), Bandit, **words) for candidates in SAME["arms"]]
    for number in range(12):
        x = bandits[0].ask()
        assert number == 0 or all(torch.equal(bandit.ask(remember=False), x) for bandit in bandits[1:])
        for bandit in bandits:
            bandit.tell(x, 3.0 * reward(x) * (-1.0) ** (number // 6))
    assert len({bandit.num_since_restart for bandit in bandits}) == len({bandit.memory for bandit in bandits}) == 1
    if "trigger" in words:
        assert bandits[0].num_since_restart < 12
    bandits[0].save(tmp_path / "bandit")
    loaded = Bandit.load(tmp_path / "bandit")
    assert isinstance(loaded.candidates.untimed, Arms)
    assert torch.equal(loaded.ask(), bandits[0].ask())


@pytest.mark.one_in(2)
@pytest.mark.parametrize("candidates", SAME["arms"][::3])
def test_priors_on_time_and_other_memories_may_be_chosen_from(candidates):
    """Each is in force as if it were alone: a window takes what it keeps for a function that stays."""
    kinds = (SlidingWindow(3.0), Discount(0.7), BackToPrior(0.3))
    bandit = make(candidates(), memories=BanditOverBandit(kinds, 2, 1.0))
    seen = set()
    for number in range(16):
        x = bandit.ask()
        alone = make(Arms(ARMS), memory=bandit.memory)
        told = bandit.history
        for row, (action, y) in enumerate(zip(bandit.candidates.actions(told.X), told.Y, strict=True)):
            alone.tell(action.unsqueeze(0), y, time=float(row))
        assert torch.equal(alone.ask(time=float(number)), x) or number == 0
        points = [each.candidates.points(ARMS, None, float(number)) for each in (bandit, alone)]
        ours, theirs = (e._belief.moments(X) for e, X in zip((bandit, alone), points, strict=True))
        assert difference(ours[0], theirs[0]) < 1e-10
        assert difference(ours[1], theirs[1]) < 1e-10
        seen.add(bandit.memory)
        bandit.tell(x, reward(x) * (-1.0) ** (number // 5))
    assert seen == set(kinds)
