"""Fidelities: points are chosen at the target and played where a dense formula says; nothing else is recommended."""

import math

import hypothesis.strategies as st
import numpy as np
import oracles
import pytest
import torch
from gpytorch.kernels import RBFKernel
from hypothesis import given
from problems import DOUBLE, data, dense, examples, rbf, seeded

import torch_kbandits as kb
from torch_kbandits import Fidelity, algorithms

LEVELS, COSTS = (0.0, 0.4, 1.0), (0.1, 0.3, 1.0)
POINTS = data(20, 2, seed=4)[0].abs()
ARMS = torch.cat([torch.cat([POINTS, torch.full((20, 1), level, dtype=DOUBLE)], 1) for level in LEVELS])
SCALES, VARIANCE, NOISE, BETA = torch.tensor([0.4, 0.4, 0.8], dtype=DOUBLE), 2.25, 0.05, 1.5
FIDELITY = Fidelity(column=2, levels=LEVELS, costs=COSTS)
BOX = torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]], dtype=DOUBLE)
SPACE = kb.ParameterSpace({"a": kb.Float(0.0, 1.0), "z": kb.Integer(1, 27, log=True), "b": kb.Float(0.0, 1.0)})
EPOCHS = Fidelity(column="z", levels=(1, 3, 9, 27))


def kernel():
    base = RBFKernel(ard_num_dims=3).double()
    base.lengthscale = SCALES
    return kb_scaled(base)


def kb_scaled(base):
    scaled = rbf(0.4, VARIANCE)
    scaled.base_kernel = base
    return scaled


def prior_of(A, B):
    """The same in NumPy."""
    return oracles.rbf(1.0, VARIANCE)(A / SCALES.numpy(), B / SCALES.numpy())


def bandit_of(name="gp-ucb", fidelity=FIDELITY, **words):
    given = {"kernel": kernel(), "regularization": NOISE, "beta": BETA, "seed": 3, "candidates": ARMS} | words
    given |= {"candidates": None} if "bounds" in words or "action_dim" in words else {}
    return algorithms.build(name, fidelity=fidelity, **given)


def reward(X):
    return torch.sin(4.0 * X[:, 0]) + torch.cos(3.0 * X[:, 1]) - (1.0 - X[:, 2]) * (0.5 + X[:, 0])


def told(bandit, rows):
    for row in rows:
        bandit.tell(ARMS[row, None], reward(ARMS[row, None]))
    return bandit


