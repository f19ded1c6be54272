"""An interrupt anywhere in a call leaves a contextual bandit as if the call had never been made."""

from copy import deepcopy
from itertools import count

import pytest
import torch
from contextual import ACTIONS, CONTEXTS, changing, joint, make, play, reward
from interrupts import Interrupt, swaps
from problems import DOUBLE, as_told, data, difference

from torch_kbandits import KORS, NumericalError
from torch_kbandits.beliefs import Terms, belief_over, embedded
from torch_kbandits.tables import columns

CASES = {
    "ek-ucb": {},
    "ek-ucb without features": {"row_memory": 0},
    "ek-ucb in batches": {"batch_threshold": 1.5},
    "k-ucb": {},
    "cbkb": {},
    "cbbkb": {"batch_threshold": 1.5},
    "gp-ts": {},
}


def prepared(case, rounds=5):
    settings = dict(CASES[case])
    candidates = changing()
    candidates.row_memory = settings.pop("row_memory", candidates.row_memory)
    bandit = make(case.split()[0], candidates, **settings)
    play(bandit, rounds, actions_of=lambda _: ACTIONS)
    bandit.ask(context=CONTEXTS[100], candidates=ACTIONS)
    return bandit


def tell(bandit):
    """Three points: the one pending, a stranger and one whose neighbour is known, so that the dictionary changes."""
    context, x = bandit.pending[0, :2] if len(bandit.pending) else CONTEXTS[100], ACTIONS[:1]
    x = bandit.pending[:1, 2:] if len(bandit.pending) else x
    X = torch.cat([x, x + 0.3, ACTIONS[1:2] + 1e-4])
    bandit.tell(X, reward(joint(context, X)), context=context)


def tell_id(bandit):
    bandit.tell(ids=bandit.pending_ids[0], y=0.7)


def ask(bandit):
    bandit.ask(2, context=CONTEXTS[101], candidates=ACTIONS)


def outcome(bandit):
    """All that a twin must share: what is saved, chosen next and believed."""
    state = bandit.state_dict()
    numbers = [state["num_learned"], state["num_asked"], bandit.round, *bandit.pending_ids]
    history = [part for part in state["history"].values() if part is not None]
    saved = [*history, state["inducing_points"], state["pending"], torch.tensor(numbers)]
    chosen = bandit.ask(2, context=CONTEXTS[102], candidates=ACTIONS, remember=False)
    points = joint(CONTEXTS[103], ACTIONS)
    posterior = bandit.model.posterior(points.unsqueeze(-2))
    belief = bandit._belief
    at = belief.joint.embed(points)
    believed = [
        belief.joint.mean_at(at),
        belief.joint.variance_at(at),
        belief.information_gain(),
        belief.effective_dimension(),
    ]
    return [*saved, chosen], [posterior.mean, posterior.variance, *believed, belief.mean_norm(), belief.kernel_bound()]


def agree(ours, theirs):
    """Whether what is saved and chosen is equal, and what is believed to rounding."""
    return all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(ours[0], theirs[0], strict=True)) and all(
        difference(a, b) < 1e-9 for a, b in zip(ours[1], theirs[1], strict=True)
    )


def broken_lines(case, call, lines):
    """Those of the lines after an interrupt at which the bandit is not as it was, or learns otherwise.

    ``lines`` is a function of the prepared bandit. An interrupt at the return of ``ask`` finds its points pending: that
    is for ``forget``.
    """
    start = prepared(case)
    twin = deepcopy(start)
    before = outcome(twin)
    tell(twin)
    after = outcome(twin)
    tried, broken = 0, []
    for line in lines(start):
        bandit = deepcopy(start)
        with Interrupt(line) as interrupt:
            call(bandit)
        if interrupt.at is None:
            break
        if not (call is ask and interrupt.at.endswith(" in ask") and len(bandit.pending) > 1):
            try:
                same = agree(outcome(bandit), before)
                tell(bandit)
                if not (same and agree(outcome(bandit), after)):
                    broken.append(interrupt.at)
            except Exception as error:
                broken.append(f"{interrupt.at}, then {error!r}")
        tried += 1
    assert tried > 4
    return broken


