"""Memories chosen by EXP3 from what they earned: its probabilities, its draws, and the posterior that follows."""

import math

import numpy as np
import oracles
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from problems import DOUBLE, data, dense, difference, rbf, reward

from torch_kbandits import Arms, Bandit, ConstantWidth, InputError, RidgeLeverageSampling, algorithms
from torch_kbandits.bandit.adaptation import (
    BanditOverBandit,
    block_windows,
    default_memories,
    exploration_rate,
    probabilities,
)
from torch_kbandits.memory import Discount, KeepAll, SlidingWindow
from torch_kbandits.observations.ledger import History

ARMS = data(30, 2)[0]
KERNEL = oracles.rbf(0.3)
NOISE = 0.05
MEMORIES = tuple(SlidingWindow(size, "observations") for size in (3, 8, math.inf))


def make(memories=MEMORIES, block_size=5, exploration=0.6, reward_bounds=None, shares_history=True, **settings):
    chooser = BanditOverBandit(memories, block_size, exploration, reward_bounds, shares_history)
    words = {"candidates": Arms(ARMS), "kernel": rbf(0.3), "regularization": NOISE, "width": ConstantWidth(1.5)}
    return Bandit(**(words | {"memories": chooser, "seed": 3} | settings))


def play(bandit, rounds):
    for _ in range(rounds):
        x = bandit.ask()
        bandit.tell(x, reward(x))


def exp3_by_hand(means, drawn, num_options, exploration, bounds):
    """The probabilities in each block, from the definition: every gain is scaled anew in every block."""
    told = []
    for block in range(len(means) + 1):
        past = means[:block]
        low, high = bounds or ((min(past), max(past)) if past else (0.0, 0.0))
        estimates = np.zeros(num_options)
        for number, mean in enumerate(past):
            gain = (np.clip(mean, low, high) - low) / (high - low) if high > low else 0.0
            estimates[drawn[number]] += gain / told[number][drawn[number]]
        weights = np.exp(exploration / num_options * estimates)
        told.append((1.0 - exploration) * weights / weights.sum() + exploration / num_options)
    return told


@given(
    st.lists(st.floats(-100.0, 100.0).map(lambda value: round(value, 3)), max_size=15),
    st.floats(0.05, 1.0),
    st.sampled_from([None, (-1.0, 2.0)]),
    st.integers(0, 5),
)
def test_probabilities_are_those_of_the_plain_formula(means, exploration, bounds, seed):
    chooser = BanditOverBandit(MEMORIES, 5, exploration, bounds)
    choices = [chooser.choice(means[:number], seed) for number in range(len(means) + 1)]
    drawn = [MEMORIES.index(choice.memory) for choice in choices]
    for choice, expected in zip(choices, exp3_by_hand(means, drawn, len(MEMORIES), exploration, bounds), strict=True):
        np.testing.assert_allclose(choice.probabilities, expected, rtol=1e-6)
        assert math.isclose(sum(choice.probabilities), 1.0)
        assert min(choice.probabilities) >= exploration / 3 - 1e-12


def test_scaling_and_shifting_rewards_changes_nothing():
    chooser = BanditOverBandit(MEMORIES, 5, 0.3)
    means = [0.1, 0.9, 0.4, 0.3, 0.8]
    expected = chooser.choice(means, 0).probabilities
    np.testing.assert_allclose(chooser.choice([50.0 * mean - 7.0 for mean in means], 0).probabilities, expected)


def test_weights_that_would_overflow():
    assert probabilities([1e6, 0.0], 0.1) == pytest.approx([0.95, 0.05])
    assert probabilities([3.0, 3.0, 3.0], 0.4) == pytest.approx([1 / 3] * 3)


def test_draws_have_the_probabilities():
    """2,000 seeds; each count is within five standard deviations: a false alarm has probability below 1e-5."""
    chooser = BanditOverBandit(MEMORIES, 5, 0.5)
    choices = [chooser.choice([], seed).memory for seed in range(2000)]
    for memory in MEMORIES:
        assert abs(choices.count(memory) - 2000 / 3) < 5.0 * math.sqrt(2000 * 2 / 9)
    second = [chooser.choice([0.0, 1.0], seed) for seed in range(2000)]
    expected = sum(choice.probabilities[0] for choice in second)
    count = sum(choice.memory is MEMORIES[0] for choice in second)
    assert abs(count - expected) < 5.0 * math.sqrt(2000 / 4)


