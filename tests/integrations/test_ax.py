"""Experiments with Ax's client, as users run them."""

import time

import numpy as np
import pandas as pd
import pytest
from ax import ChoiceParameterConfig
from ax.core.trial_status import TrialStatus
from ax_clients import (
    BRANIN,
    CONTEXT,
    GRID,
    MIXED,
    UNIT,
    branin,
    client_of,
    play,
    pool_of,
    posterior_model,
    validation_error,
)
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from problems import exactly

from torch_kbandits import EmptyHistoryError, InputError
from torch_kbandits.integrations.ax import recommend


def kernel(lengthscale=0.2, outputscale=1.0):
    base = RBFKernel().double()
    base.lengthscale = exactly(lengthscale)
    scaled = ScaleKernel(base).double()
    scaled.outputscale = exactly(outputscale)
    return scaled


FIXED = {"kernel": kernel(), "regularization": 0.01, "initialization_trials": 3}
ON_GRID = {**FIXED, "candidates": GRID}


def test_branin_is_minimised():
    client = client_of(BRANIN, "-branin")
    play(client, branin, 1, parallel=5, metric="branin")
    _, seen = play(client, branin, 5, metric="branin")
    assert min(seen) < 2.0
    best = recommend(client)
    assert branin(**best) < 2.0


def test_minimising_and_maximising_the_negative_are_the_same():
    down, _ = play(client_of(UNIT, "-score", **ON_GRID), lambda x: (x - 0.3) ** 2, 2, parallel=3)
    up, _ = play(client_of(UNIT, "score", **ON_GRID), lambda x: -((x - 0.3) ** 2), 2, parallel=3)
    assert [p["x"] for p in down] == pytest.approx([p["x"] for p in up], abs=1e-6)


