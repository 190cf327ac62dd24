"""Histograms of columns and of values, measured: neighbours by force, laws in closed form, numbers from the draws.

Every check passes on dpskl as it is and raises AssertionError where a release promises too much, or pays twice. None
knows a formula of dpskl: noise and threshold are read from what a release does.
"""

from functools import partial
from itertools import permutations, product
from math import exp, frexp, inf, log1p, nan, sqrt

import numpy as np
import pytest
from conftest import Tape
from epsilon_audit import DELTA, EPSILON, RUNS, audited_epsilon
from scipy.stats import beta, norm

from dpskl.accounting import gaussian_delta, gaussian_mu
from dpskl.mechanisms.column_histograms import ColumnHistograms
from dpskl.mechanisms.noise import SeededNoise
from dpskl.mechanisms.stable_histogram import StableHistogram, calibrate_stable_histogram
from dpskl.records.cells import ColumnCells
from dpskl.records.values import LONGEST, ColumnValues

RELATIONS = {"add_remove": 1, "replace_one": 2}
EDGES = [[0.0, 1.0, 2.0], [-4.0, -1.0, 1.0, 4.0], [0.0, 0.5, 1.0, 8.0]]
NUMBERS = (nan, -inf, -1.0, 0.0, 1.0, 3.0, inf)


def same_noise(mechanism, tables, make):
    """Releases of two tables with the same noise, flat, and its scale, which the data do not choose."""
    tapes = [Tape(1), Tape(1)]
    first, second = (mechanism.release(make(table), tape) for table, tape in zip(tables, tapes, strict=True))
    assert [(d.law, d.scale) for d in tapes[0].draws] == [(d.law, d.scale) for d in tapes[1].draws]
    (draw,) = tapes[0].draws
    assert draw.law == "normal"
    return first, second, draw.scale


def neighbours_of(rest, records, relation):
    """All pairs of tables, as lists of records, that differ in one record."""
    if relation == "add_remove":
        yield from (([*rest, record], rest) for record in records)
    else:
        yield from (([*rest, one], [*rest, other]) for one, other in product(records, records))


# -- cells that are declared ---------------------------------------------------------------------------------


def cells_of(table, m):
    return ColumnCells([[record[j] for record in table] for j in range(m)], EDGES[:m])


def check_column_histograms():
    """The largest shift over all records of a few values, in units of the noise, is mu."""
    for m, relation in product((1, 2, 3), RELATIONS):
        mechanism, worst = ColumnHistograms(0.7, m, relation), 0.0
        records = list(product(NUMBERS, repeat=m))[:: 1 if m == 1 else 11]
        for rest in ([(0.0,) * m], [(2.0,) * m, (nan,) * m, (-3.0,) * m]):
            for pair in neighbours_of(rest, records, relation):
                first, second, scale = same_noise(mechanism, pair, partial(cells_of, m=m))
                shift = np.concatenate(first) - np.concatenate(second)
                worst = max(worst, float(np.linalg.norm(shift)) / scale)
        assert worst <= mechanism.cost.mu * (1 + 1e-5)  # the grid of releases takes a part
        assert worst >= 0.97 * mechanism.cost.mu
        assert mechanism.sensitivity == pytest.approx(worst * scale, rel=1e-5)
        assert mechanism.noise_scale == scale


def check_column_noise():
    """Every count has noise of its own, of a scale that is worked out by hand."""
    table = [(0.3, -9.0, 0.7), (1.5, 0.0, nan), (1.5, 2.0, 0.2), (-2.0, 0.0, 9.0)]
    exact = np.array([2, 2, 1, 2, 1, 1, 1, 1.0])  # of the cells of all columns
    for relation, changed in RELATIONS.items():
        mechanism, tape = ColumnHistograms(0.7, 3, relation), Tape(3)
        released = np.concatenate(mechanism.release(cells_of(table, 3), tape))
        (draw,) = tape.draws
        scale = sqrt(3 * changed) / 0.7
        assert draw.scale == pytest.approx(scale, rel=1e-6)
        np.testing.assert_allclose(released, exact + scale * draw.unit, atol=3e-6 * scale)
        assert len(np.unique(draw.unit)) == 8


def check_cells():
    """The cell of a value is that of its exponent, at every edge and beside it."""
    powers = 2.0 ** np.arange(-3, 6)
    edges = np.concatenate([-powers[::-1], powers])
    near = [np.nextafter(powers, 0), powers, np.nextafter(powers, inf)]
    values = np.concatenate([*near, *(-v for v in near), [0.0, -0.0, 5e-324, 1e300, -inf, nan]])
    for value in values:
        mantissa, exponent = frexp(abs(value)) if abs(value) < inf else (0.75, 99)
        exponent -= 1 + (value < 0 and mantissa == 0.5)  # cells have their lower edge
        size = np.clip(exponent, -4, 4) if value else -4
        expected = 8 + (size + 4) * (1 if value > 0 else -1)
        (counts,) = ColumnCells([[value]], [edges]).counts()
        assert counts.sum() == (not np.isnan(value))
        assert np.isnan(value) or counts[expected] == 1, value
    (all_of_them,) = ColumnCells([np.repeat(values, 5000)], [edges]).counts()  # in several blocks
    assert all_of_them.sum() == 5000 * (len(values) - 1)


