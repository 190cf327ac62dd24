"""Adaptive descent whose preconditioner is made of earlier releases (DP^2)."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from dpskl.curator import Curator
from dpskl.mechanisms.gradient import GaussianGradient
from dpskl.mechanisms.scaled_gradient import GradientPair, ScaledGradient
from dpskl.solvers._batches import Batches, Questions, Step, on_samples
from dpskl.solvers._checks import check_choice, check_count, check_number, check_step
from dpskl.solvers.adam import Memory, SquaredGradients, check_subtraction
from dpskl.solvers.base import Plan, PublicFacts
from dpskl.solvers.sgd import SGD, HeavyBall

__all__ = ["DelayedPreconditioner"]

Array = np.ndarray[Any, Any]

_VARIANTS = ("precondition_then_noise", "noise_then_precondition", "extra_noise")
_BETAS = {"rmsprop": 0.9, "adam": 0.999, "adagrad": 1.0}
_PHASES = 30  # cycles of the default delay, about half of that
_STABILITY = 1.0  # in units of what noise alone adds to the root of the moment
_LEAST_STABILITY = 1e-8  # in units of the clip norm, where there is no noise
_STABILITIES = 1e-12, 1e12


class _Preconditioner:
    """The scales ``1 / (sqrt(v) + stability)``, renewed from means of released gradients.

    Attributes
    ----------
    scales : ndarray of the shape of the weights, read-only
    size : float
        Their root mean square.
    """

    def __init__(self, memory: Memory, stability: float | None, clip_norm: float, floor: float | None) -> None:
        self._squares = SquaredGradients(memory)
        self._stability = None if stability is None else stability * clip_norm
        self._least = _LEAST_STABILITY * clip_norm
        self._floor = floor
        self._total: Any = 0.0
        self._count = 0
        self.scales: Array = np.ones(1)
        self.size = 1.0

    def start(self, weights: Array) -> None:
        """Begin with scales of 1, of the shape of ``weights``."""
        self._keep(np.ones_like(weights))

    def _keep(self, scales: Array) -> None:
        scales.flags.writeable = False
        self.scales, self.size = scales, float(np.sqrt(np.mean(np.square(scales))))

    def add(self, gradient: Array) -> None:
        """Take in one mean gradient for the next renewal."""
        self._total = self._total + gradient
        self._count += 1

    def renew(self, noise: float) -> None:
        """Make new scales of the mean of the gradients since the last renewal, each with noise of this deviation."""
        self._squares.add(self._total / self._count, noise / sqrt(self._count))
        self._total, self._count = 0.0, 0
        stability = self._stability
        if stability is None:
            stability = max(_STABILITY * self._squares.noise, self._least)
        self._keep(1 / (self._squares.root(self._floor) + stability))


class DelayedPreconditioner(SGD):
    r"""DP^2: phases of SGD and of adaptive steps, whose scales are made of the gradients of the last phase of SGD.

    ``s1`` steps of :class:`SGD` release noisy mean gradients, whose mean is ``G``; then ``s2`` steps are adaptive::

        v <- beta v + (1 - beta) G^2           a = 1 / (sqrt(v) + stability)
        u <- (sum_{i in B_t} clip(a grad_i(w), clip_norm_2) + N(0, sigma^2 clip_norm_2^2 I)) / (rate n)
        w <- w - step_2 u

    and so on, entry by entry. The scales come first, then the clip, then the noise: it is the same in every entry and
    is not amplified where a scale is large. ``a`` is delayed by up to ``s1 + s2`` steps and costs no budget.

    Parameters
    ----------
    rule : {"rmsprop", "adagrad", "adam"}, default="rmsprop"
        What ``v`` is of the squares: ``beta v + (1 - beta) G^2``, their sum, or the first divided by what the weights
        of all squares so far sum to, with ``beta = 0.999``. The first moment of Adam is ``momentum``, which all have.
    s1, s2 : int or None, default=None
        Steps of a phase of SGD and of an adaptive one. ``s1=None``: a tenth of ``max_iter``, at least 1; ``s2=None``:
        ``s1``. With ``s1 >= max_iter`` it is :class:`SGD`.
    variant : {"precondition_then_noise", "noise_then_precondition", "extra_noise"}, default="precondition_then_noise"
        The order above, or one of the two ablations of the paper: ``a`` times a noisy gradient that was clipped before;
        or no phases, but two gradients from every batch, one for ``G`` and one for the step, which share the budget of
        a step, and scales that are renewed every ``s1`` steps (1 until then).
    rate, batch_size, max_iter, step_size, clip_norm, momentum, iterate, rows
        As for :class:`SGD`; ``step_size`` and ``clip_norm`` are those of its phases.
    step_size_2 : float or None, default=None
        Step of the adaptive phases. ``None``: ``step_size clip_norm / clip_norm_2``, at which a step has as much noise
        as one of SGD.
    clip_norm_2 : float or None, default=None
        Bound on the norm of one record's scaled gradient. ``None``: ``clip_norm`` times the root mean square of the
        scales. With the two rules equal scales, whatever their size, make it :class:`SGD`.
    beta : float or None, default=None
        In [0, 1). ``None``: 0.9, and 0.999 for ``"adam"``; ``"adagrad"`` has none.
    subtract_noise : bool, default=False
        Take the known variance of the noise of ``G`` out of ``v``.
    floor : float, default=0.2
        What is left is at least this share of what the noise adds to ``v``, in (0, 1].
    stability : float or None, default=None
        What is added to the root, in units of ``clip_norm``, between 1e-12 and 1e12. ``None``: the root of what the
        noise of ``G`` alone adds to ``v``, so that scales differ by what stands above it.

    Notes
    -----
    *Privacy.* Each step is one Gaussian mechanism of the same multiplier on its own Poisson sample, as for
    :class:`SGD`, so that both kinds of phases cost the same: a record's scaled gradient is clipped before noise is
    added (:class:`~dpskl.mechanisms.scaled_gradient.ScaledGradient`), and scales are made of released gradients. In
    ``"extra_noise"`` a step is *one* release of two sums of one sample
    (:class:`~dpskl.mechanisms.scaled_gradient.GradientPair`), each with ``sqrt(2)`` times the noise.

    *Time.* An adaptive step reads the batch three times where SGD does twice, since ``||a grad_i||`` asks for
    ``sum_j (a_j x_ij)^2``; with ``s2 rate > 1`` these are found once in a phase for all records.

    *Of the paper:* algorithm 1 with option 2, the two ablations, other adaptive rules, the subtraction of the noise.
    *Not as in it:* samples are Poisson, which its accounting takes for granted; momentum and the average of iterates;
    the floor; all that ``None`` stands for; the penalty, a proximal step in the metric of the scales, so that ``C``
    keeps its meaning; ``"extra_noise"`` renews its scales from ``s1`` gradients each time, not from one at first.

    References
    ----------
    Li, Zaheer, Liu, Kale, McMahan & Smith (2023), "Differentially private adaptive optimization with delayed
    preconditioners", ICLR, algorithm 1 and section 5.

    Examples
    --------
    >>> import numpy as np
    >>> from dpskl import DPLogisticRegression
    >>> from dpskl.solvers import DelayedPreconditioner
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 2000)
    >>> X = rng.normal(size=(2000, 2)) + 2 * y[:, None]
    >>> solver = DelayedPreconditioner(s1=10, s2=20)
    >>> model = DPLogisticRegression(epsilon=1.0, data_norm=4.0, classes=[0, 1], solver=solver)
    >>> bool(model.fit(X, y).score(X, y) > 0.85)
    True
    """

    name = "dp2"
    rank = 17

    def __init__(
        self,
        rule: str = "rmsprop",
        s1: int | None = None,
        s2: int | None = None,
        variant: str = "precondition_then_noise",
        rate: float | None = None,
        batch_size: int | None = None,
        max_iter: int | None = None,
        step_size: float | None = None,
        step_size_2: float | None = None,
        clip_norm: float | None = None,
        clip_norm_2: float | None = None,
        momentum: float = 0.95,
        beta: float | None = None,
        subtract_noise: bool = False,
        floor: float = 0.2,
        stability: float | None = None,
        iterate: str = "average",
        rows: str = "fill",
    ) -> None:
        self.rule = rule
        self.s1 = s1
        self.s2 = s2
        self.variant = variant
        self.rate = rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.step_size = step_size
        self.step_size_2 = step_size_2
        self.clip_norm = clip_norm
        self.clip_norm_2 = clip_norm_2
        self.momentum = momentum
        self.beta = beta
        self.subtract_noise = subtract_noise
        self.floor = floor
        self.stability = stability
        self.iterate = iterate
        self.rows = rows

    def _phases(self, n_steps: int) -> tuple[int, int]:
        s1 = max(1, n_steps // _PHASES) if self.s1 is None else self.s1
        return s1, s1 if self.s2 is None else self.s2

    def questions(self, gradient: GaussianGradient, facts: PublicFacts, rate: float, n_steps: int) -> Questions:
        if self.step_size_2 is not None:
            longest = self.step_size_2 * (self.clip_norm_2 or 1 / _STABILITIES[0])
            check_step(longest, facts.row_norm, 1, "step_size_2 clip_norm_2")
        size = facts.neighbours, facts.n_samples, facts.n_features, facts.n_outputs
        if self.variant == "extra_noise":
            return ((on_samples(GradientPair(gradient.mu, gradient.clip_norm, *size), rate), n_steps),)
        if self.variant == "noise_then_precondition":
            return super().questions(gradient, facts, rate, n_steps)
        s1, s2 = self._phases(n_steps)
        full, rest = divmod(n_steps, s1 + s2)
        plain = full * s1 + min(rest, s1)
        scaled = ScaledGradient(gradient.mu, *size, keeps_norms=s2 * rate > 1)
        both = (on_samples(gradient, rate), plain), (on_samples(scaled, rate), n_steps - plain)
        return both[: 1 + (plain < n_steps)]

    def stepper(self, curator: Curator, plan: Plan) -> Step:
        batches: Batches = plan.settings
        floor = self.floor if self.subtract_noise else None
        preconditioner = _Preconditioner(self._memory, self.stability, batches.clip_norm, floor)
        made = self._pair_stepper if self.variant == "extra_noise" else self._phase_stepper
        return made(curator, plan, preconditioner, HeavyBall(self.momentum))

    def _phase_stepper(self, curator: Curator, plan: Plan, preconditioner: _Preconditioner, ball: HeavyBall) -> Step:
        batches: Batches = plan.settings
        s1, s2 = self._phases(plan.n_questions)
        plain, scaled = plan.questions[0][0], plan.questions[-1][0]
        t = 0

        def step(weights: Array) -> Array:
            nonlocal t
            place, t = t % (s1 + s2), t + 1
            if place < s1:
                gradient = curator.ask(plain, weights) / batches.size
                preconditioner.add(gradient)
                if place == s1 - 1:
                    preconditioner.renew(batches.noise)
                return ball.move(weights, gradient, batches.step, batches.penalty)
            scales = preconditioner.scales
            clip_norm, length = self._second(batches, preconditioner)
            if self.variant == "noise_then_precondition":
                direction = scales * curator.ask(plain, weights) / batches.size
            else:
                direction = clip_norm * curator.ask(scaled, scales, clip_norm, weights) / batches.size
            return ball.move(weights, direction, length, scales * batches.penalty)

        return step

    def _pair_stepper(self, curator: Curator, plan: Plan, preconditioner: _Preconditioner, ball: HeavyBall) -> Step:
        batches: Batches = plan.settings
        s1, _ = self._phases(plan.n_questions)
        ((pair, _),) = plan.questions
        preconditioner.start(curator.zeros())
        t = 0

        def step(weights: Array) -> Array:
            nonlocal t
            t += 1
            scales = preconditioner.scales
            clip_norm, length = self._second(batches, preconditioner)
            plain, scaled = curator.ask(pair, scales, clip_norm, weights)
            preconditioner.add(batches.clip_norm * plain / batches.size)
            if t % s1 == 0:
                preconditioner.renew(sqrt(2) * batches.noise)
            return ball.move(weights, clip_norm * scaled / batches.size, length, scales * batches.penalty)

        return step

    def _second(self, batches: Batches, preconditioner: _Preconditioner) -> tuple[float, float]:
        """Return the clip norm and the step of adaptive steps at the present scales."""
        clip_norm = batches.clip_norm * preconditioner.size if self.clip_norm_2 is None else self.clip_norm_2
        step = batches.step * batches.clip_norm / clip_norm if self.step_size_2 is None else self.step_size_2
        return clip_norm, step

    @property
    def _memory(self) -> Memory:
        beta = _BETAS[self.rule] if self.beta is None else self.beta
        return Memory(0.0, beta, 1.0 if self.rule == "adagrad" else 1 - beta, self.rule == "adam")

    def check_parameters(self) -> None:
        super().check_parameters()
        check_choice("rule", self.rule, tuple(_BETAS))
        check_choice("variant", self.variant, _VARIANTS)
        for name in ("s1", "s2"):
            check_count(name, getattr(self, name), optional=True)
        for name in ("step_size_2", "clip_norm_2"):
            check_number(name, getattr(self, name), optional=True)
        check_number("beta", self.beta, 0, 1, closed=True, optional=True)
        if self.beta is not None and self.rule == "adagrad":
            raise ValueError(f"beta={self.beta!r} has no meaning for rule='adagrad'; leave it at None")
        check_subtraction(self.subtract_noise, self.floor)
        check_number("stability", self.stability, *_STABILITIES, optional=True)
