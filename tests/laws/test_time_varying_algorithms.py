"""R-, SW-, W- and UI-GP-UCB are compositions with their memories, whose lengths the theorems set."""

import numpy as np
import pytest
import torch
from gpytorch.kernels import LinearKernel
from problems import DOUBLE, data, rbf

import torch_kbandits as kb
from torch_kbandits import algorithms
from torch_kbandits.confidence import (
    ConstantWidth,
    GreedyGain,
    RateGain,
    greedy_information_gain,
    restart_period,
    window_size,
)
from torch_kbandits.dictionaries import SpanningDictionary
from torch_kbandits.memory import Discount, LinearGrowth, Restart, SlidingWindow, TemporalPrior, UncertaintyInjection

LAMBDA = 0.05
ARMS = data(30, 2, seed=4)[0]
PLAIN = {"kernel": rbf(0.4), "regularization": LAMBDA, "beta": 2.0, "seed": 3}
SETTINGS = PLAIN | {"candidates": ARMS}
CASES = {
    "r-gp-ucb": ({"period": 7}, Restart(7.0)),
    "sw-gp-ucb": ({"window": 7}, SlidingWindow(7.0)),
    "w-gp-ucb": ({"discount": 0.8, "least_weight": None}, Discount(0.8)),
    "ui-gp-ucb": ({"growth": 0.03, "max_variance": 0.5}, UncertaintyInjection(LinearGrowth(0.03), 0.5)),
}


@pytest.mark.parametrize("name", CASES)
def test_they_are_compositions_with_their_memories(name):
    """Which test_posterior compares with dense formulas."""
    words, memory = CASES[name]
    named, composed = algorithms.build(name, **SETTINGS, **words), {"memory": memory, "width": ConstantWidth(2.0)}
    plain = kb.Bandit(candidates=kb.Arms(ARMS), kernel=rbf(0.4), regularization=LAMBDA, seed=3, **composed)
    played = [
        each.run(lambda x, each=each: torch.sin(4.0 * x[:, 0] + 0.2 * each.round) + x[:, 1], 30)
        for each in (named, plain)
    ]
    assert named.memory == memory
    assert torch.equal(*played)


def remembered(name, **words):
    """For how many rounds an algorithm remembers that is told the horizon alone."""
    memory = algorithms.build(name, **words, **({"discount": None} if name == "w-gp-ucb" else {})).memory
    if name == "w-gp-ucb":
        return -1.0 / np.log(memory.discount)
    return memory.period if name == "r-gp-ucb" else memory.size


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["r-gp-ucb", "sw-gp-ucb", "w-gp-ucb"])
@pytest.mark.parametrize("budget", [None, 4.0])
def test_the_theorem_sets_the_memory(name, budget):
    """The gain of points of the box is that of arms which fill it, to the share that random points miss."""
    gain = float(greedy_information_gain(rbf(0.4), ARMS, 200, LAMBDA)[-1])
    formula = restart_period if name == "r-gp-ucb" else window_size
    words = PLAIN | {"horizon": 200, "variation_budget": budget}
    here = remembered(name, **words, candidates=ARMS)
    assert here == pytest.approx(formula(200, budget, gain=gain), rel=1e-12)
    grid = torch.cartesian_prod(*[torch.linspace(0.0, 1.0, 30, dtype=DOUBLE)] * 2)
    on_box = remembered(name, **words, bounds=grid[[0, -1]])
    assert on_box == pytest.approx(remembered(name, **words, candidates=grid), rel=0.05, abs=1.0)


