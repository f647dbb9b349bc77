"""Parallel text in, batches of token ids out (section 5.1)."""
