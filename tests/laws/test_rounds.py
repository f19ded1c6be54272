"""Rounds by ask and tell, by ``run``, or ahead where rewards are known are the same, whoever looks or interrupts."""

import warnings
from copy import deepcopy
from itertools import count

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from contextual import ACTIONS, CONTEXTS, changing, joint
from contextual import make as in_contexts
from contextual import reward as contextual_reward
from hypothesis import given
from interrupts import Interrupt, swaps
from problems import DOUBLE, KERNELS, data, difference, examples, matern, rbf, reward

from torch_kbandits import Arms, Bandit, InputError, RidgeLeverageSampling, ScaledWidth, algorithms
from torch_kbandits.acquisition import (
    ExpectedImprovementRule,
    ProbabilityOfImprovementRule,
    ThompsonRule,
    UniformRule,
    UpperConfidenceRule,
)
from torch_kbandits.confidence import ConstantWidth, GPUCBWidth, IGPUCBWidth, MemoryWidth, RateGain
from torch_kbandits.environments.registry import build
from torch_kbandits.memory import Restart, SlidingWindow

pytestmark = [
    pytest.mark.filterwarnings("ignore::torch_kbandits.TheoryWarning"),
    pytest.mark.filterwarnings("ignore:The dictionary is full"),
]
LAMBDA = 0.1
ARMS = data(30, 2)[0]
THEOREM = {"norm_bound": 1.0, "noise_scale": 0.1}


def on_arms(name, **words):
    return algorithms.build(name, candidates=ARMS, kernel=rbf(), regularization=LAMBDA, seed=0, **words)


def draws_at_a_dictionary():
    words = {"kernel": rbf(), "regularization": LAMBDA, "width": ConstantWidth(1.0), "acquisition": ThompsonRule()}
    return Bandit(candidates=Arms(ARMS), dictionary=RidgeLeverageSampling(3.0, "growth"), seed=0, **words)


CASES = {
    "igp-ucb": lambda: on_arms("igp-ucb", beta=2.0),
    "bkb, growth": lambda: on_arms("bkb", beta=2.0, resampling="growth"),
    "ek-ucb": lambda: in_contexts("ek-ucb", changing()),
    "sw-gp-ucb": lambda: on_arms("sw-gp-ucb", window=10, beta=2.0),
    "bkb, coupled": lambda: on_arms("bkb", beta=2.0, resampling="coupled", mean=0.3),
    "gp-ts": lambda: on_arms("gp-ts", beta=1.0),
    "gp-ei, window": lambda: on_arms("gp-ei", memory=SlidingWindow(1), mean=0.3),
    "bkb, full": lambda: on_arms("bkb", resampling="growth", max_dictionary=6, **THEOREM),
    "bkb, draws": draws_at_a_dictionary,
    "r-gp-ucb": lambda: on_arms("r-gp-ucb", period=9, beta=2.0),
    "ek-ucb, theorem": lambda: in_contexts("ek-ucb", changing(), beta=None, **THEOREM),
}


class Player:
    """Plays a bandit; rewards depend on the round, so that an arm has several."""

    def __init__(self, bandit):
        self.bandit, self.number, self.current = bandit, 0, {}

    def words(self, number):
        """What a round brings; some contexts come again and again."""
        if not self.bandit.candidates.is_contextual:
            return {}
        return {"context": CONTEXTS[number % 400 if number % 3 else 0], "candidates": ACTIONS}

    def reward(self, x):
        words = self.current
        value = (contextual_reward(joint(words["context"], x)) if words else reward(x)).sum()
        self.number += 1
        return float(value) + 0.1 * np.sin(self.number)

    def play(self, rounds):
        for _ in range(rounds):
            self.current = self.words(self.number)
            x = self.bandit.ask(**self.current)
            self.bandit.tell(x, self.reward(x), context=self.current.get("context"))
        return self

    def run(self, rounds):
        def offered(_):
            self.current = self.words(self.number)
            return self.current

        self.bandit.run(self.reward, rounds, offered=offered)
        return self


def agree(one, other):
    """Two players are told and choose the same, and believe it to rounding."""
    words, found = one.words(one.number), []
    for bandit in (one.bandit, other.bandit):
        history, shown = bandit.history, bandit.model.posterior(bandit.history.X)
        chosen = bandit.ask(2, remember=False, **words)
        near = [shown.mean.detach(), bandit.beta.detach() if bandit.rule.uses_width else shown.variance.detach()]
        found.append(([history.X, history.Y, history.rounds, bandit.pending, chosen], near))
    (exact, near), (wanted, about) = found
    assert all(torch.equal(a, b) for a, b in zip(exact, wanted, strict=True))
    assert all(difference(a, b) < 1e-8 * max(1.0, float(b.abs().max())) for a, b in zip(near, about, strict=True))


