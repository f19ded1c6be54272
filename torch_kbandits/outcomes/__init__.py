"""What is measured of a play beside its reward: limits that it must keep, several objectives as one, and costs."""

from torch_kbandits.outcomes.cost import BudgetPacing, CostCooling, CostObjective, Objective
from torch_kbandits.outcomes.fidelity import Fidelity
from torch_kbandits.outcomes.limits import AtLeast, AtMost, KnownSafe, Limit, Outcome, declared
from torch_kbandits.outcomes.scalarization import REWARD, Scalarization

__all__ = [
    "REWARD",
    "AtLeast",
    "AtMost",
    "BudgetPacing",
    "CostCooling",
    "CostObjective",
    "Fidelity",
    "KnownSafe",
    "Limit",
    "Objective",
    "Outcome",
    "Scalarization",
    "declared",
]
