"""KernelBanditSampler in real studies: what it believes follows from the trials, whoever made them."""

import math
import threading
import warnings
from datetime import datetime, timedelta
from itertools import pairwise

import numpy as np
import optuna
import pytest
import torch
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState, create_trial
from studies import bandit_of, network, parameters, peak, play, quick, study_with

from torch_kbandits import EmptyHistoryError, InfeasibleError, InputError, LearnedPrior, StopWhen
from torch_kbandits.algorithms import GPEI
from torch_kbandits.errors import KernelBanditWarning
from torch_kbandits.integrations.optuna import KernelBanditSampler, StopStudyWhen
from torch_kbandits.memory import SlidingWindow, TemporalPrior
from torch_kbandits.priors import default_kernel

pytestmark = pytest.mark.usefixtures("short_searches")

UNIT = {"x": FloatDistribution(0.0, 1.0)}
SQUARE = {"x": FloatDistribution(0.0, 1.0), "y": FloatDistribution(0.0, 1.0)}


def line(trial):
    return trial.suggest_float("x", 0.0, 1.0)


def add(study, x, value=None, state=TrialState.COMPLETE):
    study.add_trial(create_trial(params={"x": x}, distributions=UNIT, value=value, state=state))


def next_parameters(study, objective=line):
    trial = study.ask()
    objective(trial)
    return trial.params


def told(study):
    """Points and rewards of the bandit, brought up to date; None for what failed."""
    study.sampler.recommend(study)
    history = bandit_of(study).history
    return history.X.flatten().tolist(), [None if math.isnan(y) else y for y in history.Y.tolist()]


FAIL, PRUNED = TrialState.FAIL, TrialState.PRUNED
COMPLETED = [{"value": 1.0}, {"value": 2.0}, {"value": 6.0}]
PRUNED_AT = [{"state": PRUNED, "value": value} for value in (1.5, 5.0, -7.0, None)]
FAILED = [{"state": FAIL}, {"value": 3.0}, {"state": FAIL}, {"value": 1.0}]


@pytest.mark.parametrize(
    ("direction", "trials", "words", "rewards"),
    [
        (
            "minimize",
            [{"value": value} for value in (math.inf, 2.0, 5.0, math.inf, 9.0, -math.inf)],
            {},
            [None, -2.0, -5.0, None, -9.0, None],
        ),
        ("maximize", [*COMPLETED, *PRUNED_AT], {}, [1.0, 2.0, 6.0, 1.5, 2.0, 1.0]),
        ("maximize", [*COMPLETED, *PRUNED_AT], {"pruned": "ignore"}, [1.0, 2.0, 6.0]),
        ("maximize", FAILED, {}, [None, 3.0, None, 1.0]),
        ("maximize", [{"value": value, "x": 0.5} for value in (1.0, 2.0, 3.0, 1.0)], {}, [1.0, 2.0, 3.0, 1.0]),
    ],
    ids=["infinite", "pruned", "pruned ignored", "failed", "again"],
)
def test_what_is_told_of_trials(direction, trials, words, rewards):
    study = study_with(quick(**words), direction=direction)
    for number, each in enumerate(trials):
        add(study, **{"x": number / 10.0} | each)
    assert told(study)[1] == rewards
    assert 0.0 <= next_parameters(study)["x"] <= 1.0


@pytest.mark.parametrize("words", [{}, {"noise": lambda trial: trial.user_attrs.get("kbandits:noise")}])
def test_the_noise_of_a_trial_is_that_of_its_reward(words):
    """Read at once or one by one; what is no variance is named with its trial."""
    studies = [study_with(quick(**words), direction="minimize") for _ in range(2)]
    for number, noise in enumerate([0.5, None, 2, 0.25]):
        for study in studies:
            attributes = {} if noise is None else {"kbandits:noise": noise}
            trial = create_trial(
                params={"x": number / 4.0}, distributions=UNIT, value=float(number), user_attrs=attributes
            )
            study.add_trial(trial)
        told(studies[0])
    for study in studies:
        told(study)
        found = bandit_of(study).history.noise.tolist()
        assert [None if math.isnan(each) else each for each in found] == [0.5, None, 2.0, 0.25]
    study.add_trial(create_trial(params={"x": 0.9}, distributions=UNIT, value=1.0, user_attrs={"kbandits:noise": -1}))
    with pytest.raises(InputError, match=f"the noise of trial {number + 1} must be .*, got -1"):
        study.ask(UNIT)


