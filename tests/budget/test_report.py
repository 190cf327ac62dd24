"""What a ledger says of itself: to people on the safe side, to machines no more than is proved."""

import json
from math import inf, sqrt

import pytest

from dpskl import (
    BudgetExceededError,
    DPLogisticRegression,
    NoPrivacyWarning,
    PrivacyAccountant,
    __version__,
)
from dpskl.accounting import (
    ApproximateCost,
    GaussianCost,
    PureCost,
    compose,
    gaussian_mu,
)
from dpskl.budget import Entry

ONE = GaussianCost(gaussian_mu(1.0, 1e-6))


def test_report_and_entries():
    accountant = PrivacyAccountant(epsilon=5.0)
    accountant.spend(ONE, label="pilot", solver="gd", estimator="DPLogisticRegression", n_samples=100)
    accountant.spend(PureCost(0.5), is_seeded=True)
    entry = accountant.entries()[0]
    assert (entry.label, entry.solver, entry.n_samples, entry.cost) == ("pilot", "gd", 100, ONE)
    report = accountant.report()
    text = str(report)
    pilot = "1 x epsilon = 1 at delta = 1e-06 by pilot, DPLogisticRegression, gd, n=100, 20"
    for words in ("2 spends", pilot, "NO GUARANTEE HOLDS", "fixed before"):
        assert words in text
    assert "<table>" in report._repr_html_()
    assert "n=100" in report._repr_html_()
    data = json.loads(json.dumps(report.to_dict()))
    assert data["epsilon"] == pytest.approx(accountant.spent().epsilon)
    assert data["holds"] is False
    assert len(data["entries"]) == 2
    assert json.loads(json.dumps(PrivacyAccountant().report().to_dict()))["ceiling"]["epsilon"] == "inf"


def test_a_report_says_when(monkeypatch):
    accountant = PrivacyAccountant(epsilon=5.0)
    for moment in (0.0, 60.0, 86_400.0, 90_000.5):
        monkeypatch.setattr("time.time", lambda moment=moment: moment)
        accountant.spend(PureCost(0.1) if moment < 86_400 else PureCost(0.2))
    monkeypatch.setattr("time.time", lambda: 1e5)
    report = accountant.report()
    text, page, record = str(report), report._repr_html_(), report.to_dict()
    grouped, later = "1970-01-01T00:00:00Z to 1970-01-01T00:01:00Z", "1970-01-02T00:00:00Z to 1970-01-02T01:00:00Z"
    for words in (grouped, later):
        assert words in text
        assert words in page
    assert record["lines"][0]["times"] == 2
    assert (record["lines"][0]["first"], record["lines"][0]["last"]) == tuple(grouped.split(" to "))
    assert [entry["utc"] for entry in record["entries"]][:2] == grouped.split(" to ")
    assert record["time"] == "1970-01-02T03:46:40Z"
    assert record["version"] == __version__
    assert record["id"] in text
    assert "reported 1970-01-02T03:46:40Z" in text


def test_a_report_rounds_to_the_safe_side():
    accountant = PrivacyAccountant(epsilon=1.23456789, delta=0)
    accountant.spend(PureCost(0.10000049))
    text = str(accountant.report())
    assert "together epsilon = 0.100001 at" in text
    assert "ceiling of epsilon = 1.23457 at" in text
    assert "left: epsilon = 1.13456 at" in text
    with pytest.raises(BudgetExceededError, match=r"charges 5 of 1\.134 left"):
        accountant.spend(PureCost(5.0))


