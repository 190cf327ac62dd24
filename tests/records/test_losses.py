"""Losses: forms, derivatives and the constants that proofs use, by brute force."""

import re
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import logsumexp

from dpskl.records.losses import Hinge, HuberHinge, Logistic, Softmax

GRID = np.linspace(-40, 40, 160_001)
MARGIN_LOSSES = [Logistic(), Hinge(), *map(HuberHinge, (0.5, 0.1, 3.0, 1e-6, 10.0))]
SMOOTH = [loss for loss in MARGIN_LOSSES if loss.is_smooth]


@pytest.mark.parametrize("loss", MARGIN_LOSSES, ids=repr)
def test_slope_is_one_sided_and_bounded_by_its_constant(loss):
    slope = loss.slope(GRID)
    assert slope.max() <= 0
    assert slope.min() >= -loss.slope_bound
    assert slope.min() == pytest.approx(-loss.slope_bound, abs=1e-12)  # the constant is not larger than need be


@pytest.mark.parametrize("loss", MARGIN_LOSSES, ids=repr)
def test_slope_is_the_derivative_of_the_value(loss):
    points = np.random.default_rng(0).uniform(-5, 5, 2000)
    if not loss.is_smooth:
        points = points[np.abs(points - 1) > 1e-3]
    h = 1e-6
    numeric = (loss.value(points + h) - loss.value(points - h)) / (2 * h)
    np.testing.assert_allclose(loss.slope(points), numeric, atol=1e-5)


@pytest.mark.parametrize("loss", SMOOTH, ids=repr)
def test_curvature_is_the_derivative_of_the_slope_and_within_its_bound(loss):
    h = 1e-6
    points = np.random.default_rng(1).uniform(-6, 6, 4000)
    if isinstance(loss, HuberHinge):  # the curvature jumps at 1 +- h
        points = points[np.abs(np.abs(points - 1) - loss.h) > 1e-4]
    numeric = (loss.slope(points + h) - loss.slope(points - h)) / (2 * h)
    np.testing.assert_allclose(loss.curvature(points), numeric, atol=1e-4)
    curvature = loss.curvature(GRID)
    assert curvature.min() >= 0
    assert curvature.max() == pytest.approx(loss.curvature_bound, rel=1e-9)
    # a Lipschitz constant of the slope, not only of its derivative where that exists
    steepest = np.abs(np.diff(loss.slope(GRID)) / np.diff(GRID)).max()
    assert steepest <= loss.curvature_bound * (1 + 1e-6)


@pytest.mark.parametrize("loss", SMOOTH, ids=repr)
def test_the_majorant_is_the_least_parabola_above_the_loss(loss):
    grid = np.linspace(-60, 60, 24_001)
    at = np.r_[np.random.default_rng(2).uniform(-20, 20, 30), 0.0, 1.0, 1 - getattr(loss, "h", 0.0)]
    curvature = loss.majorant(at)
    assert (curvature > 0).all()
    assert (curvature <= loss.curvature_bound * (1 + 1e-12)).all()
    assert (curvature >= loss.curvature(at) * (1 - 1e-9)).all()

    def gap(z, c, points):
        return (
            loss.value(np.array([z]))
            + loss.slope(np.array([z])) * (points - z)
            + c / 2 * (points - z) ** 2
            - (loss.value(points))
        )

    for z, c in zip(at, curvature, strict=True):
        width = min(1.0, getattr(loss, "h", 1.0))
        points = np.r_[grid, z + np.linspace(-width, width, 2001), -z, 2 - z]
        assert gap(z, c, points).min() >= -1e-10
        assert gap(z, 0.98 * c, points).min() < 0


def test_the_hinge_has_no_majorant():
    with pytest.raises(NotImplementedError, match="Hinge"):
        Hinge().majorant(np.zeros(1))


@pytest.mark.parametrize("h", [0, -1.0, 1e-46, 9.9e-7, 10.1, 1e20, np.inf, np.nan, True, "wide", None])
def test_half_width_outside_its_range_is_refused(h):
    with pytest.raises(ValueError, match=re.escape(f"h={h!r} must be a number from 1e-06 to 10")):
        HuberHinge(h)


@pytest.mark.parametrize("h", [np.float16(0.1), np.float32(0.3), Fraction(1, 10), 1])
def test_constants_of_the_huber_hinge_are_those_of_a_float64_width(h):
    loss = HuberHinge(h)
    assert type(loss.h) is float
    assert loss == HuberHinge(float(h))
    assert loss.curvature_bound == 1 / (2 * float(h))