def test_what_trials_cost_is_learned_and_weighed_unless_it_is_the_same():
    """Improvement per cost where it differs: expensive values are left, all else being equal."""

    def priced(trial):
        x = line(trial)
        trial.set_user_attr("cost", 10.0 if x > 0.5 else 0.1)
        return -abs(x - 0.5)

    studies = [study_with(quick(**words)) for words in ({}, {"cost": lambda trial: 2.0}, {"cost": cost_of})]
    for study in studies:
        play(study, priced, 8)
    plain, same, weighed = parameters(studies[0]), parameters(studies[1]), parameters(studies[2])
    assert [each["x"] for each in plain] == pytest.approx([each["x"] for each in same], abs=1e-3)
    spent = [sum(map(cost_of, study.trials[4:])) for study in studies]
    assert spent[2] < spent[0]
    assert len(weighed) == 8
    told(studies[2])
    assert bandit_of(studies[2]).spent == pytest.approx(sum(map(cost_of, studies[2].trials)))
    assert studies[2].sampler.recommend(studies[2]).params in weighed
    studies[2].add_trial(create_trial(params={"x": 0.9}, distributions=UNIT, value=1.0, user_attrs={"cost": -1.0}))
    with pytest.raises(InputError, match=r"the cost of trial 8 must be .*, got -1"):
        studies[2].ask(UNIT)


def cost_of(trial):
    return trial.user_attrs.get("cost")


def test_trials_are_told_in_the_order_in_which_they_ended():
    study, now = study_with(quick()), datetime(2026, 1, 1)
    for number, ended in enumerate([3, 1, 2]):
        trial = create_trial(params={"x": number / 4.0}, distributions=UNIT, value=float(number))
        trial.datetime_complete = now + timedelta(seconds=ended)
        study.add_trial(trial)
    assert told(study) == ([0.25, 0.5, 0.0], [1.0, 2.0, 0.0])


@pytest.mark.needs("torch>=2.8")
def test_what_fails_is_not_suggested_again_and_again():
    study = study_with(quick())
    play(study, lambda trial: peak(trial) if line(trial) < 0.5 else math.nan, 12)
    chosen = [tuple(trial.params.values()) for trial in study.trials]
    assert len(set(chosen)) == len(chosen)
    assert sum(trial.state == TrialState.COMPLETE for trial in study.trials) >= 4


def test_fixed_and_enqueued_values_are_kept_and_those_outside_their_range_not_learned():
    study = study_with(quick())
    for x in (0.125, 1.5, 0.25):
        study.enqueue_trial({"x": x})
    with pytest.warns(UserWarning, match="out of range"):
        study.optimize(line, n_trials=3)
    assert told(study)[0] == [0.125, 0.25]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("kind", "direction"), [("number", "minimize"), ("range", "maximize")])
def test_trials_of_several_kinds_are_not_compared_with_each_other(kind, direction):
    """On the mean of all 0.2 any 0.8 would be better, and the best of all is a 0.2. No choice says which have x."""
    study = optuna.create_study(direction=direction, sampler=KernelBanditSampler(seed=0))
    sign, unit = 1.0 if direction == "minimize" else -1.0, FloatDistribution(0.0, 1.0)
    for x in (0.1, 0.3, 0.5, 0.7, 0.9):
        params, distributions = {"model": 0.2, "x": x}, {"model": unit, "x": unit}
        study.add_trial(create_trial(params=params, distributions=distributions, value=sign * 10.0 * abs(x - 0.3)))
        params, distributions = {"model": 0.8}, {"model": unit}
        if kind == "range":
            params, distributions = params | {"x": 2.0 * x}, distributions | {"x": FloatDistribution(0.0, 2.0)}
        study.add_trial(create_trial(params=params, distributions=distributions, value=sign))
    with pytest.warns(KernelBanditWarning, match="The 10 completed trials differ.*Compared are the 5 with"):
        found = study.sampler.recommend(study)
    assert found.number == study.best_trial.number
    assert study.sampler.recommend(study).number == found.number  # said once


