"""Differentially private linear classifiers for scikit-learn."""

__version__ = "0.1.0"
