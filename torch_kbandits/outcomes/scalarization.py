"""Several objectives as one: which outcomes are sought large or small, and how they are weighed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.random import generator_for

#: Whether much or little of an objective is sought, and how weighted objectives become one number.
Direction = Literal["maximize", "minimize"]
Kind = Literal["chebyshev", "linear"]

REWARD = "reward"  # what the reward is called among the objectives
_AUGMENTATION = 0.05  # of the sum in "chebyshev", so that what is dominated in part is worse
RANDOM = "random"  # what weights are called that are drawn for each choice


@dataclass(frozen=True, eq=False)
class Scalarization:
    """Several objectives, weighed against each other: ``Scalarization({"reward": "maximize", "cost": "minimize"})``.

    A choice maximises the scalarised vector of the upper confidence bounds of all objectives, or of a Thompson draw of
    each. One to be minimised enters with the other sign. Each is divided by its prior deviation, the largest at a point
    played: weights compare deviations, not units, and a constant added to an objective changes no choice.

    "linear" is Σ w_j v_j, which finds points on the convex hull of the Pareto front alone. "chebyshev" is
    min_j w_j (v_j − z_j) + 0.05 Σ_j w_j (v_j − z_j), which finds all of the front. The reference z is the worst of each
    objective on the front of the points played, by posterior means, and a tenth of its range below.

    With "random" weights each choice has weights of its own, uniform on the simplex, so that a run covers the front;
    they follow from the seed, the round, and how many points are pending. Objectives of weight 0 take no part. The
    width is read from the posterior of each objective, so a theorem's constants R and B are taken to hold for all.

    Source: Paria, Kandasamy and Póczos, "A flexible framework for multi-objective Bayesian optimization using random
    scalarizations", UAI 2019; the augmentation: Knowles, "ParEGO", 2006. Differs: the paper takes any reference.

    Args:
        objectives: by name, "maximize" or "minimize"; "reward" is the reward, others are outcomes.
        weights: "random", or for each name a number at least 0, not all 0; they are divided by their sum.
        kind: "chebyshev" or "linear".

    Raises:
        InputError: if an argument does not fit.
    """

    objectives: Mapping[str, Direction]
    weights: Mapping[str, float] | Literal["random"] = RANDOM
    kind: Kind = "chebyshev"

    def __post_init__(self) -> None:
        if not isinstance(self.objectives, Mapping) or not self.objectives:
            raise InputError(
                'objectives must be a mapping such as {"reward": "maximize", "cost": "minimize"}, got '
                f"{checks.describe(self.objectives)}."
            )
        for name, direction in self.objectives.items():
            if not isinstance(name, str) or not name:
                raise InputError(f"the name of an objective must be a non-empty string, got {name!r}.")
            checks.one_of(f"the direction of {name!r}", direction, get_args(Direction))
        object.__setattr__(self, "objectives", dict(self.objectives))
        checks.one_of("kind", self.kind, get_args(Kind))
        if isinstance(self.weights, str) and self.weights == RANDOM:
            return
        if not isinstance(self.weights, Mapping) or set(self.weights) != set(self.objectives):
            raise InputError(
                f'weights must be "random" or have one number for each of {list(self.objectives)}, got '
                f"{checks.describe(self.weights)}."
            )
        given = {name: checks.non_negative(f"the weight of {name!r}", self.weights[name]) for name in self.objectives}
        if sum(given.values()) <= 0.0:
            raise InputError("weights are all 0: give an objective that matters a weight above 0.")
        object.__setattr__(self, "weights", given)

    @property
    def is_random(self) -> bool:
        """Whether weights are drawn for each choice."""
        return isinstance(self.weights, str)

    @property
    def names(self) -> tuple[str, ...]:
        """The k objectives of a weight above 0, in the order given."""
        return tuple(name for name in self.objectives if isinstance(self.weights, str) or self.weights[name] > 0.0)

    @property
    def outcomes(self) -> tuple[str, ...]:
        """Those that are not the reward, of whatever weight."""
        return tuple(name for name in self.objectives if name != REWARD)

    def sought(self, seed: int | None = None) -> Tensor:
        """Return weights (k,) that sum to 1, in double precision: as given; or drawn, equal ones without a seed."""
        if not isinstance(self.weights, str):
            weights = torch.tensor([self.weights[name] for name in self.names], dtype=torch.float64)
        elif seed is None:
            weights = torch.ones(len(self.names), dtype=torch.float64)
        else:
            generator = generator_for(seed, 0, "weights")
            uniforms = torch.rand(len(self.names), generator=generator, dtype=torch.float64, device="cpu")
            weights = -uniforms.neg().log1p()
        return weights / weights.sum()

    def value(self, values: Tensor, weights: Tensor, reference: Tensor) -> Tensor:
        """Return scalarised vectors (k, ...) of what is sought large, by weights and a reference z, (k,), as (...,)."""
        if self.kind == "linear":
            return (weights.to(values) * values.movedim(0, -1)).sum(-1)
        gain = weights.to(values) * (values.movedim(0, -1) - reference.to(values))
        return gain.amin(-1) + _AUGMENTATION * gain.sum(-1)
