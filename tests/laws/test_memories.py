"""Memories: what a bandit believes is what dense formulas make of the observations that count, however it got there."""

import io
import math
from copy import copy, deepcopy
from itertools import count, product

import hypothesis.strategies as st
import numpy as np
import oracles
import pytest
import torch
from forgetting import (
    ACTIONS,
    ARMS,
    BETA,
    DICTIONARIES,
    DOMAINS,
    FORGETS_NOTHING,
    KERNEL,
    LAMBDA,
    MEMORIES,
    TESTED,
    counted,
    expected,
    joint,
    make,
    odd_times,
    offer,
    play,
    reward,
    tell_at_odd_times,
)
from hypothesis import given
from interrupts import Interrupt, swaps
from problems import DOUBLE, data, dense, difference, examples, matern

from torch_kbandits import (
    ConstantWidth,
    InputError,
    NumericalError,
    NystromGP,
    OnlineGP,
    StateMismatchError,
    UncertaintyInjectionLikelihood,
)
from torch_kbandits.acquisition import ExpectedImprovementRule, ProbabilityOfImprovementRule, ThompsonRule
from torch_kbandits.bandit.batches import GlobalBatchRule, LocalBatchRule, StayRule
from torch_kbandits.beliefs import FeatureTable
from torch_kbandits.candidates import Arms
from torch_kbandits.memory import (
    Discount,
    Exponential,
    KeepAll,
    Linear,
    Memory,
    Quadratic,
    Restart,
    SlidingWindow,
    UncertaintyInjection,
)
from torch_kbandits.observations import Answers
from torch_kbandits.posteriors.dtc import DTCFactors


def sampled(every, *choices):
    """All combinations, of which one in so many is tried quickly and the others are for the slow tests."""
    return [
        pytest.param(*combination, marks=[pytest.mark.slow] if number % every else [])
        for number, combination in enumerate(product(*choices))
    ]


def agrees(bandit, name, now, **part):
    """Whether belief, model and acquisition function are those of the dense formulas."""
    dense_one = expected(bandit, name, now, **part)
    posterior = bandit.model.posterior(TESTED.unsqueeze(-2))
    mean, variance = bandit._belief.moments(TESTED)
    errors = [
        difference(posterior.mean.flatten(), dense_one.mean),
        difference(posterior.variance.flatten(), dense_one.variance),
        difference(mean, dense_one.mean),
        difference(variance, dense_one.variance),
    ]
    return max(errors) < dense_one.rounding


def acquired(bandit, points, **words):
    """The acquisition function at joint points of one context, (n,)."""
    if bandit.candidates.is_contextual:
        words |= {"context": points[0, :1]}
        if bandit.candidates.set is None:
            words |= {"candidates": ACTIONS}
        points = points[:, 1:]
    return bandit.acquisition(**words)(points.unsqueeze(-2)).detach()


# ---------------------------------------------------------------- what is believed


@pytest.mark.one_in(24)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize(("domain", "posterior", "name"), sampled(11, DOMAINS, DICTIONARIES, MEMORIES))
def test_the_posterior_is_that_of_dense_formulas_at_any_time(name, posterior, domain):
    bandit = make(name, posterior, domain)
    now = tell_at_odd_times(bandit, 12, seed=1)
    assert agrees(bandit, name, now)
    points = torch.cat([TESTED[:1, :1].expand(5, -1), TESTED[:5, 1:]], dim=-1)
    for gap in (0.0, 0.7, 4.0, 100.0):
        dense_one = expected(bandit, name, now + gap, points)
        value = dense_one.mean + BETA * np.sqrt(np.maximum(dense_one.variance, 0.0))
        assert difference(acquired(bandit, points, time=now + gap), value) < dense_one.upper_rounding(BETA)
    assert agrees(bandit, name, now)  # an acquisition function of later leaves what is believed now
    bandit.ask(time=now + 2.0, **offer(bandit, 0))
    assert agrees(bandit, name, now + 2.0)


@examples(25)
@given(seed=st.integers(0, 10_000), number=st.integers(1, 12), name=st.sampled_from(sorted(MEMORIES)))
def test_the_exact_posterior_is_dense_whatever_is_told(seed, number, name):
    bandit = make(name, domain="box")
    now = tell_at_odd_times(bandit, number, seed)
    assert agrees(bandit, name, now)


