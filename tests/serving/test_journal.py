"""A journal gives back what was committed, whatever is cut off, and names every other damage."""

import hypothesis.strategies as st
import pytest
from hypothesis import given
from problems import examples

from torch_kbandits.errors import DamagedFileError, FileError
from torch_kbandits.serving.journal import Journal, parsed

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def started(path, first):
    journal = Journal(path)
    journal.restart(first)
    return journal


def written(path, records):
    """The content of a journal of these records, and how many bytes it has after each."""
    journal = started(path, records[0])
    sizes = [journal.size]
    for record in records[1:]:
        journal.append(record)
        sizes.append(journal.size)
    journal.commit(journal.position)
    journal.close()
    assert sizes[-1] == path.stat().st_size
    return path.read_bytes(), sizes


@given(records=st.lists(st.dictionaries(st.text(), JSON, max_size=3), min_size=2, max_size=5))
@examples(30)
def test_a_cut_at_any_byte_leaves_all_whole_records_to_the_last_bit(records, tmp_path_factory):
    path = tmp_path_factory.mktemp("journal") / "journal"
    content, sizes = written(path, records)
    for cut in range(len(content) + 1):
        if cut < sizes[0]:
            with pytest.raises(DamagedFileError):
                parsed(content[:cut], "journal")
        else:
            assert repr(parsed(content[:cut], "journal")[0]) == repr(records[: sum(size <= cut for size in sizes)])
    path.write_bytes(content[:-1])
    journal = Journal(path)
    found = journal.open()
    journal.append({"more": 1})
    journal.close()
    assert found == records[:-1]
    assert Journal(path).open() == [*found, {"more": 1}]


def test_a_flip_of_any_bit_and_lines_that_are_lost_twice_there_or_exchanged_are_named(tmp_path):
    path = tmp_path / "journal"
    content, _ = written(path, [{"op": "begin"}, {"op": "ask", "points": [[0.1, -2e-9]]}, {"y": 1}, {}])
    first, a, b, c, d = content.splitlines(keepends=True)
    flips = [
        content[:i] + bytes([content[i] ^ 1 << bit]) + content[i + 1 :] for i in range(len(content)) for bit in range(8)
    ]
    lines = [[a, c, d], [a, b, b, c, d], [a, c, b, d], [b, c, d], [a, b, c[:-4], d], []]
    for wrong in [*flips, *(first + b"".join(each) for each in lines), b""]:
        with pytest.raises(DamagedFileError, match="journal"):
            parsed(wrong, "journal")
    with pytest.raises(FileError):
        Journal(tmp_path / "none").open()
