"""The estimators: differentially private logistic regression and support vector machines."""

from __future__ import annotations

import numpy as np
from scipy.special import log_expit, log_softmax

from dpskl.base import PrivateLinearClassifier
from dpskl.records.clipped_link import unclipped_log_probabilities
from dpskl.records.losses import Hinge, HuberHinge, Logistic, MarginLoss

__all__ = ["DPHuberSVC", "DPLinearSVC", "DPLogisticRegression"]

_PARAMETERS = """
    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget of the fit, at least 1e-6. ``float("inf")`` runs the same algorithm without noise, warns and
        claims nothing.
    delta : float, default=1e-6
        Probability with which the bound on epsilon may fail, in [0, 1); should be far below ``1/n``. 0 asks for
        pure differential privacy, which not every solver has.
    solver : str or Solver, default="auto"
        The algorithm: a name (see :func:`dpskl.solvers.solver_names`) or a configured instance, such as
        ``GradientDescent(max_iter=50)``. ``"auto"`` is ``"whitened_gd"``, and with ``delta=0``
        ``"objective_perturbation"``, or ``"output_perturbation"`` for the hinge.
    C : float, default=1.0
        Inverse regularisation strength as in scikit-learn: the objective is the sum of the losses plus
        ``||w||^2 / (2 C)``. A solver may need a stronger penalty for its proof, and ``"whitened_gd"`` and
        ``"newton"`` divide it by the number of weights; ``effective_C_`` tells.
    fit_intercept : bool, default=True
        Whether to add a constant column of value ``0.3 * data_norm``. Its weight is regularised like the rest.
    data_norm : float or None, default=1.0
        Bound on the Euclidean norm of a row, in the units of ``X``. Longer rows are scaled down to it, and shorter
        ones, with their constant, up to it, in ``fit`` and in ``predict``; the solver's ``rows`` says how. It must be
        known without looking at the data: ``None`` reads it from the data, warns and leaves the fit without a
        guarantee.
    classes : array-like or None, default=None
        All labels that can occur, at least two. ``None`` takes them from ``y`` and warns, since which labels occur
        is a fact about the data.
    n_samples : int or None, default=None
        The public number of records, at least 2: a published figure, or a bound that no data set exceeds, used by all
        formulas in place of the number of rows. ``None`` makes the number of rows itself public, which is wrong where
        the rows were chosen by something private, such as their labels. Not for cross-validation, whose folds follow
        the number of rows.
    neighbours : {{"add_remove", "replace_one"}}, default="add_remove"
        Which data sets must be hard to tell apart: with one record more or less (``n_samples`` being
        public), or with one record exchanged.
    accountant : PrivacyAccountant or None, default=None
        Ledger that is charged before the data are used, and that may refuse.
    random_state : None, int, RandomState or Generator, default=None
        ``None`` draws the noise from the operating system. Anything else is for tests: it warns and protects
        nobody.
    verbose : int, default=0
        1 prints the guarantee before the fit; nothing that is printed depends on the data.
{extra}
    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Released weights, for rows as the solver's ``rows`` maps them.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Released intercepts.
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Where ``X`` has column names.
    n_iter_ : int
        Number of gradients, rounds or minima that were planned, or of updates where the solver decides at run time
        from what it has released.
    history_ : dict of str to list, or None
        What a solver that decides at run time released along the way; ``None`` for the others.
    privacy_guarantee_ : PrivacyGuarantee or None
        What the fit promises, in numbers and words; ``None`` where no claim can be made.
    effective_C_ : float
        Inverse of the penalty that was used.
    data_norm_ : float
        The row norm that was used.
    solver_ : Solver
        The solver that was used.
"""


