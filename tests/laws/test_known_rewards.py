"""Rounds whose rewards are known beforehand: what ask and tell say, in loops that were seen to run, or refused."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from problems import DOUBLE, KERNELS, data, examples, matern, rbf

from torch_kbandits import Bandit, InputError, ScaledWidth, algorithms
from torch_kbandits.acquisition import (
    ExpectedImprovementRule,
    ProbabilityOfImprovementRule,
    ThompsonRule,
    UniformRule,
    UpperConfidenceRule,
)
from torch_kbandits.beliefs import covariance_loops
from torch_kbandits.candidates import Arms
from torch_kbandits.candidates.timed import untimed
from torch_kbandits.confidence import ConstantWidth, GPUCBWidth, IGPUCBWidth, MemoryWidth, RateGain
from torch_kbandits.environments import DynamicEnvironment, FiniteArms
from torch_kbandits.environments.registry import build
from torch_kbandits.experiments.loop import play
from torch_kbandits.memory import Restart, SlidingWindow
from torch_kbandits.numerics.compiled import runs_compiled

pytestmark = pytest.mark.filterwarnings("ignore::torch_kbandits.TheoryWarning")
loops_only = pytest.mark.skipif(not runs_compiled(), reason="rounds in a row are for loops, which are switched off")

ARMS = data(12, 2)[0]
RULES = [UpperConfidenceRule(), ExpectedImprovementRule(), ProbabilityOfImprovementRule(0.05), ThompsonRule()]
RULES += [UniformRule(), ThompsonRule(64)]
WIDTHS = [
    ConstantWidth(1.0),
    ConstantWidth(0.0),
    IGPUCBWidth(0.1, 1.0, 0.1),
    ScaledWidth(GPUCBWidth(1.0, 0.1, RateGain("rbf", 2)), 0.1),
    MemoryWidth(0.1, 1.0, 0.1, 5),
]
MEMORIES = [None, None, SlidingWindow(1), SlidingWindow(4.5), SlidingWindow(20), Restart(7)]


def made(**words):
    return Bandit(**{"candidates": Arms(ARMS), "kernel": rbf(), "regularization": 0.1, "seed": 0} | words)


@pytest.fixture
def rounds_in_loops(monkeypatch):
    """How many rounds each call of the loop played."""
    numbers, loop = [], covariance_loops.played

    def counting(*arguments):
        result = loop(*arguments)
        numbers.append(result[0])
        return result

    monkeypatch.setattr(covariance_loops, "played", counting)
    return numbers


def by_hand(bandit, table):
    """The same by ask and tell; of equal arms the first one's reward."""
    arms = untimed(bandit.candidates).source.tensor
    for rewards in table:
        x = bandit.ask()
        bandit.tell(x, rewards[int((arms == x).all(-1).nonzero()[0])])
    return bandit


def agree(one, other):
    ours, theirs = one.history, other.history
    assert torch.equal(ours.X, theirs.X)
    assert torch.equal(ours.Y, theirs.Y)
    assert torch.equal(ours.rounds, theirs.rounds)
    for mine, their in zip(*(each._belief.moments(ours.X) for each in (one, other)), strict=True):
        assert torch.equal(mine, their)
    residuals = [str(each.state_dict()["residuals"]) for each in (one, other)]
    assert residuals[0] == residuals[1]
    assert torch.equal(one.ask(), other.ask())


