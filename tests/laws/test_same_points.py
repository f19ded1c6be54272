"""The same points, told the same: what is believed and chosen does not depend on how they were described."""

from collections.abc import Callable
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import oracles
import pytest
import torch
from problems import DOUBLE, data, dense, difference, matern, reward

from torch_kbandits import (
    KORS,
    ArmBlocks,
    Arms,
    Bandit,
    Box,
    ConstantWidth,
    ContextualActions,
    FixedDictionary,
    RidgeLeverageSampling,
)
from torch_kbandits.beliefs import choice
from torch_kbandits.candidates import Candidates
from torch_kbandits.memory import Memory, Restart, SlidingWindow

LAMBDA, BETA = 0.1, 1.5
POINTS = data(24, 2, 71)[0]
TESTED = torch.cat([POINTS[:6], data(6, 2, 72)[0]])
KERNEL = oracles.matern52(0.5, 1.7)
BOX = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)


class Description(NamedTuple):
    """How the points, or the box around them, are given to a bandit, and what a round brings."""

    make: Callable[[], Candidates]
    is_set: bool = True
    brings: dict[str, torch.Tensor] = MappingProxyType({})
    covariance_limit: int = 512  # up to so many arms all covariances are kept


DESCRIPTIONS = {
    "arms": Description(lambda: Arms(POINTS)),
    "arms as if many": Description(lambda: Arms(POINTS), covariance_limit=0),
    "arms in blocks": Description(lambda: Arms(ArmBlocks(POINTS.split(7).__getitem__, 4)), covariance_limit=0),
    "actions": Description(lambda: ContextualActions(POINTS, context_dim=0)),
    "actions of each round": Description(
        lambda: ContextualActions(action_dim=2, context_dim=0), brings={"candidates": POINTS}
    ),
    "box": Description(lambda: Box(BOX), is_set=False),
    "box of actions": Description(lambda: ContextualActions(bounds=BOX, context_dim=0), is_set=False),
}
DICTIONARIES = {
    "exact": None,
    "fresh": RidgeLeverageSampling(1.5),
    "coupled": RidgeLeverageSampling(1.5, "coupled"),
    "growth": RidgeLeverageSampling(1.0, "growth"),
    "kors": KORS(0.5),
    "fixed": FixedDictionary(POINTS[:8]),
}


class Counting(NamedTuple):
    """A memory, and which of the rounds (n,) count before round ``now``."""

    memory: Memory | None
    counts: Callable[[np.ndarray, int], np.ndarray]


MEMORIES = {
    "all": Counting(None, lambda rounds, now: rounds >= 0),
    "window": Counting(SlidingWindow(4.0), lambda rounds, now: now - rounds <= 4),
    "restart": Counting(Restart(5.0), lambda rounds, now: rounds >= 5 * (now // 5)),
}


def bandit_of(description, dictionary, memory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice, "COVARIANCE_LIMIT", description.covariance_limit)
        return Bandit(
            candidates=description.make(),
            kernel=matern(0.5, 1.7),
            regularization=LAMBDA,
            dictionary=DICTIONARIES[dictionary],
            memory=MEMORIES[memory].memory,
            width=ConstantWidth(BETA),
            seed=3,
        )


class Told:
    """What all bandits were told, and the dense posterior of what of it counts."""

    def __init__(self, dictionary, memory):
        self.is_exact, self.counts = DICTIONARIES[dictionary] is None, MEMORIES[memory].counts
        self.X, self.Y, self.rounds = np.zeros((0, 2)), np.zeros(0), np.zeros(0, dtype=int)

    def add(self, X, number):
        self.X, self.Y = np.concatenate([self.X, dense(X)[0]]), np.concatenate([self.Y, dense(reward(X))[0]])
        self.rounds, self.now = np.append(self.rounds, [number] * len(X)), number + 1

    def moments(self, Z, T, pending=POINTS[:0]):
        """The posterior, and what it is given points pending."""
        kept, (Z, T, P) = self.counts(self.rounds, self.now), dense(Z, T, pending)
        known = self.X[kept], self.Y[kept], np.full(len(self.X[kept]), LAMBDA)

        def posterior(T):
            if self.is_exact or len(known[0]) == 0:
                return oracles.exact(KERNEL, *known, T)
            return oracles.dtc(KERNEL, *known, Z, T)

        return posterior(T), oracles.with_pending(posterior, T, P, LAMBDA)

    def bounds(self, Z, T, pending):
        """Upper confidence bounds, and what rounding may take of them."""
        now, ahead = self.moments(Z, T, pending)
        return now.mean + BETA * np.sqrt(np.maximum(ahead.variance, 0.0)), now.rounding + ahead.upper_rounding(BETA)


def program(seed, turns):
    """What is made pending and what is told in each round: up to three points, some twice, pending ones or no arms."""
    draw = np.random.default_rng(seed)
    for turn in range(turns):
        rows = torch.as_tensor(draw.integers(0, len(POINTS), size=5))
        told = POINTS[rows[: 1 + turn % 3]]
        yield POINTS[rows[2:4]], told + 0.01 if turn % 5 == 3 else told


@pytest.mark.one_in(18)
@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("dictionary", DICTIONARIES)
def test_the_description_of_points_changes_neither_belief_nor_choice(dictionary, memory):
    told, bandits = Told(dictionary, memory), {}
    for name, description in DESCRIPTIONS.items():
        bandits[name] = bandit_of(description, dictionary, memory)
    for number, (pending, X) in enumerate(program(0, 7)):
        told.add(X, number)
        for name, bandit in bandits.items():
            description = DESCRIPTIONS[name]
            bandit.tell(X, reward(X))
            Z = bandits["arms"].inducing_points
            assert set(map(tuple, bandit.inducing_points.tolist())) == set(map(tuple, Z.tolist())), (name, number)
            (expected, _), found = told.moments(Z, TESTED), bandit._belief.moments(TESTED)
            assert difference(found[0], expected.mean) < expected.rounding, name
            assert difference(found[1], expected.variance) < expected.rounding, name
            for marked in (pending[:0], pending):
                if len(marked):
                    bandit.mark_pending(marked)
                if description.is_set:
                    bounds, rounding = told.bounds(Z, POINTS, bandit.pending)
                    chosen = bandit.ask(remember=False, **description.brings)
                    row = int((chosen == POINTS).all(-1).nonzero())
                    # So it is the same for all, or scores tie.
                    assert bounds[row] >= bounds.max() - 2.0 * rounding, (name, number)
                elif len(marked):
                    bounds, rounding = told.bounds(Z, TESTED, bandit.pending)
                    assert difference(bandit.acquisition()(TESTED.unsqueeze(-2)), bounds) < rounding, name
            bandit.forget(bandit.pending[number % 2 :])


def test_plays_told_together_are_offered_in_one_order():
    """A new point and one that was told before: each is offered to KORS with a uniform number of its own."""
    bandits = {name: bandit_of(DESCRIPTIONS[name], "kors", "all") for name in ("arms", "box", "actions")}
    for row in range(len(POINTS) - 1):
        X = POINTS[[row + 1, row]]
        for bandit in bandits.values():
            bandit.tell(X, reward(X))
        dictionaries = [set(map(tuple, bandit.inducing_points.tolist())) for bandit in bandits.values()]
        assert all(dictionary == dictionaries[0] for dictionary in dictionaries)
