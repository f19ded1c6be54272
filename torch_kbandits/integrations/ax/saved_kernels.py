"""Kernels as what JSON has: their kinds, their arguments and their numbers, to the last digit."""

from collections.abc import Sequence
from typing import Any, cast

import torch
from gpytorch.kernels import (
    AdditiveKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    ProductKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from torch.nn import Parameter

from torch_kbandits.errors import InputError

#: What Ax's decoder knows them by.
KERNEL_TYPE = "kbandits.Kernel"

#: Kernels without parts, and the arguments of their constructors that are no tensors.
_PLAIN: dict[type[Kernel], tuple[str, ...]] = {
    RBFKernel: ("ard_num_dims",),
    MaternKernel: ("nu", "ard_num_dims"),
    RQKernel: ("ard_num_dims",),
    PeriodicKernel: ("ard_num_dims",),
    LinearKernel: ("ard_num_dims",),
}
_WITH_PARTS: tuple[type[Kernel], ...] = (ScaleKernel, AdditiveKernel, ProductKernel)
_BY_NAME: dict[str, Any] = {kind.__name__: kind for kind in (*_PLAIN, *_WITH_PARTS)}


def write_kernel(kernel: Kernel) -> dict[str, Any]:
    """Return a kernel as nested dictionaries, lists and numbers.

    Raises:
        InputError: if a part is of a kind that cannot be read back, has batch dimensions, or constraints other than
            the default ones.
    """
    kind = type(kernel)
    if kind not in _PLAIN and kind not in _WITH_PARTS:
        raise InputError(
            f"kernel must be made of {', '.join(_BY_NAME)}, which can be saved with the experiment; got a "
            f"{kind.__name__}."
        )
    if kernel.batch_shape:
        raise InputError(f"kernel must have no batch dimensions, got batch_shape {tuple(kernel.batch_shape)}.")
    arguments = {name: getattr(kernel, name) for name in _PLAIN.get(kind, ()) if getattr(kernel, name) is not None}
    if kernel.active_dims is not None:
        arguments["active_dims"] = cast(torch.Tensor, kernel.active_dims).tolist()
    numbers = {name: value.detach().tolist() for name, value in _numbers(kernel).items()}
    parts = _parts(kernel)
    _check_constraints(kernel, read_kernel(kind.__name__, arguments, numbers, parts))
    return {
        "__type": KERNEL_TYPE,
        "kind": kind.__name__,
        "arguments": arguments,
        "numbers": numbers,
        "parts": [write_kernel(part) for part in parts],
    }


def read_kernel(kind: str, arguments: dict[str, Any], numbers: dict[str, Any], parts: Sequence[Kernel]) -> Kernel:
    """Return the kernel that ``write_kernel`` wrote, its parts read already: in double precision, and fixed."""
    dimensions = arguments.get("active_dims")
    active = None if dimensions is None else tuple(int(dimension) for dimension in dimensions)
    if kind in ("AdditiveKernel", "ProductKernel"):
        kernel = _BY_NAME[kind](*parts)
    else:
        kernel = _BY_NAME[kind](*parts, **{**arguments, "active_dims": active})
    kernel = kernel.double().requires_grad_(False)
    for name, parameter in _numbers(kernel).items():
        parameter.copy_(torch.tensor(numbers[name], dtype=parameter.dtype))
    return kernel


def _numbers(kernel: Kernel) -> dict[str, Parameter]:
    """Return the parameters of a kernel without those of its parts."""
    return dict(kernel.named_parameters(recurse=False))


def _parts(kernel: Kernel) -> list[Kernel]:
    if isinstance(kernel, ScaleKernel):
        return [cast(Kernel, kernel.base_kernel)]
    return [cast(Kernel, part) for part in getattr(kernel, "kernels", ())]


def _check_constraints(kernel: Kernel, again: Kernel) -> None:
    """Refuse a kernel whose numbers mean something else under the default constraints."""
    for raw in _numbers(kernel):
        name = raw.removeprefix("raw_")
        if not torch.equal(getattr(again, name), getattr(kernel, name)):
            raise InputError(
                f"The constraint of {name} of the {type(kernel).__name__} is not the default one, which is what can "
                "be saved: build the kernel without constraints and set its values."
            )
