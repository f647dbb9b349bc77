"""Fast forms of the computations of model, training and decoding, equal to the plain ones."""
