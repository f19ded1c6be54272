"""Stages of any posterior: with dictionaries, memories, batches and arms that are not in memory, beside dense ones."""

from copy import deepcopy
from math import inf

import numpy as np
import oracles
import pytest
import torch
from forgetting import ACTIONS, ARMS, CONTEXTS, KERNEL, LAMBDA, MEMORIES, Forgetting
from problems import DOUBLE, dense, difference, matern, reward

from torch_kbandits import (
    ArmBlocks,
    Arms,
    Bandit,
    ConstantWidth,
    ContextualActions,
    FixedDictionary,
    History,
    InputError,
    RidgeLeverageSampling,
    StateMismatchError,
    UniformDictionary,
    algorithms,
)
from torch_kbandits.acquisition import StagedRule, UpperConfidenceRule
from torch_kbandits.bandit.adaptation import BanditOverBandit, ResidualTrigger
from torch_kbandits.bandit.batches import GlobalBatchRule, LocalBatchRule, StayRule
from torch_kbandits.beliefs import StagedBelief, Terms, belief_over
from torch_kbandits.candidates.timed import untimed
from torch_kbandits.dictionaries import KORS, CappedDictionary
from torch_kbandits.memory import BackToPrior, Discount, SlidingWindow

BETA, HORIZON = 0.4, 60  # so that a few rounds go through all three stages
RATE = 0.02
SIX = ARMS[:6]
MANY = torch.rand(600, 2, generator=torch.Generator().manual_seed(7), dtype=DOUBLE)
SPACES = {
    "arms": lambda: Arms(SIX),
    "arms in blocks": lambda: Arms(ArmBlocks(SIX.split(4).__getitem__, 2)),
    "contexts": lambda: ContextualActions(ACTIONS, context_dim=1),
    "changing": lambda: ContextualActions(action_dim=1, context_dim=1),
}
DICTIONARIES = {
    "exact": None,
    "fresh": RidgeLeverageSampling(2.0),
    "coupled": RidgeLeverageSampling(2.0, "coupled"),
    "kors": KORS(0.5),
    "capped": CappedDictionary(RidgeLeverageSampling(3.0), 3, "stop"),
}
#: So much noise that several points are explored in a batch.
NOISY = {"regularization": 1.0, "width": ConstantWidth(1.0)}
ALL = MEMORIES | {
    "none": Forgetting(None, lambda t, now: np.full(len(t), LAMBDA)),
    "prior on time": Forgetting(BackToPrior(RATE), lambda t, now: np.full(len(t), LAMBDA)),
}


def make(space="arms", posterior="exact", memory="none", **words):
    candidates = SPACES[space]() if isinstance(space, str) else space
    settings = {"kernel": matern(0.5, 1.7), "regularization": LAMBDA, "seed": 3, "width": ConstantWidth(BETA)}
    settings |= {"acquisition": StagedRule(HORIZON), "memory": ALL[memory].memory}
    settings |= {"dictionary": DICTIONARIES[posterior]}
    return Bandit(candidates=candidates, **(settings | words))


def offer(bandit, number):
    """What ``ask`` is given in a round."""
    candidates = untimed(bandit.candidates)
    if not candidates.is_contextual:
        return {}
    words = {"context": CONTEXTS[number % len(CONTEXTS)]}
    return words if candidates.set is not None else words | {"candidates": ACTIONS[: 3 + number % 4]}


def points_of(bandit, x, words, now):
    """Points (q, d) as the kernel sees them."""
    if "context" in words:
        x = torch.cat([words["context"].expand(len(x), -1), x], dim=-1)
    return torch.cat([torch.full_like(x[:, :1], now), x], dim=-1) if bandit.candidates.is_timed else x


