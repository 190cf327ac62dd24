"""What one record does to a histogram of scores, and the noise that it meets, by brute force and by hand."""

from itertools import product
from math import sqrt

import numpy as np
from conftest import RecordingNoise, Tape

from dpskl.mechanisms.score_histogram import ScoreHistogram

MU = 0.8
RELATIONS = ("add_remove", "replace_one")


def records_of(n_classes, n_bins):
    """One record for every cell there is, as (class, score), and some whose scores are out of range or no numbers."""
    middles = (np.arange(n_bins) + 0.5) / n_bins
    if n_classes == 2:
        return list(product((0, 1), [*middles, -3.0, 7.0, np.inf, np.nan]))
    rows = []
    for predicted, middle in product(range(n_classes), middles):
        row = np.full(n_classes, -1.0)
        row[predicted] = middle
        rows.append(row)
    return list(product(range(n_classes), rows))


def released(mechanism, records, noise):
    codes = np.array([code for code, _ in records], dtype=int)
    scores = np.array([score for _, score in records])
    shape = (0,) if mechanism.n_classes == 2 else (0, mechanism.n_classes)
    table, sums = mechanism.release(codes, scores if len(records) else np.zeros(shape), noise)
    return sums if table is None else np.concatenate([table.ravel(), sums])


def check_score_histogram():
    """All data sets of one record and all their neighbours: none is farther than mu in units of the noise, one is."""
    for (n_classes, n_bins), neighbours in product(((2, 2), (2, 5), (2, 12), (3, 4)), RELATIONS):
        mechanism = ScoreHistogram(MU, n_bins, (0.0, 1.0), n_classes, neighbours, 3)
        recorder = RecordingNoise()
        every = records_of(n_classes, n_bins)
        common = [every[0], every[-1]]
        places = np.array([released(mechanism, [*common, record], recorder) for record in every])
        if neighbours == "add_remove":
            distances = np.linalg.norm(places - released(mechanism, common, recorder), axis=1)
        else:
            distances = np.linalg.norm(places[:, None] - places, axis=2)
        (scale,) = {draw[1] for draw in recorder.draws}
        # releases lie on a grid a million times finer than the noise
        allowance = sqrt(places.shape[1]) * 2.0**-20 * scale
        assert distances.max() <= mechanism.sensitivity + allowance
        assert distances.max() / scale >= 0.999 * mechanism.cost.mu
        assert distances.max() / scale <= mechanism.cost.mu * (1 + 1e-9) + allowance / scale
        assert scale == mechanism.noise_scale


def check_score_noise():
    """The release is the sums made by hand plus the draws, one of its own for each, at the scale that mu needs."""
    rng = np.random.default_rng(3)
    for n_classes, neighbours in product((2, 3), RELATIONS):
        m, n = 6, 40
        mechanism = ScoreHistogram(MU, m, (-1.0, 2.0), n_classes, neighbours, n)
        codes = rng.integers(0, n_classes, n)
        scores = rng.normal(size=n if n_classes == 2 else (n, n_classes))
        top = scores if n_classes == 2 else scores.max(axis=1)
        side = codes if n_classes == 2 else scores.argmax(axis=1) == codes
        counts = np.zeros(2 * m)
        for s, place in zip(side, np.minimum(np.floor((np.clip(top, -1, 2) + 1) / 3 * m), m - 1), strict=True):
            counts[int(s) * m + int(place)] += 1
        # cosines of all frequencies but 0, with powers that fall as one over the frequency
        powers = np.array([1 / min(k, 2 * m - k) for k in range(1, 2 * m)])
        powers *= 2 * m / powers.sum()
        angles = 2 * np.pi * np.arange(1, 2 * m) / (2 * m)
        matrix = np.array(
            [[(np.sqrt(powers) * np.cos(angles * (i - j))).sum() / (2 * m) for j in range(2 * m)] for i in range(2 * m)]
        )
        share = 0.0 if n_classes == 2 else 0.5
        exact = sqrt(1 - share) * matrix @ counts
        if n_classes > 2:
            table = np.zeros((n_classes, n_classes))
            np.add.at(table, (codes, scores.argmax(axis=1)), 1)
            exact = np.concatenate([sqrt(share) * table.ravel(), exact])
        farthest = np.linalg.norm(matrix[:, 0] - matrix[:, m])
        changed = 1.0 if neighbours == "add_remove" else sqrt(2 * share + (1 - share) * farthest**2)
        tape = Tape(1)
        table, sums = mechanism.release(codes, scores, tape)
        noisy = sums if table is None else np.concatenate([table.ravel(), sums])
        (draw,) = tape.draws
        assert (draw.law, draw.size) == ("normal", len(exact))
        np.testing.assert_allclose(draw.scale, changed / MU, rtol=1e-9)
        np.testing.assert_allclose(noisy, exact + draw.scale * draw.unit, rtol=0, atol=3e-6 * draw.scale)
        assert len(np.unique(draw.unit)) == draw.size
        assert not np.isclose(released(mechanism, list(zip(codes, scores, strict=True)), tape), noisy, atol=1e-5).any()


def check_score_rounding():
    """The sensitivity contains what float64 sums of so many whole numbers may be off by."""
    n, m = 10**7, 8
    mechanism = ScoreHistogram(MU, m, (0.0, 1.0), 2, "add_remove", n)
    assert mechanism.sensitivity >= 1 + 2 * n * 2 * m * 2.0**-53
    assert mechanism.sensitivity < 1 + 1e-6
