"""What a bandit says of the theorem behind its width is so, and constructors warn once of what fails."""

import dataclasses
import warnings
from copy import deepcopy

import numpy as np
import oracles
import pytest
import torch
from problems import DOUBLE, data, dense, matern, play, rbf, reward

import torch_kbandits as kb
from torch_kbandits import algorithms
from torch_kbandits import confidence as widths
from torch_kbandits.bandit.batches import GlobalBatchRule, LocalBatchRule, StayRule
from torch_kbandits.confidence.guarantee import Circumstances
from torch_kbandits.dictionaries import theoretical_kors_oversampling, theoretical_oversampling
from torch_kbandits.memory import Discount, SlidingWindow, TemporalPrior
from torch_kbandits.models import DictionaryQuality, dictionary_quality

ARMS, UNIT = data(60, 2)[0], torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)
R, B, DELTA = 0.1, 1.0, 0.1
EASY = Circumstances(regularization=1.0, noise_scale=0.5, num_arms=10)

THEOREMS = {
    widths.GPUCBWidth(B, DELTA): {"R <= √λ"},
    widths.BayesianGPUCBWidth(10, DELTA): {"at most A arms"},
    widths.RandomizedWidth(10, 0): {"at most A arms"},
    widths.IGPUCBWidth(R, B, DELTA): {"λ >= 1"},
    widths.GPTSWidth(R, B, DELTA): {"λ >= 1"},
    widths.SelfNormalizedWidth(R, B, DELTA): set(),
    widths.KUCBWidth(R, B, DELTA): set(),
    widths.NystromWidth(R, B, DELTA): set(),
    widths.BKBWidth(R, B, DELTA): set(),
    widths.EKUCBWidth(R, B, DELTA): set(),
    widths.FixedDesignWidth(R, B, DELTA): set(),
    widths.MartingaleMixtureWidth(R, B, DELTA): set(),
    widths.MemoryWidth(R, B, DELTA): set(),
    widths.SparQWidth(B, DELTA): set(),
    widths.GuessAndDouble(widths.SelfNormalizedWidth(R, B, DELTA)): set(),
}


def named(guarantee: widths.Guarantee, status: str) -> set[str]:
    return {each.name for each in guarantee.assumptions if each.status == status}


def test_every_theorem_of_the_package_declares_its_hypotheses():
    kinds = [each for name in widths.__all__ if isinstance(each := getattr(widths, name), type)]
    theorems = {each for each in kinds if issubclass(each, widths.TheoremWidth)} - {widths.TheoremWidth}
    assert theorems == {type(width) for width in THEOREMS}
    assert all("assumes" in vars(each) for each in theorems)


@pytest.mark.parametrize(("width", "own"), THEOREMS.items(), ids=map(repr, THEOREMS))
def test_what_a_theorem_does_not_allow_fails(width, own):
    """λ, noise and arms; a dictionary; a memory; a fitted prior; missing rewards: for those that do not allow it."""
    hard = dataclasses.replace(EASY, regularization=0.05, num_arms=11)
    assert named(width.guarantee(hard), "fails") == own
    sparse = width.guarantee(dataclasses.replace(EASY, dictionary=kb.RidgeLeverageSampling()))
    any_dictionary = isinstance(width, (widths.BKBWidth, widths.EKUCBWidth, widths.NystromWidth))
    assert named(sparse, "fails") == (set() if any_dictionary else {"the exact posterior"})
    forgetting = width.guarantee(dataclasses.replace(EASY, forgets_by="SlidingWindow(10)"))
    in_time = isinstance(width, (widths.FixedDesignWidth, widths.MemoryWidth, widths.SparQWidth))
    assert named(forgetting, "fails") == (set() if in_time else {"observations only become more"})
    fitted = width.guarantee(dataclasses.replace(EASY, prior="fitted"))
    assert named(fitted, "fails") == {"a prior fixed beforehand"}
    assert named(width.guarantee(dataclasses.replace(EASY, ratio=4.0)), "fails") == {"rewards learned at once"}
    assert named(kb.ScaledWidth(width, 2.0).guarantee(dataclasses.replace(EASY, ratio=4.0)), "fails") == set()
    assert named(kb.ScaledWidth(width, 1.9).guarantee(dataclasses.replace(EASY, ratio=4.0)), "fails") != set()


