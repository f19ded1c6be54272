"""The default kernel, and the units in which priors are fitted: rewards of variance 1, columns of a range of 1."""

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, cast

import torch
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import Kernel, MaternKernel, PolynomialKernel, ScaleKernel
from gpytorch.priors import GammaPrior, LogNormalPrior
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.kernels import GroupedKernel, NormalizedKernel
from torch_kbandits.priors.prior import Prior, PriorMean

#: Rewards whose deviation is this fraction of their size are equal to rounding; and so are values of a column that
#: differ by so many units in the last place.
_EQUAL, _ROUNDING = 1e-12, 4.0

#: Rewards this many times as far below the median as the best is above it are far below. Of 200 designs of ten points
#: on Branin and on bowls none has some. With fewer different rewards above the median, or it, than the next number far
#: is further; see ``floor_below``. The last is where rewards far below are put: on a bowl with holes 20 found less.
_FAR, _ENOUGH_ABOVE, _FAR_COUNTS = 20.0, 4, 5.0

#: The range of a column of a context in its deviations: that of a uniform one is 3.5, of a normal one some 6.
_MOST_DEVIATIONS = 5.0

#: The least and the largest deviation of rewards whose square is far from underflow and overflow.
_SCALES = 1e-140, 1e140

#: The share of the variance of rewards that is taken for noise before anything is fitted.
FIRST_NOISE = 0.1

#: The least length scale, as in BoTorch; and the variance of a column, whose range is 1: that of a normal distribution
#: has a deviation of a fifth of it.
_SHORTEST, _VARIANCE = 0.025, 0.04


def default_kernel(dimension: int, groups: Sequence[int] | None = None, context_dim: int = 0) -> Kernel:
    """Return the kernel that is fitted where none is given, for points of the unit cube, in double precision.

    It is a Matérn 5/2 kernel with a variance and a length scale for each parameter, of G parameters about ½√G, within a
    factor of three. A parameter in several columns, such as a choice, has one length scale; see ``GroupedKernel``. With
    contexts it is the product of such a kernel on actions and one on contexts, which is the sum of a level, of a linear
    trend in all columns of the context, from the middle of each, and of what is near:

        (s₀ + s₁ ⟨x, x'⟩ + s₂ Matérn(x, x')) · Matérn(a, a')

    so that LinUCB's model, a level and a trend for each action, is a part of it. Where all c columns of a context share
    one length scale, as those without names do, it is about ½√c.

    Source: Hvarfner, Hellsten and Nardi, ICML 2024: distances grow with the root of the number of coordinates, and so
    do length scales. Differs: their prior, BoTorch's ``get_covar_module_with_dim_scaled_prior``, has a median eight
    times as long and is wider, and their variance is 1; with ten trials of three parameters that settles too soon.

    Args:
        dimension: d, the number of columns.
        groups: of each column the number of its parameter, (d,), as ``ParameterSpace.groups``; each one its own unless
            given.
        context_dim: how many columns, the first ones, are of the context.
    """
    dimension = checks.size("dimension", dimension)
    context_dim = checks.non_negative_integer("context_dim", context_dim)
    groups = range(dimension) if groups is None else checks.whole_numbers("groups", groups)
    if len(groups) != dimension or context_dim >= dimension:
        got = f"{checks.shown(groups)}, of which {context_dim} of the context"
        raise InputError(f"groups must have one number for each of the {dimension} columns, got {got}.")
    if not context_dim:
        return ScaleKernel(_matern(groups), outputscale_prior=_variance_prior()).double()
    contexts, actions = tuple(range(context_dim)), tuple(range(context_dim, dimension))
    trend = PolynomialKernel(power=1, active_dims=contexts).double()
    trend.offset = torch.full((1,), _VARIANCE * (1 + context_dim), dtype=torch.float64)
    linear = ScaleKernel(trend, outputscale_prior=GammaPrior(1.1, _single(_VARIANCE)))
    linear.outputscale = 1.0 / (_VARIANCE * (1 + context_dim))
    linear.register_prior("level_prior", _variance_prior(), _level)
    of_context = groups[:context_dim]
    number = context_dim if len({*of_context}) == 1 else None
    near = ScaleKernel(_matern(of_context, number, active_dims=contexts), outputscale_prior=_variance_prior())
    return ((linear + near) * _matern(groups[context_dim:], active_dims=actions)).double()


