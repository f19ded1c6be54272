"""Resident memory of this process, now and at its peak."""

import resource
import sys
from pathlib import Path

import psutil


def resident_bytes() -> int:
    """Return the memory that this process holds now."""
    return psutil.Process().memory_info().rss


def peak_bytes() -> int:
    """Return the most memory that this process has held so far."""
    status = Path("/proc/self/status")
    if status.exists():
        # On Linux a process inherits the ru_maxrss of the one that started it; VmHWM is its own.
        (peak,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return 1024 * int(peak.split()[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
