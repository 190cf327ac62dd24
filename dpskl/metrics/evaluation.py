"""What can be told from one released histogram of scores."""

from __future__ import annotations

from functools import partial
from math import inf, isfinite
from numbers import Real
from typing import Any

import numpy as np

from dpskl.guarantee import PrivacyGuarantee
from dpskl.mechanisms.score_histogram import ScoreHistogram
from dpskl.metrics.curves import (
    FIGURES,
    CalibrationCurve,
    ConfusionMatrix,
    PrecisionRecallCurve,
    RocCurve,
    cell_weights,
    end_shares,
    mean_f1,
    mean_recall,
    precision_weights,
    rate_weights,
    values_and_errors,
)
from dpskl.metrics.displays import DisplayMixin
from dpskl.metrics.figures import Figure
from dpskl.metrics.sums import average_precision, brier_weights, log_loss_weights, ratio
from dpskl.metrics.tables import CircleTable, FlatTable

__all__ = ["Evaluation"]

Array = np.ndarray[Any, Any]


class Evaluation(DisplayMixin):
    """Figures of a classifier, all computed from one noisy release; see :func:`evaluate`, which makes it.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    n_samples_ : int
        The public number of records.
    bin_edges_ : ndarray of shape (n_bins + 1,)
        Ends of the intervals of the scores. Thresholds between them are answered as if scores were spread evenly
        within an interval, and the standard error contains the guess.
    noisy_counts_ : ndarray of shape (2, n_bins)
        The released histogram: numbers of records by class and interval, which may be negative. Of several classes the
        rows are wrong and right predictions, by the largest score.
    noisy_confusion_ : ndarray of shape (n_classes, n_classes) or None
        For several classes: numbers of records by class and prediction, which may be negative.
    privacy_guarantee_ : PrivacyGuarantee or None
        What the evaluation promises; ``None`` where it has no noise.

    Notes
    -----
    *Estimates.* The values come from the most likely counts that are not negative and add up to the number of records,
    so every figure lies in its range and fits the curves. Where noise decides they are drawn towards the middle;
    ``interval`` rests on the counts as they were released, which have no such bias, as far as a figure is a ratio of
    sums of them: all but ``average_precision``, and for several classes ``balanced_accuracy`` and ``f1``, whose
    intervals are the value and its error.

    *Standard errors* hold noise, whose law is public; the records, which are taken for a sample of a population; and
    what the intervals hide. The last is half of the correction that the figure got, a third of what it changes when
    neighbouring intervals are made one. Scores that pile up at a few values break this: choose a ``score_range`` that
    spreads them. What a model owes to having seen the records is in none of them.

    *Choosing a threshold* by these figures is free. The figure at the chosen threshold is then too good, being the
    largest of several, and its interval does not know.
    """

    def __init__(
        self,
        mechanism: ScoreHistogram,
        classes: Array,
        table: Array | None,
        sums: Array,
        guarantee: PrivacyGuarantee | None,
    ) -> None:
        self.classes_ = classes
        self.n_samples_ = mechanism.n_samples
        self.neighbours = mechanism.neighbours
        self.privacy_guarantee_ = guarantee
        low, high = mechanism.score_range
        self.bin_edges_ = low + (high - low) * np.arange(mechanism.n_bins + 1) / mechanism.n_bins
        weights, scale = mechanism.weights, mechanism.noise_scale
        self._scores = CircleTable(sums / weights[1], scale / weights[1], self.n_samples_, self.bin_edges_)
        self._confusion = (
            None if table is None else FlatTable(table.ravel() / weights[0], scale / weights[0], self.n_samples_)
        )

    @property
    def noisy_counts_(self) -> Array:
        return self._scores.plain.reshape(2, -1)

    @property
    def noisy_confusion_(self) -> Array | None:
        K = len(self.classes_)
        return None if self._confusion is None else self._confusion.plain.reshape(K, K)

    # -- what can be asked --------------------------------------------------------------------------------------

    @property
    def _is_binary(self) -> bool:
        return self._confusion is None

    @property
    def _has_probabilities(self) -> bool:
        return (self.bin_edges_[0], self.bin_edges_[-1]) == (0.0, 1.0)

    def _only_for(self, what: str, binary: bool = True, probabilities: bool = False) -> None:
        if binary and not self._is_binary:
            raise ValueError(f"{what} is for two classes, and this evaluation has {len(self.classes_)}")
        if probabilities and not self._has_probabilities:
            raise ValueError(f"{what} is for probabilities, and score_range is {tuple(self.bin_edges_[[0, -1]])}")

    def _at(self, threshold: Any) -> float:
        """Return a threshold: the given one, or 0.5 for probabilities and 0 for other scores."""
        if not self._is_binary:
            if threshold is not None:
                raise ValueError(f"threshold={threshold!r} is for two classes; of more the largest score decides")
            return 0.0
        if threshold is None:
            return 0.5 if self._has_probabilities else 0.0
        if isinstance(threshold, bool) or not isinstance(threshold, Real) or not isfinite(threshold):
            raise ValueError(f"threshold={threshold!r} must be a finite number")
        return float(threshold)

    # -- figures at a threshold ---------------------------------------------------------------------------------

    def accuracy(self, threshold: float | None = None) -> Figure:
        """Return the share of right predictions.

        Parameters
        ----------
        threshold : float or None, default=None
            Records with a score of at least this are predicted to be of the second class; for two classes only.
            ``None`` is 0.5, and 0 where ``score_range`` is not that of probabilities.

        Returns
        -------
        Figure
        """
        at = self._at(threshold)
        if not self._is_binary:
            right = np.repeat([0.0, 1.0], self._scores.n_bins)
            return self._scores.ratio_of(right)
        return self._scores.at_threshold(lambda share: (np.append(1 - share, share), None), at)

    def recall(self, threshold: float | None = None) -> Figure:
        """Return the share of the second class's records that are found; see :meth:`accuracy` for ``threshold``."""
        self._only_for("recall")
        return self._scores.at_threshold(lambda share: rate_weights(share, 1), self._at(threshold))

    def specificity(self, threshold: float | None = None) -> Figure:
        """Return the share of the first class's records that are left; see :meth:`accuracy` for ``threshold``."""
        self._only_for("specificity")
        return self._scores.at_threshold(lambda share: rate_weights(1 - share, 0), self._at(threshold))

    def precision(self, threshold: float | None = None) -> Figure:
        """Return how many of those at or above the threshold are of the second class; see :meth:`accuracy`."""
        self._only_for("precision")
        return self._scores.at_threshold(precision_weights, self._at(threshold))

    def balanced_accuracy(self, threshold: float | None = None) -> Figure:
        """Return the mean over the classes of the share of their records that is predicted right.

        Parameters
        ----------
        threshold : float or None, default=None
            See :meth:`accuracy`.

        Returns
        -------
        Figure
        """
        at = self._at(threshold)
        if self._confusion is not None:
            K = len(self.classes_)
            rows = np.repeat(np.eye(K), K, axis=1)
            return self._confusion.smooth(lambda counts: mean_recall(counts.reshape(*counts.shape[:-1], K, K)), rows)
        return self._scores.balanced(at)

    def f1(self, threshold: float | None = None) -> Figure:
        """Return the F1 score of the second class, or the mean over several classes.

        Parameters
        ----------
        threshold : float or None, default=None
            See :meth:`accuracy`.

        Returns
        -------
        Figure
        """
        at = self._at(threshold)
        if self._confusion is not None:
            K = len(self.classes_)
            both = np.repeat(np.eye(K), K, axis=1) + np.tile(np.eye(K), K)
            return self._confusion.smooth(lambda counts: mean_f1(counts.reshape(*counts.shape[:-1], K, K)), both)
        return self._scores.at_threshold(
            lambda share: (np.append(0 * share, 2 * share), np.append(share, 1 + share)), at
        )

    def confusion_matrix(self, threshold: float | None = None) -> ConfusionMatrix:
        """Return numbers of records by class and prediction, none negative, with standard errors.

        Parameters
        ----------
        threshold : float or None, default=None
            See :meth:`accuracy`.

        Returns
        -------
        ConfusionMatrix
            ``counts`` and ``errors``, each (n_classes, n_classes).
        """
        at, K, n = self._at(threshold), len(self.classes_), self.n_samples_
        if self._confusion is not None:
            figures = [self._confusion.ratio_of(row) for row in np.eye(K * K)]
        else:
            cells = ((0, 0), (0, 1), (1, 0), (1, 1))
            figures = [self._scores.at_threshold(partial(cell_weights, *cell), at) for cell in cells]
        counts = np.array([n * float(figure) for figure in figures]).reshape(K, K)
        errors = np.array([n * figure.standard_error for figure in figures]).reshape(K, K)
        return ConfusionMatrix(counts, errors)

    # -- figures of all thresholds ------------------------------------------------------------------------------

    @property
    def base_rate(self) -> Figure:
        """The share of the second class."""
        self._only_for("base_rate")
        return self._scores.ratio_of(np.repeat([0.0, 1.0], self._scores.n_bins))

    @property
    def class_shares(self) -> tuple[Figure, ...]:
        """The share of each class."""
        K = len(self.classes_)
        if self._confusion is None:
            return tuple(self._scores.ratio_of(np.repeat(row, self._scores.n_bins)) for row in np.eye(2))
        return tuple(self._confusion.ratio_of(np.repeat(row, K)) for row in np.eye(K))

    @property
    def roc_auc(self) -> Figure:
        """The probability that a record of the second class has a higher score than one of the first."""
        self._only_for("roc_auc")
        return self._scores.area()

    @property
    def average_precision(self) -> Figure:
        """The area under the precision-recall curve."""
        self._only_for("average_precision")
        return self._scores.extrapolated(average_precision)

    @property
    def brier(self) -> Figure:
        """The mean squared difference between probability and label."""
        self._only_for("brier", probabilities=True)
        return self._scores.mean_of(brier_weights, 1.0)

    @property
    def log_loss(self) -> Figure:
        """The mean of minus the logarithm of the probability of the true label.

        Within an interval probabilities are taken to be spread evenly, so that one which says 0 where it should say 1
        costs ``1 + log(n_bins)`` and not infinity.
        """
        self._only_for("log_loss", probabilities=True)
        return self._scores.mean_of(log_loss_weights, inf)

    def roc_curve(self) -> RocCurve:
        """Return the ROC curve at the ends of the intervals.

        Returns
        -------
        RocCurve
            ``fpr``, ``tpr`` and ``thresholds`` as of scikit-learn, the first threshold being infinite, and the standard
            errors ``fpr_error`` and ``tpr_error``.
        """
        self._only_for("roc_curve")
        shares = end_shares(self._scores.n_bins)[::-1]
        rates = [[self._scores.ratio_of(*rate_weights(share, side)) for share in shares] for side in (0, 1)]
        thresholds = np.append(inf, self.bin_edges_[:-1][::-1])
        (fpr, fpr_error), (tpr, tpr_error) = map(values_and_errors, rates)
        return RocCurve(fpr, tpr, thresholds, fpr_error, tpr_error)

    def precision_recall_curve(self) -> PrecisionRecallCurve:
        """Return the precision-recall curve at the ends of the intervals.

        Returns
        -------
        PrecisionRecallCurve
            ``precision``, ``recall`` and ``thresholds`` as of scikit-learn, and the standard errors
            ``precision_error`` and ``recall_error``. Above a threshold that no record reaches the precision is 1.
        """
        self._only_for("precision_recall_curve")
        shares = end_shares(self._scores.n_bins)
        precision, precision_error = values_and_errors(
            [self._scores.ratio_of(*precision_weights(share)) for share in shares]
        )
        recall, recall_error = values_and_errors([self._scores.ratio_of(*rate_weights(share, 1)) for share in shares])
        precision = np.where(np.isnan(precision), 1.0, precision)
        return PrecisionRecallCurve(precision, recall, self.bin_edges_[:-1], precision_error, recall_error)

    def calibration_curve(self, n_groups: int = 10) -> CalibrationCurve:
        """Return how often the label is what probabilities say, in groups of neighbouring intervals.

        Of several classes: how often the prediction is right, by the largest probability.

        Parameters
        ----------
        n_groups : int, default=10
            Groups of about equal length. Those whose number of records is less than twice its noise are left out.

        Returns
        -------
        CalibrationCurve
            ``prob_true`` and ``prob_pred`` as of scikit-learn, ``prob_true_error`` and ``counts``.
        """
        self._only_for("calibration_curve", binary=False, probabilities=True)
        m = self._scores.n_bins
        if isinstance(n_groups, bool) or not isinstance(n_groups, int | np.integer) or not 1 <= n_groups <= m:
            raise ValueError(f"n_groups={n_groups!r} must be a whole number from 1 to n_bins={m}")
        group = np.arange(m) * n_groups // m
        middle, both = (self.bin_edges_[1:] + self.bin_edges_[:-1]) / 2, self._scores.by_class().sum(axis=0)
        rows = []
        for inside in (group == place for place in range(n_groups)):
            every, count = np.append(inside, inside) * 1.0, float(both[inside].sum())
            noise = float(np.sqrt(self._scores.noise_products(every[None])[0, 0]))
            figure = self._scores.ratio_of(np.append(0 * inside, inside), every)
            if count > 2 * noise and figure.standard_error < inf:
                said = float(ratio(both[inside] @ middle[inside], np.asarray(count)))
                rows.append((float(figure), said, figure.standard_error, count))
        return CalibrationCurve(*np.array(rows).reshape(-1, 4).T)

    # -- choices and words --------------------------------------------------------------------------------------

    def threshold_for(self, what: str = "balanced_accuracy", at_least: float | None = None) -> float:
        """Return the end of an interval at which a figure is best, or good enough.

        Chosen from the released table, so it costs nothing. The figure at the threshold is then too good on average,
        the more the larger its standard error is.

        Parameters
        ----------
        what : {"balanced_accuracy", "accuracy", "f1", "recall", "specificity", "precision"}
            The last three need ``at_least``.
        at_least : float or None, default=None
            ``None`` takes the threshold with the largest figure. A number in (0, 1] takes, of those where the figure is
            at least this, the highest for ``"recall"`` and the lowest otherwise.

        Returns
        -------
        float

        Raises
        ------
        ValueError
            If no threshold is good enough.
        """
        self._only_for("threshold_for")
        kinds = ("balanced_accuracy", "accuracy", "f1", "recall", "specificity", "precision")
        if what not in kinds:
            raise ValueError(f"what={what!r} must be one of {', '.join(map(repr, kinds))}")
        if at_least is None and what in kinds[3:]:
            raise ValueError(f"what={what!r} needs at_least=, a number in (0, 1]: alone it is best at one end")
        if at_least is not None and not (isinstance(at_least, int | float) and 0 < at_least <= 1):
            raise ValueError(f"at_least={at_least!r} must be None or a number in (0, 1]")
        thresholds = self.bin_edges_[:-1]
        values = np.nan_to_num([float(getattr(self, what)(threshold)) for threshold in thresholds], nan=-1.0)
        if at_least is None:
            return float(thresholds[values.argmax()])
        good = np.flatnonzero(values >= at_least - 1e-12)
        if not len(good):
            raise ValueError(f"no threshold has {what} of at least {at_least!r}; the largest is {values.max():.3f}")
        return float(thresholds[good[-1 if what == "recall" else 0]])

    def interval(self, what: str, level: float = 0.95, **settings: Any) -> tuple[float, float]:
        """Return an interval for a figure, by its name.

        Parameters
        ----------
        what : str
            Such as ``"roc_auc"`` or ``"accuracy"``.
        level : float, default=0.95
            How often such intervals contain the figure of the population.
        **settings
            Such as ``threshold``.

        Returns
        -------
        low, high : float
        """
        if what not in FIGURES:
            raise ValueError(f"what={what!r} must be one of {', '.join(map(repr, FIGURES))}")
        figure = getattr(self, what)
        return (figure(**settings) if callable(figure) else figure).interval(level)

    def figures(self) -> dict[str, Figure]:
        """Return all figures that this evaluation has, by name, thresholds at their defaults."""
        found = {}
        for name in FIGURES:
            try:
                figure = getattr(self, name)
                found[name] = figure() if callable(figure) else figure
            except ValueError:  # of two classes or of probabilities only
                continue
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that ``json.dumps`` takes: figures with errors and intervals, counts, the guarantee."""
        guarantee, confusion = self.privacy_guarantee_, self.noisy_confusion_
        figures = {
            name: {
                "value": None if np.isnan(figure) else float(figure),
                "standard_error": None if figure.standard_error == inf else figure.standard_error,
                "interval_95": [None if abs(end) == inf else end for end in figure.interval(0.95)],
            }
            for name, figure in self.figures().items()
        }
        return {
            "n_samples": self.n_samples_,
            "classes": self.classes_.tolist(),
            "figures": figures,
            "bin_edges": self.bin_edges_.tolist(),
            "noisy_counts": self.noisy_counts_.tolist(),
            "noisy_confusion": None if confusion is None else confusion.tolist(),
            "privacy_guarantee": None if guarantee is None else guarantee.to_dict(),
        }

    def __repr__(self) -> str:
        figures = self.figures()
        width = max(map(len, figures))
        lines = [f"  {name:{width}}  {figure!r}" for name, figure in figures.items()]
        guarantee = self.privacy_guarantee_
        if guarantee is None:
            claim = "no noise and no guarantee"
        else:
            seeded = ", SEEDED NOISE, FOR TESTS ONLY" if guarantee.is_seeded else ""
            unit = "one record present or absent" if self.neighbours == "add_remove" else "one record exchanged"
            claim = f"epsilon {guarantee.epsilon:g}, delta {guarantee.delta:g}, {unit}{seeded}"
        return "\n".join([f"Evaluation of {self.n_samples_} records: {claim}", *lines])
