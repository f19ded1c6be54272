"""What is odd about a fit, in sentences that name the column and say what to do."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

import torch
from botorch.models.utils.gpytorch_modules import MIN_INFERRED_NOISE_LEVEL
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel, MaternKernel, PiecewisePolynomialKernel, RBFKernel, RQKernel, ScaleKernel
from torch import Tensor

from torch_kbandits.kernels import GroupedKernel, SpaceTimeKernel
from torch_kbandits.numerics.gram import gram, prior_variance
from torch_kbandits.priors.marginal import MarginalPosterior

#: Kernels that divide differences by their length scale.
_DIVIDING = (GroupedKernel, MaternKernel, PiecewisePolynomialKernel, RBFKernel, RQKernel)

#: Values so many length scales apart share next to nothing. If so many of all pairs are, the length scale is short.
_APART, _NEARLY_ALL = 3.0, 0.99

#: The least prior variance of what rewards differ by from one end of a column to the other, relative to their own.
_NOTICED = 1e-3

#: At a bound, but for rounding.
_AT = 1e-3

#: Of fewer rewards nobody knows whether they are more than noise.
_ENOUGH = 20

#: So many nats more than noise alone are nothing, since the kernel was fitted.
_NOTHING = 2.0

#: A prior variance is far below the noise.
_FAR_BELOW = 0.01

#: Points that are evaluated.
_EVALUATED = 200


class _Scale(NamedTuple):
    """A length scale: its columns, value and constraint."""

    columns: tuple[int, ...]
    value: float
    constraint: Interval


def diagnostics(posterior: MarginalPosterior) -> tuple[str, ...]:
    """Return what is odd about kernel and noise given the rewards that they were fitted to.

    That is a length scale that is short, less than a third of the distance in 99 of 100 pairs of values, or so long
    that its columns explain nothing, or at a bound; a noise at the least that a fit tries; or, and then nothing else, a
    kernel under which 20 rewards or more are hardly more probable than under noise alone.

    Cost: one evaluation of the density, and O(d) kernel values of at most 200 points.
    """
    kernel, names = posterior.kernel, posterior.names
    with torch.no_grad():
        timed = posterior.joint is not kernel and not isinstance(kernel, SpaceTimeKernel)
        X = posterior.points[:, 1:] if timed else posterior.points  # as the kernel sees them
        X = X[torch.linspace(0, len(X) - 1, min(len(X), _EVALUATED), dtype=torch.float64).round().long()]
        if _explains_nothing(posterior, float(prior_variance(kernel, X).mean())):
            return (
                "The kernel explains nothing: the rewards are as probable as noise alone. See whether they depend on "
                "these columns at all, give more rewards, or another kernel.",
            )
        scales = _length_scales(kernel, range(X.shape[-1]))
        said = [f"{_subject(scale, names)} is {fault}" for scale in scales if (fault := _fault(scale, kernel, X))]
    if "noise" in posterior.parameters and posterior.regularization <= MIN_INFERRED_NOISE_LEVEL * (1.0 + _AT):
        said.append(
            "The noise is fitted as nothing: if equal plays do not bring equal rewards give regularization, or play "
            "some points again."
        )
    return tuple(dict.fromkeys(said))


def _explains_nothing(posterior: MarginalPosterior, variance: float) -> bool:
    if variance < _FAR_BELOW * posterior.regularization:
        return True
    if len(posterior.Y) < _ENOUGH or not posterior.keeps_noise:
        return False
    # Infinite where all rewards are equal.
    alone = -0.5 * len(posterior.Y) * (float((2.0 * math.pi * posterior.Y.square().mean()).log()) + 1.0)
    return float(posterior.density()) < alone + _NOTHING


def _subject(scale: _Scale, names: Sequence[str] | None) -> str:
    """Return what a sentence is about, given the names of all columns, as far as they are known."""
    own = [""] if names is None else [names[column] for column in scale.columns]
    numbers = ", ".join(map(str, scale.columns))
    called = f"{', '.join(map(repr, own))} ({numbers} from 0)" if all(own) else f"{numbers} (from 0)"
    return f"The length scale {scale.value:.3g} of column{'s' if len(scale.columns) > 1 else ''} {called}"


def _fault(scale: _Scale, kernel: Kernel, X: Tensor) -> str | None:
    """Return what is wrong with a length scale, and what to do; None if nothing is."""
    columns, value, constraint = scale
    values = X[:, columns]
    if bool((values == values[:1]).all()):
        return None
    lower, upper = float(constraint.lower_bound), float(constraint.upper_bound)
    if (lower > 0.0 and value <= lower * (1.0 + _AT)) or _is_short(values, value):
        return (
            "short: rewards change faster than its values are apart, and one value says nothing of the next. Treat it "
            "as a category if it names kinds of things, see GroupedKernel; else leave it out, put something smoother "
            "in its place, or give a lengthscale_prior."
        )
    if value >= upper * (1.0 - _AT):
        return "at its upper bound: raise that, or leave out what explains so little."
    low, high = X.clone(), X.clone()
    low[:, columns], high[:, columns] = values.amin(0), values.amax(0)
    across = gram(kernel, low.unsqueeze(-2), high.unsqueeze(-2)).flatten()
    noticed = prior_variance(kernel, low) + prior_variance(kernel, high) - 2.0 * across
    if float(noticed.mean()) < _NOTICED:
        return "so long that it explains nothing: leave it out, or give a lengthscale_prior."
    return None


def _is_short(values: Tensor, lengthscale: float) -> bool:
    """Say whether nearly all pairs of values (n, c) that differ are many length scales apart."""
    values = values.unique(dim=0)
    if len(values) < 3:
        return False
    return float((torch.pdist(values) > _APART * lengthscale).double().mean()) >= _NEARLY_ALL


def _length_scales(kernel: Kernel, columns: Sequence[int]) -> Iterator[_Scale]:
    """Yield the length scales of a kernel and its parts, which see these columns of the points."""
    if isinstance(kernel, ScaleKernel):  # whose columns are those of its base, which does not choose again
        kernel = kernel.base_kernel
    if kernel.active_dims is not None:
        columns = [columns[place] for place in cast(Tensor, kernel.active_dims).tolist()]
    if isinstance(kernel, _DIVIDING) and kernel.has_lengthscale:
        scales = cast(Tensor, kernel.lengthscale).flatten().tolist()
        each = range(len(columns)) if len(scales) == len(columns) else [0] * len(columns)
        groups = kernel.groups if isinstance(kernel, GroupedKernel) else each
        for number, value in enumerate(scales):
            own = tuple(column for column, group in zip(columns, groups, strict=True) if group == number)
            yield _Scale(own, value, cast(Interval, kernel.raw_lengthscale_constraint))
    elif isinstance(kernel, SpaceTimeKernel):
        yield from _length_scales(kernel.time_kernel, columns[:1])
        yield from _length_scales(kernel.space_kernel, columns[1:])
    else:
        for part in kernel.children():
            for each in part if isinstance(part, torch.nn.ModuleList) else (part,):
                if isinstance(each, Kernel):
                    yield from _length_scales(each, columns)
