"""A prior on time as a memory, and its rate chosen by what it predicted: against dense formulas that know neither."""

import math

import numpy as np
import oracles
import pytest
import torch
from problems import DOUBLE, data, dense, difference, matern

from torch_kbandits import Bandit, ConstantWidth, InputError, RidgeLeverageSampling, algorithms
from torch_kbandits.acquisition import Domain
from torch_kbandits.bandit.batches import StayRule
from torch_kbandits.candidates import Arms, Timed, TimedActions
from torch_kbandits.memory import BackToPrior

LAMBDA = 0.05
ARMS = data(20, 2, seed=3)[0]
KERNEL = oracles.matern52(0.5, 1.7)
RATES = (0.4, 0.1, 0.01, 0.0)
WORDS = {"kernel": matern(0.5, 1.7), "regularization": LAMBDA, "seed": 3}


def reward(x, t):
    return torch.cos(4.0 * x.sum(-1)) * (-1.0 if t // 8 % 2 else 1.0)


def play(bandit, rounds, moments=None):
    for t in range(rounds):
        x = bandit.ask(time=None if moments is None else moments[t])
        bandit.tell(x, reward(x, t))
    return bandit


def posterior(rate, X, y, times, T, now, least=None):
    """Mean and variance at points (n, d) at a time, in NumPy."""
    kept = np.ones(len(y), dtype=bool) if least is None else (1.0 - rate) ** ((now - times) / 2.0) >= least
    X, y, times = X[kept], y[kept], times[kept]
    K = KERNEL(X, X) * (1.0 - rate) ** (np.abs(times[:, None] - times) / 2.0) + LAMBDA * np.eye(len(X))
    cross = KERNEL(X, T) * (1.0 - rate) ** (np.abs(now - times)[:, None] / 2.0)
    return cross.T @ np.linalg.solve(K, y), 1.7 - (cross * np.linalg.solve(K, cross)).sum(0)


def told(bandit):
    X, y, times = dense(bandit.history.X, bandit.history.Y, bandit.history.times)
    assert (X[:, 0] == times).all()
    return X[:, 1:], y, times


@pytest.mark.one_in(2)
@pytest.mark.parametrize("least", [None, 0.5])
def test_the_posterior_is_the_dense_one_at_odd_times(least):
    moments = [0.0, 1.0, 1.0, 2.5, 4.0, 9.0, 9.5, 20.0]
    bandit = Bandit(candidates=Arms(ARMS), memory=BackToPrior(0.1, least), width=ConstantWidth(1.5), **WORDS)
    play(bandit, len(moments), moments)
    bandit.ask(time=21.0)
    at = torch.cat([torch.full((len(ARMS), 1), 21.0, dtype=DOUBLE), ARMS], -1)
    mean, variance = posterior(0.1, *told(bandit), dense(ARMS)[0], 21.0, least)
    found = bandit.model.posterior(at.unsqueeze(-2))
    assert difference(found.mean.flatten(), mean) < 1e-8
    assert difference(found.variance.flatten(), variance) < 1e-8


def test_it_is_the_prior_of_tv_gp_ucb():
    theirs = algorithms.TVGPUCB(candidates=ARMS, forgetting=0.05, beta=1.5, **WORDS)
    words = {"width": ConstantWidth(1.5), "acquisition": None}
    ours = Bandit(candidates=Arms(ARMS), memory=BackToPrior(0.05), **words, **WORDS)
    for t in range(15):
        x = theirs.ask()
        assert torch.equal(ours.ask(), x)
        theirs.tell(x, reward(x, t))
        ours.tell(x, reward(x, t))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("score_discount", [0.5, 0.9])
def test_the_rate_in_force_predicted_best(score_discount):
    words = {"candidates": ARMS, "forgettings": RATES, "least_correlation": None, "block_size": 3, "beta": 1.5}
    bandit = play(algorithms.DMSTVGPUCB(score_discount=score_discount, **words, **WORDS), 15)
    X, y, times = told(bandit)
    totals, chosen = np.zeros(len(RATES)), []
    for start in range(0, 15, 3):
        block, before = slice(start, start + 3), slice(0, start)
        scores = []
        for rate in RATES:
            # Each reward on its own, at the time at which it was made.
            moments = [posterior(rate, X[before], y[before], times[before], X[[s]], times[s]) for s in range(15)[block]]
            mean, variance = (np.concatenate(part) for part in zip(*moments, strict=True))
            scores.append(-0.5 * ((y[block] - mean) ** 2 / (variance + LAMBDA) + np.log(variance + LAMBDA)).sum())
        totals = score_discount**3 * totals + scores
        chosen.append(RATES[totals.argmax()])
    assert bandit.memory.forgetting == chosen[-1]
    assert len(set(chosen)) > 1
    if bandit.memories.num_blocks >= 5:
        expected = np.exp(totals - totals.max())
        assert bandit.memory_probabilities == pytest.approx(expected / expected.sum(), rel=1e-6)


def test_what_stays_leads_to_the_least_rate_and_what_jumps_to_a_large_one():
    words = {"candidates": ARMS, "forgettings": (0.3, 0.0), "beta": 1.5}
    stays, jumps = (algorithms.DMSTVGPUCB(**words, **WORDS) for _ in range(2))
    for t in range(15):
        for bandit, sign in ((stays, 1.0), (jumps, (-1.0) ** (t // 4))):
            x = bandit.ask()
            bandit.tell(x, 2.0 * sign * torch.cos(4.0 * x.sum(-1)))
    assert stays.memory.forgetting == 0.0
    assert jumps.memory.forgetting == 0.3


@pytest.mark.parametrize("posterior_kind", ["exact", pytest.param("dictionary", marks=pytest.mark.slow)])
def test_saved_replayed_and_bounded(tmp_path, posterior_kind):
    rule = None if posterior_kind == "exact" else RidgeLeverageSampling(2.0)
    words = {"candidates": ARMS, "block_size": 4, "beta": 1.5, "dictionary": rule, "least_correlation": 0.3}

    def made():
        return algorithms.DMSTVGPUCB(forgettings=(0.5, 0.2, 0.05), **words, **WORDS)

    bandit = play(made(), 10)
    bandit.save(tmp_path / "bandit.kb")
    again, replayed = Bandit.load(tmp_path / "bandit.kb"), made()
    replayed.replay(bandit.history)
    for t in range(10, 14):
        x = bandit.ask()
        assert torch.equal(again.ask(), x)
        assert torch.equal(replayed.ask(), x)
        for each in (bandit, again, replayed):
            each.tell(x, reward(x, t))
    assert bandit._belief.num_observations <= 1 + 2.0 * math.log(0.3) / math.log1p(-bandit.memory.forgetting)


@pytest.mark.usefixtures("short_searches")
def test_contexts_boxes_and_actions_of_the_round():
    generator = torch.Generator().manual_seed(0)
    changing = algorithms.DMSTVGPUCB(action_dim=1, context_dim=1, beta=1.5, **WORDS)
    for t in range(6):
        actions = torch.rand(5, 1, generator=generator, dtype=DOUBLE)
        context = torch.tensor([0.1 * t], dtype=DOUBLE)
        x = changing.ask(context=context, candidates=actions)
        assert (x == actions).any()
        changing.tell(x, reward(x, t), context=context)
    box = algorithms.DMSTVGPUCB(bounds=torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE), beta=1.5, **WORDS)
    play(box, 5)
    assert box.history.X.shape == (5, 3)


class Scattered(Arms):
    """Arms of which nobody here has any, as those of shards."""

    domain = Domain()


def test_what_does_not_fit_is_refused():
    still = {"candidates": Arms(ARMS), "width": ConstantWidth(1.0)} | WORDS
    for call, message in (
        (lambda: BackToPrior(1.0), "forgetting must be at least 0 and below 1, got 1.0"),
        (lambda: BackToPrior(-0.1), "forgetting must be at least 0"),
        (lambda: BackToPrior(math.nan), "forgetting must be"),
        (lambda: BackToPrior(True), "forgetting must be a number"),
        (lambda: BackToPrior(0.1, 1.0), "least_correlation must lie strictly between 0 and 1"),
        (lambda: Timed(ARMS), "candidates must be"),
        (lambda: Timed(TimedActions(ARMS)), "know the time already"),
        (lambda: Timed(Scattered(ARMS)), "The arms of Scattered are not read here.*a mean= that does not"),
        (lambda: Bandit(memory=BackToPrior(0.1), batches=StayRule(), **still), "a time that the points know"),
        (lambda: algorithms.MiniGPUCB(candidates=ARMS, beta=1.0, memory=BackToPrior(0.1), **WORDS), "a time that"),
        (
            lambda: algorithms.DMSTVGPUCB(candidates=ARMS, forgettings=0.1, **WORDS),
            "forgettings must be several shares",
        ),
        (
            lambda: algorithms.DMSTVGPUCB(candidates=ARMS, forgettings=(0.1, math.nan), **WORDS),
            "at least 0 and below 1",
        ),
        (lambda: algorithms.DMSTVGPUCB(candidates=ARMS, forgettings=(), **WORDS), "memories must be one or more"),
        (lambda: algorithms.DMSTVGPUCB(candidates=ARMS, forgettings=(0.1, 1.0), **WORDS), "at least 0 and below 1"),
    ):
        with pytest.raises(InputError, match=message):
            call()
