"""Pictures of an evaluation, drawn by scikit-learn's displays; matplotlib is imported when one is asked for."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["DisplayMixin"]


class DisplayMixin:
    """Methods that draw what was released; they need matplotlib, the extra ``plots``."""

    def _name(self: Any) -> str | None:
        guarantee = self.privacy_guarantee_
        return None if guarantee is None else f"epsilon = {guarantee.epsilon:g}"

    def plot_roc(self: Any, ax: Any = None) -> Any:
        """Draw the ROC curve.

        Parameters
        ----------
        ax : matplotlib axes or None, default=None

        Returns
        -------
        sklearn.metrics.RocCurveDisplay
        """
        from sklearn.metrics import RocCurveDisplay

        curve = self.roc_curve()
        display = RocCurveDisplay(fpr=curve.fpr, tpr=curve.tpr, roc_auc=float(self.roc_auc))
        return display.plot(ax=ax, name=self._name())

    def plot_precision_recall(self: Any, ax: Any = None) -> Any:
        """Draw the precision-recall curve.

        Parameters
        ----------
        ax : matplotlib axes or None, default=None

        Returns
        -------
        sklearn.metrics.PrecisionRecallDisplay
        """
        from sklearn.metrics import PrecisionRecallDisplay

        curve = self.precision_recall_curve()
        display = PrecisionRecallDisplay(curve.precision, curve.recall, average_precision=float(self.average_precision))
        return display.plot(ax=ax, name=self._name())

    def plot_calibration(self: Any, ax: Any = None, n_groups: int = 10) -> Any:
        """Draw how often the class is what probabilities say, with one standard error.

        Parameters
        ----------
        ax : matplotlib axes or None, default=None
        n_groups : int, default=10
            See ``calibration_curve``.

        Returns
        -------
        sklearn.calibration.CalibrationDisplay
        """
        from sklearn.calibration import CalibrationDisplay

        curve = self.calibration_curve(n_groups)
        display = CalibrationDisplay(curve.prob_true, curve.prob_pred, np.asarray(curve.prob_pred))
        display.plot(ax=ax, name=self._name())
        colour = display.line_.get_color()
        display.ax_.errorbar(curve.prob_pred, curve.prob_true, curve.prob_true_error, fmt="none", ecolor=colour)
        return display

    def plot_confusion_matrix(self: Any, ax: Any = None, threshold: float | None = None) -> Any:
        """Draw the confusion matrix, counts without negative ones.

        Parameters
        ----------
        ax : matplotlib axes or None, default=None
        threshold : float or None, default=None
            See ``confusion_matrix``.

        Returns
        -------
        sklearn.metrics.ConfusionMatrixDisplay
        """
        from sklearn.metrics import ConfusionMatrixDisplay

        counts = self.confusion_matrix(threshold).counts
        display = ConfusionMatrixDisplay(np.rint(counts).astype(int), display_labels=self.classes_)
        return display.plot(ax=ax, values_format="d")
