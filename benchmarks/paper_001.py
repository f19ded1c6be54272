"""The record of Zenati et al., AISTATS 2022, of finished runs: ``python -m benchmarks.paper_001 runs``.

The folder holds those of each spec paper-001-NAME.toml in paper-001-NAME. K-UCB that solves anew is played here.
"""

import argparse
import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from scipy.linalg import cho_factor, cho_solve
from torch import Tensor

from benchmarks.references import Array
from benchmarks.report import RECORDS
from benchmarks.runner import Record, Table, machine
from torch_kbandits import Bandit
from torch_kbandits.environments import chessboard, step_diagonal
from torch_kbandits.experiments import Record as Run
from torch_kbandits.experiments import Row, play, read_records, summarize
from torch_kbandits.experiments.summary import group

ALGORITHMS = ("EK-UCB, γ = λ/10", "EK-UCB, γ = λ", "CBKB", "CBBKB, C = 3", "CBBKB, C = 10", "CBBKB, C = 30")
ALGORITHMS += ("K-UCB", "SupKernelUCB", "Random", "Best fixed action")
PROBLEMS, LEVELS, ROUNDS = ("Bump", "Chessboard", "Step Diagonal"), (1, 10, 100), (250, 500, 1_000, 2_000, 4_000)
COMMAND = (
    "for name in mu time regularization thresholds lambda-1 lambda-10 lambda-100; do OMP_NUM_THREADS=1 kbandits run "
    "benchmarks/specs/paper-001-$name.toml --directory runs/paper-001-$name --workers 1; done; "
    "python -m benchmarks.paper_001 runs"
)


class SolvedAnew:
    """K-UCB that factorises its kernel matrix again in every round, which takes n³/3 operations."""

    def __init__(self, environment: Any, regularization: float, beta: float) -> None:
        self.environment, self.regularization, self.beta = environment, regularization, beta
        self.points, self.rewards = list[Array](), list[float]()

    def ask(self, context: Tensor) -> Tensor:
        """Return the action of the largest upper bound, (1, a)."""
        actions = self.environment.actions
        offered = self.environment.joint_points(actions, len(self.rewards)).numpy()
        mean, variance = np.zeros(len(offered)), self.gram(offered, offered).diagonal()
        if self.rewards:
            points = np.stack(self.points)
            cross, matrix = self.gram(points, offered), self.gram(points, points)
            matrix[np.diag_indices_from(matrix)] += self.regularization
            solved = cho_solve(cho_factor(matrix), cross)
            mean, variance = solved.T @ self.rewards, variance - np.einsum("na,na->a", cross, solved)
        best = int(np.argmax(mean + self.beta * np.sqrt(np.maximum(variance, 0.0))))
        self.points.append(offered[best])
        return actions[best, None]

    def tell(self, x: Tensor, y: Tensor, context: Tensor) -> None:
        """Learn a reward."""
        self.rewards += y.flatten().tolist()

    def gram(self, points: Array, others: Array) -> Array:
        """Return the kernel of the environment."""
        return self.environment.kernel(torch.from_numpy(points), torch.from_numpy(others)).to_dense().detach().numpy()


def figure_1(folder: Path) -> Table:
    """Return regret and time for each μ, with the width of the paper's code and with the theorem's."""
    rows = summarize(_runs(folder, "mu"))
    columns = ["algorithm", "regret, median [quartiles]", "mean ± error", "dictionary", "seconds"]
    cells = [[row.algorithm, str(row.regret), row.regret.mean_and_error, *_costs(row)] for row in rows]
    return Table(f"Figure 1: Bump at λ = 10, {rows[0].seeds} seeds", columns, cells)


def figures(folder: Path) -> list[Table]:
    """Return regret, dictionary and time of all figures but the first, a table for each problem."""
    names = ("thresholds", *(f"lambda-{level}" for level in LEVELS))
    rows = [row for name in names for row in summarize(_runs(folder, name))]
    found, tables = {(row.environment, row.algorithm): row for row in rows}, []
    columns = ["algorithm", *(f"{what}λ = {level}" for level in LEVELS for what in ("", "m at ", "s at ")), "seeds"]
    for problem in PROBLEMS:
        cells = []
        for algorithm in ALGORITHMS:
            own = [found[f"{problem}, λ = {level}", algorithm] for level in LEVELS]
            numbers = [(f"{row.regret}; {row.regret.mean_and_error}", *_costs(row)) for row in own]
            cells.append([algorithm, *(cell for part in numbers for cell in part), str(own[0].seeds)])
        tables.append(Table(problem, columns, cells))
    return tables


