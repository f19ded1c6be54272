"""Kernels on a column of time against their formulas, alone and times a kernel on space."""

import hypothesis.strategies as st
import numpy as np
import oracles
import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.constraints import Interval, Positive
from gpytorch.kernels import RBFKernel
from gpytorch.means import ZeroMean
from hypothesis import given
from problems import DOUBLE, difference, exactly

from torch_kbandits import ForgettingKernel, InputError, NystromGP, OnlineGP, WienerKernel

TIMES = st.lists(st.floats(0.0, 100.0), min_size=1, max_size=8)


def column(values):
    return torch.tensor(values, dtype=DOUBLE).unsqueeze(-1)


def forgetting_oracle(epsilon):
    return lambda A, B: (1.0 - epsilon) ** (np.abs(A - B.T) / 2.0)


def wiener_oracle(rate, origin):
    return lambda A, B: rate * (np.minimum(A, B.T) - origin)


KERNELS = [
    (lambda **kwargs: ForgettingKernel(0.03, **kwargs), forgetting_oracle(0.03)),
    (lambda **kwargs: WienerKernel(0.7, origin=-2.0, **kwargs), wiener_oracle(0.7, -2.0)),
]
both = pytest.mark.parametrize(("make", "oracle"), KERNELS, ids=["forgetting", "wiener"])


@both
@given(first=TIMES, second=TIMES)
def test_kernels_are_the_formulas_and_covariances(make, oracle, first, second):
    kernel, A, B = make(), column(first), column(second)
    assert difference(kernel(A, B).to_dense(), oracle(A.numpy(), B.numpy())) < 1e-12
    gram = kernel(A).to_dense().detach()
    assert difference(kernel(A, diag=True), np.diag(oracle(A.numpy(), A.numpy()))) < 1e-12
    assert torch.equal(gram, gram.mT)
    assert float(torch.linalg.eigvalsh(gram).min()) > -1e-12 * (1.0 + float(gram.diagonal().sum()))


@both
def test_batches_and_precisions(make, oracle):
    A = torch.stack([column([0.0, 1.0]), column([3.0, 3.0])])
    expected = oracle(A[1].numpy(), A[1].numpy())
    assert difference(make()(A).to_dense()[1], expected) < 1e-12
    for kernel in (make(), make().float()):  # inputs say in which precision the covariance is
        gram = kernel(A[1].float()).to_dense()
        assert gram.dtype == torch.float32
        assert difference(gram, expected) < 1e-5
    batched = make(batch_shape=torch.Size([2]))
    name = "forgetting" if isinstance(batched, ForgettingKernel) else "rate"
    setattr(batched, name, torch.tensor([0.0, 0.5], dtype=DOUBLE).reshape(2, 1, 1))
    assert getattr(batched, name).flatten().tolist() == [0.0, 0.5]
    still, dense = torch.full((2, 2), float(name == "forgetting"), dtype=DOUBLE), batched(A[0]).to_dense()
    assert torch.equal(dense[0], still)
    assert not torch.equal(dense[1], still)
    assert difference(batched(A, diag=True), batched(A).to_dense().diagonal(dim1=-2, dim2=-1)) < 1e-12
    assert difference(batched[1](A[0]).to_dense(), dense[1]) < 1e-12


def test_hyperparameters_are_kept_exactly():
    kernel = ForgettingKernel(0.03)
    assert kernel.forgetting.item() == 0.03  # 0.03 in single precision is another number
    kernel.forgetting = 0.7
    assert kernel.forgetting.item() == 0.7
    walk = WienerKernel(0.1)
    assert walk.rate.item() == 0.1
    walk.initialize(rate=exactly(0.3))
    assert walk.rate.item() == 0.3
    mapped = ForgettingKernel(0.03, forgetting_constraint=Interval(0.0, 1.0))
    assert mapped.forgetting.item() == pytest.approx(0.03, rel=1e-14)
    assert WienerKernel(0.1, rate_constraint=Positive()).rate.item() == pytest.approx(0.1, rel=1e-14)


