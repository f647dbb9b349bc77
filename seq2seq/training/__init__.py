"""Training (section 5): loss, optimizer and schedule, the loop, and what it records."""
