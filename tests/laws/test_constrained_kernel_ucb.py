"""Constraints on outcomes in a BoTorch loop: what is within, which point is chosen, and how a search gets there."""

import numpy as np
import oracles
import pytest
import torch
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.deterministic import GenericDeterministicModel
from botorch.models.transforms import Normalize, Standardize
from botorch.optim import optimize_acqf
from botorch.utils.constraints import get_outcome_constraint_transforms
from problems import DOUBLE, data, difference, matern

from torch_kbandits import InputError, KernelUCB, NystromGP, OnlineGP
from torch_kbandits.confidence import ConstantWidth, SelfNormalizedWidth

X, _ = data(14, 2)
Y = torch.stack(
    [X @ torch.tensor([1.0, 1.3], dtype=DOUBLE), X[:, 0] + X[:, 1] ** 2 - 0.5, torch.cos(5.0 * X[:, 0])], -1
)
Z = X[::2]
NOISE = 0.01
BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)
GRID = torch.cartesian_prod(*[torch.linspace(0.0, 1.0, 31, dtype=DOUBLE)] * 2)
DENSE = oracles.matern52(0.5, 1.7)
PRIOR = 1.7**0.5
FIRST = ScalarizedPosteriorTransform(torch.tensor([1.0, 0.0, 0.0], dtype=DOUBLE))
KINDS = ("online", "nystrom", "single")


def sum_of(number):
    return ScalarizedPosteriorTransform(torch.ones(number, dtype=DOUBLE))


def part(kind, number, **words):
    given = {"covar_module": matern(), "outcome_transform": None}
    y = Y[:, [number]]
    if kind == "single":
        return SingleTaskGP(X, y, torch.full_like(y, NOISE), **given | words)
    make = {"online": OnlineGP, "nystrom": NystromGP}[kind]
    dictionary = {"inducing_points": Z} if kind == "nystrom" else {}
    return make(X, y, regularization=NOISE, **dictionary, **given | words)


MODELS = {
    **{kind: lambda kind=kind: ModelListGP(*[part(kind, j) for j in range(3)]) for kind in KINDS},
    "several outputs": lambda: OnlineGP(X, Y, covar_module=matern(), regularization=NOISE),
}
#: Callables on outcomes, and the largest and least value of each over boxes low, high (n, m), by arithmetic.
CONSTRAINTS = {
    "at most": (lambda S: S[..., 1] - 0.1, lambda low, high: (low[:, 1] - 0.1, high[:, 1] - 0.1)),
    "at least": (lambda S: -0.2 - S[..., 2], lambda low, high: (-0.2 - high[:, 2], -0.2 - low[:, 2])),
    "a sum": (
        lambda S: S[..., 0] - 2.0 * S[..., 1] - 0.3,
        lambda low, high: (low[:, 0] - 2.0 * high[:, 1] - 0.3, high[:, 0] - 2.0 * low[:, 1] - 0.3),
    ),
    "a product": (lambda S: S[..., 1] * S[..., 2] - 0.05, lambda low, high: products(low, high)),
}


def products(low, high):
    ends = [a[:, 1] * b[:, 2] - 0.05 for a in (low, high) for b in (low, high)]
    return np.min(ends, axis=0), np.max(ends, axis=0)


def dense(kind, T):
    points, noise, found = X.numpy(), np.full(len(X), NOISE), []
    for y in Y.numpy().T:
        at = oracles.dtc(DENSE, points, y, noise, Z.numpy(), T.numpy()) if kind == "nystrom" else None
        found.append(oracles.exact(DENSE, points, y, noise, T.numpy()) if at is None else at)
    return np.stack([each.mean for each in found], -1), np.stack([each.variance for each in found], -1)


def excess(kind, names, T, mode, beta):
    """By how much points are beyond the constraints, (n, k)."""
    mean, variance = dense(kind, T)
    low, high = mean - beta * variance**0.5, mean + beta * variance**0.5
    return np.stack([CONSTRAINTS[name][1](low, high)[mode == "safe"] for name in names], -1)


def bound(kind, T, beta=2.0):
    mean, variance = dense(kind, T)
    return mean[:, 0] + beta * variance[:, 0] ** 0.5


def made(kind, names=("at most",), mode="safe", beta=1.0, **words):
    callables = [CONSTRAINTS[name][0] for name in names]
    given = {"posterior_transform": FIRST, "constraint_mode": mode, "constraint_beta": beta}
    model = MODELS[kind]() if isinstance(kind, str) else kind
    return KernelUCB(model, 2.0, **{"constraints": callables} | given | words)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("mode", ["safe", "optimistic"])
@pytest.mark.parametrize("kind", MODELS)
def test_what_is_within_is_what_the_box_of_outcomes_says(kind, mode):
    T = GRID[::13]
    expected = excess(kind, CONSTRAINTS, T, mode, 1.5)
    found = made(kind, CONSTRAINTS, mode, 1.5).excess(T)
    assert difference(found, expected) < 1e-6
    assert 0 < (expected[:, 0] <= 0.0).sum() < len(T)


