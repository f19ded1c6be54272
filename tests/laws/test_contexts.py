"""Where each round brings a context: the best of this round's actions is asked for, whatever came before."""

import io
from collections import Counter

import numpy as np
import oracles
import pandas as pd
import pytest
import torch
from contextual import (
    ACTIONS,
    BOUNDS,
    CONTEXTS,
    KERNEL,
    LAMBDA,
    UPPER,
    box,
    changing,
    dense_moments,
    dense_upper_bounds,
    joint,
    make,
    play,
    reward,
)
from gpytorch.kernels import MaternKernel, RBFKernel
from kinds import composed, same
from problems import DOUBLE, data, dense, difference, exactly, rbf
from scipy.stats import norm

from torch_kbandits import (
    KORS,
    Category,
    ColumnSpec,
    ContextualActions,
    InputError,
    Number,
    NumericalError,
    RidgeLeverageSampling,
    algorithms,
)
from torch_kbandits.acquisition import ExpectedImprovementRule, ProbabilityOfImprovementRule
from torch_kbandits.bandit import StayRule
from torch_kbandits.memory import SlidingWindow

CONTEXT = CONTEXTS[30]
NAN = float("nan")

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


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 4), marks=pytest.mark.slow)])
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


# ---------------------------------------------------------------- ids


def test_one_point_that_is_pending_twice_has_two_ids_and_in_another_context_it_is_another_point():
    """Told by its point it is the one asked first; told or forgotten by id, that one."""
    bandit, context = make("ek-ucb", changing()), CONTEXTS[0]
    only = {"candidates": ACTIONS[:1]}
    ids = bandit.ask(4, context=context, return_ids=True, **only).ids
    bandit.tell(ACTIONS[:1], 0.5, context=context)
    assert bandit.pending_ids == ids[1:]
    bandit.tell(ids=ids[2], y=0.5)
    bandit.forget(ids=ids[1])
    assert bandit.pending_ids == (ids[3],)
    bandit.forget(ACTIONS[:1], context=context)
    ids = [bandit.ask(context=CONTEXTS[k], return_ids=True, **only).ids[0] for k in range(3)]
    assert ids == [4, 5, 6]
    bandit.tell(ACTIONS[:1], 0.5, context=CONTEXTS[1])
    assert bandit.pending_ids == (4, 6)
    with pytest.raises(InputError, match="pending"):
        bandit.forget(ACTIONS[:1], context=CONTEXTS[1])
    bandit.tell(ACTIONS[:1].repeat(2, 1), torch.zeros(2, dtype=DOUBLE), context=CONTEXTS[[2, 0]])
    assert bandit.pending_ids == ()
    assert torch.equal(bandit.history.X[-2:], torch.cat([CONTEXTS[[2, 0]], ACTIONS[:1].repeat(2, 1)], dim=-1))


# ---------------------------------------------------------------- what is asked for


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


# ---------------------------------------------------------------- improvement on a box in a context

IMPROVED = {
    "exact": None, "grows": KORS(oversampling=0.5), "resampled": RidgeLeverageSampling(oversampling=0.5)
}  # fmt: skip
RULES = {"expected": ExpectedImprovementRule(), "probability": ProbabilityOfImprovementRule(margin=0.02)}


def improving(rule, dictionary=None, dimensions=(1, 1), **words):
    context_dim, action_dim = dimensions
    bounds = torch.tensor([[0.0], [1.0]], dtype=DOUBLE).expand(2, action_dim)
    actions = ContextualActions(bounds=bounds, context_dim=context_dim, num_restarts=4, raw_samples=64)
    words |= {"kernel": rbf(0.6), "regularization": LAMBDA, "width": None}
    return composed(candidates=actions, dictionary=dictionary, acquisition=RULES[rule], **words)


def dense_scores(bandit, points, best):
    """Log EI, or log PI, at joint points (k, d), as NumPy and SciPy have it."""
    mean, variance = dense_moments(bandit, points)
    deviation, margin = np.sqrt(variance), getattr(bandit.rule, "margin", 0.0)
    ratio = (mean - best - margin) / deviation
    return norm.logcdf(ratio) if margin else np.log(deviation) + np.log(norm.pdf(ratio) + ratio * norm.cdf(ratio))


