"""What a dictionary rule is, and what it may know."""

from abc import abstractmethod
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

import torch
from botorch.models.utils.inducing_point_allocators import (
    InducingPointAllocator,
    QualityFunction,
    UnitQualityFunction,
)
from gpytorch.kernels import Kernel
from gpytorch.module import Module
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import EmptyHistoryError
from torch_kbandits.numerics.gram import prior_variance


@dataclass(frozen=True, eq=False)
class PlayedPoints:
    """What a dictionary rule may know of the points played so far.

    Attributes:
        points: (..., u, d); in a bandit the unique played points in order of first play. Leading dimensions are batch
            dimensions: a rule picks the same rows in every batch member.
        kernel: the prior covariance.
        noise: noise variance of one observation at each point, (..., u) or broadcastable to it.
        counts: how often each point was played, (u,).
        leverage_scores: variance divided by noise under the previous round's posterior, (u,), where there is one; a
            rule that needs scores and finds None estimates them itself.
        in_dictionary: (u,) bool, which points the current dictionary holds; None where it is not known.
        new_counts: how often each point was played since the current dictionary was chosen, (u,), at most ``counts``;
            None where it is not known.
        numbers: (u,) whole numbers from 0 that stay with a point, also where others are forgotten; None: its position.
        max_size: how many points of the dictionary will be kept; None for all.
        memory: what a rule keeps from round to round to be faster; what it chooses must not depend on it.
    """

    points: Tensor
    kernel: Kernel
    noise: Tensor
    counts: Tensor
    leverage_scores: Tensor | None = None
    in_dictionary: Tensor | None = None
    new_counts: Tensor | None = None
    numbers: Tensor | None = None
    max_size: int | None = None
    memory: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def size(self) -> int:
        """Number u of points."""
        return self.points.shape[-2]

    def require_some(self) -> None:
        """Raise EmptyHistoryError if there is no point to choose from."""
        if self.size == 0:
            raise EmptyHistoryError("A dictionary is chosen from played points and nothing was played yet: tell first.")

    def in_double(self) -> "PlayedPoints":
        """Return the same, with points and kernel in double precision."""
        if self.points.dtype == torch.float64:
            return self
        return replace(self, points=self.points.double(), kernel=deepcopy(self.kernel).double())


class Selection(NamedTuple):
    """The dictionary that a rule chose.

    Attributes:
        points: (..., m, d), m >= 1.
        probabilities: (m,) in [0, 1], the probability with which each point was included.
        indices: (m,) rows of ``PlayedPoints.points``, ascending, or None if the points were not chosen from it.
        weights: (m,) in double precision, what an online rule knows of each point, see ``OnlineState``; else None.
    """

    points: Tensor
    probabilities: Tensor
    indices: Tensor | None
    weights: Tensor | None = None

    @classmethod
    def rows(cls, played: PlayedPoints, indices: Tensor, probabilities: Tensor | None = None) -> "Selection":
        """Select rows of the played points; without probabilities they were certain."""
        indices, order = indices.to(played.points.device).sort()
        if probabilities is None:
            probabilities = played.points.new_ones(len(indices))
        return cls(played.points[..., indices, :], probabilities[order], indices)


class DictionaryRule(InducingPointAllocator):
    """Chooses which played points span the Nyström approximation.

    A rule is a value: it holds settings and no state; equal generators give equal dictionaries. Every rule is a BoTorch
    ``InducingPointAllocator`` as well, for use with ``SingleTaskVariationalGP(inducing_point_allocator=rule)``.
    """

    #: Whether the rule draws the same numbers in every round: then each round must hand it an equal generator.
    is_coupled: bool = False

    #: Whether the rule decides about each point once, when it is played; see ``OnlineRule``.
    is_online: bool = False

    #: Whether it leaves nothing out, so that the posterior is the exact one.
    spans_all: bool = False

    #: The size from which on a dictionary may not grow, however much it leaves unspanned; None where it always may.
    full_at: int | None = None

    @abstractmethod
    def select(self, played: PlayedPoints, generator: torch.Generator | None = None) -> Selection:
        """Choose a dictionary of at least one of the played points, by what is known of them.

        Args:
            played: the points; ``EmptyHistoryError`` if there are none.
            generator: the only source of randomness; None is torch's global generator.
        """

    @abstractmethod
    def select_sized(self, played: PlayedPoints, size: int, generator: torch.Generator | None = None) -> Selection:
        """Choose a dictionary of ``size`` points (fewer only if fewer were played), by the same criterion."""

    def allocate_inducing_points(
        self, inputs: Tensor, covar_module: Module, num_inducing: int, input_batch_shape: torch.Size | Sequence[int]
    ) -> Tensor:
        """Choose ``num_inducing`` of the inputs (..., n, d), as BoTorch's sparse models ask for them.

        The members of a batch share the rows chosen. Noise variances are not part of BoTorch's contract; rules that
        need one use 1e-2 of the mean prior variance. Randomness is torch's global generator.
        """
        inputs = checks.points("inputs", inputs)
        num_inducing = checks.positive_integer("num_inducing", num_inducing)
        kernel = cast(Kernel, covar_module).to(inputs.device)
        inputs = inputs.expand(*input_batch_shape, *inputs.shape[-2:])
        with torch.no_grad():
            noise = 1e-2 * prior_variance(kernel, inputs).mean()
            counts = inputs.new_ones(inputs.shape[-2])
            played = PlayedPoints(inputs, kernel, noise.expand(inputs.shape[-2]), counts)
            return self.select_sized(played, num_inducing).points

    def _get_quality_function(self) -> QualityFunction:
        """Return the unit quality: BoTorch's base class asks for one, and these rules weigh all inputs alike."""
        return UnitQualityFunction()