def test_recommended_is_the_trial_of_the_largest_posterior_mean():
    """One lucky value at a point where others were low is not trusted; ``best_trial`` would take it."""
    study = study_with(quick())
    with pytest.raises(EmptyHistoryError):
        study.sampler.recommend(study)
    for x, value in ((0.2, 0.0), (0.2, 0.1), (0.2, 2.0), (0.2, 0.0), (0.8, 1.1), (0.8, 1.0), (0.8, 0.9), (0.8, 1.1)):
        add(study, x, value)
    assert study.best_trial.params == {"x": 0.2}
    assert study.sampler.recommend(study).params == {"x": 0.8}


def unsteady(trial):
    loss = network(trial)
    if trial.number == 6:
        raise ArithmeticError
    if trial.number % 5 == 4:
        trial.report(2.0 * loss, 0)
        raise optuna.TrialPruned
    return loss


def assert_alike(ones, others):
    """Parameters are equal, numbers to what a search makes of rounding."""
    for one, other in zip(ones, others, strict=True):
        assert {name: value for name, value in one.items() if not isinstance(value, float)} == {
            name: value for name, value in other.items() if not isinstance(value, float)
        }
        assert [v for v in one.values() if isinstance(v, float)] == pytest.approx(
            [v for v in other.values() if isinstance(v, float)], rel=1e-6, abs=1e-9
        )


@pytest.mark.needs("torch>=2.8")
@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "words",
    [{}, {"memory": SlidingWindow(12)}, {"algorithm": "ek-ucb", "max_dictionary": 3}],
    ids=["all", "window", "ek-ucb"],
)
def test_a_study_is_read_with_the_same_fits_and_goes_on_with_a_new_sampler_as_with_the_old(words, monkeypatch):
    """To rounding, which depends on what was told at once, and which a search amplifies."""
    fits, fitted = [], LearnedPrior.fitted
    monkeypatch.setattr(LearnedPrior, "fitted", lambda *a, **w: fits.append(w["seed"]) or fitted(*a, **w))
    whole, parts = study_with(quick(**words)), study_with(quick(**words))
    play(whole, unsteady, 9, catch=ArithmeticError)
    lived = fits[:]
    fits.clear()
    *old, last = whole.trials
    parts.add_trials(old)
    assert_alike([next_parameters(parts, network)], [last.params])
    assert fits == lived
    assert bandit_of(parts).num_observations == 8
    if "max_dictionary" in words:
        assert len(bandit_of(parts).inducing_points) <= 3


def test_one_sampler_serves_several_studies_and_seeds_matter():
    sampler = quick(kernel=None)
    samplers = [sampler, sampler, quick(kernel=default_kernel), quick(seed=1), quick(seed=None), quick(seed=None)]
    studies = [study_with(each) for each in samplers]
    for number in range(5):
        for study in studies[: 3 if number > 1 else None]:
            play(study, peak, 1)
    assert parameters(studies[0]) == parameters(studies[1]) == parameters(studies[2])
    assert len({str(parameters(study)[:2]) for study in studies[2:]}) == 4


@pytest.mark.one_in(3)
@pytest.mark.parametrize("change", ["value", "params", "state"])
def test_a_copy_of_a_study_whose_trials_were_changed_is_read_anew(change):
    """By one sampler, whose trials have the same numbers and dates."""
    study = study_with(quick())
    play(study, peak, 5)
    copied = study_with(study.sampler)
    for trial in study.trials:
        if change == "value":
            trial.value = -trial.value
        elif change == "params":
            trial.params = {name: 1.0 - value for name, value in trial.params.items()}
        elif trial.number == 1:
            trial.state, trial.values = TrialState.FAIL, None
        copied.add_trial(trial)
    fresh = study_with(quick())
    fresh.add_trials(copied.trials)
    assert study.sampler.recommend(copied).params == fresh.sampler.recommend(fresh).params
    assert next_parameters(copied, peak) == next_parameters(fresh, peak)
    assert bandit_of(copied).history.Y.nan_to_num().tolist() == bandit_of(fresh).history.Y.nan_to_num().tolist()