def _level(trend: ScaleKernel) -> Tensor:
    """Return s₀, the variance of the level of a trend, (1,)."""
    return trend.outputscale * cast(PolynomialKernel, trend.base_kernel).offset


def _variance_prior() -> GammaPrior:
    return GammaPrior(2.0, _single(0.15))


def _matern(groups: Sequence[int], coordinates: int | None = None, **words: Any) -> Kernel:
    """Return a Matérn kernel with a length scale for each parameter, each a coordinate unless their number is given."""
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    expected = 0.5 * math.sqrt(coordinates or len(numbers))
    first, least = map(_single, (expected, _SHORTEST))
    words["lengthscale_prior"] = LogNormalPrior(_single(math.log(expected)), 1.0)
    words["lengthscale_constraint"] = GreaterThan(least, transform=None, initial_value=first)  # pyright: ignore
    if len(numbers) == len(groups):
        return MaternKernel(nu=2.5, ard_num_dims=len(groups), **words)
    if len(numbers) == 1 and "active_dims" in words:
        return MaternKernel(nu=2.5, **words)
    return GroupedKernel(MaternKernel(nu=2.5), [numbers[group] for group in groups], **words)


def _single(value: float) -> float:
    """Return a number in single precision: GPyTorch rounds to torch's default dtype, which is to be any."""
    return torch.tensor(value, dtype=torch.float32).item()


def floor_below(Y: Tensor, lowest: float | None = None) -> float:
    """Return the reward below which others count as if they were it.

    A few rewards far below the others, such as penalties, would be the unit in which all others are equal. So no reward
    counts as more than twenty times as far below the median as the best is above it; and if one lies there, none as
    more than five times as far. Of equal rewards one counts. Units change nothing.

    Of few rewards the best is easily near the median by chance: that k of them lie within a share s of the range has a
    probability like s to the k-th power. So where k < 4 different rewards are above the median, 20 becomes 20^(4 / k).

    ``lowest`` is the lowest reward of all, if there are more than Y (n,). Of fewer than three different ones the floor
    is minus infinity; where half of them are far below it is of no use.
    """
    different = Y.unique()
    if len(different) < 3:
        return -math.inf
    best, median = float(different[-1]), float(different.median())
    far = _FAR ** max(1.0, _ENOUGH_ABOVE / int(different.gt(median).sum()))
    lowest = float(different[0]) if lowest is None else lowest
    floor = median - far * (best - median)
    return median - _FAR_COUNTS * (best - median) if lowest < floor else floor


