"""KernelBanditSampler in real studies: what it believes follows from the trials, whoever made them."""

import copy
import importlib
import math
import pickle
import sys
import threading
import warnings
from datetime import datetime, timedelta
from itertools import pairwise

import optuna
import pytest
import torch
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState, create_trial
from studies import network, parameters, peak, play, quick, study_with

from torch_kbandits import EmptyHistoryError, InputError
from torch_kbandits.algorithms import GPEI
from torch_kbandits.errors import KernelBanditWarning
from torch_kbandits.extras import MissingExtraError
from torch_kbandits.integrations.optuna import KernelBanditSampler, sampler
from torch_kbandits.integrations.optuna.distributions import space_of
from torch_kbandits.integrations.optuna.trees import tree_of
from torch_kbandits.integrations.tuning import tuning_bandit
from torch_kbandits.memory import BackToPrior, SlidingWindow
from torch_kbandits.priors import learned
from torch_kbandits.priors.fitting import default_kernel

pytestmark = pytest.mark.usefixtures("short_searches")

UNIT = {"x": FloatDistribution(0.0, 1.0)}
SQUARE = {"x": FloatDistribution(0.0, 1.0), "y": FloatDistribution(0.0, 1.0)}


def line(trial):
    return trial.suggest_float("x", 0.0, 1.0)


def add(study, x, value=None, state=TrialState.COMPLETE, **words):
    """Add a finished trial at a point of the unit interval."""
    study.add_trial(create_trial(params={"x": x}, distributions=UNIT, value=value, state=state, **words))


def next_parameters(study, objective=line):
    """Return what is suggested next; the trial keeps running."""
    trial = study.ask()
    objective(trial)
    return trial.params


def belief_of(study):
    """The belief in force."""
    return study.sampler._beliefs[-1]


def told(study):
    """Points and rewards of the belief, brought up to date."""
    study.sampler.recommend(study)
    history = belief_of(study).bandit.history
    return history.X.flatten().tolist(), history.Y.tolist()


# ---------------------------------------------------------------- what is believed


def test_trials_are_told_in_the_order_in_which_they_ended():
    study = study_with(quick())
    now = datetime(2026, 1, 1)
    for number, ended in enumerate([3, 1, 2]):
        trial = create_trial(params={"x": number / 4.0}, distributions=UNIT, value=float(number))
        trial.datetime_complete = now + timedelta(seconds=ended)
        study.add_trial(trial)
    assert told(study) == ([0.25, 0.5, 0.0], [1.0, 2.0, 0.0])


def test_minimising_is_maximising_the_negative():
    least, most = study_with(quick(), direction="minimize"), study_with(quick())
    play(least, lambda trial: -peak(trial), 6)
    play(most, peak, 6)
    assert parameters(least) == parameters(most)


def test_infinite_values_count_as_the_worst_and_the_best_so_far():
    study = study_with(quick(), direction="minimize")
    for x, value in ((0.0, math.inf), (0.1, 2.0), (0.2, 5.0), (0.3, math.inf), (0.4, 9.0), (0.5, -math.inf)):
        add(study, x, value)
    assert told(study)[1] == [-2.0, -5.0, -5.0, -9.0, -2.0]  # the first has nothing to be compared with


def test_pruned_trials_are_between_the_worst_and_the_median():
    def prunes(study):
        for x, value in ((0.0, 1.0), (0.1, 2.0), (0.2, 6.0)):
            add(study, x, value)
        for x, reported in (
            (0.3, {0: 9.0, 1: 1.5}),
            (0.4, {0: 5.0}),
            (0.5, {0: -7.0}),
            (0.6, {}),
            (0.7, {0: math.nan}),
        ):
            study.enqueue_trial({"x": x})
            trial = study.ask()
            line(trial)
            for step, value in reported.items():
                trial.report(value, step)
            study.tell(trial, state=TrialState.PRUNED)
        return study

    learned = prunes(study_with(quick()))
    assert told(learned)[1] == [1.0, 2.0, 6.0, 1.5, 2.0, 1.0]
    assert told(prunes(study_with(quick(pruned="ignore"))))[1] == [1.0, 2.0, 6.0]


