"""What Ax writes to JSON and reads back: our classes by name, our values with their fields.

Ax's own encoder would write dataclasses under bare names such as ``Linear``; here names say what to import.
"""

import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

from ax.storage.botorch_modular_registry import register_acquisition_function, register_model
from ax.storage.json_store.registry import CORE_DECODER_REGISTRY, CORE_ENCODER_REGISTRY
from gpytorch.kernels import Kernel

from torch_kbandits.acquisition import DiscretizedThompsonSampling, KernelUCB
from torch_kbandits.bandit.saving import NotRebuildableError, describe, rebuild
from torch_kbandits.confidence import InformationGain, Width
from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.errors import DamagedFileError, InputError, StateMismatchError
from torch_kbandits.integrations.ax.adapter import KernelBanditGenerators
from torch_kbandits.integrations.ax.playing import Settings
from torch_kbandits.integrations.ax.pool import CandidatePool
from torch_kbandits.memory import Growth, Memory
from torch_kbandits.models import NystromGP, OnlineGP

#: Version of the layout in which kernels are written.
_LAYOUT = 3


def register() -> None:
    """Tell Ax how to save these strategies, and its own with our models and acquisition functions.

    Importing ``torch_kbandits.integrations.ax`` does this.
    """
    for model in (NystromGP, OnlineGP):
        register_model(model)
    for function in (KernelUCB, DiscretizedThompsonSampling):
        register_acquisition_function(function)
    CORE_DECODER_REGISTRY[_name(Kernel)] = read_kernel  # pyright: ignore[reportArgumentType]  (Ax has such functions too)
    for kind in (KernelBanditGenerators, Settings, CandidatePool, *value_classes()):
        CORE_ENCODER_REGISTRY[kind] = _write
        CORE_DECODER_REGISTRY[_name(kind)] = kind


def value_classes() -> Iterator[type]:
    """Yield the dataclasses of this package that settings of a strategy may hold."""
    waiting: list[type] = [Memory, Growth, Width, InformationGain, DictionaryRule]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        ours = kind.__module__.startswith("torch_kbandits.")
        if ours and dataclasses.is_dataclass(kind) and not inspect.isabstract(kind):
            yield kind


def _write(value: Any) -> dict[str, Any]:
    """Return the fields of one of our values, or the name of a generator; Ax encodes what is in them."""
    if isinstance(value, KernelBanditGenerators):
        return {"__type": _name(type(value)), "name": value.name}
    fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    kernels = {name: write_kernel(field) for name, field in fields.items() if isinstance(field, Kernel)}
    return {"__type": _name(type(value)), **fields, **kernels}


def _name(kind: type) -> str:
    """Return what a class is called in a file: Ax shows it to whoever loads that without the import."""
    return f"{kind.__name__} (first import torch_kbandits.integrations.ax)"


def write_kernel(kernel: Kernel) -> dict[str, Any]:
    """Return a kernel as dictionaries, lists, numbers and tensors.

    Raises:
        InputError: if a part is of a kind that cannot be made again.
    """
    description = describe(kernel)
    try:
        rebuild("kernel", description)
    except NotRebuildableError as error:
        raise InputError(
            f"kernel must be one that the file of an experiment can hold: {error}. What works is GPyTorch's own "
            "kernels and those of BoTorch and this package, added, multiplied and scaled, with their usual "
            "constraints and priors."
        ) from error
    return {"__type": _name(Kernel), "layout": _LAYOUT, "description": description}


def read_kernel(**written: Any) -> Kernel:
    """Return the kernel that ``write_kernel`` wrote, equal to the last bit; Ax has read the tensors already.

    Raises:
        StateMismatchError: if it was written in another layout.
        DamagedFileError: if it is not what was written.
    """
    if written.get("layout") != _LAYOUT:
        raise StateMismatchError(
            f"The experiment holds a kernel in the layout {written.get('layout', 'of an early version')}, and this "
            f"version of torch_kbandits reads layout {_LAYOUT}: load it with the version that saved it."
        )
    try:
        return rebuild("kernel", written["description"])
    except (NotRebuildableError, KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise DamagedFileError(
            f"The experiment holds a kernel that does not fit together ({error!r}): its file was changed, or a later "
            "version of torch_kbandits wrote it. Take an earlier copy, or load it with that version."
        ) from error
