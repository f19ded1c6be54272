"""A stretch of plain rounds is another form of what a bandit knows: who looks, and when, changes nothing."""

import warnings
from copy import deepcopy
from itertools import count

import numpy as np
import oracles
import pytest
import torch
from contextual import ACTIONS, CONTEXTS, changing, joint
from contextual import make as make_contextual
from contextual import reward as contextual_reward
from interrupts import Interrupt, swaps
from problems import DOUBLE, data, difference, rbf, reward

from torch_kbandits import Bandit, DictionaryFullError, InputError, algorithms, use_compiled
from torch_kbandits.acquisition import ThompsonRule, UpperConfidenceRule
from torch_kbandits.bandit.stretch import PATIENCE, Stretch
from torch_kbandits.candidates import Arms
from torch_kbandits.confidence import ConstantWidth
from torch_kbandits.dictionaries import CappedDictionary, RidgeLeverageSampling
from torch_kbandits.memory import Restart, SlidingWindow
from torch_kbandits.numerics.compiled import runs_compiled

pytestmark = [
    pytest.mark.filterwarnings("ignore::torch_kbandits.TheoryWarning"),
    pytest.mark.skipif(not runs_compiled(), reason="stretches are for loops, which are switched off"),
]

LAMBDA = 0.1
ARMS = data(30, 2)[0]
THEOREM = {"norm_bound": 1.0, "noise_scale": 0.1}


def on_arms(name, **words):
    return algorithms.build(name, candidates=ARMS, kernel=rbf(), regularization=LAMBDA, seed=0, **words)


def in_contexts(name="ek-ucb", **words):
    return make_contextual(name, changing(), **words)


CASES = {
    "igp-ucb": lambda: on_arms("igp-ucb", beta=2.0),
    "igp-ucb, theorem": lambda: on_arms("igp-ucb", **THEOREM),
    "igp-ucb, mean": lambda: on_arms("igp-ucb", beta=2.0, mean=ARMS.sum(-1)),
    "gp-ucb": lambda: on_arms("gp-ucb", **THEOREM),
    "gp-ts": lambda: on_arms("gp-ts", beta=1.0),
    "gp-ei": lambda: on_arms("gp-ei"),
    "gp-pi": lambda: on_arms("gp-pi"),
    "random": lambda: algorithms.build("random", candidates=ARMS, kernel=rbf(), regularization=LAMBDA, seed=0),
    "sw-gp-ucb": lambda: on_arms("sw-gp-ucb", window=10, beta=2.0),
    "sw-gp-ucb, theorem": lambda: on_arms("sw-gp-ucb", window=7.5, **THEOREM),
    "r-gp-ucb": lambda: on_arms("r-gp-ucb", period=9, beta=2.0),
    "gp-ts, window": lambda: on_arms("gp-ts", beta=1.0, memory=SlidingWindow(12)),
    "gp-ts, restart": lambda: on_arms("gp-ts", beta=1.0, memory=Restart(5)),
    "gp-ei, window": lambda: on_arms("gp-ei", memory=SlidingWindow(1), mean=0.3),
    "bkb, growth": lambda: on_arms("bkb", beta=2.0, resampling="growth"),
    "bkb, coupled": lambda: on_arms("bkb", beta=2.0, resampling="coupled", mean=0.3),
    "bkb, theorem": lambda: on_arms("bkb", resampling="coupled", oversampling=1.0, **THEOREM),
    "bkb, cap": lambda: on_arms("bkb", beta=2.0, resampling="growth", max_dictionary=12, when_full="stop"),
    "bkb, full": lambda: on_arms("bkb", beta=2.0, resampling="growth", max_dictionary=8, when_full="stop"),
    "bkb, full, mean": lambda: on_arms(
        "bkb", beta=2.0, resampling="growth", max_dictionary=5, mean=0.3, when_full="stop"
    ),
    "bkb, full, warns": lambda: on_arms("bkb", beta=2.0, resampling="growth", max_dictionary=6),
    "bkb, full, theorem": lambda: on_arms("bkb", resampling="growth", max_dictionary=6, when_full="stop", **THEOREM),
    "bkb, draws": lambda: draws_at_a_dictionary(),
    "ek-ucb": in_contexts,
    "ek-ucb, theorem": lambda: make_contextual("ek-ucb", changing(), beta=None, **THEOREM),
    "ek-ucb without features": lambda: make_ek_ucb_without_features(),
    "ek-ucb, full": lambda: make_ek_ucb_full(),
    "ek-ucb, full, theorem": lambda: make_ek_ucb_full(beta=None, **THEOREM),
    "ek-ucb, full, of close points": lambda: make_ek_ucb_full(kernel=rbf(3.0), regularization=1e-6),
    "ek-ucb, close points": lambda: in_contexts(kernel=rbf(3.0), regularization=1e-6),
}


