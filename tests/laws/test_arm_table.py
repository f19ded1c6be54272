"""The arm table equals the model's posterior on the arms, whatever was told in whatever order."""

from typing import ClassVar

import hypothesis.strategies as st
import numpy as np
import oracles
import pytest
import torch
from hypothesis import given
from problems import DOUBLE, KERNELS, as_told, data, dense, difference, examples, rbf, scaled

from torch_kbandits import Arms, KernelUCB
from torch_kbandits.acquisition import UpperConfidenceRule
from torch_kbandits.beliefs import CovarianceTable, FeatureTable, Terms, belief_over
from torch_kbandits.dictionaries import FixedDictionary, PlayedPoints, RidgeLeverageSampling, Selection
from torch_kbandits.errors import NumericalError
from torch_kbandits.numerics.linalg import NotPositiveDefiniteError
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.tables.panels import Panel

LAMBDA = 0.05


class EveryPoint:
    """All played points: the table must then grow only, and equal the exact posterior."""

    def select(self, played: PlayedPoints, generator=None) -> Selection:
        return Selection.rows(played, torch.arange(played.size))


def table(arms, kernel="matern", column_memory=2**29, exact=False) -> FeatureTable:
    return FeatureTable(arms, KERNELS[kernel].make(), LAMBDA, 0, column_memory, exact=exact)


def covariances(arms, kernel="matern") -> CovarianceTable:
    return CovarianceTable(arms, KERNELS[kernel].make(), LAMBDA, 0)


EXACT = {"features": lambda arms, kernel: table(arms, kernel, exact=True), "covariances": covariances}


def choose(belief, beta, q, rule=None):
    """The q arms (q, d) that a rule chooses one after another, each with the earlier ones pending."""
    ahead, chosen = belief.lookahead(belief.arm(0)[:0]), []
    for number in range(q):
        chosen.append(ahead.choose(rule or UpperConfidenceRule(), beta, number))
        ahead.add(chosen[-1])
    return torch.cat(chosen)


def tell(belief, X, Y, rule, number):
    return belief.updated(X, Y, rule.select(belief.preview(X), generator_for(0, number, "dictionary")))


def assert_equals_model(belief, arms, X, Y, tolerance=1e-8):
    posterior = belief.model(X, Y, belief.inducing_points).posterior(arms.unsqueeze(-2))
    assert difference(belief.mean, posterior.mean.flatten()) < tolerance
    assert difference(belief.variance.clamp_min(1e-10), posterior.variance.flatten()) < tolerance
    model = belief.model(X, Y, belief.inducing_points)
    assert float(belief.information_gain()) == pytest.approx(float(model.information_gain()), abs=100 * tolerance)
    assert float(belief.effective_dimension()) == pytest.approx(float(model.effective_dimension()), abs=100 * tolerance)
    assert belief.num_observations == model.num_observations


@examples(25)
@given(
    num_arms=st.integers(1, 30),
    rounds=st.integers(1, 15),
    q=st.integers(1, 4),
    oversampling=st.sampled_from([0.05, 0.5, 1.0, 3.0, 1e9]),
    kernel=st.sampled_from(["rbf", "matern"]),
    seed=st.integers(0, 10_000),
)
def test_any_sequence_of_tells_and_dictionary_changes(num_arms, rounds, q, oversampling, kernel, seed):
    """Duplicate arms, repeated plays, batches, points that are no arms, dictionaries that grow and shrink."""
    generator = torch.Generator().manual_seed(seed)
    arms, _ = data(num_arms, 2, seed)
    arms = torch.cat([arms, arms[:2]])
    belief, rule = table(arms, kernel), RidgeLeverageSampling(oversampling)
    told_X, told_Y = [], []
    for number in range(rounds):
        X = arms[torch.randint(len(arms), (q,), generator=generator)].clone()
        if number % 5 == 3:
            X[0] = torch.rand(2, generator=generator, dtype=DOUBLE)
        Y = torch.randn(q, generator=generator, dtype=DOUBLE)
        belief = tell(belief, X, Y, rule, number)
        told_X.append(X)
        told_Y.append(Y)
    assert belief.mean.shape == belief.variance.shape == (len(arms),)
    # Near-singular dictionaries of a smooth kernel cost up to 1e-10 of jitter over λ.
    assert_equals_model(belief, arms, torch.cat(told_X), torch.cat(told_Y), tolerance=1e-7)


