"""What a solver is: it plans a cost from public facts, then asks a curator; and the registry of names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator

from dpskl.accounting import Cost, RDPCost, compose
from dpskl.budget import CurveFilter, TokenPool
from dpskl.curator import Budget, Curator
from dpskl.mechanisms.base import Mechanism, ReleasePart
from dpskl.mechanisms.sensitivity import contributions
from dpskl.records.losses import Loss, MarginLoss
from dpskl.records.row_maps import row_bound

__all__ = ["Outcome", "Plan", "PublicFacts", "Solver", "make_solver", "refuse_pure", "solver_names"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class PublicFacts:
    """All that a plan may depend on.

    Attributes
    ----------
    n_samples, n_features, n_classes : int
    data_norm : float
        Bound on the norm of a row of features.
    intercept : float
        Value of the constant column, 0 for none.
    loss : MarginLoss
        Loss of the binary problem.
    neighbours : {"add_remove", "replace_one"}
    C : float
        Inverse of the ridge that the user asks for, in sum form.
    rows : {"clip", "sphere", "fill"}
        The row map, see :mod:`dpskl.records.row_maps`. The bound for ``"clip"`` holds for the others too.
    public_problem : object or None
        Public records under the same map, for solvers that take some: a :class:`~dpskl.records.problem.Problem`.
    """

    n_samples: int
    n_features: int
    n_classes: int
    data_norm: float
    intercept: float
    loss: MarginLoss
    neighbours: str
    C: float
    rows: str = "clip"
    public_problem: Any = field(default=None, repr=False)

    @property
    def row_norm(self) -> float:
        """Bound on the norm of a row with its intercept column."""
        return row_bound(self.data_norm, self.intercept, self.rows)

    @property
    def n_weights(self) -> int:
        """Number of weights of one output."""
        return self.n_features + (self.intercept > 0)

    @property
    def n_outputs(self) -> int:
        """Columns of the weight matrix: 1 for two classes."""
        return 1 if self.n_classes == 2 else self.n_classes

    def signal(self, mu: float) -> float:
        """Return ``mu n / D``, halved for replace_one: how far the records together stand above the noise of a weight.

        ``mu`` is the Gaussian privacy parameter of the budget and ``D`` the number of weights of one output.
        """
        return mu * self.n_samples / (contributions(self.neighbours) * self.n_weights)


@dataclass(frozen=True)
class Plan:
    """A fit that has been costed and not yet run.

    Attributes
    ----------
    questions : tuple of (Mechanism, int)
        The noisy questions and how often each may be asked.
    ridge : float
        The strength of the penalty ``ridge ||w||^2 / 2`` in sum form.
    settings : object
        What the solver's ``run`` needs besides, all of it public.
    budget : RDPCost or None
        Where the solver decides at run time how often it asks: Renyi orders and budgets, all of which are charged.
        The counts of the questions are then those the budget was divided for.
    along_path : bool
        Whether gradients and losses are asked for along the path of a descent, see :class:`~dpskl.records.path.Path`.
    """

    questions: tuple[tuple[Mechanism, int], ...]
    ridge: float
    settings: Any = None
    budget: RDPCost | None = None
    along_path: bool = False

    @property
    def tokens(self) -> tuple[tuple[Cost, int], ...]:
        """The costs of the questions with their counts."""
        return tuple((mechanism.cost, count) for mechanism, count in self.questions)

    @property
    def cost(self) -> Cost:
        """The cost of the whole fit."""
        return compose(self.tokens) if self.budget is None else self.budget

    @property
    def n_questions(self) -> int:
        """How many noisy answers the fit uses."""
        return sum(count for _, count in self.questions)

    def open_budget(self) -> Budget:
        """Return the budget that a curator charges."""
        return TokenPool(self.tokens) if self.budget is None else CurveFilter(self.budget)

    def describe(self) -> tuple[ReleasePart, ...]:
        """Return the lines of the privacy guarantee."""
        parts = tuple(mechanism.describe(count) for mechanism, count in self.questions)
        if self.budget is None:
            return parts
        note = ", planned; number and noise are chosen at run time within the budget"
        return tuple(replace(part, mechanism=part.mechanism + note) for part in parts)


@dataclass(frozen=True)
class Outcome:
    """What a run returns, all of it released.

    Attributes
    ----------
    weights : ndarray of shape (n_weights,) or (n_weights, n_outputs)
    n_iter : int
        Number of updates, or of noisy questions where there are no updates.
    history : dict of str to list, or None
        What happened along the way, one value per entry; None where nothing is chosen at run time.
    clip_norm : float or None
        At which norm the gradients were clipped in the end, for probabilities; None where nothing was.
    row_length : float or None
        Norm of a typical row where that norm was taken; None for the bound on the rows themselves.
    """

    weights: Array
    n_iter: int
    history: dict[str, list[Any]] | None = None
    clip_norm: float | None = None
    row_length: float | None = None


def refuse_pure(name: str, delta: float) -> None:
    """Raise where pure differential privacy is asked of a solver whose noise is Gaussian."""
    if delta == 0:
        raise ValueError(
            f"delta=0 asks for pure differential privacy, which the Gaussian noise of solver={name!r} "
            "cannot give; choose a delta far below 1/n, solver='output_perturbation' or 'privgene', or for a smooth "
            "loss solver='objective_perturbation'"
        )


class Solver(BaseEstimator, ABC):
    """A way to spend a privacy budget on the weights of a linear classifier.

    Subclasses set ``name``, which registers them, and follow scikit-learn's contract for parameters: the
    constructor stores them and ``plan`` checks them.

    Attributes
    ----------
    name : str
        What ``solver=`` calls it.
    rank : int
        ``solver="auto"`` takes the smallest rank among the solvers that accept the loss and the delta.
    is_pure : bool
        Whether the solver with its defaults accepts ``delta=0``.
    rows : {"clip", "sphere", "fill"}
        The row map of the problem that the curator is to hold, see :mod:`dpskl.records.row_maps`; prediction
        uses the same. A parameter of the solvers that work with any.
    """

    name: ClassVar[str]
    rank: ClassVar[int]
    is_pure: ClassVar[bool] = False
    rows: str = "clip"
    _registry: ClassVar[dict[str, type[Solver]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in cls.__dict__:
            Solver._registry[cls.name] = cls

    def refusal(self, loss: MarginLoss) -> str | None:
        """Return a sentence that says why ``loss`` cannot be used, or None where it can."""
        return None

    def multiclass_loss(self, loss: MarginLoss) -> Loss:
        """Return the loss to use for more than two classes."""
        return loss.multiclass()

    def problem_loss(self, facts: PublicFacts) -> Loss:
        """Return the loss of the problem that the curator is to hold."""
        return facts.loss if facts.n_classes == 2 else self.multiclass_loss(facts.loss)

    @property
    def goes_by_row_numbers(self) -> bool:
        """Whether a record's part depends on its row number: then the others must keep theirs where one is absent."""
        return False

    @property
    def condition(self) -> str | None:
        """What the guarantee rests on besides its theorem, in words for guarantee and ledger; None for nothing."""
        return None

    def reaches_checks(self, loss: MarginLoss, epsilon: float) -> bool:
        """Whether 300 rows at this epsilon suffice for scikit-learn's accuracy check (its ``poor_score`` tag).

        The default is true of every solver that has no rule of its own: measured over 40 seeds, see the tests.
        """
        return epsilon >= 0.5

    @abstractmethod
    def plan(self, facts: PublicFacts, epsilon: float, delta: float) -> Plan:
        """Return the plan for a budget, computed without data.

        Parameters
        ----------
        facts : PublicFacts
        epsilon : float
            Positive; ``inf`` asks for no noise.
        delta : float
            In [0, 1); 0 asks for pure differential privacy.

        Raises
        ------
        ValueError
            If the request is impossible for this solver, with the reason and a remedy.
        """

    @abstractmethod
    def run(self, curator: Curator, plan: Plan) -> Outcome:
        """Ask the curator and return what came of it."""


