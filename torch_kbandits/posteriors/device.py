"""Arms on a device: what has a number for each of them is done by PyTorch. Which way is chosen here, once."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from torch_kbandits.numerics.device import points_at_a_time
from torch_kbandits.posteriors.gaussian import Gaussian
from torch_kbandits.posteriors.posterior import Arms, Prior
from torch_kbandits.posteriors.table import HOST, Arrays, Steps

Array = NDArray[Any]


class DeviceSteps(Steps):
    """On a device, by PyTorch: one copy from the host a step and no wait."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    @override
    def kept(self, *arrays: Array) -> list[Tensor]:
        sent = torch.from_numpy(np.concatenate([each.ravel() for each in arrays])).to(self.device, non_blocking=True)
        parts = sent.split([each.size for each in arrays])
        return [part.view(each.shape) for part, each in zip(parts, arrays, strict=True)]

    @override
    def own(self, values: Tensor) -> Tensor:
        return values

    @override
    def empty(self, like: Tensor, rows: int, columns: int) -> Tensor:
        return like.new_empty(rows, columns)

    @override
    def times(self, values: Tensor, matrix: Array) -> Tensor:
        return values @ torch.from_numpy(matrix.copy()).to(values)

    @override
    def products(self, rows: Array, memory: Tensor) -> Tensor:
        return self.kept(rows)[0].to(memory.dtype) @ memory[:, : rows.shape[1]].mT

    @override
    def followed(self, update: Arrays, values: Any, features: Tensor, memory: Tensor, moments: Any) -> Any:
        rows, last, corners, changes = update
        (n, m), (mean, variance, spanned), joins = features.shape, moments, len(corners)
        whitened = np.linalg.inv(np.tril(last[:joins], -1) + np.diag(corners))
        has_spans = changes[:, 1].any()
        rows, last, whitened, changes = self.kept(rows, last[joins:], whitened, changes)
        products = (rows.to(features.dtype) @ features.mT).double()
        if joins:
            new = whitened @ (values - products[:joins])
            products = torch.addmm(products[joins:], last, new)
            memory[:n, m : m + joins] = new.mT
        squares = products.square().mT
        spanned = torch.addmv(spanned, squares, changes[:, 1]) if has_spans else spanned
        return torch.addmm(mean, changes[:, 2:].mT, products), torch.addmv(variance, squares, changes[:, 0]), spanned

    @override
    def refitted(
        self, gaussian: Gaussian, void: Array, memory: Tensor, prior: Tensor, expected: Tensor
    ) -> Sequence[Tensor]:
        weights, cov, directions = self.kept(gaussian.mean, gaussian.cov, void)
        features = memory[:, : len(cov)]
        size, parts = points_at_a_time(self.device, 1, len(cov)), []
        for block, before, own in zip(*(features.split(size), prior.split(size), expected.split(size, 1)), strict=True):
            F = block.double()
            spanned = F.square().sum(1)
            spanned = spanned - (F @ directions.mT).square().sum(1) if len(void) else spanned
            variance = before + (torch.addmm(F, F, cov, beta=-1.0) * F).sum(1)
            parts.append((torch.addmm(own, weights, F.mT), variance, spanned))
        return [each[0] if len(parts) == 1 else torch.cat(each, -1) for each in zip(*parts, strict=True)]

    @override
    def bordered(self, taken: Tensor, below: Array, column: Tensor, corner: float) -> Tensor:
        return torch.vstack((taken, (column - self.kept(below)[0] @ taken) / corner))

    @override
    def left(self, variance: Tensor, taken: Tensor) -> Tensor:
        return (variance - taken.square().sum(0)).clamp_min(0.0)


def arms_of(source: Any, kernel: Kernel, prior: Prior) -> tuple[Arms, Array]:
    """Return arms before any reward, and their prior variances, (A,); the kernel is the prior's in their dtype."""
    blocks = (block.cpu() for _, block in source.blocks())
    variances, means = zip(*((prior.variance(block), prior.expected(block)) for block in blocks), strict=True)
    variance, mean, steps = np.concatenate(variances), np.concatenate(means, axis=1), HOST
    if source.device.type != "cpu":
        steps, kernel = DeviceSteps(source.device), deepcopy(kernel).to(source.device)
    return Arms.of(source.blocks, kernel, source.block(0, 0), variance, mean, steps), variance
