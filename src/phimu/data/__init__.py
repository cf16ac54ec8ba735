"""Transitions: the replay buffer of an online run, and logged sets (`open_set`)."""
