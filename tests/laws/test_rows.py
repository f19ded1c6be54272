"""Rows of a tensor as points: an index of rows is a dictionary that may branch."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from problems import DOUBLE

from torch_kbandits.numerics import appended as appending
from torch_kbandits.numerics import rows
from torch_kbandits.numerics.appended import appended
from torch_kbandits.numerics.rows import RowIndex, distinct, distinct_in_order, row_keys


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


@given(steps=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=15), most=st.integers(0, 6))
def test_appended_rows_may_branch(steps, most):
    """Each step appends to any tensor there was; in the end each is what ``torch.cat`` made of its parts."""
    values = [torch.arange(6, dtype=DOUBLE).reshape(3, 2)]
    plain = [values[0].clone()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(appending, "_SHORT", most)
        for number, (start, size) in enumerate(steps):
            start %= len(values)
            new = torch.full((size, 2), 10.0 + number, dtype=DOUBLE)
            values.append(appended(values[start], new))
            plain.append(torch.cat([plain[start], new]))
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(values, plain, strict=True))


def test_appending_does_not_copy_what_is_there():
    start = appended(torch.zeros(20_000, 2), torch.ones(1, 2))
    longer = appended(start, torch.ones(1, 2))
    assert longer.data_ptr() == start.data_ptr()
    assert appended(start, torch.zeros(1, 2)).data_ptr() != start.data_ptr()  # the room is taken
