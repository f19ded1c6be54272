"""Experiments with Ax's client, as users run them: trials, contexts, pools, constraints of parameters and outcomes."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from ax import ChoiceParameterConfig, Client, RangeParameterConfig
from ax.api import configs
from ax.core.trial_status import TrialStatus
from ax.exceptions.storage import JSONDecodeError
from ax.storage.json_store.decoder import object_from_json
from ax.storage.json_store.encoder import object_to_json
from ax.storage.json_store.registry import CORE_DECODER_REGISTRY
from ax_clients import BRANIN, CONTEXT, GRID, MIXED, UNIT, client_of, play, pool_of, posterior_model, validation_error
from gpytorch.constraints import Positive
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from problems import rbf, scaled

import torch_kbandits as kb
from torch_kbandits import (
    EmptyHistoryError,
    InputError,
    LearnedPrior,
    LinearGrowth,
    Prior,
    StopWhen,
    confidence,
    memory,
)
from torch_kbandits.errors import DamagedFileError
from torch_kbandits.integrations.ax import KernelBanditStoppingStrategy, kernel_bandit_strategy, recommend
from torch_kbandits.memory import TemporalPrior, UncertaintyInjection

FIXED = {"prior": Prior(rbf(0.2, 1.0), 0.01), "initialization_trials": 3}
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


def test_failed_trials_are_avoided_and_abandoned_ones_stay_pending():
    client = client_of(UNIT, **ON_GRID)
    play(client, lambda x: -((x - 0.3) ** 2), 1, parallel=3)
    best, tried = recommend(client)["x"], []
    for mark in (client.mark_trial_failed, client.mark_trial_abandoned, client.mark_trial_failed):
        ((index, parameters),) = client.get_next_trials(1).items()
        assert min((abs(parameters["x"] - x) for x in tried), default=1.0) > 1e-3
        tried.append(parameters["x"])
        mark(index)
    assert client._experiment.trials[4].status == TrialStatus.ABANDONED
    assert posterior_model(client).num_observations == 3  # no outcome is invented
    assert recommend(client)["x"] == pytest.approx(best, abs=0.2)


def test_a_standard_error_is_the_noise_of_its_trial_also_where_the_prior_is_fitted():
    client = client_of(UNIT, initialization_trials=3, candidates=GRID)
    for x, outcome in [(0.2, (1.0, 0.01)), (0.2, (5.0, 50.0)), (0.8, (0.0, 0.01)), (0.5, 0.4)]:
        client.complete_trial(client.attach_trial({"x": x}), {"score": outcome})
    client.get_next_trials(1)
    ((mean, deviation),) = (point["score"] for point in client.predict([{"x": 0.2}]))
    assert abs(mean - 1.0) < 0.2
    assert deviation < 0.2


def test_choices_may_be_tried_again():
    names = [ChoiceParameterConfig(name="arm", values=["a", "b", "c"], parameter_type="str", is_ordered=False)]
    client = client_of(names, initialization_trials=3, prior=Prior(rbf(1.0, 1.0), 0.25))
    rng = np.random.default_rng(0)
    reward = lambda arm: {"a": 0.0, "b": 1.0, "c": -1.0}[arm] + 0.1 * rng.normal()  # noqa: E731
    play(client, reward, 1, parallel=3)
    tried, _ = play(client, reward, 4)
    assert [p["arm"] for p in tried].count("b") >= 3


@pytest.mark.slow
def test_a_context_is_fixed_and_tells_of_those_like_it():
    """The best action is the context itself; learned at 0.2 and 0.8 in turn, it is known in between."""
    client = client_of([*CONTEXT, *UNIT], prior=Prior(rbf(0.4, 1.0), 1e-4), initialization_trials=4)
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
    prior = Prior(scaled(MaternKernel(), 4.0), 0.01, 3.0)
    client = client_of(MIXED, "-score", candidates=pool, seed=1, prior=prior)
    tried, seen = play(client, validation_error, 5, parallel=3)
    rows = set(pool.itertuples(index=False, name=None))
    assert all((p["rate"], p["depth"], p["loss"]) in rows for p in tried)  # to the last digit
    assert len({tuple(sorted(p.items())) for p in tried[:5]}) == 5
    assert min(seen) < np.quantile([validation_error(*row) for row in rows], 0.1)
    best = recommend(client, {"loss": "c"})
    assert best["loss"] == "c"
    assert (best["rate"], best["depth"], "c") in rows


def test_a_pool_of_actions_is_played_in_every_context():
    pool = pd.DataFrame({"x": [0.1, 0.5, 0.9]})
    client = client_of([*CONTEXT, *UNIT], candidates=pool, prior=Prior(rbf(0.5, 1.0), 0.01))
    tried, _ = play(
        client, lambda context, x: -((x - context) ** 2), 2, parallel=4, fixed=lambda t: {"context": (0.1, 0.9)[t]}
    )
    assert {p["x"] for p in tried} <= {0.1, 0.5, 0.9}
    assert recommend(client, {"context": 0.15})["x"] == 0.1
    assert recommend(client, {"context": 0.85})["x"] == 0.9
    with pytest.raises(InputError, match=r"lacks the column\(s\) \['context'\]"):
        client.get_next_trials(1)


X, Y = (RangeParameterConfig(name=name, bounds=(0.0, 1.0), parameter_type="float") for name in "xy")
K = RangeParameterConfig(name="k", bounds=(0, 6), parameter_type="int")
LOSS = ChoiceParameterConfig(name="loss", values=["a", "b", "c"], parameter_type="str", is_ordered=False)
HOUR = RangeParameterConfig(name="hour", bounds=(5.0, 10.0), parameter_type="float")
LINEAR = {"prior": Prior(rbf(0.7), 0.01), "initialization_trials": 6}


#: Parameters, a constraint, the same in Python, and rewards that would be larger beyond it.
PROBLEMS = {
    "ranges": ([X, Y], "x + y <= 0.5", lambda x, y: x + y <= 0.5, lambda x, y: x + 2.0 * y),
    "an order": ([X, Y], "x <= y", lambda x, y: x <= y, lambda x, y: x - 0.5 * y),
    "some of each": (
        [X, K, LOSS],
        "6*x + k <= 3",
        lambda x, k, loss: 6.0 * x + k <= 3.0,
        lambda x, k, loss: x + k + (loss == "b"),
    ),
}


@pytest.mark.parametrize(
    "problem", [pytest.param(name, marks=[] if name == "ranges" else pytest.mark.slow) for name in PROBLEMS]
)
def test_all_trials_and_the_recommendation_keep_a_constraint(problem):
    parameters, constraint, keeps, reward = PROBLEMS[problem]
    client = client_of(parameters, constraints=[constraint], **LINEAR)
    tried, _ = play(client, reward, 4, parallel=2)
    for each in (*tried, recommend(client)):
        assert keeps(**each), each


def test_in_a_context_the_others_make_room_for_it():
    client = client_of([X, Y], constraints=["x + y <= 0.5"], **LINEAR)
    tried, _ = play(client, lambda x, y: y, 7, fixed=lambda t: {"x": 0.1 + 0.2 * (t % 2)})
    assert all(each["x"] + each["y"] <= 0.5 + 1e-8 for each in tried)
    assert recommend(client, {"x": 0.3})["y"] == pytest.approx(0.2, abs=1e-3)
    assert recommend(client, {"x": 0.3, "y": 0.1}) == {"x": 0.3, "y": 0.1}
    with pytest.raises(InputError, match="none satisfies the constraints"):
        client.get_next_trials(1, fixed_parameters={"x": 0.8})


def test_of_candidates_those_that_break_a_constraint_are_left_out():
    rows, words = pd.DataFrame({"x": [0.1, 0.2, 0.9]}), LINEAR | {"initialization_trials": 2}
    client = client_of([X, Y], constraints=["x + y <= 0.5"], candidates=rows, **words)
    tried, _ = play(client, lambda x, y: x + y, 5, fixed=lambda t: {"y": 0.1 + 0.25 * (t % 2)})
    assert {(each["x"], each["y"]) for each in tried} <= {(0.1, 0.1), (0.2, 0.1), (0.1, 0.35)}
    with pytest.raises(
        InputError, match=r"No row of candidates has the fixed parameters \{'y': 0.45\} and keeps the constraints"
    ):
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


def test_of_several_objectives_the_front_is_tried_and_a_middle_of_it_recommended():
    client, tried = client_of(UNIT, "gain, -cost", candidates=GRID, initialization_trials=4), []
    for index, parameters in (pair for _ in range(12) for pair in client.get_next_trials(1).items()):
        x = parameters["x"]
        client.complete_trial(index, {"gain": 1.0 - (x - 0.7) ** 2, "cost": (x - 0.3) ** 2})
        tried.append(x)
    assert sum(0.25 <= x <= 0.75 for x in tried[4:]) >= 6  # the front is from 0.3 to 0.7
    assert max(tried[4:]) - min(tried[4:]) > 0.3
    assert 0.35 < recommend(client)["x"] < 0.65
    assert client.predict([{"x": 0.3}])[0]["cost"][0] == pytest.approx(0.0, abs=0.02)


def heat(x):
    """The score grows with x, and so does the heat: at most 75 up to x = 0.5."""
    return {"score": 3.0 * x, "heat": 50.0 + 100.0 * x**2}


KNOWN = {"prior": Prior(rbf(0.4, 4.0), 1e-4), "initialization_trials": 3, "candidates": GRID}


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
        ({}, GRID, "", ["heat <= 75"], 0.5),
        pytest.param({"dictionary": None}, None, "", ["heat <= 75"], 0.5, marks=pytest.mark.slow),
        pytest.param({}, GRID, "-", ["heat >= 66", "heat <= 90"], 0.4, marks=pytest.mark.slow),
    ],
)
def test_trials_come_to_the_limit_and_the_recommendation_keeps_it(model, pool, sign, outcomes, best):
    client = client_of(UNIT, f"{sign}score", outcomes=outcomes, **model, **KNOWN | {"candidates": pool})
    tried = measured(client, heat, 8)
    assert tried[-1]["x"] == pytest.approx(best, abs=0.05)
    assert recommend(client)["x"] == pytest.approx(best, abs=0.02)
    if not sign:
        # What is known beforehand is of the objective alone.
        assert posterior_model(client).covar_module.outputscale.item() == 4.0
        assert posterior_model(client, "heat").covar_module.outputscale.item() > 50.0


@pytest.mark.filterwarnings("ignore:.*fitted to a small part")
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


def test_a_constraint_may_be_relative_to_a_baseline():
    client = client_of(UNIT, outcomes=["heat <= 1.25 * baseline"], **KNOWN)
    first = client.attach_baseline({"x": 0.3})  # a heat of 59, so at most 73.75: x up to 0.487
    client.complete_trial(first, heat(0.3))
    measured(client, heat, 6)
    assert recommend(client)["x"] == pytest.approx(0.487, abs=0.02)


DEPENDENT = ChoiceParameterConfig(
    name="model", values=["u", "v"], parameter_type="str", is_ordered=False, dependent_parameters={"u": ["x"]}
)

ORDERED = ChoiceParameterConfig(name="size", values=[1, 2, 3, 7], parameter_type="int", is_ordered=True)


@pytest.mark.parametrize(
    ("parameters", "settings", "message"),
    [
        (
            BRANIN,
            {"objective": "y1 + 2*y2"},
            r"Single metrics can be optimised and limited, not the sum of \['y1', 'y2'\]",
        ),
        (BRANIN, {"objective": "y1", "outcomes": ["y2 + y3 <= 1"]}, "Single metrics can be .*limited"),
        ([*UNIT, ORDERED], {"constraints": ["x + size <= 1"]}, r"on the choice\(s\) \['size'\]; what works is linear"),
        ([DEPENDENT, *UNIT], {}, "'model' is hierarchical.*what works is float and int ranges"),
    ],
)
def test_experiments_are_refused_before_the_first_trial(parameters, settings, message):
    client = client_of(parameters, **settings)
    with pytest.raises(InputError, match=message):
        client.get_next_trials(1)
    assert not client._experiment.trials


@pytest.mark.needs("ax-platform>=1.2.4")
def test_parameters_that_follow_from_others_are_refused():
    twice = configs.DerivedParameterConfig(name="twice", expression_str="2*x", parameter_type="float")
    with pytest.raises(InputError, match="'twice' is a DerivedParameter"):
        client_of([*UNIT, twice]).get_next_trials(1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seed": -1}, "seed must be a whole number of at least 0"),
        ({"dictionary": 30}, "dictionary must be a rule"),
        ({"memory": TemporalPrior(0.1)}, "needs points that know their time"),
        ({"beta": -1.0}, "must be a finite number of at least 0"),
        ({"prior": "rbf"}, "prior must be a Prior or a LearnedPrior"),
        ({"prior": Prior(rbf(), 0.1, torch.sin)}, "the mean of prior must be a number"),
        ({"initialization_trials": 0}, "initialization_trials must be a whole number of at least 1"),
        ({"constraint_mode": "sure"}, 'constraint_mode must be "safe" or "optimistic"'),
        ({"memory": UncertaintyInjection(LinearGrowth(1.0), max_variance=3.0)}, "give prior a regularization"),
        ({"candidates": [{"x": 0.5}]}, "candidates must be a pandas data frame"),
        ({"candidates": pd.DataFrame({"x": []})}, "at least one row"),
        ({"candidates": pd.DataFrame([[0.1, 0.2]], columns=["x", "x"])}, r"different names .*\['x', 'x'\]"),
        ({"candidates": pd.DataFrame({"x": [0.5, np.nan]})}, r"no missing values"),
    ],
)
def test_arguments_are_checked_when_the_strategy_is_made(settings, message):
    with pytest.raises(InputError, match=message):
        kernel_bandit_strategy(**{"seed": 0, **settings})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda pool: pool.drop(columns=["depth"]), r"lacks the column\(s\) \['depth'\]: add them"),
        (lambda pool: pool.assign(price=1.0), "Row 0 of candidates .* has 'price', which is no parameter"),
        (lambda pool: pool.assign(depth=3.5), "Row 0 of candidates .* has 'depth' = 3.5, outside"),
        (lambda pool: pool.assign(loss="d"), "has 'loss' = 'd', outside"),
    ],
)
def test_pools_are_checked_against_the_search_space_before_the_first_trial(change, message):
    client = client_of(MIXED, candidates=change(pool_of(10)))
    with pytest.raises(InputError, match=message):
        client.get_next_trials(1)
    assert not client._experiment.trials


WRONG_CONTEXTS = [
    ({"y": 0.5}, "fixed_parameters has 'y', which is no parameter"),
    ({"x": 1.5}, "fixed_parameters has 'x' = 1.5, outside"),
    ({"x": 0.3}, r"No row of candidates has the fixed parameters \{'x': 0.3\}"),
]


@pytest.mark.parametrize(("fixed", "message"), WRONG_CONTEXTS)
@pytest.mark.parametrize("trials", [0, 2])
def test_fixed_parameters_are_checked(fixed, message, trials):
    pool = pd.DataFrame({"x": [0.1, 0.2], "context": [0.1, 0.2]})
    words = {"candidates": pool, "prior": Prior(RBFKernel(), 0.1), "initialization_trials": 2}
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


def read_back(value):
    return object_from_json(json.loads(json.dumps(object_to_json(value))))


def on_two_columns():
    kernel = RBFKernel(ard_num_dims=2, active_dims=(0, 1)).double()
    kernel.lengthscale = torch.tensor([[0.1, 1.0 / 3.0]], dtype=torch.float64)
    return kernel


SETTINGS = [
    {"memory": memory.SlidingWindow(float("inf")), "dictionary": kb.RidgeLeverageSampling(2.0, "coupled")},
    {"memory": memory.SlidingWindow(7, "observations"), "beta": kb.ScaledWidth(kb.BKBWidth(0.1, 1.0, 0.1), 1.0 / 3.0)},
    {"beta": confidence.IGPUCBWidth(0.1, 1.0, 0.1, gain=confidence.ConstantGain(2.0)), "dictionary": None},
]


def settings_in(strategy):
    return strategy.nodes_by_name["KernelBandit"].generator_spec.generator_kwargs["settings"]


def test_settings_read_back_also_those_that_hold_values_and_tensors():
    for words in SETTINGS:
        made = kernel_bandit_strategy(seed=0, **words)
        found, given = settings_in(read_back(made)), settings_in(made)
        for name in ("memory", "dictionary", "width"):
            assert getattr(found, name) == getattr(given, name)
    points = torch.rand(4, 2, dtype=torch.float64)
    gain = confidence.GreedyGain(on_two_columns(), points, 10, 0.1)
    width = confidence.IGPUCBWidth(0.1, 1.0, 0.1, gain=gain)
    found = settings_in(read_back(kernel_bandit_strategy(seed=0, dictionary=kb.FixedDictionary(points), beta=width)))
    assert torch.equal(found.dictionary.points, points)
    assert torch.equal(found.width.gain.candidates, points)
    assert torch.equal(found.width.gain.kernel.lengthscale, on_two_columns().lengthscale)


class _Unknown(RBFKernel):
    """A kernel that nobody else has."""


def test_kernels_that_cannot_be_saved_are_refused():
    with pytest.raises(InputError, match=r"can hold: prior.kernel.base_kernel: _Unknown is not known"):
        client_of(UNIT, prior=Prior(ScaleKernel(_Unknown()), 0.1))
    constraint = Positive(transform=torch.square, inv_transform=torch.sqrt)
    with pytest.raises(InputError, match=r"_constraint._transform: .*square is not known"):
        client_of(UNIT, prior=LearnedPrior(RBFKernel(lengthscale_constraint=constraint)))


def test_settings_that_were_changed_are_refused():
    written = json.dumps(object_to_json(kernel_bandit_strategy(seed=0, prior=Prior(RBFKernel(), 0.1))))
    for changed in ("constraint_mode", "RBFKernel", "Settings ("):
        with pytest.raises((DamagedFileError, JSONDecodeError), match=r"do not fit together|not registered"):
            object_from_json(json.loads(written.replace(changed, changed.replace("e", "E", 1))))


def score(**parameters):
    return -sum(value * value for value in parameters.values() if not isinstance(value, str))


def further(client):
    trials = []
    for _ in range(3):
        for index, parameters in client.get_next_trials(2).items():
            trials.append(parameters)
            client.complete_trial(index, {"score": score(**parameters)})
    return trials


def test_our_models_and_acquisition_functions_may_be_parts_of_strategies_of_ax():
    for kind in (kb.NystromGP, kb.OnlineGP, kb.KernelUCB, kb.DiscretizedThompsonSampling):
        assert read_back(kind) is kind


def test_a_file_says_what_to_import_to_whoever_loads_it_without():
    written = json.dumps(object_to_json(kernel_bandit_strategy(seed=0)))
    registry = {name: kind for name, kind in CORE_DECODER_REGISTRY.items() if "torch_kbandits" not in name}
    with pytest.raises(JSONDecodeError, match=r"first import torch_kbandits\.integrations\.ax"):
        object_from_json(json.loads(written), decoder_registry=registry)


def test_a_saved_experiment_goes_on_as_it_would_have_and_its_pool_is_saved_a_few_times(tmp_path):
    path = tmp_path / "experiment.json"
    words = {"memory": memory.SlidingWindow(6), "beta": kb.ScaledWidth(kb.BKBWidth(1.0, 1.0, 0.1), 0.1)}
    client, sizes = client_of(UNIT, candidates=GRID, **words), []
    for _ in range(2):
        play(client, lambda x: -((x - 1.0 / 3.0) ** 2), 1, parallel=3)
        client.save_to_json_file(str(path))
        sizes.append(path.read_text().count("CandidatePool"))
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
    "mixed": (MIXED, {"prior": LearnedPrior()}, 7),
    "discount": ([*CONTEXT, *UNIT], {"dictionary": None, "memory": memory.Discount(0.9)}, 8),
    "injection": (UNIT, {"memory": memory.UncertaintyInjection(kb.LinearGrowth(0.1)), "dictionary": kb.KORS()}, 8),
    "restart": (UNIT, {"memory": memory.Restart(9), "prior": Prior(scaled(MaternKernel(), 1.7), 0.01)}, 8),
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


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_an_experiment_ends_where_its_bandit_says(sign):
    client = client_of(UNIT, "score" if sign > 0.0 else "-score", prior=Prior(rbf(0.3, 1.0), 0.01), candidates=GRID)
    strategy, experiment = client._generation_strategy, client._experiment
    rounds, stopping = 0, KernelBanditStoppingStrategy(StopWhen(regret=0.3), strategy)
    assert stopping.should_stop_optimization(experiment)[0] is False
    while not stopping.should_stop_optimization(experiment)[0]:
        assert (rounds := rounds + 1) < 40
        play(client, lambda x: sign * (1.0 - (x - 0.3) ** 2), 1)
    assert rounds >= 5  # after the first trials
    assert abs(recommend(client)["x"] - 0.3) <= 0.3**0.5
    client.get_next_trials(1)
    assert "pending" in stopping.should_stop_optimization(experiment)[1]
    with pytest.raises(InputError, match="StopWhen"):
        KernelBanditStoppingStrategy(7, strategy)
