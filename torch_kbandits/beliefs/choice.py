"""Which belief meets which candidates: the one place that dispatches."""

from functools import singledispatch

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.beliefs.base import Belief
from torch_kbandits.beliefs.box_search import BoxSearch
from torch_kbandits.beliefs.covariances import CovarianceTable
from torch_kbandits.beliefs.features import FeatureTable
from torch_kbandits.beliefs.forgetting import ForgettingTable
from torch_kbandits.beliefs.model_belief import ModelBelief
from torch_kbandits.beliefs.nystrom import NystromBelief
from torch_kbandits.candidates import Arms, Box, Candidates, ContextualActions, Timed
from torch_kbandits.candidates.timed import untimed
from torch_kbandits.errors import InputError
from torch_kbandits.memory import Memory
from torch_kbandits.numerics.ties import tie_rank

#: Bytes that the features of points played in a box may occupy.
_ROW_MEMORY = 2**30

#: Up to this many arms an exact posterior is kept as the covariance of all of them.
COVARIANCE_LIMIT = 512


@singledispatch
def belief_over(
    candidates: Candidates,
    kernel: Kernel,
    regularization: float,
    seed: int,
    *,
    exact: bool,
    online: bool = False,
    memory: Memory | None = None,
) -> Belief:
    """Return the belief before any observation. ``belief_over.register`` takes that of candidates of your own.

    Args:
        candidates: what may be played.
        kernel: the prior covariance.
        regularization: λ.
        seed: addresses what is drawn once.
        exact: whether the posterior is the exact one.
        online: whether the dictionary rule decides about each point once, when it is told.
        memory: which observations count at a time; None where all do for ever.

    Raises:
        InputError: if nothing is known of such candidates, or they do not go with the memory.
    """
    raise InputError(
        f"There is no belief about {type(candidates).__name__}: give Arms, a Box or ContextualActions, or register one "
        "with torch_kbandits.beliefs.belief_over.register."
    )


@belief_over.register
def _over_arms(
    candidates: Arms,
    kernel: Kernel,
    regularization: float,
    seed: int,
    *,
    exact: bool,
    online: bool = False,
    memory: Memory | None = None,
) -> Belief:
    """Return a table: of covariances if that is exact and small, else of features.

    With a memory under which observations age, or for an exact posterior on few arms with any memory, it is no
    table but a model that is asked about all arms. Draws at arms that are not in memory need a table.
    """
    source = candidates.source
    is_small = exact and len(source) <= COVARIANCE_LIMIT and source.dtype == torch.float64
    if memory is None and is_small:
        return CovarianceTable(source, kernel, regularization, seed)
    if memory is None or (memory.keeps_noise and not (is_small and source.tensor is not None)):
        table = FeatureTable(source, kernel, regularization, seed, candidates.column_memory, exact=exact)
        return table if memory is None and not online else ForgettingTable(table, memory, online=online)
    example = candidates.example if source.tensor is None else source.tensor
    words = {"exact": exact, "online": online, "memory": memory}
    return ModelBelief(example, kernel, regularization, **words, tie_rank=tie_rank(len(source), seed))


@belief_over.register
def _over_a_box(
    candidates: Box,
    kernel: Kernel,
    regularization: float,
    seed: int,
    *,
    exact: bool,
    online: bool = False,
    memory: Memory | None = None,
) -> Belief:
    """Return a posterior that is searched by gradients."""
    search = BoxSearch.of(candidates, seed)
    words = {"exact": exact, "online": online, "memory": memory, "search": search}
    return _over_points(search.probes, kernel, regularization, _ROW_MEMORY, **words)


@belief_over.register(ContextualActions)
@belief_over.register(Timed)
def _over_joint_points(
    candidates: ContextualActions | Timed,
    kernel: Kernel,
    regularization: float,
    seed: int,
    *,
    exact: bool,
    online: bool = False,
    memory: Memory | None = None,
) -> Belief:
    """Return a posterior over joint points. Arms that know the time keep the order in which ties are broken."""
    kind = untimed(candidates)
    rank = tie_rank(len(kind.source), seed) if isinstance(kind, Arms) else None
    words = {"exact": exact, "online": online, "memory": memory, "tie_rank": rank}
    return _over_points(candidates.example, kernel, regularization, candidates.row_memory, **words)


def _over_points(
    example: Tensor,
    kernel: Kernel,
    regularization: float,
    row_memory: int,
    *,
    exact: bool,
    online: bool,
    memory: Memory | None,
    tie_rank: Tensor | None = None,
    search: BoxSearch | None = None,
) -> Belief:
    """Return the posterior over points that are not listed: a model if it is exact or observations age."""
    if exact or (memory is not None and not memory.keeps_noise):
        words = {"exact": exact, "online": online, "memory": memory, "tie_rank": tie_rank, "search": search}
        return ModelBelief(example, kernel, regularization, **words)
    words = {"online": online, "memory": memory, "tie_rank": tie_rank, "search": search, "row_memory": row_memory}
    return NystromBelief(example, kernel, regularization, **words)