def test_every_point_as_dictionary_is_the_exact_posterior():
    arms, _ = data(60, 3)
    belief = table(arms)
    X = arms[torch.randint(60, (80,))]
    Y = torch.randn(80, dtype=DOUBLE)
    for number in range(80):
        belief = tell(belief, X[number : number + 1], Y[number : number + 1], EveryPoint(), number)
    expected = oracles.exact(KERNELS["matern"].dense, *dense(X, Y, torch.full((80,), LAMBDA, dtype=DOUBLE), arms))
    assert difference(belief.mean, expected.mean) < expected.rounding
    assert difference(belief.variance, expected.variance) < expected.rounding


@pytest.mark.one_in(2)
@examples(25)
@given(
    num_arms=st.integers(1, 30),
    rounds=st.integers(1, 12),
    q=st.integers(1, 6),
    kernel=st.sampled_from(["rbf", "matern", "linear"]),
    seed=st.integers(0, 10_000),
)
@pytest.mark.parametrize("form", EXACT)
def test_an_exact_table_is_the_exact_posterior_after_any_tells(form, num_arms, rounds, q, kernel, seed):
    """Duplicate arms, repeats within a batch, points that are no arms, embedding afresh in between, restoring."""
    generator = torch.Generator().manual_seed(seed)
    arms, _ = data(num_arms, 2, seed)
    arms = torch.cat([arms, arms[:2]])
    belief = EXACT[form](arms, kernel)
    belief.CHECK = 7  # of the features
    told_X, told_Y = [], []
    for number in range(rounds):
        X = arms[torch.randint(len(arms), (q,), generator=generator)].clone()
        if number % 5 == 3:
            X[0] = torch.rand(2, generator=generator, dtype=DOUBLE)
        Y = torch.randn(q, generator=generator, dtype=DOUBLE)
        belief = belief.updated(X, Y, None)
        told_X.append(X)
        told_Y.append(Y)
    X, Y = torch.cat(told_X), torch.cat(told_Y)
    noise = torch.full((len(X),), LAMBDA, dtype=DOUBLE)
    expected = oracles.exact(KERNELS[kernel].dense, *dense(X, Y, noise, arms))
    restored = EXACT[form](arms, kernel)
    restored = restored.restored(as_told(X, Y), Selection(X[:1], X.new_ones(1), None))
    gram = KERNELS[kernel].dense(X.numpy(), X.numpy())
    weights = np.linalg.solve(gram + LAMBDA * np.eye(len(X)), Y.numpy())
    for each in (belief, restored):
        assert difference(each.mean, expected.mean) < expected.rounding
        assert difference(each.variance, expected.variance) < expected.rounding
        gain = 0.5 * np.linalg.slogdet(np.eye(len(X)) + gram / LAMBDA)[1]
        assert float(each.information_gain()) == pytest.approx(gain, abs=1e-6)
        assert float(each.mean_norm()) == pytest.approx(float(np.sqrt(weights @ gram @ weights)), abs=1e-5)
        assert float(each.incumbent) == pytest.approx(
            float(oracles.exact(KERNELS[kernel].dense, *dense(X, Y, noise, X)).mean.max()), abs=1e-7
        )
        assert each.num_observations == len(X)


def test_an_exact_table_embeds_no_more_than_the_points_span():
    """Of 60 arms on an interval a smooth kernel tells some twenty apart; the others cost nothing."""
    arms, _ = data(60, 1)
    belief = table(arms, "rbf", exact=True)
    for number in range(0, 90, 3):
        belief = belief.updated(arms[torch.arange(number, number + 3) % 60], torch.ones(3, dtype=DOUBLE), None)
    assert len(belief.inducing_points) == 60
    assert belief._dtc.size < 30


