"""Confidence widths: the multiplier of the posterior standard deviation, and the theorems behind it."""

from torch_kbandits.confidence.base import ConstantWidth, Evidence, InformationGain, ScaledWidth, TheoremWidth, Width
from torch_kbandits.confidence.bayesian import BayesianGPUCBWidth, RandomizedWidth, TVGPUCBWidth
from torch_kbandits.confidence.gain import (
    ConstantGain,
    GreedyGain,
    RateGain,
    RealizedGain,
    greedy_information_gain,
    regularization_for,
    restart_period,
    sparq_cutoff,
    sparq_questions,
    valko_dimension,
    window_size,
)
from torch_kbandits.confidence.guarantee import Assumption, Guarantee
from torch_kbandits.confidence.mixture import MartingaleMixtureWidth
from torch_kbandits.confidence.regret import cumulative_regret_bound, dictionary_size_bound
from torch_kbandits.confidence.theorems import (
    BKBWidth,
    EKUCBWidth,
    FixedDesignWidth,
    GPTSWidth,
    GPUCBWidth,
    GuessAndDouble,
    IGPUCBWidth,
    KUCBWidth,
    MemoryWidth,
    NystromWidth,
    SelfNormalizedWidth,
    SparQWidth,
)

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
    "MartingaleMixtureWidth",
    "MemoryWidth",
    "NystromWidth",
    "RandomizedWidth",
    "RateGain",
    "RealizedGain",
    "ScaledWidth",
    "SelfNormalizedWidth",
    "SparQWidth",
    "TVGPUCBWidth",
    "TheoremWidth",
    "Width",
    "cumulative_regret_bound",
    "dictionary_size_bound",
    "greedy_information_gain",
    "regularization_for",
    "restart_period",
    "sparq_cutoff",
    "sparq_questions",
    "valko_dimension",
    "window_size",
]