def check_column_audit():
    """Runs with a record and without it: the claim is not exceeded, and much of it is reached."""
    m, mu = 4, gaussian_mu(EPSILON, DELTA)
    for relation in RELATIONS:
        mechanism, scores = ColumnHistograms(mu, m, relation), []
        other = [] if relation == "add_remove" else [[0.5] * m]
        for seed, table in ((1, [[1.5] * m, [0.5] * m]), (2, [*other, [0.5] * m])):
            noise, cells = SeededNoise(seed), ColumnCells(np.transpose(table), [[0.0, 1.0, 2.0]] * m)
            runs = np.array([mechanism.release(cells, noise) for _ in range(RUNS)])
            scores.append((runs[:, :, 1] - runs[:, :, 0] * (relation == "replace_one")).sum(axis=1))
        assert 1.5 <= audited_epsilon(*scores) <= EPSILON


# -- values that are not declared ------------------------------------------------------------------------------


def values_of(table):
    return ColumnValues(list(zip(*table, strict=True)))


def lowest_noise(mechanism, m=1):
    """What unit of noise a value of one record needs to come out, found by bisection; and the scale of the noise."""

    def comes_out(unit):
        tape = Tape(1, {0: lambda units: np.full_like(units, unit)})
        released = mechanism.release(values_of([("a",) * m]), tape)
        assert len({len(own) for own in released}) == 1
        return len(released[0]) == 1, tape.draws[0].scale

    low, high = -40.0, 40.0
    for _ in range(80):
        middle = (low + high) / 2
        found, scale = comes_out(middle)
        low, high = (low, middle) if found else (middle, high)
    return high, scale


def worst_deltas(m, relation, tail, scale, epsilon):
    """Exact delta for every kind of exchange, with other counts so high that the threshold hides none of them.

    In each column a value is new or not, and where records are exchanged another one vanishes or not.
    """
    for new, gone in product(range(m + 1), range(m + 1) if relation == "replace_one" else (0,)):
        moved = 2 * m - new - gone if relation == "replace_one" else m - new
        mu = sqrt(moved) / scale
        for own, other in ((new, gone), (gone, new)):  # both directions
            a, silent = -np.expm1(own * log1p(-tail)), (other - own) * log1p(-tail)
            yield a + (1 - a) * gaussian_delta(mu, epsilon + silent)


def check_stable_delta():
    """No pair of neighbours exceeds the stated delta anywhere, and it is reached where one part decides."""
    for m, relation, delta in product((1, 2, 5, 30), RELATIONS, (1e-2, 1e-5, 1e-9)):
        for mu in (0.3, 0.511, 1.0):
            mechanism = StableHistogram(mu, delta, m, relation)
            unit, scale = lowest_noise(mechanism, m)
            tail = norm.sf(unit)
            for epsilon in (0.0, 0.3, 1.0, 2.0, 4.0, 50.0):
                exact, stated = max(worst_deltas(m, relation, tail, scale, epsilon)), mechanism.cost.delta(epsilon)
                assert exact <= stated * (1 + 1e-9)
                assert exact >= 0.49 * stated
                if epsilon == 50.0 or (epsilon == 0.0 and delta < 1e-2):
                    assert exact >= 0.97 * stated
    for epsilon, relation in product((0.2, 3.0), RELATIONS):
        mechanism = calibrate_stable_histogram(epsilon, 1e-6, 3, relation)
        unit, scale = lowest_noise(mechanism, 3)
        exact = max(worst_deltas(3, relation, norm.sf(unit), scale, epsilon))
        assert 0.45e-6 <= exact <= 1e-6
        assert 0.99e-6 <= mechanism.cost.delta(epsilon) <= 1e-6


def check_stable_grid():
    """Thresholds are rounded to the side that releases less: the noise that is needed never falls short."""
    for step in range(60):
        mechanism = StableHistogram(0.3 + 0.01 * step, 1e-4, 1, "add_remove")
        unit, _ = lowest_noise(mechanism)
        assert norm.sf(unit) <= 1e-4
        assert norm.sf(unit) >= 1e-4 * (1 - 1e-4)


