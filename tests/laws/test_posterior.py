"""One posterior: whatever happened to a bandit, what it shows, predicts and chooses is what dense formulas say.

They know what was told and when, which points are pending, and the dictionary. They share no code with the package.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import oracles
import pytest
import torch
from forgetting import BETA, KERNEL, LAMBDA, MEMORIES
from gpytorch.kernels import MaternKernel, PolynomialKernel, RBFKernel, RQKernel
from problems import DOUBLE, KernelPair, data, dense, difference, exactly, linear, matern, rbf, scaled
from scipy.special import erfcx
from scipy.stats import norm
from torch import Tensor

import torch_kbandits as kb
from torch_kbandits.acquisition import ExpectedImprovementRule
from torch_kbandits.candidates import Candidates, Timed
from torch_kbandits.confidence import Width
from torch_kbandits.kernels import ForgettingKernel, GroupedKernel, SpaceTimeKernel
from torch_kbandits.memory import Memory, SlidingWindow, TemporalPrior

FEW = torch.cat([data(22, 2, 51)[0], data(4, 2, 51)[0]])
#: More arms than those of which an exact posterior keeps all covariances.
MANY = torch.cat([data(516, 2, 52)[0], FEW[:3], FEW[:3]])
ACTIONS, CONTEXTS, BOX = FEW[:12, 1:], data(5, 1, 53)[0], torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)
TESTED, RATE = data(5, 2, 54)[0], 0.15
SEARCH = {"num_restarts": 1, "raw_samples": 4}


class Space(NamedTuple):
    """Candidates, and what may be played of them, (A, a); None on a box."""

    make: Callable[[Path], Candidates]
    actions: Tensor | None = None
    context_dim: int = 0
    each_round: bool = False
    is_listed: bool = False


def in_a_file(folder):
    np.save(folder / "arms.npy", FEW.numpy())
    return kb.Arms(np.load(folder / "arms.npy", mmap_mode="r"))


SPACES = {
    "arms": Space(lambda _: kb.Arms(FEW), FEW, is_listed=True),
    "many arms": Space(lambda _: kb.Arms(MANY), MANY, is_listed=True),
    "arms in a file": Space(in_a_file, FEW, is_listed=True),
    "box": Space(lambda _: kb.Box(BOX, **SEARCH)),
    "actions": Space(lambda _: kb.ContextualActions(FEW, context_dim=0), FEW, is_listed=True),
    "actions in a context": Space(lambda _: kb.ContextualActions(ACTIONS, context_dim=1), ACTIONS, 1),
    "actions of each round": Space(lambda _: kb.ContextualActions(action_dim=1, context_dim=1), ACTIONS, 1, True),
    "box in a context": Space(lambda _: kb.ContextualActions(bounds=BOX[:, :1], context_dim=1, **SEARCH), None, 1),
}
DICTIONARIES = {
    "exact": None,
    "fresh": kb.RidgeLeverageSampling(1.0),
    "coupled": kb.RidgeLeverageSampling(1.0, "coupled"),
    "growth": kb.RidgeLeverageSampling(0.5, "growth"),
    "kors": kb.KORS(0.5),
    "capped": kb.CappedDictionary(kb.RidgeLeverageSampling(2.0), 4, "stop", learns_residual=False),
    "capped kors": kb.CappedDictionary(kb.KORS(0.5), 5, "stop", learns_residual=False),
    "full": kb.CappedDictionary(kb.RidgeLeverageSampling(3.0, "coupled"), 5, "stop"),
    "full kors": kb.CappedDictionary(kb.KORS(0.5), 5, "stop"),
    "greedy": kb.GreedyDictionary(5),
    "uniform": kb.UniformDictionary(4),
    "k-dpp": kb.KDPP(4, num_swaps=10),
    "fixed": kb.FixedDictionary(FEW[1:17:3]),
}


class Remembered(NamedTuple):
    """A memory, the noise variances (n,) that it leaves at times (n,), infinite of what is gone, and its kernel."""

    memory: Memory | None
    noise: Callable[[np.ndarray, float], np.ndarray]
    kernel: oracles.DenseKernel = KERNEL
    points_know_the_time: bool = False


def untouched(times, now):
    return np.full(len(times), LAMBDA)


def correlated(times, now):
    return np.where((1.0 - RATE) ** (0.5 * (now - times)) < 0.5, np.inf, LAMBDA)


IN_TIME = oracles.in_time(KERNEL, RATE)


def of_days(A, B):
    """That, and what all have in common at a time."""
    return IN_TIME(A, B) + 0.8 * 0.7 ** (0.5 * np.abs(A[:, :1] - B[:, 0]))


def kernel_of_days():
    common = scaled(ForgettingKernel(0.3, active_dims=(0,)), 0.8)
    return SpaceTimeKernel(matern(0.5, 1.7), ForgettingKernel(RATE)) + common


REMEMBERED = {
    "all": Remembered(None, untouched),
    **{name: Remembered(*case) for name, case in MEMORIES.items()},
    "prior on time": Remembered(TemporalPrior(RATE), untouched, IN_TIME, True),
    "prior on time to a limit": Remembered(TemporalPrior(RATE, 0.5), correlated, IN_TIME, True),
    "a kernel of time": Remembered(None, untouched, of_days, True),
}


def profile(points):
    """What is expected of points (n, 2)."""
    return 3.0 + 7.0 * points.sum(-1) + torch.cos(points[:, 0])


def season(points, time):
    """What is expected of points (n, 2) at times (n,)."""
    return 3.0 + 7.0 * torch.sin(2.0 * points[:, -1] + 0.8 * time)


def expected_heat(X):
    return 0.5 - X[..., -1]


class Assumed(NamedTuple):
    """What is assumed of an outcome: words of ``Outcome`` and of its ``Prior``, and the same densely."""

    of_outcome: dict
    of_prior: dict
    kernel: oracles.DenseKernel = KERNEL
    noise: float = LAMBDA


OWN = SlidingWindow(9.0)
ASSUMED = {
    "as the reward": Assumed({}, {}),
    "λ in the last bit": Assumed({}, {"regularization": float(np.nextafter(LAMBDA, 1.0))}),
    "another λ": Assumed({}, {"regularization": 0.3}, noise=0.3),
    "another kernel": Assumed({}, {"kernel": rbf(0.5, 1.7)}, oracles.rbf(0.5, 1.7)),
    "a memory of its own": Assumed({"memory": OWN}, {}),
}
#: Memories under which noises are multiples of λ.
MULTIPLYING = ("all", "window", "discount", "prior on time")


#: How much of each that widths read of a posterior is in the width below.
READ = {"information_gain": 0.2, "effective_dimension": 0.1, "projection_error": 0.03, "mean_norm": 0.3}


@dataclass(frozen=True)
class Evident(Width):
    """A width made of all that widths read: so ``beta`` shows it, and bounds are made of it."""

    def __call__(self, evidence):
        return 0.5 + sum(share * getattr(evidence, name)() for name, share in READ.items())


def made(space, folder, dictionary="exact", **words):
    settings = {"kernel": matern(0.5, 1.7), "regularization": LAMBDA, "width": kb.ConstantWidth(BETA), "seed": 5}
    candidates = SPACES[space].make(folder) if isinstance(space, str) else space
    rule = DICTIONARIES[dictionary] if isinstance(dictionary, str) else dictionary
    return kb.Bandit(candidates=candidates, dictionary=rule, **(settings | words))


class Program:
    """Random calls to a bandit, beside a picture of what it was told, when, and what is pending."""

    def __init__(
        self, space, dictionary, memory, folder, seed=0, *, is_evident=False, kernel=None, mean=None, assumed=None
    ):
        self.space, self.remembered, self.mean = SPACES[space], REMEMBERED[memory], mean
        self.assumed = ASSUMED[assumed] if assumed else None
        if kernel is not None:
            self.remembered = self.remembered._replace(kernel=kernel.dense)
        if mean is season and not self.remembered.points_know_the_time:
            kernel_in_time = oracles.in_time(self.remembered.kernel, 0.0)
            self.remembered = self.remembered._replace(kernel=kernel_in_time, points_know_the_time=True)
        self.rule, self.is_evident, self.draw = DICTIONARIES[dictionary], is_evident, np.random.default_rng(seed)
        if dictionary == "fixed" and self.remembered.points_know_the_time:
            self.rule = kb.FixedDictionary(torch.cat([torch.arange(6.0, dtype=DOUBLE)[:, None], FEW[1:17:3]], dim=-1))
        knows_the_time, words = memory == "a kernel of time", {}
        self.has_clock = self.remembered.memory is not None or knows_the_time or mean is season
        if kernel or knows_the_time:
            words["kernel"] = kernel.make() if kernel else kernel_of_days()
        width, candidates = Evident() if is_evident else kb.ConstantWidth(BETA), self.space.make(folder)
        candidates, words = Timed(candidates) if knows_the_time else candidates, words | {"width": width}
        words |= {"mean": mean} if mean else {}
        if self.assumed is not None:
            about = {"kernel": matern(0.5, 1.7), "regularization": LAMBDA, "mean": expected_heat}
            heat = kb.Outcome("heat", kb.Prior(**about | self.assumed.of_prior), **self.assumed.of_outcome)
            words["outcomes"] = [heat]
        self.new = lambda: made(candidates, folder, self.rule, memory=self.remembered.memory, **words)
        self.bandit, self.now, self.turn = self.new(), 0.0, 0
        self.X, self.Y, self.times, self.heat = np.zeros((0, 2)), np.zeros(0), np.zeros(0), np.zeros(0)
        self.first, self.pending, self.asked_at, self.surprise = 0, np.zeros((0, 2)), np.zeros(0), 0.0
        self.counted = self.at(self.X, 0.0)

    @property
    def context(self):
        return CONTEXTS[self.turn % len(CONTEXTS)][: self.space.context_dim]

    @property
    def actions(self):
        """What may be played now, (A, a)."""
        actions = self.space.actions
        return actions[: 7 + self.turn % 5] if self.space.each_round else actions

    def where(self, time=None):
        words = {"context": self.context} if self.space.context_dim else {}
        return words | ({"time": self.now if time is None else time} if self.has_clock else {})

    def words(self):
        return self.where() | ({"candidates": self.actions} if self.space.each_round else {})

    def some(self, number):
        """Points that may be played, and in one of six turns some that may not, (number, a)."""
        pool = FEW[:, self.space.context_dim :] if self.actions is None else self.actions
        chosen = pool[self.draw.integers(len(pool) if self.draw.random() < 0.5 else 6, size=number)]
        return chosen + 0.013 * (self.draw.random() < 1 / 6 and self.actions is not None)

    def joint(self, x):
        return dense(torch.cat([self.context.expand(len(x), -1), x], dim=-1))[0]

    def reward(self, x):
        (X,) = dense(x)
        wave = np.sin(4.0 * X[:, 0] - 3.0 * X[:, -1] + 0.1 * self.now)
        expected = self.expects(self.at(self.joint(x), self.now))
        return torch.as_tensor(expected + wave + 0.2 * self.draw.standard_normal(len(x)))

    def expects(self, points):
        """The prior mean of points as the kernel sees them."""
        X = torch.as_tensor(points)
        if self.mean is season:
            return season(X[:, 1:], X[:, 0]).numpy()
        return 0.0 if self.mean is None else profile(X[:, -2:]).numpy()

    def at(self, points, times):
        """Points as the kernel sees them."""
        if not self.remembered.points_know_the_time:
            return points
        return np.concatenate([np.broadcast_to(times, len(points))[:, None], points], axis=-1)

    def known(self):
        """Points, rewards and noise variances of what counts."""
        noise = self.remembered.noise(self.times[self.first :], self.now)
        counts = np.isfinite(noise)
        X, y, times = (part[self.first :][counts] for part in (self.X, self.Y, self.times))
        X = self.at(X, times)
        return X, y - self.expects(X), noise[counts]

    def posterior(self, T, *, learns_residual=True):
        found = self.given(self.remembered.kernel, self.known(), self.bandit.inducing_points, T, learns_residual)
        return found._replace(mean=found.mean + self.expects(T))

    def given(self, kernel, known, dictionary, T, learns_residual=True):
        if self.rule is None or not len(known[0]):
            return oracles.exact(kernel, *known, T)
        learns_residual &= getattr(self.rule, "learns_residual", False) and len(dictionary) == self.rule.max_size
        return oracles.dtc(kernel, *known, self.spanning(dictionary), T, learns_residual=learns_residual)

    def spanning(self, dictionary):
        """Its points, of which one at two times is one where the kernel knows no time."""
        (Z,) = dense(dictionary)
        if self.mean is not season or isinstance(self.remembered.memory, TemporalPrior):
            return Z
        return Z[np.unique(Z[:, -2:], axis=0, return_index=True)[1]]

    def ahead(self, T):
        return oracles.with_pending(self.posterior, T, self.at(self.pending, self.asked_at), LAMBDA)

    def bounds(self, T):
        """Upper confidence bounds, and what rounding may take of them."""
        found, beta = self.ahead(T), float(self.bandit.beta)
        return found.mean + beta * np.sqrt(np.maximum(found.variance, 0.0)), found.upper_rounding(beta)

    def tell(self, x, y, *, time=None, ids=None):
        times, joint = np.full(len(x), self.now if time is None else time), self.joint(x)
        measured = self.note(joint, y, times, is_pending=ids is None)
        if ids is None:
            self.bandit.tell(x, y, **self.where(time), **measured)
        else:
            self.bandit.tell(ids=ids, y=y, **measured)
        self.learned(len(x))

    def learned(self, number):
        self.turn += 1
        if np.isfinite(self.remembered.noise(self.times[self.first :], self.now)[-number:]).any():
            self.counted = self.known()[0]

    def note(self, joint, y, times, *, is_pending=True):
        """Note what will be told, and by how much it is not what is predicted, as health sums it up.

        Return what is measured beside it, at two of three times.
        """
        (Y,) = dense(y)
        before, noise = self.posterior(self.at(joint, times)), self.remembered.noise(times, self.now)
        if self.surprise is not None and "observations" not in repr(self.remembered.memory):
            self.surprise += ((Y - before.mean) / np.sqrt(before.variance + noise))[np.isfinite(noise)].sum()
        else:  # how many others there are decides which of them count
            self.surprise = None
        self.X, self.Y = np.concatenate([self.X, joint]), np.concatenate([self.Y, Y])
        self.times = np.concatenate([self.times, times])
        for point in joint if is_pending else ():  # of equal ones that are pending the first is told
            self.no_longer_pending((self.pending == point).all(-1).nonzero()[0][:1])
        is_measured = self.assumed is not None and self.draw.random() < 2 / 3
        heat = np.sin(3.0 * joint.sum(-1)) if is_measured else np.full(len(joint), np.nan)
        self.heat = np.concatenate([self.heat, heat])
        return {"outcomes": {"heat": heat}} if is_measured else {}

    def some_rewards(self, most=3):
        x = self.some(int(self.draw.integers(1, most + 1)))
        self.tell(x, self.reward(x))

    def many_rewards(self):
        self.some_rewards(14)

    def a_late_reward(self):
        self.be_late()
        x = self.some(1)
        self.tell(x, self.reward(x), time=self.now - 1.5 if self.has_clock else None)

    def rounds(self):
        for _ in range(4):
            x = self.bandit.ask(**self.words())
            self.is_pending(x)
            self.tell(x, self.reward(x))

    def rounds_in_one_call(self):
        if self.has_clock or self.space.context_dim:
            return

        def pull(x):
            self.is_pending(x)
            y = self.reward(x)
            return {"y": y, **self.note(self.joint(x), y, np.zeros(1))}

        self.bandit.run(pull, 4)
        self.counted = self.known()[0]

    def several_asked_and_one_told(self):
        asked = self.bandit.ask(3, details=True, **self.words())
        self.is_pending(asked.x[[0, 2]])
        self.tell(asked.x[1:2], self.reward(asked.x[1:2]), ids=asked.ids[1])

    def the_oldest_told(self):
        """By its id, so that it is of the time and the context in which it was asked for."""
        if not len(self.pending):
            return
        self.be_late()
        joint, time, (number, *_) = self.pending[:1], self.asked_at[:1], self.bandit.pending_ids
        y = self.reward(torch.as_tensor(joint[:, self.space.context_dim :]))
        measured = self.note(joint, y, time, is_pending=False)
        self.bandit.tell(ids=number, y=y, **measured)
        self.no_longer_pending([0])
        self.learned(1)

    def points_marked(self):
        x = self.some(2)
        self.bandit.mark_pending(x, **self.where())
        self.is_pending(x)

    def nothing_pending(self):
        self.bandit.forget()
        self.no_longer_pending(slice(None))

    def is_pending(self, x):
        self.pending = np.concatenate([self.pending, self.joint(x)])
        self.asked_at = np.append(self.asked_at, [self.now] * len(x))

    def no_longer_pending(self, rows):
        self.pending, self.asked_at = (np.delete(part, rows, axis=0) for part in (self.pending, self.asked_at))

    def time_passes(self):
        self.now += float(self.draw.choice([0.4, 1.0, 2.5, 7.0]))

    def be_late(self):
        """Let the bandit know how late it is."""
        if self.has_clock:
            self.bandit.forget(ids=self.bandit.mark_pending(self.some(1), **self.where()))

    def restart(self):
        self.bandit.restart()
        self.first, self.surprise, self.counted = len(self.X), 0.0, self.counted[:0]

    def a_mistake(self):
        with pytest.raises(kb.InputError):
            self.bandit.tell(self.some(2), [0.5, np.nan], **self.where())

    def loaded(self):
        """The order of what is pending and all that is drawn go on."""
        state, self.bandit = self.bandit.state_dict(), self.new()
        self.bandit.load_state_dict(state)

    STEPS = (
        *(some_rewards, some_rewards, rounds, many_rewards, several_asked_and_one_told, points_marked, time_passes),
        *(
            the_oldest_told,
            the_oldest_told,
            nothing_pending,
            a_late_reward,
            rounds_in_one_call,
            restart,
            loaded,
            a_mistake,
        ),
    )

    def play(self, steps):
        """Take steps in a random order, and compare after each."""
        order = [Program.some_rewards, *(self.STEPS[k] for k in self.draw.permutation(len(self.STEPS)))]
        for step in order[:steps]:
            step(self)
            self.check(step.__name__)
            self.now += 0.0 if self.draw.random() < 0.5 else 1.0

    def check(self, step):
        bandit, (X, y, noise) = self.bandit, self.known()
        self.be_late()
        self.check_dictionary(X, step)
        T = self.at(self.joint(TESTED[:, self.space.context_dim :]), self.now)
        expected, shown = self.posterior(T), bandit.model.posterior(torch.as_tensor(T).unsqueeze(-2))
        assert difference(shown.mean.flatten(), expected.mean) < expected.rounding, step
        assert difference(shown.variance.flatten(), expected.variance) < expected.rounding, step
        if self.is_evident:
            Z = None if self.rule is None else self.spanning(self.bandit.inducing_points)
            read = oracles.evidence(self.remembered.kernel, X, y, noise, Z)
            beta = 0.5 + sum(share * read[name] for name, share in READ.items())
            rounding = expected.rounding * (1.0 + len(X)) / LAMBDA
            assert float(bandit.beta) == pytest.approx(beta, abs=rounding, rel=1e-9), step
        bounds, rounding = self.bounds(T)
        values = bandit.acquisition(**self.words())(TESTED[:, self.space.context_dim :].unsqueeze(-2)).detach()
        assert difference(values, bounds) < rounding, step
        if self.surprise is not None and len(self.X):
            health = bandit.health()
            found = health.recent_mean * health.num_residuals if health.num_residuals else 0.0
            assert found == pytest.approx(self.surprise, abs=1e-6 + 1e3 * expected.rounding), step
        self.check_outcome(T, step)
        self.check_pending(step)
        if self.actions is not None:
            self.check_choice(step)
        self.check_recommendation(X, step)

    def check_dictionary(self, X, step):
        """Of points that counted when rewards were told last; a rule that decides once keeps some of others."""
        decides_once = isinstance(getattr(self.rule, "rule", self.rule), kb.KORS)
        told = self.at(self.X[self.first :], self.times[self.first :]) if decides_once else self.counted
        points = self.bandit.inducing_points, X, told
        found, counts, counted = ({tuple(row) for row in part.tolist()} for part in points)
        if self.rule is None:
            assert found == counts, step
        elif not isinstance(self.rule, kb.FixedDictionary):
            assert found <= counted, step
            assert found or not counted, step

    def check_outcome(self, T, step):
        """What is known of an outcome by its own prior and memory."""
        if self.assumed is None:
            return
        kernel, has_own = self.assumed.kernel, bool(self.assumed.of_outcome)
        times, heat, X = self.times[self.first :], self.heat[self.first :], self.X[self.first :]
        noise = self.remembered.noise(times, self.now) * self.assumed.noise / LAMBDA
        if has_own:
            noise = np.where(self.now - times <= OWN.size, LAMBDA, np.inf)
        if isinstance(self.remembered.memory, TemporalPrior) and not has_own:
            X, kernel = self.at(X, times), oracles.in_time(kernel, RATE)
        else:
            T = T[:, -2:]
        counts, model = np.isfinite(noise) & np.isfinite(heat), self.bandit.outcome_model("heat")
        known = X[counts], heat[counts] - expected_heat(X[counts]), noise[counts]
        expected = self.given(kernel, known, self.rule and model.inducing_points, T)
        shown = model.posterior(torch.as_tensor(T).unsqueeze(-2))
        assert difference(shown.mean.flatten(), expected.mean + expected_heat(T)) < 10.0 * expected.rounding, step
        assert difference(shown.variance.flatten(), expected.variance) < 10.0 * expected.rounding, step

    def check_pending(self, step):
        """By how much points pending make variances smaller, as a batch rule reads it."""
        if not len(self.pending):
            return
        P = self.at(self.pending, self.asked_at)
        if self.space.is_listed and not self.remembered.points_know_the_time:
            T = dense(self.actions)[0] if isinstance(self.bandit.candidates, kb.Arms) else P
            now, ahead = self.posterior(T), self.ahead(T)
            ratio = (now.variance / ahead.variance).max()
        else:
            now = self.posterior(P, learns_residual=False)  # theorems are about scores of what is spanned
            ratio = 1.0 + now.variance.sum() / LAMBDA
        assert self.bandit.pending_variance_ratio() == pytest.approx(ratio, rel=1e-6, abs=1e3 * now.rounding), step

    def check_choice(self, step):
        """Asked for is what has the largest bound; actions that repeat tie. Of many some are compared."""
        x, actions = self.bandit.ask(remember=False, **self.words()), self.actions
        assert (x == actions).all(-1).any()
        some = actions[self.draw.permutation(len(actions))[:60]]
        bounds, rounding = self.bounds(self.at(self.joint(torch.cat([x, some])), self.now))
        assert bounds[0] >= bounds.max() - 2.0 * rounding - 1e-9, step

    def check_recommendation(self, X, step):
        is_offered = (
            self.space.context_dim
            or self.remembered.points_know_the_time
            or isinstance(self.bandit.candidates, kb.ContextualActions)
        )
        if not len(X) and self.bandit.history.Y.isfinite().any():  # it goes on from what counted last
            assert len(self.bandit.recommend(**self.words())) == 1, step
        elif not len(X):
            with pytest.raises(kb.EmptyHistoryError):
                self.bandit.recommend(**self.words())
        elif not is_offered or self.actions is not None:
            best = self.bandit.recommend(**self.words())
            if is_offered:
                among = self.posterior(self.at(self.joint(torch.cat([best, self.actions])), self.now))
            else:
                rows = X if self.actions is None else X[(X[:, None] == dense(self.actions)[0]).all(-1).any(-1)]
                among = self.posterior(np.concatenate([dense(best)[0], rows]))
            assert among.mean[0] >= among.mean.max() - 2.0 * among.rounding, step


#: Each memory at each dictionary, in two spaces: so any two of a space, a dictionary and a memory meet.
CASES = [
    ([*SPACES][(d + 2 * m + 4 * turn) % len(SPACES)], dictionary, memory)
    for turn in range(2)
    for d, dictionary in enumerate(DICTIONARIES)
    for m, memory in enumerate(REMEMBERED)
]


@pytest.mark.one_in(17)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize(("space", "dictionary", "memory"), CASES)
def test_whatever_happens_the_posterior_is_the_dense_one(space, dictionary, memory, tmp_path):
    seed = CASES.index((space, dictionary, memory))
    mean = None if memory == "a kernel of time" else (None, profile, season)[seed % 3]
    is_plain = memory in MULTIPLYING and (dictionary != "fixed" or (mean is not season and "time" not in memory))
    assumed = [None, *ASSUMED][seed % 6] if is_plain else None
    Program(space, dictionary, memory, tmp_path, seed, is_evident=seed % 4 > 0, mean=mean, assumed=assumed).play(10)


def stretched(kernel, *lengthscales):
    kernel = kernel.double()
    kernel.lengthscale = torch.tensor([lengthscales], dtype=DOUBLE)
    return kernel


def rational():
    kernel = stretched(RQKernel(), 0.7)
    kernel.alpha = exactly(1.5)
    return kernel


def ellipse(*weights):
    return lambda A, B: np.exp(-0.5 * oracles.squared_distances(A * np.array(weights), B * np.array(weights)))


def rough(nu, weights):
    def dense(A, B):
        r = np.sqrt(2.0 * nu * oracles.squared_distances(A * np.array(weights), B * np.array(weights)))
        return (1.0 if nu == 0.5 else 1.0 + r) * np.exp(-r)

    return dense


#: Kernels, whose values loops may compute, beside plain formulas.
FORMULAS = {
    "ard": KernelPair(lambda: stretched(RBFKernel(ard_num_dims=2), 0.5, 1.0), ellipse(2.0, 1.0)),
    "one column": KernelPair(
        lambda: stretched(MaternKernel(1.5, active_dims=(1,)), 0.5) + scaled(rbf(0.3), 0.1),
        lambda A, B: rough(1.5, [0.0, 2.0])(A, B) + 0.1 * oracles.rbf(0.3)(A, B),
    ),
    "matern 1/2": KernelPair(
        lambda: scaled(stretched(MaternKernel(0.5), 0.5), 1.7), lambda A, B: 1.7 * rough(0.5, 2.0)(A, B)
    ),
    "rational": KernelPair(rational, lambda A, B: (1.0 + oracles.squared_distances(A, B) / (3.0 * 0.49)) ** -1.5),
    "sum of products": KernelPair(
        lambda: scaled(rbf(2.0), 3.0) + linear() * stretched(MaternKernel(0.5), 1.0),
        lambda A, B: 3.0 * oracles.rbf(2.0)(A, B) + 0.8 * (A @ B.T) * rough(0.5, 1.0)(A, B),
    ),
    "grouped": KernelPair(
        lambda: stretched(GroupedKernel(MaternKernel(1.5), [0, 1]), 0.5, 2.0), rough(1.5, [2.0, 0.5])
    ),
    "linear": KernelPair(lambda: linear(), oracles.linear(0.8)),
    "polynomial": KernelPair(
        lambda: PolynomialKernel(2).double().initialize(offset=exactly(1.0)), lambda A, B: (A @ B.T + 1.0) ** 2
    ),
}


@pytest.mark.one_in(7)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.filterwarnings("ignore:Negative variance values")
@pytest.mark.parametrize("kernel", FORMULAS)
@pytest.mark.parametrize("space", ["arms", "many arms", "actions of each round", "box"])
@pytest.mark.parametrize("dictionary", ["exact", "kors"])
def test_whatever_the_kernel_the_posterior_is_the_dense_one(kernel, space, dictionary, tmp_path):
    """At a dictionary of those under which no three points span all."""
    is_singular = kernel in ("linear", "polynomial")
    Program(space, "exact" if is_singular else dictionary, "all", tmp_path, 3, kernel=FORMULAS[kernel]).play(6)


@pytest.mark.parametrize("rounds", [60, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("where", ["arms-exact", "arms-fixed", "many arms-exact", "many arms-kors", "actions-coupled"])
def test_rounding_does_not_build_up(where, rounds, tmp_path):
    """A window that rolls on, many rounds in a row: then all that is compared elsewhere."""
    it = Program(*where.split("-"), "window", tmp_path, is_evident=True)
    for _ in range(rounds):
        x = it.some(1)
        if it.draw.random() < 0.3:
            x = it.bandit.ask(**it.words())
        it.bandit.tell(x, y := it.reward(x), **it.where())
        joint, (Y,) = it.joint(x), dense(y)
        it.X, it.Y, it.times = (
            np.concatenate(pair)[-400:] for pair in ((it.X, joint), (it.Y, Y), (it.times, [it.now]))
        )
        it.now += 0.25
        it.bandit.forget()
    it.surprise, it.counted = None, it.X
    it.check("many rounds")


@pytest.mark.one_in(3)
@pytest.mark.parametrize("noise", [1e-5, 1e-8])
@pytest.mark.parametrize("space", ["arms", "many arms", "actions"])
def test_tiny_noise_at_a_fixed_dictionary(space, noise, tmp_path):
    """Clustered plays with hardly any noise: at dictionary points means are what was told, to its condition number."""
    bandit, draw, total = made(space, tmp_path, "fixed", regularization=noise), np.random.default_rng(3), 0.0
    X, Y, Z, noises = np.zeros((0, 2)), np.zeros(0), dense(FEW[1:17:3])[0], np.full(90, noise)
    for number in range(90):
        x = FEW[draw.integers(6, size=1) + 6 * (number % 3)]
        (T,), (y,) = dense(x), dense(torch.sin(5.0 * x).sum(-1))
        before = oracles.dtc(KERNEL, X, Y, noises[:number], Z, T)
        bandit.tell(x, torch.as_tensor(y))
        now, error = bandit.health().recent_mean * (number + 1), 2.0 * before.rounding / before.variance[0] ** 1.5
        predicted = (y[0] - before.mean[0]) / np.sqrt(before.variance[0] + noise)
        assert now - total == pytest.approx(predicted, abs=error + 1e-7, rel=1e-4)
        X, Y, total = np.concatenate([X, T]), np.append(Y, y), now


@pytest.mark.one_in(4)
@pytest.mark.parametrize("dictionary", ["exact", "coupled", "kors"])
@pytest.mark.parametrize("memory", ["all", "window", "prior on time"])
def test_the_same_history_gives_the_same_choice_however_the_same_set_is_described(dictionary, memory, tmp_path):
    """Also where a new point and one that was told before are told together, and offered to a rule one by one."""
    names = ["arms", "arms in a file", "actions"]
    its, points = [Program(name, dictionary, memory, tmp_path) for name in names], FEW[:14]
    for row in range(len(points) - 1):
        X, asked = points[[row + 1, row]], []
        for it in its:
            it.bandit.tell(X, torch.sin(9.0 * X[:, 0]), **it.where())
            it.now += 0.5
            it.bandit.mark_pending(points[row % 5, None], **it.where())
            asked.append(it.bandit.ask(2, **it.where()))
            it.bandit.forget()
        sets = [{tuple(point) for point in it.bandit.inducing_points.tolist()} for it in its]
        assert all(torch.equal(each, asked[0]) for each in asked), row
        assert all(each == sets[0] for each in sets), row


@pytest.mark.parametrize("space", ["arms", "many arms", "actions"])
@pytest.mark.parametrize("best", [1.0, 100.0, 1e5])
def test_improvement_is_compared_however_unlikely_it_is(space, best, tmp_path):
    """Of arms that all lie far below what was told, the likeliest is asked for: ln EI, by asymptotics, in logs."""
    bandit = made(space, tmp_path, regularization=1e-3, acquisition=ExpectedImprovementRule(), width=None)
    X, Y = FEW[[0, 3, 7]], torch.tensor([best, 0.0, 0.3 * best], dtype=DOUBLE)
    bandit.tell(X, Y)
    arms = dense(SPACES[space].actions)[0]
    found = oracles.exact(KERNEL, *dense(X, Y), np.full(3, 1e-3), np.concatenate([arms, dense(X)[0]]))
    mean, deviation = found.mean[: len(arms)], np.sqrt(np.maximum(found.variance[: len(arms)], 1e-30))
    incumbent = mean.max() if space == "actions" else found.mean[-3:].max()
    u = (mean - incumbent) / deviation
    low = np.minimum(u, -1.0)  # where φ(u) + uΦ(u) = φ(u) (1 + u Φ(u)/φ(u)), and 1/u² of that far below
    left = np.where(u > -1e3, 1.0 + low * np.sqrt(np.pi / 2.0) * erfcx(-low / np.sqrt(2.0)), 1.0 / low**2)
    plain = np.log(norm.pdf(u) + u * norm.cdf(u), where=u > -1.0, out=np.zeros_like(u))
    score = np.log(deviation) + np.where(u > -1.0, plain, norm.logpdf(u) + np.log(np.maximum(left, 1e-300)))
    x = bandit.ask()
    row = int((x == SPACES[space].actions).all(-1).nonzero()[0])
    assert score[row] >= score.max() - 1e-5 * abs(score.max())


def test_ties_are_broken_by_the_seed(tmp_path):
    assert len({tuple(made("arms", tmp_path, seed=seed).ask()[0].tolist()) for seed in range(9)}) > 3


class NotACovariance(RBFKernel):
    """k(x, x) = 1 and k(x, x') = 2: the Schur complement of a second point is −3."""

    def forward(self, x1, x2, diag=False, **params):
        values = torch.full_like(super().forward(x1, x2, diag=diag, **params), 2.0)
        return values - 1.0 if diag else values - torch.isclose(torch.cdist(x1, x2), values - values).to(values)


@pytest.mark.parametrize(
    ("space", "dictionary"),
    [
        *((name, "exact") for name in ("arms", "many arms")),
        ("actions", "exact"),
        ("arms", "kors"),
    ],
)
def test_what_is_no_covariance_is_refused(space, dictionary, tmp_path):
    bandit = made(space, tmp_path, dictionary, kernel=NotACovariance().double())
    bandit.tell(FEW[:1], 1.0)
    with pytest.raises(kb.NumericalError):
        bandit.tell(FEW[1:6], torch.ones(5))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("space", ["arms", "many arms", "actions"])
@pytest.mark.parametrize("dictionary", ["exact", "kors"])
def test_what_is_too_large_is_refused_and_changes_nothing(space, dictionary, tmp_path):
    bandit, twin = (made(space, tmp_path, dictionary, kernel=rbf(0.3)) for _ in range(2))
    for each in (bandit, twin):
        each.tell(FEW[:4], [0.1, 0.5, -0.3, 0.7])
    with pytest.raises(kb.NumericalError):
        bandit.tell(FEW[:1].expand(9, 2), torch.full((9,), 1.7e308, dtype=DOUBLE))
    assert torch.equal(bandit.ask(3), twin.ask(3))
    assert bandit.health().recent_mean == twin.health().recent_mean