def test_failed_trials_are_learned_as_failures_or_ignored():
    def fails(study):
        add(study, 0.1, state=TrialState.FAIL)
        add(study, 0.2, 3.0)
        add(study, 0.3, state=TrialState.FAIL)
        add(study, 0.4, 1.0)
        return study

    assert told(fails(study_with(quick(failed="ignore"))))[1] == [3.0, 1.0]
    assert [None if math.isnan(y) else y for y in told(fails(study_with(quick())))[1]] == [None, 3.0, None, 1.0]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("words", [{}, {"failed": "ignore"}], ids=["learn", "ignore"])
def test_what_fails_is_not_suggested_again_and_again(words):
    """Where evaluations fail as often as not, no two suggestions are equal and the good half is found."""
    study = study_with(quick(**words))

    def half(trial):
        return peak(trial) if trial.suggest_float("x", 0.0, 1.0) < 0.5 else math.nan

    play(study, half, 12)
    chosen = [tuple(trial.params.values()) for trial in study.trials]
    assert len(set(chosen)) == len(chosen)
    assert sum(trial.state == TrialState.COMPLETE for trial in study.trials) >= 4


def test_a_configuration_may_come_again():
    study = study_with(quick())
    for value in (1.0, 2.0, 3.0, 2.0, 1.0):
        add(study, 0.5, value)
    assert told(study) == ([0.5] * 5, [1.0, 2.0, 3.0, 2.0, 1.0])
    assert 0.0 <= next_parameters(study)["x"] <= 1.0


def test_values_outside_their_range_are_not_learned():
    study = study_with(quick())
    for x in (0.1, 1.5, 0.2):
        study.enqueue_trial({"x": x})
    with pytest.warns(UserWarning, match="out of range"):
        study.optimize(line, n_trials=3)
    assert told(study)[1] == [0.1, 0.2]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("direction", ["minimize", "maximize"])
@pytest.mark.parametrize("kind", ["number", "range"])
def test_trials_of_several_kinds_are_not_compared_with_each_other(kind, direction):
    """On the mean of all 0.2 any 0.8 would be better, and the best of all is a 0.2. No choice says which have x."""
    study = optuna.create_study(direction=direction, sampler=KernelBanditSampler(seed=0))
    sign = 1.0 if direction == "minimize" else -1.0
    model = unit = FloatDistribution(0.0, 1.0)
    for x in (0.1, 0.3, 0.5, 0.7, 0.9):
        params, distributions = {"model": 0.2, "x": x}, {"model": model, "x": unit}
        study.add_trial(create_trial(params=params, distributions=distributions, value=sign * 10.0 * abs(x - 0.3)))
        params, distributions = {"model": 0.8}, {"model": model}
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


# ---------------------------------------------------------------- one after another, together, again


def unsteady(trial):
    """The network's objective, with trials that fail and trials that are pruned."""
    loss = network(trial)
    if trial.number == 6:
        raise ArithmeticError
    if trial.number % 5 == 4:
        trial.report(2.0 * loss, 0)
        raise optuna.TrialPruned
    return loss


def test_a_study_goes_on_with_a_new_sampler_as_it_would_have_with_the_old():
    whole = study_with(quick(), direction="minimize")
    play(whole, unsteady, 9, catch=ArithmeticError)
    parts = study_with(quick(), direction="minimize")
    for _ in range(3):
        play(parts, unsteady, 3, catch=ArithmeticError)
        parts.sampler = quick()
    assert parameters(parts) == parameters(whole)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "words",
    [{}, {"failed": "ignore", "memory": SlidingWindow(12)}, {"memory": SlidingWindow(3600.0), "clock": "dates"}],
    ids=["all", "window", "dates"],
)
def test_an_old_study_is_read_with_one_fit_as_by_one_who_followed_it(words, monkeypatch):
    def objective(trial):
        value = peak(trial)
        if trial.number == 6:
            raise ArithmeticError
        if trial.number % 5 == 4:
            trial.report(value, 0)
            raise optuna.TrialPruned
        return value

    study = study_with(quick(**words))
    play(study, objective, 14, catch=ArithmeticError)
    *old, last = study.trials
    fits = []
    fit = learned.fit_evidence
    monkeypatch.setattr(learned, "fit_evidence", lambda *args, **words: fits.append(args) or fit(*args, **words))
    study = study_with(quick(**words))
    study.add_trials(old)
    # A search amplifies rounding, which depends on what was told at once.
    assert next_parameters(study, peak) == pytest.approx(last.params, abs=1e-6)
    assert len(fits) == 1
    assert belief_of(study).bandit.num_told == (12 if "failed" in words else 13)


