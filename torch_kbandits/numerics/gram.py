"""The prior as plain tensors: the one place where GPyTorch's lazy kernels and mean functions are evaluated."""

from collections.abc import Iterable
from copy import deepcopy
from functools import reduce
from typing import cast

import numpy as np
import torch
from gpytorch.kernels import AdditiveKernel, IndexKernel, Kernel, ProductKernel, ScaleKernel
from gpytorch.means import Mean
from linear_operator.operators import to_dense
from torch import Tensor

from torch_kbandits.errors import InputError
from torch_kbandits.loops import kernel_loops
from torch_kbandits.loops.compiled import in_parts, on_cpu_without_grad
from torch_kbandits.numerics.formulas import known_formula

#: A kernel value takes as long as reading so many numbers.
_COST = 16

#: Of points within this distance from 0 none is tested, and one so many times as far from most is apart from them.
_NEAR = _APART = 1e4


def gram(kernel: Kernel, X: Tensor, other: Tensor | None = None) -> Tensor:
    """Return k(x, x') of the rows of X (..., n, d) and those of ``other`` (..., m, d), or their own, (..., n, m)."""
    others = X if other is None else other
    is_flat = X.dim() == others.dim() == 2
    if is_flat:
        known = known_formula(kernel, X.shape[1])
        if known is not None and on_cpu_without_grad(X, others):
            return formula_values(known, X, others)
        if (apart := _apart(X)) is not None:
            values = [gram(kernel, X[rows], others) for rows in (~apart, apart)]
            return torch.cat(values)[torch.cat([(~apart).nonzero(), apart.nonzero()]).squeeze(-1).argsort()]
    is_plain = (
        (is_flat or type(kernel) is IndexKernel) and type(kernel).__call__ is Kernel.__call__ and not kernel.batch_shape
    )
    if not is_plain and not _is_composed(kernel) and type(kernel) is not IndexKernel:
        return to_dense(cast(Tensor, kernel(X, other)))
    # What the call ends up with, without the lazy tensor on the way.
    columns = cast(Tensor | None, kernel.active_dims)
    if columns is not None:
        X, others = X[..., columns], others[..., columns]
    return _evaluated(kernel, X, others)


def formula_values(formula: np.ndarray, X: Tensor, others: Tensor) -> Tensor:
    """Return kernel values of points (n, d) and others (m, d), (n, m), by a loop over the longer side."""
    is_wide = len(X) <= len(others)
    few, many = map(_array, (X, others) if is_wide else (others, X))
    out = np.empty((len(X), len(others)))
    in_parts(kernel_loops.values, len(many), _COST * out.size, formula, few, many, out, is_wide)
    return torch.from_numpy(out).to(X.dtype)


def _apart(X: Tensor) -> Tensor | None:
    """Say which rows of points (n, d) on the CPU, if any, are so far from most that these had better be without them.

    GPyTorch's kernels shift points by their mean, which one that is far away moves to where the others are the same.
    """
    if not X.is_cpu or len(X) < 2 or not bool(X.detach().abs().amax() > _NEAR):  # a device would have to be waited for
        return None
    distances = (X.detach() - X.detach().median(0).values).abs().amax(-1)
    apart = distances > _APART * distances.median().clamp_min(1.0)
    return apart if bool(apart.any()) and not bool(apart.all()) else None


def _evaluated(kernel: Kernel, X: Tensor, others: Tensor) -> Tensor:
    """Return k(x, x') (..., n, m) of the columns that the kernel takes.

    Sums and products part by part: GPyTorch multiplies roots of them where X stands against itself, which takes jitter
    where points repeat; and where a part has the same columns of two sets of points, it asks for a root of the others.
    """
    if type(kernel) is ScaleKernel:
        scale = kernel.outputscale
        return _evaluated(kernel.base_kernel, X, others) * (scale[..., None, None] if scale.dim() else scale)
    if type(kernel) in (AdditiveKernel, ProductKernel):
        together = torch.add if type(kernel) is AdditiveKernel else torch.mul
        return reduce(together, (gram(part, X, others) for part in cast(Iterable[Kernel], kernel.kernels)))
    if type(kernel) is IndexKernel and not kernel.batch_shape:  # whose lazy tensor cannot have no rows
        rows, columns = X.squeeze(-1).long(), others.squeeze(-1).long()
        return cast(Tensor, kernel.covar_matrix.to_dense())[rows.unsqueeze(-1), columns.unsqueeze(-2)]
    return to_dense(cast(Tensor, kernel.forward(X, others, diag=False)))


def covariance(kernel: Kernel, X: Tensor, other: Tensor, *, diag: bool) -> Tensor:
    """Return ``gram``, (..., n, m), or its diagonal, (..., n), for a kernel that has others as parts."""
    return to_dense(cast(Tensor, kernel(X, other, diag=True))) if diag else gram(kernel, X, other)


def prior_variance(kernel: Kernel, X: Tensor) -> Tensor:
    """Return k(x, x) for the rows of X (..., n, d), (..., n)."""
    known = known_formula(kernel, X.shape[1]) if X.dim() == 2 else None
    X = X.detach() if known is not None and kernel.is_stationary else X  # the same everywhere, without a gradient
    if known is None and any(type(part) is IndexKernel for part in kernel.modules()):
        return gram(kernel, X.unsqueeze(-2)).squeeze((-2, -1))
    if known is None or not on_cpu_without_grad(X):
        return to_dense(cast(Tensor, kernel(X, diag=True)))
    return torch.from_numpy(kernel_loops.variances(known, _array(X))).to(X.dtype)


def _array(X: Tensor) -> np.ndarray:
    """Return points (n, d) as loops take them: in double precision, one after another."""
    return X.double().contiguous().numpy()


def _is_composed(kernel: Kernel) -> bool:
    """Say whether a kernel is a sum or a product, scaled or not, of parts that are evaluated by themselves."""
    while type(kernel) is ScaleKernel:
        kernel = kernel.base_kernel
    return type(kernel) in (AdditiveKernel, ProductKernel)


def prior_mean(mean: Mean, X: Tensor) -> Tensor:
    """Return the prior mean at the rows of X (..., n, d), (..., n)."""
    return cast(Tensor, mean(X))


def check_kernel(kernel: Kernel, example: Tensor) -> None:
    """Refuse a kernel that does not give a plain, finite covariance at points like the example (1, d)."""
    d = example.shape[-1]
    try:
        with torch.no_grad():
            values = gram(deepcopy(kernel).to(example), example.expand(2, d), example)
    except (RuntimeError, IndexError) as error:
        raise InputError(f"The kernel cannot be evaluated at points of {d} columns: {error}") from error
    if values.shape != (2, 1) or not bool(torch.isfinite(values).all()):
        got = f"{values.flatten()[:4].tolist()} of shape {tuple(values.shape)}"
        raise InputError(f"The kernel must give a finite number for each pair of points; two against one give {got}.")
