"""
What a search costs
===================

A grid search trains a model for every candidate and fold, and all of them have seen the same records. This example
searches over epsilon in a pipeline with raw categorical columns, says beforehand what that costs, counts what it did
cost, and then lets a private search pay for its winner only.

The records are the survey on extramarital affairs that ships with statsmodels (Fair 1978), one record for each woman.
"""

import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from statsmodels.api import datasets

from dpskl import DPLogisticRegression, PrivacyAccountant
from dpskl.model_selection import BudgetedSearchCV, PrivateSearchCV, plan_cost
from dpskl.preprocessing import PublicScaler

# %%
# Public facts
# ------------
# Bounds and categories come from the questionnaire, not from the answers. Four scaled columns in [0, 1] and one
# occupation out of six: no row is longer than the square root of 5.
frame = datasets.fair.load_pandas().data
y = (frame["affairs"] > 0).astype(int)
columns = make_column_transformer(
    (PublicScaler(low=[16, 0, 0, 9], high=[60, 40, 10, 20]), ["age", "yrs_married", "children", "educ"]),
    (OneHotEncoder(categories=[[1, 2, 3, 4, 5, 6]], handle_unknown="ignore"), ["occupation"]),
)
data_norm, n_columns = 5**0.5, 4 + 6

# %%
# A grid over epsilon
# -------------------
# Two candidates, three folds and the refit make seven fits. The plan needs sizes and no data.
accountant = PrivacyAccountant(epsilon=5.0, delta=1e-6)
model = DPLogisticRegression(solver="gd", data_norm=data_norm, classes=[0, 1], accountant=accountant)
folds = KFold(3, shuffle=True, random_state=0)  # the seed of a split is harmless, that of the noise is not
search = BudgetedSearchCV(make_pipeline(columns, model), {"dplogisticregression__epsilon": [0.3, 1.0]}, cv=folds)
plan = plan_cost(search, len(frame), n_columns)
print(plan)

# %%
# ``BudgetedSearchCV`` asks the ledger for all of them before the first, and raises where they would not fit.
search.fit(frame, y)
print(search.best_params_)
print(accountant.report())
print("a sum of epsilons would say", round(sum(entry.cost.epsilon(1e-6) for entry in accountant.entries()), 2))

# %%
# The ledger covers the fitted models. It does not cover the scores in ``cv_results_``, which are exact functions of
# the held-out records, nor the choice between the candidates.
#
# A search that pays once
# -----------------------
# ``PrivateSearchCV`` draws the number of trials at random, scores with noise, and releases the winner alone: one entry
# in the ledger, at the epsilon that was asked for, whatever the number of candidates.
ledger = PrivacyAccountant(epsilon=1.0, delta=1e-6)
private = PrivateSearchCV(
    DPLogisticRegression(solver="gd", classes=[0, 1]),
    {"data_norm": [1.0, data_norm, 4.0], "C": [0.1, 1.0]},
    epsilon=1.0,
    mean_trials=10,
    accountant=ledger,
)
pipeline = make_pipeline(columns, private).fit(frame, y)
print(private.best_params_, "noisy accuracy", round(private.best_score_, 3))
print(ledger.report())
print("majority class", round(float(np.mean(y == 0)), 3))

# %%
# The price list
# --------------
# What seven fits of epsilon 1 cost when epsilons are added, when they are composed, and what a private search over as
# many candidates as one likes costs for the same epsilon of a trial.
try:
    import matplotlib.pyplot as plt
except ModuleNotFoundError:
    print("matplotlib is not installed: no figure")
else:
    from dpskl.accounting import GaussianCost, SelectionCost, compose, gaussian_mu

    one = GaussianCost(gaussian_mu(1.0, 1e-6))
    trials = [1, 3, 10, 30, 100]
    figure, axes = plt.subplots(figsize=(6, 4))
    axes.plot(trials, trials, "k:", label="sum of epsilons")
    axes.plot(trials, [compose([(one, k)]).epsilon(1e-6) for k in trials], "o-", color="#d55e00", label="composed fits")
    best = [SelectionCost(one, 0, k).epsilon(1e-6) for k in trials]
    axes.plot(trials, best, "s-", color="#0072b2", label="private search (mean number of trials)")
    axes.set(xscale="log", yscale="log", xlabel="fits of epsilon = 1", ylabel="epsilon at delta = 1e-6")
    axes.legend(frameon=False)
    figure.tight_layout()
    plt.show()