def spent_since(rows):
    """What was spent below the target since it was played last."""
    levels = [row // 20 for row in rows]
    last = max((place for place, level in enumerate(levels) if level == 2), default=-1)
    return sum(COSTS[level] for level in levels[last + 1 :])


def expected(rows, waiting):
    """The upper bounds at the target, and at which level each point is played, None where rounding decides."""
    X, y, pending = ARMS[rows], reward(ARMS[rows]), ARMS[waiting]
    X, y, at, seen = dense(X, y, ARMS, torch.cat([X, pending]))
    mean = oracles.exact(prior_of, X, y, np.full(len(X), NOISE), at).mean
    left = oracles.exact(prior_of, seen, np.zeros(len(seen)), np.full(len(seen), NOISE), at).variance.reshape(3, 20)
    upper = mean[40:] + BETA * np.sqrt(left[2])
    share = left / VARIANCE
    correlation = np.exp(-((np.array(LEVELS) - 1.0) ** 2) / (2.0 * float(SCALES[2]) ** 2))
    least = (1.0 - correlation**2) * np.array(COSTS) ** (2.0 / 5.0)
    is_left = spent_since([*rows, *waiting]) + np.array(COSTS[:2]) <= 1.0 + 1e-12
    informs = (share[:2] > least[:2, None]) & is_left[:, None]
    levels = np.where(informs[0], 0, np.where(informs[1], 1, 2))
    is_clear = (np.abs(share[:2] - least[:2, None]) > 1e-7).all(0)
    return upper, [int(level) if clear else None for level, clear in zip(levels, is_clear, strict=True)]


@examples(30)
@given(seed=st.integers(0, 1000), number=st.integers(0, 25), waiting=st.integers(0, 3))
def test_it_plays_the_largest_upper_bound_at_the_target_at_the_cheapest_level_that_informs(seed, number, waiting):
    rows = torch.randint(60, (number + waiting,), generator=seeded(seed)).tolist()
    bandit = told(bandit_of(), rows[:number])
    pending = ARMS[rows[number:]]
    if waiting:
        bandit.mark_pending(pending)
    upper, levels = expected(rows[:number], rows[number:])
    chosen = bandit.ask(details=True)
    level, point = divmod(int(chosen.rows), 20)
    assert upper[point] >= upper.max() - 1e-7
    assert levels[point] in (None, level)
    assert torch.equal(chosen.x, ARMS[int(chosen.rows), None])
    assert chosen.propensities is None


@pytest.mark.parametrize("name", ["gp-ucb", "bkb", "ek-ucb", "mini-gp-ucb"])
@pytest.mark.parametrize("where", ["arms", "a file", "actions of a round", "actions in a context"])
def test_the_same_set_of_points_however_it_is_described_has_the_same_choices(name, where, tmp_path):
    if name == "mini-gp-ucb" and "actions" in where:
        pytest.skip("it stays with a point that every round must offer")
    words, asked = {}, {}
    if where == "a file":
        np.save(tmp_path / "arms.npy", ARMS.numpy())
        words = {"candidates": kb.Arms(np.load(tmp_path / "arms.npy", mmap_mode="r"))}
    elif where == "actions of a round":
        words, asked = {"action_dim": 3}, {"candidates": ARMS}
    elif where == "actions in a context":
        words = {"candidates": kb.ContextualActions(ARMS, context_dim=0)}
    first, second = (told(bandit_of(name, **each), [5, 30, 59]) for each in ({}, words))  # no choice is a tie
    for _ in range(12):
        x, other = first.ask(), second.ask(**asked)
        assert torch.equal(x, other)
        first.tell(x, reward(x))
        second.tell(x, reward(x))
    best = first.recommend()
    assert first.regret_bound(best) == pytest.approx(second.regret_bound(best, **asked), abs=1e-9)


@pytest.mark.parametrize("costs", [(1.0, 1.0, 1.0), (2.0, 5.0, 1.0)])
def test_a_level_is_never_played_that_costs_no_less_than_the_target(costs):
    bandit = bandit_of(fidelity=Fidelity(column=2, levels=LEVELS, costs=costs))
    learned = algorithms.GPUCB(
        candidates=ARMS, prior=kb.LearnedPrior(), seed=0, fidelity=Fidelity(column=2, levels=LEVELS, costs=costs)
    )
    for each in (bandit, learned):
        played = each.run(reward, 15)
        assert (played[:, 2] == 1.0).all()
        assert each.spent == 15.0


def test_a_level_that_says_all_of_the_target_is_played_but_for_a_look_and_one_that_says_nothing_is_not():
    same, other = kernel(), kernel()
    same.base_kernel.lengthscale = torch.tensor([0.4, 0.4, 1e6], dtype=DOUBLE)
    other.base_kernel.lengthscale = torch.tensor([0.4, 0.4, 1e-3], dtype=DOUBLE)
    levels = bandit_of(kernel=same).run(reward, 23)[:, 2].tolist()
    assert levels == [0.0] * 10 + [1.0] + [0.0] * 10 + [1.0, 0.0]  # ten plays cost what one at the target does
    played = told(bandit_of(kernel=other), range(60)).run(reward, 5)
    assert (played[:, 2] == 1.0).all()


KINDS = {
    "arms": ({}, {}),
    "another target": ({"fidelity": Fidelity(column=2, levels=LEVELS, costs=(1.0, 0.3, 0.1), target=0.0)}, {}),
    "a box": ({"bounds": BOX}, {}),
    "a space": ({"candidates": SPACE, "fidelity": EPOCHS}, {}),
    "a box in a context": ({"bounds": BOX, "context_dim": 1}, {"context": [0.3]}),
    "actions in a context": ({"candidates": ARMS, "context_dim": 1}, {"context": [0.3]}),
    "a space in a context": (
        {"candidates": SPACE, "context_dim": 1, "fidelity": EPOCHS},
        {"context": [0.3]},
    ),
    "time": ({"memory": kb.memory.TemporalPrior(0.01)}, {}),
}


SLOW = {"a box", "a box in a context", "a space in a context"}


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind in SLOW)) for kind in KINDS])
def test_only_the_target_is_recommended_and_what_is_saved_goes_on(kind, tmp_path):
    words, asked = KINDS[kind]
    given = {"kernel": None, "regularization": None, "prior": kb.LearnedPrior()} if kind == "arms" else {}
    if "context" in kind:
        given = {"kernel": rbf(0.5, VARIANCE)}
    given = given | words
    bandit, column = bandit_of(**given), {"z": 1}.get(str(words.get("fidelity", FIDELITY).column), 2)
    goal = bandit.candidates.space.parameters["z"].encode("z", [27])[0] if "space" in kind else 1.0
    goal = 0.0 if kind == "another target" else float(goal)
    levels = set()
    for _ in range(10):
        x = bandit.ask(**asked)
        before = bandit.pending[:, -3:]
        levels.add(float(before[0, column]))
        bandit.tell(x, reward(before), **asked)
        best = bandit.recommend(**asked)
        point = bandit.candidates.points([best] if isinstance(best, dict) else best, asked.get("context"), bandit.now)
        assert float(point[0, -3:][column]) == goal
    assert len(levels) > 1
    assert 0.0 <= bandit.regret_bound(**asked) < math.inf
    bandit.save(tmp_path / "bandit")
    again = kb.Bandit.load(tmp_path / "bandit")
    assert again.spent == bandit.spent
    far = 0.05 if "box" in kind else 1e-6  # a search of a flat optimum ends where rounding takes it
    for _ in range(1 if "box" in kind else 3):
        _ = bandit.ask(**asked), again.ask(**asked)
        point = bandit.pending
        assert torch.allclose(point, again.pending, atol=far)
        for each in (bandit, again):
            each.tell(ids=each.pending_ids, y=reward(point[:, -3:]))


