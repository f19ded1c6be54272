"""How early ``StopWhen`` ends a run, how good the arm is that it would use, and how often bounds on that hold."""

import math
import statistics
from functools import partial
from itertools import product
from typing import cast

import torch
from gpytorch.kernels import Kernel
from tqdm import tqdm

from benchmarks.runner import Found, Measurement, Parts, Table, benchmark, chosen, crossed, spread
from torch_kbandits import LearnedPrior, Prior, StopWhen, environments
from torch_kbandits.algorithms import GPUCB
from torch_kbandits.confidence import BayesianGPUCBWidth
from torch_kbandits.priors import fit_prior

PROBLEMS = {
    "GP, 1-d": partial(environments.gp_sample, 200, 1, lengthscale=0.1),
    "GP, 2-d Matérn": partial(environments.gp_sample, 200, 2, kernel="matern-2.5", lengthscale=0.3),
    "RKHS, 2-d": partial(environments.rkhs_function, 200, 2, lengthscale=0.2),
    "bumps": partial(environments.gaussian_bumps, 200, 2),
    "Branin": partial(environments.synthetic_function, "branin", num_arms=200),
    "Hartmann 3": partial(environments.synthetic_function, "hartmann", 3, num_arms=200),
}
#: A share of the range of the function, of which the point used may be worse, and what an improvement must be.
_SHARE, _LEAST = 0.05, 0.01


def _rules(scale: float, every: int) -> dict[str, StopWhen]:
    return {
        "regret 5 %, β = 2": StopWhen(regret=_SHARE * scale, every=every),
        "regret 5 %, 95 % sure": StopWhen(regret=_SHARE * scale, confidence=0.95, every=every),
        "no better by 1 %": StopWhen(no_better_by=_LEAST * scale, every=every),
    }


@benchmark(rounds=12, seeds=1)
def stopping(parts: Parts, rounds: int = 60, seeds: int = 10, every: int = 5) -> Found:
    """Play GP-UCB, β = 2, with the prior known and learned, and ask each rule every few rounds until it says stop."""
    keys = crossed(seed=range(seeds), problem=PROBLEMS, prior=("known", "learned"))
    found = parts.all("stopping", keys, partial(_played, rounds=rounds, every=every))
    names = [*_rules(1.0, every), "half the rounds"]
    rows = [_row(*key, found) for key in product([*PROBLEMS, "all"], ("known", "learned"), names)]
    columns = ["problem", "prior", "rule", "stopped", "after rounds", "regret then", "at the end", "within"]
    title = f"Runs of {rounds} rounds; regret in % of the range of the function, means"
    return [Table(title, columns, rows)], found


@benchmark(runs=4)
def stopping_coverage(runs: int = 400, first: int = 0, rounds: int = 8, num_arms: int = 40) -> Found:
    """Count how often the regret of ``recommend`` is above each bound, of functions drawn from the prior."""
    stated = {"theorem, δ = 0.1": 0.1, "draws, 95 %": 0.05, "draws, 80 %": 0.2, "β = 2": math.nan}
    found = list[Measurement]()
    for seed in tqdm(range(first, first + runs), "coverage"):
        problem = environments.gp_sample(num_arms, 2, lengthscale=0.3, noise_fraction=0.04, seed=seed)
        prior, width = Prior(cast(Kernel, problem.kernel), problem.regularization), BayesianGPUCBWidth(num_arms, 0.1)
        bandit = GPUCB(candidates=problem.arms, prior=prior, beta=width, seed=seed)
        for number in range(rounds):
            x = bandit.ask()
            bandit.tell(x, problem.pull(x, round=number))
        bounds = bandit.regret_bound(), *(bandit.regret_bound(confidence=share) for share in (0.95, 0.8))
        named = dict(zip(stated, (*bounds, bandit.regret_bound(beta=2.0)), strict=True))
        found.append({"seed": seed, "regret": float(problem.regret(bandit.recommend())), "bounds": named})
    above = {name: sum(run["regret"] > run["bounds"][name] for run in found) for name in stated}
    rows = [[name, str(above[name]), "–" if math.isnan(x) else f"{x * runs:g}"] for name, x in stated.items()]
    return [Table(f"Runs of {runs} whose regret is above the bound", ["bound", "above", "stated"], rows)], found


def _row(problem: str, prior: str, rule: str, found: list[Measurement]) -> list[str]:
    runs = chosen(found, prior=prior, **({} if problem == "all" else {"problem": problem}))
    ends = [(run["stops"].get(rule, len(run["regrets"]) // 2), run["regrets"]) for run in runs]
    stops = [(at, regrets) for at, regrets in ends if at is not None]
    if not stops:
        return [problem, prior, rule, f"0 of {len(runs)}", "–", "–", "–", "–"]
    then, last = ([100.0 * regrets[at - 1] for at, regrets in stops], [100.0 * regrets[-1] for _, regrets in stops])
    within = sum(each <= 100.0 * _SHARE for each in then)
    cells = [f"{statistics.fmean(then):.2f}", f"{statistics.fmean(last):.2f}", f"{within} of {len(stops)}"]
    return [problem, prior, rule, f"{len(stops)} of {len(runs)}", spread([at for at, _ in stops], 0), *cells]


def _played(problem: str, prior: str, seed: int, rounds: int, every: int) -> Measurement:
    made = PROBLEMS[problem](seed=seed)
    scale = float(made.means.max() - made.means.min())
    rules, regrets, stops = _rules(scale, every), list[float](), dict.fromkeys(_rules(scale, every))
    given: Prior | LearnedPrior = LearnedPrior()
    if prior == "known" and problem.startswith(("GP", "RKHS")):
        given = Prior(made.kernel, made.regularization)
    elif prior == "known":  # as far as it can be: fitted beforehand to a reward of each arm
        rewards = torch.cat([made.pull(x[None], round=rounds + row) for row, x in enumerate(made.arms)])
        given = fit_prior(made.arms, rewards)
    bandit = GPUCB(candidates=made.arms, prior=given, beta=2.0, seed=seed)
    for number in range(rounds):
        x = bandit.ask()
        bandit.tell(x, made.pull(x, round=number))
        regrets.append(float(made.regret(bandit.recommend())) / scale)
        for rule in (rule for rule, stop in rules.items() if stops[rule] is None and stop(bandit)):
            stops[rule] = number + 1
    return {"regrets": regrets, "stops": stops}
