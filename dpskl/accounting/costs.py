"""Privacy costs: frozen values that say what a release costs and compose with one another."""

from dpskl.accounting._composed import ComposedCost, compose
from dpskl.accounting._cost import Cost, cost_from_dict
from dpskl.accounting._gaussian_costs import GaussianCost, ReplaceOneObjectiveCost
from dpskl.accounting._plain_costs import (
    ApproximateCost,
    BoundedRangeCost,
    LaplaceCost,
    PureCost,
    RDPCost,
    ZCDPCost,
)
from dpskl.accounting._sampled_costs import SampledGaussianCost, SampledPureCost
from dpskl.accounting.stopping_game import AboveThresholdCost

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
    "ZCDPCost",
    "compose",
    "cost_from_dict",
]
