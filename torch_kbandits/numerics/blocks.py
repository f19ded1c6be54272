"""How many points are handled at a time: as many as stay in cache, and more off the CPU, where a step is a launch."""

import torch

#: Numbers of the largest temporary of a step off the CPU: 256 MiB in single precision.
_NUMBERS = 2**26


def points_at_a_time(device: torch.device, cached: int, numbers: int) -> int:
    """Return how many points to handle at a time, at least 1.

    Args:
        device: where they are.
        cached: how many on a CPU.
        numbers: that a temporary has for each point.
    """
    return max(1, cached if device.type == "cpu" else max(cached, _NUMBERS // max(numbers, 1)))
