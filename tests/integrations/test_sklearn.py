"""KernelBanditSearchCV is a search of scikit-learn's in every respect but one: it chooses, and better than chance."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from joblib import parallel_config
from problems import matern
from scipy.stats import (
    beta,
    binom,
    gamma,
    loguniform,
    multivariate_normal,
    norm,
    poisson,
    randint,
    rv_discrete,
    rv_histogram,
    uniform,
    wilcoxon,
)
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import FitFailedWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, RandomizedSearchCV, ShuffleSplit, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tunable import Tunable, quality

from torch_kbandits import (
    Categorical,
    Float,
    InputError,
    Integer,
    KernelBanditWarning,
    StateMismatchError,
    StopWhen,
)
from torch_kbandits.algorithms import GPTS
from torch_kbandits.integrations.sklearn import KernelBanditSearchCV

pytestmark = pytest.mark.usefixtures("short_searches")

X, Y = np.arange(40.0).reshape(20, 2), np.tile([0, 1], 10)
SPACE = {"rate": loguniform(1e-4, 1.0), "depth": randint(1, 11), "kind": ["a", "b", "c"]}


def searched(estimator=None, space=SPACE, X=X, y=Y, **settings):
    settings = {"n_iter": 6, "cv": 2, "random_state": 0} | settings
    return KernelBanditSearchCV(Tunable() if estimator is None else estimator, space, **settings).fit(X, y)


def table(search):
    return {key: list(map(str, column)) for key, column in search.cv_results_.items() if "time" not in key}


SEVERAL = {"scoring": ["accuracy", "balanced_accuracy"], "refit": "accuracy", "return_train_score": True}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("settings", [SEVERAL, {"scoring": "accuracy", "refit": False}], ids=["several", "no-refit"])
def test_the_table_has_the_columns_and_kinds_of_randomized_search(settings):
    space = {"n_neighbors": [1, 3, 10], "weights": ["uniform", "distance"]}
    ours, theirs = (
        search(KNeighborsClassifier(), space, n_iter=4, cv=3, **settings).fit(*load_iris(return_X_y=True))
        for search in (KernelBanditSearchCV, RandomizedSearchCV)
    )
    assert {*ours.cv_results_} == {*theirs.cv_results_}
    for key, column in theirs.cv_results_.items():
        mine, other = (
            (type(each), len(each), getattr(each, "dtype", None)) for each in (ours.cv_results_[key], column)
        )
        assert mine == other, key
    public = {name for name in vars(theirs) if name.endswith("_") and not name.startswith("_")}
    assert {name for name in vars(ours) if name.endswith("_")} == public | {"bandit_", "space_"}


def test_scores_are_those_of_cross_validation_and_the_best_is_refitted_cloned_pickled_and_nested():
    X, y = load_iris(return_X_y=True)
    model = make_pipeline(StandardScaler(), KNeighborsClassifier())
    space = {"kneighborsclassifier__n_neighbors": Integer(1, 60), "kneighborsclassifier__p": uniform(1.0, 2.0)}
    search = searched(model, space, X, y, n_iter=4, num_initial=3, cv=3, algorithm="ek-ucb", beta=1.0)
    for row, parameters in enumerate(search.cv_results_["params"]):
        scores = cross_val_score(clone(model).set_params(**parameters), X, y, cv=3)
        assert search.cv_results_["mean_test_score"][row] == pytest.approx(scores.mean())
        assert search.cv_results_["split1_test_score"][row] == pytest.approx(scores[1])
    best = int(search.cv_results_["mean_test_score"].argmax())
    assert search.best_index_ == best
    assert search.best_params_ == search.cv_results_["params"][best]
    assert search.best_score_ == search.cv_results_["mean_test_score"].max()
    refitted = clone(model).set_params(**search.best_params_).fit(X, y)
    assert (search.predict(X) == refitted.predict(X)).all()
    assert search.predict_proba(X).shape == (len(X), 3)
    assert search.score(X, y) == refitted.score(X, y)
    assert search.classes_.tolist() == [0, 1, 2]
    again = pickle.loads(pickle.dumps(search))
    assert (again.predict(X) == search.predict(X)).all()
    assert again.bandit_.recommend().equal(search.bandit_.recommend())
    copy = clone(search).set_params(n_iter=2, num_initial=2, estimator__kneighborsclassifier__leaf_size=20)
    assert (copy.n_iter, copy.beta, copy.estimator[1].leaf_size) == (2, 1.0, 20)
    assert search.get_params()["estimator__kneighborsclassifier__leaf_size"] == 30
    assert not hasattr(copy, "best_params_")
    assert cross_val_score(copy, X, y, cv=2).shape == (2,)  # nested


def test_data_frames_groups_weights_and_routing():
    frame, words = pd.DataFrame(X, columns=["left", "right"]), {"n_iter": 2, "num_initial": 2, "random_state": 0}
    groups, weights = np.repeat(np.arange(5), 4), np.full(20, 0.5)
    search = searched(LogisticRegression(), {"C": [0.1, 1.0]}, frame, pd.Series(Y), n_iter=2)
    assert search.feature_names_in_.tolist() == ["left", "right"]
    grouped = KernelBanditSearchCV(Tunable(), SPACE, cv=GroupKFold(5), **words).fit(X, Y, groups=groups)
    assert grouped.n_splits_ == 5
    with pytest.raises(ValueError, match="groups"):
        grouped.fit(X, Y)
    weighted = KernelBanditSearchCV(Tunable(), SPACE, cv=2, **words)
    assert weighted.fit(X, Y, sample_weight=weights).best_estimator_.weight_ == 10.0
    with sklearn.config_context(enable_metadata_routing=True):
        model = Tunable().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        routed = KernelBanditSearchCV(model, SPACE, cv=GroupKFold(5), **words)
        assert routed.fit(X, Y, sample_weight=weights, groups=groups).best_estimator_.weight_ == 10.0


def test_several_metrics_are_all_kept_and_one_is_maximised():
    def both(estimator, X, y):
        return {"deep": estimator.depth, "accuracy": accuracy_score(y, estimator.predict(X))}

    scorings = both, {"deep": lambda estimator, X, y: estimator.depth, "accuracy": "accuracy"}
    searches = [
        searched(space={"depth": randint(1, 31)}, scoring=scoring, refit="deep", n_iter=5, num_initial=3)
        for scoring in scorings
    ]
    assert table(searches[0]) == table(searches[1])
    assert searches[0].best_score_ == searches[0].best_params_["depth"] == searches[0].score(X, Y) == 30
    assert {"mean_test_deep", "mean_test_accuracy"} <= {*searches[0].cv_results_}
    search = searched(n_iter=3, num_initial=3, refit=lambda results: int(np.argmin(results["mean_test_score"])))
    assert search.best_index_ == search.cv_results_["mean_test_score"].argmin()


def test_the_same_seed_gives_the_same_search_and_all_configurations_meet_the_same_splits():
    """Also those of a splitter that draws others whenever it is asked, in batches of one."""
    splits = []

    class ConstrainedOutcome(ShuffleSplit):
        def split(self, *arguments, **settings):
            for split in super().split(*arguments, **settings):
                splits.append(split)
                yield split

    searched(n_iter=3, num_initial=2, cv=ConstrainedOutcome(3))
    assert len(splits) == 3
    first, again, other = (searched(n_iter=4, num_initial=3, random_state=seed) for seed in (0, 0, 1))
    assert table(first) == table(again)
    assert table(first)["params"] != table(other)["params"]
    state = np.random.RandomState(3)
    assert table(searched(n_iter=2, random_state=state)) != table(searched(n_iter=2, random_state=state))


class Flat(Tunable):
    """All its parameters are as good."""

    def fit(self, X, y):
        return self

    def score(self, X, y):
        return 0.5


@pytest.mark.slow
def test_two_workers_give_what_batches_of_two_give():
    words = {"n_iter": 6, "num_initial": 2}
    with parallel_config(backend="loky"):
        two = searched(n_jobs=2, **words)
    assert table(two) == table(searched(batch_size=2, **words)) != table(searched(**words))


def test_no_configuration_is_evaluated_twice_and_small_spaces_end():
    space = {"depth": [2, 4, 6, 8], "kind": ["a", "b", "c"]}
    search = searched(space=space, n_iter=11, num_initial=9)
    assert len({tuple(row.values()) for row in search.cv_results_["params"]}) == 11
    with pytest.warns(KernelBanditWarning, match="only 12 different configurations, fewer than n_iter=50"):
        search = searched(space=space, n_iter=50, num_initial=8, batch_size=5)
    grid = GridSearchCV(Tunable(), space, cv=2).fit(X, Y)
    assert sorted(map(repr, search.cv_results_["params"])) == sorted(map(repr, grid.cv_results_["params"]))
    assert search.best_params_ == grid.best_params_
    dicts = [{"depth": [1, 2, 3], "kind": ["a", "b"]}, {"rate": [0.1]}]
    with pytest.warns(KernelBanditWarning, match="only 7 different configurations"):
        rows = searched(space=dicts, n_iter=30).cv_results_["params"]
    assert len({tuple(sorted(row.items(), key=str)) for row in rows}) == len(rows) == 7
    with pytest.warns(KernelBanditWarning, match="only 1 different"):
        assert searched(space={"depth": [3], "kind": ["b"]}).best_params_["depth"] == 3


def test_the_spread_over_folds_is_the_noise_of_a_mean():
    search = searched(Tunable(noise=0.5), n_iter=8, num_initial=6, noise="folds", cv=3)
    scores = np.stack([search.cv_results_[f"split{number}_test_score"] for number in range(3)])
    history = search.bandit_.history
    np.testing.assert_allclose(history.Y.numpy(), scores.mean(0))
    np.testing.assert_allclose(history.noise.numpy(), scores.var(0, ddof=1) / 3)
    assert searched(Tunable(), n_iter=4, noise="folds").bandit_.history.noise is None  # no spread, nothing known
    assert searched(Tunable(noise=0.5), n_iter=4).bandit_.history.noise is None


def test_the_words_of_the_bandit_are_passed_on_and_nothing_stays_pending():
    """Also of a batch in which the ninth is spread."""
    words = {"batch_size": 4, "algorithm": "gp-ts", "bandit_options": {"oversampling": 2.0}}
    bandit = searched(Tunable(noise=0.5), n_iter=10, num_initial=6, **words).bandit_
    assert isinstance(bandit, GPTS)
    assert (bandit.num_observations, bandit.num_asked) == (10, 4)
    assert not bandit.pending_ids


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.FitFailedWarning")
def test_failed_fits_are_rows_of_the_table_as_in_randomized_search():
    words = {"n_iter": 14, "num_initial": 8, "batch_size": 3, "random_state": 1}
    with pytest.warns(UserWarning, match="test scores are non-finite") as caught:
        search = searched(Tunable(limit=5), **words)
    assert sum("non-finite" in str(each.message) for each in caught) == 1
    failed = np.array([row["depth"] > 5 for row in search.cv_results_["params"]])
    assert 0 < failed.sum() < 14
    for key in ("mean_test_score", "split0_test_score", "std_test_score"):
        assert (np.isnan(search.cv_results_[key]) == failed).all()
    assert (search.cv_results_["param_depth"] == [row["depth"] for row in search.cv_results_["params"]]).all()
    assert (search.cv_results_["rank_test_score"][failed] == 14 - failed.sum() + 1).all()
    told = search.bandit_.history.Y.numpy()
    scores = search.cv_results_["mean_test_score"]
    assert (np.isnan(told) == failed).all()  # no score is invented
    assert (told[~failed] == scores[~failed]).all()
    assert failed[8:].mean() < failed[:5].mean() or failed[8:].mean() <= 0.2  # it keeps away


def test_error_scores():
    with pytest.warns(FitFailedWarning):
        search = searched(Tunable(limit=5), error_score=-7.0, n_iter=6, num_initial=5)
    deep = np.array([row["depth"] > 5 for row in search.cv_results_["params"]])
    assert ((search.cv_results_["mean_test_score"] == -7.0) == deep).all()
    with pytest.raises(ValueError, match="too deep"):
        searched(Tunable(limit=0), error_score="raise")
    with pytest.raises(ValueError, match=r"All the \d+ fits failed"), pytest.warns(FitFailedWarning):
        searched(Tunable(limit=0))
    words = {"scoring": {"one": "accuracy", "two": "accuracy"}, "refit": "two", "n_iter": 5, "num_initial": 4}
    with pytest.warns(FitFailedWarning), pytest.warns(UserWarning, match="non-finite"):
        results = searched(Tunable(limit=5), **words).cv_results_
    assert (np.isnan(results["mean_test_one"]) == np.isnan(results["mean_test_two"])).all()


def found(search_class, seed, **settings):
    """The noise-free quality of what a search of 30 configurations recommends."""
    search = search_class(
        Tunable(noise=0.1, seed=seed), SPACE, n_iter=30, cv=2, random_state=seed, refit=False, **settings
    )
    best = search.fit(X, Y).best_params_
    return quality(np.log10(best["rate"]), best["depth"], best["kind"])


@pytest.mark.slow
def test_it_finds_better_configurations_than_random_search():
    """One-sided Wilcoxon test at 1% over thirty seeds, which were chosen before it was run on them.

    On ten seeds the present kernel does not pass (p = 0.08 on 0 to 9, 0.05 on 100 to 109).
    """
    seeds = range(200, 230)
    ours = [found(KernelBanditSearchCV, seed) for seed in seeds]
    theirs = [found(RandomizedSearchCV, seed) for seed in seeds]
    assert wilcoxon(ours, theirs, alternative="greater").pvalue < 0.01


BRANCHES = [
    {"rate": loguniform(1e-4, 1.0), "depth": randint(1, 11), "kind": ["a"]},
    {"rate": loguniform(1e-4, 1.0), "kind": ["b", "c"]},
    {"rate": [0.5, 0.6, 0.7], "kind": ["a"], "seed": [1, 2]},
]


def test_a_list_of_dicts_is_searched_in_all_of_them_and_parameters_may_depend_on_others():
    search = searched(space=BRANCHES, n_iter=9, num_initial=8)
    rows = search.cv_results_["params"]
    of_branches = {
        ("rate", "depth", "kind"): lambda row: row["kind"] == "a" and 1 <= row["depth"] <= 10,
        ("rate", "kind"): lambda row: row["kind"] in ("b", "c"),
        ("rate", "kind", "seed"): lambda row: row["rate"] in (0.5, 0.6, 0.7) and row["seed"] in (1, 2),
    }
    assert all(of_branches[tuple(row)](row) for row in rows)
    assert {*map(tuple, rows)} == of_branches.keys()
    assert search.cv_results_["param_depth"].mask.tolist() == ["depth" not in row for row in rows]
    assert search.best_params_ in rows
    names = ["dict", "rate of dict 0", "rate of dict 2", "depth", "kind of dict 0", "kind of dict 1", "seed"]
    assert [*search.space_.space.parameters] == names  # one where dicts say the same
    space = {
        "seed": Categorical([1, 2, 3]),
        "depth": Integer(1, 4, when={"seed": 1}),
        "rate": Float(1e-3, 1.0, log=True, when={"seed": [2, 3]}),
    }
    for row in searched(space=space, n_iter=5, num_initial=4).cv_results_["params"]:
        assert ("depth" in row, "rate" in row) == (row["seed"] == 1, row["seed"] > 1)


def values_of(given, number=256):
    """The values that are searched of what is given of a parameter."""
    found = searched(Flat(), {"noise": given, "seed": [1, 2, 3]}, n_iter=2, num_initial=2, refit=False).space_
    points = found.space.sample(number, torch.Generator().manual_seed(0))
    return [row["noise"] for row in found.decode(points)]


HISTOGRAM = rv_histogram(np.histogram([1.0, 2.0, 3.0, 3.0, 4.0]), density=False)


@pytest.mark.parametrize(
    ("shape", "low", "high"),
    [
        (norm(3.0, 0.5), *norm(3.0, 0.5).ppf([0.001, 0.999])),
        (beta(2, 5), 0.0, 1.0),
        (loguniform(1, 10, loc=3), 4.0, 13.0),
        (HISTOGRAM, 1.0, 4.0),  # not called, which scikit-learn takes as well
        (uniform, 0.0, 1.0),
    ],
)
def test_distributions_of_any_shape_are_searched_by_their_quantiles(shape, low, high):
    values = np.sort(values_of(shape))
    assert low <= values[0] <= shape.ppf(0.02)
    assert shape.ppf(0.98) <= values[-1] <= high
    assert np.median(values) == pytest.approx(shape.median(), abs=0.02 * (high - low))
    assert values.dtype == float


@pytest.mark.parametrize(
    "given",
    [
        rv_discrete(values=((0.1, 0.5, 0.9), (0.3, 0.3, 0.4)))(),
        rv_discrete(values=((1, 2, 4), (0.3, 0.3, 0.4)))(loc=0.5),
        rv_discrete(values=((1.0, 2.0), (0.5, 0.5)))(),
        randint(0, 5, loc=0.5),
        binom(5, 0.5, loc=-2),
        poisson(3),
    ],
)
def test_discrete_distributions_are_searched_at_the_values_that_scipy_draws(given):
    drawn = given.rvs(size=4_000, random_state=0)
    found = values_of(given)
    assert {*found} <= {*drawn.tolist()}
    counts = [value for value, count in zip(*np.unique(drawn, return_counts=True), strict=True) if count > 80]
    assert {*counts} <= {*found}
    assert {type(value) for value in found} == {float if drawn.dtype.kind == "f" else int}


@pytest.mark.parametrize(
    "given",
    [
        [1, 1.0, 0.5],
        [1.0, 2, 1, 3],
        (True, 1, 1.0, "1", None),
        np.array([2, 4, 8]),
        [1, 2, 10**400],
        [(1, 2), (1,), [1, 2], {"a": 1}],
    ],
)
def test_values_that_are_equal_but_not_of_one_kind_are_different_ones(given):
    """1 and 1.0 may mean one feature and all features."""
    found = {(type(value), str(value)) for value in values_of(given)}
    assert found == {(type(value), str(value)) for value in given}


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ([{"rate": [0.1]}, "depth"], "must be a dict from names to distributions, or a list of such"),
        ([], "or a list of such"),
        ({}, "at least one entry"),
        ({"rate": gamma}, "'rate' cannot be searched: the distribution 'gamma' is not frozen"),
        ({"rate": multivariate_normal([0.0, 0.0])}, "'rate' cannot .* has no quantiles.*a frozen distribution"),
        ({"depth": randint(0, 2**60)}, "'depth' cannot be searched: an Integer must have at most 2.50 values"),
        ({"rate": uniform(-1.7e308, 3.4e308)}, "'rate' cannot be searched"),
        ({"rate": loguniform(5e-324, 1.0)}, "'rate' cannot be searched: low must be at least"),
        ({"kind": "abc"}, "'kind' must be a distribution, or a one-dimensional list.* got 'abc' of type str"),
        ({"kind": []}, "of at least one value"),
        ({"rate": np.eye(2)}, "one-dimensional"),
        ({"rate": uniform(0.0, np.inf)}, "'rate'"),
    ],
)
def test_what_is_no_distribution_is_named_with_what_works(space, message):
    with pytest.raises(InputError, match=message):
        searched(space=space)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_iter": 0}, "n_iter must be a whole number of at least 1"),
        ({"num_initial": 1}, "num_initial must be a whole number of at least 2"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"algorithm": "tpe"}, "tpe"),
        ({"bandit_options": {"windo": 3}}, "windo"),
        ({"noise": "fold"}, "noise must be"),
        ({"scoring": ["accuracy"], "refit": False}, "refit must be the name of that one"),
        ({"scoring": lambda *_: {"a": 1.0}, "refit": "b"}, "'b'"),
        ({"space": {"colour": uniform()}}, "colour"),
    ],
)
def test_bad_words_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        searched(**settings)


FRAME = pd.DataFrame(X, columns=["left", "right"])


class Counted(Tunable):
    """Counts its fits, and is interrupted at one of them."""

    fits, last = 0, np.inf

    def fit(self, X, y, sample_weight=None):
        if Counted.fits >= Counted.last:
            raise KeyboardInterrupt
        Counted.fits += 1
        return super().fit(X, y, sample_weight)


@pytest.fixture(autouse=True)
def _nothing_was_fitted():
    Counted.fits, Counted.last = 0, np.inf


def kept(path, estimator=None, space=SPACE, X=X, y=Y, fit_words=None, **settings):
    settings = {"n_iter": 5, "num_initial": 3, "cv": 2, "random_state": 0, "refit": False} | settings
    search = KernelBanditSearchCV(Counted() if estimator is None else estimator, space, checkpoint=path, **settings)
    return search.fit(X, y, **(fit_words or {}))


def stopped(path, fits, **settings):
    Counted.fits, Counted.last = 0, fits
    with pytest.raises(KeyboardInterrupt):
        kept(path, **settings)
    Counted.fits, Counted.last = 0, np.inf


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"batch_size": 2, "refit": True, "cv": KFold(2, shuffle=True, random_state=3)},
        {"scoring": ["accuracy", "balanced_accuracy"], "refit": "accuracy", "return_train_score": True},
        {"estimator": Counted(limit=4), "error_score": np.float32(-1.0)},
        {"X": FRAME, "y": pd.Series(Y), "fit_words": {"sample_weight": np.ones(20)}, "batch_size": 2},
    ],
    ids=["plain", "batches", "several", "failures", "frames"],
)
def test_a_search_interrupted_anywhere_goes_on_as_if_it_was_not(settings, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitFailedWarning)
        whole = kept(None, **settings)
        total = Counted.fits
        path, stops = tmp_path / "search", [total - 3, 1] if settings == {} else [total - 3]
        for each in stops:  # also again and again
            stopped(path, each, **settings)
        found = kept(path, **settings)
    assert table(found) == table(whole)
    assert found.multimetric_ == whole.multimetric_
    assert torch.equal(found.bandit_.history.Y, whole.bandit_.history.Y)
    assert vars(found).keys() == vars(whole).keys()
    assert getattr(found, "best_index_", None) == getattr(whole, "best_index_", None)
    assert Counted.fits <= total - sum(stops) + 2 * settings.get("batch_size", 1)


def test_a_search_that_had_ended_evaluates_the_quickest_configuration_once_more(tmp_path):
    """scikit-learn's ``fit`` needs something that was evaluated in it; what was measured is kept."""
    path = str(tmp_path / "search")
    whole = kept(path, n_iter=3, refit=True)
    times = list(whole.cv_results_["mean_fit_time"])
    Counted.fits = 0
    again = clone(whole).fit(X, Y)
    assert Counted.fits == 3  # two splits, and the refit
    assert table(again) == table(whole)
    assert list(again.cv_results_["mean_fit_time"]) == times
    assert again.best_params_ == whole.best_params_
    assert again.best_estimator_.rate == whole.best_estimator_.rate


