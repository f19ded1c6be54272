"""Arms split over shards: the choices of one table, whatever happens to the workers. Here without Ray."""

import sys
from copy import deepcopy
from itertools import cycle
from pathlib import Path

import interrupts
import pytest
import torch
from gpytorch.kernels import RBFKernel
from kinds import same
from local_workers import CUTS, LAMBDA, assert_alike, make, noisy, rounds, sharded, some_arms
from pretend_device import PretendDevice, is_possible
from problems import DOUBLE, data, in_a_file, linear, matern, play

from torch_kbandits import Arms, ArmsChangedError, AtMost, Bandit, InputError, LearnedPrior, Outcome, Prior
from torch_kbandits.acquisition import StagedRule, ThompsonRule
from torch_kbandits.confidence import ConstantWidth
from torch_kbandits.dictionaries import KORS, FixedDictionary, RidgeLeverageSampling
from torch_kbandits.extras import MissingExtraError
from torch_kbandits.integrations import ray as integration
from torch_kbandits.integrations.ray import ShardedArms, ShardLostError
from torch_kbandits.memory import (
    Discount,
    Memory,
    QuadraticGrowth,
    Restart,
    SlidingWindow,
    Stationary,
    UncertaintyInjection,
)

RULES = {
    "exact": None,
    "fresh": RidgeLeverageSampling(1.0),
    "coupled": RidgeLeverageSampling(1.0, "coupled"),
    "growth": RidgeLeverageSampling(1.0, "growth"),
    "kors": KORS(0.5),
    "fixed": FixedDictionary(data(160, 2)[0][::23] + 0.01),
}


class Forgetful(Memory):
    """Of observations made at even times those of the last four units of time count, of the others all."""

    def noise(self, times, now, regularization):
        return torch.where((now - times <= 4.0) | (times % 2.0 == 1.0), float(regularization), torch.inf)


MEMORIES = {
    "none": None,
    "window": SlidingWindow(5.0),
    "observations": SlidingWindow(7, "observations"),
    "restart": Restart(6.0),
    "all": Stationary(),
    "discount": Discount(0.8, 0.05),
    "injection": UncertaintyInjection(QuadraticGrowth(0.3), 30.0 * LAMBDA),
    "of one's own": Forgetful(),
}


def composed(candidates, rule="coupled", memory="none", **settings):
    words = {"kernel": matern(0.4), "regularization": LAMBDA, "width": ConstantWidth(2.0), "seed": 0}
    rule, memory = RULES[rule] if isinstance(rule, str) else rule, MEMORIES.get(memory, memory)
    return Bandit(candidates=candidates, dictionary=rule, memory=memory, **(words | settings))


def pair(number=3, count=160, maker=make, **settings):
    arms = some_arms(count)
    given = Arms(arms), sharded(arms, number, CUTS[number] if count == 160 else None)
    return [maker(each, **settings) for each in given]


