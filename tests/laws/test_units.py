"""Rewards in other units: a factor changes no choice, and what is shown by that factor alone."""

import warnings

import pytest
import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Standardize
from gpytorch.kernels import MaternKernel, ScaleKernel
from problems import DOUBLE, data

from torch_kbandits import AtMost, ContextualActions, KernelUCB, LearnedPrior, NystromGP, OnlineGP, UnitCube, algorithms
from torch_kbandits.candidates import Configurations
from torch_kbandits.outcomes import Outcome, Scalarization
from torch_kbandits.priors import Prior
from torch_kbandits.spaces import Categorical, Float, ParameterSpace

BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)
ARMS = torch.rand(60, 2, dtype=DOUBLE, generator=torch.Generator().manual_seed(1))
FIRST = torch.rand(7, 2, dtype=DOUBLE, generator=torch.Generator().manual_seed(2))
GRID = torch.cartesian_prod(*[torch.linspace(0.0, 1.0, 41, dtype=DOUBLE)] * 2)
SPACE = ParameterSpace({"a": Float(0.0, 1.0), "b": Categorical(["x", "y"])})
NOISE = 0.02


def kernel(factor, dtype=DOUBLE):
    found = ScaleKernel(MaternKernel(nu=2.5)).to(dtype)
    found.base_kernel.lengthscale, found.outputscale = torch.tensor(0.3), torch.tensor(factor**2, dtype=dtype)
    return found.requires_grad_(False)


def f(X):
    return torch.sin(6.0 * X.double().sum(-1)) + 0.3 * X.double()[:, 0]


def known(factor, dtype=DOUBLE):
    return {"kernel": kernel(factor, dtype), "regularization": NOISE * factor**2}


def learned(factor, dtype=DOUBLE):
    return {"prior": LearnedPrior(num_initial=5)}


CANDIDATES = {
    "arms": lambda dtype: {"candidates": ARMS.to(dtype)},
    "box": lambda dtype: {"bounds": BOUNDS.to(dtype)},
    "cube": lambda dtype: {"candidates": UnitCube(2)},
    "configurations": lambda dtype: {"candidates": Configurations(SPACE)},
    "actions": lambda dtype: {"candidates": ContextualActions(ARMS[:, 1:].to(dtype), context_dim=1)},
    "box in a context": lambda dtype: {"candidates": ContextualActions(context_dim=1, bounds=BOUNDS[:, 1:].to(dtype))},
}


def played(candidates, algorithm, prior, factor, dtype=DOUBLE, **words):
    """Choices, two pending at once, and the moments shown of them less the factor."""
    where = CANDIDATES[candidates](dtype)
    bandit = getattr(algorithms, algorithm)(**where, **prior(factor, dtype), seed=0, **words)
    contextual = bandit.candidates.is_contextual
    for number, x in enumerate(FIRST):
        told = {"context": x[:1].to(dtype)} if contextual else {}
        if candidates == "arms":
            x = ARMS[number]
        y = factor * f(x[None])
        if candidates == "configurations":
            bandit.tell([{"a": float(x[0]), "b": "xy"[number % 2]}], y)
        else:
            bandit.tell(x[None, 1 if contextual else 0 :].to(dtype), y.to(dtype), **told)
    bandit.ask(q=2, **({"context": torch.full((1,), 0.2, dtype=dtype)} if contextual else {}))
    posterior = bandit.model.posterior(bandit.pending)
    moments = torch.cat([posterior.mean.double() / factor, posterior.variance.double() / factor**2], -1)
    return bandit.pending.double(), moments


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("candidates", "algorithm", "prior", "factor", "words"),
    [
        ("box", "GPUCB", known, 1e-12, {"beta": 2.0}),
        ("box", "GPUCB", learned, 1e12, {}),
        ("box in a context", "EKUCB", known, 1e-9, {"beta": 2.0}),
        ("box", "GPPI", known, 1e-6, {}),
        ("arms", "GPPI", learned, 1e-12, {}),
        ("box", "GPEI", known, 1e-9, {}),
        ("cube", "GPEI", known, 1e-12, {}),
        ("box in a context", "GPEI", learned, 1e-6, {}),
        ("box", "GPTS", known, 1e-12, {"beta": 1.0}),
        ("cube", "BKB", learned, 1e-6, {}),
        ("configurations", "GPUCB", known, 1e12, {"beta": 2.0}),
        ("configurations", "GPPI", learned, 1e-9, {}),
        ("arms", "SWGPUCB", known, 1e-12, {"beta": 2.0, "window": 6}),
        ("actions", "GPEI", known, 1e12, {}),
        ("actions", "GPTS", learned, 1e-9, {}),
    ],
)
def test_a_factor_changes_no_choice(candidates, algorithm, prior, factor, words):
    one, other = (played(candidates, algorithm, prior, each, **words) for each in (1.0, factor))
    assert float(torch.pdist(one[0]).max()) > 1e-3  # it does not stay where it is
    assert float((one[0] - other[0]).abs().max()) < 1e-6
    assert float((one[1] - other[1]).abs().max()) < 1e-6


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("candidates", "algorithm", "prior", "words"),
    [
        ("arms", "GPTS", learned, {"beta": 1.0}),
        ("box", "GPEI", learned, {}),
        ("box", "GPUCB", known, {"beta": 2.0}),
        ("box in a context", "GPPI", known, {}),
    ],
)
def test_in_single_precision_too(candidates, algorithm, prior, words):
    """By a power of two, which rounds nothing: searches in single precision end where rounding takes them."""
    one, other = (played(candidates, algorithm, prior, each, torch.float32, **words) for each in (1.0, 2.0**-30))
    assert float((one[0] - other[0]).abs().max()) < 1e-3
    assert float((one[1] - other[1]).abs().max()) < 5e-3