@pytest.mark.parametrize("where", ["contexts", "a learned prior"])
@pytest.mark.parametrize("name", ["r-gp-ucb", "sw-gp-ucb", "w-gp-ucb"])
def test_with_contexts_or_a_learned_prior_the_gain_that_is_given_sets_the_memory(name, where):
    """Nobody knows before what is played there: the gain says what is assumed, a rate or that of some points."""
    prior = {"prior": kb.LearnedPrior(num_initial=3)} if where == "a learned prior" else PLAIN
    words = {**prior, "seed": 3, "horizon": 60, "variation_budget": 4.0, "beta": 2.0, "candidates": ARMS}
    words |= {"context_dim": 1} if where == "contexts" else {}
    rate = RateGain("matern", 3, nu=2.5)
    assert remembered(name, **words, gain=rate) == pytest.approx(window_size(60, 4.0, gain=rate.at(60)))
    joint = data(40, 3, seed=9)[0]
    greedy = float(greedy_information_gain(rbf(0.4), joint, 60, LAMBDA)[-1])
    gain = GreedyGain(rbf(0.4), joint, 60, LAMBDA)
    assert remembered(name, **words, gain=gain) == pytest.approx(window_size(60, 4.0, gain=greedy))
    bandit = algorithms.build(name, **words, gain=rate, **({"discount": None} if name == "w-gp-ucb" else {}))
    for t in range(6):
        context = None if where == "a learned prior" else torch.tensor([0.1 * t], dtype=DOUBLE)
        x = bandit.ask(context=context)
        bandit.tell(x, float(x.sum()) + t, context=context)


def test_tv_gp_ucb_under_a_learned_prior_learns_how_much_to_forget_unless_that_is_given():
    given, learned = (
        algorithms.TVGPUCB(candidates=ARMS, prior=kb.LearnedPrior(num_initial=4), beta=2.0, seed=0, **words)
        for words in ({"forgetting": 0.01}, {})
    )
    for bandit in (given, learned):
        assert bandit.memory == TemporalPrior(0.01)
        bandit.run(lambda x: torch.sin(4.0 * x[:, 0]) + x[:, 1], 6)
    assert given.memory == TemporalPrior(0.01)
    assert learned.memory == TemporalPrior(0.0)  # nothing changes


def forgetting_after(change, seed, rounds=30):
    """ε that is learned of a function of eight arms that is 5 at first, and of noise, told in one call."""
    generator = torch.Generator().manual_seed(seed)
    played, means, rewards = torch.randint(8, (rounds,), generator=generator), torch.full((8,), 5.0, dtype=DOUBLE), []
    for row in played:
        rewards.append(means[row] + torch.randn((), generator=generator, dtype=DOUBLE))
        means = means + change * torch.randn(8, generator=generator, dtype=DOUBLE)
    bandit = algorithms.TVGPUCB(candidates=ARMS[:8], prior=kb.LearnedPrior(), seed=0)
    bandit.tell(ARMS[played], torch.stack(rewards), time=torch.arange(float(rounds)))
    return bandit.memory.forgetting


def test_nothing_is_forgotten_of_a_level_and_noise_and_much_of_what_changes():
    """Of 60 other such series two were taken for change: three of six by chance with a probability of 7e-4."""
    assert sum(forgetting_after(0.0, seed) > 0.0 for seed in range(6)) <= 2
    assert forgetting_after(3.0, 0, rounds=40) > 0.0


def test_a_dictionary_that_spans_starts_anew_where_nothing_counts_any_more():
    """After a restart the posterior of a linear kernel is that of the rewards since, with actions of each round."""
    words = {"kernel": LinearKernel().double(), "regularization": LAMBDA, "beta": 2.0, "seed": 0}
    spanned, exact = (
        algorithms.RGPUCB(action_dim=2, period=4, dictionary=rule, **words) for rule in (SpanningDictionary(), None)
    )
    for t in range(11):
        offered = ARMS[3 * t % 20 : 3 * t % 20 + 5]
        x = exact.ask(candidates=offered)
        assert torch.equal(spanned.ask(candidates=offered), x)
        for each in (spanned, exact):
            each.tell(x, x.sum() + 0.1 * t)
    assert torch.allclose(spanned.model.posterior(ARMS).mean, exact.model.posterior(ARMS).mean, rtol=1e-8)


def test_bad_input():
    for call, part in (
        (lambda: algorithms.SWGPUCB(**SETTINGS), "window is missing"),
        (lambda: algorithms.RGPUCB(**PLAIN, bounds=ARMS[:2].sort(0).values), "period is missing"),
        (lambda: algorithms.WGPUCB(discount=None, **SETTINGS), "discount is missing"),
        (
            lambda: algorithms.SWGPUCB(horizon=100, context_dim=1, **SETTINGS),
            "with contexts or a learned prior also gain",
        ),
        (lambda: algorithms.RGPUCB(horizon=100, candidates=ARMS, prior=kb.LearnedPrior(), seed=0), "also gain"),
    ):
        with pytest.raises(kb.InputError, match=part):
            call()
