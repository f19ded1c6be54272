"""Every named algorithm obeys the bandit's laws; pending points are remembered and told in any order."""

from dataclasses import replace
from functools import cache

import oracles
import pytest
import torch
from garbage import left_by
from problems import DOUBLE, data, dense, difference, play, rbf, reward
from scipy.stats import kstest

from torch_kbandits import InputError, NystromGP, StateMismatchError, TheoryWarning, algorithms, environments
from torch_kbandits.acquisition import DiscretizedThompsonSampling
from torch_kbandits.confidence import BKBWidth, GPTSWidth, GPUCBWidth, IGPUCBWidth, RateGain, SelfNormalizedWidth
from torch_kbandits.errors import EmptyHistoryError, KernelBanditWarning
from torch_kbandits.memory import SlidingWindow
from torch_kbandits.models import OnlineGP
from torch_kbandits.observations.ledger import Pending

ARMS = data(60, 2)[0]
BOUNDS = torch.tensor([[0.0, -1.0], [1.0, 2.0]], dtype=DOUBLE)
NAMES = algorithms.names()
DOMAINS = ["arms", "box"]
SPARSE = {"bkb", "bbkb", "cbkb", "cbbkb", "ek-ucb", "lin-ucb"}
CASES = [(name, domain) for name in NAMES for domain in DOMAINS if (name, domain) != ("sup-kernel-ucb", "box")]
#: In the quick suite boxes, whose search takes long, with one algorithm of each kind.
WITH_FEW_BOXES = [
    pytest.param(*case, marks=pytest.mark.slow if case[1] == "box" and case[0] not in ("bkb", "gp-ei", "gp-ts") else ())
    for case in CASES
]
#: Of several hypotheses each; their model is that of one.
FAMILIES = ("hp-gp-ts", "lb-gp-ucb", "pe-gp-ts", "pe-gp-ucb")
BATCHED = {"bbkb", "mini-gp-ucb"}
NEEDED = {
    "bob-gp-ucb": {"horizon": 200},
    **{name: {"scales": (2.0, 1.0, 0.5)} for name in FAMILIES},
    "r-gp-ucb": {"period": 25.0},
    "sup-kernel-ucb": {"horizon": 200},
    "sw-gp-ucb": {"window": 12.0},
    "ui-gp-ucb": {"growth": 0.01},
}


def taking(word):
    """Those that take a word."""
    return {name for name in NAMES if word in algorithms.registry.signature(name).parameters}


#: Those that know how many rounds there are to be.
PLANNED = taking("horizon")
#: Two values of each constant of a theorem, and where the number of rounds matters: nowhere else.
CONSTANTS = {"noise_scale": (0.1, 0.3), "norm_bound": (1.0, 3.0), "failure_probability": (0.1, 0.2)}
FORGETTING = {"memory": SlidingWindow(4.0)}
PLANS = dict.fromkeys(("gp-ts", "igp-ucb", *FAMILIES), FORGETTING)
PLANS |= {name: {"oversampling": "theory"} for name in ("bkb", "bbkb", "cbkb", "cbbkb", "ek-ucb")}


def words_of(name, domain="arms", **settings):
    words = {"kernel": rbf(0.3), "regularization": 0.05, "seed": 3}
    words |= {"candidates": ARMS} if domain == "arms" else {"bounds": BOUNDS}
    if "beta" in algorithms.registry.signature(name).parameters:
        words["beta"] = 1.5
    words |= NEEDED.get(name, {})
    if name == "sparq-gp-ucb":
        words["expert"] = lambda X, time: (reward(X), 0.05)
    if name.endswith("gp-ts") and domain == "box":
        words["discretization_size"] = 64
    words |= settings
    if name == "lin-ucb":
        words["features"] = words.pop("kernel")
    return words


def make(name, domain="arms", **settings):
    return algorithms.build(name, **words_of(name, domain, **settings))


