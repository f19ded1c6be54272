"""Bandits that play named parameters, or a cube of which not all may be played: what they ask for, take and find."""

import math

import pytest
import torch
from kinds import NEEDED, composed, same
from problems import DOUBLE, difference, rbf

import torch_kbandits as kb
from torch_kbandits.acquisition import (
    ExpectedImprovementRule,
    ProbabilityOfImprovementRule,
    ThompsonRule,
    UpperConfidenceRule,
)
from torch_kbandits.bandit import GlobalBatchRule, LocalBatchRule, StayRule
from torch_kbandits.dictionaries import RidgeLeverageSampling
from torch_kbandits.memory import Discount, SlidingWindow, TemporalPrior
from torch_kbandits.priors import default_kernel

PARAMETERS = {
    "rate": kb.Float(1e-4, 1.0, log=True),
    "depth": kb.Integer(1, 12),
    "kind": kb.Categorical(["a", "b", "c"]),
    "model": kb.Categorical(["svm", "forest"]),
    "C": kb.Float(1e-3, 1e3, log=True, when={"model": "svm"}),
    "leaves": kb.Integer(2, 200, log=True, when={"model": "forest"}),
}
LIMITS = [kb.LinearConstraint({"depth": 1.0, "leaves": 0.1}, 16.0), lambda row: row["kind"] != "b" or row["depth"] < 8]
SPACE, LIMITED = kb.ParameterSpace(PARAMETERS), kb.ParameterSpace(PARAMETERS, LIMITS)
#: One chooses through stages, which leave some of finitely many actions; one has a kernel of its own.
#: For arms and actions that are listed, and not for named parameters.
LISTED = ("sup-kernel-ucb", "lin-ucb", "shared-lin-ucb", "bpe", "mvr", "r-perp", "irgp-ucb")
NAMES = [name for name in kb.algorithms.names() if name not in LISTED]
UPPER, EI, PI = UpperConfidenceRule(), ExpectedImprovementRule(), ProbabilityOfImprovementRule()


def score(row):
    value = -((math.log10(row["rate"]) + 2.0) ** 2) / 4.0 - (row["depth"] - 7.0) ** 2 / 20.0
    value += {"a": 0.0, "b": 0.6, "c": 0.3}[row["kind"]]
    return value - (
        abs(math.log10(row["C"]) - 1.0) if row["model"] == "svm" else abs(row["leaves"] - 30.0) / 60.0 - 0.5
    )


def is_playable(row):
    conditions = (("C" in row) == (row["model"] == "svm")) and (("leaves" in row) == (row["model"] == "forest"))
    small = row["depth"] + 0.1 * row.get("leaves", 0) <= 16.0 + 1e-9
    return conditions and small and (row["kind"] != "b" or row["depth"] < 8)


def make(name="ek-ucb", space=LIMITED, **settings):
    words = {"kernel": default_kernel(space.dimension, space.groups), "regularization": 0.01, "seed": 3}
    if "beta" in kb.algorithms.registry.signature(name).parameters:
        words["beta"] = 1.5
    needed = NEEDED.get(name, {}) | ({"expert": lambda X, time: (X.sum(-1), 0.05)} if "sparq" in name else {})
    return kb.algorithms.build(name, **{"candidates": space, **words, **needed, **settings})


def put_together(rule=UPPER, **words):
    width = None if not rule.uses_width else composed().width
    kernel = default_kernel(LIMITED.dimension, LIMITED.groups)
    return composed(
        **{"candidates": kb.Configurations(LIMITED), "kernel": kernel, "acquisition": rule, "width": width} | words
    )


def play(bandit, rounds, q=1, **words):
    asked = []
    for _ in range(rounds):
        rows = bandit.ask(q, **words)
        bandit.tell(rows, [score(row) for row in rows], **words)
        asked += rows
    return asked


@pytest.mark.usefixtures("short_searches")
@pytest.mark.one_in(30)
@pytest.mark.parametrize("name", NAMES)
def test_every_algorithm_plays_configurations(name):
    bandit = make(name)
    asked = play(bandit, 3)
    assert all(map(is_playable, asked))
    assert bandit.recommend() in asked
    # What a random width draws or an expert was asked belongs to a round, and so to when it is asked.
    assert bandit.candidates.actions(bandit.history.X) == asked
    assert difference(LIMITED.encode(asked), bandit.history.X[:, -LIMITED.dimension :]) == 0.0


