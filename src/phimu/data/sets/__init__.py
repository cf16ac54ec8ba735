"""Logged transitions in files: D4RL, Minari, arrays, tables; reading and writing."""
