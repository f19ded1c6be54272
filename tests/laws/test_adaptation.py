"""Restarts on surprising rewards, and memories chosen by what they earned or predicted: formulas, and what follows."""

import math

import numpy as np
import oracles
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kinds import composed
from problems import DOUBLE, believed, data, dense, difference, rbf, reward
from scipy import stats

import torch_kbandits as kb
from torch_kbandits.bandit import GlobalBatchRule
from torch_kbandits.bandit.adaptation import (
    BanditOverBandit,
    CumulatedTrigger,
    MultiScaleRestarts,
    ResidualTrigger,
)
from torch_kbandits.confidence import BayesianGPUCBWidth
from torch_kbandits.memory import Discount, LinearGrowth, Restart, SlidingWindow, Stationary, UncertaintyInjection

ARMS = data(30, 2)[0]
BOX = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)
KERNEL = oracles.rbf(0.3)
NOISE = 0.01
WORDS = {"candidates": ARMS, "kernel": rbf(0.3), "regularization": NOISE, "beta": 1.5, "seed": 3}


def make(candidates=None, **settings):
    words = {"candidates": kb.Arms(ARMS) if candidates is None else candidates, "kernel": rbf(0.3)}
    return composed(**words | {"regularization": NOISE, "width": kb.ConstantWidth(2.0)} | settings)


def play(bandit, rounds, sign=lambda t: 1.0, q=1):
    for _ in range(rounds):
        x = bandit.ask(q)
        bandit.tell(x, sign(bandit.round) * torch.cos(3.0 * x.sum(-1)))
    return bandit


def is_of(bandit, X, Y, noise):
    """Whether the model is the dense posterior of these rewards, by the bandit's dictionary if it has one."""
    told = *dense(X, Y), np.broadcast_to(noise, len(X))
    if bandit.dictionary is None:
        found = oracles.exact(KERNEL, *told, ARMS.numpy())
    else:
        found = oracles.dtc(KERNEL, *told, *dense(bandit.inducing_points, ARMS))
    mean, variance = believed(bandit, ARMS)
    return max(difference(mean, found.mean), difference(variance, found.variance.clip(1e-10))) < found.rounding


# ---------------------------------------------------------------- restarts


def dense_band(variance, number, probability, noise_scale, multiplier=None):
    radius = math.sqrt(2.0 * math.log(2.0 * (math.pi**2 * number**2 / 6.0) / probability))
    return (radius if multiplier is None else multiplier) * math.sqrt(variance) + radius * noise_scale


def restarts_by_hand(X, Y, probability, noise_scale, multiplier):
    """How many rewards count after each round, in plain float64: the trigger reads the posterior before the reward."""
    first, numbers = 0, []
    for t in range(len(X)):
        past = slice(first, t)
        found = oracles.exact(KERNEL, X[past], Y[past], np.full(t - first, NOISE), X[t : t + 1])
        known = t - first + 1, probability, noise_scale or math.sqrt(NOISE), multiplier
        band = dense_band(max(found.variance[0], 0.0), *known)
        if abs(Y[t] - found.mean[0]) > band:
            first = t
        numbers.append(t - first + 1)
    return numbers


@pytest.mark.one_in(4)
@pytest.mark.parametrize("domain", ["arms", "box", "contexts", "memory"])
@given(
    told=st.lists(st.tuples(st.integers(0, 11), st.floats(-6.0, 6.0)), min_size=1, max_size=12),
    scale=st.sampled_from([None, 0.05, 0.4]), multiplier=st.sampled_from([None, 1.7]),
)  # fmt: skip
def test_restarts_are_those_of_the_dense_formulas(domain, told, scale, multiplier):
    words = {"memory": SlidingWindow(math.inf)} if domain == "memory" else {}
    where = {"box": kb.Box(BOX), "contexts": kb.ContextualActions(ARMS[:, 1:], context_dim=1)}.get(domain)
    trigger = ResidualTrigger(0.1, scale, None if multiplier is None else kb.ConstantWidth(multiplier))
    bandit, c = make(where, trigger=trigger, **words), int(domain == "contexts")
    X, Y, numbers = ARMS[[row for row, _ in told]], torch.tensor([y for _, y in told], dtype=DOUBLE), []
    for x, y in zip(X[:, None], Y, strict=True):
        bandit.tell(x[:, c:], y, context=x[0, :c] if c else None)
        numbers.append(bandit.num_since_restart)
    assert numbers == restarts_by_hand(*dense(X, Y), 0.1, scale, multiplier)
    kept = slice(len(X) - numbers[-1], None)
    assert is_of(bandit, X[kept], Y[kept], NOISE)
    assert len(bandit.history.X) == len(X)


