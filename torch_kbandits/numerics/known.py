"""Whole numbers in tensors off the CPU that the host knows, so that nobody waits for them twice."""

from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

#: Of tensors that nobody writes to.
_KNOWN = WeakIdKeyDictionary()


def known(numbers: Tensor, values: list[int]) -> Tensor:
    """Return numbers (k,) that nobody may write to, and remember that these are their values."""
    if not numbers.is_cpu:
        _KNOWN[numbers] = values
    return numbers


def listed(numbers: Tensor) -> list[int]:
    """Return the values of numbers (k,) that nobody may write to."""
    if numbers.is_cpu:
        return numbers.tolist()
    values = _KNOWN.get(numbers)
    if values is None:
        values = _KNOWN[numbers] = numbers.tolist()
    return values
