"""Adam, RMSProp and AdaGrad on noisy batches (DP-Adam, DP-AdamBC and their kin)."""

from __future__ import annotations

from abc import abstractmethod
from math import sqrt
from typing import Any, NamedTuple

import numpy as np

from dpskl.mechanisms.sensitivity import contributions
from dpskl.solvers._batches import BatchDescent, Batches, Move
from dpskl.solvers._checks import check_number
from dpskl.solvers.base import PublicFacts
from dpskl.solvers.gradient_descent import balanced_time

__all__ = ["AdaGrad", "Adam", "Memory", "RMSProp", "SquaredGradients", "check_subtraction"]

Array = np.ndarray[Any, Any]


class Memory(NamedTuple):
    """How moments are kept: ``mean <- beta mean + (1 - beta) g``, ``moment <- keep moment + add g^2``.

    A corrected one divides both by what the weights of all gradients so far sum to.
    """

    beta: float
    keep: float
    add: float
    is_corrected: bool


class SquaredGradients:
    """The second moment of noisy gradients, and the part of it that is known to be noise.

    Parameters
    ----------
    memory : Memory
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._moment: Array | float = 0.0
        self._expected = 0.0
        self._weight = 1.0

    def add(self, gradient: Array, noise: float) -> None:
        """Take in one gradient whose entries have noise of this standard deviation."""
        _, keep, add, is_corrected = self._memory
        self._moment = keep * self._moment + add * np.square(gradient)
        self._expected = keep * self._expected + add * noise**2
        if is_corrected:
            self._weight = self._weight * keep

    @property
    def _total(self) -> float:
        return 1 - self._weight if self._memory.is_corrected else 1.0

    @property
    def noise(self) -> float:
        """Root of what noise alone adds to the moment."""
        return sqrt(self._expected / self._total)

    def root(self, floor: float | None = None) -> Array:
        """Return the root of the moment; with a floor less what is noise, down to that share of it."""
        squares = self._moment
        if floor is not None:
            squares = np.maximum(squares - self._expected, floor * self._expected)
        root: Array = np.sqrt(squares / self._total)
        return root


def check_subtraction(subtract_noise: Any, floor: Any) -> None:
    """Raise unless these are the two parameters of a rule that may take the noise out of a second moment."""
    if not isinstance(subtract_noise, bool | np.bool_):
        raise ValueError(f"subtract_noise={subtract_noise!r} must be True or False")
    check_number("floor", floor, 0, 1, closed_high=True)


class _SecondMoments(BatchDescent):
    """What the three rules share; they differ in how they remember."""

    subtract_noise: bool
    floor: float
    stability: float
    step_power = 1

    @property
    @abstractmethod
    def memory(self) -> Memory:
        """How moments are kept."""

    def step_rule(self, facts: PublicFacts, mu: float, n_steps: int, clip_norm: float) -> float:
        # step / root is to be what solver="gd" would take where root is that of noise alone, so that mu cancels
        noise_at_1 = contributions(facts.neighbours) * clip_norm * sqrt(n_steps) / facts.n_samples
        lowest = sqrt(self.floor) if self.subtract_noise else 1.0
        return balanced_time(facts, 1.0) * noise_at_1 * lowest / self._time(n_steps)

    def _time(self, n_steps: int) -> float:
        """Return the sum of the inverse roots of the moments of gradients whose squares are 1."""
        _, keep, add, is_corrected = self.memory
        if is_corrected:
            return n_steps
        total = moment = 0.0
        for _ in range(n_steps):
            moment = keep * moment + add
            total += 1 / sqrt(moment)
        return total

    def mover(self, batches: Batches) -> Move:
        memory = self.memory
        beta = memory.beta
        squares = SquaredGradients(memory)
        mean: Array | float = 0.0
        t = 0
        stability = self.stability * batches.clip_norm

        def move(weights: Array, gradient: Array) -> Array:
            nonlocal mean, t
            t += 1
            mean = beta * mean + (1 - beta) * gradient
            squares.add(gradient, batches.noise)
            direction = mean / (1 - beta**t) if memory.is_corrected else mean
            root = squares.root(self.floor if self.subtract_noise else None) + stability
            # the proximal step of the penalty in the metric of the roots; infinite where C is too small for a double
            moved: Array = (root * weights - batches.step * direction) / (root + batches.step * batches.penalty)
            return moved

        return move

    def check_parameters(self) -> None:
        super().check_parameters()
        check_subtraction(self.subtract_noise, self.floor)
        check_number("stability", self.stability)


class Adam(_SecondMoments):
    r"""DP-Adam and DP-AdamBC: the moments of clipped, noisy gradients of Poisson batches scale each step.

    With ``g_t`` the noisy mean gradient of :class:`SGD`, whose noise has the public variance ``s^2`` in each entry::

        m <- beta_1 m + (1 - beta_1) g_t            v <- beta_2 v + (1 - beta_2) g_t^2
        r  = sqrt(v / (1 - beta_2^t)) + stability clip_norm
        w <- (r w - step m / (1 - beta_1^t)) / (r + step / (C n))

    from ``w = 0``, entry by entry. With ``subtract_noise`` the root is of ``max(v / (1 - beta_2^t) - s^2, floor s^2)``.

    Parameters
    ----------
    rate, batch_size, max_iter, clip_norm, iterate, rows
        As for :class:`SGD`.
    step_size : float or None, default=None
        In units of a weight. ``None``: what takes the steps of ``solver="gd"`` where the roots are those of the noise
        alone, times ``sqrt(floor)`` if that is subtracted; it depends on ``p``, ``max_iter`` and the row norm only.
    beta_1, beta_2 : float, default=0.9, 0.999
        In [0, 1).
    subtract_noise : bool, default=False
        Take the known variance ``s^2`` of the noise out of ``v`` (DP-AdamBC).
    floor : float, default=0.2
        What is left is at least this share of what the noise adds to ``v``, in (0, 1].
    stability : float, default=1e-8
        What is added to the root, in units of the clip norm: it matters without noise only.

    Notes
    -----
    *Privacy* is that of :class:`SGD`: the same questions at the same cost. Both moments are made of released gradients,
    which is post-processing, and ``s`` is public: no clean gradient and no batch size enters.

    *What the noise does.* While noise decides, ``v`` is about ``s^2`` everywhere and Adam is descent with momentum and
    the step ``step / s``; the step rule makes that the step of ``solver="gd"``. Without the noise in ``v`` directions
    are told apart again, as far as ``v - s^2`` stands above its own error, about ``s^2 sqrt(2 / t)``.

    *Of the papers:* the updates (Kingma & Ba 2015), the subtraction and its floor (Tang, Shpilevskiy & Lecuyer 2024,
    algorithm 1). *Not as in them:* the floor is a share of the noise and not an absolute number; the penalty is kept
    out of the moments, as in AdamW (Loshchilov & Hutter 2019), but its step is a proximal one in the metric of ``r``,
    so that ``C`` keeps its meaning: where the weights stay put, they minimise the regularised losses.

    References
    ----------
    Kingma & Ba (2015), ICLR; Loshchilov & Hutter (2019), ICLR; Tang, Shpilevskiy & Lecuyer (2024), "DP-AdamBC: your
    DP-Adam is actually DP-SGD (unless you apply bias correction)", AAAI.

    Examples
    --------
    >>> import numpy as np
    >>> from dpskl import DPLogisticRegression
    >>> from dpskl.solvers import Adam
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 2000)
    >>> X = rng.normal(size=(2000, 2)) + 2 * y[:, None]
    >>> model = DPLogisticRegression(epsilon=1.0, data_norm=4.0, classes=[0, 1], solver=Adam(subtract_noise=True))
    >>> bool(model.fit(X, y).score(X, y) > 0.85)
    True
    """

    name = "adam"
    rank = 12

    def __init__(
        self,
        rate: float | None = None,
        batch_size: int | None = None,
        max_iter: int | None = None,
        step_size: float | None = None,
        clip_norm: float | None = None,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        subtract_noise: bool = False,
        floor: float = 0.2,
        stability: float = 1e-8,
        iterate: str = "average",
        rows: str = "fill",
    ) -> None:
        self.rate = rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.step_size = step_size
        self.clip_norm = clip_norm
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.subtract_noise = subtract_noise
        self.floor = floor
        self.stability = stability
        self.iterate = iterate
        self.rows = rows

    @property
    def memory(self) -> Memory:
        return Memory(self.beta_1, self.beta_2, 1 - self.beta_2, True)

    def check_parameters(self) -> None:
        super().check_parameters()
        for name in ("beta_1", "beta_2"):
            check_number(name, getattr(self, name), 0, 1, closed=True)


class RMSProp(_SecondMoments):
    r"""DP-RMSProp: a moving mean of squared noisy gradients scales each step.

    ``v <- beta v + (1 - beta) g_t^2``, ``w <- w - step g_t / (sqrt(v) + stability clip_norm)``, with the proximal step
    of the penalty that :class:`Adam` has; no correction of the first moments, as usual.

    Parameters
    ----------
    rate, batch_size, max_iter, clip_norm, iterate, rows
        As for :class:`SGD`.
    step_size : float or None, default=None
        In units of a weight. ``None``: what takes the steps of ``solver="gd"`` where the roots are those of the noise
        alone, times ``sqrt(floor)`` if that is subtracted; it depends on ``p``, ``max_iter`` and the row norm only.
    beta : float, default=0.9
        In [0, 1).
    subtract_noise : bool, default=False
        Take the known variance ``s^2`` of the noise out of ``v`` (DP-AdamBC).
    floor : float, default=0.2
        What is left is at least this share of what the noise adds to ``v``, in (0, 1].
    stability : float, default=1e-8
        What is added to the root, in units of the clip norm: it matters without noise only.

    Notes
    -----
    Privacy is that of :class:`SGD`, and what is said of noise in the moments that of :class:`Adam`. *Not as in the
    paper:* Poisson batches, which its accounting takes for granted; a default ``stability`` that does not matter beside
    noise (the paper tunes it, to 1e-3 on IMDB).

    References
    ----------
    Tieleman & Hinton (2012); Li, Zaheer, Liu, Kale, McMahan & Smith (2023), "Differentially private adaptive
    optimization with delayed preconditioners", ICLR, where it is the baseline.
    """

    name = "rmsprop"
    rank = 13

    def __init__(
        self,
        rate: float | None = None,
        batch_size: int | None = None,
        max_iter: int | None = None,
        step_size: float | None = None,
        clip_norm: float | None = None,
        beta: float = 0.9,
        subtract_noise: bool = False,
        floor: float = 0.2,
        stability: float = 1e-8,
        iterate: str = "average",
        rows: str = "fill",
    ) -> None:
        self.rate = rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.step_size = step_size
        self.clip_norm = clip_norm
        self.beta = beta
        self.subtract_noise = subtract_noise
        self.floor = floor
        self.stability = stability
        self.iterate = iterate
        self.rows = rows

    @property
    def memory(self) -> Memory:
        return Memory(0.0, self.beta, 1 - self.beta, False)

    def check_parameters(self) -> None:
        super().check_parameters()
        check_number("beta", self.beta, 0, 1, closed=True)


class AdaGrad(_SecondMoments):
    r"""DP-AdaGrad: the sum of squared noisy gradients scales each step.

    ``v <- v + g_t^2``, ``w <- w - step g_t / (sqrt(v) + stability clip_norm)``, with the proximal step of the penalty
    that :class:`Adam` has. ``v`` grows with ``t``, so steps shrink.

    Parameters
    ----------
    rate, batch_size, max_iter, clip_norm, iterate, rows
        As for :class:`SGD`.
    step_size : float or None, default=None
        In units of a weight. ``None``: what takes the steps of ``solver="gd"`` where the roots are those of the noise
        alone, times ``sqrt(floor)`` if that is subtracted; it depends on ``p``, ``max_iter`` and the row norm only.
    subtract_noise : bool, default=False
        Take the known variance ``s^2`` of the noise out of ``v`` (DP-AdamBC).
    floor : float, default=0.2
        What is left is at least this share of what the noise adds to ``v``, in (0, 1].
    stability : float, default=1e-8
        What is added to the root, in units of the clip norm: it matters without noise only.

    Notes
    -----
    Privacy is that of :class:`SGD`, and what is said of noise in the moments that of :class:`Adam`: of ``v`` the noise
    makes ``t s^2``.

    References
    ----------
    Duchi, Hazan & Singer (2011), JMLR.
    """

    name = "adagrad"
    rank = 14

    def __init__(
        self,
        rate: float | None = None,
        batch_size: int | None = None,
        max_iter: int | None = None,
        step_size: float | None = None,
        clip_norm: float | None = None,
        subtract_noise: bool = False,
        floor: float = 0.2,
        stability: float = 1e-8,
        iterate: str = "average",
        rows: str = "fill",
    ) -> None:
        self.rate = rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.step_size = step_size
        self.clip_norm = clip_norm
        self.subtract_noise = subtract_noise
        self.floor = floor
        self.stability = stability
        self.iterate = iterate
        self.rows = rows

    @property
    def memory(self) -> Memory:
        return Memory(0.0, 1.0, 1.0, False)
