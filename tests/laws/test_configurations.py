"""Bandits that play named parameters, or a cube of which not all may be played: what they ask for, take and find."""

import math
from functools import partial

import pytest
import torch
from problems import DOUBLE, difference, rbf

from torch_kbandits import (
    Bandit,
    Categorical,
    Configurations,
    Float,
    InputError,
    Integer,
    LinearConstraint,
    ParameterSpace,
    StateMismatchError,
    UnitCube,
    algorithms,
)
from torch_kbandits.acquisition import (
    ExpectedImprovementRule,
    ProbabilityOfImprovementRule,
    ThompsonRule,
    UpperConfidenceRule,
)
from torch_kbandits.bandit.batches import GlobalBatchRule, LocalBatchRule, StayRule
from torch_kbandits.confidence import ConstantWidth
from torch_kbandits.dictionaries import RidgeLeverageSampling
from torch_kbandits.memory import BackToPrior, Discount, SlidingWindow
from torch_kbandits.priors import default_kernel

PARAMETERS = {
    "rate": Float(1e-4, 1.0, log=True),
    "depth": Integer(1, 12),
    "kind": Categorical(["a", "b", "c"]),
    "model": Categorical(["svm", "forest"]),
    "C": Float(1e-3, 1e3, log=True, when={"model": "svm"}),
    "leaves": Integer(2, 200, log=True, when={"model": "forest"}),
}
LIMITS = [LinearConstraint({"depth": 1.0, "leaves": 0.1}, 16.0), lambda row: row["kind"] != "b" or row["depth"] < 8]
SPACE = ParameterSpace(PARAMETERS)
LIMITED = ParameterSpace(PARAMETERS, LIMITS)
#: Of algorithms that need more than a kernel.
NEEDED = {
    "bob-gp-ucb": {"horizon": 200},
    "r-gp-ucb": {"period": 25.0},
    "sw-gp-ucb": {"window": 12.0},
    "ui-gp-ucb": {"growth": 0.01},
    "sparq-gp-ucb": {"expert": lambda X, time: (X.sum(-1), 0.05)},
}
#: One chooses through stages, which leave some of finitely many actions; one has a kernel of its own.
NAMES = [name for name in algorithms.names() if name not in ("sup-kernel-ucb", "lin-ucb")]
RULES = [UpperConfidenceRule(), ExpectedImprovementRule(), ProbabilityOfImprovementRule(), ThompsonRule()]


@pytest.fixture(autouse=True)
def _few_points(request, monkeypatch):
    """Searches look at few points: the laws hold wherever one ends."""
    if "full_searches" in request.fixturenames:
        return
    monkeypatch.setattr("torch_kbandits.acquisition.climbing._TURNS", 2)
    monkeypatch.setattr("torch_kbandits.acquisition.climbing._EXCHANGES", 1)
    monkeypatch.setattr("torch_kbandits.acquisition.cubes._SPREAD", 48)
    monkeypatch.setattr("torch_kbandits.acquisition.cubes._NEAR", 6)
    monkeypatch.setattr("torch_kbandits.acquisition.climbing._STEPS", 3)
    monkeypatch.setattr("torch_kbandits.beliefs.cube_search._STARTS", 2)


@pytest.fixture
def full_searches():
    """Searches as they are."""


def score(row):
    """The rewards of a configuration, of which the best are forests."""
    value = -((math.log10(row["rate"]) + 2.0) ** 2) / 4.0 - (row["depth"] - 7.0) ** 2 / 20.0
    value += {"a": 0.0, "b": 0.6, "c": 0.3}[row["kind"]]
    return value - (
        abs(math.log10(row["C"]) - 1.0) if row["model"] == "svm" else abs(row["leaves"] - 30.0) / 60.0 - 0.5
    )


def make(name="ek-ucb", space=LIMITED, **settings):
    words = {"kernel": default_kernel(space.dimension, space.groups), "regularization": 0.01, "seed": 3}
    if "beta" in algorithms.registry.signature(name).parameters:
        words["beta"] = 1.5
    return algorithms.build(name, **{"candidates": space, **words, **NEEDED.get(name, {}), **settings})


