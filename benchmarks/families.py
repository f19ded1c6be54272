"""What families of hypotheses lose where the first length scale is wrong, against the truth, a fit and no help.

Before it was run it was fixed what is to be shown: of the four named families there is one whose mean regret is on no
problem more than 1.5 times that of its oracle, the bandit without a family that is given the true kernel and plays by
the same rule, GP-UCB or GP-TS, with the same multiplier.
"""

import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, cast

from gpytorch.kernels import Kernel
from torch import Tensor
from tqdm import tqdm

from benchmarks.report import Report, Table, mean_and_error
from torch_kbandits import Arms, Bandit, ConstantWidth, LearnedPrior, algorithms, environments
from torch_kbandits.acquisition import UpperConfidenceRule
from torch_kbandits.environments import FiniteArms
from torch_kbandits.priors.families import Family, Prediction, Sampling, of_length_scales

#: Multipliers of the deviation, as practitioners take them.
_UPPER, _DRAW = 2.0, 1.0

#: Of the first length scale, as the named families have them unless told otherwise.
_SCALES = (1.0, 0.5, 0.25, 0.125, 0.0625)


@dataclass(frozen=True)
class Sizes:
    """What is run; each seed is another function, other arms and another noise."""

    arms: int = 200
    rounds: int = 200
    seeds: int = 10
    first_seed: int = 0
    factors: tuple[float, ...] = (4.0,)
    problems: tuple[str, ...] = ("gp-sample, d = 1", "gp-sample, d = 2", "rkhs-function, d = 1", "rkhs-function, d = 2")


QUICK = Sizes(arms=30, rounds=12, seeds=2, factors=(4.0,), problems=("rkhs-function, d = 1",))

#: Kernel and true length scale of each problem.
_PROBLEMS = {
    "gp-sample, d = 1": ("gp-sample", 1, "matern-2.5", 0.1),
    "gp-sample, d = 2": ("gp-sample", 2, "matern-2.5", 0.2),
    "rkhs-function, d = 1": ("rkhs-function", 1, "rbf", 0.1),
    "rkhs-function, d = 2": ("rkhs-function", 2, "rbf", 0.2),
}

#: The player with the true kernel that each is compared with.
_ORACLES = {"GP-UCB, true kernel": "GP-UCB", "GP-TS, true kernel": "GP-TS"}


def _learned(arms: Tensor, kernel: Kernel, regularization: float, seed: int) -> Bandit:
    """Return GP-UCB whose prior is fitted to the rewards, from the wrong kernel on."""
    return algorithms.build("igp-ucb", candidates=arms, prior=LearnedPrior(kernel), beta=_UPPER, seed=seed)


def _family(rule: Any) -> Callable[..., Bandit]:
    def make(arms: Tensor, kernel: Kernel, regularization: float, seed: int) -> Bandit:
        return Bandit(
            candidates=Arms(arms),
            kernel=kernel,
            regularization=regularization,
            width=ConstantWidth(_UPPER),
            acquisition=UpperConfidenceRule(),
            family=Family(of_length_scales(kernel, _SCALES), rule),
            seed=seed,
        )

    return make


def _named(name: str) -> Callable[..., Bandit]:
    beta = _DRAW if name.endswith("ts") else _UPPER

    def make(arms: Tensor, kernel: Kernel, regularization: float, seed: int) -> Bandit:
        words = {"candidates": arms, "kernel": kernel, "regularization": regularization, "beta": beta, "seed": seed}
        return algorithms.build(name, **words)

    return make


#: All players, and the rule that each plays by; those of the true kernel first.
_PLAYERS: dict[str, tuple[str, Callable[..., Any]]] = {
    "GP-UCB, true kernel": ("GP-UCB", _named("igp-ucb")),
    "GP-TS, true kernel": ("GP-TS", _named("gp-ts")),
    "lb-gp-ucb": ("GP-UCB", _named("lb-gp-ucb")),
    "pe-gp-ucb": ("GP-UCB", _named("pe-gp-ucb")),
    "pe-gp-ts": ("GP-TS", _named("pe-gp-ts")),
    "hp-gp-ts": ("GP-TS", _named("hp-gp-ts")),
    "Sampling, upper bounds": ("GP-UCB", _family(Sampling())),
    "Prediction, upper bounds": ("GP-UCB", _family(Prediction())),
    "GP-UCB, fitted kernel": ("GP-UCB", _learned),
    "GP-UCB, wrong kernel": ("GP-UCB", _named("igp-ucb")),
    "GP-TS, wrong kernel": ("GP-TS", _named("gp-ts")),
    "random": ("GP-UCB", lambda arms, kernel, regularization, seed: algorithms.RandomSearch(
        candidates=arms, kernel=kernel, regularization=regularization, seed=seed)),
}  # fmt: skip


def run(quick: bool = False) -> Report:
    """Play all on every problem; the noise of a round is the same for each of them."""
    sizes = QUICK if quick else Sizes()
    measurements = []
    cases = list(product(sizes.problems, range(sizes.first_seed, sizes.first_seed + sizes.seeds)))
    for problem, seed in tqdm(cases, desc="families", unit="seed"):
        name, dimension, kernel, lengthscale = _PROBLEMS[problem]
        words = {"num_arms": sizes.arms, "dimension": dimension, "kernel": kernel, "lengthscale": lengthscale}
        environment = cast(FiniteArms, environments.build(name, **words, seed=seed))
        for player, (rule, make) in _PLAYERS.items():
            is_true = player in _ORACLES
            for factor in (1.0,) if is_true else sizes.factors:
                wrong = of_length_scales(cast(Kernel, environment.kernel), (factor,))[0].kernel
                bandit = make(environment.arms, wrong, environment.regularization, seed)
                regret = play(bandit, environment, sizes.rounds)
                for each in sizes.factors if is_true else (factor,):
                    row = {"problem": problem, "seed": seed, "factor": each, "player": player, "rule": rule}
                    measurements.append({**row, "regret": regret})
    return Report(
        "families", asdict(sizes), [_table(measurements, factor, sizes) for factor in sizes.factors], measurements
    )


def play(bandit: Any, environment: FiniteArms, rounds: int) -> float:
    """Return the cumulative pseudo-regret."""
    regret = 0.0
    for t in range(rounds):
        x = bandit.ask()
        regret += float(environment.regret(x))
        bandit.tell(x, environment.pull(x, t))
    return regret


def _table(measurements: list[dict[str, Any]], factor: float, sizes: Sizes) -> Table:
    def of(player: str, problem: str) -> list[float]:
        keys = (player, problem, factor)
        return [run["regret"] for run in measurements if (run["player"], run["problem"], run["factor"]) == keys]

    rows = []
    for player, (rule, _) in _PLAYERS.items():
        oracle = next(name for name, own in _ORACLES.items() if own == rule)
        ratios = [statistics.fmean(of(player, each)) / statistics.fmean(of(oracle, each)) for each in sizes.problems]
        cells = [mean_and_error(of(player, each), 1) for each in sizes.problems]
        shown = [f"{cell} ({ratio:.2f})" for cell, ratio in zip(cells, ratios, strict=True)]
        rows.append([player, *shown, f"{max(ratios):.2f}"])
    title = (
        f"Regret after {sizes.rounds} rounds on {sizes.arms} arms, first length scale {factor:g} times the truth: mean "
        f"± standard error of {sizes.seeds} seeds, and its ratio to the mean of the same rule with the true kernel"
    )
    return Table(title, ["player", *sizes.problems, "largest ratio"], rows)
