"""What is known of plays that failed: how likely points are to fail, and which failed last."""

import torch

from torch_kbandits.bandit.config import BanditConfig, SurrogateSpec
from torch_kbandits.dictionaries import Selection
from torch_kbandits.observations.history import History
from torch_kbandits.observations.ledger import Ledger
from torch_kbandits.priors import Prior
from torch_kbandits.selection import FeasibilityModel

#: The probability of failure where nothing was played.
_BASE_RATE = 0.1

#: The noise variance of a failure, in prior variances of the function that it is of: a point that failed in its only
#: play fails again with 0.96, one that failed in one of two plays with 0.49.
_NOISE = 0.05


def failures_after(
    config: BanditConfig, known: FeasibilityModel | None, ledger: Ledger, new: History, spec: SurrogateSpec, now: float
) -> FeasibilityModel | None:
    """Return what plays that failed say after a round, in which the first did, or one did before."""
    if known is None:
        return failures_in(config, ledger, spec, now)
    surrogate, marked = known.surrogate, _marked(new)
    if len(marked.X):
        generator = config.dictionary_generator(ledger.num_observations - len(new.X))
        surrogate = surrogate.learned(marked, config.dictionary, generator)
    return known.told(new, surrogate.at(now))


def failures_in(
    config: BanditConfig, ledger: Ledger, spec: SurrogateSpec, now: float, dictionary: Selection | None = None
) -> FeasibilityModel | None:
    """Return what the plays of a ledger say that count; None if none failed. Without a dictionary one is chosen."""
    told = ledger.history_since(ledger.num_forgotten)
    if not bool(told.lost.any()):
        return None
    surrogate = config.plain_surrogate(_spec_of_failures(config, spec)).at(now)
    if dictionary is None:
        surrogate = config.learned_in_passes(surrogate, _marked(told), ledger.num_observations)
    else:
        surrogate = surrogate.restored(_marked(told), dictionary)
    return FeasibilityModel(surrogate, config.own_columns, config.candidates.context_dim).told(told, surrogate)


def _marked(told: History) -> History:
    """Return plays that are over, with 1 for those that failed in the place of a reward, 0 for the others."""
    told = told.over
    return told._replace(Y=told.lost.to(told.Y), stages=None, outcomes=None, failed=None)


def _spec_of_failures(config: BanditConfig, spec: SurrogateSpec) -> SurrogateSpec:
    """Return what is taken for true of failures: they vary with points as rewards do."""
    level, memory = _NOISE * float(config.plain_surrogate(spec).kernel_bound()), spec.memory
    none = torch.zeros(1, dtype=torch.float64)
    if not level or (memory is not None and not bool(memory.noise(none, 0.0, level).isfinite())):
        level = spec.prior.regularization
    return config.spec_of(Prior(spec.prior.kernel, level, _BASE_RATE), memory)