@pytest.mark.one_in(6)
@pytest.mark.parametrize(("posterior", "name"), sampled(7, DICTIONARIES, MEMORIES))
def test_without_times_the_clock_is_the_round(name, posterior):
    """The choice of round t rests on observations of ages 1, 2, …"""
    bandit = make(name, posterior)
    for number in range(12):
        X = ARMS[[number % 5, 7]]
        bandit.tell(X, reward(X) + 0.01 * number)
        assert bandit.history.times.tolist()[-2:] == [number, number]
        assert agrees(bandit, name, number + 1.0)


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("posterior", "name"), sampled(7, ["exact", "fresh"], MEMORIES))
def test_arms_are_those_of_the_dense_upper_bounds(name, posterior):
    """Also with points pending, which shrink the variance as fresh observations do."""
    bandit, times = make(name, posterior), odd_times(12, 3)
    for number, now in enumerate(times):
        batch = bandit.ask(2, time=now)
        for k, x in enumerate(batch):
            before = expected(bandit, name, now, torch.cat([ARMS, batch[:k]]))
            mean, covariance = before.mean[: len(ARMS)], before.covariance
            A = len(ARMS)
            inner = covariance[A:, A:] + LAMBDA * np.eye(k)
            shrunk = (covariance[:A, A:] * np.linalg.solve(inner, covariance[A:, :A]).T).sum(1)
            upper = mean + BETA * np.sqrt(np.maximum(before.variance[:A] - shrunk, 0.0))
            row = int((x == ARMS).all(-1).nonzero()[0])
            assert upper[row] > upper.max() - 2.0 * before.upper_rounding(BETA)
        bandit.tell(batch, reward(batch) + 0.1 * number, time=now)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["window", "quadratic to a limit", "discount"])
def test_an_acquisition_function_counts_pending_points_as_fresh(name):
    bandit = make(name)
    now = tell_at_odd_times(bandit, 10, seed=8)
    bandit.ask(2, time=now + 1.0)
    pending, ahead = bandit.pending, now + 2.5
    part = expected(bandit, name, ahead, torch.cat([TESTED, pending]))
    n = len(TESTED)
    inner = part.covariance[n:, n:] + LAMBDA * np.eye(2)
    shrunk = (part.covariance[:n, n:] * np.linalg.solve(inner, part.covariance[n:, :n]).T).sum(1)
    value = part.mean[:n] + BETA * np.sqrt(part.variance[:n] - shrunk)
    assert difference(acquired(bandit, TESTED, time=ahead), value) < part.upper_rounding(BETA)


def rolled(tells):
    """A bandit with a window of 20 told so many random arms, one a round, and what was told."""
    bandit = make(SlidingWindow(20), domain=Arms(data(300, 2, seed=30)[0]))
    arms, generator = bandit.candidates.source.tensor, torch.Generator().manual_seed(0)
    rows = torch.randint(len(arms), (tells,), generator=generator)
    noise = torch.randn(tells, generator=generator, dtype=DOUBLE)
    for row, error in zip(rows, noise, strict=True):
        bandit.tell(arms[row, None], reward(arms[row, None]) + error)
    return bandit, arms[rows[-20:]], (reward(arms[rows]) + noise)[-20:]


def check_rolled(tells):
    bandit, X, Y = rolled(tells)
    dense_one = oracles.exact(KERNEL, *dense(X, Y), np.full(20, LAMBDA), dense(TESTED)[0])
    belief = bandit._belief
    assert belief.num_observations == 20
    rebuilt = make(SlidingWindow(20), domain=bandit.candidates)
    rebuilt.load_state_dict(bandit.state_dict())
    for mean, variance in (
        (dense_one.mean, dense_one.variance),
        rebuilt._belief.moments(TESTED),
    ):
        ours = belief.moments(TESTED)
        assert difference(ours[0], mean) < 1e-6
        assert difference(ours[1], variance) < 1e-6
    for what in ("information_gain", "effective_dimension", "mean_norm"):
        assert float(getattr(belief, what)()) == pytest.approx(float(getattr(rebuilt._belief, what)()), abs=1e-6)


def test_a_window_that_rolled_on_is_what_rebuilding_gives():
    check_rolled(50)


@pytest.mark.slow
def test_a_window_that_rolled_on_for_long_is_what_rebuilding_gives():
    check_rolled(10_000)


@pytest.mark.one_in(24)
@pytest.mark.parametrize("posterior", DICTIONARIES)
@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("name", ["window", "discount", "quadratic to a limit"])
def test_answers_of_an_expert_count_with_noise_of_their_own(name, domain, posterior):
    """Also at points that were played, twice at one, and next to exact ones; what was told stays as it was."""
    bandit = make(name, posterior, domain)
    now = tell_at_odd_times(bandit, 8, seed=4)
    belief, (before, _) = bandit._belief, bandit._belief.moments(TESTED)
    X = torch.cat([data(4, 2, seed=9)[0], bandit.history.X[-1:], bandit.history.X[-1:]])
    Y, variance = reward(X), torch.tensor([0.3, 0.01, 1e-3, 0.5, 0.02, 1e-12], dtype=DOUBLE)
    advised = belief.advised(Answers(X, Y, variance))
    played, rewards, noise = counted(bandit, name, now)
    asked, answered, least = *dense(X, Y), np.maximum(variance.numpy(), 1e-6 * LAMBDA)
    data_of = (np.concatenate([asked, played]), np.concatenate([answered, rewards]), np.concatenate([least, noise]))
    T, Z = dense(TESTED, advised.inducing_points)
    if bandit.dictionary is None:
        wanted = oracles.exact(KERNEL, *data_of, T)
    else:
        wanted = oracles.dtc(KERNEL, *data_of, Z, T)
        assert len(Z) >= 5
    mean, variance = advised.moments(TESTED)
    assert difference(mean, wanted.mean) < wanted.rounding
    assert difference(variance, wanted.variance) < wanted.rounding
    assert advised.num_observations == belief.num_observations + 6
    shown = advised.shown(bandit.history).posterior(TESTED.unsqueeze(-2))
    assert difference(shown.mean.flatten(), wanted.mean) < wanted.rounding
    assert torch.equal(belief.moments(TESTED)[0], before)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("posterior", ["fresh", "coupled", "kors"])
