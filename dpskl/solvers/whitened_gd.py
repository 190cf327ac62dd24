"""Noisy gradient descent in privately whitened coordinates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log, sqrt
from typing import Any, NamedTuple

import numpy as np

from dpskl.accounting import gaussian_mu
from dpskl.curator import Curator
from dpskl.mechanisms.second_moment import SecondMoment
from dpskl.mechanisms.whitened_gradient import WhitenedGradient
from dpskl.mechanisms.whitener import ScalingWhitener, Whitener, whitener_condition
from dpskl.records.losses import Logistic
from dpskl.solvers._agreement import Agreement
from dpskl.solvers._checks import check_choice, check_count
from dpskl.solvers._score_scale import score_scale
from dpskl.solvers.base import Outcome, Plan, PublicFacts, Solver, refuse_pure

__all__ = ["WhitenedGD"]

Array = np.ndarray[Any, Any]

# Share of mu^2 for what is released of the second moment: accuracy is flat by a factor of two on either side.
_SHARE = 0.15
_SHARE_DIAGONAL = 0.07
# Ridge of the whitener as a multiple of the norm of the noise in the second moment, and its least value where there is
# little noise: one-hot rows are rank deficient. Both relative to the squared row norm, the second times 1 / D.
_NOISE_SHARE = 0.25
_LEAST_RIDGE = 1e-6
# Inverting the moment pays where directions of less than the mean variance are told apart: while the ridge that its
# noise asks for is at most this part of the mean eigenvalue.
_LARGEST_RIDGE = 0.6
# Its common directions are worth looking for while one of a hundredth of all variance stands out of the noise.
_LARGEST_NOISE = 0.01
_LARGEST_DIMENSIONS = {"full": 1000, "common": 4096}  # what their D x D work allows
_LEAST_PENALTY = 1e-300  # its inverse is the effective C
_STEPS = (40, 160)
_LARGEST_MOMENTUM = 0.5
# A budget far from rounding: the squares of all mu must not sum to more than that of the budget.
_SAFE = 1 - 1e-12


class _Constants(NamedTuple):
    """What is chosen for each kind of loss.

    ``clip`` and ``largest_clip`` are in units of the norm of a typical whitened row; the first grows with the root of
    ``q / 12``, ``q = mu n / D``. ``time`` is the total time ``steps * step / (1 - momentum)`` in units of ``q`` over
    ``sup phi''``, and ``caps`` bound the step (full, others) in units of the inverse of ``sup phi''``. Scaling columns
    one by one leaves large eigenvalues, hence the smaller cap; those above ``2 / cap``, where such a step overshoots,
    are brought down to it as far as they are known.
    """

    clip: float
    largest_clip: float
    time: float
    caps: tuple[float, float]


_LOGISTIC = _Constants(clip=0.35, largest_clip=1.0, time=3.0, caps=(1.5, 0.4))
_HINGE = _Constants(clip=0.5, largest_clip=1.5, time=6.0, caps=(2.0, 0.8))
_GROWTH_FROM = 12.0


@dataclass(frozen=True)
class _Descent:
    """What ``run`` needs besides the questions; the step is for the mean of the losses."""

    moment: SecondMoment
    has_constant: bool
    is_binary_logistic: bool
    whitening: str
    whitener_ridge: float
    level: float
    clip: float
    step: float
    momentum: float

    def whitener(self, released: Array) -> Whitener | ScalingWhitener:
        """Return the whitener of what ``moment`` released."""
        n, top = self.moment.n_samples, self.moment.row_norm**2
        if self.whitening == "full":
            return Whitener(released / n, self.whitener_ridge, top)
        given = released / n, self.moment.part, self.whitener_ridge, top, self.level
        return ScalingWhitener(*given, noise_scale=self.moment.noise_scale / n, has_constant=self.has_constant)


def _noise_norm(facts: PublicFacts, moment: SecondMoment, is_matrix: bool) -> float:
    """Return the norm of the noise in a mean of ``x x^T``, or the largest entry of that in its diagonal."""
    dimension = facts.n_weights
    spread = sqrt(2 * dimension) if is_matrix else sqrt(2 * log(2 * dimension))
    return spread * moment.noise_scale / facts.n_samples


class WhitenedGD(Solver):
    r"""Gradient descent in coordinates in which a released second moment of the rows is nearly the identity.

    Every row is brought to norm ``data_norm``, its constant column included, up or down:
    ``x <- data_norm (x, c) / ||(x, c)||``. A part of the budget releases the second moment ``M`` of these rows, or a
    part of it, which gives ``w = W v`` with ``W^T M W / n`` near the identity. Then ``T`` noisy gradients, clipped
    *after* whitening, from ``v = 0``::

        g <- sum_i clip(W^T grad_i(W v), c) + N(0, c^2 T / mu_g^2 I)
        v_next <- prox(v + momentum (v - v_previous) - factor step g / n)

    where ``prox`` takes the step of the penalty ``||w||^2 / (2 C D)`` exactly. The mean of the second half of the
    iterates is released.

    Parameters
    ----------
    max_iter : int or None, default=None
        Number ``T`` of gradients. ``None``: ``q`` of the rules below, between 40 and 160. More cost time and no
        privacy, since the noise is calibrated for all of them.
    whitening : {"auto", "full", "common", "diagonal"}, default="auto"
        ``"full"`` inverts the whole second moment. ``"common"`` scales columns one by one and shortens the directions
        that many have in common, as far as they stand out of the noise in the whole moment. ``"diagonal"`` takes the
        diagonal and the column of the constant only, hence shortens one direction, that of the means of the columns;
        none without an intercept. ``"auto"`` chooses from public facts, see the rules.

    Notes
    -----
    *Budget.* With ``mu`` the Gaussian privacy parameter of (epsilon, delta), what is released of the second moment
    gets 0.15 ``mu^2`` (diagonal and column 0.07), the gradients share the rest equally, and the squares sum to ``mu^2``
    exactly. Nothing is asked of the loss: no convexity, smoothness or convergence.

    *Rules*, all from public numbers. Let ``q = mu n / D``, halved for ``replace_one``.

    * Whitening: ``"full"`` while the ridge of its whitener, a quarter of the spectral norm of the noise in the moment,
      is at most 0.6 times its mean eigenvalue and ``D <= 1000``: inverting pays where directions of less than the mean
      variance are told apart. Else ``"common"`` while a direction with a hundredth of all variance stands out of
      the noise and ``D <= 4096``, and ``"diagonal"`` otherwise. Scaling columns one by one leaves eigenvalues of up to
      ``D``, which a step overshoots: those above ``2`` over the longest step, as far as they are found, are brought
      down to it. So with an intercept results hardly depend on where zero is in the columns.
    * Total time ``T step / (1 - momentum)``: ``3 q`` (logistic) or ``6 q`` in units of ``1 / sup phi''``. Along the
      path the noise grows with ``time D / (mu n)`` relative to the signal, so this stops where they balance: early
      stopping in the whitened norm is the regulariser, and directions of little variance are learnt last. The step is
      at most 1.5 (logistic) or 2 times ``1 / sup phi''``, 0.4 or 0.8 times where ``W`` scales columns.
    * Steps and momentum: ``T`` is ``q`` between 40 and 160, momentum the least with which ``T`` steps of at most that
      length take the time, and at most 1/2: an oscillation shrinks by its root in each step, and one that lasts leaves
      the weight of a rare class where its gradient vanishes.
    * Longer steps: that balance takes ``D`` directions for equally long. Where few directions have most of the
      variance noise does less, and consecutive gradients still agree when the time is over. So after a quarter of the
      steps ``factor`` is doubled, up to 8, whenever they agree beyond three standard errors, and halved again, down to
      1, when they disagree: a function of released gradients.
    * Length of the scores (two classes, logistic): the slope of the loss along the ray through ``w`` is in the released
      gradients as well, and the weights are made longer or shorter accordingly.
    * Clip norm: ``c = c0 sqrt(d_eff)``, ``d_eff`` the effective dimension of the released moment, whose root is the
      norm of a typical whitened row. ``c0`` is 0.35 (logistic) or 0.5 and grows with ``sqrt(q / 12)`` up to 1 or 1.5;
      it is ``sqrt(2)`` times that for several outputs, where a record has the residuals of two classes or more.
    * Penalty: ``1 / C`` is meant for rows of ``D`` entries of size one, as they are usual in scikit-learn. Here an
      entry has the size ``data_norm / sqrt(D)``, so for ``data_norm = 1`` the ridge is ``1 / (C D)`` and
      ``effective_C_`` is ``C D``. As in scikit-learn, who scales ``X`` and ``data_norm`` scales ``C`` by the inverse
      square to have the same model.
    * Ridge of the whitener: a quarter of the spectral norm of the noise in the second moment, or of the largest entry
      of that in its diagonal.

    Below ``q`` of about 2 the noise is as large as the signal, and costs several points of accuracy on most data.

    For a loss steeper in curvature than the Huber hinge with ``h = 1/2`` (and the hinge itself) the rules take the
    curvature 1; this affects accuracy only.

    *Coefficients.* ``coef_`` and ``intercept_`` are those of a linear model for rows whose norm, constant included, is
    ``data_norm``. The score of any other row is that of the row brought to this norm: ``decision_function`` returns
    ``(x . coef_ + intercept_) data_norm / ||(x, c)||`` with ``c = 0.3 data_norm``, or 0 without an intercept. So the
    label is the sign of ``x . coef_ + intercept_``, and probabilities are those of the bounded row.

    References
    ----------
    Composition: Dong, Roth & Su (2022), JRSS-B. Clipping after a preconditioner: Li, Zaheer, Reddi & Smith (2022),
    "Private adaptive optimization with side information", ICML. Early stopping, rules and constants are our own; the
    privacy is proved in docs/theory.md.

    Examples
    --------
    >>> import numpy as np
    >>> from dpskl import DPLogisticRegression
    >>> from dpskl.solvers import WhitenedGD
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 2000)
    >>> X = rng.normal(size=(2000, 2)) + 2 * y[:, None]
    >>> model = DPLogisticRegression(epsilon=1.0, data_norm=4.0, classes=[0, 1], solver=WhitenedGD(max_iter=30))
    >>> bool(model.fit(X, y).score(X, y) > 0.85)
    True
    """

    name = "whitened_gd"
    rank = 1
    rows = "sphere"

    def __init__(self, max_iter: int | None = None, whitening: str = "auto") -> None:
        self.max_iter = max_iter
        self.whitening = whitening

    def plan(self, facts: PublicFacts, epsilon: float, delta: float) -> Plan:
        self._check_parameters()
        refuse_pure(self.name, delta)
        mu = gaussian_mu(epsilon, delta) * _SAFE
        size = facts.neighbours, facts.n_samples, facts.n_features
        moment = SecondMoment(facts.data_norm, mu * sqrt(_SHARE), "full", *size)
        whitening = self._whitening(facts, moment)
        share = _SHARE_DIAGONAL if whitening == "diagonal" else _SHARE
        if whitening == "diagonal":
            moment = replace(moment, mu=mu * sqrt(share), part="arrow" if facts.intercept > 0 else "diagonal")
        n_steps = self._n_steps(facts, mu)
        descent = self._descent(facts, mu, moment, whitening, n_steps)
        shortest = 1.0
        if whitening != "full":
            shortest = ScalingWhitener.shortest_of(descent.level, facts.n_weights)
        condition = whitener_condition(descent.whitener_ridge, facts.data_norm**2) / shortest
        gradient = WhitenedGradient(mu * sqrt((1 - share) / n_steps), condition, *size, shortest)
        return Plan(
            ((moment, 1), (gradient, n_steps)),
            max(1 / facts.C / facts.n_weights, _LEAST_PENALTY),
            descent,
        )

    def _whitening(self, facts: PublicFacts, moment: SecondMoment) -> str:
        """Return how rows are whitened, given what the whole moment would cost in noise: a public decision."""
        if self.whitening != "auto":
            return self.whitening
        dimension, trace = facts.n_weights, facts.data_norm**2
        noise = _noise_norm(facts, moment, is_matrix=True)
        if dimension <= _LARGEST_DIMENSIONS["full"] and _NOISE_SHARE * noise <= _LARGEST_RIDGE * trace / dimension:
            return "full"
        if dimension <= _LARGEST_DIMENSIONS["common"] and noise <= _LARGEST_NOISE * trace:
            return "common"
        return "diagonal"

    def _n_steps(self, facts: PublicFacts, mu: float) -> int:
        if self.max_iter is not None:
            return self.max_iter
        low, high = _STEPS
        return round(min(max(facts.signal(mu), low), high))

    def _descent(self, facts: PublicFacts, mu: float, moment: SecondMoment, whitening: str, n_steps: int) -> _Descent:
        constants = _LOGISTIC if isinstance(facts.loss, Logistic) else _HINGE
        loss = self.problem_loss(facts)
        dimension, signal = facts.n_weights, facts.signal(mu)
        growth = max(1.0, sqrt(signal / _GROWTH_FROM))
        clip = min(constants.clip * growth, constants.largest_clip)
        if facts.n_outputs > 1:
            clip *= sqrt(2)  # as two columns w and -w: twice the signal for sqrt(2) times the noise in each
        unit = 1 / min(loss.curvature_bound, 1.0)
        cap, time = constants.caps[whitening != "full"], constants.time * signal
        # as little as the longest steps need to take that time
        momentum = 0.0 if time == 0 else min(max(1 - cap * n_steps / time, 0.0), _LARGEST_MOMENTUM)
        step = min(time * (1 - momentum) / n_steps, cap) * unit
        noise = _noise_norm(facts, moment, is_matrix=whitening == "full")
        ridge = max(_NOISE_SHARE * noise, _LEAST_RIDGE * facts.data_norm**2 / dimension)
        is_binary = isinstance(facts.loss, Logistic) and facts.n_outputs == 1
        return _Descent(moment, facts.intercept > 0, is_binary, whitening, ridge, 2 / cap, clip, step, momentum)

    def run(self, curator: Curator, plan: Plan) -> Outcome:
        (moment, _), (gradient, n_steps) = plan.questions
        descent: _Descent = plan.settings
        whitener = descent.whitener(curator.ask(moment))
        row_length = sqrt(max(whitener.effective_dimension, 1.0))
        clip_norm = descent.clip * row_length
        agreement = Agreement(gradient.noise_scale, n_steps // 4)
        v = previous = total = curator.zeros()
        slope = length = 0.0
        for t in range(n_steps):
            answer = curator.ask(gradient, whitener, clip_norm, v)
            if t >= n_steps // 2:
                slope += float(np.vdot(answer, v))
                length += float(np.vdot(v, v))
            step = descent.step / descent.moment.n_samples * agreement.observe(answer)
            moved = v + descent.momentum * (v - previous) - step * clip_norm * answer
            v, previous = whitener.shrunk(moved, step * plan.ridge), v
            if t >= n_steps // 2:
                total = total + v
        kept = n_steps - n_steps // 2
        weights = whitener.to_weights(total / kept)
        if descent.is_binary_logistic:
            n = descent.moment.n_samples
            penalty = plan.ridge * float(weights @ weights) / n
            error = gradient.noise_scale * clip_norm * sqrt(length) / (n * kept)
            spread = whitener.mean_square(total / kept)
            weights *= score_scale(clip_norm * slope / (n * kept) + penalty, error, spread, penalty)
        return Outcome(weights, n_steps, clip_norm=clip_norm, row_length=row_length)

    def _check_parameters(self) -> None:
        check_count("max_iter", self.max_iter, optional=True)
        check_choice("whitening", self.whitening, ("auto", "full", "common", "diagonal"))
