"""What judges the package is itself judged: in extended precision, and by defects that its tolerances must show."""

import extended
import numpy as np
import oracles
import pytest
from problems import KERNELS, data, dense

N, T = 50, data(30, 2, seed=1)[0].numpy()
X, Y = dense(*data(N, 2))
y = Y[:, 0]


def posterior(kernel, m, noise):
    """The exact posterior, or that of the first m points."""
    formula, variances = KERNELS[kernel].dense, np.full(N, noise)
    return oracles.exact(formula, X, y, variances, T) if m is None else oracles.dtc(formula, X, y, variances, X[:m], T)


@pytest.mark.parametrize("m", [5, 20, 50])
@pytest.mark.parametrize("kernel", ["rbf", "matern"])
def test_the_dense_formula_is_far_nearer_to_the_truth_than_its_tolerance(kernel, m):
    """The fifty points of the smooth kernel have a condition number of 2e12."""
    ours = posterior(kernel, m, 0.01)
    truth = extended.dtc(KERNELS[kernel].dense, X, y, 0.01, X[:m], T)
    for name in ("mean", "variance", "covariance"):
        assert np.abs(getattr(ours, name) - getattr(truth, name)).max() < 0.01 * ours.rounding, name


@pytest.mark.parametrize("kernel", ["rbf", "matern"])
@pytest.mark.parametrize("m", [None, 5, 10, 20])
@pytest.mark.parametrize("noise", [0.01, 0.1])
def test_a_noise_variance_that_is_off_by_one_percent_shows(kernel, m, noise):
    right, wrong = posterior(kernel, m, noise), posterior(kernel, m, 1.01 * noise)
    for name in ("mean", "variance"):
        assert np.abs(getattr(right, name) - getattr(wrong, name)).max() > 30.0 * right.rounding, name
