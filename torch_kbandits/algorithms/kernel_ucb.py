"""Kernel UCB with contexts: exact, on a dictionary that grows, in stages, and linear."""

from functools import reduce
from operator import mul
from typing import Literal, Unpack

import torch
from gpytorch.kernels import Kernel, PolynomialKernel

from torch_kbandits import checks
from torch_kbandits.acquisition import StagedRule
from torch_kbandits.algorithms.arguments import Arguments, RunWords, SketchWords, TheoremWords, capped, described
from torch_kbandits.bandit import Bandit, GlobalBatchRule
from torch_kbandits.candidates import Arms, Candidates
from torch_kbandits.candidates.timed import untimed
from torch_kbandits.confidence import ConstantWidth, EKUCBWidth, FixedDesignWidth, KUCBWidth, Width
from torch_kbandits.dictionaries import KORS, SpanningDictionary, theoretical_kors_oversampling
from torch_kbandits.errors import InputError
from torch_kbandits.kernels import PerActionLinearKernel
from torch_kbandits.memory import Memory
from torch_kbandits.priors import prior_of


@described
class KUCB(Bandit):
    """K-UCB, kernel UCB for contextual bandits: the exact posterior at joint points of context and action.

    CGP-UCB (Krause and Ong, NIPS 2011) differs in its width alone.

    Source: Zenati et al., AISTATS 2022, Alg. 3. Differs: see ``KUCBWidth``; the first action is not drawn.

    Cost of a round with A actions and u distinct points played: O(A u²); memory O(u²).
    """

    def __init__(self, **words: Unpack[TheoremWords]) -> None:
        given = Arguments(TheoremWords, words)
        super().__init__(**given.under(given.theorem(KUCBWidth)))


@described
class EKUCB(Bandit):
    """EK-UCB, efficient kernel UCB: K-UCB at the cost of a dictionary that KORS grows, incremental throughout.

    A round costs the same however many were played, except where a point joins the dictionary.

    Source: Zenati et al., AISTATS 2022, Alg. 2. Differs: see ``KORS`` and ``EKUCBWidth``; the first action is chosen as
    all others are, not drawn; batches, which the paper leaves to future work; several points may be pending, given
    which variances are conditional also where the dictionary does not span.

    Args:
        oversampling: γ > 0, KORS's budget, or "theory" for the theorem's, which keeps nearly every point.
        projection: μ > 0, the scale below which KORS drops directions, in reward units squared; λ unless given, which
            balances regret and time: a larger one is faster and regrets more.
        batch_threshold: C > 1, the factor by which variances may shrink in a batch: means and dictionary stay, as in
            BBKB, until 1 + Σ τ̃ of its points exceeds C; the theorem's width is then √C times wider. None: rewards are
            learned at once.

    Cost of a round with A actions: O(A m²), and O(n m) when a point joins; memory O(n m).
    """

    def __init__(
        self,
        *,
        oversampling: float | Literal["theory"] = 1.0,
        projection: float | None = None,
        batch_threshold: float | None = None,
        **words: Unpack[SketchWords],
    ) -> None:
        given = Arguments(SketchWords, words)
        rule = KORS(given.oversampling(oversampling, theoretical_kors_oversampling), projection)
        theory = given.theorem(EKUCBWidth, projection=projection)
        batches = None if batch_threshold is None else GlobalBatchRule(batch_threshold)
        dictionary = capped(rule, given.words["max_dictionary"], given.words["when_full"])
        super().__init__(**given.under(theory, dictionary=dictionary, batches=batches))


@described
class SupKernelUCB(Bandit):
    """SupKernelUCB: K-UCB in stages that learn from disjoint sets of rounds, for a regret of order √(T d_eff ln A).

    The stage in which a point was chosen is remembered until it is told. What is told without having been asked for,
    or was chosen by its upper bound, enters no stage: it serves ``model`` and ``recommend`` and no choice.

    Source: Valko et al., UAI 2013. Differs: see ``StagedRule`` and ``FixedDesignWidth``; several points may be pending.

    Args:
        bounds: refused, with a hint: the stages go through a finite set.
        num_actions: where each round brings its own actions, the most that one brings; the theorem's width needs it.
        horizon: T, the planned number of rounds. It sets the widths at which stages decide: a reward is explored until
            its error is below 1/√T, in reward units.

    Cost of a round: O(S A u²) for S = ⌈½ log₂ T⌉ stages, A actions and u distinct points in the largest stage, and
    K-UCB's for a reward. Memory: S + 1 times that of K-UCB at most.
    """

    def __init__(self, *, horizon: int, num_actions: int | None = None, **words: Unpack[TheoremWords]) -> None:
        given = Arguments(TheoremWords, words)
        rule, most = StagedRule(horizon), _most_actions(given.candidates, num_actions)
        theory = None
        if most is not None:
            theory = given.theorem(FixedDesignWidth, num_bounds=horizon * rule.num_stages * most)
        needed = "noise_scale and norm_bound, and num_actions where each round brings its own actions"
        super().__init__(**given.under(theory, needed, acquisition=rule))


