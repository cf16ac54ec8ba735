"""Transitions: the replay buffer of an online run."""
