"""The accountant: totals, ceilings, and one ledger behind every copy of a handle."""

import copy
import multiprocessing
import pickle
import subprocess
import sys
import threading
from math import inf, sqrt

import joblib
import pytest
from sklearn.base import clone

from dpskl import (
    BudgetExceededError,
    DPLogisticRegression,
    LedgerNotFoundError,
    PrivacyAccountant,
)
from dpskl.accounting import (
    ApproximateCost,
    GaussianCost,
    PureCost,
    ReplaceOneObjectiveCost,
    SampledGaussianCost,
    compose,
    gaussian_epsilon,
    gaussian_mu,
)
from dpskl.model_selection.plan import PlannedFit

ONE = GaussianCost(gaussian_mu(1.0, 1e-6))


def test_gaussian_spends_compose_exactly():
    accountant = PrivacyAccountant()
    for _ in range(41):
        accountant.spend(ONE)
    assert accountant.spent().epsilon == pytest.approx(7.90239801, rel=1e-7)
    assert accountant.spent(1e-9).epsilon == pytest.approx(gaussian_epsilon(sqrt(41) * ONE.mu, 1e-9), rel=1e-9)
    assert accountant.remaining() == (inf, 1e-6)
    assert len(accountant) == 41


def test_ten_tenths_leave_nothing_and_not_less():
    accountant = PrivacyAccountant(epsilon=1.0, delta=0)
    assert accountant.composition == "basic"
    for _ in range(10):
        accountant.spend(PureCost(0.1))
    assert accountant.remaining() == (0.0, 0.0)
    assert accountant.spent() == (1.0, 0)
    with pytest.raises(BudgetExceededError, match="ceiling of epsilon = 1 "):
        accountant.spend(PureCost(1e-12))
    assert len(accountant) == 10


@pytest.mark.parametrize("composition", ["rdp", "gdp", "basic"])
def test_a_ceiling_is_never_exceeded_and_a_refusal_charges_nothing(composition):
    accountant = PrivacyAccountant(epsilon=3.0, delta=1e-6, composition=composition)
    small = GaussianCost(0.1) if composition != "basic" else PureCost(0.25)
    granted = 0
    for _ in range(100):
        before = accountant.remaining().epsilon
        try:
            accountant.spend(small)
        except BudgetExceededError:
            assert accountant.remaining().epsilon == before
            break
        granted += 1
        assert accountant.remaining().epsilon < before
    assert len(accountant) == granted > 5
    assert accountant.spent().epsilon <= 3.0
    if composition == "gdp":
        assert granted == int(gaussian_mu(3.0, 1e-6) ** 2 / 0.01)


def test_a_first_cost_within_the_ceiling_by_its_own_curve_is_granted():
    for composition in ("rdp", "gdp"):
        accountant = PrivacyAccountant(epsilon=1.0, delta=1e-6, composition=composition)
        accountant.spend(ONE)  # the fixed-order rule alone would refuse it: its conversion is looser
        assert accountant.spent().epsilon <= 1.0
        with pytest.raises(BudgetExceededError):
            accountant.spend(GaussianCost(0.01))
    accountant = PrivacyAccountant(epsilon=1.0, delta=1e-6)
    with pytest.raises(BudgetExceededError, match="exceeds what is left"):
        accountant.spend(GaussianCost(1.01 * ONE.mu))
    assert len(accountant) == 0


def test_a_cost_without_a_measure_is_refused_except_first():
    profile = ReplaceOneObjectiveCost(0.05, 0.01)
    for composition in ("rdp", "gdp"):
        accountant = PrivacyAccountant(epsilon=2.0, delta=1e-6, composition=composition)
        accountant.spend(profile)
        accountant = PrivacyAccountant(epsilon=2.0, delta=1e-6, composition=composition)
        accountant.spend(GaussianCost(0.01))
        with pytest.raises(BudgetExceededError):
            accountant.spend(profile)
    accountant = PrivacyAccountant(epsilon=2.0, delta=1e-5, composition="basic")
    accountant.spend(PureCost(0.5))
    accountant.spend(ApproximateCost(0.5, 1e-6))
    assert accountant.remaining().epsilon == 1.0
    assert accountant.remaining().delta == pytest.approx(9e-6)


