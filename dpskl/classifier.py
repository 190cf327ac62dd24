"""How a fit is charged, what it promises, and how its model is handed to others."""

from __future__ import annotations

from math import inf
from typing import Any

from sklearn.base import BaseEstimator, ClassifierMixin

from dpskl.accounting import Cost, GaussianCost
from dpskl.exchange import from_record, released_copy, to_record
from dpskl.guarantee import READ_CLASSES, FitFacts, PrivacyGuarantee
from dpskl.mechanisms.base import Mechanism, ReleasePart
from dpskl.progress import CallbackSupportMixin
from dpskl.solvers import Plan

__all__ = ["PrivateClassifier", "public_size"]


class PrivateClassifier(CallbackSupportMixin, ClassifierMixin, BaseEstimator):
    """What every private classifier has in common: a charge, a guarantee, and a copy for others."""

    def _has_guarantee(self) -> bool:
        return self.epsilon < inf

    def _cost(self, planned: Plan | Mechanism) -> Cost:
        # what has no guarantee has no finite cost either
        return planned.cost if self._has_guarantee() else GaussianCost(inf)

    def _charge(self, cost: Cost, solver: str, n_samples: int, is_secure: bool) -> None:
        if self.accountant is None:
            return
        self.accountant.spend(
            cost,
            neighbours=self.neighbours,
            solver=solver,
            estimator=type(self).__name__,
            n_samples=n_samples,
            is_seeded=not is_secure,
            delta=float(self.delta),
        )

    def _promise(
        self,
        parts: tuple[ReleasePart, ...],
        cost: Cost,
        fit: FitFacts,
        is_secure: bool,
        condition: str | None = None,
    ) -> PrivacyGuarantee | None:
        """Return the guarantee, where there is one."""
        if not self._has_guarantee():
            return None
        return PrivacyGuarantee(
            epsilon=float(self.epsilon),
            delta=float(self.delta),
            neighbours=self.neighbours,
            parts=parts,
            public=(
                *public_size(self, fit),
                "number and names of features",
                "classes" if self.classes is not None else READ_CLASSES,
                *(() if fit.data_norm is None else ("data_norm",)),
                "all parameters",
            ),
            cost=cost,
            is_seeded=not is_secure,
            caveats=PrivacyGuarantee.caveats_at(self.delta),
            conditions=() if condition is None else (condition,),
            fit=fit,
        )

    def release(self):
        """Return a copy of the fitted model for others: with its guarantee, and without what they must not get.

        Left out are the accountant, which would lead to a ledger, ``random_state``, from which the noise of a test
        could be computed, and callbacks. What remains is public or was released under the guarantee: the parameters,
        the fitted attributes, the guarantee with its facts. Such a copy predicts, pickles, and turns into JSON by
        :meth:`to_dict`.

        Returns
        -------
        estimator

        Warns
        -----
        NoPrivacyWarning
            If the fit has no guarantee.
        SeededNoiseWarning
            If its noise was seeded.
        """
        return released_copy(self)

    def to_dict(self):
        """Return the released model as a dictionary that ``json.dumps`` takes, see :meth:`release`.

        Returns
        -------
        dict

        Examples
        --------
        >>> import json
        >>> import numpy as np
        >>> from dpskl import DPLogisticRegression
        >>> X, y = np.zeros((100, 2)), np.arange(100) % 2
        >>> model = DPLogisticRegression(epsilon=3.0, classes=[0, 1]).fit(X, y)
        >>> received = DPLogisticRegression.from_dict(json.loads(json.dumps(model.to_dict())))
        >>> bool((received.predict(X) == model.predict(X)).all()), received.privacy_guarantee_.epsilon
        (True, 3.0)
        """
        return to_record(self)

    @classmethod
    def from_dict(cls, record):
        """Return the model that :meth:`to_dict` described.

        Parameters
        ----------
        record : dict
            Of the same class of estimator. Only numbers, words and names of this package are read from it; no code.

        Returns
        -------
        estimator

        Raises
        ------
        ValueError
            If the record is of something else, or of a newer format.
        """
        return from_record(cls, record)


def public_size(estimator: Any, fit: FitFacts) -> tuple[str, ...]:
    """Return what a guarantee says of the number of records, from ``n_samples`` and ``accountant``."""
    if estimator.n_samples is not None:
        return (f"n_samples={fit.n_samples} (declared; how many records there are is not used)",)
    cell = None if estimator.accountant is None else estimator.accountant.cell
    if cell is not None:
        return (f"n (number of records of {cell[1]!r} in the partition by {cell[0]!r}, as of each of its cells)",)
    return ("n (number of records)",)
