"""A precomputed covariance is looked up entry by entry, wherever GPyTorch puts the kernel; kernels come in batches."""

import numpy as np
import oracles
import pytest
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from problems import DOUBLE, data, difference, rbf, scaled
from torch import Tensor

from torch_kbandits import ForgettingKernel, InputError, NotPositiveDefiniteError, NystromGP, OnlineGP, WienerKernel
from torch_kbandits.kernels import GroupedKernel, PerActionLinearKernel, PrecomputedKernel, SpaceTimeKernel


def covariance(size: int = 6, rank: int | None = None) -> Tensor:
    root = np.random.default_rng(0).normal(size=(size, rank or size))
    return torch.tensor(root @ root.T, dtype=DOUBLE)


def points(*indices: float) -> Tensor:
    return torch.tensor(indices, dtype=DOUBLE).unsqueeze(-1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_entries_are_looked_up(dtype):
    table = covariance().to(dtype)
    kernel = PrecomputedKernel(table)
    rows, columns = [3, 0, 3, 5], [1, 5]
    A, B = points(*rows).to(dtype), points(*columns).to(dtype)
    values = kernel(A, B).to_dense()
    assert values.dtype == dtype
    assert values.tolist() == table[rows][:, columns].tolist()
    assert kernel(A).to_dense().tolist() == table[rows][:, rows].tolist()
    assert kernel(A, diag=True).tolist() == table.diagonal()[rows].tolist()
    assert kernel(A).diagonal().tolist() == table.diagonal()[rows].tolist()


def test_the_covariance_moves_is_saved_and_a_factor_around_it_can_be_learned():
    kernel = ScaleKernel(PrecomputedKernel(covariance())).double()
    single = ScaleKernel(PrecomputedKernel(covariance())).to(torch.float32)
    assert single(points(0, 1).float()).to_dense().dtype == torch.float32
    other = PrecomputedKernel(torch.eye(6, dtype=DOUBLE))
    other.load_state_dict(kernel.base_kernel.state_dict())
    assert torch.equal(other.covariance, covariance())
    kernel(points(0, 1)).to_dense().sum().backward()
    expected = covariance()[:2, :2].sum() * torch.sigmoid(kernel.raw_outputscale.detach())  # softplus' derivative
    assert float(kernel.raw_outputscale.grad) == pytest.approx(float(expected))


@pytest.mark.parametrize("make", [NystromGP, OnlineGP])
def test_posterior_of_sensors_in_a_context_is_the_dense_one(make):
    table, places = covariance(5), points(0, 3, 3, 4, 1, 2, 0)
    X, Y = torch.cat([places, data(7, 2)[0]], -1), data(7, 2)[1]
    kernel = scaled(PrecomputedKernel(table, active_dims=(0,)), 2.5) * rbf(0.4)
    kernel.kernels[1].active_dims = torch.tensor([1, 2])

    def dense(A, B):
        numbers = np.ix_(A[:, 0].astype(int), B[:, 0].astype(int))
        return 2.5 * table.numpy()[numbers] * oracles.rbf(0.4)(A[:, 1:], B[:, 1:])

    truth = oracles.exact(dense, X.numpy(), Y.squeeze(-1).numpy(), np.full(7, 0.3), X.numpy())
    given = {"regularization": 0.3} | ({"inducing_points": X} if make is NystromGP else {})
    posterior = make(X, Y, covar_module=kernel, **given).posterior(X)
    assert difference(posterior.mean.squeeze(-1), truth.mean) < 1e-8
    assert difference(posterior.mvn.covariance_matrix, truth.covariance) < 1e-8


# ---------------------------------------------------------------- batches

RATES = torch.tensor([0.1, 0.4], dtype=DOUBLE).view(2, 1, 1)
TWO = {"batch_shape": torch.Size([2])}
SENSOR, ACTION = {"active_dims": (0,)}, {"active_dims": (1, 2, 0)}
#: Kernels of batch shape (2,) and their members, on points whose first column is a sensor, an action or a time.
BATCHES = {
    "precomputed": lambda: (
        PrecomputedKernel(torch.stack([covariance(), 2.0 * covariance(rank=3)]), **SENSOR),
        [PrecomputedKernel(table, **SENSOR) for table in (covariance(), 2.0 * covariance(rank=3))],
    ),
    "precomputed, expanded": lambda: (
        PrecomputedKernel(covariance(), **TWO, **SENSOR),
        [PrecomputedKernel(covariance(), **SENSOR)] * 2,
    ),
    "per action": lambda: (
        PerActionLinearKernel(2, **TWO, **ACTION),
        [PerActionLinearKernel(2, **ACTION)] * 2,
    ),
    "forgetting": lambda: (
        ForgettingKernel(RATES, **TWO, **SENSOR),
        [ForgettingKernel(rate, **SENSOR) for rate in (0.1, 0.4)],
    ),
    "walk": lambda: (
        WienerKernel(RATES, -1.0, **TWO, **SENSOR),
        [WienerKernel(rate, -1.0, **SENSOR) for rate in (0.1, 0.4)],
    ),
    "grouped": lambda: (
        grouped([[0.4, 2.0], [0.8, 3.0]], **TWO),
        [grouped([0.4, 2.0]), grouped([0.8, 3.0])],
    ),
    "grouped, some columns": lambda: (
        grouped([[0.4, 2.0], [0.8, 3.0]], (1, 0), **TWO, active_dims=(2, 0)),
        [grouped(scales, (1, 0), active_dims=(2, 0)) for scales in ([0.4, 2.0], [0.8, 3.0])],
    ),
    "space and time": lambda: (
        SpaceTimeKernel(two_lengthscales(), ForgettingKernel(0.1)),
        [SpaceTimeKernel(ScaleKernel(rbf(length)).double(), ForgettingKernel(0.1)) for length in (0.4, 0.8)],
    ),
    "space and time, expanded": lambda: (
        SpaceTimeKernel(rbf(0.4), ForgettingKernel(0.1), **TWO, active_dims=(0, 2)),
        [SpaceTimeKernel(rbf(0.4), ForgettingKernel(0.1), active_dims=(0, 2))] * 2,
    ),
}
JOINT = torch.cat([points(0, 3, 3, 5, 1, 2), data(6, 2)[0]], -1)


def grouped(lengthscales, groups=(1, 0, 0), **words):
    kernel = GroupedKernel(MaternKernel(nu=2.5), groups, **words).double()
    kernel.lengthscale = torch.tensor(lengthscales, dtype=DOUBLE).unsqueeze(-2)
    return kernel


def two_lengthscales():
    base = RBFKernel(batch_shape=torch.Size([2])).double()
    base.lengthscale = torch.tensor([0.4, 0.8], dtype=DOUBLE).view(2, 1, 1)
    return ScaleKernel(base, batch_shape=torch.Size([2])).double()


def names_of_kernels(kernel):
    return [name for name, part in kernel.named_modules() if isinstance(part, Kernel)]


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_of_kernels_is_its_members(name):
    kernel, members = BATCHES[name]()
    assert kernel.batch_shape == (2,)
    assert kernel.double()(JOINT).shape == (2, 6, 6)
    values = kernel(JOINT, JOINT[:4]).to_dense()
    diagonal = kernel(JOINT, diag=True)
    assert diagonal.shape == (2, 6)
    assert kernel(JOINT.expand(3, 2, 6, 3)).to_dense().shape == (3, 2, 6, 6)
    for number, member in enumerate(members):
        expected = member.double()(JOINT, JOINT[:4]).to_dense()
        assert difference(values[number], expected) < 1e-12
        assert difference(diagonal[number], member(JOINT).to_dense().diagonal()) < 1e-12
    if kernel.active_dims is None:  # GPyTorch indexes and expands the names of columns too, of its own kernels as well
        assert kernel[1].batch_shape == ()
        assert difference(kernel[1](JOINT, JOINT[:4]).to_dense(), values[1]) < 1e-12
        assert names_of_kernels(kernel[1]) == names_of_kernels(kernel)
        assert kernel.expand_batch(torch.Size([3, 2]))(JOINT).to_dense().shape == (3, 2, 6, 6)


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize("make", [NystromGP, OnlineGP])
def test_two_outputs_are_two_models(name, make):
    kernel, members = BATCHES[name]()
    Y = torch.cat([data(6, 2)[1], data(6, 2, seed=1)[1]], -1)
    given = {"regularization": 0.3} | ({"inducing_points": JOINT} if make is NystromGP else {})
    both = make(JOINT, Y, covar_module=kernel.double(), **given).posterior(JOINT)
    for output, member in enumerate(members):
        one = make(JOINT, Y[:, [output]], covar_module=member.double(), **given).posterior(JOINT)
        assert difference(both.mean[:, [output]], one.mean) < 1e-8
        assert difference(both.variance[:, [output]], one.variance) < 1e-8


def test_rounding_is_tolerated():
    table = covariance(20, rank=5)  # singular: some eigenvalues come out below zero
    assert float(torch.linalg.eigvalsh(table).min()) < 1e-12
    lopsided = table.clone()
    lopsided[3, 7] += 1e-12
    for value in (table, lopsided, table.float(), torch.zeros(2, 2, dtype=DOUBLE)):
        kept = PrecomputedKernel(value).covariance
        assert torch.equal(kept, kept.mT)
        assert difference(kept, value) < 1e-11


LARGE = torch.tensor([[[1e9]], [[1.0]]]).expand(2, 2, 2) + torch.tensor([[0.0, 0.5], [0.0, 0.0]])


def test_what_is_no_covariance_and_no_arm_index_is_named():
    for table, message in (
        (torch.eye(3, dtype=torch.int64), "floating dtype"),
        (torch.ones(3, 2), r"\(A, A\)"),
        (torch.ones(0, 0), "A >= 1"),
        (torch.tensor([[1.0, float("nan")], [0.0, 1.0]]), "covariance must be finite"),
        (torch.tensor([[1.0, 0.5], [0.2, 1.0]]), "symmetric, entries differ by up to 0.3"),
        (LARGE, "entries differ"),
    ):
        with pytest.raises(InputError, match=message):
            PrecomputedKernel(table)
    with pytest.raises(NotPositiveDefiniteError, match="smallest eigenvalue is -1"):
        PrecomputedKernel(torch.tensor([[1.0, 2.0], [2.0, 1.0]], dtype=DOUBLE))
    for X, message in (
        (points(0.5), "whole numbers from 0 to 5, got 0.5"),
        (points(0.0, 6.0), "got 6.0"),
        (torch.zeros(2, 2, dtype=DOUBLE), "one column"),
        (torch.zeros(2, 1), "arm indices must have dtype torch.float64"),
    ):
        with pytest.raises(InputError, match=message):
            PrecomputedKernel(covariance())(X).to_dense()
