"""
==============================================
Quickstart: two surveys people answered in trust
==============================================

We train :class:`~dpskl.DPLogisticRegression` on two sets of records that nobody would like to see leaked, and compare
it with a classifier that protects nobody. Both come with statsmodels, so nothing is downloaded:

* ``randhie``: the RAND Health Insurance Experiment. Who saw a doctor more than once in a year? 20,190 records, each one
  year of one person, up to five years of the same person.
* ``fair``: a magazine survey of 1974. Which of 6,366 married women had an affair? One record is one woman.

Run ``python examples/quickstart.py``. Numbers change from run to run: the noise is never seeded.
"""

import sys
import time
from math import exp, log, sqrt

import numpy as np
import statsmodels.api as sm
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

from dpskl import DPLogisticRegression, PrivacyAccountant

DELTA = 1e-6

# %%
# Bounds that are known without the data
# --------------------------------------
# Noise must cover the largest change that one record can cause, so every column needs bounds, and bounds read off the
# data would tell about the extreme records. Ours come from the published description of each study. Values beyond are
# clipped: a bound that is too tight costs accuracy and never privacy.

RANDHIE_BOUNDS = {
    # column: (lowest, highest)
    "lncoins": (0.0, log(101)),  # ln(1 + coinsurance), a percentage
    "idp": (0.0, 1.0),  # individual deductible plan: no, yes
    "lpi": (0.0, log(1000)),  # ln(yearly participation payment); we count at most $1,000
    "fmde": (0.0, log(4000)),  # ln(spending limit / coinsurance): the plans had at most $1,000 and at least 25 %
    "physlm": (0.0, 1.0),  # physical limitation: no, yes
    "disea": (0.0, 30.0),  # number of chronic diseases; we count at most 30
}
RANDHIE_CATEGORIES = {"health": (0, 1, 2, 3)}  # self-rated: excellent, good, fair, poor

# The questionnaire offered fixed answers, so the first and the last answer are the bounds.
FAIR_BOUNDS = {
    "rate_marriage": (1.0, 5.0),  # very poor to very good
    "age": (17.5, 42.0),  # under 20 to 40 and over
    "yrs_married": (0.5, 23.0),  # less than one to twenty and more
    "children": (0.0, 5.5),  # none to five and more
    "religious": (1.0, 4.0),  # not to strongly
    "educ": (9.0, 20.0),  # grade school to advanced degree
}
FAIR_CATEGORIES = {"occupation": (1, 2, 3, 4, 5, 6), "occupation_husb": (1, 2, 3, 4, 5, 6)}  # codes without an order


# %%
# Features of known norm
# ----------------------
# A bounded column is mapped to [-1, 1], which is twice as wide as [0, 1] for the same norm. A category becomes one
# column for each code, of which at most one is 1. So each entry of the tables adds at most 1 to the squared norm of
# a row, and ``data_norm`` is the square root of their number.


def encode(frame, bounds, categories):
    """Return features whose rows have at most the norm that is returned with them, whatever the frame holds."""
    columns = []
    for name, (low, high) in bounds.items():
        columns.append(2 * (np.clip(frame[name], low, high) - low) / (high - low) - 1)
    for name, codes in categories.items():
        columns.extend((frame[name] == code).astype(float) for code in codes)
    return np.column_stack(columns), sqrt(len(bounds) + len(categories))


def load_randhie():
    """Return features, their norm, and whether the person saw a doctor more than once in the year."""
    frame = sm.datasets.randhie.load_pandas().data
    frame = frame.assign(health=frame["hlthg"] + 2 * frame["hlthf"] + 3 * frame["hlthp"])
    return *encode(frame, RANDHIE_BOUNDS, RANDHIE_CATEGORIES), (frame["mdvis"] > 1).to_numpy(int)


def load_fair():
    """Return features, their norm, and whether the woman had an affair."""
    frame = sm.datasets.fair.load_pandas().data
    return *encode(frame, FAIR_BOUNDS, FAIR_CATEGORIES), (frame["affairs"] > 0).to_numpy(int)


# %%
# Many fits, one ledger
# ---------------------
# Every private fit on a data set is charged to the same accountant. Only the split into training and test records has
# a seed: who knows the seed of the noise can take the noise away again.


class Progress:
    """One line that is written over on a terminal, a line for each new text elsewhere."""

    def __init__(self, total):
        self.total, self.done, self.text = total, 0, None

    def step(self, text):
        """Announce the next step."""
        self.done += 1
        line = f"[{self.done}/{self.total}] {text}"
        if sys.stdout.isatty():
            print(f"\r{line:<60}", end="", flush=True)
        elif text != self.text:
            print(line, flush=True)
        self.text = text

    def clear(self):
        """Wipe the line, so that results can be printed."""
        if sys.stdout.isatty():
            print(f"\r{'':<60}\r", end="", flush=True)


