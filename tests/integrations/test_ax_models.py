"""What the models believe in Ax, against dense formulas, and what Ax's client says of it."""

import numpy as np
import oracles
import pytest
import torch
from ax.adapter.cross_validation import cross_validate
from ax.analysis.analysis import ErrorAnalysisCard
from ax.analysis.diagnostics import DiagnosticAnalysis
from ax.analysis.plotly.parallel_coordinates import ParallelCoordinatesPlot
from ax.analysis.plotly.surface.slice import SlicePlot
from ax.analysis.results import ResultsAnalysis
from ax.core.observation import ObservationFeatures
from ax.exceptions.core import UnsupportedError
from ax_clients import BRANIN, GRID, UNIT, branin, client_of, fitted, play, posterior_model, tell
from problems import rbf

from torch_kbandits import (
    FixedDictionary,
    GreedyDictionary,
    LearnedPrior,
    LinearGrowth,
    Prior,
    QuadraticGrowth,
    UniformDictionary,
)
from torch_kbandits.integrations.ax import recommend
from torch_kbandits.memory import Discount, Restart, SlidingWindow, UncertaintyInjection

LAMBDA, SCALE, LENGTH = 0.3, 900.0, 0.35
TRIALS = 12


def in_the_box(x):
    return {"x1": -5.0 + 15.0 * float(x[0]), "x2": 15.0 * float(x[1])}


FROZEN = rbf(LENGTH, SCALE).requires_grad_(False)


def told(sems=None, prior=Prior(FROZEN, LAMBDA), **settings):  # noqa: B008
    """A client that was told twelve trials, with the points in the unit cube and the outcomes."""
    client = client_of(BRANIN, "-score", prior=prior, **settings)
    X = np.random.default_rng(0).uniform(size=(TRIALS, 2))
    Y = [branin(**in_the_box(x)) for x in X]
    tell(client, map(in_the_box, X), Y if sems is None else list(zip(Y, sems, strict=True)))
    return client, X, np.array(Y)


def believed(client, T):
    mean, covariance = fitted(client).predict([ObservationFeatures(t) for t in T])
    return np.array(mean["score"]), np.array(covariance["score"]["score"])


def agree(found, dense, scale=SCALE):
    for ours, theirs, tolerance in zip(found, (dense.mean, dense.variance), (1e-6, 1e-7), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=tolerance * scale)


AGE = TRIALS - np.arange(TRIALS)  # the present is trial 12
MEMORIES = {
    "all": (None, lambda fresh: fresh),
    "window": (SlidingWindow(5), lambda fresh: np.where(AGE <= 5, fresh, np.inf)),
    "latest": (SlidingWindow(4, "observations"), lambda fresh: np.where(AGE <= 4, fresh, np.inf)),
    "restarted": (Restart(6), lambda fresh: fresh + np.inf),
    "discount": (Discount(0.8), lambda fresh: fresh * 0.8**-AGE),
    "dropping": (
        UncertaintyInjection(LinearGrowth(7.0), max_variance=60.0),
        lambda fresh: np.where(fresh + 7.0 * AGE <= 60.0, fresh + 7.0 * AGE, np.inf),
    ),
    "quadratic": (UncertaintyInjection(QuadraticGrowth(0.5)), lambda fresh: fresh * (0.5 * AGE**2 + 1.0)),
}
QUICK = {("all", "nystrom", 0), ("window", "exact", 1), ("discount", "exact", 0)}


@pytest.mark.parametrize(
    ("name", "model", "known"),
    [
        pytest.param(*case, marks=[] if case in QUICK else pytest.mark.slow)
        for case in [(name, model, known) for name in MEMORIES for model in ("exact", "nystrom") for known in (0, 1)]
    ],
)
def test_surrogates_are_those_of_dense_formulas_also_where_a_trial_is_left_out(name, model, known):
    """Hyperparameters, dictionary and the present stay what they are; the memory looks at the trials that are left."""
    memory, noise = MEMORIES[name]
    sems = np.random.default_rng(2).uniform(0.2, 2.0, TRIALS) if known else None
    dictionary = GreedyDictionary(6) if model == "nystrom" else None
    client, X, Y = told(sems, memory=memory, dictionary=dictionary)
    adapter, fresh = fitted(client), np.full(TRIALS, LAMBDA) if sems is None else sems**2

    def dense(seen, T):
        kept = np.isfinite(seen)
        data = (oracles.rbf(LENGTH, SCALE), X[kept], Y[kept], seen[kept])
        if model == "exact":
            return oracles.exact(*data, T)
        points = adapter.current.model("score").inducing_points.numpy()
        assert len(points) <= 6
        return oracles.dtc(*data, points, T)

    T = np.random.default_rng(1).uniform(size=(7, 2))
    agree(believed(client, map(in_the_box, T)), dense(noise(fresh), T))
    results = cross_validate(adapter)
    assert len(results) == TRIALS
    for result in results:
        row = int(np.abs(Y - result.observed.data.means[0]).argmin())
        others = np.arange(TRIALS) != row
        seen = np.where(others, noise(fresh), np.inf)
        if name == "latest":  # the fifth latest moves up
            seen = np.full(TRIALS, np.inf)
            seen[np.flatnonzero(others)[-4:]] = fresh[np.flatnonzero(others)[-4:]]
        agree((result.predicted.means, result.predicted.covariance[0]), dense(seen, X[[row]]), 1.0)