def test_seeds_matter_and_none_is_random():
    studies = [study_with(quick(seed=seed)) for seed in (0, 1, None, None)]
    for study in studies:
        play(study, peak, 3)
    assert len({str(parameters(study)) for study in studies}) == 4


def test_a_belief_is_built_once_and_told_each_trial_once(monkeypatch):
    made, tells = [], []
    tell = GPEI.tell
    monkeypatch.setattr(sampler, "tuning_bandit", lambda **words: made.append(words) or tuning_bandit(**words))
    monkeypatch.setattr(GPEI, "tell", lambda self, *args, **words: tells.append(args) or tell(self, *args, **words))
    study = study_with(quick())
    made.clear()  # of the constructor, which tries the words
    play(study, peak, 6)
    assert len(made) == 1
    assert len(tells) == 5  # the last is not needed yet


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
    space = belief_of(here).space
    torch.testing.assert_close(belief_of(here).bandit.pending[:2], space.encode([theirs, mine]), rtol=0.0, atol=0.0)
    started.suggest_float("y", 0.0, 1.0)
    here.tell(started, -1.0)
    next_parameters(here, peak)
    assert len(belief_of(here).bandit.pending) == 3  # theirs, the second of here, and the one just asked for
    assert belief_of(here).bandit.num_told == 5


def test_threads_share_one_belief():
    study = study_with(quick())
    together = threading.Barrier(2, timeout=60)

    def objective(trial):
        value = peak(trial)
        if trial.number < 2:
            together.wait()  # so that two do run at the same time
        return value

    study.optimize(objective, n_trials=9, n_jobs=2)
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 9
    study.sampler.recommend(study)
    assert len({tuple(trial.params.values()) for trial in study.trials}) == 9
    assert sorted(belief_of(study).bandit.history.Y.tolist()) == sorted(trial.value for trial in study.trials)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))], ids=["copy", "pickle"]
)
def test_copies_go_on_alike_and_another_seed_parts_them(duplicate):
    study = study_with(quick())
    play(study, peak, 6)
    twin, other = duplicate(study.sampler), duplicate(study.sampler)
    other.reseed_rng()
    study.ask()
    running = study.trials[-1]
    mine, same, another = (each.sample_relative(study, running, SQUARE) for each in (study.sampler, twin, other))
    assert mine == same != another


def test_one_sampler_serves_several_studies():
    sampler = quick()
    studies = [study_with(sampler) for _ in range(2)]
    alone = study_with(quick())
    for _ in range(6):
        for study in studies:
            play(study, peak, 1)
        play(alone, peak, 1)
    assert parameters(studies[0]) == parameters(studies[1]) == parameters(alone)


def test_without_a_kernel_the_default_one_is_taken():
    studies = [study_with(quick(kernel=kernel)) for kernel in (None, default_kernel, default_kernel(2))]
    for study in studies:
        play(study, peak, 6)
    assert parameters(studies[0]) == parameters(studies[1]) == parameters(studies[2])


@pytest.mark.one_in(5)
@pytest.mark.parametrize("algorithm", ["ek-ucb", "gp-ts", "cbkb", "gp-ei", "random"])
def test_algorithms_by_name_and_their_words(algorithm):
    words = {"max_dictionary": 3} if algorithm in ("ek-ucb", "cbkb") else {}
    study = study_with(quick(algorithm=algorithm, **words))
    play(study, peak, 7)
    if words:
        assert len(belief_of(study).bandit.inducing_points) <= 3


