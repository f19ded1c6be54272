"""Kernelized bandits for PyTorch, GPyTorch and BoTorch."""

from torch_kbandits import algorithms, environments
from torch_kbandits.acquisition import DiscretizedThompsonSampling, KernelUCB
from torch_kbandits.bandit import Bandit
from torch_kbandits.candidates import ArmBlocks, Arms, Box, Configurations, ContextualActions, MappedArms, UnitCube
from torch_kbandits.confidence import BKBWidth, ConstantWidth, ScaledWidth, Width
from torch_kbandits.dictionaries import (
    KDPP,
    KORS,
    CappedDictionary,
    DictionaryRule,
    FixedDictionary,
    GreedyDictionary,
    RidgeLeverageSampling,
    UniformDictionary,
)
from torch_kbandits.errors import (
    ArmsChangedError,
    DamagedFileError,
    DictionaryFullError,
    EmptyHistoryError,
    FileError,
    InfeasibleError,
    InputError,
    KernelBanditError,
    KernelBanditWarning,
    NumericalError,
    StateMismatchError,
    TheoryWarning,
)
from torch_kbandits.kernels import ForgettingKernel, WienerKernel
from torch_kbandits.likelihoods import UncertaintyInjectionLikelihood, at_time
from torch_kbandits.memory import Exponential, Linear, Quadratic
from torch_kbandits.models import NystromGP, OnlineGP
from torch_kbandits.numerics.compiled import use_compiled
from torch_kbandits.observations.column_spec import ColumnSpec
from torch_kbandits.observations.columns import Category, Number
from torch_kbandits.observations.ledger import History
from torch_kbandits.outcomes import AtLeast, AtMost, Outcome, Scalarization
from torch_kbandits.priors import LearnedPrior, Prior, fit_prior
from torch_kbandits.spaces import Categorical, Float, Integer, LinearConstraint, ParameterSpace
from torch_kbandits.version import __version__ as __version__

__all__ = [
    "KDPP",
    "KORS",
    "ArmBlocks",
    "Arms",
    "ArmsChangedError",
    "AtLeast",
    "AtMost",
    "BKBWidth",
    "Bandit",
    "Box",
    "CappedDictionary",
    "Categorical",
    "Category",
    "ColumnSpec",
    "Configurations",
    "ConstantWidth",
    "ContextualActions",
    "DamagedFileError",
    "DictionaryFullError",
    "DictionaryRule",
    "DiscretizedThompsonSampling",
    "EmptyHistoryError",
    "Exponential",
    "FileError",
    "FixedDictionary",
    "Float",
    "ForgettingKernel",
    "GreedyDictionary",
    "History",
    "InfeasibleError",
    "InputError",
    "Integer",
    "KernelBanditError",
    "KernelBanditWarning",
    "KernelUCB",
    "LearnedPrior",
    "Linear",
    "LinearConstraint",
    "MappedArms",
    "Number",
    "NumericalError",
    "NystromGP",
    "OnlineGP",
    "Outcome",
    "ParameterSpace",
    "Prior",
    "Quadratic",
    "RidgeLeverageSampling",
    "Scalarization",
    "ScaledWidth",
    "StateMismatchError",
    "TheoryWarning",
    "UncertaintyInjectionLikelihood",
    "UniformDictionary",
    "UnitCube",
    "Width",
    "WienerKernel",
    "algorithms",
    "at_time",
    "environments",
    "fit_prior",
    "use_compiled",
]
