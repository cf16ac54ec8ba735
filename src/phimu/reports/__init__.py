"""What was run beside what was published: rows, statistics, figures, the page."""
