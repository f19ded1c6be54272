"""Kernels come back from a file as they were, or are refused."""

import gpytorch
import pytest
import torch
from botorch.models.kernels import CategoricalKernel
from botorch.models.utils.gpytorch_modules import (
    get_covar_module_with_dim_scaled_prior,
    get_matern_kernel_with_gamma_prior,
)
from gpytorch.constraints import GreaterThan, Interval, LessThan, Positive
from gpytorch.kernels import (
    ConstantKernel,
    CosineKernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    PiecewisePolynomialKernel,
    PolynomialKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
    SpectralMixtureKernel,
)
from gpytorch.priors import GammaPrior, NormalPrior, UniformPrior
from problems import DOUBLE, data, rbf

from torch_kbandits import Bandit, ForgettingKernel, StateMismatchError, WienerKernel, algorithms
from torch_kbandits.bandit.saving.kernels import describe, rebuild
from torch_kbandits.bandit.state import describe_kernel
from torch_kbandits.kernels import GroupedKernel, PerActionLinearKernel, PrecomputedKernel, SpaceTimeKernel
from torch_kbandits.numerics.gram import gram

X = data(12, 3)[0]


def nested():
    time = WienerKernel(0.3, origin=-1.0, active_dims=(2,)) + ForgettingKernel(0.2, active_dims=(2,))
    space = MaternKernel(nu=1.5, ard_num_dims=2, active_dims=(0, 1)) * PeriodicKernel(active_dims=(1,))
    return ScaleKernel(space) * time + LinearKernel(variance_constraint=GreaterThan(0.01))


def frozen():
    kernel = ScaleKernel(RBFKernel(ard_num_dims=3))
    kernel.base_kernel.raw_lengthscale.requires_grad_(False)
    return kernel.eval()


def shared():
    part = rbf(0.3)
    return ScaleKernel(part) + part


KERNELS = {
    "rbf": lambda: RBFKernel(),
    "ard": lambda: RBFKernel(ard_num_dims=3, lengthscale_constraint=Interval(0.01, 5.0)),
    "single precision": lambda: ScaleKernel(RBFKernel(ard_num_dims=3)).float(),
    "matern": lambda: MaternKernel(nu=0.5, active_dims=(2, 0)),
    "periodic": lambda: PeriodicKernel(period_length_prior=GammaPrior(2.0, 3.0)),
    "rational quadratic": lambda: RQKernel(alpha_constraint=Positive(transform=torch.exp, inv_transform=torch.log)),
    "linear": lambda: LinearKernel(ard_num_dims=3, variance_prior=NormalPrior(1.0, 0.3)),
    "polynomial": lambda: PolynomialKernel(power=3, offset_prior=UniformPrior(0.0, 2.0)),
    "cosine": lambda: CosineKernel(),
    "constant": lambda: ConstantKernel() + RBFKernel(),
    "piecewise polynomial": lambda: PiecewisePolynomialKernel(q=1),
    "less than": lambda: RBFKernel(lengthscale_constraint=LessThan(4.0)),
    "spectral mixture": lambda: SpectralMixtureKernel(num_mixtures=2, ard_num_dims=3),
    "botorch's": lambda: get_covar_module_with_dim_scaled_prior(ard_num_dims=3),
    "botorch's old": lambda: get_matern_kernel_with_gamma_prior(ard_num_dims=3),
    "categories": lambda: RBFKernel(active_dims=(0, 1)) * CategoricalKernel(active_dims=(2,), ard_num_dims=1),
    "space and time": lambda: SpaceTimeKernel(RBFKernel(ard_num_dims=2), ForgettingKernel(0.03)),
    "grouped": lambda: ScaleKernel(
        GroupedKernel(MaternKernel(nu=1.5), (0, 1, 1), lengthscale_prior=GammaPrior(3.0, 6.0), active_dims=(2, 0, 1))
    ),
    "per action": lambda: PerActionLinearKernel(2),
    "nested": nested,
    "frozen": frozen,
    "shared": shared,
}


def saved_and_loaded(kernel, folder):
    bandit = algorithms.GPUCB(candidates=X, kernel=kernel, regularization=0.05, beta=1.0, seed=0)
    bandit.save(folder / "bandit.kb")
    return Bandit.load(folder / "bandit.kb").prior.kernel


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_comes_back(name, tmp_path):
    kernel = KERNELS[name]()
    if name != "single precision":
        kernel = kernel.double()
    generator = torch.Generator().manual_seed(1)
    for parameter in kernel.parameters():  # numbers that no constructor gives
        parameter.data += 0.1 * torch.rand(parameter.shape, generator=generator).to(parameter)
    loaded = saved_and_loaded(kernel, tmp_path)
    assert type(loaded) is type(kernel)
    assert describe_kernel(loaded) == describe_kernel(kernel)
    ours, theirs = loaded.state_dict(), kernel.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) and ours[key].dtype == theirs[key].dtype for key in theirs)
    assert [p.requires_grad for p in loaded.parameters()] == [p.requires_grad for p in kernel.parameters()]
    assert loaded.training == kernel.training
    points = X.to(next(kernel.parameters()).dtype) if name != "per action" else X
    with torch.no_grad():
        assert torch.equal(gram(loaded, points, points), gram(kernel, points, points))
    names = [name for name, *_ in kernel.named_priors()]
    assert [name for name, *_ in loaded.named_priors()] == names
    for (_, _, ours, *_), (_, _, theirs, *_) in zip(loaded.named_priors(), kernel.named_priors(), strict=True):
        at = torch.tensor(0.7, dtype=DOUBLE)
        assert torch.equal(ours.log_prob(at), theirs.log_prob(at))


