"""Rewards by id, late, out of order and among errors: random programs against a dense picture of what is known."""

import io
from collections import Counter

import numpy as np
import pandas as pd
import pytest
import torch
from contextual import ACTIONS, CONTEXTS, NAMES, UPPER, changing, dense_upper_bounds, joint, make, play, reward
from problems import DOUBLE, data

from torch_kbandits import InputError, NumericalError

# ---------------------------------------------------------------- ids


@pytest.mark.one_in(7)
@pytest.mark.parametrize("name", NAMES)
def test_rewards_told_by_id_are_those_told_by_point(name):
    by_id, by_point = make(name), make(name)
    for number in range(6):
        context = CONTEXTS[number]
        asked = by_id.ask(2, context=context, return_ids=True)
        x = by_point.ask(2, context=context)
        assert torch.equal(asked.actions, x)
        assert asked.ids == (2 * number, 2 * number + 1)
        assert by_id.pending_ids == by_point.pending_ids == asked.ids
        Y = reward(joint(context, x))
        by_id.tell(ids=asked.ids, y=Y)
        by_point.tell(x, Y, context=context)
        assert by_id.pending_ids == ()
    assert torch.equal(by_id.history.X, by_point.history.X)
    assert torch.equal(by_id.history.Y, by_point.history.Y)
    assert torch.equal(by_id.ask(context=CONTEXTS[50]), by_point.ask(context=CONTEXTS[50]))


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", UPPER)
def test_late_rewards_out_of_order_go_to_their_own_points(name):
    bandit = make(name)
    asked, points = [], {}
    for number in range(20):
        ids = bandit.ask(context=CONTEXTS[number], return_ids=True).ids
        points[ids[0]] = bandit.pending[-1]
        asked.extend(ids)
        if number % 5 == 4:  # three of them, the youngest first, one alone and two together
            for some in (asked[-1:], asked[-3:-1][::-1]):
                Y = torch.stack([reward(points[each][None])[0] for each in some])
                bandit.tell(ids=some if len(some) > 1 else some[0], y=Y if len(some) > 1 else float(Y))
                for each in some:
                    asked.remove(each)
            bounds = dense_upper_bounds(bandit, joint(CONTEXTS[90], ACTIONS))
            expected = ACTIONS[int(bounds.argmax()), None]
            assert torch.equal(bandit.ask(context=CONTEXTS[90], remember=False), expected)
    assert bandit.pending_ids == tuple(sorted(asked))
    assert torch.equal(bandit.pending, torch.stack([points[each] for each in sorted(asked)]))
    assert torch.equal(bandit.history.Y, reward(bandit.history.X))


def test_one_point_that_is_pending_twice_has_two_ids():
    """Told by its point it is the one asked first; told or forgotten by id, that one."""
    bandit = make("ek-ucb", changing())
    only, context = ACTIONS[:1], CONTEXTS[0]
    ids = bandit.ask(4, context=context, candidates=only, return_ids=True).ids
    bandit.tell(only, 0.5, context=context)
    assert bandit.pending_ids == ids[1:]
    bandit.tell(ids=ids[2], y=0.5)
    assert bandit.pending_ids == (ids[1], ids[3])
    bandit.forget(ids=ids[1])
    assert bandit.pending_ids == (ids[3],)
    bandit.forget(only, context=context)
    assert bandit.pending_ids == ()
    assert bandit.ask(context=context, candidates=only, return_ids=True).ids == (4,)


def test_a_point_in_another_context_is_another_point():
    bandit = make("ek-ucb", changing())
    ids = [bandit.ask(context=CONTEXTS[k], candidates=ACTIONS[:1], return_ids=True).ids[0] for k in range(3)]
    bandit.tell(ACTIONS[:1], 0.5, context=CONTEXTS[1])
    assert bandit.pending_ids == (ids[0], ids[2])
    with pytest.raises(InputError, match="pending"):
        bandit.forget(ACTIONS[:1], context=CONTEXTS[1])
    bandit.tell(ACTIONS[:1].repeat(2, 1), torch.zeros(2, dtype=DOUBLE), context=CONTEXTS[[2, 0]])
    assert bandit.pending_ids == ()
    assert torch.equal(bandit.history.X[1:], torch.cat([CONTEXTS[[2, 0]], ACTIONS[:1].repeat(2, 1)], dim=-1))


