"""Data, classifiers and plans that the tests of planning share."""

import numpy as np
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.model_selection import (
    KFold,
)

from dpskl import DPLogisticRegression
from dpskl.model_selection import plan_cost

FOLDS = KFold(3, shuffle=True)


def data(n=120, d=3, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    centres = 2 * np.eye(n_classes, d) - 1 / d
    return centres[y] + 0.3 * rng.normal(size=(n, d)), y


def model(accountant=None, n_classes=2, **changes):
    settings = {"solver": "gd", "classes": range(n_classes), "data_norm": 2.0, "accountant": accountant, **changes}
    return DPLogisticRegression(**settings)


def declared(n_samples=1000, **changes):
    """A classifier whose number of records is declared, whichever rows it gets."""
    classifier = model(**changes)
    classifier.n_samples = n_samples
    return classifier


def plan(estimator, **changes):
    return plan_cost(estimator, **{"n_samples": 120, "n_features": 3, **changes})


def fitted_model():
    return model().fit(*data())
