"""Acquisition functions are of the model as it is, can be copied and sent, and refuse what they cannot do."""

import copy
import pickle

import pytest
import torch
from botorch.acquisition import LogNoisyExpectedImprovement, NoisyExpectedImprovement, UpperConfidenceBound
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.acquisition.multi_step_lookahead import qMultiStepLookahead
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models import ModelListGP, SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from problems import DOUBLE, data, difference, matern, rbf

from torch_kbandits import InputError, KernelUCB, NystromGP, OnlineGP
from torch_kbandits.acquisition import DiscretizedThompsonSampling, thompson
from torch_kbandits.likelihoods import UncertaintyInjectionLikelihood, at_time
from torch_kbandits.memory import Linear

X, Y = data(12, 2)
T, LATER = data(6, 2, seed=1)
BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)


def nystrom(**kwargs):
    given = {"inducing_points": X[::2], "covar_module": matern(), "regularization": 0.05}
    return NystromGP(X, Y, **(given | kwargs))


def online(**kwargs):
    return OnlineGP(X, Y, **({"covar_module": matern(), "regularization": 0.05} | kwargs))


def single(**kwargs):
    return SingleTaskGP(X, Y, torch.full_like(Y, 0.05), covar_module=matern(), outcome_transform=None, **kwargs)


def ageing():
    likelihood = UncertaintyInjectionLikelihood(Linear(0.5), regularization=0.05, now=1.0, time_column=0)
    return online(likelihood=likelihood, regularization=None)


MODELS = {"nystrom": nystrom, "online": online, "single": single, "ageing": ageing}
ACQUISITIONS = {
    "ucb": lambda model: KernelUCB(model, beta=2.0),
    "ucb with pending points": lambda model: KernelUCB(model, beta=2.0, X_pending=T[:2]),
    "thompson": lambda model: DiscretizedThompsonSampling(model, T, seed=3),
    "thompson, many": lambda model: DiscretizedThompsonSampling(model, T, seed=3),
}
CHANGES = {
    "tell": ("nystrom online", lambda model: model.tell(T, LATER + 3.0)),
    "remove": ("nystrom online", lambda model: model.remove([0, 3, 4])),
    "dictionary": ("nystrom", lambda model: model.set_dictionary(X[1::3])),
    "time": ("ageing", lambda model: at_time(model, 4.0)),
    "other data": ("single", lambda model: model.set_train_data(targets=2.0 * Y.squeeze(-1))),
    "hyperparameters": ("nystrom online single", lambda model: relearn(model)),
}


def relearn(model):
    model.train()
    model.covar_module.base_kernel.lengthscale = torch.tensor(0.9, dtype=DOUBLE)
    model.eval()


@pytest.fixture
def few(request, monkeypatch):
    """Make more than two points many, where the name says so."""
    if "many" in request.node.name:
        monkeypatch.setattr(thompson, "JOINT_LIMIT", 2)


@pytest.mark.one_in(8)
@pytest.mark.parametrize("name", ACQUISITIONS)
@pytest.mark.parametrize(("change", "kind"), [(c, kind) for c in CHANGES for kind in CHANGES[c][0].split()])
def test_a_value_is_of_the_model_as_it_is(change, kind, name, few):
    model = MODELS[kind]()
    acquisition = ACQUISITIONS[name](model)
    with torch.no_grad():
        before = acquisition(T.unsqueeze(-2))
        assert difference(acquisition(T.unsqueeze(-2)), before) == 0.0
        CHANGES[change][1](model)
        after = acquisition(T.unsqueeze(-2))
        assert difference(after, ACQUISITIONS[name](model)(T.unsqueeze(-2))) < 1e-6
    assert difference(after, before) > 1e-3


def test_a_list_of_models_is_followed_too():
    parts = online(), online()
    acquisition = KernelUCB(
        ModelListGP(*parts),
        beta=2.0,
        X_pending=T[:2],
        posterior_transform=ScalarizedPosteriorTransform(torch.tensor([1.0, 0.0], dtype=DOUBLE)),
    )
    with torch.no_grad():
        acquisition(T.unsqueeze(-2))
        parts[0].tell(T, LATER)
        expected = KernelUCB(parts[0], beta=2.0, X_pending=T[:2])(T.unsqueeze(-2))
        assert difference(acquisition(T.unsqueeze(-2)), expected) < 1e-6