def test_a_better_memory_is_learned():
    """One memory earns 1 and the others 0: after 150 blocks it is nearly always the one."""
    chooser, means = BanditOverBandit(MEMORIES, 5, exploration_rate(3, 150), (0.0, 1.0)), []
    for _ in range(150):
        means.append(float(chooser.choice(means, 0).memory is MEMORIES[1]))
    assert chooser.choice(means, 0).probabilities[1] > 0.9


def test_block_means_are_those_of_complete_blocks():
    Y, rounds = torch.arange(9, dtype=DOUBLE), torch.tensor([0, 0, 1, 2, 3, 3, 3, 4, 5])
    chooser = BanditOverBandit(MEMORIES, 2, 0.5)
    assert chooser.block_means(History(Y[:, None], Y, rounds)) == [1.0, 4.5, 7.5]
    assert chooser.block_means(History(Y[:8, None], Y[:8], rounds[:8])) == [1.0, 4.5]
    assert chooser.block_means(History(Y[:0, None], Y[:0], rounds[:0])) == []


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dictionary", [None, RidgeLeverageSampling(5.0)])
def test_the_posterior_is_that_of_the_window_in_force(dictionary):
    bandit, seen = make(dictionary=dictionary), set()
    for t in range(40):
        play(bandit, 1)
        size = bandit.memory.size
        seen.add(size)
        X, Y = bandit.history[:2]
        kept = slice(0 if size == math.inf else max(0, t + 1 - size), None)
        told = *dense(X[kept], Y[kept]), np.full(len(X[kept]), NOISE)
        if dictionary is None:
            expected = oracles.exact(KERNEL, *told, ARMS.numpy())
        else:
            expected = oracles.dtc(KERNEL, *told, *dense(bandit.inducing_points, ARMS))
            if t % 5 == 4:
                allowed = {tuple(row) for row in X[kept].tolist()}
                assert {tuple(row) for row in bandit.inducing_points.tolist()} <= {tuple(row) for row in X.tolist()}
                assert allowed & {tuple(row) for row in bandit.inducing_points.tolist()}
        mean, variance = bandit._belief.moments(ARMS)
        assert difference(mean, expected.mean) < expected.rounding
        assert difference(variance, expected.variance) < expected.rounding
        assert bandit.memory == bandit.memories.choice(bandit.memories.block_means(bandit.history), 3).memory
    assert seen == {3, 8, math.inf}


def test_blocks_without_a_shared_history_start_anew():
    bandit = make(shares_history=False)
    for t in range(30):
        play(bandit, 1)
        in_block = (t + 1) % 5
        counted = min(in_block, bandit.memory.size)
        assert bandit._belief.num_observations == counted
        assert bandit.num_since_restart == in_block
    assert len(bandit.history.X) == 30


def test_one_memory_is_the_bandit_with_it():
    window = SlidingWindow(7, "observations")
    words = {"kernel": rbf(0.3), "regularization": NOISE, "width": ConstantWidth(1.5), "seed": 3}
    plain = Bandit(candidates=Arms(ARMS), memory=window, **words)
    bandit = make(memories=(window,))
    for _ in range(16):
        x = plain.ask()
        assert torch.equal(bandit.ask(), x)
        for each in (plain, bandit):
            each.tell(x, reward(x))
    assert bandit.memory_probabilities == (1.0,)


def test_memories_of_any_kind():
    bandit = make(memories=(Discount(0.7), KeepAll(), SlidingWindow(4)))
    seen = set()
    for _ in range(8):
        play(bandit, 5)
        seen.add(type(bandit.memory))
        X, Y, _, _, times, *_ = bandit.history
        noise = bandit.memory.noise(times, float(bandit.round), NOISE)
        kept = noise.isfinite()
        expected = oracles.exact(KERNEL, *dense(X[kept], Y[kept], noise[kept]), ARMS.numpy())
        assert difference(bandit._belief.moments(ARMS)[0], expected.mean) < expected.rounding
    assert seen == {Discount, KeepAll, SlidingWindow}


