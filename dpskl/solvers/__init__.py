"""The algorithms behind ``solver=``, one file each."""

from dpskl.solvers.adaptive import AdaptiveGD
from dpskl.solvers.base import Outcome, Plan, PublicFacts, Solver, make_solver, solver_names
from dpskl.solvers.exponential_mechanism import ExponentialMechanism
from dpskl.solvers.frank_wolfe import FrankWolfe
from dpskl.solvers.gradient_descent import GradientDescent
from dpskl.solvers.line_search import BacktrackingGD, BacktrackingSGD
from dpskl.solvers.objective_perturbation import ObjectivePerturbation
from dpskl.solvers.output_perturbation import OutputPerturbation
from dpskl.solvers.privgene import PrivGene
from dpskl.solvers.whitened_gd import WhitenedGD

__all__ = [
    "AdaptiveGD",
    "BacktrackingGD",
    "BacktrackingSGD",
    "ExponentialMechanism",
    "FrankWolfe",
    "GradientDescent",
    "ObjectivePerturbation",
    "Outcome",
    "OutputPerturbation",
    "Plan",
    "PrivGene",
    "PublicFacts",
    "Solver",
    "WhitenedGD",
    "make_solver",
    "solver_names",
]
