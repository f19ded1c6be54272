"""Stages of any posterior: with dictionaries, memories, batches and arms that are not in memory, beside dense ones."""

import math
from math import inf

import numpy as np
import oracles
import pytest
import torch
from forgetting import ACTIONS, ARMS, CONTEXTS, KERNEL, LAMBDA, MEMORIES, Forgetting
from problems import DOUBLE, believed, dense, difference, in_a_file, matern, rbf, reward
from scipy.stats import binom

import torch_kbandits as kb
from torch_kbandits import algorithms
from torch_kbandits.acquisition import StagedRule, UpperConfidenceRule
from torch_kbandits.bandit import GlobalBatchRule, LocalBatchRule, StayRule
from torch_kbandits.confidence import FixedDesignWidth
from torch_kbandits.dictionaries import KORS
from torch_kbandits.memory import TemporalPrior

BETA, HORIZON = 0.4, 60  # so that a few rounds go through all three stages
RATE = 0.02
SIX = ARMS[:6]
SPACES = {
    "arms": lambda: kb.Arms(SIX),
    "arms in a file": lambda: kb.Arms(in_a_file(SIX)),
    "contexts": lambda: kb.ContextualActions(ACTIONS, context_dim=1),
    "changing": lambda: kb.ContextualActions(action_dim=1, context_dim=1),
}
DICTIONARIES = {
    "exact": None,
    "fresh": kb.RidgeLeverageSampling(2.0),
    "coupled": kb.RidgeLeverageSampling(2.0, "coupled"),
    "kors": KORS(0.5),
}
#: So much noise that several points are explored in a batch.
NOISY = {"regularization": 1.0, "width": kb.ConstantWidth(1.0)}
ALL = MEMORIES | {
    "none": Forgetting(None, lambda t, now: np.full(len(t), LAMBDA)),
    "prior on time": Forgetting(TemporalPrior(RATE), lambda t, now: np.full(len(t), LAMBDA)),
}


def make(space="arms", posterior="exact", memory="none", **words):
    settings = {"kernel": matern(0.5, 1.7), "regularization": LAMBDA, "seed": 3, "width": kb.ConstantWidth(BETA)}
    settings |= {"acquisition": StagedRule(HORIZON), "memory": ALL[memory].memory}
    settings |= {"candidates": SPACES[space]() if isinstance(space, str) else space}
    return kb.Bandit(**(settings | {"dictionary": DICTIONARIES[posterior]} | words))


def offer(space, number):
    """What ``ask`` is given in a round."""
    words = {"context": CONTEXTS[number % len(CONTEXTS)]} if space in ("contexts", "changing") else {}
    return words | ({"candidates": ACTIONS[: 1 + number % 6]} if space == "changing" else {})


def points_of(bandit, x, words, now):
    """Points (q, d) as the kernel sees them."""
    if "context" in words:
        x = torch.cat([words["context"].expand(len(x), -1), x], dim=-1)
    return torch.cat([torch.full_like(x[:, :1], now), x], dim=-1) if bandit.candidates.is_timed else x


class Dense:
    """The posteriors of the stages by their formulas, given what was told, what is pending and the dictionaries."""

    def __init__(self, bandit, memory, now):
        state = bandit.state_dict()
        history = state["history"]
        times = history["rounds"] if history["times"] is None else history["times"]
        X, y, times, stages = dense(history["X"], history["Y"], times, history["stages"])
        learned = slice(state["num_forgotten"], state["num_learned"])
        self.level, self.beta, noise = bandit.regularization, float(bandit.beta), np.full(len(X), inf)
        noise[learned] = self.level
        if memory != "none":  # what counts is decided for all stages at once
            noise[learned] = ALL[memory].noise(times[learned], now)
        counts, held = np.isfinite(noise), np.arange(len(X)) >= state["num_learned"]
        self.X, self.y, self.noise, self.stages = X[counts], y[counts], noise[counts], stages[counts]
        waiting, waiting_stages = dense(state["pending"]["points"], state["pending"]["stages"])
        self.pending = np.concatenate([X[held], waiting])
        self.pending_stages = np.concatenate([stages[held], waiting_stages])
        parts = [state, *state.get("stages", ())]
        self.Z = None if bandit.dictionary is None else [dense(part["inducing_points"])[0] for part in parts]
        self.kernel = oracles.in_time(KERNEL, RATE) if bandit.candidates.is_timed else KERNEL

    def posterior(self, stage, T, ahead=False):
        """Of everything told for stage 0; with what is pending if we look ahead."""
        own = slice(None) if stage == 0 else self.stages == stage
        X, y, noise = self.X[own], self.y[own], self.noise[own]
        more = self.pending if stage == 0 else self.pending[self.pending_stages == stage]

        def known(T):
            if self.Z is None:
                return oracles.exact(self.kernel, X, y, noise, T)
            return oracles.dtc(self.kernel, X, y, noise, self.Z[stage], T)

        return oracles.with_pending(known, T, more if ahead else more[:0], self.level)

    def bounds(self, stage, T):
        variance = self.posterior(stage, T, ahead=True).variance
        return self.posterior(stage, T).mean, self.beta * np.sqrt(np.maximum(variance, 0.0))

    def choice(self, points, horizon):
        return oracles.chosen_by_stages(lambda stage: self.bounds(stage, dense(points)[0]), horizon)