def test_a_restart_on_demand_is_not_undone_by_a_change_of_memory():
    bandit = make()
    play(bandit, 7)
    bandit.restart()
    for number in range(1, 20):
        play(bandit, 1)
        assert bandit._belief.num_observations == min(number, bandit.memory.size)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("shares_history", [True, False])
def test_an_interrupted_change_of_memory_changes_nothing(shares_history, monkeypatch):
    bandit, twin = make(shares_history=shares_history), make(shares_history=shares_history)
    for each in (bandit, twin):
        play(each, 4)
    x = bandit.ask()
    twin.ask()
    expected, before = bandit.ask(2, remember=False), bandit.memory

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(BanditOverBandit, "choice", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bandit.tell(x, reward(x))
    monkeypatch.undo()
    assert (bandit.round, bandit.memory) == (4, before)
    assert torch.equal(bandit.ask(2, remember=False), expected)
    assert torch.equal(bandit.pending, x)
    for each in (bandit, twin):
        each.tell(x, reward(x))
        play(each, 6)
    assert torch.equal(bandit.history.X, twin.history.X)


def test_a_failed_replay_leaves_the_bandit_empty():
    recorded, bandit = make(), make()
    play(recorded, 18)
    history, first = recorded.history, bandit.memory
    assert recorded.memory != first  # and the error comes in the same block
    broken = history._replace(Y=torch.where(torch.arange(18) == 16, torch.inf, history.Y))
    with pytest.raises(InputError):
        bandit.replay(broken)
    assert (bandit.round, bandit.memory) == (0, first)
    bandit.replay(history)
    assert torch.equal(bandit.ask(), recorded.ask())


def test_grids_of_windows():
    assert [memory.size for memory in block_windows(100)] == [1, 2, 6, 15, 39, 100]
    assert [memory.size for memory in block_windows(1)] == [1]
    assert [memory.size for memory in default_memories(32, 1000)] == [32, 128, 512, math.inf]
    assert [memory.size for memory in default_memories(1, 1)] == [math.inf]


def test_the_rate_of_exploration():
    assert exploration_rate(1, 10) == 0.0
    assert exploration_rate(5, 1) == 1.0
    assert exploration_rate(5, 100) == pytest.approx(math.sqrt(5 * math.log(5) / ((math.e - 1) * 100)))


def test_bad_settings_are_refused():
    for memories in ((), "all", (3,), None):
        with pytest.raises(InputError, match="memories"):
            BanditOverBandit(memories, 5, 0.5)
    for block_size in (0, 2.5, True):
        with pytest.raises(InputError, match="block_size"):
            BanditOverBandit(MEMORIES, block_size, 0.5)
    for exploration in (-0.1, 1.1, math.nan):
        with pytest.raises(InputError, match="exploration"):
            BanditOverBandit(MEMORIES, 5, exploration)
    for bounds in ((1.0, 1.0), (2.0, 1.0), (0.0, math.inf), 3.0, (1.0,)):
        with pytest.raises(InputError, match="reward_bounds"):
            BanditOverBandit(MEMORIES, 5, 0.5, bounds)
    with pytest.raises(InputError, match="shares_history"):
        BanditOverBandit(MEMORIES, 5, 0.5, shares_history=1)
    with pytest.raises(InputError, match="either memory or memories"):
        make(memory=SlidingWindow(3))
    words = {"candidates": ARMS, "kernel": rbf(), "regularization": 0.1, "beta": 1.0, "horizon": 100, "seed": 0}
    for windows in ([], "3", 3, [0], [-1.0], [2.5]):
        with pytest.raises(InputError):
            algorithms.build("bob-gp-ucb", **words, windows=windows)
    with pytest.raises(InputError, match="horizon"):
        algorithms.build("bob-gp-ucb", **(words | {"horizon": 0}))
    with pytest.raises(InputError, match="takes other arguments"):
        algorithms.build("bob-gp-ucb", **{key: value for key, value in words.items() if key != "horizon"})
