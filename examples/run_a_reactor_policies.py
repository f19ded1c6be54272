"""Ways to choose the set-points that ``run_a_reactor.py`` compares; their settings were chosen on the seeds 0 to 2."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from gpytorch.kernels import Kernel, MaternKernel, ScaleKernel
from run_a_reactor_plant import DELAYS, LIMIT, SET_POINTS
from torch import Tensor

from torch_kbandits import AtMost, ContextualActions, Outcome, Prior, algorithms
from torch_kbandits.memory import LinearGrowth, Memory, Stationary, UncertaintyInjection
from torch_kbandits.outcomes.limits import Mode

#: Multipliers of σ: of the yield, and of the temperature where it is to be surely, or possibly, within the limit.
BETA, SURELY, POSSIBLY = 2.0, 3.0, 2.0

#: Over which differences of water (°C), feed (kg/h) and jacket (°C) batches are nearly alike: what an engineer guesses.
LENGTHSCALES = (20.0, 30.0, 20.0)

#: How far temperatures, in °C, and yields, in kg, are from what is expected before any batch: standard deviations.
DEVIATIONS = {"temperature": 10.0, "yield": 10.0}

#: λ, the variance of the noise: of temperatures in °C², of yields in kg².
NOISE = {"temperature": 1.0, "yield": 4.0}

#: The variance that the noise of an observation gains with each batch, in the same units.
GROWTH = {"temperature": 0.2, "yield": 0.2}

#: What a yield is before anything is known, in kg.
USUAL_YIELD = 15.0

#: What the operator knows to be safe at any time, in all weathers.
OPERATORS = SET_POINTS[(SET_POINTS <= 40.0).all(-1)]

#: What the operator plays.
FIXED = torch.tensor([[40.0, 40.0]], dtype=torch.float64)


class Policy(Protocol):
    """Chooses set-points batch by batch; learns the temperature of a batch at once, its yield later."""

    def set_point(self, batch: int, water: float) -> Tensor:
        """Return feed and jacket temperature, (1, 2)."""
        ...

    def warmed(self, temperature: float) -> None:
        """Learn the peak temperature of the batch that was just run, in °C."""
        ...

    def yielded(self, batches: Sequence[int], yields: Sequence[float]) -> None:
        """Learn the yields of earlier batches, in kg."""
        ...

    def change_catalyst(self) -> None:
        """Learn that the next batch has a new catalyst."""
        ...


class Learning:
    """GP-UCB on water and set-points, with a memory, and with a limit on the temperature or without.

    Args:
        seed: of the bandit.
        limit: on the temperature; None for none.
        memory: how yields grow old.
    """

    def __init__(self, seed: int, limit: AtMost | None, memory: Memory) -> None:
        self.bandit = algorithms.GPUCB(
            candidates=ContextualActions(SET_POINTS, context_dim=1),
            prior=Prior(kernel("yield"), NOISE["yield"], mean=USUAL_YIELD),
            constraints=[] if limit is None else [limit],
            memory=memory,
            beta=BETA,
            expire_after=DELAYS[1] + 5,
            seed=seed,
        )
        self._ids: dict[int, int] = {}

    def set_point(self, batch: int, water: float) -> Tensor:
        """Ask, in the context of the water; the number of the play is kept until its yield is known."""
        context = torch.tensor([water], dtype=torch.float64)
        x, (self._latest,) = self.bandit.ask(context=context, time=batch, return_ids=True)
        self._ids[batch] = self._latest
        return x

    def warmed(self, temperature: float) -> None:
        """Tell the temperature; the play stays pending for its yield."""
        if self.bandit.outcomes:
            self.bandit.tell(ids=self._latest, outcomes={"temperature": temperature})

    def yielded(self, batches: Sequence[int], yields: Sequence[float]) -> None:
        """Tell yields by the ids of their plays: each counts as one of the time at which its batch was run."""
        known = {
            self._ids.pop(batch): value for batch, value in zip(batches, yields, strict=True) if batch in self._ids
        }
        if known:
            self.bandit.tell(ids=[*known], y=[*known.values()])

    def bounds(self, water: float) -> Tensor:
        """Return for each set-point (A,) the temperature, in °C, that it surely stays below in a context."""
        points = torch.cat([torch.full((len(SET_POINTS), 1), water, dtype=torch.float64), SET_POINTS], dim=-1)
        with torch.no_grad():
            posterior = self.bandit.outcome_model("temperature").posterior(points.unsqueeze(-2))  # marginals, (A, 1, 1)
        return posterior.mean.flatten() + SURELY * posterior.variance.flatten().sqrt()

    def change_catalyst(self) -> None:
        """Start anew: samples of the old catalyst that are still in the laboratory say nothing about the new one."""
        self.bandit.forget()
        self._ids.clear()
        self.bandit.restart()


class Operator:
    """What was always done."""

    def set_point(self, batch: int, water: float) -> Tensor:
        """Return the same as ever."""
        return FIXED

    def warmed(self, temperature: float) -> None:
        """Do nothing."""

    def yielded(self, batches: Sequence[int], yields: Sequence[float]) -> None:
        """Do nothing."""

    def change_catalyst(self) -> None:
        """Do nothing."""


class ByLot(Operator):
    """Any of the set-points that the operator knows to be safe."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def set_point(self, batch: int, water: float) -> Tensor:
        """Draw."""
        row = int(torch.randint(len(OPERATORS), (), generator=self._generator))
        return OPERATORS[row, None]


