"""Acquisition functions are of the model as it is, and searches end at the largest value or say what they cannot do."""

import copy
import pickle

import pytest
import torch
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.optim import optimize_acqf
from gpytorch.kernels import MaternKernel, RQKernel, ScaleKernel
from gpytorch.means import ConstantMean
from kinds import MANY, composed
from problems import DOUBLE, data, difference, matern, play, rbf, scaled

import torch_kbandits as kb
from torch_kbandits.acquisition import ExpectedImprovementRule, ProbabilityOfImprovementRule, UpperConfidenceRule
from torch_kbandits.kernels import GroupedKernel
from torch_kbandits.likelihoods import UncertaintyInjectionLikelihood, at_time
from torch_kbandits.memory import LinearGrowth

X, Y = data(12, 2)
T, LATER = data(6, 2, seed=1)
BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)


def nystrom(**kwargs):
    given = {"inducing_points": X[::2], "covar_module": matern(), "regularization": 0.05}
    return kb.NystromGP(X, Y, **(given | kwargs))


def online(**kwargs):
    return kb.OnlineGP(X, Y, **({"covar_module": matern(), "regularization": 0.05} | kwargs))


def single(**kwargs):
    return SingleTaskGP(X, Y, torch.full_like(Y, 0.05), covar_module=matern(), outcome_transform=None, **kwargs)


def ageing():
    likelihood = UncertaintyInjectionLikelihood(LinearGrowth(0.5), regularization=0.05, now=1.0, time_column=0)
    return online(likelihood=likelihood, regularization=None)


def relearn(model):
    model.train()
    model.covar_module.base_kernel.lengthscale = torch.tensor(0.9, dtype=DOUBLE)
    model.eval()


def first(model):
    return None if model.num_outputs == 1 else ScalarizedPosteriorTransform(torch.tensor([1.0, 0.0], dtype=DOUBLE))


