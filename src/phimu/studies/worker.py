"""`python -m phimu.studies.worker PARENT ...` is `phimu ...`, told to stop when its parent dies.

On Linux, that is; elsewhere it goes on, and its lock keeps others out of the run directory.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # of <sys/prctl.h>; holds beyond execv
GONE = "phimu: the process that wanted this one is gone."


def main() -> None:
    parent, *command = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))
    if os.getppid() != int(parent):
        sys.exit(GONE)
    os.execv(sys.executable, [sys.executable, "-m", "phimu", *command])


if __name__ == "__main__":
    main()
