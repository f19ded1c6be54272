"""What Ax saves: every value and kernel reads back, and an experiment goes on in a new process as it would have."""

import json
from copy import deepcopy

import pytest
import torch
from ax import Client
from ax.storage.json_store.decoder import object_from_json
from ax.storage.json_store.encoder import object_to_json
from ax_clients import BRANIN, CONTEXT, GRID, MIXED, UNIT, client_of, play, pool_of
from botorch.models.kernels import CategoricalKernel
from gpytorch.constraints import Interval, Positive
from gpytorch.kernels import CosineKernel, LinearKernel, MaternKernel, PeriodicKernel, RBFKernel, RQKernel, ScaleKernel
from problems import scaled

import torch_kbandits as kb
from torch_kbandits import InputError, confidence, dictionaries, memory
from torch_kbandits.errors import DamagedFileError, StateMismatchError
from torch_kbandits.integrations.ax.models import ModelSettings
from torch_kbandits.integrations.ax.storage import value_classes
from torch_kbandits.priors import default_kernel


def read_back(value):
    return object_from_json(json.loads(json.dumps(object_to_json(value))))


def rbf():
    kernel = RBFKernel(ard_num_dims=2, active_dims=(0, 1)).double()
    kernel.lengthscale = torch.tensor([[0.1, 1.0 / 3.0]], dtype=torch.float64)
    return kernel


KERNELS = {
    "scaled": lambda: scaled(rbf(), 1.7),
    "matern": lambda: scaled(MaternKernel(nu=1.5), 1.7),
    "sum": lambda: scaled(RQKernel(), 1.7) + PeriodicKernel().double() * LinearKernel().double(),
    "bounded": lambda: scaled(RBFKernel(lengthscale_constraint=Interval(0.1, 1.0 / 3.0)), 1.7),
    "prior": lambda: default_kernel(2),
    "grouped": lambda: default_kernel(2, [0, 0]),
    "cosine": lambda: CosineKernel().double(),
    "choices": lambda: scaled(RBFKernel(active_dims=(0,)) * CategoricalKernel(active_dims=(1,)), 1.7),
    "single": lambda: ScaleKernel(MaternKernel()),
}

VALUES = [
    memory.KeepAll(),
    memory.SlidingWindow(5),
    memory.SlidingWindow(float("inf")),
    memory.SlidingWindow(7, "observations"),
    memory.Restart(10, origin=3.0),
    memory.Discount(0.9, least_weight=0.01),
    memory.UncertaintyInjection(kb.Quadratic(0.5), max_variance=4.0),
    memory.UncertaintyInjection(kb.Linear(0.5)),
    memory.UncertaintyInjection(kb.Exponential(0.5)),
    kb.RidgeLeverageSampling(2.0, "coupled"),
    kb.KORS(2.0),
    kb.KDPP(30),
    kb.GreedyDictionary(20),
    kb.UniformDictionary(20),
    dictionaries.SpanningDictionary(),
    kb.ConstantWidth(1.0 / 3.0),
    kb.ScaledWidth(kb.BKBWidth(0.1, 1.0, 0.1), 0.1),
    confidence.IGPUCBWidth(
        0.1, 1.0, 0.1, gain=confidence.SumGain((confidence.ConstantGain(2.0), confidence.ConstantGain(3.0)))
    ),
]


def test_values_read_back_also_those_that_hold_values_and_tensors():
    for value in VALUES:
        assert read_back(value) == value
    capped = read_back(kb.CappedDictionary(kb.KORS(), 50, "stop"))
    assert (capped.rule, capped.max_size, capped.when_full) == (kb.KORS(), 50, "stop")
    points = torch.rand(4, 2, dtype=torch.float64)
    assert torch.equal(read_back(kb.FixedDictionary(points)).points, points)
    gain = read_back(confidence.GreedyGain(rbf(), points, 10, 0.1))
    assert torch.equal(gain.candidates, points)
    assert torch.equal(gain.kernel.lengthscale, rbf().lengthscale)


def test_every_value_of_the_package_is_registered():
    names = {kind.__name__ for kind in value_classes()}
    public = [getattr(module, name) for module in (memory, dictionaries, confidence) for name in module.__all__]
    kinds = (memory.Memory, memory.Growth, kb.DictionaryRule, confidence.Width, confidence.InformationGain)
    concrete = {
        c.__name__ for c in public if isinstance(c, type) and issubclass(c, kinds) and not c.__abstractmethods__
    }
    assert concrete <= names


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_read_back_to_the_last_bit(name):
    kernel = KERNELS[name]()
    with torch.no_grad():  # numbers that no short decimal has
        for parameter in kernel.parameters():
            parameter += 0.1 * torch.rand_like(parameter)
    again = read_back(ModelSettings(seed=0, kernel=kernel)).kernel
    assert list(again.state_dict()) == list(kernel.state_dict())
    for ours, theirs in zip(again.state_dict().values(), kernel.state_dict().values(), strict=True):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)
    X = torch.rand(6, 2, dtype=kernel.dtype)
    assert torch.equal(again(X).to_dense(), kernel(X).to_dense())