MODELS = {"nystrom": nystrom, "online": online, "single": single, "ageing": ageing}
MODELS["list"] = lambda: ModelListGP(online(), online())
ACQUISITIONS = {
    "ucb": lambda model: kb.KernelUCB(model, 2.0, first(model)),
    "ucb with pending points": lambda model: kb.KernelUCB(model, 2.0, first(model), X_pending=T[:2]),
    "thompson": lambda model: kb.DiscretizedThompsonSampling(model, T, seed=3, posterior_transform=first(model)),
}
CHANGES = {
    "tell": ("nystrom online", lambda model: model.tell(T, LATER + 3.0)),
    "tell a part": ("list", lambda model: model.models[0].tell(T, LATER + 3.0)),
    "remove": ("nystrom online", lambda model: model.remove([0, 3, 4])),
    "dictionary": ("nystrom", lambda model: model.set_dictionary(X[1::3])),
    "time": ("ageing", lambda model: at_time(model, 4.0)),
    "other data": ("single", lambda model: model.set_train_data(targets=2.0 * Y.squeeze(-1))),
    "hyperparameters": ("nystrom online single", relearn),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", ACQUISITIONS)
@pytest.mark.parametrize(("change", "kind"), [(c, kind) for c in CHANGES for kind in CHANGES[c][0].split()])
def test_a_value_is_of_the_model_as_it_is_and_copies_have_a_model_of_their_own(change, kind, name):
    model = MODELS[kind]()
    acquisition = ACQUISITIONS[name](model)
    with torch.no_grad():
        before = acquisition(T.unsqueeze(-2))
        assert difference(acquisition(T.unsqueeze(-2)), before) == 0.0
        copies = copy.deepcopy(acquisition), pickle.loads(pickle.dumps(acquisition))
        CHANGES[change][1](model)
        after = acquisition(T.unsqueeze(-2))
        assert difference(after, ACQUISITIONS[name](model)(T.unsqueeze(-2))) < 1e-6
        assert difference(after, before) > 1e-3
        for other in copies:
            assert difference(other(T.unsqueeze(-2)), before) < 1e-9


def test_draws_have_no_gradient_and_what_is_missing_is_named():
    for kind, missing in ((kb.KernelUCB, "beta"), (kb.DiscretizedThompsonSampling, "discretization")):
        with pytest.raises(kb.InputError, match=rf'needs {missing}.*botorch_acqf_options=."{missing}"'):
            get_acqf_input_constructor(kind)(model=online(), X_pending=None)
    acquisition = kb.DiscretizedThompsonSampling(online(), T, seed=3)
    with pytest.raises(UnsupportedError, match="optimize_acqf_discrete"):
        optimize_acqf(acquisition, BOUNDS, q=1, num_restarts=1, raw_samples=4)
    points = T.clone().requires_grad_()
    with torch.no_grad():
        assert difference(acquisition(points.unsqueeze(-2)), acquisition(T.unsqueeze(-2))) == 0.0


# ---------------------------------------------------------------- slopes

#: Kernels of one smooth factor, whose slopes are in closed form, and one whose are not.
SMOOTH = {
    "squared exponential": rbf(0.4),
    "Matérn 3/2": ScaleKernel(MaternKernel(nu=1.5, ard_num_dims=3)).double(),
    "Matérn 5/2, groups": scaled(GroupedKernel(MaternKernel(nu=2.5), [0, 1, 1]), 1.7),
    "rational quadratic": scaled(RQKernel(), 0.8),
}


@pytest.mark.parametrize("dictionary", [None, kb.RidgeLeverageSampling(1.0)], ids=["exact", "dictionary"])
@pytest.mark.parametrize("rule", [UpperConfidenceRule(), ExpectedImprovementRule(), ProbabilityOfImprovementRule()])
@pytest.mark.parametrize("kernel", SMOOTH.values(), ids=SMOOTH)
def test_slopes_are_those_of_central_differences(kernel, rule, dictionary):
    bounds = torch.tensor([[0.0] * 3, [1.0] * 3], dtype=DOUBLE)
    words = {"kernel": kernel, "acquisition": rule, "dictionary": dictionary, "seed": 0}
    bandit = composed(candidates=kb.Box(bounds), **words | ({} if rule.uses_width else {"width": None}))
    bandit.tell(*data(20, 3))
    function, step = bandit.acquisition(), 1e-5
    at = data(6, 3, seed=1)[0].unsqueeze(-2).requires_grad_()
    (slopes,) = torch.autograd.grad(function(at).sum(), at)
    with torch.no_grad():
        moves = step * torch.eye(3, dtype=DOUBLE).unsqueeze(-2).unsqueeze(-2)
        # Rounding is 1e-16 / step of a value, the third derivatives step² of a slope.
        differences = ((function(at + move) - function(at - move)) / (2.0 * step) for move in moves)
        expected = torch.stack([*differences], -1).unsqueeze(-2)
    assert difference(slopes, expected) <= 1e-7 * max(1.0, float(expected.abs().max()))


# ---------------------------------------------------------------- boxes

RULES = [UpperConfidenceRule(), ExpectedImprovementRule(), ProbabilityOfImprovementRule()]


def on_small_box(rule):
    words = {"kernel": rbf(0.4), "acquisition": rule} | ({} if rule.uses_width else {"width": None})
    return composed(candidates=kb.Box(BOUNDS, num_restarts=1, raw_samples=2), **words)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_a_small_search_ends_no_lower_than_the_last_point_and_the_best(rule):
    for seed in range(2):
        points, rewards = data(3 + 3 * seed, 2, seed)
        points[-1] = points[0] + 1e-9
        bandit = on_small_box(rule)
        bandit.tell(points, rewards)
        bandit.mark_pending(data(2, 2, seed + 100)[0])
        function, best = bandit.acquisition(), points[bandit.model.posterior(points).mean.argmax()]
        at_starts = float(function(torch.stack([best, points[-1]]).unsqueeze(-2)).detach().max())
        assert float(function(bandit.ask().unsqueeze(0))) >= at_starts - 1e-9 * max(1.0, abs(at_starts))


def test_the_best_point_is_a_start_that_finds_a_needle_and_stays_in_the_box():
    points, rewards = data(40, 4)[0], torch.zeros(40, dtype=DOUBLE)
    rewards[10] = 50.0
    wide = torch.tensor([[0.0] * 4, [1.0] * 4], dtype=DOUBLE)
    bandit = composed(candidates=kb.Box(wide, num_restarts=1, raw_samples=1), kernel=rbf(0.02))
    bandit.tell(points, rewards)
    assert difference(bandit.ask()[0], points[10]) < 0.02
    outside = on_small_box(RULES[0])
    outside.tell(torch.tensor([[0.5, 3.0]], dtype=DOUBLE), 1.0)
    assert bool(((outside.ask(3) >= 0.0) & (outside.pending <= 1.0)).all())


def test_a_margin_that_is_not_given_is_a_hundredth_of_the_prior_deviation_also_while_a_dictionary_stays():
    words = {"dictionary": kb.RidgeLeverageSampling(2.0, "coupled"), "kernel": rbf(0.3), "width": None, "seed": 0}
    rules = [ProbabilityOfImprovementRule(margin) for margin in (None, 0.01)]
    ours, theirs = (composed(candidates=kb.Arms(MANY), acquisition=rule, **words) for rule in rules)
    for q in (1, 1, 3, 1, 1, 1):
        assert torch.equal(play(ours, 1, q), play(theirs, 1, q))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("kind", [kb.NystromGP, kb.OnlineGP])
def test_observed_means_are_those_of_the_posterior(kind, outputs):
    Z, values = torch.cat([X, X[:5]]), torch.cat([Y, -Y[:5]])
    values = torch.cat([values, values.square()], dim=-1)[:, :outputs]
    made = {"covar_module": matern()} | ({"inducing_points": Z[::2]} if kind is kb.NystromGP else {})
    for words in (
        {"regularization": 0.05},
        {"train_Yvar": torch.linspace(0.01, 0.2, values.numel(), dtype=DOUBLE).view_as(values)}
        | {"outcome_transform": Standardize(m=outputs)},
        {"regularization": 0.05, "mean_module": ConstantMean().double().initialize(constant=3.0)},
        {"regularization": 0.05, "input_transform": Normalize(d=2)},
        {"regularization": 0.05, "outcome_transform": Standardize(m=outputs)},
    ):
        model = kind(Z, values, **made | words)
        means = model.observed_means().reshape(outputs, -1).mT
        if "outcome_transform" in words:
            means = words["outcome_transform"].untransform(means)[0]
        assert difference(means, model.posterior(Z).mean) < 1e-8


# ---------------------------------------------------------------- climbs over mixed points
