r"""Private selection: the index of a smallest score, with noise on every score (exponential mechanism).

Released are indices only. Let ``s`` be the scores of ``m`` candidates, the same public list for neighbouring data
sets, and let the *difference* of any two scores move by at most ``spread`` between them:

    max_j (s'_j - s_j) - min_j (s'_j - s_j) <= spread.

*Gumbel noise*: ``argmin_j (s_j - (spread / epsilon) g_j)`` has the law ``P(j) ~ exp(-epsilon s_j / spread)`` exactly.
With ``v_j = epsilon (s'_j - s_j) / spread`` the log ratio of the two probabilities of ``j`` is ``-v_j`` plus a
constant that is the same for all ``j``, so the privacy loss lies in an interval of length ``epsilon``: it is
epsilon-bounded-range (Durfee & Rogers 2019; Dong, Durfee & Rogers 2020), which implies epsilon-DP and
``epsilon^2/8``-zCDP (Cesar & Rogers 2021). Nothing is asked of the signs of ``s' - s``.

*Exponential noise*: ``argmin_j (s_j - (spread / epsilon) e_j)`` is permute-and-flip (McKenna & Sheldon 2020; Ding,
Kifer, Steinke et al. 2021). It is epsilon-DP: given the noise of the others, ``j`` wins iff ``e_j`` exceeds some
``t``, which moves by at most ``epsilon``, and ``exp(-max(t, 0))`` then moves by a factor of at most ``exp(epsilon)``.
A common shift of all scores changes nothing, hence ``spread`` and not twice the largest change. Its expected score is
never worse than that of Gumbel noise, and at best its excess is half as large; but it is *not* bounded-range, and
composes as pure epsilons do.

**How large is the spread?** Where every score is a sum over records of a number in ``[low, high]``, one record more
or less adds such a vector: ``spread = high - low`` for "add_remove" and twice that for "replace_one". Losses clipped
to ``[0, cap]``: ``cap`` and ``2 cap``. Changes of the loss clipped to ``[-cap, cap]``: ``2 cap`` and ``4 cap``.
Penalties are public and count for nothing. The sums are computed in floats: :func:`selection_spread` adds what rounding
can move, :func:`penalty_rounding` what it can move where penalties are large.

**The noise must be taken from the scores, never added.** ``argmin_j (s_j + e_j)`` keeps the law's light side where
the heavy one is needed: with ``m`` equal scores, raising one of them loses ``(m - 1) epsilon``.

**Floats.** The noise is as fine near 0 as far out (see :mod:`~dpskl.mechanisms.noise`), and no low bit is released,
only an index, so there is no release grid and nothing is permuted. Adding the noise rounds each noisy score once
more, by at most 2^-53 of the sum and of the noise; :func:`selection_spread` holds the former, and the latter is below
1e-13 of a noise scale. Ties, of probability near 0 unless there is no noise, go to the lowest index. Both tails of a
noise variable end at a probability of 2.7e-20, so a candidate more than 48 noise scales behind cannot be drawn: this
adds at most 1e-19 for each candidate to delta, also where delta is stated as 0.
"""

from __future__ import annotations

from math import inf, isnan
from typing import Any

import numpy as np

from dpskl.accounting import BoundedRangeCost, Cost, PureCost, compose
from dpskl.mechanisms.base import Mechanism
from dpskl.mechanisms.noise import NoiseSource
from dpskl.mechanisms.sensitivity import contributions, rounding_allowance

__all__ = [
    "SELECTION_LAWS",
    "ClippedSelection",
    "penalty_rounding",
    "select_smallest",
    "select_smallest_few",
    "selection_cost",
    "selection_spread",
]

Array = np.ndarray[Any, Any]

SELECTION_LAWS = ("gumbel", "exponential")


def selection_spread(low: float, high: float, neighbours: str, n_samples: int, n_features: int) -> float:
    """Return by how much differences of scores can move, for scores that are float64 sums over records.

    Parameters
    ----------
    low, high : float
        What one record adds to any score lies in ``[low, high]``. It adds nothing where it is absent, so both
        ends may have the same sign.
    neighbours : {"add_remove", "replace_one"}
    n_samples, n_features : int
        Public size, for the rounding of sums of ``n_samples`` terms made by :class:`~dpskl.records.problem.Problem`.

    Returns
    -------
    float
        ``high - low`` times the number of records that differ, and an allowance for rounding: four float sums, two
        scores on two data sets, each off by at most ``depth 2^-53 n max(|low|, |high|)``.

    Examples
    --------
    >>> round(selection_spread(0.0, 1.0, "add_remove", 1000, 10), 6)
    1.0
    >>> round(selection_spread(-0.5, 0.5, "replace_one", 1000, 10), 6)
    2.0
    """
    if not low <= high:
        raise ValueError(f"low={low!r} must not exceed high={high!r}")
    rounding = 2 * rounding_allowance(n_samples, n_features)
    return ((high - low) * contributions(neighbours) + max(abs(low), abs(high)) * rounding) * (1 + 1e-12)


def penalty_rounding(penalties: Array) -> float:
    """Return what must be added to the spread where public numbers are added to the scores.

    They cancel in differences between neighbours, but the float sums with them and then with the noise are rounded, for
    two scores on two data sets: eight times half a unit in the last place.
    """
    return 2.0**-50 * float(np.abs(penalties).max(initial=0.0))


