"""One file per agent, which reads like its pseudocode; here, their names and presets."""
