"""LinUCB, a baseline with contexts."""

from typing import Unpack

from gpytorch.kernels import Kernel

from torch_kbandits.algorithms.arguments import Arguments, RunWords, described
from torch_kbandits.bandit import Bandit
from torch_kbandits.candidates import Candidates
from torch_kbandits.candidates.timed import untimed
from torch_kbandits.confidence import ConstantWidth, FixedDesignWidth, Width
from torch_kbandits.dictionaries import SpanningDictionary
from torch_kbandits.errors import InputError
from torch_kbandits.kernels import PerActionLinearKernel
from torch_kbandits.memory import Memory
from torch_kbandits.priors import prior_of


@described
class LinUCB(Bandit):
    """LinUCB: for each action a ridge regression on the context, and the action of the highest upper bound.

    It is K-UCB on a linear kernel. The dictionary spans the features, so the posterior is exact and a round costs the
    same however many were played.

    Source: Li, Chu, Langford and Schapire, "A contextual-bandit approach to personalized news article recommendation",
    WWW 2010, Algorithm 1. Differs: a constant feature beside the context; ties are broken at random; any λ > 0.

    Args:
        features: the kernel of the features, by default (1 + ⟨x, x'⟩) · 1[a = a'] on contexts x and actions a. Any
            other of few features serves, such as a ``LinearKernel`` on joint points: one model for all actions.
        regularization: λ > 0, in reward units squared; 1 in the paper.
        candidates: actions (A, a), as an index column or as one-hot rows, or a ``Candidates``.
        bounds: a box (2, a) of actions instead, for which features have to be given.
        context_dim: c, the number of context columns; without it there is no context, and each action has a mean.
        noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units; 1/2 for rewards in [0, 1].
        norm_bound: B > 0, a bound on the norm of all coefficients; the paper's width has 1.
        beta: a multiplier of the standard deviation, α/√λ in terms of the paper's α, or a ``Width``; by default the
            paper's, α = 1 + √(ln(2/δ)/2) at λ = 1, which holds for one point and independent rewards only.
        **words: see ``RunWords``.

    Cost of a round with A actions and F = A (c + 1) features: O(A F²), and O(n F) for each of the F points that join
    the dictionary; memory O(n F).
    """

    def __init__(
        self,
        *,
        features: Kernel | None = None,
        regularization: float = 1.0,
        noise_scale: float = 0.5,
        norm_bound: float = 1.0,
        failure_probability: float = 0.1,
        beta: float | Width | None = None,
        **words: Unpack[RunWords],
    ) -> None:
        given = Arguments(RunWords, words)
        kernel = _kernel(given.candidates, given.words["memory"]) if features is None else features
        width = FixedDesignWidth(noise_scale, norm_bound, failure_probability)
        if beta is not None:
            width = beta if isinstance(beta, Width) else ConstantWidth(beta)
        prior = prior_of(None, kernel, regularization, given.words["mean"])
        super().__init__(**given.pieces(prior=prior, dictionary=SpanningDictionary(), width=width))


def _kernel(candidates: Candidates, memory: Memory | None) -> Kernel:
    """Return the kernel of a linear model for each action; a prior on time has the column of time for itself."""
    actions = untimed(candidates)
    if getattr(actions, "bounds", None) is not None:
        raise InputError("LinUCB has a model for each action, of which a box has too many: give actions, or features.")
    seen = actions if isinstance(memory, Memory) and memory.needs_time_column else candidates
    return PerActionLinearKernel(seen.context_dim)