def test_the_regret_bound_is_that_of_dense_formulas_at_the_target():
    rows = [3, 25, 47, 50, 12, 31]
    bandit, (X, y, T) = told(bandit_of(), rows), dense(ARMS[rows], reward(ARMS[rows]), ARMS[40:])
    there = oracles.exact(prior_of, X, y, np.full(len(y), NOISE), T)
    deviation, seen = np.sqrt(there.variance), [row % 20 for row in rows]
    best = seen[int((there.mean - deviation)[seen].argmax())]
    assert torch.equal(bandit.recommend(), ARMS[40 + best, None])
    bound = (there.mean + BETA * deviation).max() - (there.mean - BETA * deviation)[best]
    assert bandit.regret_bound() == pytest.approx(bound, abs=4.0 * there.upper_rounding(BETA))


def test_what_was_spent_is_what_all_plays_cost_that_are_over():
    bandit = bandit_of()
    assert bandit.spent == 0.0
    told(bandit, [0, 20, 40, 41])
    bandit.ask()
    assert bandit.spent == pytest.approx(2.4)
    bandit.tell(ids=bandit.pending_ids, y=math.nan, failed=True)
    level = LEVELS.index(float(bandit.history.X[-1, 2]))
    assert bandit.spent == pytest.approx(2.4 + COSTS[level])
    bandit.restart()
    assert bandit.spent == pytest.approx(2.4 + COSTS[level])