def draws_at_a_dictionary():
    rule, words = RidgeLeverageSampling(3.0, "growth"), {"kernel": rbf(), "regularization": LAMBDA, "seed": 0}
    words |= {"width": ConstantWidth(1.0), "acquisition": ThompsonRule()}
    return Bandit(candidates=Arms(ARMS), dictionary=rule, **words)


def make_ek_ucb_without_features():
    candidates = changing()
    candidates.row_memory = 0
    return make_contextual("ek-ucb", candidates)


def make_ek_ucb_full(**words):
    return in_contexts(max_dictionary=12, when_full="stop", **words)


class Player:
    """Plays a bandit by ask and tell; rewards depend on the round, so that an arm has several."""

    def __init__(self, bandit):
        self.bandit, self.is_contextual, self.number = bandit, bandit.candidates.is_contextual, 0

    def words(self, number):
        """What a round brings; some contexts come again and again."""
        if not self.is_contextual:
            return {}
        return {"context": CONTEXTS[number % 400 if number % 3 else 0], "candidates": ACTIONS}

    def told(self, words):
        return {name: words[name] for name in words if name == "context"}

    def reward(self, x, words, number):
        X = joint(words["context"], x) if words else x
        return float((contextual_reward if words else reward)(X).sum()) + 0.1 * np.sin(number)

    def play(self, rounds):
        for _ in range(rounds):
            words = self.words(self.number)
            x = self.bandit.ask(**words)
            self.bandit.tell(x, self.reward(x, words, self.number), **self.told(words))
            self.number += 1
        return self

    def run(self, rounds):
        def offered(number):
            self.current = self.words(number)
            return self.current

        def pull(x):
            self.number += 1
            return self.reward(x, self.current, self.number - 1)

        self.bandit.run(pull, rounds, offered=offered)
        return self


def agree(ours, theirs):
    """All that is saved, believed and chosen next is the same, to the last bit."""
    mine, other = ours.bandit.state_dict(), theirs.bandit.state_dict()
    assert str(mine) == str(other)
    for name, part in mine["history"].items():
        assert part is other["history"][name] is None or torch.equal(part, other["history"][name]), name
    X = mine["history"]["X"]
    for one, two in zip(*(each.bandit._belief.moments(X) for each in (ours, theirs)), strict=True):
        assert torch.equal(one, two)
    evidence = ("effective_dimension", "information_gain", "projection_error", "kernel_bound", "mean_norm")
    for name in evidence:
        assert torch.equal(getattr(ours.bandit._belief, name)(), getattr(theirs.bandit._belief, name)()), name
    words = ours.words(ours.number)
    asked = [each.bandit.ask(return_ids=True, **words) for each in (ours, theirs)]
    assert torch.equal(asked[0].actions, asked[1].actions)
    assert asked[0].ids == asked[1].ids
    for each, it in zip((ours, theirs), asked, strict=True):
        each.bandit.forget(ids=it.ids)


def is_stretched(player):
    return isinstance(player.bandit._known, Stretch)


def may_join(case):
    """Say whether a dictionary may just have changed."""
    return case.startswith(("bkb", "ek-ucb"))


@pytest.fixture
def plain(monkeypatch):
    """Call it to make a bandit by hand whose rounds are never plain."""

    def made(case):
        bandit = CASES[case]()
        bandit._pieces.__dict__["is_plain"] = False
        return Player(bandit)

    return made


@pytest.mark.filterwarnings("ignore:The dictionary is full")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("way", ["play", "run"])
def test_a_stretch_changes_nothing(case, way, plain):
    stretched, calm = Player(CASES[case]()), plain(case)
    for rounds in (5, 40, 3, 64, 9):
        getattr(stretched, way)(rounds)
        calm.play(rounds)
        assert is_stretched(stretched) or may_join(case)
        assert not is_stretched(calm)
        agree(stretched, calm)