def test_equal_seeds_get_equal_trials_and_others_do_not():
    runs = [play(client_of(UNIT, seed=seed, **ON_GRID), lambda x: -x, 2, parallel=3)[0] for seed in (3, 3, 4)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_an_extra_look_changes_nothing():
    plain, looked = client_of(UNIT, **ON_GRID), client_of(UNIT, **ON_GRID)
    for client in (plain, looked):
        play(client, lambda x: -((x - 0.3) ** 2), 2, parallel=2)
    recommend(looked)
    recommend(looked, {"x": 0.5})
    assert plain.get_next_trials(2) == looked.get_next_trials(2)


def test_pending_trials_spread_and_shrink_the_variance_only():
    client = client_of(UNIT, **ON_GRID)
    play(client, lambda x: -((x - 0.3) ** 2), 1, parallel=3)
    asked = client.get_next_trials(4)
    points = sorted(p["x"] for p in asked.values())
    assert min(np.diff(points)) > 0.0
    alone = client_of(UNIT, **ON_GRID)
    play(alone, lambda x: -((x - 0.3) ** 2), 1, parallel=3)
    assert next(iter(alone.get_next_trials(1).values())) == asked[3]  # the first of a batch is the single one
    # Told in any order, the experiment goes on.
    for index in reversed(asked):
        client.complete_trial(index, {"score": -((asked[index]["x"] - 0.3) ** 2)})
    assert posterior_model(client).num_observations == 3
    client.get_next_trials(1)
    assert posterior_model(client).num_observations == 7


def test_trials_are_there_before_the_first_outcome():
    client = client_of(UNIT, **{**FIXED, "initialization_trials": 2})
    waiting = client.get_next_trials(5)
    assert len({p["x"] for p in waiting.values()}) == 5
    client.complete_trial(3, {"score": 1.0})
    assert len(client.get_next_trials(1)) == 1
    assert posterior_model(client).num_observations == 1


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
    client = client_of(names, initialization_trials=3, regularization=0.25, kernel=kernel(1.0))
    rng = np.random.default_rng(0)
    reward = lambda arm: {"a": 0.0, "b": 1.0, "c": -1.0}[arm] + 0.1 * rng.normal()  # noqa: E731
    play(client, reward, 1, parallel=3)
    tried, _ = play(client, reward, 6)
    assert [p["arm"] for p in tried].count("b") >= 5


@pytest.mark.slow
def test_mixed_parameters_are_of_their_kinds():
    client = client_of(MIXED, "-score", kernel=kernel(0.7, 4.0), regularization=0.01, prior_mean=4.0)
    tried, _ = play(client, validation_error, 9)
    for p in tried:
        assert 1e-4 <= p["rate"] <= 1.0
        assert isinstance(p["depth"], int)
        assert p["loss"] in ("a", "b", "c")


@pytest.mark.slow
def test_a_context_is_fixed_and_tells_of_those_like_it():
    """The best action is the context itself; learned at 0.2 and 0.8 in turn, it is known in between."""
    client = client_of([*CONTEXT, *UNIT], kernel=kernel(0.4), regularization=1e-4, initialization_trials=4)
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


def test_what_is_pending_in_one_context_counts_in_others():
    client = client_of([*CONTEXT, *UNIT], kernel=kernel(0.4), regularization=0.01, initialization_trials=3)
    play(client, lambda context, x: -((x - context) ** 2), 1, parallel=3)
    (first,) = client.get_next_trials(1, fixed_parameters={"context": 0.5}).values()
    (second,) = client.get_next_trials(1, fixed_parameters={"context": 0.501}).values()
    assert abs(first["x"] - second["x"]) > 1e-3


def test_a_pool_is_all_that_is_tried():
    pool = pool_of(300)
    client = client_of(MIXED, "-score", candidates=pool, kernel=ScaleKernel(MaternKernel()), regularization=0.01)
    tried, seen = play(client, validation_error, 4, parallel=3)
    rows = set(pool.itertuples(index=False, name=None))
    assert all((p["rate"], p["depth"], p["loss"]) in rows for p in tried)  # to the last digit
    assert len({tuple(sorted(p.items())) for p in tried[:5]}) == 5
    assert min(seen) < np.quantile([validation_error(*row) for row in rows], 0.1)
    best = recommend(client, {"loss": "c"})
    assert best["loss"] == "c"
    assert (best["rate"], best["depth"], "c") in rows


def test_a_pool_of_actions_is_played_in_every_context():
    pool = pd.DataFrame({"x": [0.1, 0.5, 0.9]})
    client = client_of([*CONTEXT, *UNIT], candidates=pool, kernel=kernel(0.5), regularization=0.01)
    tried, _ = play(
        client, lambda context, x: -((x - context) ** 2), 2, parallel=4, fixed=lambda t: {"context": (0.1, 0.9)[t]}
    )
    assert {p["x"] for p in tried} <= {0.1, 0.5, 0.9}
    assert recommend(client, {"context": 0.15})["x"] == 0.1
    assert recommend(client, {"context": 0.85})["x"] == 0.9
    with pytest.raises(InputError, match=r"lacks the column\(s\) \['context'\]"):
        client.get_next_trials(1)


@pytest.mark.slow
def test_twenty_thousand_candidates_take_seconds():
    client = client_of(
        MIXED, "-score", candidates=pool_of(20_000), kernel=ScaleKernel(MaternKernel()), regularization=0.01
    )
    play(client, validation_error, 6)
    start = time.perf_counter()
    client.get_next_trials(1)
    assert time.perf_counter() - start < 10.0  # 0.3 s on an idle core


@pytest.mark.slow
def test_metrics_that_are_only_tracked_do_not_disturb():
    plain, tracked = client_of(UNIT, **ON_GRID), client_of(UNIT, **ON_GRID)
    play(plain, lambda x: -((x - 0.3) ** 2), 6)
    for _ in range(6):
        for index, p in tracked.get_next_trials(1).items():
            tracked.complete_trial(index, {"score": -((p["x"] - 0.3) ** 2), "seconds": 3.0 + p["x"]})
    assert plain.get_next_trials(1)[6]["x"] == pytest.approx(tracked.get_next_trials(1)[6]["x"])


def test_nothing_is_recommended_before_an_outcome():
    client = client_of(UNIT)
    with pytest.raises(EmptyHistoryError, match="no trial has an outcome"):
        recommend(client)
    client.get_next_trials(1)
    with pytest.raises(EmptyHistoryError, match="no trial has an outcome"):
        recommend(client)
