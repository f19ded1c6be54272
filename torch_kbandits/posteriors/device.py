"""Arms on a device: what follows a posterior there is done by PyTorch, in few launches, and nobody waits for it."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Self

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from torch_kbandits.numerics.blocks import points_at_a_time
from torch_kbandits.numerics.shallow import changed
from torch_kbandits.posteriors.features import Features
from torch_kbandits.posteriors.gaussian import Gaussian
from torch_kbandits.posteriors.posterior import Arms
from torch_kbandits.posteriors.table import Table, Update

Array = NDArray[Any]


def _sent(like: Tensor, *arrays: Array) -> list[Tensor]:
    """Return arrays in double precision on the device of a tensor, in one copy."""
    there = torch.from_numpy(np.concatenate([each.ravel() for each in arrays])).to(like.device, non_blocking=True)
    parts = there.split([each.size for each in arrays])
    return [part.view(each.shape) for part, each in zip(parts, arrays, strict=True)]


class DeviceFeatures(Features):
    """Coordinates that are a tensor on a device."""

    @override
    @classmethod
    def none(cls, rows: int, like: Tensor) -> Self:
        return cls(like.new_empty(rows, 0), rows, 0)

    @override
    def products(self, rows: Any) -> Tensor:
        rows = rows if isinstance(rows, Tensor) else _sent(self.memory, rows)[0]
        return rows.to(self.memory.dtype) @ self.known.mT

    @override
    def _empty(self, rows: int, columns: int) -> Tensor:
        return self.memory.new_empty(rows, columns)


class DeviceTable(Table):
    """Means and variances that are tensors on a device, in double precision."""

    @override
    def followed(self, update: Update, values: Callable[[], Tensor]) -> Self:
        features, column = self.features, update.column
        arrays = update.arrays(features.columns, len(self.mean))
        rows, last, scales, spans, steps = _sent(self.mean, *arrays)
        products = features.products(rows).double()
        if column is not None:
            new = (values() - products[0]) / column.corner
            products, features = torch.addr(products[1:], last, new), features.with_column()
            features.known[:, -1] = new
        squares = products.square().mT
        return changed(
            self,
            features=features,
            mean=torch.addmm(self.mean, steps, products),
            variance=torch.addmv(self.variance, squares, scales),
            spanned=torch.addmv(self.spanned, squares, spans) if arrays[3].any() else self.spanned,
        )

    @override
    def refitted(self, gaussian: Gaussian, void: Array) -> Self:
        weights, cov, directions = _sent(self.mean, gaussian.mean, gaussian.cov, void)
        size, parts = points_at_a_time(self.mean.device, 1, len(cov)), []
        for block, expected in zip(self.features.known.split(size), self.expected.split(size, 1), strict=True):
            F = block.double()
            spanned = F.square().sum(1)
            spanned = spanned - (F @ directions.mT).square().sum(1) if len(void) else spanned
            less = (torch.addmm(F, F, cov, beta=-1.0) * F).sum(1)
            parts.append((torch.addmm(expected, weights, F.mT), less, spanned))
        mean, less, spanned = (each[0] if len(parts) == 1 else torch.cat(each, -1) for each in zip(*parts, strict=True))
        return changed(self, mean=mean, variance=self.prior + less, spanned=spanned)


class DeviceArms(Arms):
    """Arms whose table is on a device; what is returned for each of them is there."""

    @override
    @classmethod
    def of(cls, blocks: Callable[[], Any], kernel: Kernel, like: Tensor, prior: Array, expected: Array) -> Self:
        features = DeviceFeatures.none(len(prior), like)
        return cls(blocks, deepcopy(kernel).to(like), DeviceTable.of(features, *_sent(like, prior, expected)))

    @override
    def taking(self, taken: Tensor, below: Array, column: Tensor, corner: float) -> Tensor:
        return torch.vstack((taken, (column - _sent(taken, below)[0] @ taken) / corner))

    @override
    def left(self, variance: Tensor, taken: Tensor) -> Tensor:
        return (variance - taken.square().sum(0)).clamp_min(0.0)

    @override
    def _own(self, values: Tensor) -> Tensor:
        return values

    @override
    def _positive(self, variance: Tensor) -> Tensor:
        return variance.clamp_min(0.0)