def scores(model, X, y):
    """Return accuracy and area under the ROC curve."""
    return model.score(X, y), roc_auc_score(y, model.decision_function(X))


def study(name, data, repeats, epsilons, progress):
    """Fit everything on one data set, print a table, and return it with the last model and the accountant."""
    X, norm, y = data
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=0, stratify=y)
    accountant = PrivacyAccountant(delta=DELTA)
    plain = scores(LogisticRegression().fit(X_train, y_train), X_test, y_test)
    majority = max(np.mean(y_test == np.argmax(np.bincount(y_train))), 0.0)

    results, seconds = [], []
    for epsilon in epsilons:
        rows = []
        for _ in range(repeats):
            progress.step(f"{name}, epsilon = {epsilon:g}")
            model = DPLogisticRegression(
                epsilon=epsilon, delta=DELTA, data_norm=norm, classes=[0, 1], accountant=accountant
            )
            start = time.perf_counter()
            model.fit(X_train, y_train)
            seconds.append(time.perf_counter() - start)
            rows.append(scores(model, X_test, y_test))
        error = np.std(rows, axis=0, ddof=1) / sqrt(repeats) if repeats > 1 else np.full(2, np.nan)
        results.append((*np.mean(rows, axis=0), *error))
    progress.clear()
    results = np.array(results)

    print(f"\n{name}: {len(y_train)} training and {len(y_test)} test records, {X.shape[1]} features")
    print(f"{'':24}  accuracy           AUC                (mean and standard error of {repeats} fits)")
    print(f"{'majority class':24}  {majority:.3f}              0.500")
    for epsilon, (accuracy, auc, accuracy_error, auc_error) in zip(epsilons, results, strict=True):
        label = f"private, epsilon = {epsilon:g}"
        print(f"{label:24}  {accuracy:.3f} +- {accuracy_error:.3f}     {auc:.3f} +- {auc_error:.3f}")
    print(f"{'scikit-learn, no privacy':24}  {plain[0]:.3f}              {plain[1]:.3f}")
    print(f"one private fit: {1000 * np.mean(seconds):.0f} ms")
    return {"name": name, "results": results, "plain": plain, "majority": majority}, model, accountant


# %%
# The figure
# ----------


def plot(tables, epsilons, path):
    """Draw accuracy against epsilon and save it; say so where matplotlib is missing."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        print(f"matplotlib is not installed, so {path} was not drawn")
        return
    figure, axes = plt.subplots(1, len(tables), figsize=(9, 3.8), layout="constrained")
    for ax, table in zip(np.atleast_1d(axes), tables, strict=True):
        accuracy, error = table["results"][:, 0], np.nan_to_num(table["results"][:, 2])
        ax.axhline(table["plain"][0], color="#000000", linestyle="--", label="scikit-learn, no privacy")
        ax.errorbar(epsilons, accuracy, error, color="#0072B2", marker="o", capsize=4, label="dpskl, mean and s.e.")
        ax.axhline(table["majority"], color="#D55E00", linestyle=":", label="majority class")
        ax.set(xscale="log", xlabel="epsilon (less is more private)", title=table["name"])
        ax.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
        ax.minorticks_off()
    np.atleast_1d(axes)[0].set_ylabel("test accuracy")
    np.atleast_1d(axes)[0].legend(frameon=False)
    figure.savefig(path, dpi=150)
    print(f"saved {path}")


# %%
# What is promised
# ----------------
# ``privacy_guarantee_`` belongs to one model that is released alone. The accountant's report covers all of them
# together, which is what counts for whoever is in the data as soon as more than one is shown.


def main(repeats=5, epsilons=(0.1, 0.3, 1.0, 3.0), path="quickstart.png"):
    """Run both studies, print tables, guarantee and report, and save the figure."""
    progress = Progress(2 * repeats * len(epsilons))
    studies = [
        study("randhie", load_randhie(), repeats, epsilons, progress),
        study("fair", load_fair(), repeats, epsilons, progress),
    ]
    (_, model, _), (_, _, accountant) = studies
    guarantee = model.privacy_guarantee_
    print("\nThe guarantee of one fit, the last one on randhie:\n")
    print(guarantee)
    print(
        f"In words: nothing that the model shows is more than exp({guarantee.epsilon:g}) = {exp(guarantee.epsilon):.3g} times "
        f"as likely with a record as without it, up to a probability of {guarantee.delta:g}; a record is one year of one person, "
        "so who is there for five years has five times this epsilon and more delta."
    )
    print("\nThe accountant's report of all fits on fair:\n")
    print(accountant.report())
    print(
        f"In words: whoever sees all {len(accountant)} models is held by this total and not by the epsilon of any one, because "
        "each adds what it tells about the same records. The test scores above are exact, hence not private at all."
    )
    plot([table for table, _, _ in studies], epsilons, path)


if __name__ == "__main__":
    main()
