"""SupKernelUCB, stages of independent rewards."""

from typing import Unpack

from torch_kbandits import checks
from torch_kbandits.acquisition import StagedRule
from torch_kbandits.algorithms.arguments import Arguments, TheoremWords, described
from torch_kbandits.bandit import Bandit
from torch_kbandits.candidates import Arms, Candidates
from torch_kbandits.candidates.timed import untimed
from torch_kbandits.confidence import FixedDesignWidth
from torch_kbandits.errors import InputError


@described
class SupKernelUCB(Bandit):
    """SupKernelUCB: K-UCB in stages that learn from disjoint sets of rounds, for a regret of order √(T d_eff ln A).

    The stage in which a point was chosen is remembered until it is told. What is told without having been asked for,
    or was chosen by its upper bound, enters no stage: it serves ``model`` and ``recommend`` and no choice.

    Source: Valko, Korda, Munos, Flaounas and Cristianini, "Finite-time analysis of kernelised contextual bandits", UAI
    2013. Differs: see ``StagedRule`` and ``FixedDesignWidth``; several points may be pending.

    Args:
        bounds: refused, with a hint: the stages go through a finite set.
        num_actions: where each round brings its own actions, the most that one brings; the theorem's width needs it.
        horizon: T, the planned number of rounds. It sets the widths at which stages decide: a reward is explored until
            its error is below 1/√T, in reward units.
        **words: see ``TheoremWords``.

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
        raise InputError(
            "SupKernelUCB goes through all actions one by one: give a finite set, candidates (A, a), or action_dim "
            "where each round brings its own. On a box use KUCB or EKUCB, or a grid."
        )
    known = actions.source if isinstance(actions, Arms) else getattr(actions, "set", None)
    if num_actions is None:
        return None if known is None else len(known)
    if known is not None:
        raise InputError(f"Leave out num_actions: there are always {len(known)} actions.")
    return checks.positive_integer("num_actions", num_actions)
