"""Frank and Wolfe's method: a sparse mixture of vertices of an L1 ball, each chosen by a private selection."""

from __future__ import annotations

from dataclasses import dataclass
from math import isinf, sqrt

from dpskl.accounting import bounded_range_epsilon
from dpskl.curator import Curator
from dpskl.mechanisms.vertex_selection import VertexSelection
from dpskl.records.row_maps import ROW_MAPS
from dpskl.solvers._checks import check_choice, check_count, check_number
from dpskl.solvers._selections import capacity_for, rounds_for, selection_capacity
from dpskl.solvers.base import Outcome, Plan, PublicFacts, Solver

__all__ = ["FrankWolfe"]

# The constants of the default rules.
_MOST_ROUNDS = 300
_FEW_ROUNDS = 10
_PULL = 0.06
_CLIP_SHARE = 1 / 10
_RADIUS_SHARE = 1 / 3  # of the radius to the number of rounds, in units of 1 / data_norm
_LARGEST_SCORE = 1e6  # beyond, rounding of scores is as large as losses


@dataclass(frozen=True)
class _Settings:
    """What ``run`` needs besides the question."""

    radius: float
    shares: tuple[float, ...]


class FrankWolfe(Solver):
    r"""Start from zero weights and move, in each round, towards the vertex of an L1 ball that lowers the loss most.

    The weights, that of the intercept included, stay in the ball ``||w||_1 <= radius``, whose vertices are the ``2 d``
    points ``+-radius e_j``. Round ``t = 0, 1, ...`` chooses one of them, ``v``, with noise, by the slope of the
    objective along it, and replaces ``w`` by ``(1 - s) w + s v`` with ``s = 2 / (t + 2)``. After ``T`` rounds at most
    ``T`` weights are not zero.

    Parameters
    ----------
    max_iter : int or None, default=None
        Number of rounds ``T``. ``None``: ``0.7 (q / clip)^(2/3)``, between 1 and 300, where ``clip`` is in units of
        ``data_norm`` and ``q = n sqrt(8 rho) / (2 c log m)``: ``m`` the number of vertices, ``c`` 1 for add_remove and
        2 for replace_one, ``rho`` the zero-concentrated budget. The noise of a choice grows with the square root of
        ``T`` and the distance that is left shrinks with it, which this balances. No more than the larger of 10 and
        ``(0.06 q)^2``, up to which the largest noise of ``m`` vertices is about 6 %, or less, of what the records
        can pull together. With ``delta=0`` noise grows with ``T`` itself: ``sqrt(q / clip)`` and ``0.06 q`` with
        ``q = n epsilon / (2 c log m)``.
    radius : float or None, default=None
        Radius of the ball; a score is at most ``radius`` times the largest entry of its row. ``None``: ``T / (3
        data_norm)``, for which the last step moves one weight by ``2 / (3 data_norm)``: a larger budget affords both
        a larger ball and a finer mixture. No more than where the penalty alone holds the minimum: ``||w||_1`` there is
        at most ``C n G sqrt(d)``, with ``G`` the largest norm of a record's gradient and ``d`` the number of weights.
    clip : float or None, default=None
        Largest absolute entry of a row that counts where vertices are chosen. ``None``: ``data_norm`` times the
        largest of 1/10, ``1/sqrt(d)`` and what the budget allows at 300 rounds, so that without noise nothing is
        clipped. Where all entries of a row that are not zero exceed it, as in a one-hot row, they count alike. Larger
        values than any entry can reach are replaced.
    rows : {"fill", "clip", "sphere"}, default="fill"
        The row map (:mod:`dpskl.records.row_maps`). ``"clip"`` scales longer rows down to ``data_norm``, ``"sphere"``
        brings every row, its constant included, to that norm, up or down, and ``"fill"`` does the one after the other.

    Notes
    -----
    *Privacy.* Released are the chosen vertices, and nothing else. ``delta > 0``: exponential mechanism by Gumbel noise,
    bounded range, composed by Renyi divergences. ``delta=0``: permute-and-flip, whose epsilons add up. Rows are
    bounded in the Euclidean norm and entries are clipped, so one record moves differences of scores by ``2 clip``, or
    ``4 clip`` where it is replaced; nothing is asked of the loss, and the hinge works (of its slopes at the kink one is
    taken, so that it need not converge).

    *Time and memory.* A round is one product ``X^T r`` and one column of ``X``, whatever the number of vertices. CSR is
    never made dense: memory is proportional to what is stored and to ``n + d``.

    *Penalty.* The objective is ``sum_i l_i(w) + ||w||^2 / (2 C)`` within the ball. Its second term enters the slopes
    after the clip, and is public. With the usual ``C`` it is the ball that holds the weights back; a small ``C``
    shrinks the default ball.

    *Intercept.* It is one more coordinate, of a column with the value ``0.3 data_norm`` before the row map: it competes
    for vertices, is clipped, penalised and within the ball like the others. Where one class is rare it is chosen often.

    More than two classes share one matrix of weights within one ball, with ``2 d K`` vertices.

    *Of the papers:* the method and its steps (Jaggi 2013, algorithm 1) and a private choice among the vertices of a
    polytope (Talwar, Thakurta & Zhang 2015). *Not as in the latter:* it bounds rows in the maximum norm and adds
    Laplace noise to every score, composed by the advanced theorem; the choice here costs at most ``E^2/8`` of
    zero-concentrated privacy for a range ``E``. Clipped entries bias the choice where they differ within a column; its
    promise of a distance from the minimum is for a clip that does nothing.

    References
    ----------
    Frank & Wolfe (1956), Naval Research Logistics Quarterly. Jaggi (2013), ICML. Talwar, Thakurta & Zhang (2015),
    NeurIPS (nearly optimal private LASSO). Dong, Durfee & Rogers (2020), ICML. McKenna & Sheldon (2020), NeurIPS.
    """

    name = "frank_wolfe"
    rank = 16
    is_pure = True

    def __init__(
        self,
        max_iter: int | None = None,
        radius: float | None = None,
        clip: float | None = None,
        rows: str = "fill",
    ) -> None:
        self.max_iter = max_iter
        self.radius = radius
        self.clip = clip
        self.rows = rows

    def plan(self, facts: PublicFacts, epsilon: float, delta: float) -> Plan:
        check_count("max_iter", self.max_iter, optional=True)
        check_number("radius", self.radius, optional=True)
        check_number("clip", self.clip, optional=True)
        check_choice("rows", self.rows, ROW_MAPS)
        capacity = selection_capacity(facts, epsilon, delta, 2 * facts.n_weights * facts.n_outputs)
        clip = self._clip(facts, capacity, delta)
        rounds = self._rounds(capacity, clip / facts.data_norm, delta)
        law = "exponential" if delta == 0 else "gumbel"
        each = bounded_range_epsilon(epsilon, delta, rounds)
        question = VertexSelection(clip, each, law, facts.neighbours, facts.n_samples, facts.n_features)
        settings = _Settings(self._radius(facts, rounds), tuple(2 / (t + 2) for t in range(rounds)))
        return Plan(((question, rounds),), 1 / facts.C, settings, along_path=True)

    def _clip(self, facts: PublicFacts, capacity: float, delta: float) -> float:
        # what is left of the budget beyond the largest number of rounds pays for less clipping
        affordable = capacity / capacity_for(_MOST_ROUNDS, delta)
        default = facts.data_norm * max(_CLIP_SHARE, 1 / sqrt(facts.n_features), affordable)
        return min(default if self.clip is None else float(self.clip), max(facts.data_norm, facts.intercept))

    def _rounds(self, capacity: float, clip: float, delta: float) -> int:
        if self.max_iter is not None:
            return self.max_iter
        if isinf(capacity):
            return _MOST_ROUNDS
        # more, and the largest noise of all vertices hides a column with a slope of n clip times this
        visible = (_PULL * capacity) ** (1 if delta == 0 else 2)
        return round(max(1, min(rounds_for(capacity / clip, delta), max(visible, _FEW_ROUNDS), _MOST_ROUNDS)))

    def _radius(self, facts: PublicFacts, rounds: int) -> float:
        if self.radius is None:
            slope = self.problem_loss(facts).gradient_bound(facts.n_outputs) * facts.row_norm
            farthest = facts.C * facts.n_samples * slope * sqrt(facts.n_weights * facts.n_outputs)
            return min(_RADIUS_SHARE * rounds / facts.data_norm, farthest)
        largest = max(facts.data_norm, facts.intercept)
        if self.radius * largest > _LARGEST_SCORE:
            raise ValueError(
                f"radius={self.radius:g} allows scores of up to {self.radius * largest:g}; with data_norm="
                f"{facts.data_norm:g} it must not exceed {_LARGEST_SCORE / largest:g}"
            )
        return float(self.radius)

    def run(self, curator: Curator, plan: Plan) -> Outcome:
        settings: _Settings = plan.settings
        ((question, _),) = plan.questions
        weights = curator.zeros()
        for share in settings.shares:
            weights = curator.ask(question, weights, share, settings.radius, plan.ridge)
        return Outcome(weights, len(settings.shares))
