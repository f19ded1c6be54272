"""A choice has one length scale, however many columns it is encoded in."""

import math

import numpy as np
import oracles
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel
from gpytorch.priors import GammaPrior
from problems import DOUBLE, data, dense, difference

from torch_kbandits import Categorical, Float, InputError, ParameterSpace, fit_prior
from torch_kbandits.kernels import GroupedKernel

SCALES = (0.7, 0.4, 1.9)
GROUPS = (0, 1, 1, 1, 1, 2)


def kernel(base=None, scales=SCALES, groups=GROUPS):
    made = GroupedKernel(MaternKernel(nu=2.5) if base is None else base, groups).double()
    made.lengthscale = torch.tensor(scales, dtype=DOUBLE)
    return made


def oracle(A, B):
    """Matérn 5/2 of columns divided one by one."""
    lengths = np.array([SCALES[group] for group in GROUPS])
    return oracles.matern52(1.0)(A / lengths, B / lengths)


def test_columns_are_divided_by_the_scales_of_their_groups():
    A, B = data(7, 6)[0], data(5, 6, seed=1)[0]
    made = kernel()
    assert made.lengthscale.shape == (1, 3)
    assert made.groups == GROUPS
    with torch.no_grad():
        assert difference(made(A, B).to_dense(), oracle(*dense(A, B))) < 1e-13
        assert difference(made(A, diag=True), np.ones(7)) < 1e-15
        one_each = kernel(RBFKernel(), (0.3, 0.5, 0.2, 0.9, 0.4, 1.1), range(6))
        ard = RBFKernel(ard_num_dims=6).double()
        ard.lengthscale = one_each.lengthscale.detach()
        assert difference(one_each(A, B).to_dense(), ard(A, B).to_dense()) < 1e-14


def test_between_encodings_of_choices_it_is_the_kernel_on_hamming_distances():
    flags = Categorical([False, True])
    space = ParameterSpace({"x": Float(0.0, 1.0), "c": Categorical(["a", "b", "c", "d"]), "flag": flags})
    X = space.sample(12, torch.Generator().manual_seed(0))
    values = space.decode(X)

    def squared(a, b):
        parts = (a["x"] - b["x"], a["c"] != b["c"], a["flag"] != b["flag"])
        return sum((part / scale) ** 2 for part, scale in zip(parts, SCALES, strict=True))

    root = np.sqrt(5.0 * np.array([[squared(a, b) for b in values] for a in values]))
    with torch.no_grad():
        assert difference(kernel()(X).to_dense(), (1.0 + root + root**2 / 3.0) * np.exp(-root)) < 1e-13


def test_it_is_positive_semidefinite_between_encodings_too_and_has_the_gradients_of_the_formula():
    X = torch.cat([data(40, 6)[0], torch.eye(6, dtype=DOUBLE) * math.sqrt(0.5)])
    for base in (MaternKernel(nu=2.5), MaternKernel(nu=0.5), RBFKernel()):
        assert float(torch.linalg.eigvalsh(kernel(base)(X).to_dense().detach()).min()) > -1e-13
    (A, _), (B, _), made = data(3, 6), data(2, 6, seed=1), kernel()

    def at(points, raw):
        return torch.func.functional_call(made, {"raw_lengthscale": raw}, (points, B)).to_dense()

    given = A.requires_grad_(), made.raw_lengthscale.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(at, given)
    for groups in ((), (1, 2), (0, 2), (0, -1), (0, 0.5)):
        with pytest.raises(InputError, match="groups must"):
            GroupedKernel(RBFKernel(), groups)


def test_a_fit_moves_its_scales_and_not_that_of_the_base():
    X, Y = data(20, 6)
    given = RBFKernel()
    made = GroupedKernel(given, GROUPS, lengthscale_prior=GammaPrior(3.0, 6.0)).double()
    fitted = fit_prior(X, Y[:, 0], made).kernel.base_kernel
    assert not torch.allclose(fitted.lengthscale, made.lengthscale)
    assert float(fitted.base_kernel.lengthscale) == 1.0
    assert float(given.lengthscale.detach()) != 1.0