def losing(bandits, count, every=4, shards=3):
    """Play with a worker lost every so many rounds."""
    for first in range(0, count, every):
        rounds(bandits, every, first)
        bandits[1].candidates.workers.lose(first // every % shards)
    assert_alike(bandits)


def both(bandits, X, number=0):
    for bandit in bandits:
        bandit.tell(X, noisy(X, number))


NUMBERS = cycle(CUTS)
GRID = [(rule, memory, next(NUMBERS)) for rule in RULES for memory in MEMORIES]


@pytest.mark.parametrize(
    ("rule", "memory", "number", "count"),
    [
        ("coupled", "none", 7, 10),
        ("kors", "window", 3, 10),
        ("fresh", "of one's own", 2, 10),
        ("exact", "injection", 2, 10),
        *(pytest.param(*case, 25, marks=pytest.mark.slow) for case in GRID),
    ],
)
def test_shards_choose_the_arms_of_one_table(rule, memory, number, count):
    losing(pair(number, maker=composed, rule=rule, memory=memory), count, 5, number)


MEAN = {"memory": SlidingWindow(7), "mean": lambda X: 5.0 + 3.0 * torch.cos(4.0 * X).sum(-1)}
LEARNED = {"kernel": None, "regularization": None, "prior": LearnedPrior(num_initial=5), "resampling": "coupled"}
NAMED = {
    "bbkb": ("bbkb", {"batch_rule": "local"}),
    "gp-ei": ("gp-ei", {}),
    "full": ("bkb", {"max_dictionary": 5, "when_full": "stop"}),  # each shard learns what is not spanned of its arms
    "mean": ("bkb", MEAN),
    "learned": ("bkb", LEARNED),
    "sw-gp-ucb": ("sw-gp-ucb", {"window": 4.0}),
    "bbkb, global": ("bbkb", {}),
    "gp-pi": ("gp-pi", {}),
    "gp-ucb": ("gp-ucb", {}),
    "mini-gp-ucb": ("mini-gp-ucb", {}),
    "r-gp-ucb": ("r-gp-ucb", {"period": 4.0}),
}


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize(
    ("case", "count"),
    [
        *((case, 12) for case in list(NAMED)[:5]),
        *(pytest.param(case, 16, marks=pytest.mark.slow) for case in list(NAMED)[5:]),
        *(pytest.param(case, 100, marks=pytest.mark.slow) for case in ("gp-ei", "gp-pi")),
    ],
)
def test_named_algorithms_on_shards(case, count):
    name, words = NAMED[case]
    losing(pair(3, 600 if count > 16 else 60, name=name, **words), count)


KERNELS = {"kernels": (matern(0.8), matern(0.2)), "dictionary": KORS(2.0)}
APART = {
    "draws": (composed, {"rule": "kors", "memory": "window", "acquisition": ThompsonRule()}),
    "draws, exact": (composed, {"rule": "exact", "acquisition": ThompsonRule()}),
    "stages": (composed, {"rule": "fresh", "memory": "discount", "acquisition": StagedRule(60)}),
    **{name: (make, {"name": name, **KERNELS}) for name in ("hp-gp-ts", "lb-gp-ucb", "pe-gp-ucb")},
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("case", APART)
def test_draws_stages_and_families_on_shards_are_those_of_one_table(case):
    """Workers hold one posterior at a time, which stages or hypotheses build in turns."""
    arms, (maker, words) = some_arms(60), APART[case]
    words = words | ({"width": ConstantWidth(0.4)} if maker is composed else {})
    whole = Arms(arms) if case == "stages" else Arms(in_a_file(arms))  # else draws are other functions
    bandits = [maker(each, **words) for each in (whole, sharded(arms, 2, [23]))]
    losing(bandits, 12, shards=2)
    if case.startswith("draws"):  # and not the same arm again and again
        assert len(bandits[1].history.X.unique(dim=0)) > 6
    else:
        assert torch.equal(*(bandit.history.stages for bandit in bandits))
        assert len(bandits[0].history.stages.unique()) > 1 + (case == "stages")


@pytest.mark.parametrize("memory", ["none", "window"])
def test_outcomes_beside_rewards(memory):
    """Told of the same plays under the same prior, and of plays that have none."""
    words = {
        "maker": composed,
        "rule": "kors",
        "memory": memory,
        "outcomes": [Outcome("cost", Prior(matern(0.4), LAMBDA))],
    }
    bandits = pair(2, **words)
    for number in range(12):
        X = [bandit.ask(1 + number % 2) for bandit in bandits]
        assert torch.equal(*X)
        for bandit in bandits:
            bandit.tell(X[0], noisy(X[0], number), outcomes=None if number == 7 else {"cost": X[0].sum(-1)})
    points = some_arms().unsqueeze(-2)
    means = [bandit.outcome_model("cost").posterior(points).mean for bandit in bandits]
    torch.testing.assert_close(*means, rtol=0.0, atol=1e-9)


@pytest.mark.skipif(not is_possible(), reason="this PyTorch does not let Python make devices")
@pytest.mark.parametrize("name", ["bkb", "gp-ts", "bbkb"])
def test_shards_on_a_device(name):
    there, candidates = PretendDevice(), [sharded(arms, 2, [50]) for arms in [some_arms(120)] * 2]
    candidates[0].workers.device = there.device
    with there:
        losing([make(each, name) for each in candidates], 8, shards=2)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("gap", [3.0, 50.0])
def test_times_of_ones_own(gap):
    """After the longest gap nothing counts any more, and the dictionary is one of points that are forgotten."""
    bandits, time = pair(2, maker=composed, memory="window"), 0.0
    for number in range(7):
        time += gap if number == 5 else 0.4
        X = [bandit.ask(2, time=time) for bandit in bandits]
        assert torch.equal(*X)
        for bandit in bandits:
            bandit.tell(X[0], noisy(X[0], number), time=time + 0.1)
    assert torch.equal(*(bandit.ask(3, time=time + 5.0, remember=False) for bandit in bandits))
    # Shards went ahead of it, and are built anew.
    assert torch.equal(*(bandit.ask(3, time=time + 0.1) for bandit in bandits))


def test_single_precision():
    """Choices may differ by rounding, and what the one table says of them by no more than that."""
    arms = some_arms().float()
    single, ours = (make(candidates, kernel=matern(0.4).float()) for candidates in (Arms(arms), sharded(arms, 3)))
    for number in range(0, 24, 3):
        both([single, ours], arms[torch.randint(len(arms), (3,))], number)
        values, x = single.acquisition()(arms.unsqueeze(-2)), ours.ask(remember=False)
        assert x.dtype == torch.float32
        assert float(single.acquisition()(x.unsqueeze(-2))) > float(values.max()) - 1e-4


@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", range(2))
def test_what_is_a_tie_depends_on_the_arms_of_all_shards(seed):
    """An arm of huge prior variance, in a shard of its own, makes differences of 1e-6 in the other a rounding."""
    arms = torch.tensor([[0.0, 1e6]] + [[1.0 + 1e-6 * number, 0.0] for number in range(20)], dtype=DOUBLE)
    bandits = [make(candidates, seed=seed, kernel=linear(0.7)) for candidates in (Arms(arms), sharded(arms, 2, [1]))]
    for bandit in bandits:
        bandit.tell(arms[:1], -1e6)
    asked = [bandit.ask() for bandit in bandits]
    assert torch.equal(*asked)
    assert float(asked[0][0, 0]) >= 1.0


def sent_by(bandit, count=5):
    """The longest of the messages of so many rounds, of which each shard gets one a round."""
    workers = bandit.candidates.workers
    bandit.ask(remember=False)  # in which shards learn of what was told
    workers.sent.clear()
    play(bandit, count)
    assert len(workers.sent) == count * len(workers.shards)
    return max(workers.sent)


def test_a_round_sends_the_same_to_many_arms_late_and_early_and_what_is_taken_back_and_not_what_counts():
    sent = {}
    for count in (100, 1000):
        arms = some_arms(count)
        bandit, sent[count] = make(sharded(arms, 2), resampling="growth"), []
        known = arms[:5].repeat(20, 1)
        for _ in range(2):  # early rounds, and late ones of a hundred more observations
            bandit.tell(known, noisy(known, 0))
            sent[count].append(sent_by(bandit))
    m = len(bandit.inducing_points)
    assert max(sent[100] + sent[1000]) < 2500 + 32 * m  # four numbers for each coordinate as a point joins
    assert sent[1000][1] < sent[1000][0] + 32 * m
    bandit = composed(sharded(some_arms(), 2), RidgeLeverageSampling(3.0, "growth"))
    bandit.tell(X := 0.2 * torch.rand(1000, 2, dtype=DOUBLE), noisy(X, 0))
    m = len(bandit.inducing_points)
    assert sent_by(bandit, 20) < 8 * X.numel()
    assert len(bandit.inducing_points) > m  # several joined at a time
    windows = []
    for size in (10, 40):
        bandit = composed(sharded(some_arms(), 2), "fixed", SlidingWindow(size, "observations"))
        bandit.tell(some_arms()[:size], noisy(some_arms()[:size], 0))
        windows.append(sent_by(bandit))
    assert windows[1] < windows[0] + 64 < 3000


def test_each_shard_is_asked_once_and_none_for_what_is_known_here():
    bandit = make(sharded(some_arms(), 7))
    workers = bandit.candidates.workers
    bandit.tell(x := bandit.ask(), noisy(x, 0))
    workers.sent.clear()
    bandit.ask(remember=False)
    assert len(workers.sent) == 7
    bandit.tell(torch.rand(5, 2, dtype=DOUBLE), torch.rand(5, dtype=DOUBLE))
    bandit.recommend()
    bandit.state_dict()
    assert len(workers.sent) == 7
    sizes = [len(rows) for rows in workers.shards]
    assert sum(sizes) == 160
    assert {*sizes} == {22, 23}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("memory", ["none", "observations"])
@pytest.mark.parametrize("behind", [4, 70])
def test_shards_that_are_far_behind_are_started_anew(behind, memory):
    bandits = pair(2, maker=composed, rule="fresh", memory=memory)
    rounds(bandits, 3)
    starts = bandits[1].candidates.workers.starts
    starts.clear()
    for number in range(behind):
        both(bandits, some_arms()[number : number + 2], number)
    rounds(bandits, 2, 3)
    assert_alike(bandits)
    assert starts == ([0, 1] if behind == 70 else [])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("memory", ["observations", "none"])
@pytest.mark.parametrize(
    ("when", "gone"), [("before", (0, 1, 2)), ("dies_on_receipt", (0, 2)), ("dies_with_reply", (0,))]
)
def test_workers_that_end_are_built_from_what_counts(memory, when, gone):
    bandits = pair(maker=composed, memory=memory)
    rounds(bandits, 9)
    workers = bandits[1].candidates.workers
    workers.starts.clear()
    if when == "before":
        for shard in gone:
            workers.lose(shard)
    else:
        setattr(workers, when, set(gone))
    rounds(bandits, 2, 9)
    assert_alike(bandits)
    assert sorted(workers.starts) == list(gone)
    workers.close()
    rounds(bandits, 1, 11)


class Breaking(RBFKernel):
    """Raises once at the arms of shard 1, after so many evaluations there."""

    left = 0

    def forward(self, x1, x2, diag=False, **params):
        if Breaking.left and 83 in (x1.shape[-2], x2.shape[-2]):
            Breaking.left -= 1
            if Breaking.left == 0:
                raise MemoryError("too many arms")
        return super().forward(x1, x2, diag=diag, **params)


FAILURES = {
    "no worker": (ShardLostError, r"shard 1 of 3 \(arms 7 to 89\)"),
    "ends each time": (ShardLostError, "shard 1 of 3 .*ended each time"),
    "an error": (ArmsChangedError, "other arms"),
    "half way": (MemoryError, "too many arms"),
}


def break_(workers, failure):
    if failure == "an error":
        workers.fails_on_receipt[1] = ArmsChangedError("other arms")
    elif failure == "half way":
        Breaking.left = 3
    else:
        workers.lose(1)
        workers.refuses, workers.dies_on_receipt = ({1}, set()) if failure == "no worker" else (set(), [1] * 9)


@pytest.mark.parametrize(("failure", "memory"), [*((name, "none") for name in FAILURES), ("half way", "observations")])
def test_what_cannot_be_mended_is_raised_and_nothing_is_lost(failure, memory):
    """A shard that failed may have learned, or forgotten, some of what it was told, and is started anew."""
    bandits = pair(maker=composed, memory=memory, kernel=Breaking().double())
    rounds(bandits, 3)
    ours, workers = bandits[1], bandits[1].candidates.workers
    for number in range(3):
        both(bandits, some_arms()[number : number + 2])
    before = ours.state_dict()
    workers.starts.clear()
    kind, message = FAILURES[failure]
    break_(workers, failure)
    with pytest.raises(kind, match=message):
        ours.ask(3)
    assert same(ours.state_dict(), before)
    both(bandits, some_arms()[:4])  # nothing that was told meanwhile is lost
    workers.refuses = workers.dies_on_receipt = set()
    rounds(bandits, 2, 3)
    assert_alike(bandits)
    assert (1 in workers.starts) == (failure != "an error")


def test_bandits_that_share_workers_and_copies_and_looking_changes_nothing():
    arms = some_arms()
    candidates = sharded(arms, 2)
    ours, single = (
        [make(each, seed=seed, resampling="growth") for seed in (0, 1)] for each in (candidates, Arms(arms))
    )
    for number in range(6, 8):
        for each in zip(ours, single, strict=True):
            rounds(each, 1, number)
    copied, twin = deepcopy(ours[0]), deepcopy(single[0])
    assert copied.candidates.workers is candidates.workers
    for number in range(8, 10):
        rounds([ours[0], single[0]], 1, number)
        rounds([copied, twin], 1, 2 * number)
    seen = copied.ask(5, remember=False)
    assert torch.equal(copied.ask(2), seen[:2])
    assert torch.equal(copied.ask(3, remember=False), seen[2:])
    assert torch.equal(copied.ask(3), seen[2:])
    assert torch.equal(twin.ask(5), seen)
    assert_alike([single[0], ours[0]])


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("is_stored", "memory"), [(True, "none"), (False, "window")])
def test_saved_states_go_from_one_form_to_the_other(is_stored, memory):
    arms = some_arms()
    cut = in_a_file(arms) if is_stored else arms
    ours, single, again, replayed = (
        composed(each, memory=memory) for each in (sharded(cut, 3), Arms(arms), sharded(cut, 2), sharded(cut, 5))
    )
    rounds([ours], 4)
    ours.ask(2)
    single.load_state_dict(ours.state_dict())
    assert torch.equal(single.ask(4), ours.ask(4, remember=False))
    again.load_state_dict(single.state_dict())
    assert torch.equal(again.pending, single.pending)
    rounds([again, single], 2)
    replayed.replay(single.history)
    assert torch.equal(replayed.recommend(), single.recommend())
    for bandit in (again, single):
        bandit.restart()
    rounds([again, single], 2, 20)


def test_interrupts_leave_the_bandit_as_it_was(monkeypatch):
    """After every second line that changes something in this integration; laws/test_atomicity.py has the tables."""
    monkeypatch.setattr(interrupts, "PACKAGE", str(Path(integration.__file__).parent))
    arms = some_arms(24)
    single, start = make(Arms(arms)), make(sharded(arms, 2))
    rounds([single, start], 3)
    before = start.state_dict()
    single.ask(2)
    expected, after = single.state_dict(), single.ask()
    copies, places = iter([deepcopy(start), deepcopy(start)]), set()
    for line in interrupts.swaps(lambda: next(copies).ask(2))[::2]:
        bandit = deepcopy(start)
        with interrupts.Interrupt(line) as interrupt:
            bandit.ask(2)
        places.add(interrupt.at.partition(":")[0])
        if bandit.round == start.round and len(bandit.pending) == len(start.pending):  # else it was done already
            assert same(bandit.state_dict(), before)
            bandit.ask(2)
        assert same(bandit.state_dict(), expected)
        assert torch.equal(bandit.ask(), after), interrupt.at
    assert len(places) >= 2


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["bkb", "gp-ts"])
def test_arms_that_failed_are_left(name):
    arms = some_arms(30)
    bandit, asked, fails = make(sharded(arms, 3), name), [], False
    for number in range(20):
        x = bandit.ask()
        assert not fails or not torch.equal(x, asked[-1])
        fails = number == 0 or bool(x[0, 0] > 0.5)
        bandit.tell(x, **({"failed": True} if fails else {"y": float(x.sum())}))
        asked.append(x)
    failed = torch.cat([x for x in asked if x[0, 0] > 0.5])
    assert len(failed) == len(failed.unique(dim=0))
    assert float(bandit.failure_probability(failed).min()) >= 0.5
    loaded = make(sharded(arms, 2), name)
    loaded.load_state_dict(bandit.state_dict())
    assert torch.equal(loaded.ask(), bandit.ask())


