"""Upper confidence bounds over a box that is divided where more is known: adaptive discretisation."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, cast

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models.model import Model
from botorch.utils.transforms import t_batch_mode_transform
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.nn.functional import one_hot
from typing_extensions import override

from torch_kbandits import checks
from torch_kbandits.acquisition.analytic import UpperConfidenceRule, marginals
from torch_kbandits.acquisition.domain import Domain
from torch_kbandits.acquisition.pending import PendingPoints
from torch_kbandits.acquisition.rules import ArmPosterior, BoxPosterior, Moments, OptimisticRule
from torch_kbandits.errors import InputError
from torch_kbandits.models import FactoredGP
from torch_kbandits.models.normal import deviation_of
from torch_kbandits.numerics.gram import gram

#: A side of the box is divided so many times at most; so many cells are divided at once, and evaluated in a choice.
#: A point may be beyond the edge of a cell by that share of it.
_MOST_DIVISIONS, _AT_ONCE, _MOST_CELLS, _ROUNDING = 20, 64, 4096, 1e-6


@dataclass(frozen=True)
class AdaptiveDiscretizationRule(OptimisticRule):
    """Maximise the upper confidence bound over the centres of cells of a box, which are smaller where more is known.

    In a cell of depth h with centre c, which is a part of a cell with centre p, the function is at most the index

        I(c) = min(μ(c) + β σ(c), μ(p) + β σ(p) + V_(h−1)) + V_h,   V_h = F max d_k(c, x),

    where x is in the cell and d_k(c, x)² = k(c, c) + k(x, x) − 2 k(c, x).

    From the box as one cell on, the cell of the largest index is divided if β σ(c) <= V_h, else its centre is played.
    Elsewhere than on a box this is ``UpperConfidenceRule``.

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

    def function(
        self, model: Model, beta: Tensor, X_pending: Tensor | None, domain: Domain, seed: int
    ) -> AcquisitionFunction:
        """Return a ``CellUCB`` on a box, elsewhere a ``KernelUCB``."""
        if domain.bounds is None:
            return UpperConfidenceRule().function(model, beta, X_pending, domain, seed)
        cells = partial(self._cells, kernel=cast(Kernel, model.covar_module), beta=beta, domain=domain)
        return CellUCB(model, X_pending, cells)

    def on_box(self, posterior: BoxPosterior, beta: Tensor, domain: Domain, seed: int) -> Tensor:
        """Return the centre (1, d) of the cell of the largest index."""
        cells = self._cells(posterior.moments, posterior.kernel, beta, domain)
        return domain.joint(cells.centers[torch.where(cells.is_divisible, -torch.inf, cells.index).argmax(), None])

    def _cells(self, moments: Moments, kernel: Kernel, beta: Tensor, domain: Domain) -> "_Cells":
        """Return the cells into which a box is divided, of which one of the largest index is not divisible."""
        variation = beta if self.variation is None else self.variation
        center, sides, halves, variations = self._sizes(kernel, variation, domain)
        moves = 2.0 * torch.arange(self.num_parts, device=halves.device).to(halves) - (self.num_parts - 1)
        infinity = torch.full_like(variations[:1], torch.inf)

        def evaluated(centers: Tensor, depths: Tensor, above: Tensor) -> _Cells:
            mean, variance = moments(domain.joint(centers))
            spread, varies = beta * deviation_of(variance), variations[depths]
            bounds, is_divisible = mean + spread, (spread <= varies) & (depths < len(sides))
            return _Cells(centers, halves[depths], depths, bounds, torch.minimum(bounds, above) + varies, is_divisible)

        def divided(cells: _Cells) -> _Cells:
            depths = cells.depths + 1
            steps = one_hot(sides[cells.depths], halves.shape[-1]) * halves[depths]
            centers = cells.centers.unsqueeze(1) + moves[:, None] * steps.unsqueeze(1)
            above = cells.bounds + variations[cells.depths]
            return evaluated(centers.flatten(0, 1), *(each.repeat_interleave(len(moves)) for each in (depths, above)))

        cells, number = evaluated(center, torch.zeros_like(sides[:1]), infinity), 1
        while number < _MOST_CELLS:
            closed = cells.index[~cells.is_divisible]
            higher = cells.is_divisible & (cells.index > (closed.max() if len(closed) else -infinity))
            if not bool(higher.any()):
                return cells
            order = torch.where(higher, cells.index, -infinity).argsort(descending=True, stable=True)
            chosen, others = order.tensor_split([min(_AT_ONCE, int(higher.sum()))])
            parts = divided(_Cells(*(each[chosen] for each in cells)))
            kept = (torch.cat([each[others], part]) for each, part in zip(cells, parts, strict=True))
            cells, number = _Cells(*kept), number + len(parts.index)
        return cells._replace(is_divisible=torch.zeros_like(cells.is_divisible))

    def _sizes(self, kernel: Kernel, variation: Tensor | float, domain: Domain) -> tuple[Tensor, ...]:
        """Return the centre (1, a), and of each depth which side is divided, (D,), half of all, (D + 1, a), and V_h."""
        if not kernel.is_stationary:
            raise InputError(
                f"Cells of one size are alike under a stationary kernel alone, which {type(kernel).__name__} is not: "
                "take BKB, which searches the box by gradients."
            )
        lower, upper = cast(Tensor, domain.bounds)[:, 0 if domain.context is None else len(domain.context) :]
        center, d = ((lower + upper) / 2.0).unsqueeze(0), len(lower)  # which stands for all of the box

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
        return center, sides, halves, variation * squares(halves).sqrt()


class CellUCB(PendingPoints):
    """The index of the cell of a box in which a point is: an upper confidence bound on the function in all of the cell.

    It is constant in each cell, the larger on an edge of two, and −∞ outside of the box; so it has no slope to climb.
    """

    def __init__(self, model: Model, X_pending: Tensor | None, cells: Callable[[Moments], "_Cells"]) -> None:
        super().__init__(model)
        self.X_pending, self._cells = X_pending, cells

    @override
    def _make(self) -> "_Cells":
        """Return the cells of the posterior with the pending points."""
        pending = self.X_pending
        model = self.model if pending is None else cast(FactoredGP, self.model).with_pending(pending)
        return self._cells(lambda X: marginals(model, X.unsqueeze(-2)))

    @t_batch_mode_transform(expected_q=1)  # pyright: ignore[reportArgumentType]  (it declares self as the base class)
    def forward(self, X: Tensor) -> Tensor:
        """Return the indices at single points X (b, 1, d), (b,)."""
        cells = cast(_Cells, self._current(self._X_pending))
        offsets = X[..., -cells.centers.shape[-1] :] - cells.centers
        is_inside = (offsets.abs() <= (1.0 + _ROUNDING) * cells.halves).all(-1)
        return torch.where(is_inside, cells.index, -torch.inf).amax(-1).to(X) + 0.0 * X.sum((-2, -1))


class _Cells(NamedTuple):
    """Cells of a box."""

    centers: Tensor  # (n, a)
    halves: Tensor  # half of each side, (n, a)
    depths: Tensor  # (n,)
    bounds: Tensor  # μ + β σ at the centres, (n,)
    index: Tensor  # (n,)
    is_divisible: Tensor  # whether β σ <= V_h, (n,)