class Own(kb.Width):
    def __call__(self, evidence):
        return torch.ones(())


def test_widths_without_a_theorem_and_gains_that_bound_nothing():
    for width in (
        widths.ConstantWidth(2.0),
        widths.TVGPUCBWidth(),
        Own(),
        kb.ScaledWidth(widths.ConstantWidth(1.0), 2.0),
    ):
        guarantee = width.guarantee(EASY)
        assert (guarantee.theorem, guarantee.holds) == (None, False)
        assert "no theorem" in str(guarantee)
    shrunk = kb.ScaledWidth(widths.SelfNormalizedWidth(R, B, DELTA), 0.2).guarantee(EASY)
    assert shrunk.theorem is None
    assert named(shrunk, "fails") == {"a factor of at least 1"}
    greedy = {"kernel": rbf(), "candidates": ARMS, "horizon": 5, "regularization": 1.0}
    for gain, status in (
        (widths.ConstantGain(1.0), "fails"),
        (widths.RateGain("rbf", 2), "unknown"),
        (widths.GreedyGain(**greedy), "unknown"),
        (widths.GreedyGain(**greedy, certified=True), "holds"),
    ):
        said = widths.IGPUCBWidth(R, B, DELTA, gain).guarantee(EASY)
        assert "γ at least the information gain" in named(said, status)


def test_what_a_dictionary_promises():
    needed, name = theoretical_oversampling(DELTA, 100, 0.5), "a dictionary of accuracy ε = 0.5"
    for rule, status in (
        (kb.RidgeLeverageSampling(1.001 * needed), "holds"),
        (kb.RidgeLeverageSampling(0.999 * needed), "unknown"),
        (kb.RidgeLeverageSampling(1.001 * needed, "coupled"), "unknown"),
        (kb.RidgeLeverageSampling(1.001 * needed, "growth"), "unknown"),
        (kb.CappedDictionary(kb.RidgeLeverageSampling(1.001 * needed), 5, "stop"), "unknown"),
        (kb.KORS(), "unknown"),
        (None, "holds"),
    ):
        known = dataclasses.replace(EASY, dictionary=rule, num_rewards=100)
        assert name in named(widths.BKBWidth(R, B, DELTA).guarantee(known), status)
    needed = theoretical_kors_oversampling(DELTA, 100)
    for rule, status, wider in (
        (kb.KORS(1.001 * needed), "holds", "holds"),
        (kb.KORS(0.999 * needed), "unknown", "unknown"),
        (kb.KORS(1.001 * needed, projection=1.5), "unknown", "holds"),
        (kb.RidgeLeverageSampling(1e6), "unknown", "unknown"),
        (None, "holds", "holds"),
    ):
        known = dataclasses.replace(EASY, dictionary=rule, num_rewards=100)
        assert "a projection error of at most μ = 1" in named(widths.EKUCBWidth(R, B, DELTA).guarantee(known), status)
        said = widths.EKUCBWidth(R, B, DELTA, projection=2.0).guarantee(known)
        assert "a projection error of at most μ = 2" in named(said, wider)


# ---------------------------------------------------------------- what bandits know


KNOWN = {"kernel": rbf(0.3), "regularization": 0.05, "seed": 0}
WORDS = {"candidates": ARMS, **KNOWN}
CONSTANTS = {"noise_scale": R, "norm_bound": B}


def make(**words):
    return kb.Bandit(**{"candidates": kb.Arms(ARMS), **KNOWN, "width": widths.NystromWidth(R, B, DELTA), **words})


