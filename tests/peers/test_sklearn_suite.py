"""scikit-learn's own tests of searches, run on ours: its checks of estimators, and its tests of callbacks.

What it says of ``RandomizedSearchCV`` is what holds for ``KernelBanditSearchCV``, but for what ``deviations`` explains:
a check of that name must fail, and any other must pass.
"""

import pytest
from scipy.stats import randint
from sklearn.base import is_regressor
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection.tests import test_search as theirs
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from torch_kbandits.integrations.sklearn import KernelBanditSearchCV

# Of scikit-learn's own tests, which meet warnings that are errors in ours.
pytestmark = pytest.mark.filterwarnings("default")

#: Why a check of estimators fails.
REGRESSORS = {
    "check_supervised_y_2d": "A search hands y on as it is, and Ridge takes a column for several outputs, without the "
    "warning that the check waits for; RandomizedSearchCV fails alike."
}


def tuned(estimator, name):
    words = {"n_iter": 2, "cv": 2, "error_score": "raise", "random_state": 0}
    return KernelBanditSearchCV(estimator, {name: [0.1, 1.0]}, **words)


SEARCHES = [
    tuned(Ridge(), "alpha"),
    tuned(LogisticRegression(), "C"),
    tuned(make_pipeline(PCA(), Ridge()), "ridge__alpha"),
    tuned(make_pipeline(PCA(), LogisticRegression()), "logisticregression__C"),
]


def deviations(search):
    return REGRESSORS if is_regressor(search) else {}


@pytest.mark.slow
@parametrize_with_checks(SEARCHES, expected_failed_checks=deviations, xfail_strict=True)
def test_checks_of_estimators(estimator, check):
    check(estimator)


def with_callbacks(estimator, scoring):
    words = {"cv": 2, "n_iter": 3, "scoring": scoring, "random_state": 42}
    return KernelBanditSearchCV(estimator(), {"max_iter": randint(1, 4)}, **words)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("refit", [True, False])
def test_callbacks_without_propagation(refit):
    theirs.test_search_callbacks_no_propagation(with_callbacks(theirs.NoCallbackEstimator, "accuracy"), refit)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("refit", [True, False])
def test_callbacks_with_propagation(refit):
    theirs.test_search_callbacks_propagation(with_callbacks(theirs.MaxIterEstimator, "r2"), refit)


def test_callbacks_receive_the_search():
    theirs.test_search_callbacks_receive_search_instance(with_callbacks(theirs.MaxIterEstimator, "r2"))
