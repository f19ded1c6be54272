"""Experiments with Ax's client, as users run them: trials, contexts, pools, constraints of parameters and outcomes."""

import math

import numpy as np
import pandas as pd
import pytest
from ax import ChoiceParameterConfig, Client, RangeParameterConfig
from ax.core.trial_status import TrialStatus
from ax_clients import (
    BRANIN,
    CONTEXT,
    GRID,
    MIXED,
    RANDOM,
    UNIT,
    branin,
    client_of,
    play,
    pool_of,
    posterior_model,
    validation_error,
)
from botorch.optim import optimize_acqf
from gpytorch.kernels import MaternKernel, ScaleKernel
from problems import rbf

from torch_kbandits import EmptyHistoryError, InputError
from torch_kbandits.integrations.ax import recommend

FIXED = {"kernel": rbf(0.2, 1.0), "regularization": 0.01, "initialization_trials": 3}
ON_GRID = {**FIXED, "candidates": GRID}


def test_equal_seeds_get_equal_trials_and_minimising_is_maximising_the_negative():
    """Whatever else is measured of one of them."""

    def tried(sign, seed):
        client, found = client_of(UNIT, "score" if sign > 0.0 else "-score", seed=seed, **ON_GRID), []
        for _ in range(2):
            for index, p in client.get_next_trials(3).items():
                tracked = {"seconds": 3.0 + p["x"]} if sign > 0.0 else {}
                client.complete_trial(index, {"score": -sign * (p["x"] - 0.3) ** 2, **tracked})
                found.append(p["x"])
        return found

    first, other, most = tried(-1.0, 3), tried(-1.0, 4), tried(1.0, 3)
    assert first != other
    assert most == pytest.approx(first, abs=1e-6)


def test_trials_are_there_before_the_first_outcome_and_those_pending_spread():
    client = client_of(UNIT, **ON_GRID)
    for fixed in (None, {"x": 0.5}):
        with pytest.raises(EmptyHistoryError, match="no trial has an outcome"):
            recommend(client, fixed)
    alone = client_of(UNIT, **ON_GRID)
    first = alone.get_next_trials(3)
    assert client.get_next_trials(3) == first
    assert len({p["x"] for p in first.values()}) == 3
    for index in (2, 0, 1):  # told in any order
        for each in (client, alone):
            each.complete_trial(index, {"score": -((first[index]["x"] - 0.3) ** 2)})
    asked = client.get_next_trials(4)
    assert min(np.diff(sorted(p["x"] for p in asked.values()))) > 0.0
    assert next(iter(alone.get_next_trials(1).values())) == asked[3]  # the first of a batch is the single one
    for index in reversed(asked):
        client.complete_trial(index, {"score": -((asked[index]["x"] - 0.3) ** 2)})
    assert posterior_model(client).num_observations == 3
    client.get_next_trials(1)
    assert posterior_model(client).num_observations == 7


def test_failed_trials_wait_and_abandoned_ones_stay_pending():
    client = client_of(UNIT, **ON_GRID)
    play(client, lambda x: -((x - 0.3) ** 2), 1, parallel=3)
    (first,) = client.get_next_trials(1)
    failed = client._experiment.trials[first].arm.parameters["x"]
    client.mark_trial_failed(first)
    (second,) = client.get_next_trials(1)
    assert abs(client._experiment.trials[second].arm.parameters["x"] - failed) > 1e-3
    client.mark_trial_failed(second)
    (third,) = client.get_next_trials(1)  # the first has waited for one trial
    assert client._experiment.trials[third].arm.parameters["x"] == pytest.approx(failed)
    client.mark_trial_abandoned(third)
    (fourth,) = client.get_next_trials(1)
    assert abs(client._experiment.trials[fourth].arm.parameters["x"] - failed) > 1e-3
    assert client._experiment.trials[third].status == TrialStatus.ABANDONED
    assert posterior_model(client).num_observations == 3


