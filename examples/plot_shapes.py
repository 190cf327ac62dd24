"""
Curves for a linear classifier
==============================

A linear classifier gives each column one weight: the score rises with age, or it falls. ``PublicSplineTransformer``
makes of each column a few hat functions with declared knots, and the weights of a classifier behind it are the heights
of a piecewise linear curve: an additive model, which a reader can look at. Knots and bounds are public, so that nothing
is paid for them, and the norm of a row is exactly known.

The records are made, so that the true curves are known.
"""

import numpy as np
import pandas as pd
from scipy.special import expit
from sklearn.pipeline import make_pipeline

from dpskl import DPLogisticRegression
from dpskl.preprocessing import PublicScaler, PublicSplineTransformer, knots_for, plot_shape, shape_functions

# %%
# Records with known curves
# -------------------------
# The chance of a "yes" is highest in the middle of life, rises with the logarithm of the income and falls with the
# hours of work above forty. One income in ten is missing, and more often where the answer is "yes".
rng = np.random.default_rng(0)
n = 40_000
people = pd.DataFrame(
    {
        "age": rng.uniform(18, 98, n),
        "income": rng.lognormal(7.5, 1.2, n),
        "hours": rng.uniform(0, 80, n),
    }
)
truth = {
    "age": lambda v: 2 - (np.abs(v - 55) / 18) ** 1.5,
    "income": lambda v: np.log1p(v) - 7.5,
    "hours": lambda v: -np.maximum(v - 40, 0) / 10,
}
score = sum(curve(people[name]) for name, curve in truth.items()) + 1.5
y = (rng.random(n) < expit(score)).astype(int)
people.loc[rng.random(n) < 0.05 + 0.1 * y, "income"] = np.nan
train, test = people[: n // 2], people[n // 2 :]
y_train, y_test = y[: n // 2], y[n // 2 :]

# %%
# How many knots
# --------------
# That follows from the budget and the number of records and costs nothing.
low, high = {"age": 18, "income": 100, "hours": 0}, {"age": 98, "income": 20_000, "hours": 80}
epsilon, delta = 1.0, 1e-6
n_knots = knots_for(len(train), 3, epsilon, delta, n_other=1)  # one more column, for missing incomes
print(n_knots, "knots")

# %%
# Two fits
# --------
# Lines need a value in place of what is missing; curves have a place for it.
hats = PublicSplineTransformer(
    low, high, n_knots=n_knots, spacing={"income": "log"}, handle_missing={"income": "indicator"}
)
curves = make_pipeline(hats, DPLogisticRegression(epsilon, delta, data_norm=3**0.5, classes=[0, 1]))
curves.fit(train, y_train)
lines = make_pipeline(
    PublicScaler(low, high, feature_range=(-1, 1)),
    DPLogisticRegression(epsilon, delta, data_norm=3**0.5, classes=[0, 1]),
)
lines.fit(train.fillna(2_000), y_train)
print(f"accuracy of curves {curves.score(test, y_test):.3f}, of lines {lines.score(test.fillna(2_000), y_test):.3f}")

# %%
# What was learnt
# ---------------
# Heights at the knots, with mean 0: they were released with the weights. Noise is largest where few records are, as at
# both ends of the incomes; incomes above the bound count as 20,000.
for name, shape in shape_functions(curves).items():
    print(name, dict(zip(shape.knots.round().tolist(), shape.values.round(2).tolist(), strict=True)))

# %%
# The picture
# -----------
# Each curve with the true one behind it, on the axis of its column; the bar is the height where the income is missing.
try:
    import matplotlib.pyplot as plt
except ImportError:
    print("matplotlib is not installed: no figure")
else:
    panels = plot_shape(curves)
    for panel, (name, shape) in zip(panels, shape_functions(curves).items(), strict=True):
        true = truth[name](shape.knots)
        panel.plot(shape.knots, true - true.mean(), color="0.6", linestyle="--", zorder=0)
    plt.show()
