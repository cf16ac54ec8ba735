"""`phimu`, and `python -m phimu`."""

import sys

from phimu.leaving import leave_at_once


def main() -> int:
    leave_at_once()  # before anything else is imported
    from phimu.cli import main as command

    return command()


if __name__ == "__main__":
    sys.exit(main())