@pytest.mark.parametrize(
    ("spend", "holds", "words"),
    [
        ({"cost": PureCost(0.1)}, True, None),
        ({"cost": PureCost(0.1), "is_seeded": True}, False, "marked 'seeded'"),
        ({"cost": GaussianCost(inf)}, False, "marked 'no guarantee'"),
        ({"cost": PureCost(inf)}, False, "no finite epsilon"),
        ({"cost": compose([PureCost(0.1), GaussianCost(inf)])}, False, "no finite epsilon"),
        ({"cost": ApproximateCost(1.0, 1e-3)}, True, None),  # epsilon is infinite at 1e-6: that is what it says
        (
            {"cost": PureCost(0.1), "solver": "x (conditional on exact sampling)"},
            False,
            "NOT PROVED for entries marked 'x (conditional",
        ),
    ],
)
def test_the_claim_for_machines_is_honest(spend, holds, words):
    accountant = PrivacyAccountant()
    accountant.spend(**spend)
    record = json.loads(json.dumps(accountant.report().to_dict()))
    assert record["holds"] is holds
    assert record["conditions"] == [] if words is None else words in " ".join(record["conditions"])
    assert words is None or words in str(accountant.report())


def test_fits_without_a_guarantee_do_not_hold():
    accountant = PrivacyAccountant()
    model = DPLogisticRegression(epsilon=inf, classes=[0, 1], accountant=accountant)
    with pytest.warns(NoPrivacyWarning):
        model.fit([[0.0], [1.0]] * 50, [0, 1] * 50)
    record = accountant.report().to_dict()
    assert record["epsilon"] == "inf"
    assert record["holds"] is False


def test_a_report_of_partitions_says_that_sizes_are_public():
    accountant = PrivacyAccountant()
    site = accountant.partition("site")
    for name in ("a", "b"):
        site[name].spend(PureCost(0.1), n_samples=100)
    assert "the cells of site are disjoint, as declared, and the number of records of each is public" in str(
        accountant.report()
    )


def test_somebody_with_several_records_is_told_the_total():
    accountant = PrivacyAccountant()
    for _ in range(4):
        accountant.spend(GaussianCost(0.1))
    assert accountant.for_group(1) == accountant.spent()
    assert accountant.for_group(5).epsilon == GaussianCost(1.0).epsilon(1e-6)
    assert accountant.for_group(5, 1e-9) == (GaussianCost(1.0).epsilon(1e-9), 1e-9)
    with pytest.raises(ValueError, match="k=0"):
        accountant.for_group(0)


def test_records_of_one_person_in_several_cells_cost_the_most_in_each():
    accountant = PrivacyAccountant()
    accountant.spend(GaussianCost(0.05))
    site = accountant.partition("site")
    site["a"].spend(GaussianCost(0.1))
    site["b"].spend(GaussianCost(0.2))
    largest = sqrt(0.05**2 + 0.2**2)
    assert accountant.for_group(3).epsilon == pytest.approx(GaussianCost(3 * largest).epsilon(1e-6), rel=1e-12)
    # two records in b and one in a, exactly: mu adds within a release, and in squares over releases
    true = sqrt((3 * 0.05) ** 2 + 0.1**2 + (2 * 0.2) ** 2)
    assert GaussianCost(true).epsilon(1e-6) < accountant.for_group(3).epsilon
    # cells whose costs are of two kinds: neither alone is enough
    site["a"].spend(PureCost(1.0))
    both = accountant.for_group(2).epsilon
    assert both >= GaussianCost(2 * largest).epsilon(1e-6)
    assert both >= compose([GaussianCost(2 * sqrt(0.05**2 + 0.1**2)), PureCost(2.0)]).epsilon(1e-6)
    # one record in each: the law of the pair is a product
    mixed = compose([GaussianCost(0.1), PureCost(1.0), GaussianCost(0.2)])
    assert both >= mixed.epsilon(1e-6)


def test_entries_of_before_have_no_delta():
    accountant = PrivacyAccountant(epsilon=2.0, composition="basic")
    accountant.spend(GaussianCost(0.1))
    record = accountant.entries()[0].to_dict()
    del record["delta"]
    assert Entry.from_dict(record).delta is None
    assert accountant.remaining().delta == 0.0  # the whole delta, as before
