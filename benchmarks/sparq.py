"""SparQ-GP-UCB and W-SparQ-GP-UCB measured: windows of answers, what sparse answers are worth, and what a round costs.

    python -m benchmarks.sparq windows|accuracy|cost|fitted records.jsonl

``windows`` plays the peak of Mauduit et al., 2025, section 4.1, that swings at speeds 1, 1/8 and 1/64: about √λ, √λ/8
and √λ/64 a round at its steepest. Memories without an expert are the best of their grids on the seed 1000.

Claimed before the seeds 10 to 13 were played, of means over them of the regret of a round in the second half:

1. At speed 1 a window of 2 has at most 1.25 times that of SparQ-GP-UCB, with half of its questions.
2. At speed 1/8 a window of 8, √λ over the drift, has at most 1.5 times that of SparQ-GP-UCB with a seventh of its
   questions, and at most half of that of the best memory.
3. At speed 1/64 the best memory has at most twice the regret of a window of 64: there nobody need be asked.

``fitted`` plays figure 1 of Mauduit et al., 2025, with a squared exponential kernel and λ of the largest marginal
likelihood, as the paper does, of 500 rounds of random play ("of play") or of 200 arms at one time ("of a snapshot"); or
with the kernel of the peak. B is the largest norm of the posterior mean of f_t given all arms with noise λ.
"""

import argparse
import json
import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any, cast

import numpy as np
import torch
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from scipy.optimize import minimize

from benchmarks.best_answer import BestAnswer
from torch_kbandits import LearnedPrior, algorithms
from torch_kbandits.confidence import greedy_information_gain, sparq_questions
from torch_kbandits.dictionaries import KDPP, PlayedPoints
from torch_kbandits.environments import MovingPeak
from torch_kbandits.experiments.references import BestFixed, EnvironmentExpert

_SPEEDS, _ROUNDS = (1.0, 0.125, 0.015625), 200
_TUNING, _JUDGING = 1000, (10, 11, 12, 13)
_WINDOWS = (2, 4, 8, 16, 64)
_SHOWN = (10, 25, 50, 100, 200, 300)

Player = Callable[[MovingPeak, int], Any]


