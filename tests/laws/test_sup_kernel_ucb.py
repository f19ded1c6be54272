"""SupKernelUCB against a dense one in NumPy that keeps its own sets of rounds; stages are told, saved and replayed."""

import math

import numpy as np
import oracles
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from problems import DOUBLE, examples, matern, rbf
from scipy.stats import binom

from torch_kbandits import Box, History, InputError, StateMismatchError, algorithms
from torch_kbandits.acquisition import StagedRule
from torch_kbandits.candidates import ContextualActions
from torch_kbandits.confidence import FixedDesignWidth

LAMBDA = 0.05


class DenseSup:
    """SupKernelUCB as its paper writes it, on joint points, with the widest of the actions that may be explored."""

    def __init__(self, kernel, horizon, beta):
        self.kernel, self.horizon, self.beta = kernel, horizon, beta
        self.X, self.Y, self.stage_of = [], [], []

    def choose(self, points):
        """What ``oracles.chosen_by_stages`` returns."""

        def bounds(stage):
            rows = [row for row, number in enumerate(self.stage_of) if number == stage]
            X = np.array([self.X[row] for row in rows]).reshape(len(rows), points.shape[1])
            Y, noise = np.array([self.Y[row] for row in rows]), np.full(len(rows), LAMBDA)
            found = oracles.exact(self.kernel, X, Y, noise, points)
            return found.mean, self.beta * np.sqrt(np.maximum(found.variance, 0.0))

        return oracles.chosen_by_stages(bounds, self.horizon)

    def tell(self, x, y, stage):
        self.X.append(x), self.Y.append(y), self.stage_of.append(stage)


def make(candidates, horizon=200, beta=0.6, kernel=None, **words):
    kernel = rbf(0.5) if kernel is None else kernel
    return algorithms.SupKernelUCB(
        candidates=candidates, kernel=kernel, regularization=LAMBDA, horizon=horizon, beta=beta, seed=3, **words
    )


def reward(joint):
    return torch.sin(4.0 * joint).sum(-1)


@examples(12)
@given(
    num_actions=st.integers(1, 7), context_dim=st.integers(0, 2), horizon=st.sampled_from([1, 2, 30, 300, 5000]),
    beta=st.sampled_from([0.05, 0.3, 1.0]), changing=st.booleans(), seed=st.integers(0, 1000),
)  # fmt: skip
def test_the_choices_are_the_dense_ones_round_for_round(num_actions, context_dim, horizon, beta, changing, seed):
    generator = torch.Generator().manual_seed(seed)
    actions = torch.rand(num_actions, 1, generator=generator, dtype=DOUBLE)
    words = {"action_dim": 1} if changing else {"actions": actions}
    bandit = make(ContextualActions(context_dim=context_dim, **words), horizon, beta, matern(0.5, 1.7))
    twin = DenseSup(oracles.matern52(0.5, 1.7), horizon, beta)
    for number in range(30):
        context = torch.rand(context_dim, generator=generator, dtype=DOUBLE)
        if changing:
            actions = torch.rand(1 + number % num_actions, 1, generator=generator, dtype=DOUBLE)
        joint = torch.cat([context.expand(len(actions), -1), actions], -1)
        action = bandit.ask(context=context, candidates=actions if changing else None)
        (stage,) = bandit.state_dict()["pending_stages"].tolist()
        best, expected, near = twin.choose(joint.numpy())
        if near:
            return  # rounding decides which side of a threshold a width is on
        assert stage == expected
        assert bool((actions[best] == action).all(-1).any())
        x = torch.cat([context.unsqueeze(0), action], -1)
        y = reward(x) + 0.1 * torch.randn(1, generator=generator, dtype=DOUBLE)
        bandit.tell(action, y, context=context)
        twin.tell(x[0].numpy(), float(y), stage)
    assert bandit.history.stages.tolist() == twin.stage_of