def test_each_trial_is_told_once_and_each_bracket_of_hyperband_keeps_its_bandit(monkeypatch):
    bandits, tells, tell = set(), [], GPEI.tell
    monkeypatch.setattr(GPEI, "tell", lambda self, *a, **w: tells.append(bandits.add(id(self))) or tell(self, *a, **w))

    def learning(trial):
        value = peak(trial)
        for step in range(1, 10):
            trial.report(value - 1.0 / step, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return value

    study = study_with(quick(), pruner=optuna.pruners.HyperbandPruner(1, 9, 3), study_name="brackets")
    study.optimize(learning, n_trials=12)
    assert any(trial.state == TrialState.PRUNED for trial in study.trials)
    assert len(bandits) <= 3  # one for each bracket
    assert len(tells) <= 12


def test_points_that_others_evaluate_are_pending(tmp_path):
    """In the same process, whose suggestions may not be stored yet, and in others that share the storage."""

    def storage():
        return JournalStorage(JournalFileBackend(str(tmp_path / "journal")))

    here = study_with(quick(), storage=storage(), study_name="shared")
    for x, y in ((0.1, 0.2), (0.5, 0.9), (0.3, 0.3), (0.8, 0.1)):
        trial = create_trial(params={"x": x, "y": y}, distributions=SQUARE, value=-((x - 0.3) ** 2) - (y - 0.3) ** 2)
        here.add_trial(trial)
    there = optuna.load_study(study_name="shared", storage=storage(), sampler=quick(seed=1))
    theirs = next_parameters(there, peak)
    started = here.ask()
    started.suggest_float("x", 0.0, 1.0)  # and not yet y
    mine = started.relative_params
    assert next_parameters(here, peak) not in (theirs, mine)
    encoded = bandit_of(here).candidates.space.encode([theirs, mine])
    torch.testing.assert_close(bandit_of(here).pending[:2], encoded, rtol=0.0, atol=0.0)
    started.suggest_float("y", 0.0, 1.0)
    here.tell(started, -1.0)
    next_parameters(here, peak)
    assert len(bandit_of(here).pending) == 3  # theirs, the second of here, and the one just asked for
    assert bandit_of(here).num_observations == 5


def test_threads_share_one_bandit():
    study, together = study_with(quick()), threading.Barrier(2, timeout=60)

    def objective(trial):
        value = peak(trial)
        if trial.number < 2:
            together.wait()  # so that two do run at the same time
        return value

    study.optimize(objective, n_trials=7, n_jobs=2)
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 7
    study.sampler.recommend(study)
    assert len({tuple(trial.params.values()) for trial in study.trials}) == 7
    assert sorted(bandit_of(study).history.Y.tolist()) == sorted(trial.value for trial in study.trials)


def hidden(trial):
    """A parameter that some trials have, which follows from no choice."""
    rate = trial.suggest_float("rate", 1e-5, 1.0, log=True)
    return rate + (trial.suggest_float("momentum", 0.0, 1.0) if trial.number % 2 else 0.0)


def together(study):
    return {*study.sampler.infer_relative_search_space(study, study.trials[-1])}


@pytest.mark.needs("torch>=2.8")
@pytest.mark.filterwarnings("ignore:PartialFixedSampler is experimental")
def test_parameters_that_not_all_trials_have_are_sampled_on_their_own_and_named_once():
    study = study_with(quick(), direction="minimize")
    with pytest.warns(KernelBanditWarning) as warned:
        study.optimize(hidden, n_trials=6)
    (message,) = [str(warning.message) for warning in warned]
    assert "'momentum' is sampled on its own" in message
    assert together(study) == {"rate"}
    silent = study_with(quick(warn_independent_sampling=False), direction="minimize")
    silent.optimize(hidden, n_trials=6)
    assert parameters(silent) == parameters(study)
    fixed = optuna.samplers.PartialFixedSampler({"momentum": 0.25}, quick())
    study = study_with(quick(independent_sampler=fixed))
    play(study, hidden, 5)
    assert {trial.params.get("momentum", 0.25) for trial in study.trials} == {0.25}


def test_what_comes_with_a_choice_that_is_new_is_no_reason_to_warn():
    def branching(trial):
        kind = trial.suggest_categorical("kind", ["a", "b", "c"])
        return trial.suggest_float(f"{kind} x", 0.0, 1.0)

    study = study_with(quick())
    study.enqueue_trial({"kind": "a"})
    study.enqueue_trial({"kind": "a"})
    study.optimize(branching, n_trials=8)  # warnings are errors
    assert len({trial.params["kind"] for trial in study.trials}) > 1


KINDS = {
    "n": IntDistribution(1, 6),
    "c": CategoricalDistribution(["a", "b", "d"]),
    "x": FloatDistribution(0.0, 1.0),
    "s": IntDistribution(2, 2),
}
DEEP = {"deep": [64, 64]}


@pytest.mark.filterwarnings("ignore:Choices for a categorical distribution")
@pytest.mark.parametrize(
    ("rows", "conditions", "left_out"),
    [
        ([{"c": "a", "x": 0.1}, {"c": "b"}], {"x": ("c", ["a"])}, set()),
        ([{"c": "a", "x": 0.1}, {"c": "b"}, {"c": "d", "x": 0.2}], {"x": ("c", ["a", "d"])}, set()),
        ([{"l": [32]}, {"l": DEEP, "x": 0.1}, {"l": None}], {"x": ("l", [DEEP])}, set()),
        ([{"l": [32], "x": 0.2}, {"l": DEEP}, {"l": None, "x": 0.1}], {"x": ("l", [[32], None])}, set()),
        ([{"x": 0.1, "c": "a"}, {"c": "b"}], {}, {"x"}),  # what is suggested later says nothing
        ([{"c": "a", "x": 0.1}, {"c": "a"}], {}, {"x"}),
        ([{"x1": 0.4, "x2": 0.5}, {"x1": 0.2}], {}, {"x2"}),
        ([{"n": 1}, {"n": 3, "x1": 0.1, "x2": 0.1}, {"n": 2, "x1": 0.3}],
         {"x1": ("n", [2, 3, 4, 5, 6]), "x2": ("n", [3, 4, 5, 6])}, set()),
        ([{"c": "a", "c1": "b", "x": 0.1}, {"c": "a", "c1": "d"}, {"c": "b"}],
         {"c1": ("c", ["a"]), "x": ("c1", ["b"])}, set()),
        # Both say it: the one suggested last before.
        ([{"c": "a", "c1": "a", "x": 0.1}, {"c": "b", "c1": "b"}], {"x": ("c1", ["a"])}, set()),
        ([{"c": "a", "s": 2}, {"c": "b"}], {}, {"s"}),
    ],
)  # fmt: skip
def test_which_parameters_follow_from_which(rows, conditions, left_out):
    study = study_with(quick(n_startup_trials=100))
    for row in rows:
        lists = CategoricalDistribution([[32], DEEP, None])
        distributions = {name: KINDS.get(name[0], lists) for name in row}
        study.add_trial(create_trial(params=row, distributions=distributions, value=0.0))
    names = {name for row in rows for name in row} - left_out
    assert together(study) == names
    suggested = [study.ask().relative_params for _ in range(24)]
    for row in suggested:
        for name in names:
            parent, values = conditions.get(name, (None, [None]))
            assert (name in row) == (parent is None or row.get(parent, "missing") in values), (name, row)
    assert all(any(name in row for row in suggested) for name in names)


def test_parameters_that_follow_from_a_choice_are_chosen_with_the_others():
    study = study_with(quick(), direction="minimize")
    play(study, network, 6)
    assert together(study) == {"rate", "width", "layers", "dropout", "optimizer", "momentum"}
    assert bandit_of(study).num_observations == 5  # all but the last
    with warnings.catch_warnings():
        warnings.simplefilter("error", KernelBanditWarning)
        assert study.sampler.recommend(study).number < 6
        for _ in range(2):  # the values are those that were chosen together
            trial = study.ask()
            network(trial)
            assert trial.params == trial.relative_params


def test_a_range_that_changes_is_named_and_the_rest_is_played_on():
    study = study_with(quick())
    play(study, peak, 5)

    def wider(trial):
        return -abs(trial.suggest_float("x", 0.0, 2.0) - 1.5) - abs(trial.suggest_float("y", 0.0, 1.0) - 0.3)

    message = r"'x' is sampled on its own.*its range changes"
    with pytest.warns(KernelBanditWarning, match=message):
        study.optimize(wider, n_trials=6)
    assert together(study) == {"y"}
    assert bandit_of(study).num_observations == 10
    assert max(trial.params["x"] for trial in study.trials) > 1.0
    study = study_with(quick())
    with pytest.warns(KernelBanditWarning):
        study.optimize(lambda trial: trial.suggest_float(f"x{trial.number % 3}", 0.0, 1.0), n_trials=6)
    with pytest.warns(KernelBanditWarning, match="differ in their parameters"):  # and none is common
        recommended = study.sampler.recommend(study)
    assert recommended.params.keys() == study.best_trial.params.keys()


def test_every_kind_of_parameter_is_suggested_within_its_range():
    """Of choices that are equal the first counts, as in Optuna, and none is sought that cannot be had."""

    def objective(trial):
        wide = trial.suggest_float("a", -1e-3, 1e6) + trial.suggest_int("e", 1, 2**40, log=True)
        trial.suggest_int("d", -7, 9, step=4)
        trial.suggest_categorical("f", [None, True, 1, 1.0, "1", math.pi])
        trial.suggest_int("h", 3, 3, log=True)
        trial.suggest_categorical("i", ["only"])
        high = trial.suggest_float("b", 1e-30, 1e30, log=True) > 1.0
        return float(high) + trial.suggest_float("c", -0.3, 0.9, step=0.1) + 0.0 * wide

    study = study_with(quick())
    study.optimize(objective, n_trials=5)  # Optuna refuses values outside
    assert {trial.params["c"] for trial in study.trials} <= {k / 10 for k in range(-3, 10)}
    bandit = bandit_of(study)
    assert bandit.num_observations == 4
    assert list(map(repr, bandit.candidates.space.parameters["f"].choices)) == ["None", "True", "'1'", repr(math.pi)]
    assert {"h", "i"}.isdisjoint(bandit.candidates.space.parameters)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("memory", [SlidingWindow(6), TemporalPrior(0.1)])
def test_time_is_counted_in_trials(memory):
    study = study_with(quick(memory=memory))
    play(study, peak, 6)
    assert study.sampler.recommend(study) in study.trials
    assert bandit_of(study).history.times.tolist() == list(range(6))


@pytest.mark.parametrize(
    ("distribution", "words"),
    [
        (IntDistribution(0, 2**52), "at most 2.50 values"),
        (IntDistribution(1, 2**41, log=True), "1 to .*2.40"),
        (FloatDistribution(5e-324, 1.0, log=True), "low must be at least"),
        (FloatDistribution(-1.7e308, 1.7e308), "infinitely far apart"),
    ],
)
def test_ranges_that_cannot_be_searched_are_named(distribution, words):
    with pytest.raises(InputError, match=f"parameter 'depth'.*{words}"):
        study_with(quick()).ask({"depth": distribution})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"algorithm": "ek-ucbb"}, "ek-ucb"),
        ({"beta": -1.0}, "beta|value"),
        ({"pruned": "drop"}, '"learn" or "ignore"'),
        ({"n_startup_trials": 1}, "n_startup_trials must be a whole number of at least 2"),
        ({"kernel": "rbf"}, "kernel must be"),
        ({"independent_sampler": "tpe"}, "a sampler of Optuna"),
        ({"seed": 1.5}, "seed"),
        ({"gamma": 3.0}, "gamma"),
        ({"constraint_beta": -1.0}, "constraint_beta"),
        ({"safe_params": [0.5]}, "list of mappings"),
        ({"noise": 0.1}, "noise must be a function of a trial"),
        ({"cost": 0.1}, "cost must be a function of a trial"),
        ({"cost_budget": 9.0}, "give cost"),
        ({"cost": cost_of, "algorithm": "gp-ucb"}, "CostCooling weighs no cost"),
        ({"outcomes": ["cost"]}, "the study says"),
    ],
)
def test_words_that_do_not_fit_are_refused_at_once(words, message):
    with pytest.raises((InputError, TypeError), match=message):
        KernelBanditSampler(**{"seed": 0, **words})