@pytest.mark.one_in(2)
@pytest.mark.parametrize("form", EXACT)
def test_rounding_stays_small_where_the_gram_matrix_is_singular(form):
    """Clustered plays of a smooth kernel, so that each point is all but in the span of those before."""
    generator = torch.Generator().manual_seed(0)
    arms = torch.rand(100, 1, generator=generator, dtype=DOUBLE).sort(0).values
    belief, dense_kernel = EXACT[form](arms, "rbf"), KERNELS["rbf"].dense
    told = []
    for number in range(600):
        row = int(torch.randint(3 + number // 20, (), generator=generator))
        y = torch.randn(1, generator=generator, dtype=DOUBLE)
        belief = belief.updated(arms[row, None], y, None)
        told.append((row, float(y)))
    rows = np.array([row for row, _ in told])
    played, counts = np.unique(rows, return_counts=True)
    means = np.array([np.mean([y for other, y in told if other == row]) for row in played])
    X = arms.numpy()
    expected = oracles.exact(dense_kernel, X[played], means, LAMBDA / counts, X)
    assert difference(belief.mean, expected.mean) < (1e-10 if form == "covariances" else 1e-5)
    assert difference(belief.variance, expected.variance) < (1e-12 if form == "covariances" else 1e-6)


def test_an_unchanged_dictionary_is_not_embedded_again(monkeypatch):
    arms, _ = data(40, 2)
    belief, rule = table(arms), FixedDictionary(arms[::5])
    belief = tell(belief, arms[:1], torch.ones(1, dtype=DOUBLE), rule, 0)
    monkeypatch.setattr(FeatureTable, "_embedded", lambda *_: pytest.fail("the table embedded all arms again"))
    X, Y = arms[torch.randint(40, (30,))], torch.randn(30, dtype=DOUBLE)
    for number in range(30):
        belief = tell(belief, X[number : number + 1], Y[number : number + 1], rule, number)
    assert_equals_model(belief, arms, torch.cat([arms[:1], X]), torch.cat([torch.ones(1, dtype=DOUBLE), Y]))


class Absent:
    """All played points but some, which are drawn afresh in some rounds and stay the same in the others."""

    def __init__(self, number: int) -> None:
        self.number, self.absent = number, torch.zeros(0, dtype=torch.long)

    def draw(self, size: int, generator: torch.Generator) -> None:
        self.absent = torch.randperm(size, generator=generator)[: self.number]

    def select(self, played: PlayedPoints, generator=None) -> Selection:
        rows = torch.arange(played.size)
        return Selection.rows(played, rows[~torch.isin(rows, self.absent)])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("every", [1, 2, 7])
def test_dictionaries_drawn_afresh_cost_what_is_absent_and_not_what_changes(monkeypatch, every):
    """With 5 points absent up to 10 change, at two rows each; from all points it takes 10 rows and the rewards.

    That needs the posterior of all points, which is known where every round draws; else it takes 10 rows more.
    """
    arms, _ = data(60, 2)
    generator = torch.Generator().manual_seed(every)
    belief, rule = table(arms), Absent(5)
    belief = tell(belief, arms[:40], torch.randn(40, generator=generator, dtype=DOUBLE), EveryPoint(), 0)
    X, Y = [arms[:40]], [belief._log.sums.clone()]
    applied, following = [], Panel.following

    def counted(panel, change, weights, columns=None):
        if panel.features.num_points == len(arms):
            applied.append(len(change.squares.rows))
        return following(panel, change, weights, columns)

    monkeypatch.setattr(FeatureTable, "_embedded", lambda *_: pytest.fail("the table embedded all arms again"))
    monkeypatch.setattr(Panel, "following", counted)
    most = 0
    for number in range(60):
        if number % every == 0:
            rule.draw(40, generator)
        X.append(arms[torch.randint(40, (1,), generator=generator)])
        Y.append(torch.randn(1, generator=generator, dtype=DOUBLE))
        applied.clear()
        belief = tell(belief, X[-1], Y[-1], rule, number)
        most = max(most, sum(applied)) if number else most
        if number % 30 == 29:
            assert_equals_model(belief, arms, torch.cat(X), torch.cat(Y))
    assert most <= (2 * 5 if every == 1 else 4 * 5) + 8 + 3  # rows that waited, and those of a reward and a new point


def test_repeated_plays_are_counts_and_sums():
    arms, _ = data(5, 2)
    belief = table(arms)
    for number in range(40):
        belief = tell(belief, arms[number % 2, None], torch.tensor([float(number)], dtype=DOUBLE), EveryPoint(), number)
    played = belief.preview(arms[:1])
    assert played.size == 2
    assert played.counts.tolist() == [21.0, 20.0]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("column_memory", [1, 40 * 8 * 3, 2**20])
def test_the_memory_of_kernel_columns_changes_nothing(column_memory):
    arms, _ = data(40, 2)
    few, many = table(arms, column_memory=column_memory), table(arms)
    X, Y = arms[torch.randint(40, (25,))], torch.randn(25, dtype=DOUBLE)
    for number in range(25):
        for belief in (few, many):
            belief = tell(belief, X[number : number + 1], Y[number : number + 1], RidgeLeverageSampling(1.0), number)
    assert difference(few.mean, many.mean) < 1e-12
    assert difference(few.variance, many.variance) < 1e-12
    assert few._columns._buffer.element_size() * few._columns._buffer.numel() <= max(column_memory, 0)


def test_many_blocks_of_arms_equal_the_model(monkeypatch):
    monkeypatch.setattr("torch_kbandits.beliefs.features._BLOCK", 16)
    monkeypatch.setattr("torch_kbandits.tables.columns._BLOCK", 24)
    arms, _ = data(101, 2)
    belief = table(arms)
    X, Y = arms[torch.randint(101, (20,))], torch.randn(20, dtype=DOUBLE)
    for number in range(20):
        belief = tell(belief, X[number : number + 1], Y[number : number + 1], RidgeLeverageSampling(1.0), number)
    assert_equals_model(belief, arms, X, Y)


def test_previewed_scores_are_those_of_the_posterior_before():
    arms, _ = data(30, 2)
    belief = table(arms)
    X, Y = arms[:12], torch.randn(12, dtype=DOUBLE)
    belief = tell(belief, X, Y, RidgeLeverageSampling(1.0), 0)
    new = torch.cat([arms[20:22], torch.full((1, 2), 0.37, dtype=DOUBLE), arms[:1]])
    points = torch.cat([X, new[:3]])
    model = belief.model(X, Y, belief.inducing_points)
    expected = model.posterior(points.unsqueeze(-2)).variance.flatten() / LAMBDA
    played = belief.preview(new)
    assert torch.equal(played.points, points)
    assert played.counts.tolist() == [2.0] + [1.0] * 14
    assert difference(played.leverage_scores, expected) < 1e-8


@pytest.mark.one_in(3)
@pytest.mark.parametrize("q", [1, 2, 5])
def test_asked_arms_maximise_the_botorch_acquisition(q):
    arms, _ = data(50, 2)
    belief, beta = table(arms), torch.tensor(2.0, dtype=DOUBLE)
    X, Y = arms[:20], torch.randn(20, dtype=DOUBLE)
    belief = tell(belief, X, Y, RidgeLeverageSampling(0.5), 0)
    before = belief.mean.clone(), belief.variance.clone()
    chosen = choose(belief, beta, q)
    recorder = _Recorder()
    seen = recorder.seen
    seen.clear()
    assert torch.equal(choose(belief, beta, q, recorder), chosen)
    model = belief.model(X, Y, belief.inducing_points)
    for number in range(q):
        acquisition = KernelUCB(model, beta, X_pending=chosen[:number])
        values = acquisition(arms.unsqueeze(-2)).detach()
        assert difference(KernelUCB.score(belief.mean, seen[number], beta), values) < 1e-8
        assert float(acquisition(chosen[number : number + 1].unsqueeze(-2))) == pytest.approx(
            float(values.max()), abs=1e-8
        )
    assert torch.equal(belief.mean, before[0])
    assert torch.equal(belief.variance, before[1])
    assert torch.equal(choose(belief, beta, q), chosen)
    belief = tell(belief, chosen, torch.randn(q, dtype=DOUBLE), RidgeLeverageSampling(0.5), 1)


class _Recorder(UpperConfidenceRule):
    """Scores as KernelUCB and keeps the variances that it is shown."""

    seen: ClassVar[list] = []

    def on_arms(self, posterior, beta, seed):
        self.seen.append(posterior.variance.clone())
        return super().on_arms(posterior, beta, seed)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_units_do_not_matter(scale):
    """Rewards, kernel and λ in other units: the same arms are played."""
    arms, _ = data(60, 2)
    played = []
    for s in (1.0, scale):
        kernel = scaled(rbf(0.3), s**2)
        belief, rows = belief_over(Arms(arms), Terms(kernel, LAMBDA * s**2, seed=0, exact=False)), []
        for number in range(12):
            x = choose(belief, torch.tensor(2.0, dtype=DOUBLE), 1)
            belief = tell(belief, x, s * torch.sin(5.0 * x).sum(-1), RidgeLeverageSampling(2.0), number)
            rows.append(x)
        played.append(torch.cat(rows))
    assert torch.equal(played[0], played[1])


def test_overflow_is_named_and_changes_nothing():
    arms, _ = data(20, 2)
    belief = table(arms)
    belief = tell(belief, arms[:1], torch.tensor([1e300], dtype=DOUBLE), EveryPoint(), 0)
    before = belief.mean
    for rule in (EveryPoint(), FixedDictionary(arms[5:15])):
        with pytest.raises(NumericalError, match="not finite"):
            belief = tell(belief, arms[:1].expand(30, 2), torch.full((30,), 1e308, dtype=DOUBLE), rule, 1)
        assert difference(belief.mean / 1e300, before / 1e300) < 1e-12


def test_an_interrupt_changes_nothing(monkeypatch):
    arms, _ = data(20, 2)
    belief, rule = table(arms), FixedDictionary(arms[::3])
    belief = tell(belief, arms[:1], torch.ones(1, dtype=DOUBLE), rule, 0)
    before, settle = belief.mean, FeatureTable._settle

    def interrupted(*args):
        settle(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(FeatureTable, "_settle", interrupted)
    with pytest.raises(KeyboardInterrupt):
        belief = tell(belief, arms[3:5], torch.ones(2, dtype=DOUBLE), rule, 1)
    assert torch.equal(belief.mean, before)


@pytest.mark.filterwarnings("ignore:Negative variance values")  # GPyTorch floors a variance of 0 at 1e-10
def test_a_kernel_that_vanishes_somewhere():
    """A linear kernel at the origin, alone in the dictionary and beside others."""
    arms = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.3, 0.9], [-1.0, 0.5]], dtype=DOUBLE)
    belief = table(arms, "linear")
    X, Y = arms[[0, 0, 2, 1]], torch.tensor([1.0, -1.0, 0.5, 0.2], dtype=DOUBLE)
    for number in range(4):
        belief = tell(belief, X[number, None], Y[number, None], EveryPoint(), number)
        assert_equals_model(belief, arms, X[: number + 1], Y[: number + 1])