def main() -> None:
    """Write a record a line as they come."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("windows", "accuracy", "cost", "fitted"))
    parser.add_argument("records", type=Path)
    words = parser.parse_args()
    torch.set_num_threads(1)
    made = {"windows": windows, "accuracy": accuracy, "cost": cost, "fitted": fitted}[words.what]
    with words.records.open("a", encoding="utf-8") as file:
        for record in made():
            print(json.dumps({"what": words.what} | record), file=file, flush=True)


# ---------------------------------------------------------------- windows of answers


def windows() -> Iterator[dict[str, Any]]:
    """Yield the regret of each player at each speed, of seeds that judge; the memories are chosen before."""
    chosen = dict[float, dict[str, Player]]()
    for speed in _SPEEDS:
        best = dict[str, tuple[float, str]]()
        for name, player in _memories().items():
            late, kind = _played(player, speed, _TUNING)["late"], name.partition(" ")[0]
            best[kind] = min(best.get(kind, (math.inf, "")), (late, name))
        chosen[speed] = {name: _memories()[name] for _, name in best.values()}
    for seed in _JUDGING:
        for speed in _SPEEDS:
            for name, player in (_asking(speed) | chosen[speed] | _references()).items():
                yield {"speed": speed, "seed": seed, "player": name} | _played(player, speed, seed)


def _played(player: Player, speed: float, seed: int, rounds: int = _ROUNDS) -> dict[str, Any]:
    problem = MovingPeak(seed=seed, speed=speed)
    bandit, regrets, start = player(problem, seed), list[float](), process_time()
    for t in range(rounds):
        x = bandit.ask()
        regrets.append(problem.regret(x, t).item())
        bandit.tell(x, problem.pull(x, t) - problem.center)
    seconds, expert = process_time() - start, getattr(bandit, "expert", None)
    found = {"mean": np.mean(regrets), "late": np.mean(regrets[rounds // 2 :])}
    asked = getattr(expert, "num_questions", 0) / rounds
    return {name: round(float(each), 5) for name, each in found.items()} | {"questions": asked, "seconds": seconds}


def _made(name: str, problem: MovingPeak, seed: int, **words: Any) -> Any:
    common = {"candidates": problem.arms, "seed": seed} | ({} if name == "random" else {"beta": 1.0})
    if "prior" not in words:
        common |= {"kernel": problem.kernel, "regularization": problem.regularization}
    if "sparq" in name:
        words["expert"] = EnvironmentExpert(problem)
    return algorithms.build(name, **(common | words))


def _asking(speed: float) -> dict[str, Player]:
    rate = speed**2 / 3.0
    players: dict[str, Player] = {"SparQ": partial(_made, "sparq-gp-ucb")}
    for window in _WINDOWS:
        players[f"W-SparQ w={window}"] = partial(_made, "w-sparq-gp-ucb", window=float(window), growth=rate)
    players["W-SparQ w=sqrt(t)"] = partial(_made, "w-sparq-gp-ucb", window=_root, growth=rate)
    return players


def _root(t: int) -> float:
    return float(math.ceil(math.sqrt(t)))


def _memories() -> dict[str, Player]:
    players = {f"SW w={w}": partial(_made, "sw-gp-ucb", window=float(w)) for w in (5, 20, 100)}
    players |= {f"R H={h}": partial(_made, "r-gp-ucb", period=float(h)) for h in (25, 100)}
    players |= {f"W eta={eta}": partial(_made, "w-gp-ucb", discount=eta) for eta in (0.5, 0.9, 0.99)}
    players |= {f"TV eps={e}": partial(_made, "tv-gp-ucb", forgetting=e) for e in (0.1, 0.01, 0.001)}
    return players | {"GP-UCB": partial(_made, "gp-ucb")}


def _references() -> dict[str, Player]:
    return {
        "best of 6 ln t answers": lambda problem, seed: BestAnswer(
            candidates=problem.arms, expert=EnvironmentExpert(problem), seed=seed
        ),
        "best fixed": lambda problem, seed: BestFixed(environment=problem, horizon=_ROUNDS),
        "random": partial(_made, "random"),
    }


# ---------------------------------------------------------------- Propositions 1 and 2, Theorem 3.2


def accuracy() -> Iterator[dict[str, Any]]:
    """Yield how far posteriors of few points are from that of an answer at every past input, on runs of SparQ-GP-UCB.

    ``answers`` condition on as many answers as questions, which is what the algorithm does; ``inducing`` on all of them
    through the same points as inducing points, of which the propositions speak. Errors are the largest over the arms:
    |μ1 − μ0| / σ0, |1 − σ1² / σ0²|, and KL of Eq. (42) for the latter.
    """
    for seed in (10, 11):
        problem = MovingPeak(seed=seed)
        bandit, level = _made("sparq-gp-ucb", problem, seed), problem.regularization
        for t in range(401):
            if t in (50, 100, 200, 400):
                X, told = bandit.history.X, EnvironmentExpert(problem)
                Y = told(X, t)[0].numpy()
                for factor in (1.0, 3.0, 6.0, 12.0, 24.0):
                    number = sparq_questions(t + 1, factor)
                    played = PlayedPoints(X, cast(Kernel, problem.kernel), X.new_zeros(()), X.new_ones(len(X)))
                    Z = KDPP(number).select(played, torch.Generator().manual_seed(seed)).points
                    place = [int((z == X).all(-1).nonzero()[0]) for z in Z]
                    sizes = {"distinct": len(X.unique(dim=0)), "questions": len(Z)}
                    yield {"seed": seed, "t": t, "factor": factor} | sizes | _errors(problem, X, Y, place, level)
            x = bandit.ask()
            bandit.tell(x, problem.pull(x, t) - problem.center)


def _errors(problem: MovingPeak, X: torch.Tensor, Y: np.ndarray, place: list[int], level: float) -> dict[str, float]:
    with torch.no_grad():
        points = torch.cat([X, problem.arms])
        gram = cast(Kernel, problem.kernel)(points, points).to_dense().double().numpy()
    n = len(X)
    K, across, own = gram[:n, :n], gram[:n, n:], gram.diagonal()[n:]
    mean, variance = _posterior(K, across, own, Y, level)
    found = dict[str, float]()
    few = _posterior(K[np.ix_(place, place)], across[place], own, Y[place], level)
    # Titsias: the projections on the inducing points, in coordinates that whiten their Gram matrix.
    values, vectors = np.linalg.eigh(K[np.ix_(place, place)])
    kept = values > 1e-10 * values[-1]
    white = (vectors[:, kept] / np.sqrt(values[kept])).T
    z, zx = white @ K[place], white @ across[place]
    inner = np.linalg.inv(level * np.eye(len(z)) + z @ z.T)
    mean_z, variance_z = zx.T @ inner @ (z @ Y), own - (zx**2).sum(0) + level * ((inner @ zx) * zx).sum(0)
    for name, (mean1, variance1) in {"answers": few, "inducing": (mean_z, variance_z)}.items():
        found[f"{name} mean"] = float((np.abs(mean1 - mean) / np.sqrt(variance)).max())
        found[f"{name} variance"] = float(np.abs(1.0 - variance1 / variance).max())
    projected, eye = z.T @ z, level * np.eye(n)
    found["inducing KL"] = _evidence(K + eye, Y) - _evidence(projected + eye, Y) + np.trace(K - projected) / 2 / level
    return {name: float(f"{each:.4g}") for name, each in found.items()}


def _posterior(K: np.ndarray, across: np.ndarray, own: np.ndarray, Y: np.ndarray, level: float) -> Any:
    solved = np.linalg.solve(K + level * np.eye(len(K)), np.column_stack([Y, across]))
    return across.T @ solved[:, 0], own - (across * solved[:, 1:]).sum(0)


def _evidence(covariance: np.ndarray, Y: np.ndarray) -> float:
    half = np.linalg.slogdet(covariance)[1] + Y @ np.linalg.solve(covariance, Y)
    return -0.5 * float(half + len(Y) * math.log(2 * math.pi))


def cost() -> Iterator[dict[str, Any]]:
    """Yield the processor time of rounds up to T, of SparQ-GP-UCB, of a window of 8 and of GP-UCB."""
    problem = MovingPeak(seed=10)
    players = {"SparQ": {}, "W-SparQ w=8": {"window": 8.0}, "GP-UCB": {}}
    for name, words in players.items():
        kind = {"SparQ": "sparq-gp-ucb", "GP-UCB": "gp-ucb"}.get(name, "w-sparq-gp-ucb")
        bandit, spent = _made(kind, problem, 10, **words), 0.0
        for t in range(1600):
            start = process_time()
            x = bandit.ask()
            y = problem.pull(x, t) - problem.center
            bandit.tell(x, y)
            spent += process_time() - start
            if t + 1 in (50, 100, 200, 400, 800, 1600):
                yield {"player": name, "t": t + 1, "seconds": round(spent, 3)}


# ---------------------------------------------------------------- Figure 1 with fitted priors, and its bound


def fitted() -> Iterator[dict[str, Any]]:
    """Yield average regrets up to some rounds under three priors, and the bound of the proof with its own numbers."""
    problem = MovingPeak(seed=1000)
    priors = {"of the peak": (math.sqrt(10.0), 1.0, problem.regularization)}
    priors |= {"of play": _likeliest(problem, 500, lambda t: t), "of a snapshot": _likeliest(problem, 200, lambda t: 0)}
    known = dict[str, dict[str, Any]]()
    for name, (length, variance, level) in priors.items():
        inner = RBFKernel()
        inner.lengthscale = torch.tensor(length)
        kernel = ScaleKernel(inner).double()
        kernel.outputscale = torch.tensor(variance)
        known[name] = {"kernel": kernel, "regularization": level}
        bound = _norm(problem, kernel, level)
        gains = greedy_information_gain(kernel, problem.arms, max(_SHOWN), level)
        yield {"prior": name, "lengthscale": length, "variance": variance, "regularization": level, "norm": bound}
        for seed in _JUDGING[:2]:
            tuned: dict[str, Player] = {"SparQ": partial(_made, "sparq-gp-ucb", **known[name])}
            tuned["SparQ, theorem"] = partial(_bounded, norm=bound, gains=gains, level=level, **known[name])
            tuned["W-SparQ w=2"] = partial(_made, "w-sparq-gp-ucb", window=2.0, growth=1.0 / 3.0, **known[name])
            tuned["TV eps=0.1"] = partial(_made, "tv-gp-ucb", forgetting=0.1, **known[name])
            tuned["GP-UCB"] = partial(_made, "gp-ucb", **known[name])
            for player, made in tuned.items():
                yield {"prior": name, "seed": seed, "player": player} | _averages(made, seed)
    learned = {"prior": LearnedPrior(regularization=problem.regularization)}
    for seed in _JUDGING[:2]:
        rows: dict[str, Player] = {"SparQ": partial(_made, "sparq-gp-ucb", **learned)}
        rows["GP-UCB"] = partial(_made, "gp-ucb", **learned)
        for player, made in rows.items():
            yield {"prior": "learned in play", "seed": seed, "player": player} | _averages(made, seed)
        for player in ("best fixed", "random"):
            yield {"prior": "none", "seed": seed, "player": player} | _averages(_references()[player], seed)


def _bounded(problem: MovingPeak, seed: int, *, norm: float, gains: Any, level: float, **words: Any) -> Any:
    """Return SparQ-GP-UCB with its theorem's width, and what its proof needs for a bound."""
    bandit = _made("sparq-gp-ucb", problem, seed, norm_bound=norm, failure_probability=0.05, beta=None, **words)
    bandit.proof = lambda t: (
        2.0 * float(bandit.beta) * math.sqrt(2.0 * (1.0 + (level * math.log(t)) ** 2) * float(gains[t - 1]) / t)
    )
    return bandit