def selection_cost(epsilon: float, law: str = "gumbel", count: int = 1) -> Cost:
    """Return the cost of one call of :func:`select_smallest_few` (``count=1``: of :func:`select_smallest`).

    Examples
    --------
    >>> selection_cost(0.5)
    BoundedRangeCost(epsilon=0.5)
    >>> selection_cost(0.5, "exponential")
    PureCost(epsilon=0.5)
    """
    if law not in SELECTION_LAWS:
        raise ValueError(f"law={law!r} must be 'gumbel' or 'exponential'")
    return compose([(BoundedRangeCost(epsilon) if law == "gumbel" else PureCost(epsilon), count)])


class ClippedSelection(Mechanism):
    """A choice by scores to each of which a record adds a number in ``[-clip, clip]``, in a unit of the release.

    Parameters
    ----------
    clip : float
    epsilon : float
        Budget of one choice; ``inf`` for no noise.
    law : {"gumbel", "exponential"}
    neighbours : {"add_remove", "replace_one"}
    n_samples, n_features : int
    """

    clip: float
    epsilon: float
    law: str
    neighbours: str
    n_samples: int
    n_features: int

    @property
    def theorem(self) -> str:  # type: ignore[override]
        if self.law == "gumbel":
            return "exponential mechanism by Gumbel noise, bounded range (Dong, Durfee & Rogers 2020)"
        return "permute-and-flip by exponential noise (McKenna & Sheldon 2020; Ding et al. 2021)"

    @property
    def sensitivity(self) -> float:
        return selection_spread(-self.clip, self.clip, self.neighbours, self.n_samples, self.n_features)

    @property
    def noise_scale(self) -> float:
        return self.sensitivity / self.epsilon

    @property
    def cost(self) -> Cost:
        return selection_cost(self.epsilon, self.law)


def select_smallest(scores: Array, spread: float, epsilon: float, noise: NoiseSource, law: str = "gumbel") -> int:
    r"""Return the index of a small score, at the cost ``selection_cost(epsilon, law)``.

    Parameters
    ----------
    scores : ndarray of shape (m,)
        Finite, at least one. Smaller is better; negate what is to be large.
    spread : float
        Largest change, between neighbours, of a difference of two scores; see the head of this module. 0 where the
        data have no influence.
    epsilon : float
        Budget of this selection, positive; ``inf`` gives the lowest index of the smallest score.
    noise : NoiseSource
    law : {"gumbel", "exponential"}, default="gumbel"
        Exponential mechanism, which composes better, or permute-and-flip, which chooses better under a pure budget.

    Returns
    -------
    int

    Notes
    -----
    The expected excess over the smallest score is at most ``(spread / epsilon) log(m)``, for both laws
    (McKenna & Sheldon 2020).

    Examples
    --------
    >>> import numpy as np
    >>> from dpskl.mechanisms.noise import make_noise
    >>> select_smallest(np.array([3.0, 1.0, 1.0]), 1.0, np.inf, make_noise(None))
    1
    """
    return select_smallest_few(scores, 1, spread, epsilon, noise, law)[0]


def select_smallest_few(
    scores: Array, count: int, spread: float, epsilon: float, noise: NoiseSource, law: str = "gumbel"
) -> list[int]:
    """Return the indices of ``count`` small scores, the best noisy one first.

    With Gumbel noise, taking the best few of *one* noisy list has the law of ``count`` selections in turn, each among
    the candidates that are left (Durfee & Rogers 2019, lemma 4.2): the cost is that of ``count`` selections. With
    exponential noise this is not so, and noise is drawn anew for each.

    Parameters
    ----------
    scores, spread, epsilon, noise, law
        As for :func:`select_smallest`; ``epsilon`` is the budget of each selection.
    count : int
        Between 1 and the number of candidates.

    Returns
    -------
    list of int
        Distinct, at the cost ``selection_cost(epsilon, law, count)``.
    """
    scores = np.asarray(scores, dtype=np.float64)
    if scores.ndim != 1 or not 1 <= count <= len(scores):
        raise ValueError(f"count={count!r} must lie between 1 and the number of scores, shape {scores.shape}")
    if isnan(epsilon) or epsilon <= 0:
        raise ValueError(f"epsilon={epsilon!r} must be positive, or inf for no noise")
    if not 0 <= spread < inf:
        raise ValueError(f"spread={spread!r} must be a finite number of at least 0; bound what one record adds")
    if law not in SELECTION_LAWS:
        raise ValueError(f"law={law!r} must be 'gumbel' or 'exponential'")
    scale = spread / epsilon
    if scale == 0:
        return _lowest(scores, count)
    if law == "gumbel":
        noisy = scores - noise.gumbel(len(scores), scale)
        return _lowest(noisy, count)
    chosen: list[int] = []
    for _ in range(count):
        noisy = scores - scale * noise.standard_exponential(len(scores))
        noisy[chosen] = inf
        chosen.append(int(np.argmin(noisy)))
    return chosen


def _lowest(values: Array, count: int) -> list[int]:
    """Return the places of the ``count`` smallest values, the first of equal ones first."""
    if count == 1:  # a million candidates are looked through faster than sorted
        return [int(np.argmin(values))]
    return [int(j) for j in np.argsort(values, kind="stable")[:count]]
