"""What a bandit no longer needs goes at once, whatever it is made of, and not only when Python looks for it."""

import pytest
from garbage import left_by
from problems import data, rbf, reward
from product import drawn, played

from torch_kbandits import algorithms

pytestmark = [pytest.mark.filterwarnings("ignore::torch_kbandits.TheoryWarning")]


@pytest.mark.usefixtures("short_searches")
@pytest.mark.filterwarnings("ignore:Negative variance values")
@pytest.mark.filterwarnings("ignore:'heat' is to be kept safely under a prior that was fitted")
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 13))])
def test_whatever_is_played_nothing_holds_itself(seed, tmp_path):
    left = [(each, left_by(lambda it=each: played(it, tmp_path))) for each in drawn(2_000 + seed, 6)]
    assert [(each, names) for each, names in left if names] == []


def test_long_runs_in_contexts_leave_nothing():
    """Where rounds are played in arrays, and now and then a point is offered to the dictionary."""
    actions, contexts = data(20, 1, 1)[0], data(60, 1, 2)[0]
    words = {"candidates": actions, "context_dim": 1, "kernel": rbf(0.3), "regularization": 0.01, "beta": 1.5}
    bandit = algorithms.build("ek-ucb", **words, seed=0)

    def rounds():
        for context in contexts:
            x = bandit.ask(context=context)
            bandit.tell(x, reward(x), context=context)

    assert left_by(rounds) == []
