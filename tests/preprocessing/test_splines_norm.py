"""No row of hat functions is longer than the square root of the number of columns: exactly, in rational arithmetic."""

from fractions import Fraction

import numpy as np
import pytest

from dpskl.preprocessing import PublicSplineTransformer
from dpskl.records.rows import row_norms

TINY = [0.0, 5e-324, 1e-320, 2.0**-1022, 1e-300, 1e-30, 2.0**-60, 2.0**-54, 2.0**-53, 3 * 2.0**-54, 2.0**-52, 2.0**-27]
HUGE = [1e17, 1e100, 1e308, 1.7976931348623157e308]


def exact_squares(row):
    return sum(Fraction(value) ** 2 for value in row.tolist())


def near(points):
    """Points with their neighbours among the floats, and tiny and relative steps beside them."""
    points = np.asarray(points, dtype=np.float64)
    steps = np.array([*TINY, 2.0**-26, 1e-9, 1e-3])
    beside = [points[:, None] + sign * steps * scale for sign in (1, -1) for scale in (1, abs(points).max())]
    neighbours = [np.nextafter(points, end) for end in (-np.inf, np.inf)]
    return np.concatenate([points, *neighbours, *[values.ravel() for values in beside]])


CASES = [
    (0.0, 1.0, 2, "linear"),
    (0.0, 1.0, 9, "linear"),
    (-1.0, 2.0, 5, "linear"),
    (17.3, 98.7, 9, "linear"),
    (-1e-100, 1e-100, 7, "linear"),
    (-1e100, 1e100, 9, "linear"),
    (1.0, 1.0 + 2.0**-44, 9, "linear"),
    (0.0, 1e6, 9, "log"),
    (-1e4, 3.0, 9, "log"),
    (-1e-100, 1e100, 4, "log"),
]


@pytest.mark.parametrize(("low", "high", "n_knots", "spacing"), CASES)
def test_blocks_of_random_and_extreme_values(low, high, n_knots, spacing, rng):
    hats = PublicSplineTransformer(low, high, n_knots=n_knots, spacing=spacing, sparse_output=False).fit([[0.0]])
    knots = hats.knots_[0]
    extreme = np.concatenate([near(knots), TINY, HUGE, np.negative(TINY + HUGE)])
    random = knots[0] + (knots[-1] - knots[0]) * np.concatenate([rng.random(3000), 2.0 ** -rng.uniform(0, 1070, 500)])
    out = hats.transform(np.concatenate([extreme, random])[:, None])
    for row in out:
        shares = [Fraction(value) for value in row.tolist()]
        assert sum(shares) == 1  # a partition of unity, not up to rounding
        assert min(shares) >= 0
        assert np.count_nonzero(row) <= 2
        assert Fraction(1, 2) <= exact_squares(row) <= 1
    assert max(map(exact_squares, out)) == 1


@pytest.mark.parametrize("m", [1, 2, 3, 5, 7, 10, 31])
def test_rows_of_many_columns_attain_the_bound_and_stay_within_it(m, rng):
    hats = PublicSplineTransformer(-1, 1, n_knots=5, handle_missing="indicator", sparse_output=False)
    hats.fit(np.zeros((1, m)))
    assert m <= Fraction(hats.data_norm_) ** 2 <= m * (1 + Fraction(1, 2**50))
    X = rng.uniform(-1.2, 1.2, size=(300, m))
    X[rng.random(X.shape) < 0.3] += 2.0**-53
    X[:100] = rng.choice(hats.knots_[0], size=(100, m))
    X[50:150][rng.random((100, m)) < 0.2] = np.nan
    squares = [exact_squares(row) for row in hats.transform(X)]
    assert max(squares) == m
    assert max(squares[:50]) == min(squares[:50]) == m
    assert all(square <= Fraction(hats.data_norm_) ** 2 for square in squares)
    assert row_norms(hats.transform(X)).max() <= hats.data_norm_ * (1 + 1e-15)


def test_the_other_weight_as_it_was_computed_would_break_the_bound():
    b = 2.0**-60
    assert Fraction(1 - b) ** 2 + Fraction(b) ** 2 > 1
    (row,) = PublicSplineTransformer(0, 1, n_knots=2, sparse_output=False).fit_transform([[b]])
    assert row.tolist() == [1.0, 0.0]


def test_a_cast_to_float32_may_break_the_bound_by_little_and_is_not_made(rng):
    X = np.array([[2.0**-26], [2.0**-25], *rng.random((2000, 1)), *(2.0 ** -rng.uniform(20, 30, (2000, 1)))])
    hats = PublicSplineTransformer(0, 1, n_knots=2, sparse_output=False)
    assert hats.fit_transform(X.astype(np.float32)).dtype == np.float64
    assert "float32" not in hats.__sklearn_tags__().transformer_tags.preserves_dtype
    cast = [exact_squares(row) for row in hats.fit_transform(X).astype(np.float32)]
    assert 1 < max(cast) <= 1 + Fraction(1, 2**50)


def test_float32_input_has_the_exact_bound_too(rng):
    X = np.concatenate([rng.random(500), 2.0 ** -rng.uniform(0, 149, 500), [3e38, -3e38, 1e-45]]).astype(np.float32)
    out = PublicSplineTransformer(0, 1, sparse_output=False).fit_transform(X[:, None])
    assert max(map(exact_squares, out)) == 1
