"""How much of the Pareto front samplers find in few trials: hypervolumes, without constraints and with them."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import optuna
import torch
from botorch import fit_gpytorch_mll
from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from botorch.test_functions.base import ConstrainedBaseTestProblem, MultiObjectiveTestProblem
from botorch.test_functions.multi_objective import DTLZ2, BraninCurrin, ConstrainedBraninCurrin
from botorch.utils.multi_objective.hypervolume import Hypervolume
from botorch.utils.multi_objective.pareto import is_non_dominated
from gpytorch.mlls import SumMarginalLogLikelihood
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from scipy.stats import wilcoxon
from torch import Tensor
from tqdm import tqdm

from benchmarks.report import Report, Table
from torch_kbandits.integrations.optuna import KernelBanditSampler

#: All are minimised by BoTorch's definition, and so by the studies.
_PROBLEMS: dict[str, Callable[[], MultiObjectiveTestProblem]] = {
    "Branin and Currin": lambda: BraninCurrin(),
    "DTLZ2 of 4": lambda: DTLZ2(dim=4, num_objectives=2),
    "constrained Branin and Currin": lambda: ConstrainedBraninCurrin(),
}

_SAMPLERS: dict[str, Callable[[int], BaseSampler]] = {
    "KernelBanditSampler": lambda seed: KernelBanditSampler(seed=seed),
    "GPSampler": lambda seed: GPSampler(seed=seed),
    "TPESampler": lambda seed: TPESampler(seed=seed),
    "NSGAIISampler": lambda seed: NSGAIISampler(seed=seed, population_size=10),
    "random": lambda seed: RandomSampler(seed=seed),
}

#: BoTorch's own loop, on problems without constraints alone, and so many trials at most: they are dear.
_NEHVI, _MOST = "qLogNEHVI", 20

#: Whose hypervolumes the others are compared with, seed by seed.
_OURS = "KernelBanditSampler"


@dataclass(frozen=True)
class Sizes:
    """What is run. Seeds are of the samplers."""

    trials: tuple[int, ...] = (20, 40)
    seeds: tuple[int, ...] = tuple(range(100, 105))
    problems: tuple[str, ...] = tuple(_PROBLEMS)
    dear: tuple[str, ...] = ("GPSampler",)


QUICK = Sizes(trials=(6, 12), seeds=(0,), problems=("constrained Branin and Currin",), dear=())


def run(quick: bool = False) -> Report:
    """Play a study of each sampler on each problem and seed."""
    sizes = QUICK if quick else Sizes()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    runs = [(problem, seed, name) for problem in sizes.problems for seed in sizes.seeds for name in _names(problem)]
    measurements = [measured(*each, sizes) for each in tqdm(runs, desc="objectives", unit="study")]
    tables = [_table(problem, measurements, sizes) for problem in sizes.problems]
    return Report("objectives", asdict(sizes) | {"optuna": optuna.__version__}, tables, measurements)


def measured(problem: str, seed: int, name: str, sizes: Sizes) -> dict[str, Any]:
    """Play one study, and return its hypervolumes as shares of the largest, and its seconds."""
    made, started = _PROBLEMS[problem]().double(), time.process_time()
    trials = max(sizes.trials)
    if name in sizes.dear or name == _NEHVI:
        trials = max(number for number in sizes.trials if number <= max(_MOST, min(sizes.trials)))
    X = _nehvi(made, seed, trials) if name == _NEHVI else _studied(made, name, seed, trials)
    shares = [_share(made, X[:number]) for number in sizes.trials if number <= trials]
    feasible = float((_slack(made, X) >= 0.0).all(-1).double().mean()) if _has_limits(made) else 1.0
    seconds = time.process_time() - started
    words = {"problem": problem, "sampler": name, "seed": seed, "shares": shares, "feasible": feasible}
    return words | {"seconds": seconds / trials}


def _names(problem: str) -> list[str]:
    return [*_SAMPLERS] if _has_limits(_PROBLEMS[problem]()) else [*_SAMPLERS, _NEHVI]


def _studied(problem: MultiObjectiveTestProblem, name: str, seed: int, trials: int) -> Tensor:
    """Return the points (n, d) that a sampler tried."""
    lower, upper = cast(Tensor, problem.bounds).tolist()
    tried: list[Tensor] = []

    def objective(trial: optuna.Trial) -> tuple[float, ...]:
        bounds = enumerate(zip(lower, upper, strict=True))
        x = torch.tensor([[trial.suggest_float(f"x{number}", low, high) for number, (low, high) in bounds]]).double()
        tried.append(x)
        if _has_limits(problem):
            for number, slack in enumerate(_slack(problem, x)[0].tolist()):
                trial.set_constraint(str(number), -slack)
        return tuple(problem.evaluate_true(x)[0].tolist())

    sampler = _SAMPLERS[name](seed)
    directions: list[Any] = ["minimize"] * problem.num_objectives
    study = optuna.create_study(directions=directions, sampler=sampler)
    study.optimize(objective, n_trials=trials)
    return torch.cat(tried)


def _has_limits(problem: MultiObjectiveTestProblem) -> bool:
    return isinstance(problem, ConstrainedBaseTestProblem)


def _slack(problem: Any, X: Tensor) -> Tensor:
    """Return by how much points (n, d) keep the constraints, (n, c)."""
    return problem.evaluate_slack_true(X)


def _nehvi(problem: MultiObjectiveTestProblem, seed: int, trials: int) -> Tensor:
    """Return the points (n, d) of BoTorch's loop as its tutorial has it, ten of a Sobol set first."""
    torch.manual_seed(seed)
    bounds = cast(Tensor, problem.bounds)
    lower, upper = bounds
    sobol = torch.quasirandom.SobolEngine(problem.dim, scramble=True, seed=seed).draw(10, dtype=torch.float64)
    X = lower + (upper - lower) * sobol
    while len(X) < trials:
        Y = -problem.evaluate_true(X)
        parts = [
            SingleTaskGP(X, Y[:, k, None], input_transform=Normalize(problem.dim), outcome_transform=Standardize(1))
            for k in range(problem.num_objectives)
        ]
        model = ModelListGP(*parts)
        fit_gpytorch_mll(SumMarginalLogLikelihood(model.likelihood, model))
        function = qLogNoisyExpectedHypervolumeImprovement(
            model=model,
            ref_point=(-cast(Tensor, problem.ref_point)).tolist(),
            X_baseline=X,
            sampler=SobolQMCNormalSampler(torch.Size([128]), seed=seed),
            prune_baseline=True,
        )
        found, _ = optimize_acqf(function, bounds, q=1, num_restarts=4, raw_samples=128)
        X = torch.cat([X, found.detach()])
    return X


