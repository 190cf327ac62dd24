"""The exponential mechanism: exact privacy of both calibrations, by quadrature, brute force and an audit."""

import dataclasses
from math import exp, log, sqrt

import numpy as np
import pytest
from exponential_cases import (
    MALA,
    NEIGHBOURS,
    REJECTION,
    UncertifiedRejection,
    calibrated,
    colder,
    many_draws,
    problem,
    question,
)
from laws_by_quadrature import log_density
from scipy.optimize import brentq
from scipy.stats import binom

from dpskl.accounting import BoundedRangeCost
from dpskl.mechanisms.noise import SeededNoise
from dpskl.records.losses import HuberHinge, Logistic


def neighbouring_pairs(neighbours, rng, n_pairs=24):
    """Lists of signed features in one dimension: a record more, or the worst exchange."""
    for trial in range(n_pairs):
        size = (0, 3, 1000)[trial % 3]
        rest = rng.uniform(-1, 1, size) if trial % 2 else np.full(size, 0.3)
        record = 1.0 if trial % 4 < 2 else -1.0
        yield np.append(rest, record), (rest if neighbours == "add_remove" else np.append(rest, -record))


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(0.5)], ids=repr)
def test_exact_pure_epsilon_of_the_range_is_the_budget_and_nearly_spent(loss, neighbours):
    mechanism = calibrated(loss, neighbours)
    assert mechanism.cost.pure_epsilon == pytest.approx(1.0, rel=1e-9)
    assert mechanism.cost.pure_epsilon <= 1.0
    grid = np.linspace(-5, 5, 1001)
    worst = 0.0
    for first, second in neighbouring_pairs(neighbours, np.random.default_rng(2)):
        p, q = (log_density(records, loss, mechanism.inverse_temperature, 1e-3, grid) for records in (first, second))
        worst = max(worst, np.abs(p - q).max())
    assert worst <= 1.0
    assert worst >= 0.85


def exact_epsilon(first, second, delta, width):
    """The epsilon at delta of two densities on a grid, the larger of both directions."""

    def excess(epsilon, a, b):
        return np.maximum(a - exp(epsilon) * b, 0).sum() * width - delta

    return max(brentq(excess, -5, 5, args=pair) for pair in ((first, second), (second, first)))


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(0.5)], ids=repr)
def test_exact_gaussian_privacy_of_the_penalty_is_the_budget_and_nearly_spent(loss, neighbours):
    """The steep part of a loss is nearly linear, and the draw nearly Gaussian there."""
    delta, ridge = 1e-2, (1.0 if isinstance(loss, Logistic) else 100.0)
    mechanism = question({**MALA, "ridge": ridge}, n_features=1, loss=loss, neighbours=neighbours, delta=delta)
    assert mechanism.cost.epsilon(delta) == pytest.approx(1.0, rel=1e-6)
    beta = mechanism.inverse_temperature
    grid = np.linspace(-18, 10, 4001) / sqrt(beta * ridge)
    if isinstance(loss, Logistic):  # many short records hold the weights where the slope of the last one is steep
        held = np.full(4000, -0.01)
        first = np.append(held, 1.0)
        pairs = [(first, held if neighbours == "add_remove" else np.append(held, -1.0))]
    else:
        pairs = []
    pairs += neighbouring_pairs(neighbours, np.random.default_rng(3), 12)
    worst = 0.0
    for pair in pairs:
        p, q = (np.exp(log_density(records, loss, beta, ridge, grid)) for records in pair)
        worst = max(worst, exact_epsilon(p, q, delta, grid[1] - grid[0]))
    assert worst <= 1 + 1e-4  # what the kink costs in quadrature
    # exchanged logistic records cannot both be steep
    assert worst >= (0.85 if neighbours == "add_remove" or isinstance(loss, HuberHinge) else 0.35)


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(0.3)], ids=repr)
def test_sensitivities_by_brute_force(loss, n_classes, neighbours):
    """Range over the ball, and Lipschitz constant, of the change of the energy between neighbours."""
    public = {"loss": loss, "n_classes": n_classes, "neighbours": neighbours, "intercept": 0.5}
    drawn = question(REJECTION, **public)
    smooth = question(MALA, **public)
    rng = np.random.default_rng(5)
    row, n_outputs = np.hypot(1, 0.5), drawn.n_outputs
    worst_range = worst_slope = 0.0
    for trial in range(300):
        records = []
        for sign in (1, -1):
            x = rng.normal(size=2)
            x = np.append(x / np.linalg.norm(x) * (1 if trial % 3 else rng.uniform()), 0.5)
            if trial % 2:
                x = np.array([1.0, 0.0, 0.5])
            targets = sign * np.ones(n_outputs) if trial % 2 else rng.choice([-1, 1], n_outputs)
            records.append((x, targets))
        if neighbours == "add_remove":
            del records[1]
        signs = (1, -1)[: len(records)]
        # the ball of each output: random directions, and those of the records, at the radius
        points = rng.normal(size=(200, n_outputs, 3))
        points[:2] = records[0][0]
        points[1] *= -1
        points *= drawn.radius / np.linalg.norm(points, axis=2, keepdims=True)
        change = sum(s * loss.value(points @ x * t).sum(axis=1) for s, (x, t) in zip(signs, records, strict=True))
        worst_range = max(worst_range, float(np.ptp(change)))
        scale = rng.uniform(0, 40, size=(200, 1, 1)) / drawn.radius
        slopes = sum(
            s * (loss.slope((scale * points) @ x * t) * t)[:, :, None] * x
            for s, (x, t) in zip(signs, records, strict=True)
        )
        worst_slope = max(worst_slope, float(np.linalg.norm(slopes, axis=(1, 2)).max()))
    assert drawn.radius * row == pytest.approx(5)
    assert 0.95 * drawn.sensitivity <= worst_range <= drawn.sensitivity * (1 + 1e-9)
    assert worst_slope <= smooth.sensitivity * (1 + 1e-9)
    # with replace_one the two slopes are both steep only where the records point in opposite directions
    assert worst_slope >= (0.95 if neighbours == "add_remove" else 0.45) * smooth.sensitivity


