"""KernelBanditGenerator in real runs of Xopt: suggestions follow from fields, data, and what is not evaluated yet."""

import math
import warnings

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.priors import GammaPrior
from problems import DOUBLE

from torch_kbandits import InputError, LearnedPrior, Prior
from torch_kbandits.algorithms import GPEI, GPUCB
from torch_kbandits.errors import KernelBanditWarning
from torch_kbandits.memory import SlidingWindow, TemporalPrior

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Xopt's own, at its import
    pytest.importorskip("xopt", reason="needs xopt, in the extra 'xopt'")
    import pandas as pd
    from xopt import VOCS, Evaluator, Xopt
    from xopt.generators import get_generator
    from xopt.resources import testing
    from xopt.vocs import ContextualVariable

    from torch_kbandits.integrations.xopt import KernelBanditGenerator

pytestmark = pytest.mark.usefixtures("short_searches")

LINE = {"x": [0.0, 1.0]}


def known(lengthscale=0.3, variance=1.0):
    """A prior of which nothing is fitted."""
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.base_kernel.lengthscale, kernel.outputscale = lengthscale, variance
    return Prior(kernel, 1e-4)


def fitted():
    """A prior with a variance alone to fit, which makes fits quick."""
    kernel = RBFKernel().double()
    kernel.lengthscale = torch.tensor(0.4, dtype=DOUBLE)
    kernel = ScaleKernel(kernel.requires_grad_(False), outputscale_prior=GammaPrior(2.0, 2.0)).double()
    return LearnedPrior(kernel, num_initial=4)


def generator(vocs=None, data=None, **words):
    vocs = VOCS(variables=LINE, objectives={"y": "MAXIMIZE"}) if vocs is None else vocs
    made = KernelBanditGenerator(vocs=vocs, **{"seed": 0, "prior": known()} | words)
    if data is not None:
        made.add_data(pd.DataFrame(data))
    return made


def rewards(made):
    return [None if math.isnan(y) else y for y in made.bandit.history.Y.tolist()]


# ---------------------------------------------------------------- Xopt's own helpers


@pytest.mark.one_in(10)
@pytest.mark.parametrize("reload", [testing.reload_gen_from_json, testing.reload_gen_from_yaml])
@pytest.mark.parametrize(
    "words",
    [
        {"prior": fitted()},
        {"prior": known(), "memory": SlidingWindow(50.0), "beta": 1.5},
        {"prior": known(), "memory": TemporalPrior(0.01)},
        {"prior": known(), "algorithm": "ek-ucb", "seed": 7, "bandit_options": {"max_dictionary": 9}},
        {"prior": known(), "safe_params": [{"x1": 0.9, "x2": 5.0}]},
    ],
    ids=["learned", "window", "prior on time", "options", "safe"],
)
def test_a_generator_that_was_written_and_read_suggests_the_same_to_the_last_bit(reload, words):
    made = generator(testing.TEST_VOCS_BASE, testing.TEST_VOCS_DATA, **words)
    first = made.generate(2)
    assert reload(made).generate(2) == first
    later = testing.TEST_VOCS_DATA.assign(**{name: [each[name] for each in first] * 5 for name in ("x1", "x2")})
    made.add_data(later.head(2))
    again = reload(made)
    assert again.seed == made.seed
    assert again.generate(1) == made.generate(1)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("problem", ["BASE", "BASE_3D", "BASE_MO", "BASE_MO_NC"])
def test_xopts_problems_run_in_xopt(problem):
    vocs = getattr(testing, f"TEST_VOCS_{problem}")
    function = {"BASE": testing.xtest_callable, "BASE_3D": testing.xtest_callable_3d}.get(
        problem, testing.xtest_callable_mo
    )
    run = Xopt(generator=generator(vocs), evaluator=Evaluator(function=function, max_workers=2))
    run.random_evaluate(4, seed=1)
    run.step()
    run.step()
    assert len(run.data) == 8
    found = testing.generate_without_warnings(run.generator, 3)
    assert [sorted(each) for each in found] == [sorted(vocs.variables)] * 3
    assert len({tuple(each.values()) for each in found}) == 3
    testing.verify_state_device(run.generator.bandit.model, torch.device("cpu"))
    testing.recursive_torch_device_scan(run.generator, set(), torch.device("cpu"))


