"""Arms that come and go in a table that stays: what is known goes on as if the table had been so from the start."""

import numpy as np
import oracles
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kinds import ARMS, CHANGING, KINDS, composed, future, known, make, same, started
from problems import data, difference, examples, in_a_file, linear, matern, reward

import torch_kbandits as kb
from torch_kbandits.candidates.timed import table_of
from torch_kbandits.confidence import KUCBWidth

pytestmark = pytest.mark.usefixtures("short_searches")
NEW = data(7, 2, seed=77)[0]


def has_table(bandit):
    try:
        return table_of(bandit.candidates) is not None
    except kb.InputError:
        return False


TABLES = [name for name, kind in KINDS.items() if has_table(kind.make()) and name != "means"]  # of a known table


@pytest.mark.one_in(9)
@pytest.mark.parametrize("name", TABLES)
def test_it_goes_on_as_a_bandit_of_the_final_table(name, tmp_path):
    """As one that is made of a file: with the final table from the start, and everything computed afresh."""
    kind = KINDS[name]
    bandit = started(kind)
    table = table_of(bandit.candidates).source.tensor
    gone, new = [0, 2, len(table) - 1], NEW[:, : table.shape[-1]]
    final = torch.cat([table[[row for row in range(len(table)) if row not in gone]], new])
    before, pending = bandit.history, bandit.pending_ids
    bandit.remove_arms(gone)
    bandit.add_arms(new)
    assert same(tuple(bandit.history), tuple(before))
    assert bandit.pending_ids == pending
    assert torch.equal(table_of(bandit.candidates).source.tensor, final)
    assert bandit.guarantee() is not None
    if not kind.loads:
        assert len(future(kind, bandit)) > 0
        return
    bandit.save(tmp_path / "bandit.kb")
    fresh = kb.Bandit.load(tmp_path / "bandit.kb")
    assert same(fresh.state_dict(), bandit.state_dict())
    assert difference(known(kind, fresh), known(kind, bandit)) < 1e-6
    assert difference(future(kind, bandit), future(kind, fresh)) <= kind.tolerance


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 5)),
        st.tuples(st.just("remove"), st.integers(0, 10**6)),
        st.tuples(st.just("tell"), st.integers(0, 10**6)),
    ),
    max_size=14,
)


@examples(12)
@given(OPERATIONS, st.booleans(), st.integers(0, 99))
def test_the_posterior_is_the_dense_one_whatever_came_and_went(operations, is_spread, seed):
    """After every change the largest bound of the dense posterior is played, and its moments are said."""
    kernel, beta, noise = (matern(0.5, 1.7), oracles.matern52(0.5, 1.7)), 1.5, 0.05
    dictionary = kb.FixedDictionary(ARMS[::2].clone()) if is_spread else None
    bandit = composed(kernel=kernel[0], candidates=kb.Arms(ARMS[:5]), dictionary=dictionary, seed=seed)
    table, told, values, fresh = ARMS[:5], ARMS[:0], [], iter(data(100, 2, seed=seed)[0].split(1))
    for operation, number in operations:
        if operation == "add":
            new = torch.cat([next(fresh) for _ in range(number)])
            bandit.add_arms(new)
            table = torch.cat([table, new])
        elif operation == "remove" and len(table) > 1:
            row = number % len(table)
            bandit.remove_arms(row)
            table = torch.cat([table[:row], table[row + 1 :]])
        elif operation == "tell":
            x = table[[number % len(table)]]
            bandit.tell(rows=number % len(table), y=float(reward(x)))
            told, values = torch.cat([told, x]), [*values, float(reward(x))]
        X, y, T = told.numpy(), np.array(values), table.numpy()
        where = (X, y, np.full(len(y), noise))
        if dictionary is None or not values:
            dense = oracles.exact(kernel[1], *where, T)
        else:
            dense = oracles.dtc(kernel[1], *where, ARMS[::2].numpy(), T)
        asked = bandit.ask(remember=False, details=True)
        row, near = int(asked.rows), dense.rounding
        assert torch.equal(table[[row]], asked.x)
        bounds = dense.mean + beta * np.sqrt(dense.variance)
        assert bounds[row] >= bounds.max() - 2.0 * dense.upper_rounding(beta) - 1e-9
        assert abs(float(asked.mean) - dense.mean[row]) <= near
        assert abs(float(asked.std) ** 2 - dense.variance[row]) <= near


