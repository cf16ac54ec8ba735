"""`phimu bench`: speed and memory, as ratios within one run, because machines are shared."""