def test_points_are_pending_and_left_out_at_their_levels():
    bandit = told(bandit_of(), [1, 22, 43])
    parts = torch.cat([bandit.ask(2), bandit.ask(3)])
    other = told(bandit_of(), [1, 22, 43])
    assert torch.equal(other.ask(5), parts)
    free = told(bandit_of(), [1, 22, 43])
    first = free.ask(details=True, remember=False)
    left = free.ask(details=True, exclude=first.rows)
    assert int(left.rows) != int(first.rows)
    every = told(bandit_of(), [1, 22, 43]).ask(20, distinct=True, details=True)
    assert len({*every.rows.tolist()}) == 20


def test_limits_hold_at_the_level_that_is_played():
    heat = kb.Outcome("heat", kb.Prior(kernel(), 1e-4))
    bandit = bandit_of(outcomes=[heat], constraints=[kb.AtMost("heat", 0.3, "optimistic", beta=0.0)])
    hot = (ARMS[:, 2] == 0.4).double()  # only the level between the others
    for row in range(60):
        bandit.tell(ARMS[row, None], reward(ARMS[row, None]), outcomes={"heat": hot[row]})
    played = [bandit.run(lambda x: {"y": reward(x), "outcomes": {"heat": 0.0}}, 1) for _ in range(8)]
    assert all(float(x[0, 2]) != 0.4 for x in played)
    assert float(bandit.recommend()[0, 2]) == 1.0


WRONG = {
    "levels must be at least two different numbers": {"fidelity": lambda: Fidelity(column=2, levels=[1.0, 1.0])},
    "give costs": {"fidelity": lambda: Fidelity(column=2, levels=[0.0, 1.0])},
    "costs must be one number above 0": {"fidelity": lambda: Fidelity(column=2, levels=[0.5, 1.0], costs=[0.0, 1.0])},
    "target must be one of the levels": {"fidelity": lambda: Fidelity(column=2, levels=[0.5, 1.0], target=2.0)},
    "column must be from 0 to 2": {"fidelity": lambda: Fidelity(column=3, levels=LEVELS, costs=COSTS)},
    "give its number": {"fidelity": lambda: Fidelity(column="epochs", levels=LEVELS, costs=COSTS)},
    "No candidate has the level 0.5": {"fidelity": lambda: Fidelity(column=2, levels=[0.5, 1.0])},
    "within the bounds": {"fidelity": lambda: Fidelity(column=2, levels=[0.5, 2.0]), "bounds": BOX},
    "name of a number": {"fidelity": lambda: Fidelity(column=1, levels=[1, 27]), "candidates": SPACE},
    "these are UnitCube": {"candidates": kb.UnitCube(3)},
    "Leave out objective": {"objective": kb.BudgetPacing(per_round=1.0)},
    "without epsilon": {"epsilon": 0.1},
    "ThompsonRule has no upper bound": {"name": "gp-ts"},
    "fidelity must be": {"fidelity": lambda: 2},
}


@pytest.mark.parametrize("said", WRONG)
def test_what_does_not_fit_is_refused(said):
    words = dict(WRONG[said])
    with pytest.raises(kb.InputError, match=said):
        bandit_of(fidelity=words.pop("fidelity", lambda: FIDELITY)(), **words)


def test_what_has_no_meaning_for_a_fidelity_is_refused():
    bandit = told(bandit_of(), [1])
    with pytest.raises(kb.InputError, match="no probability"):
        bandit.propensities()
    with pytest.raises(kb.InputError, match="use regret_bound"):
        bandit.largest_expected_improvement()
    with pytest.raises(kb.InputError, match="has the target"):
        bandit_of(action_dim=3).ask(candidates=ARMS[:40])
    with pytest.raises(kb.InputError, match="No candidate has the level"):
        bandit.remove_arms(range(40, 60))
    assert len(bandit.candidates.source) == 60
