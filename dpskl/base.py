"""One fit, room by room, and prediction: what all estimators share."""

from __future__ import annotations

import warnings
from numbers import Integral
from typing import Any

import numpy as np
from scipy import special

from dpskl.accounting import gaussian_mu
from dpskl.classifier import PrivateClassifier
from dpskl.curator import Curator
from dpskl.exceptions import WeakSignalWarning
from dpskl.exchange import fit_facts
from dpskl.guarantee import PrivacyGuarantee
from dpskl.mechanisms.noise import NoiseSource, make_noise
from dpskl.prediction import LinearPredictor
from dpskl.progress import Progress, with_callbacks
from dpskl.public_data import with_public_problem
from dpskl.records.losses import MarginLoss
from dpskl.records.path import Path
from dpskl.records.problem import Problem
from dpskl.solvers import Outcome, Plan, PublicFacts, Solver, make_solver
from dpskl.validation import (
    check_parameters,
    check_penalty,
    declared_classes,
    encode_labels,
    find_data_norm,
    number_of_records,
    refuse_fit_parameters,
    validate_training_data,
    warn_of_weak_claims,
)

__all__ = ["PrivateLinearClassifier"]

# Value of the constant column as a multiple of data_norm. Its square is what an intercept adds to the squared
# sensitivity (takes from the features where rows fill the bound), its inverse square what it adds to the penalty of
# the intercept.
_INTERCEPT_RATIO = 0.3
# mu n / D below which noise costs several points of accuracy whatever the solver, see docs/solvers.md
_LEAST_SIGNAL = 2.0


def _warn_of_weak_signal(facts: PublicFacts, epsilon: float, delta: float) -> None:
    """Warn where public numbers alone say that noise will be as large as what the records have to say."""
    mu = gaussian_mu(epsilon, delta)
    signal = facts.signal(mu)
    if signal < _LEAST_SIGNAL:
        ratio = "mu n / D" if facts.neighbours == "add_remove" else "mu n / (2 D)"
        warnings.warn(
            f"{ratio} = {signal:.2g} is below {_LEAST_SIGNAL:g}, with n = {facts.n_samples} records, D = "
            f"{facts.n_weights} weights, and mu = {mu:.2g} for epsilon={epsilon:g} and delta={delta:g}: the "
            "noise will cost much of what could be learnt; raise epsilon, or take more records or fewer features",
            WeakSignalWarning,
            stacklevel=3,
        )


def _clipped_length(outcome: Outcome, facts: PublicFacts) -> float | None:
    """Return the norm of a typical row in units of the clip norm, where gradients were clipped and both are known."""
    if outcome.clip_norm is None or (outcome.row_length is None and facts.rows == "clip"):  # no row need be that long
        return None
    return float((facts.row_norm if outcome.row_length is None else outcome.row_length) / outcome.clip_norm)