def test_a_pure_ledger_takes_no_gaussian_first_even_where_its_delta_is_too_small_for_a_float():
    accountant = PrivacyAccountant(epsilon=1.0, delta=0)
    tiny = GaussianCost(0.025)
    assert tiny.delta(1.0) == 0.0
    with pytest.raises(BudgetExceededError):
        accountant.spend(tiny)
    assert len(accountant) == 0


def test_a_first_cost_without_a_measure_leaves_nothing_in_a_basic_ledger():
    accountant = PrivacyAccountant(epsilon=2.0, delta=1e-6, composition="basic")
    accountant.spend(compose([(ApproximateCost(1.0, 0.5e-6 * (1 + 5e-10)), 2)]))  # within the ceiling to its rounding
    with pytest.raises(BudgetExceededError):
        accountant.spend(PureCost(0.5))
    assert accountant.remaining().epsilon == 0.0


def test_sums_charge_each_cost_at_the_delta_that_its_spend_names():
    accountant = PrivacyAccountant(epsilon=3.0, delta=1e-6, composition="basic")
    half = GaussianCost(gaussian_mu(0.5, 1e-7))
    for _ in range(6):
        accountant.spend(half, delta=1e-7)
    assert accountant.remaining().epsilon == pytest.approx(0.0, abs=1e-9)
    assert accountant.remaining().delta == pytest.approx(4e-7)
    with pytest.raises(BudgetExceededError, match=r"epsilon = 0\.5\d* at delta = 1e-07 exceeds"):
        accountant.spend(half, delta=1e-7)
    assert accountant.entries()[0].delta == 1e-7
    assert accountant.spent().epsilon < 3.0
    again = pickle.loads(pickle.dumps(accountant))
    assert again.remaining() == accountant.remaining()


def test_what_sums_charge_is_valid_and_never_less_than_the_cost_has():
    """Pure and approximate costs as they are, every other one a point of its own curve."""
    d = 1e-7
    for cost, expected in [
        (PureCost(0.3), (0.3, 0.0)),
        (ApproximateCost(0.3, 2e-7), (0.3, 2e-7)),
        (GaussianCost(0.1), (GaussianCost(0.1).epsilon(d), d)),
        (GaussianCost(0.1, 0.02), (GaussianCost(0.1, 0.02).epsilon(d), d)),
        (ReplaceOneObjectiveCost(0.02, 0.01), (ReplaceOneObjectiveCost(0.02, 0.01).epsilon(d), d)),
        (compose([(PureCost(0.1), 2)]), (0.2, 0.0)),
    ]:
        accountant = PrivacyAccountant(epsilon=3.0, delta=1e-6, composition="basic")
        accountant.spend(PureCost(0.01))
        accountant.spend(cost, delta=d)
        assert accountant.remaining().epsilon == pytest.approx(2.99 - expected[0], abs=1e-12)
        assert accountant.remaining().delta == pytest.approx(1e-6 - expected[1], abs=1e-18)
        assert cost.delta(expected[0]) <= expected[1] * (1 + 1e-9)


def test_a_first_spend_at_a_larger_delta_is_not_read_at_the_smaller_one():
    """Granted by its own curve, and counted at a delta that the ceiling does not have: the ceiling is what holds."""
    accountant = PrivacyAccountant(epsilon=1.0, delta=1e-6, composition="basic")
    for name in ("north", "south"):
        cost = GaussianCost(gaussian_mu(0.55, 1e-3))
        with accountant.partition("site") as site:
            if cost.epsilon(1e-6) <= 1.0:
                site[name].spend(cost, delta=1e-3)
    assert len(accountant) == 2
    assert accountant.report().adaptive == (1.0, 1e-6)
    assert accountant.remaining().epsilon == 0
    other = PrivacyAccountant(epsilon=1.0, delta=1e-6, composition="basic")
    other.spend(GaussianCost(0.1), delta=0.5)
    assert other.report().adaptive == (1.0, 1e-6)


