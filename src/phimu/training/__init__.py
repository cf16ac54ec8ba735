"""Training loops: one compiled learner, which knows the protocol and no agent by name."""
