"""Kernels in Ax's JSON: the description from which saved bandits are made again, whose tensors Ax writes exactly."""

from typing import Any

from gpytorch.kernels import Kernel

from torch_kbandits.bandit.saving import NotRebuildableError, describe, rebuild
from torch_kbandits.errors import DamagedFileError, InputError, StateMismatchError

#: What Ax's decoder knows them by.
KERNEL_TYPE = "kbandits.Kernel"

#: Version of the layout of what is written.
_LAYOUT = 2


def write_kernel(kernel: Kernel) -> dict[str, Any]:
    """Return a kernel as dictionaries, lists, numbers and tensors.

    Raises:
        InputError: if a part is of a kind that cannot be made again.
    """
    try:
        description = describe("kernel", kernel)
    except NotRebuildableError as error:
        raise InputError(
            f"kernel must be one that the file of an experiment can hold: {error}. What works is GPyTorch's own "
            "kernels and those of BoTorch and this package, added, multiplied and scaled, with their usual "
            "constraints and priors."
        ) from error
    return {"__type": KERNEL_TYPE, "layout": _LAYOUT, "description": description}


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
        return rebuild(written["description"])
    except (NotRebuildableError, KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise DamagedFileError(
            f"The experiment holds a kernel that does not fit together ({error!r}): its file was changed, or a later "
            "version of torch_kbandits wrote it. Take an earlier copy, or load it with that version."
        ) from error
