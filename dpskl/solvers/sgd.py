"""Noisy stochastic gradient descent (DP-SGD)."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpskl.solvers._batches import BatchDescent, Batches, Move
from dpskl.solvers._checks import check_number
from dpskl.solvers.base import PublicFacts
from dpskl.solvers.gradient_descent import balanced_time

__all__ = ["SGD", "HeavyBall"]

Array = np.ndarray[Any, Any]


class HeavyBall:
    """Descent with momentum: the weights move on by a share of their last move."""

    def __init__(self, momentum: float) -> None:
        self.momentum = momentum
        self._previous: Array | float = 0.0

    def move(self, weights: Array, direction: Array, step: float, penalty: Array | float) -> Array:
        """Return the next weights: a step along ``direction``, then that of the penalty, taken exactly."""
        moved = weights + self.momentum * (weights - self._previous) - step * direction
        self._previous = weights
        return moved / (1 + step * penalty)


class SGD(BatchDescent):
    r"""DP-SGD: descent with momentum on clipped, noisy gradients of Poisson batches.

    Into the batch ``B_t`` of a step every record enters with probability ``rate``, whatever other batches have::

        g_t <- (sum_{i in B_t} clip(grad_i(w_t), clip_norm) + N(0, sigma^2 clip_norm^2 I)) / (rate n)
        w_{t+1} <- (w_t + momentum (w_t - w_{t-1}) - step g_t) / (1 + step / (C n))

    from ``w = 0``. The penalty ``||w||^2 / (2 C)`` is decoupled: its step is taken exactly, after that of the losses.

    Parameters
    ----------
    rate : float or None, default=None
        In (0, 1]. 1 reads all records at every step. ``None``: 5 passes over the data in all, ``5 / max_iter``; more
        where the noise multiplier ``sigma`` would be below about 2 (``2 mu / sqrt(max_iter)``, ``mu`` the Gaussian
        privacy parameter of the budget) or a batch smaller than 512 records.
    batch_size : int or None, default=None
        The same as a number of records: ``rate = batch_size / n``, at most 1. Batches have random sizes, and this is
        their mean.
    max_iter : int or None, default=None
        Number of steps. ``None``: 150. The noise is calibrated for all of them.
    step_size : float or None, default=None
        Step on the *mean* of the losses. ``None``: the rule of ``solver="gd"``, a total time ``max_iter * step /
        (1 - momentum)`` of ``700 mu n / (p row_norm^2)``, ``p`` the number of weights, at most ``(1 + momentum)`` over
        the smoothness of one record.
    clip_norm : float or None, default=None
        Bound on the norm of one record's gradient. ``None``: the rule of ``solver="gd"``, between a third and all of
        the largest norm that a row within ``data_norm`` can have. Larger values than that norm are replaced by it.
    momentum : float, default=0.95
        In [0, 1).
    iterate : {"average", "last"}, default="average"
        Release the average of the second half of the iterates, or the last one.
    rows : {"fill", "clip", "sphere"}, default="fill"
        The row map (:mod:`dpskl.records.row_maps`), as for :class:`GradientDescent`.

    Notes
    -----
    *Privacy.* Each step is a Gaussian mechanism on its own Poisson sample
    (:class:`~dpskl.mechanisms.poisson_sample.PoissonSample`): sensitivity ``clip_norm``, neighbours that differ by one
    record present or absent, nothing asked of the loss. Their composition is computed with privacy loss distributions,
    which the choice of weights by earlier answers does not change. The mean divides by the public ``rate * n``, never
    by the number of records in the batch. For ``neighbours="replace_one"`` the pair of laws of a sample is another one
    and no bound is proved here: it is refused unless ``rate=1``. With ``rate=1`` there is no sampling, the steps are
    Gaussian mechanisms that compose exactly, and both relations are allowed.

    *Of the papers:* Poisson batches, clipping, noise and the moving weights. *Not as in them:* accounting is by privacy
    loss distributions and not by moments; sums are divided by the expected size of a batch; momentum; the penalty is
    taken exactly after the step; the rules for steps and clip norm, which are those of ``solver="gd"``.

    *What batches buy* is time, not accuracy: ``sigma`` is about ``rate sqrt(max_iter) / mu``, so that the noise of a
    mean gradient is that of a full one whatever the rate, while ``sigma`` is above 2 or so; below it is more.

    References
    ----------
    Song, Chaudhuri & Sarwate (2013), GlobalSIP; Abadi et al. (2016), CCS, algorithm 1; Zhu, Dong & Wang (2022),
    AISTATS.

    Examples
    --------
    >>> import numpy as np
    >>> from dpskl import DPLogisticRegression
    >>> from dpskl.solvers import SGD
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 2000)
    >>> X = rng.normal(size=(2000, 2)) + 2 * y[:, None]
    >>> model = DPLogisticRegression(epsilon=1.0, data_norm=4.0, classes=[0, 1], solver=SGD(batch_size=200))
    >>> bool(model.fit(X, y).score(X, y) > 0.85)
    True
    """

    name = "sgd"
    rank = 11

    def __init__(
        self,
        rate: float | None = None,
        batch_size: int | None = None,
        max_iter: int | None = None,
        step_size: float | None = None,
        clip_norm: float | None = None,
        momentum: float = 0.95,
        iterate: str = "average",
        rows: str = "fill",
    ) -> None:
        self.rate = rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.step_size = step_size
        self.clip_norm = clip_norm
        self.momentum = momentum
        self.iterate = iterate
        self.rows = rows

    def step_rule(self, facts: PublicFacts, mu: float, n_steps: int, clip_norm: float) -> float:
        smoothness = min(self.problem_loss(facts).curvature_bound, 1.0) * facts.row_norm**2
        return min(balanced_time(facts, mu) * (1 - self.momentum) / n_steps, (1 + self.momentum) / smoothness)

    def mover(self, batches: Batches) -> Move:
        ball = HeavyBall(self.momentum)
        return lambda weights, gradient: ball.move(weights, gradient, batches.step, batches.penalty)

    def check_parameters(self) -> None:
        super().check_parameters()
        check_number("momentum", self.momentum, 0, 1, closed=True)