def kernel(name: str) -> Kernel:
    """Return the prior covariance of temperatures, in °C², or of yields, in kg²."""
    base = MaternKernel(nu=2.5, ard_num_dims=3).double()
    base.lengthscale = torch.tensor([LENGTHSCALES], dtype=torch.float64)
    variance = torch.tensor(DEVIATIONS[name] ** 2, dtype=torch.float64)
    return ScaleKernel(base).double().initialize(outputscale=variance)


def rule_of_thumb(X: Tensor) -> Tensor:
    """Return what an engineer expects of the peak temperatures, (n,), in °C, of water, feed and jacket, (n, 3)."""
    _, feed, jacket = X.unbind(-1)
    return jacket + feed / 3.0


def fading(name: str) -> Memory:
    """Return a memory in which what is old counts less and less."""
    return UncertaintyInjection(LinearGrowth(GROWTH[name]))


def limit(mode: Mode, memory: Memory) -> AtMost:
    """Return the limit on the temperature, which is "safe", surely kept, or "optimistic", possibly kept."""
    prior = Prior(kernel("temperature"), NOISE["temperature"], mean=rule_of_thumb)
    heat = Outcome("temperature", prior, memory)
    if mode == "safe":
        return AtMost(heat, LIMIT, mode, beta=SURELY, safe_seed=OPERATORS)
    return AtMost(heat, LIMIT, mode, beta=POSSIBLY)


SAFE, STATIC = "safe limit", "safe limit, forgets nothing"

POLICIES: dict[str, Callable[[int], Policy]] = {
    SAFE: lambda seed: Learning(seed, limit("safe", fading("temperature")), fading("yield")),
    STATIC: lambda seed: Learning(seed, limit("safe", Stationary()), Stationary()),
    "optimistic limit": lambda seed: Learning(seed, limit("optimistic", fading("temperature")), fading("yield")),
    "no limit": lambda seed: Learning(seed, None, fading("yield")),
    "operator's set-point": lambda seed: Operator(),
    "by lot, of what is known to be safe": ByLot,
}


def settings() -> dict[str, Any]:
    """Return what was chosen, for the record."""
    return {
        "beta": BETA,
        "surely": SURELY,
        "possibly": POSSIBLY,
        "lengthscales": LENGTHSCALES,
        "deviations": DEVIATIONS,
        "regularization": NOISE,
        "growth": GROWTH,
        "known_safe": [OPERATORS.amin(0).tolist(), OPERATORS.amax(0).tolist()],
    }