def actions(points):
    """What was asked for, of points that may begin with the time."""
    return points[:, -2:]


@pytest.mark.one_in(42)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize(("name", "domain"), WITH_FEW_BOXES)
def test_replaying_and_loading_give_the_same_next_points(name, domain):
    bandit, replayed, loaded = (make(name, domain) for _ in range(3))
    play(bandit, 9 if domain == "arms" else 4)
    replayed.replay(bandit.history)
    loaded.load_state_dict(bandit.state_dict())
    rounds = 5 if domain == "arms" else 2
    expected = play(bandit, rounds)
    # Boxes are searched by gradients, which amplify the rounding of another order of computation.
    tolerance = 0.0 if domain == "arms" else 1e-3
    assert difference(play(replayed, rounds), expected) <= tolerance
    assert difference(play(loaded, rounds), expected) <= tolerance


@pytest.mark.one_in(14)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize(("name", "domain"), WITH_FEW_BOXES)
def test_nothing_that_is_no_longer_needed_holds_itself(name, domain):
    assert left_by(lambda: play(make(name, domain), 20 if domain == "arms" else 5)) == []


@pytest.mark.one_in(14)
@pytest.mark.parametrize("name", NAMES)
def test_a_prior_mean_that_all_rewards_have_changes_no_choice(name):
    def answers(X, time):
        return reward(X) + 50.0, 0.05

    ours = make(name, mean=50.0, **({"expert": answers} if name == "sparq-gp-ucb" else {}))
    theirs = make(name)
    for _ in range(6):
        x = theirs.ask()
        assert torch.equal(ours.ask(), x)
        theirs.tell(x, reward(x))
        ours.tell(x, reward(x) + 50.0)
    assert difference(ours._belief.moments(ours.history.X)[0] - 50.0, theirs._belief.moments(ours.history.X)[0]) < 1e-9


@pytest.mark.one_in(10)
@pytest.mark.parametrize(
    ("name", "domain"), [pytest.param(*case, marks=pytest.mark.slow if case[1] == "box" else ()) for case in CASES]
)
@pytest.mark.parametrize("rounds", [pytest.param(0, marks=pytest.mark.slow), 4])
def test_asking_in_parts_is_asking_at_once(name, domain, rounds):
    whole, parts = make(name, domain), make(name, domain)
    play(whole, rounds)
    play(parts, rounds)
    # On a box the search amplifies the rounding of matrix products, which depends on where in memory they stand.
    # The probability of improvement is so flat in places that a search may end elsewhere, so there one point must do.
    tolerance = 0.0 if domain == "arms" else 1e-3
    compared = slice(1 if (name, domain) == ("gp-pi", "box") else 5)
    looked = whole.ask(5, remember=False)[compared]
    assert difference(whole.ask(5)[compared], looked) <= tolerance
    assert difference(torch.cat([parts.ask(3), parts.ask(), parts.ask()])[compared], looked) <= tolerance
    assert difference(actions(parts.pending)[compared], looked) <= tolerance
    parts.forget()
    assert difference(parts.ask(5, remember=False)[compared], looked) <= tolerance


@pytest.mark.one_in(14)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize(("name", "domain"), WITH_FEW_BOXES)
def test_pending_points_are_told_in_any_order(name, domain):
    bandit = make(name, domain)
    X = bandit.ask(6)
    for row in (4, 0, 5):
        bandit.tell(X[row, None], reward(X[row, None]))
    remaining = X[[1, 2, 3]]
    assert torch.equal(actions(bandit.pending), remaining)
    more = bandit.ask(2)
    assert torch.equal(actions(bandit.pending), torch.cat([remaining, more]))
    twin = make(name, domain)
    twin.load_state_dict(bandit.state_dict())
    assert torch.equal(twin.pending, bandit.pending)
    tolerance = 0.0 if domain == "arms" else 1e-3
    assert difference(twin.ask(), bandit.ask()) <= tolerance
    rest = actions(bandit.pending).flip(0)
    bandit.tell(rest, reward(rest))
    assert actions(bandit.pending).shape == (0, 2)
    assert len(bandit.history.X) == 9


