"""What Ax's client says of an experiment: predictions, the best trial, summaries, analyses and their cards."""

import numpy as np
import oracles
import pytest
from ax.adapter.cross_validation import cross_validate
from ax.analysis.analysis import ErrorAnalysisCard
from ax.analysis.diagnostics import DiagnosticAnalysis
from ax.analysis.plotly.parallel_coordinates import ParallelCoordinatesPlot
from ax.analysis.plotly.surface.contour import ContourPlot
from ax.analysis.plotly.surface.slice import SlicePlot
from ax.analysis.results import ResultsAnalysis
from ax.core.analysis_card import AnalysisCardGroup
from ax.exceptions.core import UnsupportedError
from ax_clients import BRANIN, CONTEXT, GRID, MIXED, UNIT, branin, client_of, fitted, play, pool_of, validation_error
from gpytorch.kernels import RBFKernel, ScaleKernel
from problems import exactly
from test_ax_models import LAMBDA, LENGTH, MEMORIES, SCALE, TRIALS, told

from torch_kbandits import GreedyDictionary, InputError, Linear, UniformDictionary
from torch_kbandits.memory import Discount, SlidingWindow, UncertaintyInjection


def kernel():
    base = RBFKernel().double()
    base.lengthscale = exactly(0.2)
    return ScaleKernel(base).double()


def single_cards(cards):
    """All cards, those in groups included."""
    for card in cards:
        if isinstance(card, AnalysisCardGroup):
            yield from single_cards(card.children)
        else:
            yield card


def names_of(cards):
    """The names of all cards; none may say that an analysis failed or has to wait."""
    found = list(single_cards(cards))
    for card in found:
        assert not isinstance(card, ErrorAnalysisCard), card.blob
        assert "Not Available" not in card.title, card.title
    return [card.name for card in found]


