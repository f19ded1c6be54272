"""What Ax writes to JSON and reads back: our classes by name, our values as ``Bandit.save`` describes them.

Ax's own encoder would write dataclasses under bare names such as ``Linear``; here names say what to import.
"""

import dataclasses
import inspect
from functools import partial
from typing import Any

from ax.storage.botorch_modular_registry import register_acquisition_function, register_model
from ax.storage.json_store.registry import CORE_DECODER_REGISTRY, CORE_ENCODER_REGISTRY

from torch_kbandits.acquisition import DiscretizedThompsonSampling, KernelUCB
from torch_kbandits.bandit.saving import NotRebuildableError, describe, rebuild
from torch_kbandits.confidence import InformationGain, Width
from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.errors import DamagedFileError
from torch_kbandits.integrations.ax.adapter import KernelBanditGenerators
from torch_kbandits.integrations.ax.trial_bandit import Settings
from torch_kbandits.memory import Growth, Memory
from torch_kbandits.models import NystromGP, OnlineGP


def register() -> None:
    """Tell Ax how to save these strategies, and its own with our models, acquisition functions and values."""
    for model in (NystromGP, OnlineGP):
        register_model(model)
    for function in (KernelUCB, DiscretizedThompsonSampling):
        register_acquisition_function(function)
    CORE_ENCODER_REGISTRY[KernelBanditGenerators] = lambda value: {"__type": _name(type(value)), "name": value.name}
    CORE_DECODER_REGISTRY[_name(KernelBanditGenerators)] = KernelBanditGenerators
    for kind in (Settings, *value_classes()):
        CORE_ENCODER_REGISTRY[kind] = _write
        # Ax has functions in place of classes, too.
        CORE_DECODER_REGISTRY[_name(kind)] = partial(_read, kind)  # pyright: ignore[reportArgumentType]


def value_classes() -> list[type]:
    """Return the dataclasses of this package that settings of a strategy, or parts of a strategy of Ax, may be."""
    kinds: list[type] = [Memory, Growth, Width, InformationGain, DictionaryRule]
    for kind in kinds:
        kinds += kind.__subclasses__()
    ours = [kind for kind in kinds if kind.__module__.startswith("torch_kbandits.")]
    return [kind for kind in ours if dataclasses.is_dataclass(kind) and not inspect.isabstract(kind)]


def _name(kind: type) -> str:
    """Return what a class is called in a file: Ax shows it to whoever loads that without the import."""
    return f"{kind.__name__} (first import torch_kbandits.integrations.ax)"


def _write(value: Any) -> dict[str, Any]:
    """Return one of our values as Ax writes it."""
    fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
    return {"__type": _name(type(value)), "fields": describe(fields)}


def _read(kind: type, fields: Any) -> Any:
    """Return the value that was written, to the last bit; ``DamagedFileError`` if it is not what was written."""
    try:
        return kind(**rebuild(kind.__name__, fields))
    except (NotRebuildableError, KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise DamagedFileError(
            f"The experiment holds a {kind.__name__} that does not fit together ({error!r}): its file was changed, or "
            "another version of torch_kbandits wrote it. Take an earlier copy, or load it with that version."
        ) from error