def test_a_bandit_supplies_the_facts():
    assert named(make().guarantee(), "fails") == set()
    play(bandit := make(), 3)
    bandit.restart()
    assert named(bandit.guarantee(), "fails") == {"observations only become more"}
    with pytest.warns(kb.TheoryWarning, match="SlidingWindow"):
        bandit = make(memory=SlidingWindow(10))
    assert named(bandit.guarantee(), "fails") == {"observations only become more"}
    assert named(make(memory=TemporalPrior(0.01)).guarantee(), "fails") == set()
    assert named(make(batches=StayRule(4.0)).guarantee(), "fails") == set()
    for rule in (GlobalBatchRule(4.0), LocalBatchRule(4.0)):
        with pytest.warns(kb.TheoryWarning, match="√4"):
            make(batches=rule)
        wide = make(batches=rule, width=kb.ScaledWidth(widths.NystromWidth(R, B, DELTA), 2.0))
        assert wide.guarantee().theorem is not None
    bayesian = {"width": widths.BayesianGPUCBWidth(60, DELTA)}
    assert "at most A arms" in named(make(**bayesian).guarantee(), "holds")
    contextual = kb.ContextualActions(ARMS, context_dim=1)
    assert "at most A arms" in named(make(**bayesian, candidates=contextual).guarantee(), "holds")
    offered = kb.ContextualActions(context_dim=1, action_dim=2)
    assert "at most A arms" in named(make(**bayesian, candidates=offered).guarantee(), "unknown")
    with pytest.warns(kb.TheoryWarning, match="at most A arms"):
        algorithms.GPUCB(**KNOWN, bounds=UNIT, beta=widths.BayesianGPUCBWidth(60, DELTA))


def test_constructors_warn_once_of_what_fails_and_loading_does_not(tmp_path):
    words, constants = WORDS, CONSTANTS
    voided = {
        "λ >= 1": lambda: algorithms.IGPUCB(**words, beta=widths.IGPUCBWidth(R, B, DELTA)),
        "λ >= 1.*0.05": lambda: algorithms.GPTS(**words, beta=widths.GPTSWidth(R, B, DELTA)),
        "R <= √λ": lambda: algorithms.GPUCB(**words, noise_scale=0.5, beta=widths.GPUCBWidth(B, DELTA)),
        "exact posterior.*KORS": lambda: algorithms.GPTS(**words, **constants, oversampling=1.0),
        "LearnedPrior": lambda: algorithms.KUCB(candidates=ARMS, prior=kb.LearnedPrior(), seed=0, **constants),
        "Discount": lambda: algorithms.KUCB(**words, **constants, memory=Discount(0.9)),
        "below the theorem's width": lambda: algorithms.IGPUCB(**words, **constants, beta=0.5),
        "float32": lambda: algorithms.IGPUCB(**words | {"candidates": ARMS.float(), "regularization": 1e-5}, beta=2.0),
    }
    for message, build in voided.items():
        with pytest.warns(kb.TheoryWarning, match=message) as caught:
            bandit = build()
        assert len(caught) == 1
        assert caught[0].filename == __file__
        assert bandit.guarantee().with_status("fails")
        play(bandit, 2)  # any further warning is an error
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in (algorithms.IGPUCB, algorithms.GPTS, algorithms.GPUCB, algorithms.KUCB, algorithms.BKB):
            kind(**words, **constants)
            kind(**words, beta=0.5)
        algorithms.SWGPUCB(**words, **constants, window=5)
        algorithms.RGPUCB(**words, **constants, period=5)
        algorithms.IGPUCB(**words, **constants, memory=SlidingWindow(5))
        algorithms.IGPUCB(**words, beta=kb.ScaledWidth(widths.IGPUCBWidth(R, B, DELTA), 0.2))
        bandit.save(tmp_path / "bandit.kb")
        assert str(kb.Bandit.load(tmp_path / "bandit.kb").guarantee()) == str(bandit.guarantee())
    for name in ("bkb", "ek-ucb"):  # at their theorems' oversampling less is unknown
        promised = algorithms.build(name, **words, **constants, oversampling="theory", horizon=20)
        play(promised, 5)
        usual = algorithms.build(name, **words, **constants).guarantee()
        assert len(promised.guarantee().with_status("unknown")) == len(usual.with_status("unknown")) - 1


