"""What does not fit is refused with an error that says what was expected and what came, and nothing has changed."""

from copy import deepcopy
from functools import cache

import pandas as pd
import pytest
import torch
from contextual import ACTIONS, BOUNDS, CONTEXTS, LAMBDA, NAMES, box, changing, joint, make, play
from problems import DOUBLE, difference, rbf

from torch_kbandits import (
    Bandit,
    Category,
    ColumnSpec,
    ContextualActions,
    InputError,
    Number,
    StateMismatchError,
    algorithms,
)
from torch_kbandits.acquisition import ProbabilityOfImprovementRule
from torch_kbandits.bandit.batches import StayRule

CONTEXT = CONTEXTS[30]
NAN = float("nan")


def snapshot(bandit, words):
    state = bandit.state_dict()
    numbers = [state["num_learned"], state["num_asked"], bandit.round, *bandit.pending_ids]
    history = [part for part in state["history"].values() if part is not None]
    saved = [*history, state["inducing_points"], state["pending"], torch.tensor(numbers)]
    return [*saved, bandit.ask(context=CONTEXT, remember=False, **words)]


def assert_refused(bandit, call, *parts, words=None):
    """An ``InputError`` whose message has all parts, after which the bandit is as it was."""
    words = words or {}
    before = snapshot(bandit, words)
    with pytest.raises(InputError) as caught:
        call(bandit)
    for part in parts:
        assert part in str(caught.value), (part, str(caught.value))
    for ours, theirs in zip(snapshot(bandit, words), before, strict=True):
        assert torch.equal(ours, theirs)


@cache
def waited(changes):
    words = {"candidates": ACTIONS} if changes else {}
    bandit = make("ek-ucb", changing() if changes else None)
    play(bandit, 8, actions_of=(lambda _: ACTIONS) if changes else None)
    ids = bandit.ask(3, context=CONTEXTS[20], return_ids=True, **words).ids
    assert ids == (8, 9, 10)
    bandit.tell(ids=8, y=0.1)
    return bandit


def waiting(changes=False):
    """A bandit with a history, id 8 told, 9 and 10 pending, on actions that stay or that are given in each round."""
    return deepcopy(waited(changes))


# ---------------------------------------------------------------- contexts

CONTEXT_MISTAKES = {
    "too long": (torch.zeros(3, dtype=DOUBLE), ("2 column(s)", "shape (3,)")),
    "too short": (torch.zeros(1, dtype=DOUBLE), ("2 column(s)", "shape (1,)")),
    "other columns in rows": (torch.zeros(1, 4, dtype=DOUBLE), ("2 column(s)", "shape (1, 4)")),
    "no dimension": (torch.tensor(0.5, dtype=DOUBLE), ("2 column(s)", "shape ()")),
    "three dimensions": (torch.zeros(1, 1, 2, dtype=DOUBLE), ("2 column(s)", "shape (1, 1, 2)")),
    "missing": (None, ("context is missing", "(2,)")),
    "NaN": (torch.tensor([0.1, NAN], dtype=DOUBLE), ("context must be finite", "1 of 2")),
    "infinite": (torch.tensor([[float("inf"), 0.0]], dtype=DOUBLE), ("context must be finite", "1 of 2")),
    "single precision": (torch.zeros(2), ("float64", "float32", "context.to(")),
    "whole numbers": (torch.zeros(2, dtype=torch.long), ("floating dtype", "int64")),
    "a list": ([0.1, 0.2], ("context must be a torch tensor", "[0.1, 0.2]")),
    "a number": (0.5, ("context must be a torch tensor", "0.5")),
    "a mapping without a spec": ({"age": 3}, ("context must be a torch tensor", "'age'")),
    "a Series without a spec": (pd.Series([0.1, 0.2]), ("context must be a torch tensor", "Series of shape (2,)")),
}


@pytest.mark.one_in(7)
@pytest.mark.parametrize("mistake", CONTEXT_MISTAKES)
def test_contexts_that_do_not_fit(mistake):
    context, parts = CONTEXT_MISTAKES[mistake]
    bandit = waiting()
    x = ACTIONS[:1]
    for call in (
        lambda bandit: bandit.ask(context=context),
        lambda bandit: bandit.ask(3, context=context, remember=False),
        lambda bandit: bandit.tell(x, 0.1, context=context),
        lambda bandit: bandit.acquisition(context=context),
        lambda bandit: bandit.recommend(context=context),
        lambda bandit: bandit.forget(x, context=context),
    ):
        assert_refused(bandit, call, *parts)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", NAMES)
