"""A journal gives back what was committed, whatever is cut off, and names every other damage."""

import os
import threading

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


def test_what_is_appended_while_the_disk_is_waited_for_goes_to_it_in_one(tmp_path, monkeypatch):
    """Each commit returns after a wait for the disk that began after its record was written."""
    journal, began = started(tmp_path / "journal", {}), []
    entered, leave = threading.Event(), threading.Event()

    def slow(file):
        began.append(os.fstat(file).st_size)
        entered.set()
        assert leave.wait(10.0)

    monkeypatch.setattr(os, "fsync", slow)
    clients, sizes = [], []
    for number in range(8):
        journal.append({"client": number})
        sizes.append(journal.size)
        clients.append(threading.Thread(target=journal.commit, args=(journal.position,)))
        clients[-1].start()
        assert entered.wait(10.0)
    leave.set()
    for client in clients:
        client.join()
    assert began == [sizes[0], sizes[-1]]
    assert (journal.num_syncs, journal.position) == (2, 8)
    assert journal.sync_seconds > 0.0
    journal.close()
    assert len(Journal(tmp_path / "journal").open()) == 9