def test_ties_are_broken_by_the_seed():
    arms, _ = data(30, 2)
    chosen = set()
    for seed in range(40):
        belief = belief_over(Arms(arms), Terms(KERNELS["matern"].make(), LAMBDA, seed, exact=False))
        chosen.add(tuple(choose(belief, torch.tensor(2.0), 1)[0].tolist()))
    assert len(chosen) > 15  # 40 uniform draws of 30 arms give 22 different ones on average, 16 or fewer in 1 of 1,000


def test_a_failed_update_leaves_the_table_as_it_was():
    arms, _ = data(30, 1)
    belief = table(arms)
    belief = tell(belief, arms[:6], torch.randn(6, dtype=DOUBLE), RidgeLeverageSampling(2.0), 0)
    before = belief.mean.clone(), belief.variance.clone(), belief.inducing_points.clone()
    original = belief._columns._kernel
    belief._columns._kernel = _NotACovariance()
    with pytest.raises(NotPositiveDefiniteError, match="not a valid covariance"):
        belief = tell(belief, arms[10:25], torch.randn(15, dtype=DOUBLE), EveryPoint(), 1)
    belief._columns._kernel = original
    assert difference(belief.mean, before[0]) < 1e-12
    assert difference(belief.variance, before[1]) < 1e-12
    assert torch.equal(belief.inducing_points, before[2])
    assert belief.num_observations == 6


