"""
=======================================
Quickstart: two sets of private records
=======================================

We train :class:`~dpskl.DPLogisticRegression` on records that nobody would like to see leaked, and compare it
with a classifier that protects nobody. Both sets come with statsmodels, so nothing is downloaded:

* ``fair``, a magazine survey of 1974: which of 6,366 married women had an affair? One record is one woman.
* ``randhie``, the RAND Health Insurance Experiment: who saw a doctor more than once in a year? One record is
  one year of one person, and the 20,190 records hold up to five years of the same person. The guarantee is
  for a record; a person with several is protected less.

Run ``python examples/quickstart.py``. The figures change from run to run, since the noise is never seeded.
"""

import sys
import time
from math import exp, log, sqrt
from textwrap import fill

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
# The noise must cover the largest change that one record can cause, so every column needs bounds. Bounds read
# off the data would tell about the extreme records; ours come from the published description of each study.
# Values beyond them are clipped: a bound that is too tight may cost accuracy, and never privacy.

RANDHIE_BOUNDS = {
    # column: (lowest, highest)
    "lncoins": (0.0, log(101)),  # ln(1 + coinsurance), a percentage
    "idp": (0.0, 1.0),  # individual deductible plan: no, yes
    "lpi": (0.0, log(1000)),  # ln(participation payment in a year): we count at most $1,000
    "fmde": (0.0, log(4000)),  # ln(spending limit / coinsurance): at most $1,000 and at least 25 %
    "physlm": (0.0, 1.0),  # physical limitation: no, yes
    "disea": (0.0, 30.0),  # number of chronic diseases: we count at most 30
}
RANDHIE_CATEGORIES = {"health": (0, 1, 2, 3)}  # self-rated: excellent, good, fair, poor

# The questionnaire had fixed answers with fixed codes: the bounds are the first and the last of them.
FAIR_BOUNDS = {
    "rate_marriage": (1.0, 5.0),  # very poor to very good
    "age": (17.5, 42.0),  # under 20 to 40 or over
    "yrs_married": (0.5, 23.0),  # less than one year to more than ten, with grown-up children
    "children": (0.0, 5.5),  # none to five or more
    "religious": (1.0, 4.0),  # not to strongly
    "educ": (9.0, 20.0),  # grade school to advanced degree
}
FAIR_CATEGORIES = {"occupation": range(1, 7), "occupation_husb": range(1, 7)}  # codes without an order


# %%
# Features of a known norm
# ------------------------
# A bounded column is mapped to [-1, 1]: twice as wide as [0, 1] at the same norm, hence twice the signal at
# the same noise. A category becomes one column for each code, of which at most one is 1. So each entry of the
# tables adds at most 1 to the squared norm of a row, and ``data_norm`` is the square root of their number.


def encode(frame, bounds, categories):
    """Return features and the norm that no row of them exceeds, whatever the frame holds."""
    columns = []
    for name, (low, high) in bounds.items():
        columns.append(2 * (np.clip(frame[name], low, high) - low) / (high - low) - 1)
    for name, codes in categories.items():
        columns.extend(frame[name] == code for code in codes)
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
# All private fits on a data set are charged to one accountant. Only the split into training and test records
# has a seed: who knows the seed of the noise can take the noise away.


class Progress:
    """A line that is written over on a terminal, and a line for each new text elsewhere."""

    def __init__(self, total):
        self.total, self.done, self.text = total, 0, None

    def step(self, text):
        """Announce the next fit."""
        self.done += 1
        line = f"[{self.done}/{self.total}] {text}"
        if sys.stdout.isatty():
            print(f"\r{line:<40}", end="", flush=True)
        elif text != self.text:
            print(line, flush=True)
        self.text = text

    def clear(self):
        """Wipe the line, so that results can be printed."""
        if sys.stdout.isatty():
            print(f"\r{'':<40}\r", end="", flush=True)


def scores(model, X, y):
    """Return accuracy and area under the ROC curve."""
    return model.score(X, y), roc_auc_score(y, model.decision_function(X))


