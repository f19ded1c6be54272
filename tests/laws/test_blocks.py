"""How many points are handled at a time changes no posterior."""

import pytest
import torch
from problems import data, difference, matern, reward

from torch_kbandits import Arms, algorithms
from torch_kbandits.beliefs import features
from torch_kbandits.numerics.blocks import points_at_a_time
from torch_kbandits.numerics.compiled import use_compiled
from torch_kbandits.tables import columns, panels, store

CPU, GPU = torch.device("cpu"), torch.device("cuda", 1)


def test_few_points_at_a_time_on_a_cpu_and_as_many_as_memory_allows_on_a_gpu():
    assert points_at_a_time(CPU, 4096, 500) == 4096
    assert points_at_a_time(CPU, 0, 500) == 1
    assert points_at_a_time(GPU, 4096, 500) == 2**26 // 500
    assert points_at_a_time(GPU, 4096, 2**20) == 4096
    assert points_at_a_time(GPU, 4096, 0) == 2**26


@pytest.mark.parametrize("resampling", ["coupled", "growth"])
def test_posteriors_are_the_same_in_blocks_of_a_gpu(resampling, monkeypatch):
    arms = data(150, 2)[0]
    words = {"kernel": matern(0.4), "regularization": 0.02, "beta": 2.0, "seed": 0, "resampling": resampling}
    bandits = [algorithms.BKB(candidates=Arms(arms), **words) for _ in range(2)]
    with use_compiled(False):
        for _ in range(10):
            for bandit, device in zip(bandits, (CPU, GPU), strict=True):
                for module in (features, columns, panels, store):
                    monkeypatch.setattr(
                        module, "points_at_a_time", lambda *given, at=device: points_at_a_time(at, 7, given[2])
                    )
                x = bandit.ask()
                bandit.tell(x, reward(x))
            assert torch.equal(bandits[0].history.X, bandits[1].history.X)
            one, other = (bandit._belief.moments(arms) for bandit in bandits)
            assert max(difference(*both) for both in zip(one, other, strict=True)) < 1e-10
