"""Newton's method on noisy gradients and noisy Hessians (Ganesh, Haghifam, Steinke & Thakurta 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt
from typing import Any

import numpy as np

from dpskl.accounting import gaussian_mu
from dpskl.curator import Curator
from dpskl.mechanisms.base import Mechanism
from dpskl.mechanisms.hessian import GaussianHessian
from dpskl.mechanisms.second_moment import SecondMoment
from dpskl.mechanisms.whitened_gradient import WhitenedGradient
from dpskl.mechanisms.whitener import Whitener, whitener_condition
from dpskl.records.losses import Logistic, Loss, MarginLoss
from dpskl.records.row_maps import ROW_MAPS
from dpskl.solvers._checks import check_choice, check_count, check_number
from dpskl.solvers.base import Outcome, Plan, PublicFacts, Solver, refuse_pure

__all__ = ["Newton"]

Array = np.ndarray[Any, Any]

# The constants of the default rules, each for a matrix at every step and for one matrix.
_STEPS = {False: 10, True: 20}
_SHARE = {False: 0.3, True: 0.2}
# The clip in units of the norm of a typical row, where the Hessian is the identity: half of it at mu n / D = 12.
_CLIP = 0.5
_CLIP_SIGNAL = 12.0
_CLIPS = (0.35, 1.0)
_STEEPER = 1.5  # for hinges, whose slope at the start is twice that of the logistic loss
# The damping as a multiple of the norm of the noise in the mean of the matrices, and its least value where there is
# little noise: one-hot rows are rank deficient. Both relative to the squared row norm, the second times 1 / D.
_NOISE_SHARE = 0.25
_LEAST_DAMPING = 1e-6
_LARGEST_DIMENSION = 1000
_LEAST_PENALTY = 1e-300  # its inverse is the effective C
# A budget far from rounding: the squares of all mu must not sum to more than that of the budget.
_SAFE = 1 - 1e-12


@dataclass(frozen=True)
class _Settings:
    """What ``run`` needs besides the questions.

    ``curvature`` is what a matrix of one, divided by ``n``, means for the sum of the losses; ``damping`` belongs to the
    noise of one matrix.
    """

    n_samples: int
    row_norm: float
    curvature: float
    damping: float
    least_damping: float
    clip: float


class Newton(Solver):
    r"""Newton's method with a private gradient and private curvature: noise is added twice in each step.

    Each step asks for the curvature at the present weights, takes the mean ``H`` of the noisy answers so far (the last
    one alone where there is next to no noise) and damps it, and then asks for the gradient in the coordinates
    ``w = W v`` in which the damped ``H`` is the identity::

        W W^T <- damp(H / (n sup phi''))^(-1)
        g     <- sum_i clip(W^T grad_i(w), c) + N(0, c^2 T / mu_g^2 I)
        w     <- w - (n sup phi'' (W W^T)^(-1) + ridge I)^(-1) (W^(-T) g + ridge w)

    from ``w = 0``. The mean of the second half of the iterates is released, or the last one.

    Parameters
    ----------
    hessian : {"majorant", "exact", "bound"}, default="bound"
        Which curvature. ``"exact"``: second derivatives at the margins, Newton's method proper. ``"majorant"``: those
        of the parabolas that touch the losses there and lie above them, so that a full step without noise never raises
        the objective (the quadratic upper bound of the paper). Both ask at every step. ``"bound"``: the largest second
        derivative of the loss for every record, so that one second moment of the rows does for all steps.
    eigenvalues : {"clip", "add"}, default="clip"
        How a noisy matrix is damped: eigenvalues below the damping are raised to it, or all of them are raised by it.
    max_iter : int or None, default=None
        Number ``T`` of gradients. ``None``: 20 with ``"bound"``, else 10. The noise is calibrated for all of them.
    hessian_share : float or None, default=None
        Share of the squared Gaussian privacy parameter that pays for curvature, in (0, 1). ``None``: 0.2 with
        ``"bound"``, else 0.3.
    clip : float or None, default=None
        Clip norm in units of ``sqrt(d_eff)``, the norm of a typical row after ``W^T``, ``d_eff`` the effective
        dimension of the released curvature. ``None``: ``0.5 sqrt(q / 12)`` with ``q = mu n / D``, halved for
        replace_one, but between 0.35 and 1; 1.5 times that for the Huber hinge, and ``sqrt(2)`` times that for several
        outputs.
    iterate : {"average", "last"}, default="average"
        Release the mean of the second half of the iterates, or the last one. A full step forgets the noise of the
        steps before it, so that a mean is much less noisy.
    rows : {"fill", "clip", "sphere"}, default="fill"
        The row map (:mod:`dpskl.records.row_maps`). ``"clip"`` scales longer rows down to ``data_norm``, ``"sphere"``
        brings every row, its constant included, to that norm, up or down, and ``"fill"`` does the one after the other.
        Noise is for the longest row that there could be: with the last two no row is shorter.

    Notes
    -----
    *Privacy.* With ``mu`` the Gaussian privacy parameter of (epsilon, delta), the ``T`` matrices get ``share mu^2``
    equally, or one gets all of it, and the ``T`` gradients the rest: all are Gaussian mechanisms whose squares sum to
    ``mu^2`` (:class:`~dpskl.mechanisms.hessian.GaussianHessian`, :class:`~dpskl.mechanisms.second_moment.SecondMoment`,
    :class:`~dpskl.mechanisms.whitened_gradient.WhitenedGradient`). Losses must be smooth: logistic and Huber. The
    guarantee needs no convexity and no convergence.

    *Several classes.* ``"exact"`` and ``"majorant"`` are one-vs-rest: the ``K`` matrices of a step are one release
    whose sensitivity is ``sqrt(K)`` times that of one, the ``K`` gradients another that is clipped as a whole, in the
    coordinates of the mean of the matrices. With ``"bound"`` one matrix serves all outputs, and the logistic loss is
    the softmax.

    *Damping*, from public numbers: a quarter of the spectral norm ``sqrt(2 D) s`` of the noise ``s`` in the mean of
    the matrices so far. Besides, eigenvalues are cut at the largest that rows within their bound can have. The
    matrices take ``D x D`` work, so more than 1,000 weights of an output are refused.

    *Penalty:* as for :class:`~dpskl.solvers.WhitenedGD`, ``1 / (C D)`` in the units of the bounded rows, so that
    ``effective_C_`` is ``C D``.

    *Of the paper:* noise on gradient and on second-order information, the quadratic upper bound, both rules for
    eigenvalues. *Not as in the paper:* its second noise is on the direction of the step and the matrix stays hidden.
    Here the matrix is released, so that those of several steps can be averaged, the clip is in their coordinates, and
    outputs can share one. Its damping is made of a noisy trace; where rows fill their bound, that of the curvature
    bound is public. ``"bound"``, the clip and the means are ours.

    *Without noise* and with ``hessian="exact"`` the last iterate converges quadratically where it converges; as with
    Newton's method in general it need not. ``"majorant"`` always descends where no gradient is clipped.
    ``hessian="exact"`` is refused for a Huber hinge with ``h < 1``, which has no curvature at the start ``w = 0``.

    References
    ----------
    Ganesh, Haghifam, Steinke & Thakurta (2023), "Faster differentially private convex optimization via second-order
    methods", NeurIPS, arXiv 2305.13209, Parabolas: Jaakkola & Jordan (2000); one bound for all: Bohning &
    Lindsay (1988). Composition: Dong, Roth & Su (2022), JRSS-B.

    Examples
    --------
    >>> import numpy as np
    >>> from dpskl import DPLogisticRegression
    >>> from dpskl.solvers import Newton
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 2000)
    >>> X = rng.normal(size=(2000, 2)) + 2 * y[:, None]
    >>> solver = Newton(hessian="majorant")
    >>> model = DPLogisticRegression(epsilon=1.0, data_norm=4.0, classes=[0, 1], solver=solver).fit(X, y)
    >>> bool(model.score(X, y) > 0.85)
    True
    """

    name = "newton"
    rank = 10

    def __init__(
        self,
        hessian: str = "bound",
        eigenvalues: str = "clip",
        max_iter: int | None = None,
        hessian_share: float | None = None,
        clip: float | None = None,
        iterate: str = "average",
        rows: str = "fill",
    ) -> None:
        self.hessian = hessian
        self.eigenvalues = eigenvalues
        self.max_iter = max_iter
        self.hessian_share = hessian_share
        self.clip = clip
        self.iterate = iterate
        self.rows = rows

    def refusal(self, loss: MarginLoss) -> str | None:
        if not loss.is_smooth:
            return (
                f"solver={self.name!r} needs a smooth loss, and the hinge has a kink, which has no curvature "
                "(DPHuberSVC has the smooth form)"
            )
        if self.hessian == "exact" and float(loss.curvature(np.zeros(1))[0]) == 0:
            return (
                f"hessian='exact' of solver={self.name!r} starts at w = 0, where {loss!r} has no curvature; take "
                "hessian='majorant' or 'bound', or h of at least 1"
            )
        return None

    def multiclass_loss(self, loss: MarginLoss) -> Loss:
        # the Hessian of a softmax is no sum of one matrix for each output
        return loss.multiclass() if self.hessian == "bound" else loss

    def plan(self, facts: PublicFacts, epsilon: float, delta: float) -> Plan:
        self._check_parameters()
        refuse_pure(self.name, delta)
        if facts.n_weights > _LARGEST_DIMENSION:
            raise ValueError(
                f"solver={self.name!r} releases matrices of D x D entries and takes at most {_LARGEST_DIMENSION} "
                f"weights for an output, and these data have D={facts.n_weights}; choose solver='whitened_gd', which "
                "has a diagonal form, or 'gd'"
            )
        is_bound = self.hessian == "bound"
        n_steps = _STEPS[is_bound] if self.max_iter is None else self.max_iter
        share = _SHARE[is_bound] if self.hessian_share is None else self.hessian_share
        mu = gaussian_mu(epsilon, delta) * _SAFE
        size = facts.neighbours, facts.n_samples, facts.n_features
        n_matrices = 1 if is_bound else n_steps
        each = mu * sqrt(share / n_matrices)
        matrix: SecondMoment | GaussianHessian
        if is_bound:
            matrix = SecondMoment(facts.row_norm, each, "full", *size)
        else:
            matrix = GaussianHessian(facts.row_norm, each, self.hessian == "majorant", facts.n_outputs, *size)
        settings = self._settings(facts, mu, matrix.noise_scale)
        # the mean of all matrices has the least noise, and so the least damping
        least = max(settings.damping / sqrt(n_matrices), settings.least_damping)
        condition = whitener_condition(least, facts.row_norm**2)
        gradient = WhitenedGradient(mu * sqrt((1 - share) / n_steps), condition, *size)
        ridge = max(1 / facts.C / facts.n_weights, _LEAST_PENALTY)
        return Plan(((matrix, n_matrices), (gradient, n_steps)), ridge, settings)

    def _settings(self, facts: PublicFacts, mu: float, noise_scale: float) -> _Settings:
        low, high = _CLIPS
        signal = facts.signal(mu)
        clip = high if signal == inf else min(max(_CLIP * sqrt(signal / _CLIP_SIGNAL), low), high)
        if not isinstance(facts.loss, Logistic):
            clip *= _STEEPER
        if facts.n_outputs > 1:
            clip *= sqrt(2)  # as two columns w and -w: twice the signal for sqrt(2) times the noise in each
        dimension, squared_norm = facts.n_weights, facts.row_norm**2
        return _Settings(
            n_samples=facts.n_samples,
            row_norm=facts.row_norm,
            curvature=self.problem_loss(facts).curvature_bound,
            damping=_NOISE_SHARE * sqrt(2 * dimension) * noise_scale / facts.n_samples,
            least_damping=_LEAST_DAMPING * squared_norm / dimension,
            clip=clip if self.clip is None else self.clip,
        )

    def run(self, curator: Curator, plan: Plan) -> Outcome:
        (matrix, n_matrices), (gradient, n_steps) = plan.questions
        settings: _Settings = plan.settings
        curvature, top = settings.n_samples * settings.curvature, settings.row_norm**2
        weights = total = curator.zeros()
        first_kept = n_steps - 1 if self.iterate == "last" else n_steps // 2
        moments: Any = 0.0
        for t in range(n_steps):
            if t < n_matrices:
                # where there is next to no noise, a mean with older matrices would only be late
                count = t + 1 if settings.damping > settings.least_damping else 1
                answers = self._ask_matrices(curator, matrix, weights) / settings.n_samples
                moments = moments + (answers - moments) / count
                damping = max(settings.damping / sqrt(count), settings.least_damping)
                each = [self._whitener(moment, damping, top) for moment in moments]
                common = each[0] if len(each) == 1 else self._whitener(moments.mean(axis=0), damping, top)
                row_length = sqrt(max(common.effective_dimension, 1.0))
                clip_norm = settings.clip * row_length
            answer = clip_norm * curator.ask(gradient, common, clip_norm, _whitened(common, weights))
            raw = common.to_weights((answer.T / common.scales**2).T)  # W^(-T)
            weights = weights - _newton_step(each, raw, weights, plan.ridge, curvature)
            if t >= first_kept:
                total = total + weights
        weights = total / (n_steps - first_kept)
        return Outcome(weights, n_steps, clip_norm=clip_norm, row_length=row_length)

    @staticmethod
    def _ask_matrices(curator: Curator, matrix: Mechanism, weights: Array) -> Array:
        """Return one matrix for each output, or the one that serves all, shape (k, D, D)."""
        answer: Array = curator.ask(matrix)[None] if isinstance(matrix, SecondMoment) else curator.ask(matrix, weights)
        return answer

    def _whitener(self, moment: Array, damping: float, top: float) -> Whitener:
        # a whitener raises eigenvalues that are cut at 0: raised before, none but those below the damping change
        if self.eigenvalues == "clip":
            moment = moment - damping * np.eye(len(moment))
        return Whitener(moment, damping, top)

    def _check_parameters(self) -> None:
        check_choice("hessian", self.hessian, ("majorant", "exact", "bound"))
        check_choice("eigenvalues", self.eigenvalues, ("clip", "add"))
        check_count("max_iter", self.max_iter, optional=True)
        check_number("hessian_share", self.hessian_share, 0, 1, optional=True)
        check_number("clip", self.clip, optional=True)
        check_choice("iterate", self.iterate, ("average", "last"))
        check_choice("rows", self.rows, ROW_MAPS)


def _whitened(whitener: Whitener, weights: Array) -> Array:
    """Return the coordinates ``v`` of weights ``W v``."""
    return (whitener.to_whitened(weights).T / whitener.scales**2).T


def _newton_step(whiteners: list[Whitener], gradient: Array, weights: Array, ridge: float, curvature: float) -> Array:
    """Return ``(curvature (W W^T)^(-1) + ridge I)^(-1) (gradient + ridge weights)``, of the shape of the weights.

    One whitener for each output, or one for all.
    """
    columns = weights.reshape(len(weights), -1).T, gradient.reshape(len(weights), -1).T
    steps = []
    for k, (w, g) in enumerate(zip(*columns, strict=True)):
        whitener = whiteners[k if len(whiteners) > 1 else 0]
        with np.errstate(over="ignore"):  # what an infinite penalty leaves is nothing
            share = 1 / (1 + ridge * whitener.scales**2 / curvature)
        along = share * whitener.to_whitened(g) / curvature + (1 - share) * _whitened(whitener, w)
        steps.append(whitener.to_weights(along))
    return np.stack(steps, axis=-1).reshape(weights.shape)
