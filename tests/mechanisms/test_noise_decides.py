"""Noise that decides: every candidate, query, proposal and output of a choice or a draw has noise of its own.

As in test_noise_reaches: answers against references in numpy that are given the same draws, and laws by quadrature.
"""

from math import log, sqrt

import numpy as np
import pytest
from conftest import Tape
from plain_releases import (
    CODES,
    OUTPUTS,
    RELATIONS,
    ROW,
    WEIGHTS,
    D,
    N,
    P,
    problem_of,
    rows_of,
    shaped,
    signs_of,
)  # fmt: skip
from scipy.special import expit, log_softmax, softmax
from scipy.stats import norm
from test_noise_laws import check_moments

from dpskl.mechanisms.above_threshold import BacktrackingSearch
from dpskl.mechanisms.coordinate_selection import CoordinateSelection
from dpskl.mechanisms.exponential_chains import calibrate_metropolis, calibrate_proximal
from dpskl.mechanisms.exponential_sampling import calibrate_rejection
from dpskl.mechanisms.noise import SeededNoise
from dpskl.mechanisms.population_selection import PopulationSelection
from dpskl.mechanisms.step_selection import StepSelection
from dpskl.mechanisms.vertex_selection import VertexSelection
from dpskl.records.losses import Logistic
from dpskl.records.problem import Problem

RIDGE, CLIP = 0.8, 0.3
FAR_AHEAD = 1e9


def record_losses(w, K):
    """Losses of the records at weights of shape (P, K)."""
    scores = rows_of("clip") @ w
    if K == 1:
        return np.logaddexp(0, -signs_of(1) * scores)[:, 0]
    return -log_softmax(scores, axis=1)[np.arange(N), CODES]


def penalty(w):
    return RIDGE / 2 * (w**2).sum()


# -- selections: scores of the candidates, and the release of a choice --------------------------------------------


def coordinate_choice(K, neighbours, law):
    w, step = WEIGHTS[:, :K] / 4, 0.5
    candidates = [w, *(w + sign * step * e.reshape(P, K) for sign in (1, -1) for e in np.eye(P * K))]
    before = record_losses(w, K)
    scores = [
        np.clip(record_losses(v, K) - before, -step * CLIP, step * CLIP).sum() + penalty(v) - penalty(w)
        for v in candidates
    ]
    mechanism = CoordinateSelection(CLIP, 3.0, law, neighbours, N, D)

    def choose(noise):
        released = mechanism.release(problem_of(K), shaped(w, K), step, RIDGE, noise).reshape(P, K)
        (chosen,) = (j for j, v in enumerate(candidates) if np.allclose(v, released))
        return [chosen]

    return scores, 2 * step * CLIP * RELATIONS[neighbours] / 3.0, 1, choose, mechanism, step


def population_choice(K, neighbours, law, count=3):
    population = np.random.default_rng(3).normal(size=(7, P, K)) / 2
    centre = population.mean(axis=0)
    radius = max(np.linalg.norm(v - centre) for v in population)
    before, cap = record_losses(centre, K), radius * CLIP
    scores = [np.clip(record_losses(v, K) - before, -cap, cap).sum() + penalty(v) for v in population]
    mechanism = PopulationSelection(CLIP, count, 3.0, law, neighbours, N, D)
    return (
        scores,
        2 * cap * RELATIONS[neighbours] / 3.0,
        count,
        lambda noise: mechanism.release(problem_of(K), population, RIDGE, noise),
        mechanism,
        radius,
    )


def vertex_choice(K, neighbours, law):
    w, radius, share = WEIGHTS[:, :K] / 4, 2.0, 0.3
    design = rows_of("clip")
    if K == 1:
        residuals = -signs_of(1) * expit(-signs_of(1) * (design @ w))
    else:
        residuals = softmax(design @ w, axis=1) - np.eye(3)[CODES]
    slopes = (np.clip(design, -CLIP, CLIP).T @ residuals + RIDGE * w).ravel()
    vertices = [sign * radius * e.reshape(P, K) for sign in (1, -1) for e in np.eye(P * K)]
    mechanism = VertexSelection(CLIP, 3.0, law, neighbours, N, D)

    def choose(noise):
        released = mechanism.release(problem_of(K), shaped(w, K), share, radius, RIDGE, noise).reshape(P, K)
        (chosen,) = (j for j, v in enumerate(vertices) if np.allclose((1 - share) * w + share * v, released))
        return [chosen]

    return np.r_[slopes, -slopes], 2 * CLIP * RELATIONS[neighbours] / 3.0, 1, choose, mechanism, 1.0