@pytest.mark.parametrize(
    "as_given",
    [int, np.int64, lambda i: [i], lambda i: np.array([i]), torch.tensor, lambda i: pd.Series([i]), lambda i: (i,)],
)
def test_ids_come_back_from_arrays_and_data_frames(as_given):
    bandit = make("ek-ucb")
    ids = bandit.ask(3, context=CONTEXTS[0], return_ids=True).ids
    bandit.tell(ids=as_given(ids[1]), y=torch.zeros(1, dtype=DOUBLE))
    bandit.forget(ids=as_given(ids[2]))
    assert bandit.pending_ids == ids[:1]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["ek-ucb", "k-ucb", "cbbkb"])
def test_ids_survive_saving(name):
    bandit, twin = make(name), make(name)
    play(bandit, 3)
    ids = bandit.ask(3, context=CONTEXTS[10], return_ids=True).ids
    bandit.forget(ids=ids[1])
    file = io.BytesIO()
    torch.save(bandit.state_dict(), file)
    file.seek(0)
    twin.load_state_dict(torch.load(file, weights_only=True))
    assert twin.pending_ids == bandit.pending_ids == (ids[0], ids[2])
    for each in (bandit, twin):
        assert each.ask(context=CONTEXTS[11], return_ids=True).ids == (ids[2] + 1,)
        each.tell(ids=ids[2], y=0.25)
        with pytest.raises(InputError, match=f"id {ids[1]} is not pending"):
            each.tell(ids=ids[1], y=0.25)
    assert torch.equal(bandit.history.X, twin.history.X)
    assert torch.equal(bandit.ask(4, context=CONTEXTS[12]), twin.ask(4, context=CONTEXTS[12]))


def test_what_is_saved_is_not_what_goes_on():
    bandit, twin = make("ek-ucb"), make("ek-ucb")
    for each in (bandit, twin):
        play(each, 10)
        each.ask(2, context=CONTEXTS[20])
    state = bandit.state_dict()
    history = [part for part in state["history"].values() if part is not None]
    for part in (*history, state["inducing_points"], state["dictionary_weights"], state["pending"]):
        part.fill_(7)
    for each in (bandit, twin):
        play(each, 5, 30)
    assert torch.equal(bandit.history.X, twin.history.X)
    assert torch.equal(bandit.state_dict()["dictionary_weights"], twin.state_dict()["dictionary_weights"])


# ---------------------------------------------------------------- random programs