def known_rewards(player, rounds):
    """What ``Player.reward`` says of all arms in rounds to come, (r, A)."""
    numbers = range(player.number, player.number + rounds)
    return torch.tensor([[player.reward(arm, {}, number) for arm in ARMS.split(1)] for number in numbers], dtype=DOUBLE)


@pytest.mark.filterwarnings("ignore:The dictionary is full")
@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith("ek-ucb")])
def test_rounds_whose_rewards_are_known_are_those_of_ask_and_tell(case, plain):
    calm, ahead, X = plain(case).play(98), Player(CASES[case]()), []
    for rounds in (1, 3, 40, 54):
        X.append(ahead.bandit.run(known_rewards(ahead, rounds)))
        ahead.number += rounds
    agree(calm, ahead)
    assert torch.equal(torch.cat(X), ahead.bandit.history.X)


@pytest.mark.parametrize("case", ["ek-ucb, full", "ek-ucb, full, of close points", "ek-ucb, close points"])
def test_rounds_are_plain_while_the_dictionary_stays(case):
    """Also where it is full, where points that left it still span, and where these are close to each other."""
    player, seen = Player(CASES[case]()).play(60), []
    for _ in range(60):
        player.play(1)
        table = player.bandit._belief.posterior
        seen.append((is_stretched(player), table.learns_residual, bool(table.posterior.left_out), table._is_fragile))
    stretched = [row for row in seen if row[0]]
    assert len(stretched) > 5
    assert all(row[1] for row in stretched) == ("full" in case)
    assert any(row[2] for row in stretched) == ("full" in case)
    assert any(row[3] for row in stretched) or "close" not in case


def test_a_full_dictionary_says_so_in_the_same_round(plain):
    case, rounds = "bkb, full, warns", ([], [])
    for said, player in zip(rounds, (Player(CASES[case]()), plain(case)), strict=True):
        for number in range(60):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                player.play(1)
            said.extend([number] * len(caught))
    assert rounds[0] == rounds[1]
    assert len(rounds[0]) == 1


@pytest.mark.parametrize("case", ["bkb, full", "bkb, full, mean"])
def test_rounds_on_arms_are_plain_while_a_full_dictionary_stays(case):
    player, seen = Player(CASES[case]()).play(60), 0
    for _ in range(60):
        player.play(1)
        seen += is_stretched(player)
        assert player.bandit._belief.learns_residual
    assert seen > 30


@pytest.mark.parametrize("name", ["ek-ucb", "bkb"])
def test_a_full_dictionary_that_refuses_leaves_all_as_it_was(name):
    """The reward may be told again, or the point be forgotten; both forms refuse the same one."""
    words = {"max_dictionary": 6, "when_full": "raise"}

    def made():
        return Player(
            in_contexts(**words) if name == "ek-ucb" else on_arms(name, beta=2.0, resampling="growth", **words)
        )

    players = [made(), made()]
    players[1].bandit._pieces.__dict__["is_plain"] = False
    told = []
    for player in players:
        with pytest.raises(DictionaryFullError):
            player.play(200)
        bandit, number = player.bandit, player.number
        assert (bandit.round, len(bandit.pending), len(bandit.history.X)) == (number, 1, number)
        with pytest.raises(DictionaryFullError):
            bandit.tell(ids=bandit.pending_ids[0], y=0.1)
        assert len(bandit.pending) == 1
        bandit.forget()
        told.append(number)
    assert told[0] == told[1] > 5
    agree(*players)


def test_a_memory_made_of_ours_counts_as_its_own_noise_says():
    class Fading(SlidingWindow):
        keeps_noise = False

        def noise(self, times, now, regularization):
            return super().noise(times, now, regularization) * (1.0 + now - times)

    player = Player(on_arms("gp-ts", beta=1.0, memory=Fading(12.0))).play(30)
    bandit = player.bandit
    assert not is_stretched(player)
    history = bandit.history
    ages = bandit._belief.now - history.times
    counts = ages <= 12.0
    X, Y, noise = (each[counts].numpy() for each in (history.X, history.Y, LAMBDA * (1.0 + ages)))
    K, k = oracles.rbf(0.4)(X, X), oracles.rbf(0.4)(X, ARMS.numpy())
    mean = k.T @ np.linalg.solve(K + np.diag(noise), Y)
    assert 0 < len(X) < 30
    assert difference(bandit._belief.moments(ARMS)[0], mean) < 1e-9  # a condition number below 1e3


