"""What it costs to keep a limit on an outcome: surely, hopefully or not at all, in contexts and where all drifts."""

import math
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from botorch.acquisition.logei import qLogExpectedImprovement
from botorch.acquisition.objective import GenericMCObjective
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.kernels import RBFKernel
from gpytorch.mlls import SumMarginalLogLikelihood
from torch import Tensor
from tqdm import tqdm

from benchmarks.report import Report, Table, mean_and_error
from torch_kbandits import AtMost, Bandit, ConstantWidth, LearnedPrior, Outcome, Prior
from torch_kbandits.acquisition import UniformRule, UpperConfidenceRule
from torch_kbandits.candidates import Arms, Candidates, ContextualActions
from torch_kbandits.confidence import BayesianGPUCBWidth
from torch_kbandits.memory import TemporalPrior

#: Noise of rewards and of the outcome, standard deviations; the scale of the outcome is 1.
NOISE, HEAT_NOISE = 0.2, 0.1
#: The outcome's prior mean rises from the first of the first column to the second; what is above the limit is too hot.
COLD, HOT, LIMIT = -5.0, 2.0, 0.0
#: δ of the width that keeps the limit surely: no play of a run breaks it with probability 1 − δ.
FAILURE = 0.05
#: The share of the functions that is replaced from round to round where all drifts.
DRIFT = 0.002


@dataclass(frozen=True)
class Sizes:
    """What is run: rounds of each run, and the seeds, which are of problem, noise and bandit."""

    rounds: int = 500
    seeds: tuple[int, ...] = tuple(range(100, 120))
    side: int = 12
    small: int = 40
    small_seeds: tuple[int, ...] = (100, 101, 102, 103, 104)


QUICK = Sizes(rounds=12, seeds=(0,), side=4, small=6, small_seeds=(0,))


