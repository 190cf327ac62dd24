"""Layouts of X, and losses with numbers of classes."""

import numpy as np
import scipy.sparse as sp

from dpskl.records.losses import Hinge, HuberHinge, Logistic, Softmax

LAYOUTS = {
    "C64": lambda X: np.ascontiguousarray(X),
    "F64": lambda X: np.asfortranarray(X),
    "C32": lambda X: np.ascontiguousarray(X, dtype=np.float32),
    "F32": lambda X: np.asfortranarray(X, dtype=np.float32),
    "strided": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "csr64": lambda X: sp.csr_array(X),
    "csr32": lambda X: sp.csr_array(X.astype(np.float32)),
    "csr_int64": lambda X: sp.csr_matrix(
        (sp.csr_array(X).data, sp.csr_array(X).indices.astype(np.int64), sp.csr_array(X).indptr.astype(np.int64)),
        X.shape,
    ),
}
CASES = {
    "logistic": (Logistic(), 2),
    "hinge": (Hinge(), 2),
    "huber": (HuberHinge(0.3), 2),
    "softmax": (Softmax(), 4),
    "one-vs-rest": (HuberHinge(0.3), 4),
}
