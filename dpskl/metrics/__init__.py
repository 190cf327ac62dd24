"""How good a classifier is, told by one noisy release: figures with standard errors, curves and their pictures."""

from dpskl.metrics.evaluation import Evaluation
from dpskl.metrics.figures import Figure
from dpskl.metrics.release import evaluate

__all__ = ["Evaluation", "Figure", "evaluate"]