class Dense:
    """The posteriors of the stages by their formulas, given what was told, what is pending and the dictionaries."""

    def __init__(self, bandit, memory, now):
        state, ledger = bandit.state_dict(), bandit._standing.ledger
        history = state["history"]
        times = history["rounds"] if history["times"] is None else history["times"]
        X, y, times, stages = dense(history["X"], history["Y"], times, history["stages"])
        learned = slice(ledger.num_forgotten, ledger.num_learned)
        self.level, self.beta, noise = bandit.regularization, float(bandit.beta), np.full(len(X), inf)
        noise[learned] = self.level
        if memory != "none":  # what counts is decided for all stages at once
            noise[learned] = ALL[memory].noise(times[learned], now)
        counts, held = np.isfinite(noise), np.arange(len(X)) >= ledger.num_learned
        self.X, self.y, self.noise, self.stages = X[counts], y[counts], noise[counts], stages[counts]
        waiting, waiting_stages = dense(state["pending"], state["pending_stages"])
        self.pending = np.concatenate([X[held], waiting])
        self.pending_stages = np.concatenate([stages[held], waiting_stages])
        parts = [bandit._belief.everything, *bandit._belief.stage_beliefs]
        self.Z = None if bandit.dictionary is None else [dense(part.inducing_points)[0] for part in parts]
        self.kernel = oracles.in_time(KERNEL, RATE) if bandit.candidates.is_timed else KERNEL

    def posterior(self, stage, T, ahead=False):
        """Of everything told for stage 0; with what is pending if we look ahead."""
        own = slice(None) if stage == 0 else self.stages == stage
        X, y, noise = self.X[own], self.y[own], self.noise[own]
        more = self.pending if stage == 0 else self.pending[self.pending_stages == stage]

        def known(T):
            if self.Z is None:
                return oracles.exact(self.kernel, X, y, noise, T)
            return oracles.dtc(self.kernel, X, y, noise, self.Z[stage], T)

        return oracles.with_pending(known, T, more if ahead else more[:0], self.level)

    def bounds(self, stage, T):
        variance = self.posterior(stage, T, ahead=True).variance
        return self.posterior(stage, T).mean, self.beta * np.sqrt(np.maximum(variance, 0.0))

    def choice(self, points):
        return oracles.chosen_by_stages(lambda stage: self.bounds(stage, dense(points)[0]), HORIZON)


def checked_rounds(bandit, memory, count, first=0, q=2):
    """Play, and compare each choice with the dense one; return in how many it was compared."""
    compared = 0
    for number in range(first, first + count):
        words, now = offer(bandit, number), float(number)
        given = words.get("candidates", ACTIONS if words else SIX)
        points = points_of(bandit, given, words, now)
        for _ in range(1 + number % q):
            best, expected, near = Dense(bandit, memory, now).choice(points)
            x = bandit.ask(**words)
            if not near:
                assert int(bandit.state_dict()["pending_stages"][-1]) == expected, number
                assert bool((given[best] == x).all(-1).any()), number
                compared += 1
        Y = torch.sin(4.0 * bandit.pending).sum(-1)
        bandit.tell(ids=bandit.pending_ids[::-1], y=Y.flip(0))
    return compared


@pytest.mark.one_in(60)
@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("posterior", ["exact", "fresh", "kors"])
@pytest.mark.parametrize("memory", ["none", "window", "window of observations", "discount", "prior on time"])
def test_the_choices_are_those_of_dense_posteriors_of_what_counts_in_each_stage(space, posterior, memory):
    bandit = make(space, posterior, memory)
    assert checked_rounds(bandit, memory, 18) > 20
    assert set(bandit.history.stages.tolist()) >= {1, 2}


@pytest.mark.one_in(12)
@pytest.mark.parametrize("space", ["arms", "arms in blocks", "contexts"])
@pytest.mark.parametrize("posterior", ["exact", "fresh"])
@pytest.mark.parametrize("rule", [GlobalBatchRule(3.0), LocalBatchRule(2.0)], ids=["global", "local"])
def test_what_a_batch_rule_holds_counts_in_its_stage(space, posterior, rule):
    bandit, compared, held = make(space, posterior, batches=rule, **NOISY), 0, []
    for number in range(14):
        compared += checked_rounds(bandit, "none", 1, number, q=3)
        held += [part.stages for part in bandit._standing.ledger.held]
    assert compared > 20
    assert len(held) > 2
    assert torch.cat(held).max() > 0


