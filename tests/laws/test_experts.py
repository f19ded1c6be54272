"""An expert's mistakes cost its answers and nothing else, and each kind of them is said once."""

import warnings

import numpy as np
import pytest
import torch
from problems import DOUBLE, data

from torch_kbandits.errors import ExpertWarning
from torch_kbandits.observations import GuardedExpert

X = data(4, 2)[0]
VALUES = [0.5, -1.0, 2.0, 0.0]


def broken(X, time):
    raise ValueError("no line to the lab")


FAULTS = [
    (broken, "raised ValueError: no line to the lab"),
    (lambda X, t: (VALUES[:3], 1.0), r"values must be one for each of the 4 points, got .*\(3,\)"),
    (lambda X, t: ([*VALUES[:3], torch.nan], 1.0), "values must be finite"),
    (lambda X, t: (VALUES, [1.0, 1.0, -1e-9, 1.0]), "variances must be at least 0, got -1e-09"),
    (lambda X, t: VALUES, r"must return \(Y, variance\) or None, got \[0.5"),
    (lambda X, t: (["a"] * 4, 1.0), "values must be real numbers"),
    (lambda X, t: (VALUES, torch.inf), "variances must be finite"),
]


def test_each_kind_of_fault_is_said_once_and_counted_always():
    for function, message in FAULTS:
        expert = GuardedExpert(function)
        with pytest.warns(ExpertWarning, match=message) as said:
            answers = expert.answers(X, 3)
        assert len(said) == 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            expert.answers(X, 4)
        assert [tuple(part.shape) for part in answers[:3]] == [(0, 2), (0,), (0,)]
        assert (expert.num_questions, expert.num_failures, expert.num_late) == (8, 2, 0)
    faults = iter([function for function, _ in FAULTS[:5]])
    expert = GuardedExpert(lambda X, t: next(faults)(X, t))
    with pytest.warns(ExpertWarning) as said:
        [expert.answers(X, 0) for _ in range(5)]
    assert len(said) == 5


@pytest.mark.parametrize(
    "given",
    [
        (torch.tensor(VALUES, dtype=DOUBLE), 0.25),
        (torch.tensor(VALUES), torch.full((4, 1), 0.25)),
        (np.array(VALUES)[:, None], np.float32(0.25)),
        [VALUES, [0.25] * 4],
        (torch.tensor(VALUES, dtype=DOUBLE, requires_grad=True), torch.tensor(0.25)),
    ],
)
def test_answers_may_come_in_many_forms(given):
    expert = GuardedExpert(lambda X, t: given)
    answers = expert.answers(X, 0)
    assert torch.equal(answers.X, X)
    assert torch.equal(answers.Y, torch.tensor(VALUES, dtype=DOUBLE))
    assert torch.equal(answers.variance, torch.full((4,), 0.25, dtype=DOUBLE))
    assert not answers.Y.requires_grad
    assert expert.num_failures == 0


def test_questions_are_not_the_experts_to_change():
    def vandal(questions, time):
        questions.zero_()
        return VALUES, 0.0

    questions = X.clone()
    assert torch.equal(GuardedExpert(vandal).answers(questions, 0).X, X)
    assert torch.equal(questions, X)