def test_an_xopt_that_was_dumped_goes_on_as_it_would_have():
    vocs = testing.TEST_VOCS_BASE.model_copy(deep=True)
    vocs.variables["x1"].domain = [1.0 / 3.0, 2.0 / 3.0]  # more decimals than files of Xopt have
    run = Xopt(generator=generator(vocs), evaluator=Evaluator(function=testing.xtest_callable))
    run.add_data(testing.TEST_VOCS_DATA.assign(x1=np.linspace(0.34, 0.61, 10)).round(6))
    again = Xopt.from_yaml(run.yaml())
    assert type(again.generator) is get_generator("kernel_bandit") is KernelBanditGenerator
    assert again.generator.generate(2) == run.generator.generate(2)
    run.evaluate_data([{"x1": end, "x2": 1.0 / 3.0} for end in vocs.variables["x1"].domain])
    again = Xopt.from_yaml(run.yaml())
    x = torch.rand(9, 2, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
    assert again.generator.bandit.num_observations == 12
    ours, theirs = (each.generator.bandit.model.posterior(x) for each in (run, again))
    torch.testing.assert_close(ours.mean, theirs.mean, rtol=0.0, atol=1e-5)
    torch.testing.assert_close(ours.variance, theirs.variance, rtol=0.0, atol=1e-5)


# ---------------------------------------------------------------- what is told


@pytest.mark.parametrize(("direction", "sign"), [("MAXIMIZE", 1.0), ("MINIMIZE", -1.0)])
def test_rows_are_told_in_their_order_and_direction_and_failures_as_such(direction, sign):
    data = {"x": [0.1, 0.2, 0.3, 0.4], "y": [1.0, math.nan, math.inf, 3.0], "xopt_error": [False, False, False, True]}
    vocs = VOCS(variables=LINE, objectives={"y": direction}, constants={"k": 2}, observables=["seen"])
    made = generator(vocs, data | {"k": 2, "seen": "text"})
    assert rewards(made) == [sign, None, None, None]
    made.add_data(pd.DataFrame({"x": [0.5], "y": [2.0]}))
    assert rewards(made) == [sign, None, None, None, 2.0 * sign]
    assert made.bandit.history.X.flatten().tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])


@pytest.mark.slow
def test_the_peak_is_found_in_either_direction_and_on_discrete_variables():
    for direction, sign in (("MAXIMIZE", 1.0), ("MINIMIZE", -1.0)):
        vocs = VOCS(variables=LINE | {"k": {1, 10, 100}}, objectives={"y": direction})

        def value(row, sign=sign):
            return {"y": -sign * ((row["x"] - 0.3) ** 2 + (row["k"] != 10))}

        run = Xopt(generator=generator(vocs, prior=known(1.0)), evaluator=Evaluator(function=value))
        for _ in range(12):
            run.step()
        best = run.generator.bandit.recommend()
        assert best["k"] == 10
        assert abs(best["x"] - 0.3) < 0.1


def test_data_that_change_and_fields_that_change_are_learned_anew():
    made = generator(data={"x": [0.1, 0.5, 0.9], "y": [1.0, 2.0, 3.0]})
    made.generate(1)
    made.data = made.data.drop(1)
    assert rewards(made) == [1.0, 3.0]
    assert made.generate(1) == generator(data={"x": [0.1, 0.9], "y": [1.0, 3.0]}).generate(1)
    made.vocs.variables["x"].domain = [0.0, 0.5]
    with pytest.warns(KernelBanditWarning, match="left out: parameter 'x' must be a number from 0.0 to 0.5, got 0.9"):
        assert rewards(made) == [1.0]
    assert 0.0 <= made.generate(1)[0]["x"] <= 0.5
    made.data = pd.DataFrame()
    assert made.bandit.num_observations == 0


def test_suggestions_are_pending_until_they_have_a_row():
    data = {"x": [0.2, 0.8], "y": [1.0, 1.0]}
    batch = generator(data=data).generate(3)
    made = generator(data=data)
    assert [made.generate(1)[0] for _ in range(3)] == batch
    made.add_data(pd.DataFrame([batch[1] | {"y": 0.5}]))
    others = {tuple(each.values()) for each in made.generate(2)}
    assert len(others | {tuple(each.values()) for each in batch}) == 5
    # A machine that rounds what is set still takes off one suggestion with each row.
    made.add_data(pd.DataFrame({"x": [0.31, 0.32, 0.33, 0.34], "y": 0.5}))
    alone = generator(data=made.data)
    assert made.generate(1) == alone.generate(1)
    assert made.generate(0) == []


# ---------------------------------------------------------------- contexts, time, limits, objectives

SHIFTED = VOCS(variables=LINE | {"T": ContextualVariable()}, objectives={"y": "MAXIMIZE"})