def test_a_changed_number_of_columns_and_no_action_are_refused_by_every_algorithm(name):
    words = {"candidates": ACTIONS}
    bandit = make(name, changing())
    play(bandit, 4, actions_of=lambda _: ACTIONS)
    for call, *parts in (
        (lambda b: b.ask(context=torch.zeros(3, dtype=DOUBLE), **words), "2 column(s)", "(3,)"),
        (lambda b: b.ask(context=CONTEXT), "give those of this round", "candidates (A, 2)"),
        (lambda b: b.ask(context=CONTEXT, candidates=ACTIONS[:0]), "at least one action", "shape (0, 2)"),
        (lambda b: b.tell(ACTIONS[:1], 0.1, context=torch.zeros(1, dtype=DOUBLE)), "2 column(s)", "(1,)"),
        (lambda b: b.tell(ids=77, y=0.1), "id 77 is unknown", "4 point(s)"),
        (lambda b: b.tell(ids=2, y=0.1), "id 2 is not pending", "told or forgotten already"),
    ):
        assert_refused(bandit, call, *parts, words=words)


def test_contexts_of_several_points():
    bandit = waiting()
    two = ACTIONS[:2]
    Y = torch.zeros(2, dtype=DOUBLE)
    assert_refused(bandit, lambda b: b.ask(context=CONTEXTS[:2]), "one context, (2,)", "2 rows")
    assert_refused(bandit, lambda b: b.ask(context=CONTEXTS[:0]), "one context, (2,)", "0 rows")
    assert_refused(bandit, lambda b: b.tell(two, Y, context=CONTEXTS[:3]), "one for all 2", "got 3")
    assert_refused(bandit, lambda b: b.tell(two, Y, context=CONTEXTS[:0]), "one for all 2", "got 0")


# ---------------------------------------------------------------- actions