@pytest.mark.one_in(10)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize(("name", "domain"), WITH_FEW_BOXES)
def test_pending_points_are_taken_into_account(name, domain):
    """A batch repeats no arm while little is known."""
    if name == "random":
        return
    bandit = make(name, domain, regularization=1e-4)
    play(bandit, 0 if domain == "arms" else 3)
    batch = bandit.ask(5 if domain == "arms" else 3)
    assert len(batch.unique(dim=0)) == len(batch)


@pytest.mark.parametrize("name", NAMES)
def test_forgetting_pending_points(name):
    bandit = make(name)
    X = bandit.ask(3)
    bandit.forget(X[1:2])
    assert torch.equal(actions(bandit.pending), X[[0, 2]])
    with pytest.raises(InputError, match="Not all of the 2 point"):
        bandit.forget(torch.cat([X[:1], ARMS[:1] + 0.5]))
    assert torch.equal(actions(bandit.pending), X[[0, 2]])
    bandit.forget()
    assert len(bandit.pending) == 0


def test_points_that_are_never_told_as_asked_are_said_once():
    bandit = make("igp-ucb", "box")
    for number in range(51):
        x = bandit.candidates.example + 0.01 * number
        before = bandit._standing.ledger.pending
        pending = Pending(torch.cat([bandit.pending, x]), (*bandit.pending_ids, number), (*before.times, 0.0))
        ledger = replace(bandit._standing.ledger, pending=pending)
        bandit._standing = replace(bandit._standing, ledger=ledger)
        if number == 49:
            with pytest.warns(KernelBanditWarning, match="not among the 50 pending points"):
                bandit.tell(x + 1e-9, 0.0)
        else:
            bandit.tell(x + 1e-9, 0.0)
    bandit.forget()
    assert len(bandit.pending) == 0


@pytest.mark.one_in(21)
# SparQ-GP-UCB also believes answers, and points of TV-GP-UCB know the time: see their own laws.
@pytest.mark.parametrize("name", sorted(set(NAMES) - {"sparq-gp-ucb", "tv-gp-ucb", "dms-tv-gp-ucb"}))
def test_the_model_and_the_recommendation(name):
    bandit = make(name)
    with pytest.raises(EmptyHistoryError, match="tell first"):
        bandit.recommend()
    play(bandit, 40)
    model = bandit.model
    assert isinstance(model, NystromGP if name in SPARSE else OnlineGP)
    posterior = model.posterior(ARMS.unsqueeze(-2))
    mean, variance = bandit._belief.moments(ARMS)
    assert difference(mean, posterior.mean.flatten()) < 1e-7
    assert difference(variance.clamp_min(1e-10), posterior.variance.flatten()) < 1e-7
    X, Y, _, _, times, *_ = bandit.history
    noise = torch.full_like(Y, 0.05)
    if bandit.memory is not None:
        noise = bandit.memory.noise(times, float(bandit.round), 0.05)
    # A memory has forgotten the first rewards, a batch rule has not learned the last.
    counted = slice(model.num_observations) if bandit.memory is None else noise.isfinite()
    if name not in SPARSE:
        length = float(bandit._belief.kernel.lengthscale)
        assert name in FAMILIES or length == pytest.approx(0.3, rel=1e-12)  # as its raw parameter rounds
        expected = oracles.exact(oracles.rbf(length), *dense(X[counted], Y[counted], noise[counted], ARMS))
        assert difference(posterior.mean.flatten(), expected.mean) < expected.rounding
    learned = X[counted]
    means = model.posterior(learned.unsqueeze(-2)).mean.flatten()
    best = model.posterior(bandit.recommend().unsqueeze(0)).mean
    assert float(best) == pytest.approx(float(means.max()), abs=1e-8)


