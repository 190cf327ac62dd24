"""Whitened gradient descent: the plan, memory, whole fits, the limit without noise, and an audit."""

import tracemalloc
import warnings
from math import inf, log, sqrt

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import RecordingNoise
from epsilon_audit import DELTA, EPSILON, RUNS, audited_epsilon
from problem_cases import LAYOUTS
from solver_cases import facts
from whitened_cases import each_relation, on_sphere, sphere_problem
from whitened_reference import whitened_reference

from dpskl import DPHuberSVC, DPLinearSVC, DPLogisticRegression, PrivacyAccountant
from dpskl.accounting import GaussianCost, gaussian_delta, gaussian_mu
from dpskl.curator import Curator
from dpskl.mechanisms.noise import NoiseSource, SeededNoise
from dpskl.mechanisms.whitened_gradient import WhitenedGradient
from dpskl.records.losses import Hinge, HuberHinge, Logistic
from dpskl.records.problem import Problem
from dpskl.solvers import WhitenedGD, whitened_gd
from dpskl.solvers._score_scale import score_scale

pytestmark = pytest.mark.filterwarnings("ignore::dpskl.SeededNoiseWarning")

WHITENINGS = ("full", "common", "diagonal")


@pytest.mark.parametrize("layout", ["C64", "F64", "C32", "csr64", "csr32"])
@pytest.mark.parametrize("whitening", WHITENINGS)
def test_no_copy_of_X(layout, whitening):
    rng = np.random.default_rng(3)
    n, d = 100_000, 60
    X = rng.normal(size=(n, d))
    X[rng.random(X.shape) < 0.5] = 0
    X = LAYOUTS[layout](X)
    public = facts(n_samples=n, n_features=d)
    targets = Logistic().encode(rng.integers(0, 2, n), 2)
    solver = WhitenedGD(max_iter=2, whitening=whitening)
    plan = solver.plan(public, 1.0, 1e-6)
    tracemalloc.start()
    problem = Problem(X, targets, Logistic(), data_norm=1.0, intercept=0.3, rows="sphere")
    solver.run(Curator(problem, plan.open_budget(), SeededNoise(0)), plan)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    allowed = 10 * 8 * n + (6 << 20)
    assert peak < allowed, f"{peak / 2**20:.1f} MiB"
    assert allowed < 8 * n * d / 3


# -- the plan -------------------------------------------------------------------------------------------


@each_relation
@pytest.mark.parametrize("whitening", WHITENINGS)
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(), Hinge()], ids=repr)
def test_every_draw_is_what_was_charged(loss, n_classes, whitening, neighbours):
    """Kinds, scales and number of the draws against figures that are worked out here."""
    public = facts(loss=loss, n_classes=n_classes, neighbours=neighbours, data_norm=2.0, intercept=0.6)
    solver = WhitenedGD(max_iter=7, whitening=whitening)
    plan = solver.plan(public, 1.0, 1e-6)
    mu = gaussian_mu(1.0, 1e-6)
    charged = sum(count * mechanism.cost.mu**2 for mechanism, count in plan.questions)
    assert charged <= mu**2
    assert charged == pytest.approx(mu**2, rel=1e-11)
    assert isinstance(plan.cost, GaussianCost)
    assert 1.0 - 1e-6 < plan.cost.epsilon(1e-6) <= 1.0
    rng = np.random.default_rng(0)
    problem_loss = solver.problem_loss(public)
    X, codes = rng.normal(size=(500, 4)), rng.integers(0, n_classes, 500)
    problem = Problem(
        X,
        problem_loss.encode(codes, n_classes),
        problem_loss,
        data_norm=2.0,
        intercept=0.6,
        n_outputs=public.n_outputs,
        rows="sphere",
    )
    noise = RecordingNoise()
    outcome = solver.run(Curator(problem, plan.open_budget(), noise), plan)
    assert outcome.weights.shape == ((5,) if n_classes == 2 else (5, 3))
    assert outcome.n_iter == 7
    kinds, scales = zip(*noise.draws, strict=True)
    assert set(kinds) == {"normal"}
    assert len(scales) == 8
    assert len(set(scales[1:])) == 1
    changed = 1 if neighbours == "add_remove" else 2
    mu_moment, mu_gradient = 4 * sqrt(changed) / scales[0], changed / scales[1]
    assert mu_moment**2 == pytest.approx((0.07 if whitening == "diagonal" else 0.15) * mu**2, rel=1e-6)
    total = sqrt(mu_moment**2 + 7 * mu_gradient**2)
    assert gaussian_delta(total, 1.0) == pytest.approx(1e-6, rel=1e-4)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 8.0])