@pytest.mark.parametrize("is_capped", [False, True])
def test_a_rule_made_of_ours_selects_in_every_round(is_capped):
    numbers = []

    class Ours(CappedDictionary if is_capped else RidgeLeverageSampling):
        def select(self, played, generator=None):
            numbers.append(played.size)
            return super().select(played, generator)

    words = {"kernel": rbf(), "regularization": LAMBDA, "width": ConstantWidth(2.0), "seed": 0}
    rule = Ours(RidgeLeverageSampling(3.0, "growth"), 12, "stop") if is_capped else Ours(3.0, "growth")
    Player(Bandit(candidates=Arms(ARMS), acquisition=UpperConfidenceRule(), dictionary=rule, **words)).play(30)
    assert len(numbers) == 30


@pytest.mark.parametrize("case", ["igp-ucb", "sw-gp-ucb", "bkb, growth", "ek-ucb"])
def test_long_stretches_are_written_up(case, plain, monkeypatch):
    monkeypatch.setattr("torch_kbandits.bandit.stretch._LONGEST", 20)
    stretched, calm = Player(CASES[case]()).play(70), plain(case).play(70)
    agree(stretched, calm)


@pytest.mark.parametrize("case", ["igp-ucb", "gp-ei", "sw-gp-ucb", "bkb, growth", "bkb, coupled", "ek-ucb"])
@pytest.mark.parametrize("seed", range(3))
def test_whatever_comes_between_changes_nothing(case, seed, plain, tmp_path):
    """Looks, batches, plays out of order, strangers, failures, saved files and copies, at random."""
    random = np.random.default_rng(seed)
    players = [Player(CASES[case]()), plain(case)]

    def looked(player):
        bandit = player.bandit
        return bandit.round, bandit.num_asked, len(bandit.history.X), float(bandit.beta), len(bandit.pending)

    def several(player):
        words = player.words(player.number)
        X = player.bandit.ask(3, **words)
        for row in (2, 0, 1):
            x = X[row : row + 1]
            player.bandit.tell(x, player.reward(x, words, row), **player.told(words))
        player.number += 1

    def by_id(player):
        words = player.words(player.number)
        asked = player.bandit.ask(return_ids=True, **words)
        player.bandit.tell(ids=asked.ids[0], y=player.reward(asked.actions, words, 0))
        player.number += 1

    def forgotten(player):
        words = player.words(player.number)
        player.bandit.forget(player.bandit.ask(**words), **player.told(words))

    def stranger(player):
        words = player.words(player.number)
        looked(player)
        x = player.bandit.ask(**words)
        player.bandit.tell(x + 0.25, 0.3, **player.told(words))
        player.bandit.tell(x, 0.4, **player.told(words))
        player.number += 1

    def saved(player):
        player.bandit.ask(**player.words(player.number))
        player.bandit.save(tmp_path / "bandit")
        player.bandit = Bandit.load(tmp_path / "bandit", into=CASES[case]())
        player.bandit.forget()

    def copied(player):
        before, player.bandit = player.bandit, deepcopy(player.bandit)
        words = player.words(player.number)
        before.tell(before.ask(**words), 7.0, **player.told(words))

    def switched(player):
        with use_compiled(False):
            player.play(2)

    # What a loaded bandit computed afresh, and what PyTorch computes, is the same to rounding only.
    exact = [looked, several, by_id, forgotten, copied, *([] if case == "ek-ucb" else [stranger])]
    for step in [*random.permutation(exact), *random.permutation(exact)]:
        for player in players:
            player.play(10)
            step(player)
        agree(*players)
    for step in (saved, switched, stranger):
        for player in players:
            step(player)
            player.play(15)
        ours, theirs = (each.bandit.history for each in players)
        assert torch.equal(ours.X, theirs.X)
        assert torch.equal(ours.Y, theirs.Y)


