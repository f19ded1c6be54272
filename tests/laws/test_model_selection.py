"""Memories chosen by what they predicted: scores against a dense posterior, choices, what is refused."""

import math

import numpy as np
import oracles
import pytest
import torch
from problems import DOUBLE, data, dense, rbf

from torch_kbandits import InputError, StateMismatchError, algorithms
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.adaptation import DynamicModelSelection, ResidualTrigger
from torch_kbandits.bandit.adaptation.model_selection import BlockScores
from torch_kbandits.candidates import Arms
from torch_kbandits.confidence import ConstantWidth
from torch_kbandits.memory import Discount, KeepAll, SlidingWindow, UncertaintyInjection
from torch_kbandits.memory.growth import Linear

ARMS = data(30, 2)[0]
LAMBDA = 0.05
MEMORIES = (SlidingWindow(4.0), Discount(0.8), UncertaintyInjection(Linear(0.02)), KeepAll())


def made(**settings):
    words = {"candidates": ARMS, "kernel": rbf(0.3), "regularization": LAMBDA, "beta": 1.5, "seed": 3}
    return algorithms.DMSGPUCB(**(words | {"memories": MEMORIES, "block_size": 3} | settings))


def play(bandit, rounds, sign=lambda t: 1.0, q=1):
    for _ in range(rounds):
        x = bandit.ask(q)
        bandit.tell(x, sign(bandit.round) * torch.cos(3.0 * x.sum(-1)))
    return bandit


def noises(ages):
    """The noise variance of each memory at some ages, (n,), infinite where nothing counts."""
    window = np.where(ages <= 4.0, LAMBDA, np.inf)
    return [window, LAMBDA * 0.8**-ages, LAMBDA + 0.02 * ages, np.full(len(ages), LAMBDA)]


def log_density(history, start, stop, noise_of):
    """Of the rewards of rounds start to stop, each on its own, given those before; in NumPy."""
    X, y, rounds = dense(history.X, history.Y, history.rounds)
    before, told = rounds < start, (rounds >= start) & (rounds < stop)
    noise = noise_of(start - rounds[before])
    counts = np.isfinite(noise)
    posterior = oracles.exact(oracles.rbf(0.3), X[before][counts], y[before][counts], noise[counts], X[told])
    variance = posterior.variance + LAMBDA
    return -0.5 * ((y[told] - posterior.mean) ** 2 / variance + np.log(2.0 * np.pi * variance)).sum()


@pytest.mark.one_in(4)
@pytest.mark.parametrize("q", [1, 2])
@pytest.mark.parametrize("score_discount", [0.5, 0.9])
def test_the_memory_in_force_predicted_best(q, score_discount):
    bandit = play(made(score_discount=score_discount), 21, lambda t: -1.0 if t // 8 % 2 else 1.0, q)
    history = bandit.history
    totals = np.zeros(4)
    for block in range(7):
        start = 3 * block
        scores = [log_density(history, start, start + 3, lambda ages, k=k: noises(ages)[k]) for k in range(4)]
        totals = score_discount**3 * totals + scores
    kept = bandit.memories.num_blocks
    assert kept == math.ceil(math.log(1e-3) / (3 * math.log(score_discount)))
    if kept >= 7:
        expected = np.exp(totals - totals.max())
        assert bandit.memory_probabilities == pytest.approx(expected / expected.sum(), rel=1e-6)
    assert MEMORIES.index(bandit.memory) == totals.argmax()


def test_the_posterior_is_that_of_the_memory_in_force():
    bandit = play(made(), 15, lambda t: -1.0 if t // 6 % 2 else 1.0)
    X, y, rounds = dense(bandit.history.X, bandit.history.Y, bandit.history.rounds)
    noise = noises(15.0 - rounds)[MEMORIES.index(bandit.memory)]
    counts = np.isfinite(noise)
    bandit.ask()  # it is round 15 now
    (T,) = dense(ARMS)
    expected = oracles.exact(oracles.rbf(0.3), X[counts], y[counts], noise[counts], T)
    found = bandit.model.posterior(ARMS.unsqueeze(-2))
    assert np.abs(found.mean.flatten().detach().numpy() - expected.mean).max() < 1e-8
    assert np.abs(found.variance.flatten().detach().numpy() - expected.variance).max() < 1e-8


def test_a_choice_weighs_late_blocks_more_and_takes_the_first_of_equals():
    rule = DynamicModelSelection((SlidingWindow(3), SlidingWindow(9), KeepAll()), block_size=2, score_discount=0.5)
    assert rule.choice((), 0).memory == KeepAll()
    assert rule.choice((BlockScores(0, (1.0, 1.0, 0.5)),), 0).memory == SlidingWindow(3)
    two = (BlockScores(4, (0.0, 8.0, 0.0)), BlockScores(5, (1.0, 0.0, 3.0)))  # 0.25 · 8 = 2 < 3
    chosen = rule.choice(two, 0)
    assert chosen.memory == KeepAll()
    assert chosen.probabilities == pytest.approx((math.exp(-2) / 1.5032, math.exp(-1) / 1.5032, 1 / 1.5032), rel=1e-4)


def test_a_function_that_stays_leads_to_a_long_memory_and_one_that_jumps_to_a_short_one():
    stays = play(made(memories=[SlidingWindow(3.0), KeepAll()]), 18)
    jumps = play(made(memories=[SlidingWindow(3.0), KeepAll()]), 18, lambda t: 3.0 * (-1.0) ** (t // 6))
    assert stays.memory == KeepAll()
    assert jumps.memory == SlidingWindow(3.0)


def test_scores_are_computed_once(monkeypatch):
    bandit = made(score_discount=0.5)
    calls = []
    scored = DynamicModelSelection._scored

    def counted(self, block, *words):
        calls.append(block)
        return scored(self, block, *words)

    monkeypatch.setattr(DynamicModelSelection, "_scored", counted)
    play(bandit, 12)
    assert calls == [0, 1, 2, 3]


def test_what_makes_no_sense_is_refused():
    for bad in (
        {"memories": []},
        {"memories": [3]},
        {"block_size": 0},
        {"score_discount": 1.0},
        {"score_discount": 0.0},
    ):
        with pytest.raises(InputError):
            made(**bad)
    words = {"candidates": Arms(ARMS), "kernel": rbf(0.3), "regularization": 0.1, "width": ConstantWidth(1.0)}
    with pytest.raises(InputError, match="does not say when a trigger restarted"):
        Bandit(**words, seed=0, trigger=ResidualTrigger(0.1), memories=DynamicModelSelection((KeepAll(),)))
    with pytest.raises(StateMismatchError, match="memories"):
        made(score_discount=0.9).load_state_dict(play(made(), 4).state_dict())
    history = play(algorithms.GPUCB(candidates=ARMS, kernel=rbf(0.3), regularization=0.1, beta=1.0, seed=0), 4).history
    with pytest.raises(InputError, match="needs times"):
        made().replay(history)


def test_one_reward_far_away_is_no_reason_to_fail():
    bandit = made()
    bandit.tell(ARMS[:1], torch.tensor([1e6], dtype=DOUBLE))
    play(bandit, 8)
    assert sum(bandit.memory_probabilities) == pytest.approx(1.0)