def shifted(number=24):
    """A peak that is where the context is; both are spread over their ranges."""
    x, T = np.linspace(0.0, 1.0, number), np.linspace(0.0, 7.0, number) % 1.0
    return pd.DataFrame({"x": x, "T": T, "y": -((x - T) ** 2)})


def test_suggestions_are_for_the_context_now():
    made = generator(SHIFTED, shifted().assign(T=lambda data: data["T"].where(data.index < 23, 0.2)), beta=0.0)
    (newest,) = made.generate(1)
    assert newest.keys() == {"x"}
    assert abs(newest["x"] - 0.2) < 0.15
    made.context = {"T": 0.8}
    assert abs(made.generate(1)[0]["x"] - 0.8) < 0.15
    assert isinstance(made.bandit, GPUCB)
    assert testing.reload_gen_from_yaml(made).context == {"T": 0.8}
    with pytest.raises(InputError, match="context is missing"):
        generator(SHIFTED).generate(1)
    lacking = generator(SHIFTED, shifted(4).assign(T=math.nan))
    with pytest.warns(KernelBanditWarning, match="row of data is left out: column 'T' must be a finite number"):
        assert lacking.bandit.num_observations == 0
    with pytest.raises(InputError, match="column 'T' must be a finite number"):
        lacking.generate(1)


def test_a_context_that_the_evaluator_reads_runs_in_xopt():
    vocs = VOCS(variables=LINE | {"T": ContextualVariable(domain=[0.0, 10.0])}, objectives={"y": "MINIMIZE"})
    run = Xopt(generator=generator(vocs), evaluator=Evaluator(function=lambda row: {"T": 3.0, "y": row["x"]}))
    run.random_evaluate(3, seed=0)
    run.step()
    assert run.data["T"].tolist() == [3.0] * 4
    assert run.generator.bandit.num_observations == 4


def test_an_evaluation_that_failed_is_told_in_the_context_and_at_the_time_of_the_row_before():
    data = shifted(4).assign(clock=[0.0, 10.0, math.nan, 30.0], xopt_error=[False, False, True, False])
    data.loc[2, ["T", "y"]] = math.nan
    made = generator(SHIFTED, data, memory=SlidingWindow(5.0), time_column="clock")
    assert made.bandit.history.times.tolist() == [0.0, 10.0, 10.0, 30.0]
    assert made.bandit.history.X[:, 0].tolist() == pytest.approx([*data["T"][:2], data["T"][1], data["T"][3]])
    assert [y is None for y in rewards(made)] == [False, False, True, False]
    assert made.generate(1)[0].keys() == {"x"}
    nothing = generator(
        data={"x": [0.1], "y": [math.nan], "clock": [math.nan]}, memory=SlidingWindow(5.0), time_column="clock"
    )
    assert nothing.generate(1)[0].keys() == {"x"}


def test_old_rows_are_forgotten_by_the_time_in_the_data():
    data = {"x": [0.1, 0.5, 0.9], "y": [5.0, 1.0, 1.0], "clock": [10.0, 100.0, 101.0]}
    made = generator(data=data, memory=SlidingWindow(5.0), time_column="clock")
    assert made.bandit.history.times.tolist() == [10.0, 100.0, 101.0]
    recent = generator(data={name: values[1:] for name, values in data.items()}, memory=SlidingWindow(5.0))
    x = torch.linspace(0.0, 1.0, 7, dtype=DOUBLE).unsqueeze(-1)
    ours, theirs = (each.bandit.model.posterior(x) for each in (made, recent))
    torch.testing.assert_close(ours.mean, theirs.mean)
    made.time = 1000.0
    assert made.generate(1) == generator(memory=SlidingWindow(5.0), time=1000.0).generate(1)
    counted = generator(data={"x": [0.1] * 9, "y": [1.0] * 9}, memory=SlidingWindow(5.0))
    assert counted.bandit.history.times.tolist() == list(range(9))


@pytest.mark.slow
def test_constraints_are_limits_in_their_own_units():
    x = np.linspace(0.0, 1.0, 12)
    constraints = {
        "a": ["LESS_THAN", 0.8],
        "b": ["GREATER_THAN", -0.6],
        "c": ["BOUNDS", 0.1, 0.9],
        "y": ["LESS_THAN", 9],
    }
    vocs = VOCS(variables=LINE, objectives={"y": "MAXIMIZE"}, constraints=constraints)
    made = generator(vocs, {"x": x, "y": x, "a": x, "b": -x, "c": x})
    assert isinstance(made.bandit, GPEI)
    assert made.bandit.outcomes == ("a", "b", "c", "y")
    assert made.generate(1)[0]["x"] <= 0.62
    missed = generator(vocs, {"x": x, "y": x, "a": x, "b": math.nan, "c": x})
    assert missed.bandit.history.outcomes[:, 1].isnan().all()
    assert 0.62 < missed.generate(1)[0]["x"] <= 0.82


