"""Every named algorithm: what it believes, asks for and recommends, what its words do, and how it is found."""

import re
from functools import partial

import oracles
import pytest
import torch
from kinds import ARMS, NAMES, NEEDED, SMALL_BOX, make, words_of
from problems import believed, dense, difference, play, rbf, reward
from scipy.stats import kstest

from torch_kbandits import InputError, NystromGP, OnlineGP, algorithms, environments
from torch_kbandits.acquisition import DiscretizedThompsonSampling
from torch_kbandits.confidence import BKBWidth, MartingaleMixtureWidth, RandomizedWidth, RateGain
from torch_kbandits.errors import EmptyHistoryError, KernelBanditWarning
from torch_kbandits.memory import Discount, SlidingWindow, TemporalPrior

SPARSE = {"ada-bkb", "bkb", "bbkb", "cbkb", "cbbkb", "ek-ucb", "lin-ucb", "shared-lin-ucb"}
#: Of several hypotheses each; their model is that of one.
FAMILIES = ("hp-gp-ts", "lb-gp-ucb", "pe-gp-ts", "pe-gp-ucb")
#: Points of some know the time; SparQ believes answers, too.
TIMED = ("sparq-gp-ucb", "w-sparq-gp-ucb", "tv-gp-ucb", "dms-tv-gp-ucb")
#: They maximise no function of the posterior.
FUNCTIONLESS = ("random", "gp-ts", "hp-gp-ts", "pe-gp-ts", "mini-gp-ucb", "sup-kernel-ucb")
FUNCTIONLESS += ("bpe", "mvr", "r-perp")


def taking(word):
    return {name for name in NAMES if word in algorithms.registry.signature(name).parameters}


#: Those that know how many rounds there are to be.
PLANNED = taking("horizon")
#: Two values of each constant of a theorem, and where the number of rounds matters: nowhere else.
CONSTANTS = {"noise_scale": (0.1, 0.3), "norm_bound": (1.0, 3.0), "failure_probability": (0.1, 0.2)}
PLANS = {name: {"memory": SlidingWindow(4.0)} for name in ("gp-ts", "igp-ucb", *FAMILIES)}
PLANS |= {name: {"oversampling": "theory"} for name in ("ada-bkb", "bkb", "bbkb", "cbkb", "cbbkb", "ek-ucb")}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", sorted({*NAMES} - {"random"}))
def test_a_batch_repeats_no_arm_while_little_is_known(name):
    batch = make(name, regularization=1e-4).ask(5)
    assert len(batch.unique(dim=0)) == 5


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", sorted({*NAMES} - {*TIMED, "shared-lin-ucb"}))  # whose kernel is no RBF
def test_the_model_and_the_recommendation(name):
    bandit = make(name)
    with pytest.raises(EmptyHistoryError, match="tell first"):
        bandit.recommend()
    play(bandit, 40)
    model, (mean, variance) = bandit.model, believed(bandit, ARMS)
    assert isinstance(model, NystromGP if name in SPARSE else OnlineGP)
    counts = bandit.weights > 0.0
    X, Y, noise = bandit.history.X[counts], bandit.history.Y[counts], 0.05 / bandit.weights[counts]
    length = bandit.prior.kernel.lengthscale.item()
    assert name in FAMILIES or length == pytest.approx(0.3, rel=1e-12)  # as its raw parameter rounds
    if name not in SPARSE:
        expected = oracles.exact(oracles.rbf(length), *dense(X, Y, noise, ARMS))
    else:
        expected = oracles.dtc(oracles.rbf(0.3), *dense(X, Y, noise, bandit.inducing_points, ARMS))
    assert difference(mean, expected.mean) < expected.rounding
    assert difference(variance, expected.variance.clip(1e-10)) < expected.rounding
    best = model.posterior(bandit.recommend().unsqueeze(0)).mean
    assert float(best) == pytest.approx(float(believed(bandit, X)[0].max()), abs=1e-8)


def test_help_has_every_word_that_an_algorithm_takes():
    kinds = [kind for kind in map(partial(getattr, algorithms), algorithms.__all__) if isinstance(kind, type)]
    assert len(kinds) == len(NAMES)
    for kind in kinds:
        explained = re.findall(r"^ {4}(\w+): ", kind.__doc__, re.MULTILINE)
        assert sorted(explained) == sorted(algorithms.registry.signature(kind).parameters)


def test_what_has_no_acquisition_function_says_so():
    with pytest.raises(InputError, match="No acquisition function is maximised"):
        make("random").acquisition()
    assert isinstance(make("gp-ts").acquisition(), DiscretizedThompsonSampling)


