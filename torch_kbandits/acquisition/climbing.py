"""Searches for the largest score among points of which some coordinates are continuous and others are not."""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.exceptions.errors import OptimizationGradientError
from botorch.exceptions.warnings import OptimizationWarning
from botorch.generation.gen import gen_candidates_scipy
from torch import Tensor

#: Turns, after the first of which so many points go on, quasi-Newton steps and exchanges of a turn, and how often the
#: way of a point that climbed to where nothing may be played is halved; most searches end before.
_TURNS, _GOING_ON, _STEPS, _EXCHANGES, _HALVINGS = 4, 4, 15, 8, 20

#: A function is evaluated at points of so many numbers at once: of thousands of choices each has thousands.
_AT_ONCE = 2**22

#: BoTorch climbs from all points at once where it knows the release of SciPy, and elsewhere then from each by itself.
EACH_BY_ITSELF: Any = {"max_optimization_problem_aggregation_size": 1}

#: An exchange that gained less than this share of the largest score in size is the last of its point.
_WORTH = 1e-4


class Rescaled(AcquisitionFunction):
    """A function (b,) of points (b, q, d) less an offset, in a unit, 0-dim: searches end by absolute tolerances.

    What is searched is taken to points of the function by ``points``.
    """

    def __init__(
        self, function: AcquisitionFunction, offset: Tensor, unit: Tensor, points: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__(model=function.model)
        self.function, self._offset, self._unit, self._points = function, offset, unit, points

    def forward(self, X: Tensor) -> Tensor:
        """Return the values at points X (b, q, d), (b,)."""
        return (self.function(self._points(X)) - self._offset) / self._unit


def climb(
    function: AcquisitionFunction,
    starts: Tensor,
    *,
    continuous: Sequence[int],
    score: Callable[[Tensor], Tensor] | None = None,
    neighbours: Callable[[Tensor], tuple[Tensor, Tensor]] | None = None,
    allows: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Return points (n, d) of [0, 1]^d that score at least as high as the starts, each in the place of its start.

    In turns the continuous coordinates of points climb along the gradient, by BoTorch's L-BFGS-B, and each point is
    exchanged for its best neighbour while that scores higher. The search from a point ends where it is not exchanged,
    or where four others are better, or after four turns.

    The function is of single points, (b, 1, d) to (b,). The ``score`` of points (n, d), (n,), by which they are
    compared, is its value unless given. Of points (n, d) ``neighbours`` are those (k, d) that may take the place of
    one, and which one's, (k,); and ``allows`` says of points (n, d) whether they may be played, (n,): one that climbed
    beyond goes back to where its way leaves what may be played.

    Source: BoTorch's ``optimize_acqf_mixed_alternating``. Differs: a choice may be encoded in several columns, which
    are exchanged all at once. Cost: a hundred evaluations at n points, and ten at all their neighbours.
    """
    score = partial(_scores, function) if score is None else score
    points, scores, active = starts.clone(), score(starts), torch.arange(len(starts))
    columns = sorted(continuous)
    climbs = bool(columns) and function(points.detach().requires_grad_().unsqueeze(-2)).requires_grad
    for _ in range(_TURNS):
        if climbs:
            climbed = _along_the_gradient(function, points[active], columns)
            climbed = climbed if allows is None else _drawn_back(points[active], climbed, allows)
            found = score(climbed)
            higher = found > scores[active]
            points[active[higher]], scores[active[higher]] = climbed[higher], found[higher]
        if neighbours is None:
            break
        rows, exchanged = active, torch.zeros(len(points), dtype=torch.bool)
        for _ in range(_EXCHANGES):
            held, (near, owners) = scores.clone(), neighbours(points[rows])
            values = score(near) if len(near) else scores[:0]
            for number, row in enumerate(rows.tolist()):
                own = (owners == number).nonzero().flatten()
                if len(own) and values[own].max() > scores[row]:
                    best = own[values[own].argmax()]
                    points[row], scores[row] = near[best], values[best]
            grown = _grown(held, scores)  # most others are at the best of their neighbours
            exchanged, rows = exchanged | grown, grown.nonzero().flatten()
            if not len(rows):
                break
        active = exchanged.nonzero().flatten()
        active = active[scores[active].topk(min(_GOING_ON, len(active))).indices]
        if not len(active):
            break
    return points


def _along_the_gradient(function: AcquisitionFunction, points: Tensor, columns: list[int]) -> Tensor:
    """Return points (n, d) whose columns climbed for some steps, each on its own."""
    others = {column: points[:, column] for column in range(points.shape[-1]) if column not in columns}
    options = {"maxiter": _STEPS, **EACH_BY_ITSELF}
    with warnings.catch_warnings(record=True) as caught:  # BoTorch's own are shown whatever the filters say
        try:
            climbed, _ = gen_candidates_scipy(
                points.unsqueeze(-2), function, 0.0, 1.0, fixed_features=others, options=options
            )
        except OptimizationGradientError:  # not a number somewhere on the way
            return points
    for warning in caught:
        if not issubclass(warning.category, OptimizationWarning):  # of searches that end after so many steps
            warnings.warn(warning.message, stacklevel=2)
    return climbed.squeeze(-2).detach()


def _drawn_back(points: Tensor, climbed: Tensor, allows: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the others (n, d) where allowed, else points on the way there from allowed ones, found by bisection."""
    if bool((is_there := allows(climbed)).all()):
        return climbed
    inside, outside = points, climbed
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2.0
        kept = allows(middle).unsqueeze(-1)
        inside, outside = torch.where(kept, middle, inside), torch.where(kept, outside, middle)
    return torch.where(is_there.unsqueeze(-1), climbed, inside)


def _scores(function: AcquisitionFunction, points: Tensor) -> Tensor:
    """Return the scores (n,) of points (n, d)."""
    with torch.no_grad():
        blocks = points.split(max(1, _AT_ONCE // points.shape[-1])) if len(points) else ()
        return torch.cat([points.new_zeros(0), *(function(block.unsqueeze(-2)) for block in blocks)])


def _grown(before: Tensor, after: Tensor) -> Tensor:
    """Say of each score whether it grew by more than a share of the largest, (n,)."""
    return after - before > _WORTH * after.abs().max()
