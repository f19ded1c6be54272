"""Studies with several objectives and with constraints: what trials say becomes outcomes, limits and an objective."""

import math
from itertools import pairwise

import numpy as np
import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState, create_trial
from studies import bandit_of, parameters, quick, study_with

from torch_kbandits import InfeasibleError, InputError

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


@pytest.mark.usefixtures("short_searches")
def test_a_function_of_constraints_is_stored_as_optunas_samplers_do():
    def objective(trial):
        x = trial.suggest_float("x", 0.0, 1.0)
        trial.set_user_attr("c", (x - 0.5, -1.0))
        return x

    study = study_with(quick(constraints_func=lambda trial: trial.user_attrs["c"]))
    study.optimize(objective, n_trials=5)
    assert all(trial.constraints == {"0": trial.params["x"] - 0.5, "1": -1.0} for trial in study.trials)
    assert bandit_of(study).outcomes == ("constraint 0", "constraint 1")
    assert study.best_trial.params["x"] <= 0.5


@pytest.mark.usefixtures("short_searches")
def test_trials_without_a_constraint_that_others_have_are_learned_without_it():
    study = study_with(quick())
    study.optimize(bounded_without, n_trials=4)
    study.optimize(bounded, n_trials=2)
    study.sampler.recommend(study)
    column = bandit_of(study).history.outcomes[:, 0]
    assert column[:4].isnan().all()
    assert column[4:].isfinite().all()


@pytest.mark.slow
def test_only_what_is_surely_feasible_is_tried_where_that_is_asked_for():
    safe = [{"x": 0.1, "y": 0.1}, {"x": 0.3, "y": 0.1}]
    study = study_with(quick(constraint_mode="safe", safe_params=safe))
    study.optimize(bounded, n_trials=16)
    assert study.trials[0].params == safe[0]
    assert all(trial.constraints["sum"] <= 0.05 for trial in study.trials)
    assert study.best_value > 0.5  # more than what was known to be safe


@pytest.mark.usefixtures("short_searches")
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


@pytest.mark.usefixtures("short_searches")
def test_infinite_values_count_as_the_worst_or_best_so_far_and_failures_as_such():
    study = optuna.create_study(directions=BOTH, sampler=quick())
    study.optimize(two, n_trials=5)
    words = {"params": {"x": 0.5, "y": 0.5}, "distributions": study.trials[0].distributions}
    for values in ([math.inf, 0.5], [-math.inf, 0.5], [0.5, math.inf], [0.5, -math.inf]):
        study.add_trial(create_trial(values=values, **words))
    study.add_trial(create_trial(state=TrialState.FAIL, **words))
    study.sampler.recommend(study)
    history = bandit_of(study).history
    first, second = -history.Y, history.outcomes[:, 0]
    assert first[5:7].tolist() == [first[:5].max(), first[:5].min()]
    assert second[7:9].tolist() == [second[:5].max(), second[:5].min()]
    assert history.lost.tolist() == [False] * 9 + [True]
    assert bool(second[9].isnan())


# ---------------------------------------------------------------- infinite and odd values


SAFE = {"constraint_mode": "safe", "safe_params": [{"x": 0.1, "y": 0.1}, {"x": 0.3, "y": 0.1}]}


@pytest.mark.usefixtures("short_searches")
@pytest.mark.one_in(2)
@pytest.mark.parametrize("kept", [-0.5, -math.inf])
@pytest.mark.parametrize(
    "words", [{}, {"failed": "ignore"}, pytest.param(SAFE, marks=pytest.mark.slow)], ids=["learn", "ignore", "safe"]
)
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


@pytest.mark.usefixtures("short_searches")
@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", [np.bool_, np.float32, int])
def test_constraints_may_be_numbers_of_any_kind(kind):
    """True is a limit broken and False one kept."""

    def objective(trial):
        return trial.suggest_float("x", 0.0, 1.0)

    study = study_with(quick(constraints_func=lambda trial: (kind(trial.params["x"] > 0.5),)))
    study.optimize(objective, n_trials=5)
    study.sampler.recommend(study)
    measured = [float(trial.params["x"] > 0.5) for trial in study.trials]
    assert bandit_of(study).history.outcomes[:, 0].tolist() == measured


def test_what_has_no_meaning_is_named():
    study = study_with(quick(constraints_func=lambda trial: (1 + 2j,)))
    with pytest.raises(InputError, match="constraint '0' of trial 0 must be a number, at most 0 where it is kept"):
        study.optimize(lambda trial: trial.suggest_float("x", 0.0, 1.0), n_trials=3)
    study = optuna.create_study(directions=BOTH, sampler=quick(algorithm="gp-ei"))
    with pytest.raises(InputError, match="several have no meaning"):
        study.optimize(two, n_trials=6)


@pytest.mark.usefixtures("short_searches")
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
