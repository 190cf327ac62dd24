"""What is read from released weights behind hat functions, and how it is drawn."""

import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import Normalizer, OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

from dpskl import DPLogisticRegression, PrivacyAccountant
from dpskl.preprocessing import PublicSplineTransformer, RowNormClipper, plot_shape, shape_functions

rng = np.random.default_rng(5)
N = 300
FRAME = pd.DataFrame(
    {
        "age": rng.uniform(18, 98, N),
        "income": rng.exponential(3000.0, N),
        "region": rng.choice(["north", "south"], N),
    }
)
FRAME.loc[::7, "income"] = np.nan
LABELS = np.arange(N) % 2
HATS = PublicSplineTransformer(
    {"age": 18, "income": 0},
    {"age": 98, "income": 1e5},
    n_knots=4,
    spacing={"income": "log"},
    handle_missing="indicator",
)
NUMBERS = ["age", "income"]
REGION = OneHotEncoder(categories=[["north", "south"]])


class Weights:
    """Somebody's linear classifier with known weights."""

    def __init__(self, coef):
        self.coef_ = np.asarray(coef, dtype=float)
        self.classes_ = np.arange(max(2, len(self.coef_)))


def fitted():
    return PublicSplineTransformer(**HATS.get_params()).fit(FRAME[NUMBERS])


def columns(hats=HATS):
    return make_column_transformer((REGION, ["region"]), (hats, NUMBERS), sparse_threshold=1.0)


def test_blocks_are_centred_over_their_knots():
    shapes = shape_functions(Weights([[1, 2, 3, 6, 10, 0, 0, 4, 0, -1]]), fitted())
    assert list(shapes) == NUMBERS
    age, income = shapes.values()
    np.testing.assert_array_equal(age.values, [-2, -1, 0, 3])
    np.testing.assert_array_equal(income.values, [-1, -1, 3, -1])
    assert (age.missing, income.missing) == (7, -2)
    assert (age.spacing, income.spacing) == ("linear", "log")
    np.testing.assert_allclose(age.knots, np.linspace(18, 98, 4))
    np.testing.assert_array_equal(income.knots[[0, -1]], [0, 1e5])


def test_heights_between_knots_are_what_the_rows_add_to_a_score():
    coef = rng.normal(size=(3, 10))
    hats = fitted()
    shapes = shape_functions(Weights(coef), hats)
    rows = pd.DataFrame({"age": rng.uniform(0, 120, 50), "income": rng.uniform(-10, 2e5, 50)})
    scores = hats.transform(rows) @ coef.T
    added = sum(shapes[name].at(rows[name]) for name in NUMBERS)
    assert added.shape == (50, 3)
    np.testing.assert_allclose(scores - added, np.tile((scores - added)[0], (50, 1)), atol=1e-10)  # a constant
    assert shapes["age"].values.shape == (4, 3)
    assert shapes["age"].missing.shape == (3,)


def test_without_names_and_without_an_indicator():
    hats = PublicSplineTransformer(0, 1, n_knots=2).fit([[0.0, 0.0]])
    shapes = shape_functions(Weights([[0, 2, 5, 5]]), hats)
    assert list(shapes) == ["x0", "x1"]
    assert shapes["x0"].missing is None
    np.testing.assert_array_equal(shapes["x0"].at([-1, 0.25, 9]), [-1, -0.5, 1])


@pytest.mark.parametrize(
    "front",
    [
        columns(),
        make_pipeline(columns(), "passthrough", RowNormClipper(2.0)),
        ColumnTransformer([("a", make_pipeline(HATS, RowNormClipper(1.0)), NUMBERS), ("b", REGION, ["region"])]),
        ColumnTransformer([("a", FeatureUnion([("hats", HATS)]), NUMBERS), ("b", REGION, ["region"])]),
        ColumnTransformer([("a", HATS, NUMBERS), ("b", REGION, ["region"])], verbose_feature_names_out=False),
    ],
)
def test_a_pipeline_is_searched_for_its_transformer_and_its_classifier(front):
    accountant = PrivacyAccountant()
    model = make_pipeline(front, DPLogisticRegression(data_norm=3**0.5, classes=[0, 1], accountant=accountant))
    model.fit(FRAME, LABELS)
    names = [name.split("__")[-1] for name in model[:-1].get_feature_names_out()]
    weights = dict(zip(names, model[-1].coef_[0], strict=True))
    shapes = shape_functions(model)
    for name in NUMBERS:
        label = [weights[key] for key in weights if key.startswith(name) and "missing" not in key]
        np.testing.assert_allclose(shapes[name].values, np.array(label) - np.mean(label))
        assert shapes[name].missing == pytest.approx(weights[f"{name}[missing]"] - np.mean(label))
    assert len(accountant.entries()) == 1


def test_part_of_the_columns_by_their_names():
    front = columns().fit(FRAME)
    coef = rng.normal(size=(1, 12))
    inside = front.named_transformers_["publicsplinetransformer"]
    shapes = shape_functions(Weights(coef), inside, names=front.get_feature_names_out())
    np.testing.assert_allclose(shapes["age"].values, coef[0, 2:6] - coef[0, 2:6].mean())