def step_choice(K, neighbours, law):
    w, direction, steps = WEIGHTS[:, :K] / 4, -WEIGHTS[:, K - 1 :: -1][:, :K] / 5, np.linspace(0, 1, 6)
    slope, penalties = (1 if K == 1 else sqrt(2)), np.linspace(0, 0.7, 6) ** 2
    mechanism = StepSelection(1.5, 5.0, slope, ROW, neighbours, N, D)
    scores = [np.minimum(record_losses(w - t * direction, K), 5.0).sum() for t in steps] + penalties
    spread = min(5.0, slope * ROW * np.linalg.norm(direction)) * RELATIONS[neighbours]
    return (
        scores,
        spread / 1.5,
        1,
        lambda noise: [mechanism.release(problem_of(K), shaped(w, K), shaped(direction, K), steps, penalties, noise)],
        mechanism,
        spread / (5.0 * RELATIONS[neighbours]),
    )


CHOICES = {
    f"{make.__name__}, {K}, {neighbours}, {law}": (make, (K, neighbours, law))
    for make in (coordinate_choice, population_choice, vertex_choice, step_choice)
    for K in OUTPUTS
    for neighbours in RELATIONS
    for law in ("gumbel", "exponential")
    if make is not step_choice or law == "gumbel"
}


def check_choice(name):
    """The chosen have the smallest scores after noise of a scale worked out by hand, a number for each candidate."""
    make, arguments = CHOICES[name]
    scores, scale, count, choose, mechanism, size = make(*arguments)
    # what the guarantee tells is for a step, a radius or a range of 1
    assert mechanism.noise_scale * size == pytest.approx(scale, rel=1e-6)
    assert mechanism.sensitivity * size == pytest.approx(scale * mechanism.epsilon, rel=1e-6)
    law, seen = arguments[-1], set()
    for seed in range(40):
        tape = Tape(seed)
        chosen = choose(tape)
        blocks = 1 if law == "gumbel" else count
        assert [(draw.law, draw.size) for draw in tape.draws] == [(law, len(scores))] * blocks
        if law == "gumbel":
            np.testing.assert_allclose(tape.draws[0].scale, scale, rtol=2e-3)
            expected = np.argsort(scores - scale * tape.draws[0].unit)[:count]
        else:
            expected, left = [], np.array(scores, dtype=float)
            for draw in tape.draws:
                expected.append(np.argmin(left - scale * draw.unit))
                left[expected[-1]] = np.inf
        assert list(chosen) == list(expected)
        seen.add(tuple(chosen))
    assert len(seen) > 3  # noise decides here
    for j in range(len(scores)):
        assert choose(Tape(0, {0: lambda unit, j=j: unit + FAR_AHEAD * np.eye(len(unit))[j]}))[0] == j
    if law == "exponential" and count > 1:
        first, second = choose(Tape(0))[:2]
        other = next(j for j in range(len(scores)) if j not in (first, second))
        assert choose(Tape(0, {1: lambda unit: unit + FAR_AHEAD * np.eye(len(unit))[other]}))[:2] == [first, other]


@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_is_what_its_draws_make_of_it(name):
    check_choice(name)


# -- searches ------------------------------------------------------------------------------------------------


def check_search(law, neighbours, length, K):
    """The first query that with its own noise reaches the noisy threshold, all in units of a range made by hand."""
    w, steps, clip = WEIGHTS[:, :K] / 4, 0.7 ** np.arange(6), 1.5
    direction = -WEIGHTS[:, K - 1 :: -1][:, :K]
    direction *= length / np.linalg.norm(direction)
    slope = 1 if K == 1 else sqrt(2)
    unit = min(clip, slope * ROW * length) * RELATIONS[neighbours]
    search = BacktrackingSearch(law, 0.7, 1.3, 6, clip, slope, ROW, neighbours, N, D)
    assert search.noise_scale == pytest.approx(1.3 * clip * RELATIONS[neighbours])
    fall = np.minimum(record_losses(w, K), clip).sum() - np.array(
        [np.minimum(record_losses(w - t * direction, K), clip).sum() for t in steps]
    )
    demands, problem, seen = fall + unit * np.array([1.5, 1.0, 2.0, 0.5, 1.0, 1.2]), problem_of(K), set()

    def answer(tape):
        return search.release(problem, shaped(w, K), shaped(direction, K), steps, demands, tape)

    for seed in range(60):
        tape = Tape(seed)
        found = answer(tape)
        drawn = "normal" if law == "gaussian" else law
        assert [(draw.law, draw.size) for draw in tape.draws] == [(drawn, 1), (drawn, 6)]
        np.testing.assert_allclose([draw.scale for draw in tape.draws], [0.7 * unit, 1.3 * unit], rtol=5e-3)
        noise = [draw.unit * scale * unit for draw, scale in zip(tape.draws, (0.7, 1.3), strict=True)]
        passed = np.flatnonzero(fall - demands + noise[1] >= noise[0])
        assert found == (passed[0] if len(passed) else None)
        seen.add(found)
    assert len(seen) == 7
    for j in range(6):  # every query has a number of its own
        assert answer(Tape(0, {0: lambda u: 0 * u + 99, 1: lambda u, j=j: 1e6 * np.eye(6)[j]})) == j
    assert answer(Tape(0, {0: lambda u: 0 * u + FAR_AHEAD})) is None
    assert answer(Tape(0, {0: lambda u: 0 * u - FAR_AHEAD})) == 0