def look(player):
    bandit, words = player.bandit, player.words(player.number)
    bandit.ask(3, remember=False, **words)
    bandit.health()
    assert len(bandit.history.X) == bandit.num_told
    bandit.recommend(**words)


def be_saved(player):
    player.bandit.load_state_dict(deepcopy(player.bandit).state_dict())


def tell_several(player):
    words = player.current = player.words(player.number)
    x = player.bandit.ask(3, **words)
    player.bandit.tell(x[[2, 0]], [0.4, player.reward(x[:1])], context=words.get("context"))
    player.bandit.tell(x[1:2], 0.1, context=words.get("context"))


def restart(player):
    player.bandit.restart()
    player.play(1)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("case", CASES)
def test_rounds_in_one_call_and_looked_at_are_those_of_ask_and_tell(case):
    random, one, other = np.random.default_rng(0), Player(CASES[case]()), Player(CASES[case]())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(9):
            rounds = int(random.integers(1, 6))
            one.run(rounds)
            other.play(rounds)
            [look, be_saved][int(random.integers(2))](one)  # which change nothing
            if random.random() < 0.3:
                act = [tell_several, restart][int(random.integers(2))]
                act(one)
                act(other)
    agree(one, other)


@pytest.mark.parametrize("case", ["igp-ucb", "ek-ucb"])
def test_pull_may_look_and_a_failed_pull_leaves_the_rounds_before_it(case):
    player, twin, seen = Player(CASES[case]()).play(12), Player(CASES[case]()).play(12), []

    def pull(x):
        seen.append((player.bandit.round, len(player.bandit.history.X)))
        if len(seen) == 3:
            raise StopIteration
        return player.reward(x)

    def offered(number):
        player.current = player.words(number)
        return player.current

    with pytest.raises(StopIteration):
        player.bandit.run(pull, 5, offered=offered)
    assert seen == [(12, 12), (13, 13), (14, 14)]
    for bad in (float("nan"), "one", {"reward": 1.0}, {"x": ARMS[:1], "y": 1.0}):
        with pytest.raises(InputError):
            player.bandit.run(lambda x, bad=bad: bad, 1, offered=player.words)
    for words, message in (({"context_": 1.0}, "time, context, candidates"), ({"time": 1.0}, "no memory")):
        with pytest.raises(InputError, match=message):
            player.bandit.run(lambda x: 0.0, 1, offered=lambda number, words=words: player.words(number) | words)
    curious = deepcopy(player.bandit)
    with pytest.raises(InputError, match="must not ask"):
        curious.run(lambda x: curious.ask(**player.words(14)).sum(), 1, offered=player.words)
    assert (player.bandit.round, len(player.bandit.pending)) == (14, 0)
    agree(player, twin.play(2))