def checked_rounds(bandit, space, memory, count, first=0, q=2, horizon=HORIZON):
    """Play, and compare each choice with the dense one; return in how many it was compared."""
    compared = 0
    for number in range(first, first + count):
        words, now = offer(space, number), float(number)
        given = words.get("candidates", ACTIONS if words else SIX)
        points = points_of(bandit, given, words, now)
        for _ in range(1 + number % q):
            best, expected, near = Dense(bandit, memory, now).choice(points, horizon)
            x = bandit.ask(**words)
            if not near:
                assert int(bandit.state_dict()["pending"]["stages"][-1]) == expected, number
                assert bool((given[best] == x).all(-1).any()), number
                compared += 1
        Y = torch.sin(4.0 * bandit.pending).sum(-1)
        bandit.tell(ids=bandit.pending_ids[::-1], y=Y.flip(0))
    return compared


@pytest.mark.one_in(12)
@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("posterior", ["exact", "fresh", "kors"])
@pytest.mark.parametrize("memory", ["none", "window", "window of observations", "discount", "prior on time"])
def test_the_choices_are_those_of_dense_posteriors_of_what_counts_in_each_stage(space, posterior, memory):
    bandit = make(space, posterior, memory)
    assert checked_rounds(bandit, space, memory, 18) > 20
    assert set(bandit.history.stages.tolist()) >= {1, 2}


@pytest.mark.one_in(6)
@pytest.mark.parametrize("space", ["contexts", "changing"])
@pytest.mark.parametrize("horizon", [1, 2, 30, 300, 5000])
@pytest.mark.parametrize("beta", [0.05, 0.3, 1.0])
def test_the_choices_are_the_dense_ones_whatever_the_horizon(space, horizon, beta):
    words = {"kernel": matern(0.5, 1.7), "regularization": LAMBDA, "horizon": horizon, "beta": beta, "seed": 3}
    bandit = algorithms.SupKernelUCB(candidates=SPACES[space](), **words)
    assert checked_rounds(bandit, space, "none", 15, horizon=horizon) > 15


@pytest.mark.one_in(12)
@pytest.mark.parametrize("space", ["arms", "arms in a file", "contexts"])
@pytest.mark.parametrize("posterior", ["exact", "fresh"])
@pytest.mark.parametrize("rule", [GlobalBatchRule(3.0), LocalBatchRule(2.0)], ids=["global", "local"])
def test_what_a_batch_rule_holds_counts_in_its_stage(space, posterior, rule):
    bandit, compared, held = make(space, posterior, batches=rule, **NOISY), 0, []
    for number in range(14):
        compared += checked_rounds(bandit, space, "none", 1, number, q=3)
        held.append(bandit.history.stages[bandit.state_dict()["num_learned"] :])
    assert compared > 20
    assert sum(len(part) > 0 for part in held) > 2
    assert torch.cat(held).max() > 0


@pytest.mark.one_in(4)
@pytest.mark.parametrize("posterior", ["exact", "fresh"])
@pytest.mark.parametrize("space", ["arms", "contexts"])
def test_a_batch_ends_by_the_scores_of_the_stages_that_learn_it(space, posterior):
    bandit, threshold, sizes = make(space, posterior, batches=GlobalBatchRule(3.0), **NOISY), 3.0, []
    for number in range(12):
        words, twin = offer(space, number), Dense(bandit, "none", 0.0)
        bandit.ask(None, **words)
        X, stages = dense(bandit.pending)[0], bandit.state_dict()["pending"]["stages"].tolist()
        scores = [float(twin.posterior(s, x[None]).variance[0]) for x, s in zip(X, stages, strict=True)]  # as λ is 1
        totals = 1.0 + np.cumsum(scores)
        assert (totals[:-1] < threshold + 1e-9).all()
        assert totals[-1] > threshold - 1e-9
        bandit.tell(ids=bandit.pending_ids, y=torch.sin(4.0 * bandit.pending).sum(-1))
        assert bandit.model.num_observations == bandit.num_observations
        sizes.append(len(X))
    assert max(sizes) > 2
    assert {1, 2} <= set(bandit.history.stages.tolist())


def test_a_point_that_is_repeated_is_of_the_stage_that_chose_it_also_once_loaded():
    words = {"batches": StayRule(9.0), **NOISY}
    bandit, several = make(**words), 0
    for _ in range(12):
        x = bandit.ask(None)
        (stage,) = set(bandit.state_dict()["pending"]["stages"].tolist())
        if len(x) > 1:
            several += 1
            bandit.tell(ids=bandit.pending_ids[0], y=reward(x[:1]))
            bandit.forget()
            loaded = make(**words)
            loaded.load_state_dict(bandit.state_dict())
            for each in (bandit, loaded):
                assert torch.equal(each.ask(None), x[1:])
                assert each.state_dict()["pending"]["stages"].tolist() == [stage] * len(x[1:])
        bandit.tell(ids=bandit.pending_ids, y=reward(bandit.pending))
    assert several > 2
    assert set(bandit.history.stages.tolist()) >= {1, 2}


