"""Points that know when they are played: however they are described, under priors on time that are given or chosen.

The moments under a prior on time are in ``test_posterior``.
"""

import math
from itertools import pairwise

import numpy as np
import oracles
import pytest
import torch
from forgetting import ACTIONS, ARMS, BETA, BOUNDS, DICTIONARIES, KERNEL, LAMBDA, offer, reward
from gpytorch.kernels import RBFKernel, ScaleKernel
from problems import DOUBLE, dense, difference, matern, rbf, scaled

from torch_kbandits import (
    Arms,
    Bandit,
    Box,
    Category,
    ColumnSpec,
    ConstantWidth,
    ContextualActions,
    InputError,
    LearnedPrior,
    Number,
    algorithms,
)
from torch_kbandits.acquisition import Domain
from torch_kbandits.bandit.adaptation import BanditOverBandit, ResidualTrigger
from torch_kbandits.bandit.batches import GlobalBatchRule, LocalBatchRule, StayRule
from torch_kbandits.candidates import Timed, TimedActions
from torch_kbandits.kernels import ForgettingKernel, PrecomputedKernel, SpaceTimeKernel, WienerKernel
from torch_kbandits.memory import BackToPrior, Discount, SlidingWindow

RATE, LEAST = 0.1, 0.6
PRIOR = BackToPrior(RATE, LEAST)
EFFORT = {"num_restarts": 2, "raw_samples": 16}
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
WORDS = {"kernel": matern(0.5, 1.7), "regularization": LAMBDA, "seed": 5}


def make(candidates, **words):
    settings = {"width": ConstantWidth(BETA)} | WORDS | ({} if "memories" in words else {"memory": PRIOR})
    return Bandit(candidates=candidates, **(settings | words))


def play(bandit, moments, sign=lambda number: 1.0):
    """Ask and tell at each of some times; return what was asked for."""
    asked = []
    for number, now in enumerate(moments):
        words = offer(bandit, number)
        asked.append(bandit.ask(time=now, **words))
        y = sign(number) * reward(asked[-1].expand(-1, 2)) + 0.1 * now
        bandit.tell(asked[-1], y, context=words.get("context"))
    return torch.cat(asked)


# ---------------------------------------------------------------- however they are described


@pytest.mark.one_in(3)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("dictionary", ["exact", "fresh", "kors"])
@pytest.mark.parametrize("described", SAME)
def test_the_same_set_is_the_same_however_it_is_described(described, dictionary, tmp_path):
    """Also from a file."""
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
    for bandit in bandits:
        bandit.ask(2)
        bandit.save(tmp_path / "bandit")
        loaded = Bandit.load(tmp_path / "bandit")
        assert type(loaded.candidates) is type(bandit.candidates)
        assert torch.equal(loaded.pending, bandit.pending)
        assert difference(loaded.ask(), bandit.ask()) < (1e-4 if described == "box" else 1e-15)


def test_ties_between_arms_are_broken_in_their_own_order_also_with_a_time():
    assert torch.equal(make(Arms(ARMS)).ask(), make(Arms(ARMS), memory=None).ask())


def test_the_kernel_may_know_the_time_itself():
    """Then there need be no memory, and a prior on time as a memory goes with it as a factor: that of TV-GP-UCB."""
    kernel = SpaceTimeKernel(matern(0.5, 1.7), ForgettingKernel(0.2))
    theirs = algorithms.TVGPUCB(candidates=ARMS, forgetting=0.2, beta=BETA, **WORDS)
    pairs = [
        (make(Timed(Arms(ARMS)), kernel=kernel, memory=None), make(Arms(ARMS), memory=BackToPrior(0.2))),
        (make(Arms(ARMS), kernel=kernel, memory=BackToPrior(0.1)), make(Arms(ARMS), memory=BackToPrior(1.0 - 0.72))),
        (theirs, make(Arms(ARMS), memory=BackToPrior(0.2))),
    ]  # fmt: skip
    for one, other in pairs:
        assert torch.equal(play(one, range(6)), play(other, range(6)))