def models(kind, factor, dtype):
    X, Y = data(9, 2)
    X, Y = X.to(dtype), (factor * torch.cat([Y, Y.square()], -1)).to(dtype)
    words = {"covar_module": kernel(factor, dtype), "regularization": NOISE * factor**2}
    own = {"outcome_transform": Standardize(1), "covar_module": kernel(1.0, dtype)}
    return {
        "several outputs": lambda: OnlineGP(X, Y, **words),
        "list": lambda: ModelListGP(*[OnlineGP(X, Y[:, [j]], **words) for j in range(2)]),
        "foreign": lambda: SingleTaskGP(X, Y[:, :1], **own).requires_grad_(False),
        "transformed": lambda: OnlineGP(X, Y[:, :1], **own, regularization=NOISE),
        "online": lambda: OnlineGP(X, Y[:, :1], **words),
        "nystrom": lambda: NystromGP(X, Y[:, :1], inducing_points=X[:5], **words),
    }[kind]()


@pytest.mark.parametrize("dtype", [DOUBLE, torch.float32])
@pytest.mark.parametrize("kind", ["online", "nystrom", "several outputs", "transformed", "list", "foreign"])
def test_models_and_bounds_on_them_are_in_the_units_of_rewards(kind, dtype):
    """Also of a model that is not ours, as far as the bound reads it; without a warning of negative variances."""
    factor, T = (2.0**-39 if dtype == DOUBLE else 2.0**-19), data(6, 2, seed=1)[0].to(dtype).unsqueeze(-2)
    factor = 2.0**-22 if kind in ("transformed", "foreign") else factor  # below 1e-8 Standardize divides by nothing
    found = []
    for each in (1.0, factor):
        model = models(kind, each, dtype)
        weights = torch.tensor([0.7, 0.3], dtype=dtype)[: model.num_outputs]
        with warnings.catch_warnings():
            if kind not in ("list", "foreign"):
                warnings.simplefilter("error")
            with torch.no_grad():
                posterior = model.posterior(T)
                together = model.posterior(T.squeeze(-2))
                bound = KernelUCB(model, beta=2.0, posterior_transform=ScalarizedPosteriorTransform(weights))(T)
        values = [bound / each]
        if kind not in ("list", "foreign"):
            values += [posterior.variance / each**2, together.variance / each**2]
            assert together.variance.shape == together.mean.shape
        found.append(values)
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one, other, rtol=1e-5 if dtype == DOUBLE else 2e-3, atol=0.0)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("mode", ["safe", "optimistic", "objective"])
def test_a_factor_of_outcomes_changes_no_choice_within_limits_nor_by_objectives(mode):
    def asked(factor):
        heat = Outcome("heat", Prior(kernel(factor), NOISE * factor**2))
        words = {"outcomes": [heat], "objective": Scalarization({"reward": "maximize", "heat": "minimize"})}
        if mode != "objective":
            words = {"constraints": [AtMost(heat, 0.0, mode, safe_seed=FIRST[:1] if mode == "safe" else None)]}
        bandit = algorithms.GPUCB(bounds=BOUNDS, **known(factor), beta=2.0, seed=0, **words)
        bandit.tell(FIRST, factor * f(FIRST), outcomes={"heat": factor * (FIRST[:, 0] - 0.5) * 4.0})
        return bandit.ask(q=2), bandit.acquisition()

    (one, first), (other, second) = asked(1.0), asked(1e-9)
    assert float((one - other).abs().max()) < 1e-6
    if mode != "objective":
        with torch.no_grad():
            values = first(GRID.unsqueeze(-2)), second(GRID.unsqueeze(-2)) / 1e-9
        assert 0 < int(values[0].isfinite().sum()) < len(GRID)
        assert torch.allclose(*values, rtol=1e-6)