BOTH = ["minimize", "maximize"]


def two(trial):
    """Near (0, 0) the first is best, near (1, 0) the second, and a y of 0 is best for both."""
    x, y = trial.suggest_float("x", 0.0, 1.0), trial.suggest_float("y", 0.0, 1.0)
    return x**2 + y, 1.0 - (x - 1.0) ** 2 - 0.5 * y


def bounded(trial):
    """To be maximised where x + y <= 1."""
    x, y = trial.suggest_float("x", 0.0, 1.0), trial.suggest_float("y", 0.0, 1.0)
    trial.set_constraint("sum", x + y - 1.0)
    return x + 0.3 * y


def bounded_without(trial):
    return trial.suggest_float("x", 0.0, 1.0) + 0.3 * trial.suggest_float("y", 0.0, 1.0)


@pytest.mark.slow
def test_a_study_goes_on_from_its_storage_as_it_would_have_gone_on(tmp_path):
    storage = JournalStorage(JournalFileBackend(str(tmp_path / "journal")))

    def objective(trial):
        values = two(trial)
        trial.set_constraint("sum", trial.params["x"] - trial.params["y"] - 0.5)
        return values

    whole = optuna.create_study(sampler=quick(), directions=BOTH)
    whole.optimize(objective, n_trials=7)
    words = {"storage": storage, "study_name": "s", "load_if_exists": True, "directions": BOTH}
    for number in (5, 2):
        study = optuna.create_study(sampler=quick(), **words)
        study.optimize(objective, n_trials=number)
    for mine, theirs in zip(parameters(study), parameters(whole), strict=True):
        assert mine == pytest.approx(theirs, abs=1e-3)


