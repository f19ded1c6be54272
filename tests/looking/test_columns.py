"""What was told, as columns of a data frame."""

import math

import pandas as pd
import pytest
import torch
from problems import DOUBLE, data, rbf

from torch_kbandits import Categorical, Float, LearnedPrior, ParameterSpace, algorithms
from torch_kbandits.looking import history_columns
from torch_kbandits.memory import BackToPrior, Discount

ARMS = data(9, 2)[0]


def told(candidates, contexts=False, **words):
    words = {"kernel": rbf(), "regularization": 0.1} | words
    bandit = algorithms.EKUCB(candidates=candidates, beta=2.0, seed=0, outcomes=["cost"], **words)
    for turn in range(3):
        context = {"context": torch.tensor([0.1 * turn], dtype=DOUBLE)} if contexts else {}
        x = bandit.ask(**context)
        if turn == 1:
            bandit.tell(x, failed=True, **context)
        else:
            bandit.tell(x, float(turn), outcomes={"cost": 2.0} if turn else None, **context)
    return bandit


@pytest.mark.parametrize("memory", [None, Discount(0.5), BackToPrior(0.1)], ids=["none", "discount", "prior"])
def test_a_row_for_each_play(memory):
    bandit = told(ARMS, memory=memory)
    frame = pd.DataFrame(history_columns(bandit))
    own = ["time"] if memory is not None else []
    assert list(frame.columns) == ["round", *own, "x0", "x1", "reward", "failed", "cost", "weight"]
    assert frame["failed"].tolist() == [False, True, False]
    assert frame["reward"].tolist()[::2] == [0.0, 2.0]
    assert math.isnan(frame["reward"][1])
    assert frame["cost"].isna().tolist() == [True, True, False]
    points = torch.tensor(frame[["x0", "x1"]].to_numpy())
    assert torch.equal(points, bandit.candidates.actions(bandit.history.X))
    assert frame["weight"].tolist() == bandit.weights.tolist()


def test_contexts_and_parameters_by_name():
    space = ParameterSpace({"power": Float(0.0, 1.0), "mode": Categorical(["slow", "fast"])})
    frame = pd.DataFrame(history_columns(told(space, kernel=None, regularization=None, prior=LearnedPrior())))
    assert set(frame["mode"]) <= {"slow", "fast"}
    assert {"power", "reward", "cost"} <= set(frame.columns)
    frame = pd.DataFrame(history_columns(told(ARMS, contexts=True, context_dim=1)))
    assert frame["x0"].tolist() == pytest.approx([0.0, 0.1, 0.2])
    assert len(frame.columns) == 8
    twice = history_columns(told(ParameterSpace({"reward": Float(0.0, 1.0)})))
    assert [name for name in twice if name.startswith("reward")] == ["reward", "reward.2"]