def _share(problem: MultiObjectiveTestProblem, X: Tensor) -> float:
    """Return the hypervolume of what is feasible of points (n, d), as a share of that of the whole front."""
    Y = -problem.evaluate_true(X)
    if _has_limits(problem):
        Y = Y[(_slack(problem, X) >= 0.0).all(-1)]
    if not len(Y):
        return 0.0
    return Hypervolume(-cast(Tensor, problem.ref_point)).compute(Y[is_non_dominated(Y)]) / problem.max_hv


def _table(problem: str, measurements: list[dict[str, Any]], sizes: Sizes) -> Table:
    here = [each for each in measurements if each["problem"] == problem]
    ours = {each["seed"]: each["shares"] for each in here if each["sampler"] == _OURS}
    rows = []
    for name in _names(problem):
        of = {each["seed"]: each for each in here if each["sampler"] == name}
        number = len(next(iter(of.values()))["shares"])
        shares = [f"{statistics.fmean(each['shares'][k] for each in of.values()):.3f}" for k in range(number)]
        shares += ["–"] * (len(sizes.trials) - number)
        feasible = f"{statistics.fmean(each['feasible'] for each in of.values()):.2f}"
        seconds = f"{statistics.median(each['seconds'] for each in of.values()):.2f}"
        pairs = [(ours[seed][number - 1], of[seed]["shares"][-1]) for seed in of]
        rows.append([name, *shares, feasible, seconds, *_paired(pairs)])
    columns = ["sampler", *(f"after {number}" for number in sizes.trials), "feasible", "s a trial"]
    title = f"{problem}: share of the largest hypervolume, mean of {len(sizes.seeds)} seeds"
    return Table(title, [*columns, f"{_OURS} ahead", "p, ahead"], rows)


def _paired(pairs: Sequence[tuple[float, float]]) -> list[str]:
    """Return in how many pairs the first is larger, and p of Wilcoxon's one-sided test that it is."""
    differences = [first - second for first, second in pairs]
    if not any(differences):
        return ["–"] * 2
    test: Any = wilcoxon(differences, alternative="greater")
    return [f"{sum(each > 0.0 for each in differences)} of {len(differences)}", f"{test.pvalue:.3f}"]