@pytest.mark.parametrize("whitening", WHITENINGS)
@pytest.mark.parametrize("max_iter", [1, 40, 1000])
def test_squares_of_all_mu_sum_to_the_budget(max_iter, whitening, epsilon):
    plan = WhitenedGD(max_iter, whitening).plan(facts(), epsilon, 1e-8)
    mu = gaussian_mu(epsilon, 1e-8)
    assert mu * (1 - 1e-11) <= sqrt(sum(count * m.cost.mu**2 for m, count in plan.questions)) <= mu


def taken(epsilon=1.0, **size):
    plan = WhitenedGD().plan(facts(**size), epsilon, 1e-6)
    return plan.settings.whitening, plan.questions[0][0].part


def test_the_choice_of_whitening_is_public_and_follows_the_noise():
    assert taken(n_samples=400_000, n_features=100) == ("full", "full")
    assert taken(epsilon=inf, n_samples=500, n_features=100) == ("full", "full")
    assert taken(n_samples=40_000, n_features=100, epsilon=0.01) == ("diagonal", "arrow")
    assert taken(n_samples=40_000, n_features=100, epsilon=0.01, intercept=0.0) == ("diagonal", "diagonal")
    # what D x D work allows, the constant counted in
    assert taken(n_samples=10**8, n_features=999) == ("full", "full")
    assert taken(n_samples=10**8, n_features=1000) == ("common", "full")
    assert taken(n_samples=10**8, n_features=1000, intercept=0.0) == ("full", "full")
    assert taken(n_samples=10**8, n_features=4095) == ("common", "full")
    assert taken(n_samples=10**8, n_features=4096) == ("diagonal", "arrow")
    assert taken(n_samples=10**8, n_features=4097, intercept=0.0) == ("diagonal", "diagonal")


@each_relation
@pytest.mark.parametrize("data_norm", [1.0, 3.0])
def test_thresholds_of_the_noise_at_which_whitening_changes(data_norm, neighbours):
    """On both sides of both thresholds: the norm of the noise against the mean eigenvalue, and against their sum."""
    changed, mu = 1 if neighbours == "add_remove" else 2, gaussian_mu(1.0, 1e-6)

    def records(dimension, largest):
        # a noise of norm sqrt(2 D) sigma / n, of the squared norm of a row
        return sqrt(2 * dimension) * sqrt(changed) / (mu * sqrt(0.15)) / largest

    def at(n, n_features):
        public = {"n_samples": round(n), "n_features": n_features, "data_norm": data_norm, "neighbours": neighbours}
        return taken(**public)[0]

    # inverted while a quarter of the norm is at most 0.6 / D; common directions are looked for up to 0.01
    inverted, looked_for = records(400, 0.6 / 0.25 / 400), records(400, 0.01)
    assert inverted > looked_for
    assert [at(share * inverted, 399) for share in (1.01, 0.99)] == ["full", "common"]
    assert [at(share * looked_for, 399) for share in (1.01, 0.99)] == ["common", "diagonal"]
    # in few dimensions all are told apart before one of a hundredth is
    inverted, looked_for = records(21, 0.6 / 0.25 / 21), records(21, 0.01)
    assert inverted < looked_for
    assert [at(share * inverted, 20) for share in (1.01, 0.99)] == ["full", "diagonal"]


