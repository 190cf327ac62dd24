"""Private descent with public records as mirror map (PDA-DPMD)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import cos, inf, pi, sqrt
from numbers import Real
from typing import Any

import numpy as np
from scipy.optimize import minimize

from dpskl.curator import Curator
from dpskl.records.losses import MarginLoss
from dpskl.solvers._batches import Batches, Step
from dpskl.solvers._checks import check_choice, check_number
from dpskl.solvers._public import ShortRepr, directions
from dpskl.solvers.base import Plan, PublicFacts
from dpskl.solvers.sgd import SGD, HeavyBall

__all__ = ["PublicMirrorDescent"]

Array = np.ndarray[Any, Any]

_MOST_WEIGHTS = 2000  # of a mirror map that is inverted at every step
_PRECISION = 1e-9  # of a step in the map, relative to its gradient at the start
_MOST_ITERATIONS = 2000


@dataclass(frozen=True)
class _Mirror(Batches):
    """Public records and how they are used.

    ``share`` is the weight of their gradient, None for a cosine; ``strength`` and ``stretch`` are those of the mirror
    map: its ridge, and what makes a step on the losses one of it.
    """

    public: Any
    share: float | None
    strength: float
    stretch: float


def _solve(mirror: _Mirror, start: Array, pull: Array, penalty: float) -> Array:
    """Return ``w`` with ``grad Psi(w) + penalty w = grad Psi(start) - pull``, the minimum of a convex function."""
    public, strength = mirror.public, mirror.strength
    n, targets, shape = public.n_samples, public.targets, start.shape
    scores = public.scores(start)
    losses, slope = public.loss.values(scores, targets), public.gradient_sum_at(scores) / n
    first = pull + penalty * start
    length = float(np.linalg.norm(first))
    curvature = public.loss.curvature_bound * public.row_bound**2 + strength + penalty
    if not 0 < length < inf:
        return start
    unit = length / curvature  # so that the first gradient has norm 1, and curvatures are at most 1

    def moved(flat: Array) -> tuple[float, Array]:
        d = unit * flat.reshape(shape)
        there = scores + public.scores(d)
        change = float((public.loss.values(there, targets) - losses).sum()) / n
        linear, square = float(np.vdot(first - slope, d)), float(np.vdot(d, d))
        gradient = public.gradient_sum_at(there) / n - slope + first + (strength + penalty) * d
        return (change + linear + (strength + penalty) * square / 2) / (length * unit), gradient.ravel() / length

    options = {"ftol": 0.0, "gtol": _PRECISION, "maxiter": _MOST_ITERATIONS, "maxfun": 2 * _MOST_ITERATIONS}
    found = minimize(moved, np.zeros(start.size), jac=True, method="L-BFGS-B", options=options).x
    return start + unit * found.reshape(shape)


class PublicMirrorDescent(ShortRepr, SGD):
    r"""PDA-DPMD: private mirror descent whose mirror map is the loss of public records.

    With ``g_t`` the noisy mean gradient of :class:`SGD` and ``h(w)`` the mean gradient of the public records, which has
    no noise, the first-order form is :class:`SGD` along ``(1 - beta_t) g_t + beta_t h(w_t)``, with a constant weight
    or, as in the paper, one that grows as a cosine falls::

        beta_t = 1 - cos(pi t / (2 max_iter)),    t = 0, ..., max_iter - 1

    and the exact form solves, with ``Psi(w)`` the mean public loss plus ``strength ||w||^2 / 2``::

        grad Psi(w_{t+1}) + (c step) w_{t+1} / (C n) = grad Psi(w_t + momentum (w_t - w_{t-1})) - (c step) g_t

    Parameters
    ----------
    public_data : tuple (X, y)
        Public records, as ``fit`` takes its own: the same columns, labels among the declared ``classes``. They get the
        same row map. Must not hold private records. Pickles of a model hold them, ``to_dict()`` does not.
    mixing : {"balanced", "cosine"} or float, default="balanced"
        Of the first-order form: the weight ``beta_t`` of the public gradient. A number in [0, 1) is a constant one, and
        0 is :class:`SGD`. ``"balanced"`` is the constant ``r s^2 / (r s^2 + clip_norm^2 / m)``: ``s^2`` is the variance
        of an entry of the noise in the mean of all private gradients, ``m`` the number of public records and ``r`` that
        of directions in which they lie, ``(tr H)^2 / tr(H^2)`` of their second moment ``H``, times the outputs.
    mirror : {"first_order", "exact"}, default="first_order"
        The form. The exact one is for smooth losses and up to 2,000 weights.
    strength : float or None, default=None
        Of the exact form. ``None``: the largest curvature of a record's loss over the number of weights of one output,
        which is the mean eigenvalue that the Hessian of ``Psi`` can have at most.
    rate, batch_size, max_iter, step_size, clip_norm, momentum, iterate, rows
        As for :class:`SGD`.

    Notes
    -----
    *Privacy* is that of :class:`SGD`: the same questions at the same cost. Public records enter into what is done with
    the answers, which is post-processing. That they are public is the user's promise.

    *Of the paper:* mirror descent on noisy, clipped gradients with the public loss as map (algorithm 1), its
    first-order approximation with ``mixing="cosine"``, by which its experiments were made. *Not as in it:* all public
    records are read at every step, and not a batch of them; their gradients are clipped as the private ones are, so
    that both estimate the same and a mixture is at rest where they are; the cosine reaches 0 at ``max_iter`` and not at
    a number that is tuned; ``"balanced"``; momentum, averages, rules and the decoupled penalty are those of
    :class:`SGD`.

    *The balance.* Both gradients estimate that of the population. Errors count by what they do to the scores of rows,
    their squares in the metric ``H``: for noise ``s^2 tr(H)``, for the mean of ``m`` records whose gradients are rows
    times numbers, with norms of at most ``clip_norm``, about ``clip_norm^2 tr(H^2) / (m tr(H))``. Weights in inverse
    proportion are the best. Counted over all entries alike, noise would look larger, and where rows have one direction
    in common, as counts of words do, a few public records with one label too many would decide along it. A cosine gives
    public records most of the weight at the end, however few they are for the budget.

    *The exact form.* The losses of ``Psi`` are not clipped. ``c`` makes steps comparable: it is the inverse of the root
    mean square of ``1 / (lambda_j + strength)``, ``lambda_j`` the eigenvalues of the largest Hessian that the public
    rows allow, so that noise moves the weights as far as in :class:`SGD`, which is the limit of a large ``strength``.
    The penalty is inside of the map: where the weights stay put, they minimise the regularised losses. Each step is a
    convex problem on the public records, solved by L-BFGS.

    References
    ----------
    Amid, Ganesh, Mathews, Ramaswamy, Song, Steinke, Suriyakumar, Thakkar & Thakurta (2022), "Public data-assisted
    mirror descent for private model training", ICML, arXiv:2112.00193.

    Examples
    --------
    >>> import numpy as np
    >>> from dpskl import DPLogisticRegression
    >>> from dpskl.solvers import PublicMirrorDescent
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 2000)
    >>> X = rng.normal(size=(2000, 2)) + 2 * y[:, None]
    >>> solver = PublicMirrorDescent(public_data=(X[:100], y[:100]))
    >>> model = DPLogisticRegression(epsilon=0.5, data_norm=4.0, classes=[0, 1], solver=solver)
    >>> bool(model.fit(X[100:], y[100:]).score(X, y) > 0.85)
    True
    """

    name = "pda_dpmd"
    rank = 19

    def __init__(
        self,
        public_data: Any = None,
        mixing: Any = "balanced",
        mirror: str = "first_order",
        strength: float | None = None,
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
        self.mixing = mixing
        self.mirror = mirror
        self.strength = strength

    def refusal(self, loss: MarginLoss) -> str | None:
        if self.public_data is None:
            return f"solver={self.name!r} needs public records: pass PublicMirrorDescent(public_data=(X, y))"
        if self._is_exact and not loss.is_smooth:
            return (
                f"solver={self.name!r} with mirror='exact' solves for the weights at which the public losses have a "
                "given gradient, which one with a kink need not have: take mirror='first_order'"
            )
        return None

    @property
    def _is_exact(self) -> bool:
        return isinstance(self.mirror, str) and self.mirror == "exact"

    def plan(self, facts: PublicFacts, epsilon: float, delta: float) -> Plan:
        plan = super().plan(facts, epsilon, delta)
        public = facts.public_problem
        if public is None:
            raise ValueError(f"solver={self.name!r} needs public records in the facts of its plan")
        strength, stretch = self._map(facts) if self._is_exact else (0.0, 1.0)
        batches: Batches = plan.settings
        share: float | None = None
        if isinstance(self.mixing, Real):
            share = float(self.mixing)
        elif self.mixing == "balanced":
            noise = batches.noise**2 * facts.n_outputs * directions(public) / plan.n_questions
            share = noise / (noise + batches.clip_norm**2 / public.n_samples)
        mirror = _Mirror(**vars(batches), public=public, share=share, strength=strength, stretch=stretch)
        return replace(plan, settings=mirror)

    def _map(self, facts: PublicFacts) -> tuple[float, float]:
        """Return the strength of the mirror map and what a step on the losses is multiplied by to be one of it."""
        count = facts.n_weights * facts.n_outputs
        if count > _MOST_WEIGHTS:
            raise ValueError(
                f"mirror='exact' solves for {count} weights at every step, and at most {_MOST_WEIGHTS} are possible; "
                "take mirror='first_order', or fewer features"
            )
        public, curvature = facts.public_problem, self.problem_loss(facts).curvature_bound
        strength = self.strength
        if strength is None:
            strength = curvature * facts.row_norm**2 / facts.n_weights
        gram = public.weighted_gram(np.full(public.n_samples, 1 / public.n_samples))
        # in units of the squared row norm, as far from overflow as rows are
        spectrum = np.maximum(np.linalg.eigvalsh(gram / facts.row_norm**2), 0) * curvature
        ridge = strength / facts.row_norm**2
        return strength, strength / sqrt(np.mean(np.square(ridge / (spectrum + ridge))))

    def stepper(self, curator: Curator, plan: Plan) -> Step:
        return self._exact_stepper(curator, plan) if self._is_exact else self._mixing_stepper(curator, plan)

    def _mixing_stepper(self, curator: Curator, plan: Plan) -> Step:
        ((question, n_steps),) = plan.questions
        mirror: _Mirror = plan.settings
        move, public, t = self.mover(mirror), mirror.public, 0

        def step(weights: Array) -> Array:
            nonlocal t
            share = 1 - cos(pi * t / (2 * n_steps)) if mirror.share is None else mirror.share
            t += 1
            direction = (1 - share) * (curator.ask(question, weights) / mirror.size)
            if share > 0:
                direction += share * (public.gradient_sum(weights, mirror.clip_norm) / public.n_samples)
            return move(weights, direction)

        return step

    def _exact_stepper(self, curator: Curator, plan: Plan) -> Step:
        ((question, _),) = plan.questions
        mirror: _Mirror = plan.settings
        step_in_map = mirror.stretch * mirror.step
        ball = HeavyBall(self.momentum)

        def step(weights: Array) -> Array:
            gradient = curator.ask(question, weights) / mirror.size
            ahead = ball.move(weights, np.zeros_like(weights), 0.0, 0.0)
            return _solve(mirror, ahead, step_in_map * gradient, step_in_map * mirror.penalty)

        return step

    def check_parameters(self) -> None:
        super().check_parameters()
        check_choice("mirror", self.mirror, ("first_order", "exact"))
        check_number("strength", self.strength, optional=True)
        if isinstance(self.mixing, str):
            check_choice("mixing", self.mixing, ("balanced", "cosine"))
        else:
            check_number("mixing", self.mixing, 0, 1, closed=True)
        if self._is_exact and self.mixing != "balanced":
            raise ValueError(f"mixing={self.mixing!r} is for mirror='first_order'; leave it at 'balanced'")
        if not self._is_exact and self.strength is not None:
            raise ValueError(f"strength={self.strength!r} is for mirror='exact'; leave it at None")
