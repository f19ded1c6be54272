"""What is measured of a play beside its reward, and the limits that it must keep."""

from torch_kbandits.outcomes.limits import AtLeast, AtMost, Limit
from torch_kbandits.outcomes.outcome import Outcome, declared, listed
from torch_kbandits.outcomes.safe_seed import KnownSafe

__all__ = ["AtLeast", "AtMost", "KnownSafe", "Limit", "Outcome", "declared", "listed"]
