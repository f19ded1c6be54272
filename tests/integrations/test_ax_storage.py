"""What Ax saves: every value and kernel reads back, and an experiment goes on in a new process as it would have."""

import json
import os
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from ax import Client
from ax.storage.json_store.decoder import object_from_json
from ax.storage.json_store.encoder import object_to_json
from ax_clients import BRANIN, CONTEXT, GRID, MIXED, UNIT, branin, client_of, play, pool_of, validation_error
from botorch.models.kernels import CategoricalKernel
from gpytorch.constraints import Interval, Positive
from gpytorch.kernels import (
    CosineKernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from problems import exactly

import torch_kbandits as kb
from torch_kbandits import InputError, confidence, dictionaries, memory
from torch_kbandits.errors import DamagedFileError, StateMismatchError
from torch_kbandits.integrations.ax.fitting import scaled_kernel
from torch_kbandits.integrations.ax.models import ModelSettings
from torch_kbandits.integrations.ax.storage import value_classes

ROOT = Path(__file__).parents[2]


def read_back(value):
    return object_from_json(json.loads(json.dumps(object_to_json(value))))


def scaled(base, outputscale=1.7):
    kernel = ScaleKernel(base).double()
    kernel.outputscale = exactly(outputscale)
    return kernel


def rbf():
    kernel = RBFKernel(ard_num_dims=2, active_dims=(0, 1)).double()
    kernel.lengthscale = torch.tensor([[0.1, 1.0 / 3.0]], dtype=torch.float64)
    return kernel


KERNELS = {
    "scaled": lambda: scaled(rbf()),
    "matern": lambda: scaled(MaternKernel(nu=1.5)),
    "sum": lambda: scaled(RQKernel()) + PeriodicKernel().double() * LinearKernel().double(),
    "bounded": lambda: scaled(RBFKernel(lengthscale_constraint=Interval(0.1, 1.0 / 3.0))),
    "prior": lambda: scaled_kernel([0, 1]),
    "grouped": lambda: scaled_kernel([0, 0]),
    "cosine": lambda: CosineKernel().double(),
    "choices": lambda: scaled(RBFKernel(active_dims=(0,)) * CategoricalKernel(active_dims=(1,))),
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


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_read_back(value):
    assert read_back(value) == value


def test_values_that_hold_values_and_tensors_read_back():
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
    with pytest.raises(StateMismatchError, match="a kernel in the layout of an early version"):
        object_from_json({**written, "kernel": early})
    later = {**written["kernel"], "layout": 2}
    with pytest.raises(StateMismatchError, match="in the layout 2, and this version of torch_kbandits reads layout 1"):
        object_from_json({**deepcopy(written), "kernel": later})
    cut = deepcopy(written)
    del cut["kernel"]["description"]["tensors"]["raw_lengthscale"]
    with pytest.raises(DamagedFileError, match="does not fit together"):
        object_from_json(cut)


def test_a_saved_experiment_goes_on_as_it_would_have(tmp_path):
    client = client_of(
        UNIT, memory=memory.SlidingWindow(6), candidates=GRID, beta=kb.ScaledWidth(kb.BKBWidth(1.0, 1.0, 0.1), 0.1)
    )
    play(client, lambda x: -((x - 1.0 / 3.0) ** 2), 2, parallel=3)
    waiting = client.get_next_trials(1)
    client.save_to_json_file(str(tmp_path / "experiment.json"))
    loaded = Client.load_from_json_file(str(tmp_path / "experiment.json"))
    assert loaded.get_next_trials(1) == client.get_next_trials(1)
    for c in (client, loaded):
        c.complete_trial(next(iter(waiting)), {"score": 0.1})
    assert loaded.get_next_trials(1) == client.get_next_trials(1)


def test_a_pool_is_saved_but_a_few_times(tmp_path):
    settings = {"kernel": scaled(MaternKernel()), "regularization": 0.01, "initialization_trials": 1}
    client = client_of(UNIT, candidates=GRID, **settings)
    sizes = []
    for _ in range(2):
        play(client, lambda x: -x, 2)
        client.save_to_json_file(str(tmp_path / "experiment.json"))
        sizes.append((tmp_path / "experiment.json").read_text().count("kbandits.CandidatePool"))
    assert sizes[0] == sizes[1] <= 4


GO_ON = """
import json, sys
import torch_kbandits
assert "ax" not in sys.modules  # nobody pays for an integration that is not used
import torch_kbandits.integrations.ax
from ax import Client
found = []
for path in sys.argv[1:]:
    client = Client.load_from_json_file(path)
    trials = []
    for _ in range(3):
        for index, parameters in client.get_next_trials(2).items():
            trials.append(parameters)
            client.complete_trial(index, {"score": -sum(v * v for v in parameters.values() if not isinstance(v, str))})
    found.append(trials)
print("FOUND" + json.dumps(found))
"""

SAVED = {
    "initial": (BRANIN, {}, 3),
    "fitted": (BRANIN, {"beta": kb.ScaledWidth(kb.BKBWidth(0.1, 1.0, 0.1), 0.1)}, 8),
    "mixed": (MIXED, {"transform_outcomes": True}, 7),
    "discount": ([*CONTEXT, *UNIT], {"model": "exact", "memory": memory.Discount(0.9)}, 8),
    "injection": (UNIT, {"memory": memory.UncertaintyInjection(kb.Linear(0.1)), "dictionary": kb.KORS()}, 8),
    "restart": (UNIT, {"memory": memory.Restart(9), "regularization": 0.01, "kernel": scaled(MaternKernel())}, 8),
    "pool": (MIXED, {"candidates": pool_of(500), "dictionary": kb.CappedDictionary(kb.GreedyDictionary(30), 10)}, 6),
}


@pytest.mark.slow
def test_a_new_process_goes_on_as_it_would_have(tmp_path):
    expected, paths = [], []
    for name, (parameters, settings, rounds) in SAVED.items():
        client = client_of(parameters, **settings)
        play(client, lambda **p: (-sum(v * v for v in p.values() if not isinstance(v, str)), 0.1), rounds)
        client.get_next_trials(1)  # one is pending
        paths.append(str(tmp_path / f"{name}.json"))
        client.save_to_json_file(paths[-1])
        trials = []
        for _ in range(3):
            for index, p in client.get_next_trials(2).items():
                trials.append(p)
                client.complete_trial(index, {"score": -sum(v * v for v in p.values() if not isinstance(v, str))})
        expected.append(trials)
    run = subprocess.run(
        [sys.executable, "-c", GO_ON, *paths],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert run.returncode == 0, run.stderr[-3000:]
    found = json.loads(run.stdout.partition("FOUND")[2])
    for name, ours, theirs in zip(SAVED, expected, found, strict=True):
        assert ours == theirs, name


def test_branin_is_known():
    assert branin(3.14159265, 2.275) == pytest.approx(0.397887, abs=1e-5)
    assert validation_error(0.01, 7, "b") == 0.0