@pytest.mark.parametrize("domain", ["contexts", "changing", "box"])
def test_a_model_takes_back_what_a_window_forgets_without_a_rebuild(domain, posterior, monkeypatch):
    bandit = make("window of observations", posterior, domain)
    now = tell_at_odd_times(bandit, 10, seed=6)
    belief, rebuilt = bandit._belief, []
    monkeypatch.setattr(FeatureTable, "_refit", lambda *_: rebuilt.append(0))
    for number in range(1, 4):
        kept = torch.arange(7) >= number
        belief = copy(belief)
        belief._weigh((torch.arange(8 - number) > 0).double())
        X, y = dense(bandit.history.X[-7:][kept], bandit.history.Y[-7:][kept])
        wanted = oracles.dtc(KERNEL, X, y, np.full(7 - number, LAMBDA), *dense(bandit.inducing_points, TESTED))
        mean, variance = belief.moments(TESTED)
        assert difference(mean, wanted.mean) < wanted.rounding
        assert difference(variance, wanted.variance) < wanted.rounding
    assert not rebuilt
    assert bandit._belief.num_observations == 7
    assert agrees(bandit, "window of observations", now)


def test_a_downdate_is_refused_where_it_would_leave_rounding():
    """λ = 1e-9: one of two points in general position explains all but a part in 1e9 of its variance."""
    X, y = data(2, 2, seed=3)
    kernel = torch.tensor(KERNEL(*dense(X, X)))
    factors = DTCFactors.fit(kernel, kernel, y[:, 0], torch.full((2,), 1e-9, dtype=DOUBLE))
    assert factors.forgotten(factors.embed(kernel[:, :1]), y[:1, 0], torch.full((1,), 1e-9, dtype=DOUBLE)) is None


@pytest.mark.one_in(4)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize(
    ("name", "domain", "posterior"),
    sampled(9, ["window", "restart", "discount to a limit", "quadratic to a limit"], DOMAINS, DICTIONARIES),
)
def test_where_nothing_counts_any_more_the_prior_is_back(name, posterior, domain):
    bandit, fresh = make(name, posterior, domain), make(name, posterior, domain)
    now = tell_at_odd_times(bandit, 6, seed=2) + 1_000.0
    words = offer(bandit, 3)
    x = bandit.ask(time=now, **words)
    if not words:  # in contexts a lot of the round decides between equals
        assert torch.equal(x, fresh.ask(time=now))
    bandit.forget()
    prior = np.diag(KERNEL(*dense(TESTED, TESTED)))
    posterior_then = bandit.model.posterior(TESTED.unsqueeze(-2))
    assert difference(posterior_then.mean.flatten(), np.zeros(len(TESTED))) == 0.0
    assert difference(posterior_then.variance.flatten(), prior) < 1e-12
    assert bandit.model.num_observations == 0
    assert len(bandit.history.X) > 0
    for read in (bandit._belief.effective_dimension, bandit._belief.information_gain, bandit._belief.mean_norm):
        assert float(read()) == 0.0
    assert bool(bandit.recommend(time=now, **words).isfinite().all())  # of what counted last
    x = bandit.ask(time=now, **words)
    bandit.tell(x, reward(joint(x, words)), context=words.get("context"))
    assert agrees(bandit, name, now)


# ---------------------------------------------------------------- what forgets nothing


@pytest.mark.one_in(8)
@pytest.mark.parametrize(
    ("domain", "posterior", "name"),
    sampled(13, ["arms", "contexts", "changing"], DICTIONARIES, FORGETS_NOTHING),
)
def test_what_forgets_nothing_plays_as_without_a_memory(name, posterior, domain):
    domain = Arms(data(60, 2, seed=31)[0]) if domain == "arms" else domain
    plain, bandit = make(None, posterior, domain), make(FORGETS_NOTHING[name], posterior, domain)
    assert torch.equal(play(bandit, 20), play(plain, 20))
    assert torch.equal(bandit.inducing_points.sort(0).values, plain.inducing_points.sort(0).values)
    assert float(bandit.beta) == float(plain.beta)


@pytest.mark.one_in(6)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("name", ["keep all", "window", "restart"])
@pytest.mark.parametrize("posterior", ["exact", "coupled"])
def test_what_forgets_nothing_plays_as_without_a_memory_on_a_box(name, posterior):
    plain, bandit = make(None, posterior, "box"), make(FORGETS_NOTHING[name], posterior, "box")
    assert torch.equal(play(bandit, 4), play(plain, 4))


