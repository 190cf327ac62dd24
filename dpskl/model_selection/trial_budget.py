"""What a private search may spend on a trial, so that the whole of it stays within its budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from dpskl.accounting import Cost, GaussianCost, SelectionCost, compose, worst_cost
from dpskl.accounting._numeric import SMALLEST_EPSILON, smallest_true
from dpskl.accounting.words import at_most
from dpskl.mechanisms.base import ReleasePart
from dpskl.mechanisms.noisy_count import NoisyHistogram
from dpskl.mechanisms.noisy_score import NoisyScore
from dpskl.model_selection.trials import Candidate

__all__ = ["SearchBudget", "TrialPlan"]

# Of epsilon, for the counts of the classes where balanced accuracy needs them.
_SHARE_OF_THE_COUNTS = 0.1


@dataclass(frozen=True)
class TrialPlan:
    """A search that has been costed and not yet run.

    Attributes
    ----------
    epsilon : float
        What a trial gets.
    counts : NoisyHistogram or None
        The counts of the classes that are released before the trials.
    trials : Cost
        Of the best of the trials.
    """

    epsilon: float
    counts: NoisyHistogram | None
    trials: Cost

    @property
    def cost(self) -> Cost:
        return self.trials if self.counts is None else compose([self.counts.cost, self.trials])


@dataclass(frozen=True)
class SearchBudget:
    """The terms of a search; all of them are public.

    Parameters
    ----------
    epsilon, delta : float
        Of the whole search.
    neighbours : {"add_remove", "replace_one"}
    eta : {0, 1}
    mean_trials : float
        Law of the number of trials, see :class:`~dpskl.accounting.SelectionCost`.
    n_samples : int
    validation_share : float
        In (0, 1).
    with_counts : bool
        Whether the classes are counted before the trials.
    """

    epsilon: float
    delta: float
    neighbours: str
    eta: int
    mean_trials: float
    n_samples: int
    validation_share: float
    with_counts: bool

    @property
    def n_validation(self) -> int:
        return max(1, math.floor(self.n_samples * self.validation_share + 0.5))

    def score(self, epsilon: float, bound: float) -> NoisyScore:
        """Return the score of a trial that gets ``epsilon``."""
        return NoisyScore(epsilon, self.delta, bound, self.neighbours, self.n_validation)

    def plan(self, candidates: Sequence[Candidate], n_features: Sequence[int], n_classes: int | None) -> TrialPlan:
        """Return the plan with the largest epsilon of a trial at which the whole search stays within its own.

        Parameters
        ----------
        candidates : sequence of Candidate
        n_features : sequence of int
            Number of columns that reach the classifier, for each candidate.
        n_classes : int or None
            ``None`` where the classifiers declare them.

        Raises
        ------
        ValueError, TypeError
            If some candidate cannot be fitted, in terms of what was asked of the search.
        """
        n_training = self.n_samples - self.n_validation
        if n_training < 2:
            raise ValueError(f"{self._parts} leaves {n_training} samples for training, and 2 are needed")
        counts = NoisyHistogram(_SHARE_OF_THE_COUNTS * self.epsilon, self.neighbours) if self.with_counts else None

        def plan(epsilon: float) -> TrialPlan:
            fits = [
                self._cost_of_fit(candidate, epsilon, n_training, columns, n_classes)
                for candidate, columns in zip(candidates, n_features, strict=True)
            ]
            if epsilon == inf:
                return TrialPlan(inf, counts, GaussianCost(inf))
            # model and score come from disjoint rows, and the cost of the score does not depend on its bound
            base = worst_cost([*fits, self.score(epsilon, 1.0).cost])
            return TrialPlan(epsilon, counts, SelectionCost(base, self.eta, self.mean_trials))

        return plan(inf) if self.epsilon == inf else self._largest(plan)

    def describe(self, plan: TrialPlan, score: NoisyScore, scoring: str) -> tuple[ReleasePart, ...]:
        """Return the lines of the guarantee."""
        law = f"eta = {self.eta}, mean {self.mean_trials:g}"
        trials = ReleasePart(
            f"best of a random number of trials ({law}), each a model and {score.name} ({scoring})",
            1,
            score.sensitivity,
            score.noise_scale,
            plan.trials,
            "selection from a truncated negative binomial number of trials (Papernot & Steinke 2022, theorem 2); "
            "sensitivity and noise are those of the score",
        )
        return (trials,) if plan.counts is None else (plan.counts.describe(1), trials)

    @property
    def _parts(self) -> str:
        return f"n_samples={self.n_samples} at validation_share={self.validation_share!r}"

    def _cost_of_fit(
        self, candidate: Candidate, epsilon: float, n_training: int, n_features: int, n_classes: int | None
    ) -> Cost:
        try:
            cost: Cost = candidate.trial(epsilon, self.delta).plan(n_training, n_features, n_classes).cost
        except (TypeError, ValueError) as error:
            raise (TypeError if isinstance(error, TypeError) else ValueError)(
                f"the candidate {candidate.params!r} cannot be fitted to {n_training} records ({self._parts}) with "
                f"epsilon={epsilon:.3g} for a trial, out of epsilon={self.epsilon!r} for the search: {error}"
            ) from error
        if cost.rdp(1.5) == inf and epsilon < inf:
            raise ValueError(
                f"the candidate {candidate.params!r} has no Renyi curve, which the cost of a selection needs, "
                f"under neighbours={self.neighbours!r}; choose solver='gd' or 'add_remove'"
            )
        return cost

    def _largest(self, plan: Callable[[float], TrialPlan]) -> TrialPlan:
        def divided(divisor: float) -> TrialPlan:
            return plan(max(self.epsilon / divisor, SMALLEST_EPSILON))

        def fits(divisor: float) -> bool:
            return divided(divisor).cost.epsilon(self.delta) <= self.epsilon

        high, highest = 2.0 + self.eta, self.epsilon / SMALLEST_EPSILON
        while not fits(high := min(high, highest)):
            if high == highest:
                least = plan(SMALLEST_EPSILON).cost.epsilon(self.delta)
                raise ValueError(
                    f"epsilon={self.epsilon!r} is for the whole search and too small for its trials: with "
                    f"{SMALLEST_EPSILON:g} for each, the least that a fit takes, the search costs {at_most(least, 3)} "
                    f"at delta={self.delta!r}; raise epsilon well beyond that, or lower "
                    f"mean_trials={self.mean_trials:g}"
                )
            high *= 2.0
        return divided(smallest_true(fits, 0.5, high, rtol=1e-4))
