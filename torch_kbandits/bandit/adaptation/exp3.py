"""EXP3: which of K options to take next when only the gain of the one taken is seen."""

import math
from collections.abc import Sequence

from torch_kbandits import checks


def exploration_rate(num_options: int, num_choices: int) -> float:
    """Return the share γ of choices that EXP3 makes uniformly: min(1, √(K ln K / ((e − 1) N))).

    Source: Auer, Cesa-Bianchi, Freund and Schapire, "The nonstochastic multiarmed bandit problem", SIAM J. Comput.
    2002, Corollary 3.2, with N as the bound on the gain of the best option.

    Args:
        num_options: K >= 1.
        num_choices: N >= 1, how many choices there will be.

    Raises:
        InputError: if a number is no whole number of at least 1.
    """
    options, choices = (
        checks.positive_integer("num_options", num_options),
        checks.positive_integer("num_choices", num_choices),
    )
    return min(1.0, math.sqrt(options * math.log(options) / ((math.e - 1.0) * choices)))


def probabilities(estimates: Sequence[float], exploration: float) -> list[float]:
    """Return the probability of each option: (1 − γ) e^(γ Ĝ_k / K) / Σ_j e^(γ Ĝ_j / K) + γ / K.

    Args:
        estimates: Ĝ_k, the sum over past choices of k of its gain in [0, 1] over the probability that it had then.
        exploration: γ in [0, 1].
    """
    number, largest = len(estimates), max(estimates)
    weights = [math.exp(exploration * (estimate - largest) / number) for estimate in estimates]
    total = sum(weights)
    return [(1.0 - exploration) * weight / total + exploration / number for weight in weights]