@pytest.mark.parametrize("posterior", ["exact", "fresh"])
def test_what_forgets_nothing_draws_as_without_a_memory(posterior):
    """Thompson sampling draws from another form of the same posterior, so only its law is the same; not its arms."""
    bandit, twin = (make(KeepAll(), posterior, acquisition=ThompsonRule()) for _ in range(2))
    assert torch.equal(play(bandit, 6), play(twin, 6))


# ---------------------------------------------------------------- saved, replayed, interleaved


def restored(bandit, twin):
    file = io.BytesIO()
    torch.save(bandit.state_dict(), file)
    file.seek(0)
    twin.load_state_dict(torch.load(file, weights_only=True))
    return twin


@pytest.mark.one_in(7)
@pytest.mark.parametrize(
    ("domain", "timed", "name", "posterior"),
    sampled(
        13,
        ["arms", "changing"],
        [False, True],
        ["window", "window of observations", "restart", "discount", "quadratic to a limit"],
        DICTIONARIES,
    ),
)
def test_saved_and_replayed_bandits_go_on_as_one(name, posterior, domain, timed):
    times = odd_times(20, 4) if timed else None
    bandit, other = make(name, posterior, domain), make(name, posterior, domain)
    play(bandit, 12, times=times)
    play(other, 2)  # what it knew is replaced
    restored(bandit, other)
    replayed = make(name, posterior, domain)
    replayed.replay(bandit.history)
    for twin in (other, replayed):
        assert difference(twin._belief.moments(TESTED)[0], bandit._belief.moments(TESTED)[0]) < 1e-9
        assert torch.equal(twin.inducing_points, bandit.inducing_points)
    after = play(bandit, 8, 12, times)
    assert torch.equal(play(other, 8, 12, times), after)
    assert torch.equal(play(replayed, 8, 12, times), after)
    assert torch.equal(other.history.times, bandit.history.times)


@pytest.mark.usefixtures("short_searches")
def test_saved_on_a_box():
    bandit, twin = make("window", "kors", "box"), make("window", "kors", "box")
    times = odd_times(12, 6)
    play(bandit, 8, times=times)
    restored(bandit, twin)
    assert difference(play(bandit, 3, 8, times), play(twin, 3, 8, times)) < 1e-6


def test_a_saved_bandit_keeps_points_pending_and_the_time():
    bandit, twin = make("quadratic"), make("quadratic")
    play(bandit, 4, times=[0.0, 1.0, 1.0, 5.0])
    bandit.ask(3, time=9.0)
    restored(bandit, twin)
    assert torch.equal(twin.pending, bandit.pending)
    with pytest.raises(InputError, match="backwards: the latest was 9, got 8"):
        twin.ask(time=8.0)
    for each in (bandit, twin):
        each.tell(ids=5, y=0.3)
    assert float(twin.history.times[-1]) == 9.0
    assert torch.equal(bandit.ask(2, time=12.0), twin.ask(2, time=12.0))


@pytest.mark.one_in(12)
@pytest.mark.parametrize("posterior", DICTIONARIES)
@pytest.mark.parametrize("name", ["window", "restart", "quadratic"])
def test_looking_changes_nothing(name, posterior):
    bandit, twin = make(name, posterior), make(name, posterior)
    times = odd_times(10, 9)
    play(bandit, 6, times=times)
    play(twin, 6, times=times)
    later = times[5] + 50.0
    bandit.ask(2, time=later, remember=False)
    bandit.acquisition(time=later)
    bandit.recommend(time=later)
    for bad in ({"time": times[5] - 1.0}, {"time": later, "context": TESTED[0]}, {}):
        with pytest.raises(InputError):
            bandit.ask(**bad)
    with pytest.raises(InputError):
        bandit.tell(ARMS[:1], torch.tensor([math.nan], dtype=DOUBLE), time=later)
    assert agrees(bandit, name, float(times[5]))
    assert torch.equal(play(bandit, 4, 6, times), play(twin, 4, 6, times))


def test_what_is_asked_and_forgotten_leaves_the_time_and_nothing_else():
    bandit, twin = make("quadratic"), make("quadratic")
    play(bandit, 6, times=odd_times(6, 9))
    play(twin, 6, times=odd_times(6, 9))
    bandit.ask(3, time=40.0)
    bandit.forget()
    with pytest.raises(InputError, match="backwards"):
        bandit.ask(time=39.0)
    assert torch.equal(bandit.ask(2, time=41.0), twin.ask(2, time=41.0))


