"""Which row was chosen, slates of different actions, what may not be played now: for every kind of bandit."""

import numpy as np
import oracles
import pandas as pd
import pytest
import torch
from kinds import ARMS, CHANGING, CONTEXTS, KINDS, composed, make, play, points, same, started
from problems import difference, in_a_file, rbf, reward

import torch_kbandits as kb
from torch_kbandits.bandit import StayRule
from torch_kbandits.candidates import Box, Configurations
from torch_kbandits.candidates.timed import listing_of, untimed

pytestmark = pytest.mark.usefixtures("short_searches")
LISTED = [
    name
    for name, kind in KINDS.items()
    if not isinstance(own := untimed(kind.make().candidates), (Box, Configurations))
    and getattr(own, "bounds", None) is None
]
LIMITED = {"outcomes", "outcomes in batches", "safe"}
NAMED = [f"arm {number}" for number in range(len(ARMS))]


def listed(bandit, words):
    """The actions that may be played in a round, (A, a)."""
    listing = listing_of(bandit.candidates, words.get("candidates"))
    return listing.actions(list(range(listing.size)))


def without_rows(bandit):
    """The state, but for the rows and propensities noted of what is pending, and what depends on all of it."""
    state = bandit.state_dict()
    return {name: part for name, part in state.items() if name not in ("pending", "checksum")} | {
        "pending": {name: part for name, part in state["pending"].items() if name not in ("rows", "propensities")}
    }


@pytest.mark.one_in(9)
@pytest.mark.parametrize("name", KINDS)
def test_details_change_no_choice_and_say_what_the_model_does(name):
    kind = KINDS[name]
    bandit, plain = started(kind), started(kind)
    bandit.forget()
    plain.forget()
    words = kind.words(kind.rounds + 1)
    asked, expected = bandit.ask(3, details=True, **words), plain.ask(3, **words)
    assert torch.equal(points(asked.x), points(expected))
    assert same(without_rows(bandit), without_rows(plain))
    assert asked.ids == plain.pending_ids == bandit.pending_ids
    if name in LISTED:
        assert torch.equal(listed(bandit, words)[asked.rows], asked.x)
    else:
        assert asked.rows is asked.names is None
    posterior = bandit.model.posterior(bandit.pending.unsqueeze(-2))
    mean, std = posterior.mean.flatten(), posterior.variance.flatten().sqrt()
    assert difference(asked.mean, mean) < 1e-6
    if bandit.batches is None:  # nothing else was pending then
        assert abs(float(asked.std[0] - std[0])) < 1e-6
    assert bool((asked.std <= std + 1e-6).all())
    looked = bandit.ask(3, details=True, remember=False, **words)
    assert (looked.ids, len(bandit.pending)) == ((), 3)


@pytest.mark.one_in(9)
@pytest.mark.parametrize("name", LISTED)
def test_slates_differ_and_leave_out_what_is_excluded(name):
    """Whatever the rule: with limits, in batches, in stages, drawn or not; equal actions are told apart by row."""
    kind = KINDS[name]
    bandit = started(kind)
    for number in range(kind.rounds + 1, kind.rounds + 4):
        words = kind.words(number)
        size = len(listed(bandit, words))
        usual = bandit.ask(remember=False, details=True, **words).rows
        excluded = sorted({*usual.tolist(), 0, size - 1})
        if size - len(excluded) < 2:
            excluded = excluded[:1]
        mask = torch.zeros(size, dtype=torch.bool)
        mask[excluded] = True
        try:
            asked = bandit.ask(2, distinct=True, exclude=excluded, details=True, **words)
        except (kb.InputError, kb.InfeasibleError):  # limits may leave less
            if name not in LIMITED:
                raise
            continue
        assert len({*asked.rows.tolist()}) == 2
        assert not mask[asked.rows].any()
        assert torch.equal(listed(bandit, words)[asked.rows], asked.x)
        bandit.forget(ids=asked.ids)
        assert torch.equal(bandit.ask(2, distinct=True, exclude=mask, **words), asked.x)
        bandit.tell(ids=bandit.pending_ids, **kind.told(bandit.pending, number))


@pytest.mark.one_in(9)
@pytest.mark.parametrize("name", LISTED)
def test_rewards_told_by_row_are_told_by_point(name):
    kind = KINDS[name]
    by_row, by_point = started(kind), started(kind)
    words = kind.words(kind.rounds + 1)
    where = {word: words[word] for word in ("context", "time") if word in words}
    table = listed(by_row, words)
    x, told = table[[0, 2]], kind.told(table[[0, 2]], kind.rounds)
    for bandit in (by_row, by_point):
        bandit.ask(**words)
    brought = {"candidates": words["candidates"]} if "candidates" in words else {}
    by_row.tell(rows=[0, 2], **told, **where, **brought)
    by_point.tell(x, **told, **where)
    assert same(by_row.state_dict(), by_point.state_dict())
    chosen = [bandit.ask(2, details=True, **kind.words(kind.rounds + 2)) for bandit in (by_row, by_point)]
    assert torch.equal(chosen[0].x, chosen[1].x)