def rewards() -> Table:
    """Return the mean rewards that Figure 6 draws, at the actions there are."""
    rows, problems = [], {"Chessboard": chessboard(seed=0), "Step Diagonal": step_diagonal(seed=0)}
    actions = torch.as_tensor(problems["Chessboard"].actions).sort(0).values
    for problem, environment in problems.items():
        for context in torch.arange(0.05, 1.0, 0.1, dtype=actions.dtype):
            values = environment.mean(torch.cat([context.expand_as(actions), actions], -1)).tolist()
            rows.append([problem, f"{context:.2f}", *(f"{value:g}" for value in values)])
    columns = ["problem", "context", *(f"a = {action:.2f}" for action in actions.flatten().tolist())]
    return Table("Figure 6: mean rewards", columns, rows)


def growth(folder: Path, anew: int) -> Table:
    """Return processor seconds to some rounds, the least of the seeds, and the exponent over the last two doublings."""
    seconds: dict[str, dict[int, float]] = {}
    for (_, algorithm), runs in group(_runs(folder, "time")).items():
        least = np.min([run.cumulative_seconds for run in runs], axis=0)
        seconds[algorithm] = dict(zip(runs[0].recorded_rounds, least.tolist(), strict=True))
    environment = chessboard(seed=0)
    player = cast(Bandit, SolvedAnew(environment, 10.0, 0.0316))
    trace = play(player, environment, anew, record_every=250)
    seconds["K-UCB, solved anew in each round"] = dict(zip(trace.rounds, trace.seconds, strict=True))
    rows = []
    for algorithm, spent in seconds.items():
        known = [t for t in ROUNDS if t in spent]
        exponent = math.log(spent[known[-1]] / spent[known[-3]]) / math.log(known[-1] / known[-3])
        rows.append([algorithm, *(f"{spent[t]:.2f}" if t in spent else "–" for t in ROUNDS), f"{exponent:.1f}"])
    return Table("Seconds to round t: Chessboard at λ = 10", ["algorithm", *map(str, ROUNDS), "exponent"], rows)


def advised(folder: Path) -> Table:
    """Return the regret at the λ of the corollaries."""
    found = {(row.algorithm, row.environment): row for row in summarize(_runs(folder, "regularization"))}
    rows = []
    for algorithm in dict.fromkeys(algorithm for algorithm, _ in found):
        own = [found[algorithm, problem] for problem in PROBLEMS]
        cells = [(f"{row.regret}; {row.regret.mean_and_error}", _costs(row)[0]) for row in own]
        rows.append([algorithm, *(cell for part in cells for cell in part)])
    columns = ["algorithm", *(f"{what}{problem}" for problem in PROBLEMS for what in ("", "m on "))]
    return Table("Regret at λ of regularization_for", columns, rows)


def _runs(folder: Path, name: str) -> list[Run]:
    return read_records(folder / f"paper-001-{name}" / "records.jsonl")[0]


def _costs(row: Row) -> tuple[str, str]:
    """Return the dictionary, of those that have one, and the processor seconds of a run, medians."""
    size = row.dictionary_size.median
    return f"{size:.0f}" if 0 < size < row.rounds else "", f"{row.seconds.median:.2f}"


def main() -> None:
    """Write the record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper_001", description="Make the record of runs.")
    parser.add_argument("folder", type=Path, help="of the runs")
    parser.add_argument("--anew", type=int, default=1_000, help="rounds of K-UCB that solves anew")
    options = parser.parse_args()
    folder, tables = options.folder, [figure_1(options.folder), *figures(options.folder), rewards()]
    tables += [growth(folder, options.anew), advised(folder)]
    sizes = {"rounds": "2000, in Figure 1 1000", "seeds": "0 and 1, in Figure 1 0 to 2, of growth 0"}
    print(Record("paper-001", sizes, tables, []).publish(RECORDS, machine(), COMMAND))


if __name__ == "__main__":
    main()