def test_choices_may_be_tried_again():
    names = [ChoiceParameterConfig(name="arm", values=["a", "b", "c"], parameter_type="str", is_ordered=False)]
    client = client_of(names, initialization_trials=3, regularization=0.25, kernel=rbf(1.0, 1.0))
    rng = np.random.default_rng(0)
    reward = lambda arm: {"a": 0.0, "b": 1.0, "c": -1.0}[arm] + 0.1 * rng.normal()  # noqa: E731
    play(client, reward, 1, parallel=3)
    tried, _ = play(client, reward, 4)
    assert [p["arm"] for p in tried].count("b") >= 3


@pytest.mark.slow
def test_a_context_is_fixed_and_tells_of_those_like_it():
    """The best action is the context itself; learned at 0.2 and 0.8 in turn, it is known in between."""
    client = client_of([*CONTEXT, *UNIT], kernel=rbf(0.4, 1.0), regularization=1e-4, initialization_trials=4)
    asked = [
        client.get_next_trials(1, fixed_parameters={"context": each})[n]["x"] for n, each in enumerate((0.5, 0.501))
    ]
    assert abs(asked[0] - asked[1]) > 1e-3  # what is pending in one context counts in others
    tried, _ = play(
        client,
        lambda context, x: 1.0 - 4.0 * (x - context) ** 2,
        12,
        fixed=lambda t: {"context": (0.2, 0.8, 0.5)[t % 3]},
    )
    assert [p["context"] for p in tried] == [(0.2, 0.8, 0.5)[t % 3] for t in range(12)]
    for context in (0.2, 0.35, 0.7):
        best = recommend(client, {"context": context})
        assert best["context"] == context
        assert best["x"] == pytest.approx(context, abs=0.12)


def test_a_pool_is_all_that_is_tried():
    pool = pool_of(300)
    client = client_of(MIXED, "-score", candidates=pool, kernel=ScaleKernel(MaternKernel()), regularization=0.01)
    tried, seen = play(client, validation_error, 3, parallel=3)
    rows = set(pool.itertuples(index=False, name=None))
    assert all((p["rate"], p["depth"], p["loss"]) in rows for p in tried)  # to the last digit
    assert len({tuple(sorted(p.items())) for p in tried[:5]}) == 5
    assert min(seen) < np.quantile([validation_error(*row) for row in rows], 0.1)
    best = recommend(client, {"loss": "c"})
    assert best["loss"] == "c"
    assert (best["rate"], best["depth"], "c") in rows


def test_a_pool_of_actions_is_played_in_every_context():
    pool = pd.DataFrame({"x": [0.1, 0.5, 0.9]})
    client = client_of([*CONTEXT, *UNIT], candidates=pool, kernel=rbf(0.5, 1.0), regularization=0.01)
    tried, _ = play(
        client, lambda context, x: -((x - context) ** 2), 2, parallel=4, fixed=lambda t: {"context": (0.1, 0.9)[t]}
    )
    assert {p["x"] for p in tried} <= {0.1, 0.5, 0.9}
    assert recommend(client, {"context": 0.15})["x"] == 0.1
    assert recommend(client, {"context": 0.85})["x"] == 0.9
    with pytest.raises(InputError, match=r"lacks the column\(s\) \['context'\]"):
        client.get_next_trials(1)


# ---------------------------------------------------------------- constraints on parameters

X, Y = (RangeParameterConfig(name=name, bounds=(0.0, 1.0), parameter_type="float") for name in "xy")
J, K = (RangeParameterConfig(name=name, bounds=(0, 6), parameter_type="int") for name in "jk")
LOSS = ChoiceParameterConfig(name="loss", values=["a", "b", "c"], parameter_type="str", is_ordered=False)
HOUR = RangeParameterConfig(name="hour", bounds=(5.0, 10.0), parameter_type="float")
LINEAR = {"kernel": rbf(0.7), "regularization": 0.01, "initialization_trials": 6}


@pytest.fixture
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


