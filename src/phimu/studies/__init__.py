"""The paper's tables, figures and ablations as runs: what to run, and how it is carried out."""
