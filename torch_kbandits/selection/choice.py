"""Which surrogate meets which candidates: the one place that dispatches."""

from functools import singledispatch
from typing import cast

import torch
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from torch_kbandits.candidates import Arms, Box, Candidates, Configurations, ContextualActions, Timed, UnitCube
from torch_kbandits.candidates.timed import untimed
from torch_kbandits.errors import InputError
from torch_kbandits.memory import Stationary
from torch_kbandits.numerics.random import generator_for, seed_for, tie_rank
from torch_kbandits.selection.base import PosteriorConfig, Surrogate
from torch_kbandits.selection.composite import CompositeSurrogate
from torch_kbandits.selection.filtered import FilteredArms, filter_rate
from torch_kbandits.selection.gaussian import GaussianSurrogate
from torch_kbandits.selection.search import SearchConfig

#: Up to this many arms the covariance of all of them is kept under a prior on time that forgets at a constant rate.
COVARIANCE_LIMIT = 512
_PROBES = 512  # points at which the largest prior variance, and the largest change of a variance, are sought


@singledispatch
def surrogate_over(candidates: Candidates, config: PosteriorConfig) -> Surrogate:
    """Return the surrogate before any observation. ``surrogate_over.register`` takes that of candidates of your own.

    Raises:
        InputError: if nothing is known of such candidates.
    """
    raise InputError(
        f"There is no surrogate over {type(candidates).__name__}: give Arms, a Box or ContextualActions, or register "
        "one with torch_kbandits.selection.surrogate_over.register."
    )


@surrogate_over.register
def _over_arms(candidates: Arms, config: PosteriorConfig) -> Surrogate:
    """Return a posterior that the arms follow."""
    source = candidates.source
    rank = tie_rank(len(source), config.seed).to(source.device)
    return GaussianSurrogate(source.block(0, 0).cpu(), config, SearchConfig(source, rank))


@surrogate_over.register
def _over_a_box(candidates: Box, config: PosteriorConfig) -> Surrogate:
    """Return a posterior that is searched by gradients; its corners and a Sobol set stand for all points."""
    bounds, seed = candidates.bounds, seed_for(config.seed, 0, "sobol") % 2**31
    probes = torch.cat([bounds, draw_sobol_samples(bounds, n=_PROBES, q=1, seed=0).squeeze(-2)])
    return GaussianSurrogate(probes, config, SearchConfig(seed=seed, probes=probes))


@surrogate_over.register(UnitCube)
@surrogate_over.register(Configurations)
@surrogate_over.register(ContextualActions)
@surrogate_over.register(Timed)
def _over_points(candidates: Candidates, config: PosteriorConfig) -> Surrogate:
    """Return a posterior over a cube, searched by gradients and exchanges, or over points that know more.

    Arms that know the time keep the order in which ties are broken.
    """
    kind, search, example = untimed(candidates), SearchConfig(), candidates.example
    if isinstance(kind, Arms):
        search = SearchConfig(tie_rank=tie_rank(len(kind.source), config.seed))
    elif isinstance(kind, (UnitCube, Configurations)):
        cube = kind.space if isinstance(kind, Configurations) else kind
        probes = None if candidates.is_contextual else cube.sample(_PROBES, generator_for(0, 0, "probes"))
        search = SearchConfig(seed=seed_for(config.seed, 0, "sobol"), probes=probes)
        example = example if probes is None else probes
    memory = config.memory or Stationary()
    counts_all = memory.keeps_noise and memory.num_latest is None and not memory.forgets
    is_filtered = candidates.is_timed and config.dictionary is None and counts_all and are_few(kind)
    rate = filter_rate(config.kernel) if is_filtered else None
    if rate is None:
        return GaussianSurrogate(example, config, search)
    joint = GaussianSurrogate(example, config, search)
    return FilteredArms(cast(Tensor, cast(Arms, kind).source.tensor).cpu(), rate, joint)


def over_arms(surrogate: Surrogate, candidates: Candidates, kept: Tensor, seed: int) -> Surrogate:
    """Return what is known over other arms: those of rows kept (k,) of the ones it is over, then others, if any."""
    own = untimed(candidates)
    if isinstance(surrogate, CompositeSurrogate):
        return surrogate._with(over_arms(part, candidates, kept, seed) for part in surrogate.parts)
    if not isinstance(own, Arms):
        return surrogate  # it is over what a round brings
    rank = tie_rank(len(own.source), seed).to(own.source.device)
    if not isinstance(surrogate, FilteredArms):
        return cast(GaussianSurrogate, surrogate).over(own.source, rank, kept)
    if not are_few(own):
        return surrogate.joint.over(own.source, rank, kept)
    return surrogate.over(cast(Tensor, own.source.tensor), surrogate._empty.over(own.source, rank, kept))


def are_few(candidates: Candidates) -> bool:
    """Say whether candidates are arms so few, in memory and in double precision, that their covariance is kept."""
    if not isinstance(candidates, Arms) or candidates.source.tensor is None:
        return False
    return candidates.source.dtype == torch.float64 and 0 < len(candidates.source) <= COVARIANCE_LIMIT
