"""Kernels made of others: with fewer length scales than columns, and on space and time."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any, cast

import torch
from gpytorch.constraints import Interval, Positive
from gpytorch.kernels import Kernel
from gpytorch.priors import Prior
from torch import Tensor
from torch.nn import Parameter

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.kernels.temporal import TimeKernel
from torch_kbandits.numerics.formulas import FORMULAS, Array, Terms, product_of, terms_of
from torch_kbandits.numerics.gram import covariance


class BatchedKernel(Kernel):
    """A kernel whose batch shape no parameter of its own need carry, and whose parts are theirs to index and expand."""

    def in_batch(self, values: Tensor, diag: bool) -> Tensor:
        """Return values (..., n, n'), or (..., n) with ``diag``, for each member of the batch."""
        own = 1 if diag else 2
        return values.expand(*torch.broadcast_shapes(self.batch_shape, values.shape[:-own]), *values.shape[-own:])

    def named_sub_kernels(self) -> Iterator[tuple[str, Kernel]]:
        """Yield the kernels that it is made of, and not their parts."""
        yield from ((name, part) for name, part in self.named_children() if isinstance(part, Kernel))

    def __getitem__(self, index: Any) -> Kernel:
        """Return the kernel of some members of the batch."""
        member = cast(Kernel, super().__getitem__(index))
        if len(self._batch_shape):
            member.batch_shape = torch.empty(()).expand(self._batch_shape)[index].shape
        return member


class GroupedKernel(BatchedKernel):
    """A kernel of columns that are divided by length scales, one for each group of columns.

        k(x, x') = k₀(x / ℓ, x' / ℓ),   ℓ_j = lengthscale[groups[j]]

    A choice that is encoded in several columns has one length scale this way; with one for each column nothing is known
    of a value until it is tried. With 1/√2 for the value taken and 0 otherwise, as in ``ParameterSpace``, this is the
    kernel on Hamming distances at encodings, and smooth between them.

    Args:
        base_kernel: k₀, a stationary kernel; a copy is kept, with length scale 1 that no fit moves.
        groups: of each of the d columns the number of its length scale, (d,); each of 0 … G - 1 at least once.
        lengthscale_prior: of ℓ; and so is ``lengthscale_constraint``.
        kwargs: of every GPyTorch kernel: ``active_dims``, ``batch_shape``.

    Attributes:
        lengthscale: ℓ of the groups, (..., 1, G).

    Raises:
        InputError: if ``groups`` are not such numbers.
    """

    has_lengthscale = True

    columns: Tensor

    def __init__(
        self,
        base_kernel: Kernel,
        groups: Sequence[int],
        lengthscale_prior: Prior | None = None,
        lengthscale_constraint: Interval | None = None,
        **kwargs: Any,
    ) -> None:
        checks.instance("base_kernel", base_kernel, Kernel, "a GPyTorch kernel")
        checks.absent_or("lengthscale_prior", lengthscale_prior, Prior, "a GPyTorch prior")
        checks.absent_or("lengthscale_constraint", lengthscale_constraint, Interval, "a GPyTorch constraint")
        groups = checks.whole_numbers("groups", groups)
        if not groups or min(groups) < 0 or len({*groups}) != max(groups) + 1:
            raise InputError(f"groups must have each number from 0 to the largest one, got {groups}.")
        super().__init__(lengthscale_prior=lengthscale_prior, lengthscale_constraint=lengthscale_constraint, **kwargs)
        each = cast(Tensor, self.raw_lengthscale).detach()
        self.raw_lengthscale = Parameter(each.repeat(*(1 for _ in each.shape[:-1]), max(groups) + 1))
        # With the batch shape in front, since GPyTorch indexes and expands buffers as it does parameters.
        self.register_buffer("columns", torch.tensor(groups).expand(*self.batch_shape, 1, -1).contiguous())
        self.base_kernel = deepcopy(base_kernel)
        if self.base_kernel.has_lengthscale:
            # Through a logarithm, whose inverse at 0 is 1 in every precision.
            unit = Positive(transform=torch.exp, inv_transform=torch.log, initial_value=1.0)  # pyright: ignore
            self.base_kernel.register_constraint("raw_lengthscale", unit)
            cast(Parameter, self.base_kernel.raw_lengthscale).requires_grad_(False)

    @property
    def groups(self) -> tuple[int, ...]:
        """Of each column the number of its length scale, (d,)."""
        return tuple(self.columns.flatten()[: self.columns.shape[-1]].tolist())

    is_stationary = property(lambda self: self.base_kernel.is_stationary, doc="Whether the base kernel is.")

    @property
    def _scale(self) -> Tensor:
        """The length scale of each column, (..., 1, d)."""
        return self.lengthscale.gather(-1, self.columns)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return the covariance of points x1 (..., n, d) and x2 (..., m, d), (..., n, m), or its diagonal."""
        return covariance(self.base_kernel, x1 / self._scale, x2 / self._scale, diag=diag)


def _divided(kernel: GroupedKernel, columns: Array) -> Terms:
    return terms_of(kernel.base_kernel, columns / kernel._scale.detach().double().cpu().numpy().reshape(-1, 1))


class NormalizedKernel(BatchedKernel):
    """A kernel of columns that are shifted and divided: k(x, x') = k₀((x − c) / s, (x' − c) / s).

    Args:
        base_kernel: k₀, any kernel; a copy is kept.
        centers: c, (d,), about the middle of each column.
        spans: s > 0, (d,), about the length of its range.
        kwargs: of every GPyTorch kernel: ``active_dims``, ``batch_shape``.
    """

    centers: Tensor
    spans: Tensor

    def __init__(self, base_kernel: Kernel, centers: Tensor, spans: Tensor, **kwargs: Any) -> None:
        checks.instance("base_kernel", base_kernel, Kernel, "a GPyTorch kernel")
        centers, spans = (
            checks.finite(name, checks.floating_tensor(name, each)).detach().clone()
            for name, each in (("centers", centers), ("spans", spans))
        )
        if centers.dim() != 1 or spans.shape != centers.shape or not bool((spans > 0.0).all()):
            got = f"{checks.describe(centers)} and {checks.describe(spans)}"
            raise InputError(f"centers and spans must be (d,), the spans above 0, got {got}.")
        super().__init__(**kwargs)
        self.base_kernel = deepcopy(base_kernel)
        self.register_buffer("centers", centers)
        self.register_buffer("spans", spans)

    is_stationary = property(lambda self: self.base_kernel.is_stationary, doc="Whether the base kernel is.")

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return the covariance of points x1 (..., n, d) and x2 (..., m, d), (..., n, m), or its diagonal."""
        x1, x2 = ((x - self.centers) / self.spans for x in (x1, x2))
        return self.in_batch(covariance(self.base_kernel, x1, x2, diag=diag), diag)


