"""Configurations become points of the unit cube and come back exactly, whatever the ranges."""

import math
from fractions import Fraction
from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import example, given
from problems import examples
from torch.quasirandom import SobolEngine

from torch_kbandits import Categorical, Float, InputError, Integer, ParameterSpace

DOUBLE = torch.float64
FINITE = st.floats(-1e300, 1e300, allow_nan=False)
POSITIVE = st.floats(1e-300, 1e300)


def ordered(ends):
    return st.tuples(ends, ends).map(sorted)


@st.composite
def floats(draw):
    if draw(st.booleans()):
        low, high = draw(ordered(POSITIVE))
        return Float(low, high, log=True)
    low, high = draw(ordered(FINITE))
    return Float(low, high)


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
PARAMETERS = st.one_of(floats(), stepped(), integers(), CATEGORIES)
SPACES = st.lists(PARAMETERS, min_size=1, max_size=4).map(
    lambda kinds: ParameterSpace({f"p{place}": kind for place, kind in enumerate(kinds)})
)
SEEDS = st.integers(0, 2**31)

TINY = [
    ParameterSpace({"x": Float(1.0, math.nextafter(1.0, 2.0))}),
    ParameterSpace({"x": Float(0.0, 5e-324)}),
    ParameterSpace({"x": Float(-1e-310, 1e-310)}),
    ParameterSpace({"x": Float(1.0, math.nextafter(1.0, 2.0), log=True)}),
    ParameterSpace({"x": Float(1e6, 1e6 + 1e-6, log=True), "y": Float(-1e6, -1e6 + 1e-8)}),
    ParameterSpace({"x": Float(2.3e-308, 1.7e308, log=True), "y": Float(-8e307, 8e307)}),
    ParameterSpace({"x": Integer(2**40 - 3, 2**40, log=True), "y": Integer(0, 2**50 - 1)}),
    ParameterSpace({"x": Categorical([1, True, 1.0, math.nan, None])}),
]


def cube_points(space, seed, n=40):
    """Points of the cube, its corners among them, and some outside."""
    generator = torch.Generator().manual_seed(seed)
    inside = torch.rand(n, space.dimension, generator=generator, dtype=DOUBLE)
    corners = torch.randint(2, (8, space.dimension), generator=generator).double()
    return torch.cat([inside, corners, 3.0 * inside[:8] - 1.0])


def same(one, other):
    """Equal values of equal type; NaN is itself."""
    return type(one) is type(other) and (one == other or (one != one and other != other))


def on(space):
    """The parameter's own test that a value may be taken."""

    def test(configuration):
        for name, kind in space.parameters.items():
            value = configuration[name]
            if isinstance(kind, Categorical):
                assert any(same(value, choice) for choice in kind.choices)
            else:
                assert kind.low <= value <= kind.high
                assert type(value) is (int if isinstance(kind, Integer) else float)
                if isinstance(kind, Integer):
                    assert (value - kind.low) % kind.step == 0
        return True

    return test


@given(SPACES, SEEDS)
@examples(60)
def test_encodings_come_back_exactly(space, seed):
    points = cube_points(space, seed)
    snapped = space.snap(points)
    decoded = space.decode(points)
    assert snapped.shape == points.shape
    assert bool(((snapped >= 0.0) & (snapped <= 1.0)).all())
    assert torch.equal(space.snap(snapped), snapped)
    assert torch.equal(space.encode(decoded), snapped)
    assert torch.equal(space.encode(space.decode(snapped)), snapped)
    again = space.decode(space.encode(decoded))
    for one, other in zip(decoded, again, strict=True):
        assert all(same(one[name], other[name]) for name in space.parameters)
    assert all(map(on(space), decoded))


@pytest.mark.parametrize("number", range(len(TINY)))
def test_spaces_at_the_limits_of_double_precision(number):
    test_encodings_come_back_exactly.hypothesis.inner_test(TINY[number], 0)


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


@given(floats())
def test_the_ends_of_a_range_are_exact(parameter):
    space = ParameterSpace({"x": parameter})
    ends = [{"x": parameter.low}, {"x": parameter.high}]
    assert space.decode(space.encode(ends)) == ends


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
    space = ParameterSpace(
        {
            "rate": Float(1e-4, 1.0, log=True),
            "share": Float(0.0, 2.0),
            "layers": Integer(1, 4),
            "kind": Categorical(["a", "b", "c"]),
            "bias": Categorical([False, True]),
            "fixed": Integer(7, 7),
        }
    )
    root = math.sqrt(0.5)
    points = space.encode(
        [
            {"rate": 1e-2, "share": 0.5, "layers": 1, "kind": "b", "bias": True, "fixed": 7, "other": None},
            {"rate": 1.0, "share": 2.0, "layers": 4, "kind": "a", "bias": False, "fixed": 7},
        ]
    )
    expected = [[0.5, 0.25, 0.125, 0.0, root, 0.0, 1.0], [1.0, 1.0, 0.875, root, 0.0, 0.0, 0.0]]
    torch.testing.assert_close(points, torch.tensor(expected, dtype=DOUBLE), rtol=0.0, atol=2.0**-41)