@pytest.mark.slow
def test_constraints_are_outcomes_that_may_be_at_most_zero():
    study = study_with(quick(n_startup_trials=6))
    study.optimize(bounded, n_trials=26)
    bandit = bandit_of(study)
    assert bandit.outcomes == ("constraint sum",)
    played = [trial.params["x"] + trial.params["y"] for trial in study.trials]
    assert bandit.history.outcomes[:, 0].tolist() == pytest.approx([each - 1.0 for each in played[:-1]])
    late = [each for number, each in enumerate(played) if number >= 14 and number % 8]
    # Posterior means keep it, so a trial where little is known may not.
    assert sum(each > 1.05 for each in late) <= 2
    chosen = study.sampler.recommend(study)
    assert chosen.constraints["sum"] < 0.05
    free = study_with(quick(n_startup_trials=6))
    free.optimize(bounded_without, n_trials=20)
    beyond = [trial.params["x"] + trial.params["y"] > 1.05 for trial in free.trials[10:]]
    assert sum(beyond) > len(beyond) / 2  # it is the limit that holds


@pytest.mark.needs("optuna>=5.0")
@pytest.mark.one_in(3)
def test_trials_without_a_constraint_that_others_have_are_learned_without_it():
    study = study_with(quick())
    study.optimize(bounded_without, n_trials=4)
    study.optimize(bounded, n_trials=2)
    study.sampler.recommend(study)
    column = bandit_of(study).history.outcomes[:, 0]
    assert column[:4].isnan().all()
    assert column[4:].isfinite().all()


