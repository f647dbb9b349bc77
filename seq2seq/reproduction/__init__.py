"""How faithful a model and its training are to the paper: measured, detail by detail."""
