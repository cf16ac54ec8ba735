"""Datasets from policies and from runs."""
