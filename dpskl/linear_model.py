"""The estimators: differentially private logistic regression and support vector machines."""

from __future__ import annotations

import numbers
import warnings
from math import inf
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from dpskl.accounting import PrivacyAccountant, TokenPool
from dpskl.curator import Curator
from dpskl.exceptions import NoPrivacyWarning, PrivacyLeakWarning, WeakPrivacyWarning
from dpskl.guarantee import PrivacyGuarantee
from dpskl.losses import Hinge, HuberHinge, Logistic, MarginLoss
from dpskl.mechanisms.noise import make_noise
from dpskl.mechanisms.sensitivity import NEIGHBOURS
from dpskl.problem import Problem, row_norms
from dpskl.solvers import PublicFacts, Solver, make_solver

__all__ = ["DPHuberSVC", "DPLinearSVC", "DPLogisticRegression"]

Array = np.ndarray[Any, Any]

# Value of the constant column as a multiple of data_norm. Its square is what an intercept adds to the squared
# sensitivity, its inverse square what it adds to the penalty of the intercept.
_INTERCEPT_RATIO = 0.3
_WEAK_EPSILON = 20.0
_PARAMETERS = """
    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget of the fit, positive. ``float("inf")`` runs the same algorithm without noise, warns and
        claims nothing.
    delta : float, default=1e-6
        Probability with which the bound on epsilon may fail, in [0, 1); should be far below ``1/n``. 0 asks for
        pure differential privacy, which not every solver has.
    solver : str or Solver, default={default_solver!r}
        The algorithm: a name (see :func:`dpskl.solvers.solver_names`) or a configured instance, such as
        ``GradientDescent(max_iter=50)``.
    C : float, default=1.0
        Inverse regularisation strength as in scikit-learn: the objective is the sum of the losses plus
        ``||w||^2 / (2 C)``. A solver may need a stronger penalty for its proof; ``effective_C_`` tells.
    fit_intercept : bool, default=True
        Whether to add a constant column of value ``0.3 * data_norm``. Its weight is regularised like the rest.
    data_norm : float or None, default=1.0
        Bound on the Euclidean norm of a row, in the units of ``X``. Longer rows are scaled down to it, in ``fit``
        and in ``predict``. It must be known without looking at the data: ``None`` reads it from the data, warns
        and leaves the fit without a guarantee.
    classes : array-like or None, default=None
        All labels that can occur, at least two. ``None`` takes them from ``y`` and warns, since which labels occur
        is a fact about the data.
    neighbours : {{"add_remove", "replace_one"}}, default="add_remove"
        Which data sets must be hard to tell apart: with one record more or less (the number of records being
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
        Released weights.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Released intercepts.
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Where ``X`` has column names.
    n_iter_ : int
        Number of noisy questions that were planned; it does not depend on the data.
    privacy_guarantee_ : PrivacyGuarantee or None
        What the fit promises, in numbers and words; ``None`` where no claim can be made.
    effective_C_ : float
        Inverse of the penalty that was used.
    data_norm_ : float
        The row norm that was used.
    solver_ : Solver
        The solver that was used.
"""


