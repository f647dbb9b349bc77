"""The report of a run: one page, and the same figures as JSON."""