def test_logarithmic_integers_are_where_their_cells_are():
    space = ParameterSpace({"n": Integer(1, 1000, log=True)})
    edges = [math.log(value - 0.5) for value in range(1, 1002)]
    centres = [(0.5 * (a + b) - edges[0]) / (edges[-1] - edges[0]) for a, b in pairwise(edges)]
    encoded = space.encode([{"n": value} for value in range(1, 1001)])
    np.testing.assert_allclose(encoded.flatten().numpy(), centres, atol=1e-14)


@given(CATEGORIES.filter(lambda parameter: len(parameter.choices) > 1))
def test_any_two_choices_are_at_distance_one(parameter):
    points = ParameterSpace({"c": parameter}).encode([{"c": choice} for choice in parameter.choices])
    distances = torch.cdist(points, points) + torch.eye(len(points), dtype=DOUBLE)
    torch.testing.assert_close(distances, torch.ones_like(distances))


def test_choices_are_told_apart_by_type_and_nan_is_itself():
    space = ParameterSpace({"c": Categorical([1, True, 1.0, float("nan"), None, [1, 2], np.array([1, 2])])})
    for place, choice in enumerate(space.parameters["c"].choices):
        assert int(space.encode([{"c": choice}]).argmax()) == place
    assert int(space.encode([{"c": np.float64("nan")}]).argmax()) == 3
    assert int(space.encode([{"c": np.int64(1)}]).argmax()) == 0


def test_snap_keeps_leading_dimensions():
    space = ParameterSpace({"x": Float(0.0, 1.0), "n": Integer(0, 2), "c": Categorical(["a", "b", "c"])})
    points = torch.rand(4, 3, space.dimension, dtype=DOUBLE)
    assert torch.equal(space.snap(points).reshape(12, -1), space.snap(points.reshape(12, -1)))


@examples(20)
@given(space=SPACES, seed=SEEDS)
def test_neighbours_are_configurations_that_differ_in_one_parameter(space, seed):
    generator = torch.Generator().manual_seed(seed)
    points = space.sample(2, generator)
    near = space.neighbours(points)
    assert near.shape[1] == space.dimension
    assert torch.equal(space.snap(near), near)
    origins = space.decode(points)
    for configuration in space.decode(near):
        assert any(
            sum(repr(configuration[name]) != repr(origin[name]) for name in space.parameters) == 1 for origin in origins
        )


def test_neighbours_by_hand():
    space = ParameterSpace(
        {
            "x": Float(0.0, 1.0),
            "c": Categorical(["red", "green", "blue"]),
            "one": Categorical([7]),
            "flag": Categorical([False, True]),
            "step": Float(0.0, 0.3, step=0.1),
            "n": Integer(0, 99),
            "log": Integer(1, 1000, log=True),
        }
    )
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


def test_coordinates_know_their_parameters_and_whether_they_are_continuous():
    kinds = [Float(0.0, 1.0), Categorical([1, 2, 3]), Categorical([1]), Integer(0, 9), Categorical([1, 2])]
    kinds += [Float(0.0, 1.0, step=0.5), Float(1.0, 2.0, log=True), Float(2.0, 2.0)]
    space = ParameterSpace(dict(zip("abcdefgh", kinds, strict=True)))
    assert space.groups == [0, 1, 1, 1, 2, 3, 4, 5]
    assert space.continuous == [0, 7]


def test_parameters_of_a_single_value_take_no_coordinate():
    space = ParameterSpace({"a": Float(2.0, 2.0), "b": Integer(3, 4, step=5), "c": Categorical(["only"])})
    assert space.dimension == 0
    assert space.decode(torch.zeros(2, 0, dtype=DOUBLE)) == [{"a": 2.0, "b": 3, "c": "only"}] * 2
    assert space.encode([{"a": 2.0, "b": 3, "c": "only"}]).shape == (1, 0)
    assert space.sample(5, torch.Generator()).shape == (5, 0)


def test_samples_are_uniform_on_the_scale_of_each_parameter():
    """Scrambled Sobol points: 1,024 put the same number into every cell of a power of two, but for one of rounding."""
    space = ParameterSpace(
        {
            "rate": Float(1e-4, 1.0, log=True),
            "n": Integer(0, 7),
            "c": Categorical(["a", "b", "c", "d"]),
            "bias": Categorical([False, True]),
            "power": Integer(1, 255, log=True),
        }
    )
    drawn = space.decode(space.sample(1024, torch.Generator().manual_seed(0)))
    rates = np.log10([row["rate"] for row in drawn])
    assert np.abs(np.histogram(rates, 8, (-4.0, 0.0))[0] - 128).max() <= 1
    assert np.bincount([row["n"] for row in drawn]).tolist() == [128] * 8
    assert sorted(sum(row["c"] == choice for row in drawn) for choice in "abcd") == [256] * 4
    assert sum(row["bias"] for row in drawn) == 512
    # The cell of 1 among those of 1 … 255, in the logarithm.
    share = math.log(3.0) / math.log(511.0)
    assert abs(sum(row["power"] == 1 for row in drawn) - 1024 * share) <= 2


