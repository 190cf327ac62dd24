"""Shared data and fakes."""

import numpy as np
import pytest

from dpskl.mechanisms.noise import NoiseSource


class RecordingNoise(NoiseSource):
    """Draws nothing (all noise is zero) and keeps the kind and scale of every release."""

    is_secure = True

    def __init__(self):
        self.draws = []

    def normal(self, size):
        return np.zeros(size)

    def exponential(self, size):
        return np.zeros(size)

    def add_normal(self, value, scale):
        self.draws.append(("normal", scale))
        return value

    def add_gamma_vector(self, value, scale):
        self.draws.append(("gamma", scale))
        return value

    def gamma_vector(self, size, scale):
        self.draws.append(("gamma", scale))
        return np.zeros(size)


@pytest.fixture
def recording_noise():
    return RecordingNoise()


@pytest.fixture
def rng():
    return np.random.default_rng(20240607)