@pytest.mark.slow
def test_batches_in_which_every_fit_failed_keep_their_places(tmp_path):
    settings = {"estimator": Counted(limit=5), "num_initial": 2}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of scikit-learn, that fits failed and scores are not finite
        whole = kept(None, **settings)
        failed = np.isnan(whole.cv_results_["mean_test_score"])
        assert 0 < failed.sum() < 5
        stopped(tmp_path / "search", 7, **settings)
        assert table(kept(tmp_path / "search", **settings)) == table(whole)
    words = settings | {"estimator": Counted(limit=0)}
    for _ in range(2):  # also from what is left of the first
        with pytest.raises(ValueError, match="All the"), pytest.warns(FitFailedWarning):
            kept(tmp_path / "never", **words)


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "settings",
    [
        {"n_iter": 6},
        {"random_state": 1},
        {"scoring": "accuracy"},
        {"bandit_options": {"kernel": matern(0.3)}},
        {"space": SPACE | {"kind": ["a", "b", "d"]}},
        {"estimator": Counted(noise=0.5)},
        {"y": 1 - Y},
        {"fit_words": {"sample_weight": np.ones(20)}},
    ],
    ids="-".join,
)
def test_another_search_begins_anew(settings, tmp_path):
    kept(tmp_path)
    Counted.fits = 0
    kept(tmp_path, **settings)
    assert Counted.fits == 2 * settings.get("n_iter", 5)


