"""What a trial of a private search is judged by: a score of each validation record, within public bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, log
from numbers import Real
from typing import Any, TypeAlias

import numpy as np

__all__ = ["Scoring", "check_scoring", "declared_shares", "make_scoring"]

Array = np.ndarray[Any, Any]

_SCORINGS = ("accuracy", "balanced_accuracy", "neg_log_loss")
# A clip of 3 log K takes every probability below K^-3 for K^-3, the cube of what a guess would say.
_CLIP_OF_A_GUESS = 3.0
_CLIPS = (1e-3, 1e3)
_SMALLEST_SHARE = 1e-6  # weights are its inverse, and a sum of them must not overflow


@dataclass(frozen=True)
class CorrectPredictions:
    """A correct prediction scores the weight of its class and a wrong one 0; the centre is half the weight.

    With equal weights of 1 their mean is the accuracy. With the weights ``1 / (K share of the class)`` it is the mean
    over the classes of the share of their records that is predicted correctly, as far as the shares are right.
    """

    weights: tuple[float, ...]

    centre = 0.5  # of the mean, for weights whose mean over the records is 1

    @property
    def bound(self) -> float:
        """Largest size of a centred score."""
        return max(self.weights) / 2

    def centred(self, model: Any, X: Any, codes: Array) -> Array:
        """Return the score of each record less its centre, in ``[-bound, bound]``."""
        correct = model.predict(X) == model.classes_[codes]
        return np.array(self.weights)[codes] * (correct - 0.5)


@dataclass(frozen=True)
class ClippedLogLikelihood:
    """The logarithm of the probability that is given to the true label, not below ``-clip``; centre ``-clip / 2``."""

    clip: float

    @property
    def centre(self) -> float:
        return -self.clip / 2

    @property
    def bound(self) -> float:
        """Largest size of a centred score."""
        return self.clip / 2

    def centred(self, model: Any, X: Any, codes: Array) -> Array:
        """Return the score of each record less its centre, in ``[-bound, bound]``."""
        likelihood = model.predict_log_proba(X)[np.arange(len(codes)), codes]
        return np.maximum(likelihood, -self.clip) - self.centre


Scoring: TypeAlias = CorrectPredictions | ClippedLogLikelihood


def check_scoring(scoring: Any, score_clip: Any, class_shares: Any) -> None:
    """Raise ValueError for a score that cannot be released by one bounded sum, or settings that it has no use for."""
    if not isinstance(scoring, str) or scoring not in _SCORINGS:
        why = "it must be one of " + ", ".join(map(repr, _SCORINGS))
        if scoring == "roc_auc":
            why += "; an area under a curve compares each record with all others and is no sum of their scores"
        elif callable(scoring):
            why += "; a function of all records at once has no bound on what one of them changes"
        raise ValueError(f"scoring={scoring!r}, but {why}")
    if score_clip is not None:
        if scoring != "neg_log_loss":
            raise ValueError(f"score_clip={score_clip!r} is for scoring='neg_log_loss'; leave it out of {scoring!r}")
        low, high = _CLIPS
        if not _is_number(score_clip) or not low <= float(score_clip) <= high:
            raise ValueError(f"score_clip={score_clip!r}, but it must be None or a number from {low:g} to {high:g}")
    if class_shares is not None:
        if scoring != "balanced_accuracy":
            raise ValueError(f"class_shares are for scoring='balanced_accuracy'; leave them out of {scoring!r}")
        if not isinstance(class_shares, Mapping) or not all(
            _is_number(share) and _SMALLEST_SHARE <= share < 1 for share in class_shares.values()
        ):
            raise ValueError(
                f"class_shares={class_shares!r}, but it must be None or a dictionary from each label to a number "
                f"from {_SMALLEST_SHARE:g} to 1, known without the data; the share of a rare class may be guessed"
            )
        if not 0.99 <= (total := sum(map(float, class_shares.values()))) <= 1.01:
            raise ValueError(f"class_shares={class_shares!r} add up to {total:g}, but shares must add up to 1")


def declared_shares(class_shares: Mapping[Any, float], classes: Array) -> Array:
    """Return the declared shares in the order of ``classes``."""
    labels = classes.tolist()
    if len(class_shares) != len(labels) or any(label not in class_shares for label in labels):
        raise ValueError(f"class_shares={class_shares!r}, but it must have each of the labels {labels!r} and no other")
    return np.array([float(class_shares[label]) for label in labels])


def make_scoring(scoring: str, n_classes: int, score_clip: float | None, shares: Array | None) -> Scoring:
    """Return the score, from public or released numbers only; ``shares`` is for balanced accuracy."""
    if scoring == "neg_log_loss":
        return ClippedLogLikelihood(_CLIP_OF_A_GUESS * log(n_classes) if score_clip is None else float(score_clip))
    if shares is None:
        return CorrectPredictions((1.0,) * n_classes)
    return CorrectPredictions(tuple((1 / (n_classes * shares)).tolist()))


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and isfinite(value)
