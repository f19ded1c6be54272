"""Errors and interrupts anywhere in a call leave the bandit as if the call had never been made."""

from copy import deepcopy
from itertools import count

import numpy as np
import oracles
import pytest
import torch
from botorch.models.transforms import Normalize
from gpytorch.kernels import RQKernel
from interrupts import Interrupt, swaps
from problems import DOUBLE, KERNELS, data, dense, difference, linear, matern, reward

from torch_kbandits import Arms, Bandit, OnlineGP, algorithms
from torch_kbandits.acquisition import StagedRule
from torch_kbandits.bandit.batches import GlobalBatchRule
from torch_kbandits.beliefs import table
from torch_kbandits.candidates.sources import as_source
from torch_kbandits.confidence import ConstantWidth
from torch_kbandits.dictionaries import GreedyDictionary, RidgeLeverageSampling
from torch_kbandits.memory import SlidingWindow
from torch_kbandits.numerics import bordered
from torch_kbandits.posteriors.online_dtc import OnlineDTC
from torch_kbandits.tables import columns, lazy
from torch_kbandits.tables.points import PointList

LAMBDA = 0.1


def play(bandit, rounds):
    for _ in range(rounds):
        X = bandit.ask()
        bandit.tell(X, reward(X))
    return bandit


def greedy_bandit(arms, kernel, size):
    return Bandit(
        kernel=kernel,
        regularization=LAMBDA,
        seed=0,
        candidates=Arms(arms, column_memory=0),
        dictionary=GreedyDictionary(size),
        width=ConstantWidth(1.0),
    )


# ---------------------------------------------------------------- dictionaries that span more than they need


class DenseLinear:
    """The DTC posterior of a linear kernel in its weights: dictionaries may be as singular as they like."""

    def __init__(self, arms, variance):
        self.arms, self.variance = arms.numpy(), variance

    def marginals(self, bandit, pending):
        """Means, and variances given the pending points."""
        X, Y, Z = bandit.history.X.numpy(), bandit.history.Y.numpy(), bandit.inducing_points.numpy()
        found = oracles.with_pending(lambda T: self._posterior(X, Y, Z, T), self.arms, pending.numpy(), LAMBDA)
        return found.mean, found.variance

    def _posterior(self, X, Y, Z, T):
        _, singular, directions = np.linalg.svd(Z, full_matrices=False)
        basis = np.sqrt(self.variance) * directions[singular > 1e-10 * singular[0]]
        played, at = basis @ X.T, basis @ T.T
        precision = np.eye(len(basis)) + played @ played.T / LAMBDA
        covariance = self.variance * T @ T.T - at.T @ at + at.T @ np.linalg.solve(precision, at)
        mean = at.T @ np.linalg.solve(precision, played @ Y / LAMBDA)
        return oracles.Marginals(mean, np.diag(covariance), covariance, 0.0)


def test_a_dictionary_that_moves_within_its_span_is_the_loaded_one():
    """Three arms on a line through the origin: each spans the others, and the dictionary goes from one to the next."""
    arms = torch.tensor([[0.3], [0.5], [1.0]], dtype=DOUBLE)
    kernel = linear(0.7)
    bandit, loaded = (greedy_bandit(arms, kernel, 1) for _ in range(2))
    bandit.tell(arms[:1], 0.3)
    bandit.tell(arms[1:2], 0.5)
    loaded.load_state_dict(bandit.state_dict())
    posterior = bandit.model.posterior(arms)
    variance = torch.stack([bandit.model.posterior(arm.unsqueeze(0)).variance.squeeze() for arm in arms])
    expected = DenseLinear(arms, 0.7).marginals(bandit, arms[:0])
    for belief in (bandit._belief, loaded._belief):
        assert difference(belief.mean, posterior.mean.flatten()) < 1e-8
        assert difference(belief.variance, variance) < 1e-8
        assert difference(belief.mean, expected[0]) < 1e-8
        assert difference(belief.variance, expected[1]) < 1e-8


@pytest.mark.one_in(2)
@pytest.mark.parametrize("resampling", ["fresh", "coupled"])
def test_singular_dictionaries_equal_the_dense_posterior(resampling):
    """More points than dimensions, some of which leave and come back; also with points pending."""
    arms = data(60, 4)[0] - 0.3
    oracle = DenseLinear(arms, 0.7)
    settings = {"resampling": resampling, "oversampling": 0.5, "beta": 2.0}
    words = {"kernel": linear(0.7), "regularization": LAMBDA, "seed": 0, "candidates": arms, **settings}
    bandit, loaded = algorithms.BKB(**words), algorithms.BKB(**words)
    for number in range(8):
        X = bandit.ask(1 + number % 3)
        bandit.tell(X, reward(X))
        batch = bandit.ask(3, remember=False)
        loaded.load_state_dict(bandit.state_dict())
        assert torch.equal(loaded.ask(3, remember=False), batch)
        (mean, variance), (_, now) = oracle.marginals(bandit, batch), oracle.marginals(bandit, batch[:0])
        for each in (bandit, loaded):
            assert difference(each._belief.mean, mean) < 1e-7
            assert difference(each._belief.variance, now) < 1e-7
            assert difference(each._belief.lookahead(batch).variance, variance) < 1e-7