def _most_actions(candidates: Candidates, num_actions: int | None) -> int | None:
    """Return the most actions of a round, None where it is not known."""
    actions = untimed(candidates)
    if not actions.is_finite:
        hint = "give a finite set, candidates (A, a), or action_dim where each round brings its own"
        raise InputError(f"SupKernelUCB goes through all actions: {hint}. On a box use KUCB or EKUCB, or a grid.")
    known = actions.source if isinstance(actions, Arms) else getattr(actions, "set", None)
    if num_actions is None:
        return None if known is None else len(known)
    if known is not None:
        raise InputError(f"Leave out num_actions: there are always {len(known)} actions.")
    return checks.positive_integer("num_actions", num_actions)


@described
class LinUCB(Bandit):
    """LinUCB: for each action a ridge regression on the context, and the action of the highest upper bound.

    It is K-UCB on a linear kernel. The dictionary spans the features, so the posterior is exact and a round costs the
    same however many were played.

    Source: Li, Chu, Langford and Schapire, WWW 2010, Algorithm 1. Differs: a constant feature beside the context; ties
    are broken at random; any λ > 0.

    Args:
        features: the kernel of the features, by default (1 + ⟨x, x'⟩) · 1[a = a'] on contexts x and actions a. Any
            other of few features serves, such as a ``LinearKernel`` on joint points: one model for all actions.
        regularization: λ > 0, in reward units squared; 1 in the paper.
        candidates: actions (A, a), as an index column or as one-hot rows, or a ``Candidates``.
        bounds: a box (2, a) of actions instead, for which features have to be given.
        noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units; 1/2 for rewards in [0, 1].
        norm_bound: B > 0, a bound on the norm of all coefficients; the paper's width has 1.
        beta: a multiplier of the standard deviation, α/√λ in terms of the paper's α, or a ``Width``; by default the
            paper's, α = 1 + √(ln(2/δ)/2) at λ = 1, which holds for one point and independent rewards only.

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


@described
class SharedLinUCB(Bandit):
    """LinUCB with one model for all actions: a ridge regression on context, action and their products.

    What is learned of one action counts for those like it, and of all for an action that is new. On one-hot actions it
    is a model of the context that all share, and what each action adds to it: the hybrid model of the paper.

    Source: Li, Chu, Langford and Schapire, WWW 2010, Algorithm 2, with all features shared. Differs: as ``LinUCB``.

    Args:
        interactions: whether products of context and action are features. Without them the best action is the same in
            all contexts.
        regularization: λ > 0, in reward units squared; 1 in the paper.
        candidates: actions (A, a), one-hot rows or features, best of size 1 like the context; or a ``Candidates``.
        beta: a multiplier of the standard deviation, α/√λ in terms of the paper's α, or a ``Width``. Unless given 0.25,
            which had the least regret of 0.1, 0.25, 0.5 and 1 on four of the five problems it was tuned on, rewards in
            [0, 1] or of variance 1.

    Cost of a round with A actions and F features, F = (c + 1) (a + 1), or c + a + 1 without interactions: O(A F²), and
    O(n F) for each of the F points that join the dictionary; memory O(n F).
    """

    def __init__(
        self,
        *,
        interactions: bool = True,
        regularization: float = 1.0,
        beta: float | Width = 0.25,
        **words: Unpack[RunWords],
    ) -> None:
        given = Arguments(RunWords, words)
        seen = _seen(given.candidates, given.words["memory"])
        context, columns = range(seen.context_dim), range(seen.example.shape[-1])
        parts = [context, columns[seen.context_dim :]] if checks.flag("interactions", interactions) else [columns]
        prior = prior_of(None, reduce(mul, map(_affine, filter(len, parts))), regularization, given.words["mean"])
        width = beta if isinstance(beta, Width) else ConstantWidth(beta)
        super().__init__(**given.pieces(prior=prior, dictionary=SpanningDictionary(), width=width))


def _kernel(candidates: Candidates, memory: Memory | None) -> Kernel:
    """Return the kernel of a linear model for each action."""
    if getattr(untimed(candidates), "bounds", None) is not None:
        raise InputError("LinUCB has a model for each action, of which a box has too many: give actions, or features.")
    return PerActionLinearKernel(_seen(candidates, memory).context_dim)


def _seen(candidates: Candidates, memory: Memory | None) -> Candidates:
    """Return candidates with the columns that a kernel sees; a prior on time has the column of time for itself."""
    return untimed(candidates) if isinstance(memory, Memory) and memory.needs_time_column else candidates


def _affine(columns: range) -> Kernel:
    """Return 1 + ⟨x, x'⟩ on some columns."""
    kernel = PolynomialKernel(power=1, active_dims=tuple(columns)).double()
    kernel.offset = torch.ones(1, dtype=torch.float64)
    return kernel
