"""The report of a run: one page, and the same numbers as JSON."""