ACTION_MISTAKES = {
    "none": (ACTIONS[:0], ("at least one action", "shape (0, 2)")),
    "other columns": (torch.zeros(3, 1, dtype=DOUBLE), ("d = 2 columns", "shape (3, 1)")),
    "one dimension": (torch.zeros(2, dtype=DOUBLE), ("shape (n, d)", "shape (2,)")),
    "three dimensions": (torch.zeros(1, 3, 2, dtype=DOUBLE), ("(A, 2)", "shape (1, 3, 2)")),
    "NaN": (torch.tensor([[0.1, NAN]], dtype=DOUBLE), ("must be finite", "(0, 1)")),
    "single precision": (torch.zeros(3, 2), ("float64", "float32")),
    "whole numbers": (torch.zeros(3, 2, dtype=torch.long), ("floating dtype", "int64")),
    "a list": ([[0.1, 0.2]], ("must be a torch tensor", "[[0.1, 0.2]]")),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("mistake", ACTION_MISTAKES)
def test_actions_that_do_not_fit(mistake):
    actions, parts = ACTION_MISTAKES[mistake]
    words = {"candidates": ACTIONS}
    bandit = waiting(changes=True)
    for call in (
        lambda bandit: bandit.ask(context=CONTEXT, candidates=actions),
        lambda bandit: bandit.acquisition(context=CONTEXT, candidates=actions),
        lambda bandit: bandit.recommend(context=CONTEXT, candidates=actions),
        lambda bandit: bandit.tell(actions, torch.zeros(3, dtype=DOUBLE), context=CONTEXT),
        lambda bandit: bandit.forget(actions, context=CONTEXT),
    ):
        assert_refused(bandit, call, *parts, words=words)


def test_actions_where_they_stay_and_contexts_where_there_are_none():
    for candidates in (None, box()):
        bandit = make("ek-ucb", candidates)
        assert_refused(bandit, lambda b: b.ask(context=CONTEXT, candidates=ACTIONS), "always the same", "leave out")
    bandit = algorithms.build("k-ucb", candidates=ACTIONS, kernel=rbf(0.6), regularization=LAMBDA, seed=0, beta=1.0)
    for call in (
        lambda: bandit.ask(context=CONTEXT),
        lambda: bandit.ask(candidates=ACTIONS),
        lambda: bandit.tell(ACTIONS[:1], 0.1, context=CONTEXT),
    ):
        with pytest.raises(InputError, match=r"Arms have neither contexts nor .*ContextualActions"):
            call()
    assert bandit.round == 0
    with pytest.raises(InputError, match="depends on the round"):
        _ = changing().domain


# ---------------------------------------------------------------- ids and rewards

ID_MISTAKES = {
    "unknown": (11, ("id 11 is unknown", "11 point(s)", "numbered from 0")),
    "negative": (-1, ("id -1 is unknown",)),
    "told": (8, ("id 8 is not pending", "told or forgotten already")),
    "told long ago": ([9, 3], ("id 3 is not pending",)),
    "twice": ([9, 9], ("must differ", "[9, 9]")),
    "none": ([], ("one or more whole numbers", "[]")),
    "a fraction": (9.0, ("whole numbers", "9.0")),
    "text": ("9", ("whole numbers", "'9'")),
    "a boolean": (True, ("whole numbers", "True")),
    "a tensor of fractions": (torch.tensor([9.0]), ("whole numbers", "torch.float32")),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("mistake", ID_MISTAKES)
def test_ids_that_are_not_pending(mistake):
    ids, parts = ID_MISTAKES[mistake]
    bandit = waiting()
    assert_refused(bandit, lambda b: b.tell(ids=ids, y=torch.zeros(2, dtype=DOUBLE)), *parts)
    assert_refused(bandit, lambda b: b.forget(ids=ids), *parts)


def test_rewards_that_do_not_fit_their_ids():
    bandit, Y = waiting(), torch.zeros(3, dtype=DOUBLE)
    for call, *parts in (
        (lambda b: b.tell(ids=[9, 10], y=Y), "each of the 2 point(s)", "shape (3,)"),
        (lambda b: b.tell(ids=[9, 10], y=0.5), "a reward for each of the 2 point(s)", "0.5"),
        (lambda b: b.tell(ids=9, y=NAN), "y must be finite"),
        (lambda b: b.tell(ids=9), "y is missing"),
        (lambda b: b.tell(y=0.5, context=CONTEXT), "x is missing"),
        (lambda b: b.tell(ACTIONS[:1], 0.5, ids=9), "either x (and its context) or ids"),
        (lambda b: b.tell(ids=9, y=0.5, context=CONTEXT), "either x (and its context) or ids"),
        (lambda b: b.forget(ids=9, context=CONTEXT), "either x (and its context) or ids"),
        (lambda b: b.forget(context=CONTEXT), "x is missing"),
        (lambda b: b.forget(ACTIONS[:1] + 9.0, context=CONTEXT), "1 point(s) are pending; 2 are"),
        (lambda b: b.ask(context=CONTEXT, remember=False, return_ids=True), "needs remember=True"),
    ):
        assert_refused(bandit, call, *parts)


# ---------------------------------------------------------------- rows

SPEC = ColumnSpec([Number("age"), Category("city", ["Paris", "Rome"])])


@pytest.mark.parametrize(
    ("row", "parts"),
    [
        ({"age": 3.0, "city": "Oslo"}, ("'city'", "one of its 2 levels", "'Oslo'", "other=True")),
        ({"age": NAN, "city": "Rome"}, ("'age'", "a finite number", "missing")),
        ({"age": 3.0}, ("must have column 'city'", "['age']")),
        (pd.DataFrame({"age": [1.0, 2.0], "city": ["Rome", "Rome"]}), ("one context, (3,)", "2 rows")),
        (3.0, ("a pandas DataFrame or Series, a mapping", "3.0")),
    ],
)
def test_rows_that_are_no_context(row, parts):
    bandit = make("ek-ucb", ContextualActions(ACTIONS, context_columns=SPEC))
    fits = {"age": 0.5, "city": "Rome"}
    x = bandit.ask(context=fits)
    bandit.tell(x, 0.1, context=fits)
    before = bandit.ask(2, context=fits, remember=False)
    with pytest.raises(InputError) as caught:
        bandit.ask(context=row)
    assert all(part in str(caught.value) for part in parts), str(caught.value)
    assert torch.equal(bandit.ask(2, context=fits, remember=False), before)
    assert bandit.round == 1


# ---------------------------------------------------------------- constructors

SET_UPS = {
    "nothing": ({"context_dim": 2}, ("action_dim is missing", "actions, bounds or action_columns")),
    "no contexts": ({"actions": ACTIONS}, ("context_dim is missing", "context_columns")),
    "a set and a box": ({"actions": ACTIONS, "bounds": BOUNDS, "context_dim": 2}, ("either a finite set", "not both")),
    "rows without a spec": ({"actions": [{"price": 3}], "context_dim": 2}, ("real numbers", "price")),
    "no actions": ({"actions": ACTIONS[:0], "context_dim": 2}, ("at least one action", "shape (0, 2)")),
    "one dimension": ({"actions": ACTIONS[0], "context_dim": 2}, ("shape (n, d)", "shape (2,)")),
    "no dimension": ({"actions": ACTIONS[0, 0], "context_dim": 2}, ("shape (n, d)", "shape ()")),
    "NaN": ({"actions": ACTIONS * NAN, "context_dim": 2}, ("actions must be finite",)),
    "another action_dim": ({"actions": ACTIONS, "context_dim": 2, "action_dim": 3}, ("action_dim gives 3", "have 2")),
    "a box of other columns": (
        {"bounds": BOUNDS, "context_dim": 2, "action_columns": ColumnSpec([Number("price")])},
        ("action_columns gives 1", "have 2"),
    ),
    "a box upside down": ({"bounds": BOUNDS.flip(0), "context_dim": 2}, ("lower bound must be below",)),
    "another context_dim": ({"action_dim": 2, "context_dim": 2, "context_columns": SPEC}, ("context_dim=2", "give 3")),
    "a negative dimension": ({"action_dim": 2, "context_dim": -1}, ("context_dim", "at least 0", "-1")),
    "no action columns": ({"action_dim": 0, "context_dim": 1}, ("action_dim", "at least 1", "0")),
    "whole numbers": ({"action_dim": 2, "context_dim": 1, "dtype": torch.long}, ("float64 or", "int64")),
    "a negative budget": ({"action_dim": 2, "context_dim": 1, "row_memory": -1}, ("row_memory", "-1")),
}


@pytest.mark.parametrize("mistake", SET_UPS)
def test_contextual_actions_that_make_no_sense(mistake):
    words, parts = SET_UPS[mistake]
    with pytest.raises(InputError) as caught:
        ContextualActions(**words)
    assert all(part in str(caught.value) for part in parts), str(caught.value)


def test_algorithms_refuse_what_their_actions_know_already():
    words = {"kernel": rbf(0.6), "regularization": LAMBDA, "seed": 0, "beta": 1.0}
    for name in ("cbbkb", "cbkb", "ek-ucb", "k-ucb"):
        with pytest.raises(InputError, match="Leave out context_dim"):
            algorithms.build(name, candidates=changing(), context_dim=2, **words)
        with pytest.raises(InputError, match="action_dim gives 3"):
            algorithms.build(name, candidates=ACTIONS, context_dim=2, action_dim=3, **words)
        short = algorithms.build(name, candidates=ACTIONS, context_dim=2, **words)
        assert torch.equal(short.ask(context=CONTEXT), make(name, beta=1.0).ask(context=CONTEXT))


def test_a_point_cannot_be_played_again_in_another_context():
    words = {"kernel": rbf(0.6), "regularization": LAMBDA, "seed": 0}
    with pytest.raises(InputError, match="StayRule plays a point again and again"):
        algorithms.build("mini-gp-ucb", candidates=changing(), beta=1.0, **words)
    with pytest.raises(InputError, match="StayRule"):
        Bandit(candidates=box(), batches=StayRule(4.0), acquisition=ProbabilityOfImprovementRule(), **words)


def test_a_state_of_other_contexts_or_actions_is_refused():
    bandit = waiting()
    others = {
        "context_dim: saved 2, here 1": ContextualActions(ACTIONS, context_dim=1),
        "candidates.actions": ContextualActions(ACTIONS + 0.1, context_dim=2),
        "given in each round": changing(),
        "context_columns": ContextualActions(ACTIONS, context_columns=ColumnSpec([Number("a"), Number("b")])),
        "dtype": ContextualActions(ACTIONS.float(), context_dim=2),
    }
    for part, candidates in others.items():
        other = make("ek-ucb", candidates)
        with pytest.raises(StateMismatchError, match=part):
            other.load_state_dict(bandit.state_dict())
        assert other.round == 0
    for key, value in {"pending_ids": ["a", "b"], "num_asked": 9, "dictionary_weights": torch.zeros(2)}.items():
        with pytest.raises(StateMismatchError, match="damaged"):
            make("ek-ucb").load_state_dict(bandit.state_dict() | {key: value})
    points = joint(CONTEXT, ACTIONS)
    loaded = make("ek-ucb")
    loaded.load_state_dict(bandit.state_dict())
    at = loaded._belief.joint.embed(points)
    assert (
        difference(loaded._belief.joint.mean_at(at), bandit._belief.joint.mean_at(bandit._belief.joint.embed(points)))
        < 1e-10
    )