def _averages(player: Player, seed: int) -> dict[str, Any]:
    problem, shown = MovingPeak(seed=seed), dict[str, Any]()
    bandit, regrets = player(problem, seed), list[float]()
    for t in range(max(_SHOWN)):
        x = bandit.ask()
        regrets.append(problem.regret(x, t).item())
        if t + 1 in _SHOWN and (bound := getattr(bandit, "proof", None)):
            shown |= {f"proof {t + 1}": round(bound(t + 1), 3)}
        bandit.tell(x, problem.pull(x, t) - problem.center)
    return shown | {f"{t}": round(float(np.mean(regrets[:t])), 4) for t in _SHOWN}


def _likeliest(problem: MovingPeak, number: int, when: Callable[[int], int]) -> tuple[float, float, float]:
    """Return ℓ, variance and λ of the largest marginal likelihood of rewards of random arms."""
    rows = torch.randint(len(problem.arms), (number,), generator=torch.Generator().manual_seed(0))
    X, noise = problem.arms[rows].numpy(), np.random.default_rng(0).normal(0.0, 0.1, number)
    Y = np.array([float(problem.mean(problem.arms[rows[t], None], when(t))) for t in range(number)])
    Y, squares = Y - problem.center + noise, (X - X.T) ** 2

    def misfit(logs: np.ndarray) -> float:
        length, variance, level = np.exp(logs)
        return -_evidence(variance * np.exp(-squares / (2 * length**2)) + level * np.eye(number), Y)

    found = minimize(misfit, np.log([3.0, 0.5, 0.05]), method="Nelder-Mead", options={"xatol": 1e-3, "maxfev": 150})
    length, variance, level = (float(f"{each:.4g}") for each in np.exp(found.x))
    return length, variance, level


def _norm(problem: MovingPeak, kernel: ScaleKernel, level: float) -> float:
    with torch.no_grad():
        K = kernel(problem.arms, problem.arms).to_dense().numpy()
    values = np.stack([problem.means(t).numpy() - problem.center for t in range(0, 63, 3)])
    weights = np.linalg.solve(K + level * np.eye(len(K)), values.T)
    return float(f"{np.sqrt(((K @ weights) * weights).sum(0)).max():.3g}")


if __name__ == "__main__":
    main()
