"""Ada-BKB on boxes beside BKB that searches by gradients, random play, its best of 100, and the code of its authors.

AUTHORS_ADABKB names a checkout of github.com/Akatsuki96/adabkb, which needs scikit-learn; without it ours play alone.
All have the same prior, noise variance, β = 2 and noise. Theirs has F = 1, as their code fixes it, V_h by half the
diagonal of a cell, and as many parts of a cell.

Claimed before the seeds were played, after trials on seed 0: in two dimensions Ada-BKB's mean regret over the last
quarter is within twice that of BKB, at less time a round; on draws in six it is more than BKB's, less than random's.
"""

import contextlib
import io
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, cast

import numpy as np
import torch
from botorch.test_functions import Branin, Hartmann
from botorch.utils.sampling import draw_sobol_samples
from scipy.optimize import minimize
from torch import Tensor
from tqdm import tqdm

from benchmarks.arm_bandits import kernel
from benchmarks.authors_code import Checkout
from benchmarks.runner import Found, Measurement, Parts, benchmark, chosen, tabulated
from torch_kbandits import algorithms
from torch_kbandits.numerics.random import generator_for

REGULARIZATION, BETA = 0.01, 2.0
CHECKOUT = Checkout("AUTHORS_ADABKB", "github.com/Akatsuki96/adabkb", "adabkb/optimizer/adabkb.py")

#: Functions on the unit cube, their dimension and the length scale of all players' kernel.
PROBLEMS = {
    "draw, d = 2": (2, 0.2),
    "Branin": (2, 0.3),
    "draw, d = 6": (6, 0.5),
    "Hartmann": (6, 0.5),
    "draw, d = 10": (10, 0.8),
}
PLAYERS: dict[str, dict[str, Any]] = {
    "ada-bkb": {},
    "ada-bkb, F = 1": {"variation": 1.0},
    "bkb": {},
    "best of 100": {},
    "random": {},
}
#: Rounds of the longer runs, and the seconds of the processor after which they end.
LONGER = (("draw, d = 2", 10_000, 600.0), ("draw, d = 6", 10_000, 60.0), ("draw, d = 10", 10_000, 60.0))
#: Waves of a draw; points among which the best of a function is sought first, and of which searches start.
_WAVES, _POINTS, _STARTS = 2_000, 2**14, 8


@benchmark(problems=("draw, d = 2", "Hartmann"), rounds=6, seeds=(0,), longer=(("draw, d = 2", 8, 9.0),))
def ada_bkb(
    parts: Parts,
    problems: tuple[str, ...] = tuple(PROBLEMS),
    rounds: int = 150,
    seeds: tuple[int, ...] = (9100, 9101, 9102, 9103),
    players: tuple[str, ...] = tuple(PLAYERS),
    longer: tuple[tuple[str, int, float], ...] = LONGER,
) -> Found:
    """Play all on every problem, a seed with the same noise; some go on for longer, on the first seed."""
    missing = CHECKOUT.missing()
    names = players if missing else (*players, "theirs")
    plans = [(problem, seed, player, rounds, 600.0) for seed, problem, player in product(seeds, problems, names)]
    plans += [(problem, seeds[0], player, *sizes) for problem, *sizes in longer for player in names]
    found = list[Measurement]()
    for problem, seed, player, *sizes in tqdm(plans, "ada_bkb"):
        if player == "theirs" and PROBLEMS[problem][0] > 2 and sizes[1] > 60.0:  # it takes more and more time
            continue
        key = {"problem": problem, "seed": seed, "player": player, "asked": sizes[0]}
        found.append(parts.measured(key, partial(_play, problem, seed, player, *sizes)))
    said = f"; adabkb was {missing}" if missing else ""
    entries, tables = ["all rounds", "last quarter", "best point", "ms a round"], []
    for problem, number, most in [*((problem, rounds, 600.0) for problem in problems), *longer]:
        limit, more = (f", or {most:g} s", ["rounds"]) if most < 600.0 else ("", [])
        here = chosen(found, problem=problem, asked=number)
        title = f"{problem}: mean regret of a round in {number:,}{limit}{said}"
        tables.append(tabulated(here, title, "player", None, (*entries, *more)))
    return tables, found


