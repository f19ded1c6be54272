"""Kernelized bandits for PyTorch, GPyTorch and BoTorch."""

from typing import TYPE_CHECKING

from torch_kbandits.extras import exports
from torch_kbandits.version import __version__ as __version__

if TYPE_CHECKING:
    from torch_kbandits import algorithms as algorithms
    from torch_kbandits import environments as environments
    from torch_kbandits.acquisition import DiscretizedThompsonSampling as DiscretizedThompsonSampling
    from torch_kbandits.acquisition import KernelUCB as KernelUCB
    from torch_kbandits.bandit import Bandit as Bandit
    from torch_kbandits.bandit import StopWhen as StopWhen
    from torch_kbandits.candidates import Arms as Arms
    from torch_kbandits.candidates import Box as Box
    from torch_kbandits.candidates import Configurations as Configurations
    from torch_kbandits.candidates import ContextualActions as ContextualActions
    from torch_kbandits.candidates import UnitCube as UnitCube
    from torch_kbandits.confidence import BKBWidth as BKBWidth
    from torch_kbandits.confidence import ConstantWidth as ConstantWidth
    from torch_kbandits.confidence import ScaledWidth as ScaledWidth
    from torch_kbandits.confidence import Width as Width
    from torch_kbandits.dictionaries import KDPP as KDPP
    from torch_kbandits.dictionaries import KORS as KORS
    from torch_kbandits.dictionaries import CappedDictionary as CappedDictionary
    from torch_kbandits.dictionaries import DictionaryRule as DictionaryRule
    from torch_kbandits.dictionaries import FixedDictionary as FixedDictionary
    from torch_kbandits.dictionaries import GreedyDictionary as GreedyDictionary
    from torch_kbandits.dictionaries import RidgeLeverageSampling as RidgeLeverageSampling
    from torch_kbandits.dictionaries import UniformDictionary as UniformDictionary
    from torch_kbandits.errors import ArmsChangedError as ArmsChangedError
    from torch_kbandits.errors import DamagedFileError as DamagedFileError
    from torch_kbandits.errors import DictionaryFullError as DictionaryFullError
    from torch_kbandits.errors import EmptyHistoryError as EmptyHistoryError
    from torch_kbandits.errors import FileError as FileError
    from torch_kbandits.errors import InfeasibleError as InfeasibleError
    from torch_kbandits.errors import InputError as InputError
    from torch_kbandits.errors import KernelBanditError as KernelBanditError
    from torch_kbandits.errors import KernelBanditWarning as KernelBanditWarning
    from torch_kbandits.errors import NumericalError as NumericalError
    from torch_kbandits.errors import StateMismatchError as StateMismatchError
    from torch_kbandits.errors import TheoryWarning as TheoryWarning
    from torch_kbandits.kernels import ForgettingKernel as ForgettingKernel
    from torch_kbandits.kernels import WienerKernel as WienerKernel
    from torch_kbandits.likelihoods import UncertaintyInjectionLikelihood as UncertaintyInjectionLikelihood
    from torch_kbandits.likelihoods import at_time as at_time
    from torch_kbandits.memory import ExponentialGrowth as ExponentialGrowth
    from torch_kbandits.memory import LinearGrowth as LinearGrowth
    from torch_kbandits.memory import QuadraticGrowth as QuadraticGrowth
    from torch_kbandits.models import NystromGP as NystromGP
    from torch_kbandits.models import OnlineGP as OnlineGP
    from torch_kbandits.numerics.linalg import NotPositiveDefiniteError as NotPositiveDefiniteError
    from torch_kbandits.observations.columns import Category as Category
    from torch_kbandits.observations.columns import ColumnSpec as ColumnSpec
    from torch_kbandits.observations.columns import Number as Number
    from torch_kbandits.observations.history import History as History
    from torch_kbandits.outcomes import AtLeast as AtLeast
    from torch_kbandits.outcomes import AtMost as AtMost
    from torch_kbandits.outcomes import BudgetPacing as BudgetPacing
    from torch_kbandits.outcomes import CostCooling as CostCooling
    from torch_kbandits.outcomes import Fidelity as Fidelity
    from torch_kbandits.outcomes import Outcome as Outcome
    from torch_kbandits.outcomes import Scalarization as Scalarization
    from torch_kbandits.priors import LearnedPrior as LearnedPrior
    from torch_kbandits.priors import Prior as Prior
    from torch_kbandits.priors import fit_prior as fit_prior
    from torch_kbandits.spaces import Categorical as Categorical
    from torch_kbandits.spaces import Float as Float
    from torch_kbandits.spaces import Integer as Integer
    from torch_kbandits.spaces import LinearConstraint as LinearConstraint
    from torch_kbandits.spaces import ParameterSpace as ParameterSpace
else:
    __getattr__, __dir__, __all__ = exports(__name__)