@pytest.mark.parametrize("K", OUTPUTS)
@pytest.mark.parametrize("length", [0.4, 20.0])
@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_a_search_is_what_its_draws_make_of_it(law, neighbours, length, K):
    check_search(law, neighbours, length, K)


# -- draws from the density ------------------------------------------------------------------------------------

SAMPLERS = ("rejection", "proximal", "metropolis")


def sampling(kind, K, neighbours="add_remove", n=60, delta=1e-2):
    """A draw of weights in one dimension, and the records as signed features, shape (n, K)."""
    rng = np.random.default_rng(8)
    x, targets = rng.uniform(-1, 1, n), rng.choice([-1.0, 1.0], (n, K))
    problem = Problem(x[:, None], shaped(targets, K), Logistic(), data_norm=1.0, n_outputs=K)
    facts = {
        "ridge": 4.0, "gradient_bound": 1.0, "curvature_bound": 0.25, "loss_at_zero": log(2), "n_outputs": K,
        "neighbours": neighbours, "n_samples": n, "n_features": 1, "n_weights": 1,
    }  # fmt: skip
    if kind == "rejection":
        mechanism = calibrate_rejection(Logistic(), 1.0, 6.0, 30.0, **facts)
    elif kind == "proximal":
        mechanism = calibrate_proximal(4.0, delta, 1000, **facts)
    else:
        mechanism = calibrate_metropolis(4.0, delta, 12, **facts)
    return mechanism, problem, x[:, None] * targets


def check_draws(kind, K, n_draws=400):
    """Normal scores of the draws, by quadrature of each output's density, are independent standard normals."""
    mechanism, problem, signed = sampling(kind, K)
    beta, edge = mechanism.inverse_temperature, getattr(mechanism, "radius", 8.0)
    grid = np.linspace(-edge, edge, 8001)
    energy = [np.logaddexp(0, -np.multiply.outer(grid, signed[:, k])).sum(axis=1) + 2.0 * grid**2 for k in range(K)]
    cdf = np.cumsum(np.exp(-beta * (np.array(energy) - np.min(energy, axis=1, keepdims=True))), axis=1)
    source = SeededNoise(4)
    draws = np.stack([mechanism.release(problem, source).ravel() for _ in range(n_draws)])
    levels = np.stack([np.interp(draws[:, k], grid, cdf[k] / cdf[k, -1]) for k in range(K)], axis=1)
    check_moments(norm.ppf(np.clip(levels, 1e-12, 1 - 1e-12)))


@pytest.mark.slow
@pytest.mark.parametrize("K", OUTPUTS)
@pytest.mark.parametrize("kind", SAMPLERS)
def test_every_output_is_a_draw_of_its_own(kind, K):
    """Means, variances and correlations of 400 draws; all in all wrong once in a million seeds."""
    check_draws(kind, K)


def check_every_draw_of_a_sampler_counts(kind, K):
    """Change one block and the release changes, but for a decision to keep that was clear without it."""
    mechanism, problem, _ = sampling(kind, K, n=15)
    tape = Tape(2)
    released = mechanism.release(problem, tape).reshape(1, K)
    assert {draw.law for draw in tape.draws} == {"normal", "exponential"}
    moved = np.zeros((len(tape.draws), K), dtype=bool)
    for place, draw in enumerate(tape.draws):
        change = (lambda unit: 0 * unit) if draw.law == "exponential" else (lambda unit: unit + 0.7)
        other = mechanism.release(problem, Tape(2, {place: change})).reshape(1, K)
        moved[place] = other[0] != released[0]
    normals = [draw.law == "normal" for draw in tape.draws]
    assert moved[normals].any(axis=1).mean() > 0.6
    assert moved.any(axis=0).all()
    # an output draws before the next one begins: what comes later does not move it
    last = [np.flatnonzero(moved[:, k])[-1] for k in range(K)]
    assert (np.diff(last) > 0).all()


@pytest.mark.parametrize("K", OUTPUTS)
@pytest.mark.parametrize("kind", SAMPLERS)
def test_every_draw_of_a_sampler_counts(kind, K):
    check_every_draw_of_a_sampler_counts(kind, K)
