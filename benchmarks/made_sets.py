"""Sets made from a seed, each extreme in one way: what a rule for public constants has to serve besides census tables.

Labels are -1 and +1, drawn from a logistic model unless said otherwise. Columns are bounded as a user would declare
them: in [0, 1] where they are indicators, otherwise in [-1, 1].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer

__all__ = ["LENGTH_SETS", "MADE_SETS", "MADE_TITLES", "SPARSE_SETS"]

Array = np.ndarray[Any, Any]


def _labels(rng: np.random.Generator, scores: Array, strength: float, positive: float = 0.5) -> Array:
    """Draw labels; the scores are standardised to ``strength`` and shifted to about the share ``positive``."""
    scores = strength * (scores - scores.mean()) / scores.std()
    shift = np.quantile(scores, 1 - positive)
    return np.where(rng.random(len(scores)) < 1 / (1 + np.exp(-(scores - shift))), 1, -1)


def _bounded(X: Array) -> Array:
    return np.asarray(np.clip(X / 3, -1, 1))


def _blobs() -> tuple[Any, Array]:
    rng = np.random.default_rng(10)
    y = rng.choice([-1, 1], 300)
    return _bounded(rng.normal(size=(300, 2)) + 0.9 * y[:, None]), y


def _few() -> tuple[Any, Array]:
    rng = np.random.default_rng(11)
    X = rng.normal(size=(1000, 20))
    return _bounded(X), _labels(rng, X @ rng.normal(size=20), 2.5)


def _correlated() -> tuple[Any, Array]:
    """Fifty columns of three factors and a tenth of noise of their own; the label follows the noise as well."""
    rng = np.random.default_rng(12)
    factors, own = rng.normal(size=(10_000, 3)), 0.1 * rng.normal(size=(10_000, 50))
    loadings = rng.normal(size=(3, 50)) / np.sqrt(3)
    signal = factors @ rng.normal(size=3) + 10 * own @ rng.normal(size=50) / np.sqrt(50)
    return _bounded(factors @ loadings + own), _labels(rng, signal, 3.0)


def _rare_columns() -> tuple[Any, Array]:
    """Indicators that are set in one row of 3 to one of 1,000, all of the same effect."""
    rng = np.random.default_rng(13)
    X = (rng.random((20_000, 200)) < np.geomspace(1e-3, 0.3, 200)).astype(float)
    return X, _labels(rng, X @ rng.choice([-1.0, 1.0], 200), 2.0)


def _rare_positives() -> tuple[Any, Array]:
    rng = np.random.default_rng(14)
    X = rng.normal(size=(50_000, 20))
    return _bounded(X), _labels(rng, X @ rng.normal(size=20), 3.0, positive=0.003)


def _label_noise() -> tuple[Any, Array]:
    """The sign of a score, three labels in ten turned over."""
    rng = np.random.default_rng(15)
    X = rng.normal(size=(10_000, 30))
    y = np.where(X @ rng.normal(size=30) > 0, 1, -1)
    return _bounded(X), np.where(rng.random(10_000) < 0.3, -y, y)


def _wide() -> tuple[Any, Array]:
    """Counts of words as 0 and 1, their frequencies as those of a language: CSR."""
    rng = np.random.default_rng(16)
    X = (rng.random((20_000, 2000)) < 0.5 / np.sqrt(1 + np.arange(2000))).astype(float)
    return sp.csr_array(X), _labels(rng, X @ rng.normal(size=2000), 3.0)


def _long() -> tuple[Any, Array]:
    rng = np.random.default_rng(17)
    X = rng.normal(size=(500_000, 10))
    return _bounded(X), _labels(rng, X @ rng.normal(size=10), 2.0)


def _groups() -> tuple[Any, Array]:
    """Twenty categorical columns of fifteen levels each, some common and some rare, one-hot."""
    rng = np.random.default_rng(18)
    shares = 1 / (1 + np.arange(15.0))
    levels = rng.choice(15, size=(30_000, 20), p=shares / shares.sum())
    X = np.zeros((30_000, 20, 15))
    np.put_along_axis(X, levels[:, :, None], 1, axis=2)
    X = X.reshape(30_000, 300)
    return X, _labels(rng, X @ rng.normal(size=300), 2.5)


def _scales() -> tuple[Any, Array]:
    """Forty columns whose declared bounds were too wide by a factor of 1 to 100."""
    rng = np.random.default_rng(19)
    X = rng.normal(size=(5000, 40))
    return _bounded(X) * np.geomspace(0.01, 1, 40), _labels(rng, X @ rng.normal(size=40), 3.0)


def _ray() -> tuple[Any, Array]:
    """Two blobs on one ray from the origin: rows differ in length and hardly in direction."""
    rng = np.random.default_rng(20)
    y = rng.choice([-1, 1], 5000)
    return np.clip((0.34 + 0.15 * y)[:, None] + 0.12 * rng.normal(size=(5000, 4)), 0, 1), y


def _needles() -> tuple[Any, Array]:
    """A million indicators, fifty of them set in a row at random; what counts are twenty that are common: CSR."""
    rng = np.random.default_rng(21)
    n, d, relevant, each = 20_000, 1_000_000, 20, 50
    head = sp.csr_array((rng.random((n, relevant)) < 0.2).astype(float))
    places = rng.integers(0, d - relevant, n * each)
    rest = sp.csr_array((np.ones(n * each), places, np.arange(0, n * each + 1, each)), shape=(n, d - relevant))
    rest.sum_duplicates()
    rest.data[:] = 1
    labels = _labels(rng, head @ rng.choice([-1.0, 1.0], relevant), 3.0)
    return sp.csr_array(sp.hstack([head, rest])), labels


def _breast_cancer() -> tuple[Any, Array]:
    """30 measurements, each brought to [-1, 1] by its own extremes, which is not private."""
    X, y = load_breast_cancer(return_X_y=True)
    low, high = X.min(axis=0), X.max(axis=0)
    return 2 * (X - low) / (high - low) - 1, 2 * y - 1


MADE_SETS: dict[str, Callable[[], tuple[Any, Array]]] = {
    "blobs": _blobs,
    "few": _few,
    "correlated": _correlated,
    "rare_columns": _rare_columns,
    "rare_positives": _rare_positives,
    "label_noise": _label_noise,
    "wide": _wide,
    "long": _long,
    "groups": _groups,
    "scales": _scales,
}
# Of interest where lengths of rows are concerned; not part of the studies of whitening.py.
LENGTH_SETS: dict[str, Callable[[], tuple[Any, Array]]] = {"ray": _ray, "breast_cancer": _breast_cancer}
# Of interest where few columns count.
SPARSE_SETS: dict[str, Callable[[], tuple[Any, Array]]] = {"needles": _needles}
MADE_TITLES = {
    "blobs": "two blobs",
    "few": "few records",
    "correlated": "three factors",
    "rare_columns": "rare columns",
    "rare_positives": "rare positives",
    "label_noise": "label noise",
    "wide": "words",
    "long": "many records",
    "groups": "groups of levels",
    "scales": "uneven scales",
    "ray": "blobs on a ray",
    "breast_cancer": "breast cancer",
    "needles": "twenty columns of a million",
}
