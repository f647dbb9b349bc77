"""Fast forms of what the model, training and decoding compute, each beside the plain one."""