def test_a_failed_extension_leaves_the_table_as_it_was(monkeypatch):
    arms, _ = data(30, 2)
    belief = table(arms)
    belief = tell(belief, arms[:1], torch.ones(1, dtype=DOUBLE), EveryPoint(), 0)
    before = belief.mean, belief.variance, belief.inducing_points, belief.information_gain()
    monkeypatch.setattr(FeatureTable, "_settle", lambda *_: (_ for _ in ()).throw(RuntimeError("half way")))
    with pytest.raises(RuntimeError, match="half way"):
        belief = tell(belief, arms[5:6], torch.ones(1, dtype=DOUBLE), EveryPoint(), 1)
    monkeypatch.undo()
    after = belief.mean, belief.variance, belief.inducing_points, belief.information_gain()
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    belief = tell(belief, arms[5:6], torch.ones(1, dtype=DOUBLE), EveryPoint(), 1)
    assert_equals_model(belief, arms, arms[[0, 5]], torch.ones(2, dtype=DOUBLE))


def test_growth_refuses_what_is_no_covariance():
    """k(x, x) = 1 and k(x, x') = 2: the Schur complement of a second point is −3."""
    arms, _ = data(6, 2)
    belief = table(arms)
    belief._columns._kernel = _Overcorrelated()
    belief = tell(belief, arms[:1], torch.ones(1, dtype=DOUBLE), EveryPoint(), 0)
    with pytest.raises(NumericalError, match="times the prior variance"):
        belief = tell(belief, arms[1:2], torch.ones(1, dtype=DOUBLE), EveryPoint(), 1)
    assert belief.num_observations == 1


