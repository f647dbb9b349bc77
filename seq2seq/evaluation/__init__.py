"""Evaluation of translations: sacreBLEU's metrics, the paper's BLEU, significance tests."""
