"""Models of other programs: import from Marian, export to Marian and CTranslate2."""
