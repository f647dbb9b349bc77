"""How faithful a model, its training and its search are to the paper, measured detail by detail."""