def study(name, data, repeats, epsilons, progress):
    """Fit at every epsilon, print a table, and return it with one model for each epsilon and the ledger."""
    X, norm, y = data
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.25, random_state=0)
    majority = np.mean(y_test == (y.mean() > 0.5))
    plain = scores(LogisticRegression().fit(X, y), X_test, y_test)
    accountant = PrivacyAccountant(delta=DELTA)

    models, rows, seconds = {}, [], []
    for epsilon in epsilons:
        model = DPLogisticRegression(
            epsilon=epsilon, delta=DELTA, data_norm=norm, classes=[0, 1], accountant=accountant
        )
        repeated = []
        for _ in range(repeats):
            progress.step(f"{name}, epsilon = {epsilon:g}")
            start = time.perf_counter()
            model.fit(X, y)
            seconds.append(time.perf_counter() - start)
            repeated.append(scores(model, X_test, y_test))
        error = np.std(repeated, axis=0, ddof=1) / sqrt(repeats) if repeats > 1 else (0, 0)
        rows.append((*np.mean(repeated, axis=0), *error))
        models[epsilon] = model
    progress.clear()

    print(f"\n{name}: {len(y)} training and {len(y_test)} test records, {X.shape[1]} features")
    print(f"{'':26}accuracy           AUC")
    print(f"{'majority class':26}{majority:.3f}              0.500")
    for epsilon, (accuracy, auc, accuracy_error, auc_error) in zip(epsilons, rows, strict=True):
        label = f"private, epsilon = {epsilon:g}"
        print(f"{label:26}{accuracy:.3f} +- {accuracy_error:.3f}     {auc:.3f} +- {auc_error:.3f}")
    print(f"{'scikit-learn, no privacy':26}{plain[0]:.3f}              {plain[1]:.3f}")
    milliseconds = 1000 * np.mean(seconds)
    print(f"Means and standard errors of {repeats} fits on one split; {milliseconds:.0f} ms a private fit.\n")
    return {"name": name, "rows": np.array(rows), "plain": plain, "majority": majority}, models, accountant


# %%
# The figure
# ----------


def plot(tables, epsilons, path):
    """Draw test accuracy against epsilon and save it; say so where matplotlib is missing."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        print(f"matplotlib is not installed, so {path} was not drawn")
        return
    figure, axes = plt.subplots(1, len(tables), figsize=(9, 3.8), layout="constrained")
    for ax, table in zip(axes, tables, strict=True):
        rows = table["rows"]
        ax.axhline(table["plain"][0], color="#000000", linestyle="--", label="scikit-learn, no privacy")
        ax.errorbar(epsilons, rows[:, 0], rows[:, 2], color="#0072B2", marker="o", capsize=4, label="dpskl")
        ax.axhline(table["majority"], color="#D55E00", linestyle=":", label="majority class")
        ax.set(xscale="log", xlabel="epsilon (smaller is more private)", title=table["name"])
        ax.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
        ax.minorticks_off()
    axes[0].set_ylabel("test accuracy (mean and s.e.)")
    axes[0].legend(frameon=False)
    figure.savefig(path, dpi=150)
    print(f"\nsaved {path}")


# %%
# What is promised
# ----------------
# ``privacy_guarantee_`` speaks of one model that is shown alone. The accountant's report speaks of all models
# together, and that is what counts for the people in the data as soon as more than one model is shown.


def main(repeats=5, epsilons=(0.1, 0.3, 1.0, 3.0), path="quickstart.png"):
    """Run both studies, print tables, guarantee and report, and save the figure."""
    progress = Progress(2 * repeats * len(epsilons))
    fair, models, accountant = study("fair", load_fair(), repeats, epsilons, progress)
    randhie, _, _ = study("randhie", load_randhie(), repeats, epsilons, progress)

    guarantee = models[min(epsilons, key=lambda epsilon: abs(log(epsilon)))].privacy_guarantee_
    print(f"The guarantee of one fit on fair:\n\n{guarantee}\n")
    words = (
        "In words: whatever the model shows is at most "
        f"exp({guarantee.epsilon:g}) = {exp(guarantee.epsilon):.3g} times as likely if a woman's record was "
        f"used as if it was not, and the other way round, up to a probability of {guarantee.delta:g}."
    )
    print(fill(words, 100))
    print(f"\nThe accountant's report of all fits on fair:\n\n{accountant.report()}\n")
    words = (
        f"In words: all {len(accountant)} models were trained on the same women, so against who sees all of "
        "them only this total holds, not the epsilon of any one model. The test scores above carry no noise "
        "and no promise."
    )
    print(fill(words, 100))
    plot([fair, randhie], epsilons, path)


if __name__ == "__main__":
    main()