def test_equal_actions_are_told_apart_by_row_and_by_id():
    equal = ARMS[[0, 0, 1], :1]
    bandit = make("ek-ucb", candidates=CHANGING)
    words = {"context": CONTEXTS[0], "candidates": equal}
    asked = bandit.ask(3, distinct=True, details=True, **words)
    assert {*asked.rows.tolist()} == {0, 1, 2}
    number = asked.rows.tolist().index(1)
    bandit.tell(rows=1, y=0.5, **words)
    assert bandit.pending_ids == tuple(each for each in asked.ids if each != asked.ids[number])
    again = make("ek-ucb", candidates=CHANGING)
    again.load_state_dict(bandit.state_dict())  # what is pending keeps its rows
    for each in (bandit, again):
        each.tell(rows=0, y=0.5, **words)
        assert each.pending_ids == (asked.ids[asked.rows.tolist().index(2)],)


def test_excluded_actions_are_as_if_they_were_not_there():
    """Of a rule that draws nothing: the choice among what is left is that of a round that brings no more."""
    safe = kb.AtLeast(kb.Outcome("heat", kb.Prior(rbf(0.3), 0.05)), -0.5, safe_seed=ARMS[:4, :1])
    for name, more in (("ek-ucb", {}), ("gp-ei", {}), ("gp-pi", {}), ("ek-ucb", {"constraints": [safe]})):
        bandit, moved = make(name, candidates=CHANGING, **more), 0
        for number in range(16):
            words = {"context": CONTEXTS[number % 2], "candidates": ARMS[:, :1]}
            best = [*reward(ARMS[:, :1]).topk(16).indices.tolist(), number]
            left = [row for row in range(60) if row not in best or row < 3]
            asked = bandit.ask(exclude=[row for row in best if row >= 3], remember=False, **words)
            fewer = bandit.ask(remember=False, context=words["context"], candidates=ARMS[left, :1])
            assert number == 0 or torch.equal(asked, fewer), (name, number)  # at first all are equal
            x = bandit.ask(**words)
            moved += not torch.equal(x, asked)
            bandit.tell(
                x,
                **{"y": reward(x)} | ({"outcomes": {"heat": torch.cos(x[:, 0])}} if more else {}),
                context=words["context"],
            )
        assert moved > 4


def test_a_slate_is_the_greedy_one_of_the_dense_posterior():
    """Each next action has the largest bound of those left, given that the ones before returned their mean."""
    bandit, beta, noise = composed(kernel=rbf(0.3)), 1.5, 0.05
    play(KINDS["gp-ucb"], bandit, 6)
    bandit.forget()
    told = bandit.history
    left, before = [row for row in range(60) if row not in (4, 8)], ARMS[:0]
    for row in bandit.ask(6, distinct=True, exclude=[4, 8], details=True).rows.tolist():
        X = torch.cat([told.X, before]).numpy()
        found = oracles.exact(oracles.rbf(0.3), X, np.zeros(len(X)), np.full(len(X), noise), ARMS.numpy())
        mean = oracles.exact(
            oracles.rbf(0.3), told.X.numpy(), told.Y.numpy(), np.full(len(told.X), noise), ARMS.numpy()
        )
        bounds = mean.mean + beta * np.sqrt(found.variance)
        assert bounds[row] >= bounds[left].max() - 1e-9
        left.remove(row)
        before = torch.cat([before, ARMS[[row]]])


def test_a_rule_that_stays_repeats_nothing_that_is_excluded():
    bandit = composed(batches=StayRule(200.0))
    first = bandit.ask(2, details=True)
    assert len({*first.rows.tolist()}) == 1
    other = bandit.ask(2, exclude=first.rows[:1], details=True)
    assert first.rows[0] not in other.rows
    assert len({*bandit.ask(None, distinct=True, details=True, remember=False).rows.tolist()}) == 1
    assert len({*bandit.ask(4, distinct=True, details=True).rows.tolist()}) == 4