@pytest.mark.one_in(6)
@pytest.mark.parametrize("call", [tell, ask])
@pytest.mark.parametrize("case", ["ek-ucb", "ek-ucb in batches", "k-ucb"])
def test_an_interrupt_after_what_changes_something_changes_nothing(case, call):
    """One in six of these lines; other cases take others of those that they share."""
    first = 2 * ["ek-ucb", "ek-ucb in batches", "k-ucb"].index(case)
    assert broken_lines(case, call, lambda start: swaps(lambda: call(deepcopy(start)))[first::6]) == []


@pytest.mark.slow
@pytest.mark.parametrize("call", [tell, tell_id, ask])
@pytest.mark.parametrize("case", CASES)
def test_an_interrupt_at_any_line_changes_nothing(case, call):
    assert broken_lines(case, call, lambda _: count(1, 2)) == []


@pytest.mark.one_in(6)
@pytest.mark.parametrize("case", CASES)
def test_a_failed_tell_changes_nothing(case):
    bandit, twin = prepared(case), prepared(case)
    huge = torch.full((40,), 1.7e308, dtype=DOUBLE)
    context, x = bandit.pending[0, :2], bandit.pending[:1, 2:]
    for points in (x.repeat(40, 1), data(40, 2)[0]):
        if bandit.batches is None:
            with pytest.raises(NumericalError):
                bandit.tell(points, huge, context=context)
        assert agree(outcome(bandit), outcome(twin))
    tell(bandit)
    tell(twin)
    assert agree(outcome(bandit), outcome(twin))


class KernelError(Exception):
    pass


@pytest.mark.one_in(3)
@pytest.mark.parametrize("row_memory", [2**30, 0, 8 * 30 * 20])
def test_a_dictionary_that_fails_to_grow_leaves_no_trace(row_memory, monkeypatch):
    """The n-th kernel evaluation fails, for every n: buffers that hold more than they show are written over."""
    X, Y = data(50, 3)
    X[12:] *= 2.0  # mostly far from what is known
    Y = Y.squeeze(-1)

    def learned(n):
        belief = changing(1)
        belief.row_memory = row_memory
        belief = belief_over(belief, Terms(make("ek-ucb").prior.kernel, 0.1, 0, exact=False, online=True))
        for row in range(n):
            belief = belief.learned(as_told(X[row, None], Y[row, None]), KORS(0.5), torch.Generator().manual_seed(row))
        return belief

    original, failed, number = columns.gram, True, 0
    expected = learned(12)
    known = len(expected.inducing_points)
    for part in (slice(12, 20), slice(20, 28)):
        expected = expected.learned(as_told(X[part], Y[part]), KORS(0.5), torch.Generator())
    assert len(expected.inducing_points) > known + 4
    at = X[30:]
    while failed:
        number += 1
        belief, calls = learned(12), []

        def failing(*words, number=number, calls=calls):
            calls.append(words)
            if len(calls) == number:
                raise KernelError
            return original(*words)

        with monkeypatch.context() as patch:
            patch.setattr(embedded, "known_formula", lambda *_: None)
            patch.setattr(embedded, "gram", failing)
            patch.setattr(columns, "gram", failing)
            try:
                belief = belief.learned(as_told(X[12:20], Y[12:20]), KORS(0.5), torch.Generator())
                failed = False
            except KernelError:
                belief = belief.learned(as_told(X[12:20], Y[12:20]), KORS(0.5), torch.Generator())
        belief = belief.learned(as_told(X[20:28], Y[20:28]), KORS(0.5), torch.Generator())
        assert torch.equal(belief.inducing_points, expected.inducing_points)
        assert (
            difference(belief.joint.mean_at(belief.joint.embed(at)), expected.joint.mean_at(expected.joint.embed(at)))
            < 1e-10
        )
        assert (
            difference(
                belief.joint.variance_at(belief.joint.embed(at)), expected.joint.variance_at(expected.joint.embed(at))
            )
            < 1e-10
        )
        assert float(belief.effective_dimension() - expected.effective_dimension()) == pytest.approx(0.0, abs=1e-10)
    assert number > 3
