"""From source text to target text (section 6.1)."""