@pytest.mark.parametrize("h", [1e-6, 1e-3, 1.0, 10.0])
@pytest.mark.parametrize("reach", [1e-3, 1.0, 11.0, 1e4])
def test_huber_hinge_in_both_precisions_is_as_exact_as_a_line_search_allows_for(h, reach):
    """Every float32 around the parabola and random margins, against rational numbers for a few."""
    loss, rng = HuberHinge(h), np.random.default_rng(0)
    margins = np.concatenate([rng.uniform(-reach, reach, 100_000), 1 + 1.5 * h * rng.uniform(-1, 1, 100_000)])
    margins = margins[np.abs(margins) <= reach].astype(np.float32)
    wide = margins.astype(np.float64)
    off = loss.value(margins) - loss.value(wide)
    # what dpskl.mechanisms.above_threshold.loss_range allows for two losses of one output
    assert np.ptp(off) <= 2.0**-17 * (1 + reach) / 1.5
    curved = loss.curvature(margins)
    assert curved.dtype == np.float32
    assert curved.max() <= np.float32(loss.curvature_bound)
    slopes = loss.slope(margins)
    assert slopes.min() >= -1
    assert slopes.max() <= 0
    # a margin is known to its last digit only, and so are the ends of the parabola
    nearby = np.abs(wide[:, None] - 1 - np.array([-h, h])).min(axis=1) > 3e-7 * (1 + h)
    np.testing.assert_array_less(np.abs(slopes - loss.slope(wide)), 3e-7 * (1 + h) * loss.curvature_bound + 1e-6)
    np.testing.assert_array_equal(curved[nearby] > 0, loss.curvature(wide)[nearby] > 0)
    for z in wide[::997]:
        z, w = Fraction(z), Fraction(h)
        exact = 0 if z > 1 + w else 1 - z if z < 1 - w else (1 + w - z) ** 2 / (4 * w)
        assert abs(loss.value(np.array([float(z)]))[0] - exact) <= 1e-14 * (1 + h + reach)


@pytest.mark.parametrize("loss", MARGIN_LOSSES, ids=repr)
def test_values_against_plain_formulas(loss):
    if isinstance(loss, Logistic):
        expected = np.logaddexp(0, -GRID)
    elif isinstance(loss, Hinge):
        expected = np.maximum(0, 1 - GRID)
    else:
        h = loss.h
        inside = (1 + h - GRID) ** 2 / (4 * h)
        expected = np.where(GRID > 1 + h, 0, np.where(np.abs(1 - GRID) <= h, inside, 1 - GRID))
    np.testing.assert_allclose(loss.value(GRID), expected, rtol=1e-12, atol=3e-16)


@pytest.mark.parametrize("loss", MARGIN_LOSSES, ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_is_kept_and_extreme_margins_are_finite(loss, dtype):
    extreme = np.array([-1e30, -1e4, -750, -1, 0, 1, 750, 1e4, 1e30], dtype=dtype)
    before = extreme.copy()
    functions = [loss.value, loss.slope] + ([loss.curvature] if loss.is_smooth else [])
    for function in functions:
        result = function(extreme)
        assert result.dtype == dtype
        assert np.isfinite(result).all()
    np.testing.assert_array_equal(extreme, before)  # nothing is done in place on the argument


def test_logistic_curvature_keeps_its_tail():
    assert Logistic().curvature(np.array([40.0]))[0] == pytest.approx(np.exp(-40), rel=1e-12)


def test_hinge_has_no_curvature():
    assert not Hinge().is_smooth
    with pytest.raises(NotImplementedError, match="HuberHinge"):
        Hinge().curvature(np.zeros(1))


def test_softmax_against_finite_differences_and_its_constants(rng):
    loss = Softmax()
    scores = rng.normal(size=(300, 4)) * 5
    targets = rng.integers(0, 4, 300)
    plain = logsumexp(scores, axis=1) - scores[np.arange(300), targets]
    np.testing.assert_allclose(loss.values(scores, targets), plain, rtol=1e-12, atol=1e-14)
    residuals = loss.residuals(scores, targets)
    for k in range(4):
        step = np.zeros(4)
        step[k] = 1e-6
        numeric = (loss.values(scores + step, targets) - loss.values(scores - step, targets)) / 2e-6
        np.testing.assert_allclose(residuals[:, k], numeric, atol=1e-6)
    worst = loss.residuals(np.array([[1e4, 0.0, 0.0]]), np.array([1]))
    assert np.linalg.norm(worst) == pytest.approx(loss.gradient_bound(3), rel=1e-12)
    probabilities = rng.dirichlet(np.ones(4) * 0.3, size=2000)
    eigenvalues = [np.linalg.eigvalsh(np.diag(p) - np.outer(p, p))[-1] for p in probabilities]
    assert max(eigenvalues) <= loss.curvature_bound + 1e-12
    assert np.linalg.eigvalsh(np.array([[0.25, -0.25], [-0.25, 0.25]]))[-1] == pytest.approx(loss.curvature_bound)


def test_one_vs_rest_sums_over_outputs(rng):
    loss = HuberHinge()
    targets = loss.encode(np.array([0, 2, 1]), 3)
    np.testing.assert_array_equal(targets, [[1, -1, -1], [-1, -1, 1], [-1, 1, -1]])
    scores = rng.normal(size=(3, 3))
    np.testing.assert_allclose(loss.values(scores, targets), loss.value(targets * scores).sum(axis=1))
    assert loss.gradient_bound(3) == pytest.approx(np.sqrt(3))
    np.testing.assert_array_equal(loss.encode(np.array([0, 1]), 2), [-1, 1])
