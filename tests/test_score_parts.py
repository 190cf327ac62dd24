"""How to explain a prediction: parts that add up to the score, where coefficients times rows do not."""

import numpy as np
import pytest
import scipy.sparse as sp

from dpskl import DPHuberSVC, DPLinearSVC, DPLogisticRegression
from dpskl.solvers import GradientDescent

rng = np.random.default_rng(6)
X = rng.normal(size=(300, 4)) * 10.0 ** rng.uniform(-1, 1, (300, 1))
X[0] = 0
CODES = np.arange(300) % 3


@pytest.mark.parametrize("solver", ["whitened_gd", "gd", "privgene"])
@pytest.mark.parametrize("estimator", [DPLogisticRegression, DPHuberSVC, DPLinearSVC])
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_parts_add_up_to_the_score(solver, estimator, k, fit_intercept):
    y = CODES % k
    model = estimator(epsilon=5.0, solver=solver, classes=range(k), fit_intercept=fit_intercept).fit(X, y)
    parts = model.score_parts(X)
    assert parts.shape == ((300, 5) if k == 2 else (300, 3, 5))
    np.testing.assert_allclose(parts.sum(axis=-1), model.decision_function(X), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.score_parts(sp.csr_array(X)), parts, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(model.score_parts(X.astype(np.float32)), parts, rtol=1e-4, atol=1e-5)
    assert fit_intercept or not parts[..., -1].any()
    # the share of a feature that is 0 is 0, and that of a larger one of the same row is larger
    assert not parts[0][..., :-1].any()


def test_coefficients_times_rows_are_another_model():
    model = DPLogisticRegression(epsilon=5.0, classes=[0, 1]).fit(X, CODES % 2)
    linear = X @ model.coef_[0] + model.intercept_[0]
    assert np.abs(linear - model.decision_function(X)).max() > 1
    # the label is the same, since a row is scaled as a whole
    np.testing.assert_array_equal(linear > 0, model.decision_function(X) > 0)


def test_rows_that_are_scaled_to_nothing_have_no_parts():
    model = DPLogisticRegression(epsilon=5.0, classes=[0, 1], solver="gd").fit(X, CODES % 2)
    parts = model.score_parts(np.full((2, 4), 1e200))
    assert not parts[:, :-1].any()
    np.testing.assert_allclose(parts.sum(axis=1), model.decision_function(np.full((2, 4), 1e200)))
    clipped = DPLogisticRegression(epsilon=5.0, classes=[0, 1], solver=GradientDescent(rows="clip")).fit(X, CODES % 2)
    np.testing.assert_allclose(clipped.score_parts(np.full((2, 4), 1e200))[:, -1], clipped.intercept_[0])
