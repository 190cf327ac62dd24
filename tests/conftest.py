"""Shared data and fakes."""

import numpy as np
import pytest

from dpskl.mechanisms.noise import NoiseSource


class RecordingNoise(NoiseSource):
    """Noise that is always zero, and a record of the law and scale of everything that was drawn."""

    is_secure = True

    def __init__(self):
        self.draws = []

    def standard_normal(self, size):
        return np.zeros(size)

    def standard_exponential(self, size):
        return np.zeros(size)

    def sampling_exponential(self, size):
        return np.random.default_rng(len(self.draws)).standard_exponential(size)

    def normal(self, size, scale):
        self.draws.append(("normal", scale))
        return np.zeros(size)

    def gamma_vector(self, size, scale):
        self.draws.append(("gamma", scale))
        return np.zeros(size)

    def laplace(self, size, scale):
        self.draws.append(("laplace", scale))
        return np.zeros(size)

    def gumbel(self, size, scale):
        self.draws.append(("gumbel", scale))
        return np.zeros(size)


@pytest.fixture
def recording_noise():
    return RecordingNoise()


@pytest.fixture
def rng():
    return np.random.default_rng(20240607)
