"""Training loops and what surrounds them: run directory, checkpoints, logs and progress."""
