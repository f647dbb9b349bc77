"""The original Post-LN Transformer of Vaswani et al. (2017): train, translate, score."""

__version__ = "0.1.0"
