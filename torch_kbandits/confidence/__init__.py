"""Confidence widths: the multiplier of the posterior standard deviation, and the theorems behind it."""

from torch_kbandits.confidence.base import (
    ConstantWidth,
    Evidence,
    InformationGain,
    ScaledWidth,
    TheoremWidth,
    Width,
)
from torch_kbandits.confidence.gain import (
    ConstantGain,
    GreedyGain,
    NystromGain,
    RateGain,
    RealizedGain,
    SumGain,
    effective_dimension,
    greedy_information_gain,
    information_gain,
)
from torch_kbandits.confidence.gp_ucb import BayesianGPUCBWidth, GPUCBWidth, RandomizedWidth, TVGPUCBWidth
from torch_kbandits.confidence.guarantee import Assumption, Guarantee
from torch_kbandits.confidence.igp_ucb import GPTSWidth, IGPUCBWidth
from torch_kbandits.confidence.nystrom import BKBWidth, EKUCBWidth, KUCBWidth, NystromWidth
from torch_kbandits.confidence.periods import restart_period, window_size
from torch_kbandits.confidence.self_normalized import FixedDesignWidth, GuessAndDouble, MemoryWidth, SelfNormalizedWidth
from torch_kbandits.confidence.sparq import SparQWidth, sparq_cutoff, sparq_questions

__all__ = [
    "Assumption",
    "BKBWidth",
    "BayesianGPUCBWidth",
    "ConstantGain",
    "ConstantWidth",
    "EKUCBWidth",
    "Evidence",
    "FixedDesignWidth",
    "GPTSWidth",
    "GPUCBWidth",
    "GreedyGain",
    "Guarantee",
    "GuessAndDouble",
    "IGPUCBWidth",
    "InformationGain",
    "KUCBWidth",
    "MemoryWidth",
    "NystromGain",
    "NystromWidth",
    "RandomizedWidth",
    "RateGain",
    "RealizedGain",
    "ScaledWidth",
    "SelfNormalizedWidth",
    "SparQWidth",
    "SumGain",
    "TVGPUCBWidth",
    "TheoremWidth",
    "Width",
    "effective_dimension",
    "greedy_information_gain",
    "information_gain",
    "restart_period",
    "sparq_cutoff",
    "sparq_questions",
    "window_size",
]
