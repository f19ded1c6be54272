"""What is asked for where each round brings a context: the best of this round's actions, whatever came before."""

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import oracles
import pandas as pd
import pytest
import torch
from botorch.optim import optimize_acqf
from contextual import (
    ACTIONS,
    BETA,
    BOUNDS,
    CONTEXTS,
    KERNEL,
    LAMBDA,
    NAMES,
    UPPER,
    box,
    changing,
    dense_upper_bounds,
    joint,
    make,
    play,
    reward,
)
from gpytorch.kernels import MaternKernel, RBFKernel
from problems import DOUBLE, data, dense, difference, exactly, rbf

from torch_kbandits import Category, ColumnSpec, ContextualActions, Number


def members(X, actions):
    """Whether every action (q, a) is one of the actions (A, a)."""
    return bool((X.unsqueeze(-2) == actions).all(-1).any(-1).all())


def some_actions(number):
    """From one to nine actions, others in each round."""
    return data(1 + number % 9, 2, seed=100 + number)[0]


# ---------------------------------------------------------------- what may be asked for


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_asked_is_an_action_and_what_is_learned_a_joint_point(name):
    bandit = make(name)
    played = play(bandit, 8)
    assert members(played[:, 2:], ACTIONS)
    assert torch.equal(bandit.history.X, played)
    assert torch.equal(played[:, :2], CONTEXTS[:8])
    assert torch.equal(bandit.history.Y, reward(played))
    assert bandit.ask(3, context=CONTEXTS[50]).shape == (3, 2)
    assert bandit.pending.shape == (3, 4)
    assert torch.equal(bandit.pending[:, :2], CONTEXTS[50].expand(3, -1))
    assert members(bandit.recommend(context=CONTEXTS[3]), ACTIONS)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("context_dim", [0, 2])
@pytest.mark.parametrize("name", NAMES)
def test_sets_of_another_size_in_every_round(name, context_dim):
    bandit = make(name, changing(context_dim))
    for number in range(6):
        actions, context = some_actions(number), CONTEXTS[number, :context_dim]
        words = {"context": context} if context_dim else {}
        x = bandit.ask(2, candidates=actions, **words)
        assert members(x, actions)
        bandit.tell(x[:1], 0.3, **words)
        bandit.forget()
    assert bandit.history.X.shape == (6, context_dim + 2)
    words = {"context": CONTEXTS[0]} if context_dim else {}
    assert torch.equal(bandit.ask(candidates=ACTIONS[:1], **words), ACTIONS[:1])
    assert members(bandit.recommend(candidates=ACTIONS, **words), ACTIONS)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", UPPER)
def test_the_best_upper_bound_is_asked_for_also_with_points_pending(name):
    """Three points in one context with one in another between them: of random points none are equal."""
    bandit = make(name)
    play(bandit, 12)
    for number in (60, 61, 60, 60):
        bounds = dense_upper_bounds(bandit, joint(CONTEXTS[number], ACTIONS))
        assert torch.equal(bandit.ask(context=CONTEXTS[number]), ACTIONS[int(bounds.argmax()), None])
    batch = make(name)
    batch.replay(bandit.history)
    bandit.forget()
    one_by_one = torch.cat([bandit.ask(context=CONTEXTS[70]) for _ in range(3)])
    assert torch.equal(batch.ask(3, context=CONTEXTS[70]), one_by_one)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", UPPER)
def test_the_acquisition_function_of_a_round_is_what_is_maximised(name):
    bandit = make(name)
    play(bandit, 10)
    for number in (80, 81, 82):
        context = CONTEXTS[number]
        values = bandit.acquisition(context=context)(ACTIONS.unsqueeze(-2)).detach()
        assert difference(values, dense_upper_bounds(bandit, joint(context, ACTIONS))) < 1e-7
        assert torch.equal(bandit.ask(context=context, remember=False), ACTIONS[int(values.argmax()), None])


