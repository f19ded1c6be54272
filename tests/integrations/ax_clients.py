"""Small experiments for the tests of Ax."""

import math

import numpy as np
import pandas as pd
from ax import ChoiceParameterConfig, Client, RangeParameterConfig

from torch_kbandits.integrations.ax import kernel_bandit_strategy

BRANIN = [
    RangeParameterConfig(name="x1", bounds=(-5.0, 10.0), parameter_type="float"),
    RangeParameterConfig(name="x2", bounds=(0.0, 15.0), parameter_type="float"),
]
UNIT = [RangeParameterConfig(name="x", bounds=(0.0, 1.0), parameter_type="float")]
CONTEXT = [RangeParameterConfig(name="context", bounds=(0.0, 1.0), parameter_type="float")]
MIXED = [
    RangeParameterConfig(name="rate", bounds=(1e-4, 1.0), parameter_type="float", scaling="log"),
    RangeParameterConfig(name="depth", bounds=(1, 20), parameter_type="int"),
    ChoiceParameterConfig(name="loss", values=["a", "b", "c"], parameter_type="str", is_ordered=False),
]
#: Where how the search goes is not what is tested.
GRID = pd.DataFrame({"x": np.linspace(0.0, 1.0, 101)})


def branin(x1, x2):
    """Branin's function, whose least value is 0.398."""
    curve = x2 - 5.1 / (4 * math.pi**2) * x1**2 + 5 / math.pi * x1 - 6
    return curve**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x1) + 10


def validation_error(rate, depth, loss):
    """An error of a made-up learner; least, 0, at rate 0.01, depth 7, loss b."""
    return (math.log10(rate) + 2) ** 2 + 0.02 * (depth - 7) ** 2 + {"a": 1.0, "b": 0.0, "c": 2.0}[loss]


def client_of(parameters, objective="score", constraints=None, outcomes=None, **settings):
    client = Client()
    client.configure_experiment(parameters=parameters, parameter_constraints=constraints)
    client.configure_optimization(objective=objective, outcome_constraints=outcomes)
    client.set_generation_strategy(kernel_bandit_strategy(**{"seed": 0, **settings}))
    return client


def play(client, reward, rounds, parallel=1, fixed=lambda t: None, metric="score"):
    tried, seen = [], []
    for t in range(rounds):
        for index, parameters in client.get_next_trials(parallel, fixed_parameters=fixed(t)).items():
            value = reward(**parameters)
            client.complete_trial(index, raw_data={metric: value})
            tried.append(parameters)
            seen.append(value[0] if isinstance(value, tuple) else value)
    return tried, seen


def tell(client, trials, outcomes, metric="score"):
    """Attach trials with their outcomes, as ``complete_trial`` does, whose words for its log take 40 ms a trial."""
    experiment = client._experiment
    for parameters, outcome in zip(trials, outcomes, strict=True):
        trial = experiment.trials[client.attach_trial(parameters)]
        experiment.attach_data(trial._raw_evaluations_to_data({trial.arm.name: [(math.nan, {metric: outcome})]}))
        trial.mark_completed()


def pool_of(size, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "rate": 10 ** rng.uniform(-4, 0, size),
            "depth": rng.integers(1, 21, size),
            "loss": rng.choice(["a", "b", "c"], size),
        }
    )


def posterior_model(client, metric="score"):
    """The posterior behind the last trial."""
    return client._generation_strategy.adapter.current.model(metric)


def fitted(client):
    """Ax's adapter of the model, fitted to what was told so far, without asking for a trial."""
    spec = client._generation_strategy.nodes_by_name["KernelBandit"].generator_spec
    spec.fit(experiment=client._experiment)
    return spec.fitted_adapter
