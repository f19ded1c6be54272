"""Scores by loops are those of their formulas, also far below what is to be improved on."""

from dataclasses import dataclass

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torch_kbandits import use_compiled
from torch_kbandits.acquisition import ExpectedImprovementRule


@dataclass
class Known:
    """A posterior at some arms, as a rule reads it."""

    mean: torch.Tensor
    variance: torch.Tensor
    incumbent: torch.Tensor


def log_improvement(u: float, deviation: float) -> float:
    """Return log σ(φ(u) + u Φ(u)), with so many digits that nothing cancels."""
    with mpmath.workdps(60):
        density = mpmath.exp(-(mpmath.mpf(u) ** 2) / 2) / mpmath.sqrt(2 * mpmath.pi)
        below = mpmath.erfc(-mpmath.mpf(u) / mpmath.sqrt(2)) / 2
        return float(mpmath.log(deviation) + mpmath.log(density + u * below))


@given(st.lists(st.floats(-300.0, 40.0), min_size=1, max_size=6), st.floats(1e-3, 1e3), st.floats(-5.0, 5.0))
def test_log_expected_improvement_is_that_of_the_formula(improvements, deviation, best):
    u = torch.tensor(improvements, dtype=torch.float64)
    known = Known(best + deviation * u, torch.full_like(u, deviation**2), torch.tensor(best, dtype=torch.float64))
    with use_compiled(True):
        scores = ExpectedImprovementRule().on_arms(known, known.incumbent, 0)
    seen = ((known.mean - best) / deviation).tolist()
    expected = [log_improvement(each, deviation) for each in seen]
    # log Φ and log φ are of size u²/2 with as many roundings, and 1 − e^w, of size 1/u², is what they leave.
    rounding = 1e-13 + 1e-15 * min(float(u.abs().max()), 20.0) ** 4
    np.testing.assert_allclose(scores.numpy(), expected, rtol=1e-13, atol=rounding)


@pytest.mark.parametrize("u", [-0.999999, -1.0, -1.000001, -5.0, -35.0, -35.5, -1e3, -1e5, -9.9e5, -1.1e6, -1e9, 50.0])
def test_branches_meet_and_plain_scores_agree(u):
    mean = torch.tensor([u], dtype=torch.float64)
    known = Known(mean, torch.ones(1, dtype=torch.float64), torch.zeros((), dtype=torch.float64))
    scores = []
    for enabled in (True, False):
        with use_compiled(enabled):
            scores.append(float(ExpectedImprovementRule().on_arms(known, known.incumbent, 0)))
    # BoTorch's own loses u² roundings before it takes the logarithm.
    assert scores[0] == pytest.approx(scores[1], rel=1e-9, abs=1e-13)