def prior_draw(seed):
    generator = torch.Generator().manual_seed(seed)
    values, vectors = torch.linalg.eigh(torch.tensor(KERNEL(ARMS.numpy(), ARMS.numpy())))
    return vectors @ (values.clamp_min(0.0).sqrt() * torch.randn(len(ARMS), generator=generator, dtype=DOUBLE))


def restarted_at(trigger, seed, rounds, change=lambda t, value: value):
    """The round of the first restart on a function from the prior that changes; None if there is none."""
    means, generator = prior_draw(seed), torch.Generator().manual_seed(seed)
    noise = math.sqrt(NOISE) * torch.randn(rounds, generator=generator, dtype=DOUBLE)
    bandit = make(trigger=trigger, seed=seed)
    for t in range(rounds):
        x = bandit.ask()
        bandit.tell(x, change(t, means[(x == ARMS).all(-1)]) + noise[t])
        if bandit.num_since_restart <= t:
            return t
    return None


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "probability", "most"), [(ResidualTrigger, 0.3, 71), (CumulatedTrigger, 0.1, 32)])
def test_false_alarms_are_as_rare_as_stated(kind, probability, most):
    """150 functions from the prior: more would come with probability 1e-5. The same number refuses a false band."""

    class TooNarrow(kind):
        def band(self, before):
            return 0.4 * super().band(before)

        def is_triggered(self, Y, before):
            if kind is CumulatedTrigger:  # noise taken for a third of what it is
                Y = before.mean + 1.7 * (Y - before.mean)
            return super().is_triggered(Y, before)

    assert sum(restarted_at(kind(probability), seed, 40) is not None for seed in range(150)) <= most
    assert sum(restarted_at(TooNarrow(probability), seed, 40) is not None for seed in range(150)) > most


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 12))])
def test_a_switch_is_found_at_once_and_a_drift_below_the_noise_by_what_adds_up(seed):
    """After 40 rounds the drift is two deviations of the noise, which no single residual need show."""
    assert restarted_at(ResidualTrigger(0.1), seed, 62, lambda t, value: value if t < 60 else -value) == 60

    def drift(t, value):
        return value - 0.005 * max(t - 60, 0)

    found = restarted_at(CumulatedTrigger(0.01), seed, 160, drift)
    assert 60 < found <= 110
    assert restarted_at(ResidualTrigger(0.01), seed, found + 1, drift) is None


def test_what_a_batch_rule_holds_is_forgotten_pending_points_stay_and_rewards_of_one_round_restart_together():
    words = {"dictionary": kb.RidgeLeverageSampling(), "batches": GlobalBatchRule(1000.0)}
    bandit = make(trigger=ResidualTrigger(0.1), **words)
    X = bandit.ask(4)
    for row, y in enumerate((0.5, 0.4, 50.0)):
        assert bandit.num_since_restart == row
        bandit.tell(X[row, None], y)
    assert (bandit.num_since_restart, bandit.num_observations, bandit.model.num_observations) == (1, 3, 0)
    assert torch.equal(bandit.pending, X[3:])
    bandit = make(trigger=ResidualTrigger(0.1))
    bandit.tell(ARMS[:3], torch.zeros(3, dtype=DOUBLE))
    bandit.tell(ARMS[3:6], torch.tensor([0.0, 0.0, 30.0], dtype=DOUBLE))
    assert bandit.num_since_restart == 3
    assert torch.equal(bandit.model.train_inputs[0], ARMS[3:6])