@pytest.mark.filterwarnings("ignore:.* is to be kept safely under a prior that was fitted")
@pytest.mark.slow
def test_only_what_is_surely_feasible_is_tried_where_that_is_asked_for():
    safe = [{"x": 0.1, "y": 0.1}, {"x": 0.3, "y": 0.1}]
    study = study_with(quick(safe_params=safe))
    study.optimize(bounded, n_trials=16)
    assert study.trials[0].params == safe[0]
    assert all(trial.constraints["sum"] <= 0.05 for trial in study.trials)
    assert study.best_value > 0.5  # more than what was known to be safe


@pytest.mark.needs("optuna>=5.0")
def test_where_nothing_may_be_feasible_trials_cover_the_space():
    def objective(trial):
        x = trial.suggest_float("x", 0.0, 1.0)
        trial.set_constraint("never", 1.0 + 0.01 * x)
        return x

    study = study_with(quick())
    study.optimize(objective, n_trials=10)
    tried = sorted(trial.params["x"] for trial in study.trials)
    assert max(later - earlier for earlier, later in pairwise(tried)) < 0.4
    with pytest.raises(InfeasibleError):
        study.sampler.recommend(study)


def test_infinite_values_are_failures():
    study = optuna.create_study(directions=BOTH, sampler=quick())
    study.optimize(two, n_trials=5)
    words = {"params": {"x": 0.5, "y": 0.5}, "distributions": study.trials[0].distributions}
    for values in ([math.inf, 0.5], [0.5, -math.inf]):
        study.add_trial(create_trial(values=values, **words))
    study.add_trial(create_trial(state=TrialState.FAIL, **words))
    study.sampler.recommend(study)
    history = bandit_of(study).history
    assert history.lost.tolist() == [False] * 5 + [True] * 3
    assert history.outcomes[:, 0].isnan().tolist() == history.lost.tolist()