def test_a_dictionary_and_a_prior_mean_may_be_given():
    points = torch.tensor([[0.3, 0.1], [0.7, 0.3]], dtype=torch.float64)
    client, _, _ = told(dictionary=FixedDictionary(points))
    torch.testing.assert_close(fitted(client).current.model("score").inducing_points, points)
    client, X, Y = told(dictionary=None, prior=Prior(FROZEN, LAMBDA, 50.0))
    T = np.random.default_rng(1).uniform(size=(7, 2))
    dense = oracles.exact(oracles.rbf(LENGTH, SCALE), X, Y - 50.0, np.full(TRIALS, LAMBDA), T)
    mean, variance = believed(client, map(in_the_box, T))
    agree((mean - 50.0, variance), dense)


def test_trials_without_a_standard_error_get_the_mean_variance_of_the_others():
    sems = [0.5, None, 1.5] * 4
    T = np.random.default_rng(1).uniform(size=(7, 2))
    for prior, noise in ((LearnedPrior(FROZEN, mean=0.0), 1.25), (Prior(FROZEN, LAMBDA), LAMBDA)):
        client, X, Y = told(sems, prior, dictionary=None)
        known = np.array([0.25, noise, 2.25] * 4)
        agree(believed(client, map(in_the_box, T)), oracles.exact(oracles.rbf(LENGTH, SCALE), X, Y, known, T))


@pytest.mark.parametrize(
    ("model", "grows"),
    [
        ("nystrom", False),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in [("exact", True), ("exact", False)]),
    ],
)
def test_what_is_fitted_changes_units_with_the_outcome(model, grows, short_fits):
    """Outcomes a y + b have the prior mean a m + b and variances that are a² times those of y."""
    a, b = 1000.0, -7e4
    surrogates = []
    for scale, shift in ((1.0, 0.0), (a, b)):
        memory = UncertaintyInjection(LinearGrowth(scale**2)) if grows else None
        dictionary = GreedyDictionary(TRIALS) if model == "nystrom" else None
        client = client_of(BRANIN, memory=memory, dictionary=dictionary)
        rng = np.random.default_rng(0)
        trials = [in_the_box(x) for x in rng.uniform(size=(TRIALS, 2))]
        tell(client, trials, [scale * branin(**parameters) + shift for parameters in trials])
        found = believed(client, map(in_the_box, rng.uniform(size=(7, 2))))
        surrogates.append((*found, fitted(client).current.model("score").regularization))
    (mean, variance, plain), (scaled_mean, scaled_variance, scaled) = surrogates
    np.testing.assert_allclose(scaled_mean, a * mean + b, rtol=1e-4)
    np.testing.assert_allclose(scaled_variance, a**2 * variance, rtol=1e-3)
    torch.testing.assert_close(scaled, a**2 * plain, rtol=1e-3, atol=0.0)


KNOWN = {"prior": Prior(rbf(0.2, 0.7), 0.01), "candidates": GRID, "initialization_trials": 3}


def names_of(cards):
    """The names of all cards, those in groups included; none may say that an analysis failed or has to wait."""
    names = []
    for card in cards:
        if hasattr(card, "children"):  # a group
            names += names_of(card.children)
            continue
        assert not isinstance(card, ErrorAnalysisCard), card.blob
        assert "Not Available" not in card.title, card.title
        names.append(card.name)
    return names


def test_predictions_are_those_of_the_model_and_looking_at_an_experiment_changes_no_later_trial(short_fits):
    words = {"memory": SlidingWindow(5), "dictionary": UniformDictionary(3)} | KNOWN
    plain, looked = (client_of(UNIT, **words) for _ in range(2))
    for client in (plain, looked):
        tried, seen = play(client, lambda x: -((x - 0.3) ** 2), 1, parallel=3)
        assert len(client.summarize()) == 3  # before the model there are records and no predictions
        with pytest.raises(UnsupportedError, match="running more trials"):
            client.predict([{"x": 0.5}])
        more, values = play(client, lambda x: -((x - 0.3) ** 2), 1, parallel=3)
    best, outcome, _, _ = looked.get_best_parameterization()
    assert best == (tried + more)[int(np.argmax(seen + values))]
    assert outcome["score"][0] == max(seen + values)
    predicted = looked.predict([{"x": t} for t in (0.2, 0.7)])
    points = torch.tensor([[0.2], [0.7]], dtype=torch.float64).unsqueeze(-2)
    behind = posterior_model(looked).posterior(points)
    np.testing.assert_allclose([p["score"][0] for p in predicted], behind.mean.flatten(), rtol=1e-6)
    np.testing.assert_allclose([p["score"][1] for p in predicted], behind.variance.sqrt().flatten(), rtol=1e-6)
    surfaces = [SlicePlot("x", "score"), ParallelCoordinatesPlot("score")]
    names = names_of(looked.compute_analyses([ResultsAnalysis(), DiagnosticAnalysis(), *surfaces], display=False))
    assert {"ArmEffectsPlot", "BestTrials", "CrossValidationPlot", "SlicePlot", "ParallelCoordinatesPlot"} <= {*names}
    assert len(looked.summarize()) == 6
    recommend(looked)
    recommend(looked, {"x": 0.5})
    assert plain.get_next_trials(2) == looked.get_next_trials(2)