def test_a_coupled_dictionary_stays_coupled_where_points_are_forgotten():
    """Each point keeps its uniform, so few points come and go beside those that are told and forgotten."""
    arms = data(200, 2, seed=41)[0]
    changes = {}
    for posterior in ("fresh", "coupled"):
        bandit, before, changes[posterior] = make(SlidingWindow(20), posterior, Arms(arms)), set(), 0
        for number in range(40):
            told = arms[number % 200, None]
            bandit.tell(told, reward(told))
            now = {tuple(row) for row in bandit.inducing_points.tolist()}
            counts = {tuple(row) for row in arms[max(0, number - 18) : number].tolist()}
            changes[posterior] += len((now ^ before) & counts)
            before = now
    assert changes["coupled"] < 0.5 * changes["fresh"]


# ---------------------------------------------------------------- restarts on demand


@pytest.mark.one_in(12)
@pytest.mark.parametrize("memory", [None, "window", "quadratic"])
@pytest.mark.parametrize("posterior", DICTIONARIES)
def test_a_restart_forgets_what_was_told_so_far(memory, posterior):
    bandit, fresh = make(memory, posterior), make(memory, posterior)
    play(bandit, 5)
    ids = bandit.ask(2, return_ids=True).ids
    bandit.restart()
    assert len(bandit.history.X) == 5
    assert bandit.pending_ids == ids
    assert bandit.model.num_observations == 0
    assert bandit._belief.num_observations == 0
    bandit.tell(ids=ids[0], y=0.7)
    fresh.tell(bandit.history.X[-1:], 0.7)
    bandit.forget()
    if memory is None:
        assert torch.equal(bandit.ask(2, remember=False), fresh.ask(2, remember=False))
    twin = restored(bandit, make(memory, posterior))
    points = TESTED.unsqueeze(-2)
    for ours in (bandit.model.posterior(points), twin.model.posterior(points)):
        theirs = fresh.model.posterior(points)
        assert difference(ours.mean, theirs.mean) < 1e-10
        assert difference(ours.variance, theirs.variance) < 1e-10
    assert torch.equal(play(bandit, 4), play(twin, 4))
    bandit.restart()
    twin = restored(bandit, make(memory, posterior))
    assert torch.equal(play(bandit, 3), play(twin, 3))


def test_a_restart_drops_what_a_batch_rule_holds():
    bandit = make("window", batches=GlobalBatchRule(50.0))
    bandit.tell(ARMS[:1], 0.4)
    assert bandit.model.num_observations == 0
    bandit.restart()
    assert len(bandit._standing.ledger.outstanding) == 0
    twin = restored(bandit, make("window", batches=GlobalBatchRule(50.0)))
    assert torch.equal(twin.ask(3), bandit.ask(3))


# ---------------------------------------------------------------- batches


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    ("posterior", "name", "rule"),
    sampled(13, ["exact", "coupled"], MEMORIES, [GlobalBatchRule(50.0), LocalBatchRule(20.0), StayRule(144.0)]),
)
def test_in_batches_what_was_learned_counts_as_at_other_times(rule, name, posterior):
    """Also the model shown while rewards are kept aside: time goes on meanwhile."""
    bandit, held = make(name, posterior, batches=rule), 0
    for number in range(10):
        X = bandit.ask()
        bandit.tell(X, reward(X))
        learned = bandit._standing.ledger.num_learned
        assert agrees(bandit, name, number + 1.0, learned=learned)
        held += learned not in (0, number + 1)
    assert held > 0
    replayed = make(name, posterior, batches=rule)
    replayed.replay(bandit.history)
    twin = restored(bandit, make(name, posterior, batches=rule))
    assert replayed._standing.ledger.num_learned == bandit._standing.ledger.num_learned
    batch = bandit.ask(None)
    assert torch.equal(replayed.ask(None), batch)
    assert torch.equal(twin.ask(None), batch)


# ---------------------------------------------------------------- errors and interrupts

CASES = {
    "window": ("window", "exact", "arms", {}),
    "window fresh": ("window", "fresh", "arms", {}),
    "window kors": ("window of observations", "kors", "arms", {}),
    "quadratic coupled": ("quadratic to a limit", "coupled", "arms", {}),
    "restart kors": ("restart", "kors", "changing", {}),
    "window in batches": ("window", "exact", "arms", {"batches": GlobalBatchRule(2.5)}),
}


def prepared(case):
    name, posterior, domain, words = CASES[case]
    bandit = make(name, posterior, domain, **words)
    play(bandit, 8, times=odd_times(8, 12))
    bandit.ask(time=float(bandit.history.times[-1]) + 1.0, **offer(bandit, 8))
    return bandit


def late(bandit):
    """A time at which something, but not everything, is forgotten."""
    return bandit._standing.clock.now + 3.0


def tell(bandit):
    X = torch.cat([bandit.pending[:1], TESTED[:1]]) if len(bandit.pending) else TESTED[:2]
    when = float(bandit.history.times[-1]) + 4.0
    if bandit.candidates.is_contextual:
        bandit.tell(X[:, 1:], reward(X), context=X[:, :1], time=when)
    else:
        bandit.tell(X, reward(X), time=when)


def ask(bandit):
    bandit.ask(2, time=late(bandit), **offer(bandit, 9))


