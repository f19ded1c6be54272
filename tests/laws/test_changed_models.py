"""Models whose parts are changed after a first prediction: the posterior is that of a model made as they are now."""

import copy
from functools import partial

import numpy as np
import oracles
import pytest
import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.models.transforms import Normalize, Standardize
from botorch.models.transforms import input as transforms
from botorch.models.transforms.input import InputPerturbation, Warp
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.means import ConstantMean
from problems import DOUBLE, data, dense, difference, rbf
from torch.nn.functional import one_hot

from torch_kbandits import InputError, KernelUCB, NystromGP, OnlineGP, UncertaintyInjectionLikelihood
from torch_kbandits.memory import LinearGrowth

X, Y = data(14, 2)
MORE = torch.cat([X, 3.0 * X[:4]])
T = torch.cat([X[:3], data(5, 2, seed=1)[0]])
KINDS = ["online", "nystrom", "several outputs", "pending", "conditioned"]


def kernel():
    found = ScaleKernel(MaternKernel(nu=2.5)).double()
    found.base_kernel.lengthscale = 0.4
    return found


def make(kind, inputs=X, **words):
    outputs = torch.sin(5.0 * inputs.sum(-1, keepdim=True)) + 2.0
    outputs = torch.cat([outputs, -outputs], -1) if kind == "several outputs" else outputs
    words = {"covar_module": kernel(), "mean_module": ConstantMean().double(), "regularization": 0.03} | words
    if kind in ("nystrom", "pending"):
        model = NystromGP(inputs, outputs, inducing_points=inputs[:6], **words)
        return model.with_pending(T[3:5]) if kind == "pending" else model
    model = OnlineGP(inputs, outputs, **words)
    return model.condition_on_observations(T[4:6], outputs[:2]) if kind == "conditioned" else model


def assign(thing, name, value):
    setattr(thing, name, value)


CHANGES = {
    "length scale": lambda m: assign(m.covar_module.base_kernel, "lengthscale", 0.8),
    "length scale in place": lambda m: m.covar_module.base_kernel.raw_lengthscale.data.add_(1.0),
    "output scale": lambda m: assign(m.covar_module, "outputscale", 3.0),
    "smoothness": lambda m: assign(m.covar_module.base_kernel, "nu", 0.5),
    "kernel": lambda m: assign(m.covar_module, "base_kernel", RBFKernel().double()),
    "noise": lambda m: assign(m.likelihood, "noise", 0.3),
    "noise in place": lambda m: m.likelihood.noise_covar.raw_noise.data.add_(2.0),
    "mean": lambda m: assign(m.mean_module, "constant", torch.tensor(5.0, dtype=DOUBLE)),
    "mean in place": lambda m: m.mean_module.raw_constant.data.sub_(4.0),
    "rewards in place": lambda m: m.train_targets.data.mul_(-1.0),
    "rewards": lambda m: m.set_train_data(targets=-m.train_targets, strict=False),
}


def agree(model, other):
    one, two = model.posterior(T), other.posterior(T)
    assert torch.allclose(one.mean, two.mean, rtol=0.0, atol=1e-9)
    assert torch.allclose(one.variance, two.variance, rtol=0.0, atol=1e-9)
    for name in ("leverage_scores", "observed_means", "information_gain", "kernel_bound", "mean_norm"):
        assert torch.allclose(getattr(model, name)(), getattr(other, name)(), atol=1e-8), name


@pytest.mark.one_in(3)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_changed_after_a_look_is_seen(kind, change):
    looked, fresh = make(kind), make(kind)
    before = looked.posterior(T).mean
    looked.leverage_scores()
    CHANGES[change](looked)
    CHANGES[change](fresh)
    shown = looked.posterior(T)
    is_seen = change in ("output scale", "noise", "noise in place") or not torch.allclose(shown.mean, before)
    assert is_seen
    agree(looked, fresh)


@pytest.mark.parametrize("first", ["kernel_bound", "leverage_scores", "observed_means", "tell", "remove"])
@pytest.mark.parametrize("kind", ["online", "nystrom"])
def test_whoever_looks_first_sees_it(kind, first):
    looked, fresh = (make(kind, input_transform=Normalize(2)) for _ in range(2))
    looked.posterior(T)
    found = []
    for model in (looked, fresh):
        model.eval()
        model.input_transform._coefficient.data.mul_(3.0)
        model.covar_module.base_kernel.lengthscale = 0.7
        if first == "tell":
            model.tell(T[3:5], torch.ones(2, 1, dtype=DOUBLE))
        elif first == "remove":
            model.remove([2, 5])
        else:
            found.append(getattr(model, first)())
    assert all(torch.allclose(value, found[0]) for value in found)
    agree(looked, fresh)


def warp(shape):
    transform = Warp(d=2, indices=[0, 1], bounds=torch.tensor([[0.0, 0.0], [3.0, 3.0]], dtype=DOUBLE)).double()
    transform.concentration0.data.fill_(shape)
    return transform


def standardize(kind):
    return {"outcome_transform": Standardize(2 if kind == "several outputs" else 1)}


