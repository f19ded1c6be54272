"""A journal gives back what was committed, whatever is cut off, and names every other damage."""

import errno
import json
import os
import threading
import time

import hypothesis.strategies as st
import pytest
from hypothesis import given
from problems import examples

from torch_kbandits.errors import DamagedFileError, FileError, StateMismatchError
from torch_kbandits.serving.journal import Journal, parsed, read
from torch_kbandits.serving.refusals import NotSavingError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
RECORDS = st.lists(st.dictionaries(st.text(), JSON, max_size=3), min_size=1, max_size=5)


def written(path, records):
    """The content of a journal of these records, and how many bytes it has after each."""
    journal = Journal.create(path, records[0])
    sizes = [journal.size]
    for record in records[1:]:
        journal.append(record)
        sizes.append(journal.size)
    journal.commit(journal.position)
    journal.close()
    content = path.read_bytes()
    assert sizes[-1] == len(content)
    return content, sizes


@given(records=RECORDS)
@examples(30)
def test_a_cut_at_any_byte_leaves_all_whole_records(records, tmp_path_factory):
    path = tmp_path_factory.mktemp("journal") / "journal"
    content, sizes = written(path, records)
    for cut in range(len(content) + 1):
        if cut < sizes[0]:
            with pytest.raises(DamagedFileError):
                parsed(content[:cut], "journal")
            continue
        whole = sum(size <= cut for size in sizes)
        assert parsed(content[:cut], "journal").records == records[:whole]
    path.write_bytes(content[:-1])
    journal, found = Journal.open(path) if len(records) > 1 else (None, records)
    if journal is not None:
        journal.append({"more": 1})
        journal.close()
        assert found == records[:-1]
        assert read(path).records == [*found, {"more": 1}]


def test_a_flip_of_any_bit_is_named(tmp_path):
    content, _ = written(tmp_path / "journal", [{"op": "begin"}, {"op": "ask", "points": [[0.1, -2e-9]]}, {"y": 1}])
    for place in range(len(content)):
        for bit in range(8):
            changed = bytearray(content)
            changed[place] ^= 1 << bit
            with pytest.raises((DamagedFileError, StateMismatchError), match="journal"):
                parsed(bytes(changed), "journal")


def test_records_that_are_lost_twice_there_or_exchanged_are_named(tmp_path):
    path = tmp_path / "journal"
    content, _ = written(path, [{"n": number} for number in range(4)])
    first, *lines = content.splitlines(keepends=True)
    a, b, c, d = lines
    for wrong in ([a, c, d], [a, b, b, c, d], [a, c, b, d], [b, c, d], [a, b, c[:-4], d]):
        path.write_bytes(first + b"".join(wrong))
        with pytest.raises(DamagedFileError, match="record"):
            read(path)
    for nothing in (b"", first):
        path.write_bytes(nothing)
        with pytest.raises(DamagedFileError):
            read(path)
    path.write_bytes(content.replace(b"journal 1\n", b"journal 2\n"))
    with pytest.raises(StateMismatchError, match="format 2"):
        read(path)
    with pytest.raises(FileError):
        read(tmp_path / "none")


@given(values=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_numbers_come_back_to_the_last_bit(values, tmp_path_factory):
    path = tmp_path_factory.mktemp("journal") / "journal"
    written(path, [{"values": values}])
    assert [each.hex() for each in read(path).records[0]["values"]] == [each.hex() for each in values]


def test_what_is_appended_while_the_disk_is_waited_for_goes_to_it_in_one(tmp_path, monkeypatch):
    """Each commit returns after a wait for the disk that began after its record was written."""
    journal, began, turn = Journal.create(tmp_path / "journal", {}), [], threading.Lock()
    sync = os.fsync

    def slow(file):
        began.append(os.fstat(file).st_size)
        time.sleep(0.02)
        sync(file)

    monkeypatch.setattr(os, "fsync", slow)
    wrong = []

    def client(number):
        for each in range(5):
            with turn:
                journal.append({"client": number, "each": each})
                position, size = journal.position, journal.size
            journal.commit(position)
            if max(began) < size:
                wrong.append((number, each))

    threads = [threading.Thread(target=client, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert journal.is_durable
    assert 5 <= journal.num_syncs == len(began) <= 20  # of 40 commits
    assert journal.sync_seconds >= 0.02 * journal.num_syncs
    journal.commit(journal.position)
    assert journal.num_syncs == len(began)
    journal.close()
    assert len(read(tmp_path / "journal").records) == 41


def saved(journal, record):
    journal.append(record)
    journal.commit(journal.position)


@pytest.mark.parametrize("failing", ["write", "fsync"])
def test_after_a_failure_nothing_is_taken_and_what_was_committed_is_there(failing, tmp_path, monkeypatch):
    path = tmp_path / "journal"
    journal = Journal.create(path, {})
    journal.append({"kept": 1})
    journal.commit(1)
    write = os.write

    def half(file, line):
        write(file, line[: len(line) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    def lost(file):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, failing, half if failing == "write" else lost)
        with pytest.raises(NotSavingError, match=r"No space|Input/output"):
            saved(journal, {"lost": 1})
    for again in (lambda: journal.append({}), lambda: journal.commit(3), lambda: journal.renew({})):
        with pytest.raises(NotSavingError):
            again()
    journal.commit(1)
    journal.close()
    journal, records = Journal.open(path)
    assert records[:2] == [{}, {"kept": 1}]
    journal.append({"more": 1})
    journal.close()
    journal.close()
    assert read(path).records[-1] == {"more": 1}
    with pytest.raises(NotSavingError, match="closed"):
        journal.append({})


def test_a_new_file_takes_the_place_of_the_old_one_at_once(tmp_path, monkeypatch):
    path = tmp_path / "journal"
    journal = Journal.create(path, {"first": 0})
    journal.append({"second": 0})
    journal.commit(1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        with pytest.raises(FileError):
            journal.renew({"first": 1})
    assert len(read(path).records) == 2
    journal.append({"third": 0})
    journal.commit(2)
    journal.renew({"first": 1})
    journal.append({"fourth": 1})
    journal.commit(3)
    assert read(path).records == [{"first": 1}, {"fourth": 1}]
    assert journal.size == len(path.read_bytes())
    with pytest.raises(ValueError, match="JSON compliant"):
        journal.append({"none": float("nan")})
    journal.append({"fifth": 1})
    journal.close()
    assert json.loads(path.read_bytes().splitlines()[-1].split(b" ", 2)[2]) == {"fifth": 1}
