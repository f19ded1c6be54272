"""Outcomes beside a reward, under its kernel, λ and memory or others: what limits allow is what dense formulas say."""

from typing import NamedTuple

import numpy as np
import oracles
import pytest
import torch
from problems import DOUBLE, data, dense, difference, matern, rbf

import torch_kbandits as kb
from torch_kbandits.candidates.timed import untimed
from torch_kbandits.memory import Discount, SlidingWindow, Stationary, TemporalPrior

LAMBDA, LIMIT, RATE = 0.1, 0.6, 0.02
#: More arms than an exact posterior keeps all covariances of.
MANY = data(520, 2, 3)[0]
BOX = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)
CONTEXTS = data(80, 1, 5)[0]
PROBES = data(10, 2, 8)[0]
CANDIDATES = {
    "arms": lambda: kb.Arms(MANY[:40]),
    "many arms": lambda: kb.Arms(MANY),
    "box": lambda: kb.Box(BOX, num_restarts=1, raw_samples=4),
    "actions": lambda: kb.ContextualActions(MANY[:40], context_dim=0),
    "actions in a context": lambda: kb.ContextualActions(MANY[:20, :1], context_dim=1),
}
DICTIONARIES = {
    "exact": None,
    "fresh": kb.RidgeLeverageSampling(2.0),
    "kors": kb.KORS(),
    "capped": kb.CappedDictionary(kb.RidgeLeverageSampling(3.0, "coupled"), 6, "stop", learns_residual=False),
}
MEMORIES = {
    "none": None,
    "keep": Stationary(),
    "window": SlidingWindow(9.0),
    "discount": Discount(0.9),
    "prior": TemporalPrior(RATE),
}


def heat_mean(X):
    return 0.5 - X[..., -1]


def heat(x):
    """What is measured of points (q, d), whatever comes before their last two columns."""
    return torch.sin(3.0 * x[:, -2:].sum(-1))


def reward(x):
    return torch.cos(4.0 * x[:, -2:]).sum(-1)


class Assumed(NamedTuple):
    """What is assumed of an outcome: words of ``Outcome`` and of its ``Prior``, and the same densely."""

    of_outcome: dict
    of_prior: dict
    kernel: oracles.DenseKernel = oracles.matern52(0.5, 1.7)
    noise: float = LAMBDA
    memory: str | None = None


ASSUMED = {
    "as the reward": Assumed({}, {}),
    "λ in the last bit": Assumed({}, {"regularization": float(np.nextafter(LAMBDA, 1.0))}),
    "another λ": Assumed({}, {"regularization": 0.3}, noise=0.3),
    "another kernel": Assumed({}, {"kernel": rbf(0.5, 1.7)}, oracles.rbf(0.5, 1.7)),
    "a memory of its own": Assumed({"memory": SlidingWindow(9.0)}, {}, memory="window"),
}


def make(kind, assumed="as the reward", dictionary="exact", memory="none", **words):
    of_outcome, of_prior = ASSUMED[assumed][:2]
    prior = kb.Prior(**({"kernel": matern(), "regularization": LAMBDA, "mean": heat_mean} | of_prior))
    limit = kb.AtMost(kb.Outcome("heat", prior, **of_outcome), LIMIT, "optimistic", beta=1.0)
    words = {"kernel": matern(), "regularization": LAMBDA, "constraints": [limit]} | words
    words |= {"dictionary": DICTIONARIES[dictionary], "memory": MEMORIES[memory], "width": kb.ConstantWidth(1.5)}
    return kb.Bandit(candidates=CANDIDATES[kind](), seed=1, **words)


def in_round(bandit, turn):
    return {"context": CONTEXTS[turn % 80]} if untimed(bandit.candidates).context_dim else {}


def joint(x, words):
    return torch.cat([words["context"].expand(len(x), -1), x], -1) if words else x


def tell(bandit, turn, x, words):
    """The tenth play is not measured and the eleventh fails: until then features may be shared."""
    X = joint(x, words)
    measured = {} if turn == 10 else {"outcomes": {name: heat(X) for name in bandit.outcomes}}
    bandit.tell(x, **({"failed": True} if turn == 11 else {"y": reward(X)}), **words, **measured)


