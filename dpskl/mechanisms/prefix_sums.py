"""Prefix sums of clipped batch gradients, with correlated noise: one release that is given out step by step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpskl.accounting import GaussianCost
from dpskl.mechanisms.base import Mechanism
from dpskl.mechanisms.correlated_noise import Factorisation
from dpskl.mechanisms.noise import NoiseSource, round_to_grid
from dpskl.mechanisms.sensitivity import contributions, rounding_allowance
from dpskl.records.trainable import Trainable

__all__ = ["ORDERS", "PrefixSums"]

Array = np.ndarray[Any, Any]

ORDERS = ("random", "rows")


@dataclass(frozen=True)
class PrefixSums(Mechanism):
    r"""Give out ``sum_{s <= t} sum_{i in batch s} clip(grad_i(w_s), clip_norm) + (B Z)_t`` for ``t = 1, 2, ...``.

    ``w_1 = 0``, and each next ``w`` is the answer to the prefix sum before. ``Z`` is independent noise of scale
    ``noise_scale``. The whole is one release: it is charged once, before the first step, whether or not later steps are
    used. The noise that links the steps lives in :meth:`release` and nowhere else.

    Parameters
    ----------
    clip_norm : float
        Largest norm of what one record adds to a step, over all weights.
    mu : float
        Gaussian privacy parameter of the whole. ``inf`` for no noise.
    factorisation : Factorisation
        Of the prefix sums of all steps, ``A = B C``.
    batch_size : int
        Records of a step; the last step of a pass has what is left. A pass has ``ceil(n_samples / batch_size)`` steps.
    order : {"random", "rows"}
        Whether places are drawn, once for all passes and without looking at the data, or are the numbers of the rows.
    neighbours : {"add_remove", "replace_one"}
    n_samples, n_features : int
        Public size; where fewer records are held, the places beyond are empty.

    Notes
    -----
    *Theorem.* A record takes part in one step of each pass, always the same. Where one record's terms are zero
    (``add_remove``), row ``t`` of ``C G`` moves by ``sum_j C[t, j] g_j`` over its steps ``j``, with ``||g_j|| <=
    clip_norm``, so ``C G`` moves by at most ``clip_norm`` times the participation norm of the factorisation, whatever
    the weights. Where it is exchanged (``replace_one``), its place is taken by another: the steps are the same and
    ``||g_j|| <= 2 clip_norm``, twice as much. With the noise of ``C G + Z`` at that over ``mu``, the release is
    ``mu``-GDP although later weights depend on earlier answers, since ``C`` looks at no later step (Denisov et al.
    2022; a proof is in docs/theory.md).

    *Preconditions.* Places and sizes are fixed without the data. A record that is absent leaves its place empty: with
    ``order="rows"`` the others keep theirs. With ``order="random"`` the law of who is where is the same whichever row
    was left out, provided that the order is not shown; it is not.

    *Rounding.* In one step the computed sum is off by at most ``depth b 2^-53 clip_norm``, and the running sum by ``T b
    2^-53 clip_norm`` more, for ``T`` steps of ``b`` records. ``C`` takes ``T`` such errors to at most ``T`` times the
    norm of a column.
    """

    clip_norm: float
    mu: float
    factorisation: Factorisation
    batch_size: int
    order: str
    neighbours: str
    n_samples: int
    n_features: int

    theorem = (
        "Gaussian mechanism on a factorisation of prefix sums, adaptive (Denisov et al. 2022); a record has one place "
        "in every pass, and an absent one leaves it empty"
    )

    @property
    def name(self) -> str:  # type: ignore[override]
        n_steps = self.factorisation.n_steps
        return f"correlated Gaussian noise on the prefix sums of {n_steps} clipped batch gradients"

    @property
    def steps_in_pass(self) -> int:
        return -(-self.n_samples // self.batch_size)

    @property
    def sensitivity(self) -> float:
        steps, b = self.factorisation.n_steps, min(self.batch_size, self.n_samples)
        rounding = steps * (rounding_allowance(b, self.n_features) + 2 * steps * b * 2.0**-53)
        norm = self.factorisation.participation_norm(self.steps_in_pass)
        return self.clip_norm * norm * (contributions(self.neighbours) + rounding)

    @property
    def noise_scale(self) -> float:
        return self.sensitivity / self.mu

    @property
    def cost(self) -> GaussianCost:
        return GaussianCost(self.mu)

    def release(self, problem: Trainable, respond: Callable[[Array], Array], noise: NoiseSource) -> Array:
        """Return the last weights.

        Parameters
        ----------
        problem : Trainable
        respond : callable
            Given a noisy prefix sum, it returns the weights of the next step: public, or made of the sums so far.
        noise : NoiseSource
        """
        batches, weights, scale = self._batches(problem.n_samples, noise), problem.zeros(), self.noise_scale
        total = np.zeros_like(weights)

        def draw(count: int) -> Array:
            return noise.normal((count, *total.shape), scale)

        for t, correlated in enumerate(self.factorisation.rows(draw)):
            total += problem.batch(batches[t % len(batches)]).gradient_sum(weights, self.clip_norm)
            weights = respond(round_to_grid(total + correlated, scale))
        return weights

    def _batches(self, n_held: int, noise: NoiseSource) -> list[Array]:
        places = np.arange(self.n_samples)
        if self.order == "random":
            places = np.argsort(noise.standard_exponential(self.n_samples), kind="stable")
        batches = [places[start : start + self.batch_size] for start in range(0, self.n_samples, self.batch_size)]
        # within a batch the order is nobody's, and rows are gathered faster as they lie
        return [np.sort(batch[batch < n_held]) for batch in batches]