@pytest.mark.parametrize("case", ["igp-ucb", "ek-ucb"])
def test_a_stretch_believes_what_the_dense_posterior_says(case):
    """An oracle that shares no code: the posterior of the history and the dictionary in plain float64."""
    player = Player(CASES[case]()).play(80)
    assert is_stretched(player)
    history = deepcopy(player.bandit).history
    X, Y = history.X.numpy(), history.Y.numpy()
    belief, kernel = player.bandit._known.course.belief, oracles.rbf(0.4 if case == "igp-ucb" else 0.6)
    mean, variance = belief.moments(torch.from_numpy(X))
    K = kernel(X, X)
    if case == "ek-ucb":
        Z = belief.inducing_points.numpy()
        root = np.linalg.cholesky(kernel(Z, Z) + 1e-12 * np.eye(len(Z)))
        z = np.linalg.solve(root, kernel(Z, X))
        inverse = np.linalg.inv(np.eye(len(Z)) + z @ z.T / LAMBDA)
        expected = z.T @ inverse @ z @ Y / LAMBDA
        spread = np.diag(K) - (z * z).sum(0) + (z * (inverse @ z)).sum(0)
    else:
        A = K + LAMBDA * np.eye(len(X))
        expected, spread = K @ np.linalg.solve(A, Y), np.diag(K - K @ np.linalg.solve(A, K))
    # λ is 0.1 and K at most 80: a condition number below 1e3; of the dictionary's values below 1e5.
    assert difference(mean, expected) < 1e-8
    assert difference(variance, spread) < 1e-8


def test_what_was_chosen_keeps_nothing_of_the_other_actions():
    player = Player(CASES["ek-ucb"]()).play(60)
    course = player.bandit._known.course
    assert course.record.number > course._latest.number > 0
    assert all(choice.seen is None for choice in course.record.choices())
    assert all(choice.seen[0].base is None for choice in course._latest.choices())


def test_what_is_no_plain_reward_is_refused_or_learned_as_ever(plain):
    players = [Player(CASES["igp-ucb"]()).play(12), plain("igp-ucb").play(12)]
    for player in players:
        bandit = player.bandit
        x = bandit.ask()
        for y in (float("nan"), float("inf"), "one", None, [0.1, 0.2], torch.zeros(2), 10**400):
            with pytest.raises(InputError):
                bandit.tell(x, y)
            assert torch.equal(bandit.pending, x)
        with pytest.raises(InputError):
            bandit.tell(x, 0.1, context=torch.zeros(1, dtype=DOUBLE))
        with pytest.raises(InputError):
            bandit.ask(context=torch.zeros(1, dtype=DOUBLE))
        with pytest.raises(InputError):
            bandit.ask(time=3.0)
        for ids in (True, torch.tensor([0, 1]), "0", 10**6, (x,)):
            with pytest.raises(InputError):
                bandit.tell(ids=ids, y=0.1)
        bandit.tell(x, 0.1)
        for y in (1, np.float32(0.5), torch.tensor([0.3]), torch.tensor([[0.2]], dtype=DOUBLE), [0.7]):
            bandit.tell(bandit.ask(), y)
    agree(*players)


def test_points_that_were_changed_by_who_asked_are_strangers(plain):
    players = [Player(CASES["igp-ucb"]()).play(12), plain("igp-ucb").play(12)]
    for player in players:
        x = player.bandit.ask()
        x += 0.5
        player.bandit.tell(x, 0.3)
        assert len(player.bandit.pending) == 1
        player.bandit.forget()
    agree(*players)


def test_pull_may_look_at_anything(plain):
    seen, rounds = [], 30
    players = [Player(CASES["igp-ucb"]()).play(12), plain("igp-ucb").play(12)]

    def pull(x, bandit):
        if bandit.round % 7 == 0:
            seen.append((bandit.round, len(bandit.history.X), float(bandit.beta), len(bandit.pending)))
            bandit.recommend()
        return float(x.sum())

    for player in players:
        player.bandit.run(lambda x, bandit=player.bandit: pull(x, bandit), rounds)
    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]
    agree(*players)
    with pytest.raises(InputError, match="must not ask"):
        players[0].bandit.run(lambda x: players[0].bandit.tell(ARMS[:1], 0.0) or 0.0, 1)


def test_a_failed_pull_in_a_stretch_leaves_the_rounds_before_it(plain):
    players = [Player(CASES["ek-ucb"]()).play(12), plain("ek-ucb").play(12)]
    for player in players:
        rewards = iter([0.3, 0.1])
        with pytest.raises(StopIteration):
            player.bandit.run(lambda x, it=rewards: next(it), 5, offered=player.words)
        assert (player.bandit.round, len(player.bandit.pending)) == (14, 0)
        with pytest.raises(InputError):
            player.bandit.run(lambda x: float("nan"), 1, offered=player.words)
        assert (player.bandit.round, len(player.bandit.pending)) == (14, 0)
    agree(*players)