def test_splits_that_are_drawn_anew_and_bad_words_are_refused_before_anything_is_fitted(tmp_path):
    stopped(tmp_path, 7, cv=ShuffleSplit(2))
    with pytest.raises(StateMismatchError, match=r"draws other splits.*Give cv a random_state"):
        kept(tmp_path, cv=ShuffleSplit(2))
    with pytest.raises(InputError, match="checkpoint must be the path of a directory or None, got 3"):
        kept(3)
    with pytest.raises(InputError, match="needs a random_state"):
        kept(tmp_path, random_state=None)
    assert Counted.fits == 0


def test_a_search_ends_where_its_bandit_says():
    whole = searched(num_initial=4)
    asked, seen = [], []

    def stop(bandit):
        asked.append(bandit.num_observations)
        seen.append(bandit.largest_expected_improvement())
        return len(asked) == 2

    search = searched(num_initial=4, stop=stop)
    assert asked == [4, 5]
    assert np.isfinite(seen).all()
    assert search.cv_results_["params"] == whole.cv_results_["params"][:5]
    assert clone(search).get_params()["stop"] is stop
    assert len(searched(num_initial=4, stop=StopWhen(no_better_by=1e9)).cv_results_["params"]) == 4
    with pytest.raises(InputError, match="stop must be a function"):
        searched(stop=0.1)
