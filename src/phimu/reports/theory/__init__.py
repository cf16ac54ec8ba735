"""What the experiments on finite MDPs found, as arrays, tables and pictures."""
