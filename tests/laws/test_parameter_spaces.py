"""Configurations become points of the unit cube and come back exactly, whatever the ranges."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import example, given
from problems import examples

from torch_kbandits import Categorical, Float, InputError, Integer, LinearConstraint, ParameterSpace

DOUBLE = torch.float64
FINITE = st.floats(-1e300, 1e300, allow_nan=False)
POSITIVE = st.floats(1e-300, 1e300)


def ordered(ends):
    return st.tuples(ends, ends).map(sorted)


@st.composite
def floats(draw):
    is_log = draw(st.booleans())
    return Float(*draw(ordered(POSITIVE if is_log else FINITE)), log=is_log)


@st.composite
def stepped(draw):
    """Decimal steps, as people write them."""
    scale = 10.0 ** draw(st.integers(-8, 3))
    low, step = draw(st.integers(-1000, 1000)) * scale, draw(st.integers(1, 50)) * scale
    return Float(low, low + draw(st.floats(0.0, 1000.0)) * step, step=step)


@st.composite
def integers(draw):
    if draw(st.booleans()):
        low, high = draw(ordered(st.integers(1, 2**40)))
        return Integer(low, high, log=True)
    low = draw(st.integers(-(10**30), 10**30))
    return Integer(low, low + draw(st.integers(0, 2**50 - 1)), step=draw(st.integers(1, 10**6)))


CHOICES = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.floats(), st.text(max_size=2), st.just([1, 2]))
CATEGORIES = st.lists(CHOICES, min_size=1, max_size=5, unique_by=repr).map(Categorical)
SEEDS = st.integers(0, 2**31)


def cube_points(space, seed, n=40):
    """Points of the cube, its corners among them, and some outside."""
    generator = torch.Generator().manual_seed(seed)
    inside = torch.rand(n, space.dimension, generator=generator, dtype=DOUBLE)
    corners = torch.randint(2, (8, space.dimension), generator=generator).double()
    return torch.cat([inside, corners, 3.0 * inside[:8] - 1.0])


def same(one, other):
    """Equal values of equal type; NaN is itself."""
    return type(one) is type(other) and (one == other or (one != one and other != other))


@given(floats(), SEEDS)
@examples(60)
def test_any_number_of_a_range_moves_by_less_than_a_step_of_the_grid(parameter, seed):
    space = ParameterSpace({"x": parameter})
    generator = torch.Generator().manual_seed(seed)
    start, stop = map(math.log if parameter.log else float, (parameter.low, parameter.high))
    for place in torch.rand(10, generator=generator, dtype=DOUBLE).tolist():
        value = start * (1.0 - place) + stop * place
        value = min(max(math.exp(value) if parameter.log else value, parameter.low), parameter.high)
        (moved,) = space.decode(space.encode([{"x": value}]))
        error = abs(math.log(moved["x"] / value)) if parameter.log else abs(moved["x"] - value)
        spacing = max(
            2.0**-41, 64.0 * math.ulp(max(abs(start), abs(stop), 1.0 * parameter.log)) / (stop - start or 1.0)
        )
        assert error <= 1.001 * spacing * (stop - start)


@given(stepped())
@example(Float(0.1, 1.0, step=0.1))
def test_steps_are_the_decimal_fractions_that_people_write(parameter):
    space = ParameterSpace({"x": parameter})
    count = round((parameter.high - parameter.low) / parameter.step) + 1
    centres = (torch.arange(count).double().unsqueeze(-1) + 0.5) / count
    values = {row["x"] for row in space.decode(centres)} if space.dimension else {parameter.low}
    exact = [Fraction(repr(parameter.low)) + k * Fraction(repr(parameter.step)) for k in range(count)]
    assert values == {float(value) for value in exact}


def test_encodings_by_hand():
    kinds = {"rate": Float(1e-4, 1.0, log=True), "share": Float(0.0, 2.0), "layers": Integer(1, 4)}
    kinds |= {"kind": Categorical(["a", "b", "c"]), "bias": Categorical([False, True]), "fixed": Integer(7, 7)}
    space, root = ParameterSpace(kinds), math.sqrt(0.5)
    points = space.encode(
        [
            {"rate": 1e-2, "share": 0.5, "layers": 1, "kind": "b", "bias": True, "fixed": 7, "other": None},
            {"rate": 1.0, "share": 2.0, "layers": 4, "kind": "a", "bias": False, "fixed": 7},
        ]
    )
    expected = [[0.5, 0.25, 0.125, 0.0, root, 0.0, 1.0], [1.0, 1.0, 0.875, root, 0.0, 0.0, 0.0]]
    torch.testing.assert_close(points, torch.tensor(expected, dtype=DOUBLE), rtol=0.0, atol=2.0**-41)
    assert (space.groups, space.continuous) == ([0, 1, 2, 3, 3, 3, 4], [0, 1])
    edges = [math.log(value - 0.5) for value in range(1, 1002)]  # logarithmic integers are where their cells are
    centres = [(0.5 * (a + b) - edges[0]) / (edges[-1] - edges[0]) for a, b in pairwise(edges)]
    encoded = ParameterSpace({"n": Integer(1, 1000, log=True)}).encode([{"n": value} for value in range(1, 1001)])
    np.testing.assert_allclose(encoded.flatten().numpy(), centres, atol=1e-14)


@given(CATEGORIES.filter(lambda parameter: len(parameter.choices) > 1))
def test_any_two_choices_are_at_distance_one(parameter):
    points = ParameterSpace({"c": parameter}).encode([{"c": choice} for choice in parameter.choices])
    distances = torch.cdist(points, points) + torch.eye(len(points), dtype=DOUBLE)
    torch.testing.assert_close(distances, torch.ones_like(distances))


def test_neighbours_by_hand():
    kinds = {"x": Float(0.0, 1.0), "c": Categorical(["red", "green", "blue"]), "one": Categorical([7])}
    kinds |= {"flag": Categorical([False, True]), "step": Float(0.0, 0.3, step=0.1), "n": Integer(0, 99)}
    space = ParameterSpace(kinds | {"log": Integer(1, 1000, log=True)})
    start = {"x": 0.25, "c": "green", "one": 7, "flag": True, "step": 0.1, "n": 3, "log": 999}
    near = space.decode(space.neighbours(space.encode([start])))
    expected = {
        "c": ["red", "blue"],
        "flag": [False],
        "step": [0.0, 0.2, 0.3],
        "n": [2, 4, 1, 5, 7, 11, 19, 35, 67],
        "log": [998, 1000, 997, 995, 991, 983, 967, 935, 871, 743, 487],
    }
    assert near == [start | {name: value} for name, values in expected.items() for value in values]


def test_parameters_of_a_single_value_take_no_coordinate():
    space = ParameterSpace({"a": Float(2.0, 2.0), "b": Integer(3, 4, step=5), "c": Categorical(["only"])})
    assert space.decode(torch.zeros(2, 0, dtype=DOUBLE)) == [{"a": 2.0, "b": 3, "c": "only"}] * 2
    assert space.encode([{"a": 2.0, "b": 3, "c": "only"}]).shape == (1, 0)
    assert space.sample(5, torch.Generator()).shape == (5, space.dimension)


def test_samples_are_uniform_on_the_scale_of_each_parameter():
    """Scrambled Sobol points: 1,024 put the same number into every cell of a power of two, but for one of rounding."""
    kinds = {"rate": Float(1e-4, 1.0, log=True), "n": Integer(0, 7), "power": Integer(1, 255, log=True)}
    space = ParameterSpace(kinds | {"c": Categorical(["a", "b", "c", "d"]), "bias": Categorical([False, True])})
    drawn = space.decode(space.sample(1024, torch.Generator().manual_seed(0)))
    rates = np.log10([row["rate"] for row in drawn])
    assert np.abs(np.histogram(rates, 8, (-4.0, 0.0))[0] - 128).max() <= 1
    assert np.bincount([row["n"] for row in drawn]).tolist() == [128] * 8
    assert sorted(sum(row["c"] == choice for row in drawn) for choice in "abcd") == [256] * 4
    assert sum(row["bias"] for row in drawn) == 512
    # The cell of 1 among those of 1 … 255, in the logarithm.
    share = math.log(3.0) / math.log(511.0)
    assert abs(sum(row["power"] == 1 for row in drawn) - 1024 * share) <= 2


SMALL = st.one_of(
    CATEGORIES,
    st.integers(2, 6).map(lambda high: Integer(1, high)),
    st.integers(2, 6).map(lambda high: Integer(1, high, log=True)),
    st.just(Float(0.0, 0.3, step=0.1)),
)
NUMBERS = st.sampled_from([Float(0.0, 1.0), Float(-3.0, 9.0), Float(1e-3, 1e3, log=True), Integer(0, 2**40)])


@st.composite
def trees(draw):
    """Spaces whose parameters depend on others before them, several levels deep."""
    parameters, finite = {}, {}
    for place in range(draw(st.integers(2, 6))):
        is_wide, when = draw(st.booleans()), {}
        kind = draw(st.one_of(floats(), stepped(), integers()) if is_wide else st.one_of(SMALL, NUMBERS))
        known = [] if is_wide else sorted(finite)
        for name in draw(st.lists(st.sampled_from(known), max_size=2, unique=True)) if known else ():
            several = draw(st.lists(st.sampled_from(range(len(finite[name]))), min_size=1, max_size=3, unique=True))
            when[name] = [finite[name][number] for number in several]
        kind = replace(kind, when=when)
        parameters[f"p{place}"] = kind
        if isinstance(kind, Categorical):
            finite[f"p{place}"] = list(kind.choices)
        elif isinstance(kind, Integer) and kind.high < 10 and not is_wide:
            finite[f"p{place}"] = list(range(kind.low, kind.high + 1))
        elif isinstance(kind, Float) and kind.step and not is_wide:
            finite[f"p{place}"] = [0.0, 0.1, 0.2, 0.3]
    return ParameterSpace(parameters)


def is_there(space, configuration, name):
    """By the words of the conditions alone."""
    return all(
        is_there(space, configuration, other) and any(same(configuration[other], value) for value in values)
        for other, values in space.parameters[name].when
    )


def has_what_is_there(space, configuration):
    """And it may be encoded."""
    space.encode([configuration])
    return all((name in configuration) == is_there(space, configuration, name) for name in space.parameters)


TINY = [
    ParameterSpace({"x": Float(1.0, math.nextafter(1.0, 2.0)), "y": Float(0.0, 5e-324)}),
    ParameterSpace({"x": Float(1.0, math.nextafter(1.0, 2.0), log=True), "y": Float(-1e-310, 1e-310)}),
    ParameterSpace({"x": Float(1e6, 1e6 + 1e-6, log=True), "y": Float(-1e6, -1e6 + 1e-8)}),
    ParameterSpace({"x": Float(2.3e-308, 1.7e308, log=True), "y": Float(-8e307, 8e307)}),
    ParameterSpace({"x": Integer(2**40 - 3, 2**40, log=True), "y": Integer(0, 2**50 - 1)}),
    ParameterSpace({"x": Categorical([1, True, 1.0, math.nan, None, [1, 2]])}),
]


@pytest.mark.parametrize("space", TINY)
def test_spaces_at_the_limits_of_double_precision(space):
    test_configurations_come_back_and_have_just_what_is_there.hypothesis.inner_test(space, 0)


@given(trees(), SEEDS)
@examples(60)
def test_configurations_come_back_and_have_just_what_is_there(space, seed):
    points = cube_points(space, seed)
    snapped, decoded = space.snap(points), space.decode(points)
    assert snapped.shape == (len(points), space.dimension)
    assert bool(((snapped >= 0.0) & (snapped <= 1.0)).all())
    assert torch.equal(space.snap(snapped), snapped)
    assert torch.equal(space.encode(decoded), snapped)
    assert all(has_what_is_there(space, configuration) for configuration in decoded)
    everything = {name: object() for name in space.parameters}  # of which what is not there is left out
    assert torch.equal(space.encode([everything | configuration for configuration in decoded]), snapped)
    alone = torch.cat([space.snap(point) for point in points.split(1)])
    assert torch.equal(alone, snapped)  # whatever else is in a tensor
    again = space.decode(snapped)
    for one, other in zip(decoded, again, strict=True):
        assert one.keys() == other.keys()
        assert all(same(one[name], other[name]) for name in one)


@given(trees(), SEEDS)
@examples(40)
def test_neighbours_differ_in_one_parameter_and_in_what_that_brings_or_takes_and_lead_to_each_branch(space, seed):
    point = space.sample(1, torch.Generator().manual_seed(seed))
    near, (origin,) = space.neighbours(point), space.decode(point)
    found = space.decode(near)
    assert torch.equal(space.snap(near), near)
    for configuration in found:
        assert has_what_is_there(space, configuration)
        both = origin.keys() & configuration.keys()
        assert sum(not same(origin[name], configuration[name]) for name in both) == 1
    for name, kind in space.parameters.items():
        if name in origin and isinstance(kind, Categorical):
            taken = [other[name] for other in found if name in other]
            assert all(same(c, origin[name]) or any(same(c, value) for value in taken) for c in kind.choices)


@given(trees(), SEEDS)
@examples(20)
def test_exchanges_of_several_points_are_the_neighbours_of_each(space, seed):
    points = space.sample(3, torch.Generator().manual_seed(seed))
    near, owners = space.exchanges(points, torch.Generator())
    for number, point in enumerate(points.split(1)):
        assert torch.equal(near[owners == number], space.neighbours(point))


MODELS = ParameterSpace(
    {
        "model": Categorical(["svm", "forest", "trees"]),
        "scale": Float(0.0, 1.0),
        "C": Float(1e-3, 1e3, log=True, when={"model": "svm"}),
        "kernel": Categorical(["rbf", "poly", "linear"], when={"model": "svm"}),
        "degree": Integer(2, 5, when={"kernel": "poly"}),
        "depth": Integer(1, 12, when={"model": ["forest", "trees"]}),
        "bootstrap": Categorical([False, True], when={"model": ["forest", "trees"]}),
    }
)


MODEL = {"model": "svm", "scale": 0.5, "C": 1.0, "kernel": "poly", "degree": 3}


def test_configurations_by_hand():
    far = {"model": "trees", "scale": 0.25, "depth": 12, "bootstrap": True}
    rows = [MODEL, {"model": "svm", "scale": 0.5, "C": 1000.0, "kernel": "rbf"}, far]
    points = MODELS.encode(rows)
    assert MODELS.decode(points) == rows
    assert MODELS.groups == [0, 0, 0, 1, 2, 2, 3, 3, 3, 4, 4, 5, 5, 6, 6]
    root = math.sqrt(0.5)
    half = [root * math.cos(math.pi / 4), root * math.sin(math.pi / 4)]
    for found, expected in (
        (points[0, :6], [root, 0.0, 0.0, 0.5, *half]),
        (points[1, 4:11], [0.0, root, root, 0, 0, 0, 0]),
        (points[2, 4:11], [0.0] * 7),
        (points[2, 13:], [0.0, root]),
    ):
        torch.testing.assert_close(found, torch.tensor(expected, dtype=DOUBLE))
    branches = [row["model"] for row in MODELS.decode(MODELS.neighbours(points[:1])) if row["model"] != "svm"]
    assert branches == ["forest"] * 8 + ["trees"] * 8


def test_a_point_without_a_parameter_is_as_far_from_all_that_have_it():
    """So a kernel of distances knows that it is missing, and nothing of its value."""
    points, numbers = MODELS.sample(200, torch.Generator().manual_seed(0)), torch.tensor(MODELS.groups)
    for name in ("C", "kernel", "depth", "bootstrap"):
        columns = points[:, numbers == [*MODELS.parameters].index(name)]
        there = torch.tensor([name in row for row in MODELS.decode(points)])
        distances = torch.cdist(columns[there], columns[~there])
        torch.testing.assert_close(distances, torch.full_like(distances, math.sqrt(0.5)))


@given(trees(), SEEDS)
@examples(30)
def test_places_on_arcs_come_back_and_have_gradients(space, seed):
    points = space.sample(8, torch.Generator().manual_seed(seed))
    flat = space.unrolled(points)
    torch.testing.assert_close(space.rolled(flat), points, rtol=0.0, atol=1e-14)
    assert torch.equal(space.snap(space.rolled(flat)), points)
    moved = flat.clone()
    moved[:, space.continuous] = 0.75
    reached = space.rolled(moved)
    torch.testing.assert_close(space.snap(reached), reached, rtol=0.0, atol=1e-11)  # no way off an arc
    variable = flat.clone().requires_grad_()
    direction = torch.linspace(1.0, 2.0, space.dimension, dtype=DOUBLE)
    (space.rolled(variable) * direction).sum().backward()
    for column in space.continuous:
        step = torch.zeros_like(flat)
        step[:, column] = 1e-6
        up, down = ((space.rolled(flat + s) * direction).sum(-1) for s in (step, -step))
        inside = (flat[:, column] > 1e-3) & (flat[:, column] < 1.0 - 1e-3)
        difference = (up - down) / 2e-6
        torch.testing.assert_close(variable.grad[inside, column], difference[inside], rtol=1e-5, atol=1e-7)


LIMITED = ParameterSpace(
    {"p0": Float(0.0, 1.0), "p1": Float(0.0, 1.0), "n": Integer(1, 9), "c": Categorical(["a", "b", "c"])},
    [LinearConstraint({"p0": 1.0, "p1": 1.0}, 0.8), lambda row: row["c"] != "b" or row["n"] > 4],
)


def satisfies(configuration):
    return configuration["p0"] + configuration["p1"] <= 0.8 + 1e-9 and (
        configuration["c"] != "b" or configuration["n"] > 4
    )


@given(SEEDS)
@examples(10)
def test_whatever_a_search_looks_at_satisfies_the_constraints(seed):
    generator = torch.Generator().manual_seed(seed)
    point = LIMITED.sample(1, generator)
    initial_points = [
        LIMITED.sample(100, generator),
        LIMITED.near(point, (0.1, 0.03), 20, generator),
        LIMITED.neighbours(point),
        LIMITED.exchanges(point, generator)[0],
        LIMITED.playable(torch.rand(50, LIMITED.dimension, generator=generator, dtype=DOUBLE)),
    ]
    for points in initial_points:
        assert len(points) > 0
        assert all(map(satisfies, LIMITED.decode(points)))
        assert bool(LIMITED.allows(points).all())


def test_what_is_allowed_is_what_the_constraints_say():
    points = torch.rand(200, LIMITED.dimension, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    expected = [satisfies(row) for row in LIMITED.decode(points)]
    assert 20 < sum(expected) < 180
    assert LIMITED.allows(points).tolist() == expected
    assert torch.equal(LIMITED.playable(points), LIMITED.snap(points)[torch.tensor(expected)])
    limit = LinearConstraint({"a": 1.0, "b": 2.0}, 0.3)  # what is not there counts as nothing
    assert limit({"a": 0.3})
    assert not limit({"a": 0.3, "b": 0.1})
    assert LinearConstraint({"a": 1.0, "b": 1.0}, 0.3)({"a": 0.1, "b": 0.2})  # of which the floats are more than 0.3


def test_what_is_held_stays_and_encodings_are_those_of_the_whole_space():
    held = replace(LIMITED, held={"p0": 0.5, "c": "b"})
    points = held.sample(50, torch.Generator().manual_seed(0))
    rows = held.decode(torch.cat([points, held.neighbours(points[:1]), held.snap(torch.rand(9, 6, dtype=DOUBLE))]))
    assert {(row["p0"], row["c"]) for row in rows} == {(0.5, "b")}
    assert torch.equal(LIMITED.encode(rows), held.encode(rows))
    assert held.continuous == [1]
    assert max(row["p1"] for row in rows[:50]) <= 0.3 + 1e-9
    other = {"p0": 0.1, "p1": 0.2, "n": 3, "c": "a"}
    assert torch.equal(held.encode([other]), LIMITED.encode([other]))


WITHOUT_SENSE = [
    (lambda: Float(1.0, 0.0), "low <= high"),
    (lambda: Float(-1.7e308, 1.7e308), "infinitely far apart"),
    (lambda: Float(5e-324, 1.0, log=True), "low must be at least"),
    (lambda: Float(0.0, 1.0, step=1e-16), "too small"),
    (lambda: Integer(1, 3, log=True, step=2), "step 1"),
    (lambda: Integer(0, 2**50), "at most 2^50"),
    (lambda: Categorical("abc"), "a list"),
    (lambda: ParameterSpace({"x": 1.0}), "'x' is 1.0"),  # pyright: ignore
    (lambda: ParameterSpace({"x": Float(0, 1, when={"y": 1})}), "comes before it"),
    (lambda: ParameterSpace({"x": Integer(0, 1), "y": Float(0, 1, when={"x": 3})}), "'x' must be a whole number"),
    (lambda: Float(0, 1, when="x"), "when must be a mapping of names to values"),  # pyright: ignore
    (lambda: ParameterSpace({"x": Float(0, 1)}, print), "constraints must be a list"),  # pyright: ignore
    (lambda: ParameterSpace({"x": Float(0, 1)}, [LinearConstraint({"y": 1}, 1)]), "no Float or Integer"),
    (lambda: LinearConstraint({"x": math.inf}, 1.0), "the weight of 'x'"),
    (lambda: MODELS.encode([{"model": "svm", "scale": 0.5, "kernel": "rbf"}]), "'C' is missing"),
    (lambda: MODELS.encode([MODEL, {"model": "svm"}]), "'scale' is missing in configuration 1"),
    *(
        (lambda kind=kind, value=value: ParameterSpace({"width": kind}).encode([{"width": value}]), f"'width'.*{words}")
        for kind, value, words in [
            (Float(0.0, 1.0), 1.5, "from 0.0 to 1.0"),
            (Float(0.0, 1.0), "0.5", "from 0.0 to 1.0"),
            (Float(0.0, 1.0, step=0.25), 0.3, "a multiple of 0.25"),
            (Integer(0, 10), 11, "from 0 to 10"),
            (Categorical(["a", "b"]), "c", "one of"),
            (Categorical(["a"]), "b", "one of"),
        ]
    ),
]


@pytest.mark.parametrize(("make", "words"), WITHOUT_SENSE)
def test_what_makes_no_sense_is_refused(make, words):
    with pytest.raises(InputError, match=words.replace("^", r"\^")):
        make()
