"""What is taken for true may change during a run: what was learned is learned anew, and what is pending stays."""

import oracles
import pytest
import torch
from problems import DOUBLE, data, dense, difference, matern, rbf, reward

from torch_kbandits import Arms, Bandit, Box, ConstantWidth, ContextualActions, Prior
from torch_kbandits.bandit.pieces import Hypothesis
from torch_kbandits.bandit.relearning import relearned
from torch_kbandits.dictionaries import GreedyDictionary
from torch_kbandits.memory import Discount, KeepAll, SlidingWindow

ARMS, _ = data(30, 2)
SPACES = {
    "arms": Arms(ARMS),
    "box": Box(torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE), num_restarts=1, raw_samples=4),
    "actions": ContextualActions(ARMS, context_dim=0),
}
#: And the noise variance of observations of these ages, in units of the least.
MEMORIES = {"all": (KeepAll(), lambda ages: 0.0 * ages + 1.0), "ageing": (Discount(0.7), lambda ages: 0.7**-ages)}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("dictionary", [None, GreedyDictionary(4)], ids=["exact", "dictionary"])
@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("space", SPACES)
def test_a_run_goes_on_under_another_kernel_noise_and_memory(space, memory, dictionary):
    bandit = Bandit(
        candidates=SPACES[space], kernel=rbf(0.3), regularization=0.1, dictionary=dictionary, width=ConstantWidth(1.0),
        memory=SlidingWindow(2.0), seed=0,
    )  # fmt: skip
    for row in range(6):
        bandit.tell(ARMS[row, None], reward(ARMS[row, None]))
    bandit.ask(2)
    pending, ids = bandit.pending, bandit.pending_ids
    rule, noise = MEMORIES[memory]
    after = relearned(bandit._pieces, bandit._standing, Hypothesis(Prior(matern(0.5), 0.3), rule))
    assert bandit.memory == SlidingWindow(2.0)
    bandit._become(after)
    assert bandit.memory == rule
    assert torch.equal(bandit.pending, pending)
    assert bandit.pending_ids == ids
    for row in (6, 7):
        ages = float(row) - bandit.history.times.numpy()
        weights = noise(ages)
        assert difference(bandit.weights, 1.0 / weights) < 1e-12
        told = dense(bandit.history.X, bandit.history.Y)
        belief, kernel = bandit._belief, oracles.matern52(0.5, 1.7)
        if dictionary is None:
            wanted = oracles.exact(kernel, *told, 0.3 * weights, ARMS.numpy())
        else:
            wanted = oracles.dtc(kernel, *told, 0.3 * weights, *dense(bandit.inducing_points, ARMS))
        mean, variance = belief.moments(ARMS)
        assert difference(mean, wanted.mean) < wanted.rounding
        assert difference(variance, wanted.variance) < wanted.rounding
        bandit.tell(ARMS[row, None], reward(ARMS[row, None]))
