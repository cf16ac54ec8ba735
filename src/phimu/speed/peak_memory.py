"""The most memory that a process has had.

Only the standard library, so that processes without phimu can load this file and measure the same.
"""

import resource
import sys
from pathlib import Path


def peak_memory_mb() -> float:
    """The most memory that this process has had."""
    status = Path("/proc/self/status")
    if status.exists():
        # ru_maxrss would begin with what the parent held when it started this process.
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024) / 1e6
