"""Curves and tables of an evaluation, and the weights of the cells that they are made with."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dpskl.metrics.figures import Figure
from dpskl.metrics.sums import ratio

__all__ = [
    "FIGURES",
    "CalibrationCurve",
    "ConfusionMatrix",
    "PrecisionRecallCurve",
    "RocCurve",
    "cell_weights",
    "end_shares",
    "mean_f1",
    "mean_recall",
    "precision_weights",
    "rate_weights",
    "values_and_errors",
]

Array = np.ndarray[Any, Any]

FIGURES = (
    "accuracy", "balanced_accuracy", "recall", "specificity", "precision", "f1", "roc_auc", "average_precision",
    "brier", "log_loss", "base_rate",
)  # fmt: skip


class RocCurve(NamedTuple):
    """Rates at falling thresholds, as ``sklearn.metrics.roc_curve`` has them, and their standard errors."""

    fpr: Array
    tpr: Array
    thresholds: Array
    fpr_error: Array
    tpr_error: Array


class PrecisionRecallCurve(NamedTuple):
    """As ``sklearn.metrics.precision_recall_curve`` has it, and standard errors."""

    precision: Array
    recall: Array
    thresholds: Array
    precision_error: Array
    recall_error: Array


class CalibrationCurve(NamedTuple):
    """As ``sklearn.calibration.calibration_curve`` has it, with standard errors and numbers of records."""

    prob_true: Array
    prob_pred: Array
    prob_true_error: Array
    counts: Array


class ConfusionMatrix(NamedTuple):
    """Numbers of records, a row for each class and a column for each predicted one, and their standard errors."""

    counts: Array
    errors: Array


def end_shares(n_bins: int) -> Array:
    """Return for each end of an interval, from low to high, which intervals lie above it."""
    return (np.arange(n_bins) >= np.arange(n_bins + 1)[:, None]) * 1.0


def rate_weights(share: Array, side: int) -> tuple[Array, Array]:
    """Return weights of the cells for a share of one class's records."""
    here = np.array([1.0 - side, 1.0 * side])
    return np.kron(here, share), np.repeat(here, len(share))


def precision_weights(share: Array) -> tuple[Array, Array]:
    """Return weights of the cells for the share of the second class above a threshold."""
    return np.append(0 * share, share), np.append(share, share)


def cell_weights(side: int, predicted: int, share: Array) -> tuple[Array, None]:
    """Return weights of the cells for one entry of the confusion matrix."""
    return rate_weights(share if predicted else 1 - share, side)[0], None


def values_and_errors(figures: list[Figure]) -> tuple[Array, Array]:
    """Return figures as an array, and their standard errors."""
    return np.array([float(figure) for figure in figures]), np.array([figure.standard_error for figure in figures])


def mean_recall(table: Array) -> Array:
    """Return the mean recall of confusion matrices."""
    right: Array = np.diagonal(table, axis1=-2, axis2=-1)
    return ratio(right, table.sum(axis=-1)).mean(axis=-1)


def mean_f1(table: Array) -> Array:
    """Return the mean F1 score of confusion matrices."""
    right: Array = np.diagonal(table, axis1=-2, axis2=-1)
    return ratio(2 * right, table.sum(axis=-1) + table.sum(axis=-2)).mean(axis=-1)
