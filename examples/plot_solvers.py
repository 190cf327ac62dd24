"""
All solvers on one set of records
=================================

``solver=`` chooses how a budget is spent. This example trains a logistic regression with each solver and its defaults
at four budgets, and draws the test accuracy. The default, ``"whitened_gd"``, first releases the second moment of the
rows with noise and then descends in coordinates in which all directions are about equally long; the others are here
because they are what the literature has, and because some of them can do without ``delta``.

The records are the survey on extramarital affairs that ships with statsmodels (Fair 1978), one record for each woman.
"""

import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import OneHotEncoder
from statsmodels.api import datasets

from dpskl import DPLogisticRegression
from dpskl.dummy import PrivateMajority
from dpskl.preprocessing import PublicScaler
from dpskl.records.losses import Logistic
from dpskl.solvers import solver_names

# %%
# Bounds and categories come from the questionnaire: six columns in [0, 1] and two occupations out of six, so that no
# row is longer than the square root of 8.
frame = datasets.fair.load_pandas().data
y = (frame["affairs"] > 0).astype(int)
bounds = {
    "rate_marriage": (1, 5), "religious": (1, 4), "age": (16, 60), "yrs_married": (0, 40), "children": (0, 10),
    "educ": (9, 20),
}  # fmt: skip
low, high = zip(*bounds.values(), strict=True)
occupations = OneHotEncoder(categories=[[1, 2, 3, 4, 5, 6]] * 2, handle_unknown="ignore", sparse_output=False)
columns = make_column_transformer(
    (PublicScaler(low=low, high=high), list(bounds)), (occupations, ["occupation", "occupation_husb"])
)
X_train, X_test, y_train, y_test = train_test_split(columns.fit_transform(frame), y, random_state=0)

# %%
# Three fits for each solver and budget, each with fresh noise.
epsilons = [0.1, 0.3, 1.0, 3.0]
accuracy = {}
for solver in solver_names(Logistic()):
    scores = [
        [
            DPLogisticRegression(epsilon, solver=solver, data_norm=8**0.5, classes=[0, 1])
            .fit(X_train, y_train)
            .score(X_test, y_test)
            for _ in range(3)
        ]
        for epsilon in epsilons
    ]
    accuracy[solver] = np.array(scores)
    print(f"{solver:24}", *(f"{row.mean():.3f}" for row in accuracy[solver]))
majority = PrivateMajority(0.1, classes=[0, 1]).fit(X_train, y_train).score(X_test, y_test)
print(f"{'private majority':24} {majority:.3f}")

# %%
# The figure
# ----------
# Points are single fits: where they lie apart, so would yours.
try:
    import matplotlib.pyplot as plt
except ModuleNotFoundError:
    print("matplotlib is not installed: no figure")
else:
    figure, axes = plt.subplots(figsize=(7, 4.5))
    for number, (solver, scores) in enumerate(accuracy.items()):
        is_default = solver == "whitened_gd"
        color = "black" if is_default else f"C{number}"
        axes.plot(epsilons, scores.mean(axis=1), color=color, linewidth=2.5 if is_default else 1.2, label=solver)
        axes.plot(epsilons, scores, ".", color=color, markersize=4)
    axes.axhline(majority, color="gray", linestyle=":", label="private majority")
    axes.set(xscale="log", xlabel="epsilon at delta = 1e-6", ylabel="test accuracy")
    axes.legend(frameon=False, bbox_to_anchor=(1.0, 1.0), loc="upper left")
    figure.tight_layout()
    plt.show()
