"""Points that know when they are played: however they are described, under priors on time that are given or chosen.

The moments under a prior on time are in ``test_posterior``.
"""

from itertools import pairwise

import pytest
import torch
from forgetting import ARMS, BETA, BOUNDS, DICTIONARIES, LAMBDA, offer, reward
from gpytorch.kernels import RBFKernel, ScaleKernel
from problems import DOUBLE, difference, matern, rbf, scaled

import torch_kbandits as kb
from torch_kbandits.bandit.adaptation import BanditOverBandit
from torch_kbandits.bandit.batches import StayRule
from torch_kbandits.candidates import Timed
from torch_kbandits.kernels import ForgettingKernel, SpaceTimeKernel, WienerKernel
from torch_kbandits.memory import Discount, SlidingWindow, Stationary, TemporalPrior

PRIOR = TemporalPrior(0.1, 0.6)
EFFORT = {"num_restarts": 2, "raw_samples": 16}
SAME = {
    "arms": (
        lambda: kb.Arms(ARMS),
        lambda: Timed(kb.Arms(ARMS)),
        lambda: kb.ContextualActions(ARMS, context_dim=0),
        lambda: Timed(kb.ContextualActions(ARMS, context_dim=0)),
    ),
    "box": (
        lambda: kb.Box(BOUNDS, **EFFORT),
        lambda: kb.ContextualActions(bounds=BOUNDS, context_dim=0, **EFFORT),
        lambda: Timed(kb.ContextualActions(bounds=BOUNDS, context_dim=0, **EFFORT)),
    ),
}
WORDS = {"kernel": matern(0.5, 1.7), "regularization": LAMBDA, "seed": 5}


def make(candidates, **words):
    settings = {"width": kb.ConstantWidth(BETA)} | WORDS | ({} if "memories" in words else {"memory": PRIOR})
    return kb.Bandit(candidates=candidates, **(settings | words))


def play(bandit, moments, sign=lambda number: 1.0):
    """Ask and tell at each of some times; return what was asked for."""
    asked = []
    for number, now in enumerate(moments):
        words = offer(bandit, number)
        asked.append(bandit.ask(time=now, **words))
        y = sign(number) * reward(asked[-1].expand(-1, 2)) + 0.1 * now
        bandit.tell(asked[-1], y, context=words.get("context"))
    return torch.cat(asked)


@pytest.mark.one_in(6)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("described", SAME)
@pytest.mark.parametrize("dictionary", ["kors", "exact", "fresh"])
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
        loaded = kb.Bandit.load(tmp_path / "bandit")
        assert type(loaded.candidates) is type(bandit.candidates)
        assert torch.equal(loaded.pending, bandit.pending)
        assert difference(loaded.ask(), bandit.ask()) < (1e-4 if described == "box" else 1e-15)


def test_the_kernel_may_know_the_time_itself():
    """Then there need be no memory, and a prior on time as a memory goes with it as a factor: that of TV-GP-UCB."""
    kernel = SpaceTimeKernel(matern(0.5, 1.7), ForgettingKernel(0.2))
    theirs = kb.algorithms.TVGPUCB(candidates=ARMS, forgetting=0.2, beta=BETA, **WORDS)
    pairs = [
        (make(Timed(kb.Arms(ARMS)), kernel=kernel, memory=None), make(kb.Arms(ARMS), memory=TemporalPrior(0.2))),
        (
            make(kb.Arms(ARMS), kernel=kernel, memory=TemporalPrior(0.1)),
            make(kb.Arms(ARMS), memory=TemporalPrior(0.28)),
        ),
        (theirs, make(kb.Arms(ARMS), memory=TemporalPrior(0.2))),
    ]  # fmt: skip
    for one, other in pairs:
        assert torch.equal(play(one, range(6)), play(other, range(6)))


def test_points_are_known_again_whenever_they_are_told():
    """A point is of the time at which it was asked for, unless another is given."""
    bandit = make(kb.Arms(ARMS))
    x = bandit.ask(3, time=0.0)
    (number,) = bandit.mark_pending(ARMS[-1:], time=1.0)
    bandit.tell(x[:1], 1.0, time=2.0)
    assert torch.equal(bandit.history.X, torch.cat([torch.full((1, 1), 2.0, dtype=DOUBLE), x[:1]], -1))
    bandit.forget(x[1:2])
    assert torch.equal(bandit.pending[:, 1:], torch.cat([x[2:], ARMS[-1:]]))
    assert bandit.pending[:, 0].tolist() == [0.0, 1.0]
    bandit.tell(ids=number, y=1.0)
    bandit.tell(x[2:], 1.0, time=0.5)
    assert bandit.history.X[1:, 0].tolist() == bandit.history.times[1:].tolist() == [1.0, 0.5]
    assert bandit.now == 2.0