def solver_names(loss: MarginLoss | None = None) -> list[str]:
    """Return the names of all solvers, or of those that accept a loss with their defaults.

    Those that need public records or scales of the features are not among the latter.

    Examples
    --------
    >>> from dpskl.records.losses import Hinge
    >>> from dpskl.solvers import solver_names
    >>> solver_names()
    ['adadps', 'adagrad', 'adam', 'agd', 'blgd', 'blsgd', 'dp2', 'exponential_mechanism', 'frank_wolfe', 'ftrl', 'gd',
     'newton', 'objective_perturbation', 'output_perturbation', 'pda_dpmd', 'privgene', 'rmsprop', 'sgd', 'whitened_gd']
    >>> solver_names(Hinge())
    ['adagrad', 'adam', 'agd', 'blgd', 'blsgd', 'dp2', 'frank_wolfe', 'ftrl', 'gd', 'output_perturbation', 'privgene',
     'rmsprop', 'sgd', 'whitened_gd']
    """
    registry = sorted(Solver._registry.items())
    return [name for name, cls in registry if loss is None or cls().refusal(loss) is None]


def _by_rank(loss: MarginLoss, delta: float) -> list[str]:
    """Return the names of the solvers that accept loss and delta, the one that "auto" takes first."""
    names = [name for name in solver_names(loss) if delta > 0 or Solver._registry[name].is_pure]
    return sorted(names, key=lambda name: Solver._registry[name].rank)


def make_solver(solver: Any, loss: MarginLoss, delta: float = 1e-6) -> Solver:
    """Return the solver behind ``solver=``, once it is known to accept the loss.

    ``"auto"`` is whitened gradient descent, and for ``delta=0`` the best of the pure solvers: objective perturbation,
    or output perturbation for the hinge.

    Raises
    ------
    ValueError
        If there is no such solver or it refuses the loss; the message names those that work.
    """
    if isinstance(solver, str) and solver == "auto":
        solver = _by_rank(loss, delta)[0]
    if isinstance(solver, str) and solver in Solver._registry:
        made = Solver._registry[solver]()
    elif isinstance(solver, Solver):
        made = solver
    else:
        if isinstance(solver, type) and issubclass(solver, Solver):
            raise ValueError(f"solver={solver.__name__} is a class; pass an instance, solver={solver.__name__}()")
        raise ValueError(
            f"solver={solver!r} does not exist; choose 'auto', one of {', '.join(map(repr, solver_names()))}, "
            "or an instance of a class in dpskl.solvers"
        )
    reason = made.refusal(loss)
    if reason is not None:
        raise ValueError(f"{reason}; for this loss choose solver={' or '.join(map(repr, _by_rank(loss, delta)))}")
    return made