# ---------------------------------------------------------------- spaces


def hidden(trial):
    """A parameter that some trials have, which follows from no choice."""
    rate = trial.suggest_float("rate", 1e-5, 1.0, log=True)
    return rate + (trial.suggest_float("momentum", 0.0, 1.0) if trial.number % 2 else 0.0)


def test_parameters_that_not_all_trials_have_are_sampled_on_their_own_and_named_once():
    study = study_with(quick(), direction="minimize")
    with pytest.warns(KernelBanditWarning) as warned:
        study.optimize(hidden, n_trials=7)
    (message,) = [str(warning.message) for warning in warned]
    assert "'momentum' is sampled on its own" in message
    assert "not every completed trial has it, and no choice before it says which" in message
    assert set(belief_of(study).tree.distributions) == {"rate"}
    silent = study_with(quick(warn_independent_sampling=False), direction="minimize")
    silent.optimize(hidden, n_trials=7)
    assert parameters(silent) == parameters(study)


def test_parameters_that_follow_from_a_choice_are_chosen_with_the_others():
    study = study_with(quick(), direction="minimize")
    play(study, network, 12)
    tree = tree_of(study.trials)
    assert set(tree.distributions) == {"rate", "width", "layers", "dropout", "optimizer", "momentum"}
    assert tree.conditions == {"momentum": ("optimizer", ("sgd",))}
    belief = belief_of(study)
    assert belief.bandit.num_told == 11  # all but the last
    for trial in study.trials:
        (row,) = belief.space.decode(belief.space.encode([trial.params]))
        assert row.keys() == trial.params.keys()
    with warnings.catch_warnings():
        warnings.simplefilter("error", KernelBanditWarning)
        assert study.sampler.recommend(study).number < 12
        for _ in range(3):  # the values are those that were chosen together
            trial = study.ask()
            network(trial)
            assert trial.params == study.sampler._suggested[study.study_name, trial.number]


def trials_of(*rows):
    """Completed trials of these parameters: whole numbers of few values, choices and floats."""
    return [
        create_trial(
            params=row, distributions={name: KINDS[name[0]] for name in row}, value=0.0, state=TrialState.COMPLETE
        )
        for row in rows
    ]


KINDS = {
    "n": IntDistribution(1, 6),
    "c": CategoricalDistribution(["a", "b", "d"]),
    "x": FloatDistribution(0.0, 1.0),
    "s": IntDistribution(2, 2),
}


@pytest.mark.parametrize(
    ("rows", "conditions", "left_out"),
    [
        ([{"c": "a", "x": 0.1}, {"c": "b"}], {"x": ("c", ("a",))}, set()),
        ([{"c": "a", "x": 0.1}, {"c": "b"}, {"c": "d", "x": 0.2}], {"x": ("c", ("a", "d"))}, set()),
        ([{"x": 0.1, "c": "a"}, {"c": "b"}], {}, {"x"}),  # what is suggested later says nothing
        ([{"c": "a", "x": 0.1}, {"c": "a"}], {}, {"x"}),
        ([{"x1": 0.4, "x2": 0.5}, {"x1": 0.2}], {}, {"x2"}),
        ([{"n": 1}, {"n": 3, "x1": 0.1, "x2": 0.1}, {"n": 2, "x1": 0.3}],
         {"x1": ("n", (2, 3, 4, 5, 6)), "x2": ("n", (3, 4, 5, 6))}, set()),
        ([{"c": "a", "c1": "b", "x": 0.1}, {"c": "a", "c1": "d"}, {"c": "b"}],
         {"c1": ("c", ("a",)), "x": ("c1", ("b",))}, set()),
        # Both say it: the one suggested last before.
        ([{"c": "a", "c1": "a", "x": 0.1}, {"c": "b", "c1": "b"}], {"x": ("c1", ("a",))}, set()),
        ([{"c": "a", "s": 2}, {"c": "b"}], {}, {"s"}),
    ],
)  # fmt: skip
def test_which_parameters_follow_from_which(rows, conditions, left_out):
    tree = tree_of(trials_of(*rows))
    assert dict(tree.conditions) == conditions
    assert {name for row in rows for name in row} - tree.distributions.keys() == left_out
    space = space_of(tree.distributions, tree.conditions)
    for row in rows:
        expected = {name: value for name, value in row.items() if name not in left_out}
        (again,) = space.decode(space.encode([tree.values_of(row, {})]))
        assert again.keys() == expected.keys()