SAFE = {"safe_params": [{"x": 0.1, "y": 0.1}, {"x": 0.3, "y": 0.1}]}


@pytest.mark.filterwarnings("ignore:.* is to be kept safely under a prior that was fitted")
@pytest.mark.needs("optuna>=5.0")
@pytest.mark.one_in(2)
@pytest.mark.parametrize("kept", [-0.5, -math.inf])
@pytest.mark.parametrize("words", [{}, pytest.param(SAFE, marks=pytest.mark.slow)], ids=["learn", "safe"])
def test_a_trial_that_breaks_a_limit_without_end_is_not_recommended_and_its_like_not_sought(words, kept):
    """Where all finite constraints are kept, no value that was seen says that a limit is broken."""

    def objective(trial):
        x, y = trial.suggest_float("x", 0.0, 1.0), trial.suggest_float("y", 0.0, 1.0)
        trial.set_constraint("fits", math.inf if x > 0.6 else kept)
        return x + 0.1 * y

    study = study_with(quick(**words))
    if not words.get("safe_params"):
        for x in (0.05, 0.95, 0.35, 0.75, 0.15, 0.65, 0.55, 0.85):
            study.enqueue_trial({"x": x, "y": 0.5})
    study.optimize(objective, n_trials=12)
    chosen = study.sampler.recommend(study)
    assert chosen.constraints["fits"] == kept
    late = [trial.params["x"] for trial in study.trials[9:] if trial.number % 8]
    assert np.mean(late) < 0.75  # as far as the limit, and not to the end
    history = bandit_of(study).history
    broken = [trial.params["x"] > 0.6 for trial in study.trials]
    assert history.lost.tolist() == broken
    seen = history.outcomes[:, 0]
    assert bool((seen[history.lost & seen.isfinite()] > 0.0).all())


def test_what_has_no_meaning_is_named():
    study = optuna.create_study(directions=BOTH, sampler=quick(algorithm="gp-ei"))
    with pytest.raises(InputError, match="several have no meaning"):
        study.optimize(two, n_trials=6)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6))])
def test_of_several_objectives_no_dominated_trial_is_recommended(seed):
    """Nor one that is infinitely bad while there are others; with noise, by which posterior means differ."""
    rng = np.random.default_rng(seed)
    study = optuna.create_study(directions=BOTH, sampler=quick())
    for x in rng.uniform(-3.0, 3.0, 9):
        values = [float(x + rng.normal()), float(rng.normal() - x * x)]
        values = [math.inf, values[1]] if x > 2.0 else [values[0], -math.inf] if x < -0.5 else values
        study.add_trial(create_trial(params={"x": x}, distributions={"x": FloatDistribution(-3, 3)}, values=values))
    front = study.best_trials
    finite = [trial.number for trial in front if all(map(math.isfinite, trial.values))]
    assert study.sampler.recommend(study).number in (finite or [trial.number for trial in front])


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_a_study_ends_where_its_bandit_says(direction):
    sign, stop = 1.0 if direction == "maximize" else -1.0, StopWhen(regret=0.2, beta=1.0)
    study = study_with(quick(), direction=direction)
    asked, rule = [], StopStudyWhen(lambda bandit: bool(asked.append(bandit) or stop(bandit)))
    study.optimize(lambda trial: sign * 10.0 * peak(trial), n_trials=30, callbacks=[rule])
    assert 4 <= len(study.trials) < 30
    assert asked[-1].num_observations == len(study.trials)
    assert asked[-1].regret_bound(beta=1.0) <= 0.2
    assert -sign * study.best_value <= 0.5


def test_stopping_asks_a_sampler_of_ours():
    with pytest.raises(InputError, match="KernelBanditSampler"):
        StopStudyWhen(StopWhen(regret=1.0))(optuna.create_study(), optuna.trial.create_trial(value=0.0))
    with pytest.raises(InputError, match="StopWhen"):
        StopStudyWhen(0.1)  # pyright: ignore[reportArgumentType]
    study = study_with(quick())
    study.optimize(lambda trial: 1.0, n_trials=2, callbacks=[StopStudyWhen(lambda bandit: True)])
    assert len(study.trials) == 2
