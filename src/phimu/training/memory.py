"""The allocator's habits, where they cost time."""

import ctypes
import sys

# Parameters of glibc's mallopt.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8


def keep_freed_memory() -> None:
    """Have malloc keep what is freed for the next update instead of returning it to the system.

    An update allocates tens of megabytes of temporaries. By default glibc hands them back each
    time, and the kernel clears their pages anew: a third of an update in the maze preset.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library
        return
    for parameter, value in (
        (_MMAP_THRESHOLD, 1 << 30),
        (_TRIM_THRESHOLD, (1 << 31) - 1),
        (_ARENA_MAX, 1),  # other arenas are trimmed whatever the threshold says
    ):
        mallopt(parameter, value)
