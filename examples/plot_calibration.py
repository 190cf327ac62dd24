"""
Probabilities that can be trusted
=================================

A private descent clips the gradient of every record, so that none counts too much. The price is a bias: scores become
too large, and a plain logistic function of them promises more than the data say. ``predict_proba`` knows what the clip
has done, from public or released numbers alone, and takes it back (docs/theory.md, *Probabilities under a clip*).

This example makes data whose true probabilities are known, so that nothing has to be estimated from private records:
a calibration curve on real test records is itself a release, and not covered by any guarantee.
"""

import numpy as np
from scipy.special import expit
from sklearn.calibration import CalibrationDisplay
from sklearn.metrics import log_loss

from dpskl import DPLogisticRegression

# %%
# Records with known probabilities
# --------------------------------
# Twenty columns in [-1, 1], so no row is longer than the square root of 20.
rng = np.random.default_rng(0)
n, d = 20_000, 20
data_norm = d**0.5
weights = rng.normal(size=d)
X = rng.uniform(-1, 1, size=(2 * n, d))
truth = expit(3.0 * X @ weights / np.linalg.norm(weights))
y = (rng.random(2 * n) < truth).astype(int)
train, test = slice(n), slice(n, None)

# %%
# What is said and what is true
# -----------------------------
# For each budget: the log loss of ``predict_proba``, of the logistic function of the scores, and of the truth itself.
# The clip is tightest where the budget is small; at the largest of these nothing is clipped, and at the others the
# noise in the scores is left, which no link can see.
models = {}
print("epsilon  predict_proba  of the scores  truth")
for epsilon in (0.05, 0.1, 0.4):
    models[epsilon] = DPLogisticRegression(epsilon, data_norm=data_norm, classes=[0, 1]).fit(X[train], y[train])
    said = models[epsilon].predict_proba(X[test])[:, 1]
    plain = expit(models[epsilon].decision_function(X[test]))
    losses = [log_loss(y[test], p) for p in (said, plain, truth[test])]
    print(f"{epsilon:7g}  {losses[0]:13.4f}  {losses[1]:13.4f}  {losses[2]:.4f}")

# %%
# The picture
# -----------
# ``CalibrationDisplay`` groups records by what is said and shows how often the label really is 1. On the diagonal
# both are the same.
try:
    import matplotlib.pyplot as plt
except ImportError:
    print("matplotlib is not installed: no figure")
else:
    figure, panels = plt.subplots(1, len(models), figsize=(11, 4), sharey=True)
    for panel, (epsilon, model) in zip(panels, models.items(), strict=True):
        for name, p in (
            ("predict_proba", model.predict_proba(X[test])[:, 1]),
            ("logistic function of the score", expit(model.decision_function(X[test]))),
        ):
            CalibrationDisplay.from_predictions(y[test], p, n_bins=10, name=name, ax=panel)
        panel.set(title=f"epsilon = {epsilon:g}", xlabel="said", ylabel="seen")
    figure.tight_layout()
    plt.show()