@pytest.mark.patience
def test_a_stretch_begins_when_rounds_have_been_plain_for_long_enough():
    player = Player(CASES["igp-ucb"]()).play(PATIENCE)
    assert not is_stretched(player)
    assert is_stretched(player.play(1))
    player.bandit.tell(player.bandit.ask(3), [0.1, 0.2, 0.3])
    assert not is_stretched(player.play(PATIENCE))
    assert is_stretched(player.play(1))


@pytest.mark.parametrize("case", ["igp-ucb", "gp-ts", "sw-gp-ucb", "bkb, coupled", "ek-ucb"])
def test_who_looks_in_every_round_finds_what_there_is_and_ends_nothing(case, plain):
    stretched, calm = Player(CASES[case]()).play(12), plain(case).play(12)
    for _ in range(30):
        for player in (stretched, calm):
            player.play(1)
        known = stretched.bandit._standing
        assert stretched.bandit._standing is known
        looked = [(each.bandit.inducing_points, each.bandit.history) for each in (stretched, calm)]
        assert torch.equal(looked[0][1].X, looked[1][1].X)
        assert torch.equal(looked[0][0], looked[1][0])
        assert is_stretched(stretched) or case == "ek-ucb"
    agree(stretched, calm)


def outcome(player):
    """What a twin must share."""
    bandit, words = player.bandit, player.words(200)
    state = bandit.state_dict()
    numbers = [state["num_learned"], state["num_asked"], bandit.round, *bandit.pending_ids]
    chosen = bandit.ask(2, remember=False, **words)
    mean, variance = bandit._belief.moments(state["history"]["X"])
    history = state["history"]
    return [history["X"], history["Y"], torch.tensor(numbers), state["pending"], chosen, mean, variance]


def same(ours, theirs):
    return all(a.shape == b.shape and difference(a, b) < 1e-9 for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("case", ["igp-ucb", "sw-gp-ucb", "bkb, coupled", "ek-ucb"])
@pytest.mark.parametrize("call", ["ask", "tell", "run", "run ahead", "look"])
@pytest.mark.parametrize("lines", ["swaps", pytest.param("all", marks=pytest.mark.slow)])
def test_an_interrupt_anywhere_in_a_stretch_changes_nothing(case, call, lines):
    """It finds the round before the call, or all of it; and what comes then is as it would have been."""
    start = Player(CASES[case]()).play(25)
    words, x = start.words(100), None
    if call == "run ahead" and words:
        pytest.skip("rewards of all arms are known of arms")
    if call == "tell":
        x = start.bandit.ask(**words)

    def made(player):
        if call == "ask":
            player.bandit.ask(**words)
        elif call == "tell":
            player.bandit.tell(x, 0.3, **player.told(words))
        elif call == "run":
            player.bandit.run(lambda _: 0.25, 1, offered=player.words)
        elif call == "run ahead":
            player.bandit.run(torch.full((1, len(ARMS)), 0.25, dtype=DOUBLE))
        else:
            assert len(player.bandit.history.X) == 25

    assert is_stretched(start)
    before, twin = outcome(deepcopy(start)), deepcopy(start)
    made(twin)
    after, broken = outcome(twin), []
    numbers = swaps(lambda: made(deepcopy(start))) if lines == "swaps" else count(1, 2)
    for line in numbers:
        player = deepcopy(start)
        with Interrupt(line) as interrupt:
            made(player)
        if interrupt.at is None:
            break
        copy = deepcopy(player)
        found = outcome(copy)
        if same(found, before):
            made(player)
            found = outcome(player)
        if not same(found, after):
            broken.append(interrupt.at)
    assert broken == []


@pytest.mark.parametrize("case", ["bkb, growth", "bkb, coupled", "bkb, draws"])
def test_bounds_are_used_in_a_stretch_as_else(case, plain, monkeypatch):
    """Where a pass would cost more, arms that cannot be chosen are not looked at."""
    monkeypatch.setattr("torch_kbandits.tables.lazy._WORTHWHILE", 0)
    monkeypatch.setattr("torch_kbandits.tables.lazy._FIRST", 8)
    stretched, calm, shares = Player(CASES[case]()), plain(case), []
    for way in ("play", "run") * 8:
        getattr(stretched, way)(9)
        calm.play(9)
        shares.append(stretched.bandit.visited_share)
        assert shares[-1] == calm.bandit.visited_share
        agree(stretched, calm)
    assert min(shares) < 1.0 or case == "bkb, draws"
