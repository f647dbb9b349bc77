"""Files that are translated: spans of text in them, with everything else byte for byte as it was."""
