"""What is measured of a play beside its reward, the limits that it must keep, and several objectives as one."""

from torch_kbandits.outcomes.limits import AtLeast, AtMost, KnownSafe, Limit, Outcome, declared
from torch_kbandits.outcomes.scalarization import REWARD, Scalarization

__all__ = ["REWARD", "AtLeast", "AtMost", "KnownSafe", "Limit", "Outcome", "Scalarization", "declared"]
