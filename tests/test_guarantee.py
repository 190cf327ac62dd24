"""What a guarantee says: to people rounded up, to machines no more than holds."""

import json
import math
from decimal import Decimal

import numpy as np
import pytest

import dpskl
from dpskl import DPHuberSVC, DPLinearSVC, DPLogisticRegression, PrivacyGuarantee
from dpskl.accounting import GaussianCost, LaplaceCost, SampledGaussianCost
from dpskl.dummy import PrivateMajority
from dpskl.mechanisms.base import ReleasePart
from dpskl.solvers import ExponentialMechanism

X = np.random.default_rng(2).normal(size=(60, 3))
y = np.array(["no", "yes"])[np.arange(60) % 2]


def fit(**parameters):
    return DPLogisticRegression(**{"epsilon": 2.0, "classes": ["no", "yes"], **parameters}).fit(X, y)


def made(epsilon=1.0, delta=1e-6, cost=None, noise=2.0, sensitivity=1.0):
    cost = cost or GaussianCost(0.3)
    part = ReleasePart("noise", 3, sensitivity, noise, cost, "a theorem")
    return PrivacyGuarantee(epsilon, delta, "add_remove", (part,), ("n",), cost)


def test_what_people_read_is_on_the_safe_side():
    exact = 1.00000049
    text = str(made(epsilon=exact, delta=1.0000004e-6, noise=1.9999999, sensitivity=1.0000001))
    assert "(1.00001, 1.00001e-06)-differential privacy" in text
    assert "sensitivity 1.00001, noise of scale 1.99999" in text
    factor = Decimal(text.split("more than ")[1].split(" times")[0])
    assert factor >= Decimal(math.exp(exact))


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 2.0, 20.0, 699.0, 701.5, 1e5])
def test_the_factor_in_words_is_not_below_exp_epsilon(epsilon):
    told = str(made(epsilon=epsilon)).split("more than ")[1].split(" times")[0]
    if told.startswith("e^"):
        assert float(told[2:]) >= epsilon
    else:
        assert float(told) >= math.exp(epsilon) * (1 - 1e-15)


def test_costs_print_what_is_not_cheaper():
    assert str(GaussianCost(0.10000004)) == "GaussianCost(mu=0.100001, shift=0)"
    assert str(LaplaceCost(1.99999999)) == "LaplaceCost(noise_multiplier=1.99999)"
    told = str(SampledGaussianCost(0.010000001, 1.9999999))
    assert told == "SampledGaussianCost(sampling_rate=0.0100001, noise_multiplier=1.99999)"


def test_machines_are_told_all_that_is_public_about_the_fit():
    model = fit(data_norm=3.0, solver="gd")
    record = json.loads(json.dumps(model.privacy_guarantee_.to_dict()))
    assert record["fit"].pop("time").endswith("+00:00")
    assert record["fit"] == {
        "estimator": "DPLogisticRegression",
        "solver": "gd",
        "n_samples": 60,
        "n_features": 3,
        "data_norm": 3.0,
        "classes": ["no", "yes"],
        "version": dpskl.__version__,
    }
    assert record["holds"] is True
    assert record["conditions"] == []
    assert PrivacyGuarantee.from_dict(model.privacy_guarantee_.to_dict()) == model.privacy_guarantee_


def test_what_rests_on_more_than_theorems_does_not_hold_as_it_stands():
    model = fit(solver=ExponentialMechanism(sampler="mala", certified=False))
    guarantee = model.privacy_guarantee_
    assert not guarantee.holds
    assert guarantee.to_dict()["holds"] is False
    assert guarantee.to_dict()["conditions"] == list(guarantee.conditions) != []
    first = str(guarantee).splitlines()[0]
    assert first.startswith("NOT PROVED, conditional on exact sampling")
    assert "(2, 1e-06)" in first


def test_seeded_noise_does_not_hold():
    with pytest.warns(dpskl.SeededNoiseWarning):
        guarantee = fit(random_state=1).privacy_guarantee_
    assert not guarantee.holds
    assert str(guarantee).startswith("SEEDED NOISE")


@pytest.mark.parametrize("estimator", [DPLogisticRegression, DPHuberSVC, DPLinearSVC, PrivateMajority])
@pytest.mark.parametrize("delta", [0, 1e-6])
def test_the_cut_of_the_noise_is_told_where_delta_is_zero(estimator, delta):
    guarantee = estimator(epsilon=2.0, delta=delta, classes=["no", "yes"]).fit(X, y).privacy_guarantee_
    assert ("64-bit words end" in str(guarantee)) == (delta == 0)


@pytest.mark.parametrize("estimator", [DPLogisticRegression, PrivateMajority])
def test_the_size_of_a_cell_is_told_to_be_public(estimator):
    with dpskl.PrivacyAccountant().partition("site") as site:
        guarantee = estimator(epsilon=2.0, classes=["no", "yes"], accountant=site["north"]).fit(X, y).privacy_guarantee_
    assert "n (number of records of 'north' in the partition by 'site', as of each of its cells)" in str(guarantee)


def test_somebody_with_several_records_is_told():
    guarantee = fit(epsilon=1.0).privacy_guarantee_
    assert guarantee.for_group(1) == pytest.approx(guarantee.epsilon)
    assert [round(guarantee.for_group(k), 1) for k in (5, 20)] == [5.9, 33.0]
    pure = fit(epsilon=1.0, delta=0).privacy_guarantee_
    assert pure.for_group(5) == pytest.approx(5.0)
    assert pure.for_group(5, 1e-6) <= 5.0
    with pytest.raises(ValueError, match="k=0"):
        guarantee.for_group(0)
    # below its own delta one record has what the curve says, and not the headline
    for delta in (0, 1e-12):
        assert guarantee.for_group(1, delta) == guarantee.epsilon_at(delta) > guarantee.epsilon
    assert guarantee.for_group(1, 1e-3) <= guarantee.epsilon


def test_what_a_fit_asks_for_is_what_a_basic_ledger_charges():
    accountant = dpskl.PrivacyAccountant(epsilon=3.0, delta=1e-6, composition="basic")
    for _ in range(6):
        fit(epsilon=0.5, delta=1e-7, accountant=accountant)
    with pytest.raises(dpskl.BudgetExceededError):
        fit(epsilon=0.5, delta=1e-7, accountant=accountant)
    left = accountant.remaining()
    assert (left.epsilon, left.delta) == (pytest.approx(0, abs=1e-8), pytest.approx(4e-7))


def test_labels_that_were_read_are_told_to_be_public():
    with pytest.warns(dpskl.PrivacyLeakWarning):
        guarantee = fit(classes=None).privacy_guarantee_
    assert "classes (read from y: which labels occur becomes public)" in str(guarantee)


def test_data_that_differ_in_a_record_give_guarantees_that_differ_in_nothing_but_the_time():
    told = []
    for rows, labels in ((X, y), (X * 0, y[::-1])):
        record = DPLogisticRegression(classes=["no", "yes"]).fit(rows, labels).privacy_guarantee_.to_dict()
        record["fit"].pop("time")
        told.append(record)
    assert told[0] == told[1]
