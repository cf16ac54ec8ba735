"""Finite linear MDPs, where every quantity of the paper has an exact value.

s is an observation index 0 .. S - 1, as elsewhere in phimu; the word state is kept for the latent
states of locks and block MDPs. Everything is float64: models are NumPy arrays, and compiled
functions are wrapped in `exact`.
"""
