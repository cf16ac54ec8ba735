"""Models of the dynamics: networks of s' - s, their fit, and episodes imagined in them."""
