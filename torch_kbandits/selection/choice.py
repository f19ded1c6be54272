"""Which surrogate meets which candidates: the one place that dispatches."""

from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any, cast

import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from torch import Tensor

from torch_kbandits.candidates import Arms, Box, Candidates, Configurations, ContextualActions, Timed, UnitCube
from torch_kbandits.candidates.timed import untimed
from torch_kbandits.errors import InputError
from torch_kbandits.memory import Memory
from torch_kbandits.numerics.random import tie_rank
from torch_kbandits.selection.base import Surrogate
from torch_kbandits.selection.filtered import FilteredArms, filter_rate
from torch_kbandits.selection.gaussian import GaussianSurrogate
from torch_kbandits.selection.search import BoxSearch, CubeSearch, SearchConfig

#: Up to this many arms the covariance of all of them is kept under a prior on time that forgets at a constant rate.
COVARIANCE_LIMIT = 512


@dataclass(frozen=True, eq=False)
class PosteriorConfig:
    """What a surrogate is to be, whatever may be played.

    Attributes:
        kernel: the prior covariance.
        regularization: λ.
        seed: addresses what is drawn once.
        exact: whether the posterior is the exact one.
        online: whether the dictionary rule decides about each point once, when it is told.
        memory: which observations count at a time; None where all do for ever.
        mean: the prior mean; None for zero.
        full_at: the size from which on a dictionary may not grow, and its residual is learned; None for none.
        outcomes: of outcomes that differ from the reward in their means alone, the number and the prior mean.
    """

    kernel: Kernel
    regularization: float
    seed: int
    exact: bool
    online: bool = False
    memory: Memory | None = None
    mean: Mean | None = None
    full_at: int | None = None
    outcomes: tuple[tuple[int, Mean | None], ...] = ()


@singledispatch
def surrogate_over(candidates: Candidates, terms: PosteriorConfig) -> Surrogate:
    """Return the surrogate before any observation. ``surrogate_over.register`` takes that of candidates of your own.

    Args:
        candidates: what may be played.
        terms: what the surrogate is to be.

    Raises:
        InputError: if nothing is known of such candidates, or they do not go with the memory.
    """
    raise InputError(
        f"There is no surrogate over {type(candidates).__name__}: give Arms, a Box or ContextualActions, or register "
        "one with torch_kbandits.selection.surrogate_over.register."
    )


@surrogate_over.register
def _over_arms(candidates: Arms, terms: PosteriorConfig) -> Surrogate:
    """Return a posterior that the arms follow."""
    source = candidates.source
    rank = tie_rank(len(source), terms.seed).to(source.device)
    return _posterior(source.block(0, 0).cpu(), terms, SearchConfig(source, tie_rank=rank))


@surrogate_over.register
def _over_a_box(candidates: Box, terms: PosteriorConfig) -> Surrogate:
    """Return a posterior that is searched by gradients."""
    search = BoxSearch.of(candidates, terms.seed)
    return _posterior(search.probes, terms, SearchConfig(search=search))


@surrogate_over.register(UnitCube)
@surrogate_over.register(Configurations)
def _over_a_cube(candidates: UnitCube | Configurations, terms: PosteriorConfig) -> Surrogate:
    """Return a posterior that is searched by gradients and by exchanges."""
    if candidates.is_contextual:
        return _over_joint_points(cast(Configurations, candidates), terms)
    search = _search_on(candidates, terms)
    return _posterior(cast(Tensor, search.probes), terms, SearchConfig(search=search))


@surrogate_over.register(ContextualActions)
@surrogate_over.register(Timed)
def _over_joint_points(candidates: ContextualActions | Timed | Configurations, terms: PosteriorConfig) -> Surrogate:
    """Return a posterior over joint points. Arms that know the time keep the order in which ties are broken."""
    kind, example = untimed(candidates), candidates.example
    rank = tie_rank(len(kind.source), terms.seed) if isinstance(kind, Arms) else None
    search = _search_on(kind, terms, in_contexts=True) if isinstance(kind, (UnitCube, Configurations)) else None
    rate = filter_rate(terms.kernel) if terms.exact and keeps_all(terms.memory) and are_few(kind) else None
    if rate is None:
        return _posterior(example, terms, SearchConfig(search=search, tie_rank=rank))
    joint = _posterior(example, replace(terms, outcomes=()), SearchConfig(search=search, tie_rank=rank))
    return FilteredArms(cast(Tensor, cast(Arms, kind).source.tensor).cpu(), rate, joint)


def are_few(candidates: Candidates) -> bool:
    """Say whether candidates are arms so few, in memory and in double precision, that their covariance is kept."""
    if not isinstance(candidates, Arms) or candidates.source.tensor is None:
        return False
    return candidates.source.dtype == torch.float64 and 0 < len(candidates.source) <= COVARIANCE_LIMIT


def keeps_all(memory: Memory | None) -> bool:
    """Say whether all observations count for ever with noise λ, whatever the prior says of them."""
    return memory is None or (memory.keeps_noise and memory.num_latest is None and not memory.forgets)


def _search_on(
    candidates: UnitCube | Configurations, terms: PosteriorConfig, *, in_contexts: bool = False
) -> CubeSearch:
    cube = candidates.space if isinstance(candidates, Configurations) else candidates
    return CubeSearch.of(cube, terms.seed, in_contexts=in_contexts)


def _posterior(example: Tensor, terms: PosteriorConfig, place: SearchConfig) -> GaussianSurrogate:
    """Return the posterior before any observation; an example says how large prior variances are."""
    words: dict[str, Any] = {"exact": terms.exact, "online": terms.online, "memory": terms.memory, "mean": terms.mean}
    words |= {"full_at": terms.full_at, "outcomes": terms.outcomes}
    return GaussianSurrogate(example, terms.kernel, terms.regularization, place, **words)
