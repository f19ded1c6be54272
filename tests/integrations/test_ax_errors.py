"""What is refused, and in which words."""

import numpy as np
import pandas as pd
import pytest
from ax import ChoiceParameterConfig, Client, RangeParameterConfig
from ax.api.configs import DerivedParameterConfig
from ax_clients import BRANIN, CONTEXT, MIXED, UNIT, client_of, pool_of
from gpytorch.kernels import RBFKernel

from torch_kbandits import GreedyDictionary, InputError, Linear
from torch_kbandits.integrations.ax import kernel_bandit_strategy, recommend
from torch_kbandits.memory import BackToPrior, UncertaintyInjection

DEPENDENT = ChoiceParameterConfig(
    name="model", values=["u", "v"], parameter_type="str", is_ordered=False, dependent_parameters={"u": ["x"]}
)

ORDERED = ChoiceParameterConfig(name="size", values=[1, 2, 3, 7], parameter_type="int", is_ordered=True)


@pytest.mark.parametrize(
    ("parameters", "settings", "message"),
    [
        (BRANIN, {"objective": "y1, y2"}, r"One metric can be optimised, and the objective has \['y1', 'y2'\]"),
        (BRANIN, {"objective": "y1 + 2*y2"}, "One metric can be optimised"),
        (
            [*UNIT, ORDERED],
            {"constraints": ["x + size <= 1"]},
            r"is on the choice\(s\) \['size'\]; what works is linear",
        ),
        ([DEPENDENT, *UNIT], {}, "'model' is hierarchical.*what works is float and int ranges"),
        (
            [*UNIT, DerivedParameterConfig(name="twice", expression_str="2*x", parameter_type="float")],
            {},
            "'twice' is a DerivedParameter",
        ),
    ],
)
def test_experiments_are_refused_before_the_first_trial(parameters, settings, message):
    client = client_of(parameters, **settings)
    with pytest.raises(InputError, match=message):
        client.get_next_trials(1)
    assert not client._experiment.trials


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seed": -1}, "seed must be a whole number of at least 0"),
        ({"model": "sparse"}, 'model must be "nystrom" or "exact"'),
        ({"model": "exact", "dictionary": GreedyDictionary(3)}, 'A dictionary belongs to model="nystrom"'),
        ({"dictionary": 30}, "dictionary must be a rule"),
        ({"memory": 30}, "memory must be a memory"),
        ({"memory": BackToPrior(0.1)}, "needs points that know their time"),
        ({"beta": -1.0}, "must be a finite number of at least 0"),
        ({"kernel": "rbf"}, "kernel must be a GPyTorch kernel"),
        ({"regularization": 0.0}, "regularization must be a finite number above 0"),
        ({"prior_mean": np.nan}, "prior_mean must be a finite number"),
        ({"initialization_trials": 0}, "initialization_trials must be a whole number of at least 1"),
        ({"constraint_mode": "sure"}, 'constraint_mode must be "safe" or "optimistic"'),
        ({"constraint_beta": -1.0}, "finite number of at least 0"),
        ({"memory": UncertaintyInjection(Linear(1.0), max_variance=3.0)}, "give regularization"),
        ({"candidates": [{"x": 0.5}]}, "candidates must be a pandas data frame"),
        ({"candidates": pd.DataFrame({"x": []})}, "at least one row"),
        ({"candidates": pd.DataFrame([[0.1, 0.2]], columns=["x", "x"])}, r"more than one column .*\['x'\]"),
        ({"candidates": pd.DataFrame({"x": [0.5, np.nan]})}, "1 are NaN or None, the first in column 'x', row 1"),
    ],
)
def test_arguments_are_checked_when_the_strategy_is_made(settings, message):
    with pytest.raises(InputError, match=message):
        kernel_bandit_strategy(**{"seed": 0, **settings})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda pool: pool.drop(columns=["depth"]), r"lacks the column\(s\) \['depth'\]: add them"),
        (lambda pool: pool.assign(price=1.0), r"column\(s\) \['price'\], which are no parameters"),
        (lambda pool: pool.assign(rate=2.0), "10 value.* of 'rate' outside the search space, such as 2.0 in row 0"),
        (lambda pool: pool.assign(depth=3.5), "of 'depth' outside the search space, such as 3.5 in row 0"),
        (lambda pool: pool.assign(loss="d"), "of 'loss' outside the search space, such as 'd' in row 0"),
    ],
)
def test_pools_are_checked_against_the_search_space_before_the_first_trial(change, message):
    client = client_of(MIXED, candidates=change(pool_of(10)))
    with pytest.raises(InputError, match=message):
        client.get_next_trials(1)
    assert not client._experiment.trials


FIXED = [
    ({"y": 0.5}, "fixed_parameters has 'y', which is no parameter"),
    ({"x": 1.5}, "fixed_parameters has 'x' = 1.5, outside"),
    ({"x": 0.3}, r"No row of candidates has the fixed parameters \{'x': 0.3\}"),
]


@pytest.mark.parametrize(("fixed", "message"), FIXED)
@pytest.mark.parametrize("trials", [0, 2])
def test_fixed_parameters_are_checked(fixed, message, trials):
    pool = pd.DataFrame({"x": [0.1, 0.2], "context": [0.1, 0.2]})
    words = {"candidates": pool, "kernel": RBFKernel(), "regularization": 0.1, "initialization_trials": 2}
    client = client_of([*CONTEXT, *UNIT], **words)
    for index in client.get_next_trials(trials) if trials else ():
        client.complete_trial(index, {"score": 0.0})
    with pytest.raises(InputError, match=message):
        client.get_next_trials(1, fixed_parameters=fixed)


def test_recommendations_are_of_these_strategies():
    client = Client()
    with pytest.raises(InputError, match="kernel_bandit_strategy"):
        recommend(client)
    client.configure_experiment([RangeParameterConfig(name="x", bounds=(0.0, 1.0), parameter_type="float")])
    client.configure_optimization("y")
    client.configure_generation_strategy("random_search")
    with pytest.raises(InputError, match="kernel_bandit_strategy"):
        recommend(client)
