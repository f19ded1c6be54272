"""Constraints on parameters are kept, by the first trials and by the model's, in contexts, and among candidates."""

import pandas as pd
import pytest
from ax import ChoiceParameterConfig, RangeParameterConfig
from ax_clients import client_of, play
from botorch.optim import optimize_acqf
from gpytorch.kernels import RBFKernel

from torch_kbandits import InputError
from torch_kbandits.integrations.ax import recommend

KNOWN = {"kernel": RBFKernel(), "regularization": 0.01, "initialization_trials": 6}
X, Y = (RangeParameterConfig(name=name, bounds=(0.0, 1.0), parameter_type="float") for name in "xy")
J, K = (RangeParameterConfig(name=name, bounds=(0, 6), parameter_type="int") for name in "jk")
LOSS = ChoiceParameterConfig(name="loss", values=["a", "b", "c"], parameter_type="str", is_ordered=False)
HOUR = RangeParameterConfig(name="hour", bounds=(5.0, 10.0), parameter_type="float")


@pytest.fixture(autouse=True)
def _few_starts(monkeypatch):
    """Under constraints BoTorch draws starts by a walk of 40,000 steps and climbs from one after another."""
    few = {"num_restarts": 2, "raw_samples": 8}

    def search(options, **words):
        return optimize_acqf(**words | few, options={**options, "n_burnin": 100})

    monkeypatch.setattr("ax.generators.torch.botorch_modular.acquisition.optimize_acqf", search)


#: Parameters, a constraint, the same in Python, and rewards that would be larger beyond it.
PROBLEMS = {
    "ranges": ([X, Y], "x + y <= 0.5", lambda x, y: x + y <= 0.5, lambda x, y: x + 2.0 * y),
    "an order": ([X, Y], "x <= y", lambda x, y: x <= y, lambda x, y: x - 0.5 * y),
    "whole numbers": ([J, K], "j + k <= 4", lambda j, k: j + k <= 4, lambda j, k: j + 2.0 * k),
    "some of each": (
        [X, K, LOSS],
        "6*x + k <= 3",
        lambda x, k, loss: 6.0 * x + k <= 3.0,
        lambda x, k, loss: x + k + (loss == "b"),
    ),
}


@pytest.mark.one_in(3)
@pytest.mark.filterwarnings("ignore:Unknown solver options")  # of Ax, where some parameters are choices
@pytest.mark.parametrize(
    "problem", [pytest.param(name, marks=pytest.mark.slow if name == "some of each" else []) for name in PROBLEMS]
)
def test_all_trials_and_the_recommendation_keep_a_constraint(problem):
    """To the 1e-8 that Ax allows."""
    parameters, constraint, keeps, reward = PROBLEMS[problem]
    client = client_of(parameters, constraints=[constraint], **KNOWN)
    tried, _ = play(client, reward, 4, parallel=2)
    for each in (*tried, recommend(client)):
        inside = {name: value - 1e-8 if name == "x" else value for name, value in each.items()}
        assert keeps(**inside), each


def test_in_a_context_the_others_make_room_for_it():
    client = client_of([X, Y], constraints=["x + y <= 0.5"], **KNOWN)
    tried, _ = play(client, lambda x, y: y, 8, fixed=lambda t: {"x": 0.1 + 0.2 * (t % 2)})
    assert all(each["x"] + each["y"] <= 0.5 + 1e-8 for each in tried)
    assert recommend(client, {"x": 0.3})["y"] == pytest.approx(0.2, abs=1e-3)


@pytest.mark.parametrize("trials", [0, 2])
def test_a_context_that_breaks_a_constraint_is_refused(trials):
    client = client_of([X, Y], constraints=["x - y <= -0.3"], **KNOWN | {"initialization_trials": 1})
    play(client, lambda x, y: y, trials)
    with pytest.raises(InputError, match=r"fixed_parameters \{'x': 0.8\} break the constraint .* whatever"):
        client.get_next_trials(1, fixed_parameters={"x": 0.8})


def test_of_candidates_those_that_break_a_constraint_are_left_out():
    rows, words = pd.DataFrame({"x": [0.1, 0.2, 0.9]}), KNOWN | {"initialization_trials": 2}
    client = client_of([X, Y], constraints=["x + y <= 0.5"], candidates=rows, **words)
    tried, _ = play(client, lambda x, y: x + y, 5, fixed=lambda t: {"y": 0.1 + 0.25 * (t % 2)})
    assert {(each["x"], each["y"]) for each in tried} <= {(0.1, 0.1), (0.2, 0.1), (0.1, 0.35)}
    with pytest.raises(InputError, match=r"No row of candidates keeps the constraints .*\{'y': 0.45\}: add rows"):
        client.get_next_trials(1, fixed_parameters={"y": 0.45})


@pytest.mark.parametrize(
    ("parameters", "fixed"), [([HOUR, X], {"hour": 6.0}), ([K, X], {"k": 2}), ([LOSS, X], {"loss": "c"})]
)
def test_the_first_trials_too_are_made_in_contexts_of_any_kind(parameters, fixed):
    """Ax hands a context over as numbers of the unit cube, in which it may lie outside its range."""
    client = client_of(parameters, **KNOWN | {"initialization_trials": 1})
    tried, _ = play(client, lambda x, **_: x, 2, fixed=lambda t: fixed)
    assert all(fixed.items() <= each.items() for each in tried)