def test_without_an_alarm_nothing_differs_and_the_reward_is_compared_at_its_own_time():
    """A window that has passed leaves the prior, under which no such reward surprises."""

    class Never(ResidualTrigger):
        def is_triggered(self, Y, before):
            return False

    static, adaptive = make(), make(trigger=Never(0.1))
    for _ in range(20):
        x = static.ask()
        assert torch.equal(adaptive.ask(), x)
        for bandit in (static, adaptive):
            bandit.tell(x, 5.0 * reward(x))
    for gap, counted in ((1.0, 1), (9.0, 6)):
        bandit = kb.algorithms.ETGPUCB(**WORDS, memory=SlidingWindow(6.0))
        for t in range(5):
            bandit.tell(ARMS[:1], 0.0, time=float(t))
        bandit.tell(ARMS[:1], 2.0, time=4.0 + gap)
        assert bandit.num_since_restart == counted


# ---------------------------------------------------------------- memories chosen by what they earned

WINDOWS = tuple(SlidingWindow(size, "observations") for size in (3, 8, math.inf))


def over_bandits(memories=WINDOWS, block_size=5, exploration=0.6, **settings):
    return make(memories=BanditOverBandit(memories, block_size, exploration), **settings)


def exp3_by_hand(means, drawn, num_options, exploration):
    """The probabilities in each block, from the definition: every gain is scaled anew in every block."""
    told = []
    for block in range(len(means) + 1):
        past = means[:block]
        low, high = (min(past), max(past)) if past else (0.0, 0.0)
        estimates = np.zeros(num_options)
        for number, mean in enumerate(past):
            gain = (mean - low) / (high - low) if high > low else 0.0
            estimates[drawn[number]] += gain / told[number][drawn[number]]
        weights = np.exp(exploration / num_options * estimates)
        told.append((1.0 - exploration) * weights / weights.sum() + exploration / num_options)
    return told


@given(
    st.lists(st.floats(-100.0, 100.0).map(lambda value: round(value, 3)), max_size=15),
    st.floats(0.05, 1.0),
    st.integers(0, 5),
)
def test_probabilities_are_those_of_the_plain_formula(means, exploration, seed):
    chooser = BanditOverBandit(WINDOWS, 5, exploration)
    choices = [chooser.choice(means[:number], seed) for number in range(len(means) + 1)]
    drawn = [WINDOWS.index(choice.memory) for choice in choices]
    for choice, expected in zip(choices, exp3_by_hand(means, drawn, len(WINDOWS), exploration), strict=True):
        np.testing.assert_allclose(choice.probabilities, expected, rtol=1e-6)
        assert min(choice.probabilities) >= exploration / 3 - 1e-12
    moved = chooser.choice([50.0 * mean - 7.0 for mean in means], seed)  # scaling and shifting changes nothing
    np.testing.assert_allclose(moved.probabilities, choices[-1].probabilities, rtol=1e-6)


def test_draws_have_the_probabilities_and_a_better_memory_is_learned():
    """2,000 seeds; each count is within five standard deviations: a false alarm has probability below 1e-5."""
    chooser = BanditOverBandit(WINDOWS, 5, 0.5)
    for told in ([], [0.0, 1.0]):
        choices = [chooser.choice(told, seed) for seed in range(2000)]
        for row, memory in enumerate(WINDOWS):
            expected = sum(choice.probabilities[row] for choice in choices)
            assert abs(sum(choice.memory is memory for choice in choices) - expected) < 5.0 * math.sqrt(2000 / 4)
    learning, means = BanditOverBandit(WINDOWS, 5, 0.12), []
    for _ in range(150):
        means.append(float(learning.choice(means, 0).memory is WINDOWS[1]))
    assert learning.choice(means, 0).probabilities[1] > 0.9


