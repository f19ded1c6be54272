"""After an error or an interrupt at any line a bandit is as if the call had never been made, or had been done."""

from copy import deepcopy

import pytest
import torch
from botorch.models.transforms import Normalize
from interrupts import Interrupt, swaps
from kinds import KINDS, future, play, points, same, started
from problems import DOUBLE, believed, data, difference, matern

from torch_kbandits import KernelBanditError, OnlineGP

pytestmark = pytest.mark.usefixtures("short_searches")
HUGE = torch.full((40,), 1.7e308, dtype=DOUBLE)


@pytest.mark.one_in(9)
@pytest.mark.parametrize("name", KINDS)
def test_a_call_that_is_refused_or_fails_changes_nothing(name):
    """Rewards that overflow are seen last of all, when nearly everything is done."""
    kind = KINDS[name]
    bandit, calm = started(kind), started(kind)
    words, own = kind.words(kind.rounds), {"context": kind.words(0).get("context")}
    point, waiting = bandit.candidates.actions(bandit.history.X[:1]), bandit.pending_ids
    calls = [
        lambda: bandit.ask(0, **words),
        lambda: bandit.ask(2, **words | {"context": torch.zeros(7, dtype=DOUBLE)}),
        lambda: bandit.ask(**words | {"time": "soon"}),
        lambda: bandit.tell(ids=waiting, y=[float("nan")] * len(waiting)),
        lambda: bandit.tell(ids=[*waiting, 999], y=[0.0] * (len(waiting) + 1)),
        lambda: bandit.tell(point, [0.1, 0.2], **own),
        lambda: bandit.tell(ids=waiting, y=[0.5] * len(waiting), outcomes={"nobody's": 1.0}),
        lambda: bandit.forget(ids=[*waiting, 999]),
        lambda: bandit.mark_pending("point", **own),
        lambda: bandit.load_state_dict(calm.state_dict() | {"history": None}),
        lambda: bandit.replay(bandit.history),
        lambda: bandit.recommend(context=torch.zeros(7, dtype=DOUBLE)),
    ]
    if bandit.batches is None:
        many = point * 40 if isinstance(point, list) else point.repeat(40, 1)
        calls.append(lambda: bandit.tell(many, HUGE, **own))
    for number, call in enumerate(calls):
        with pytest.raises(KernelBanditError):
            call()
        assert same(bandit.state_dict(), calm.state_dict()), number
    assert difference(future(kind, bandit), future(kind, calm)) <= kind.tolerance


# ---------------------------------------------------------------- interrupts at any line

CALLS = {
    "tell": lambda kind, bandit, other: bandit.tell(ids=bandit.pending_ids[::-1], **kind.told(bandit.pending, 1)),
    "ask": lambda kind, bandit, other: bandit.ask(2, **kind.words(kind.rounds + 1)),
    "forget": lambda kind, bandit, other: bandit.forget(ids=bandit.pending_ids[0]),
    "restart": lambda kind, bandit, other: bandit.restart(),
    "arms": lambda kind, bandit, other: (
        bandit.forget() if "candidates" in kind.words(0) else bandit.remove_arms([0, 4])  # or a round brings others
    ),
    "look": lambda kind, bandit, other: (
        bandit.recommend(**kind.words(kind.rounds)), bandit.model, bandit.history, bandit.weights, bandit.health(),
        bandit.ask(2, remember=False, **kind.words(kind.rounds)),
    ),
    "load": lambda kind, bandit, other: bandit.load_state_dict(other.state_dict()),
}  # fmt: skip
QUICK = (
    "bkb", "gp-ucb", "many arms", "ek-ucb, contexts", "ek-ucb, sets of each round", "k-ucb", "bbkb", "trigger",
    "memories in contexts", "stages", "family", "ageing", "outcomes", "learned prior",
)  # fmt: skip


def seen(kind, bandit):
    """What there is, and what becomes of it: whatever is wrong inside shows when something is told."""
    bandit = deepcopy(bandit)
    state, words = bandit.state_dict(), kind.words(kind.rounds + 1)
    looked, moments = points(bandit.ask(2, remember=False, **words)), believed(bandit, bandit.history.X[:4])
    play(kind, bandit, 2, kind.rounds + 1)
    later = believed(bandit, bandit.history.X[:4])
    return state, torch.cat([looked, bandit.history.X[-2:, -looked.shape[1] :]]), torch.cat([*moments, *later])


def is_as(ours, theirs):
    return same(ours[0], theirs[0]) and torch.equal(ours[1], theirs[1]) and difference(ours[2], theirs[2]) < 1e-9


def half_done(name, call, part):
    """Of a part of the lines after what changes something those after an interrupt at which a call is half done."""
    kind = KINDS[name]
    start, other = started(kind), kind.make()
    play(kind, other, 4)
    before, done = seen(kind, start), deepcopy(start)
    CALLS[call](kind, done, other)
    after, found = seen(kind, done), []
    lines = part(swaps(lambda: CALLS[call](kind, deepcopy(start), other)))
    for line in lines:
        bandit = deepcopy(start)
        with Interrupt(line) as interrupt:
            CALLS[call](kind, bandit, other)
        try:
            if interrupt.at is not None and not any(is_as(seen(kind, bandit), each) for each in (before, after)):
                found.append(interrupt.at)
        except Exception as error:
            found.append(f"{interrupt.at}, then {error!r}")
    return found


@pytest.mark.one_in(24)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", QUICK)
def test_an_interrupted_call_is_done_or_was_never_made(name, call, quick):
    """After five lines that change something, slowly one in 16 and the last; cases take others that they share."""

    def some(lines):
        each = 1 + len(lines) // 5 if quick else 16
        return lines[QUICK.index(name) % each :: each] + ([] if quick else lines[-1:])

    assert half_done(name, call, some) == []


@pytest.mark.parametrize("call", ["tell", "remove"])
@pytest.mark.parametrize("own_noise", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_interrupt_of_a_model_that_is_told_changes_nothing(call, own_noise):
    """One in four of those after what changes something, with transformed inputs; the last one is after everything."""
    X, Y = data(20, 2)
    noise = 0.1 + Y.abs() if own_noise else None
    words = {"regularization": 0.1} if noise is None else {"train_Yvar": noise[:12]}
    words["input_transform"] = Normalize(d=2, bounds=torch.tensor([[-1.0, -1.0], [2.0, 2.0]], dtype=DOUBLE))
    rows = [3, 12, 13]  # one again, and two new
    calls = {
        "tell": lambda model: model.tell(X[rows], Y[rows] + 1.0, None if noise is None else noise[rows]),
        "remove": lambda model: model.remove([2, 11]),
    }

    def shown(model):
        posterior, facts = model.posterior(X), [model.effective_dimension(), model.information_gain()]
        return torch.cat([torch.stack(facts), posterior.mean.flatten(), posterior.variance.flatten()]).detach()

    start = OnlineGP(X[:12], Y[:12], covar_module=matern(), **words)
    start.tell(X[18:], Y[18:], None if noise is None else noise[18:])
    before, twin = shown(start), deepcopy(start)
    calls[call](twin)
    done = shown(twin)
    calls["tell"](twin)
    after, lines = shown(twin), swaps(lambda: calls[call](deepcopy(start)))[::4]
    assert len(lines) > 3
    for line in lines:
        model = deepcopy(start)
        with Interrupt(line) as interrupt:
            calls[call](model)
        if difference(shown(model), done) >= 1e-9:
            assert difference(shown(model), before) < 1e-9, interrupt.at
            calls[call](model)
        calls["tell"](model)
        assert difference(shown(model), after) < 1e-9, interrupt.at
