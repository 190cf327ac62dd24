"""
A line search that pays for itself
==================================

Step sizes are hard to guess, and trying several costs privacy. ``solver="blgd"`` asks for the first step of a list that
lowers the objective enough, at a price that hardly depends on the length of the list, and raises the budget of
its gradients when no step helps. What it released along the way is in ``history_``: step sizes, budgets and norms of
noisy gradients. This example looks at them.

The records are the survey on extramarital affairs that ships with statsmodels (Fair 1978), one record for each woman.
"""

import numpy as np
from statsmodels.api import datasets

from dpskl import DPLogisticRegression
from dpskl.preprocessing import PublicScaler
from dpskl.solvers import BacktrackingGD, BacktrackingSGD

# %%
# Bounds come from the questionnaire: six columns in [0, 1], so no row is longer than the square root of 6.
frame = datasets.fair.load_pandas().data
y = (frame["affairs"] > 0).astype(int)
bounds = {
    "rate_marriage": (1, 5), "religious": (1, 4), "age": (16, 60), "yrs_married": (0, 40), "children": (0, 10),
    "educ": (9, 20),
}  # fmt: skip
low, high = zip(*bounds.values(), strict=True)
X = PublicScaler(low=low, high=high).fit_transform(frame[list(bounds)])
data_norm = len(bounds) ** 0.5

# %%
# Three budgets
# -------------
# A fit is charged its whole budget before the data are used, and ends when a filter refuses the next question.
models = {}
for epsilon in (0.2, 1.0, 5.0):
    models[epsilon] = DPLogisticRegression(epsilon, solver="blgd", data_norm=data_norm, classes=[0, 1]).fit(X, y)
    history = models[epsilon].history_
    failed = sum(searches - 1 for searches in history["searches"])
    print(f"epsilon {epsilon:g}: {models[epsilon].n_iter_} updates, {failed} searches without success,", end=" ")
    print(f"accuracy {models[epsilon].score(X, y):.3f}")
print(models[1.0].privacy_guarantee_)

# %%
# Samples instead of all records
# ------------------------------
# ``BacktrackingSGD`` asks every question about a fresh Poisson sample. With ``threshold_decay`` its clip thresholds
# fall whenever it raises a budget.
sampled = BacktrackingSGD(q=0.2, n_updates=60, threshold_decay=0.05)
model = DPLogisticRegression(1.0, solver=sampled, data_norm=data_norm, classes=[0, 1]).fit(X, y)
print(f"sampled: {model.n_iter_} updates, accuracy {model.score(X, y):.3f}; majority {np.mean(y == 0):.3f}")

# %%
# Without momentum
# ----------------
# The published method has no momentum. It searches along the noisy gradient itself and needs its budget sooner.
plain = BacktrackingGD(momentum=0.0, iterate="last")
published = DPLogisticRegression(1.0, solver=plain, data_norm=data_norm, classes=[0, 1]).fit(X, y)
print(f"no momentum: {published.n_iter_} updates, accuracy {published.score(X, y):.3f}")

# %%
# Step sizes and budgets
# ----------------------
# Steps of the mean loss, and the budget of one gradient relative to the first one. A fall of the largest step marks a
# search without success; there the gradient was measured again, and later gradients are more precise.
try:
    import matplotlib.pyplot as plt
except ModuleNotFoundError:
    print("matplotlib is not installed: no figure")
else:
    figure, (above, below) = plt.subplots(2, 1, figsize=(6, 5), sharex=True)
    for (epsilon, fitted), color in zip(models.items(), ("#0072b2", "#009e73", "#d55e00"), strict=True):
        history = fitted.history_
        updates = np.arange(1, fitted.n_iter_ + 1)
        above.plot(updates, history["largest_step"], color=color, alpha=0.4, drawstyle="steps-mid")
        above.plot(updates, history["step_size"], ".", color=color, label=f"epsilon = {epsilon:g}")
        level = np.array(history["gradient_level"])
        below.plot(updates, level / level[0], color=color, drawstyle="steps-mid")
    above.set(yscale="log", ylabel="step size")
    above.legend(frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    below.set(xlabel="update", ylabel="budget of a gradient")
    figure.tight_layout()
    plt.show()