TOGETHER = [
    {"dictionary": RidgeLeverageSampling(2.0), "memory": SlidingWindow(5.0), "batches": GlobalBatchRule(2.0)},
    {"rule": EI, "memory": Discount(0.9), "batches": LocalBatchRule(1.5)},
    {"rule": PI, "memory": TemporalPrior(0.05), "dictionary": RidgeLeverageSampling(2.0)},
    {"rule": ThompsonRule(), "batches": StayRule(1.69), "dictionary": RidgeLeverageSampling(2.0)},
]


@pytest.mark.usefixtures("short_searches")
@pytest.mark.one_in(8)
@pytest.mark.parametrize("contexts", [False, True], ids=["", "in contexts"])
@pytest.mark.parametrize("words", TOGETHER, ids=repr)
def test_rules_dictionaries_memories_and_batches_go_with_it(words, contexts):
    where = {"candidates": kb.Configurations(LIMITED, context_dim=2), "kernel": rbf(0.7)} if contexts else {}
    if contexts and isinstance(words.get("batches"), StayRule):
        with pytest.raises(kb.InputError, match="plays a point again"):
            put_together(**words, **where)
        return
    bandit = put_together(**words, **where)
    offered = {"context": torch.tensor([0.3, 0.5], dtype=DOUBLE)} if contexts else {}
    asked = play(bandit, 3, q=2, **offered)
    assert all(map(is_playable, [*asked, bandit.recommend(**offered)]))


