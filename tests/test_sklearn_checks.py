"""scikit-learn's own checks for every pair of estimator and solver, with default parameters and no exceptions."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.preprocessing import StandardScaler
from sklearn.utils import shuffle
from sklearn.utils.estimator_checks import parametrize_with_checks

from dpskl import DPHuberSVC, DPLinearSVC, DPLogisticRegression, PrivacyAccountant
from dpskl.solvers import solver_names

ESTIMATORS = [DPLogisticRegression, DPLinearSVC, DPHuberSVC]
ACCEPTED = [(cls, name) for cls in ESTIMATORS for name in solver_names(cls()._loss())]
REFUSED = [(cls, name) for cls in ESTIMATORS for name in solver_names() if (cls, name) not in ACCEPTED]
SHARED_ACCOUNTANT = PrivacyAccountant()

# the checks seed the noise, leave classes undeclared and fit a handful of rows: all of which warns, rightly
pytestmark = pytest.mark.filterwarnings("ignore")


@parametrize_with_checks(
    [cls() for cls in ESTIMATORS]
    + [cls(solver=name) for cls, name in ACCEPTED]
    + [cls(solver=name, accountant=SHARED_ACCOUNTANT) for cls, name in ACCEPTED]
    + [cls(epsilon=1e-3) for cls in ESTIMATORS]
)
def test_scikit_learn_check(estimator, check):
    check(estimator)


def test_every_pair_is_either_checked_or_refused_in_words():
    assert len(ACCEPTED) + len(REFUSED) == len(ESTIMATORS) * len(solver_names())
    X, y = make_blobs(60, centers=2, random_state=0)
    for cls, name in REFUSED:
        with pytest.raises(
            ValueError, match=f"solver='{name}'.*(kink.*'whitened_gd' or 'gd'|needs public .*'whitened_gd')"
        ):
            cls(solver=name).fit(X, y)


def check_data(n_classes):
    """The data of check_classifiers_train."""
    X, y = make_blobs(n_samples=300, random_state=0)
    X, y = shuffle(X, y, random_state=7)
    X = StandardScaler().fit_transform(X)
    return (X, y) if n_classes == 3 else (X[y != 2], y[y != 2])


# Share of 40 seeds that reach the 83 % of check_classifiers_train, at epsilon = 1 and its 200 or 300 rows.
PASS_RATES = {
    (DPLogisticRegression, "gd"): (1.0, 1.0),
}


@pytest.mark.slow
@pytest.mark.parametrize(("cls", "name"), ACCEPTED)
def test_pass_rate_of_the_accuracy_check_over_seeds(cls, name):
    """The check trains with two and with three classes, and the tag is about both."""
    rates = []
    for n_classes in (2, 3):
        X, y = check_data(n_classes)
        scores = [cls(solver=name, random_state=seed).fit(X, y).score(X, y) for seed in range(40)]
        rates.append(np.mean(np.array(scores) > 0.83))
        print(f"{cls.__name__} {name} {n_classes} classes: {rates[-1]:.3f} of 40 seeds, mean {np.mean(scores):.3f}")
    is_poor = cls(solver=name).__sklearn_tags__().classifier_tags.poor_score
    assert is_poor == (min(rates) < 0.95)
