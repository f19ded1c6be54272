"""Rows become tensors and come back, in whatever shape they arrive, and what is no row is refused by name."""

import importlib
import math
import pickle
import re
import sys
from types import MappingProxyType
from unittest import mock

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from problems import DOUBLE

from torch_kbandits import Category, ColumnSpec, InputError, Number

CITIES = ("Paris", "Rome", "Oslo")

SPEC = ColumnSpec(
    [
        Number("age"),
        Number("price", 10.0, 1000.0, log=True),
        Category("city", CITIES),
        Number("hour", 0, 24),
        Category("member", [False, True]),
        Category("plan", [1, 2, 5], other=True),
    ]
)

ROWS = [
    {"age": 31, "price": 100.0, "city": "Rome", "hour": 6, "member": True, "plan": 5},
    {"age": -2.5, "price": 10.0, "city": "Paris", "hour": 24, "member": False, "plan": 1},
    {"age": 0, "price": 10_000.0, "city": "Oslo", "hour": -12, "member": True, "plan": 3},
]

#: By hand: age as it is; log10(price / 10) / 2; the three cities; hour / 24; the two kinds; plans 1, 2 and 5.
ENCODED = [
    [31.0, 0.5, 0, 1, 0, 0.25, 0, 1, 0, 0, 1],
    [-2.5, 0.0, 1, 0, 0, 1.0, 1, 0, 1, 0, 0],
    [0.0, 1.5, 0, 0, 1, -0.5, 0, 1, 0, 0, 0],
]


LEVELS = st.one_of(
    st.text(max_size=5), st.booleans(), st.integers(-(10**30), 10**30), st.floats(allow_nan=False, allow_infinity=False)
)
SIZES = st.floats(-100.0, 100.0).map(lambda power: 10.0**power)
NUMBERS = st.one_of(SIZES, SIZES.map(lambda size: -size), st.just(0.0), st.integers(-(10**9), 10**9))


@st.composite
def specs_and_rows(draw):
    """A spec with any kinds of columns, and rows that fit it, with values outside the ranges too."""
    columns, values = [], {}
    for name in draw(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=5, unique=True)):
        kind = draw(st.sampled_from(["plain", "linear", "log", "category"]))
        if kind == "category":
            levels = draw(st.lists(LEVELS, min_size=1, max_size=5, unique_by=(lambda v: v, str)))
            columns.append(Category(name, levels, other=draw(st.booleans())))
            values[name] = st.sampled_from(levels)
        elif kind == "plain":
            columns.append(Number(name))
            values[name] = NUMBERS
        else:
            ends = SIZES if kind == "log" else st.integers(-(10**9), 10**9)
            low, high = sorted(draw(st.lists(ends, min_size=2, max_size=2, unique=True)))
            columns.append(Number(name, low, high, log=kind == "log"))
            values[name] = ends
    return ColumnSpec(columns), draw(st.lists(st.fixed_dictionaries(values), max_size=6))


@given(specs_and_rows())
def test_decode_is_the_inverse_of_encode(case):
    spec, rows = case
    decoded = spec.decode(spec.encode(rows))
    assert len(decoded) == len(rows)
    for row, back in zip(rows, decoded, strict=True):
        assert list(back) == [column.name for column in spec.columns]
        for column in spec.columns:
            if isinstance(column, Category) or column.low is None:
                assert back[column.name] == row[column.name]
            elif column.log:
                # Logarithms are below 231 here, and each of the few steps rounds one to 231 · 2⁻⁵³ = 3e-14.
                assert back[column.name] == pytest.approx(row[column.name], rel=3e-13, abs=0.0)
            else:
                size = max(abs(column.low), abs(column.high), abs(row[column.name]))
                assert abs(back[column.name] - row[column.name]) <= 1e-15 * size