@pytest.mark.one_in(6)
@pytest.mark.parametrize("rule", [UPPER, EI, PI], ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("memory", [None, TemporalPrior(0.05)])
def test_a_search_finds_more_than_thousands_of_points_drawn_at_random(rule, memory):
    bandit = put_together(rule, memory=memory)
    rows = LIMITED.decode(LIMITED.sample(12, torch.Generator().manual_seed(2)))
    bandit.tell(rows, [score(row) for row in rows])
    bandit.mark_pending(LIMITED.decode(LIMITED.sample(2, torch.Generator().manual_seed(7))))
    function, points = bandit.acquisition(), LIMITED.sample(3000, torch.Generator().manual_seed(1))
    with torch.no_grad():
        asked = LIMITED.encode(bandit.ask())
        reached = float(function(asked.unsqueeze(-2)))
        best = LIMITED.encode([bandit.recommend()])
        assert reached > float(function(torch.cat([points, best]).unsqueeze(-2)).max()) - 1e-9
        assert reached > float(function(LIMITED.neighbours(asked).unsqueeze(-2)).max()) - 1e-6


def test_the_first_points_cover_the_space_evenly_and_random_search_is_uniform_whatever_was_told():
    rows = make(space=SPACE).ask(32)
    assert rows == make(space=SPACE).ask(32) != make(space=SPACE, seed=4).ask(32)
    rates = torch.tensor([math.log10(row["rate"]) for row in rows])
    assert torch.histc(rates, 4, -4.0, 0.0).tolist() == [8.0] * 4
    assert sum(row["model"] == "svm" for row in rows) == 16
    bandit = make("random", SPACE)
    play(bandit, 3)
    rows = bandit.ask(400)
    assert 160 <= sum(row["model"] == "svm" for row in rows) <= 240  # four standard errors
    assert 95 <= sum(row["kind"] == "b" for row in rows) <= 172


def test_configurations_their_encodings_and_their_ids_are_the_same():
    one, other = (make("random", SPACE) for _ in range(2))
    rows, ids, *_ = one.ask(3, details=True)
    assert other.ask(3) == rows
    one.tell(rows, [1.0, 2.0, 3.0])
    other.tell(SPACE.encode(rows), [1.0, 2.0, 3.0])
    one.tell(rows[0], 4.0)
    other.tell([rows[0]], torch.tensor([4.0]))
    assert same(one.state_dict(), other.state_dict())
    rows, ids, *_ = one.ask(2, details=True)
    assert other.ask(2) == rows
    more = {"rate": 0.1, "depth": 3, "kind": "a", "model": "svm", "C": 1.0}
    (number,) = one.mark_pending(more)
    one.tell(ids=ids[1], y=0.5)
    assert one.candidates.actions(one.pending) == [rows[0], *SPACE.decode(SPACE.encode([more]))]
    one.forget(rows[0])
    assert one.pending_ids == (number,)


def test_what_makes_no_sense_is_refused(tmp_path):
    bandit, limited = make(), make("random", kb.ParameterSpace(PARAMETERS, LIMITS[:1]))
    before = bandit.state_dict()
    bandit.save(tmp_path / "limited")
    other = make("random", kb.ParameterSpace(PARAMETERS | {"depth": kb.Integer(1, 13)}, LIMITS[:1]))
    for call, words in (
        (lambda: bandit.tell({"rate": 0.1}, 1.0), "'depth' is missing"),
        (lambda: bandit.tell([], 1.0), "x must be a configuration"),
        *((lambda f=f: f(context=[1.0]), "no contexts") for f in (bandit.ask, bandit.recommend, bandit.acquisition)),
        (lambda: bandit.ask(candidates=torch.zeros(2, 10, dtype=DOUBLE)), "leave out candidates"),
        (lambda: kb.Configurations(kb.ParameterSpace({"x": kb.Categorical([1])})), "nothing to choose"),
        (lambda: make(context_dim=1, kernel=rbf(0.7)).ask(), "context is missing"),
        (lambda: kb.UnitCube(2, continuous=[2]), "coordinates from 0 to 1"),
        (lambda: other.load_state_dict(limited.state_dict()), r"parameters\.depth\.high: saved 12, here 13"),
        (lambda: kb.Bandit.load(tmp_path / "limited"), "into"),  # it has functions
    ):
        with pytest.raises((kb.InputError, kb.StateMismatchError), match=words):
            call()
    assert same(bandit.state_dict(), before)
    assert kb.Bandit.load(tmp_path / "limited", into=make()).num_observations == 0


# -------------------------------------------------------------------- a cube without names


def on_cube(cube):
    return kb.algorithms.GPUCB(candidates=cube, kernel=rbf(0.5), regularization=0.01, beta=1.5, seed=0)


@pytest.mark.usefixtures("short_searches")
def test_a_cube_with_functions_that_say_what_may_be_played_and_tried():
    tried = []

    def tenths(x):
        return torch.cat([(10.0 * x[:, :1]).round() / 10.0, x[:, 1:]], dim=-1)

    def flips(x):
        tried.append(x)
        return torch.cat([1.0 - x[:, :1], x[:, 1:]], dim=-1)

    bandit = on_cube(kb.UnitCube(3, snap=tenths, continuous=[1, 2]))
    for _ in range(6):
        X = bandit.ask(2)
        assert torch.equal(tenths(X), X)
        bandit.tell(X, -((X - 0.33) ** 2).sum(-1))
    assert difference(bandit.recommend()[0, 1:], torch.full((2,), 0.33)) < 0.2
    assert bandit.candidates.offers(X[:1])
    assert not bandit.candidates.offers(X[:1] + 0.01)
    on_cube(kb.UnitCube(2, snap=tenths, continuous=[1], neighbours=flips)).run(lambda x: x.sum(), 2)
    assert tried


def test_choices_with_an_order_are_the_whole_numbers_of_their_places():
    sizes = kb.Categorical(["s", "m", "l"], is_ordered=True)
    named = kb.ParameterSpace({"size": sizes, "x": kb.Float(0.0, 1.0, when={"size": ["m", "l"]})})
    numbered = kb.ParameterSpace({"size": kb.Integer(0, 2), "x": kb.Float(0.0, 1.0, when={"size": [1, 2]})})
    rows = [{"size": "s"}, {"size": "m", "x": 0.25}, {"size": "l", "x": 0.5}]
    points = named.encode(rows)
    assert torch.equal(points, numbered.encode([each | {"size": "sml".index(each["size"])} for each in rows]))
    assert named.decode(points) == rows
    assert torch.equal(named.neighbours(points[1:2]), numbered.neighbours(points[1:2]))