def test_widths_of_functions_that_change_below_one():
    own, at_once = widths.MemoryWidth(R, B, DELTA), widths.MartingaleMixtureWidth(R, B, DELTA)
    for kind, words, width in (
        (algorithms.SWGPUCB, {"window": 5}, own),
        (algorithms.SWGPUCB, {"window": 5, "horizon": 40}, widths.MemoryWidth(R, B, DELTA, 40)),
        (algorithms.RGPUCB, {"period": 7, "horizon": 40}, widths.MemoryWidth(R, B, DELTA, 6)),
        (algorithms.ETGPUCB, {"horizon": 40}, widths.MemoryWidth(R, B, DELTA, 40)),
        (algorithms.BOBGPUCB, {"horizon": 40}, widths.MemoryWidth(R, B, DELTA, 40)),
        (algorithms.DMSGPUCB, {}, own),
        (algorithms.PEGPUCB, {}, at_once),
        (algorithms.PEGPTS, {}, widths.MartingaleMixtureWidth(R, B, DELTA / 2.0)),
        (algorithms.IGPUCB, {"memory": TemporalPrior(0.01)}, at_once),
    ):
        assert kind(**WORDS, **CONSTANTS, **words).width == width


# ---------------------------------------------------------------- the quality of a dictionary


def dense_quality(kernel, bandit, points):
    """Return the ratios at points (k,), and ‖K − K̃‖/λ, by dense formulas of what counts."""
    X, Y, weights, Z, at = dense(bandit.history.X, bandit.history.Y, bandit.weights, bandit.inducing_points, points)
    X, Y, noise = X[weights > 0], Y[weights > 0].ravel(), bandit.regularization / weights[weights > 0]
    exact = oracles.exact(kernel, X, Y, noise, at)
    approximate = oracles.dtc(kernel, X, Y, noise, Z, at)
    spanned = kernel(X, Z) @ np.linalg.solve(kernel(Z, Z), kernel(Z, X))
    error = np.linalg.eigvalsh((kernel(X, X) - spanned) / np.sqrt(noise[:, None] * noise)).max()
    dimension = np.trace(np.linalg.solve(kernel(X, X) + np.diag(noise), kernel(X, X)))
    return approximate.variance / exact.variance, error, dimension