def test_what_went_may_still_be_told_and_is_neither_asked_for_nor_recommended(tmp_path):
    bandit = composed(candidates=kb.Arms(ARMS, names=[f"arm {row}" for row in range(60)]))
    best = bandit.ask(details=True)
    bandit.tell(ids=best.ids, y=9.0)
    waiting = bandit.ask(details=True)
    bandit.remove_arms([*best.names, *waiting.names])
    assert table_of(bandit.candidates).arm_names == tuple(
        f"arm {row}" for row in range(60) if row not in (int(best.rows), int(waiting.rows))
    )
    bandit.tell(ids=waiting.ids, y=8.0)
    played = torch.cat([bandit.ask(10, distinct=True), bandit.recommend()])
    gone = torch.cat([best.x, waiting.x])
    assert not (played.unsqueeze(1) == gone).all(-1).any()
    bandit.add_arms(best.x, names=["back"])
    assert torch.equal(bandit.recommend(), best.x)
    bandit.forget()
    assert bandit.ask(exclude=range(58), details=True).names == ("back",)
    bandit.save(tmp_path / "bandit.kb")
    assert kb.Bandit.load(tmp_path / "bandit.kb").ask(exclude=range(58), details=True).names == ("back",)


def test_rows_of_what_is_pending_move_with_the_table():
    bandit = composed(candidates=kb.Arms(ARMS[[0, 1, 1, 2]]))
    asked = bandit.ask(4, distinct=True, details=True)
    bandit.remove_arms(0)
    at = dict(zip(asked.rows.tolist(), asked.ids, strict=True))
    bandit.tell(rows=1, y=0.5)  # which was row 2
    assert bandit.pending_ids == tuple(number for number in asked.ids if number != at[2])


def test_a_prior_that_is_learned_knows_the_ranges_of_the_final_table():
    words = {"prior": kb.LearnedPrior(num_initial=4), "kernel": None, "regularization": None}
    bandit, final = make("gp-ucb", candidates=ARMS, **words), torch.cat([ARMS, 3.0 * NEW])
    bandit.add_arms(3.0 * NEW)
    other = make("gp-ucb", candidates=final, **words)
    for _ in range(8):
        x = bandit.ask()
        assert torch.equal(x, other.ask())
        bandit.tell(x, reward(x))
        other.tell(x, reward(x))
    assert same(dict(bandit.prior.kernel.state_dict()), dict(other.prior.kernel.state_dict()))


def test_actions_in_contexts_come_and_go_too():
    columns = kb.ColumnSpec([kb.Category("kind", ["a", "b", "c"])])
    frame = pd.DataFrame({"kind": ["a", "b"]}, index=["first", "second"])
    actions = kb.ContextualActions(frame, context_dim=1, action_columns=columns)
    bandit = make("ek-ucb", candidates=actions)
    bandit.tell(rows="second", context=[0.3], y=1.0)
    bandit.add_arms(pd.DataFrame({"kind": ["c"]}, index=["third"]))
    bandit.remove_arms("first")
    assert {*bandit.ask(2, context=[0.3], distinct=True, details=True).names} == {"second", "third"}


REFUSED = [
    (lambda b: b.remove_arms(range(60)), "All 60 arm(s)"),
    (lambda b: b.remove_arms([60]), "rows from 0 to 59"),
    (lambda b: b.remove_arms("nobody"), "no action is named"),
    (lambda b: b.add_arms(NEW), "names=[...]"),
    (lambda b: b.add_arms(NEW, names=["one"]), "for each of the 7"),
    (lambda b: b.add_arms(NEW[:1], names=["arm 3"]), "must differ, got 'arm 3'"),
    (lambda b: b.add_arms(NEW[:, :1], names="abcdefg"), "arms must have d = 2 columns"),
    (lambda b: b.add_arms(NEW[:1] * torch.nan, names=["one"]), "arms must be finite"),
]


def test_what_does_not_fit_is_refused_and_changes_nothing():
    bandit = composed(candidates=kb.Arms(ARMS, names=[f"arm {row}" for row in range(60)]))
    bandit.tell(bandit.ask(), 0.5)
    bandit.ask()
    before = bandit.state_dict()
    for call, part in REFUSED:
        with pytest.raises(kb.InputError) as caught:
            call(bandit)
        assert part in str(caught.value), str(caught.value)
        assert same(bandit.state_dict(), before)
    with pytest.raises(kb.InputError, match="no names"):
        composed().add_arms(NEW[:1], names=["one"])
    with pytest.raises(kb.InputError, match="mean"):
        composed(mean=torch.zeros(60, dtype=ARMS.dtype)).add_arms(NEW)
    for other in (composed(candidates=kb.Arms(in_a_file(ARMS))), make("ek-ucb", candidates=CHANGING)):
        with pytest.raises(kb.InputError, match="in a table in memory"):
            other.add_arms(NEW)


def test_what_a_width_reads_of_the_arms_is_that_of_the_final_table(tmp_path):
    bandit = composed(kernel=linear(), width=KUCBWidth(0.1, 1.0, 0.1))
    bandit.tell(ARMS[:3], reward(ARMS[:3]))
    before = float(bandit.beta)
    bandit.add_arms(9.0 * NEW)
    bandit.save(tmp_path / "bandit.kb")
    assert float(bandit.beta) == float(kb.Bandit.load(tmp_path / "bandit.kb").beta) > before
    bandit.remove_arms(range(60, 67))
    assert float(bandit.beta) == before