def _is_real(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and not np.isnan(value)


def _require(condition: bool, name: str, value: Any, rule: str) -> None:
    if not condition:
        raise ValueError(f"{name}={value!r}, but it must be {rule}")


class _PrivateLinearClassifier(ClassifierMixin, BaseEstimator):
    """Parameters, ``fit`` and ``predict`` of every estimator; subclasses name their loss."""

    def __init__(
        self,
        epsilon=1.0,
        delta=1e-6,
        *,
        solver="objective_perturbation",
        C=1.0,
        fit_intercept=True,
        data_norm=1.0,
        classes=None,
        neighbours="add_remove",
        accountant=None,
        random_state=None,
        verbose=0,
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.solver = solver
        self.C = C
        self.fit_intercept = fit_intercept
        self.data_norm = data_norm
        self.classes = classes
        self.neighbours = neighbours
        self.accountant = accountant
        self.random_state = random_state
        self.verbose = verbose

    def _loss(self) -> MarginLoss:
        raise NotImplementedError

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        try:
            loss = self._loss()
            tags.classifier_tags.poor_score = not make_solver(self.solver, loss).reaches_checks(loss, self.epsilon)
        except Exception:  # tags are asked of any parameters; fit says what is wrong with them
            tags.classifier_tags.poor_score = True
        return tags

    def fit(self, X, y):
        """Fit the model, spending (epsilon, delta) once.

        Everything that can be wrong is found before the accountant is charged, and it is charged before the
        data are used.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Finite numbers. Dense float64 in either order, dense float32 and CSR are used without a copy.
        y : array-like of shape (n_samples,)
            Labels.

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
        self._check_parameters()
        loss = self._loss()
        solver = make_solver(self.solver, loss)
        X, y = _validated(self, X, y=y)
        classes, codes = self._encode(y)
        data_norm = self._find_data_norm(X)
        facts = PublicFacts(
            n_samples=X.shape[0],
            n_features=X.shape[1],
            n_classes=len(classes),
            data_norm=data_norm,
            intercept=_INTERCEPT_RATIO * data_norm if self.fit_intercept else 0.0,
            loss=loss,
            neighbours=self.neighbours,
            C=float(self.C),
        )
        plan = solver.plan(facts, float(self.epsilon), float(self.delta))
        noise = make_noise(self.random_state)
        guarantee = self._guarantee(plan, noise.is_secure)
        self._warn(facts)
        if self.verbose:
            print(guarantee if guarantee is not None else f"{type(self).__name__}: no privacy guarantee")
        if self.accountant is not None:
            self.accountant.spend(
                plan.cost,
                neighbours=self.neighbours,
                solver=solver.name,
                estimator=type(self).__name__,
                n_samples=facts.n_samples,
                is_seeded=not noise.is_secure,
            )

        problem_loss = solver.problem_loss(facts)
        problem = Problem(
            X,
            problem_loss.encode(codes, len(classes)),
            problem_loss,
            data_norm=data_norm,
            intercept=facts.intercept,
            n_outputs=facts.n_outputs,
        )
        weights = solver.run(Curator(problem, TokenPool(plan.tokens), noise), plan)

        rows = weights.reshape(facts.n_weights, facts.n_outputs).T
        self.coef_ = rows[:, : facts.n_features].copy()
        self.intercept_ = rows[:, -1] * facts.intercept if self.fit_intercept else np.zeros(facts.n_outputs)
        self.classes_ = classes
        self.n_iter_ = plan.n_questions
        self.privacy_guarantee_ = guarantee
        self.effective_C_ = 1 / plan.ridge
        self.data_norm_ = data_norm
        self.solver_ = solver
        return self

    # -- what can be wrong ----------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        real = _is_real
        _require(
            real(self.epsilon) and self.epsilon > 0,
            "epsilon",
            self.epsilon,
            'a positive number; float("inf") asks for no noise and no guarantee',
        )
        _require(
            real(self.delta) and 0 <= self.delta < 1,
            "delta",
            self.delta,
            "in [0, 1), and far below 1/n; 0 asks for pure differential privacy",
        )
        _require(real(self.C) and 0 < self.C < inf, "C", self.C, "a positive finite number")
        _require(
            self.data_norm is None or (real(self.data_norm) and 1e-100 <= self.data_norm <= 1e100),
            "data_norm",
            self.data_norm,
            "positive and finite: a bound on the row norms that is known without the data (longer rows are scaled)",
        )
        _require(
            isinstance(self.neighbours, str) and self.neighbours in NEIGHBOURS,
            "neighbours",
            self.neighbours,
            "one of " + ", ".join(map(repr, NEIGHBOURS)),
        )
        _require(
            self.accountant is None or isinstance(self.accountant, PrivacyAccountant),
            "accountant",
            self.accountant,
            "None or a dpskl.PrivacyAccountant",
        )

    def _encode(self, y: Any) -> tuple[Array, Array]:
        """Return the sorted labels and the index of each record's label."""
        check_classification_targets(y)
        seen = np.unique(y)
        if self.classes is None:
            if len(seen) < 2:
                raise ValueError(
                    f"y has one class only, {seen.tolist()!r}, and a classifier needs at least two; "
                    "declare all labels that can occur by classes="
                )
            classes = seen
        else:
            classes = np.unique(np.asarray(self.classes))
            if classes.ndim != 1 or len(classes) != np.size(self.classes) or len(classes) < 2:
                raise ValueError(f"classes={self.classes!r}, but it must list at least two different labels, each once")
            known = np.isin(seen, classes)
            if not known.all():
                # which labels are unknown is a fact about the data: the user has them, so it may be told
                raise ValueError(f"y has labels {seen[~known].tolist()!r} that classes={classes.tolist()!r} lacks")
        return classes, np.searchsorted(classes, y)

    def _find_data_norm(self, X: Any) -> float:
        if self.data_norm is not None:
            return float(self.data_norm)
        norm = float(row_norms(X).max())
        if not 1e-100 <= norm <= 1e100:
            return 1.0
        return norm

    def _warn(self, facts: PublicFacts) -> None:
        if self.data_norm is None:
            warnings.warn(
                "data_norm=None was read from the data, so the fit has no privacy guarantee; declare a bound "
                "that is known without the data",
                PrivacyLeakWarning,
                stacklevel=3,
            )
        if self.classes is None:
            warnings.warn(
                "classes=None was read from y: which labels occur becomes public; declare them by classes=",
                PrivacyLeakWarning,
                stacklevel=3,
            )
        if self.epsilon == inf:
            warnings.warn(
                "epsilon=inf adds no noise: the fit has no privacy guarantee", NoPrivacyWarning, stacklevel=3
            )
        elif self.epsilon > _WEAK_EPSILON:
            warnings.warn(
                f"epsilon={self.epsilon:g} protects little: an outcome may be exp(epsilon) times as likely with "
                "a record as without it",
                WeakPrivacyWarning,
                stacklevel=3,
            )
        if self.delta >= 1 / facts.n_samples:
            warnings.warn(
                f"delta={self.delta:g} is not below 1/n = {1 / facts.n_samples:g}: a mechanism that publishes one "
                "record at random would pass; choose a smaller delta",
                WeakPrivacyWarning,
                stacklevel=3,
            )

    def _guarantee(self, plan: Any, is_secure: bool) -> PrivacyGuarantee | None:
        if self.epsilon == inf or self.data_norm is None:
            return None
        return PrivacyGuarantee(
            epsilon=float(self.epsilon),
            delta=float(self.delta),
            neighbours=self.neighbours,
            parts=plan.describe(),
            public=(
                "n (number of records)",
                "number and names of features",
                "classes" if self.classes is not None else "classes (read from y)",
                "data_norm",
                "all parameters",
            ),
            cost=plan.cost,
            is_seeded=not is_secure,
        )

    # -- prediction -----------------------------------------------------------------------------------

    def decision_function(self, X):
        """Return the scores of the classes; rows longer than ``data_norm_`` are scaled down as in ``fit``.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            For two classes, positive scores speak for ``classes_[1]``.
        """
        check_is_fitted(self)
        X = _validated(self, X, reset=False)
        scores = Problem(X, None, None, data_norm=self.data_norm_).scores(self.coef_.T) + self.intercept_
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X):
        """Return the label with the highest score.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]


def _validated(estimator: Any, X: Any, **kwargs: Any) -> Any:
    """Validate input; a copy that must be made anyway is made in Fortran order, which reads faster."""
    as_it_is = isinstance(X, np.ndarray) and X.dtype in (np.float32, np.float64)
    checked = validate_data(
        estimator,
        X,
        accept_sparse="csr",
        dtype=[np.float64, np.float32],
        order=None if as_it_is else "F",
        ensure_min_samples=2 if "y" in kwargs else 1,
        **kwargs,
    )
    if "y" in kwargs:
        return _without_duplicates(checked[0]), checked[1]
    return _without_duplicates(checked)


def _without_duplicates(X: Any) -> Any:
    """Add up entries of a CSR matrix that are stored twice: norms of rows would miss them."""
    if sp.issparse(X) and not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


class DPLogisticRegression(_PrivateLinearClassifier):
    __doc__ = (
        """Differentially private logistic regression.

    Binary, or multinomial with a softmax (solvers whose proof asks for it use one-vs-rest instead).
"""
        + _PARAMETERS.format(default_solver="objective_perturbation", extra="")
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
        """Return class probabilities: the logistic function of the score, or the softmax of the scores.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.column_stack([expit(-scores), expit(scores)])
        return softmax(scores, axis=1)

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
            return np.column_stack([log_expit(-scores), log_expit(scores)])
        return log_softmax(scores, axis=1)


class DPLinearSVC(_PrivateLinearClassifier):
    __doc__ = (
        """Differentially private linear support vector machine with the hinge loss.

    More than two classes are trained jointly, one-vs-rest, with one budget. Solvers that need a smooth loss
    refuse the hinge by name; :class:`DPHuberSVC` is its smooth form.
"""
        + _PARAMETERS.format(default_solver="gd", extra="")
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

    def __init__(
        self,
        epsilon=1.0,
        delta=1e-6,
        *,
        solver="gd",
        C=1.0,
        fit_intercept=True,
        data_norm=1.0,
        classes=None,
        neighbours="add_remove",
        accountant=None,
        random_state=None,
        verbose=0,
    ):
        # the default solver differs: the hinge has a kink
        super().__init__(
            epsilon,
            delta,
            solver=solver,
            C=C,
            fit_intercept=fit_intercept,
            data_norm=data_norm,
            classes=classes,
            neighbours=neighbours,
            accountant=accountant,
            random_state=random_state,
            verbose=verbose,
        )

    def _loss(self) -> MarginLoss:
        return Hinge()


class DPHuberSVC(_PrivateLinearClassifier):
    __doc__ = (
        """Differentially private support vector machine with the Huber hinge, a hinge without its kink.

    More than two classes are trained one-vs-rest, jointly where the solver has a joint guarantee.
"""
        + _PARAMETERS.format(
            default_solver="objective_perturbation",
            extra="""    h : float, default=0.5
        Half-width of the parabola that replaces the kink, in units of the margin.
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
        solver="objective_perturbation",
        C=1.0,
        fit_intercept=True,
        data_norm=1.0,
        classes=None,
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
        _require(_is_real(self.h) and 0 < self.h < inf, "h", self.h, "a positive finite half-width of the Huber zone")