def _play(problem: str, seed: int, player: str, rounds: int, most: float) -> Measurement:
    """Return the mean regret, that of the last quarter, the least, and processor time; what theirs prints is lost."""
    dimension, lengthscale = PROBLEMS[problem]
    function, best = _function(problem, dimension, lengthscale, seed)
    noise = torch.randn(rounds, generator=generator_for(seed, 0, "noise"), dtype=torch.float64)
    played, seconds = list[Tensor](), 0.0
    with contextlib.redirect_stdout(io.StringIO()):
        ask, tell = (
            _theirs(dimension, lengthscale) if player == "theirs" else _ours(player, dimension, lengthscale, seed)
        )
        for number in range(rounds):
            if seconds > most:
                break
            start = time.process_time()
            x = ask(number)
            seconds += time.process_time() - start
            played.append(function(x))
            y = played[-1] + REGULARIZATION**0.5 * noise[number]
            start = time.process_time()
            tell(x, y)
            seconds += time.process_time() - start
    regret = best - torch.cat(played)
    late = regret[-max(1, len(regret) // 4) :]
    numbers = {"all rounds": regret.mean(), "last quarter": late.mean(), "best point": regret.min()}
    numbers |= {"ms a round": 1e3 * seconds / len(regret), "rounds": len(regret)}
    return {name: float(each) for name, each in numbers.items()}


def _function(problem: str, dimension: int, lengthscale: float, seed: int) -> tuple[Callable[[Tensor], Tensor], float]:
    """Return a function of points (n, d) to (n,) and its maximum: a draw, or with that 2 above the mean."""
    bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64).expand(2, dimension)
    points = draw_sobol_samples(bounds, n=_POINTS, q=1, seed=seed).squeeze(-2)
    if not problem.startswith("draw"):
        known = (Branin if problem == "Branin" else Hartmann)(negate=True).double()
        lower, upper = cast(Tensor, known.bounds)
        least = float(known(lower + points * (upper - lower)).mean())
        unit = (known.optimal_value - least) / 2.0
        return lambda X: (known(lower + X * (upper - lower)) - least) / unit, 2.0
    generator = generator_for(seed, 0, "draw")
    waves = torch.randn(dimension, _WAVES, generator=generator, dtype=torch.float64) / lengthscale
    phases = 2.0 * torch.pi * torch.rand(_WAVES, generator=generator, dtype=torch.float64)
    weights = torch.randn(_WAVES, generator=generator, dtype=torch.float64) * (2.0 / _WAVES) ** 0.5

    def draw(X: Tensor) -> Tensor:
        return torch.cos(X @ waves + phases) @ weights

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        at = torch.from_numpy(x) @ waves + phases
        return -float(torch.cos(at) @ weights), (waves @ (weights * at.sin())).numpy()

    starts = points[draw(points).topk(_STARTS).indices].numpy()
    ends = [minimize(loss, x, jac=True, method="L-BFGS-B", bounds=[(0.0, 1.0)] * dimension) for x in starts]
    return draw, max(-float(end.fun) for end in ends)


def _ours(player: str, dimension: int, lengthscale: float, seed: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64).expand(2, dimension)
    if player in ("random", "best of 100"):
        generator, told = generator_for(seed, 0, "random play"), list[float]()
        points = torch.rand(_POINTS, dimension, generator=generator, dtype=torch.float64)
        tries = _POINTS if player == "random" else 100
        return lambda number: points[number if number < tries else int(np.argmax(told[:tries])), None], (
            lambda x, y: told.append(float(y))
        )
    words = {"kernel": kernel(lengthscale), "regularization": REGULARIZATION, "beta": BETA, "seed": seed}
    bandit = algorithms.build(player.partition(",")[0], bounds=bounds, **words, **PLAYERS[player])
    return lambda _: bandit.ask(), bandit.tell


def _theirs(dimension: int, lengthscale: float) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return how theirs asks and is told; it prints what it does. Its multiplier is of σ/√λ."""
    optimizer, kernels, options = CHECKOUT.modules("adabkb.optimizer", "adabkb.kernels", "adabkb.options")

    class Values(kernels.GaussianKernel):
        """Their kernel, which at one point they take to be a number: with NumPy 2 a matrix is none."""

        def __call__(self, X: np.ndarray, *others: Any, **words: Any) -> Any:
            values = super().__call__(X, *others, **words)
            return values.item() if X.ndim == 1 else values

    model = {"kernel": Values(lengthscale), "d": dimension, "lam": REGULARIZATION, "qbar": 3.0}
    model |= {"beta": BETA * REGULARIZATION**0.5}
    sizes = {"v_1": dimension**0.5 / 2.0, "rho": 3.0 ** (-1.0 / dimension), "N": 3, "h_max": 8 * dimension}
    player = optimizer.AdaBKB(np.array([[0.0, 1.0]] * dimension), options.OptimizerOptions(model, **sizes))
    leaf = [0]

    def ask(_: int) -> Tensor:
        node, leaf[0] = player.step()
        return torch.from_numpy(node.x.copy()).unsqueeze(0)

    return ask, lambda x, y: player.update([leaf[0]], x.numpy(), float(y))
