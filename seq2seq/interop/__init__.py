"""Export of trained models to other programs."""