def test_windows_exploration_and_means_of_blocks():
    chosen = kb.algorithms.BOBGPUCB(**WORDS, horizon=1000).memories
    assert [memory.size for memory in chosen.memories] == [32, 128, 512, math.inf]
    assert chosen.exploration == pytest.approx(math.sqrt(4 * math.log(4) / ((math.e - 1) * 32)))
    for windows, exploration in (([9], 0.0), ([9, 12, 13, 14, 15], 1.0)):
        assert kb.algorithms.BOBGPUCB(**WORDS, horizon=3, windows=windows).memories.exploration == exploration
    Y, rounds = torch.arange(9, dtype=DOUBLE), torch.tensor([0, 0, 1, 2, 3, 3, 3, 4, 5])
    chooser = BanditOverBandit(WINDOWS, 2, 0.5)
    for number, expected in ((9, (1.0, 4.5, 7.5)), (8, (1.0, 4.5))):
        assert chooser.summaries(kb.History(Y[:number, None], Y[:number], rounds[:number]), (), None) == expected


def test_a_restart_is_not_undone_by_a_new_block():
    restarted = play(over_bandits(), 7)
    restarted.restart()
    for number in range(1, 20):
        play(restarted, 1)
        assert restarted.model.num_observations == min(number, restarted.memory.size)


# ---------------------------------------------------------------- memories chosen by what they predicted

MEMORIES = (SlidingWindow(4.0), Discount(0.8), UncertaintyInjection(LinearGrowth(0.02)), Stationary())
RATES = (0.4, 0.1, 0.01, 0.0)


#: The noises that they leave, and of each option what it assumes: a kernel and noises.
NOISES = (
    lambda ages: np.where(ages <= 4.0, NOISE, np.inf),
    lambda ages: NOISE * 0.8**-ages,
    lambda ages: NOISE + 0.02 * ages,
    lambda ages: np.full(len(ages), NOISE),
)
ASSUMED = {
    "memories": [(KERNEL, noise) for noise in NOISES],
    "priors on time": [(oracles.in_time(KERNEL, rate), NOISES[-1]) for rate in RATES],
}


def selecting(of="memories", **settings):
    if of == "priors on time":
        words = {"forgettings": RATES, "least_correlation": 1e-3, "block_size": 3}
        return kb.algorithms.DMSTVGPUCB(**(WORDS | words | settings))
    return kb.algorithms.DMSGPUCB(**(WORDS | {"memories": MEMORIES, "block_size": 3} | settings))


def log_density(history, start, stop, kernel, noise_of):
    """Of the rewards of a block, each on its own at the time at which it was made."""
    X, y, rounds = dense(history.X, history.Y, history.rounds)
    before, told = rounds < start, (rounds >= start) & (rounds < stop)
    noise = noise_of(start - rounds[before])
    counts = np.isfinite(noise)
    posterior = oracles.exact(kernel, X[before][counts], y[before][counts], noise[counts], X[told])
    variance = posterior.variance + NOISE
    return -0.5 * ((y[told] - posterior.mean) ** 2 / variance + np.log(2.0 * np.pi * variance)).sum()


