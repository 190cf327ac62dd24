"""A model for others: without ledger, seed and callbacks, with its guarantee, through every usual way of saving."""

import io
import json
import pickle

import joblib
import numpy as np
import pandas as pd
import pytest

from dpskl import (
    DPHuberSVC,
    DPLinearSVC,
    DPLogisticRegression,
    NoPrivacyWarning,
    PrivacyAccountant,
    SeededNoiseWarning,
)
from dpskl.dummy import PrivateMajority
from dpskl.solvers import GradientDescent, solver_names

rng = np.random.default_rng(4)
X = rng.normal(size=(200, 3))
WORDS = np.array(["no", "perhaps", "yes"])


def fitted():
    for estimator in (DPLogisticRegression, DPHuberSVC, DPLinearSVC):
        for solver in solver_names(estimator()._loss()):
            yield estimator(epsilon=4.0, solver=solver)
    yield DPLogisticRegression(epsilon=4.0, solver=GradientDescent(max_iter=7), fit_intercept=False)
    yield DPLogisticRegression(epsilon=4.0, delta=0, neighbours="replace_one", C=0.3, data_norm=3.0, n_samples=1000)
    yield PrivateMajority(epsilon=4.0)


def fit(model, k=2, rows=X):
    return model.set_params(classes=WORDS[:k].tolist(), accountant=PrivacyAccountant()).fit(
        rows, WORDS[np.arange(len(rows)) % k]
    )


def saved_by_pickle(model):
    return pickle.loads(pickle.dumps(model))


def saved_by_joblib(model):
    file = io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    return joblib.load(file)


def saved_by_skops(model):
    skops_io = pytest.importorskip("skops.io", reason="skops is not installed")
    text = skops_io.dumps(model)
    types = skops_io.get_untrusted_types(data=text)
    assert all(name.startswith("dpskl.") for name in types), "nothing but types of this package has to be trusted"
    return skops_io.loads(text, trusted=types)


def saved_by_json(model):
    return type(model).from_dict(json.loads(json.dumps(model.to_dict(), allow_nan=False)))


@pytest.mark.parametrize("save", [saved_by_pickle, saved_by_joblib, saved_by_skops, saved_by_json])
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("model", list(fitted()), ids=repr)
def test_a_released_model_is_the_same_model_without_its_ledger(model, k, save):
    model = fit(model, k)
    received = save(model.release())
    np.testing.assert_array_equal(received.predict(X), model.predict(X))
    if hasattr(model, "decision_function"):
        np.testing.assert_array_equal(received.decision_function(X), model.decision_function(X))
    assert received.privacy_guarantee_ == model.privacy_guarantee_
    assert str(received.privacy_guarantee_) == str(model.privacy_guarantee_)
    assert received.accountant is None
    assert received.classes_.tolist() == model.classes_.tolist()
    for name in ("n_iter_", "effective_C_", "n_features_in_", "history_"):
        assert getattr(received, name, None) == getattr(model, name, None)
    mine, theirs = model.get_params(), received.get_params()
    for name in set(mine) - {"accountant", "solver"}:
        assert mine[name] == theirs[name]


def test_the_receiver_learns_nothing_of_the_house():
    model = fit(DPLogisticRegression(epsilon=4.0))
    text = pickle.dumps(model.release()) + json.dumps(model.to_dict()).encode()
    assert model.accountant.path.encode() not in text
    assert model.accountant._facts["id"].encode() not in text
    assert set(vars(model.release())) == set(vars(model))
    assert model.accountant is not None, "the model itself keeps its ledger"


def test_names_of_columns_come_along():
    frame = pd.DataFrame(X, columns=["age", "income", "weight"])
    received = saved_by_json(fit(DPLogisticRegression(epsilon=4.0), rows=frame))
    assert received.feature_names_in_.tolist() == ["age", "income", "weight"]
    received.predict(frame)
    with pytest.raises(ValueError, match="feature names"):
        received.predict(frame[["income", "age", "weight"]])


def test_a_model_without_a_guarantee_warns_when_it_is_released():
    with pytest.warns(NoPrivacyWarning):
        model = fit(DPLogisticRegression(epsilon=float("inf")))
    with pytest.warns(NoPrivacyWarning, match="no privacy guarantee"):
        received = saved_by_json(model)
    assert received.privacy_guarantee_ is None
    assert received.epsilon == float("inf")
    with pytest.warns(SeededNoiseWarning):
        model = fit(DPLogisticRegression(epsilon=4.0, random_state=7))
    with pytest.warns(SeededNoiseWarning, match="seeded"):
        received = model.release()
    assert received.random_state is None


def test_what_is_not_a_record_is_refused():
    record = fit(DPLogisticRegression(epsilon=4.0)).to_dict()
    with pytest.raises(ValueError, match=r"DPHuberSVC\.from_dict reads its own only"):
        DPHuberSVC.from_dict(record)
    with pytest.raises(ValueError, match="reads its own only"):
        DPLogisticRegression.from_dict([1, 2])
    with pytest.raises(ValueError, match="format 2"):
        DPLogisticRegression.from_dict({**record, "format": 2})
    with pytest.raises(ValueError, match=r"'os\.system' of this record"):
        DPLogisticRegression.from_dict(
            {**record, "parameters": {**record["parameters"], "solver": {"name": "os.system", "parameters": {}}}}
        )

    def damaged(part, **changes):
        return {**record, part: {**record[part], **changes}}

    for changed in (
        {**record, "fitted": {}},
        damaged("fitted", coef_=[[1.0, float("nan"), 0.0]]),
        damaged("fitted", coef_=[[1.0, 2.0]]),
        damaged("fitted", intercept_=[1.0, 2.0]),
        damaged("fitted", classes_=["no"]),
        {**record, "fitted": {name: value for name, value in record["fitted"].items() if name != "_rows"}},
        damaged("privacy_guarantee", epsilon=-1),
        damaged("privacy_guarantee", delta=2.0),
    ):
        with pytest.raises(ValueError, match="the record is damaged"):
            DPLogisticRegression.from_dict(changed)
    with pytest.raises(ValueError, match="no model of this package has"):
        DPLogisticRegression.from_dict({**record, "fitted": {**record["fitted"], "predict": 1}})
