"""A log is what it is given; what does not fit is named with its row."""

import numpy as np
import pytest
import torch
from problems import DOUBLE

from torch_kbandits import InputError
from torch_kbandits.environments import LoggedInteractions

PIECES = {
    "contexts": torch.zeros(3, 2, dtype=DOUBLE),
    "actions": torch.tensor([0, 1, 1]),
    "rewards": torch.zeros(3, dtype=DOUBLE),
    "propensities": torch.full((3,), 0.5, dtype=DOUBLE),
}


def test_labels_are_positions_and_numbers_are_rows():
    names, positions = np.unique(["b", "a", "b"], return_inverse=True)
    log = LoggedInteractions([[31, 2], [45, 0], [18, 7]], positions, [1, 0, 0], [0.5, 0.25, 1])
    assert (len(log), [names[position] for position in log.actions]) == (3, ["b", "a", "b"])
    assert log.action_rows.tolist() == [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
    assert log.contexts.dtype == log.rewards.dtype == DOUBLE
    log = LoggedInteractions([[1], [2], [3]], [[2.5, 3.0], [1.5, 3.0], [2.5, 3.0]], [0, 1, 1], [0.5, 0.5, 0.5])
    assert log.action_set.tolist() == [[1.5, 3.0], [2.5, 3.0]]
    assert torch.equal(log.action_rows, log.actions)


def test_positions_count_up_to_the_largest_and_bad_logs_are_named():
    assert LoggedInteractions(**PIECES).action_set.tolist() == [[1.0, 0.0], [0.0, 1.0]]
    zero = torch.tensor([0.5, 0.0, 0.0], dtype=DOUBLE)
    for changes, message in (
        ({"contexts": torch.zeros(0, 2, dtype=DOUBLE)}, "n >= 1"),
        ({"rewards": torch.zeros(2, dtype=DOUBLE)}, r"rewards must be \(3,\)"),
        ({"propensities": zero}, r"2 row\(s\) do not, the first is row 1 with 0"),
        ({"actions": torch.tensor([0, -1, 1])}, "positions must be at least 0; row 1 has -1"),
    ):
        with pytest.raises(InputError, match=message):
            LoggedInteractions(**(PIECES | changes))
