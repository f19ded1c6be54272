"""What a dictionary rule is, and what it may know."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any, NamedTuple, cast

import torch
from botorch.models.utils.inducing_point_allocators import (
    InducingPointAllocator,
    QualityFunction,
    UnitQualityFunction,
)
from gpytorch.kernels import Kernel
from gpytorch.module import Module
from torch import Generator, Tensor

from torch_kbandits import checks
from torch_kbandits.errors import EmptyHistoryError, InputError
from torch_kbandits.numerics.gram import prior_variance


@dataclass(frozen=True, eq=False)
class PlayedPoints:
    """What a dictionary rule may know of the u points played so far, in a bandit each once, in order of first play.

    Leading dimensions are batch dimensions: a rule picks the same rows in every batch member.
    """

    points: Tensor  #: (..., u, d).
    kernel: Kernel  #: The prior covariance.
    noise: Tensor  #: The noise variance of one observation at each point, (..., u) or broadcastable to it.
    counts: Tensor  #: How often each point was played, (u,).
    leverage_scores: Tensor | None = None  #: Variance over noise under the last posterior, (u,); None: to be estimated.
    in_dictionary: Tensor | None = None  #: Which points the current dictionary holds, (u,) bool, where that is known.
    new_counts: Tensor | None = None  #: Plays since the current dictionary was chosen, (u,), where that is known.
    numbers: Tensor | None = None  #: Whole numbers from 0 that stay with a point, (u,); None for its position.
    max_size: int | None = None  #: How many points of the dictionary will be kept; None for all.
    memory: dict[Any, Any] = field(default_factory=dict, repr=False)  #: Of a rule, to be faster; changes no choice.

    @property
    def size(self) -> int:
        """Number u of points."""
        return self.points.shape[-2]

    def require_some(self) -> None:
        """Raise EmptyHistoryError if there is no point to choose from."""
        if self.size == 0:
            raise EmptyHistoryError("A dictionary is chosen from played points and nothing was played yet: tell first.")


class Selection(NamedTuple):
    """The dictionary that a rule chose."""

    points: Tensor  #: (..., m, d), m >= 1.
    probabilities: Tensor  #: The probability with which each point was included, (m,).
    indices: Tensor | None  #: Rows of ``PlayedPoints.points``, (m,), ascending; None if not chosen from these.
    weights: Tensor | None = None  #: What an online rule knows of each point, (m,), see ``OnlineState``; else None.

    @classmethod
    def rows(cls, played: PlayedPoints, indices: Tensor, probabilities: Tensor | float = 1.0) -> "Selection":
        """Select rows of the played points, each with its probability or all with the same."""
        indices, order = indices.to(played.points.device).sort()
        if not isinstance(probabilities, Tensor):
            probabilities = played.points.new_full((len(indices),), probabilities)
        return cls(played.points[..., indices, :], probabilities[order], indices)


class DictionaryRule(InducingPointAllocator):
    """Chooses which played points span the Nyström approximation.

    A rule is a value: it holds settings and no state; equal generators give equal dictionaries. Every rule is a BoTorch
    ``InducingPointAllocator`` as well, for use with ``SingleTaskVariationalGP(inducing_point_allocator=rule)``.
    """

    is_coupled: bool = False  #: Whether it draws the same numbers in every round, if handed equal generators.
    is_online: bool = False  #: Whether it decides about each point once, when it is played; see ``OnlineRule``.
    spans_all: bool = False  #: Whether it leaves nothing out, so that the posterior is the exact one.
    full_at: int | None = None  #: The size from which on a dictionary may not grow, whatever it leaves unspanned.

    @abstractmethod
    def select(self, played: PlayedPoints, generator: Generator | None = None) -> Selection:
        """Choose a dictionary of at least one of the played points, by what is known of them.

        Args:
            played: the points; ``EmptyHistoryError`` if there are none.
            generator: the only source of randomness; None is torch's global generator.
        """

    def allocate_inducing_points(
        self, inputs: Tensor, covar_module: Module, num_inducing: int, input_batch_shape: torch.Size | Sequence[int]
    ) -> Tensor:
        """Choose ``num_inducing`` of the inputs (..., n, d), as BoTorch's sparse models ask for them.

        That is also the ``size`` of a rule that has one. Of more points that a rule chose some are drawn at random, to
        fewer others are added. BoTorch has no noise variance; rules that need one use 1e-2 of the mean prior variance.
        """
        rule = replace(self, size=num_inducing) if is_dataclass(self) and hasattr(self, "size") else self
        num_inducing, inputs = checks.positive_integer("num_inducing", num_inducing), checks.points("inputs", inputs)
        kernel = cast(Kernel, covar_module).to(inputs.device)
        inputs = inputs.expand(*input_batch_shape, *inputs.shape[-2:])
        with torch.no_grad():
            noise, counts = 1e-2 * prior_variance(kernel, inputs).mean(), inputs.new_ones(inputs.shape[-2])
            chosen = rule.select(PlayedPoints(inputs, kernel, noise, counts))
        if chosen.indices is None:
            if (m := chosen.points.shape[-2]) != num_inducing:
                raise InputError(f"The dictionary has {m} points and {num_inducing} were asked for.")
            return chosen.points
        rows = torch.arange(inputs.shape[-2])
        is_chosen = torch.isin(rows, chosen.indices.cpu())
        shuffled = [part[torch.randperm(len(part), device="cpu")] for part in (rows[is_chosen], rows[~is_chosen])]
        return inputs[..., torch.cat(shuffled)[:num_inducing].sort().values, :]

    def _get_quality_function(self) -> QualityFunction:
        """Return the unit quality: BoTorch's base class asks for one, and these rules weigh all inputs alike."""
        return UnitQualityFunction()