def test_sums_refuse_a_delta_that_is_short_and_say_so():
    accountant = PrivacyAccountant(epsilon=3.0, delta=1e-6, composition="basic")
    accountant.spend(GaussianCost(0.05), delta=9e-7)
    with pytest.raises(BudgetExceededError, match=r"charges a delta of 2e-07 of .* left.*smaller delta"):
        accountant.spend(GaussianCost(0.05), delta=2e-7)
    accountant.spend(GaussianCost(0.05), delta=1e-7)
    for composition in ("rdp", "gdp"):  # the others do not look at it
        other = PrivacyAccountant(epsilon=3.0, delta=1e-6, composition=composition)
        for _ in range(3):
            other.spend(GaussianCost(0.05), delta=9e-7)
    pure = PrivacyAccountant(epsilon=3.0, delta=0)
    pure.spend(PureCost(0.1), delta=0)
    with pytest.raises(BudgetExceededError):
        pure.spend(GaussianCost(0.01), delta=1e-9)
    for bad in (-0.1, 1.0, float("nan"), "1e-6", True):
        with pytest.raises(ValueError, match=r"delta=.*must lie in"):
            accountant.spend(PureCost(0.1), delta=bad)


def test_would_grant_takes_costs_pairs_and_planned_fits():
    half = GaussianCost(gaussian_mu(0.5, 1e-7))
    model = DPLogisticRegression(epsilon=0.5, delta=1e-7, classes=[0, 1])
    accountant = PrivacyAccountant(epsilon=3.0, delta=1e-6, composition="basic")
    planned = PlannedFit("fit", 1000, half, 1e-7, "add_remove", accountant)
    assert model.plan(1000, 5).cost.epsilon(1e-7) <= 0.5
    assert accountant.would_grant([half] * 9) == 1  # as a spend without a delta
    assert accountant.would_grant([(half, 1e-7)] * 9) == accountant.would_grant([planned] * 9) == 6
    for granted in range(6):
        assert accountant.would_grant([planned] * 9) == 6 - granted
        accountant.spend(half, delta=1e-7)
    assert accountant.would_grant([planned]) == 0
    with pytest.raises(ValueError, match="delta=2"):
        accountant.would_grant([(half, 2)])


def test_would_grant_counts_and_charges_nothing():
    accountant = PrivacyAccountant(epsilon=1.0, delta=1e-6)
    assert accountant.would_grant([ONE, GaussianCost(0.01)]) == 1
    assert accountant.would_grant([]) == 0
    accountant.spend(GaussianCost(0.1))
    assert accountant.would_grant([GaussianCost(0.1)] * 10) == 3
    for _ in range(3):
        accountant.spend(GaussianCost(0.1))
    with pytest.raises(BudgetExceededError):
        accountant.spend(GaussianCost(0.1))
    assert len(accountant) == 4


def test_mixtures_are_totalled():
    accountant = PrivacyAccountant()
    accountant.spend(PureCost(0.2))
    accountant.spend(GaussianCost(0.2))
    accountant.spend(SampledGaussianCost(0.1, 3.0))
    parts = [PureCost(0.2), GaussianCost(0.2), SampledGaussianCost(0.1, 3.0)]
    total = accountant.spent().epsilon
    assert max(part.epsilon(1e-6) for part in parts) < total < sum(part.epsilon(1e-6) for part in parts)


def test_one_neighbour_relation_for_each_ledger():
    accountant = PrivacyAccountant()
    accountant.spend(PureCost(0.1), neighbours="replace_one")
    with pytest.raises(ValueError, match=r"'replace_one'.*one accountant for each"):
        accountant.spend(PureCost(0.1))
    assert len(accountant) == 1
    fixed = PrivacyAccountant(neighbours="replace_one")
    with pytest.raises(ValueError, match="'replace_one'"):
        fixed.spend(PureCost(0.1))
    assert len(fixed) == 0


def test_labels():
    accountant = PrivacyAccountant(epsilon=5.0)
    pilot = accountant.labelled("pilot")
    pilot.spend(PureCost(0.1))
    pilot.partition("site")["a"].spend(PureCost(0.1))
    accountant.spend(PureCost(0.1))
    pilot.spend(PureCost(0.1), label="main")
    assert [entry.label for entry in accountant.entries()] == ["pilot", "pilot", None, "main"]
    assert pickle.loads(pickle.dumps(pilot)) is pilot
    assert pilot is not accountant
    assert "pilot" in repr(pilot)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epsilon": 0}, "epsilon=0"),
        ({"epsilon": -1}, "epsilon=-1"),
        ({"epsilon": float("nan")}, "epsilon=nan"),
        ({"epsilon": "1"}, "epsilon='1'"),
        ({"epsilon": None}, "epsilon=None"),
        ({"delta": 1}, "delta=1"),
        ({"delta": "small"}, "delta='small'"),
        ({"composition": None}, "composition=None"),
        ({"neighbours": "swap"}, "neighbours='swap'"),
        ({"delta": -0.1}, "delta=-0.1"),
        ({"composition": "best"}, "'rdp', 'basic', 'gdp'"),
    ],
)
def test_bad_ceilings_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        PrivacyAccountant(**arguments)