def test_no_trials_have_no_parameters():
    assert tree_of([]).distributions == {}


@pytest.mark.filterwarnings("ignore:PartialFixedSampler is experimental")
def test_parameters_sampled_on_their_own_may_have_a_sampler():
    study = study_with(quick(independent_sampler=optuna.samplers.PartialFixedSampler({"momentum": 0.25}, quick())))
    play(study, hidden, 9)
    momenta = [trial.params["momentum"] for trial in study.trials if "momentum" in trial.params]
    assert momenta
    assert set(momenta) == {0.25}


def test_a_range_that_changes_is_named_and_the_rest_is_played_on():
    study = study_with(quick())
    play(study, peak, 6)

    def wider(trial):
        return -abs(trial.suggest_float("x", 0.0, 2.0) - 1.5) - abs(trial.suggest_float("y", 0.0, 1.0) - 0.3)

    with pytest.warns(
        KernelBanditWarning, match=r"'x'.*its range changes: FloatDistribution\(high=1.0.*in trial 0, now"
    ):
        study.optimize(wider, n_trials=4)
    assert set(belief_of(study).tree.distributions) == {"y"}
    assert belief_of(study).bandit.num_told == 9
    assert max(trial.params["x"] for trial in study.trials) > 1.0


def test_a_space_without_common_parameters_is_sampled():
    study = study_with(quick())
    with pytest.warns(KernelBanditWarning):
        study.optimize(lambda trial: trial.suggest_float(f"x{trial.number % 3}", 0.0, 1.0), n_trials=9)
    with pytest.warns(KernelBanditWarning, match="differ in their parameters"):
        recommended = study.sampler.recommend(study)
    assert recommended.params.keys() == study.best_trial.params.keys()


def test_parameters_of_a_single_value_are_no_part_of_the_search():
    study = study_with(quick())

    def objective(trial):
        return peak(trial) + trial.suggest_int("n", 3, 3) + len(trial.suggest_categorical("c", ["only"]))

    study.optimize(objective, n_trials=6)
    assert belief_of(study).space.dimension == 2


@pytest.mark.filterwarnings("ignore:PartialFixedSampler is experimental")
def test_fixed_and_enqueued_values_are_kept():
    study = study_with(optuna.samplers.PartialFixedSampler({"y": 0.25}, quick()))
    study.enqueue_trial({"x": 0.125})
    study.optimize(peak, n_trials=7)
    assert {trial.params["y"] for trial in study.trials} == {0.25}
    assert study.trials[0].params["x"] == 0.125


def test_every_kind_of_parameter_is_suggested_within_its_range():
    def objective(trial):
        values = (
            trial.suggest_float("a", -1e-3, 1e6),
            trial.suggest_float("b", 1e-30, 1e30, log=True),
            trial.suggest_float("c", -0.3, 0.9, step=0.1),
            trial.suggest_int("d", -7, 9, step=4),
            trial.suggest_int("e", 1, 2**40, log=True),
            trial.suggest_categorical("f", [None, True, 1, "1", math.pi]),
            trial.suggest_categorical("g", [False, True]),
        )
        return float(values[1] > 1.0) + values[2]

    study = study_with(quick())
    study.optimize(objective, n_trials=6)  # Optuna refuses values outside
    assert {trial.params["c"] for trial in study.trials} <= {k / 10 for k in range(-3, 10)}
    assert belief_of(study).bandit.num_told == 5


# ---------------------------------------------------------------- time


