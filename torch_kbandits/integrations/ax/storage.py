"""What Ax writes to JSON and reads back: our classes by name, our values with their fields, kernels with their numbers.

Ax's own encoder would write dataclasses by bare names such as ``Linear``; here each has the prefix ``kbandits``.
"""

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from ax.storage.botorch_modular_registry import (
    register_acquisition,
    register_acquisition_function,
    register_model,
)
from ax.storage.json_store.registry import CORE_DECODER_REGISTRY, CORE_ENCODER_REGISTRY
from ax.storage.transform_registry import register_transform
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

from torch_kbandits.acquisition import KernelUCB
from torch_kbandits.confidence import InformationGain, Width
from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.errors import InputError
from torch_kbandits.integrations.ax.acquisition import KernelBanditAcquisition
from torch_kbandits.integrations.ax.generators import KernelBanditGenerators
from torch_kbandits.integrations.ax.models import AxNystromGP, AxOnlineGP, ModelSettings
from torch_kbandits.integrations.ax.pool import CandidatePool
from torch_kbandits.integrations.ax.precision import AsSaved
from torch_kbandits.memory import Growth, Memory

_PREFIX = "kbandits."

#: Kernels that can be written, and the arguments of their constructors that are no tensors.
_LEAVES: dict[type[Kernel], tuple[str, ...]] = {
    RBFKernel: ("ard_num_dims",),
    MaternKernel: ("nu", "ard_num_dims"),
    RQKernel: ("ard_num_dims",),
    PeriodicKernel: ("ard_num_dims",),
    LinearKernel: ("ard_num_dims",),
}
_SUMS: dict[str, type[Kernel]] = {"AdditiveKernel": AdditiveKernel, "ProductKernel": ProductKernel}
_BY_NAME = {kind.__name__: kind for kind in _LEAVES}


def register() -> None:
    """Tell Ax how to save what strategies are made of; importing ``torch_kbandits.integrations.ax`` does this."""
    register_model(AxNystromGP)
    register_model(AxOnlineGP)
    register_acquisition_function(KernelUCB)
    register_acquisition(KernelBanditAcquisition)
    register_transform(AsSaved)
    CORE_DECODER_REGISTRY[KernelBanditGenerators.__name__] = KernelBanditGenerators
    for kind in (ModelSettings, CandidatePool, *_values()):
        CORE_ENCODER_REGISTRY[kind] = _write
        CORE_DECODER_REGISTRY[_PREFIX + kind.__name__] = kind
    CORE_DECODER_REGISTRY[_PREFIX + "Kernel"] = read_kernel


def write_kernel(kernel: Kernel) -> dict[str, Any]:
    """Return a kernel as what JSON has: its kind, its arguments and its numbers, to the last digit.

    Raises:
        InputError: if it is of a kind that cannot be read back, or has constraints other than the default ones.
    """
    written: dict[str, Any] = {"__type": _PREFIX + "Kernel", "kind": type(kernel).__name__}
    if type(kernel) is ScaleKernel:
        written["parts"] = [write_kernel(kernel.base_kernel)]
    elif type(kernel).__name__ in _SUMS:
        written["parts"] = [write_kernel(part) for part in kernel.kernels]
    elif type(kernel) in _LEAVES:
        written["arguments"] = {name: getattr(kernel, name) for name in _LEAVES[type(kernel)]}
        if kernel.active_dims is not None:
            written["arguments"]["active_dims"] = kernel.active_dims.tolist()
    else:
        names = [kind.__name__ for kind in (*_LEAVES, ScaleKernel, *_SUMS.values())]
        raise InputError(
            f"kernel must be made of {', '.join(names)}, which can be saved with the experiment; got a "
            f"{type(kernel).__name__}."
        )
    if kernel.batch_shape:
        raise InputError(f"kernel must have no batch dimensions, got batch_shape {tuple(kernel.batch_shape)}.")
    written["numbers"] = {name: value.detach().tolist() for name, value in _own_parameters(kernel)}
    _check_reads_back(kernel, written)
    return written


def read_kernel(
    kind: str,
    numbers: dict[str, Any],
    arguments: dict[str, Any] | None = None,
    parts: list[Kernel] | None = None,
) -> Kernel:
    """Return the kernel that ``write_kernel`` wrote, in double precision, from its fields with its parts read."""
    if kind == "ScaleKernel":
        kernel: Kernel = ScaleKernel((parts or [])[0])
    elif kind in _SUMS:
        kernel = _SUMS[kind](*(parts or []))
    else:
        given = dict(arguments or {})
        active_dims = given.pop("active_dims", None)
        kernel = _BY_NAME[kind](**given, active_dims=None if active_dims is None else tuple(map(int, active_dims)))
    kernel = kernel.double()
    own = dict(_own_parameters(kernel))
    with torch.no_grad():
        for name, value in numbers.items():
            own[name].copy_(torch.tensor(value, dtype=torch.float64))
    return kernel.requires_grad_(False)


def _check_reads_back(kernel: Kernel, written: dict[str, Any]) -> None:
    """Refuse a kernel whose numbers mean something else under the default constraints."""
    fields = {name: value for name, value in written.items() if name != "__type"}
    parts = [*getattr(kernel, "kernels", [])] or [getattr(kernel, "base_kernel", None)]
    again = read_kernel(**{**fields, "parts": parts} if "parts" in fields else fields)
    for name, _ in _own_parameters(kernel):
        property_name = name.removeprefix("raw_")
        if not torch.equal(getattr(again, property_name).double(), getattr(kernel, property_name).double()):
            raise InputError(
                f"The constraint of {property_name} of the {type(kernel).__name__} is not the default one, which is "
                "what can be saved: build the kernel without constraints and set its values."
            )


def _own_parameters(kernel: Kernel) -> list[tuple[str, torch.nn.Parameter]]:
    return list(kernel.named_parameters(recurse=False))


def _write(value: Any) -> dict[str, Any]:
    """Return the fields of one of our values, which Ax encodes in turn."""
    fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    kernels = {name: write_kernel(field) for name, field in fields.items() if isinstance(field, Kernel)}
    return {"__type": _PREFIX + type(value).__name__, **fields, **kernels}


def _values() -> Iterator[Callable[..., Any]]:
    """Yield the dataclasses of this package that a strategy may hold."""
    waiting: list[type] = [Memory, Growth, Width, InformationGain, DictionaryRule]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if (
            dataclasses.is_dataclass(kind)
            and not inspect.isabstract(kind)
            and kind.__module__.startswith("torch_kbandits")
        ):
            yield kind