@pytest.mark.parametrize(
    ("solver", "delta", "message"),
    [
        (WhitenedGD(max_iter=0), 1e-6, "max_iter=0"),
        (WhitenedGD(max_iter=2.5), 1e-6, "max_iter=2.5"),
        (WhitenedGD(max_iter=True), 1e-6, "max_iter=True"),
        (WhitenedGD(whitening="some"), 1e-6, "whitening='some'"),
        (WhitenedGD(), 0, "pure differential privacy.*objective_perturbation"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_spent(solver, delta, message):
    accountant = PrivacyAccountant()
    model = DPLogisticRegression(1.0, delta, solver=solver, classes=[0, 1], accountant=accountant)
    with pytest.raises(ValueError, match=message):
        model.fit(np.eye(2), [0, 1])
    assert len(accountant) == 0


# -- whole fits -------------------------------------------------------------------------------------------


def data(n=300, d=4, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, n_classes, n)
    codes[:n_classes] = np.arange(n_classes)
    return rng.normal(size=(n_classes, d))[codes] * 1.5 + rng.normal(size=(n, d)) * 0.7, codes


@pytest.mark.parametrize("epsilon", [inf, 1e8])
@pytest.mark.parametrize("whitening", WHITENINGS)
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(
    ("cls", "n_classes"),
    [(DPLogisticRegression, 2), (DPHuberSVC, 2), (DPLinearSVC, 2), (DPLogisticRegression, 3), (DPHuberSVC, 3)],
)
def test_without_noise_it_is_its_plain_reference(cls, n_classes, fit_intercept, whitening, epsilon):
    X, y = data(d=11, n_classes=n_classes)
    X += 2.0  # columns have a mean in common
    X[:, 1] = 0  # a column without values, so that the ridge of the whitener matters
    C, norm, D = 0.01, 3.0, 11 + fit_intercept
    solver = WhitenedGD(max_iter=12, whitening=whitening)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = cls(
            epsilon,
            1e-6,
            solver=solver,
            C=C,
            data_norm=norm,
            classes=range(n_classes),
            fit_intercept=fit_intercept,
            random_state=0,
        ).fit(X, y)
    assert model.effective_C_ == pytest.approx(C * D)
    binary = model._loss()
    loss = binary if n_classes == 2 else binary.multiclass()
    is_logistic = cls is DPLogisticRegression
    unit = {"Logistic": 4.0, "Softmax": 2.0}.get(type(loss).__name__, 1.0)
    expected, factors, shortened = whitened_reference(
        X,
        loss.encode(y, n_classes),
        loss,
        norm,
        0.9 if fit_intercept else 0.0,
        ridge=1 / (C * D),
        whitener_ridge=1e-6 * norm**2 / D,
        clip=(1.0 if is_logistic else 1.5) * (1 if n_classes == 2 else sqrt(2)),
        step=unit * {"full": (2.0, 1.5)}.get(whitening, (0.8, 0.4))[is_logistic],
        n_steps=12,
        whitening=whitening,
        level=2 / (0.4 if is_logistic else 0.8),
    )
    assert shortened == (whitening == "common" or (whitening == "diagonal" and fit_intercept))
    assert len(set(factors)) >= 3  # the step does change, and by more than once
    got = model.coef_.T
    if fit_intercept:
        got = np.vstack([got, model.intercept_ / 0.9])
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-7 if epsilon == inf else 3e-3)
    scores = on_sphere(X, norm, 0.9 if fit_intercept else 0.0) @ expected
    decided = model.decision_function(X)
    scores = scores[:, 0] if n_classes == 2 else scores
    np.testing.assert_allclose(decided, scores, atol=1e-6 if epsilon == inf else 0.02)
    if not fit_intercept:
        np.testing.assert_allclose(model.decision_function(1e-3 * X), decided)


def test_rules_of_the_plan_at_a_moderate_budget():
    """Steps, momentum, clip norm and both ridges, written out."""
    public = facts(n_samples=20_000, n_features=49, C=2.0)
    mu = gaussian_mu(0.2, 1e-8)
    for whitening, spread in (
        ("full", sqrt(100 / 0.15)),
        ("common", sqrt(2 * log(100) / 0.15)),
        ("diagonal", sqrt(2 * log(100) / 0.07)),
    ):
        plan = WhitenedGD(whitening=whitening).plan(public, 0.2, 1e-8)
        signal = mu * 20_000 / 50
        settings, cap = plan.settings, 1.5 if whitening == "full" else 0.4
        assert plan.questions[1][1] == 40  # the signal is below
        assert settings.momentum == pytest.approx(min(0.5, max(0, 1 - cap * 40 / (3 * signal))))
        assert settings.step == pytest.approx(4 * min(3 * signal * (1 - settings.momentum) / 40, cap))
        assert settings.level == pytest.approx(2 / cap)
        assert settings.clip == pytest.approx(0.35 * sqrt(signal / 12))
        assert settings.whitener_ridge == pytest.approx(0.25 * spread / (mu * 20_000))
        assert plan.ridge == pytest.approx(1 / 100)
        other = facts(**{**vars(public), "neighbours": "replace_one"})
        replaced = WhitenedGD(whitening=whitening).plan(other, 0.2, 1e-8).settings
        assert replaced.whitener_ridge == pytest.approx(sqrt(2) * settings.whitener_ridge)
        assert replaced.momentum == pytest.approx(min(0.5, max(0, 1 - cap * 40 / (1.5 * signal))))
        assert replaced.step == pytest.approx(4 * min(1.5 * signal * (1 - replaced.momentum) / 40, cap))


@pytest.mark.parametrize(
    ("n_samples", "n_steps", "momentum"),
    [
        (1_000, 40, 0.0),  # little time: steps are short anyway
        (14_000, 40, 1 - 1.5 * 40 / (3 * 28.387)),  # the longest steps, and as little momentum as they need
        (20_000, 41, 1 - 1.5 * 41 / (3 * 40.553)),
        (60_000, 122, 0.5),  # as many steps as mu n / D
        (10**7, 160, 0.5),
    ],
)
def test_steps_grow_with_the_signal_before_momentum_does(n_samples, n_steps, momentum):
    public = facts(n_samples=n_samples, n_features=49)
    plan = WhitenedGD(whitening="full").plan(public, 0.5, 1e-8)
    assert plan.questions[1][1] == n_steps
    assert plan.settings.momentum == pytest.approx(momentum, abs=2e-3)


@pytest.mark.parametrize("cls", [DPLogisticRegression, DPLinearSVC, DPHuberSVC])
@pytest.mark.parametrize("whitening", WHITENINGS)
def test_odd_data_give_finite_weights(cls, whitening):
    rng = np.random.default_rng(4)
    cases = {
        "two rows": (rng.normal(size=(2, 3)), np.array([0, 1])),
        "constant columns": (np.ones((50, 3)), rng.integers(0, 2, 50)),
        "zeros": (np.zeros((50, 2)), rng.integers(0, 2, 50)),
        "one class": (rng.normal(size=(50, 3)), np.zeros(50, dtype=int)),
        "one column": (rng.normal(size=(50, 1)), rng.integers(0, 2, 50)),
        "one-hot": (np.eye(5)[rng.integers(0, 5, 50)], rng.integers(0, 2, 50)),
    }
    for name, (X, y) in cases.items():
        X.flags.writeable = False
        for epsilon, fit_intercept in ((1.0, True), (1.0, False), (inf, True), (inf, False)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = cls(
                    epsilon,
                    1e-6,
                    solver=WhitenedGD(whitening=whitening),
                    classes=[0, 1],
                    fit_intercept=fit_intercept,
                    random_state=0,
                ).fit(X, y)
            assert np.isfinite(model.coef_).all(), name
            assert np.isfinite(model.decision_function(X)).all(), name
            if name == "one class" and epsilon == inf and fit_intercept:
                assert (model.predict(X) == 0).all()


def test_C_is_never_without_effect():
    X, y = data(400)
    for epsilon in (0.5, 20.0):
        norms = []
        for C in (1e-200, 1e-4, 1e-2, 1.0, 1e200):
            model = DPLogisticRegression(epsilon, solver="whitened_gd", C=C, classes=[0, 1], random_state=0).fit(X, y)
            assert model.effective_C_ == pytest.approx(5 * C)
            norms.append(np.linalg.norm(model.coef_))
        assert norms == sorted(norms)
        assert norms[1] < 0.5 * norms[3] < 0.5 * norms[4]


def test_labels_do_not_depend_on_the_row_map_and_scores_are_those_of_bounded_rows():
    X, y = data(400)
    model = DPLogisticRegression(2.0, solver="whitened_gd", data_norm=2.0, classes=[0, 1], random_state=0).fit(X, y)
    plain = X @ model.coef_[0] + model.intercept_[0]
    np.testing.assert_array_equal(model.predict(X), plain > 0)
    length = np.sqrt((X**2).sum(axis=1) + 0.6**2)
    np.testing.assert_allclose(model.decision_function(X), 2 * plain / length, rtol=1e-9)
    np.testing.assert_array_equal(model.predict_proba(X)[:, 1] > 0.5, plain > 0)
    model._clipped_length = None  # without the clip's link
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], 1 / (1 + np.exp(-2 * plain / length)), rtol=1e-9)
    for given in (sp.csr_array(X), X.astype(np.float32), np.asfortranarray(X)):
        np.testing.assert_allclose(model.decision_function(given), 2 * plain / length, rtol=1e-4, atol=1e-5)


def test_what_follows_released_gradients_knows_their_noise(monkeypatch):
    """Factor of the step and length of the scores are given the noise that was drawn, in their own units."""
    X, y = data(400)
    clips, points, noises, errors = [], [], [], []
    release, observe = WhitenedGradient.release, whitened_gd.Agreement

    def seen_release(self, problem, whitener, clip_norm, v, noise):
        clips.append(clip_norm)
        points.append(np.linalg.norm(v))
        return release(self, problem, whitener, clip_norm, v, noise)

    def seen_agreement(noise_scale, begin):
        noises.append((noise_scale, begin))
        return observe(noise_scale, begin)

    def seen_scale(slope, error, spread, penalty):
        errors.append(error)
        return score_scale(slope, error, spread, penalty)

    monkeypatch.setattr(WhitenedGradient, "release", seen_release)
    monkeypatch.setattr(whitened_gd, "Agreement", seen_agreement)
    monkeypatch.setattr(whitened_gd, "score_scale", seen_scale)
    model = DPLogisticRegression(1.0, solver=WhitenedGD(8), data_norm=2.0, classes=[0, 1], random_state=0).fit(X, y)
    drawn = model.privacy_guarantee_.parts[1].noise
    assert noises == [(drawn, 2)]
    # of the mean of four products with points that are known, in units of the mean loss
    assert errors == [pytest.approx(drawn * clips[0] * np.linalg.norm(points[4:]) / (4 * 400))]


# -- audit ------------------------------------------------------------------------------------------------


def audit_scores(whitening, neighbours, seed):
    """The log likelihood ratio of all that a fit releases on the way, with the record and without it, or turned."""
    solver = WhitenedGD(max_iter=2, whitening=whitening)
    public = facts(n_samples=2, n_features=2, intercept=0.0, neighbours=neighbours)
    plan = solver.plan(public, EPSILON, DELTA)
    (moment, _), (gradient, n_steps) = plan.questions
    first, second = np.eye(2)  # two records on axes; the second is present, or absent or with the other label
    is_removed = neighbours == "add_remove"
    noise = SeededNoise(seed)
    both = []
    for is_present in (True, False):
        X = np.stack([first, second if is_present or not is_removed else 0 * second])
        problem = sphere_problem(X, np.array([1, 1 if is_present else 0]), Logistic(), intercept=0.0)
        scores = np.empty(RUNS)
        for run in range(RUNS):
            curator = Curator(problem, plan.open_budget(), noise)
            released = curator.ask(moment)
            entry = released[1, 1] if moment.part == "full" else released[1]
            evidence = (entry - 0.5) / moment.noise_scale**2 if is_removed else 0.0
            whitener = plan.settings.whitener(released)
            # clipped at a small part of its norm, a record pulls with all the weight that it may have
            rest, pull = (-w / np.linalg.norm(w) for w in (whitener.to_whitened(x) for x in (first, second)))
            shift = pull if is_removed else 2 * pull
            middle = rest + (pull / 2 if is_removed else 0)
            for _ in range(n_steps):
                answer = curator.ask(gradient, whitener, 1e-3, np.zeros(2))
                evidence += (answer - middle) @ shift / gradient.noise_scale**2
            scores[run] = evidence
        both.append(scores)
    return both


@pytest.mark.slow
@pytest.mark.parametrize(("whitening", "neighbours"), [("full", "add_remove"), ("diagonal", "replace_one")])
def test_audit_stays_below_the_claim_and_near_it_and_half_the_noise_is_caught(whitening, neighbours, monkeypatch):
    """Lower bounds from 2 x 2,000 transcripts at a claim of epsilon = 4; a correct solver fails once in 10,000 runs."""
    bound = audited_epsilon(*audit_scores(whitening, neighbours, seed=1))
    print(f"{whitening}, {neighbours}: audited epsilon >= {bound:.2f}, claimed {EPSILON}")
    assert 1.5 <= bound <= EPSILON
    honest = NoiseSource.normal
    monkeypatch.setattr(NoiseSource, "normal", lambda self, size, scale: honest(self, size, scale / 2))
    assert audited_epsilon(*audit_scores(whitening, neighbours, seed=2)) > EPSILON


@pytest.mark.slow
@pytest.mark.parametrize("whitening", WHITENINGS)
def test_transcripts_have_the_law_of_one_gaussian_release(whitening):
    """Their log likelihood ratio has variance mu^2 and means +-mu^2/2 at equality: fails once in 10,000 runs."""
    mu = gaussian_mu(EPSILON, DELTA)
    present, absent = audit_scores(whitening, "add_remove", seed=3)
    error = 4.1 * mu * sqrt(1 / RUNS)
    offset = (present.mean() + absent.mean()) / 2
    assert offset == pytest.approx(0, abs=error)
    assert present.mean() - absent.mean() == pytest.approx(mu**2, abs=error * sqrt(2))
    for scores in (present, absent):
        assert scores.var() == pytest.approx(mu**2, rel=4.1 * sqrt(2 / RUNS))
