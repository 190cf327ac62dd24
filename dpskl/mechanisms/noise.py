r"""The package's only source of randomness: normal, Laplace, Gamma and Gumbel noise, and the release grid.

``random_state=None`` draws from the operating system: 64-bit words become quantiles, the top bit the sign
and 63 bits ``k`` the probability ``(k + 1/2) / 2^64`` of a tail. Two draws are averaged, so that an output does
not invert to one word. Every release is rounded to a public grid ``2^-20`` below its noise. This answers the
attacks of Mironov (2012), Jin et al. (2022) and Haney et al. (2022) on the low bits of floating-point noise; it
is a mitigation and not a proof, and nothing is promised about timing. The tail cut, at ``|z| <= 9.155`` for each
draw, adds at most 5.4e-20 to delta for each number drawn.

Seeded noise is for tests: who knows the seed can subtract the noise, and two fits with one seed cancel it.
"""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from math import floor, log1p, log2, prod, sqrt
from typing import Any

import numpy as np
from scipy.special import ndtri

from dpskl.exceptions import SeededNoiseWarning

__all__ = ["NoiseSource", "SeededNoise", "SystemNoise", "make_noise", "round_to_grid"]

Array = np.ndarray[Any, Any]

_GRID_BITS = 20


def round_to_grid(value: Array, scale: float) -> Array:
    """Round to the multiples of ``2^(floor(log2(scale)) - 20)``; ``scale=0`` leaves the value alone.

    Rounding after the noise is post-processing. It keeps the low bits of a float, which depend on the
    value under the noise, from telling what the value was.

    Examples
    --------
    >>> float(round_to_grid(np.array(0.1), 1.0) * 2**20)
    104858.0
    """
    if scale == 0:
        return value
    grid = 2.0 ** (floor(log2(scale)) - _GRID_BITS)
    return np.round(value / grid) * grid


def _shape(size: int | tuple[int, ...]) -> tuple[int, ...]:
    return size if isinstance(size, tuple) else (size,)


class NoiseSource(ABC):
    """Noise of the field's usual laws, drawn from one of two kinds of generator.

    Attributes
    ----------
    is_secure : bool
        Whether the numbers come from the operating system and cannot be reproduced.
    """

    is_secure: bool

    @abstractmethod
    def standard_normal(self, size: int | tuple[int, ...]) -> Array:
        """Return standard normal variables."""

    @abstractmethod
    def standard_exponential(self, size: int | tuple[int, ...]) -> Array:
        """Return exponential variables of mean 1."""

    def sampling_exponential(self, size: int) -> Array:
        """Return exponential variables of mean 1 that decide who is sampled, independent of the noise."""
        return self.standard_exponential(size)

    def poisson_sample(self, n: int, rate: float) -> Array:
        """Return the sorted indices of a sample of ``range(n)`` that each index enters with probability ``rate``.

        The gaps between successive members are geometric: ``floor(E / -log(1 - rate))`` for an exponential ``E``.

        Parameters
        ----------
        n : int
        rate : float
            In (0, 1].
        """
        if rate >= 1:
            return np.arange(n)
        # far more gaps than are needed, but for a chance of about 1e-20; then a second helping
        helping = int(n * rate + 10 * sqrt(n * rate) + 20)
        members = np.zeros(0, dtype=np.int64)
        last = -1
        while last < n:
            gaps = np.floor(self.sampling_exponential(helping) / -log1p(-rate))
            fresh = last + np.cumsum(np.minimum(gaps, n).astype(np.int64) + 1)
            members = np.concatenate([members, fresh])
            last = int(members[-1])
        return members[members < n]

    def normal(self, size: int | tuple[int, ...], scale: float) -> Array:
        """Return normal variables of standard deviation ``scale``."""
        return scale * self.standard_normal(size)

    def laplace(self, size: int | tuple[int, ...], scale: float) -> Array:
        """Return Laplace variables: the difference of two exponentials of mean ``scale``."""
        return scale * (self.standard_exponential(size) - self.standard_exponential(size))

    def gumbel(self, size: int | tuple[int, ...], scale: float) -> Array:
        """Return Gumbel variables with mode 0."""
        return -scale * np.log(self.standard_exponential(size))

    def gamma_vector(self, size: int, scale: float) -> Array:
        """Return a vector with density proportional to ``exp(-||b|| / scale)`` in ``size`` dimensions.

        Its norm follows Gamma(size, scale) and its direction is uniform.
        """
        direction = self.standard_normal(size)
        norm = self.standard_exponential(size).sum()
        return scale * norm / np.linalg.norm(direction) * direction

    def add_normal(self, value: Array, scale: float) -> Array:
        """Return ``value`` plus :meth:`normal` noise, on the release grid; the value itself at scale 0."""
        return round_to_grid(value + self.normal(value.shape, scale), scale)

    def add_gamma_vector(self, value: Array, scale: float) -> Array:
        """Return the vector ``value`` plus :meth:`gamma_vector` noise, on the release grid."""
        return round_to_grid(value + self.gamma_vector(len(value), scale), scale)


