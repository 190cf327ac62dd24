"""
How good is it, privately
=========================

Accuracy on held-out records, a ROC curve and a calibration curve are exact functions of these records, and no guarantee
of the model covers them. ``evaluate`` releases one noisy histogram of scores by class instead. All figures and curves
are computed from it, for the price of one, with standard errors that contain the noise.

The records are made, so that exact figures can be shown beside the released ones. With real records they must not be.
"""

import numpy as np
from scipy.special import expit
from sklearn.metrics import roc_auc_score

from dpskl import DPLogisticRegression, PrivacyAccountant
from dpskl.metrics import evaluate

# %%
# Two sets of records
# -------------------
# Twenty columns in [-1, 1], so no row is longer than the square root of 20. The model never sees the second half, and
# the accountant of its records is another one: nobody is in both.
rng = np.random.default_rng(0)
n, d = 10_000, 20
weights = rng.normal(size=d)
X = rng.uniform(-1, 1, size=(2 * n, d))
y = (rng.random(2 * n) < expit(4.0 * X @ weights / np.linalg.norm(weights))).astype(int)
train, test = slice(n), slice(n, None)
model = DPLogisticRegression(0.5, data_norm=d**0.5, classes=[0, 1]).fit(X[train], y[train])

# %%
# One release
# -----------
held_out = PrivacyAccountant(epsilon=1.0, delta=1e-5)
p = model.predict_proba(X[test])[:, 1]
evaluation = evaluate(y[test], p, epsilon=0.2, classes=[0, 1], accountant=held_out)
print(evaluation)
print(f"area without noise, which must not be shown: {roc_auc_score(y[test], p):.4f}")
print("95 % interval of the area: {:.3f} to {:.3f}".format(*evaluation.interval("roc_auc")))
print(held_out.spent())

# %%
# A threshold
# -----------
# Chosen from the released curve it costs nothing. The figure at the chosen threshold is then a little too good.
threshold = evaluation.threshold_for("recall", at_least=0.9)
print(f"recall of 0.9: threshold {threshold:.3f}, precision {evaluation.precision(threshold)}")

# %%
# More or less budget
# -------------------
# Each of these is a release of its own and is charged. Where epsilon times the number of records is large, what is left
# is the error of the sample.
for epsilon in (0.05, 0.1, 0.4):
    area = evaluate(y[test], p, epsilon=epsilon, classes=[0, 1], accountant=held_out).roc_auc
    print(f"epsilon {epsilon:g}: area {area}")

# %%
# Pictures
# --------
# They are scikit-learn's displays, given released numbers.
try:
    import matplotlib.pyplot as plt
except ImportError:
    print("matplotlib is not installed: no figure")
else:
    figure, panels = plt.subplots(1, 3, figsize=(13, 4))
    evaluation.plot_roc(panels[0])
    evaluation.plot_calibration(panels[1])
    evaluation.plot_confusion_matrix(panels[2], threshold=threshold)
    figure.tight_layout()
    plt.show()