@pytest.mark.one_in(4)
@pytest.mark.parametrize("q", [1, 2])
@pytest.mark.parametrize("score_discount", [0.5, 0.9])
@pytest.mark.parametrize("of", ASSUMED)
def test_the_option_in_force_predicted_best(of, q, score_discount):
    bandit = play(selecting(of, score_discount=score_discount), 21, lambda t: -1.0 if t // 8 % 2 else 1.0, q)
    totals = np.zeros(4)
    for start in range(0, 21, 3):
        scores = [log_density(bandit.history, start, start + 3, *each) for each in ASSUMED[of]]
        totals = score_discount**3 * totals + scores
    kept = bandit.memories.num_blocks
    assert kept == math.ceil(math.log(1e-3) / (3 * math.log(score_discount)))
    if kept >= 7:
        expected = np.exp(totals - totals.max())
        assert bandit.memory_probabilities == pytest.approx(expected / expected.sum(), rel=1e-6)
    chosen = MEMORIES.index(bandit.memory) if of == "memories" else RATES.index(bandit.memory.forgetting)
    assert chosen == totals.argmax()
    if (of, q) == ("memories", 1):
        bandit.forget(ids=bandit.ask(details=True).ids)  # it is round 21 now
        noise = NOISES[chosen](21.0 - bandit.history.rounds.numpy())
        counts = torch.from_numpy(np.isfinite(noise))
        assert is_of(bandit, bandit.history.X[counts], bandit.history.Y[counts], noise[counts.numpy()])


def test_a_block_of_which_every_play_failed_says_nothing_of_its_memory():
    for bandit, twin in (
        (over_bandits(block_size=3), over_bandits(block_size=3)),
        (selecting(), selecting()),
        (master(block_size=3), master(block_size=3)),
        (make(trigger=ResidualTrigger(0.1), memory=SlidingWindow(5.0)), None),
    ):
        play(bandit, 6)
        before = bandit.memory_probabilities
        for _ in range(3):
            bandit.tell(bandit.ask(), failed=True)
        assert twin is None or sum(bandit.memory_probabilities) == pytest.approx(1.0)
        if isinstance(bandit.memories, BanditOverBandit):
            assert bandit.memory_probabilities == before
        play(bandit, 3)
        if twin is not None:
            twin.replay(bandit.history)
            assert twin.memory_probabilities == pytest.approx(bandit.memory_probabilities)
            assert torch.equal(twin.ask(), bandit.ask())


# ---------------------------------------------------------------- instances of several scales, and what restarts them


def master(**settings):
    return kb.algorithms.MASTERGPUCB(**(WORDS | {"exploration": 0.0} | settings))


def play_dated(bandit):
    bandit.tell(ARMS[:1], [0.0], time=3.5)
    return bandit


def replayed(bandit, other):
    bandit.replay(other.history)
    return bandit


def start_by_hand(history, size, beta, probability):
    """The block of the last restart, by dense posteriors of what came since."""
    X, y, rounds = dense(history.X, history.Y, history.rounds)
    blocks, start, seen = rounds // size, 0, []
    for block in range((int(rounds[-1]) + 1) // size):
        known, told = (blocks >= start) & (blocks < block), blocks == block
        there = oracles.exact(KERNEL, X[known], y[known], np.full(known.sum(), NOISE), ARMS.numpy())
        here = oracles.exact(KERNEL, X[known], y[known], np.full(known.sum(), NOISE), X[told])
        upper = (there.mean + beta * np.sqrt(there.variance)).max()
        seen.append((told.sum(), y[told].sum(), (here.mean - beta * np.sqrt(here.variance)).sum(), upper))
        N, rewards, least, bounds = np.array(seen).T
        age, phase = len(seen), int(np.log2(len(seen)))
        done = age - (2**phase - 1)
        parts = {0: (done, (least - rewards)[-done:].sum())}
        for m in range(phase + 1):
            if done % 2**m == 0:
                parts[m + 1] = 2**m, (rewards - N * bounds.min())[-(2**m) :].sum()
        for j, (number, excess) in parts.items():
            share = 3.0 * probability / (math.pi**2 * age**2 * 2.0**j)
            if excess > math.sqrt(2.0 * NOISE * N[-number:].sum() * math.log(1.0 / share)):
                start, seen = block + 1, []
                break
    return start


@pytest.mark.parametrize(("size", "q", "switch"), [(1, 1, 11), (2, 2, 8), (3, 1, 12)])
def test_restarts_are_those_of_the_tests_by_hand(size, q, switch):
    bandit, starts = master(block_size=size), set()
    for _ in range(8):
        play(bandit, 3, lambda t: 1.0 if t // switch % 2 else -1.0, q)
        start = start_by_hand(bandit.history, size, 1.5, 0.1)
        age = bandit.round // size - start
        assert bandit.memory.origin == start * size
        assert bandit.memory.period == (2 ** int(math.log2(age + 1) + 1) - 1) * size
        assert bandit.model.num_observations == q * (bandit.round - start * size)
        starts.add(start)
    assert len(starts) > 1


@pytest.mark.filterwarnings("ignore::torch_kbandits.errors.TheoryWarning")
def test_a_function_that_stays_seldom_restarts_and_one_that_changes_does():
    """Each of 40 runs restarts with probability at most 0.05 + 0.02, for the tests and for the band."""
    alarms, width = 0, BayesianGPUCBWidth(len(ARMS), 0.02)
    for seed in range(40):
        generator = np.random.default_rng(seed)
        values = np.linalg.cholesky(KERNEL(ARMS.numpy(), ARMS.numpy()) + 1e-9 * np.eye(30)) @ generator.normal(size=30)
        bandit = master(seed=seed, false_alarm_probability=0.05, beta=width)
        for t in range(40):
            x = bandit.ask()
            place = int((x == ARMS).all(-1).nonzero()[0])
            change = 3.0 * (t >= 30 and seed < 10)
            bandit.tell(x, values[place] - change + NOISE**0.5 * generator.normal())
            alarms += t == 29 and bandit.memory.origin > 0.0
        assert bandit.memory.origin >= 30.0 or seed >= 10
    assert alarms <= stats.binom.ppf(1.0 - 1e-4, 40, 0.07)


def test_instances_begin_with_their_probabilities():
    """Of 3,000 seeds; each count is within five standard deviations: a false alarm has probability below 1e-5."""
    rule = MultiScaleRestarts((Restart(1.0),), kb.ConstantWidth(1.0), 2, exploration=0.7)
    told = tuple((block, 0, 2, 0.0, -9.0, 9.0) for block in range(12))  # the sixth block of phase 3
    chosen, expected, left = [rule.choice(told, seed).memory for seed in range(3000)], {}, 1.0
    for m, begins in enumerate((12, 11, 11)):
        expected[Restart(2.0 * 2**m, 2.0 * begins)] = left * 0.7 * 2.0 ** ((m - 3) / 2)
        left *= 1.0 - 0.7 * 2.0 ** ((m - 3) / 2)
    expected[Restart(30.0, 0.0)] = left
    for memory, share in expected.items():
        assert abs(chosen.count(memory) - 3000 * share) < 5.0 * math.sqrt(3000 * share * (1.0 - share))
    assert set(chosen) == set(expected)


NAN = math.nan
BAD = [
    (lambda: make(trigger=0.1), "trigger must be RestartTrigger or None"),
    *((lambda m=m: BanditOverBandit(m, 5, 0.5), "memories") for m in ((), "all", (3,), None)),
    (lambda: BanditOverBandit(WINDOWS, 0, 0.5), "block_size"),
    *((lambda e=e: BanditOverBandit(WINDOWS, 5, e), "exploration") for e in (-0.1, 1.1, NAN)),
    *((lambda w=w: kb.algorithms.BOBGPUCB(**WORDS, horizon=9, windows=w), "windows") for w in ([], "3", 3)),
    (lambda: kb.algorithms.BOBGPUCB(**WORDS, horizon=9, windows=[0]), "size"),
    (lambda: master(candidates=ARMS[:, :1], context_dim=1), "leave out contexts"),
    (lambda: master(exploration=1.5), "exploration"),
    (lambda: MultiScaleRestarts((Restart(1.0),), 2.0), "width must be a confidence width"),
    (lambda: MultiScaleRestarts(WINDOWS, kb.ConstantWidth(1.0)), "must be one Restart"),
    (lambda: play_dated(master()), "times are rounds"),
    (lambda: master().ask(time=3.5), "times are rounds"),
    (lambda: play_dated(replayed(master(), play(master(), 3))), "times are rounds"),
    (lambda: replayed(master(block_size=1), play_dated(over_bandits())), "leave out times"),
    *((lambda m=m: selecting(memories=m), "memories") for m in ([], [3])),
    (lambda: selecting().replay(play(kb.algorithms.GPUCB(**WORDS), 4).history), "needs times"),
]


def test_what_makes_no_sense_and_states_of_other_settings_are_refused():
    for call, message in BAD:
        with pytest.raises(kb.InputError, match=message):
            call()
    for bandit, other, message in (
        (over_bandits(), over_bandits(exploration=0.3), "memories"),
        (selecting(), selecting(score_discount=0.9), "memories"),
        (make(trigger=ResidualTrigger(0.1)), make(trigger=ResidualTrigger(0.2)), r"trigger.*: saved 0\.1, here 0\.2"),
    ):
        with pytest.raises(kb.StateMismatchError, match=message):
            other.load_state_dict(bandit.state_dict())
