"""What limits are compared with plays as it says: within its candidates, towards the best that keeps the limit."""

import pytest
import torch
from problems import DOUBLE

from benchmarks.constrained_references import play

BOX = torch.tensor([[0.0, 0.0], [2.0, 1.0]], dtype=DOUBLE)
ARMS = torch.cartesian_prod(torch.linspace(0.0, 2.0, 9, dtype=DOUBLE), torch.linspace(0.0, 1.0, 9, dtype=DOUBLE))
FIRST = torch.tensor([[0.2, 0.2], [0.9, 0.1], [0.4, 0.9], [1.8, 0.8], [1.2, 0.4]], dtype=DOUBLE)


def objective(X):
    return X[:, 0] + X[:, 1]


def constraint(X):
    return (X**2).sum(-1)


@pytest.mark.parametrize("candidates", [pytest.param(BOX, marks=pytest.mark.slow), ARMS], ids=["box", "arms"])
def test_the_reference_comes_near_the_best_that_keeps_the_limit(candidates):
    """On the circle of radius 1 around 0 the sum is at most √2, on the arms that keep it 1.375."""
    state = torch.get_rng_state()
    X, f, c = play(objective, constraint, 1.0, candidates, 5, 0, FIRST)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(X[:5], FIRST)
    assert X.shape == (10, 2)
    assert torch.equal(f, objective(X))
    assert torch.equal(c, constraint(X))
    if candidates is ARMS:
        assert all((x == ARMS).all(-1).any() for x in X[5:])
    else:
        assert ((BOX[0] <= X) & (BOX[1] >= X)).all()
    kept = f[c <= 1.0]
    assert kept.max() > 1.3
    assert torch.equal(play(objective, constraint, 1.0, candidates, 1, 0, FIRST)[0], X[:6])
