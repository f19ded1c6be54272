"""LinUCB, a baseline with contexts."""

from typing import Unpack

from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.acquisition import UpperConfidenceRule
from torch_kbandits.algorithms.arguments import common, resolve_contextual, resolve_width, theorem
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.words import CommonWords
from torch_kbandits.candidates import Candidates
from torch_kbandits.candidates.timed import untimed
from torch_kbandits.confidence import FixedDesignWidth, Width
from torch_kbandits.dictionaries import SpanningDictionary
from torch_kbandits.errors import InputError
from torch_kbandits.kernels import PerActionLinearKernel
from torch_kbandits.memory import Memory
from torch_kbandits.priors import Prior, PriorMean
from torch_kbandits.spaces import ParameterSpace


class LinUCB(Bandit):
    """LinUCB: for each action a ridge regression on the context, and the action of the highest upper bound.

    It is K-UCB on a linear kernel. The dictionary spans the features, so the posterior is exact and a round costs the
    same however many were played.

    Source: Li, Chu, Langford and Schapire, "A contextual-bandit approach to personalized news article recommendation",
    WWW 2010, Algorithm 1. Differs: a constant feature beside the context; ties are broken by lot; any λ > 0.

    Args:
        features: the kernel of the features, by default (1 + ⟨x, x'⟩) · 1[a = a'] on contexts x and actions a. Any
            other of few features serves, such as a ``LinearKernel`` on joint points: one model for all actions.
        regularization: λ > 0, in reward units squared; 1 in the paper.
        candidates: actions (A, a), as an index column or as one-hot rows, or a ``Candidates``.
        bounds: a box (2, a) of actions instead, for which features have to be given.
        context_dim: c, the number of context columns; without it there is no context, and each action has a mean.
        action_dim: a, where each round brings its own actions.
        noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units; 1/2 for rewards in [0, 1].
        norm_bound: B > 0, a bound on the norm of all coefficients; the paper's width has 1.
        failure_probability: δ in (0, 1).
        memory: which observations count at a time, where the function changes, such as ``SlidingWindow(500)`` or
            ``Discount(0.99)``. The theorem is for a function that stays.
        mean: the prior mean, in reward units: a number, a value for each arm, a GPyTorch mean, or a function of points
            (n, d); see ``Bandit``.
        beta: a multiplier of the standard deviation, α/√λ in terms of the paper's α, or a ``Width``; by default the
            paper's, α = 1 + √(ln(2/δ)/2) at λ = 1, which holds for one point and independent rewards only.
        seed: addresses all randomness.
        others: ``outcomes``, ``constraints`` and ``objective``: what is measured beside the reward, its limits, and
            what is sought of all; see ``Bandit``.

    Cost of a round with A actions and F = A (c + 1) features: O(A F²), and O(n F) for each of the F points that join
    the dictionary; memory O(n F).
    """

    def __init__(
        self,
        *,
        seed: int,
        features: Kernel | None = None,
        regularization: float = 1.0,
        candidates: Tensor | Candidates | ParameterSpace | None = None,
        bounds: Tensor | None = None,
        context_dim: int | None = None,
        action_dim: int | None = None,
        noise_scale: float = 0.5,
        norm_bound: float = 1.0,
        failure_probability: float = 0.1,
        memory: Memory | None = None,
        mean: PriorMean = 0.0,
        beta: float | Width | None = None,
        **others: Unpack[CommonWords],
    ) -> None:
        actions = resolve_contextual(candidates, bounds, context_dim, action_dim)
        theory = theorem(FixedDesignWidth, noise_scale, norm_bound, failure_probability)
        prior = Prior(_kernel(actions, memory) if features is None else features, regularization, mean)
        super().__init__(
            candidates=actions,
            prior=prior,
            dictionary=SpanningDictionary(),
            width=theory if beta is None and theory is not None else resolve_width(beta, None, prior),
            acquisition=UpperConfidenceRule(),
            memory=memory,
            seed=seed,
            **common(others),
        )


def _kernel(candidates: Candidates, memory: Memory | None) -> Kernel:
    """Return the kernel of a linear model for each action; a prior on time has the column of time for itself."""
    actions = untimed(candidates)
    if getattr(actions, "bounds", None) is not None:
        raise InputError("LinUCB has a model for each action, of which a box has too many: give actions, or features.")
    seen = actions if isinstance(memory, Memory) and memory.needs_time_column else candidates
    return PerActionLinearKernel(seen.context_dim)