@pytest.mark.parametrize("memory", [SlidingWindow(6), BackToPrior(0.1)])
def test_time_is_counted_in_trials_or_told_by_the_calendar(memory):
    study = study_with(quick(memory=memory))
    play(study, peak, 6)
    assert study.sampler.recommend(study) in study.trials
    assert belief_of(study).bandit.history.times.tolist() == list(range(6))
    study.sampler = quick(memory=SlidingWindow(3600.0), clock="dates")
    play(study, peak, 3)
    study.sampler.recommend(study)
    ended = [trial.datetime_complete for trial in study.trials]
    gaps = belief_of(study).bandit.history.times.diff().tolist()
    assert gaps == pytest.approx([(b - a).total_seconds() for a, b in pairwise(ended)], abs=1e-5)


@pytest.mark.slow
def test_a_window_forgets_what_an_objective_was():
    """The peak jumps after 12 trials; within a window of 12 more the sampler stands at the new one."""

    def jumping(trial):
        return -((trial.suggest_float("x", 0.0, 1.0) - (0.1 if trial.number < 12 else 0.9)) ** 2)

    study = study_with(quick(memory=SlidingWindow(8)))
    study.optimize(jumping, n_trials=24)
    assert abs(study.sampler.recommend(study).params["x"] - 0.9) < 0.1


# ---------------------------------------------------------------- pruners


def test_each_bracket_of_hyperband_keeps_its_belief(monkeypatch):
    made = []
    monkeypatch.setattr(sampler, "tuning_bandit", lambda **words: made.append(words) or tuning_bandit(**words))

    def learning(trial):
        value = peak(trial)
        for step in range(1, 10):
            trial.report(value - 1.0 / step, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return value

    study = study_with(quick(), pruner=optuna.pruners.HyperbandPruner(1, 9, 3), study_name="brackets")
    study.optimize(learning, n_trials=18)
    assert any(trial.state == TrialState.PRUNED for trial in study.trials)
    assert len(made) <= 1 + 3  # the constructor's, and one for each bracket


# ---------------------------------------------------------------- what is refused


class Odd(BaseDistribution):
    """A distribution that Optuna does not have."""

    def to_internal_repr(self, value):
        return value

    def single(self):
        return False

    def _contains(self, value):
        return True


@pytest.mark.parametrize(
    ("distribution", "words"),
    [
        (Odd(), "Odd, which KernelBanditSampler does not know"),
        (IntDistribution(0, 2**52), "at most 2.50 values"),
        (IntDistribution(1, 2**41, log=True), "at most 2.40"),
        (FloatDistribution(5e-324, 1.0, log=True), "low must be at least"),
        (FloatDistribution(-1.7e308, 1.7e308), "infinitely far apart"),
    ],
    ids=["kind", "integers", "log integers", "subnormal", "range"],
)
def test_ranges_that_cannot_be_searched_are_named(distribution, words):
    study = study_with(quick())
    with pytest.raises(InputError, match=f"parameter 'depth'.*{words}"):
        study.ask()._suggest("depth", distribution)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"algorithm": "ek-ucbb"}, "ek-ucb"),
        ({"beta": -1.0}, "beta|value"),
        ({"clock": "seconds"}, '"trials" or "dates"'),
        ({"clock": "dates"}, "give memory="),
        ({"pruned": "drop"}, '"learn" or "ignore"'),
        ({"failed": True}, '"learn" or "ignore"'),
        ({"n_startup_trials": 1}, "n_startup_trials must be at least 2"),
        ({"kernel": "rbf"}, "kernel must be"),
        ({"independent_sampler": "tpe"}, "a sampler of Optuna"),
        ({"seed": 1.5}, "seed"),
        ({"gamma": 3.0}, "gamma"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_words_that_do_not_fit_are_refused_at_once(words, message):
    with pytest.raises((InputError, TypeError), match=message):
        KernelBanditSampler(**{"seed": 0, **words})


def test_without_optuna_the_message_has_the_command(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("torch_kbandits.integrations.optuna")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"pip install -e '\.\[optuna\]'"):
        importlib.import_module("torch_kbandits.integrations.optuna")