def test_leaving_the_intercept_out_of_the_row_norm_exceeds_the_budget_and_is_refused():
    """Rows and intercept of 1, a ball of 3: by quadrature epsilon is above the claim, below with the right norm."""
    grid = np.linspace(-3, 3, 301)
    w, w0 = np.meshgrid(grid, grid, indexing="ij")
    inside = np.hypot(w, w0) <= 3

    def worst(row_norm):
        beta = calibrated(Logistic(), radius=3.0, row_norm=row_norm).inverse_temperature
        rest, record = 40 * Logistic().value(w + w0), Logistic().value(w + w0)
        laws = [-beta * rest[inside], -beta * (rest + record)[inside]]
        with_record, without = (law - np.logaddexp.reduce(law) for law in laws)
        return np.abs(with_record - without).max()

    assert worst(1.0) > 1.1
    assert 0.9 < worst(sqrt(2)) <= 1
    mechanism = question(REJECTION, n_features=2, intercept=0.0)
    with pytest.raises(ValueError, match="intercept included"):
        mechanism.release(problem(intercept=1.0), SeededNoise(0))


def test_rounding_is_charged_and_grows_with_the_data():
    small, large = (question(REJECTION, n_samples=n) for n in (40, 4000))
    assert (
        0 < small.keep_rounding(1.0) / small.inverse_temperature < large.keep_rounding(1.0) / large.inverse_temperature
    )
    inflated = small.sensitivity * small.inverse_temperature
    assert isinstance(small.cost, BoundedRangeCost)
    assert inflated < small.cost.pure_epsilon <= 1.0


def test_keep_rounding_covers_what_is_seen():
    """The gap in float64 against the gap in extended precision."""
    mechanism = question({**MALA, "ridge": 1.0}, n_samples=500, n_features=20, intercept=0.3)
    data = problem(500, 20, intercept=0.3)
    rng = np.random.default_rng(1)
    design = np.column_stack([data.X * data._scale[:, None], np.full(500, 0.3)]).astype(np.longdouble)
    for scale in (0.1, 1.0, 10.0):
        w, x = rng.normal(size=(2, 21)) * scale
        gradient = mechanism.inverse_temperature * data.gradient_sum(x)
        computed = mechanism.inverse_temperature * float(
            (data.losses(data.scores(w)) - data.losses(data.scores(x))).sum()
        )
        computed -= float(gradient @ (w - x))
        margins = [data.targets * (design @ v.astype(np.longdouble)) for v in (w, x)]
        exact = np.longdouble(mechanism.inverse_temperature) * (
            np.log1p(np.exp(-margins[0])).sum() - np.log1p(np.exp(-margins[1])).sum()
        )
        exact -= (gradient.astype(np.longdouble) * (w - x)).sum()
        bound = mechanism.keep_rounding(max(np.linalg.norm(w), np.linalg.norm(x)))
        assert abs(float(exact - computed)) <= bound
        assert bound < 1e-8


@pytest.mark.slow
def test_an_audit_of_exact_draws_stays_below_the_claim_and_finds_half_the_temperature():
    """One dimension, epsilon = 2, 2 x 8,000 draws. Both ends (Clopper-Pearson) are wrong once in 10,000."""

    def bound(factor, seed):
        made = colder(calibrated(Logistic(), epsilon=2.0, ridge=0.01), factor)
        mechanism = UncertifiedRejection(**{f.name: getattr(made, f.name) for f in dataclasses.fields(made)})
        counts = []
        for record in (1.0, 0.0):
            data = problem(X=np.array([[record], [0.0]]), y=[1.0, 1.0])
            counts.append(int((many_draws(mechanism, data, 8000, SeededNoise(seed)) < -4).sum()))
        few, many = counts
        low = brentq(lambda q: binom.sf(many - 1, 8000, q) - 5e-5, 1e-9, 1)
        high = brentq(lambda q: binom.cdf(few, 8000, q) - 5e-5, 1e-9, 1)
        return log(low / high)

    assert 0.8 < bound(1, 1) <= 2.0
    assert bound(2, 2) > 2.0