@loops_only
@examples(40)
@given(
    number=st.integers(1, 12),
    rule=st.sampled_from(RULES),
    width=st.sampled_from(WIDTHS),
    memory=st.sampled_from(MEMORIES),
    kernel=st.sampled_from(["rbf", "matern", "linear"]),
    regularization=st.sampled_from([1.0, 0.01, 1e-7]),
    near=st.booleans(),
    seed=st.integers(0, 10_000),
)
def test_rounds_ahead_are_those_of_ask_and_tell(number, rule, width, memory, kernel, regularization, near, seed):
    """Duplicates, nearly equal arms, rewards that repeat, windows that keep one arm, posteriors computed afresh."""
    random = np.random.default_rng(seed)
    arms = data(number, 2, seed)[0]
    arms = torch.cat([arms, arms[:2], arms[:2] + 1e-9 * near])
    table = torch.tensor(random.standard_normal((50, len(arms))) * random.integers(0, 2)) + torch.sin(9.0 * arms[:, 0])
    words = {"candidates": Arms(arms), "kernel": KERNELS[kernel].make(), "regularization": regularization}
    words |= {"acquisition": rule, "width": width, "memory": memory, "seed": seed}
    one, other = Bandit(**words), by_hand(Bandit(**words), table)
    cut = int(random.integers(1, 50))
    one.run(table[:cut])
    one.run(table[cut:].numpy())
    agree(one, other)


@loops_only
@pytest.mark.patience
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("memory", [None, SlidingWindow(9)])
def test_loops_play_all_but_the_first_rounds(rule, memory, rounds_in_loops):
    bandit = made(acquisition=rule, width=ConstantWidth(1.0), memory=memory)
    bandit.run(torch.randn(400, 12, dtype=DOUBLE, generator=torch.Generator().manual_seed(0)))
    assert 360 <= sum(rounds_in_loops) <= 392
    assert len(bandit.history.X) == bandit.round == 400
    assert len(rounds_in_loops) == 1 or isinstance(rule, ThompsonRule)


