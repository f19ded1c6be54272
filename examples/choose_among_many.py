"""Choose among 62,208 real settings, a thousand times, and see what that costs and what it loses.

Each choice trains a network with one of 62,208 settings of nine hyperparameters and is told one noisy validation loss,
replayed from HPOLib, where every setting was trained four times. BKB plays with the kernel it learns. BoTorch's exact
Gaussian process with the same upper confidence bound, fitted in every round, gets the same seconds. Beside them are
random settings, and the best of the first hundred random ones, kept from then on.

    python examples/choose_among_many.py           # under a minute; with --quick some seconds
"""

import time
import warnings
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import common
import numpy as np
import torch
from botorch.acquisition import UpperConfidenceBound
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf_discrete
from common import BLUE, DASHED, GREY, ORANGE, Record, runs_of, spread
from gpytorch.mlls import ExactMarginalLogLikelihood
from matplotlib.figure import Figure
from torch import Tensor
from tqdm import tqdm

from torch_kbandits import LearnedPrior, algorithms
from torch_kbandits.environments import FiniteArms, hpolib

#: β was chosen among 1, 2 and 3 on the data set "parkinsons_telemonitoring", which is not played here.
DATA_SET, BETA = "protein_structure", 3.0
RANDOM_STARTS, RANDOM_TRIALS = 10, 100
OURS, THEIRS = "BKB, torch_kbandits", "exact GP, BoTorch"

Choose = Callable[[Tensor, Tensor], Tensor]


def botorch_loop(problem: FiniteArms, seed: int) -> Choose:
    """Return the choice of BoTorch's usual loop after rewards Y (n,) of settings X (n, d): fit, then the best bound."""
    generator = torch.Generator().manual_seed(seed)

    def choose(X: Tensor, Y: Tensor) -> Tensor:
        if len(X) < RANDOM_STARTS:
            return problem.arms[torch.randint(len(problem.arms), (1,), generator=generator)]
        model = SingleTaskGP(X, Y.unsqueeze(-1))
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        bound = UpperConfidenceBound(model, beta=BETA**2)  # it multiplies the variance
        return optimize_acqf_discrete(bound, q=1, choices=problem.arms, max_batch_size=2_048)[0]

    return choose


def kernel_bandit(problem: FiniteArms, seed: int) -> Choose:
    """Return the choice of BKB, which is told what is new and keeps the rest."""
    bandit = algorithms.BKB(candidates=problem.arms, prior=LearnedPrior(), beta=BETA, seed=seed)

    def choose(X: Tensor, Y: Tensor) -> Tensor:
        if len(X):
            bandit.tell(X[-1:], Y[-1:])
        return bandit.ask()

    return choose


def play(choose: Choose, problem: FiniteArms, rounds: Iterable[int], most_seconds: float = float("inf")) -> Record:
    """Return the regret of each choice, and the processor time that had passed when it was made."""
    X, Y = problem.arms[:0], problem.arms.new_empty(0)
    seconds, spent = [], 0.0
    for round in rounds:
        started = time.process_time()
        x = choose(X, Y)
        spent += time.process_time() - started
        if spent > most_seconds:
            break
        X, Y = torch.cat([X, x]), torch.cat([Y, problem.pull(x, round)])
        seconds.append(spent)
    return {"regret": problem.regret(X).tolist(), "seconds": seconds}