class DPLogisticRegression(PrivateLinearClassifier):
    __doc__ = (
        """Differentially private logistic regression.

    Binary, or multinomial with a softmax (solvers whose proof asks for it use one-vs-rest instead).
"""
        + _PARAMETERS.format(extra="")
        + """
    See Also
    --------
    DPHuberSVC : Support vector machine with a smooth hinge.
    DPLinearSVC : Support vector machine with the plain hinge.

    Notes
    -----
    Which theorem holds, with which sensitivity, noise and preconditions, is told by ``privacy_guarantee_`` and by
    the documentation of the solver. The floating-point noise is hardened, not proved.

    Examples
    --------
    >>> import numpy as np
    >>> from dpskl import DPLogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 2000)
    >>> X = rng.normal(size=(2000, 2)) + 2 * y[:, None]
    >>> model = DPLogisticRegression(epsilon=1.0, data_norm=4.0, classes=[0, 1]).fit(X, y)
    >>> bool(model.score(X, y) > 0.85)
    True
    >>> model.privacy_guarantee_.epsilon, model.privacy_guarantee_.delta
    (1.0, 1e-06)
    """
    )

    def _loss(self) -> MarginLoss:
        return Logistic()

    def predict_proba(self, X):
        """Return class probabilities: those for which the gradients that trained the model cancel.

        Without a clip that is the logistic function of the score, or the softmax of the scores. Solvers that clip the
        gradient of a record settle where *clipped* gradients cancel, with scores that are too large; what belongs to
        them is computed from the clip norm and the length of a typical row (docs/theory.md, *Probabilities under a
        clip*).
        Labels and their order follow the scores either way.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X):
        """Return the logarithms of the class probabilities, without the underflow of taking them afterwards.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        scores = self.decision_function(X)
        if scores.ndim == 1:
            log_p = np.column_stack([log_expit(-scores), log_expit(scores)])
        else:
            log_p = log_softmax(scores, axis=1)
        length = self._clipped_length
        return log_p if length is None else unclipped_log_probabilities(log_p, length)


class DPLinearSVC(PrivateLinearClassifier):
    __doc__ = (
        """Differentially private linear support vector machine with the hinge loss.

    More than two classes are trained jointly, one-vs-rest, with one budget. Solvers that need a smooth loss
    refuse the hinge by name; :class:`DPHuberSVC` is its smooth form.
"""
        + _PARAMETERS.format(extra="")
        + """
    Examples
    --------
    >>> import numpy as np
    >>> from dpskl import DPLinearSVC
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 2000)
    >>> X = rng.normal(size=(2000, 2)) + 2 * y[:, None]
    >>> bool(DPLinearSVC(epsilon=1.0, data_norm=4.0, classes=[0, 1]).fit(X, y).score(X, y) > 0.85)
    True
    """
    )

    def _loss(self) -> MarginLoss:
        return Hinge()


class DPHuberSVC(PrivateLinearClassifier):
    __doc__ = (
        """Differentially private support vector machine with the Huber hinge, a hinge without its kink.

    More than two classes are trained one-vs-rest, jointly where the solver has a joint guarantee.
"""
        + _PARAMETERS.format(
            extra="""    h : float, default=0.5
        Half-width of the parabola that replaces the kink, from 1e-6 to 10, in units of the margin.
""",
        )
        + """
    Examples
    --------
    >>> import numpy as np
    >>> from dpskl import DPHuberSVC
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 2000)
    >>> X = rng.normal(size=(2000, 2)) + 2 * y[:, None]
    >>> bool(DPHuberSVC(epsilon=1.0, data_norm=4.0, classes=[0, 1]).fit(X, y).score(X, y) > 0.85)
    True
    """
    )

    def __init__(
        self,
        epsilon=1.0,
        delta=1e-6,
        *,
        solver="auto",
        C=1.0,
        fit_intercept=True,
        data_norm=1.0,
        classes=None,
        n_samples=None,
        neighbours="add_remove",
        accountant=None,
        random_state=None,
        verbose=0,
        h=0.5,
    ):
        super().__init__(
            epsilon,
            delta,
            solver=solver,
            C=C,
            fit_intercept=fit_intercept,
            data_norm=data_norm,
            classes=classes,
            n_samples=n_samples,
            neighbours=neighbours,
            accountant=accountant,
            random_state=random_state,
            verbose=verbose,
        )
        self.h = h

    def _loss(self) -> MarginLoss:
        return HuberHinge(self.h)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._loss()  # checks h
