"""Confidence widths: the multiplier of the posterior standard deviation, one theorem a file."""

from torch_kbandits.confidence.base import (
    ConstantWidth,
    Evidence,
    ScaledWidth,
    TheoremWidth,
    Width,
)
from torch_kbandits.confidence.bayesian_gp_ucb import BayesianGPUCBWidth
from torch_kbandits.confidence.bkb import BKBWidth
from torch_kbandits.confidence.ek_ucb import EKUCBWidth
from torch_kbandits.confidence.fixed_design import FixedDesignWidth
from torch_kbandits.confidence.gain import (
    ConstantGain,
    GreedyGain,
    InformationGain,
    NystromGain,
    RateGain,
    RealizedGain,
    SumGain,
)
from torch_kbandits.confidence.gp_ts import GPTSWidth
from torch_kbandits.confidence.gp_ucb import GPUCBWidth
from torch_kbandits.confidence.guarantee import Guarantee, Hypothesis
from torch_kbandits.confidence.guess_and_double import GuessAndDouble
from torch_kbandits.confidence.igp_ucb import IGPUCBWidth
from torch_kbandits.confidence.information import effective_dimension, greedy_information_gain, information_gain
from torch_kbandits.confidence.k_ucb import KUCBWidth
from torch_kbandits.confidence.memory_width import MemoryWidth
from torch_kbandits.confidence.nystrom import NystromWidth
from torch_kbandits.confidence.periods import restart_period, window_size
from torch_kbandits.confidence.randomized import RandomizedWidth
from torch_kbandits.confidence.self_normalized import SelfNormalizedWidth
from torch_kbandits.confidence.sparq import SparQWidth, sparq_cutoff, sparq_questions
from torch_kbandits.confidence.tv_gp_ucb import TVGPUCBWidth

__all__ = [
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
    "Hypothesis",
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
