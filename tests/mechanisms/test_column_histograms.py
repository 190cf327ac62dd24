"""Noise on the histograms of columns: exact without noise, normal with it, and refused where it is unusable."""

from math import inf, sqrt

import numpy as np
import pytest
from conftest import RecordingNoise

from dpskl.mechanisms.base import ReleasePart
from dpskl.mechanisms.column_histograms import ColumnHistograms
from dpskl.mechanisms.noise import SeededNoise
from dpskl.records.cells import ColumnCells

RELATIONS = ("add_remove", "replace_one")


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_without_noise_counts_are_exact(neighbours, rng):
    columns = [rng.normal(size=1000), rng.exponential(size=1000)]
    columns[1][::7] = np.nan
    edges = [np.linspace(-5, 5, 11), np.linspace(0, 20, 5)]
    released = ColumnHistograms(inf, 2, neighbours).release(ColumnCells(columns, edges), SeededNoise(0))
    for counts, column, own in zip(released, columns, edges, strict=True):
        np.testing.assert_array_equal(counts, np.histogram(column[~np.isnan(column)], own)[0])


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_the_law_of_the_noise(neighbours):
    """Mean, spread and correlation of 40,000 normals: wrong once in 10,000 runs each."""
    mechanism, edges = ColumnHistograms(0.4, 3, neighbours), np.arange(101.0)
    cells, noise = ColumnCells([[0.5]] * 3, [edges] * 3), SeededNoise(1)
    drawn = np.array([mechanism.release(cells, noise) for _ in range(134)]).reshape(134, -1)
    drawn[:, ::100] -= 1
    units = drawn[:, :300].ravel() / mechanism.noise_scale
    assert abs(units.mean()) < 3.9 / sqrt(len(units))
    assert np.mean(units**2) == pytest.approx(1, abs=3.9 * sqrt(2 / len(units)))
    assert abs(np.mean(units[1:] * units[:-1])) < 3.9 / sqrt(len(units))


def test_noise_and_cost_are_known_before_the_data():
    for neighbours, changed in zip(RELATIONS, (1, 2), strict=True):
        mechanism, noise = ColumnHistograms(0.5, 7, neighbours), RecordingNoise()
        assert mechanism.sensitivity == pytest.approx(sqrt(7 * changed))
        assert mechanism.noise_scale == pytest.approx(sqrt(7 * changed) / 0.5)
        assert mechanism.cost.mu == 0.5
        mechanism.release(ColumnCells([[1.0], [2.0]], [[0, 3], [0, 3]]), noise)  # fewer columns are no harm
        assert noise.draws == [("normal", mechanism.noise_scale)]
        part = mechanism.describe(1)
        assert ReleasePart.from_dict(part.to_dict()) == part


def test_columns_of_no_records_have_noise():
    released = ColumnHistograms(0.5, 1, "add_remove").release(ColumnCells([[]], [[0, 1, 2]]), SeededNoise(1))
    assert len(released) == 1
    assert (released[0] != 0).all()


@pytest.mark.parametrize(("parameters", "word"), [((0.0, 1), "mu"), ((np.nan, 1), "mu"), ((1.0, 0), "n_columns")])
def test_unusable_parameters_are_refused(parameters, word):
    with pytest.raises(ValueError, match=word):
        ColumnHistograms(*parameters, "add_remove")
