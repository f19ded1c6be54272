"""A log is what its file says; what does not fit is named with its row, or with file, line and column."""

import pytest
import torch
from problems import DOUBLE

from torch_kbandits import InputError
from torch_kbandits.environments import LoggedInteractions, read_log

HEADER = "age,visits,shown,clicked,p"
ROWS = ("31,2,b,1,0.5", "45,0,a,0,0.25", "18,7,b,0,1")


def read(path, context=("age", "visits"), action="shown", reward="clicked", propensity="p", **options):
    return read_log(path, context, action, reward, propensity, **options)


@pytest.fixture
def file(tmp_path):
    def write(*lines):
        path = tmp_path / "log.csv"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return write


def test_labels_become_positions(file):
    log = read(file(HEADER, *ROWS))
    assert len(log) == 3
    assert log.contexts.tolist() == [[31.0, 2.0], [45.0, 0.0], [18.0, 7.0]]
    assert log.action_names == ("a", "b")
    assert log.actions.tolist() == [1, 0, 1]
    assert log.action_set.tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert log.action_rows.tolist() == [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
    assert log.rewards.tolist() == [1.0, 0.0, 0.0]
    assert log.propensities.tolist() == [0.5, 0.25, 1.0]
    assert log.contexts.dtype == log.rewards.dtype == DOUBLE


def test_numbers_become_rows(file):
    path = file("x;price;size;y;p", "1;2.5;3;0;0.5", "", "2;1.5;3;1;0.5", "3;2.5;3;1;0.5")
    log = read(path, ["x"], ["price", "size"], "y", delimiter=";")
    assert log.actions.tolist() == [[2.5, 3.0], [1.5, 3.0], [2.5, 3.0]]
    assert log.action_set.tolist() == [[1.5, 3.0], [2.5, 3.0]]
    assert torch.equal(log.action_rows, log.actions)
    assert log.action_names is None


def test_bad_files_are_named(file, tmp_path):
    for lines, message in (
        (("",), "is empty"),
        ((HEADER,), "has a header and no interactions"),
        ((HEADER, "1,2,b,1,-0.5"), r"line 2, column 5 \(p\): a propensity must lie in \(0, 1\], got -0.5"),
        ((HEADER, "1,2,b,,1"), r"line 2, column 4 \(clicked\): the value is missing"),
        ((HEADER, "1,2, ,0,1"), r"line 2, column 3 \(shown\): the action is missing"),
        (("age,visit,shown,clicked,p", *ROWS), "'visits' is no column; did you mean 'visit'. Known: age, "),
    ):
        path = file(*lines)
        with pytest.raises(InputError, match=message) as error:
            read(path)
        assert str(path) in str(error.value)
    (tmp_path / "empty.csv").touch()
    for path, message in (
        (tmp_path / "none.csv", r"none.csv cannot be read as a CSV file"),
        (tmp_path / "empty.csv", r"empty.csv is empty"),
        (3, "path must be the path of a file, got 3"),
    ):
        with pytest.raises(InputError, match=message):
            read(path)
    path = file(HEADER, *ROWS)
    for words, message in (
        ({"context": "age"}, "context_columns must be a list of at least one column name"),
        ({"context": ["age", 2]}, "2 is no column"),
        ({"delimiter": ", "}, "delimiter must be a single character"),
    ):
        with pytest.raises(InputError, match=message):
            read(path, **words)


PIECES = {
    "contexts": torch.zeros(3, 2, dtype=DOUBLE),
    "actions": torch.tensor([0, 1, 1]),
    "rewards": torch.zeros(3, dtype=DOUBLE),
    "propensities": torch.full((3,), 0.5, dtype=DOUBLE),
}


def test_positions_without_names_count_up_to_the_largest_and_bad_logs_are_named():
    assert LoggedInteractions(**PIECES).action_set.tolist() == [[1.0, 0.0], [0.0, 1.0]]
    named = LoggedInteractions(**PIECES, action_names=("a", "b", "never shown"))
    assert named.action_set.shape == (3, 3)
    zero, rows = torch.tensor([0.5, 0.0, 0.0], dtype=DOUBLE), torch.zeros(3, 1, dtype=DOUBLE)
    for changes, message in (
        ({"contexts": torch.zeros(0, 2, dtype=DOUBLE)}, "n >= 1"),
        ({"rewards": torch.zeros(2, dtype=DOUBLE)}, r"rewards must be \(3,\)"),
        ({"propensities": zero}, r"2 row\(s\) do not, the first is row 1 with 0"),
        ({"actions": torch.tensor([0, -1, 1])}, "positions must be at least 0; row 1 has -1"),
        ({"action_names": ("a",)}, "below 1, the number of names; row 1 has 1"),
        ({"actions": rows, "action_names": ("a",)}, "action_names are for positions"),
    ):
        with pytest.raises(InputError, match=message):
            LoggedInteractions(**(PIECES | changes))