def play(bandit, rounds, q=1):
    asked = []
    for _ in range(rounds):
        rows = bandit.ask(q)
        bandit.tell(rows, [score(row) for row in rows])
        asked += rows
    return asked


def is_playable(row):
    conditions = (("C" in row) == (row["model"] == "svm")) and (("leaves" in row) == (row["model"] == "forest"))
    small = row["depth"] + 0.1 * row.get("leaves", 0) <= 16.0 + 1e-9
    return conditions and small and (row["kind"] != "b" or row["depth"] < 8)


# -------------------------------------------------------------------- what is asked for


@pytest.mark.usefixtures("short_searches")
@pytest.mark.one_in(30)
@pytest.mark.parametrize("name", NAMES)
def test_every_algorithm_plays_configurations(name):
    bandit = make(name)
    asked = play(bandit, 3, q=2)
    assert len(asked) == 6
    assert all(map(is_playable, asked))
    assert bandit.recommend() in asked
    # What a random width draws or an expert was asked belongs to a round, and so to when it is asked.
    X = bandit.history.X
    assert bandit.candidates.actions(X) == asked
    assert difference(LIMITED.encode(asked), X[:, -LIMITED.dimension :]) == 0.0


@pytest.mark.parametrize("name", ["sup-kernel-ucb", "lin-ucb"])
def test_algorithms_of_finitely_many_actions_say_so(name):
    with pytest.raises((InputError, TypeError)):
        make(name, **({"horizon": 10} if name == "sup-kernel-ucb" else {}))


@pytest.mark.usefixtures("short_searches")
@pytest.mark.one_in(120)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("dictionary", [None, RidgeLeverageSampling(2.0)])
@pytest.mark.parametrize("memory", [None, SlidingWindow(5.0), Discount(0.9), BackToPrior(0.05)])
@pytest.mark.parametrize("batches", [None, GlobalBatchRule(2.0), LocalBatchRule(1.5), StayRule(1.69)])
def test_rules_dictionaries_memories_and_batches_go_with_it(rule, dictionary, memory, batches):
    make_one = partial(
        Bandit,
        candidates=Configurations(LIMITED),
        kernel=default_kernel(LIMITED.dimension, LIMITED.groups),
        regularization=0.05,
        width=ConstantWidth(1.0),
        acquisition=rule,
        dictionary=dictionary,
        memory=memory,
        batches=batches,
        seed=1,
    )
    if batches == StayRule(1.69) and memory == BackToPrior(0.05):
        with pytest.raises(InputError, match="plays a point again"):
            make_one()
        return
    bandit = make_one()
    asked = play(bandit, 3, q=2)
    assert all(map(is_playable, asked))
    assert bandit.recommend() in asked