def test_encodings_and_names_are_those_computed_by_hand_and_specs_are_values():
    points = SPEC.encode(ROWS)
    assert points.dtype == DOUBLE
    np.testing.assert_allclose(points.numpy(), ENCODED, rtol=1e-15, atol=1e-15)
    np.testing.assert_allclose(SPEC.encode(ROWS, dtype=torch.float32).numpy(), ENCODED, rtol=1e-6)
    assert SPEC.encode(ROWS, dtype=torch.float32).dtype == torch.float32
    assert " ".join(SPEC.names) == (
        "age price city=Paris city=Rome city=Oslo hour member=False member=True plan=1 plan=2 plan=5"
    )
    assert SPEC.width == len(SPEC.names) == points.shape[-1]
    assert [i for column in SPEC.columns for i in SPEC.columns_of(column.name)] == list(range(SPEC.width))
    assert [type(level) for level in Category("plan", np.array([1, 2, 5])).levels] == [int] * 3
    again = ColumnSpec(list(SPEC.columns))
    assert again == SPEC == pickle.loads(pickle.dumps(SPEC))
    assert hash(again) == hash(SPEC)
    spec = ColumnSpec([Category("plan", ["1", "2"], other=True)])
    points = spec.encode([{"plan": value} for value in ("2", "gold", 2, False, "")])
    assert points.tolist() == [[0, 1], [0, 0], [0, 0], [0, 0], [0, 0]]


@pytest.mark.parametrize("log", [False, True])
def test_the_ends_of_a_range_are_exactly_zero_and_one(log):
    for low, high in np.sort(np.random.default_rng(0).lognormal(size=(200, 2)), axis=1):
        points = ColumnSpec([Number("x", low, high, log=log)]).encode([{"x": low}, {"x": high}])
        assert points.flatten().tolist() == [0.0, 1.0]


def test_decode_takes_the_nearest_level():
    spec = ColumnSpec([Category("city", CITIES), Category("plan", [1, 2], other=True)])
    points = torch.tensor([[0.4, 0.3, 0.1, 0.49, 0.2], [-1.0, -3.0, -2.0, 0.1, 0.6], [2.0, 3.0, 9.0, -5.0, -5.0]])
    codes = {1: [1.0, 0.0], 2: [0.0, 1.0], None: [0.0, 0.0]}
    for point, row in zip(points.tolist(), spec.decode(points), strict=True):
        assert row["city"] == CITIES[int(np.argmax(point[:3]))]
        assert row["plan"] == min(codes, key=lambda level: math.dist(codes[level], point[3:]))
    assert [row["plan"] for row in spec.decode(points)] == [None, 2, None]