QUICK = {("all", "nystrom", False), ("window", "exact", True), ("linear", "exact", False)}


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("name", "model", "known"),
    [
        pytest.param(*case, marks=[] if case in QUICK else pytest.mark.slow)
        for case in [(name, model, known) for name in MEMORIES for model in ("exact", "nystrom") for known in (0, 1)]
    ],
)
def test_leaving_out_trials_is_what_dense_formulas_give(name, model, known):
    """Hyperparameters, dictionary and the present stay what they are; the memory looks at the trials that are left."""
    memory, noise = MEMORIES[name]
    sems = np.random.default_rng(2).uniform(0.2, 2.0, TRIALS) if known else None
    dictionary = GreedyDictionary(6) if model == "nystrom" else None
    client, X, Y = told(sems, model=model, memory=memory, regularization=LAMBDA, dictionary=dictionary)
    adapter = fitted(client)
    fresh = np.full(TRIALS, LAMBDA) if sems is None else sems**2
    results = cross_validate(adapter)
    assert len(results) == TRIALS
    for result in results:
        row = int(np.abs(Y - result.observed.data.means[0]).argmin())
        others = np.arange(TRIALS) != row
        seen = np.where(others, noise(fresh), np.inf)
        if name == "latest":  # the fifth latest moves up
            seen = np.full(TRIALS, np.inf)
            seen[np.flatnonzero(others)[-4:]] = fresh[np.flatnonzero(others)[-4:]]
        kept = np.isfinite(seen)
        data = (oracles.rbf(LENGTH, SCALE), X[kept], Y[kept], seen[kept])
        if model == "exact":
            dense = oracles.exact(*data, X[[row]])
        else:
            Z = (adapter.generator.surrogate.model.inducing_points.numpy() - [-5.0, 0.0]) / 15.0
            dense = oracles.dtc(*data, Z, X[[row]])
        np.testing.assert_allclose(result.predicted.means[0], dense.mean[0], rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(result.predicted.covariance[0, 0], dense.variance[0], rtol=1e-6, atol=1e-6)


def test_predictions_are_those_of_the_model_behind_the_last_trial():
    settings = {"kernel": kernel(), "regularization": 0.01, "candidates": GRID, "initialization_trials": 3}
    client = client_of(UNIT, model="exact", **settings)
    tried, seen = play(client, lambda x: float(np.sin(5.0 * x)), 5)
    X, T = np.array([[p["x"]] for p in tried[:-1]]), np.array([[0.2], [0.7]])
    dense = oracles.exact(oracles.rbf(0.2, float(np.log(2.0))), X, np.array(seen[:-1]), np.full(4, 0.01), T)
    predicted = client.predict([{"x": 0.2}, {"x": 0.7}])
    np.testing.assert_allclose([p["score"][0] for p in predicted], dense.mean, rtol=1e-6)
    np.testing.assert_allclose([p["score"][1] for p in predicted], np.sqrt(dense.variance), rtol=1e-6)


def test_before_the_model_there_are_records_and_no_predictions():
    client = client_of(UNIT, candidates=GRID)
    tried, seen = play(client, lambda x: x, 3)
    assert len(client.summarize()) == 3
    best, outcome, _, _ = client.get_best_parameterization()
    assert best == tried[int(np.argmax(seen))]
    assert outcome["score"][0] == max(seen)
    with pytest.raises(UnsupportedError, match="running more trials"):
        client.predict([{"x": 0.5}])


SURFACES = [SlicePlot("x", "score"), ParallelCoordinatesPlot("score")]


def test_looking_at_an_experiment_changes_no_later_trial():
    settings = {"kernel": kernel(), "regularization": 0.01, "candidates": GRID, "initialization_trials": 3}
    plain, looked = (
        client_of(UNIT, memory=SlidingWindow(5), dictionary=UniformDictionary(3), **settings) for _ in range(2)
    )
    for client in (plain, looked):
        play(client, lambda x: -((x - 0.3) ** 2), 2, parallel=3)
    names = names_of(looked.compute_analyses([ResultsAnalysis(), DiagnosticAnalysis(), *SURFACES], display=False))
    assert {"ArmEffectsPlot", "BestTrials", "CrossValidationPlot", "SlicePlot", "ParallelCoordinatesPlot"} <= {*names}
    assert len(looked.summarize()) == 6
    looked.get_best_parameterization()
    looked.predict([{"x": 0.5}])
    assert plain.get_next_trials(2) == looked.get_next_trials(2)


def test_importances_need_a_lengthscale_for_each_parameter(short_fits):
    plain = client_of(BRANIN, "-score")
    play(plain, branin, 1, parallel=3)
    shares = fitted(plain).feature_importances("score")
    assert list(shares) == ["x1", "x2"]
    assert sum(shares.values()) == pytest.approx(1.0)
    client = client_of(MIXED, "-score", candidates=pool_of(50))
    play(client, validation_error, 1, parallel=3)
    with pytest.raises(InputError, match=r"not one for each of the parameters \['rate', 'depth', 'loss'\]"):
        fitted(client).feature_importances("score")


EXPERIMENTS = {
    "space": (BRANIN, {}, branin),
    "choices": (MIXED, {"model": "exact"}, validation_error),
    "pool": (MIXED, {"candidates": pool_of(200)}, lambda **p: (validation_error(**p), 0.1)),
    "context": ([*CONTEXT, *UNIT], {"memory": Discount(0.9)}, lambda context, x: (x - context) ** 2),
    "ageing": (
        [*CONTEXT, *UNIT],
        {"memory": UncertaintyInjection(Linear(0.01)), "transform_outcomes": True},
        lambda context, x: (x - context) ** 2,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_all_that_ax_looks_at_by_itself_is_there(name):
    parameters, settings, reward = EXPERIMENTS[name]
    client = client_of(parameters, "-score", **settings)
    play(client, reward, 8)
    names = names_of(client.compute_analyses(display=False))
    assert {"ArmEffectsPlot", "SensitivityAnalysisPlot", "SlicePlot", "CrossValidationPlot", "Summary"} <= {*names}
    if name != "choices":
        pair = [parameter.name for parameter in parameters if parameter.name != "loss"][:2]
        assert names_of(client.compute_analyses([ContourPlot(*pair, "score")], display=False)) == ["ContourPlot"]
