"""Where each round brings a context: the best of this round's actions is asked for, whatever came before."""

import pandas as pd
import pytest
import torch
from contextual import ACTIONS, BOUNDS, CONTEXTS, LAMBDA, box, changing, joint, make, play, reward
from gpytorch.kernels import MaternKernel, RBFKernel
from kinds import same
from problems import DOUBLE, exactly, rbf

import torch_kbandits as kb

CONTEXT = CONTEXTS[30]
NAN = float("nan")


def test_one_point_that_is_pending_twice_has_two_ids_and_in_another_context_it_is_another_point():
    bandit, context = make("ek-ucb", changing()), CONTEXTS[0]
    only = {"candidates": ACTIONS[:1]}
    ids = bandit.ask(4, context=context, details=True, **only).ids
    bandit.tell(ACTIONS[:1], 0.5, context=context)
    assert bandit.pending_ids == ids[1:]
    bandit.tell(ids=ids[2], y=0.5)
    bandit.forget(ids=ids[1])
    assert bandit.pending_ids == (ids[3],)
    bandit.forget(ACTIONS[:1], context=context)
    ids = [bandit.ask(context=CONTEXTS[k], details=True, **only).ids[0] for k in range(3)]
    assert ids == [4, 5, 6]
    bandit.tell(ACTIONS[:1], 0.5, context=CONTEXTS[1])
    assert bandit.pending_ids == (4, 6)
    with pytest.raises(kb.InputError, match="pending"):
        bandit.forget(ACTIONS[:1], context=CONTEXTS[1])
    bandit.tell(ACTIONS[:1].repeat(2, 1), torch.zeros(2, dtype=DOUBLE), context=CONTEXTS[[2, 0]])
    assert bandit.pending_ids == ()
    assert torch.equal(bandit.history.X[-2:], torch.cat([CONTEXTS[[2, 0]], ACTIONS[:1].repeat(2, 1)], dim=-1))


@pytest.mark.one_in(2)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("name", ["ek-ucb", "gp-ts"])
def test_a_box_of_actions_keeps_the_context_exactly(name):
    bandit = make(name, box(), **({"discretization_size": 64} if name == "gp-ts" else {}))
    for number in range(4):
        context = 1e3 * CONTEXTS[number] if number == 3 else CONTEXTS[number]  # once far from all that was seen
        x = bandit.ask(context=context)
        assert bool(((x >= BOUNDS[0]) & (x <= BOUNDS[1])).all())
        assert torch.equal(bandit.pending[:, :2], context.unsqueeze(0))
        bandit.tell(x, reward(joint(context, x)), context=context)
        assert len(bandit.pending) == 0
    assert bandit.recommend(context=CONTEXTS[7]).shape == (1, 2)


CONTEXT_SPEC = kb.ColumnSpec([kb.Number("hour", 0, 24), kb.Category("device", ["phone", "desktop"])])
ACTION_SPEC = kb.ColumnSpec([kb.Number("price", 5, 80, log=True), kb.Category("banner", ["plain", "bold"])])
OFFERS = pd.DataFrame({"banner": ["plain", "bold", "bold"], "price": [10.0, 20.0, 40.0]})


def test_contexts_and_actions_as_rows_are_the_tensors_that_they_become():
    """A Series, a mapping and a frame of one row as the context; a frame as the set, in a round and in what is told."""
    kernel = RBFKernel(active_dims=range(3)) * MaternKernel(nu=2.5, active_dims=range(3, 6))
    kernel.kernels[0].lengthscale = exactly(0.8)
    of_rows = kb.ContextualActions(OFFERS, context_columns=CONTEXT_SPEC, action_columns=ACTION_SPEC)
    of_tensors = kb.ContextualActions(ACTION_SPEC.encode(OFFERS), context_dim=3)
    each_round = kb.ContextualActions(context_columns=CONTEXT_SPEC, action_columns=ACTION_SPEC)
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


def waiting(changes=False):
    """A bandit with a history, id 8 told, 9 and 10 pending, on actions that stay or that are given in each round."""
    words = {"candidates": ACTIONS} if changes else {}
    bandit = make("ek-ucb", changing() if changes else None)
    play(bandit, 8, actions_of=(lambda _: ACTIONS) if changes else None)
    bandit.ask(3, context=CONTEXTS[20], **words)
    bandit.tell(ids=8, y=0.1)
    return bandit


def assert_refused(bandit, call, *parts):
    before = bandit.state_dict()
    with pytest.raises(kb.InputError) as caught:
        call(bandit)
    for part in parts:
        assert part in str(caught.value), (part, str(caught.value))
    assert same(bandit.state_dict(), before)


