"""One training in its folder: prepare, fit, validate, save, average."""
