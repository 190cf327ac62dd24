"""Shared data and fakes."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from dpskl.mechanisms.noise import NoiseSource, SeededNoise


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


@dataclass(frozen=True)
class Draw:
    """One block of numbers: its law, the scale it was asked for with, and its values in units of that scale."""

    law: str
    scale: float
    unit: Any

    @property
    def size(self):
        return self.unit.size


class Tape(NoiseSource):
    """Seeded noise that is written down, any block of which can be changed.

    Draws that decide who is sampled are blocks of the law "sample", exponentials that a mechanism scales itself blocks
    of the law "exponential". ``changes`` maps the place of a block to a function of its values in units of the scale.
    """

    is_secure = True

    def __init__(self, seed=0, changes=None):
        self._source, self._changes, self.draws = SeededNoise(seed), changes or {}, []

    def _note(self, law, values, scale):
        unit = values / scale if scale else 0 * values
        change = self._changes.get(len(self.draws))
        if change is not None:
            unit = change(unit)
            values = scale * unit
        self.draws.append(Draw(law, scale, unit))
        return values

    def standard_normal(self, size):
        return self._note("normal", self._source.standard_normal(size), 1.0)

    def standard_exponential(self, size):
        return self._note("exponential", self._source.standard_exponential(size), 1.0)

    def sampling_exponential(self, size):
        return self._note("sample", self._source.sampling_exponential(size), 1.0)

    def normal(self, size, scale):
        return self._note("normal", self._source.normal(size, scale), scale)

    def laplace(self, size, scale):
        return self._note("laplace", self._source.laplace(size, scale), scale)

    def gumbel(self, size, scale):
        return self._note("gumbel", self._source.gumbel(size, scale), scale)

    def gamma_vector(self, size, scale):
        return self._note("gamma", self._source.gamma_vector(size, scale), scale)


@pytest.fixture
def recording_noise():
    return RecordingNoise()


@pytest.fixture
def rng():
    return np.random.default_rng(20240607)