@pytest.mark.one_in(24)
@pytest.mark.parametrize(
    "name", sorted(set(NAMES) - {"random", "gp-ts", "hp-gp-ts", "pe-gp-ts", "mini-gp-ucb", "sup-kernel-ucb"})
)
def test_ask_maximises_the_botorch_acquisition(name):
    bandit = make(name)
    play(bandit, 8)
    for _ in range(3):
        acquisition = bandit.acquisition()
        values = acquisition(ARMS.unsqueeze(-2)).detach()
        chosen = bandit.ask(remember=False)
        assert float(acquisition(chosen.unsqueeze(0)).detach()) == pytest.approx(float(values.max()), abs=1e-6)
        bandit.ask()


def test_what_has_no_acquisition_function_says_so():
    with pytest.raises(InputError, match="No acquisition function is maximised"):
        make("random").acquisition()
    assert isinstance(make("gp-ts").acquisition(), DiscretizedThompsonSampling)


def test_random_search_is_uniform_in_single_precision():
    """Whatever the order that breaks ties: Kolmogorov and Smirnov with a false alarm of 1e-6, on 10⁵ arms."""
    arms = torch.rand(100_000, 1).sort(0).values
    bandit = make("random", candidates=arms, kernel=rbf(0.5).float(), regularization=0.01)
    rows = torch.searchsorted(arms[:, 0], bandit.ask(300)[:, 0])
    assert kstest(bandit._belief.tie_rank[rows].numpy(), "uniform").pvalue > 1e-6


@pytest.mark.slow
def test_every_algorithm_beats_chance():
    """Mean regret of the last 50 of 150 rounds on 300 arms, against random search, which plays 0.5 on average."""
    problem = environments.gaussian_bumps(300, 2, seed=0)
    for name in NAMES:
        # The first explores until widths are small in reward units, the others know no more than they remember.
        words = {
            "sup-kernel-ucb": {"beta": 0.2},
            "r-gp-ucb": {"period": 75.0},
            "sw-gp-ucb": {"window": 75.0},
            "tv-gp-ucb": {"forgetting": 0.002},
            "ui-gp-ucb": {"growth": 0.001},
        }.get(name, {})
        if name == "sparq-gp-ucb":
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
        ("gp-ucb", GPUCBWidth, 0.05),
        ("igp-ucb", IGPUCBWidth, 1.0),
        ("igp-ucb", SelfNormalizedWidth, 0.05),
        ("gp-ts", GPTSWidth, 1.0),
        ("gp-ts", SelfNormalizedWidth, 0.05),
        ("mini-gp-ucb", SelfNormalizedWidth, 0.05),
        ("bkb", BKBWidth, 0.05),
    ],
)
def test_without_beta_the_width_is_the_theorems(name, width, level):
    """At λ < 1, where the proofs of IGP-UCB and GP-TS fail, it is the self-normalised one, at δ/2 for GP-TS."""
    words = {"regularization": level} | ({} if name == "bkb" else {"gain": RateGain("rbf", dimension=2)})
    theory = make(name, beta=None, noise_scale=0.1, norm_bound=1.0, failure_probability=0.2, **words)
    assert type(theory.width) is width
    assert theory.width.failure_probability == (0.1 if (name, width) == ("gp-ts", SelfNormalizedWidth) else 0.2)
    play(theory, 3)
    assert float(theory.beta) == pytest.approx(float(theory.width(theory.model)), rel=1e-6)
    with pytest.raises(InputError, match="which needs"):
        make(name, beta=None)
    words = {"candidates": ARMS, "kernel": rbf(), "regularization": 0.05, "noise_scale": 0.1, "norm_bound": 1.0}
    with pytest.warns(TheoryWarning, match="below the theorem's width") as caught:
        getattr(algorithms, algorithms.registry._ALGORITHMS[name])(**words, beta=0.01, seed=0)
    assert len(caught) == 1
    assert caught[0].filename.endswith("test_algorithms.py")


