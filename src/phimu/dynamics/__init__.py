"""Models of the dynamics: networks that predict s' - s, their fit, and episodes imagined in them."""