@pytest.mark.one_in(4)
@pytest.mark.parametrize("posterior", ["exact", "fresh"])
@pytest.mark.parametrize("space", ["arms", "contexts"])
def test_a_batch_ends_by_the_scores_of_the_stages_that_learn_it(space, posterior):
    bandit, threshold, sizes = make(space, posterior, batches=GlobalBatchRule(3.0), **NOISY), 3.0, []
    for number in range(12):
        words, twin = offer(bandit, number), Dense(bandit, "none", 0.0)
        bandit.ask(None, **words)
        X, stages = dense(bandit.pending)[0], bandit.state_dict()["pending_stages"].tolist()
        scores = [float(twin.posterior(s, x[None]).variance[0]) for x, s in zip(X, stages, strict=True)]  # as λ is 1
        totals = 1.0 + np.cumsum(scores)
        assert (totals[:-1] < threshold + 1e-9).all()
        assert totals[-1] > threshold - 1e-9
        bandit.tell(ids=bandit.pending_ids, y=torch.sin(4.0 * bandit.pending).sum(-1))
        assert not bandit._standing.ledger.held
        sizes.append(len(X))
    assert max(sizes) > 2
    assert {1, 2} <= set(bandit.history.stages.tolist())


def test_a_point_that_is_repeated_is_of_the_stage_that_chose_it_also_once_loaded():
    words = {"batches": StayRule(9.0), **NOISY}
    bandit, several = make(**words), 0
    for _ in range(12):
        x = bandit.ask(None)
        (stage,) = set(bandit.state_dict()["pending_stages"].tolist())
        if len(x) > 1:
            several += 1
            bandit.tell(ids=bandit.pending_ids[0], y=reward(x[:1]))
            bandit.forget()
            loaded = make(**words)
            loaded.load_state_dict(bandit.state_dict())
            for each in (bandit, loaded):
                assert torch.equal(each.ask(None), x[1:])
                assert each.state_dict()["pending_stages"].tolist() == [stage] * len(x[1:])
        bandit.tell(ids=bandit.pending_ids, y=reward(bandit.pending))
    assert several > 2
    assert set(bandit.history.stages.tolist()) >= {1, 2}


# ---------------------------------------------------------------- the same however it is described


def played(bandit, rounds, first=0, q=2):
    for number in range(first, first + rounds):
        words = offer(bandit, number)
        bandit.ask(1 + number % q, **words)
        if number % 5 != 3:  # else told a round later
            bandit.tell(ids=bandit.pending_ids[::-1], y=torch.sin(4.0 * bandit.pending.flip(0)).sum(-1))
    return bandit.history


def assert_same(ours, theirs):
    for mine, other in zip(ours[:4], theirs[:4], strict=True):
        assert torch.equal(mine, other)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("rule", [FixedDictionary(SIX), RidgeLeverageSampling(1e9)], ids=["fixed", "all selected"])
@pytest.mark.parametrize("memory", ["none", "window", "linear"])
def test_with_all_points_in_the_dictionaries_it_is_the_exact_one(rule, memory):
    assert_same(played(make(memory=memory), 15), played(make(memory=memory, dictionary=rule), 15))


@pytest.mark.one_in(8)
@pytest.mark.parametrize("memory", ["none", "window", "discount", "prior on time"])
@pytest.mark.parametrize("posterior", ["exact", "fresh"])
def test_many_arms_in_blocks_are_chosen_as_those_in_memory(memory, posterior):
    stored = Arms(ArmBlocks(MANY.split(250).__getitem__, 3))
    ours, theirs = (make(each, posterior, memory, width=ConstantWidth(0.8)) for each in (stored, Arms(MANY)))
    assert_same(played(ours, 12), played(theirs, 12))
    assert set(ours.history.stages.tolist()) >= {1, 2}


def test_rows_that_are_equal_share_what_one_is_told():
    twice = torch.cat([SIX, SIX.flip(0)])
    assert set(played(make(Arms(twice)), 16).stages.tolist()) >= {1, 2}
    assert len(played(make(Arms(twice)), 16).X.unique(dim=0)) <= 6


