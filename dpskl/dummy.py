"""A baseline that any private classifier should beat: the most frequent class."""

from __future__ import annotations

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dpskl.classifier import PrivateClassifier
from dpskl.exchange import fit_facts
from dpskl.mechanisms.noise import make_noise
from dpskl.mechanisms.noisy_count import NoisyHistogram
from dpskl.progress import Progress, with_callbacks
from dpskl.validation import (
    check_budget,
    encode_labels,
    number_of_records,
    refuse_fit_parameters,
    validate_rows,
    validate_training_data,
    warn_of_weak_claims,
)

__all__ = ["PrivateMajority"]


class PrivateMajority(PrivateClassifier):
    """Predict the class with the largest noisy count, whatever the features are.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget of the fit, at least 1e-6. ``float("inf")`` adds no noise, warns and claims nothing.
    delta : float, default=0.0
        In [0, 1). The counts are pure, so any value is granted, and none is of use.
    classes : array-like or None, default=None
        All labels that can occur, at least two. ``None`` takes them from ``y`` and warns, since which labels occur
        is a fact about the data.
    n_samples : int or None, default=None
        The public number of records, or a bound above it; the counts do not need it, the ledger keeps it. ``None``
        makes the number of rows public.
    neighbours : {"add_remove", "replace_one"}, default="add_remove"
        Which data sets must be hard to tell apart: with one record more or less (the number of records being
        public), or with one record exchanged.
    accountant : PrivacyAccountant or None, default=None
        Ledger that is charged before the data are used, and that may refuse.
    random_state : None, int, RandomState or Generator, default=None
        ``None`` draws the noise from the operating system. Anything else is for tests: it warns and protects
        nobody.

    Attributes
    ----------
    class_prior_ : ndarray of shape (n_classes,)
        Shares of the classes from noisy counts, which are released: at least 0, sum 1; equal if no count is positive.
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Where ``X`` has column names.
    privacy_guarantee_ : PrivacyGuarantee or None
        What the fit promises; ``None`` where no claim can be made.

    Notes
    -----
    The privacy is that of :class:`~dpskl.mechanisms.noisy_count.NoisyHistogram`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpskl.dummy import PrivateMajority
    >>> y = ["no"] * 200 + ["yes"] * 100
    >>> model = PrivateMajority(epsilon=1.0, classes=["no", "yes"]).fit(np.zeros((300, 1)), y)
    >>> str(model.predict([[5.0]])[0])
    'no'
    >>> model.privacy_guarantee_.epsilon, model.privacy_guarantee_.delta
    (1.0, 0.0)
    """

    def __init__(
        self,
        epsilon=1.0,
        delta=0.0,
        *,
        classes=None,
        n_samples=None,
        neighbours="add_remove",
        accountant=None,
        random_state=None,
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.classes = classes
        self.n_samples = n_samples
        self.neighbours = neighbours
        self.accountant = accountant
        self.random_state = random_state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.poor_score = True
        return tags

    def mechanism(self) -> NoisyHistogram:
        """Return what ``fit`` would release, and what that costs; no data are needed."""
        return NoisyHistogram(float(self.epsilon), self.neighbours)

    def fit(self, X, y, **fit_params):
        """Count the classes, spending epsilon once.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Finite numbers; only their shape is used.
        y : array-like of shape (n_samples,)
            Labels.
        **fit_params
            Refused, with a sentence that says why.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter or the data are unusable; the message says which, and what to do.
        BudgetExceededError
            If the accountant refuses. The data have not been used then.
        """
        refuse_fit_parameters(self, fit_params)
        check_budget(self)
        X, y = validate_training_data(self, X, y)
        classes, codes = encode_labels(y, self.classes)
        n_samples = number_of_records(self, X.shape[0])
        mechanism = self.mechanism()
        noise = make_noise(self.random_state)
        warn_of_weak_claims(self, n_samples)
        facts = fit_facts(self, "noisy_histogram", n_samples, X.shape[1], classes)
        guarantee = self._promise((mechanism.describe(1),), mechanism.cost, facts, noise.is_secure)
        return self._charge_and_count(mechanism, facts, guarantee, noise, classes, codes)

    @with_callbacks
    def _charge_and_count(self, mechanism, facts, guarantee, noise, classes, codes):
        progress = Progress(self, 1)
        self._charge(self._cost(mechanism), facts.solver, facts.n_samples, noise.is_secure)
        counts = np.maximum(mechanism.release(np.bincount(codes, minlength=len(classes)), noise), 0)
        total = counts.sum()
        self.class_prior_ = counts / total if total > 0 else np.full(len(classes), 1 / len(classes))
        self.classes_ = classes
        self.privacy_guarantee_ = guarantee
        progress.answered()
        progress.finished()
        return self

    def predict(self, X):
        """Return the class with the largest noisy count, the first of equals.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        winners = self.predict_proba(X).argmax(axis=1)
        return self.classes_[winners]

    def predict_proba(self, X):
        """Return ``class_prior_`` for each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        check_is_fitted(self)
        return np.tile(self.class_prior_, (validate_rows(self, X).shape[0], 1))
