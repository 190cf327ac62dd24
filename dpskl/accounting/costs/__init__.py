"""Privacy costs: frozen values that say what a release costs and compose with one another."""

from dpskl.accounting.costs.above_threshold import AboveThresholdCost
from dpskl.accounting.costs.base import Cost, cost_from_dict
from dpskl.accounting.costs.composed import ComposedCost, compose
from dpskl.accounting.costs.gaussian import GaussianCost, ReplaceOneObjectiveCost
from dpskl.accounting.costs.pure import ApproximateCost, BoundedRangeCost, LaplaceCost, PureCost
from dpskl.accounting.costs.renyi import RDPCost, ZCDPCost
from dpskl.accounting.costs.sampled import SampledGaussianCost, SampledPureCost
from dpskl.accounting.costs.selection import SelectionCost, WorstCost, worst_cost

__all__ = [
    "AboveThresholdCost",
    "ApproximateCost",
    "BoundedRangeCost",
    "ComposedCost",
    "Cost",
    "GaussianCost",
    "LaplaceCost",
    "PureCost",
    "RDPCost",
    "ReplaceOneObjectiveCost",
    "SampledGaussianCost",
    "SampledPureCost",
    "SelectionCost",
    "WorstCost",
    "ZCDPCost",
    "compose",
    "cost_from_dict",
    "worst_cost",
]
