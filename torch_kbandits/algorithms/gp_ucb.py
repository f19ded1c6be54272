"""GP-UCB."""

from typing import Unpack

from torch_kbandits.algorithms.arguments import Arguments, GainWords, described
from torch_kbandits.bandit import Bandit
from torch_kbandits.confidence import GPUCBWidth, RealizedGain


@described
class GPUCB(Bandit):
    """GP-UCB: the exact posterior and the width of Srinivas et al. for functions in an RKHS.

    Source: Srinivas, Krause, Kakade and Seeger, "Gaussian process optimization in the bandit setting: no regret and
    experimental design", ICML 2010, Theorem 3. For the Bayesian width on finitely many arms give
    ``beta=BayesianGPUCBWidth(num_arms, failure_probability)``. Differs: repeated plays are merged, which changes no
    number.

    Args:
        noise_scale: R > 0, only for ``guarantee``: the theorem takes noise bounded by √λ.
        **words: see ``GainWords``.

    Cost of a round on A arms with u distinct ones played: O(A u); memory O(A u). On a box O(u²) and the search.
    """

    def __init__(self, **words: Unpack[GainWords]) -> None:
        given = Arguments(GainWords, words)
        gain = RealizedGain() if given.gain is None else given.gain
        theory = None if given.norm_bound is None else GPUCBWidth(given.norm_bound, given.failure_probability, gain)
        super().__init__(**given.under(theory, "norm_bound", noise_scale=given.noise_scale))
