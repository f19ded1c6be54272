"""What tells one configuration from another: settings by name, as plain values and fingerprints of large tensors."""

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import StateMismatchError

#: Letters of a setting that the message of an error shows.
_LONGEST_SETTING = 200
#: Tensors of more numbers are told apart by a fingerprint: nobody would read them.
_MOST_WRITTEN = 64


def describe_value(name: str, value: Any, settings: dict[str, Any]) -> None:
    """Add a setting under its name; a dataclass becomes its class name and its fields, a kernel or mean its parts."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        settings[name] = type(value).__name__
        for field in dataclasses.fields(value):
            describe_value(f"{name}.{field.name}", getattr(value, field.name), settings)
    elif isinstance(value, (Kernel, Mean)):
        settings |= describe_module(value, name)
    elif isinstance(value, Mapping):
        describe_value(name, [*value.items()], settings)
    elif isinstance(value, (tuple, list)):
        for index, part in enumerate(value):
            describe_value(f"{name}.{index}", part, settings)
    elif isinstance(value, Tensor):
        settings[name] = _describe_tensor(value)
    elif isinstance(value, (bool, int, float, str, type(None))):
        settings[name] = value
    else:
        settings[name] = getattr(value, "__qualname__", type(value).__name__)


def describe_module(module: Kernel | Mean, title: str) -> dict[str, Any]:
    """Return the class, the plain settings (such as ``nu``) and the parameters of a kernel, or mean, and its parts."""
    settings: dict[str, Any] = {}
    for name, part in module.named_modules():
        if isinstance(part, torch.nn.Softplus):  # of constraints, which may share one
            continue
        prefix = f"{title}.{name}" if name else title
        settings[prefix] = type(part).__name__
        for key, value in vars(part).items():
            if key != "training" and not key.startswith("_") and isinstance(value, (bool, int, float, str)):
                settings[f"{prefix}.{key}"] = value
    return settings | {f"{title}.{name}": _describe_tensor(value) for name, value in module.state_dict().items()}


def _describe_tensor(value: Tensor) -> str:
    """Return the numbers of a tensor or, of a large one, its shape and a fingerprint: equal if all numbers are."""
    if value.numel() <= _MOST_WRITTEN:
        return str(value.tolist())
    digest = hashlib.sha256(value.detach().cpu().contiguous().numpy().tobytes())
    return f"{tuple(value.shape)} numbers, {value.dtype}, sha256 {digest.hexdigest()[:32]}"


def check_same(saved: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Refuse settings that differ, naming every difference.

    Raises:
        StateMismatchError: if they do.
    """
    plain = (bool, int, float, str, type(None))
    differences = [
        f"{key}: saved {_shown(saved.get(key, 'nothing'))}, here {_shown(here.get(key, 'nothing'))}"
        for key in sorted({*saved, *here}, key=str)
        if key not in saved or not isinstance(saved[key], plain) or key not in here or saved[key] != here[key]
    ]
    if differences:
        raise StateMismatchError("The state belongs to another configuration. " + "; ".join(differences) + ".")


def _shown(setting: Any) -> str:
    return setting[:_LONGEST_SETTING] if isinstance(setting, str) else checks.shown(setting)