#: Inputs and words of a model that is saved, and of one that is loaded into, each given its kind.
SAVED = {
    "plain": (lambda _: (X, {"regularization": 0.2}), lambda _: (X, {})),
    "Warp": (lambda _: (MORE, {"input_transform": warp(2.5)}), lambda _: (MORE, {"input_transform": warp(1.0)})),
    "Normalize": tuple(lambda _, s=s: (s * X, {"input_transform": Normalize(2)}) for s in (2.0, 1.0)),
    "Standardize": tuple(lambda kind, s=s: (s * X, standardize(kind)) for s in (2.0, 1.0)),
}


@pytest.mark.parametrize("kind", ["online", "nystrom", "several outputs"])
@pytest.mark.parametrize("of", SAVED)
def test_a_state_is_loaded_whether_the_model_predicted_before_or_not(kind, of):
    def made(place):
        inputs, words = SAVED[of][place](kind)
        return make(kind, inputs, **words)

    other = made(0)
    other.covar_module.base_kernel.lengthscale = 0.9
    other.mean_module.constant = torch.tensor(1.0, dtype=DOUBLE)
    looked, fresh = made(1), made(1)
    before = looked.posterior(T).mean
    for model in (looked, fresh):
        model.load_state_dict(other.state_dict())
    assert not torch.allclose(looked.posterior(T).mean, before, atol=1e-3)
    agree(looked, fresh)


def test_each_observations_noise_and_the_time_are_seen():
    def given():
        return OnlineGP(X, Y, torch.full((14, 1), 0.05, dtype=DOUBLE), covar_module=kernel())

    def ageing():
        likelihood = UncertaintyInjectionLikelihood(LinearGrowth(0.1), regularization=0.03, now=14.0, time_column=0)
        return OnlineGP(X, Y, covar_module=kernel(), likelihood=likelihood.double())

    for made, change in (
        (given, lambda covar: covar.noise.mul_(torch.linspace(1.0, 9.0, 14, dtype=DOUBLE))),
        (ageing, lambda covar: covar.now.data.add_(50.0)),
    ):
        looked, fresh = made(), made()
        looked.posterior(T)
        for model in (looked, fresh):
            change(model.likelihood.noise_covar)
        agree(looked, fresh)


@pytest.mark.parametrize("kind", ["online", "nystrom"])
def test_a_transform_of_one_point_to_several_is_for_predictions(kind):
    steps = torch.tensor([[-0.1, 0.1], [0.0, 0.0]], dtype=DOUBLE)
    model = make(kind, input_transform=InputPerturbation(perturbation_set=steps))
    new = T[3:5], torch.ones(2, 1, dtype=DOUBLE)
    conditioned = model.condition_on_observations(*new)
    plain = make(kind).condition_on_observations(*new)
    around = (T.unsqueeze(-2) + steps).flatten(0, 1)
    shown = conditioned.posterior(T).mean
    assert shown.shape == (2 * len(T), 1)
    assert torch.allclose(shown, plain.posterior(around).mean, atol=1e-9)
    with pytest.raises(UnsupportedError, match=r"InputPerturbation makes several points of one.*posterior_transform"):
        KernelUCB(model, beta=2.0, X_pending=T[:2])


def told(model, X, Y):
    """Two points join the dictionary with their rewards, two before."""
    if isinstance(model, OnlineGP):
        model.tell(X, Y)
        return model
    model.tell(X[:2], Y[:2], add_to_dictionary=True)
    model.set_dictionary(torch.cat([model.inducing_points, X[2:]]))
    model.tell(X[2:], Y[2:])
    return model


@pytest.mark.needs("botorch>=0.16")
@pytest.mark.parametrize("extend", [told, lambda model, X, Y: model.condition_on_observations(X, Y)])
@pytest.mark.parametrize("kind", ["online", "nystrom"])
def test_more_observations_are_taken_in_the_columns_given_and_not_in_those_of_the_kernel(kind, extend):
    """Where a transform makes other columns, such as codes of choices."""
    random = np.random.default_rng(0)
    points = torch.tensor(np.column_stack([random.uniform(size=17), random.integers(0, 3, 17)]))
    inner = torch.cat([points[:, :1], one_hot(points[:, 1].long(), 3)], dim=-1)
    inputs, Y = points[:12], torch.tensor(random.normal(size=(12, 1)))
    code = transforms.NumericToCategoricalEncoding(2, {1: 3}, {1: partial(one_hot, num_classes=3)})
    words = {"covar_module": rbf(0.7), "regularization": 0.05, "input_transform": code}
    words |= {"inducing_points": inputs[:8]} if kind == "nystrom" else {}
    model = {"online": OnlineGP, "nystrom": NystromGP}[kind](inputs[:8], Y[:8], **words)
    extended = extend(copy.deepcopy(model), inputs[8:], Y[8:])
    noise = torch.full((12,), 0.05, dtype=DOUBLE)
    expected = oracles.exact(oracles.rbf(0.7), *dense(inner[:12], Y[:, 0], noise, inner[12:]))
    posterior = extended.posterior(points[12:].unsqueeze(-2))
    assert difference(posterior.mean.flatten(), expected.mean) < 1e-6
    assert difference(posterior.variance.flatten(), expected.variance) < 1e-6
    with pytest.raises(InputError, match="X must"):
        extend(model, inner[8:12], Y[8:])
