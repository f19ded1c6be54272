"""Rows of a tensor as points: an index of rows is a dictionary that may branch."""

import copy

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from problems import DOUBLE

from torch_kbandits.numerics import rows
from torch_kbandits.numerics.rows import RowIndex, Rows, distinct, distinct_in_order, row_keys


@given(steps=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=15), most=st.integers(0, 6))
def test_an_index_is_a_dictionary_that_may_branch(steps, most):
    """Each step extends any index there was; in the end each holds what a plain dictionary would."""
    values, plain = [RowIndex.of({b"0": 0})], [{b"0": 0}]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "_LATEST", most)
        for number, (start, size) in enumerate(steps):
            start %= len(values)
            fresh = {f"{number}.{part}".encode(): len(plain[start]) + part for part in range(size)}
            values.append(values[start].extended(fresh))
            plain.append(plain[start] | fresh)
    everything = {key for entries in plain for key in entries}
    for index, entries in zip(values, plain, strict=True):
        assert index.entries() == entries
        assert len(index) == len(entries)
        assert {key: index.place(key) for key in everything if index.place(key) is not None} == entries


def test_an_index_that_grows_by_one_copies_its_latest_entries_only():
    index = RowIndex.of({b"%d" % number: number for number in range(1_000)})
    grown = index
    for number in range(1_000, 1_200):
        grown = grown.extended({b"%d" % number: number})
    assert grown.earlier is index.earlier
    assert len(grown) == 1_200


def test_minus_zero_is_zero():
    points = torch.tensor([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0]], dtype=DOUBLE)
    first, second, third = row_keys(points)
    assert first == second != third
    assert len(distinct(points)[0]) == 2


@given(
    numbers=st.lists(st.lists(st.sampled_from([0.0, -0.0, 1.0, 2.0]), min_size=2, max_size=2), min_size=0, max_size=12)
)
def test_distinct_rows_in_order_are_those_of_a_plain_dictionary(numbers):
    points = torch.tensor(numbers, dtype=DOUBLE).reshape(-1, 2)
    plain = list(dict.fromkeys(map(tuple, points.tolist())))  # 0 and -0 are one key
    found, places = distinct_in_order(points)
    assert list(map(tuple, found.tolist())) == plain
    assert torch.equal(found[places], points)


@given(
    steps=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5), st.sampled_from(["tensor", "array", "copy"]))),
    is_array=st.booleans(),
)
def test_rows_that_grow_may_branch(steps, is_array):
    """Each step appends to any rows there were, or to a copy; in the end each is what ``torch.cat`` makes of it."""
    first = torch.arange(6, dtype=DOUBLE).reshape(3, 2)
    values, plain = [Rows(first.numpy() if is_array else first)], [first.clone()]
    for number, (start, size, kind) in enumerate(steps):
        start %= len(values)
        new, before = torch.full((size, 2), 10.0 + number, dtype=DOUBLE), values[start]
        if kind == "copy":
            before = copy.deepcopy(before)
        values.append(before.followed(new.numpy() if kind == "array" else new))
        plain.append(torch.cat([plain[start], new]))
    assert all(torch.equal(ours.tensor, theirs) for ours, theirs in zip(values, plain, strict=True))
    assert [len(ours) for ours in values] == [len(theirs) for theirs in plain]


@given(steps=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3), st.floats(-3.0, 3.0))))
def test_what_is_added_to_a_number_is_added_to_that_alone(steps):
    values, plain = [Rows(torch.zeros(2, dtype=DOUBLE))], [[0.0, 0.0]]
    for start, place, number in steps:
        start %= len(values)
        before, known = values[start], plain[start]
        if place < len(known):
            values.append(before.with_added(place, number))
            plain.append([each + number * (k == place) for k, each in enumerate(known)])
        else:
            values.append(before.followed(torch.tensor([number], dtype=DOUBLE)))
            plain.append([*known, number])
    assert [ours.tensor.tolist() for ours in values] == plain


def test_appending_does_not_copy_what_is_there():
    start = Rows(torch.zeros(20, 2)).followed(torch.ones(1, 2))
    longer = start.followed(torch.ones(1, 2))
    assert longer.tensor.data_ptr() == start.tensor.data_ptr()
    assert longer.tensor is longer.tensor
    assert start.followed(torch.zeros(1, 2)).tensor.data_ptr() != start.tensor.data_ptr()  # the room is taken
