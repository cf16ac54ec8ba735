"""What is made from runs: scores, tables and figures."""
