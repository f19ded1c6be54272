"""Kernels by name, for specs: a table such as ``{name = "rbf", lengthscale = 0.2, outputscale = 1.0}``."""

from collections.abc import Mapping
from typing import Any

import torch
from gpytorch.kernels import Kernel, LinearKernel

from torch_kbandits import checks
from torch_kbandits.environments.options import stationary_kernel
from torch_kbandits.errors import InputError
from torch_kbandits.experiments import own
from torch_kbandits.experiments.nearest import check_keys, pick, table

#: The names that a kernel table may have, and what each is.
KERNELS = {
    "rbf": "Gaussian, or squared exponential: smooth functions.",
    "matern-2.5": "Matérn, ν = 2.5: twice differentiable functions.",
    "matern-1.5": "Matérn, ν = 1.5: once differentiable functions.",
    "matern-0.5": "Matérn, ν = 0.5: rough, continuous functions.",
    "linear": "Inner product: linear functions through the origin.",
}


def build_kernel(value: Any, where: str = "kernel") -> Kernel:
    """Make a kernel in double precision from its name or its table.

    Args:
        value: a name, or a table with ``name``, ``lengthscale`` (a number, or one for each input; default 1; not for
            "linear") and ``outputscale`` (the prior variance in reward units squared, default 1). With the name of own
            code the table has the words of its class instead.
        where: how error messages call it.

    Raises:
        InputError: if the name, a key or a value is not known or does not fit.
    """
    entry: Mapping[str, Any] = {"name": value} if isinstance(value, str) else table(where, value)
    if "name" not in entry:
        raise InputError(f"{where} needs a name, one of {', '.join(KERNELS)}.")
    if own.is_piece(entry):
        kernel = own.build_piece(where, entry)
        checks.instance(where, kernel, Kernel, "a GPyTorch kernel")
        return kernel.double()
    name = pick(where, "kernel", entry["name"], KERNELS, own.FORMS)
    check_keys(where, f"option of kernel {name!r}", entry, _options(name))
    outputscale = checks.positive(f"{where}.outputscale", entry.get("outputscale", 1.0))
    if name != "linear":
        lengthscale = _lengthscale(f"{where}.lengthscale", entry.get("lengthscale", 1.0))
        return stationary_kernel(name, lengthscale, outputscale)
    kernel = LinearKernel().double()
    kernel.variance = torch.tensor(outputscale, dtype=torch.float64)
    return kernel


def _options(name: str) -> set[str]:
    return {"name", "outputscale"} | (set() if name == "linear" else {"lengthscale"})


def _lengthscale(where: str, value: Any) -> float | list[float]:
    """Return one lengthscale, or one for each input."""
    if isinstance(value, list | tuple):
        if not value:
            raise InputError(f"{where} must be a number or a list with one for each input, got an empty list.")
        return [checks.positive(f"{where}[{i}]", part) for i, part in enumerate(value)]
    return checks.positive(where, value)