def test_a_kernel_that_counts_its_columns_counts_them_without_the_time():
    kernel = RBFKernel(ard_num_dims=2).double()
    kernel.lengthscale = torch.tensor([[0.3, 0.6]], dtype=DOUBLE)
    bandit = make(Arms(ARMS), kernel=kernel)
    play(bandit, range(3))
    bandit.ask(time=3.0)
    X, y, T = dense(bandit.history.X, bandit.history.Y, bandit.candidates.points(ARMS, None, 3.0))
    scale = np.array([1.0, 0.3, 0.6])
    expected = oracles.exact(
        oracles.in_time(oracles.rbf(1.0), RATE), X / scale, y, np.full(3, LAMBDA), T / scale
    )  # fmt: skip
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
    words = {"context_columns": contexts, "num_restarts": 3, "raw_samples": 17, "row_memory": 0, "dtype": DOUBLE}
    actions = ContextualActions(ACTIONS, **words)
    bandit = make(actions, dictionary=DICTIONARIES["kors"])
    assert bandit.candidates.untimed is actions
    assert bandit.candidates.describe() == actions.describe() | {"context_dim": 1 + contexts.width}
    for number in range(5):
        context = {"age": 10.0 * number, "plan": "basic"}
        bandit.tell(bandit.ask(context=context), float(number), context=context)
    bandit.save(tmp_path / "bandit")
    loaded = Bandit.load(tmp_path / "bandit")
    kept = loaded.candidates.untimed
    assert (kept.num_restarts, kept.raw_samples, kept.row_memory, kept.context_columns) == (3, 17, 0, contexts)
    context = {"age": 70.0, "plan": "full"}
    assert torch.equal(loaded.ask(context=context), bandit.ask(context=context))
    described = ContextualActions(ACTIONS, context_dim=2).describe()
    assert TimedActions(ACTIONS, context_dim=2).describe() == described | {"context_dim": 3}
    assert set(make(Arms(ARMS), memory=SlidingWindow(5.0)).candidates.describe()) == {"arms"}


# ---------------------------------------------------------------- when they are told


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
    bandit.tell(x[2:], 1.0, time=0.5)
    assert bandit.history.X[-1, 0] == bandit.history.times[-1] == 0.5
    assert bandit.now == 2.0


# ---------------------------------------------------------------- priors on time that are chosen

FAMILIES = {
    "memories": {"memories": BanditOverBandit((BackToPrior(0.3), BackToPrior(0.05)), 2, 0.5)},
    "trigger": {"trigger": ResidualTrigger(0.3)},
}