# -- one ledger behind every copy ---------------------------------------------------------------------


def test_every_way_to_copy_reaches_the_same_ledger():
    accountant = PrivacyAccountant(epsilon=5.0)
    model = DPLogisticRegression(accountant=accountant)
    copies = [
        copy.copy(accountant),
        copy.deepcopy(accountant),
        clone(accountant, safe=False),
        clone(model).accountant,
        copy.deepcopy(model).accountant,
        pickle.loads(pickle.dumps(accountant)),
        pickle.loads(pickle.dumps(model)).accountant,
    ]
    for other in copies:
        assert other is accountant
        other.spend(GaussianCost(0.01))
    assert len(accountant) == len(copies)
    assert not hasattr(accountant, "get_params")


def test_what_it_prints_and_hashes_to_does_not_change_with_spends():
    accountant = PrivacyAccountant(epsilon=5.0)
    before = repr(accountant), joblib.hash(accountant), pickle.dumps(accountant)
    accountant.spend(PureCost(0.1))
    assert (repr(accountant), joblib.hash(accountant), pickle.dumps(accountant)) == before


def run_elsewhere(accountant, code):
    """Run code in another interpreter that has unpickled the accountant."""
    head = (
        "import pickle, sys; from dpskl import LedgerNotFoundError; from dpskl.accounting import PureCost\n"
        "accountant = pickle.load(sys.stdin.buffer)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", head + code], input=pickle.dumps(accountant), capture_output=True, check=True
    )
    return run.stdout.decode()


def test_another_interpreter_reaches_the_same_ledger():
    accountant = PrivacyAccountant(epsilon=5.0)
    accountant.spend(PureCost(0.1))
    printed = run_elsewhere(accountant, "accountant.spend(PureCost(0.1)); print(repr(accountant), len(accountant))")
    assert printed.split() == [*repr(accountant).split(), "2"]
    assert len(accountant) == 2  # the temporary ledger outlives the other process


def test_where_the_file_is_gone_it_prints_and_refuses_to_spend(tmp_path):
    accountant = PrivacyAccountant(epsilon=5.0, path=tmp_path / "ledger")
    pickled = pickle.dumps(accountant)
    accountant.spend(PureCost(0.1))
    for file in tmp_path.iterdir():
        file.unlink()
    with pytest.raises(LedgerNotFoundError, match="no ledger at"):
        accountant.spend(PureCost(0.1))
    code = (
        "print(repr(accountant))\n"
        "try: accountant.spend(PureCost(0.1))\n"
        "except LedgerNotFoundError as error: print('refused:', error)\n"
    )
    printed = run_elsewhere(pickle.loads(pickled), code)
    assert repr(accountant) in printed
    assert "refused:" in printed
    assert list(tmp_path.iterdir()) == []  # nothing was made


def _spend_in_child(accountant, queue):
    accountant.spend(PureCost(0.1))
    queue.put(len(accountant))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_children_spend_on_the_same_ledger(method):
    context = multiprocessing.get_context(method)
    accountant, queue = PrivacyAccountant(), context.Queue()
    accountant.spend(PureCost(0.1))  # the parent has a connection, which must not be used after a fork
    child = context.Process(target=_spend_in_child, args=(accountant, queue))
    child.start()
    assert queue.get(timeout=60) == 2
    child.join()
    accountant.spend(PureCost(0.1))
    assert len(accountant) == 3
    assert accountant.verify()


def test_racing_threads_never_exceed_the_ceiling():
    accountant = PrivacyAccountant(epsilon=5.0, delta=0)
    granted = []

    def spend_often():
        for _ in range(100):
            try:
                accountant.spend(PureCost(0.1))
            except BudgetExceededError:
                continue
            granted.append(1)

    threads = [threading.Thread(target=spend_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(granted) == len(accountant) == 50
    assert accountant.verify()