def known(bandit, assumed, memory):
    """Points, measured values less their prior mean, and noise variances of what counts of the outcome."""
    history, noise = bandit.history, np.full(len(bandit.history.Y), ASSUMED[assumed].noise)
    own = ASSUMED[assumed].memory or memory
    if own == "discount":
        noise = noise * 0.9 ** -dense(bandit.now - history.times)[0]
    if own == "window":
        noise = np.where(dense(bandit.now - history.times)[0] <= 9.0, noise, np.inf)
    counts = dense(history.outcomes[:, 0].isfinite())[0].astype(bool) & np.isfinite(noise)
    counts[: len(noise) - bandit.num_since_restart] = False
    X, y = history.X[counts], history.outcomes[counts, 0] - heat_mean(history.X[counts])
    return *dense(X, y), noise[counts]


def posterior(bandit, assumed, memory, T):
    kernel = ASSUMED[assumed].kernel
    kernel = oracles.in_time(kernel, RATE) if memory == "prior" and ASSUMED[assumed].memory is None else kernel
    X, y, noise = known(bandit, assumed, memory)
    if memory == "prior" and ASSUMED[assumed].memory is not None:
        X, T = X[:, 1:], T[:, 1:]
    if bandit.dictionary is None or not len(X):
        return oracles.exact(kernel, X, y, noise, T)
    return oracles.dtc(kernel, X, y, noise, *dense(bandit.outcome_model("heat").inducing_points), T)


@pytest.mark.one_in(43)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("dictionary", DICTIONARIES)
@pytest.mark.parametrize("kind", CANDIDATES)
@pytest.mark.parametrize("assumed", ASSUMED)
def test_what_is_believed_of_an_outcome_and_what_its_limit_allows_is_dense(assumed, kind, dictionary, memory):
    """Also after plays that failed or were not measured, several told at once, and a restart."""
    bandit = make(kind, assumed, dictionary, memory)
    for turn in range(13):
        words = in_round(bandit, turn)
        x = bandit.ask(2 if turn == 4 else 1, **words)
        tell(bandit, turn, x, words)
        if turn == 8:
            bandit.restart()
        if turn % 3:
            continue
        words = in_round(bandit, turn + 1)
        actions = PROBES[:, 1:] if words else PROBES
        points = joint(actions, words)
        if bandit.candidates.is_timed:
            points = torch.cat([torch.full((len(points), 1), bandit.now, dtype=DOUBLE), points], -1)
        own = points[:, 1:] if bandit.candidates.is_timed and ASSUMED[assumed].memory else points
        found = bandit.outcome_model("heat").posterior(own.unsqueeze(-2))
        expected = posterior(bandit, assumed, memory, points.numpy())
        expects = heat_mean(points).numpy() + expected.mean
        assert difference(found.mean.flatten(), expects) < 1e-7
        assert difference(found.variance.flatten(), expected.variance) < 1e-7
        least = expects - np.sqrt(np.maximum(expected.variance, 0.0))
        values = bandit.acquisition(**words)(actions.unsqueeze(-2)).detach().numpy()
        clear = (np.abs(least - LIMIT) > 1e-6) & (bandit.failure_probability(actions, **words).numpy() < 0.49)
        assert (np.isfinite(values) == (least <= LIMIT))[clear].all()


class Noted(type(rbf())):
    """A kernel that notes how many values were asked of it."""

    values = 0

    def forward(self, x1, x2, diag=False, **words):
        type(self).values += x1.shape[-2] * (1 if diag else x2.shape[-2])
        return super().forward(x1, x2, diag=diag, **words)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("dictionary", ["exact", "fresh", "kors"])
@pytest.mark.parametrize("kind", ["many arms", "box", "actions in a context"])
def test_no_kernel_value_is_computed_for_more_outcomes(kind, dictionary):
    """Not even where all means are read: limits that allow everything are kept."""
    kernel, values = Noted().double(), []
    for number in (1, 3):
        prior = kb.Prior(kernel, LAMBDA, heat_mean)
        limits = [kb.AtMost(kb.Outcome(str(each), prior), 99.0, "optimistic") for each in range(number)]
        bandit = make(kind, dictionary=dictionary, kernel=kernel, constraints=limits)
        for turn in range(4 if kind == "box" else 9):
            Noted.values *= turn != 1
            words = in_round(bandit, turn)
            x = bandit.ask(**words)
            X = joint(x, words)
            bandit.tell(x, reward(X), outcomes={name: heat(X) for name in bandit.outcomes}, **words)
        values.append(Noted.values)
    assert values[0] == values[1] > 0
