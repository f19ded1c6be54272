"""Dictionaries whose Gram matrix is singular to rounding, though no two of their points are equal."""

import pytest
import torch
from problems import DOUBLE, rbf

from torch_kbandits import algorithms
from torch_kbandits.environments.anchors import chessboard
from torch_kbandits.experiments.loop import play
from torch_kbandits.numerics.gram import gram
from torch_kbandits.posteriors.dtc import DTCFactors


def test_no_dictionary_explains_more_than_there_is():
    """Dictionaries crowd on three lines: seen is 1e-15 too much, and without a jitter 5e-6."""
    T, kernel = torch.rand(300, 2, dtype=DOUBLE), rbf(0.2).requires_grad_(False)
    T[:, 1] = (3.0 * T[:, 1]).floor() / 3.0
    for size in range(15, 65):
        Z = T[torch.randperm(len(T))[:size]]
        cross_gram = gram(kernel, Z, T)
        factors = DTCFactors.fit(gram(kernel, Z), cross_gram, T[:, 0], T.new_ones(1))
        assert factors.embed(cross_gram).square().sum(0).max() < 1.0 + 1e-12


@pytest.mark.slow
def test_no_more_is_explained_than_there_is():
    """In round 375 the smallest eigenvalue is 1e-16, and without a jitter 5 times the prior variance was explained."""
    environment = chessboard(seed=0)
    settings = {"regularization": 1.0, "beta": 0.1, "candidates": environment.actions, "context_dim": 1, "seed": 0}
    bandit = algorithms.CBKB(kernel=environment.kernel, **settings)
    play(bandit, environment, 400)
    assert bandit.round == 400
