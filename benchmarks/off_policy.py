"""Off-policy evaluation where the true value is known: python -m benchmarks.off_policy coverage, or learning."""

import argparse
import warnings
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel, LinearKernel, RBFKernel
from scipy.stats import sem
from torch import Tensor

from torch_kbandits import NystromGP, UniformDictionary
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


def coverage(logs: int, level: float = 0.95) -> None:
    """Print how often intervals cover, on fresh seeds."""
    print(
        f"| {level:.0%}, {logs:,} logs | n | unwarned | estimator | bootstrap | unwarned | width | Bernstein | width |"
    )
    print("| :-- | --: | --: | :-- | --: | --: | --: | --: | --: |")
    for kind in KINDS:
        for n in (300, 3000):
            for name, (rates, widths) in covered(kind, n, range(10_000, 10_000 + logs), level).items():
                cells = [
                    f"{rates[0]:.3f}",
                    f"{rates[2]:.3f}",
                    f"{widths[0]:.2g}",
                    f"{rates[1]:.3f}",
                    f"{widths[1]:.2g}",
                ]
                print(f"| {kind} | {n:,} | {rates[-1]:.0%} | {name} | {' | '.join(cells)} |", flush=True)


#: Models of rewards that are fitted to a log: right, too smooth, linear, and right but with few inducing points.
MODELS = ("right kernel", "length scale × 5", "linear kernel", "20 inducing points")


def kernel_of(model: str) -> Kernel:
    """Return the kernel of a model on a context of two numbers and an action of one."""
    if model == "linear kernel":
        return LinearKernel().double()
    kernel = RBFKernel().double()
    kernel.lengthscale = torch.tensor(1.5 if "×" in model else 0.3)
    return kernel


def learned(model: str, n: int, seed: int) -> dict[str, float]:
    """Return the mean reward, less a uniform policy's, of what is greedy on models of one log, and of others.

    The reward is a Gaussian process of the right kernel with noise of standard deviation 0.3; of eleven actions the
    logging policy prefers those near one that the context says, and plays each with probability 0.01 at least.
    """
    generator = np.random.default_rng([29, seed])
    contexts, grid = generator.random((n + 400, 2)), np.linspace(0.0, 1.0, 11)
    joint = np.concatenate([contexts.repeat(11, 0), np.tile(grid, n + 400)[:, None]], 1)
    waves, phases = generator.normal(scale=1.0 / 0.3, size=(3, 500)), generator.uniform(0.0, 2.0 * np.pi, 500)
    means = (np.cos(joint @ waves + phases) @ generator.normal(size=500) / np.sqrt(250.0)).reshape(-1, 11)
    policy = np.exp(-0.5 * ((grid - contexts[:, :1]) / 0.1) ** 2)
    policy = 0.11 / 11.0 + 0.89 * policy / policy.sum(1, keepdims=True)
    rows = (generator.random(n)[:, None] > policy[:n].cumsum(1)[:, :-1]).sum(1)
    rewards = means[np.arange(n), rows] + 0.3 * generator.normal(size=n)
    X, Y = np.concatenate([contexts[:n], grid[rows, None]], 1), rewards - rewards.mean()
    weights = 1.0 / policy[np.arange(n), rows]
    fresh, center = means[n:], means[n:].mean()
    value = {"logging policy": (policy[n:] * fresh).sum(1).mean(), "best fixed action": fresh.mean(0).max()}
    for name, variances in (("as told", np.full(n, 0.09)), ("weighted", 0.09 * weights.mean() / weights)):
        dictionary = UniformDictionary(20) if "20" in model else None
        fitted = NystromGP(
            torch.from_numpy(X),
            torch.from_numpy(Y)[:, None],
            torch.from_numpy(variances)[:, None],
            covar_module=kernel_of(model),
            inducing_points=torch.from_numpy(X) if dictionary is None else None,
            dictionary=dictionary,
            generator=torch.Generator().manual_seed(seed),
        )
        with torch.no_grad():
            predicted: Tensor = fitted.posterior(torch.from_numpy(joint[n * 11 :])).mean.reshape(-1, 11)
        value[name] = fresh[np.arange(400), predicted.argmax(1).numpy()].mean()
        value[f"error, {name}"] = float(np.sqrt(((predicted.numpy() + rewards.mean() - fresh) ** 2).mean())) + center
    return {name: float(each - center) for name, each in value.items()}


def learning(problems: int, n: int = 400) -> None:
    """Print what weights by propensity change of what is learned from a log, on fresh seeds."""
    print(f"| {problems:,} logs of {n} | as told | weighted | less | better | error | weighted | logging | fixed |")
    print("| :-- | --: | --: | --: | --: | --: | --: | --: | --: |")
    for model in MODELS:
        found = [learned(model, n, seed) for seed in range(10_000, 10_000 + problems)]
        column = {name: np.array([each[name] for each in found]) for name in found[0]}
        less = column["weighted"] - column["as told"]
        cells = [f"{column[name].mean():.3f}" for name in ("as told", "weighted")]
        cells += [f"{less.mean():+.3f} ± {sem(less):.3f}", f"{int((less > 0).sum())}"]
        names = ("error, as told", "error, weighted", "logging policy", "best fixed action")
        cells += [f"{column[name].mean():.3f}" for name in names]
        print(f"| {model} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.off_policy", description=__doc__)
    parser.add_argument("what", choices=["coverage", "learning"])
    parser.add_argument("--logs", type=int, default=1000, help="how many logs of each kind")
    options = parser.parse_args()
    warnings.simplefilter("ignore", OverlapWarning)
    (coverage if options.what == "coverage" else learning)(options.logs)
