"""Follow the regularised leader on noisy prefix sums of gradients (DP-FTRL)."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt
from typing import Any

import numpy as np

from dpskl.accounting import gaussian_mu
from dpskl.curator import Curator
from dpskl.mechanisms.correlated_noise import BinaryTree, Factorisation, Restarted, SquareRoot, best_square_root
from dpskl.mechanisms.prefix_sums import ORDERS, PrefixSums
from dpskl.records.row_maps import ROW_MAPS
from dpskl.solvers._checks import check_choice, check_count, check_number
from dpskl.solvers.base import Outcome, Plan, PublicFacts, Solver, refuse_pure
from dpskl.solvers.gradient_descent import balanced_time, effective_clip

__all__ = ["FTRL"]

Array = np.ndarray[Any, Any]

_STEPS_IN_PASS = 5
# Momentum remembers a fifth of the steps, but no more than twenty.
_MEMORY = 1 / 5
_LEAST_DECAY = 0.05
_MOST_STEPS = 10_000  # the numbers of a factorisation are found one by one
_MOST_PLACES = 10**8  # in an order of records, which is held in memory
_LARGEST_STEP = 1e50  # beyond, weights could overflow
# A budget far from rounding.
_SAFE = 1 - 1e-12


@dataclass(frozen=True)
class _Leader:
    """What ``run`` needs besides the question; step and penalty are for the mean of the losses of a batch."""

    batch_size: int
    n_steps: int
    step: float
    penalty: float
    momentum: float
    average: bool


class FTRL(Solver):
    r"""Follow the regularised leader: every weight vector is made of one noisy prefix sum of batch gradients.

    Records stand in one order, which is passed through ``max_iter`` times in batches of ``b``. At step ``t`` the
    released sum ``S_t`` of all clipped gradients so far, with correlated noise, gives::

        v <- momentum v + S_t,     u <- momentum u + t,     w <- -(step / b) v / (1 + step penalty u)

    from ``v = u = 0``: the minimiser of ``sum_s momentum^(t-s) (<S_s, w> / b + s penalty ||w||^2 / 2) + ||w||^2 / (2
    step)``, with the ridge ``1/C`` spread over the steps of a pass. Nothing is sampled and no privacy is won by
    sampling: the guarantee holds for any fixed order, which is what one pass over a large file needs.

    Parameters
    ----------
    max_iter : int, default=20
        Number of passes over the records.
    batch_size : int or None, default=None
        Records of a step; more than ``n`` means ``n``. ``None``: a fifth of them, so that the default makes 100 steps.
        Each step is divided by ``batch_size``, also the last of a pass, which may have fewer records.
    step_size : float or None, default=None
        Step on the mean of the losses of a batch. ``None``: what makes the total time ``T step / (1 - momentum)`` of
        ``T`` steps equal to ``700 mu' n / (p row_norm^2)``, ``p`` the number of weights, but at most ``(1 + momentum)``
        over the smoothness of one record and its share of the penalty. It is the rule of
        :class:`~dpskl.solvers.GradientDescent` with ``mu'`` for ``mu``: ``mu`` over the noise of the factorisation
        relative to that of as many full gradients as there are passes, ``sqrt(2) error / max_iter``, where above 1.
    clip_norm : float or None, default=None
        Bound on the norm of one record's gradient. ``None``: the largest norm that a row within ``data_norm`` can have
        times ``mu' n / (40 p)``, at least a third of it. Larger values than that norm are replaced by it.
    momentum : float or None, default=None
        In [0, 1). ``None``: ``1 - 5 / T``, but at most 0.95 and at least 0.
    factorisation : {"square_root", "tree", "honaker"}, default="square_root"
        How the noise of the prefix sums hangs together: by the square root of their matrix, cut to a band, or by a
        binary tree, plain or with Honaker's estimates. See Notes.
    band : int or None, default=None
        ``"square_root"`` only. ``None`` takes what has the least error, among the powers of 2, the steps of a pass and
        the whole; 1 is independent noise in every step. More than there are steps means all.
    restart : bool, default=False
        Begin the noise anew in each pass, as the paper does. With the square root it has more error; trees may gain by
        it where there are few passes or few steps in one.
    order : {"random", "rows"}, default="random"
        Whether the order of the records is drawn, without looking at them, or is that of the rows. With ``"rows"`` the
        guarantee is for neighbours in which all other records keep their row numbers: an absent one leaves a gap.
    iterate : {"average", "last"}, default="average"
        Release the average of the second half of the iterates, or the last one.
    rows : {"fill", "clip", "sphere"}, default="fill"
        The row map (:mod:`dpskl.records.row_maps`). ``"clip"`` scales longer rows down to ``data_norm``, ``"sphere"``
        brings every row, its constant included, to that norm, up or down, and ``"fill"`` does the one after the other.
        Noise is for the longest row that there could be: with the last two no row is shorter.

    Notes
    -----
    *Privacy.* The whole run is one Gaussian release of parameter ``mu``, charged once; see
    :class:`~dpskl.mechanisms.prefix_sums.PrefixSums`. Records take part once in each pass, in the same step of it.
    With ``A`` the matrix of prefix sums and ``A = B C``, the noise scale is ``clip_norm`` times the largest norm of the
    sum of the columns of ``C`` at the steps of one record (twice that for ``replace_one``) over ``mu``, and row ``t``
    of ``B`` says how much of it is in ``S_t``.

    *Error.* The root mean square of the noise in a prefix sum is ``participation norm * sqrt(||B||_F^2 / T) / mu``, in
    units of the clip norm. At ``mu = 1`` for one pass of 100, 1,000 and 10,000 steps: tree 4.72, 7.03, 9.51; Honaker
    3.73, 5.36, 7.13; square root 2.35, 3.09, 3.81; independent noise 7.11, 22.4, 70.7. In ten passes of 10, 100 and
    1,000 steps: tree 18.4, 22.7, 34.6; Honaker 16.8, 20.1, 30.4; square root with a band of one pass 9.6, 12.1, 14.6.
    So the square root is the default.

    *What differs from the paper.* Kairouz et al. (2021, algorithm 1) have trees, and restart them; the square root and
    its band are later work. Their momentum is as above, without a penalty. Without noise and penalty the iterates are
    those of stochastic gradient descent in the same order with heavy-ball momentum; with a penalty and no momentum, of
    its steps ``step / (1 + step penalty t)``. The average of iterates and the rules are ours.

    For a loss steeper in curvature than the Huber hinge with ``h = 1/2`` (and the hinge itself) the step rule takes
    the curvature 1; this affects accuracy only.

    References
    ----------
    Kairouz, McMahan, Song, Thakkar, Thakurta & Xu (2021), ICML. Denisov, McMahan, Rush, Smith & Thakurta (2022),
    NeurIPS. Choquette-Choo, McMahan, Rush & Thakurta (2023), ICML. Fichtenberger, Henzinger & Upadhyay (2023), ICML.
    Kalinin & Lampert (2024), NeurIPS.

    Examples
    --------
    One pass in a hundred steps:

    >>> import numpy as np
    >>> from dpskl import DPLogisticRegression
    >>> from dpskl.solvers import FTRL
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 5000)
    >>> X = rng.normal(size=(5000, 2)) + 2 * y[:, None]
    >>> solver = FTRL(max_iter=1, batch_size=50)
    >>> model = DPLogisticRegression(epsilon=1.0, data_norm=4.0, classes=[0, 1], solver=solver).fit(X, y)
    >>> bool(model.score(X, y) > 0.85)
    True
    """

    name = "ftrl"
    rank = 15

    def __init__(
        self,
        max_iter: int = 20,
        batch_size: int | None = None,
        step_size: float | None = None,
        clip_norm: float | None = None,
        momentum: float | None = None,
        factorisation: str = "square_root",
        band: int | None = None,
        restart: bool = False,
        order: str = "random",
        iterate: str = "average",
        rows: str = "fill",
    ) -> None:
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.step_size = step_size
        self.clip_norm = clip_norm
        self.momentum = momentum
        self.factorisation = factorisation
        self.band = band
        self.restart = restart
        self.order = order
        self.iterate = iterate
        self.rows = rows

    @property
    def goes_by_row_numbers(self) -> bool:
        return bool(self.order == "rows")

    def plan(self, facts: PublicFacts, epsilon: float, delta: float) -> Plan:
        self._check_parameters()
        refuse_pure(self.name, delta)
        mu, n = gaussian_mu(epsilon, delta) * _SAFE, facts.n_samples
        if n > _MOST_PLACES:
            raise ValueError(
                f"n_samples={n} is too large for solver={self.name!r}, which keeps an order of that many places, those "
                f"of records that are not there included; declare at most {_MOST_PLACES:g}, or take solver='gd'"
            )
        batch_size = ceil(n / _STEPS_IN_PASS) if self.batch_size is None else min(self.batch_size, n)
        steps_in_pass = -(-n // batch_size)
        factorisation = self._factorisation(steps_in_pass)
        felt = mu / max(1.0, sqrt(2) * factorisation.error(steps_in_pass) / self.max_iter)
        loss = self.problem_loss(facts)
        largest = loss.gradient_bound(facts.n_outputs) * facts.row_norm
        clip_norm = effective_clip(self.clip_norm, largest, facts, felt)
        size = facts.neighbours, n, facts.n_features
        question = PrefixSums(clip_norm, mu, factorisation, batch_size, self.order, *size)
        leader = self._leader(facts, felt, batch_size, factorisation.n_steps, steps_in_pass)
        return Plan(((question, 1),), 1 / facts.C, leader)

    def _factorisation(self, steps_in_pass: int) -> Factorisation:
        total = steps_in_pass * self.max_iter
        if total > _MOST_STEPS:
            raise ValueError(
                f"max_iter={self.max_iter} passes of {steps_in_pass} steps are {total} steps, more than the "
                f"{_MOST_STEPS} that can be planned; lower max_iter or raise batch_size={self.batch_size!r}"
            )
        n_steps = steps_in_pass if self.restart else total
        made: Factorisation
        if self.factorisation != "square_root":
            made = BinaryTree(n_steps, refined=self.factorisation == "honaker")
        elif self.band is not None:
            made = SquareRoot(n_steps, min(self.band, n_steps))
        else:
            made = best_square_root(n_steps, steps_in_pass)
        return Restarted(total, made) if self.restart else made

    def _leader(self, facts: PublicFacts, felt: float, batch_size: int, n_steps: int, steps_in_pass: int) -> _Leader:
        momentum = self.momentum
        if momentum is None:
            momentum = 1 - min(max(1 / (_MEMORY * n_steps), _LEAST_DECAY), 1.0)
        smoothness = min(self.problem_loss(facts).curvature_bound, 1.0) * facts.row_norm**2
        penalty = 1 / facts.C / (batch_size * steps_in_pass)
        cap = (1 + momentum) / (smoothness + penalty)
        step = self.step_size
        if step is None:
            step = min(balanced_time(facts, felt) * (1 - momentum) / n_steps, cap)
        if step * facts.row_norm**2 > _LARGEST_STEP:
            raise ValueError(f"step_size={step:g} times the squared row norm must not exceed {_LARGEST_STEP:g}")
        return _Leader(batch_size, n_steps, step, penalty, momentum, self.iterate == "average")

    def run(self, curator: Curator, plan: Plan) -> Outcome:
        ((question, _),) = plan.questions
        assert isinstance(question, PrefixSums)
        leader: _Leader = plan.settings
        velocity = total = curator.zeros()
        reach, t = 0.0, 0

        def follow(prefix: Array) -> Array:
            nonlocal velocity, total, reach, t
            t += 1
            velocity = leader.momentum * velocity + prefix
            reach = leader.momentum * reach + t
            weights = -leader.step / leader.batch_size / (1 + leader.step * leader.penalty * reach) * velocity
            if t > leader.n_steps // 2:
                total = total + weights
            return weights

        weights = curator.ask(question, follow)
        weights = total / (t - t // 2) if leader.average else weights
        return Outcome(weights, t, clip_norm=question.clip_norm)

    def _check_parameters(self) -> None:
        check_count("max_iter", self.max_iter)
        check_count("batch_size", self.batch_size, optional=True)
        check_count("band", self.band, optional=True)
        for name in ("step_size", "clip_norm"):
            check_number(name, getattr(self, name), optional=True)
        check_number("momentum", self.momentum, 0, 1, closed=True, optional=True)
        check_choice("factorisation", self.factorisation, ("square_root", "tree", "honaker"))
        check_choice("order", self.order, ORDERS)
        check_choice("iterate", self.iterate, ("average", "last"))
        check_choice("rows", self.rows, ROW_MAPS)
        if not isinstance(self.restart, bool):
            raise ValueError(f"restart={self.restart!r} must be True or False")
        if self.band is not None and self.factorisation != "square_root":
            raise ValueError(
                f"band={self.band!r} has no meaning for factorisation={self.factorisation!r}; leave it at None"
            )
