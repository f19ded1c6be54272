"""Outcome constraints of Ax's experiments: metrics of their own surrogates, which trials keep."""

import math

import numpy as np
import pandas as pd
import pytest
from ax import Client
from ax_clients import BRANIN, UNIT, branin, client_of, posterior_model
from gpytorch.kernels import RBFKernel, ScaleKernel
from problems import exactly

from torch_kbandits import InputError
from torch_kbandits.integrations.ax import kernel_bandit_strategy, recommend

GRID = pd.DataFrame({"x": np.linspace(0.0, 1.0, 101)})


def heat(x):
    """The score grows with x, and so does the heat: at most 75 up to x = 0.5."""
    return {"score": 3.0 * x, "heat": 50.0 + 100.0 * x**2}


def kernel():
    base = RBFKernel().double()
    base.lengthscale = exactly(0.4)
    scaled = ScaleKernel(base).double()
    scaled.outputscale = exactly(4.0)
    return scaled


KNOWN = {"kernel": kernel(), "regularization": 1e-4, "initialization_trials": 3}


def play(client, measure, rounds):
    tried = []
    for _ in range(rounds):
        for index, parameters in client.get_next_trials(1).items():
            client.complete_trial(index, measure(**parameters))
            tried.append(parameters)
    return tried


@pytest.mark.parametrize(
    "words", [pytest.param({}, marks=pytest.mark.slow, id="range"), pytest.param({"candidates": GRID}, id="pool")]
)
@pytest.mark.parametrize("model", ["exact", "nystrom"])
@pytest.mark.one_in(2)
def test_trials_come_to_the_limit_and_the_recommendation_keeps_it(model, words):
    client = client_of(UNIT, outcomes=["heat <= 75"], model=model, **KNOWN | words)
    tried = play(client, heat, 10)
    assert heat(tried[-1]["x"])["heat"] == pytest.approx(75.0, abs=2.0)
    best = recommend(client)
    assert heat(**best)["heat"] <= 75.5
    assert best["x"] == pytest.approx(0.5, abs=0.02)


def test_safe_trials_never_break_the_limit():
    client = client_of(UNIT, outcomes=["heat <= 75"], constraint_mode="safe", candidates=GRID, **KNOWN)
    for x in (0.0, 0.1, 0.2, 0.3, 0.4):  # what is fitted to heats of 50 to 66 knows how far they may rise
        client.complete_trial(client.attach_trial({"x": x}), heat(x))
    tried = [each["x"] for each in play(client, heat, 8)]
    assert max(tried) <= 0.5
    assert max(tried) > 0.4
    assert recommend(client)["x"] <= 0.5


@pytest.mark.slow
def test_constraints_of_either_sign_are_kept_while_minimising():
    client = client_of(UNIT, "-score", outcomes=["heat >= 66", "heat <= 90"], candidates=GRID, **KNOWN)
    tried = play(client, heat, 8)
    assert tried[-1]["x"] == pytest.approx(0.4, abs=0.05)
    assert recommend(client)["x"] == pytest.approx(0.4, abs=0.011)


def test_what_is_known_beforehand_is_of_the_objective_alone():
    client = client_of(UNIT, outcomes=["heat <= 75"], candidates=GRID, **KNOWN | {"prior_mean": 1.0})
    play(client, heat, 5)
    limited, scored = posterior_model(client).models  # in the order of their names
    assert scored.covar_module.outputscale.item() == 4.0
    assert scored.mean_module.constant.item() == 1.0
    assert limited.covar_module.outputscale.item() > 50.0
    assert limited.mean_module.constant.item() > 40.0


@pytest.mark.slow
def test_relative_constraints_are_of_the_baseline_as_in_ax():
    client = Client()
    client.configure_experiment(UNIT)
    client.configure_optimization("score", outcome_constraints=["heat <= 1.25 * baseline"])
    client.set_generation_strategy(kernel_bandit_strategy(seed=0, candidates=GRID, **KNOWN))
    first = client.attach_baseline({"x": 0.3})  # a heat of 59, so at most 73.75: x up to 0.487
    client.complete_trial(first, heat(0.3))
    play(client, heat, 8)
    assert recommend(client)["x"] == pytest.approx(0.487, abs=0.02)


@pytest.mark.slow
def test_a_saved_experiment_goes_on_as_it_would_have(tmp_path):
    client = client_of(
        UNIT, outcomes=["heat <= 75"], constraint_mode="safe", constraint_beta=2.5, candidates=GRID, **KNOWN
    )
    play(client, heat, 5)
    client.save_to_json_file(str(tmp_path / "experiment.json"))
    loaded = Client.load_from_json_file(str(tmp_path / "experiment.json"))
    assert play(loaded, heat, 3) == play(client, heat, 3)


def test_modes_and_widths_are_checked_when_the_strategy_is_made():
    for words, message in [
        ({"constraint_mode": "sure"}, 'constraint_mode must be "safe" or "optimistic"'),
        ({"constraint_beta": -1.0}, "finite number of at least 0"),
    ]:
        with pytest.raises(InputError, match=message):
            client_of(UNIT, **words)


def constrained_branin(x1, x2):
    """Branin's function, in the disc of Gardner et al. (2014) of radius √50 around (2.5, 7.5)."""
    return {"branin": branin(x1, x2), "distance": (x1 - 2.5) ** 2 + (x2 - 7.5) ** 2}


def best_within(tried):
    found = [constrained_branin(**each) for each in tried]
    kept = [each["branin"] for each in found if each["distance"] <= 50.0]
    return min(kept, default=math.inf), len(kept) / len(tried)


@pytest.mark.slow
def test_constrained_branin_beside_the_strategy_of_ax():
    """The median of three seeds comes within 1 of 0.398 in 20 trials, and within 1 of what Ax finds."""
    ours, theirs = [], []
    for seed in range(3):
        clients = [client_of(BRANIN, "-branin", outcomes=["distance <= 50"], seed=seed), Client(random_seed=seed)]
        clients[1].configure_experiment(BRANIN)
        clients[1].configure_optimization("-branin", outcome_constraints=["distance <= 50"])
        for client, found in zip(clients, (ours, theirs), strict=True):
            found.append(best_within(play(client, constrained_branin, 20)))
    assert np.median([best for best, _ in ours]) < 1.4
    assert np.median([best for best, _ in ours]) < np.median([best for best, _ in theirs]) + 1.0
