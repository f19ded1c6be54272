"""How long to remember: the restart period of R-GP-UCB and the window of SW-GP-UCB."""

import math

from torch_kbandits import checks


def restart_period(horizon: int, variation_budget: float | None = None, *, gain: float) -> int:
    """Return after how many rounds R-GP-UCB forgets everything: the H that balances drift against learning anew.

        H = γ_T^¼ (T / P_T)^½;  with an unknown budget γ_T^¼ T^½, as if P_T were 1

    rounded to the nearest whole number, at least 1 and at most T. The dynamic regret is then of order
    γ_T^⅞ T^¾ (1 + P_T)^¼, or γ_T^⅞ T^¾ (1 + P_T) where the budget is unknown, up to logarithms.

    Source: Zhou & Shroff, CISS 2021, remarks to Theorems 1 and 2. They fix H up to a constant that holds B, R and λ and
    that we set to 1: a start for tuning. A function that jumps J times by Δ has P_T = J Δ, one that drifts evenly T
    times its change in a round.

    Args:
        horizon: T >= 1.
        variation_budget: P_T >= 0, a bound on Σ_t ‖f_{t+1} − f_t‖_k over the T rounds; 0 never restarts, None for
            unknown.
        gain: γ_T > 0, the largest information gain of T observations, in nats: ``RateGain(...).at(T)``, or the last,
            as a float, of ``greedy_information_gain(...)``.
    """
    horizon = checks.positive_integer("horizon", horizon)
    complexity = checks.positive("gain", gain)
    budget = 1.0 if variation_budget is None else checks.non_negative("variation_budget", variation_budget)
    # Compared before dividing: a budget near 0 would overflow.
    if complexity**0.5 >= horizon * budget:
        return horizon
    return max(1, math.floor(complexity**0.25 * math.sqrt(horizon / budget) + 0.5))


def window_size(horizon: int, variation_budget: float | None = None, *, gain: float) -> int:
    """Return how many of the latest observations SW-GP-UCB lets count: w, by the formula of ``restart_period``.

    Arguments are those of ``restart_period``. Differs from Zhou & Shroff, CISS 2021, Algorithm 2, which keeps the
    observations from t − w to t, that are w + 1; here w are w.
    """
    return restart_period(horizon, variation_budget, gain=gain)