# ---------------------------------------------------------------- rebuilding the table


class Fickle:
    """Kernel values that raise an error in some calls in a row."""

    def __init__(self, monkeypatch, first, times, error):
        self.original, self.calls, self.failing, self.error = columns.gram, 0, range(first, first + times), error
        monkeypatch.setattr(columns, "gram", self)

    def __call__(self, *args):
        self.calls += 1
        if self.calls in self.failing:
            raise self.error("half way")
        return self.original(*args)


def assert_twins(bandit, twin):
    assert difference(bandit._belief.mean, twin._belief.mean) < 1e-9
    assert difference(bandit._belief.variance, twin._belief.variance) < 1e-9
    assert torch.equal(bandit.ask(3, remember=False), twin.ask(3, remember=False))


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("error", "times"),
    [
        (OSError, 1),
        (KeyboardInterrupt, 2),
        pytest.param(OSError, 2, marks=pytest.mark.slow),
        pytest.param(KeyboardInterrupt, 1, marks=pytest.mark.slow),
    ],
)
def test_a_rebuild_that_fails_half_way_leaves_no_trace(times, error, monkeypatch):
    """The features are written over in place; what puts them right again may itself fail, and be asked for again."""
    monkeypatch.setattr("torch_kbandits.beliefs.features._BLOCK", 16)
    arms, _ = data(60, 2)
    start, first, failed = greedy_bandit(arms, matern(), 8), 0, True
    start.tell(arms[:8], reward(arms[:8]))
    while failed:
        first += 1
        bandit, twin = deepcopy(start), deepcopy(start)
        with monkeypatch.context() as patch:
            fickle, failed = Fickle(patch, first, times, error), 0
            while fickle.calls < fickle.failing.stop - 1:
                calls = fickle.calls
                try:
                    if failed:
                        bandit.ask(remember=False)
                    else:
                        bandit.tell(arms[20:32], reward(arms[20:32]))
                except error:
                    failed += 1
                if fickle.calls == calls or not failed:
                    break
        if not failed:
            twin.tell(arms[20:32], reward(arms[20:32]))
        assert_twins(bandit, twin)
        for X, Y in ((arms[:1], 5.0), (arms[18:30], reward(arms[18:30]))):  # the first keeps the dictionary
            for each in (bandit, twin):
                each.tell(X, Y)
            assert_twins(bandit, twin)
    assert first > 5  # of which some are in the midst of the blocks


def test_many_points_told_first_are_embedded_at_once(monkeypatch):
    """Following them as rows one by one would take a matrix of 3,000 × 3,000 for a dictionary of one point."""
    monkeypatch.setattr(OnlineDTC, "observed", lambda *_: pytest.fail("the rewards were followed one by one"))
    arms, _ = data(3_000, 2)
    settings = {"max_dictionary": 1, "when_full": "stop", "resampling": "growth", "beta": 1.0}
    bandit = algorithms.BKB(kernel=matern(), regularization=LAMBDA, seed=0, candidates=arms, **settings)
    bandit.tell(arms, reward(arms))
    assert len(bandit.inducing_points) == 1


# ---------------------------------------------------------------- interrupts at any line


CASES = {
    "bkb": ("bkb", 40, {"resampling": "fresh", "oversampling": 0.3}),
    "bbkb": ("bbkb", 40, {}),
    "gp-ucb on few arms": ("gp-ucb", 40, {}),
    "gp-ucb on many arms": ("gp-ucb", 600, {}),
}


def prepared(case, rounds=6):
    """A bandit with some rounds behind it, so that arms are stale and the memory of columns is in use."""
    name, num_arms, settings = CASES[case]
    arms, _ = data(num_arms, 2, 1)
    words = {"kernel": matern(), "regularization": LAMBDA, "seed": 0, "candidates": arms, "beta": 1.5}
    return play(algorithms.build(name, **(words | settings)), rounds), arms


