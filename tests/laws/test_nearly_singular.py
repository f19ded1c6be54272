"""Dictionaries whose Gram matrix is singular to rounding, though no two of their points are equal."""

import pytest

from torch_kbandits import algorithms
from torch_kbandits.environments.anchors import chessboard
from torch_kbandits.experiments.loop import play


@pytest.mark.slow
def test_no_more_is_explained_than_there_is():
    """In round 375 the smallest eigenvalue is 1e-16, and without a jitter 5 times the prior variance was explained."""
    environment = chessboard(seed=0)
    settings = {"regularization": 1.0, "beta": 0.1, "candidates": environment.actions, "context_dim": 1, "seed": 0}
    bandit = algorithms.CBKB(kernel=environment.kernel, **settings)
    play(bandit, environment, 400)
    assert bandit.round == 400
