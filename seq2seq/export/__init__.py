"""Trained models for other programs."""

LONGEST = 1088
"""Positions that are written for them: a source of 1,024 tokens, an output somewhat longer."""
