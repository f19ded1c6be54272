"""A log is what it is given, in any form, and a part of it is a log; what does not fit is named with its row."""

from datetime import datetime

import numpy as np
import pandas as pd
import pytest
import torch
from problems import DOUBLE

from torch_kbandits import InputError
from torch_kbandits.evaluation import Log

SETS = [[[1.0, 0.0]], [[0.5, 2.0], [0.0, 1.0]], [[3.0, 3.0], [4.0, 4.0], [5.0, 5.0]]]
PIECES = {
    "rows": [0, 1, 2],
    "rewards": [1.0, None, 0.5],
    "propensities": [1.0, 0.5, 0.25],
    "contexts": torch.zeros(3, 2, dtype=DOUBLE),
    "actions": SETS,
    "times": [1, 2, 3],
    "ids": ["a", "b", "c"],
    "slates": [7, 7, 2],
}


def test_columns_are_kept_and_parts_have_those_of_their_rows():
    log = Log(**PIECES)
    assert len(log) == 3
    assert log.rewards.isnan().tolist() == [False, True, False]
    assert log.num_actions.tolist() == [1, 2, 3]
    assert log.played.tolist() == [[1.0, 0.0], [0.0, 1.0], [5.0, 5.0]]
    for part in (log.part([2, 0]), log.part(torch.tensor([2, 0]))):
        assert part.rows.tolist() == [2, 0]
        assert (part.ids, part.times, part.slates.tolist()) == (("c", "a"), (3, 1), [2, 7])
        assert part.played.tolist() == [[5.0, 5.0], [1.0, 0.0]]
    assert log.rewarded.ids == log.part(~log.rewards.isnan()).ids == log.part(slice(0, 3, 2)).ids == ("a", "c")
    alone = Log([0, 2], [0.0, 1.0], [0.5, 0.5])
    assert alone.num_actions.tolist() == alone.part([1]).num_actions.tolist() * 2 == [3, 3]
    shared = Log([0, 1], [0.0, 1.0], [0.5, 0.5], actions=torch.eye(4, dtype=DOUBLE))
    assert shared.num_actions.tolist() == [4, 4]
    assert torch.equal(shared.part([1]).played, torch.eye(4, dtype=DOUBLE)[1:2])


def test_a_table_becomes_a_log_in_a_few_words():
    frame = pd.DataFrame({"item": ["b", "a", "b"], "p": [0.5, 0.5, 1.0], "click": [True, False, True]})
    frame["at"] = pd.to_datetime(["2024-01-01", "2024-01-02", "2024-01-03"])
    names, rows = np.unique(frame["item"], return_inverse=True)
    log = Log(rows, frame["click"], frame["p"], num_actions=len(names), times=frame["at"])
    assert [names[row] for row in log.rows] == ["b", "a", "b"]
    assert log.rewards.tolist() == [1.0, 0.0, 1.0]
    assert log.times[0] == datetime(2024, 1, 1)
    assert Log([0], [1.0], [1.0], times=np.array(["2024-01-01"], "datetime64[ns]")).times == (datetime(2024, 1, 1),)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": [0, 2, 0]}, r"rows must be at least 0 and below the number of actions; 1 of 3 rows .* row 1 with 2"),
        ({"rows": [0, -1, 0]}, "row 1 with -1"),
        ({"rows": [0.5, 1, 1]}, "rows must be one or more whole numbers"),
        ({"rows": []}, "rows must be whole numbers, at least one"),
        ({"propensities": [0.5, 0.0, 0.0]}, r"in \(0, 1\]: .* 2 of 3 rows are not, the first is row 1 with 0"),
        ({"propensities": [0.5, 1.5, 1.0]}, "row 1 with 1.5"),
        ({"propensities": [0.5, None, 1.0]}, "propensities must be real numbers"),
        ({"propensities": [0.5, float("nan"), 1.0]}, "propensities must be finite"),
        ({"propensities": None}, "propensities must be real numbers"),
        ({"rewards": [1.0, float("inf"), 1.0]}, "rewards must be finite, or NaN where there is none"),
        ({"rewards": [1.0]}, r"rewards must be \(3,\)"),
        ({"contexts": torch.zeros(2, 2, dtype=DOUBLE)}, "contexts must be one for each of the 3 rows, got 2"),
        ({"contexts": [[1.0, torch.nan]] * 3}, "contexts must be finite"),
        ({"actions": SETS[:2]}, "actions must be one for each of the 3 rows, got 2"),
        ({"actions": [*SETS[:2], [[1.0]]]}, "same number of columns"),
        ({"num_actions": 3}, "Give either actions or num_actions"),
        ({"actions": None, "num_actions": [1, 2]}, "num_actions must be one for all or for each of the 3 rows"),
        ({"ids": ["a", "b", "a"]}, r"ids must differ: 1 come again, the first is 'a' in rows \[0, 2\]"),
        ({"ids": [1, 2]}, "ids must be one for each of the 3 rows, got 2"),
        ({"ids": [1, 2, None]}, "each of the ids must be a whole number"),
        ({"times": [1, 2]}, "time must be one for all 3"),
        ({"times": [1, datetime(2024, 1, 1), 2]}, "one kind"),
        ({"slates": [1, 2]}, "slates must be whole numbers, one for each of the 3 rows"),
    ],
)
def test_what_cannot_be_is_named(changes, message):
    with pytest.raises(InputError, match=message):
        Log(**(PIECES | changes))


def test_an_empty_part_and_unknown_features_are_refused():
    log = Log([0, 1], [None, None], [0.5, 0.5], num_actions=2)
    for take in (lambda: log.rewarded, lambda: log.part(slice(2, None))):
        with pytest.raises(InputError, match="No row of the log is left"):
            take()
    with pytest.raises(InputError, match="features of the actions are missing"):
        log.played  # noqa: B018
