"""What the experiments on finite MDPs found, as tables, sentences and pictures."""
