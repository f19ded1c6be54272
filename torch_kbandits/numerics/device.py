"""What goes from the host to a device and comes back, which it need not wait for, and how much at a time."""

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

#: By tensors off the CPU, how often these had been written to when the host sent them, and their values.
_SENT = WeakIdKeyDictionary()

#: Numbers of the largest temporary of a step off the CPU: 256 MiB in single precision.
_NUMBERS = 2**26


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Return values of the host on a device, where that is another in a copy, of which the host remembers them."""
    if values.device == device:
        return values
    there = values.to(device, non_blocking=True)
    if not there.is_inference():
        _SENT[there] = there._version, values
    return there


def to_host(values: Tensor) -> Tensor:
    """Return values on the host, not to be written to: as it sent them, if nobody has written to them since."""
    if values.is_cpu:
        return values
    known = None if values.is_inference() else _SENT.get(values)
    return known[1] if known is not None and known[0] == values._version else values.detach().cpu()


def points_at_a_time(device: torch.device, cached: int, numbers: int) -> int:
    """Return how many points to handle at a time, at least 1.

    Args:
        device: where they are.
        cached: how many on a CPU.
        numbers: that a temporary has for each point.
    """
    return max(1, cached if device.type == "cpu" else max(cached, _NUMBERS // max(numbers, 1)))
