"""How good translations are: sacreBLEU's metrics, the paper's BLEU, significance."""