@dataclass(frozen=True, eq=False)
class Units:
    """Those in which rewards have mean 0 and variance 1, and columns a range of about 1.

    A reward below the floor counts as if it were it; the center is subtracted, then the scale divides. From columns of
    points the middles (d,) are subtracted, and they are divided by the spans (d,), under a ``default_kernel``; any
    other sees them as they are, None.
    """

    center: float = 0.0
    scale: float = 1.0
    floor: float = -math.inf
    spans: Tensor | None = None
    middles: Tensor | float = 0.0

    @classmethod
    def of(
        cls, Y: Tensor, *, centered: bool, floor: float, spans: Tensor | None, middles: Tensor | float = 0.0
    ) -> "Units":
        """Return the units of rewards (n,), of which it may be known that their mean is 0.

        The deviation is 1 where it is nothing but rounding; one whose square over- or underflows is refused.
        """
        Y = Y.clamp_min(floor)
        # A power of two near the largest, so that no square overflows and nothing is rounded otherwise.
        unit = math.ldexp(1.0, math.frexp(float(Y.abs().max()))[1] - 1)
        center, scale = unit * float((Y / unit).mean()), unit * float((Y / unit).std())
        if not math.isfinite(scale):
            least, largest = float(Y.min()), float(Y.max())
            raise InputError(f"Y differs by more than double precision holds, from {least} to {largest}.")
        scale = scale if scale > _EQUAL * max(abs(center), torch.finfo(Y.dtype).tiny) else 1.0
        if centered:
            center, scale = 0.0, math.hypot(center, scale)
        if not _SCALES[0] < scale < _SCALES[1]:
            raise InputError(f"Y differs by about {scale:.3g}, whose square no double holds: multiply it by a number.")
        return cls(center, scale, floor, spans, middles)

    def rewards(self, Y: Tensor) -> Tensor:
        """Return rewards (n,) in these units."""
        return (Y.clamp_min(self.floor) - self.center) / self.scale

    def points(self, X: Tensor) -> Tensor:
        """Return points (n, d), or with the time before them (n, 1 + d), in these units."""
        if self.spans is None:
            return X
        time = X.shape[-1] - len(self.spans)
        return torch.cat([X[:, :time], (X[:, time:] - self.middles) / self.spans], dim=-1)

    def kernel(self, kernel: Kernel) -> Kernel:
        """Return a kernel in units of rewards in these, of which nothing is free."""
        return _scaled(deepcopy(kernel), self.scale**-2)

    def prior(self, kernel: Kernel, noise: float, mean: PriorMean | None) -> Prior:
        """Return a prior of rewards and points as they are, of which nothing is free, from kernel and λ in these units.

        The mean is in units of rewards, None for the centre.
        """
        base, variance = deepcopy(kernel), 1.0
        if type(base) is ScaleKernel and base.active_dims is None and not base.batch_shape:
            base, variance = base.base_kernel, float(base.outputscale.detach())
        if self.spans is not None:
            base = _spanning(base, self.spans, self.middles)
        whole = _scaled(base, variance * self.scale**2).eval()
        return Prior(whole, noise * self.scale**2, self.center if mean is None else mean, self.floor)


def column_spans(X: Tensor, ranges: Tensor | None = None, groups: Sequence[int] | None = None) -> Tensor:
    """Return the length of the range of each column, (d,), in double precision: as known, else of points X (n, d).

    A column in which all is equal but for rounding has none: its size takes the place, or 1 if all is 0. Known are
    ranges (2, d), as in ``Candidates.ranges``; where some are given, those that are not known, of contexts, are at most
    five deviations, lest a few values far away make all others alike. Columns of one group, see ``default_kernel``,
    have one range.
    """
    rounding = _ROUNDING * torch.finfo(X.dtype).eps
    least, largest = X.double().aminmax(dim=0)
    is_known = torch.zeros_like(least, dtype=torch.bool)
    if ranges is not None:
        is_known = ranges[1].to(X.device) > ranges[0].to(X.device)
        least, largest = (torch.where(is_known, *ends) for ends in zip(ranges.to(least), (least, largest), strict=True))
    spans, size = largest - least, torch.maximum(least.abs(), largest.abs())
    if ranges is not None and len(X) > 1:
        usual = _MOST_DEVIATIONS * X.double().std(0)
        spans = torch.where(~is_known & (usual > rounding * size), torch.minimum(spans, usual), spans)
    spans = torch.where(spans > rounding * size, spans, size)
    spans = torch.where(spans > 0.0, spans, 1.0)
    if groups is None:
        return spans
    own = torch.tensor(groups, device=spans.device)
    return spans.new_zeros(max(groups) + 1).scatter_reduce(0, own, spans, "amax")[own]


def _scaled(base: Kernel, variance: float) -> Kernel:
    """Return a kernel times a variance, of which nothing is free."""
    whole = ScaleKernel(base).double()
    whole.outputscale = torch.tensor(variance, dtype=torch.float64)  # GPyTorch rounds a float
    return whole.requires_grad_(False)


def _spanning(base: Kernel, spans: Tensor, middles: Tensor | float) -> Kernel:
    """Return what of a ``default_kernel`` of columns in their units is not a variance as one of columns."""
    if isinstance(base, GroupedKernel):
        own = GroupedKernel(base.base_kernel, base.groups).to(spans)
        spans = spans[[base.groups.index(group) for group in range(max(base.groups) + 1)]]
    elif isinstance(base, MaternKernel):
        own = MaternKernel(nu=2.5, ard_num_dims=len(spans)).to(spans)
    else:  # of contexts and actions
        return NormalizedKernel(base, spans * 0.0 + middles, spans)
    own.lengthscale = cast(Tensor, base.lengthscale).detach().to(spans) * spans
    return own
