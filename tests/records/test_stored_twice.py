"""What a sparse matrix says of itself is not believed: entries are counted once, and lie inside the matrix."""

import numpy as np
import pytest
import scipy.sparse as sp

from dpskl import DPLogisticRegression, PrivacyAccountant
from dpskl.preprocessing import RowNormClipper
from dpskl.validation import validate_rows

KINDS = [sp.csr_matrix, sp.csr_array]


class Seen(RowNormClipper):
    n_features_in_ = 6


def stale(kind, flag="has_canonical_format"):
    """A matrix that SciPy still takes for canonical, whose second row holds column 1 six times."""
    X = kind(np.arange(1.0, 19.0).reshape(3, 6))
    assert getattr(X, flag)
    X.indices[6:12] = 1
    assert getattr(X, flag)  # remembered, and wrong
    return X


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("flag", ["has_canonical_format", "has_sorted_indices"])
def test_entries_that_are_stored_twice_are_added_whatever_the_flags_say(kind, flag):
    X = stale(kind, flag)
    checked = validate_rows(Seen(), X)
    np.testing.assert_array_equal(checked.toarray(), X.toarray())
    assert np.diff(checked.indptr).tolist() == [6, 1, 6]
    assert X.nnz == 18  # the caller's own is left as it is


@pytest.mark.parametrize("kind", KINDS)
def test_no_record_exceeds_its_norm_through_a_stale_flag(kind):
    rng = np.random.default_rng(1)
    X = kind(sp.random(60, 2**12, density=0.01, format="csr", rng=rng))
    X.data[:] = 1.0
    assert X.has_canonical_format
    X.indices %= 4  # as a hash that is folded: many entries of a row fall together
    rows = RowNormClipper(1.0).fit(X).transform(X)
    assert np.linalg.norm(rows.toarray(), axis=1).max() <= 1.0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("column", [-1, 6, 2**30])
def test_columns_outside_the_matrix_are_refused_before_the_charge(kind, column):
    accountant = PrivacyAccountant()
    X = kind(np.arange(1.0, 19.0).reshape(3, 6))
    X.indices[4] = column
    with pytest.raises(ValueError, match="index arrays are broken"):
        DPLogisticRegression(classes=[0, 1], accountant=accountant).fit(X, [0, 1, 0])
    assert accountant.entries() == ()


@pytest.mark.parametrize("kind", KINDS)
def test_a_canonical_matrix_is_used_without_a_copy(kind):
    X = kind(np.arange(1.0, 19.0).reshape(3, 6))
    checked = validate_rows(Seen(), X)
    assert np.shares_memory(checked.data, X.data)
    assert np.shares_memory(checked.indices, X.indices)


def test_parts_that_add_up_to_infinity_are_refused():
    X = sp.csr_array((np.array([1.7e308, 1.7e308, 1.0]), np.array([0, 0, 1]), np.array([0, 2, 3])), shape=(2, 6))
    with pytest.raises(ValueError, match="X contains infinity"):
        validate_rows(Seen(), X)
