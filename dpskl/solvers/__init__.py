"""The algorithms behind ``solver=``, one file each."""

from dpskl.solvers.adadps import AdaDPS
from dpskl.solvers.adam import AdaGrad, Adam, RMSProp
from dpskl.solvers.adaptive import AdaptiveGD
from dpskl.solvers.base import Outcome, Plan, PublicFacts, Solver, make_solver, solver_names
from dpskl.solvers.delayed import DelayedPreconditioner
from dpskl.solvers.exponential_mechanism import ExponentialMechanism
from dpskl.solvers.frank_wolfe import FrankWolfe
from dpskl.solvers.ftrl import FTRL
from dpskl.solvers.gradient_descent import GradientDescent
from dpskl.solvers.line_search import BacktrackingGD, BacktrackingSGD
from dpskl.solvers.mirror import PublicMirrorDescent
from dpskl.solvers.newton import Newton
from dpskl.solvers.objective_perturbation import ObjectivePerturbation
from dpskl.solvers.output_perturbation import OutputPerturbation
from dpskl.solvers.privgene import PrivGene
from dpskl.solvers.sgd import SGD
from dpskl.solvers.whitened_gd import WhitenedGD

__all__ = [
    "FTRL",
    "SGD",
    "AdaDPS",
    "AdaGrad",
    "Adam",
    "AdaptiveGD",
    "BacktrackingGD",
    "BacktrackingSGD",
    "DelayedPreconditioner",
    "ExponentialMechanism",
    "FrankWolfe",
    "GradientDescent",
    "Newton",
    "ObjectivePerturbation",
    "Outcome",
    "OutputPerturbation",
    "Plan",
    "PrivGene",
    "PublicFacts",
    "PublicMirrorDescent",
    "RMSProp",
    "Solver",
    "WhitenedGD",
    "make_solver",
    "solver_names",
]