@pytest.mark.one_in(24)
@pytest.mark.parametrize("mode", ["safe", "optimistic"])
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("names", [["at most"], ["at most", "at least"], ["a product"]])
def test_the_largest_value_is_within_and_nearly_the_best_there(kind, mode, names):
    """The barrier of the best point within is all that can be lost, 0.003 prior deviations for each e of its slack."""
    beyond, value = excess(kind, names, GRID, mode, 1.0), bound(kind, GRID)
    with torch.no_grad():
        found = made(kind, names, mode)(GRID.unsqueeze(-2)).numpy()
    within = (beyond <= 0.0).all(-1)
    assert 0 < within.sum() < len(GRID)
    far = (beyond <= -0.1 * 2.0 * PRIOR * PRIOR).all(-1)  # a product of two has the larger prior deviation
    np.testing.assert_allclose(found[far], value[far], atol=1e-6)
    assert found[~within].max() < min(found[within].min(), bound(kind, X, 0.0).min() - 2.0 * PRIOR)
    best, chosen = value[within].max(), found.argmax()
    lost = 0.003 * PRIOR * np.log(np.clip(-10.0 * beyond[within][value[within].argmax()] / PRIOR, 1e-9, 1.0)).sum()
    assert within[chosen]
    if "a product" not in names:
        assert value[chosen] >= best + lost - 1e-6
    assert value[chosen] >= best - 0.1 * PRIOR


@pytest.mark.one_in(6)
@pytest.mark.parametrize("mode", ["safe", "optimistic"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_search_by_gradients_ends_within_and_finds_the_best(kind, mode):
    names = ["at most", "at least"]
    beyond, value = excess(kind, names, GRID, mode, 0.5), bound(kind, GRID)
    best = value[(beyond <= 0.0).all(-1)].max()
    assert value.max() > best + 0.05  # a limit is in the way
    torch.manual_seed(0)
    x, _ = optimize_acqf(made(kind, names, mode, 0.5), BOUNDS, q=1, num_restarts=4, raw_samples=64)
    assert excess(kind, names, x, mode, 0.5).max() < 0.0
    assert bound(kind, x)[0] > best - 0.01


def test_where_nothing_is_within_the_least_excess_is_sought():
    acquisition = made("online", constraints=[lambda S: S[..., 1] + 9.0])
    least = float(acquisition.excess(GRID).detach().min())
    torch.manual_seed(0)
    x, _ = optimize_acqf(acquisition, BOUNDS, q=1, num_restarts=4, raw_samples=64)
    assert least > 5.0
    assert float(acquisition.excess(x).detach()) < least + 1e-3


@pytest.mark.one_in(2)
@pytest.mark.parametrize("mode", ["safe", "optimistic"])
def test_the_constraints_serve_other_acquisition_functions(mode):
    """Through the nonlinear constraints of ``optimize_acqf``, which meet the limit itself."""
    ours = made("online", ["at most", "at least"], mode)
    beyond, value = excess("online", ["at most", "at least"], GRID, mode, 1.0), bound("online", GRID)
    within = (beyond <= 0.0).all(-1)
    starts = GRID[torch.from_numpy(within)][:: within.sum() // 4].unsqueeze(-2)
    plain = KernelUCB(ours.model, 2.0, posterior_transform=FIRST)
    words = {"num_restarts": len(starts), "batch_initial_conditions": starts, "options": {"batch_limit": 1}}
    words["nonlinear_inequality_constraints"] = ours.nonlinear_inequality_constraints()
    x, _ = optimize_acqf(plain, BOUNDS, q=1, **words)
    assert excess("online", ["at most", "at least"], x, mode, 1.0).max() < 1e-6
    assert bound("online", x)[0] > value[within].max() - 1e-6


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_the_values(kind):
    acquisition, names = made(kind, ["at most", "a product"]), ["at most", "a product"]
    beyond = excess(kind, names, GRID, "safe", 1.0).max(-1)
    rows = [np.abs(beyond - level).argmin() for level in (-0.4, -0.05, -0.01, 0.05, 0.5)]
    points = (GRID[rows] + 0.003).unsqueeze(-2).requires_grad_()  # off the grid, where a point told has a kink
    (gradient,) = torch.autograd.grad(acquisition(points).sum(), points)
    for column in range(2):
        step = torch.zeros_like(points)
        step[..., column] = 1e-6
        with torch.no_grad():
            slope = (acquisition(points + step) - acquisition(points - step)) / 2e-6
        torch.testing.assert_close(gradient[:, 0, column], slope, rtol=1e-3, atol=1e-4)
    assert gradient.norm(dim=-1).min() > 1e-3


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", ["online", "nystrom"])
def test_pending_points_are_not_seen_by_constraints(kind):
    acquisition = made(kind, mode="optimistic")
    with torch.no_grad():
        before, (well,) = acquisition.excess(GRID), (made(kind).excess(GRID) < -0.3).T
        values = acquisition(GRID.unsqueeze(-2))
        acquisition.set_X_pending(X[:3] + 0.05)
        assert difference(acquisition.excess(GRID), before) == 0.0
        assert (acquisition(GRID.unsqueeze(-2))[well] < values[well] + 1e-9).all()
        assert difference(acquisition(GRID.unsqueeze(-2)), values) > 0.01


@pytest.mark.parametrize("mode", ["safe", "optimistic"])
def test_it_is_made_by_class_as_ax_does(mode):
    A, b = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, -1.0]], dtype=DOUBLE), torch.tensor([[0.1], [0.2]], dtype=DOUBLE)
    words = {"constraints": get_outcome_constraint_transforms((A, b)), "constraint_mode": mode, "constraint_beta": 1.0}
    words |= {"model": MODELS["online"](), "beta": 2.0, "posterior_transform": FIRST}
    ours = KernelUCB(**get_acqf_input_constructor(KernelUCB)(**words))
    expected = made("online", ["at most", "at least"], mode)
    with torch.no_grad():
        assert difference(ours(GRID[::17].unsqueeze(-2)), expected(GRID[::17].unsqueeze(-2))) < 1e-9