def test_samples_are_those_of_the_generator():
    space = ParameterSpace({"x": Float(0.0, 1.0), "c": Categorical(["a", "b", "c"])})
    one, other, third = (space.sample(9, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert torch.equal(one, other)
    assert not torch.equal(one, third)
    assert torch.equal(space.snap(one), one)


def test_a_sequence_of_samples_can_be_drawn_bit_by_bit():
    space = ParameterSpace({"x": Float(0.0, 1.0), "c": Categorical(["a", "b", "c"])})
    whole = space.sample(8, torch.Generator().manual_seed(0))
    assert torch.equal(space.sample(5, torch.Generator().manual_seed(0), first=3), whole[3:])


def test_samples_of_very_many_parameters(monkeypatch):
    """Of more than a Sobol sequence has, which are 21,201."""
    monkeypatch.setattr(SobolEngine, "MAXDIM", 1_999)
    space = ParameterSpace(dict.fromkeys(map(str, range(2_000)), Categorical([0, 1])))
    points = space.sample(2, torch.Generator().manual_seed(0))
    assert abs(float(points.mean()) - 0.5) < 0.05  # six standard errors


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Float(1.0, 0.0), "low <= high"),
        (lambda: Float(0.0, math.inf), "high must be a finite number"),
        (lambda: Float(-1.7e308, 1.7e308), "infinitely far apart"),
        (lambda: Float(0.0, 1.0, log=True), "low must be at least"),
        (lambda: Float(5e-324, 1.0, log=True), "low must be at least"),
        (lambda: Float(1.0, 2.0, log=True, step=0.1), "not both"),
        (lambda: Float(1.0, 2.0, step=0.0), "step must be a finite number above 0"),
        (lambda: Float(1e17, 2e17, step=1.0), "too small"),
        (lambda: Float(0.0, 1.0, step=1e-16), "too small"),
        (lambda: Integer(2, 1), "low <= high"),
        (lambda: Integer(0.5, 1), "whole number"),  # pyright: ignore
        (lambda: Integer(True, 3), "whole number"),
        (lambda: Integer(0, 3, step=0), "step must be a whole number"),
        (lambda: Integer(0, 3, log=True), "from 1 or above"),
        (lambda: Integer(1, 3, log=True, step=2), "step 1"),
        (lambda: Integer(1, 2**41, log=True), "at most 2^40"),
        (lambda: Integer(0, 2**50), "at most 2^50"),
        (lambda: Categorical([]), "at least one entry"),
        (lambda: Categorical("abc"), "a list"),
        (lambda: ParameterSpace({}), "at least one entry"),
        (lambda: ParameterSpace({"x": 1.0}), "'x' is 1.0"),  # pyright: ignore
        (lambda: ParameterSpace([Float(0.0, 1.0)]), "a mapping"),  # pyright: ignore
    ],
    ids=range(22),
)
def test_what_makes_no_sense_is_refused(make, words):
    with pytest.raises(InputError, match=words.replace("^", r"\^")):
        make()


@pytest.mark.parametrize(
    ("parameter", "value", "words"),
    [
        (Float(0.0, 1.0), 1.5, "from 0.0 to 1.0"),
        (Float(0.0, 1.0), math.nan, "from 0.0 to 1.0"),
        (Float(0.0, 1.0), "0.5", "from 0.0 to 1.0"),
        (Float(0.0, 1.0), True, "from 0.0 to 1.0"),
        (Float(0.0, 1.0, step=0.25), 0.3, "a multiple of 0.25"),
        (Integer(0, 10, step=2), 3, "in steps of 2"),
        (Integer(0, 10), 11, "from 0 to 10"),
        (Integer(0, 10), 1.0, "whole number"),
        (Categorical(["a", "b"]), "c", "one of"),
        (Float(1.0, 1.0), 2.0, "from 1.0 to 1.0"),
        (Categorical(["a"]), "b", "one of"),
    ],
    ids=range(11),
)
def test_values_that_a_parameter_cannot_take_are_refused_by_its_name(parameter, value, words):
    space = ParameterSpace({"width": parameter})
    with pytest.raises(InputError, match=f"'width'.*{words}"):
        space.encode([{"width": value}])


def test_a_missing_value_is_named():
    with pytest.raises(InputError, match="'b' is missing in configuration 1"):
        ParameterSpace({"a": Integer(0, 1), "b": Integer(0, 1)}).encode([{"a": 0, "b": 0}, {"a": 1}])