BAD_CONTEXTS = [
    (torch.zeros(3, dtype=DOUBLE), "2 column(s)", "shape (3,)"),
    (None, "context is missing", "(2,)"),
    (torch.tensor([[float("inf"), 0.0]], dtype=DOUBLE), "context must be finite", "1 of 2"),
]
BAD_ACTIONS = [
    (ACTIONS[:0], "with A >= 1", "shape (0, 2)"),
    (torch.zeros(2, dtype=DOUBLE), "shape (n, d)", "shape (2,)"),
    (torch.tensor([[0.1, NAN]], dtype=DOUBLE), "must be finite", "(0, 1)"),
]
BAD_IDS = [
    (11, "id 11 is unknown", "11 point(s)", "numbered from 0"),
    (8, "id 8 is not pending", "told or forgotten already"),
    ([9, 9], "that differ", "[9, 9]"),
    (9.0, "whole numbers", "9.0"),
]
X, TWO, Y = ACTIONS[:1], ACTIONS[:2], torch.zeros(3, dtype=DOUBLE)
BAD_CALLS = [
    (lambda b: b.ask(context=CONTEXTS[:2]), "one context, (2,)", "2 rows"),
    (lambda b: b.tell(TWO, Y[:2], context=CONTEXTS[:3]), "one for all 2", "got 3"),
    (lambda b: b.tell(TWO, Y[:2], context=CONTEXTS[:0]), "one for all 2", "got 0"),
    (lambda b: b.ask(context=CONTEXT, candidates=ACTIONS), "always the same", "leave out"),
    (lambda b: b.tell(ids=[9, 10], y=Y), "each of the 2 point(s)", "shape (3,)"),
    (lambda b: b.tell(ids=9, y=NAN), "y must be finite"),
    (lambda b: b.tell(y=0.5, context=CONTEXT), "x is missing"),
    (lambda b: b.tell(ids=9, y=0.5, context=CONTEXT), "either x or rows (and their context) or ids"),
    (lambda b: b.forget(context=CONTEXT), "x is missing"),
]


def test_contexts_actions_ids_and_rewards_that_do_not_fit():
    bandit, changes = waiting(), waiting(changes=True)
    for context, *parts in BAD_CONTEXTS:
        for call in (bandit.ask, bandit.acquisition, bandit.recommend):
            assert_refused(bandit, lambda _, f=call, c=context: f(context=c), *parts)
        assert_refused(bandit, lambda b, c=context: b.tell(X, 0.1, context=c), *parts)
        assert_refused(bandit, lambda b, c=context: b.forget(X, context=c), *parts)
    for actions, *parts in BAD_ACTIONS:
        for call in (changes.ask, changes.acquisition, changes.recommend):
            assert_refused(changes, lambda _, f=call, a=actions: f(context=CONTEXT, candidates=a), *parts)
    for ids, *parts in BAD_IDS:
        assert_refused(bandit, lambda b, i=ids: b.tell(ids=i, y=Y[:2]), *parts)
        assert_refused(bandit, lambda b, i=ids: b.forget(ids=i), *parts)
    for call, *parts in BAD_CALLS:
        assert_refused(bandit, call, *parts)
    arms = kb.algorithms.build("k-ucb", candidates=ACTIONS, kernel=rbf(0.6), regularization=LAMBDA, seed=0, beta=1.0)
    for call in (
        lambda b: b.ask(context=CONTEXT),
        lambda b: b.ask(candidates=ACTIONS),
        lambda b: b.tell(X, 0.1, context=CONTEXT),
    ):
        assert_refused(arms, call, "Arms have neither contexts nor", "ContextualActions")


def test_rows_that_are_no_context():
    bandit = make("ek-ucb", kb.ContextualActions(ACTIONS, context_columns=CONTEXT_SPEC))
    for row, *parts in (
        ({"hour": 3.0, "device": "tablet"}, "'device'", "one of its levels", "'tablet'", "other=True"),
        (pd.DataFrame({"hour": [1.0, 2.0], "device": ["phone", "phone"]}), "one context, (3,)", "2 rows"),
        (3.0, "a data frame, a mapping", "3.0"),
    ):
        assert_refused(bandit, lambda b, r=row: b.ask(context=r), *parts)


SET_UPS = [
    ({"context_dim": 2}, "number of action columns is missing", "actions or bounds or action_columns or action_dim"),
    ({"actions": ACTIONS, "bounds": BOUNDS, "context_dim": 2}, "either a finite set", "not both"),
    ({"actions": ACTIONS, "context_dim": 2, "action_dim": 3}, "do not agree", "'actions': 2, 'action_dim': 3"),
    ({"bounds": BOUNDS.flip(0), "context_dim": 2}, "lower bound must be below"),
    ({"action_dim": 2, "context_dim": -1}, "context_dim", "at least 0", "-1"),
]


def test_what_makes_no_sense_is_refused():
    for words, *parts in SET_UPS:
        with pytest.raises(kb.InputError) as caught:
            kb.ContextualActions(**words)
        assert all(part in str(caught.value) for part in parts), str(caught.value)
    words = {"kernel": rbf(0.6), "regularization": LAMBDA, "seed": 0, "beta": 1.0}
    for name in ("cbbkb", "cbkb", "ek-ucb", "k-ucb"):
        with pytest.raises(kb.InputError, match="Leave out context_dim"):
            kb.algorithms.build(name, candidates=changing(), context_dim=2, **words)
        short = kb.algorithms.build(name, candidates=ACTIONS, context_dim=2, **words)
        assert torch.equal(short.ask(context=CONTEXT), make(name, beta=1.0).ask(context=CONTEXT))