@pytest.mark.one_in(4)
@pytest.mark.parametrize("posterior", ["exact", "fresh", "coupled", "kors"])
def test_what_is_known_of_everything_is_what_a_bandit_without_stages_knows(posterior):
    """Also its dictionary: stages draw from addresses of their own."""
    bandit = make(posterior=posterior, memory="window")
    plain = make(posterior=posterior, memory="window", acquisition=UpperConfidenceRule())
    X, Y, rounds, _, times, *_ = played(bandit, 15)
    bandit.forget()
    plain.replay(History(X, Y, rounds, None, times))
    assert torch.equal(bandit.inducing_points, plain.inducing_points)
    for ours, theirs in zip(bandit._belief.moments(ARMS), plain._belief.moments(ARMS), strict=True):
        assert torch.equal(ours, theirs)
    assert torch.equal(bandit.recommend(), plain.recommend())


def test_stages_draw_their_dictionaries_apart():
    X, Y = ARMS, reward(ARMS)

    def dictionaries(seed, *stages):
        told = History(X.repeat(2, 1), Y.repeat(2), torch.zeros(28).long(), torch.tensor(stages).repeat_interleave(14))
        parts = [belief_over(Arms(ARMS), Terms(matern(), LAMBDA, 0, exact=False)) for _ in range(3)]
        generator = torch.Generator().manual_seed(seed)
        learned = StagedBelief(parts[0], tuple(parts[1:])).learned(told, UniformDictionary(5), generator)
        return [part.inducing_points for part in learned.stage_beliefs]

    (first, second), (empty, alone), (other, _) = dictionaries(0, 1, 2), dictionaries(0, 0, 2), dictionaries(1, 1, 2)
    assert not torch.equal(first, second)
    assert not torch.equal(first, other)
    assert len(empty) == 0
    assert torch.equal(second, alone)  # whatever another stage draws


# ---------------------------------------------------------------- saved, replayed, refused

ONGOING = {
    "a dictionary": {"posterior": "fresh"},
    "a dictionary with weights": {"posterior": "kors"},
    "a dictionary that is coupled, and a window": {"posterior": "coupled", "memory": "window of observations"},
    "a cap, and a prior on time": {"posterior": "capped", "memory": "prior on time"},
    "batches": {"posterior": "fresh", "batches": GlobalBatchRule(3.0)},
    "batches, and noise that grows": {"posterior": "kors", "memory": "discount", "batches": LocalBatchRule(1.5)},
    "an exact posterior that forgets": {"memory": "restart"},
    "memories to choose from": {
        "posterior": "fresh",
        "memories": BanditOverBandit((SlidingWindow(5, "observations"), SlidingWindow(3.0), Discount(0.8)), 4, 0.5),
    },
    "a trigger": {"posterior": "coupled", "trigger": ResidualTrigger(0.5)},
}


@pytest.mark.one_in(20)
@pytest.mark.parametrize("space", ["arms in blocks", "contexts"])
@pytest.mark.parametrize("case", ONGOING)
def test_saved_loaded_and_replayed_ones_go_on_alike(case, space, tmp_path):
    bandit, replayed, loaded = (make(space, **ONGOING[case]) for _ in range(3))
    played(bandit, 9)  # after which something is pending
    bandit.save(tmp_path / "bandit")
    # Arms that a function computes are not in the file.
    loaded = Bandit.load(tmp_path / "bandit", into=None if space == "contexts" else loaded)
    assert torch.equal(loaded.pending, bandit.pending)
    assert_same(played(bandit, 5, 9), played(loaded, 5, 9))
    assert torch.equal(loaded.state_dict()["pending_stages"], bandit.state_dict()["pending_stages"])
    bandit.forget()
    replayed.replay(bandit.history)
    assert_same(played(bandit, 3, 14), played(replayed, 3, 14))


def test_a_state_of_an_exact_one_has_no_dictionaries_of_stages_as_before_there_were_any():
    bandit = make()
    played(bandit, 9)
    assert "stages" not in bandit.state_dict()
    fresh = make()
    fresh.load_state_dict(bandit.state_dict())
    assert_same(played(bandit, 5, 9), played(fresh, 5, 9))


def test_what_is_loaded_shares_no_memory_with_the_state():
    bandit = make(posterior="kors")
    played(bandit, 9)
    state, expected = bandit.state_dict(), bandit.ask(3, remember=False)
    for stage in state["stages"]:
        stage["inducing_points"].fill_(torch.nan)
        stage["dictionary_weights"].fill_(torch.nan)
    assert torch.equal(bandit.ask(3, remember=False), expected)


