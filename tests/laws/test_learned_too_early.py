"""What is learned decides nothing before it knows: triggers wait for a fit, and a restart takes no recommendation."""

import numpy as np
import pytest
import torch
from problems import DOUBLE, rbf

import torch_kbandits as kb
from torch_kbandits import algorithms
from torch_kbandits.bandit.adaptation import CumulatedTrigger, ResidualTrigger
from torch_kbandits.memory import Restart, SlidingWindow, TemporalPrior, UncertaintyInjection

ARMS = torch.rand(30, 2, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
INITIAL = 6


def wavy(x):
    return torch.sin(7.0 * x[:, 0]) * torch.cos(5.0 * x[:, -1])


def fitted(bandit):
    """What tells one fit from another."""
    return bandit.prior.regularization, bandit.prior.mean


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("trigger", [ResidualTrigger(0.5), CumulatedTrigger(0.5)], ids=["single", "cumulated"])
def test_a_trigger_waits_for_the_first_fit_since_a_restart(trigger):
    """Rewards whose scale grows all the time are a surprise under any prior that was fitted to those before them."""
    prior = kb.LearnedPrior(num_initial=INITIAL)
    bandit = kb.Bandit(candidates=kb.Arms(ARMS), prior=prior, width=kb.ConstantWidth(2.0), trigger=trigger, seed=0)
    stretches, before = [], fitted(bandit)
    for number in range(30):
        x, count = bandit.ask(), bandit.num_since_restart
        bandit.tell(x, 1.3**number * (-1.0) ** number)
        if bandit.num_since_restart <= count:
            stretches.append(count)
        if stretches and bandit.num_since_restart < INITIAL:
            assert before == fitted(bandit)
        elif bandit.num_since_restart == INITIAL:
            assert before != fitted(bandit)
        before = fitted(bandit)
    assert len(stretches) > 2
    assert min(stretches) >= INITIAL


def test_changes_are_noticed_and_nothing_else_under_a_prior_that_is_learned():
    restarts, generator = [], torch.Generator().manual_seed(1)
    bandit = algorithms.ETGPUCB(candidates=ARMS, prior=kb.LearnedPrior(refit_share=1.0), seed=1)
    for number in range(45):
        x = bandit.ask()
        sign = 1.0 if number < 30 else -1.0
        bandit.tell(x, sign * wavy(x) + 0.05 * torch.randn(1, generator=generator, dtype=DOUBLE))
        restarts += [number] if number and bandit.num_since_restart == 1 else []
    assert len(restarts) == 1
    assert 30 <= restarts[0] <= 35


def test_rewards_after_a_change_are_no_penalties():
    """Far below those before it they are not taken for failures, all of them equal."""
    bandit = algorithms.ETGPUCB(candidates=ARMS, prior=kb.LearnedPrior(num_initial=8), seed=0)
    for number in range(26):
        x = bandit.ask()
        bandit.tell(x, wavy(x) - 1e3 * (number >= 12))
    assert bandit.num_since_restart < 18
    assert -1002.0 < bandit.prior.mean < -998.0
    assert bandit.prior.regularization < 0.1


def best_mean(X, Y, noise=0.01):
    """The point (d,) of the largest posterior mean of those played, under ``rbf(0.4)``, in NumPy."""
    X, Y = X.numpy(), Y.numpy()
    K = np.exp(-((X[:, None] - X[None]) ** 2).sum(-1) / (2.0 * 0.4**2))
    return X[np.argmax(K @ np.linalg.solve(K + noise * np.eye(len(Y)), Y))]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("rounds", [7, 8, 9])
@pytest.mark.parametrize(
    ("memory", "later", "counted"),
    [
        (None, {}, lambda n: n),
        (SlidingWindow(3, "observations"), {}, lambda n: 3),
        (SlidingWindow(2.0), {"time": 100.0}, lambda n: 3),
        (Restart(4.0), {"time": 100.0}, lambda n: n - 4 * ((n - 1) // 4)),
    ],
    ids=["restart", "restart with a window", "window long ago", "next period"],
)
def test_where_nothing_counts_what_counted_last_is_recommended(memory, later, counted, rounds):
    words = {"kernel": rbf(0.4), "regularization": 0.01, "beta": 2.0, "seed": 0, "memory": memory}
    bandit, again = (algorithms.GPUCB(candidates=ARMS, **words) for _ in range(2))
    for number in range(rounds):
        x = bandit.ask(**({"time": float(number)} if later else {}))
        bandit.tell(x, wavy(x) - 0.3 * number)
    if not later:
        bandit.restart()
    again.load_state_dict(bandit.state_dict())
    X, Y = (part[-counted(rounds) :] for part in bandit.history[:2])
    for each in (bandit, again):
        assert np.array_equal(each.recommend(**later)[0].numpy(), best_mean(X, Y))


@pytest.mark.one_in(5)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("prior", ["given", "learned"])
@pytest.mark.parametrize(
    ("candidates", "words"),
    [
        (kb.Box(ARMS.new_tensor([[0.0, 0.0], [1.0, 1.0]])), {}),
        (kb.ContextualActions(ARMS[:, 1:], context_dim=1), {}),
        (kb.Arms(ARMS), {"memory": TemporalPrior(0.05)}),
        (kb.Arms(ARMS), {"memory": UncertaintyInjection(kb.memory.LinearGrowth(0.1))}),
        (kb.Arms(ARMS), {"constraints": [kb.AtMost("cost", 0.6, mode="optimistic")]}),
        (kb.Arms(ARMS), {"objective": kb.Scalarization({"reward": "maximize", "cost": "minimize"})}),
        (kb.Arms(ARMS), {"dictionary": True}),
    ],
    ids=["box", "context", "prior on time", "growing noise", "limit", "objectives", "dictionary"],
)
def test_a_restart_takes_no_recommendation(candidates, words, prior):
    known = (
        {"prior": kb.LearnedPrior(num_initial=5)} if prior == "learned" else {"kernel": rbf(), "regularization": 0.01}
    )
    name, words = ("bkb", {}) if "dictionary" in words else ("gp-ucb", words)
    bandit = algorithms.build(name, candidates=candidates, beta=2.0, seed=0, **known, **words)
    for number in range(7):
        given = {"time": float(number)} if bandit.memory else {}
        given |= {"context": ARMS[number, :1]} if candidates.is_contextual else {}
        x = bandit.ask(**given)
        y = wavy(torch.cat([given["context"].unsqueeze(0), x], -1) if candidates.is_contextual else x)
        given.pop("time", None)
        bandit.tell(x, y, **given, **({"outcomes": {"cost": x[:, 0]}} if bandit.outcomes else {}))
    given |= {"time": 40.0} if bandit.memory else {}
    before = bandit.recommend(**given)
    bandit.restart()
    state = str(bandit.state_dict())
    assert torch.equal(bandit.recommend(**given), before)
    assert str(bandit.state_dict()) == state
