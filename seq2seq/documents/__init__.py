"""Documents: files of which the texts are translated, and all else stays byte for byte."""
