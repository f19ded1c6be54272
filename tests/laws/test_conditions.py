"""Parameters that are not always there, and configurations that are not allowed: what comes back, and what is near."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import assume, given
from problems import examples
from test_parameter_spaces import CATEGORIES, SEEDS, cube_points, same

from torch_kbandits import Categorical, Float, InputError, Integer, LinearConstraint, ParameterSpace
from torch_kbandits.kernels import GroupedKernel
from torch_kbandits.priors import default_kernel
from torch_kbandits.spaces.arcs import RADIUS, rolled, unrolled

DOUBLE = torch.float64
SMALL = st.one_of(
    CATEGORIES,
    st.integers(2, 6).map(lambda high: Integer(1, high)),
    st.integers(2, 6).map(lambda high: Integer(1, high, log=True)),
    st.just(Float(0.0, 0.3, step=0.1)),
)
NUMBERS = st.sampled_from([Float(0.0, 1.0), Float(-3.0, 9.0), Float(1e-3, 1e3, log=True), Integer(0, 2**40)])


def with_conditions(kind, when):
    words = {key: value for key, value in vars(kind).items() if key != "when"}
    return type(kind)(**words, when=when)


@st.composite
def trees(draw):
    """Spaces whose parameters depend on others before them, several levels deep."""
    parameters, finite = {}, {}
    for place in range(draw(st.integers(2, 6))):
        kind = draw(st.one_of(SMALL, NUMBERS))
        when = {}
        for name in draw(st.lists(st.sampled_from(sorted(finite)), max_size=2, unique=True)) if finite else ():
            several = draw(st.lists(st.sampled_from(range(len(finite[name]))), min_size=1, max_size=3, unique=True))
            when[name] = [finite[name][number] for number in several]
        kind = with_conditions(kind, when)
        parameters[f"p{place}"] = kind
        if isinstance(kind, Categorical):
            finite[f"p{place}"] = list(kind.choices)
        elif isinstance(kind, Integer) and kind.high < 10:
            finite[f"p{place}"] = list(range(kind.low, kind.high + 1))
        elif isinstance(kind, Float) and kind.step:
            finite[f"p{place}"] = [0.0, 0.1, 0.2, 0.3]
    return ParameterSpace(parameters)


def is_there(space, configuration, name):
    """By the words of the conditions alone."""
    return all(
        is_there(space, configuration, other) and any(same(configuration[other], value) for value in values)
        for other, values in space.parameters[name].when
    )


def has_what_is_there(space, configuration):
    for name, kind in space.parameters.items():
        assert (name in configuration) == is_there(space, configuration, name)
        if name in configuration:
            kind.encode(name, [configuration[name]])  # raises if it may not take the value
    return True


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
    again = space.decode(snapped)
    for one, other in zip(decoded, again, strict=True):
        assert one.keys() == other.keys()
        assert all(same(one[name], other[name]) for name in one)


@given(trees(), SEEDS)
@examples(60)
def test_one_configuration_has_one_encoding_and_what_is_not_there_is_left_out(space, seed):
    points = space.sample(20, torch.Generator().manual_seed(seed))
    decoded = space.decode(points)
    assert torch.equal(space.encode(decoded), points)
    everything = {name: object() for name in space.parameters}
    assert torch.equal(space.encode([everything | configuration for configuration in decoded]), points)
    alone = torch.cat([space.snap(point) for point in points.split(1)])
    assert torch.equal(alone, points)  # whatever else is in a tensor


@given(trees(), SEEDS)
@examples(40)
def test_neighbours_differ_in_one_parameter_and_in_what_that_brings_or_takes(space, seed):
    points = space.sample(2, torch.Generator().manual_seed(seed))
    near, origins = space.neighbours(points), space.decode(points)
    assert torch.equal(space.snap(near), near)
    for configuration in space.decode(near):
        assert has_what_is_there(space, configuration)
        assert any(len(exchanged(space, origin, configuration)) == 1 for origin in origins)


def exchanged(space, origin, configuration):
    """What both have with other values, or one alone though what it depends on did not change."""
    both = origin.keys() & configuration.keys()
    return [name for name in both if not same(origin[name], configuration[name])]


@given(trees(), SEEDS)
@examples(40)
def test_each_branch_is_among_the_neighbours(space, seed):
    (origin,) = space.decode(point := space.sample(1, torch.Generator().manual_seed(seed)))
    found = space.decode(space.neighbours(point))
    for name, kind in space.parameters.items():
        if name in origin and isinstance(kind, Categorical):
            taken = [other[name] for other in found if name in other]
            for choice in kind.choices:
                assert same(choice, origin[name]) or any(same(choice, value) for value in taken)


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


def test_configurations_by_hand():
    rows = [
        {"model": "svm", "scale": 0.5, "C": 1.0, "kernel": "poly", "degree": 3},
        {"model": "svm", "scale": 0.5, "C": 1000.0, "kernel": "rbf"},
        {"model": "trees", "scale": 0.25, "depth": 12, "bootstrap": True},
    ]
    points = MODELS.encode(rows)
    assert MODELS.decode(points) == rows
    assert MODELS.groups == [0, 0, 0, 1, 2, 2, 3, 3, 3, 4, 4, 5, 5, 6, 6]
    root = math.sqrt(0.5)
    half = [root * math.cos(math.pi / 4), root * math.sin(math.pi / 4)]
    torch.testing.assert_close(points[0, :6], torch.tensor([root, 0.0, 0.0, 0.5, *half], dtype=DOUBLE))
    torch.testing.assert_close(points[1, 4:11], torch.tensor([0.0, root, root, 0, 0, 0, 0], dtype=DOUBLE))
    torch.testing.assert_close(points[2, 4:11], torch.zeros(7, dtype=DOUBLE))
    torch.testing.assert_close(points[2, 13:], torch.tensor([0.0, root], dtype=DOUBLE))
    branches = [row["model"] for row in MODELS.decode(MODELS.neighbours(points[:1])) if row["model"] != "svm"]
    assert branches == ["forest"] * 8 + ["trees"] * 8


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=40))
def test_arcs_are_run_through_at_nearly_constant_speed_and_come_back(numbers):
    u = torch.tensor(numbers, dtype=DOUBLE)
    points = rolled(u)
    torch.testing.assert_close(points.norm(dim=-1), torch.full_like(u, RADIUS), rtol=1e-14, atol=0.0)
    assert float((unrolled(points) - u).abs().max()) < 2.0**-48
    angle = torch.atan2(points[:, 1], points[:, 0]) / (0.5 * math.pi)
    assert float((angle - u).abs().max()) < 0.03
    alone = torch.cat([rolled(number) for number in u.split(1)])
    assert torch.equal(alone, points)


def test_the_speed_of_an_arc():
    u = torch.linspace(0.0, 1.0, 1001, dtype=DOUBLE)
    steps = rolled(u).diff(dim=0).norm(dim=-1)
    assert float(steps.max() / steps.min()) < 1.18
    torch.testing.assert_close((rolled(u[-1:]) - rolled(u[:1])).norm(), torch.tensor(1.0, dtype=DOUBLE))


@pytest.mark.parametrize("name", ["C", "kernel", "depth", "bootstrap"])
def test_a_point_without_a_parameter_is_as_far_from_all_that_have_it(name):
    """So a kernel of distances knows that it is missing, and nothing of its value."""
    points = MODELS.sample(200, torch.Generator().manual_seed(0))
    numbers = torch.tensor(MODELS.groups)
    columns = numbers == [*MODELS.parameters].index(name)
    there = torch.tensor([name in row for row in MODELS.decode(points)])
    distances = torch.cdist(points[there][:, columns], points[~there][:, columns])
    torch.testing.assert_close(distances, torch.full_like(distances, RADIUS))


def test_the_default_kernel_on_branches_is_positive_and_shares_what_they_share():
    points = MODELS.sample(120, torch.Generator().manual_seed(1))
    kernel = default_kernel(MODELS.dimension, MODELS.groups)
    with torch.no_grad():
        covariance = kernel(points).to_dense()
        assert float(torch.linalg.eigvalsh(covariance).min()) > -1e-10
        one = {"model": "svm", "scale": 0.5, "C": 1.0, "kernel": "rbf"}
        far = [{"model": "forest", "scale": scale, "depth": 3, "bootstrap": True} for scale in (0.5, 0.9)]
        same_scale, other_scale = kernel(MODELS.encode([one]), MODELS.encode(far)).to_dense()[0]
    assert float(same_scale) > float(other_scale)
    assert isinstance(kernel.base_kernel, GroupedKernel)
    assert kernel.base_kernel.lengthscale.shape == (1, len(MODELS.parameters))


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


# -------------------------------------------------------------------- constraints


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
    looked_at = [
        LIMITED.sample(100, generator),
        LIMITED.near(point, (0.1, 0.03), 20, generator),
        LIMITED.neighbours(point),
        LIMITED.exchanges(point, generator),
        LIMITED.playable(torch.rand(50, LIMITED.dimension, generator=generator, dtype=DOUBLE)),
    ]
    for points in looked_at:
        assert len(points) > 0
        assert all(map(satisfies, LIMITED.decode(points)))
        assert bool(LIMITED.allows(points).all())


def test_what_is_allowed_is_what_the_constraints_say():
    points = torch.rand(200, LIMITED.dimension, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    expected = [satisfies(row) for row in LIMITED.decode(points)]
    assert 20 < sum(expected) < 180
    assert LIMITED.allows(points).tolist() == expected
    assert torch.equal(LIMITED.playable(points), LIMITED.snap(points)[torch.tensor(expected)])


def test_a_sequence_of_allowed_samples_can_be_drawn_bit_by_bit():
    whole = LIMITED.sample(8, torch.Generator().manual_seed(0))
    parts = [LIMITED.sample(1, torch.Generator().manual_seed(0), first=number) for number in range(8)]
    assert torch.equal(torch.cat(parts), whole)
    free = ParameterSpace(LIMITED.parameters).sample(20, torch.Generator().manual_seed(0))
    allowed = free[LIMITED.allows(free)]
    assert torch.equal(LIMITED.sample(len(allowed), torch.Generator().manual_seed(0)), allowed)


def test_what_is_not_there_counts_as_nothing_and_decimal_fractions_add_up():
    limit = LinearConstraint({"a": 1.0, "b": 2.0}, 0.3)
    assert limit({"a": 0.3})
    assert not limit({"a": 0.3, "b": 0.1})
    assert LinearConstraint({"a": 1.0, "b": 1.0}, 0.3)({"a": 0.1, "b": 0.2})  # of which the floats are more than 0.3


def test_nothing_that_satisfies_the_constraints():
    space = ParameterSpace({"x": Float(0.0, 1.0)}, [LinearConstraint({"x": 1.0}, -1.0)])
    with pytest.raises(InputError, match="none satisfies the constraints"):
        space.sample(1, torch.Generator())


@given(trees(), SEEDS)
@examples(10)
def test_constraints_on_trees(space, seed):
    generator = torch.Generator().manual_seed(seed)
    (name, *_) = space.parameters
    limited = ParameterSpace(space.parameters, [lambda row: len(row) <= len(space.parameters) // 2 + 1])
    try:
        points = limited.sample(20, generator)
    except InputError:
        assume(False)
    near = limited.near(points[:1], (0.1,), 10, generator)
    for row in limited.decode(torch.cat([points, near, limited.neighbours(points[:2])])):
        assert len(row) <= len(space.parameters) // 2 + 1
        assert name in row


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ParameterSpace({"x": Float(0, 1, when={"y": 1})}), "comes before it"),
        (
            lambda: ParameterSpace({"x": Float(0, 1), "y": Float(0, 1, when={"x": 0.5})}),
            "a choice or a number on steps",
        ),
        (lambda: ParameterSpace({"x": Integer(0, 1), "y": Float(0, 1, when={"x": 3})}), "'x' must be a whole number"),
        (lambda: Float(0, 1, when={"x": []}), "at least one value"),
        (lambda: Float(0, 1, when="x"), "when must map names"),  # pyright: ignore
        (lambda: Integer(0, 2**50 - 1, when={"x": 1}), "at most 2^44"),
        (lambda: Float(0, 1, step=1e-15, when={"x": 1}), "too small"),
        (lambda: ParameterSpace({"x": Float(0, 1)}, [3]), "functions of a configuration"),  # pyright: ignore
        (lambda: ParameterSpace({"x": Float(0, 1)}, print), "constraints must be a list"),  # pyright: ignore
        (lambda: ParameterSpace({"x": Categorical([1, 2])}, [LinearConstraint({"x": 1}, 1)]), "no Float or Integer"),
        (lambda: ParameterSpace({"x": Float(0, 1)}, [LinearConstraint({"y": 1}, 1)]), "no Float or Integer"),
        (lambda: LinearConstraint({}, 1.0), "at least one entry"),
        (lambda: LinearConstraint({"x": math.inf}, 1.0), "the weight of 'x'"),
        (lambda: ParameterSpace({"x": Float(0, 1)}, [lambda row: None]).sample(1, torch.Generator()), "True or False"),
        (lambda: MODELS.encode([{"model": "svm", "scale": 0.5, "kernel": "rbf"}]), "'C' is missing"),
    ],
)
def test_errors_say_what_to_do(make, words):
    with pytest.raises(InputError, match=words.replace("^", r"\^")):
        make()
