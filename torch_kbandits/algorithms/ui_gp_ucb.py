"""UI-GP-UCB, noise that grows with age."""

from typing import Unpack

from torch_kbandits.algorithms.arguments import Arguments, DictionaryWords, described
from torch_kbandits.bandit import Bandit
from torch_kbandits.confidence import MemoryWidth
from torch_kbandits.memory import Growth, LinearGrowth, UncertaintyInjection


@described
class UIGPUCB(Bandit):
    """UI-GP-UCB, GP-UCB with uncertainty injection: the noise variance of an observation grows with its age.

    Source: Mauduit et al., 2025, section 2.1 and Eq. (10); the name is that of Brunzema, von Rohr and Trimpe, "On
    controller tuning with time-varying Bayesian optimization", CDC 2022. Differs from the latter: theirs is a Wiener
    process as the prior on time, whose variance grows without end (``TVGPUCB`` with a ``WienerKernel``). Differs from
    both: the width, which neither states, see ``MemoryWidth``. Differs from the former: a point is chosen with ages of
    the round in which it is played, so the latest reward has age 1, where theirs has 0.

    Args:
        growth: ``LinearGrowth(rate)``, ``QuadraticGrowth(rate)`` or ``ExponentialGrowth(discount)``, or the rate of a
            linear growth in reward units squared per round, or unit of time.
        max_variance: observations of a larger variance are dropped, which bounds the cost of a round.
        memory: refused, with the reason: ``growth`` says what an observation counts for.
        **words: see ``DictionaryWords``.

    Cost of a round with u distinct points that count: O(u³ + A u²) on A arms.
    """

    def __init__(
        self, *, growth: Growth | float, max_variance: float | None = None, **words: Unpack[DictionaryWords]
    ) -> None:
        given = Arguments(DictionaryWords, words, forgets_by="growth")
        memory = UncertaintyInjection(growth if isinstance(growth, Growth) else LinearGrowth(growth), max_variance)
        theory = given.theorem(MemoryWidth, num_bounds=given.horizon, gain=given.gain)
        super().__init__(**given.under(theory, memory=memory))