@pytest.mark.filterwarnings("ignore:Unknown solver options")  # of Ax, where some parameters are choices
@pytest.mark.usefixtures("_few_starts")
@pytest.mark.parametrize(
    "problem", [pytest.param(name, marks=[] if name == "ranges" else pytest.mark.slow) for name in PROBLEMS]
)
def test_all_trials_and_the_recommendation_keep_a_constraint(problem):
    """To the 1e-8 that Ax allows."""
    parameters, constraint, keeps, reward = PROBLEMS[problem]
    client = client_of(parameters, constraints=[constraint], **LINEAR)
    tried, _ = play(client, reward, 4, parallel=2)
    for each in (*tried, recommend(client)):
        inside = {name: value - 1e-8 if name == "x" else value for name, value in each.items()}
        assert keeps(**inside), each


@pytest.mark.usefixtures("_few_starts")
def test_in_a_context_the_others_make_room_for_it():
    client = client_of([X, Y], constraints=["x + y <= 0.5"], **LINEAR)
    tried, _ = play(client, lambda x, y: y, 7, fixed=lambda t: {"x": 0.1 + 0.2 * (t % 2)})
    assert all(each["x"] + each["y"] <= 0.5 + 1e-8 for each in tried)
    assert recommend(client, {"x": 0.3})["y"] == pytest.approx(0.2, abs=1e-3)
    with pytest.raises(InputError, match=r"fixed_parameters \{'x': 0.8\} break the constraint .* whatever"):
        client.get_next_trials(1, fixed_parameters={"x": 0.8})


def test_of_candidates_those_that_break_a_constraint_are_left_out():
    rows, words = pd.DataFrame({"x": [0.1, 0.2, 0.9]}), LINEAR | {"initialization_trials": 2}
    client = client_of([X, Y], constraints=["x + y <= 0.5"], candidates=rows, **words)
    tried, _ = play(client, lambda x, y: x + y, 5, fixed=lambda t: {"y": 0.1 + 0.25 * (t % 2)})
    assert {(each["x"], each["y"]) for each in tried} <= {(0.1, 0.1), (0.2, 0.1), (0.1, 0.35)}
    with pytest.raises(InputError, match=r"No row of candidates keeps the constraints .*\{'y': 0.45\}: add rows"):
        client.get_next_trials(1, fixed_parameters={"y": 0.45})


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("parameters", "fixed"), [([HOUR, X], {"hour": 6.0}), ([K, X], {"k": 2}), ([LOSS, X], {"loss": "c"})]
)
def test_the_first_trials_too_are_made_in_contexts_of_any_kind(parameters, fixed):
    """Ax hands a context over as numbers of the unit cube, in which it may lie outside its range."""
    client = client_of(parameters, **LINEAR | {"initialization_trials": 1})
    tried, _ = play(client, lambda x, **_: x, 2, fixed=lambda t: fixed)
    assert all(fixed.items() <= each.items() for each in tried)


# ---------------------------------------------------------------- constraints on outcomes


def heat(x):
    """The score grows with x, and so does the heat: at most 75 up to x = 0.5."""
    return {"score": 3.0 * x, "heat": 50.0 + 100.0 * x**2}


KNOWN = {"kernel": rbf(0.4, 4.0), "regularization": 1e-4, "initialization_trials": 3, "candidates": GRID}


def measured(client, measure, rounds):
    tried = []
    for _ in range(rounds):
        for index, parameters in client.get_next_trials(1).items():
            client.complete_trial(index, measure(**parameters))
            tried.append(parameters)
    return tried