class _Overcorrelated(torch.nn.Module):
    def forward(self, A, B=None, diag=False):
        B = A if B is None else B
        return torch.ones(len(A), dtype=DOUBLE) if diag else 2.0 - (A[:, None] == B[None]).all(-1).double()


class _NotACovariance(torch.nn.Module):
    def forward(self, A, B=None, diag=False):
        return (
            torch.ones(len(A), dtype=DOUBLE) if diag else -torch.ones(len(A), len(A if B is None else B), dtype=DOUBLE)
        )


def test_single_precision():
    arms, _ = data(100, 3)
    double, single = table(arms), table(arms.float())
    X, Y = arms[torch.randint(100, (30,))], torch.randn(30, dtype=DOUBLE)
    for number in range(30):
        double = tell(double, X[number, None], Y[number, None], EveryPoint(), number)
        single = tell(single, X[number, None].float(), Y[number, None].float(), EveryPoint(), number)
    assert single.mean.dtype == torch.float32
    assert difference(single.mean, double.mean) < 1e-2
    assert difference(single.variance, double.variance) < 1e-3


@pytest.mark.parametrize("rounds", [300, pytest.param(100_000, marks=pytest.mark.slow)])
def test_rounding_does_not_build_up(rounds):
    arms, _ = data(40, 2)
    belief, rule = table(arms), FixedDictionary(arms[::5])
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(40, (rounds,), generator=generator)
    Y = torch.randn(rounds, generator=generator, dtype=DOUBLE)
    for number in range(rounds):
        belief = tell(belief, arms[rows[number], None], Y[number, None], rule, number)
    counts = np.bincount(rows.numpy(), minlength=40)
    means = np.bincount(rows.numpy(), weights=Y.numpy(), minlength=40) / counts
    expected = oracles.dtc(
        KERNELS["matern"].dense, arms.numpy(), means, LAMBDA / counts, arms[::5].numpy(), arms.numpy()
    )
    assert difference(belief.mean, expected.mean) < expected.rounding
    assert difference(belief.variance, expected.variance) < expected.rounding


def test_many_points_are_found_at_once():
    """Duplicates are the first of their rows, -0 is 0, and points that are no arms get rows of their own."""
    arms, _ = data(60, 2)
    arms = torch.cat([torch.zeros(1, 2, dtype=DOUBLE), arms, arms])
    belief = covariances(arms)
    strangers = arms[:50] + 0.5
    points = torch.cat([-arms[:1], arms[61:], strangers])
    belief = belief.with_points(points)
    assert belief.rows_of(points).tolist() == [*range(61), *range(121, 171)]
    assert belief.rows_of(points[70:]).tolist() == [*range(130, 171)]
