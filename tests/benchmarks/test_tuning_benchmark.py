"""The problems on which tools that tune are compared, and how their studies are played and kept."""

import json

import numpy as np
import optuna
import pytest
import torch
from scipy.optimize import minimize

from benchmarks.mixed_problems import MIXED
from benchmarks.runner import Parts
from benchmarks.tuners import RANDOM, SAMPLER, SEARCH, TPE, Course, played
from benchmarks.tuning_problems import PROBLEMS, Objective
from torch_kbandits import Float, ParameterSpace


def configurations(objective, number, seed=0):
    drawn = objective.space.sample(number, torch.Generator().manual_seed(seed))
    return objective.space.decode(drawn)


def bowl():
    """Less the number of the trial is told, so that what is told is not the value."""
    space = ParameterSpace({"x": Float(0.0, 1.0)})
    return Objective(space, lambda given, number: given["x"] - number, lambda given, number: given["x"])


ALL = PROBLEMS | MIXED

#: Those that take long to make or to evaluate, and those of which a trial returns the value itself.
LONG, EXACT = PROBLEMS.keys() - {"drift"} | {"ships"}, {"wells", "concrete"} | MIXED.keys() - {"ships", "counts"}


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in ALL])
def test_a_problem_is_a_function_of_seed_configuration_and_trial(name):
    first, again, other = (ALL[name].make(seed) for seed in (5, 5, 6))
    shown = configurations(first, 2)
    told = [first.told(each, number) for number, each in enumerate(shown)]
    values = [first.value(each, number) for number, each in enumerate(shown)]
    backwards = [(again.value(each, number), again.told(each, number)) for number, each in [*enumerate(shown)][::-1]]
    assert [*zip(values, told, strict=True)] == backwards[::-1]
    assert np.isfinite([*told, *values]).all()
    if name != "concrete":
        assert told != [other.told(each, number) for number, each in enumerate(shown)]
    if name not in EXACT:  # trials have noise, and values have none
        assert any(len({first.told(each, number) for number in range(4)}) > 1 for each in shown)
        assert ALL[name].moves or first.value(shown[0], 0) == again.value(shown[0], 1)


@pytest.mark.parametrize("number", [0, 59])
def test_the_least_value_of_drift_is_0_at_all_times(number):
    objective, least = PROBLEMS["drift"].make(5), []
    for kind in "abc":

        def value(x, kind=kind):
            return objective.value({"x0": x[0], "x1": x[1], "x2": x[2], "kind": kind}, number)

        least.append(minimize(value, [0.5] * 3, bounds=[(0.0, 1.0)] * 3).fun)
    assert min(least) == pytest.approx(0.0, abs=1e-8)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("tool", [SAMPLER, SEARCH, TPE, RANDOM])
@pytest.mark.parametrize("name", ["wells", "machine or forest"])
def test_tools_try_configurations_of_the_space_with_what_is_there_alone(tool, name):
    objective = Objective(space := PROBLEMS[name].make(5).space, lambda given, number: float(number), lambda *_: 0.0)
    course = played(tool, Course(objective, 6, ()), 0)
    assert len(course.tried) == len(course.seconds) == 6
    assert course.told == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    for each in course.tried:
        (back,) = space.decode(space.encode([each]))
        assert back == pytest.approx(each) if name == "wells" else back.keys() == each.keys()


def test_without_a_word_of_the_tool_it_would_use_the_best_it_was_told():
    course = Course(bowl(), 4, (3,))
    for x in (0.5, 0.1, 0.9):
        course.choose(lambda: pytest.fail("it is not asked yet"))
        course.play({"x": x})
    assert course.chosen(1) == {"x": 0.5}
    assert course.chosen(3) == {"x": 0.9}  # told −1.1, less than all others
    course.choose(lambda: {"x": 0.3})
    assert course.chosen(3) == {"x": 0.3}
    # As Optuna does.
    course = played(RANDOM, Course(bowl(), 5, ()), 0)
    study = optuna.create_study()
    for told in course.told:
        study.tell(study.ask(), told)
    assert course.chosen(5) == course.tried[study.best_trial.number]


def test_a_run_that_was_stopped_measures_what_is_missing(tmp_path):
    path, made = tmp_path / "deep" / "t.jsonl", []

    def run(numbers):
        parts = Parts(path)
        return [parts.measured({"n": n}, lambda n=n: made.append(n) or {"twice": 2 * n}) for n in numbers]

    assert run([1, 2]) == [{"n": 1, "twice": 2}, {"n": 2, "twice": 4}]
    with path.open("a", encoding="utf-8") as file:
        file.write('{"n": 3, "twi')  # stopped here
    assert run([1, 2, 3, 4])[2:] == [{"n": 3, "twice": 6}, {"n": 4, "twice": 8}]
    assert made == [1, 2, 3, 4]
    assert [json.loads(line)["n"] for line in path.read_text(encoding="utf-8").splitlines()] == [1, 2, 3, 4]
    assert run([4, 1]) == [{"n": 4, "twice": 8}, {"n": 1, "twice": 2}]
    assert made == [1, 2, 3, 4]