@pytest.mark.parametrize(
    ("model", "pool", "sign", "outcomes", "best"),
    [
        ("nystrom", GRID, "", ["heat <= 75"], 0.5),
        pytest.param("exact", GRID, "", ["heat <= 75"], 0.5, marks=pytest.mark.slow),
        pytest.param("exact", None, "", ["heat <= 75"], 0.5, marks=pytest.mark.slow),
        pytest.param("nystrom", GRID, "-", ["heat >= 66", "heat <= 90"], 0.4, marks=pytest.mark.slow),
    ],
)
def test_trials_come_to_the_limit_and_the_recommendation_keeps_it(model, pool, sign, outcomes, best):
    client = client_of(UNIT, f"{sign}score", outcomes=outcomes, model=model, **KNOWN | {"candidates": pool})
    tried = measured(client, heat, 8)
    assert tried[-1]["x"] == pytest.approx(best, abs=0.05)
    assert recommend(client)["x"] == pytest.approx(best, abs=0.02)
    if not sign:
        limited, scored = posterior_model(client).models  # in the order of their names
        assert scored.covar_module.outputscale.item() == 4.0  # what is known beforehand is of the objective alone
        assert limited.covar_module.outputscale.item() > 50.0


def test_safe_trials_never_break_the_limit_also_from_a_saved_experiment(tmp_path):
    words = {"constraint_mode": "safe", "constraint_beta": 2.5} | KNOWN
    client = client_of(UNIT, outcomes=["heat <= 75"], **words)
    for x in (0.0, 0.1, 0.2, 0.3, 0.4):  # what is fitted to heats of 50 to 66 knows how far they may rise
        client.complete_trial(client.attach_trial({"x": x}), heat(x))
    client.save_to_json_file(str(tmp_path / "experiment.json"))
    tried = [each["x"] for each in measured(client, heat, 4)]
    assert max(tried) <= 0.5
    assert max(tried) > 0.4
    assert recommend(client)["x"] <= 0.5
    loaded = Client.load_from_json_file(str(tmp_path / "experiment.json"))
    assert [each["x"] for each in measured(loaded, heat, 2)] == tried[:2]


def constrained_branin(x1, x2):
    """Branin's function, in the disc of Gardner et al. (2014) of radius √50 around (2.5, 7.5)."""
    return {"branin": branin(x1, x2), "distance": (x1 - 2.5) ** 2 + (x2 - 7.5) ** 2}


@pytest.mark.slow
def test_constrained_branin_is_minimised_and_a_constraint_may_be_relative_to_a_baseline():
    """The median of three seeds comes within 1 of 0.398 in 20 trials."""
    found = []
    for seed in range(3):
        client = client_of(BRANIN, "-branin", outcomes=["distance <= 50"], seed=seed)
        seen = [constrained_branin(**each) for each in measured(client, constrained_branin, 20)]
        found.append(min((each["branin"] for each in seen if each["distance"] <= 50.0), default=math.inf))
    assert np.median(found) < 1.4
    client = client_of(UNIT, outcomes=["heat <= 1.25 * baseline"], **KNOWN)
    first = client.attach_baseline({"x": 0.3})  # a heat of 59, so at most 73.75: x up to 0.487
    client.complete_trial(first, heat(0.3))
    measured(client, heat, 8)
    assert recommend(client)["x"] == pytest.approx(0.487, abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("problem", ["noisy branin in batches", "mixed"])
def test_functions_are_minimised_better_than_at_random(problem):
    """Of ten seeds, fixed before the first run, at least nine: by chance that would happen with probability 11/1024."""
    better = []
    for seed in range(10):
        rng, drawn = np.random.default_rng(seed), np.random.default_rng(1_000 + seed)
        if problem == "mixed":
            client, name, reward = client_of(MIXED, "-score", seed=seed), "mixed", validation_error
            tried, _ = play(client, reward, 20)
        else:
            client, name, reward = client_of(BRANIN, "-score", seed=seed, model="exact"), "branin", branin
            tried, _ = play(client, lambda **p: (branin(**p) + 2.0 * rng.normal(), 2.0), 8, parallel=3)  # noqa: B023
        at_random = min(reward(**RANDOM[name](drawn)) for _ in tried)
        better.append(min(reward(**p) for p in tried) < at_random)
    assert sum(better) >= 9, better
