"""`python -m phimu`."""

import sys

from phimu.cli import main

sys.exit(main())