class InContexts:
    """Actions in a context that each round brings; rewards and outcome are draws of Gaussian processes.

    Args:
        sizes: of the run.
        seed: of everything.
    """

    title = "contexts"

    def __init__(self, sizes: Sizes, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.arms = _grid(sizes.side)
        self.contexts = torch.tensor(rng.random((sizes.rounds, 1)))
        self.functions = _draw(rng, 3), _draw(rng, 3)
        self.noise = torch.tensor(rng.standard_normal((sizes.rounds, 2)))
        self.candidates: Candidates = ContextualActions(self.arms, context_dim=1)
        self.words: dict[str, Any] = {}

    def means(self, turn: int) -> tuple[Tensor, Tensor]:
        """Return the mean rewards and outcomes of all actions in a round, both (A,)."""
        joint = torch.cat([self.contexts[turn].expand(len(self.arms), -1), self.arms], dim=-1)
        return self.functions[0](joint), rising(self.arms[:, 0]) + self.functions[1](joint)

    def asked(self, turn: int) -> dict[str, Any]:
        """Return what a round brings."""
        return {"context": self.contexts[turn]}


class InTime:
    """Arms of which reward and outcome drift: of both Gaussian processes a share is drawn anew in each round.

    Args:
        sizes: of the run.
        seed: of everything.
    """

    title = "drift"

    def __init__(self, sizes: Sizes, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.arms = _grid(sizes.side)
        root = np.linalg.cholesky(_gram(self.arms.numpy()) + 1e-8 * np.eye(len(self.arms)))
        values, self._means = root @ rng.standard_normal((len(self.arms), 2)), []
        for _ in range(sizes.rounds):
            self._means.append(torch.tensor(values.T.copy()))
            values = math.sqrt(1.0 - DRIFT) * values
            values += math.sqrt(DRIFT) * root @ rng.standard_normal((len(self.arms), 2))
        self.noise = torch.tensor(rng.standard_normal((sizes.rounds, 2)))
        self.candidates: Candidates = Arms(self.arms)
        self.words: dict[str, Any] = {"memory": TemporalPrior(DRIFT)}

    def means(self, turn: int) -> tuple[Tensor, Tensor]:
        """Return the mean rewards and outcomes of all arms in a round, both (A,)."""
        reward, heat = self._means[turn]
        return reward, rising(self.arms[:, 0]) + heat

    def asked(self, turn: int) -> dict[str, Any]:
        """Return what a round brings: nothing."""
        return {}


Process = InContexts | InTime


def rising(x: Tensor) -> Tensor:
    """Return what is expected of the outcome at the first column of actions, (n,)."""
    return COLD + (HOT - COLD) * x


@dataclass(frozen=True)
class Course:
    """One run, round by round: what is lost to the best allowed action, and by how much the limit is broken."""

    regret: list[float]
    excess: list[float]


def bandit(process: Process, policy: str, seed: int) -> Bandit:
    """Return the bandit of a policy."""
    kernel, number = _rbf(), len(process.arms)
    heat = Outcome("heat", Prior(kernel, HEAT_NOISE**2, lambda X: rising(X[:, -2])))
    surely, cold = BayesianGPUCBWidth(number, FAILURE), process.arms[process.arms[:, 0] == 0.0]
    limits: dict[str, list[AtMost]] = {
        "no limit": [],
        "uniform": [],
        "optimistic, β = 2": [AtMost(heat, LIMIT, "optimistic", beta=2.0)],
        f"safe, δ = {FAILURE:g}": [AtMost(heat, LIMIT, beta=surely, safe_seed=cold)],
        "safe, learned, β = 3": [AtMost(Outcome("heat", LearnedPrior()), LIMIT, safe_seed=cold)],
    }
    rule = UniformRule() if policy == "uniform" else UpperConfidenceRule()
    return Bandit(
        candidates=process.candidates, kernel=kernel, regularization=NOISE**2, width=ConstantWidth(2.0),
        acquisition=rule, constraints=limits[policy], seed=seed, **process.words,
    )  # fmt: skip


#: The last one, whose fits take most of the time, plays the first seeds alone.
POLICIES = (
    "no limit",
    "uniform",
    "optimistic, β = 2",
    f"safe, δ = {FAILURE:g}",
    "safe, learned, β = 3",
)


def played(process: Process, policy: str, sizes: Sizes, seed: int) -> Course:
    """Play a policy."""
    player = bandit(process, policy, seed)

    def choose(turn: int) -> int:
        x = player.ask(**process.asked(turn))
        return int((process.arms == x).all(-1).nonzero()[0])

    def tell(turn: int, row: int, reward: float, heat: float) -> None:
        outcomes = {"heat": heat} if player.outcomes else None
        player.tell(process.arms[row, None], reward, outcomes=outcomes, **process.asked(turn))

    return course(process, choose, tell, sizes.rounds)


def course(
    process: Process, choose: Callable[[int], int], tell: Callable[[int, int, float, float], None], rounds: int
) -> Course:
    """Play so many rounds."""
    regret, excess = [], []
    for turn in range(rounds):
        rewards, heats = process.means(turn)
        row = choose(turn)
        noise = process.noise[turn]
        regret.append(float(rewards[heats <= LIMIT].max() - rewards[row]))
        excess.append(max(float(heats[row] - LIMIT), 0.0))
        tell(turn, row, float(rewards[row] + NOISE * noise[0]), float(heats[row] + HEAT_NOISE * noise[1]))
    return Course(regret, excess)


def fixed(process: Process, rounds: int) -> Course:
    """Return the course of the best single action that never breaks the limit, known beforehand."""
    means = [process.means(turn) for turn in range(rounds)]
    rewards, heats = (torch.stack([mean[number] for mean in means]) for number in (0, 1))
    safe = (heats <= LIMIT).all(0)
    best = int(rewards.mean(0).masked_fill(~safe, -torch.inf).argmax())
    regret = [float(reward[heat <= LIMIT].max() - reward[best]) for reward, heat in means]
    return Course(regret, [0.0] * rounds)


def botorch(process: Process, sizes: Sizes, seed: int) -> Course:
    """Play BoTorch's constrained qLogEI by fitted ``SingleTaskGP``s over all actions of the round, after five plays."""
    X, Y = [], []
    rng = np.random.default_rng(seed)
    cold = (process.arms[:, 0] == 0.0).nonzero().squeeze(-1)
    objective = GenericMCObjective(lambda samples, X=None: samples[..., 0])

    def joint(turn: int) -> Tensor:
        context = process.asked(turn).get("context", process.arms[0, :0])
        return torch.cat([context.expand(len(process.arms), -1), process.arms], dim=-1)

    def choose(turn: int) -> int:
        if turn < 5:
            return int(rng.choice(cold))
        points, values = torch.cat(X), torch.tensor(Y, dtype=torch.float64)
        model = ModelListGP(*(SingleTaskGP(points, column.unsqueeze(-1)) for column in values.unbind(-1)))
        fit_gpytorch_mll(SumMarginalLogLikelihood(model.likelihood, model))
        feasible = values[:, 1] <= LIMIT
        best = values[feasible, 0].max() if bool(feasible.any()) else values[:, 0].min()
        function = qLogExpectedImprovement(
            model,
            best_f=best,
            sampler=SobolQMCNormalSampler(torch.Size([128]), seed=turn),
            objective=objective,
            constraints=[lambda samples: samples[..., 1] - LIMIT],
        )
        with torch.no_grad():
            return int(function(joint(turn).unsqueeze(-2)).argmax())

    def tell(turn: int, row: int, reward: float, heat: float) -> None:
        X.append(joint(turn)[row, None])
        Y.append((reward, heat))

    return course(process, choose, tell, sizes.small)


def run(quick: bool = False) -> Report:
    """Play both processes by all policies, and for a few rounds beside BoTorch."""
    sizes = QUICK if quick else Sizes()
    torch.manual_seed(0)
    measurements: list[dict[str, Any]] = []
    for kind in (InContexts, InTime):
        for seed in tqdm(sizes.seeds, desc=f"limits, {kind.title}", unit="seed"):
            process = kind(sizes, seed)
            measurements.append(_measured(kind.title, "best single action", seed, fixed(process, sizes.rounds)))
            for policy in POLICIES if seed in sizes.small_seeds else POLICIES[:-1]:
                measurements.append(_measured(kind.title, policy, seed, played(process, policy, sizes, seed)))
    small = []
    for kind in (InContexts, InTime):
        for seed in tqdm(sizes.small_seeds, desc=f"limits, {kind.title}, BoTorch", unit="seed"):
            small.append(_measured(kind.title, "qLogEI", seed, botorch(kind(sizes, seed), sizes, seed)))
    tables = [_table(kind.title, measurements, sizes) for kind in (InContexts, InTime)]
    return Report("limits", asdict(sizes), [*tables, _beside(measurements, small, sizes)], measurements + small)


def _measured(problem: str, policy: str, seed: int, run: Course) -> dict[str, Any]:
    return {"problem": problem, "policy": policy, "seed": seed, "regret": run.regret, "excess": run.excess}


def _table(problem: str, measurements: list[dict[str, Any]], sizes: Sizes) -> Table:
    rows = []
    for policy in ("best single action", *POLICIES):
        runs = [each for each in measurements if (each["problem"], each["policy"]) == (problem, policy)]
        broken = [sum(excess > 0.0 for excess in each["excess"]) for each in runs]
        sums = [np.cumsum(each["excess"]) for each in runs]
        quarters = [statistics.fmean(total[at * sizes.rounds // 4 - 1] for total in sums) for at in (1, 2, 4)]
        regrets = [statistics.fmean(each["regret"]) for each in runs]
        thirds = [statistics.fmean(each["regret"][2 * sizes.rounds // 3 :]) for each in runs]
        rows.append(
            [policy, f"{sum(number > 0 for number in broken)} of {len(runs)}", f"{statistics.fmean(broken):.1f}",
             " ".join(f"{each:.2f}" for each in quarters), mean_and_error(regrets, 3), mean_and_error(thirds, 3)]
        )  # fmt: skip
    columns = ["policy", "runs that break the limit", "plays beyond it", "sum of the excess at ¼, ½, all",
               "regret a round", "in the last third"]  # fmt: skip
    return Table(f"A limit in {problem}: {sizes.rounds} rounds, {len(sizes.seeds)} seeds", columns, rows)


def _beside(measurements: list[dict[str, Any]], small: list[dict[str, Any]], sizes: Sizes) -> Table:
    rows = []
    for problem in (InContexts.title, InTime.title):
        ours = [each for each in measurements if each["problem"] == problem and each["seed"] in sizes.small_seeds]
        for policy in (*POLICIES, "qLogEI"):
            runs = [each for each in [*ours, *small] if (each["problem"], each["policy"]) == (problem, policy)]
            broken = [sum(excess > 0.0 for excess in each["excess"][: sizes.small]) for each in runs]
            regrets = [statistics.fmean(each["regret"][: sizes.small]) for each in runs]
            excess = [sum(each["excess"][: sizes.small]) for each in runs]
            rows.append([problem, policy, f"{statistics.fmean(broken):.1f}", mean_and_error(excess, 2),
                         mean_and_error(regrets, 3)])  # fmt: skip
    columns = ["problem", "policy", "plays beyond the limit", "sum of the excess", "regret a round"]
    title = f"The first {sizes.small} rounds beside BoTorch's constrained qLogEI, {len(sizes.small_seeds)} seeds"
    return Table(title, columns, rows)


def _grid(side: int) -> Tensor:
    line = torch.linspace(0.0, 1.0, side, dtype=torch.float64)
    return torch.cartesian_prod(line, line)


def _gram(X: np.ndarray, lengthscale: float = 0.3) -> np.ndarray:
    squares = ((X[:, None] - X[None]) ** 2).sum(-1)
    return np.exp(-squares / (2.0 * lengthscale**2))


def _draw(rng: np.random.Generator, dimension: int, lengthscale: float = 0.3) -> Callable[[Tensor], Tensor]:
    """Return a function that is nearly a draw of a Gaussian process: 2,000 random waves."""
    frequencies = torch.tensor(rng.standard_normal((dimension, 2_000)) / lengthscale)
    phases, weights = torch.tensor(rng.random(2_000) * 2.0 * np.pi), torch.tensor(rng.standard_normal(2_000))
    return lambda X: (X @ frequencies + phases).cos() @ weights * math.sqrt(2.0 / 2_000)


def _rbf(lengthscale: float = 0.3) -> RBFKernel:
    kernel = RBFKernel().double()
    kernel.lengthscale = torch.tensor(lengthscale, dtype=torch.float64)
    return kernel