def test_expected_improvement_is_over_the_best_action_of_this_context():
    bandit = make("gp-ei")
    play(bandit, 20)
    X, y = dense(bandit.history.X, bandit.history.Y)
    for number in (90, 91, 92):
        points = joint(CONTEXTS[number], ACTIONS).numpy()
        mean, variance, _, _ = oracles.exact(KERNEL, X, y, np.full(20, LAMBDA), points)
        deviation = np.sqrt(variance)
        ratio = (mean - mean.max()) / deviation
        density = np.exp(-0.5 * ratio**2) / np.sqrt(2.0 * np.pi)
        below = np.array([0.5 * torch.special.erfc(torch.tensor(-r / np.sqrt(2.0))).item() for r in ratio])
        improvement = deviation * (density + ratio * below)
        assert torch.equal(bandit.ask(context=CONTEXTS[number], remember=False), ACTIONS[improvement.argmax(), None])


def test_thompson_sampling_draws_from_the_exact_joint_posterior():
    """Over 300 seeds each action is the best of a draw as often as of 200,000 dense draws; false alarms below 1e-6."""
    bandit = make("gp-ts", beta=1.0)
    play(bandit, 10)
    history, context, number = bandit.history, CONTEXTS[95], 300
    X, y, points = dense(history.X, history.Y, joint(context, ACTIONS))
    posterior = oracles.exact(KERNEL, X, y, np.full(10, LAMBDA), points)
    draws = np.random.default_rng(0).multivariate_normal(posterior.mean, posterior.covariance, 200_000)
    expected = np.bincount(draws.argmax(1), minlength=len(ACTIONS)) / len(draws)
    counts = np.zeros(len(ACTIONS))
    for seed in range(number):
        bandit.seed = seed  # which addresses the draw, and on the exact posterior nothing else
        counts[int((bandit.ask(context=context, remember=False) == ACTIONS).all(-1).nonzero())] += 1
    assert (expected > 0.05).sum() >= 2
    allowed = 5.3 * np.sqrt(number * expected * (1.0 - expected)) + 3.0
    assert (np.abs(counts - number * expected) < allowed).all()


def test_ek_ucb_that_keeps_everything_is_k_ucb():
    exact, sparse = make("k-ucb"), make("ek-ucb", oversampling=1e9)
    for number in range(20):
        context = CONTEXTS[number]
        x = exact.ask(context=context)
        assert torch.equal(sparse.ask(context=context), x)
        for bandit in (exact, sparse):
            bandit.tell(x, reward(joint(context, x)), context=context)
    assert len(sparse.inducing_points) == len(exact.inducing_points)
    at = joint(CONTEXTS[99], ACTIONS)
    ours, theirs = (each.model.posterior(at.unsqueeze(-2)) for each in (sparse, exact))
    assert difference(ours.mean, theirs.mean) < 1e-8
    assert difference(ours.variance, theirs.variance) < 1e-8


def test_theorem_widths_read_the_posterior_of_joint_points():
    words = {"noise_scale": 0.5, "norm_bound": 2.0, "failure_probability": 0.05, "beta": None}
    for name, factor, root in (("k-ucb", 1.0, 1.0), ("ek-ucb", 2.0, 2.0)):
        bandit = make(name, **words)
        play(bandit, 15)
        X, Z, noise = *dense(bandit.history.X, bandit.inducing_points), np.full(15, LAMBDA)
        formula = oracles.exact if name == "k-ucb" else lambda *words, Z=Z: oracles.dtc(*words[:-1], Z, words[-1])
        dimension = formula(KERNEL, X, np.zeros(15), noise, X).variance.sum() / LAMBDA
        inside = root * (2.0 * np.log(1 / 0.05) + (1.0 + np.log1p(15 / LAMBDA)) * dimension)
        assert float(bandit.beta) == pytest.approx(2.0 * factor + 0.5 * np.sqrt(inside / LAMBDA), abs=1e-8)


# ---------------------------------------------------------------- a box of actions