@pytest.mark.one_in(8)
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("name", ACQUISITIONS)
def test_copies_have_the_same_values_and_a_model_of_their_own(name, kind, few):
    acquisition = ACQUISITIONS[name](MODELS[kind]())
    with torch.no_grad():
        values = acquisition(T.unsqueeze(-2))
        for other in (copy.deepcopy(acquisition), pickle.loads(pickle.dumps(acquisition))):
            assert difference(other(T.unsqueeze(-2)), values) < 1e-9
            if kind in ("nystrom", "online"):
                other.model.tell(T, LATER + 3.0)
                assert difference(acquisition(T.unsqueeze(-2)), values) == 0.0
                assert difference(other(T.unsqueeze(-2)), values) > 1e-3


@pytest.mark.parametrize("maximize", [True, False])
@pytest.mark.parametrize("kind", ["nystrom", "single"])
def test_maximize_is_that_of_botorch(maximize, kind):
    model = MODELS[kind]()
    expected = UpperConfidenceBound(model, beta=4.0, maximize=maximize)(T.unsqueeze(-2))
    arguments = get_acqf_input_constructor(KernelUCB)(model=model, beta=2.0, maximize=maximize)
    for ours in (KernelUCB(model, beta=2.0, maximize=maximize), KernelUCB(**arguments)):
        assert difference(ours(T.unsqueeze(-2)), expected) < 1e-12


@pytest.mark.parametrize(("kind", "missing"), [(KernelUCB, "beta"), (DiscretizedThompsonSampling, "discretization")])
def test_construction_names_what_is_missing(kind, missing):
    with pytest.raises(InputError, match=rf'needs {missing}.*botorch_acqf_options=."{missing}"'):
        get_acqf_input_constructor(kind)(model=online(), X_pending=None)


def test_draws_have_no_gradient_and_say_what_to_do():
    acquisition = DiscretizedThompsonSampling(online(), T, seed=3)
    with pytest.raises(UnsupportedError, match="optimize_acqf_discrete"):
        optimize_acqf(acquisition, BOUNDS, q=1, num_restarts=1, raw_samples=4)
    points = T.clone().requires_grad_()
    with torch.no_grad():
        assert difference(acquisition(points.unsqueeze(-2)), acquisition(T.unsqueeze(-2))) == 0.0


# ---------------------------------------------------------------- BoTorch's own


@pytest.mark.filterwarnings("ignore:NoisyExpectedImprovement has known numerical issues")
@pytest.mark.parametrize("kind", [NoisyExpectedImprovement, LogNoisyExpectedImprovement])
def test_noisy_improvement_of_a_nystrom_posterior_is_refused(kind):
    """BoTorch makes an exact model of all points of it, which on an exact one is right."""
    noise = {"train_Yvar": torch.full_like(Y, 0.05), "regularization": None}
    with pytest.raises(UnsupportedError, match="qLogNoisyExpectedImprovement"):
        kind(nystrom(**noise), X, num_fantasies=4)
    values = []
    for model in (online(**noise), single()):
        torch.manual_seed(0)
        values.append(kind(model, X, num_fantasies=4)(T.unsqueeze(-2)).detach())
    torch.testing.assert_close(*values, rtol=1e-6, atol=1e-9)
    with pytest.raises(UnsupportedError, match="FixedNoise"):
        kind(online(), X, num_fantasies=4)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", ["nystrom", "online"])
def test_the_gradient_of_a_look_ahead_is_that_of_its_values(kind):
    """Through fantasies too, of which BoTorch's own models lose a part."""
    model = MODELS[kind](covar_module=rbf(0.4))
    samplers = [SobolQMCNormalSampler(torch.Size([2]), seed=0) for _ in range(2)]
    acquisition = qMultiStepLookahead(model, batch_sizes=[1, 1], samplers=samplers)
    points = data(acquisition.get_augmented_q_batch_size(1), 2, seed=5)[0].unsqueeze(0).requires_grad_()
    (gradient,) = torch.autograd.grad(acquisition(points).sum(), points)
    step = 1e-5
    for row in range(3):
        moved = torch.zeros_like(points)
        moved[0, row, 0] = step
        with torch.no_grad():
            slope = (acquisition(points + moved) - acquisition(points - moved)) / (2.0 * step)
        assert float(gradient[0, row, 0]) == pytest.approx(float(slope), rel=1e-4, abs=1e-6)
    assert float(gradient[0, 0].norm()) > 1e-4
