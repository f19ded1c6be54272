"""Off-policy evaluation where the true value is known: how often intervals of estimators hold it."""

import warnings
from collections.abc import Iterable
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from benchmarks.runner import Found, Measurement, Table, benchmark
from torch_kbandits.errors import OverlapWarning
from torch_kbandits.evaluation import Log, clipped_ips, direct_method, doubly_robust, ips, snips, switch

#: Logs of rewards 0 and 1: the number of actions, the largest mean reward, the floor of the logging policy.
KINDS = {
    "frequent rewards": {},
    "rare rewards, 10 actions": {"num_actions": 10, "scale": 0.05},
    "uneven log": {"floor": 0.1},
}


class World(NamedTuple):
    """Mean rewards of actions by context, and two policies, each (C, A); contexts are drawn uniformly."""

    means: np.ndarray
    behaviour: np.ndarray
    target: np.ndarray

    @property
    def value(self) -> float:
        """The mean reward of the target policy."""
        return float((self.means * self.target).sum(1).mean())


def world(
    num_actions: int = 4, num_contexts: int = 5, *, floor: float = 0.4, scale: float = 1.0, seed: int = 0
) -> World:
    """Draw a logging policy that plays anything with ``floor / A`` at least, and one that prefers other actions."""
    generator = np.random.default_rng([17, seed])
    means, policies = scale * generator.random((num_contexts, num_actions)), []
    for share in (floor, 0.3):
        policy = np.full((num_contexts, num_actions), share / num_actions)
        policy[np.arange(num_contexts), generator.integers(num_actions, size=num_contexts)] += 1.0 - share
        policies.append(policy)
    return World(means, *policies)


def logged(known: World, n: int, seed: int = 0) -> tuple[Log, np.ndarray]:
    """Return a log of n rounds, and the target's probabilities in each, (n, A)."""
    generator = np.random.default_rng([23, seed])
    x = generator.integers(len(known.means), size=n)
    a = (generator.random(n)[:, None] > known.behaviour[x].cumsum(1)[:, :-1]).sum(1)
    rewards = (generator.random(n) < known.means[x, a]).astype(float)
    rows, paid, propensities = map(torch.from_numpy, (a, rewards, known.behaviour[x, a]))
    contexts, actions = torch.from_numpy(x).double().unsqueeze(-1), torch.eye(known.means.shape[1]).double()
    return Log(rows, paid, propensities, contexts=contexts, actions=actions), known.target[x]


def covered(kind: str, n: int, seeds: Iterable[int], level: float) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return of estimators how often bootstrap and empirical Bernstein intervals hold the true value, and their widths.

    The former for all logs and for those of which no ``OverlapWarning`` was given, after how many these are; of the
    widths the median.
    """
    hits, widths, silent = dict[str, list[list[bool]]](), dict[str, list[list[float]]](), list[bool]()
    for seed in seeds:
        known = world(seed=seed, **KINDS[kind])
        log, target = logged(known, n, seed)
        # Of what distinguishes contexts and actions this model knows half.
        x = log.contexts[:, 0].long().numpy()  # pyright: ignore[reportOptionalSubscript]
        predictions = 0.5 * (known.means[x] + known.means.mean())
        largest = float((known.target / known.behaviour).max())
        given, model = {"log": log, "target_probabilities": target}, {"predictions": predictions}
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            plain = ips(**given)
        silent.append(not said)
        found = {
            "IPS": (plain, largest),
            "SNIPS": (snips(**given), largest),
            "clipped IPS, 3": (clipped_ips(clip=3.0, **given), min(largest, 3.0)),
            "DM": (direct_method(target_probabilities=target, **model), 1.0),
            "DR": (doubly_robust(**given, **model), 1.0 + 2.0 * largest),
            "SWITCH, 3": (switch(threshold=3.0, **given, **model), 1.0 + 2.0 * min(largest, 3.0)),
        }
        for name, (estimate, span) in found.items():
            ends = estimate.bootstrap(level, resamples=300, seed=seed), estimate.empirical_bernstein(level, span=span)
            hits.setdefault(name, []).append([low <= known.value <= high for low, high in ends])
            widths.setdefault(name, []).append([high - low for low, high in ends])
    shares = {name: np.concatenate([np.mean(each, 0), _mean(np.array(each)[silent])]) for name, each in hits.items()}
    return {name: (np.append(shares[name], np.mean(silent)), np.median(widths[name], 0)) for name in hits}


def _mean(values: np.ndarray) -> np.ndarray:
    return values.mean(0) if len(values) else np.full(2, np.nan)


@benchmark(logs=20)
def off_policy(logs: int = 500, level: float = 0.95) -> Found:
    """Count how often intervals of estimators cover, on fresh seeds."""
    rows, found = list[list[str]](), list[Measurement]()
    for kind, n in tqdm([*product(KINDS, (300, 3000))], "off_policy"):
        with warnings.catch_warnings(action="ignore", category=OverlapWarning):
            shares = covered(kind, n, range(10_000, 10_000 + logs), level)
        for name, (rates, widths) in shares.items():
            found.append({"kind": kind, "n": n, "estimator": name, "rates": [*rates], "widths": [*widths]})
            cells = [f"{rates[0]:.3f}", f"{rates[2]:.3f}", f"{widths[0]:.2g}", f"{rates[1]:.3f}", f"{widths[1]:.2g}"]
            rows.append([kind, f"{n:,}", name, f"{rates[-1]:.0%}", *cells])
    columns = ["logs", "n", "estimator", "no warning", "bootstrap", "where no warning", "its width"]
    title = f"Shares of {logs:,} logs in which {level:.0%} intervals hold the true value"
    return [Table(title, [*columns, "Bernstein", "its median width"], rows)], found
