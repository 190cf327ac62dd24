"""Descent on gradients that public knowledge scales before they are clipped (AdaDPS)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np

from dpskl.curator import Curator
from dpskl.mechanisms.gradient import GaussianGradient
from dpskl.mechanisms.poisson_sample import PoissonSample
from dpskl.mechanisms.scaled_gradient import ScaledGradient
from dpskl.records.losses import MarginLoss
from dpskl.solvers._batches import Batches, Questions, Step, on_samples
from dpskl.solvers._checks import check_count, check_number
from dpskl.solvers._public import ShortRepr, brief, shuffled
from dpskl.solvers.base import Plan, PublicFacts
from dpskl.solvers.sgd import SGD, HeavyBall

__all__ = ["AdaDPS"]

Array = np.ndarray[Any, Any]

_LARGEST_RATIO = 1e12  # of two scales: beyond, squares of sums drown


@dataclass(frozen=True)
class _Scaled(Batches):
    """Scales of the features or a public problem, and how many steps one array of scales serves."""

    scales: Array | None
    public: Any
    refresh: int


class AdaDPS(ShortRepr, SGD):
    r"""AdaDPS: gradients are scaled by what is publicly known of the features, then clipped, then noise is added.

    With scales ``a`` of mean stretch 1 (see below), batches ``B_t`` and rates as for :class:`SGD`, entry by entry::

        g_t <- (sum_{i in B_t} clip(a grad_i(w_t), clip_norm) + N(0, sigma^2 clip_norm^2 I)) / (rate n)
        w_{t+1} <- (w_t + momentum (w_t - w_{t-1}) - step g_t) / (1 + step a / (C n))

    from ``w = 0``. The scales are given, or they are those of RMSProp on public records, found anew every ``refresh``
    steps from ``m`` public batches, ``h_b`` the mean gradient of one::

        v <- beta v + (1 - beta) (h_1^2 + ... + h_m^2) / m,     a <- 1 / (sqrt(v) + stability s)

    with ``s`` the root mean square of the entries of ``sqrt(v)``; the first ``v`` is the first mean.

    Parameters
    ----------
    public_data : tuple (X, y) or None, default=None
        Public records, as ``fit`` takes its own: the same columns, labels among the declared ``classes``. They get the
        same row map. Must not hold private records. Pickles of a model hold them, ``to_dict()`` does not. Either this
        or ``feature_scales`` must be given.
    feature_scales : float or array-like of shape (n_features,), default=None
        Positive numbers that are known without the private records, such as inverse word frequencies of a public
        corpus, or one for all. Their unit does not matter. The intercept gets the smallest of them.
    beta : float, default=0
        Share of the earlier ``v`` that is kept, in [0, 1).
    stability : float, default=1
        Positive; large ones make all scales the same.
    refresh : int or None, default=None
        Steps between renewals of the scales. ``None``: those of an expected pass over the data, ``1 / rate``.
    public_batch_size : int, default=20
        Records of a public batch. Batches of few records have larger gradients in columns that vary, and all of
        them together in columns that are mostly of one sign.
    rate, batch_size, max_iter, momentum, iterate, rows
        As for :class:`SGD`.
    step_size, clip_norm : float or None, default=None
        As for :class:`SGD`, whose units they have, since ``a`` is divided by its mean stretch.

    Notes
    -----
    *Privacy* is that of :class:`SGD`: each step is one Gaussian mechanism on its own Poisson sample
    (:class:`~dpskl.mechanisms.scaled_gradient.ScaledGradient`), whose sensitivity the clip bounds after the scales.
    The scales come from public records, weights that were released and public numbers. *They must be public:* the code
    that the authors released takes word frequencies from the private training set, which is not private, and no
    guarantee is left by it.

    *The mean stretch* is the root mean square of ``||a x||`` over that of ``||x||``, ``x`` the public rows, for several
    outputs with the root mean square of the columns of ``a``, and that of the entries of ``a`` where these are given.
    Division by it is the same as a clip norm and a step in other units. Equal scales make it :class:`SGD` exactly.

    *Of the paper:* scale, clip, add noise (algorithm 1), with scales by public records or by public statistics; squared
    gradients of public batches, renewed once in a pass, are those of its code. *Not as in it:* the unit of
    ``stability``, the mean stretch, momentum, averages and rules, and the penalty, which is kept out of ``v`` and whose
    step is a proximal one in the metric of ``1 / a``: where the weights stay put, they minimise the regularised losses.
    No micro-batches: each record is clipped by itself.

    References
    ----------
    Li, Zaheer, Reddi & Smith (2022), "Private adaptive optimization with side information", ICML, arXiv:2202.05963.

    Examples
    --------
    >>> import numpy as np
    >>> from dpskl import DPLogisticRegression
    >>> from dpskl.solvers import AdaDPS
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 2000)
    >>> X = (rng.normal(size=(2000, 2)) + 2 * y[:, None]) * [1, 0.1]
    >>> solver = AdaDPS(feature_scales=[1, 10])
    >>> model = DPLogisticRegression(epsilon=1.0, data_norm=4.0, classes=[0, 1], solver=solver)
    >>> bool(model.fit(X, y).score(X, y) > 0.85)
    True
    """

    name = "adadps"
    rank = 18

    def __init__(
        self,
        public_data: Any = None,
        feature_scales: Any = None,
        beta: float = 0.0,
        stability: float = 1.0,
        refresh: int | None = None,
        public_batch_size: int = 20,
        rate: float | None = None,
        batch_size: int | None = None,
        max_iter: int | None = None,
        step_size: float | None = None,
        clip_norm: float | None = None,
        momentum: float = 0.95,
        iterate: str = "average",
        rows: str = "fill",
    ) -> None:
        super().__init__(rate, batch_size, max_iter, step_size, clip_norm, momentum, iterate, rows)
        self.public_data = public_data
        self.feature_scales = feature_scales
        self.beta = beta
        self.stability = stability
        self.refresh = refresh
        self.public_batch_size = public_batch_size

    def refusal(self, loss: MarginLoss) -> str | None:
        if self.public_data is None and self.feature_scales is None:
            return (
                f"solver={self.name!r} needs public knowledge of the features: pass AdaDPS(public_data=(X, y)) or "
                "AdaDPS(feature_scales=...)"
            )
        return None

    def questions(self, gradient: GaussianGradient, facts: PublicFacts, rate: float, n_steps: int) -> Questions:
        scaled = ScaledGradient(
            gradient.mu,
            facts.neighbours,
            facts.n_samples,
            facts.n_features,
            facts.n_outputs,
            keeps_norms=self._served(rate, n_steps) * rate >= 1,  # batches would read as many rows, or more
        )
        return ((on_samples(scaled, rate), n_steps),)

    def _served(self, rate: float, n_steps: int) -> int:
        """Return how many steps one array of scales serves."""
        if self.feature_scales is not None:
            return n_steps
        return min(n_steps, ceil(1 / rate) if self.refresh is None else self.refresh)

    def plan(self, facts: PublicFacts, epsilon: float, delta: float) -> Plan:
        plan = super().plan(facts, epsilon, delta)
        if self.feature_scales is None and facts.public_problem is None:
            raise ValueError(f"solver={self.name!r} needs public records in the facts of its plan")
        ((question, n_steps),) = plan.questions
        served = self._served(question.rate if isinstance(question, PoissonSample) else 1.0, n_steps)
        settings = _Scaled(
            **vars(plan.settings), scales=self._given(facts), public=facts.public_problem, refresh=served
        )
        return replace(plan, settings=settings)

    def _given(self, facts: PublicFacts) -> Array | None:
        """Return the given scales of all weights of one output, of root mean square 1."""
        if self.feature_scales is None:
            return None
        scales, d = self._numbers(), facts.n_features
        if scales.ndim == 1 and len(scales) != d:
            raise ValueError(f"feature_scales={brief(self.feature_scales)} must be one number, or one for each of {d}")
        # the largest is 1: squares do not overflow, and those of a part in 1e12 are not lost
        scales = np.broadcast_to(scales, d) / scales.max()
        scales = np.append(scales, [scales.min()] * (facts.n_weights - d))
        return scales / np.sqrt(np.mean(scales**2))

    def _numbers(self) -> Array:
        wanted = "be a positive number, or list one for each feature"
        try:
            scales = np.asarray(self.feature_scales, dtype=float)
        except (TypeError, ValueError) as error:
            raise ValueError(f"feature_scales={brief(self.feature_scales)} must {wanted}") from error
        is_flag = isinstance(self.feature_scales, bool | str)
        if is_flag or scales.ndim > 1 or scales.size == 0 or not (np.isfinite(scales) & (scales > 0)).all():
            raise ValueError(f"feature_scales={brief(self.feature_scales)} must {wanted}, all of them finite")
        with np.errstate(over="ignore"):
            ratio = scales.max() / scales.min()
        if not ratio <= _LARGEST_RATIO:
            raise ValueError(
                f"feature_scales={brief(self.feature_scales)} differ by a factor of {ratio:.1e}, and at most "
                f"{_LARGEST_RATIO:g} is possible; raise the small ones"
            )
        return scales

    def stepper(self, curator: Curator, plan: Plan) -> Step:
        ((question, _),) = plan.questions
        scaled: _Scaled = plan.settings
        ball, clip_norm = HeavyBall(self.momentum), scaled.clip_norm
        renewed = self._renewals(scaled)
        t, scales = 0, np.empty(0)

        def step(weights: Array) -> Array:
            nonlocal t, scales
            if t % scaled.refresh == 0:
                scales = renewed(weights)
                scales.flags.writeable = False
            t += 1
            direction = clip_norm * curator.ask(question, scales, clip_norm, weights) / scaled.size
            return ball.move(weights, direction, scaled.step, scaled.penalty * scales)

        return step

    def _renewals(self, scaled: _Scaled) -> Any:
        """Return a function from weights to new scales of their shape."""
        if scaled.scales is not None:
            given = scaled.scales
            return lambda weights: np.array(
                np.broadcast_to(given if weights.ndim == 1 else given[:, None], weights.shape)
            )
        public = scaled.public
        n = public.n_samples
        parts = [public.batch(part) for part in np.array_split(shuffled(public), ceil(n / self.public_batch_size))]
        moment: Array | None = None

        def renewed(weights: Array) -> Array:
            nonlocal moment
            mean = np.mean([np.square(part.gradient_sum(weights) / part.n_samples) for part in parts], axis=0)
            moment = mean if moment is None else self.beta * moment + (1 - self.beta) * mean
            unit = np.sqrt(moment.mean())
            roots = np.sqrt(moment) / unit if unit > 0 else np.ones_like(weights)
            # of a ratio that can be squared, and as far from the largest as given ones may be
            roots = roots + max(self.stability, roots.max() / _LARGEST_RATIO)
            scales = roots.min() / roots
            return scales / _stretch(public, scales)

        return renewed

    def check_parameters(self) -> None:
        super().check_parameters()
        if self.public_data is not None and self.feature_scales is not None:
            raise ValueError(
                f"public_data={brief(self.public_data)} and feature_scales={brief(self.feature_scales)} both say how "
                "gradients are scaled; leave one of them at None"
            )
        if self.feature_scales is not None:
            self._numbers()
        check_number("beta", self.beta, 0, 1, closed=True)
        check_number("stability", self.stability)
        check_count("refresh", self.refresh, optional=True)
        check_count("public_batch_size", self.public_batch_size)


def _stretch(public: Any, scales: Array) -> float:
    """Return by how much scales stretch the public rows, in the root mean square."""
    each = scales if scales.ndim == 1 else np.sqrt(np.mean(np.square(scales), axis=1))
    before, after = np.linalg.norm(public.row_norms), np.linalg.norm(public.transformed_row_norms(each))
    if before == 0:
        return float(np.sqrt(np.mean(np.square(each))))
    return float(np.clip(after / before, each.min(), each.max()))  # what is between but for rounding