def look(bandit):
    bandit.ask(2, time=late(bandit), remember=False, **offer(bandit, 9))
    bandit.acquisition(time=late(bandit), **offer(bandit, 9))
    bandit.recommend(time=bandit._standing.clock.now + 0.1, **offer(bandit, 9))


def outcome(bandit):
    """All that a twin must share: what is saved, chosen next and believed, now and later."""
    state = bandit.state_dict()
    numbers = [state["num_learned"], state["num_asked"], bandit.round, state["clock"]["now"], *bandit.pending_ids]
    saved = [*(part for part in state["history"].values() if part is not None), state["inducing_points"]]
    saved += [state["pending"], torch.tensor(numbers)]
    chosen = [bandit.ask(2, time=late(bandit), remember=False, **offer(bandit, 10))]
    posterior = bandit.model.posterior(TESTED.unsqueeze(-2))
    belief = bandit._belief
    believed = [posterior.mean, posterior.variance, *belief.moments(TESTED)]
    return saved + chosen, [*believed, belief.information_gain(), belief.effective_dimension(), belief.mean_norm()]


def agree(ours, theirs):
    """Whether what is saved and chosen is equal, and what is believed to rounding."""
    return all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(ours[0], theirs[0], strict=True)) and all(
        difference(a, b) < 1e-9 for a, b in zip(ours[1], theirs[1], strict=True)
    )


def broken_lines(case, call, lines):
    """Those of the lines after an interrupt at which the bandit is not as it was, or learns otherwise."""
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
@pytest.mark.parametrize("case", CASES)
def test_an_interrupt_after_what_changes_something_changes_nothing(case):
    """One in twelve of these lines; other cases take others of those that they share."""
    first = 2 * [*CASES].index(case)
    assert broken_lines(case, tell, lambda start: swaps(lambda: tell(deepcopy(start)))[first::12]) == []


@pytest.mark.slow
@pytest.mark.parametrize("call", [tell, ask, look])
@pytest.mark.parametrize("case", CASES)
def test_an_interrupt_at_any_line_changes_nothing(case, call):
    assert broken_lines(case, call, lambda _: count(1, 3)) == []


@pytest.mark.one_in(6)
@pytest.mark.parametrize("case", CASES)
def test_a_failed_tell_changes_nothing(case):
    bandit, twin = prepared(case), prepared(case)
    huge, X = torch.full((40,), 1.7e308, dtype=DOUBLE), TESTED[:1].repeat(40, 1)
    words = {"time": late(bandit)}
    if bandit.candidates.is_contextual:
        words, X = words | {"context": X[:1, 0]}, X[:, 1:]
    if bandit.batches is None:
        with pytest.raises(NumericalError):
            bandit.tell(X, huge, **words)
    for bad in ({"time": [0.0, 1.0]}, {"time": "noon"}, {"time": math.nan}):
        with pytest.raises(InputError):
            bandit.tell(X[:1], 0.5, **(words | bad))
    assert agree(outcome(bandit), outcome(twin))
    tell(bandit)
    tell(twin)
    assert agree(outcome(bandit), outcome(twin))


def test_a_failed_replay_leaves_the_bandit_empty():
    bandit = make("window")
    play(bandit, 6, times=odd_times(6, 14))
    history = bandit.history
    for bad, words in (
        (history._replace(times=None), "needs times"),
        (history._replace(times=history.times[:3]), "a time for each"),
        (history._replace(times=history.times * math.nan), "finite"),
        (history._replace(times=history.times + 0.1), "played before or when"),
        (history._replace(told_at=history.told_at.flip(0)), "must not decrease"),
        (history._replace(rounds=torch.zeros(6, dtype=torch.long)), "one for each round"),
        (history._replace(Y=history.Y * math.inf), "finite"),
    ):
        twin = make("window")
        with pytest.raises(InputError, match=words):
            twin.replay(bad)
        assert twin.round == 0
        assert torch.equal(twin.ask(2, time=0.0), make("window").ask(2, time=0.0))
    pending = make("window")
    pending.ask(time=history.times[0] + 1.0)
    with pytest.raises(InputError, match="the history begins at"):
        pending.replay(history)


# ---------------------------------------------------------------- memories as values


@examples(60)
@given(
    name=st.sampled_from(sorted(MEMORIES)),
    steps=st.lists(st.sampled_from([0.0, 0.25, 1.0, 3.0]), max_size=20),
    gaps=st.lists(st.floats(0.0, 40.0), min_size=1, max_size=4),
)
def test_noises_are_the_formulas_and_what_is_forgotten_never_counts_again(name, steps, gaps):
    times, case = np.cumsum([0.0, *steps]), MEMORIES[name]
    now, gone = times[-1], np.zeros(len(times), dtype=bool)
    for gap in [0.0, *gaps]:
        now = now + gap
        noise = case.memory.noise(torch.as_tensor(times), now, LAMBDA).numpy()
        assert noise.dtype == np.float64
        assert (noise >= LAMBDA).all()
        assert not np.isfinite(noise[gone]).any()
        gone |= ~np.isfinite(noise)
        if name.endswith("limit"):  # rounding decides at the limit itself
            continue
        wanted = case.noise(times, now)
        np.testing.assert_allclose(noise, np.where(wanted > LAMBDA * 2.0**104 * (1 - 1e-9), np.inf, wanted), rtol=1e-11)


