"""Runs while they train: in the terminal, and as a page that this machine serves to itself."""
