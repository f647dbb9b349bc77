"""A server of translations: LibreTranslate's interface over trained models."""
