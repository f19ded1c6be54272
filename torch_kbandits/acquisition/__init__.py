"""How good a candidate is: BoTorch acquisition functions, and the rules by which a bandit chooses with them."""

from typing import TYPE_CHECKING

from torch_kbandits.acquisition.adaptive import AdaptiveDiscretizationRule
from torch_kbandits.acquisition.analytic import (
    ExpectedImprovementRule,
    ProbabilityOfImprovementRule,
    UpperConfidenceRule,
)
from torch_kbandits.acquisition.climbing import climb
from torch_kbandits.acquisition.domain import Cube, Domain
from torch_kbandits.acquisition.elimination import PhasedEliminationRule
from torch_kbandits.acquisition.pending import CombinedFunction
from torch_kbandits.acquisition.randomized import EpsilonGreedy, SoftmaxRule
from torch_kbandits.acquisition.rules import (
    AcquisitionRule,
    ArmPosterior,
    BoxPosterior,
    OptimisticRule,
    RandomRule,
    SobolRule,
    SomeOf,
    StagedRule,
    ThompsonRule,
    UniformRule,
)
from torch_kbandits.extras import exports

if TYPE_CHECKING:
    from torch_kbandits.acquisition.constructors import DiscretizedThompsonSampling, KernelUCB
else:
    __getattr__, __dir__, _ = exports(__name__)

__all__ = [
    "AcquisitionRule",
    "AdaptiveDiscretizationRule",
    "ArmPosterior",
    "BoxPosterior",
    "CombinedFunction",
    "Cube",
    "DiscretizedThompsonSampling",
    "Domain",
    "EpsilonGreedy",
    "ExpectedImprovementRule",
    "KernelUCB",
    "OptimisticRule",
    "PhasedEliminationRule",
    "ProbabilityOfImprovementRule",
    "RandomRule",
    "SobolRule",
    "SoftmaxRule",
    "SomeOf",
    "StagedRule",
    "ThompsonRule",
    "UniformRule",
    "UpperConfidenceRule",
    "climb",
]