@pytest.mark.one_in(6)
@pytest.mark.parametrize("dimensions", [(1, 1), (1, 2), (0, 2)])
@pytest.mark.parametrize("dictionary", IMPROVED)
@pytest.mark.parametrize("rule", RULES)
def test_improvement_is_over_the_best_mean_of_the_box_in_this_context(rule, dictionary, dimensions):
    """What is asked for is the best of a dense grid, and so is what is recommended."""
    bandit, (c, d) = improving(rule, IMPROVED[dictionary], dimensions), dimensions
    X, context = data(12, c + d, seed=3)[0], torch.full((c,), 0.3, dtype=DOUBLE)
    bandit.tell(X[:, c:], torch.sin(5.0 * X).sum(-1), context=X[:, :c])
    side = 201 if d == 1 else 31
    grid = torch.cartesian_prod(*[torch.linspace(0.0, 1.0, side, dtype=DOUBLE)] * d).reshape(-1, d)
    means = dense_moments(bandit, joint(context, torch.cat([bandit.recommend(context=context), grid])))[0]
    assert means[0] > means[1:].max() - 1e-6
    x, function = bandit.ask(context=context, remember=False), bandit.acquisition(context=context)
    scores = dense_scores(bandit, joint(context, torch.cat([x, grid])), means[0])
    ours = function(torch.cat([x, grid]).unsqueeze(-2)).detach().numpy()
    near = scores > scores[0] - 10.0  # the density of what is far from likely underflows in the formula
    assert np.abs(ours - scores)[near].max() < 1e-5
    assert scores[0] > scores[1:].max() - 1e-4


@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("rule", RULES)
def test_there_is_nothing_to_improve_on_before_any_reward_and_when_all_is_forgotten(rule):
    """Of two rewards the window forgets the higher one, whose action would be improved on."""
    context, actions = torch.full((1,), 0.3, dtype=DOUBLE), torch.tensor([[0.2], [0.7]], dtype=DOUBLE)
    bandit, alone = improving(rule, memory=SlidingWindow(2.0)), improving(rule)
    scores = dense_scores(alone, joint(context, actions), 0.0)

    def shown(each, **words):
        return each.acquisition(context=context, **words)(actions.unsqueeze(-2)).detach()

    assert difference(shown(bandit, time=0.0), scores) < 1e-8
    bandit.tell(actions[:1], 3.0, context=context, time=0.0)
    bandit.tell(actions[1:], 1.0, context=context, time=1.5)
    alone.tell(actions[1:], 1.0, context=context)
    assert difference(shown(bandit, time=3.0), shown(alone)) < 1e-6
    assert difference(shown(bandit, time=50.0), scores) < 1e-8


# ---------------------------------------------------------------- what does not fit


def waiting(changes=False):
    """A bandit with a history, id 8 told, 9 and 10 pending, on actions that stay or that are given in each round."""
    words = {"candidates": ACTIONS} if changes else {}
    bandit = make("ek-ucb", changing() if changes else None)
    play(bandit, 8, actions_of=(lambda _: ACTIONS) if changes else None)
    bandit.ask(3, context=CONTEXTS[20], **words)
    bandit.tell(ids=8, y=0.1)
    return bandit


def assert_refused(bandit, call, *parts):
    """An ``InputError`` whose message has all parts, after which the bandit is as it was."""
    before = bandit.state_dict()
    with pytest.raises(InputError) as caught:
        call(bandit)
    for part in parts:
        assert part in str(caught.value), (part, str(caught.value))
    assert same(bandit.state_dict(), before)


BAD_CONTEXTS = [
    (torch.zeros(3, dtype=DOUBLE), "2 column(s)", "shape (3,)"),
    (torch.tensor(0.5, dtype=DOUBLE), "2 column(s)", "shape ()"),
    (None, "context is missing", "(2,)"),
    (torch.tensor([[float("inf"), 0.0]], dtype=DOUBLE), "context must be finite", "1 of 2"),
]


def test_contexts_that_do_not_fit():
    bandit, x, two, Y = waiting(), ACTIONS[:1], ACTIONS[:2], torch.zeros(2, dtype=DOUBLE)
    for context, *parts in BAD_CONTEXTS:
        for call in (
            lambda b, c=context: b.ask(context=c),
            lambda b, c=context: b.tell(x, 0.1, context=c),
            lambda b, c=context: b.acquisition(context=c),
            lambda b, c=context: b.recommend(context=c),
            lambda b, c=context: b.forget(x, context=c),
        ):
            assert_refused(bandit, call, *parts)
    for call, *parts in (
        (lambda b: b.ask(context=CONTEXTS[:2]), "one context, (2,)", "2 rows"),
        (lambda b: b.ask(context=CONTEXTS[:0]), "one context, (2,)", "0 rows"),
        (lambda b: b.tell(two, Y, context=CONTEXTS[:3]), "one for all 2", "got 3"),
        (lambda b: b.tell(two, Y, context=CONTEXTS[:0]), "one for all 2", "got 0"),
        (lambda b: b.ask(context=CONTEXT, candidates=ACTIONS), "always the same", "leave out"),
    ):
        assert_refused(bandit, call, *parts)


BAD_ACTIONS = [
    (ACTIONS[:0], "at least one action", "shape (0, 2)"),
    (torch.zeros(2, dtype=DOUBLE), "shape (n, d)", "shape (2,)"),
    (torch.tensor([[0.1, NAN]], dtype=DOUBLE), "must be finite", "(0, 1)"),
]