def check_stable_counts():
    """Counts of values that both have move by mu in units of the noise; what one has is of one record, one a column."""
    values = ("a", True, 1.0, 1, nan, None, "new", "x" * (LONGEST + 1))
    for m, relation in product((1, 2), RELATIONS):
        mechanism, tape, worst, most = StableHistogram(0.7, 0.3, m, relation), Tape(1), 0.0, 0
        rest = [("a",) * m, ("b",) * m, (1,) * m]
        mechanism.release(values_of(rest), tape)
        for pair in neighbours_of(rest, list(product(values, repeat=m)), relation):
            columns = list(zip(*(values_of(table).counts() for table in pair), strict=True))
            shared = [own[v] - other[v] for own, other in columns for v in own.keys() & other.keys()]
            worst = max(worst, float(np.linalg.norm(shared)) / tape.draws[0].scale)
            for first, second in ((0, 1), (1, 0)):
                alone = [own[first][v] for own in columns for v in own[first].keys() - own[second].keys()]
                assert set(alone) <= {1}
                most = max(most, len(alone))
        assert most == m
        assert 0.97 * 0.7 <= worst <= 0.7 * (1 + 1e-9)
        assert mechanism.sensitivity == pytest.approx(worst * tape.draws[0].scale)
        assert mechanism.noise_scale == tape.draws[0].scale


def check_stable_noise():
    """Every count has noise of its own, of a scale that is worked out by hand."""
    table = [("b", 1)] * 90 + [("a", 2.5)] * 70 + [("a", True)] * 50
    for relation, changed in RELATIONS.items():
        tape = Tape(4)
        released = StableHistogram(0.7, 1e-6, 2, relation).release(values_of(table), tape)
        (draw,) = tape.draws
        scale = sqrt(2 * changed) / 0.7
        assert draw.scale == pytest.approx(scale, rel=1e-6)
        assert [list(own) for own in released] == [["a", "b"], [1, 2.5]]
        noisy = [count for own in released for count in own.values()]
        np.testing.assert_allclose(noisy, [120, 90, 140, 70] + scale * draw.unit, atol=3e-6 * scale)
        assert len(np.unique(draw.unit)) == 4


def check_values():
    """A value stands for its equals whoever comes first, and the order of records shows nowhere."""
    values = ["1", True, 1.0, np.int8(1), np.str_("b"), "b", -0.0, 0, nan, float("nan"), None, "x" * 201, 2.5]
    expected = "[{0: 2, 1: 3, 2.5: 1, '1': 1, 'b': 2}]"
    rng = np.random.default_rng(0)
    for _ in range(50):
        assert repr(ColumnValues([[values[i] for i in rng.permutation(len(values))]]).counts()) == expected
    for order in permutations([True, 1.0, 1, "1"]):
        released = StableHistogram(inf, 0.1, 1, "add_remove").release(ColumnValues([order]), Tape(1))
        assert repr(released) == "[{1: 3.0, '1': 1.0}]"


def check_stable_audit():
    """How often a value of one record comes out, against delta: wrong by chance once in 10,000 runs."""
    for m, relation in ((1, "add_remove"), (4, "replace_one")):
        mechanism, noise, runs = StableHistogram(0.5, 0.05, m, relation), SeededNoise(5), 4000
        values = values_of([("new",) * m])
        seen = sum(any(mechanism.release(values, noise)) for _ in range(runs))
        assert beta.ppf(5e-5, seen, runs - seen + 1) <= 0.05 <= beta.isf(5e-5, seen + 1, runs - seen)


def check_histogram_guards():
    """A mechanism that was calibrated for fewer columns refuses more."""
    for mechanism, data in (
        (ColumnHistograms(1.0, 1, "add_remove"), cells_of([(0.0, 0.0)], 2)),
        (StableHistogram(1.0, 0.1, 1, "add_remove"), values_of([("a", "b")])),
    ):
        try:
            mechanism.release(data, Tape(1))
        except ValueError:
            continue
        raise AssertionError(f"{mechanism.name}: not refused")


def censored_delta(count, other, threshold, scale, epsilon):
    """Exact delta of one noisy count that is hidden below a threshold, by quadrature; 0 is a value that is absent."""
    grid = np.linspace(threshold, threshold + 40 * scale + count + other, 20_001)
    step = grid[1] - grid[0]

    def law(n):
        if n == 0:
            return 1.0, np.zeros_like(grid)
        return norm.cdf((threshold - n) / scale), norm.pdf((grid - n) / scale) / scale

    (atom, density), (other_atom, other_density) = law(count), law(other)
    above = np.maximum(density - exp(epsilon) * other_density, 0)
    return max(0.0, atom - exp(epsilon) * other_atom) + (above.sum() - (above[0] + above[-1]) / 2) * step


def check_censored_counts():
    """One column, every count around the threshold, both directions: quadrature stays below the stated delta."""
    mechanism = StableHistogram(0.8, 1e-3, 1, "add_remove")
    unit, scale = lowest_noise(mechanism)
    threshold = 1 + unit * scale
    for epsilon in (0.0, 0.5, 1.0, 3.0):
        pairs = [(n, n - 1) for n in range(1, 12)]
        exact = [censored_delta(*pair, threshold, scale, epsilon) for n, o in pairs for pair in ((n, o), (o, n))]
        assert max(exact) <= mechanism.cost.delta(epsilon) * (1 + 1e-5)
        assert max(exact) >= 0.49 * mechanism.cost.delta(epsilon)