class SystemNoise(NoiseSource):
    """Noise from the entropy of the operating system."""

    is_secure = True

    @staticmethod
    def _words(shape: tuple[int, ...]) -> Array:
        return np.frombuffer(os.urandom(8 * prod(shape)), dtype=np.uint64).reshape(shape)

    @classmethod
    def _one_normal(cls, shape: tuple[int, ...]) -> Array:
        words = cls._words(shape)
        tail = ((words >> np.uint64(1)).astype(np.float64) + 0.5) * 2.0**-64
        # ndtri of a tail is not positive; the lowest bit decides on which side it lies
        return ndtri(tail) * (1.0 - 2.0 * (words & np.uint64(1)).astype(np.float64))

    def standard_normal(self, size: int | tuple[int, ...]) -> Array:
        return self._one_normal((2, *_shape(size))).sum(axis=0) * sqrt(0.5)

    def standard_exponential(self, size: int | tuple[int, ...]) -> Array:
        words = self._words(_shape(size))
        tail = ((words >> np.uint64(1)).astype(np.float64) + 0.5) * 2.0**-64
        # a tail of either end: near 0 the variable is as fine as far out, and never 0, whose logarithm is infinite
        return np.where(words & np.uint64(1), -np.log(tail), -np.log1p(-tail))


class SeededNoise(NoiseSource):
    """Reproducible noise for tests and research; nothing drawn from it protects anybody."""

    is_secure = False

    def __init__(self, seed: int | np.random.SeedSequence) -> None:
        sequence = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
        self._generator = np.random.default_rng(sequence)
        self._sampler = np.random.default_rng(sequence.spawn(1)[0])

    def standard_normal(self, size: int | tuple[int, ...]) -> Array:
        return self._generator.standard_normal(size)

    def standard_exponential(self, size: int | tuple[int, ...]) -> Array:
        return self._generator.standard_exponential(size)

    def sampling_exponential(self, size: int) -> Array:
        return self._sampler.standard_exponential(size)


def make_noise(random_state: Any) -> NoiseSource:
    """Return the source that ``random_state`` asks for.

    Parameters
    ----------
    random_state : None, int, numpy.random.RandomState or numpy.random.Generator
        ``None`` is the only choice that is private. A generator is advanced, as scikit-learn does.

    Warns
    -----
    SeededNoiseWarning
        Unless ``random_state`` is ``None``.

    Raises
    ------
    ValueError
        If ``random_state`` is something else.
    """
    if random_state is None:
        return SystemNoise()
    if isinstance(random_state, np.random.RandomState):
        seed = int(random_state.randint(2**31 - 1))
    elif isinstance(random_state, np.random.Generator):
        seed = int(random_state.integers(2**63))
    elif isinstance(random_state, int | np.integer) and not isinstance(random_state, bool) and random_state >= 0:
        seed = int(random_state)
    else:
        raise ValueError(
            f"random_state={random_state!r} is not None, a non-negative int, a RandomState or a Generator; "
            "leave it at None for a fit that is to be released"
        )
    warnings.warn(
        "random_state is set, so the noise can be reproduced and the fit protects nobody; "
        "leave random_state=None for anything that leaves your hands",
        SeededNoiseWarning,
        stacklevel=3,
    )
    return SeededNoise(seed)
