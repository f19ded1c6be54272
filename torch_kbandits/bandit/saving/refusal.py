"""What saving says of values that it cannot make again."""

from torch_kbandits.errors import KernelBanditError


class NotRebuildableError(KernelBanditError, ValueError):
    """What a bandit is made of cannot be made again from plain values; the message says which part, as a clause."""