def test_the_width_of_a_batch_is_wider():
    """Variances may shrink by C in a batch, so the multiplier grows by √C."""
    words = {"beta": None, "noise_scale": 0.1, "norm_bound": 1.0}
    assert float(make("bbkb", batch_threshold=4.0, **words).beta) == pytest.approx(
        2.0 * float(make("bkb", **words).beta)
    )


untouched = cache(make)  # for what is refused


@pytest.mark.parametrize("name", NAMES)
def test_states_of_other_settings_are_refused(name):
    bandit = make(name)
    bandit.tell(ARMS[:1], 0.1)
    other = untouched("bkb" if name != "bkb" else "gp-ei")
    with pytest.raises(StateMismatchError, match="algorithm: saved"):
        other.load_state_dict(bandit.state_dict())


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("bbkb", {"batch_threshold": 1.0}, "threshold must be above 1"),
        ("bbkb", {"batch_rule": "regional"}, 'batch_rule must be "global" or "local"'),
        ("mini-gp-ucb", {"batch_threshold": 0.5}, "threshold must be above 1"),
        ("gp-pi", {"margin": -0.1}, "margin must be a finite number of at least 0"),
        ("gp-ts", {"discretization_size": 0}, "discretization_size must be a whole number"),
        ("igp-ucb", {"noise_scale": -1.0}, "noise_scale must be a finite number above 0"),
        *((name, {"horizon": 0}, "horizon must be a whole number") for name in sorted(PLANNED)),
        ("gp-ucb", {"horizon": 40}, "GPUCB takes other arguments: got an unexpected keyword argument 'horizon'"),
        ("sparq-gp-ucb", {"noise_scale": 0.1}, "got an unexpected keyword argument 'noise_scale'"),
        ("gp-ei", {"beta": 2.0}, "GPEI takes other arguments: got an unexpected keyword argument 'beta'"),
    ],
)
def test_bad_settings_are_named(name, settings, message):
    with pytest.raises(InputError, match=message):
        make(name, **settings)


def effect(name, **words):
    """What a bandit does after a few rounds, as far as the constants of a theorem may change it."""
    bandit = make(name, beta=None, **words)
    bandit.tell(ARMS[:3], reward(ARMS[:3]))
    hypotheses = [(each.name, each.status, each.sentence) for each in bandit.guarantee().hypotheses]
    return float(bandit.beta), bandit.dictionary, bandit.memory, hypotheses


@pytest.mark.filterwarnings("ignore::torch_kbandits.TheoryWarning")
@pytest.mark.parametrize("name", sorted(taking("norm_bound")))
def test_each_constant_of_a_theorem_does_something_where_it_is_taken(name):
    takes = algorithms.registry.signature(name).parameters
    words = {word: values[0] for word, values in CONSTANTS.items() if word in takes}
    for word in words:
        assert effect(name, **words) != effect(name, **words | {word: CONSTANTS[word][1]}), word
    if name in PLANNED:
        plan = words | PLANS.get(name, {})
        assert effect(name, **plan | {"horizon": 40}) != effect(name, **plan | {"horizon": 400})


def test_constants_are_taken_where_a_theorem_is():
    assert PLANNED | taking("noise_scale") | taking("failure_probability") <= taking("norm_bound")


@pytest.mark.parametrize("name", NAMES)
def test_words_of_a_bandit_that_an_algorithm_chooses_are_refused(name):
    kind = getattr(algorithms, algorithms.registry._ALGORITHMS[name])
    with pytest.raises(TypeError, match="unexpected keyword argument 'trigger'"):
        kind(**words_of(name), trigger=None)


def test_names_have_neighbours():
    with pytest.raises(InputError, match="did you mean 'igp-ucb'"):
        algorithms.build("igpucb")
