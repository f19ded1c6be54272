"""Why rewards are not what was predicted: a function that moves, larger noise, another level, or nobody can tell."""

import math
from typing import NamedTuple

import numpy as np
import torch

from torch_kbandits.bandit.config import BanditConfig
from torch_kbandits.bandit.state import State
from torch_kbandits.numerics.gram import gram

#: So many rewards, the latest, are compared; and by so many nats they have to be more probable with a cause.
_MOST, _CLEAR = 200, 3.0
#: Noise variances that are compared, times λ; and horizons, times the time that they span.
_NOISES, _HORIZONS = np.geomspace(1.0, 64.0, 25), 2.0 ** np.arange(2.0, -8.0, -1.0)
#: The prior variance of a level that all rewards share, in those of the function.
_LEVEL = 10.0


class Causes(NamedTuple):
    """What rewards say: the noise variance in λ, and the share ε of the function that is new in a unit of time.

    They are 1 and 0 where no other number is clear; and so a level beside the prior mean is False.
    """

    noise: float
    forgetting: float
    level: bool


@torch.no_grad()
def causes_of(config: BanditConfig, state: State) -> Causes:
    """Compare how probable the rewards since the last restart are under a function that moves, and larger noise.

    Rewards are N(m, K (1 − ε)^(|t − t'| / 2) + v + c Λ), m the prior mean, v the variance of a level that is not known
    and Λ the diagonal of λ, or of the noise that was told; ε and c are the most probable of a grid. A cause is clear if
    without it, at the best of the others, rewards are less probable by three nats or more.

    Cost: O(n³) for each of eleven ε, n at most 200 of the rewards.
    """
    spec, ledger = state.spec, state.ledger
    told = spec.counted(ledger.history_since(ledger.num_forgotten).rewarded)
    told = told.rows(slice(-_MOST, None))
    times = (told.rounds if told.times is None else told.times).double().cpu().numpy()
    K = gram(config.kernel_under(spec.memory, spec.prior.kernel), told.X).double().cpu().numpy()
    noise = torch.as_tensor(told.noise_or(spec.prior.regularization), dtype=torch.float64).cpu().numpy()
    whitened = np.broadcast_to(noise**-0.5, times.shape)
    Y = whitened * (told.Y - spec.expected(told.X)).double().cpu().numpy()
    apart, level = np.abs(times[:, None] - times), _LEVEL * K.diagonal().mean()
    shares = [0.0, *(-math.expm1(-2.0 / horizon) for horizon in _HORIZONS * apart.max() if horizon > 0.0)]

    def densities(share: float, level: float) -> np.ndarray:
        """Return the log densities of rewards in units of their noise under each c, (c,)."""
        covariance = K * (1.0 - share) ** (0.5 * apart) + level
        variances, directions = np.linalg.eigh(whitened[:, None] * covariance * whitened)
        total = np.maximum(variances, 0.0)[:, None] + _NOISES
        return -0.5 * ((directions.T @ Y)[:, None] ** 2 / total + np.log(total)).sum(0)

    found = np.stack([densities(share, level) for share in shares])
    least = found.max() - _CLEAR
    found = found if found[0].max() < least else found[:1]
    found = found if found[:, 0].max() < least else found[:, :1]
    moved, louder = np.unravel_index(found.argmax(), found.shape)
    without = densities(shares[moved], 0.0)[louder]
    return Causes(float(_NOISES[louder]), shares[moved], bool(without < found.max() - _CLEAR))