class Program:
    """Random calls to a bandit, with a picture of its own of what must be known and pending."""

    def __init__(self, name, seed, sets_change):
        self.make = lambda: make(name, changing() if sets_change else None)
        self.bandit, self.sets_change = self.make(), sets_change
        self.random = np.random.default_rng(seed)
        self.X, self.Y, self.pending, self.asked = [], [], {}, 0

    def round(self):
        """A context, with a set of actions of its own where sets change; contexts come back now and then."""
        number = int(self.random.integers(25))
        if not self.sets_change:
            return {"context": CONTEXTS[number]}, ACTIONS
        actions = data(int(self.random.integers(1, 7)), 2, seed=int(self.random.integers(40)))[0]
        return {"context": CONTEXTS[number], "candidates": actions}, actions

    def some(self):
        """Ids of some pending points, in any order."""
        count = int(self.random.integers(1, 1 + min(3, len(self.pending))))
        return [int(each) for each in self.random.permutation(list(self.pending))[:count]]

    def ask(self):
        words, actions = self.round()
        asked = self.bandit.ask(int(self.random.integers(1, 3)), return_ids=True, **words)
        assert asked.ids == tuple(range(self.asked, self.asked + len(asked.ids)))
        assert (asked.actions.unsqueeze(1) == actions).all(-1).any(-1).all()
        self.pending |= dict(zip(asked.ids, joint(words["context"], asked.actions), strict=True))
        self.asked += len(asked.ids)

    def tell_ids(self):
        if not self.pending:
            return
        ids = self.some()
        X = torch.stack([self.pending.pop(each) for each in ids])
        self.bandit.tell(ids=ids, y=reward(X))
        self.note(X)

    def tell_points(self):
        """Points that are pending, or strangers, each in its own context."""
        if self.pending and self.random.random() < 0.7:
            X = torch.stack([self.pending[each] for each in self.some()])
        else:
            X = joint(CONTEXTS[int(self.random.integers(25))], ACTIONS[int(self.random.integers(7)), None] + 0.01)
        self.bandit.tell(X[:, 2:], reward(X), context=X[:, :2])
        for row in X:  # of equal points the one asked first goes
            for each, point in sorted(self.pending.items()):
                if torch.equal(point, row):
                    del self.pending[each]
                    break
        self.note(X)

    def forget(self):
        if not self.pending:
            return
        if self.random.random() < 0.15:
            self.bandit.forget()
            self.pending = {}
            return
        ids = self.some()
        self.bandit.forget(ids=ids)
        for each in ids:
            del self.pending[each]

    def save_and_load(self):
        file = io.BytesIO()
        torch.save(self.bandit.state_dict(), file)
        file.seek(0)
        self.bandit = self.make()
        self.bandit.load_state_dict(torch.load(file, weights_only=True))

    def look(self):
        self.bandit.ask(2, remember=False, **self.round()[0])

    def fail(self):
        """One of many mistakes; nothing may come of it."""
        words, actions = self.round()
        x, context, bandit = actions[:1], words["context"], self.bandit
        mistakes = [
            lambda: bandit.tell(x, float("nan"), context=context),
            lambda: bandit.tell(x, torch.zeros(2, dtype=DOUBLE), context=context),
            lambda: bandit.tell(x, 0.0, context=context[:1]),
            lambda: bandit.tell(ids=self.asked + 3, y=0.0),
            lambda: bandit.tell(ids=[*self.pending, *self.pending, -1], y=0.0),
            lambda: bandit.forget(x + 17.0, context=context),
            lambda: bandit.forget(ids=[*self.pending, self.asked]),
            lambda: bandit.ask(**(words | {"context": context * float("nan")})),
            lambda: bandit.ask(0, **words),
        ]
        with pytest.raises(InputError):
            mistakes[int(self.random.integers(len(mistakes)))]()
        if self.random.random() < 0.3 and bandit.batches is None:
            huge = torch.full((40,), 1.7e308, dtype=DOUBLE)
            with pytest.raises(NumericalError):
                bandit.tell(x.repeat(40, 1), huge, context=context)

    def note(self, X):
        self.X.append(X)
        self.Y.append(reward(X))

    def check(self):
        bandit = self.bandit
        assert bandit.pending_ids == tuple(sorted(self.pending))
        if self.pending:
            assert torch.equal(bandit.pending, torch.stack([self.pending[each] for each in sorted(self.pending)]))
        if self.X:
            assert torch.equal(bandit.history.X, torch.cat(self.X))
            assert torch.equal(bandit.history.Y, torch.cat(self.Y))
        assert bandit.round == len(self.X)

    def check_choice(self):
        """The dense argmax, where it is no tie: contexts and actions come back, so equal bounds are common."""
        words, actions = self.round()
        bounds = dense_upper_bounds(self.bandit, joint(words["context"], actions))
        (x,) = self.bandit.ask(remember=False, **words)
        chosen = (actions == x).all(-1).nonzero().flatten()
        assert len(chosen)
        assert bounds[int(chosen[0])] > bounds.max() - 1e-7


STEPS = Counter(ask=8, tell_ids=5, tell_points=3, forget=1, save_and_load=1, look=2, fail=2)


@pytest.mark.one_in(10)
@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 3), marks=pytest.mark.slow)])
@pytest.mark.parametrize("sets_change", [False, True])
@pytest.mark.parametrize("name", UPPER)
def test_random_programs_leave_the_bandit_as_the_dense_formulas_have_it(name, sets_change, seeds):
    steps = sorted(STEPS.elements())
    for seed in seeds:
        program = Program(name, seed, sets_change)
        for number in range(70):
            getattr(program, steps[int(program.random.integers(len(steps)))])()
            program.check()
            if number % 8 == 0:
                program.check_choice()
        assert len(program.X) > 8
        replayed = program.make()
        replayed.replay(program.bandit.history)
        program.bandit.forget()
        words, _ = program.round()
        assert torch.equal(replayed.ask(3, **words), program.bandit.ask(3, **words))