def test_random_search_is_uniform_in_single_precision():
    """Kolmogorov and Smirnov with a false alarm of 1e-6, on 10⁵ arms."""
    arms = torch.rand(100_000, 1).sort(0).values
    bandit = make("random", candidates=arms, kernel=rbf(0.5).float(), regularization=0.01)
    rows = torch.searchsorted(arms[:, 0], bandit.ask(300)[:, 0])
    assert kstest((rows.double() / 100_000).numpy(), "uniform").pvalue > 1e-6


@pytest.mark.slow
def test_every_algorithm_beats_chance():
    """Mean regret of the last 50 of 150 rounds on 300 arms, against random search, which plays 0.5 on average."""
    problem = environments.gaussian_bumps(300, 2, seed=0)
    for name in NAMES:
        # The first explores until widths are small in reward units, the others know no more than they remember.
        words = {
            "sup-kernel-ucb": {"beta": 0.2},
            "bob-gp-ucb": {"block_size": None},
            "dms-gp-ucb": {"block_size": 5},
            "master-gp-ucb": {"exploration": 0.0},
            "mvr": {"horizon": 80},
            "r-perp": {"period": 500},
            "r-gp-ucb": {"period": 75.0},
            "sw-gp-ucb": {"window": 75.0},
            "tv-gp-ucb": {"forgetting": 0.002},
            "ui-gp-ucb": {"growth": 0.001},
        }.get(name, {})
        words |= {key: word for key, word in NEEDED.get(name, {}).items() if key == "scales"}
        if "sparq" in name:
            words["expert"] = lambda X, time: (problem.mean(X) - 0.5, 0.01)
        bandit = make(name, candidates=problem.arms, kernel=rbf(0.5), regularization=0.01, **words)
        regret = []
        for number in range(150):
            X = bandit.ask()
            regret.append(float(problem.regret(X)))
            bandit.tell(X, problem.pull(X, number) - 0.5)
        late = sum(regret[-50:]) / 50
        assert late > 0.3 if name == "random" else late < 0.06, (name, late)


@pytest.mark.parametrize(
    ("name", "width", "level"),
    [
        *((name, MartingaleMixtureWidth, 0.05) for name in ("gp-ucb", "igp-ucb", "gp-ts", "mini-gp-ucb")),
        *((name, MartingaleMixtureWidth, 1.0) for name in ("igp-ucb", "gp-ts")),
        ("bkb", BKBWidth, 0.05),
    ],
)
def test_without_beta_the_width_is_the_theorems(name, width, level):
    """On exact posteriors the tightest, whatever λ, at δ/2 for GP-TS."""
    words = {"regularization": level} | ({} if name == "bkb" else {"gain": RateGain("rbf", dimension=2)})
    theory = make(name, beta=None, noise_scale=0.1, norm_bound=1.0, failure_probability=0.2, **words)
    assert type(theory.width) is width
    assert theory.width.failure_probability == (0.1 if name == "gp-ts" else 0.2)
    play(theory, 3)
    assert float(theory.beta) == pytest.approx(float(theory.width(theory.model)), rel=1e-6)
    with pytest.raises(InputError, match=r"which needs|needs noise_scale and norm_bound"):
        make(name, beta=None)


def test_the_random_width_is_that_of_the_number_of_arms_and_drawn_anew_in_each_round():
    """Its law is in ``test_widths``."""
    bandit, widths = make("irgp-ucb"), set()
    assert bandit.width == RandomizedWidth(len(ARMS), seed=3)
    for _ in range(10):
        play(bandit, 1)
        widths.add(float(bandit.beta))
    assert len(widths) == 10
    assert bandit.guarantee().theorem.startswith("Takeno")
    for refused in ({"candidates": SMALL_BOX}, {"memory": SlidingWindow(4.0)}):
        with pytest.raises(InputError, match="IRGPUCB draws a width for A arms and all rewards"):
            make("irgp-ucb", **refused)


def test_the_width_of_a_batch_is_wider_and_the_oversampling_of_the_theorem_is_large():
    """Variances may shrink by C in a batch, so the multiplier grows by √C."""
    words = {"beta": None, "noise_scale": 0.1, "norm_bound": 1.0}
    plain = float(make("bkb", **words).beta)
    assert float(make("bbkb", batch_threshold=4.0, **words).beta) == pytest.approx(2.0 * plain)
    assert make("bkb", oversampling="theory", horizon=100).dictionary.oversampling > 400


def test_bad_settings_are_named():
    for name, settings, message in (
        ("bbkb", {"batch_rule": "regional"}, 'batch_rule must be "global" or "local"'),
        ("bkb", {"oversampling": "theory"}, "give horizon"),
        ("gp-ucb", {"horizon": 40}, "GPUCB takes other arguments: got an unexpected keyword argument 'horizon'"),
        ("sparq-gp-ucb", {"noise_scale": 0.1}, "got an unexpected keyword argument 'noise_scale'"),
        ("rkb", {"beta": None}, "give beta, the multiplier of σ"),
        ("gp-ei", {"beta": 2.0}, "GPEI takes other arguments: got an unexpected keyword argument 'beta'"),
        *((name, {"trigger": None}, "unexpected keyword argument 'trigger'") for name in NAMES),
    ):
        with pytest.raises(InputError, match=message):
            make(name, **settings)


