"""A run on disk: its directory, configuration, checkpoints, lock and log."""