FRAME = pd.DataFrame(ROWS)
#: The same rows in other dtypes and layouts.
FRAMES = {
    "as it is": FRAME,
    "more columns": FRAME.assign(note=None, when=pd.Timestamp("2026-01-01")),
    "an unasked column twice": pd.concat([FRAME, pd.DataFrame([[0, 1]] * 3, columns=["z", "z"])], axis=1),
    "an index of its own": FRAME.set_axis(["x", "x", "y"]),
    "nullable": FRAME.convert_dtypes(),
    "float32 and int8": FRAME.astype({"age": "float32", "hour": "int8", "plan": "int8"}),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_data_frames_agree_with_mappings(kind):
    frame, before, points = FRAMES[kind], FRAMES[kind].copy(), SPEC.encode(ROWS)
    assert torch.equal(SPEC.encode(frame), points)
    assert torch.equal(SPEC.encode([row for _, row in frame.iterrows()]), points)
    assert torch.equal(SPEC.encode(frame.iloc[1]), points[1:2])
    pd.testing.assert_frame_equal(frame, before)


@given(specs_and_rows(), st.randoms(use_true_random=False))
def test_order_of_keys_and_extra_columns_do_not_matter(case, random):
    spec, rows = case
    points = spec.encode(rows)
    shuffled = []
    for row in rows:
        items = [*row.items(), ("unasked", object()), (7, None)]
        random.shuffle(items)
        shuffled.append(dict(items))
    assert torch.equal(spec.encode(tuple(shuffled)), points)
    for row, point in zip(shuffled, points, strict=True):
        assert torch.equal(spec.encode(MappingProxyType(row)), point.unsqueeze(0))
    if rows:
        frame = pd.DataFrame({name: pd.Series([row[name] for row in rows], dtype=object) for name in reversed(rows[0])})
        assert torch.equal(spec.encode(frame), points)


def test_the_package_does_not_import_pandas():
    with mock.patch.dict(sys.modules):
        for name in [name for name in sys.modules if name.partition(".")[0] == "torch_kbandits"]:
            del sys.modules[name]
        sys.modules["pandas"] = None
        anew = importlib.import_module("torch_kbandits")
        assert anew.ColumnSpec is not ColumnSpec
        assert anew.ColumnSpec([anew.Category("a", ["x", "y"])]).encode({"a": "y"}).tolist() == [[0.0, 1.0]]


def good(**changes):
    return {**ROWS[0], **changes}


TWICE = pd.concat([FRAME, FRAME[["city"]]], axis=1)
BAD_ROWS = [
    (good(age=None), "column 'age' must be a finite number; row 1 has None of type NoneType. The value is missing"),
    (good(age=10**400), "column 'age' must be a finite number; row 1 has 1000"),
    (good(age=True), "row 1 has True of type bool. Convert it, or make the column a Category."),
    (good(age="1.5"), "row 1 has '1.5' of type str. Convert it"),
    (good(price=0.0), "column 'price' must be a finite number above 0, since log=True; row 1 has 0.0 of type float"),
    (good(member="True"), "one of its levels [False, True]; row 1 has 'True' of type str. Add the value"),
    (good(city=["Paris"]), "column 'city' must be a string, a boolean or a finite number; row 1 has ['Paris']"),
    ({"Age": 1}, "row 1 must have column 'age' once, got columns ['Age']."),
    ([1, 2, 3], "row 1 must be a mapping or a pandas Series, got [1, 2, 3] of type list."),
]
MISUSES = [
    (lambda: SPEC.encode(TWICE), "the DataFrame must have column 'city' once, got it 2 times."),
    (
        lambda: SPEC.columns_of("cty"),
        "one of the columns ['age', 'price', 'city', 'hour',",
    ),
    (lambda: Number(""), "the name of a column must be a non-empty string, got ''."),
    (lambda: Number("x", low=0), "got low=0, high=None, log=False."),
    (lambda: Number("x", -1e308, 1e308), "got low=-1e+308, high=1e+308, log=False."),
    (lambda: Number("x", 0, 1, log=True), "above 0 if log=True, or no range and log=False; got low=0, high=1"),
    (lambda: Category("c", "ab"), "levels of column 'c' must be a list or another sequence, got 'ab' of type str."),
    (lambda: Category("c", [1, "1"]), "levels of column 'c' must differ, also as text; these repeat: ['1']."),
    (lambda: SPEC.decode(SPEC.encode(ROWS)[:, 1:]), "points must have d = 11 columns, got a tensor of shape (3, 1"),
    (lambda: SPEC.decode(SPEC.encode(ROWS) * 1e6), "the decoded column 'price' must be finite"),
    (lambda: EXTREME.encode([LARGE], dtype=torch.float32), "'huge' must be within what torch.float32 holds once"),
    (lambda: EXTREME.encode([LARGE, {**LARGE, "tiny": 1e100}]), "holds once encoded; row 1 has 1e"),
]
EXTREME, LARGE = ColumnSpec([Number("tiny", 0.0, 1e-300), Number("huge")]), {"tiny": 0.0, "huge": 1e300}


def test_what_does_not_belong_is_refused():
    assert EXTREME.encode([LARGE])[0, -1].item() == 1e300
    for row, message in BAD_ROWS:
        with pytest.raises(InputError, match=re.escape(message)):
            SPEC.encode([good(), row])
    for call, message in MISUSES:
        with pytest.raises(InputError, match=re.escape(message)):
            call()
    with pytest.raises(AttributeError):
        SPEC.columns = ()