@pytest.mark.one_in(4)
@pytest.mark.filterwarnings("ignore::torch_kbandits.TheoryWarning")
@pytest.mark.parametrize("name", sorted(taking("norm_bound")))
def test_each_constant_of_a_theorem_does_something_where_it_is_taken(name):
    def effect(**words):
        """What a bandit does after a few rounds, as far as the constants of a theorem may change it."""
        bandit = make(name, beta=None, **words)
        bandit.tell(ARMS[:3], reward(ARMS[:3]))
        hypotheses = [(each.name, each.status, each.sentence) for each in bandit.guarantee().assumptions]
        phases = getattr(bandit.rule, "lengths", None)
        return float(bandit.beta), bandit.dictionary, bandit.memory, hypotheses, phases

    takes = algorithms.registry.signature(name).parameters
    words = {word: values[0] for word, values in CONSTANTS.items() if word in takes}
    for word in words:
        assert effect(**words) != effect(**words | {word: CONSTANTS[word][1]}), word
    if name in PLANNED:
        plan = words | PLANS.get(name, {})
        assert effect(**plan | {"horizon": 40}) != effect(**plan | {"horizon": 400})


def test_the_registry():
    assert PLANNED | taking("noise_scale") | taking("failure_probability") <= taking("norm_bound")
    assert taking("outcomes") & taking("constraints") & taking("memory") & taking("mean") == {*NAMES}
    bandit = algorithms.build("bkb", **words_of("bkb"))
    assert type(bandit) is algorithms.BKB
    assert repr(bandit) == (
        "BKB(kernel=RBFKernel, regularization=0.05, "
        "dictionary=RidgeLeverageSampling(oversampling=3.0, resampling='fresh'), "
        "width=ConstantWidth(value=1.5), seed=3, round=0)"
    )
    for name, words, message in (
        ("BKb", {}, "did you mean 'bkb'"),
        ("igpucb", {}, "did you mean 'igp-ucb'"),
        ("thompson", {}, "there are ada-bkb, bbkb, bkb, bob-gp-ucb, bpe"),
        ("bkb", {"candidates": ARMS}, "BKB takes other arguments: missing a required argument: 'seed'"),
        ("bkb", words_of("bkb", kernels=rbf()), "unexpected keyword argument 'kernels'"),
    ):
        with pytest.raises(InputError, match=message):
            algorithms.build(name, **words)


#: What is a memory itself.
REMEMBERING = {
    "bob-gp-ucb",
    "bpe",
    "dms-gp-ucb",
    "dms-tv-gp-ucb",
    "irgp-ucb",
    "master-gp-ucb",
    "mvr",
    "r-gp-ucb",
    "r-perp",
    "sparq-gp-ucb",
    "sw-gp-ucb",
    "ui-gp-ucb",
    "w-gp-ucb",
    "w-sparq-gp-ucb",
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("memory", [SlidingWindow(4.0), Discount(0.8), TemporalPrior(0.1, 0.8)], ids=repr)
@pytest.mark.parametrize("name", NAMES)
def test_what_counts_is_what_the_memory_says_and_a_second_memory_is_refused(name, memory):
    """What follows from these noises is in ``test_posterior``; who plays a point again takes no prior on time."""
    if name in REMEMBERING or (name == "mini-gp-ucb" and memory.needs_time_column):
        refused = r"Leave out memory: here .* says what an observation counts for|plays a point|leave out memory"
        with pytest.raises(InputError, match=refused):
            make(name, memory=memory)
        return
    bandit = make(name, memory=memory)
    play(bandit, 9)
    learned = bandit.state_dict()["num_learned"]
    noise = memory.noise(bandit.history.times[:learned], float(bandit.round), 0.05)
    assert difference(bandit.weights[:learned], 0.05 / noise) < 1e-12
    assert bandit.model.num_observations == int(noise.isfinite().sum())


def test_points_that_are_never_told_as_asked_are_said_once():
    bandit = make("igp-ucb", candidates=SMALL_BOX)
    bandit.mark_pending(ARMS[:49])
    bandit.tell(ARMS[:1] + 1e-9, 0.0)
    bandit.mark_pending(ARMS[49:50])
    with pytest.warns(KernelBanditWarning, match="not among the 50 pending points"):
        bandit.tell(ARMS[:1] + 1e-9, 0.0)
    bandit.tell(ARMS[:1] + 1e-9, 0.0)
