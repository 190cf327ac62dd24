"""Privacy accounting: costs, conversions and calibration, as functions of numbers alone.

What has state, the accountant and its filters, lives in :mod:`dpskl.budget`; its public names are found here too.
"""

from importlib import import_module
from typing import Any

from dpskl.accounting.calibration import (
    RDPOrder,
    bounded_range_at_order,
    bounded_range_epsilon,
    calibrate_above_threshold,
    gaussian_mu,
    rdp_order,
    sampled_noise_multiplier,
    sampled_pure_at_order,
)
from dpskl.accounting.conversion import (
    bounded_range_rdp,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_rdp,
    laplace_rdp,
    pure_rdp,
    pure_to_gdp,
    rdp_delta,
    rdp_epsilon,
    sampled_gaussian_rdp,
    sampled_pure_losses,
    sampled_pure_rdp,
)
from dpskl.accounting.costs import (
    AboveThresholdCost,
    ApproximateCost,
    BoundedRangeCost,
    ComposedCost,
    Cost,
    GaussianCost,
    LaplaceCost,
    PureCost,
    RDPCost,
    ReplaceOneObjectiveCost,
    SampledGaussianCost,
    SampledPureCost,
    SelectionCost,
    WorstCost,
    ZCDPCost,
    compose,
    cost_from_dict,
    worst_cost,
)
from dpskl.accounting.group import (
    group_epsilon,
)
from dpskl.accounting.privacy_loss import (
    Composition,
    PrivacyLoss,
    PrivacyLossPair,
)
from dpskl.accounting.selection import (
    draw_trials,
    trial_gamma,
)
from dpskl.accounting.stopping_game import (
    log_stopping_value,
)

# Where users have these names from. Found on demand: nothing of this room needs the other.
_OF_BUDGET = (
    "BasicFilter",
    "CurveFilter",
    "Entry",
    "Filter",
    "FilterRefusal",
    "GDPFilter",
    "Partition",
    "PrivacyAccountant",
    "PrivacyReport",
    "RDPFilter",
    "Spent",
    "TokenPool",
    "UnplannedQuestionError",
)

__all__ = [
    "AboveThresholdCost",
    "ApproximateCost",
    "BoundedRangeCost",
    "ComposedCost",
    "Composition",
    "Cost",
    "GaussianCost",
    "LaplaceCost",
    "PrivacyLoss",
    "PrivacyLossPair",
    "PureCost",
    "RDPCost",
    "RDPOrder",
    "ReplaceOneObjectiveCost",
    "SampledGaussianCost",
    "SampledPureCost",
    "SelectionCost",
    "WorstCost",
    "ZCDPCost",
    "bounded_range_at_order",
    "bounded_range_epsilon",
    "bounded_range_rdp",
    "calibrate_above_threshold",
    "compose",
    "cost_from_dict",
    "draw_trials",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "gaussian_rdp",
    "group_epsilon",
    "laplace_rdp",
    "log_stopping_value",
    "pure_rdp",
    "pure_to_gdp",
    "rdp_delta",
    "rdp_epsilon",
    "rdp_order",
    "sampled_gaussian_rdp",
    "sampled_noise_multiplier",
    "sampled_pure_at_order",
    "sampled_pure_losses",
    "sampled_pure_rdp",
    "trial_gamma",
    "worst_cost",
    *_OF_BUDGET,
]


def __getattr__(name: str) -> Any:
    if name in _OF_BUDGET:
        return getattr(import_module("dpskl.budget"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