CASES = {
    "bkb": ("bkb", {"oversampling": 1.0}),
    "coupled": ("bkb", {"oversampling": 1.0, "resampling": "coupled"}),
    "window": ("bkb", {"oversampling": 1.0, "memory": SlidingWindow(15)}),
    "discount": ("bkb", {"oversampling": 1.0, "memory": Discount(0.9)}),
    "box": ("bkb", {"bounds": UNIT, "oversampling": 1.0}),
    "context": ("ek-ucb", {"context_dim": 1, "candidates": ARMS[:, :1], "oversampling": 0.3}),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("case", CASES)
def test_ratios_are_those_of_dense_formulas(case):
    name, words = CASES[case]
    given = {} if "bounds" in words else {"candidates": ARMS}
    given |= {"kernel": matern(0.3, 1.0), "regularization": 0.05, "beta": 2.0, "seed": 1, **words}
    bandit = algorithms.build(name, **given)
    for t in range(12 if case == "box" else 30):
        context = {"context": torch.tensor([np.cos(t)], dtype=DOUBLE)} if case == "context" else {}
        x = bandit.ask(**context)
        bandit.tell(x, reward(x), **context)
    twin = deepcopy(bandit)
    quality = bandit.dictionary_quality(ARMS)
    ratios, error, dimension = dense_quality(oracles.matern52(0.3), bandit, ARMS)
    assert quality.margin < 1.01
    assert np.abs(quality.ratios.numpy() / ratios - 1.0).max() < quality.margin - 1.0 + 1e-6
    assert quality.projection_error == pytest.approx(error, abs=1e-5)
    assert quality.effective_dimension == pytest.approx(dimension, rel=1e-3)
    counting = dense(bandit.history.X[bandit.weights > 0.0].unique(dim=0))[0]
    assert (quality.size, quality.num_points) == (len(bandit.inducing_points), len(counting))
    assert (quality.least, quality.largest) == (float(quality.ratios.min()), float(quality.ratios.max()))
    assert quality.least <= quality.median <= quality.largest < quality.bound * 1.01
    assert quality.least > 0.99 / quality.bound
    sample = bandit.dictionary_quality(num_points=20)
    assert (sample.points.numpy()[:, None] == counting).all(-1).any(1).sum() >= min(10, len(counting))
    context = {"context": torch.tensor([0.3], dtype=DOUBLE)} if case == "context" else {}
    for _ in range(2):  # nothing changed
        x, y = bandit.ask(**context), twin.ask(**context)
        assert torch.equal(x, y)
        bandit.tell(x, reward(x), **context)
        twin.tell(y, reward(y), **context)
        bandit.guarantee(check=True)


def test_a_reference_that_is_too_small_says_how_far_it_may_be_off():
    X, Y = data(80, 2)
    model = kb.NystromGP(X, Y, inducing_points=X[:20], covar_module=matern(0.3, 1.0), regularization=0.05)
    truth, rough = dictionary_quality(model), dictionary_quality(model, max_reference=50)
    assert truth.margin < 1.01 < rough.margin
    off = (rough.ratios / truth.ratios).numpy()
    assert off.max() < rough.margin * 1.01
    assert off.min() > 0.99 / rough.margin
    assert off.max() > 1.01 or off.min() < 0.99
    assert rough.projection_error >= truth.projection_error * 0.999
    assert not rough.is_within(1.01 * max(rough.largest, 1.0 / rough.least))
    assert truth.is_within(1.02 * max(truth.largest, 1.0 / truth.least))


def test_what_was_measured_decides_and_what_cannot_be_is_refused():
    words = WORDS | CONSTANTS
    bandit = algorithms.BKB(**words)
    assert bandit.guarantee(check=True).quality is None  # nothing was told
    play(bandit, 20)
    name = "a dictionary of accuracy ε = 0.5"
    assert name in named(bandit.guarantee(), "unknown")
    measured = bandit.guarantee(check=True)
    assert name in named(measured, "holds")
    assert isinstance(measured.quality, DictionaryQuality)
    assert str(measured.quality) in str(measured)
    for kind, failing in ((algorithms.BKB, name), (algorithms.EKUCB, "a projection error of at most μ = 0.05")):
        capped = kind(**words, max_dictionary=1, when_full="stop")
        play(capped, 20)
        assert failing in named(capped.guarantee(check=True), "fails")
    exact, bandit = algorithms.IGPUCB(**WORDS, beta=2.0), algorithms.BKB(**WORDS, beta=2.0)
    with pytest.raises(kb.InputError, match="exact"):
        exact.dictionary_quality()
    assert exact.guarantee(check=True).quality is None
    with pytest.raises(kb.EmptyHistoryError, match="tell first"):
        bandit.dictionary_quality()
    play(bandit, 2)
    for words in ({"X": ARMS[:, :1]}, {"num_points": 0}, {"max_reference": 0}, {"X": ARMS[:0]}):
        with pytest.raises(kb.InputError):
            bandit.dictionary_quality(**words)