def test_every_way_to_play_happens():
    """On seven actions with little noise: exploring in several stages, and playing by the upper bound."""
    actions = torch.linspace(0, 1, 7, dtype=DOUBLE).unsqueeze(-1)
    bandit = make(actions, horizon=300, beta=0.6)
    for _ in range(45):  # which are enough to leave the last stage
        x = bandit.ask()
        bandit.tell(x, reward(x))
    assert {0, 1, 2, 3} <= set(bandit.history.stages.tolist()) <= set(range(6))
    assert float((reward(actions).max() - reward(bandit.history.X[-10:])).mean()) < 0.05


def test_the_first_asked_of_equal_points_is_told_first():
    """The same action twice in stage 1, then in stage 0: what is told by its value takes the stages in that order."""
    bandit = make(torch.zeros(1, 1, dtype=DOUBLE), horizon=4, beta=0.6, kernel=rbf(0.5))
    asked = bandit.ask(6)
    stages = bandit.state_dict()["pending_stages"].clone()
    assert stages[0] == 1
    assert stages[-1] == 0
    for _ in range(6):
        bandit.tell(asked[:1], 0.5)
    assert torch.equal(bandit.history.stages, stages)


@pytest.mark.parametrize("horizon", [1, 2, 3, 4, 5, 16, 17, 1000, 1024, 1025, 10**6])
def test_the_last_stage_always_decides(horizon):
    stages = StagedRule(horizon).num_stages
    assert stages == max(1, math.ceil(0.5 * math.log2(horizon)))
    assert 2.0**-stages <= horizon**-0.5
    mean = torch.zeros(3, dtype=DOUBLE)
    for width in (2.0**-stages, horizon**-0.5, 1.0, 1e-9):
        assert StagedRule(horizon).verdict(stages, mean, torch.full_like(mean, width)).scores is not None


def test_the_theorems_width():
    words = {"noise_scale": 0.2, "norm_bound": 1.5, "failure_probability": 0.05}
    arms = torch.rand(8, 1, dtype=DOUBLE)
    expected = 1.5 + 0.2 / math.sqrt(LAMBDA) * math.sqrt(2.0 * math.log(2.0 * 100 * 4 * 8 / 0.05))
    for bandit in (
        make(arms, horizon=100, beta=None, **words),
        make(None, horizon=100, beta=None, action_dim=1, num_actions=8, **words),
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
        (lambda: make(Box(bounds)), "give a finite set"),
        (lambda: make(ContextualActions(bounds=bounds, context_dim=1)), "give a finite set"),
        (lambda: make(None, bounds=bounds), "give a finite set"),
        (lambda: make(arms, horizon=0), "horizon must be a whole number"),
        (lambda: make(None, action_dim=1, beta=None, noise_scale=0.1, norm_bound=1.0), r"Without beta .* num_actions"),
        (lambda: make(arms, num_actions=3), "always 4 actions"),
        (lambda: make(None, action_dim=1, num_actions=0), "num_actions must be a whole number"),
        (lambda: make(arms, context_dim=2).ask(), "context is missing"),
    ):
        with pytest.raises(InputError, match=message):
            call()


def test_bad_stages_are_refused():
    bandit, twin = (make(torch.linspace(0, 1, 9, dtype=DOUBLE).unsqueeze(-1)) for _ in range(2))
    bandit.run(reward, 5)
    history, state = bandit.history, bandit.state_dict()
    for stages in (history.stages + 9, -history.stages - 1, history.stages[:2], history.stages.double()):
        with pytest.raises(InputError):
            twin.replay(History(history.X, history.Y, history.rounds, stages))
        with pytest.raises(StateMismatchError, match="stage"):
            twin.load_state_dict(state | {"history": state["history"] | {"stages": stages}})
        assert twin.num_told == 0
    without = {key: value for key, value in state.items() if key != "pending_stages"}
    for damaged in (without, state | {"history": state["history"] | {"stages": None}}):
        with pytest.raises(StateMismatchError, match="stages of the history or of the pending points are missing"):
            twin.load_state_dict(damaged)
    twin.replay(History(history.X, history.Y, history.rounds))
    assert twin.history.stages.tolist() == [0] * 5