@loops_only
def test_rules_and_widths_made_of_ours_are_asked_in_every_round(rounds_in_loops):
    class Timid(UpperConfidenceRule):
        def on_arms(self, posterior, beta, seed):
            return posterior.mean - beta * posterior.variance.sqrt()

    class Growing(ConstantWidth):
        def __call__(self, evidence):
            return super().__call__(evidence) * (1 + evidence.num_observations)

    table = torch.randn(40, 12, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
    for words in ({"acquisition": Timid(), "width": ConstantWidth(1.0)}, {"width": Growing(0.1)}):
        one, other = made(**words), by_hand(made(**words), table)
        one.run(table)
        agree(one, other)
    assert rounds_in_loops == []


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_reward_that_is_no_number_ends_the_rounds_before_it(bad):
    table = torch.randn(40, 12, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
    table[30:] = bad
    bandit, calm = made(width=ConstantWidth(1.0)), by_hand(made(width=ConstantWidth(1.0)), table[:30])
    with pytest.raises(InputError):
        bandit.run(table)
    assert (bandit.round, len(bandit.pending)) == (30, 0)
    agree(bandit, calm)


def test_a_reward_that_nobody_sees_may_be_anything():
    table = torch.randn(40, 12, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
    calm = by_hand(made(width=ConstantWidth(1.0)), table)
    rows = [int((x == ARMS).all(-1).nonzero()[0]) for x in calm.history.X]
    seen = torch.full_like(table, torch.nan)
    seen[range(40), rows] = table[range(40), rows]
    bandit = made(width=ConstantWidth(1.0))
    bandit.run(seen)
    agree(bandit, calm)


def test_what_a_table_of_rewards_must_be():
    bandit, table = made(width=ConstantWidth(1.0)), torch.zeros(5, 12, dtype=DOUBLE)
    for bad in (table[0], table[:, :11], table.T, table[None], torch.complex(table, table)):
        with pytest.raises(InputError, match=r"must be \(r, 12\)"):
            bandit.run(bad)
    with pytest.raises(InputError, match="a function that returns rewards, or a table"):
        bandit.run(0.0)
    with pytest.raises(InputError, match="5 rounds, and 6"):
        bandit.run(table, 6)
    with pytest.raises(InputError, match="0 rounds"):
        bandit.run(table[:0])
    with pytest.raises(InputError, match="offered="):
        bandit.run(table, offered=lambda number: {})
    with pytest.raises(InputError, match="rounds"):
        bandit.run(lambda x: 0.0)
    box = algorithms.build(
        "igp-ucb", bounds=torch.tensor([[0.0], [1.0]]), kernel=matern(), regularization=0.1, seed=0, beta=1.0
    )
    with pytest.raises(InputError, match="column for each arm"):
        box.run(table)
    assert bandit.round == 0
    assert bandit.run(table, 2).shape == (2, 2)
    assert bandit.round == 2


def test_any_bandit_on_arms_takes_a_table():
    table = torch.sin(9.0 * ARMS[:, 0]).float() + torch.zeros(15, 1)
    for name, words in (("bkb", {"beta": 1.0}), ("dms-gp-ucb", {"beta": 1.0}), ("tv-gp-ucb", {"beta": 1.0})):
        it = {"candidates": ARMS, "kernel": rbf(), "regularization": 0.1, "seed": 0}
        it |= {"forgetting": 0.1} if name == "tv-gp-ucb" else {}
        one, other = (algorithms.build(name, **it, **words) for _ in range(2))
        X = one.run(table)
        assert torch.equal(X, by_hand(other, table.double()).history.X[:, -2:])
        assert torch.equal(one.ask(), other.ask())


# ---------------------------------------------------------------- problems that know them

PROBLEMS = [
    ("rkhs-function", {"num_arms": 12}),
    ("gaussian-bumps", {"num_arms": 12}),
    ("abrupt", {"num_arms": 12, "switches": [9]}),
    ("drift", {"num_arms": 12}),
    ("moving-peak", {}),
    ("seattle-weather", {}),
]


@pytest.mark.parametrize(("name", "options"), PROBLEMS)
def test_what_each_arm_would_return_is_what_it_does(name, options):
    environment, twin = build(name, seed=3, **options), build(name, seed=3, **options)
    rewards = environment.rewards_of_arms(range(5, 25))
    assert rewards.shape == (20, len(environment.arms))
    for number, of_arms in zip(range(5, 25), rewards, strict=True):
        for row in (0, 3, len(environment.arms) - 1):
            assert torch.equal(of_arms[row : row + 1], twin.pull(twin.arms[row : row + 1], number))


def noisier(X, means, round):
    return means + round


class Rising(DynamicEnvironment):
    def means(self, round):
        return self.arms[:, 0] * round


class OwnPull(FiniteArms):
    def pull(self, X, round):
        return 2.0 * super().pull(X, round)


class OwnMean(FiniteArms):
    def mean(self, X):
        return 1.0 - super().mean(X)


def test_problems_made_of_ours_or_with_a_noise_of_their_own_know_nothing_beforehand():
    for kind in (OwnPull, OwnMean):
        assert kind(ARMS, ARMS[:, 0].clone(), 0.1, 0).rewards_of_arms(range(3)) is None
    assert FiniteArms(ARMS, ARMS[:, 0].clone(), 0.1, 0).rewards_of_arms(range(3)).shape == (3, 12)
    assert Rising(ARMS, 0.1, 0, noise=noisier).rewards_of_arms(range(3)) is None
    assert Rising(ARMS, 0.1, 0).rewards_of_arms(range(3)).shape == (3, 12)


@pytest.mark.parametrize("name", ["igp-ucb", "sw-gp-ucb", "random"])
@pytest.mark.parametrize("environment", ["rkhs-function", "drift"])
def test_an_experiment_is_the_same_whether_rewards_are_known(name, environment, monkeypatch):
    def played(is_known):
        problem = build(environment, num_arms=15, seed=1)
        problem.center = 0.25
        if not is_known:
            monkeypatch.setattr(type(problem), "rewards_of_arms", lambda self, rounds: None)
        words = {"candidates": problem.arms, "kernel": rbf(), "regularization": 0.1, "seed": 0}
        words |= {"beta": 1.0} if name != "random" else {}
        words |= {"window": 8} if name == "sw-gp-ucb" else {}
        bandit, seen = algorithms.build(name, **words), []
        trace = play(bandit, problem, 61, record_every=10, watch=seen.append)
        return bandit, trace, seen

    (one, trace, seen), (other, plain, _) = played(True), played(False)
    agree(one, other)
    assert (trace.rounds, trace.regret, trace.dictionary_size) == (plain.rounds, plain.regret, plain.dictionary_size)
    assert seen[-1] == 61