@pytest.mark.parametrize("memory", [KeepAll(), *(case.memory for case in MEMORIES.values())])
def test_a_fresh_observation_has_the_noise_of_the_model(memory):
    times = torch.tensor([0.1, 0.3, 0.7999999999999999, 1.7e9 + 0.1], dtype=DOUBLE)
    for number in range(1, 5):
        noise = memory.noise(times[:number], float(times[number - 1]), LAMBDA)
        assert noise.shape == (number,)
        assert float(noise[-1]) == LAMBDA


@pytest.mark.parametrize("period", [0.1, 1 / 3, 0.7, 49.0])
def test_rounding_never_puts_the_present_into_the_past(period):
    for number in range(1, 200):
        for now in (math.nextafter(number * period, 0.0), number * period, math.nextafter(number * period, math.inf)):
            assert float(Restart(period).noise(torch.tensor([now], dtype=DOUBLE), now, LAMBDA)) == LAMBDA


def test_ageing_without_a_limit_drops_what_counts_nothing():
    times = torch.tensor([0.0, 99.0, 100.0], dtype=DOUBLE)
    assert Discount(0.01).noise(times, 100.0, LAMBDA).isfinite().tolist() == [False, True, True]
    assert Discount(0.01, 1e-300).noise(times, 100.0, LAMBDA).isfinite().tolist() == [False, True, True]
    assert UncertaintyInjection(Exponential(0.01), 1e300).noise(times, 100.0, LAMBDA).isfinite().sum() == 2


@pytest.mark.parametrize(
    ("make_one", "words"),
    [
        (lambda: SlidingWindow(0), "above 0"),
        (lambda: SlidingWindow(-3.0), "above 0"),
        (lambda: SlidingWindow(math.nan), "above 0"),
        (lambda: SlidingWindow(-math.inf), "above 0"),
        (lambda: SlidingWindow("week"), "number"),
        (lambda: SlidingWindow(True), "number"),
        (lambda: SlidingWindow(0, "observations"), "at least 1"),
        (lambda: SlidingWindow(2.5, "observations"), "whole number"),
        (lambda: SlidingWindow(5, "rounds"), '"time" or "observations"'),
        (lambda: Restart(0), "above 0"),
        (lambda: Restart(-1.0), "above 0"),
        (lambda: Restart(math.nan), "above 0"),
        (lambda: Restart(5, math.inf), "finite"),
        (lambda: Restart(math.inf, math.nan), "finite"),
        (lambda: Discount(0.0), "above 0 and at most 1"),
        (lambda: Discount(1.01), "above 0 and at most 1"),
        (lambda: Discount(-0.5), "above 0 and at most 1"),
        (lambda: Discount(math.nan), "above 0 and at most 1"),
        (lambda: Discount(0.9, 0.0), "between 0 and 1"),
        (lambda: Discount(0.9, 1.0), "between 0 and 1"),
        (lambda: Quadratic(-1.0), "at least 0"),
        (lambda: Quadratic(math.inf), "at least 0"),
        (lambda: Linear(-0.1), "at least 0"),
        (lambda: Linear(math.nan), "at least 0"),
        (lambda: Exponential(0.0), "above 0 and at most 1"),
        (lambda: UncertaintyInjection(0.5), "a growth"),
        (lambda: UncertaintyInjection(Linear(1.0), 0.0), "above 0"),
        (lambda: UncertaintyInjection(Linear(1.0), -1.0), "above 0"),
        (lambda: make(5), "a memory"),
        (lambda: make(UncertaintyInjection(Linear(0.1), 0.01)), "as soon as it is made"),
    ],
)
def test_bad_settings_are_refused(make_one, words):
    with pytest.raises(InputError, match=words):
        make_one()


def test_memories_are_values():
    assert SlidingWindow(3) == SlidingWindow(3.0)
    assert Discount(1) == Discount(1.0)
    assert Restart(2) != Restart(2, 1.0)
    assert len({case.memory for case in MEMORIES.values()}) == len(MEMORIES)
    assert all(isinstance(case.memory, Memory) for case in MEMORIES.values())