def test_names_of_arms_of_actions_and_of_a_round():
    frame = pd.DataFrame(ARMS.numpy(), index=NAMED)
    for arms in (kb.Arms(ARMS, names=NAMED), kb.Arms(frame), kb.Arms(in_a_file(ARMS), names=pd.Index(NAMED))):
        bandit = composed(candidates=arms)
        asked = bandit.ask(3, exclude=NAMED[:20], details=True)
        assert asked.names == tuple(NAMED[row] for row in asked.rows)
        assert asked.rows.min() >= 20
        bandit.tell(rows=asked.names[0], y=0.5)
        assert bandit.pending_ids == asked.ids[1:]
    assert kb.Arms(pd.DataFrame(ARMS.numpy())).arm_names is None  # rows that are only numbered
    assert kb.Arms(pd.DataFrame(ARMS.numpy()[:2], index=[7, 9])).arm_names == ("7", "9")
    assert kb.Arms(pd.DataFrame(ARMS.numpy()[:2], index=[7, 7])).arm_names is None
    bandit = make("ek-ucb", candidates=CHANGING)
    offers = frame.iloc[5:9, :1]
    asked = bandit.ask(2, context=CONTEXTS[0], candidates=offers, distinct=True, details=True)
    assert asked.names == tuple(offers.index[asked.rows.tolist()])
    bandit.tell(rows=list(asked.names), candidates=offers, context=CONTEXTS[0], y=[0.1, 0.2])
    assert bandit.pending_ids == ()
    bandit = make("ek-ucb", candidates=kb.ContextualActions(frame.iloc[:9, :1], context_dim=1))
    assert bandit.ask(context=CONTEXTS[0], exclude=NAMED[:8], details=True).names == (NAMED[8],)


REFUSED = [
    (lambda b: b.ask(exclude=range(60)), "leaves none of the 60"),
    (lambda b: b.ask(exclude=[True] * 60), "leaves none of the 60"),
    (lambda b: b.ask(exclude=[60]), "rows from 0 to 59", "got 60"),
    (lambda b: b.ask(exclude=[-1]), "got -1"),
    (lambda b: b.ask(exclude="arm 60"), "no action is named 'arm 60'", "did you mean"),
    (lambda b: b.ask(exclude=[0.5]), "exclude must be one or more whole numbers"),
    (lambda b: b.ask(exclude=[True, False]), "exclude must be one or more whole numbers"),
    (lambda b: b.ask(61, distinct=True), "q=61", "only 60"),
    (lambda b: b.ask(41, distinct=True, exclude=range(20)), "only 40"),
    (lambda b: b.ask(distinct=1), "distinct must be True or False"),
    (lambda b: b.tell(rows=[0], x=ARMS[:1], y=0.1), "either x or rows"),
    (lambda b: b.tell(rows=[0], ids=0, y=0.1), "either x or rows", "ids"),
    (lambda b: b.tell(ARMS[:1], 0.1, candidates=ARMS), "either x or rows"),
    (lambda b: b.tell(rows=[0], candidates=ARMS, y=0.1), "leave out candidates"),
    (lambda b: b.tell(rows=[0, 1], y=0.1), "a reward for each of the 2"),
    (lambda b: b.tell(rows=[60], y=0.1), "rows from 0 to 59"),
    (lambda b: b.tell(rows=[True], y=0.1), "whole numbers"),
    (lambda b: b.tell(rows="nobody", y=0.1), "no action is named 'nobody'", "there are 60"),
]


def test_what_does_not_fit_is_refused_and_changes_nothing():
    bandit = composed(candidates=kb.Arms(ARMS, names=NAMED))
    bandit.tell(bandit.ask(), 0.5)
    bandit.ask()
    before = bandit.state_dict()
    for call, *parts in REFUSED:
        with pytest.raises(kb.InputError) as caught:
            call(bandit)
        assert all(part in str(caught.value) for part in parts), str(caught.value)
        assert same(bandit.state_dict(), before)
    for other, hint in (
        (make("ek-ucb", candidates=CHANGING), "candidates="),
        (KINDS["gp-ucb, box"].make(), "a finite set"),
        (KINDS["configurations"].make(), "a finite set"),
    ):
        with pytest.raises(kb.InputError, match=hint):
            other.tell(rows=[0], y=0.1, **({"context": CONTEXTS[0]} if other.candidates.is_contextual else {}))
    with pytest.raises(kb.InputError, match="finite set"):
        KINDS["gp-ucb, box"].make().ask(exclude=[0])
    with pytest.raises(kb.InputError, match="these actions have none"):
        composed().ask(exclude="arm 0")
    for names, hint in (
        (NAMED[:3], "for each of the 60"),
        (["a"] * 60, "must differ, got 'a' 60 times"),
        ("ab", "list"),
    ):
        with pytest.raises(kb.InputError, match=hint):
            kb.Arms(ARMS, names=names)