class SpaceTimeKernel(BatchedKernel):
    """The product of a kernel on time, the first column, and one on space, which counts the other columns from 0.

    Args:
        space_kernel: any kernel on d columns, none of which is the time; a copy is kept.
        time_kernel: a kernel on one column; a copy is kept.
        kwargs: of every GPyTorch kernel: ``active_dims``, of which the first is the time; ``batch_shape``.

    Raises:
        InputError: if a part is no kernel, or a kernel on time is a part of that on space.
    """

    def __init__(self, space_kernel: Kernel, time_kernel: Kernel, **kwargs: Any) -> None:
        checks.instance("space_kernel", space_kernel, Kernel, "a GPyTorch kernel")
        checks.instance("time_kernel", time_kernel, Kernel, "a GPyTorch kernel")
        for part in space_kernel.modules():
            if isinstance(part, (SpaceTimeKernel, TimeKernel)):
                names = f"{type(part).__name__} in {type(space_kernel).__name__}"
                raise InputError(
                    f"space_kernel must be on space alone: {names} would take a column of space for the time. For a "
                    "sum leave out a TemporalPrior and give candidates=Timed(...)."
                )
        super().__init__(**kwargs)
        self.space_kernel, self.time_kernel = deepcopy(space_kernel), deepcopy(time_kernel)

    is_stationary = property(
        lambda self: self.space_kernel.is_stationary and self.time_kernel.is_stationary, doc="Whether both parts are."
    )

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return the covariance of points x1 (..., n, 1 + d) and x2 (..., m, 1 + d), (..., n, m), or its diagonal."""
        times = covariance(self.time_kernel, x1[..., :1], x2[..., :1], diag=diag)
        places = covariance(self.space_kernel, x1[..., 1:], x2[..., 1:], diag=diag)
        return self.in_batch(times * places, diag)


FORMULAS[GroupedKernel] = _divided
FORMULAS[SpaceTimeKernel] = lambda kernel, columns: product_of(
    [terms_of(kernel.time_kernel, columns[:1]), terms_of(kernel.space_kernel, columns[1:])]
)
