"""A search that was stopped and is started again with the same words comes out as one that was not."""

import os
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import loguniform, randint
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import KFold, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from tunable import Tunable

from torch_kbandits import DamagedFileError, FileError, InputError, KernelBanditWarning, StateMismatchError
from torch_kbandits.bandit.saving import read, write
from torch_kbandits.integrations.sklearn import KernelBanditSearchCV

pytestmark = pytest.mark.usefixtures("short_searches")

X, Y = np.arange(40.0).reshape(20, 2), np.tile([0, 1], 10)
FRAME = pd.DataFrame(X, columns=["left", "right"])
SPACE = {"rate": loguniform(1e-4, 1.0), "depth": randint(1, 11), "kind": ["a", "b", "c"]}


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


def searched(path, estimator=None, space=SPACE, X=X, y=Y, fit_words=None, **settings):
    settings = {"n_iter": 5, "num_initial": 3, "cv": 2, "random_state": 0, "refit": False} | settings
    search = KernelBanditSearchCV(Counted() if estimator is None else estimator, space, checkpoint=path, **settings)
    return search.fit(X, y, **(fit_words or {}))


def table(search):
    """What a search found, without times."""
    return {key: list(map(str, column)) for key, column in search.cv_results_.items() if "time" not in key}


def stopped(path, fits, **settings):
    """Search until so many fits are done."""
    Counted.fits, Counted.last = 0, fits
    with pytest.raises(KeyboardInterrupt):
        searched(path, **settings)
    Counted.fits, Counted.last = 0, np.inf


# ---------------------------------------------------------------- going on


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"batch_size": 2, "recommend": "posterior", "refit": True, "cv": KFold(2, shuffle=True, random_state=3)},
        {"scoring": ["accuracy", "balanced_accuracy"], "refit": "accuracy", "return_train_score": True},
        {"estimator": Counted(limit=4), "error_score": np.float32(-1.0)},
        {"X": FRAME, "y": pd.Series(Y), "fit_words": {"sample_weight": np.ones(20)}, "batch_size": 2},
    ],
    ids=["plain", "batches", "several", "failures", "frames"],
)
def test_a_search_interrupted_anywhere_goes_on_as_if_it_was_not(settings, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitFailedWarning)
        whole = searched(None, **settings)
        total = Counted.fits
        path, stops = tmp_path / "search", [total - 3, 1] if settings == {} else [total - 3]
        for each in stops:  # also again and again
            stopped(path, each, **settings)
        found = searched(path, **settings)
    assert table(found) == table(whole)
    assert found.multimetric_ == whole.multimetric_
    assert torch.equal(found.bandit_.history.Y, whole.bandit_.history.Y)
    assert vars(found).keys() == vars(whole).keys()
    assert getattr(found, "best_index_", None) == getattr(whole, "best_index_", None)
    assert Counted.fits <= total - sum(stops) + 2 * settings.get("batch_size", 1)


def test_a_search_that_had_ended_evaluates_the_quickest_configuration_once_more(tmp_path):
    """scikit-learn's ``fit`` needs something that was evaluated in it; what was measured is kept."""
    path = str(tmp_path / "search")
    whole = searched(path, n_iter=3, refit=True)
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
        whole = searched(None, **settings)
        failed = np.isnan(whole.cv_results_["mean_test_score"])
        assert 0 < failed.sum() < 5
        stopped(tmp_path / "search", 7, **settings)
        assert table(searched(tmp_path / "search", **settings)) == table(whole)
    words = settings | {"estimator": Counted(limit=0)}
    for _ in range(2):  # also from what is left of the first
        with pytest.raises(ValueError, match="All the"), pytest.warns(FitFailedWarning):
            searched(tmp_path / "never", **words)


def test_choices_that_come_out_otherwise_are_passed_by_with_a_warning(tmp_path):
    """As if the file was written on a machine that rounds otherwise."""
    path = tmp_path / "search"
    stopped(path, 9)
    content = read(path, "search")
    content["batches"][1]["points"][:, 0] += 0.25
    write(path, "search", content)
    with pytest.warns(KernelBanditWarning, match="other configurations than those in"):
        found = searched(path)
    assert len(found.cv_results_["params"]) == 5
    assert found.cv_results_["params"][3] == found.space_.decode(content["batches"][1]["points"])[0]
    assert len(found.bandit_.pending) == 0


# ---------------------------------------------------------------- what is refused


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """The content of a file that a search left behind."""
    path = tmp_path_factory.mktemp("started") / "search"
    stopped(path, 9)
    return path.read_bytes()


class Other(Counted):
    pass