@pytest.mark.one_in(4)
@pytest.mark.parametrize("lines", ["swaps", pytest.param("all", marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", ["igp-ucb", "sw-gp-ucb", "bkb, coupled", "ek-ucb"])
def test_an_interrupt_of_rounds_leaves_those_before_it(case, lines):
    """And what comes then is as it would have been; of the lines some."""
    start = Player(CASES[case]()).play(13)
    tried = swaps(lambda: deepcopy(start).run(3))[::9] if lines == "swaps" else count(1, 29)
    for line in tried:
        player = deepcopy(start)
        with Interrupt(line) as interrupt:
            player.run(3)
        if interrupt.at is None:
            break
        told = player.bandit.num_told - 13
        assert told <= 3, interrupt.at
        player.bandit.forget()
        calm = Player(CASES[case]()).play(13 + told)
        player.number = calm.number
        agree(player.play(1), calm.play(1))


RULES = [UpperConfidenceRule(), ExpectedImprovementRule(), ProbabilityOfImprovementRule(0.05), ThompsonRule()]
RULES += [UniformRule(), ThompsonRule(64)]
WIDTHS = [
    ConstantWidth(1.0),
    ConstantWidth(0.0),
    IGPUCBWidth(0.1, 1.0, 0.1),
    ScaledWidth(GPUCBWidth(1.0, 0.1, RateGain("rbf", 2)), 0.1),
    MemoryWidth(0.1, 1.0, 0.1, 5),
]


class Timid(UpperConfidenceRule):
    """A rule made of ours, which is asked in every round; as is the width."""

    def on_arms(self, posterior, beta, seed):
        return posterior.mean - beta * posterior.variance.sqrt()


class Growing(ConstantWidth):
    def __call__(self, evidence):
        return super().__call__(evidence) * (1 + evidence.num_observations)


def by_hand(bandit, table, arms):
    """The same by ask and tell; of equal arms the first one's reward."""
    for rewards in table:
        x = bandit.ask()
        bandit.tell(x, rewards[int((arms == x).all(-1).nonzero()[0])])
    return bandit


@examples(12)
@given(
    number=st.integers(1, 12), rule=st.sampled_from([*RULES, Timid()]), width=st.sampled_from([*WIDTHS, Growing(0.1)]),
    memory=st.sampled_from([None, None, SlidingWindow(1), SlidingWindow(4.5), SlidingWindow(20), Restart(7)]),
    kernel=st.sampled_from(["rbf", "matern", "linear"]), regularization=st.sampled_from([1.0, 0.01, 1e-7]),
    near=st.booleans(), seed=st.integers(0, 10_000),
)  # fmt: skip
def test_rounds_ahead_are_those_of_ask_and_tell(number, rule, width, memory, kernel, regularization, near, seed):
    """Duplicates, nearly equal arms, rewards that repeat, windows that keep one arm, posteriors computed afresh."""
    random, arms = np.random.default_rng(seed), data(number, 2, seed)[0]
    arms = torch.cat([arms, arms[:2], arms[:2] + 1e-9 * near])
    table = torch.tensor(random.standard_normal((40, len(arms))) * random.integers(0, 2)) + torch.sin(9.0 * arms[:, 0])
    words = {"candidates": Arms(arms), "kernel": KERNELS[kernel].make(), "regularization": regularization}
    words |= {"acquisition": rule, "width": width, "memory": memory, "seed": seed}
    one, other = Bandit(**words), by_hand(Bandit(**words), table, arms)
    cut = int(random.integers(1, 40))
    one.run(table[:cut])
    one.run(table[cut:].numpy())
    assert torch.equal(one.history.X, other.history.X)
    assert torch.equal(one.history.Y, other.history.Y)
    assert one.health().recent_mean == pytest.approx(other.health().recent_mean, rel=1e-6, abs=1e-9)
    assert torch.equal(one.ask(), other.ask())


def test_a_reward_that_is_no_number_ends_the_rounds_before_it_and_one_that_nobody_sees_does_not():
    table = torch.randn(40, 30, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
    calm, seen = by_hand(CASES["igp-ucb"](), table[:30], ARMS), torch.full_like(table[:30], torch.nan)
    rows = [int((x == ARMS).all(-1).nonzero()[0]) for x in calm.history.X]
    seen[range(30), rows] = table[range(30), rows]
    for bad in (float("nan"), float("inf")):
        bandit = CASES["igp-ucb"]()
        with pytest.raises(InputError):
            bandit.run(torch.cat([seen, torch.full((9, 30), bad, dtype=DOUBLE)]))
        assert (bandit.round, len(bandit.pending)) == (30, 0)
        agree(Player(bandit), Player(calm))


def test_what_a_table_of_rewards_must_be():
    bandit, table = CASES["igp-ucb"](), torch.zeros(5, 30, dtype=DOUBLE)
    words = {"bounds": torch.tensor([[0.0], [1.0]]), "kernel": matern(), "regularization": 0.1, "seed": 0, "beta": 1.0}
    box = algorithms.build("igp-ucb", **words)
    wrong = [(lambda bad=bad: bandit.run(bad), r"must be \(r, 30\)") for bad in (table[0], table[:, :11], table.T)]
    wrong += [
        (lambda: bandit.run(torch.complex(table, table)), r"must be \(r, 30\)"),
        (lambda: bandit.run("rewards"), "a function that returns rewards, or a table"),
        (lambda: bandit.run(table, 6), "5 rounds, and 6"),
        (lambda: bandit.run(table[:0]), "0 rounds"),
        (lambda: bandit.run(table, offered=lambda number: {}), "offered="),
        (lambda: bandit.run(lambda x: 0.0), "rounds"),
        (lambda: box.run(table), "column for each arm"),
    ]
    for call, message in wrong:
        with pytest.raises(InputError, match=message):
            call()
    assert bandit.round == 0
    assert bandit.run(table, 2).shape == (2, 2)


PROBLEMS = {
    "rkhs-function": {"num_arms": 12},
    "gaussian-bumps": {"num_arms": 12},
    "abrupt": {"num_arms": 12, "switches": [9]},
    "drift": {"num_arms": 12},
    "moving-peak": {},
    "seattle-weather": {},
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_what_each_arm_would_return_is_what_it_does(name):
    environment, twin = (build(name, seed=3, **PROBLEMS[name]) for _ in range(2))
    rewards = environment.rewards_of_arms(range(5, 15))
    assert rewards.shape == (10, len(environment.arms))
    for number, of_arms in zip(range(5, 15), rewards, strict=True):
        for row in (0, 3, len(environment.arms) - 1):
            assert torch.equal(of_arms[row : row + 1], twin.pull(twin.arms[row : row + 1], number))