@pytest.mark.one_in(6)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("name", [*UPPER, "gp-ts"])
def test_a_box_of_actions_keeps_the_context_exactly(name):
    bandit = make(name, box(), **({"discretization_size": 64} if name == "gp-ts" else {}))
    for number in range(5):
        context = 1e3 * CONTEXTS[number] if number == 3 else CONTEXTS[number]  # once far from all that was seen
        x = bandit.ask(context=context)
        assert x.shape == (1, 2)
        assert bool(((x >= BOUNDS[0]) & (x <= BOUNDS[1])).all())
        assert torch.equal(bandit.pending[:, :2], context.unsqueeze(0))
        bandit.tell(x, reward(joint(context, x)), context=context)
        assert len(bandit.pending) == 0
    assert bandit.recommend(context=CONTEXTS[7]).shape == (1, 2)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["ek-ucb", "k-ucb"])
def test_the_action_of_a_box_is_as_good_as_botorch_finds(name):
    bandit = make(name, box())
    actions = BOUNDS[0] + data(12, 2, seed=13)[0]
    bandit.tell(actions, reward(torch.cat([CONTEXTS[:12], actions], dim=-1)), context=CONTEXTS[:12])
    for number in (30, 31):
        context = CONTEXTS[number]
        function = bandit.acquisition(context=context)
        found = bandit.ask(context=context, remember=False)
        _, value = optimize_acqf(function, BOUNDS, q=1, num_restarts=6, raw_samples=64)
        ours = float(function(found.unsqueeze(0)).detach())
        assert ours == pytest.approx(dense_upper_bounds(bandit, joint(context, found)).item(), abs=1e-7)
        assert ours > float(value) - 1e-4
        grid = torch.cartesian_prod(torch.linspace(0, 1, 25).double(), torch.linspace(-0.5, 0.5, 25).double())
        assert ours > dense_upper_bounds(bandit, joint(context, grid)).max() - 1e-4


# ---------------------------------------------------------------- state


KINDS = {
    "a set that stays": (None, None),
    "sets that change": (changing, some_actions),
}


def same_future(bandit, twin, rounds, actions_of=None):
    ours, theirs = (play(each, rounds, 200, actions_of) for each in (bandit, twin))
    return torch.equal(ours, theirs)


@pytest.mark.one_in(15)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_a_loaded_and_a_replayed_bandit_go_on_alike(name, kind):
    candidates, actions_of = KINDS[kind]
    fresh = lambda: make(name, candidates and candidates())  # noqa: E731
    bandit, loaded, replayed = fresh(), fresh(), fresh()
    play(bandit, 10, 0, actions_of)
    file = io.BytesIO()
    torch.save(bandit.state_dict(), file)
    file.seek(0)
    play(loaded, 2, 50, actions_of)  # what it knew is replaced
    loaded.load_state_dict(torch.load(file, weights_only=True))
    replayed.replay(bandit.history)
    assert loaded.round == replayed.round == bandit.round
    reference = play(bandit, 6, 200, actions_of)
    for twin in (loaded, replayed):
        assert torch.equal(play(twin, 6, 200, actions_of), reference)
        assert torch.equal(twin.inducing_points, bandit.inducing_points) or name in ("cbkb", "cbbkb")


@pytest.mark.slow
def test_a_new_process_goes_on_alike(tmp_path):
    script = (
        "import sys, torch; sys.path.insert(0, sys.argv[1])\n"
        "from contextual import make, play, NAMES\n"
        "for name in NAMES:\n"
        "    bandit = make(name)\n"
        "    bandit.load_state_dict(torch.load(f'{sys.argv[2]}/{name}.pt', weights_only=True))\n"
        "    torch.save(play(bandit, 20, 200), f'{sys.argv[2]}/{name}-next.pt')\n"
    )
    bandits = {name: make(name) for name in NAMES}
    for name, bandit in bandits.items():
        play(bandit, 15)
        torch.save(bandit.state_dict(), tmp_path / f"{name}.pt")
    tests = str(Path(__file__).parents[1])
    subprocess.run([sys.executable, "-W", "ignore", "-c", script, tests, str(tmp_path)], check=True, timeout=120)
    for name, bandit in bandits.items():
        assert torch.equal(play(bandit, 20, 200), torch.load(tmp_path / f"{name}-next.pt", weights_only=True)), name