def test_a_loaded_kernel_is_fitted_like_the_one_saved(tmp_path):
    """Constraints and the paths from hyperparameters to priors are there, not only the numbers."""
    kernel = get_covar_module_with_dim_scaled_prior(ard_num_dims=3).double()
    loaded = saved_and_loaded(kernel, tmp_path)
    for each in (kernel, loaded):
        each.lengthscale = torch.tensor([[0.5, 0.6, 0.7]], dtype=DOUBLE)
    assert torch.equal(loaded.raw_lengthscale, kernel.raw_lengthscale)
    ours, theirs = (
        [prior.log_prob(closure(module)).sum() for _, module, prior, closure, _ in each.named_priors()]
        for each in (loaded, kernel)
    )
    assert ours == theirs


SENSORS = torch.arange(6, dtype=DOUBLE).unsqueeze(-1)


def covariance():
    root = data(6, 6)[0]
    return root @ root.mT


@pytest.mark.parametrize("in_context", [False, True])
def test_a_covariance_matrix(in_context, tmp_path):
    kernel, arms = ScaleKernel(PrecomputedKernel(covariance())).double(), SENSORS
    if in_context:
        kernel = ScaleKernel(PrecomputedKernel(covariance(), active_dims=(0,)) * RBFKernel(active_dims=(1,))).double()
        arms = torch.cat([arms, X[:6, :1]], -1)
    bandit = algorithms.BKB(candidates=arms, kernel=kernel, regularization=0.05, beta=1.0, seed=0)
    bandit.tell(bandit.ask(), 0.3)
    bandit.save(tmp_path / "bandit.kb")
    loaded = Bandit.load(tmp_path / "bandit.kb")
    assert torch.equal(gram(loaded.prior.kernel, arms, arms), gram(kernel, arms, arms))
    assert torch.equal(loaded.ask(), bandit.ask())


def sensors(table):
    arms = torch.arange(len(table), dtype=DOUBLE).unsqueeze(-1)
    kernel = PrecomputedKernel(table)
    return algorithms.BKB(candidates=arms, kernel=kernel, regularization=0.05, beta=1.0, seed=0)


def test_a_covariance_matrix_is_written_once(tmp_path):
    root = data(100, 100)[0]
    sensors(root @ root.mT).save(tmp_path / "bandit.kb")
    assert (tmp_path / "bandit.kb").stat().st_size < 1.2 * 8 * 100**2


def test_another_covariance_matrix_is_refused_in_few_words():
    """A fingerprint says that numbers differ, whichever; small tensors are told apart by their numbers."""
    root = data(30, 30)[0]
    table = root @ root.mT
    other = table.clone()
    other[7, 7] = torch.nextafter(other[7, 7], other[0, 0] + 1e3)
    state = sensors(table).state_dict()
    sensors(table.clone()).load_state_dict(state)
    with pytest.raises(StateMismatchError, match=r"kernel.covariance: saved \(30, 30\) numbers.*here") as caught:
        sensors(other).load_state_dict(state)
    assert len(str(caught.value)) < 500
    with pytest.raises(StateMismatchError, match=r"kernel.covariance: saved \[\[2\.0.*here \[\[3\.0"):
        sensors(3.0 * torch.eye(2, dtype=DOUBLE)).load_state_dict(
            sensors(2.0 * torch.eye(2, dtype=DOUBLE)).state_dict()
        )


def test_batches_of_kernels_come_back():
    two = torch.Size([2])
    for kernel in (
        PrecomputedKernel(torch.stack([covariance(), 2.0 * covariance()]), active_dims=(0,)),
        PerActionLinearKernel(1, batch_shape=two, active_dims=(0, 2)),
        SpaceTimeKernel(RBFKernel(batch_shape=two), ForgettingKernel(0.1), active_dims=(2, 1)).double(),
        SpaceTimeKernel(RBFKernel(), ForgettingKernel(0.1), batch_shape=two).double(),
    ):
        points = torch.cat([SENSORS, X[:6, :2]], -1)
        loaded = rebuild(describe(kernel, points))
        assert loaded.batch_shape == two
        assert torch.equal(gram(loaded, points), gram(kernel, points))


def with_attribute():
    kernel = rbf(0.3)
    kernel.power = 2
    return kernel


def with_transform():
    return RBFKernel(
        lengthscale_constraint=Positive(transform=lambda x: x.exp(), inv_transform=lambda x: x.log())
    ).double()


def with_prior():
    kernel = rbf(0.3)
    kernel.register_prior("own", NormalPrior(0.0, 1.0), lambda module: module.lengthscale)
    return kernel


class Halved(gpytorch.kernels.Kernel):
    def forward(self, x1, x2, diag=False, **params):
        return 0.5 * rbf(0.3)(x1, x2, diag=diag).to_dense()


NOT_KNOWN = {
    "attribute": (with_attribute, r"\['kernel.power'\] of the RBFKernel are not what its constructor gives"),
    "transform": (with_transform, "a constraint has a transform of its own"),
    "prior": (with_prior, "the RBFKernel made again has other parameters"),
    "class": (lambda: Halved() + rbf(0.3), "kernels of the class Halved are not known"),
}


@pytest.mark.parametrize("what", NOT_KNOWN)
def test_a_kernel_that_would_come_back_as_another_is_refused(what, tmp_path):
    build, message = NOT_KNOWN[what]
    with pytest.raises(StateMismatchError, match=message):
        saved_and_loaded(build(), tmp_path)
    twin = algorithms.GPUCB(candidates=X, kernel=build(), regularization=0.05, beta=1.0, seed=0)
    assert Bandit.load(tmp_path / "bandit.kb", into=twin) is twin
