"""Upper confidence bounds over a box that is divided where more is known: adaptive discretisation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Self, cast

import torch
from botorch.models.model import Model
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.nn.functional import one_hot

from torch_kbandits import checks
from torch_kbandits.acquisition.analytic import KernelUCB, UpperConfidenceRule
from torch_kbandits.acquisition.domain import Domain
from torch_kbandits.acquisition.rules import ArmPosterior, OptimisticRule
from torch_kbandits.errors import InputError
from torch_kbandits.models.normal import deviation_of
from torch_kbandits.numerics.gram import gram

#: A side of the box is divided so many times at most; so many cells are divided at once, and evaluated in a choice.
_MOST_DIVISIONS, _AT_ONCE, _MOST_CELLS = 20, 64, 4096


@dataclass(frozen=True)
class AdaptiveDiscretizationRule(OptimisticRule):
    """Maximise the upper confidence bound over the centres of cells of a box, which are smaller where more is known.

    In a cell of depth h with centre c, which is a part of a cell with centre p, the function is at most the index

        I(c) = min(μ(c) + β σ(c), μ(p) + β σ(p) + V_(h−1)) + V_h,   V_h = F max d_k(c, x),

    where x is in the cell and d_k(c, x)² = k(c, c) + k(x, x) − 2 k(c, x).

    From the box as one cell on, the cell of the largest index is divided if β σ(c) <= V_h, else its centre is played.
    Elsewhere than on a box, and as a function, this is ``UpperConfidenceRule``.

    Source: Rando et al., AISTATS 2022, Ada-BKB. Differs: cells are divided afresh in every choice, so that it follows
    from the posterior alone, up to 64 at once; cells whose index is below the best lower bound, which the paper prunes,
    are never divided anyway; V_h is the kernel's own, without constants of its smoothness; the longest side, which is
    divided, is that by d_k.

    Args:
        variation: F > 0: the function differs by at most F d_k between two points; its RKHS norm is such a number. None
            for β, so that V_h is as many deviations of what the prior says of the difference.
        num_parts: N >= 2, of each cell that is divided; with odd N its centre stays one.

    Raises:
        InputError: on a box, if the kernel is not stationary: then cells of one size differ.

    Cost: a prediction for each cell, of which there are 4,096 at most; then the best of these is played.
    """

    variation: float | None = None
    num_parts: int = 3

    uses_width = True
    scores_arms_apart = True
    needs_observations = False

    def __post_init__(self) -> None:
        checks.keep(self, variation=checks.optional(checks.scale), num_parts=checks.positive_integer)
        if self.num_parts < 2:
            raise InputError(f"num_parts must be at least 2, got {self.num_parts}.")

    def on_arms(self, posterior: ArmPosterior, beta: Tensor, seed: int) -> Tensor:
        """Return μ + β σ, (A,)."""
        return UpperConfidenceRule().on_arms(posterior, beta, seed)

    def function(self, model: Model, beta: Tensor, X_pending: Tensor | None, domain: Domain, seed: int) -> KernelUCB:
        """Return a ``KernelUCB``."""
        return UpperConfidenceRule().function(model, beta, X_pending, domain, seed)

    def best_center(
        self, moments: Callable[[Tensor], tuple[Tensor, Tensor]], kernel: Kernel, beta: Tensor, domain: Domain
    ) -> tuple[Tensor, float]:
        """Return the point (1, d) of a box that is played, and the index of its cell.

        Args:
            moments: returns the posterior means and variances at joint points (n, d), each (n,).
            kernel: the prior covariance.
            beta: β, 0-dim.
            domain: the box, with a context or without one.
        """
        sizes = self._sizes(kernel, beta if self.variation is None else self.variation, domain)
        infinity = torch.full_like(sizes.variations[:1], torch.inf)

        def evaluated(centers: Tensor, depths: Tensor, above: Tensor) -> _Cells:
            mean, variance = moments(domain.joint(centers))
            spread, varies = beta * deviation_of(variance), sizes.variations[depths]
            is_divisible = (spread <= varies) & (depths < len(sizes.sides))
            return _Cells(centers, depths, mean + spread, torch.minimum(mean + spread, above) + varies, is_divisible)

        cells, number = evaluated(sizes.center, torch.zeros_like(sizes.sides[:1]), infinity), 1
        while number < _MOST_CELLS:
            closed = cells.index[~cells.is_divisible]
            higher = cells.is_divisible & (cells.index > (closed.max() if len(closed) else -infinity))
            if not bool(higher.any()):
                cells = cells.at(~cells.is_divisible)
                break
            order = torch.where(higher, cells.index, -infinity).argsort(descending=True, stable=True)
            divided = order[: min(_AT_ONCE, int(higher.sum()))]
            parts = evaluated(*sizes.divided(cells.at(divided)))
            cells, number = cells.at(order[len(divided) :]).followed(parts), number + len(parts.index)
        best = int(cells.index.argmax())
        return domain.joint(cells.centers[best, None]), float(cells.index[best])

    def _sizes(self, kernel: Kernel, variation: Tensor | float, domain: Domain) -> "_Sizes":
        """Return how large cells are, by the kernel at the centre of the box, which stands for all of it."""
        if not kernel.is_stationary:
            raise InputError(
                f"Cells of one size are alike under a stationary kernel alone, which {type(kernel).__name__} is not: "
                "take BKB, which searches the box by gradients."
            )
        lower, upper = cast(Tensor, domain.bounds)[:, 0 if domain.context is None else len(domain.context) :]
        center, d = ((lower + upper) / 2.0).unsqueeze(0), len(lower)

        def squares(steps: Tensor) -> Tensor:
            values = gram(kernel, domain.joint(center), domain.joint(torch.cat([center, center + steps])))[0]
            return 2.0 * (values[0] - values[1:]).clamp_min(0.0)

        shares = float(self.num_parts) ** -torch.arange(_MOST_DIVISIONS, device=lower.device).to(lower)
        alone = squares(torch.diag_embed(shares.unsqueeze(-1) * (upper - lower) / 2.0).reshape(-1, d))
        order = alone.argsort(descending=True, stable=True)
        least = 1e4 * torch.finfo(alone.dtype).eps * alone.max()  # below that it is rounding
        sides = order[alone[order] > least] % d
        counts = torch.cat([sides.new_zeros(1, d), one_hot(sides, d).cumsum(0)])
        halves = (upper - lower) / 2.0 * float(self.num_parts) ** -counts.to(lower)
        return _Sizes(center, sides, halves, variation * squares(halves).sqrt(), self.num_parts)


class _Sizes(NamedTuple):
    """How large cells of each depth are."""

    center: Tensor  # of the box, (1, a)
    sides: Tensor  # which is divided of a cell of each depth but the last, (D,)
    halves: Tensor  # half of each side at each depth, (D + 1, a)
    variations: Tensor  # V_h, (D + 1,)
    num_parts: int

    def divided(self, cells: "_Cells") -> tuple[Tensor, Tensor, Tensor]:
        """Return the centres of the parts of n cells, (N n, a), their depths, and the indices of the cells, (N n,)."""
        sides, depths, N = self.sides[cells.depths], cells.depths + 1, self.num_parts
        steps = one_hot(sides, self.halves.shape[-1]) * self.halves[depths]
        moves = 2.0 * torch.arange(N, device=steps.device).to(steps) - (N - 1)
        centers = cells.centers.unsqueeze(1) + moves[:, None] * steps.unsqueeze(1)
        return (
            centers.flatten(0, 1),
            depths.repeat_interleave(N),
            (cells.bounds + self.variations[cells.depths]).repeat_interleave(N),
        )


class _Cells(NamedTuple):
    """Cells of a box."""

    centers: Tensor  # (n, a)
    depths: Tensor  # (n,)
    bounds: Tensor  # μ + β σ at the centres, (n,)
    index: Tensor  # (n,)
    is_divisible: Tensor  # whether β σ <= V_h, (n,)

    def at(self, rows: Tensor) -> Self:
        """Return some of the cells, by their rows or by a mask."""
        return type(self)(*(part[rows] for part in self))

    def followed(self, others: "_Cells") -> Self:
        """Return these cells and others."""
        return type(self)(*map(torch.cat, zip(self, others, strict=True)))