@pytest.mark.one_in(12)
@pytest.mark.parametrize("rule", RULES[:3], ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("memory", [None, BackToPrior(0.05)])
@pytest.mark.parametrize("num_pending", [0, 2])
def test_what_is_asked_for_scores_at_least_as_high_as_all_that_the_search_looks_at(rule, memory, num_pending):
    bandit = Bandit(
        candidates=Configurations(LIMITED),
        kernel=default_kernel(LIMITED.dimension, LIMITED.groups),
        regularization=0.05,
        width=ConstantWidth(1.0),
        acquisition=rule,
        memory=memory,
        seed=1,
    )
    play(bandit, 6)
    bandit.mark_pending(LIMITED.decode(LIMITED.sample(num_pending or 1, torch.Generator().manual_seed(7))))
    if not num_pending:
        bandit.forget()
    function = bandit.acquisition()
    spread = LIMITED.sample(200, torch.Generator().manual_seed(0))
    (row,) = bandit.ask()
    with torch.no_grad():
        reached = float(function(LIMITED.encode([row]).unsqueeze(-2)))
        best = LIMITED.encode([bandit.recommend()])
        looked = torch.cat([spread[:0], best])
        assert reached >= float(function(looked.unsqueeze(-2)).max()) - 1e-9
        # A search from the best of a few finds what many points drawn at random do not.
        assert reached >= float(function(spread.unsqueeze(-2)).quantile(0.9))


def test_the_first_points_cover_the_space_evenly():
    bandit = make(space=SPACE)
    rows = bandit.ask(32)
    assert rows == make(space=SPACE).ask(32)
    assert rows != make(space=SPACE, seed=4).ask(32)
    rates = torch.tensor([math.log10(row["rate"]) for row in rows])
    assert torch.histc(rates, 4, -4.0, 0.0).tolist() == [8.0] * 4
    assert sum(row["model"] == "svm" for row in rows) == 16


def test_random_search_is_uniform_whatever_was_told():
    bandit = make("random", SPACE)
    play(bandit, 3)
    rows = bandit.ask(400)
    assert 160 <= sum(row["model"] == "svm" for row in rows) <= 240  # four standard errors
    assert 95 <= sum(row["kind"] == "b" for row in rows) <= 172
    assert all(("C" in row) == (row["model"] == "svm") for row in rows)


@pytest.mark.one_in(2)
@pytest.mark.usefixtures("full_searches")
@pytest.mark.parametrize("space", [SPACE, LIMITED], ids=["free", "limited"])
def test_a_search_finds_more_than_thousands_of_points_drawn_at_random(space):
    bandit = make("gp-ucb", space, kernel=default_kernel(space.dimension, space.groups))
    rows = space.decode(space.sample(12, torch.Generator().manual_seed(2)))
    bandit.tell(rows, [score(row) for row in rows])
    function, points = bandit.acquisition(), space.sample(4000, torch.Generator().manual_seed(1))
    with torch.no_grad():
        reached = float(function(space.encode(bandit.ask()).unsqueeze(-2)))
        assert reached > float(function(points.unsqueeze(-2)).max())


# -------------------------------------------------------------------- telling


def test_configurations_and_their_encodings_are_the_same():
    one, other = make(), make()
    rows = one.ask(3)
    assert other.ask(3) == rows
    one.tell(rows, [1.0, 2.0, 3.0])
    other.tell(LIMITED.encode(rows), [1.0, 2.0, 3.0])
    assert torch.equal(one.history.X, other.history.X)
    assert one.pending_ids == other.pending_ids == ()
    one.tell(rows[0], 4.0)
    other.tell([rows[0]], torch.tensor([4.0]))
    assert torch.equal(one.history.Y, other.history.Y)
    assert one.ask(2) == other.ask(2)


def test_ids_stand_for_configurations():
    bandit = make()
    rows, ids = bandit.ask(3, return_ids=True)
    more = bandit.mark_pending({"rate": 0.1, "depth": 3, "kind": "a", "model": "svm", "C": 1.0})
    bandit.tell(ids=ids[1], y=0.5)
    bandit.forget(rows[0])
    assert bandit.candidates.actions(bandit.pending) == [rows[2], LIMITED.decode(LIMITED.encode(
        [{"rate": 0.1, "depth": 3, "kind": "a", "model": "svm", "C": 1.0}]))[0]]  # fmt: skip
    assert bandit.pending_ids == (ids[2], *more)
    with pytest.raises(InputError, match="Not all of the 1 point"):
        bandit.forget(rows[1])


@pytest.mark.parametrize(
    ("x", "words"),
    [
        ({"rate": 0.1}, "'depth' is missing"),
        ({"rate": 0.1, "depth": 3, "kind": "z", "model": "svm", "C": 1.0}, "'kind' must be one of"),
        ([], "x must be a configuration"),
        (["rate"], "x must be a configuration"),
        (None, "x must be a configuration"),
        (torch.zeros(1, 3, dtype=DOUBLE), "column"),
    ],
)
def test_what_is_no_configuration_is_refused(x, words):
    bandit = make()
    before = bandit.ask(1)
    with pytest.raises(InputError, match=words):
        bandit.tell(x, 1.0)
    assert bandit.num_told == 0
    assert bandit.candidates.actions(bandit.pending) == before


def test_words_that_make_no_sense_are_refused():
    bandit = make()
    for call in (bandit.ask, bandit.recommend, bandit.acquisition):
        with pytest.raises(InputError, match="no contexts"):
            call(context=[1.0])
        with pytest.raises(InputError, match="leave out candidates"):
            call(candidates=torch.zeros(2, 10, dtype=DOUBLE))
    with pytest.raises(InputError, match="no contexts"):
        bandit.tell(bandit.ask(), 1.0, context=[1.0])
    with pytest.raises(InputError, match="nothing to choose"):
        Configurations(ParameterSpace({"x": Categorical([1])}))
    with pytest.raises(InputError, match="none satisfies"):
        Configurations(ParameterSpace({"x": Float(0.0, 1.0)}, [lambda row: False]))


# -------------------------------------------------------------------- state


@pytest.mark.usefixtures("short_searches")
@pytest.mark.one_in(3)
@pytest.mark.parametrize("memory", [None, BackToPrior(0.05), SlidingWindow(4.0)])
def test_saved_loaded_and_replayed_bandits_ask_for_the_same(memory, tmp_path):
    space = ParameterSpace(PARAMETERS, LIMITS[:1])
    bandit, replayed = make(space=space, memory=memory), make(space=space, memory=memory)
    play(bandit, 4)
    replayed.replay(bandit.history)
    assert encoded(replayed.ask(remember=False), bandit.ask(remember=False)) <= 1e-3
    bandit.ask()
    bandit.save(tmp_path / "bandit")
    again = Bandit.load(tmp_path / "bandit")
    assert type(again) is type(bandit)
    assert again.candidates.describe() == bandit.candidates.describe()
    assert encoded(again.ask(), bandit.ask()) <= 1e-3
    with pytest.raises(StateMismatchError, match=r"candidates\.parameters"):
        make(space=ParameterSpace(PARAMETERS | {"depth": Integer(1, 13)}, LIMITS[:1]), memory=memory).load_state_dict(
            bandit.state_dict()
        )


def encoded(rows, others):
    assert [row.keys() for row in rows] == [other.keys() for other in others]
    return difference(LIMITED.encode(rows), LIMITED.encode(others))


def test_functions_are_given_again(tmp_path):
    bandit = make()
    play(bandit, 3)
    bandit.save(tmp_path / "bandit")
    with pytest.raises(StateMismatchError, match="into"):
        Bandit.load(tmp_path / "bandit")
    again = Bandit.load(tmp_path / "bandit", into=make())
    assert encoded(again.ask(), bandit.ask()) <= 1e-3


@pytest.mark.usefixtures("short_searches")
def test_asking_in_parts_is_asking_at_once_and_looking_changes_nothing():
    whole, parts = make(), make()
    play(whole, 2)
    play(parts, 2)
    looked = whole.ask(3, remember=False)
    assert encoded(whole.ask(3), looked) <= 1e-3
    assert encoded(parts.ask(1) + parts.ask(2), looked) <= 1e-3


# -------------------------------------------------------------------- contexts


@pytest.mark.usefixtures("short_searches")
def test_configurations_in_a_context():
    bandit = make(context_dim=1, kernel=rbf(0.7))
    asked = []
    for number in range(5):
        context = torch.tensor([number / 8.0], dtype=DOUBLE)
        (row,) = bandit.ask(context=context)
        asked.append(row)
        bandit.tell(row, score(row) + number, context=context)
    assert all(map(is_playable, asked))
    assert bandit.history.X.shape == (5, 1 + LIMITED.dimension)
    assert bandit.history.X[:, 0].tolist() == [number / 8.0 for number in range(5)]
    assert bandit.recommend(context=context) in asked
    function = bandit.acquisition(context=context)
    (row,) = bandit.ask(context=context)
    with torch.no_grad():
        reached = float(function(LIMITED.encode([row]).unsqueeze(-2)))
        assert reached >= float(function(LIMITED.encode([bandit.recommend(context=context)]).unsqueeze(-2))) - 1e-9
    with pytest.raises(InputError, match="context is missing"):
        bandit.ask()


@pytest.mark.usefixtures("short_searches")
@pytest.mark.one_in(12)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_rules_in_a_context_that_is_dated(rule):
    bandit = Bandit(
        candidates=Configurations(LIMITED, context_dim=2),
        kernel=rbf(0.7),
        regularization=0.05,
        width=ConstantWidth(1.0),
        acquisition=rule,
        memory=BackToPrior(0.05),
        seed=1,
    )
    for number in range(4):
        context = torch.tensor([number / 4.0, 0.5], dtype=DOUBLE)
        rows = bandit.ask(2, context=context)
        assert all(map(is_playable, rows))
        bandit.tell(rows, [score(row) for row in rows], context=context)
    assert is_playable(bandit.recommend(context=context))


# -------------------------------------------------------------------- a cube without names


def tenths(x):
    return torch.cat([(10.0 * x[:, :1]).round() / 10.0, x[:, 1:]], dim=-1)


@pytest.mark.usefixtures("short_searches")
def test_a_cube_with_a_function_that_says_what_may_be_played():
    bandit = algorithms.GPUCB(
        candidates=UnitCube(3, snap=tenths, continuous=[1, 2]), kernel=rbf(0.5), regularization=0.01, beta=1.5, seed=0
    )
    for _ in range(6):
        X = bandit.ask(2)
        assert torch.equal(tenths(X), X)
        bandit.tell(X, -((X - 0.33) ** 2).sum(-1))
    assert X.shape == (2, 3)
    assert difference(bandit.recommend()[0, 1:], torch.full((2,), 0.33)) < 0.2
    assert bandit.candidates.offers(X[:1])
    assert not bandit.candidates.offers(X[:1] + 0.01)


def test_neighbours_that_are_given_are_tried():
    tried = []

    def flips(x):
        tried.append(x)
        return torch.cat([1.0 - x[:, :1], x[:, 1:]], dim=-1)

    def binary(x):
        return torch.cat([x[:, :1].round(), x[:, 1:]], dim=-1)

    cube = UnitCube(2, snap=binary, continuous=[1], neighbours=flips)
    bandit = algorithms.GPUCB(candidates=cube, kernel=rbf(0.5), regularization=0.01, beta=1.5, seed=0)
    for _ in range(3):
        x = bandit.ask()
        bandit.tell(x, x.sum(-1))
    assert tried


def test_a_cube_is_saved_unless_it_has_functions(tmp_path):
    words = {"kernel": rbf(0.5), "regularization": 0.01, "beta": 1.5, "seed": 0}
    bandit = algorithms.GPUCB(candidates=UnitCube(2), **words)
    x = bandit.ask(3)
    bandit.tell(x, x.sum(-1))
    bandit.save(tmp_path / "bandit")
    assert difference(Bandit.load(tmp_path / "bandit").ask(), bandit.ask()) < 1e-3
    algorithms.GPUCB(candidates=UnitCube(3, snap=tenths), **words).save(tmp_path / "other")
    with pytest.raises(StateMismatchError, match="snap"):
        Bandit.load(tmp_path / "other")


@pytest.mark.parametrize(
    ("make_cube", "words"),
    [
        (lambda: UnitCube(0), "dimension"),
        (lambda: UnitCube(2, snap=3), "snap must be a function"),  # pyright: ignore
        (lambda: UnitCube(2, continuous=[2]), "coordinates from 0 to 1"),
        (lambda: UnitCube(2, snap=lambda x: x[:, :1]), "what snap returns"),
    ],
)
def test_what_is_no_cube_is_refused(make_cube, words):
    with pytest.raises(InputError, match=words):
        make_cube()
