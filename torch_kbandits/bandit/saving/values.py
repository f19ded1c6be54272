"""What bandits are made of as plain values, and made again from them: no class but those listed here, and no code."""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import acquisition, confidence, dictionaries, memory, outcomes, priors, spaces
from torch_kbandits.acquisition import AcquisitionRule
from torch_kbandits.bandit import adaptation, batches
from torch_kbandits.bandit.adaptation import MemoryChoice, RestartTrigger
from torch_kbandits.bandit.batches import BatchRule
from torch_kbandits.bandit.saving import kernels
from torch_kbandits.bandit.saving.refusal import NotRebuildableError
from torch_kbandits.candidates import (
    Arms,
    ArmSource,
    Box,
    Configurations,
    ContextualActions,
    Timed,
    UnitCube,
)
from torch_kbandits.candidates.arms import MappedFile
from torch_kbandits.confidence import InformationGain, Width
from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.memory import Growth, Memory
from torch_kbandits.observations import columns
from torch_kbandits.observations.column_spec import ColumnSpec
from torch_kbandits.observations.columns import Category, Number
from torch_kbandits.observations.expiry import Expiry
from torch_kbandits.outcomes import Limit, Outcome, Scalarization
from torch_kbandits.priors import LearnedPrior, Prior, families
from torch_kbandits.spaces import LinearConstraint, Parameter, ParameterSpace

_BASES = (
    AcquisitionRule,
    MemoryChoice,
    BatchRule,
    Category,
    DictionaryRule,
    families.Family,
    families.FamilyRule,
    families.ModelSpec,
    Growth,
    InformationGain,
    Limit,
    Memory,
    LearnedPrior,
    Number,
    Outcome,
    Parameter,
    Prior,
    RestartTrigger,
    Scalarization,
    Width,
)

_MODULES = (acquisition, adaptation, batches, columns, confidence, dictionaries, memory, outcomes, priors, spaces)

#: The values of this package: dataclasses, each made again by its own constructor, which checks the fields.
_VALUES: dict[str, type] = {each.__name__: each for each in (ColumnSpec, Expiry, LinearConstraint, ParameterSpace)} | {
    kind.__name__: kind
    for module in (*_MODULES, families)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, _BASES) and dataclasses.is_dataclass(kind)
}

_DTYPES = {str(dtype): dtype for dtype in (torch.float64, torch.float32)}


def _box(box: Box) -> dict[str, Any]:
    return {"bounds": box.bounds, "num_restarts": box.num_restarts, "raw_samples": box.raw_samples}


def _contextual(actions: ContextualActions) -> dict[str, Any]:
    return {
        "actions": actions.source,
        "context_dim": actions.context_dim,
        "bounds": actions.bounds,
        "action_dim": actions.action_dim,
        "num_restarts": actions.num_restarts,
        "raw_samples": actions.raw_samples,
        "context_columns": actions.context_columns,
        "action_columns": actions.action_columns,
        "dtype": actions.example.dtype,
    }


def _configurations(candidates: Configurations) -> dict[str, Any]:
    return {
        "space": candidates.space,
        "context_dim": candidates.context_dim,
        "context_columns": candidates.context_columns,
    }


def _cube(cube: UnitCube) -> dict[str, Any]:
    return {
        "dimension": cube.dimension,
        "snap": cube.snap,
        "continuous": cube.continuous,
        "neighbours": cube.neighbours,
    }


def _mapping(value: dict[Any, Any]) -> dict[str, Any]:
    if not all(isinstance(key, str) for key in value):
        raise NotRebuildableError(f"a mapping has names that are no texts: {list(value)!r}")
    return value


#: What else is made again, with the words of its constructor.
_OTHERS: dict[str, tuple[type, Callable[[Any], dict[str, Any]]]] = {
    kind.__name__: (kind, words)
    for kind, words in (
        (ArmSource, lambda source: {"arms": source.given, "dtype": source.dtype}),
        (Arms, lambda arms: {"arms": arms.source}),
        (Box, _box),
        (Configurations, _configurations),
        (ContextualActions, _contextual),
        (Timed, lambda points: {"candidates": points.untimed}),
        (MappedFile, vars),
        (UnitCube, _cube),
        (dict, _mapping),
    )
}


def describe(name: str, value: Any, points: Tensor) -> Any:
    """Return a value as tensors, numbers, strings, and lists, tuples and dictionaries of these.

    Args:
        name: what it is, for the message of the error.
        value: a piece of a bandit.
        points: (n, d), at which kernels are compared with those made again.

    Raises:
        NotRebuildableError: if it, or a part of it, is of a class that is not listed here.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, torch.dtype):
        return {"dtype": str(value)}
    if isinstance(value, (list, tuple)):
        parts = [describe(f"{name}[{number}]", part, points) for number, part in enumerate(value)]
        return {"list" if isinstance(value, list) else "tuple": parts}
    if isinstance(value, Kernel):
        try:
            return {"covariance": kernels.describe(value, points)}
        except NotRebuildableError as error:
            raise NotRebuildableError(f"{name}: {error}") from error
    kind = type(value).__name__
    if type(value) is _VALUES.get(kind):
        words = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
    elif kind in _OTHERS and type(value) is _OTHERS[kind][0]:
        words = _OTHERS[kind][1](value)
    else:
        raise NotRebuildableError(f"{name}: objects of the class {kind} are not known to it")
    return {"is": kind, "words": {key: describe(f"{name}.{key}", word, points) for key, word in words.items()}}


def rebuild(description: Any, device: torch.device) -> Any:
    """Return the value that was described, its tensors on a device.

    Raises:
        KeyError, TypeError, ValueError: if it was not ``describe`` that made the description.
    """
    if isinstance(description, Tensor):
        return description.to(device)
    if not isinstance(description, dict):
        return description
    if "dtype" in description:
        return _DTYPES[description["dtype"]]
    if "list" in description:
        return [rebuild(part, device) for part in description["list"]]
    if "tuple" in description:
        return tuple(rebuild(part, device) for part in description["tuple"])
    if "covariance" in description:
        return kernels.rebuild(description["covariance"]).to(device)
    kind, words = description["is"], description["words"]
    made = _VALUES[kind] if kind in _VALUES else _OTHERS[kind][0]
    return made(**{key: rebuild(word, device) for key, word in words.items()})