def outcome(bandit):
    """All that a twin must share: what is saved, and what is believed and chosen."""
    state = bandit.state_dict()
    history = [part for part in state["history"].values() if part is not None]
    saved = [*history, state["inducing_points"], state["pending"]]
    return [*saved, torch.tensor([state["num_learned"], bandit.round]), bandit.ask(3, remember=False)], [
        bandit._belief.mean,
        bandit._belief.variance,
    ]


def agree(ours, theirs):
    """Whether saved tensors and arms are equal, and beliefs to rounding."""
    return all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(ours[0], theirs[0], strict=True)) and all(
        a.shape == b.shape and difference(a, b) < 1e-9 for a, b in zip(ours[1], theirs[1], strict=True)
    )


SHIFT = 0.1 * torch.eye(4, 2, dtype=DOUBLE)[:, :1]  # makes a stranger of the first of four arms

CALLS = {
    "tell of an arm": lambda bandit, arms: bandit.tell(arms[-1:], reward(arms[-1:])),
    "tell of a stranger and arms": lambda bandit, arms: bandit.tell(arms[10:14] + SHIFT, reward(arms[10:14])),
    "ask": lambda bandit, arms: bandit.ask(2),
}


@pytest.mark.one_in(6)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("case", ["bkb", "gp-ucb on few arms"])
def test_an_interrupt_after_what_changes_something_changes_nothing(case, call, monkeypatch):
    """One in six of these lines; other calls of other cases take others of those that they share."""
    few_arms_are_many(monkeypatch)
    start, arms = prepared(case)
    lines = swaps(lambda: CALLS[call](deepcopy(start), arms))
    check_interrupts(start, arms, call, lines[([*CASES].index(case) + [*CALLS].index(call)) % 6 :: 6])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("case", "step"), [("gp-ucb on few arms", 23), *(pytest.param(case, 7, marks=pytest.mark.slow) for case in CASES)]
)
def test_an_interrupt_at_any_line_changes_nothing(case, step, call, monkeypatch):
    """Lines a few apart, in turn."""
    few_arms_are_many(monkeypatch)
    check_interrupts(*prepared(case), call, count(1, step))


def few_arms_are_many(monkeypatch):
    for name, number in {"_WORTHWHILE": 0, "_FIRST": 2, "_LONGEST": 5, "_SHARE": 4}.items():
        monkeypatch.setattr(lazy, name, number)


def check_interrupts(start, arms, call, lines):
    """The rebuilt table's features, written in place, are read by what is told next.

    The last line of ``ask`` comes after the points became pending, which no handler can undo: there ``forget`` must.
    Handlers themselves are not interrupted.
    """
    twin = deepcopy(start)
    before = outcome(twin)
    CALLS["tell of an arm"](twin, arms)  # which reads the features that are there
    after = outcome(twin)
    tried, broken = 0, []
    for line in lines:
        bandit = deepcopy(start)
        with Interrupt(line) as interrupt:
            CALLS[call](bandit, arms)
        if interrupt.at is None:
            break
        if call == "ask" and interrupt.at.endswith(" in ask") and len(bandit.pending):
            bandit.forget()
        try:
            same = agree(outcome(bandit), before)
            CALLS["tell of an arm"](bandit, arms)
            if not (same and agree(outcome(bandit), after)):
                broken.append(interrupt.at)
        except Exception as error:
            broken.append(f"{interrupt.at}, then {error!r}")
        tried += 1
    assert tried > 5
    assert broken == []