def test_transforms_are_those_of_the_outcomes():
    words = {"input_transform": Normalize(2, bounds=10.0 * BOUNDS), "covar_module": matern()}
    moved = [OnlineGP(10.0 * X, Y[:, [j]], regularization=NOISE, **words) for j in range(3)]
    scaled = [part("online", j, outcome_transform=Standardize(1)) for j in range(3)]
    with torch.no_grad():
        values = made(ModelListGP(*moved))(10.0 * GRID[::17].unsqueeze(-2))
        assert difference(values, made("online")(GRID[::17].unsqueeze(-2))) < 1e-6
        acquisition = made(ModelListGP(*scaled))
        posterior = acquisition.model.posterior(GRID[::17].unsqueeze(-2))
        expected = (posterior.mean + posterior.variance.sqrt())[:, 0, 1] - 0.1
        assert difference(acquisition.excess(GRID[::17])[:, 0], expected) < 1e-9
        values = acquisition(GRID[::17].unsqueeze(-2))
        assert values[expected > 0.0].max() < values[expected <= 0.0].min()


def test_widths_are_of_the_models_that_they_bound():
    theorem = SelfNormalizedWidth(noise_scale=0.1, norm_bound=1.0, failure_probability=0.1)
    model = ModelListGP(*[part("online", 0), part("online", 1), part("online", 2, covar_module=matern(0.2))])
    ours = made(model, ["at most", "at least"], beta=theorem)
    widths = [theorem(each) for each in model.models]
    assert widths[2] > widths[1]
    posterior = model.posterior(GRID[::17].unsqueeze(-2))
    half = (torch.stack(widths) * posterior.variance.sqrt()).squeeze(-2)
    high, low = posterior.mean.squeeze(-2) + half, posterior.mean.squeeze(-2) - half
    assert difference(ours.excess(GRID[::17]), torch.stack([high[:, 1] - 0.1, -0.2 - low[:, 2]], -1)) < 1e-9
    picked, alone = KernelUCB(model, theorem, posterior_transform=FIRST), KernelUCB(model.models[0], theorem)
    assert difference(picked(GRID[::17].unsqueeze(-2)), alone(GRID[::17].unsqueeze(-2))) < 1e-9
    assert torch.equal(made(model, beta=ConstantWidth(1.0)).excess(X), made(model).excess(X))


def test_what_does_not_fit_is_refused():
    known = GenericDeterministicModel(lambda X: X, num_outputs=2)
    many = GenericDeterministicModel(lambda X: X.repeat(1, 1, 5), num_outputs=10)
    for model, words, message in (
        ("online", {"constraints": [3.0]}, "constraints must be callables on outcomes .* got"),
        ("online", {"constraints": [lambda S: S[..., :2]]}, r"of \(8, 14, 1, 3\) it made \(8, 14, 1, 2\)"),
        ("online", {"mode": "sure"}, 'constraint_mode must be "safe" or "optimistic"'),
        ("online", {"posterior_transform": None}, "give a posterior_transform"),
        (known, {"posterior_transform": sum_of(2)}, "has the points it was told"),
        (many, {"posterior_transform": sum_of(10)}, "10 outputs, more than 8.*subset_output"),
    ):
        with pytest.raises((InputError, UnsupportedError), match=message):
            made(model, **words)
    plain = KernelUCB(part("online", 0), 2.0)
    for call in (lambda: plain.excess(X), plain.nonlinear_inequality_constraints):
        with pytest.raises(InputError, match="There are no constraints"):
            call()