def test_only_what_is_surely_feasible_is_suggested_from_what_is_known_to_be():
    vocs = VOCS(variables=LINE, objectives={"y": "MAXIMIZE"}, constraints={"c": ["LESS_THAN", 0.5]})
    made = generator(vocs, safe_params=[{"x": 0.1}])
    assert made.generate(1) == [{"x": pytest.approx(0.1)}]
    nothing = generator(vocs, {"x": [0.1], "y": [1.0], "c": [0.1]}, safe_params=[{"x": 0.1}], constraint_beta=1e6)
    assert nothing.generate(1) == [{"x": pytest.approx(0.1)}]
    everywhere = VOCS(variables=LINE, objectives={"y": "MAXIMIZE"}, constraints={"c": ["LESS_THAN", -1e9]})
    data = {"x": np.linspace(0.0, 1.0, 12), "y": 1.0, "c": 1.0}
    assert 0.0 <= generator(everywhere, data).generate(1)[0]["x"] <= 1.0  # nothing looks feasible: the space is covered


@pytest.mark.slow
def test_several_objectives_are_weighed():
    vocs = VOCS(variables=LINE, objectives={"y": "MAXIMIZE", "z": "MINIMIZE"})
    x = np.linspace(0.0, 1.0, 12)
    data = {"x": x, "y": x, "z": x}
    high, low = (
        generator(vocs, data, weights={"y": weight, "z": 1.0 - weight}, beta=0.1).generate(1)[0]["x"]
        for weight in (0.99, 0.01)
    )
    assert low < 0.2
    assert high > 0.8
    # An objective may be called as the reward is.
    named = VOCS(variables=LINE, objectives={"z": "MINIMIZE", "reward": "MAXIMIZE"})
    made = generator(named, {"x": x, "z": x, "reward": 2.0 * x})
    assert rewards(made) == (2.0 * x).tolist()
    assert made.bandit.outcomes == ("z",)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"vocs": VOCS(variables=LINE, objectives={"y": "EXPLORE"})}, "the type of objective 'y' must be"),
        ({"vocs": VOCS(variables={"T": "CONTEXTUAL"}, objectives={"y": "MAXIMIZE"})}, "parameters must be"),
        ({"vocs": VOCS(variables={"s": {"a", "b"}}, objectives={"y": "MAXIMIZE"})}, "could not convert string"),
        ({"time_column": "t"}, "give memory="),
        ({"time": 3.0}, "give memory="),
        ({"memory": 3}, "memory must be Memory or None"),
        ({"memory": {"is": "SlidingWindw", "of": {"size": 3}}}, "a prior or memory must be an object, or described"),
        ({"memory": "a window"}, "a prior or memory must be an object, or described"),
        ({"algorithm": "gp-uc"}, "did you mean 'gp-ucb'"),
        ({"bandit_options": {"horizn": 3}}, "horizn"),
        ({"bandit_options": {"seed": -0.5}}, "seed must be"),
        ({"safe": True}, "Extra inputs are not permitted"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_does_not_fit_is_refused_when_it_is_made(words, message):
    with pytest.raises(ValueError, match=message):
        generator(**words)


def test_data_without_a_column_are_refused_and_nothing_is_lost():
    made = generator(data={"x": [0.1, 0.5], "y": [1.0, 2.0]})
    before = made.generate(1)
    good, made.data = made.data, pd.DataFrame({"x": [0.1]})
    with pytest.raises(InputError, match=r"The data lack the columns \['y'\]; they have \['x'\]"):
        made.generate(1)
    made.data = good
    made.vocs.objectives["z"] = "EXPLORE"
    with pytest.raises(InputError, match="'z'"):
        made.generate(1)
    del made.vocs.objectives["z"]
    again = made.generate(1)
    assert again != before
    assert rewards(made) == [1.0, 2.0]


def test_memories_are_written_by_hand_in_yaml():
    made = generator(memory={"is": "SlidingWindow", "of": {"size": 600.0}}, time_column="time")
    assert made.memory == SlidingWindow(600.0)