def test_states_do_not_mix():
    bandit = make("window")
    play(bandit, 3)
    state = bandit.state_dict()
    with pytest.raises(StateMismatchError, match=r"memory\.size: saved 6\.0, here 7\.0"):
        make(SlidingWindow(7.0)).load_state_dict(state)
    with pytest.raises(StateMismatchError, match="memory"):
        make(None).load_state_dict(state)
    for broken, words in (
        ({"history": {**state["history"], "times": None}}, "needs times"),
        ({"history": {**state["history"], "times": state["history"]["times"][:2]}}, "a time for each"),
        ({"history": {**state["history"], "times": state["history"]["times"] + 50.0}}, "played before or when"),
        ({"history": {**state["history"], "told_at": state["history"]["told_at"] + 50.0}}, "before what was told"),
        ({"history": {**state["history"], "told_at": None}}, "needs times"),
        ({"pending_times": torch.zeros(1, dtype=DOUBLE)}, "ascending number for each of the 0"),
        ({"history": {**state["history"], "times": "then"}}, "damaged"),
        ({"clock": {"now": -math.inf, "kind": None}}, "before what was told"),
        ({"clock": {"now": math.nan, "kind": "numbers"}}, "before what was told"),
        ({"clock": {"now": 5.0, "kind": "moons"}}, "unknown kind"),
        ({"clock": {"hour": 5.0}}, "damaged"),
        ({"clock": {"now": 50.0, "kind": "numbers", "matters": False}}, "damaged"),
        ({"num_forgotten": 4}, "forgotten"),
    ):
        twin = make("window")
        with pytest.raises(StateMismatchError, match=words):
            twin.load_state_dict(state | broken)
        assert torch.equal(twin.ask(2), make("window").ask(2))
    without = make(None)
    play(without, 3)
    damaged = without.state_dict()
    damaged["history"]["times"] = torch.zeros(3, dtype=DOUBLE)
    with pytest.raises(StateMismatchError, match="has none"):
        make(None).load_state_dict(damaged)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("posterior", ["exact", "coupled"])
def test_single_precision(posterior):
    """What counts is the same; what is believed agrees to the precision."""
    times = odd_times(10, 15)
    for name in ("window", "quadratic to a limit"):
        double = make(name, posterior)
        single = make(name, posterior, Arms(ARMS.float()))
        for turn, now in enumerate(times):
            X = ARMS[[turn % 5, (3 * turn) % 7]]
            double.tell(X, reward(X), time=now)
            single.tell(X.float(), reward(X).float(), time=now)
        assert single._belief.num_observations == double._belief.num_observations
        if posterior == "exact":
            assert difference(single._belief.moments(TESTED.float())[0], double._belief.moments(TESTED)[0]) < 1e-4
        assert single.ask(time=times[-1] + 1.0).dtype == torch.float32


@pytest.mark.one_in(16)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("rule", [ExpectedImprovementRule(), ProbabilityOfImprovementRule(), ThompsonRule()], ids=repr)
@pytest.mark.parametrize("domain", DOMAINS)
def test_any_acquisition_goes_with_a_memory_also_where_nothing_counts(rule, domain):
    bandit, twin = (make("restart", "fresh", domain, acquisition=rule) for _ in range(2))
    for number, now in enumerate([0.0, 8.5, 60.0]):
        words = offer(bandit, number)
        x = bandit.ask(2, time=now, **words)
        assert torch.equal(twin.ask(2, time=now, **words), x)
        for each in (bandit, twin):
            each.tell(x, reward(joint(x, words)), context=words.get("context"))
    assert agrees(bandit, "restart", 60.0)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("growth", [Quadratic(0.7), Linear(0.04), Exponential(0.6)], ids=repr)
@pytest.mark.parametrize("posterior", ["exact", "fresh"])
def test_a_model_with_an_ageing_likelihood_believes_what_the_bandit_does(growth, posterior):
    """It has a column of time and serves a loop without ``Bandit``."""
    bandit = make(UncertaintyInjection(growth), posterior)
    now = tell_at_odd_times(bandit, 12, seed=17)
    bandit.ask(time=now + 2.0)
    history = bandit.history
    likelihood = UncertaintyInjectionLikelihood(growth, regularization=LAMBDA, now=now + 2.0, times=history.times)
    words = {"covar_module": matern(0.5, 1.7), "likelihood": likelihood}
    if posterior == "exact":
        model = OnlineGP(history.X, history.Y.unsqueeze(-1), **words)
    else:
        model = NystromGP(history.X, history.Y.unsqueeze(-1), inducing_points=bandit.inducing_points, **words)
    ours, theirs = (each.posterior(TESTED.unsqueeze(-2)) for each in (bandit.model, model))
    assert difference(ours.mean, theirs.mean) < 1e-8
    assert difference(ours.variance, theirs.variance) < 1e-8


def test_a_box_is_searched_for_what_counts_now():
    """The reward told at first is forgotten by the time of the second look."""
    bandit = make("window", "exact", "box", width=ConstantWidth(0.1))
    X = torch.tensor([[0.2, 0.2], [0.8, 0.7]], dtype=DOUBLE)
    bandit.tell(X[:1], 3.0, time=0.0)
    bandit.tell(X[1:], 2.0, time=5.0)
    assert torch.equal(bandit.recommend(time=5.0), X[:1])
    assert difference(bandit.ask(time=5.0, remember=False), X[:1]) < 0.15
    assert torch.equal(bandit.recommend(time=7.0), X[1:])
    assert difference(bandit.ask(time=7.0, remember=False), X[1:]) < 0.15
