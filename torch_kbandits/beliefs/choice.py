"""Which belief meets which candidates: the one place that dispatches."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, TypeVar, cast

import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from torch import Tensor

from torch_kbandits.beliefs.arms_course import ArmsCourse
from torch_kbandits.beliefs.base import Belief
from torch_kbandits.beliefs.box_search import BoxSearch
from torch_kbandits.beliefs.counted import CountedBelief
from torch_kbandits.beliefs.course import Course
from torch_kbandits.beliefs.covariance_course import CovarianceCourse
from torch_kbandits.beliefs.covariances import CovarianceTable
from torch_kbandits.beliefs.cube_search import CubeSearch
from torch_kbandits.beliefs.features import FeatureTable
from torch_kbandits.beliefs.filtered import FilteredArms, filter_rate
from torch_kbandits.beliefs.joint_course import JointCourse
from torch_kbandits.beliefs.posterior_belief import Place, PosteriorBelief
from torch_kbandits.beliefs.table import TableBelief
from torch_kbandits.beliefs.window_course import WindowCourse
from torch_kbandits.candidates import Arms, Box, Candidates, Configurations, ContextualActions, Timed, UnitCube
from torch_kbandits.candidates.timed import untimed
from torch_kbandits.dictionaries import DictionaryRule, OnlineRule
from torch_kbandits.errors import InputError
from torch_kbandits.memory import Memory
from torch_kbandits.memory.base import leaves_in_order
from torch_kbandits.numerics.random import tie_rank

T = TypeVar("T", bound=TableBelief)

#: Bytes that the features of points played in a box may occupy.
_ROW_MEMORY = 2**30

#: Up to this many arms an exact posterior is kept as the covariance of all of them; up to half as many where
#: observations age, so that it is computed afresh in every round.
COVARIANCE_LIMIT = 512


@dataclass(frozen=True, eq=False)
class Terms:
    """What a belief is to be, whatever may be played.

    Attributes:
        kernel: the prior covariance.
        regularization: λ.
        seed: addresses what is drawn once.
        exact: whether the posterior is the exact one.
        online: whether the dictionary rule decides about each point once, when it is told.
        memory: which observations count at a time; None where all do for ever.
        mean: the prior mean; None for zero.
        full_at: the size from which on a dictionary may not grow, and its residual is learned; None for none.
    """

    kernel: Kernel
    regularization: float
    seed: int
    exact: bool
    online: bool = False
    memory: Memory | None = None
    mean: Mean | None = None
    full_at: int | None = None

    def remembered(self, table: T) -> T | CountedBelief:
        """Return a table, of before any observation, under the memory."""
        if self.memory is None and not self.online:
            return table
        return CountedBelief(table, self.memory, online=self.online)


@singledispatch
def belief_over(candidates: Candidates, terms: Terms) -> Belief:
    """Return the belief before any observation. ``belief_over.register`` takes that of candidates of your own.

    Args:
        candidates: what may be played.
        terms: what the belief is to be.

    Raises:
        InputError: if nothing is known of such candidates, or they do not go with the memory.
    """
    raise InputError(
        f"There is no belief about {type(candidates).__name__}: give Arms, a Box or ContextualActions, or register one "
        "with torch_kbandits.beliefs.belief_over.register."
    )


@belief_over.register
def _over_arms(candidates: Arms, terms: Terms) -> Belief:
    """Return a table: of covariances if that is exact and small, else of features."""
    source = candidates.source
    rank = tie_rank(len(source), terms.seed)
    return _posterior(source.block(0, 0), terms, Place(source, tie_rank=rank))


@belief_over.register
def _over_a_box(candidates: Box, terms: Terms) -> Belief:
    """Return a posterior that is searched by gradients."""
    search = BoxSearch.of(candidates, terms.seed)
    return _posterior(search.probes, terms, Place(search=search))


@belief_over.register(UnitCube)
@belief_over.register(Configurations)
def _over_a_cube(candidates: UnitCube | Configurations, terms: Terms) -> Belief:
    """Return a posterior that is searched by gradients and by exchanges."""
    if candidates.is_contextual:
        return _over_joint_points(cast(Configurations, candidates), terms)
    search = _search_on(candidates, terms)
    return _posterior(cast(Tensor, search.probes), terms, Place(search=search))


@belief_over.register(ContextualActions)
@belief_over.register(Timed)
def _over_joint_points(candidates: ContextualActions | Timed | Configurations, terms: Terms) -> Belief:
    """Return a posterior over joint points. Arms that know the time keep the order in which ties are broken."""
    kind, example = untimed(candidates), candidates.example
    rank = tie_rank(len(kind.source), terms.seed).to(example.device) if isinstance(kind, Arms) else None
    search = _search_on(kind, terms, in_contexts=True) if isinstance(kind, (UnitCube, Configurations)) else None
    joint = _posterior(example, terms, Place(search=search, tie_rank=rank))
    rate = filter_rate(terms.kernel) if terms.exact and keeps_all(terms.memory) and are_few(kind) else None
    return joint if rate is None else FilteredArms(cast(Arms, kind).source, rate, joint, terms.seed)


def course_of(
    belief: Belief,
    rule: DictionaryRule | None,
    generator: Callable[[int], torch.Generator | None],
    uniform: Callable[[int], float],
) -> Course | None:
    """Return a belief that was told something in the course of plain rounds; None where it has no such form.

    Args:
        belief: without a memory, or with one of which observations leave in order, and whose times are rounds.
        rule: which played points span the approximation; None for the exact posterior.
        generator: all randomness of the rule, given how many rewards were told before.
        uniform: the first that it draws, likewise.
    """
    if type(belief) is CovarianceTable:
        return CovarianceCourse.of(belief)
    if type(belief) is FeatureTable and rule is not None:
        return ArmsCourse.of(belief, rule, generator)
    if type(belief) is CountedBelief and (memory := leaves_in_order(belief.memory)) is not None:
        return WindowCourse.of(belief, memory)
    if type(belief) is CountedBelief and rule is not None and rule.is_online:
        return JointCourse.of(belief, cast(OnlineRule, rule), generator, uniform)
    return None


def are_few(candidates: Candidates) -> bool:
    """Say whether candidates are arms so few, in memory and in double precision, that their covariance is kept."""
    if not isinstance(candidates, Arms) or candidates.source.tensor is None:
        return False
    return candidates.source.dtype == torch.float64 and 0 < len(candidates.source) <= COVARIANCE_LIMIT


def keeps_all(memory: Memory | None) -> bool:
    """Say whether all observations count for ever with noise λ, whatever the prior says of them."""
    return memory is None or (memory.keeps_noise and memory.num_latest is None and not memory.forgets)


def _search_on(candidates: UnitCube | Configurations, terms: Terms, *, in_contexts: bool = False) -> CubeSearch:
    cube = candidates.space if isinstance(candidates, Configurations) else candidates
    return CubeSearch.of(cube, terms.seed, in_contexts=in_contexts)


def _posterior(example: Tensor, terms: Terms, place: Place) -> PosteriorBelief:
    """Return the posterior before any observation; an example says how large prior variances are."""
    words: dict[str, Any] = {"exact": terms.exact, "online": terms.online, "memory": terms.memory, "mean": terms.mean}
    return PosteriorBelief(example, terms.kernel, terms.regularization, place, full_at=terms.full_at, **words)
