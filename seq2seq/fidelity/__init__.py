"""The comparison of a model, its training and its search with the paper, detail by detail."""