def played(bandit, rounds):
    for number in range(rounds):
        bandit.ask(1 + number % 2)
        if number % 5 != 3:  # else told a round later
            bandit.tell(ids=bandit.pending_ids[::-1], y=torch.sin(4.0 * bandit.pending.flip(0)).sum(-1))
    return bandit.history


@pytest.mark.one_in(4)
@pytest.mark.parametrize("posterior", ["exact", "fresh", "coupled", "kors"])
def test_what_is_known_of_everything_is_what_a_bandit_without_stages_knows(posterior):
    """Also its dictionary: stages draw from addresses of their own."""
    bandit = make(posterior=posterior, memory="window")
    plain = make(posterior=posterior, memory="window", acquisition=UpperConfidenceRule())
    X, Y, rounds, _, times, *_ = played(bandit, 15)
    bandit.forget()
    plain.replay(kb.History(X, Y, rounds, None, times))
    assert torch.equal(bandit.inducing_points, plain.inducing_points)
    for ours, theirs in zip(believed(bandit, ARMS), believed(plain, ARMS), strict=True):
        assert difference(ours, theirs) < 1e-12
    assert torch.equal(bandit.recommend(), plain.recommend())


def named(candidates, horizon=200, beta=0.6, **words):
    words = {"kernel": rbf(0.5), "regularization": LAMBDA, "horizon": horizon, "beta": beta, "seed": 3} | words
    return algorithms.SupKernelUCB(candidates=candidates, **words)


def test_the_theorems_width():
    words = {"noise_scale": 0.2, "norm_bound": 1.5, "failure_probability": 0.05}
    arms = torch.rand(8, 1, dtype=DOUBLE)
    expected = 1.5 + 0.2 / math.sqrt(LAMBDA) * math.sqrt(2.0 * math.log(2.0 * 100 * 4 * 8 / 0.05))
    for bandit in (
        named(arms, horizon=100, beta=None, **words),
        named(None, horizon=100, beta=None, action_dim=1, num_actions=8, **words),
    ):
        assert float(bandit.beta) == pytest.approx(expected, rel=1e-12)
    linucb = FixedDesignWidth(noise_scale=0.5, norm_bound=1.0, failure_probability=0.1)
    assert linucb.smallest(1.0) == pytest.approx(1.0 + math.sqrt(math.log(2.0 / 0.1) / 2.0), rel=1e-12)


def test_the_fixed_design_width_holds_as_often_as_it_says():
    """2,000 simulations of noise at a fixed design; false alarm 1e-6 by the binomial quantile at δ."""

    rng, kernel, delta = np.random.default_rng(0), oracles.matern52(0.3), 0.3
    X, grid = rng.random((40, 1)), np.linspace(0, 1, 20)[:, None]
    norm = 1.3
    coefficients = rng.standard_normal(20)
    coefficients *= norm / np.sqrt(coefficients @ kernel(grid, grid) @ coefficients)
    solve = np.linalg.solve(kernel(X, X) + LAMBDA * np.eye(40), kernel(X, grid))
    sigma = np.sqrt(1.0 - (kernel(grid, X) * solve.T).sum(1))
    Y = kernel(X, grid) @ coefficients + 0.2 * rng.standard_normal((2000, 40))
    width = FixedDesignWidth(0.2, norm, delta, num_bounds=20).smallest(LAMBDA)
    missed = (np.abs(Y @ solve - kernel(grid, grid) @ coefficients) > width * sigma).any(1).sum()
    assert missed <= binom.ppf(1.0 - 1e-6, 2000, delta)


def test_bad_input():
    arms, bounds = torch.rand(4, 1, dtype=DOUBLE), torch.tensor([[0.0], [1.0]], dtype=DOUBLE)
    for call, message in (
        (lambda: named(kb.Box(bounds)), "give a finite set"),
        (lambda: named(kb.ContextualActions(bounds=bounds, context_dim=1)), "give a finite set"),
        (lambda: named(None, bounds=bounds), "give a finite set"),
        (lambda: named(None, action_dim=1, beta=None, noise_scale=0.1, norm_bound=1.0), r"Without beta .* num_actions"),
        (lambda: named(arms, num_actions=3), "always 4 actions"),
        (lambda: named(arms, context_dim=2).ask(), "context is missing"),
    ):
        with pytest.raises(kb.InputError, match=message):
            call()


def test_bad_stages_are_refused():
    bandit, twin = (named(torch.linspace(0, 1, 9, dtype=DOUBLE).unsqueeze(-1)) for _ in range(2))
    bandit.run(reward, 5)
    history = bandit.history
    for stages in (history.stages + 9, -history.stages - 1, history.stages[:2], history.stages.double()):
        with pytest.raises(kb.InputError):
            twin.replay(kb.History(history.X, history.Y, history.rounds, stages))
        assert twin.num_observations == 0
    twin.replay(kb.History(history.X, history.Y, history.rounds))
    assert twin.history.stages.tolist() == [0] * 5
