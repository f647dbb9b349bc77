"""Files on disk: whole or not at all, read strictly; models and checkpoints."""