@pytest.fixture(scope="module")
def of_nine_rounds():
    bandit = make(posterior="kors")
    played(bandit, 9)
    return bandit.state_dict()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda state: state.pop("stages"), "3 stages, and dictionaries of 0"),
        (lambda state: state["stages"].pop(), "3 stages, and dictionaries of 2"),
        (lambda state: state.update(stages="three"), "stages must be a list or tuple"),
        (lambda state: state["stages"].__setitem__(0, 1.0), "a stage is"),
        (lambda state: state["stages"][0].pop("inducing_points"), r"lacks \['stages.inducing_points'\]"),
        (lambda state: state["stages"][0].update(dictionary_weights="some"), "stages.dictionary_weights must be"),
        (lambda state: state["stages"][0].update(inducing_points=torch.zeros(0, 2)), "dtype"),
        (lambda state: state["stages"][0].update(inducing_points=SIX[:0]), "rewards were learned and 0 points"),
        (lambda state: state["stages"][0].update(dictionary_weights=torch.ones(1, dtype=DOUBLE)), "saved weights"),
    ],
)
def test_damaged_dictionaries_of_stages_are_refused(of_nine_rounds, damage, message):
    fresh, state = make(posterior="kors"), deepcopy(of_nine_rounds)
    damage(state)
    with pytest.raises(StateMismatchError, match=message):
        fresh.load_state_dict(state)
    assert fresh.num_told == 0


def test_a_box_is_refused_and_says_what_to_do():
    box = ContextualActions(bounds=torch.tensor([[0.0], [1.0]], dtype=DOUBLE), context_dim=0)
    with pytest.raises(InputError, match=r"finite set of actions: give actions instead of bounds"):
        make(box)


def test_the_named_algorithm_forgets_and_reads_arms_in_blocks():
    words = {"kernel": matern(0.5, 1.7), "regularization": LAMBDA, "seed": 3, "beta": BETA, "horizon": HORIZON}
    named = algorithms.SupKernelUCB(candidates=SPACES["arms in blocks"](), memory=SlidingWindow(6.0), **words)
    assert_same(played(named, 15), played(make("arms in blocks", memory="window"), 15))
    sizes = [part.num_observations for part in named._belief.stage_beliefs]
    assert sum(sizes) < int((named.history.stages > 0).sum())
    theory = {"noise_scale": 0.2, "norm_bound": 1.5, "beta": None}
    stored = algorithms.SupKernelUCB(candidates=SPACES["arms in blocks"](), **(words | theory))
    assert float(stored.beta) == float(algorithms.SupKernelUCB(candidates=SIX, **(words | theory)).beta)


def test_what_is_looked_at_ahead_is_a_value():
    """A copy that goes on takes nothing from the original, whichever of them looked at a stage first."""
    bandit = make(posterior="fresh")
    played(bandit, 2)
    expected, later = bandit.ask(4), make(posterior="fresh")
    assert len(bandit.state_dict()["pending_stages"].unique()) > 1
    played(later, 2)
    for _ in range(2):
        later.ask(3, remember=False)
    assert torch.equal(torch.cat([later.ask(), later.ask(2), later.ask()]), expected)
    assert difference(later.ask(remember=False), bandit.ask(remember=False)) == 0.0


def test_equal_points_of_other_stages_are_other_batches():
    """The score of a batch's first point, by which it is repeated, is that in its stage."""
    bandit = make(Arms(SIX[:1]))
    bandit.tell(SIX[:1], 0.3)  # which no stage learns
    twice, stages = SIX[:1].repeat(2, 1), torch.tensor([1, 0])
    ahead, swapped = (bandit._belief.lookahead(twice, each) for each in (stages, stages.flip(0)))
    assert ahead.looks_from(twice, stages)
    assert not ahead.looks_from(twice, stages.flip(0))
    assert not ahead.looks_from(twice[:1], stages[:1])
    assert difference(ahead.pending_scores(), swapped.pending_scores().flip(0)) == 0.0
    assert float(ahead.pending_scores()[0]) > 1.1 * float(ahead.pending_scores()[1])