PIPELINE = {"space": {"counted__depth": randint(1, 11)}, "n_iter": 2, "num_initial": 2}


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_iter": 9}, "n_iter: 5 there, 9 here"),
        ({"batch_size": 2}, "batch_size: 1 there, 2 here"),
        ({"random_state": 1}, r"random_state: \d+ there, \d+ here"),
        ({"cv": 3}, "cv: 2 there, 3 here"),
        ({"scoring": "accuracy"}, "scoring: None there, 'accuracy' here"),
        ({"algorithm": "gp-ucb", "beta": 1.0}, "beta: None there, 1.0 here"),
        ({"bandit_options": {"oversampling": 3.0}}, "bandit_options: None there, {'oversampling': 3.0} here"),
        ({"space": SPACE | {"depth": randint(1, 12)}}, "param_distributions depth: .* there, .* here"),
        ({"space": SPACE | {"kind": ["a", "b", "d"]}}, "param_distributions kind: .*'c'.* there, .*'d'.* here"),
        ({"space": SPACE | {"seed": [1, 2, 3]}}, "param_distributions seed: nothing there, .* here"),
        ({"estimator": Counted(noise=0.5)}, "estimator__noise: 0.0 there, 0.5 here"),
        ({"estimator": Other()}, "estimator: .*Counted there, .*Other here"),
        ({"X": X[:18], "y": Y[:18]}, r"X: \(20, 2\) float64 \w+ there, \(18, 2\) float64 \w+ here"),
        ({"X": X + 1.0}, "X: .* there, .* here"),
        ({"y": 1 - Y}, "y: .* there, .* here"),
        ({"fit_words": {"sample_weight": np.ones(20)}}, "sample_weight: nothing there, .* here"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_another_search_is_refused_by_what_differs(settings, message, started, tmp_path):
    path = tmp_path / "search"
    path.write_bytes(started)
    with pytest.raises(StateMismatchError, match=f"checkpoint of another search.*{message}"):
        searched(path, **settings)
    assert path.read_bytes() == started
    assert Counted.fits == 0


def test_differences_within_a_pipeline_and_splits_that_are_drawn_anew_are_refused_before_anything_is_fitted(tmp_path):
    path = tmp_path / "pipeline"
    searched(path, make_pipeline(StandardScaler(), Counted()), **PIPELINE)
    with pytest.raises(StateMismatchError, match=r"search\. estimator__counted__noise: 0.0 there, 0.5 here\. Give"):
        searched(path, make_pipeline(StandardScaler(), Counted(noise=0.5)), **PIPELINE)
    with pytest.raises(StateMismatchError, match=r"estimator__steps: .*StandardScaler.* there, .*MinMaxScaler"):
        searched(path, make_pipeline(MinMaxScaler(), Counted()), **PIPELINE)
    path = tmp_path / "search"
    stopped(path, 7, cv=ShuffleSplit(2, random_state=np.random.RandomState(0)))
    with pytest.raises(StateMismatchError):  # the state of the splitter is another one
        searched(path, cv=ShuffleSplit(2, random_state=np.random.RandomState(1)))
    path.unlink()
    stopped(path, 7, cv=ShuffleSplit(2))
    with pytest.raises(StateMismatchError, match=r"draws other splits.*Give cv a random_state"):
        searched(path, cv=ShuffleSplit(2))
    assert Counted.fits == 0
    path.unlink()
    halves = [(np.arange(10), np.arange(10, 20)), (np.arange(10, 20), np.arange(10))]
    stopped(path, 7, cv=(split for split in halves))
    with pytest.raises(StateMismatchError, match="has 6 fits of 3 configuration"):
        searched(path, cv=(split for split in [*halves, halves[0]]))


def test_damaged_files_and_bad_paths_are_refused(started, tmp_path):
    path = tmp_path / "search"
    for content in (started[:-7], started[:40], b"", b"torch_kbandits bandit\n{}\n", started[:-3] + b"xyz"):
        path.write_bytes(content)
        with pytest.raises(DamagedFileError, match=r"another checkpoint=, the search begins anew"):
            searched(path)
        assert path.read_bytes() == content
    write(path, "search", {"words": {}})
    with pytest.raises(DamagedFileError, match="no checkpoint of a search"):
        searched(path)
    path.write_bytes(started.replace(b'"format": 2', b'"format": 9'))
    with pytest.raises(StateMismatchError, match="has format 9"):
        searched(path)
    with pytest.raises(FileError, match="Make its directory first"):
        searched(tmp_path / "nowhere" / "search")
    with pytest.raises(FileError, match="path of a file"):
        searched(tmp_path)
    with pytest.raises(InputError, match="checkpoint must be the path of a file or None, got 3"):
        searched(3)
    with pytest.raises(InputError, match="needs a random_state"):
        searched(tmp_path / "new", random_state=None)
    assert Counted.fits == 0


def test_a_disk_that_fills_up_costs_the_checkpoint_and_not_the_search(tmp_path, monkeypatch):
    path, original, calls = tmp_path / "search", os.replace, []

    def full(*arguments):
        calls.append(arguments)
        if len(calls) > 3:
            raise OSError(28, "No space left on device")
        return original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.warns(KernelBanditWarning, match="goes on without its checkpoint.*No space left"):
            found = searched(path)
    assert len(read(path, "search")["batches"]) == 2  # and before them an empty one
    assert table(searched(path)) == table(found)
    assert [file.name for file in tmp_path.iterdir()] == ["search"]