@pytest.mark.one_in(2)
@pytest.mark.parametrize("call", ["tell", "remove"])
@pytest.mark.parametrize("own_noise", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_interrupt_of_a_model_that_is_told_changes_nothing(call, own_noise, monkeypatch):
    """One in three of those after what changes something, and slowly every second line.

    With rows of the factor held apart, and with transformed inputs.

    The last line of a call comes after everything is done.
    """
    monkeypatch.setattr(bordered, "_HEAD", 4)
    X, Y = data(20, 2)
    noise = 0.1 + Y.abs()
    kwargs = {"train_Yvar": noise[:12]} if own_noise else {"regularization": LAMBDA}
    kernel = matern()
    variances = (lambda rows: noise[rows]) if own_noise else lambda rows: None
    rows = [3, 12, 13]  # one again, and two new
    calls = {"tell": lambda m: m.tell(X[rows], Y[rows] + 1.0, variances(rows)), "remove": lambda m: m.remove([2, 11])}

    def seen(model):
        asked = [model.effective_dimension(), model.kernel_bound(), model.information_gain()]
        return [
            *asked,
            model.train_inputs[0],
            model.train_targets,
            model.posterior(X).mean,
            model.posterior(X).variance,
        ]

    def made():
        model = OnlineGP(X[:12], Y[:12], covar_module=kernel, input_transform=Normalize(d=2, bounds=bounds), **kwargs)
        model.effective_dimension()
        model.tell(X[18:], Y[18:], variances([18, 19]))
        seen(model)
        return model

    def agree_all(ours, theirs):
        return agree(([], ours), ([], theirs))

    bounds = torch.tensor([[-1.0, -1.0], [2.0, 2.0]], dtype=DOUBLE)
    before, twin = seen(made()), made()
    calls[call](twin)
    done = seen(twin)
    calls["tell"](twin)
    after, start = seen(twin), made()
    tried = 0
    for line in count(1, 2) if own_noise else swaps(lambda: calls[call](deepcopy(start)))[::3]:
        model = deepcopy(start)
        with Interrupt(line) as interrupt:
            calls[call](model)
        if interrupt.at is None:
            break
        committed = interrupt.at.endswith((f" in {call}", f" in _{call}")) and agree_all(seen(model), done)
        assert committed or agree_all(seen(model), before), interrupt.at
        if not committed:
            calls[call](model)
        calls["tell"](model)
        assert agree_all(seen(model), after), interrupt.at
        tried += 1
    assert tried > 5


def test_an_interrupt_while_columns_are_kept():
    """At every line: columns kept later must not take the place of those that are thought to be kept."""
    arms, _ = data(30, 2)
    everything, line, interrupt = slice(0, 30), 0, None
    while interrupt is None or interrupt.at is not None:
        line += 1
        kept = columns.KernelColumns(matern(), PointList(as_source(arms)), 2**20)
        with Interrupt(line) as interrupt:
            kept.over_arms(torch.arange(4), everything, keep=True)
        for first in (4, 0, 8):
            rows = torch.arange(first, first + 4)
            kept.over_arms(rows, everything, keep=True)
        for first in (0, 4, 8):
            rows = torch.arange(first, first + 4)
            expected = KERNELS["matern"].dense(*dense(arms[rows], arms))
            assert difference(kept.over_arms(rows, everything, keep=False), expected) < 1e-9, interrupt.at
    assert line > 10


@pytest.mark.one_in(2)
@pytest.mark.parametrize("num_arms", [150, 600])
def test_a_draw_after_an_interrupted_set_up_of_draws(num_arms, monkeypatch):
    """Where a kernel has no random features the set-up depends on the dictionary, and is made anew as that grows."""
    monkeypatch.setattr("torch_kbandits.numerics.prior_draws.JOINT_LIMIT", 100)
    monkeypatch.setattr("torch_kbandits.numerics.prior_draws._RANK", 4)
    arms, _ = data(num_arms, 2)
    kernel = RQKernel().double()
    kernel.lengthscale = 0.2
    words = {"kernel": kernel, "regularization": LAMBDA, "candidates": arms, "beta": 1.0}
    for played in (0, 5):
        bandit, twin = (algorithms.build("gp-ts", seed=0, **words) for _ in range(2))
        for each in (bandit, twin):
            if played:
                each.tell(arms[:played], reward(arms[:played]))
                each.ask(remember=False)
            each.tell(arms[20:28], reward(arms[20:28]))
        with monkeypatch.context() as patch:
            patch.setattr(table, "prior_draws", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                bandit.ask()
        assert difference(bandit._belief.deviation(7), twin._belief.deviation(7)) < 1e-9
        assert torch.equal(bandit.ask(20), twin.ask(20))


# ---------------------------------------------------------------- calls that swap what is there


def bandit_on(name, **settings):
    words = {"kernel": matern(), "regularization": LAMBDA, "seed": 0, "candidates": data(30, 2, 1)[0], "beta": 1.5}
    return algorithms.build(name, **(words | settings))


def staged_bandit():
    """Stages with all that there is beside them; a few rounds go through them."""
    return Bandit(
        kernel=matern(),
        regularization=LAMBDA,
        seed=0,
        candidates=Arms(data(30, 2, 1)[0]),
        acquisition=StagedRule(60),
        dictionary=RidgeLeverageSampling(1.0),
        batches=GlobalBatchRule(3.0),
        memory=SlidingWindow(9, "observations"),
        width=ConstantWidth(0.5),
    )


SWAPPED = {
    "bkb": lambda: bandit_on("bkb", oversampling=0.5),
    "window": lambda: bandit_on("bkb", oversampling=0.5, memory=SlidingWindow(4.0)),
    "batches": lambda: bandit_on("bbkb", batch_threshold=3.0),
    "trigger": lambda: bandit_on("et-gp-ucb"),
    "memories": lambda: bandit_on("bob-gp-ucb", horizon=50),
    "stages": lambda: bandit_on("sup-kernel-ucb", horizon=50),
    "stages with a dictionary, a memory and batches": staged_bandit,
    "family": lambda: bandit_on("pe-gp-ucb", scales=(1.0, 0.5)),
    "family with a dictionary and a memory": lambda: bandit_on(
        "lb-gp-ucb", scales=(1.0, 0.5), dictionary=RidgeLeverageSampling(1.0), memory=SlidingWindow(9, "observations")
    ),
}


def with_pending(case, rounds=5):
    """A bandit of which something is pending, told in another order than asked."""
    bandit = play(SWAPPED[case](), rounds)
    bandit.ask(3)
    bandit.tell(ids=bandit.pending_ids[1], y=0.3)
    return bandit


def look(bandit, other):
    if bandit.rule.num_stages == 0:
        bandit.acquisition()
    bandit.recommend(), bandit.model, bandit.history, bandit.weights, bandit.state_dict(), bandit.ask(2, remember=False)


SWAPS = {
    "mark_pending": lambda bandit, other: bandit.mark_pending(other.history.X[:2]),
    "forget": lambda bandit, other: bandit.forget(bandit.pending[:1]),
    "forget by id": lambda bandit, other: bandit.forget(ids=bandit.pending_ids[0]),
    "tell by id": lambda bandit, other: bandit.tell(ids=bandit.pending_ids[0], y=0.7),
    "restart": lambda bandit, other: bandit.restart(),
    "look": look,
    "load_state_dict": lambda bandit, other: bandit.load_state_dict(other.state_dict()),
    "replay": lambda bandit, other: bandit.replay(other.history),
}


def seen(bandit):
    """All that is saved, in force and believed."""
    state = bandit.state_dict()
    parts = [part for part in state["history"].values() if part is not None]
    parts += [state[name] for name in ("inducing_points", "pending", "pending_stages") if state[name] is not None]
    parts += [stage["inducing_points"] for stage in state.get("stages", ())]
    parts += [state["family"]] if "family" in state else []
    numbers = [state["num_learned"], state["num_asked"], state["num_forgotten"], bandit.round, *bandit.pending_ids]
    saved = [*parts, torch.tensor(numbers), torch.tensor(bandit.now), bandit.ask(2, remember=False)]
    return (saved, [*bandit._belief.moments(data(4, 2, 3)[0]), bandit.beta]), str(bandit.memory)


def seen_twice(bandit):
    """What is there, and what it becomes: whatever is wrong inside shows when something is told."""
    bandit = deepcopy(bandit)
    first, X = seen(bandit), data(30, 2, 1)[0][4:6]
    bandit.tell(X, reward(X))
    return [first, seen(bandit)]


def is_as(ours, theirs):
    return all(
        agree(a, b) and ours_memory == memory for (a, ours_memory), (b, memory) in zip(ours, theirs, strict=True)
    )


def half_done(case, call, part):
    """Of a part of the lines after what changes something those after an interrupt at which a call is half done."""
    start, other = (SWAPPED[case]() if call == "replay" else with_pending(case)), with_pending(case, 7)
    before, done = seen_twice(start), deepcopy(start)
    SWAPS[call](done, other)
    after, tried, found = seen_twice(done), 0, []
    for line in part(swaps(lambda: SWAPS[call](deepcopy(start), other))):
        bandit = deepcopy(start)
        with Interrupt(line) as interrupt:
            SWAPS[call](bandit, other)
        try:
            if interrupt.at is not None and not any(is_as(seen_twice(bandit), each) for each in (before, after)):
                found.append(interrupt.at)
        except Exception as error:
            found.append(f"{interrupt.at}, then {error!r}")
        tried += interrupt.at is not None
    assert tried
    return found


@pytest.mark.one_in(24)
@pytest.mark.parametrize("call", SWAPS)
@pytest.mark.parametrize("case", SWAPPED)
def test_an_interrupted_call_is_done_or_was_never_made(case, call):
    """Four of the lines after what changes something; other cases take others of those that they share."""
    first = [*SWAPPED].index(case)
    assert half_done(case, call, lambda lines: lines[first % (1 + len(lines) // 4) :: 1 + len(lines) // 4]) == []


@pytest.mark.slow
@pytest.mark.parametrize("call", SWAPS)
@pytest.mark.parametrize("case", SWAPPED)
def test_a_call_interrupted_anywhere_is_done_or_was_never_made(case, call):
    """One in three of these lines, the last among them."""
    assert half_done(case, call, lambda lines: lines[::-3]) == []
