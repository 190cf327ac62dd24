"""Laws of noise, coordinate by coordinate: covariances of many releases, and independence within the source itself."""

from math import sqrt

import numpy as np
import pytest
from test_noise_reaches import CASES

from dpskl.mechanisms.noise import SeededNoise, SystemNoise

# In standard errors. About 10,000 numbers are compared; were they normal, one choice of seeds in 100,000 would fail.
FAR = 6.1


def check_moments(z, kurtosis=3.0):
    """Rows of z are independent, their coordinates too, each with mean 0 and variance 1."""
    m, q = z.shape
    second = z.T @ z / m - np.eye(q)
    allowed = np.where(np.eye(q), sqrt(kurtosis - 1), sqrt(kurtosis / 3))  # products of a Gamma-norm vector: so much
    lagged = z[1:].T @ z[:-1] / m
    for seen in (z.mean(axis=0), second / allowed, lagged):
        assert np.abs(seen).max() < FAR / sqrt(m)


OTHERS = ("hidden", "objective", "sampled", "psgd", "prefix")
ADDITIVE = [name for name in CASES if not any(word in name for word in OTHERS)]


def check_covariance(name):
    """1,000 releases of seeded noise, whitened by the scales worked out by hand: half the noise is 17 errors off."""
    make, arguments = CASES[name]
    case = make(*arguments)
    ((law, block),) = {(law, block) for law, block, _ in case.draws}
    size = block * len(case.draws)  # a block for each output, or one
    centre = case.expected(np.zeros((len(case.draws), block)))
    units = np.eye(size).reshape(size, -1, block)
    response = np.stack([(case.expected(unit) - centre).ravel() for unit in units], axis=1)
    source = SeededNoise(sorted(CASES).index(name))
    released = np.stack([(case.release(source) - centre).ravel() for _ in range(1000)])
    z = released @ np.linalg.pinv(response).T
    np.testing.assert_allclose(z @ response.T, released, atol=10 * case.accuracy)  # nothing else is random
    # a vector of Gamma(p) length has p + 1 on every axis
    variance = {"normal": 1.0, "laplace": 2.0, "gamma": size + 1}[law]
    check_moments(z / sqrt(variance), kurtosis={"normal": 3.0, "laplace": 6.0, "gamma": 3.0 + 6.0 / (size + 1)}[law])


@pytest.mark.parametrize("name", ADDITIVE)
def test_releases_have_the_stated_covariance(name):
    check_covariance(name)


def check_blocks(source):
    """Blocks of every law and shape, which alternate: shared words, or streams that repeat, would correlate."""
    blocks = [
        [
            source.normal((2, 3), 0.5).ravel() / 0.5,
            source.laplace(3, 2.0) / (2 * sqrt(2)),
            source.standard_exponential(2) - 1,
            source.sampling_exponential(2) - 1,
            (source.gumbel(2, 3.0) / 3 - np.euler_gamma) / (np.pi / sqrt(6)),
            source.gamma_vector(3, 0.1) / 0.2,
        ]
        for _ in range(4000)
    ]
    check_moments(np.stack([np.concatenate(parts) for parts in blocks]), kurtosis=9.0)


@pytest.mark.parametrize("source", [SeededNoise(5), SystemNoise()], ids=["seeded", "system"])
def test_numbers_of_one_block_and_of_successive_blocks_are_independent(source):
    check_blocks(source)


def check_streams():
    """Who is sampled and what noise is added are two streams of one seed, independent at equal places too."""
    source = SeededNoise(9)
    check_moments(np.column_stack([source.standard_exponential(4000), source.sampling_exponential(4000)]) - 1, 9.0)


def test_the_streams_of_one_seed_are_independent():
    check_streams()