KINDS = (SlidingWindow(3.0), Discount(0.7), TemporalPrior(0.3))


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("candidates", "kinds", "dictionary"),
    [
        (SAME["arms"][0], KINDS, "exact"),
        (SAME["arms"][3], KINDS, "exact"),
        (SAME["arms"][0], (SlidingWindow(4), Discount(0.7), Stationary()), "fresh"),
    ],
)
def test_priors_on_time_and_other_memories_may_be_chosen_from(candidates, kinds, dictionary):
    """Each is in force as if it were alone: a window takes what it keeps for a function that stays."""
    words = {"dictionary": DICTIONARIES[dictionary]}
    bandit, seen = make(candidates(), memories=BanditOverBandit(kinds, 2, 1.0), **words), set()
    for number in range(14):
        x, told, now = bandit.ask(), bandit.history, float(number)
        assert bandit.memory == bandit.memories.choice(bandit.memories.summaries(told, (), None), 5).memory
        alone = make(kb.Arms(ARMS), memory=bandit.memory, **words)
        for row, (action, y) in enumerate(zip(bandit.candidates.actions(told.X), told.Y, strict=True)):
            alone.tell(action.unsqueeze(0), y, time=float(row))
        assert torch.equal(alone.ask(time=now), x) or number == 0
        both = [each.model.posterior(each.candidates.points(ARMS, None, now)) for each in (bandit, alone)]
        assert difference(*(each.mean for each in both)) < 1e-10
        assert difference(*(each.variance for each in both)) < 1e-10
        seen.add(bandit.memory)
        bandit.tell(x, reward(x) * (-1.0) ** (number // 5))
    assert seen == set(kinds)


def of_a_day():
    """A kernel of the arms of which a share is replaced in a unit of time, and that of what they have in common."""
    common = scaled(ForgettingKernel(0.1, active_dims=(0,)), 4.0)
    return SpaceTimeKernel(rbf(0.15), ForgettingKernel(0.01)) + common


LINE = torch.linspace(0.0, 1.0, 25, dtype=DOUBLE).unsqueeze(-1)


class Scattered(kb.Arms):
    """Arms of which nobody here has any, as those of shards."""

    is_split = True


def no_mean(X, time):
    return torch.zeros_like(X[..., 0])


OWN = SpaceTimeKernel(rbf(0.15), ForgettingKernel(0.01))
CHOSEN = {"candidates": ARMS} | WORDS
DAILY = {"candidates": Timed(kb.Arms(LINE)), "beta": 1.0, "seed": 0}
WRONG = [
    (lambda: Timed(Timed(kb.Arms(ARMS))), "know the time already"),
    (lambda: Timed(Scattered(ARMS)), "The arms of Scattered are not read here.*a mean= that does not"),
    (lambda: make(kb.Arms(ARMS), batches=StayRule()), "other actions or a time"),
    (lambda: kb.algorithms.MiniGPUCB(beta=1.0, memory=TemporalPrior(0.1), **CHOSEN), "other actions or a time"),
    (lambda: kb.algorithms.DMSTVGPUCB(forgettings=0.1, **CHOSEN), "forgettings must be several shares"),
    (lambda: kb.algorithms.DMSTVGPUCB(forgettings=(), **CHOSEN), "memories must be one or more"),
    (
        lambda: SpaceTimeKernel(RBFKernel() * WienerKernel(active_dims=(1,)), ForgettingKernel(0.1)),
        "WienerKernel in ProductKernel would take",
    ),
    *(  # for which a kernel would take a column of space for the time
        (
            lambda kernel=kernel, words=words: kb.algorithms.GPUCB(
                **DAILY, kernel=kernel, regularization=0.01, **words
            ),
            "take a column of space for the time.*leave out",
        )
        for words in ({"memory": TemporalPrior(0.1)}, {"mean": no_mean})
        for kernel in (of_a_day(), rbf(0.2) + ForgettingKernel(0.1, active_dims=(0,)), ScaleKernel(OWN))
    ),
    (
        lambda: kb.algorithms.GPUCB(**DAILY, prior=kb.LearnedPrior(OWN, mean=no_mean), memory=TemporalPrior(0.1)),
        "SpaceTimeKernel in ScaleKernel would take",
    ),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(kb.InputError, match=message):
        call()
