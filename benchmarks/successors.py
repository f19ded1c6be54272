"""After the five papers: the tightest width with a theorem, batches that believe draws, phased elimination."""

from functools import partial
from typing import Any

import torch

from benchmarks.runner import Found, Measurement, Parts, Table, benchmark, chosen, kinds, mean_and_error
from torch_kbandits import algorithms, environments
from torch_kbandits.confidence import GPUCBWidth, IGPUCBWidth, MartingaleMixtureWidth, SelfNormalizedWidth

_RKHS = partial(environments.rkhs_function, noise_fraction=0.05)
#: By part of the benchmark its problems.
PROBLEMS: dict[str, dict[str, Any]] = {
    "widths": {
        "RBF, 1-d": partial(_RKHS, 100, 1),
        "RBF, 2-d": partial(_RKHS, 200, 2),
        "Matérn, 1-d": partial(_RKHS, 100, 1, kernel="matern-2.5"),
        "Matérn, 2-d": partial(_RKHS, 200, 2, kernel="matern-2.5", lengthscale=0.3),
        "Matérn, 3-d": partial(_RKHS, 200, 3, kernel="matern-2.5", lengthscale=0.5),
        "rough, 1-d": partial(_RKHS, 100, 1, kernel="matern-1.5"),
    },
    "batches": {
        "GP, 2-d": partial(environments.gp_sample, 300, 2, lengthscale=0.2, noise_fraction=0.05),
        "RKHS, 2-d": partial(_RKHS, 300, 2, kernel="matern-2.5", lengthscale=0.3),
        "GP, 3-d": partial(environments.gp_sample, 300, 3, kernel="matern-2.5", lengthscale=0.4, noise_fraction=0.05),
    },
    "moving": {
        "2 switches": partial(environments.AbruptSwitches, switches=200),
        "slow drift": partial(environments.Drift, variation_budget=6.0, horizon=600),
        "swinging peak": partial(environments.MovingPeak, 100),
    },
    "stays": {
        "RBF, 1-d": partial(_RKHS, 100, 1),
        "Matérn, 2-d": partial(_RKHS, 200, 2, kernel="matern-2.5", lengthscale=0.3),
        "GP, 3-d": partial(environments.gp_sample, 300, 3, kernel="matern-2.5", lengthscale=0.4, noise_fraction=0.05),
    },
}
_BETAS = (0.5, 1.0, 2.0, 4.0)
#: Rounds between two looks at the band, and how much longer the moving problems are.
_LOOK, _LONGER = 20, 3


def _players(part: str, problem: Any, rounds: int, seed: int) -> dict[str, Any]:
    """Return what makes each player: the multiplier and factors of λ are the words of one."""
    R, B = problem.noise_scale, problem.norm_bound
    words = {"candidates": problem.arms, "kernel": problem.kernel, "seed": seed}
    level = R**2 if part != "moving" else problem.regularization

    def made(name: str, factor: float = 1.0, **own: Any) -> Any:
        return partial(algorithms.build, name, regularization=factor * level, **words, **own)

    found = {f"GP-UCB, β = {beta:g}": made("gp-ucb", beta=beta) for beta in _BETAS} | {"random": made("random")}
    theory = {"noise_scale": R, "norm_bound": B}
    if part == "widths":
        large = (1.0 + 2.0 / rounds) / level
        found |= {
            "GP-UCB's, λ = R²": made("gp-ucb", beta=GPUCBWidth(B, 0.1)),
            "IGP-UCB's, λ = 1 + 2/T": made("gp-ucb", large, beta=IGPUCBWidth(R, B, 0.1)),
            "self-normalised": made("gp-ucb", beta=SelfNormalizedWidth(R, B, 0.1)),
            "self-normalised, λ = 10 R²": made("gp-ucb", 10.0, beta=SelfNormalizedWidth(R, B, 0.1)),
            "mixture": made("igp-ucb", **theory),
            **{
                f"mixture with its fit, λ = {factor:g} R²": made(
                    "gp-ucb", factor, beta=MartingaleMixtureWidth(R, B, 0.1, mixture=1.0)
                )
                for factor in (3.0, 10.0)
            },
            "mixture with its fit, 2 B": made(
                "gp-ucb", 10.0, beta=MartingaleMixtureWidth(R, 2.0 * B, 0.1, mixture=1.0)
            ),
            "IRGP-UCB": made("irgp-ucb"),
        }
    elif part == "batches":
        found |= {f"RKB, β = {beta:g}": made("rkb", beta=beta) for beta in _BETAS[:3]}
        found |= {"GP-TS": made("gp-ts", beta=1.0), "GP-EI": made("gp-ei"), "IRGP-UCB": made("irgp-ucb")}
    elif part == "moving":
        budget = problem.variation_budget(rounds)
        known = {"horizon": rounds, "variation_budget": budget}
        found["best fixed arm"] = None
        for beta in (1.0, 2.0):
            found[f"R-PERP, β = {beta:g}"] = made("r-perp", beta=beta, **known)
            found[f"R-GP-UCB, β = {beta:g}"] = made("r-gp-ucb", beta=beta, **known)
            found[f"SW-GP-UCB, β = {beta:g}"] = made("sw-gp-ucb", beta=beta, **known)
    else:
        found |= {f"BPE, β = {beta:g}": made("bpe", horizon=rounds, beta=beta) for beta in (1.0, 2.0)}
        found |= {"BPE, theorem": made("bpe", horizon=rounds, **theory), "MVR": made("mvr", horizon=rounds, beta=2.0)}
        found |= {"GP-EI": made("gp-ei"), "GP-TS": made("gp-ts", beta=1.0)}
    return found