@pytest.mark.parametrize("name", FAMILIES)
def test_bandits_that_adapt_take_any_candidates(name, tmp_path):
    bandits = [make(candidates(), **FAMILIES[name]) for candidates in SAME["arms"]]
    for number in range(10):
        x = bandits[0].ask()
        assert number == 0 or all(torch.equal(bandit.ask(remember=False), x) for bandit in bandits[1:])
        for bandit in bandits:
            bandit.tell(x, 3.0 * reward(x) * (-1.0) ** (number // 6))
    assert len({bandit.num_since_restart for bandit in bandits}) == len({bandit.memory for bandit in bandits}) == 1
    assert name != "trigger" or bandits[0].num_since_restart < 10
    bandits[0].save(tmp_path / "bandit")
    assert torch.equal(Bandit.load(tmp_path / "bandit").ask(), bandits[0].ask())


@pytest.mark.parametrize("candidates", SAME["arms"][::3])
def test_priors_on_time_and_other_memories_may_be_chosen_from(candidates):
    """Each is in force as if it were alone: a window takes what it keeps for a function that stays."""
    kinds = (SlidingWindow(3.0), Discount(0.7), BackToPrior(0.3))
    bandit = make(candidates(), memories=BanditOverBandit(kinds, 2, 1.0))
    seen = set()
    for number in range(14):
        x, told = bandit.ask(), bandit.history
        alone = make(Arms(ARMS), memory=bandit.memory)
        for row, (action, y) in enumerate(zip(bandit.candidates.actions(told.X), told.Y, strict=True)):
            alone.tell(action.unsqueeze(0), y, time=float(row))
        assert torch.equal(alone.ask(time=float(number)), x) or number == 0
        ours, theirs = (
            each.model.posterior(each.candidates.points(ARMS, None, float(number))) for each in (bandit, alone)
        )
        assert difference(ours.mean, theirs.mean) < 1e-10
        assert difference(ours.variance, theirs.variance) < 1e-10
        seen.add(bandit.memory)
        bandit.tell(x, reward(x) * (-1.0) ** (number // 5))
    assert seen == set(kinds)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("score_discount", [0.5, 0.9])
def test_the_rate_in_force_predicted_best(score_discount):
    """And a saved and a replayed bandit go on alike; what counts is bounded by the least correlation."""
    rates, block = (0.4, 0.1, 0.01, 0.0), 3
    words = {"candidates": ARMS, "forgettings": rates, "least_correlation": 0.01, "block_size": block, "beta": 1.5}
    bandit, replayed = (algorithms.DMSTVGPUCB(score_discount=score_discount, **words, **WORDS) for _ in range(2))
    play(bandit, range(15), lambda number: (-1.0) ** (number // 8))
    X, y = dense(bandit.history.X, bandit.history.Y)
    totals, chosen = np.zeros(len(rates)), []
    for start in range(0, 15, block):
        scores = []
        for rate in rates:
            kernel, predicted = oracles.in_time(KERNEL, rate), []
            for row in range(start, start + block):  # each on its own, at the time at which it was made
                known = X[:start], y[:start], np.full(start, LAMBDA)
                found = oracles.exact(kernel, *known, X[row, None])
                spread = found.variance[0] + LAMBDA
                predicted.append(-0.5 * ((y[row] - found.mean[0]) ** 2 / spread + np.log(spread)))
            scores.append(sum(predicted))
        totals = score_discount**block * totals + scores
        chosen.append(rates[totals.argmax()])
    assert bandit.memory.forgetting == chosen[-1]
    assert len(set(chosen)) > 1
    replayed.replay(bandit.history)
    assert torch.equal(replayed.ask(time=15.0), bandit.ask(time=15.0))
    counts = int((bandit.weights > 0.0).sum())
    assert counts <= 1 + 2.0 * math.log(0.01) / math.log1p(-max(bandit.memory.forgetting, 1e-9))


def test_what_stays_leads_to_the_least_rate_and_what_jumps_to_a_large_one():
    words = {"candidates": ARMS, "forgettings": (0.3, 0.0), "beta": 1.5}
    stays, jumps = (algorithms.DMSTVGPUCB(**words, **WORDS) for _ in range(2))
    for t in range(15):
        for bandit, sign in ((stays, 1.0), (jumps, (-1.0) ** (t // 4))):
            x = bandit.ask()
            bandit.tell(x, 2.0 * sign * torch.cos(4.0 * x.sum(-1)))
    assert stays.memory.forgetting == 0.0
    assert jumps.memory.forgetting == 0.3


# ---------------------------------------------------------------- what all have in common at a time


def of_a_day(variance=4.0, share=0.1, own=0.01):
    """A kernel of the arms of which a share is replaced in a unit of time, and that of what they have in common."""
    common = scaled(ForgettingKernel(share, active_dims=(0,)), variance)
    return SpaceTimeKernel(rbf(0.15), ForgettingKernel(own)) + common


LINE = torch.linspace(0.0, 1.0, 25, dtype=DOUBLE).unsqueeze(-1)


@pytest.mark.parametrize("offset", [3.0, -50.0])
def test_what_days_add_to_all_rewards_does_not_matter_where_they_may_differ_by_any_amount(offset):
    """Of four arms on each of five days the differences count."""
    words = {"kernel": of_a_day(1e6, 0.99), "regularization": 0.01, "beta": 2.0, "seed": 0}
    bandit = algorithms.GPUCB(candidates=Timed(Arms(LINE)), **words)
    generator = torch.Generator().manual_seed(1)
    for day in range(5):
        X = LINE[torch.randperm(len(LINE), generator=generator)[:4]]
        bandit.tell(X, torch.sin(6.0 * X.squeeze(-1)) + offset * day**2, time=float(day))
        bandit.ask(time=day + 0.5, remember=False)
    points = torch.cat([torch.full((len(LINE), 1), 5.0, dtype=DOUBLE), LINE], -1)
    mean, truth = bandit.model.posterior(points).mean.squeeze(-1).detach(), torch.sin(6.0 * LINE.squeeze(-1))
    assert ((mean - mean.mean()) - (truth - truth.mean())).abs().max() < 0.2


@pytest.mark.slow
def test_knowing_of_it_takes_a_third_of_the_regret_off():
    """120 rounds on a function that drifts while all of it goes up and down together.

    Claimed before these seeds were run: at most 0.7 times, after 0.24 to 0.51 on others; it was 0.234 to 0.371.
    """

    def regret(seed, kernel):
        generator = torch.Generator().manual_seed(seed)
        places = oracles.rbf(0.15)(LINE.numpy(), LINE.numpy()) + 1e-8 * np.eye(len(LINE))
        factor = torch.from_numpy(np.linalg.cholesky(places))
        words = {"kernel": kernel, "regularization": 0.01, "beta": 2.0, "seed": seed}
        bandit = algorithms.GPUCB(candidates=Timed(Arms(LINE)), **words)
        normals = torch.randn(120, len(LINE) + 2, generator=generator, dtype=DOUBLE)
        function, level, lost = factor @ normals[0, 2:], 0.0, 0.0
        for day, (up, noise, *_) in enumerate(normals.tolist()):
            function = 0.99**0.5 * function + 0.01**0.5 * (factor @ normals[day, 2:])
            level = 0.9**0.5 * level + 0.4**0.5 * up
            x = bandit.ask(time=float(day))
            arm = int((x == LINE).all(-1).nonzero()[0])
            lost += float(function.max() - function[arm]) / 120.0
            bandit.tell(x, float(function[arm]) + level + 0.1 * noise, time=float(day))
        return lost

    alone = SpaceTimeKernel(rbf(0.15), ForgettingKernel(0.01))
    with_it, without = (sum(regret(seed, kernel) for seed in range(10, 16)) for kernel in (of_a_day(), alone))
    assert with_it <= 0.7 * without


# ---------------------------------------------------------------- what is refused


class Scattered(Arms):
    """Arms of which nobody here has any, as those of shards."""

    domain = Domain()


def no_mean(X, time):
    return torch.zeros_like(X[..., 0])


def test_what_does_not_fit_is_refused():
    still = {"candidates": Arms(ARMS), "width": ConstantWidth(1.0)} | WORDS
    chosen = {"candidates": ARMS} | WORDS
    wrong = [
        (lambda: BackToPrior(1.0), "forgetting must be at least 0 and below 1, got 1.0"),
        (lambda: BackToPrior(-0.1), "forgetting must be at least 0"),
        (lambda: BackToPrior(math.nan), "forgetting must be"),
        (lambda: BackToPrior(True), "forgetting must be a number"),
        (lambda: BackToPrior(0.1, 1.0), "least_correlation must lie strictly between 0 and 1"),
        (lambda: Timed(ARMS), "candidates must be"),
        (lambda: Timed(TimedActions(ARMS)), "know the time already"),
        (lambda: Timed(Scattered(ARMS)), "The arms of Scattered are not read here.*a mean= that does not"),
        (lambda: Bandit(memory=BackToPrior(0.1), batches=StayRule(), **still), "a time that the points know"),
        (lambda: algorithms.MiniGPUCB(beta=1.0, memory=BackToPrior(0.1), **chosen), "a time that"),
        (lambda: algorithms.DMSTVGPUCB(forgettings=0.1, **chosen), "forgettings must be several shares"),
        (lambda: algorithms.DMSTVGPUCB(forgettings=(0.1, math.nan), **chosen), "at least 0 and below 1"),
        (lambda: algorithms.DMSTVGPUCB(forgettings=(), **chosen), "memories must be one or more"),
        (
            lambda: SpaceTimeKernel(RBFKernel() * WienerKernel(active_dims=(1,)), ForgettingKernel(0.1)),
            "WienerKernel in ProductKernel would take",
        ),
    ]
    own = SpaceTimeKernel(rbf(0.15), ForgettingKernel(0.01))
    for taking in ({"memory": BackToPrior(0.1)}, {"mean": no_mean}):
        # for which a kernel would take a column of space for the time
        for kernel in (of_a_day(), rbf(0.2) + ForgettingKernel(0.1, active_dims=(0,)), ScaleKernel(own)):
            words = {"candidates": Timed(Arms(LINE)), "kernel": kernel, "regularization": 0.01, "beta": 1.0, "seed": 0}
            wrong.append(
                (lambda w=words | taking: algorithms.GPUCB(**w), "take a column of space for the time.*leave out")
            )
    prior = LearnedPrior(own, mean=no_mean)
    words = {"candidates": Timed(Arms(LINE)), "prior": prior, "memory": BackToPrior(0.1), "beta": 1.0, "seed": 0}
    wrong.append((lambda: algorithms.GPUCB(**words), "SpaceTimeKernel in ScaleKernel would take"))
    for call, message in wrong:
        with pytest.raises(InputError, match=message):
            call()