@pytest.mark.one_in(9)
@pytest.mark.parametrize("name", NAMES)
def test_looking_changes_nothing(name):
    curious, calm = make(name), make(name)
    for number in range(5):
        first = curious.ask(2, context=CONTEXTS[300 + number], remember=False)
        assert torch.equal(curious.ask(2, context=CONTEXTS[300 + number], remember=False), first)
        curious.ask(3, context=CONTEXTS[310])
        curious.forget()
        if number:
            curious.recommend(context=CONTEXTS[320])
        assert torch.equal(play(curious, 1, number), play(calm, 1, number))
    assert torch.equal(curious.inducing_points, calm.inducing_points)


# ---------------------------------------------------------------- rows of a table


CONTEXT_SPEC = ColumnSpec([Number("hour", 0, 24), Category("device", ["phone", "desktop"])])
ACTION_SPEC = ColumnSpec([Number("price", 5, 80, log=True), Category("banner", ["plain", "bold"])])
OFFERS = pd.DataFrame({"banner": ["plain", "bold", "bold"], "price": [10.0, 20.0, 40.0]})


def test_contexts_and_actions_as_rows_are_the_tensors_that_they_become():
    """A Series, a mapping and a frame of one row as the context; a frame as the set, in a round and in what is told."""
    kernel = RBFKernel(active_dims=range(3)) * MaternKernel(nu=2.5, active_dims=range(3, 6))
    kernel.kernels[0].lengthscale = exactly(0.8)
    of_rows = ContextualActions(OFFERS, context_columns=CONTEXT_SPEC, action_columns=ACTION_SPEC)
    of_tensors = ContextualActions(ACTION_SPEC.encode(OFFERS), context_dim=3)
    each_round = ContextualActions(context_columns=CONTEXT_SPEC, action_columns=ACTION_SPEC)
    rows, tensors, rounds = (
        make("ek-ucb", candidates, kernel=kernel.double()) for candidates in (of_rows, of_tensors, each_round)
    )
    visits = pd.DataFrame({"hour": range(0, 24, 6), "device": ["phone", "desktop"] * 2, "visitor": range(4)})
    for number, (_, visit) in enumerate(visits.iterrows()):
        context = (visit, visit.to_dict(), visits.iloc[[number]])[number % 3]
        (encoded,) = CONTEXT_SPEC.encode(visit)
        x = rows.ask(context=context)
        assert torch.equal(tensors.ask(context=encoded), x)
        assert torch.equal(rounds.ask(context=context, candidates=OFFERS), x)
        offer = pd.DataFrame(ACTION_SPEC.decode(x))
        assert offer["banner"][0] in ("plain", "bold")
        tensors.tell(x, 0.1 * number, context=encoded)
        rows.tell(x, 0.1 * number, context=context)
        rounds.tell(OFFERS[(OFFERS["price"] - offer["price"][0]).abs() < 1e-6], 0.1 * number, context=context)
    assert torch.equal(rows.history.X, tensors.history.X)
    assert torch.equal(rounds.history.X, tensors.history.X)
    # A log of several rows at once, each with a context of its own.
    log = visits.iloc[:3].assign(**{column: OFFERS[column] for column in OFFERS})
    rows.tell(log, torch.zeros(3, dtype=DOUBLE), context=log)
    tensors.tell(ACTION_SPEC.encode(log), torch.zeros(3, dtype=DOUBLE), context=CONTEXT_SPEC.encode(log))
    assert torch.equal(rows.history.X, tensors.history.X)
    assert torch.equal(rows.ask(context=visits.iloc[0]), tensors.ask(context=CONTEXT_SPEC.encode(visits.iloc[0])[0]))


def test_single_precision_and_gradients_of_inputs():
    bandit = make("ek-ucb", ContextualActions(ACTIONS.float(), context_dim=2), kernel=rbf(0.6).float())
    for number in range(10):
        context = CONTEXTS[number].float().requires_grad_()
        x = bandit.ask(context=context)
        assert x.dtype == torch.float32
        assert not x.requires_grad
        bandit.tell(x, reward(joint(context, x)), context=context)
    assert not any(part.requires_grad for part in (bandit.history.X, bandit.history.Y, bandit.pending))
    assert float(bandit.beta) == BETA