class PrivateLinearClassifier(LinearPredictor, PrivateClassifier):
    """Parameters and ``fit`` of every estimator; subclasses name their loss."""

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
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.solver = solver
        self.C = C
        self.fit_intercept = fit_intercept
        self.data_norm = data_norm
        self.classes = classes
        self.n_samples = n_samples
        self.neighbours = neighbours
        self.accountant = accountant
        self.random_state = random_state
        self.verbose = verbose

    def _loss(self) -> MarginLoss:
        raise NotImplementedError

    def set_params(self, **params):
        """Set parameters of the estimator and, as ``solver__max_iter``, of its solver.

        Parameters
        ----------
        **params

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If there is no such parameter, or the solver is given by name: a name stands for that solver's defaults.
        """
        solver = params.get("solver", self.solver)
        inner = [name for name in params if name.startswith("solver__")]
        if inner and not isinstance(solver, Solver):
            kind = Solver._registry.get(solver) if isinstance(solver, str) else None
            example = f"dpskl.solvers.{kind.__name__}()" if kind else "dpskl.solvers.WhitenedGD()"
            raise ValueError(
                f"{inner[0]}={params[inner[0]]!r} cannot be set, since solver={solver!r} is a name, which stands for "
                f"that solver's defaults, or no solver; pass an instance, solver={example}"
            )
        return super().set_params(**params)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        try:
            loss = self._loss()
            tags.classifier_tags.poor_score = not make_solver(self.solver, loss, self.delta).reaches_checks(
                loss, self.epsilon
            )
        except Exception:  # tags are asked of any parameters; fit says what is wrong with them
            tags.classifier_tags.poor_score = True
        return tags

    def fit(self, X, y, **fit_params):
        """Fit the model, spending (epsilon, delta) once.

        Everything that can be wrong is found before the accountant is charged, and it is charged before the
        data are used.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Finite numbers. Dense float64 in either order, dense float32 and CSR are used without a copy.
        y : array-like of shape (n_samples,)
            Labels.
        **fit_params
            Refused, with a sentence that says why: there is no ``sample_weight``.

        Returns
        -------
        self

        Raises
        ------
        TypeError
            If there are other arguments than ``X`` and ``y``.
        ValueError
            If a parameter or the data are unusable; the message says which, and what to do.
        BudgetExceededError
            If the accountant refuses. The data have not been used then.
        """
        refuse_fit_parameters(self, fit_params)
        self._check_parameters()
        loss = self._loss()
        solver = make_solver(self.solver, loss, self.delta)
        X, y = validate_training_data(self, X, y)
        classes, codes = encode_labels(y, self.classes)
        n_samples = number_of_records(self, X.shape[0])
        # what others have set for floating-point errors must not raise or warn of records, from here to the release
        with np.errstate(all="ignore"), special.errstate(all="ignore"):
            data_norm = find_data_norm(X, self.data_norm)
            facts = self._public_facts(n_samples, X.shape[1], len(classes), loss, data_norm, solver)
            facts = with_public_problem(facts, solver, self.classes, getattr(self, "feature_names_in_", None))
            plan = solver.plan(facts, float(self.epsilon), float(self.delta))
            noise = make_noise(self.random_state)
            warn_of_weak_claims(self, n_samples)
            if isinstance(self.solver, str) and self.solver == "auto" and self.delta > 0:
                _warn_of_weak_signal(facts, float(self.epsilon), float(self.delta))
            guarantee = self._promise(
                plan.describe(),
                plan.cost,
                fit_facts(self, solver.name, n_samples, facts.n_features, classes, facts.data_norm),
                noise.is_secure,
                solver.condition,
            )
            if self.verbose:
                print(guarantee)
            return self._charge_and_run(solver, plan, facts, noise, guarantee, X, classes, codes)

    @with_callbacks
    def _charge_and_run(
        self,
        solver: Solver,
        plan: Plan,
        facts: PublicFacts,
        noise: NoiseSource,
        guarantee: PrivacyGuarantee | None,
        X: Any,
        classes: Any,
        codes: Any,
    ) -> PrivateLinearClassifier:
        """Charge the plan, let the solver ask, and keep what it released; this is where records are used."""
        progress = Progress(self, None if plan.budget else plan.n_questions)
        name = solver.name if solver.condition is None else f"{solver.name} ({solver.condition})"
        self._charge(self._cost(plan), name, facts.n_samples, noise.is_secure)
        loss = solver.problem_loss(facts)
        problem = Problem(
            X,
            loss.encode(codes, len(classes)),
            loss,
            data_norm=facts.data_norm,
            intercept=facts.intercept,
            n_outputs=facts.n_outputs,
            rows=facts.rows,
        )
        data = Path(problem) if plan.along_path else problem
        outcome = solver.run(Curator(data, plan.open_budget(), noise, progress.answered), plan)

        rows = outcome.weights.reshape(facts.n_weights, facts.n_outputs).T
        self.coef_ = rows[:, : facts.n_features].copy()
        self.intercept_ = rows[:, -1] * facts.intercept if self.fit_intercept else np.zeros(facts.n_outputs)
        self.classes_ = classes
        self.n_iter_ = outcome.n_iter
        self.history_ = outcome.history
        self.privacy_guarantee_ = guarantee
        self.effective_C_ = 1 / plan.ridge
        self.data_norm_ = facts.data_norm
        self.solver_ = solver
        self._constant, self._rows = facts.intercept, facts.rows
        self._clipped_length = _clipped_length(outcome, facts)
        progress.finished()
        return self

    def plan(self, n_samples, n_features, n_classes=None):
        """Return what ``fit`` would do with data of this size, and what it would cost; no data are needed.

        Parameters
        ----------
        n_samples, n_features : int
            Size of the data that reach this estimator, at least 2 rows and 1 column. Where the parameter ``n_samples``
            is declared, it is what is planned with.
        n_classes : int or None, default=None
            Number of labels, at least 2; only asked for where ``classes`` does not tell it.

        Returns
        -------
        Plan
            With the questions, the strength of the penalty and the ``cost``.

        Raises
        ------
        ValueError
            If a parameter is unusable, or the number of classes or the norm of the rows would be read from the data.

        Examples
        --------
        >>> from dpskl import DPLogisticRegression
        >>> plan = DPLogisticRegression(epsilon=0.5, classes=[0, 1]).plan(n_samples=1000, n_features=20)
        >>> round(plan.cost.epsilon(1e-6), 6)
        0.5
        """
        self._check_parameters()
        loss = self._loss()
        solver = make_solver(self.solver, loss, self.delta)
        if self.data_norm is None:
            raise ValueError("data_norm=None is read from the data, so no plan can be made without them; declare it")
        if self.classes is not None:
            n_classes = len(declared_classes(self.classes))
        for name, value, least in (
            ("n_samples", n_samples, 2),
            ("n_features", n_features, 1),
            ("n_classes", n_classes, 2),
        ):
            if not isinstance(value, Integral) or value < least:
                remedy = "; declare the labels by classes=, or pass their number" if name == "n_classes" else ""
                raise ValueError(f"{name}={value!r} must be a whole number of at least {least}{remedy}")
        size = number_of_records(self, int(n_samples)), int(n_features), int(n_classes)
        facts = self._public_facts(*size, loss, float(self.data_norm), solver)
        facts = with_public_problem(facts, solver, self.classes)
        return solver.plan(facts, float(self.epsilon), float(self.delta))

    def _check_parameters(self) -> None:
        check_parameters(self)

    def _has_guarantee(self) -> bool:
        return super()._has_guarantee() and self.data_norm is not None

    def _condition(self) -> str | None:
        return make_solver(self.solver, self._loss(), self.delta).condition

    def _public_facts(
        self, n_samples: int, n_features: int, n_classes: int, loss: MarginLoss, data_norm: float, solver: Solver
    ) -> PublicFacts:
        check_penalty(self.C, data_norm)
        if self.n_samples is not None and solver.goes_by_row_numbers:
            raise ValueError(
                f"n_samples={self.n_samples!r} keeps the number of rows secret, and {solver!r} goes by their numbers, "
                "which move up where one is left out; take order='random', or leave n_samples=None"
            )
        return PublicFacts(
            n_samples=n_samples,
            n_features=n_features,
            n_classes=n_classes,
            data_norm=data_norm,
            intercept=_INTERCEPT_RATIO * data_norm if self.fit_intercept else 0.0,
            loss=loss,
            neighbours=self.neighbours,
            C=float(self.C),
            rows=solver.rows,
        )