def test_what_cannot_be_read_is_named():
    hats, weights = fitted(), Weights(np.zeros((1, 10)))
    cases = [
        ((weights,), {}, "transformer=None, but it must be a PublicSplineTransformer or TableEncoder, or"),
        ((weights, RowNormClipper()), {}, r"transformer=RowNormClipper\(\)"),
        ((DecisionTreeClassifier(), hats), {}, "DecisionTreeClassifier has no coef_"),
        ((Weights(np.zeros((1, 9))), hats), {}, "coef_ has 9 columns and names= has 10"),
        ((weights, hats), {"names": ["a"] * 10}, r"0 columns of coef_ are named 'age\[18.0\]'"),
        ((Weights(np.zeros((1, 20))), hats), {"names": [*hats.get_feature_names_out()] * 2}, "2 columns of coef_"),
    ]
    fits = {
        "0 PublicSplineTransformer": make_pipeline(RowNormClipper(), LogisticRegression()),
        "2 PublicSplineTransformer": make_pipeline(
            FeatureUnion([("a", PublicSplineTransformer(0, 9)), ("b", PublicSplineTransformer(0, 9))]),
            LogisticRegression(),
        ),
        "'normalizer' stands behind the splines": make_pipeline(
            PublicSplineTransformer(0, 9), Normalizer(), LogisticRegression()
        ),
        "last step of the pipeline is a pipeline": make_pipeline(
            PublicSplineTransformer(0, 9), make_pipeline(LogisticRegression())
        ),
    }
    X = rng.uniform(0, 9, size=(N, 2))
    cases += [((model.fit(X, LABELS),), {}, message) for message, model in fits.items()]
    for given, named, message in cases:
        with pytest.raises(ValueError, match=message):
            shape_functions(*given, **named)


# -- pictures -----------------------------------------------------------------------------------------


@pytest.fixture
def pyplot():
    matplotlib = pytest.importorskip("matplotlib", reason="pictures need matplotlib (extra 'plots')")
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


def bars(panel):
    return [patch.get_height() for patch in panel.patches if patch.get_gid() == "missing"]


def test_curves_dots_bars_and_axes(pyplot):
    weights, hats = Weights([[1, 2, 3, 6, 10, 0, 0, 4, 0, -1]]), fitted()
    panels = plot_shape(weights, hats)
    assert [panel.get_xlabel() for panel in panels] == NUMBERS
    assert [panel.get_xscale() for panel in panels] == ["linear", "symlog"]
    for panel, shape in zip(panels, shape_functions(weights, hats).values(), strict=True):
        curve, dots = panel.lines[:2]
        np.testing.assert_allclose(curve.get_ydata(), shape.at(curve.get_xdata()))
        assert len(curve.get_xdata()) > 100
        np.testing.assert_allclose(dots.get_xdata(), shape.knots)
        np.testing.assert_allclose(dots.get_ydata(), shape.values)
        assert bars(panel) == [shape.missing]
        low, high = panel.get_ylim()
        assert low <= shape.missing <= high
        assert panel.get_legend() is None
    panels[0].figure.canvas.draw()


def test_several_classes_and_axes_of_the_user(pyplot):
    hats = PublicSplineTransformer(1, 1000, spacing="log", handle_missing="indicator").fit([[1.0, 1.0]])
    figure, axes = pyplot.subplots()
    (panel,) = plot_shape(Weights(rng.normal(size=(3, 20))), hats, "x1", axes)
    assert panel is axes
    assert panel.get_xscale() == "log"
    assert len(bars(panel)) == 3
    assert [text.get_text() for text in panel.get_legend().get_texts()] == ["0", "1", "2"]
    figure.canvas.draw()
    figure, axes = pyplot.subplots(2, 1)
    assert list(plot_shape(Weights(rng.normal(size=(1, 20))), hats, ["x1", "x0"], axes)) == list(axes)
    assert axes[0].get_xlabel() == "x1"
    with pytest.raises(ValueError, match="ax has 2 axes for 1 columns"):
        plot_shape(Weights(np.zeros((1, 20))), hats, "x0", axes)


def test_a_pipeline_of_many_columns(pyplot):
    X = rng.uniform(0, 9, size=(N, 4))
    model = make_pipeline(PublicSplineTransformer(0, 9, n_knots=3), DPLogisticRegression(data_norm=2.0, classes=[0, 1]))
    panels = plot_shape(model.fit(X, LABELS))
    assert len(panels) == len(panels[0].figure.axes) == 4
    with pytest.raises(ValueError, match=r"columns=\['age'\] are not there: the transformer has \['x0'"):
        plot_shape(model, columns="age")
    with pytest.raises(ValueError, match="nothing to draw"):
        plot_shape(model, columns=[])


def test_without_matplotlib_it_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"plot_shape needs matplotlib: pip install 'dpskl\[plots\]'"):
        plot_shape(Weights(np.zeros((1, 10))), fitted())