class _Unknown(RBFKernel):
    """A kernel that nobody else has."""


def test_kernels_that_cannot_be_saved_are_refused():
    with pytest.raises(InputError, match=r"file of an experiment can hold: kernels of the class _Unknown are not"):
        client_of(UNIT, kernel=ScaleKernel(_Unknown()))
    constraint = Positive(transform=torch.square, inv_transform=torch.sqrt)
    with pytest.raises(InputError, match="a constraint has a transform of its own"):
        client_of(UNIT, kernel=RBFKernel(lengthscale_constraint=constraint))
    with pytest.raises(InputError, match="no batch dimensions"):
        client_of(UNIT, kernel=RBFKernel(batch_shape=torch.Size([2])))


def test_kernels_of_another_layout_or_changed_are_refused():
    written = json.loads(json.dumps(object_to_json(ModelSettings(seed=0, kernel=rbf()))))
    early = {"__type": "kbandits.Kernel", "kind": "RBFKernel", "arguments": {}, "numbers": {}, "parts": []}
    cut = deepcopy(written["kernel"])
    del cut["description"]["tensors"]["raw_lengthscale"]
    for kernel, kind, message in [
        (early, StateMismatchError, "a kernel in the layout of an early version"),
        ({**written["kernel"], "layout": 2}, StateMismatchError, "in the layout 2, and this version .* reads layout 1"),
        (cut, DamagedFileError, "does not fit together"),
    ]:
        with pytest.raises(kind, match=message):
            object_from_json({**deepcopy(written), "kernel": kernel})


def score(**parameters):
    return -sum(value * value for value in parameters.values() if not isinstance(value, str))


def further(client):
    """Three more rounds of two trials."""
    trials = []
    for _ in range(3):
        for index, parameters in client.get_next_trials(2).items():
            trials.append(parameters)
            client.complete_trial(index, {"score": score(**parameters)})
    return trials


def test_a_saved_experiment_goes_on_as_it_would_have_and_its_pool_is_saved_a_few_times(tmp_path):
    path = tmp_path / "experiment.json"
    words = {"memory": memory.SlidingWindow(6), "beta": kb.ScaledWidth(kb.BKBWidth(1.0, 1.0, 0.1), 0.1)}
    client, sizes = client_of(UNIT, candidates=GRID, **words), []
    for _ in range(2):
        play(client, lambda x: -((x - 1.0 / 3.0) ** 2), 1, parallel=3)
        client.save_to_json_file(str(path))
        sizes.append(path.read_text().count("kbandits.CandidatePool"))
    assert sizes[0] == sizes[1] <= 4
    waiting = client.get_next_trials(1)
    client.save_to_json_file(str(path))
    loaded = Client.load_from_json_file(str(path))
    assert loaded.get_next_trials(1) == client.get_next_trials(1)
    for c in (client, loaded):
        c.complete_trial(next(iter(waiting)), {"score": 0.1})
    assert loaded.get_next_trials(1) == client.get_next_trials(1)


SAVED = {
    "initial": (BRANIN, {}, 3),
    "fitted": (BRANIN, {"beta": kb.ScaledWidth(kb.BKBWidth(0.1, 1.0, 0.1), 0.1)}, 8),
    "mixed": (MIXED, {"transform_outcomes": True}, 7),
    "discount": ([*CONTEXT, *UNIT], {"model": "exact", "memory": memory.Discount(0.9)}, 8),
    "injection": (UNIT, {"memory": memory.UncertaintyInjection(kb.Linear(0.1)), "dictionary": kb.KORS()}, 8),
    "restart": (UNIT, {"memory": memory.Restart(9), "regularization": 0.01, "kernel": scaled(MaternKernel(), 1.7)}, 8),
    "pool": (MIXED, {"candidates": pool_of(500), "dictionary": kb.CappedDictionary(kb.GreedyDictionary(30), 10)}, 6),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SAVED)
def test_whatever_its_settings_a_saved_experiment_goes_on_as_it_would_have(name, tmp_path):
    parameters, settings, rounds = SAVED[name]
    client, path = client_of(parameters, **settings), str(tmp_path / "experiment.json")
    play(client, lambda **p: (score(**p), 0.1), rounds)
    client.get_next_trials(1)  # one is pending
    client.save_to_json_file(path)
    assert further(Client.load_from_json_file(path)) == further(client)