def run(seed: int, choices: int) -> Record:
    """Let BKB make all choices, BoTorch as many as its seconds allow, and return both beside those who do not learn."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", RuntimeWarning)  # a search for hyperparameters of the exact GP may end early
    problem = hpolib(DATA_SET, seed=seed)
    for make in (kernel_bandit, botorch_loop):  # what is compiled once in the first rounds is not counted
        play(make(problem, seed), problem, tqdm(range(RANDOM_STARTS + 2), desc="warming up", leave=False))
    ours = play(kernel_bandit(problem, seed), problem, tqdm(range(choices), desc=OURS, unit=" choices"))
    allowed = ours["seconds"][-1]
    theirs = play(botorch_loop(problem, seed), problem, tqdm(range(choices), desc=THEIRS, unit=" choices"), allowed)
    generator = torch.Generator().manual_seed(seed)
    trials = problem.arms[torch.randint(len(problem.arms), (RANDOM_TRIALS,), generator=generator)]
    kept = trials[torch.cat([problem.pull(x, t) for t, x in enumerate(trials.split(1))]).argmax(), None]
    fixed = {"random": float(problem.regret(problem.arms).mean()), "kept": float(problem.regret(kept))}
    return {"seed": seed, "policies": {OURS: ours, THEIRS: theirs}, "without_learning": fixed}


def report(record: Record) -> list[Any]:
    """Say how many choices each made in the same seconds, what one cost, and what the latest lost."""
    runs, rows = record["runs"], []
    same = min(len(one["policies"][THEIRS]["regret"]) for one in runs)
    for name in (OURS, THEIRS):
        played = [one["policies"][name] for one in runs]
        numbers = [len(each["regret"]) for each in played]
        costs = [1000 * each["seconds"][-1] / len(each["seconds"]) for each in played]
        first = [np.mean(each["regret"][:same]) for each in played]
        last = [np.mean(each["regret"][-len(each["regret"]) // 4 :]) for each in played]
        rows.append([name, spread(numbers, ".0f"), spread(costs, ".0f"), spread(first), spread(last)])
    for name, title in (("kept", f"the best of {RANDOM_TRIALS} random ones, kept"), ("random", "random settings")):
        losses = spread([one["without_learning"][name] for one in runs])
        rows.append([title, "", "", "" if name == "kept" else losses, losses])
    columns = ["", "choices", "ms a choice", f"regret, first {same}", "its last quarter"]
    return [
        common.table(f"62,208 settings, the same processor time, mean ± sd of {runs_of(runs)}", columns, rows),
        "Regret of a choice: by how much its mean reward is below that of the best of all settings; 1 is the standard "
        "deviation of the mean rewards of all settings. The best fixed choice in hindsight has none.",
    ]


def draw(record: Record) -> Figure:
    """Return two panels of run 1: choices over seconds, and what choices lose, in the mean of ever larger groups."""
    figure = Figure(figsize=(10.0, 4.4), layout="constrained")
    speed, regret = figure.subplots(1, 2)
    one = record["runs"][0]
    made = {}
    for name, color, style in ((OURS, BLUE, "solid"), (THEIRS, ORANGE, DASHED)):
        played = one["policies"][name]
        made[name] = count = len(played["regret"])
        speed.plot(played["seconds"], np.arange(1, count + 1), color=color, linestyle=style, linewidth=2.4)
        end = played["seconds"][-1], count
        speed.annotate(f"{name}: {count:,}", end, (-4, 7), textcoords="offset points", ha="right", color=color)
        edges = np.unique(np.geomspace(1, count + 1, 1 + int(1.5 * np.log2(count))).round().astype(int))
        means = [np.mean(played["regret"][a - 1 : b - 1]) for a, b in pairwise(edges)]
        regret.stairs(means, edges, baseline=None, color=color, linestyle=style, linewidth=2.4, label=name)
    for name, label, style in (("random", "random settings", ":"), ("kept", "best of 100 random ones, kept", "-.")):
        regret.axhline(one["without_learning"][name], color=GREY, linestyle=style, linewidth=1.6, label=label)
    speed.set(xlabel="processor time of choosing (s)", ylabel="choices made", title="Choices in the same seconds")
    speed.set(xlim=(0, None), ylim=(0, 1.12 * made[OURS]))
    regret.set(xscale="log", ylim=(0, None), xlim=(1, made[OURS]), xlabel="number of the choice")
    regret.set(ylabel="regret (1: sd of all settings)", title="What a choice loses")
    common.ticks(regret.xaxis, [each for each in (1, 10, 100, 1_000, 10_000) if each <= made[OURS]])
    regret.legend(frameon=False, fontsize=9)
    common.tidy([speed, regret], "ab")
    figure.suptitle(f"62,208 real settings, noisy rewards: {made[OURS]:,} choices in the time of {made[THEIRS]}")
    return figure


#: The program; see ``--help``.
main = common.script(
    "choose_among_many",
    __doc__,
    run,
    report,
    draw,
    {"data_set": DATA_SET, "beta": BETA},
    processes=1,
    size=("choices", 1_000, 60, "choices that BKB makes", 1),
    seed=10,
    least=20,
)

if __name__ == "__main__":
    main()