def test_actions_that_do_not_fit():
    bandit = waiting(changes=True)
    for actions, *parts in BAD_ACTIONS:
        for name in ("ask", "acquisition", "recommend"):
            assert_refused(bandit, lambda b, n=name, a=actions: getattr(b, n)(context=CONTEXT, candidates=a), *parts)
    arms = algorithms.build("k-ucb", candidates=ACTIONS, kernel=rbf(0.6), regularization=LAMBDA, seed=0, beta=1.0)
    for call in (
        lambda b: b.ask(context=CONTEXT),
        lambda b: b.ask(candidates=ACTIONS),
        lambda b: b.tell(ACTIONS[:1], 0.1, context=CONTEXT),
    ):
        assert_refused(arms, call, "Arms have neither contexts nor", "ContextualActions")
    with pytest.raises(InputError, match="depends on the round"):
        _ = changing().domain


BAD_IDS = [
    (11, "id 11 is unknown", "11 point(s)", "numbered from 0"),
    (8, "id 8 is not pending", "told or forgotten already"),
    ([9, 9], "must differ", "[9, 9]"),
    (9.0, "whole numbers", "9.0"),
    (True, "whole numbers", "True"),
]


def test_ids_and_rewards_that_do_not_fit():
    bandit, Y = waiting(), torch.zeros(3, dtype=DOUBLE)
    for ids, *parts in BAD_IDS:
        assert_refused(bandit, lambda b, i=ids: b.tell(ids=i, y=torch.zeros(2, dtype=DOUBLE)), *parts)
        assert_refused(bandit, lambda b, i=ids: b.forget(ids=i), *parts)
    for call, *parts in (
        (lambda b: b.tell(ids=[9, 10], y=Y), "each of the 2 point(s)", "shape (3,)"),
        (lambda b: b.tell(ids=9, y=NAN), "y must be finite"),
        (lambda b: b.tell(y=0.5, context=CONTEXT), "x is missing"),
        (lambda b: b.tell(ids=9, y=0.5, context=CONTEXT), "either x (and its context) or ids"),
        (lambda b: b.forget(context=CONTEXT), "x is missing"),
        (lambda b: b.ask(context=CONTEXT, remember=False, return_ids=True), "needs remember=True"),
    ):
        assert_refused(bandit, call, *parts)


SPEC = ColumnSpec([Number("age"), Category("city", ["Paris", "Rome"])])


def test_rows_that_are_no_context():
    bandit, fits = make("ek-ucb", ContextualActions(ACTIONS, context_columns=SPEC)), {"age": 0.5, "city": "Rome"}
    bandit.tell(bandit.ask(context=fits), 0.1, context=fits)
    for row, *parts in (
        ({"age": 3.0, "city": "Oslo"}, "'city'", "one of its 2 levels", "'Oslo'", "other=True"),
        ({"age": NAN, "city": "Rome"}, "'age'", "a finite number", "missing"),
        ({"age": 3.0}, "must have column 'city'", "['age']"),
        (pd.DataFrame({"age": [1.0, 2.0], "city": ["Rome", "Rome"]}), "one context, (3,)", "2 rows"),
        (3.0, "a pandas DataFrame or Series, a mapping", "3.0"),
    ):
        assert_refused(bandit, lambda b, r=row: b.ask(context=r), *parts)


SET_UPS = [
    ({"context_dim": 2}, "action_dim is missing", "actions, bounds or action_columns"),
    ({"actions": ACTIONS, "bounds": BOUNDS, "context_dim": 2}, "either a finite set", "not both"),
    ({"actions": ACTIONS[0], "context_dim": 2}, "shape (n, d)", "shape (2,)"),
    ({"actions": ACTIONS, "context_dim": 2, "action_dim": 3}, "action_dim gives 3", "have 2"),
    ({"bounds": BOUNDS.flip(0), "context_dim": 2}, "lower bound must be below"),
    ({"action_dim": 2, "context_dim": -1}, "context_dim", "at least 0", "-1"),
    ({"action_dim": 2, "context_dim": 1, "dtype": torch.long}, "float64 or", "int64"),
]


def test_what_makes_no_sense_is_refused():
    for words, *parts in SET_UPS:
        with pytest.raises(InputError) as caught:
            ContextualActions(**words)
        assert all(part in str(caught.value) for part in parts), str(caught.value)
    words = {"kernel": rbf(0.6), "regularization": LAMBDA, "seed": 0, "beta": 1.0}
    for name in ("cbbkb", "cbkb", "ek-ucb", "k-ucb"):
        with pytest.raises(InputError, match="Leave out context_dim"):
            algorithms.build(name, candidates=changing(), context_dim=2, **words)
        with pytest.raises(InputError, match="action_dim gives 3"):
            algorithms.build(name, candidates=ACTIONS, context_dim=2, action_dim=3, **words)
        short = algorithms.build(name, candidates=ACTIONS, context_dim=2, **words)
        assert torch.equal(short.ask(context=CONTEXT), make(name, beta=1.0).ask(context=CONTEXT))
    for call in (
        lambda: algorithms.build("mini-gp-ucb", candidates=changing(), **words),
        lambda: composed(candidates=box(), batches=StayRule(4.0)),
    ):
        with pytest.raises(InputError, match="StayRule plays a point again and again"):
            call()
