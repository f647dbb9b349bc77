"""One run in its folder: prepare, train, validate, save, average."""