@benchmark(rounds=16, seeds=1)
def successors(
    rounds: int = 200, seeds: int = 10, first_seed: int = 0, only: str = "", parts: Parts | None = None
) -> Found:
    """Play each part's players; the moving problems for three times as many rounds."""
    found, kept = list[Measurement](), parts or Parts()
    names = [name for name in PROBLEMS if only in ("", name)]
    for seed in range(first_seed, first_seed + seeds):
        for part in names:
            for q in (4, 8) if part == "batches" else (1,):
                for problem in PROBLEMS[part]:
                    number = _LONGER * rounds if part == "moving" else rounds
                    for player in _players(part, PROBLEMS[part][problem](seed=seed), number, seed):
                        key = {"part": part, "q": q, "problem": problem, "player": player, "seed": seed}
                        found.append(kept.measured(key, partial(_played, part, q, problem, player, seed, number)))
    return [_table(part, q, found) for part in names for q in ((4, 8) if part == "batches" else (1,))], found


def _played(part: str, q: int, name: str, player: str, seed: int, rounds: int) -> Measurement:
    problem = PROBLEMS[part][name](seed=seed)
    if (made := _players(part, problem, rounds, seed)[player]) is None:
        means = torch.stack([problem.means(number) for number in range(rounds)])
        regret = float((means.amax(1, keepdim=True) - means).sum(0).min())
        return {"regret": regret, "simple": 0.0, "left": 0, "half": 0.0}
    bandit = made()
    moves, regrets, left, half = part == "moving", list[float](), False, 0.0
    at = dict[str, int]()
    for number in range(rounds // q):
        at = {"round": number} if moves else {}
        X = bandit.ask(q)
        regrets += problem.regret(X, **at).tolist()
        bandit.tell(X, problem.pull(X, round=number) - problem.center)
        if part == "widths" and (number + 1) % _LOOK == 0:
            posterior = bandit.model.posterior(problem.arms.unsqueeze(-2))
            mean, deviation = posterior.mean.flatten().detach(), posterior.variance.flatten().detach().sqrt()
            reach = float(bandit.beta) * deviation
            left |= bool(((problem.means - problem.center - mean).abs() > reach + 1e-9).any())
            half = float(reach.mean())
    last = float(problem.regret(bandit.recommend(), **at))
    return {"regret": sum(regrets), "simple": last, "left": left, "half": half / problem.noise_scale}


def _table(part: str, q: int, found: list[Measurement]) -> Table:
    own = chosen(found, part=part, q=q)
    problems, players = kinds(own, "problem"), kinds(own, "player")
    rows = []
    for player in players:
        by_problem = ([run["regret"] for run in chosen(own, player=player, problem=each)] for each in problems)
        row = [player, *(mean_and_error(regrets, 1) for regrets in by_problem)]
        if part == "widths":
            runs = chosen(own, player=player)
            half, left = (sum(run[entry] for run in runs) for entry in ("half", "left"))
            row += [f"{half / len(runs):.2f}", f"{left}/{len(runs)}"]
        if part == "stays":
            row += [mean_and_error([run["simple"] for run in chosen(own, player=player)], 4)]
        rows.append(row)
    others = {"widths": ["half-width at the end, in R", "band left"], "stays": ["simple regret, all"]}
    title = f"{part}, {q} at a time: regret, mean ± standard error"
    return Table(title, ["player", *problems, *others.get(part, [])], rows)
