"""Unordered choices in Ax: what is believed does not depend on where a value is in the list; ordered ones keep theirs.

The oracle knows nothing of codes: its squared distance adds 1 where two unordered choices differ.
"""

from itertools import permutations

import numpy as np
import oracles
import pandas as pd
import pytest
from ax import ChoiceParameterConfig, Client, RangeParameterConfig
from ax.core.observation import ObservationFeatures
from ax_clients import client_of, fitted, tell
from gpytorch.kernels import RBFKernel
from problems import rbf

from torch_kbandits import GreedyDictionary, InputError
from torch_kbandits.integrations.ax import recommend

LAMBDA, SCALE, LENGTH = 0.2, 4.0, 0.8
TRIALS = 16
COLORS, WIDTHS, SIZES = ("red", "green", "blue", "black"), (64, 8, 16), ("small", "middle", "large")


def space(colors=COLORS, ordered=False):
    return [
        ChoiceParameterConfig(name="color", values=list(colors), parameter_type="str", is_ordered=ordered),
        RangeParameterConfig(name="x", bounds=(-2.0, 2.0), parameter_type="float"),
        ChoiceParameterConfig(name="size", values=list(SIZES), parameter_type="str", is_ordered=True),
        ChoiceParameterConfig(name="width", values=list(WIDTHS), parameter_type="int", is_ordered=False),
        ChoiceParameterConfig(name="bias", values=[True, False], parameter_type="bool", is_ordered=False),
    ]


def drawn(n, seed):
    rng = np.random.default_rng(seed)
    return [
        {
            "color": str(rng.choice(COLORS)),
            "x": float(rng.uniform(-2.0, 2.0)),
            "size": str(rng.choice(SIZES)),
            "width": int(rng.choice(WIDTHS)),
            "bias": bool(rng.integers(2)),
        }
        for _ in range(n)
    ]


def dense_kernel(A, B):
    squared = np.array(
        [
            [
                ((a["x"] - b["x"]) / 4.0) ** 2
                + ((SIZES.index(a["size"]) - SIZES.index(b["size"])) / 2.0) ** 2
                + sum(a[name] != b[name] for name in ("color", "width", "bias"))
                for b in B
            ]
            for a in A
        ]
    )
    return SCALE * np.exp(-squared / (2.0 * LENGTH**2))


def told(parameters, trials=TRIALS, **settings):
    client = client_of(parameters, **settings)
    rng = np.random.default_rng(1)
    tried = drawn(trials, seed=0)
    outcomes = [float(rng.normal()) + (2.0 if p["color"] == "green" else 0.0) + p["x"] for p in tried]
    tell(client, tried, outcomes)
    return client, tried, np.array(outcomes)


def believed(client, T):
    mean, covariance = fitted(client).predict([ObservationFeatures(p) for p in T])
    return np.array(mean["score"]), np.array(covariance["score"]["score"])


MODELS = {"exact": {"model": "exact"}, "nystrom": {"dictionary": GreedyDictionary(TRIALS)}}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", MODELS)
def test_the_belief_is_the_dense_one_wherever_a_value_is_in_its_list(name):
    T, settings = drawn(9, seed=2), {"kernel": rbf(LENGTH, SCALE), "regularization": LAMBDA, **MODELS[name]}
    for colors in list(permutations(COLORS))[::9]:
        client, tried, Y = told(space(colors), trials=8, **settings)
        dense = oracles.exact(dense_kernel, tried, Y, np.full(8, LAMBDA), T)
        mean, variance = believed(client, T)
        np.testing.assert_allclose(mean, dense.mean, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(variance, dense.variance, rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_what_is_fitted_does_not_depend_on_the_order_of_values():
    """But for what the optimiser leaves open, which stops where the likelihood is flat. An order does make a change."""
    T, changes = drawn(9, seed=2), {}
    for ordered in (False, True):
        beliefs = []
        for colors in (COLORS, (*COLORS[2:], *COLORS[:2][::-1])):
            client, _, _ = told(space(colors, ordered=ordered), model="exact")
            beliefs.append(np.concatenate(believed(client, T)))
        changes[ordered] = np.abs(beliefs[1] - beliefs[0]).max()
    assert changes[False] < 0.02
    assert changes[True] > 0.2


REWARDS = {"a": 0.6, "b": 0.3, "c": 0.0, "d": 2.0, "e": 0.0, "f": 0.3, "g": 0.6}


@pytest.mark.one_in(6)
@pytest.mark.parametrize("order", ["abcdefg", "dgafbec", "gecabfd"])
@pytest.mark.parametrize("pooled", [False, True], ids=["space", "pool"])
def test_the_best_choice_is_found_in_the_middle_of_a_misleading_order(order, pooled):
    """Its neighbours in the list are the worst; told of all others, the next trial is the one of which least is known.

    With positions for points it would be believed to be as bad as its neighbours, and as well known.
    """
    parameters = [ChoiceParameterConfig(name="arm", values=list(order), parameter_type="str", is_ordered=False)]
    pool = pd.DataFrame({"arm": sorted(REWARDS)}) if pooled else None
    client = client_of(
        parameters, kernel=rbf(LENGTH, SCALE), regularization=0.01, candidates=pool, initialization_trials=6
    )
    for arm in "abcefg":
        client.complete_trial(client.attach_trial({"arm": arm}), {"score": REWARDS[arm]})
    first, second = (p["arm"] for p in client.get_next_trials(2).values())
    assert first == "d"
    assert second in "ag"  # what waits counts as observed at its mean, so the best of the others is next
    client.complete_trial(6, {"score": REWARDS["d"]})
    assert recommend(client) == {"arm": "d"}


def test_ordered_choices_stay_ordered():
    parameters = [ChoiceParameterConfig(name="size", values=list("abcde"), parameter_type="str", is_ordered=True)]
    client = client_of(parameters, kernel=rbf(LENGTH, SCALE), regularization=0.01, model="exact")
    for size, score in {"a": 0.0, "b": 1.0, "d": 3.0, "e": 4.0}.items():
        client.complete_trial(client.attach_trial({"size": size}), {"score": score})
    mean, variance = believed(client, [{"size": "c"}])
    assert mean[0] == pytest.approx(2.0, abs=0.3)
    assert variance[0] < 0.1 * SCALE


def test_a_kernel_of_other_columns_is_refused_with_the_columns():
    narrow = RBFKernel(ard_num_dims=5)
    client = client_of(space(), kernel=narrow, regularization=LAMBDA, initialization_trials=1)
    client.complete_trial(client.attach_trial(drawn(1, seed=0)[0]), {"score": 0.0})
    with pytest.raises(
        InputError, match=r"columns are \['color, choice 0', .*'x', 'size', 'width, choice 0'.*'bias'\]"
    ):
        client.get_next_trials(1)


def test_a_loaded_experiment_believes_the_same_of_choices(tmp_path):
    client, _, _ = told(space(), trials=6, kernel=rbf(LENGTH, SCALE), regularization=LAMBDA, model="exact")
    client.save_to_json_file(str(tmp_path / "experiment.json"))
    loaded = Client.load_from_json_file(str(tmp_path / "experiment.json"))
    T = drawn(5, seed=3)
    for ours, theirs in zip(believed(client, T), believed(loaded, T), strict=True):
        np.testing.assert_array_equal(ours, theirs)