@both
def test_gradients(make, oracle):
    kernel = make()
    A = column([0.5, 1.7, 4.0]).requires_grad_()
    B = column([0.2, 2.2]).requires_grad_()
    assert torch.autograd.gradcheck(lambda A, B: kernel(A, B).to_dense(), (A, B))
    ((name, parameter),) = kernel.named_parameters()

    def at(value):
        return torch.func.functional_call(kernel, {name: value}, (A.detach(), B.detach())).to_dense()

    assert torch.autograd.gradcheck(at, (parameter.detach().clone().requires_grad_(),))


def test_gradients_exist_where_times_agree_and_where_nothing_is_forgotten():
    T = column([1.0, 1.0, 2.0]).requires_grad_()
    for kernel in (ForgettingKernel(0.0), ForgettingKernel(0.3), WienerKernel(0.0), WienerKernel(2.0)):
        (parameter,) = kernel.parameters()
        of_times, of_parameter = torch.autograd.grad(kernel(T, T.clone()).to_dense().sum(), (T, parameter))
        assert bool(of_times.isfinite().all())
        assert bool(of_parameter.isfinite().all())
        assert float(of_parameter.abs()) > 0.0  # so that learning can leave the end of the range


def spacetime(n=25, seed=0):
    generator = np.random.default_rng(seed)
    X = np.column_stack([generator.uniform(size=(n, 2)), np.sort(generator.uniform(0.0, 20.0, size=n))])
    y = np.sin(5.0 * X[:, 0] + 0.2 * X[:, 2]) + 0.1 * generator.normal(size=n)
    return torch.tensor(X), torch.tensor(y).unsqueeze(-1)


def spatial():
    kernel = RBFKernel(active_dims=(0, 1)).double()
    kernel.lengthscale = exactly(0.4)
    return kernel


def tv_oracle(epsilon):
    space = oracles.rbf(0.4)
    return lambda A, B: space(A[:, :2], B[:, :2]) * forgetting_oracle(epsilon)(A[:, 2:], B[:, 2:])


def drift_oracle(A, B):
    return oracles.rbf(0.4)(A[:, :2], B[:, :2]) * (1.0 + wiener_oracle(0.2, 0.0)(A[:, 2:], B[:, 2:]))


@pytest.mark.parametrize(
    ("kernel", "oracle"),
    [
        (lambda: ForgettingKernel(0.05, active_dims=(2,)) * spatial(), tv_oracle(0.05)),
        (lambda: spatial() + WienerKernel(0.2, active_dims=(2,)) * spatial(), drift_oracle),
    ],
    ids=["forgetting", "wiener"],
)
def test_posteriors_of_space_and_time_are_the_dense_ones(kernel, oracle):
    X, Y = spacetime()
    T, words = torch.cat([X[:3], X[5:9] + 0.1]), {"covar_module": kernel(), "regularization": 0.1}
    single = {"covar_module": kernel(), "mean_module": ZeroMean(), "outcome_transform": None}
    data = oracle, X.numpy(), Y.squeeze(-1).numpy(), np.full(len(X), 0.1)
    exact, dtc = oracles.exact(*data, T.numpy()), oracles.dtc(*data, X[::3].numpy(), T.numpy())
    for model, truth in (
        (SingleTaskGP(X, Y, torch.full_like(Y, 0.1), **single), exact),
        (OnlineGP(X, Y, **words), exact),
        (NystromGP(X, Y, inducing_points=X, **words), exact),
        (NystromGP(X, Y, inducing_points=X[::3], **words), dtc),
    ):
        posterior = model.posterior(T)
        assert difference(posterior.mean.squeeze(-1), truth.mean) < truth.rounding
        assert difference(posterior.mvn.covariance_matrix, truth.covariance) < truth.rounding


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: WienerKernel()(column([1.0, -0.5])).to_dense(), "origin 0 and 1 times are before it or NaN"),
        (lambda: WienerKernel()(column([1.0]), column([float("nan")])).to_dense(), "before it or NaN"),
        (lambda: ForgettingKernel()(torch.zeros(3, 2, dtype=DOUBLE)).to_dense(), r"takes one column.*active_dims"),
        (lambda: WienerKernel()(torch.zeros(3, 2, dtype=DOUBLE)).to_dense(), r"takes one column.*active_dims"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
