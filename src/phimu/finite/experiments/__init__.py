"""The paper's theory, run on finite MDPs where the truth is known."""