@pytest.mark.parametrize(
    ("arms", "words", "message"),
    [
        (some_arms(60), {"num_shards": 0}, "num_shards must be a whole number of at least 1, got"),
        (some_arms(60), {"num_shards": 61}, "num_shards must be at most the number of arms, 60, got 61"),
        (some_arms(60), {"num_shards": 2, "num_gpus_per_shard": -1}, "num_gpus_per_shard"),
        (some_arms(60), {"num_shards": 2, "num_cpus_per_shard": "two"}, "num_cpus_per_shard"),
        (some_arms(60), {"num_shards": 2, "start_timeout": 0.0}, "start_timeout"),
        ([["a", "b"]], {"num_shards": 1}, "real numbers|candidates must be"),
        (torch.full((3, 2), torch.nan), {"num_shards": 1}, "must be finite|candidates must be"),
    ],
)
def test_words_and_arms_that_do_not_fit(arms, words, message):
    with pytest.raises(InputError, match=message):
        ShardedArms(arms, **words)


def test_without_ray(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install -e '\.\[ray\]'"):
        ShardedArms(some_arms(), num_shards=2)


def test_rows_and_names_on_shards():
    arms = some_arms()
    named = Arms(arms, names=[f"arm {row}" for row in range(len(arms))])
    one, other = make(named), make(sharded(named, 3))
    for _ in range(4):
        ours, theirs = (each.ask(2, details=True) for each in (one, other))
        assert torch.equal(arms[theirs.rows], theirs.x)  # of equal arms the first
        assert torch.equal(ours.x, theirs.x)
        assert theirs.names == tuple(f"arm {row}" for row in theirs.rows)
        assert torch.allclose(ours.std, theirs.std)
        for each in (one, other):
            each.tell(rows=theirs.names, y=[0.3, 0.1])
    for call in (lambda: other.ask(exclude=[0]), lambda: other.ask(2, distinct=True), lambda: other.add_arms(arms)):
        with pytest.raises(InputError, match=r"in one process|in memory"):
            call()


class Together(ThompsonRule):
    scores_arms_apart = False


def test_what_shards_cannot_do_is_refused():
    words = {"regularization": LAMBDA, "seed": 0, "width": ConstantWidth(1.0)}
    for kernel, rule, message in (
        (linear(), ThompsonRule(), r"no random Fourier features of LinearKernel.*or give Arms a tensor"),
        (matern(0.4), Together(), "Together needs all arms in one process.*scores_arms_apart = True"),
    ):
        with pytest.raises(InputError, match=message):
            Bandit(candidates=sharded(some_arms(), 2), kernel=kernel, acquisition=rule, **words).ask()
    with pytest.raises(InputError, match="Limits on outcomes need all arms in one process"):
        make(sharded(some_arms(), 2), constraints=[AtMost(Outcome("cost", Prior(matern(), LAMBDA)), 1.0)])
    with pytest.raises(InputError, match="ShardedArms have neither contexts"):
        make(sharded(some_arms(), 2)).ask(context=[1.0])
