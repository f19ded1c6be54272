"""What Ax writes to JSON and reads back: our classes by name, our values with their fields.

Ax's own encoder would write dataclasses under bare names such as ``Linear``; here each has the prefix ``kbandits``.
"""

import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

from ax.storage.botorch_modular_registry import (
    CLASS_TO_REGISTRY,
    CLASS_TO_REVERSE_REGISTRY,
    register_acquisition,
    register_acquisition_function,
    register_model,
)
from ax.storage.json_store.registry import CORE_DECODER_REGISTRY, CORE_ENCODER_REGISTRY
from ax.storage.transform_registry import register_transform
from botorch.models.transforms.input import InputTransform
from gpytorch.kernels import Kernel

from torch_kbandits.acquisition import KernelUCB
from torch_kbandits.confidence import InformationGain, Width
from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.integrations.ax.acquisition import KernelBanditAcquisition
from torch_kbandits.integrations.ax.cube import UnitCube
from torch_kbandits.integrations.ax.generators import KernelBanditGenerators
from torch_kbandits.integrations.ax.models import AxNystromGP, AxOnlineGP, ModelSettings
from torch_kbandits.integrations.ax.pool import CandidatePool
from torch_kbandits.integrations.ax.precision import AsSaved
from torch_kbandits.integrations.ax.saved_kernels import KERNEL_TYPE, read_kernel, write_kernel
from torch_kbandits.memory import Growth, Memory


def register() -> None:
    """Tell Ax how to save what strategies are made of; importing ``torch_kbandits.integrations.ax`` does this."""
    register_model(AxNystromGP)
    register_model(AxOnlineGP)
    register_acquisition_function(KernelUCB)
    register_acquisition(KernelBanditAcquisition)
    register_transform(AsSaved)
    # Ax has a function for each kind of part but this one.
    CLASS_TO_REGISTRY[InputTransform][UnitCube] = UnitCube.__name__
    CLASS_TO_REVERSE_REGISTRY[InputTransform][UnitCube.__name__] = UnitCube
    CORE_DECODER_REGISTRY[KernelBanditGenerators.__name__] = KernelBanditGenerators
    CORE_DECODER_REGISTRY[KERNEL_TYPE] = read_kernel  # pyright: ignore[reportArgumentType]  (Ax has such functions too)
    for kind in (ModelSettings, CandidatePool, *value_classes()):
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
    """Return the fields of one of our values; Ax encodes what is in them."""
    fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    kernels = {name: write_kernel(field) for name, field in fields.items() if isinstance(field, Kernel)}
    return {"__type": _name(type(value)), **fields, **kernels}


def _name(kind: type) -> str:
    return f"kbandits.{kind.__name__}"
