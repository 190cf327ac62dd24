"""Noise reaches every coordinate, output and step, each its own: releases against references made of the same draws.

A reference here is numpy on rows that are written out; it knows no code of dpskl. It is given the draws in units of
their scale and multiplies them by scales that are worked out by hand, so an output without noise, a draw that is used
twice, a step that forgets its noise or a scale that is off changes the answer and not the reference.
"""

from math import exp, floor, hypot, log1p, log2, sqrt

import numpy as np
import pytest
from conftest import Tape
from plain_releases import (
    GRID,
    NORM,
    OUTPUTS,
    RELATIONS,
    ROW,
    WEIGHTS,
    C,
    Case,
    D,
    N,
    P,
    clipped_sum,
    minimum,
    problem_of,
    record_gradients,
    rows_of,
    shaped,
)
from prefix_sums_by_force import honaker, strategy
from scipy.special import expit

from dpskl.accounting import gaussian_mu
from dpskl.mechanisms.correlated_noise import BinaryTree, SquareRoot
from dpskl.mechanisms.gradient import GaussianGradient
from dpskl.mechanisms.hessian import GaussianHessian
from dpskl.mechanisms.hidden_descent import HiddenDescent
from dpskl.mechanisms.noisy_count import NoisyHistogram
from dpskl.mechanisms.noisy_score import NoisyScore
from dpskl.mechanisms.perturbed_objective import calibrate_perturbed_objective
from dpskl.mechanisms.perturbed_output import PerturbedOutput
from dpskl.mechanisms.poisson_sample import PoissonSample
from dpskl.mechanisms.prefix_sums import PrefixSums
from dpskl.mechanisms.second_moment import SecondMoment
from dpskl.mechanisms.stable_training import ExactMinimum, FullGradientDescent, PermutedSGD
from dpskl.mechanisms.whitened_gradient import WhitenedGradient
from dpskl.mechanisms.whitener import ScalingWhitener, Whitener, whitener_condition
from dpskl.records.losses import Logistic

# -- cases: a release, the scales that it should draw with, and what it should be ----------------------------


def gradient_case(K, neighbours):
    w, scale = shaped(WEIGHTS[:, :K], K), RELATIONS[neighbours] * 0.4 / 0.7
    problem, mechanism = problem_of(K), GaussianGradient(0.4, 0.7, neighbours, N, D)
    exact = clipped_sum(record_gradients(rows_of("clip"), WEIGHTS[:, :K], K, "softmax"), 0.4)
    return Case(
        lambda noise: mechanism.release(problem, w, noise),
        [("normal", P * K, scale)],
        lambda units: shaped(exact + scale * units[0].reshape(P, K), K),
        GRID * scale,
        scale,
        mechanism,
        0.7 * scale,
    )


def whitened_case(K, neighbours, whitening="full"):
    scale, design = RELATIONS[neighbours] / 0.7, rows_of("sphere")
    moment, ridge, top = design.T @ design / N, 0.01, NORM**2
    if whitening == "common":
        whitener = ScalingWhitener(moment, "full", ridge, top, 1.2, 0.0, has_constant=True)
        U, factors = whitener.transform.directions, whitener.transform.factors
        assert len(factors) > 0
        W = whitener.transform.scales[:, None] * (np.eye(P) - U @ np.diag(1 - factors) @ U.T)
    else:
        whitener = Whitener(np.diag(moment).copy() if whitening == "diagonal" else moment, ridge, top)
        W = np.diag(whitener.matrix) if whitening == "diagonal" else whitener.matrix
    condition = whitener_condition(ridge, top) / whitener.shortest
    mechanism = WhitenedGradient(0.7, condition, neighbours, N, D, whitener.shortest)
    problem = problem_of(K, rows="sphere")
    v = np.linalg.solve(W, WEIGHTS[:, :K])
    exact = clipped_sum(record_gradients(design, WEIGHTS[:, :K], K, "softmax"), 0.5, W) / 0.5
    return Case(
        lambda noise: mechanism.release(problem, whitener, 0.5, shaped(v, K), noise),
        [("normal", P * K, scale)],
        lambda units: shaped(exact + scale * units[0].reshape(P, K), K),
        GRID * scale,
        scale,
        mechanism,
        0.7 * scale,
    )


def moment_case(part, neighbours):
    mechanism = SecondMoment(NORM, 0.7, part, neighbours, N, D)
    scale, problem = NORM**2 * sqrt(RELATIONS[neighbours]) / 0.7, problem_of(1, rows="sphere")
    design = rows_of("sphere")

    def expected(units):
        if part == "diagonal":
            return (design**2).sum(axis=0) + scale * units[0]
        if part == "arrow":
            diagonal = (design**2).sum(axis=0) + scale * units[0][:P]
            column = (design[:, :-1] * design[:, -1:]).sum(axis=0) + scale * units[0][P:] / sqrt(2)
            return np.stack([diagonal, np.append(column, diagonal[-1])])
        noise = np.diag(units[0][:P])
        noise[np.triu_indices(P, 1)] = noise.T[np.triu_indices(P, 1)] = units[0][P:] / sqrt(2)
        return design.T @ design + scale * noise

    size = {"full": P * (P + 1) // 2, "arrow": 2 * P - 1, "diagonal": P}[part]
    return Case(
        lambda noise: mechanism.release(problem, noise),
        [("normal", size, scale)],
        expected,
        GRID * scale,
        scale * (part == "diagonal"),
        mechanism,
        0.7 * scale,
    )


def hessian_case(K, neighbours, is_majorant):
    mechanism = GaussianHessian(hypot(NORM, C), 0.7, is_majorant, K, neighbours, N, D)
    scale, problem = ROW**2 * sqrt(K * RELATIONS[neighbours]) / 0.7, problem_of(K, "one-vs-rest")
    design = rows_of("clip")
    scores = design @ WEIGHTS[:, :K]
    # both are even functions of the margin
    curvature = np.tanh(scores / 2) / (2 * scores) if is_majorant else expit(scores) * expit(-scores)

    def expected(units):
        released = np.einsum("nk,np,nq->kpq", 4 * curvature, design, design)
        for k in range(K):
            noise = np.diag(units[k][:P])
            noise[np.triu_indices(P, 1)] = noise.T[np.triu_indices(P, 1)] = units[k][P:] / sqrt(2)
            released[k] += scale * noise
        return released

    return Case(
        lambda noise: mechanism.release(problem, shaped(WEIGHTS[:, :K], K), noise),
        [("normal", P * (P + 1) // 2, scale)] * K,
        expected,
        GRID * scale,
        0.0,
        mechanism,
        0.7 * scale,
    )


def hidden_case(K, neighbours, is_long=False):
    T, ridge, mu, radius = 5, 2.0, 0.7, 2.0
    bound = ROW * (1 if K == 1 else sqrt(2))
    smoothness = N * ROW**2 / (4 if K == 1 else 2)
    # the most curved data set contracts by 0.95 only, or the penalty decides
    step = 1.95 / (ridge + smoothness) if is_long else 0.06
    clip = 0.5 * bound if K == 1 else bound  # several outputs must not be clipped
    mechanism = HiddenDescent(clip, mu, step, ridge, smoothness, T, radius, neighbours, N, D)
    c = max(abs(1 - step * ridge), abs(1 - step * (ridge + smoothness)))
    scale = RELATIONS[neighbours] * clip / mu * sum(c**k for k in range(T)) / sqrt(sum(c ** (2 * k) for k in range(T)))
    problem = problem_of(K)

    def expected(units):
        w = np.zeros((P, K))
        for unit in units:
            gradient = clipped_sum(record_gradients(rows_of("clip"), w, K, "softmax"), clip)
            w = w - step * (gradient + ridge * w + scale * unit.reshape(P, K))
            w *= min(1, radius / np.linalg.norm(w))
        return shaped(w, K)

    return Case(
        lambda noise: mechanism.release(problem, noise),
        [("normal", P * K, scale)] * T,
        expected,
        GRID * step * scale,
        step * scale,
        mechanism,
        RELATIONS[neighbours] * clip,
    )


def objective_case(K, neighbours, delta):
    epsilon, ridge = 3.0, 4.0
    problem = problem_of(K, "one-vs-rest")
    mechanism = calibrate_perturbed_objective(
        Logistic(), row_norm=ROW, ridge=ridge, n_outputs=K, n_samples=N, n_features=D, intercept=True,
        epsilon=epsilon, delta=delta, neighbours=neighbours,
    )  # fmt: skip
    a, changed = log1p(ROW**2 / 4 / ridge), RELATIONS[neighbours]
    # 3 % of each output's budget are for the distance to the exact minimum
    if delta == 0:
        free = epsilon / K - a
        linear, m = changed * ROW / (0.97 * free), 0.03 * free
    else:
        if neighbours == "add_remove":
            mu = gaussian_mu(epsilon - K * a, delta) / sqrt(K)
        else:
            mu = gaussian_mu(epsilon / K - a, delta / K * exp(-a)) / 2
        linear, m = ROW / (mu * sqrt(1 - 0.03**2)), 0.03 * mu
    output = 2 * mechanism.tolerance / (ridge * m)
    law = "normal" if delta else "gamma"

    def expected(units):
        b = linear * np.stack(units[::2], axis=1)
        w = minimum(rows_of("clip"), K, "one-vs-rest", ridge, b)
        return shaped(w + output * np.stack(units[1::2], axis=1), K)

    draws = [(law, P, linear), (law, P, output)] * K
    return Case(
        lambda noise: mechanism.release(problem, noise),
        draws,
        expected,
        mechanism.tolerance / ridge,
        output,
        mechanism,
        changed * ROW,
    )


def output_case(method, K, neighbours, is_pure):
    ridge, budget, changed = 5.0, 0.7, RELATIONS[neighbours]
    L, B = ROW * (1 if K == 1 else sqrt(2)), ROW**2 / (4 if K == 1 else 2)
    common, design = (L, B, ridge, N, D, K), rows_of("clip")
    T, b, passes, lam = 6, 5, 2, ridge / N
    step = 1.96 / (B + lam) if "long" in method else 0.4  # the most curved data set contracts by 0.96 only
    c = max(abs(1 - step * lam), abs(1 - step * (lam + B)))
    if method == "exact":
        training = ExactMinimum(*common, loss_at_zero=log1p(K - 1 or 1), n_problems=1)
        distance = changed * L / ridge
    elif method.startswith("gd"):
        training = FullGradientDescent(*common, step=step, n_steps=T)
        distance = changed * step * L / N * sum(c**k for k in range(T))
    elif method == "psgd":
        training = PermutedSGD(*common, batch_size=b, n_passes=passes, step=None)
        distance = changed * L / b * min(1 / (lam * 3), passes / (B + lam))
    else:
        training = PermutedSGD(*common, batch_size=b, n_passes=passes, step=step)
        distance = changed * step * L / b * sum(c ** (3 * k) for k in range(passes))
    mechanism, problem, scale = PerturbedOutput(training, budget, is_pure, neighbours), problem_of(K), distance / budget

    def trained(order):
        if method == "exact":
            return minimum(design, K, "softmax", ridge)
        w = np.zeros((P, K))
        if method.startswith("gd"):
            for _ in range(T):
                w = w - step * (record_gradients(design, w, K, "softmax").sum(axis=0) / N + lam * w)
            return w
        batches, total = [order[:5], order[5:10], order[10:]] * passes, 0
        for t, batch in enumerate(batches, start=1):
            eta = min(1 / (B + lam), 1 / (lam * t)) if method == "psgd" else step
            w = w - eta * (record_gradients(design, w, K, "softmax")[batch].sum(axis=0) / b + lam * w)
            total = total + w
        return w if method == "psgd" else total / len(batches)

    order = [("exponential", N, 1.0)] if method.startswith("psgd") else []
    draws = [*order, ("gamma" if is_pure else "normal", P * K, scale)]

    def expected(units):
        return shaped(trained(np.argsort(units[0])) + scale * units[-1].reshape(P, K), K)

    return Case(
        lambda noise: mechanism.release(problem, noise), draws, expected, GRID * scale, scale, mechanism, distance
    )


def score_case(delta, neighbours):
    bound = 1.5
    mechanism, scores = NoisyScore(0.5, delta, bound, neighbours, 6), np.array([1.0, -0.5, 9.0, -9.0, np.nan])
    sensitivity = bound * RELATIONS[neighbours]
    scale = sensitivity * (2.0 if delta == 0 else 1 / gaussian_mu(0.5, delta))
    law = "laplace" if delta == 0 else "normal"
    return Case(
        lambda noise: np.array(mechanism.release(scores, noise)),
        [(law, 1, scale)],
        lambda units: 1.0 - 0.5 + bound - bound - bound + scale * units[0][0],
        GRID * scale,
        scale,
        mechanism,
        sensitivity,
    )


def histogram_case(neighbours):
    mechanism, counts, scale = NoisyHistogram(0.5, neighbours), np.array([3, 0, 9, 4]), RELATIONS[neighbours] / 0.5
    return Case(
        lambda noise: mechanism.release(counts, noise),
        [("laplace", 4, scale)],
        lambda units: counts + scale * units[0],
        GRID * scale,
        scale,
        mechanism,
        0.5 * scale,
    )


def sampled_case(K):
    rate, scale = 0.4, 0.4 / 0.7
    w, problem = shaped(WEIGHTS[:, :K], K), problem_of(K)
    mechanism = PoissonSample(GaussianGradient(0.4, 0.7, "add_remove", N, D), rate)
    helping = int(N * rate + 10 * sqrt(N * rate) + 20)

    def expected(units):
        members = np.cumsum(np.floor(units[0] / -log1p(-rate)) + 1).astype(int) - 1
        members = members[members < N]
        gradients = record_gradients(rows_of("clip"), WEIGHTS[:, :K], K, "softmax")[members]
        return shaped(clipped_sum(gradients, 0.4), K) + scale * units[1]

    draws = [("sample", helping, 1.0), ("normal", P * K, scale)]
    return Case(
        lambda noise: mechanism.release(problem, w, noise), draws, expected, GRID * scale, scale, mechanism, 0.4
    )


def prefix_case(kind, K, neighbours):
    passes, T = 2, 6
    made = {"root": SquareRoot(T, 3), "tree": BinaryTree(T), "honaker": BinaryTree(T, refined=True)}[kind]
    C = strategy(made)
    B = honaker(T) if kind == "honaker" else np.tri(T) @ np.linalg.inv(C)
    norm = max(np.linalg.norm(C[:, first::3].sum(axis=1)) for first in range(3))
    scale = RELATIONS[neighbours] * 0.4 * norm / 0.7
    mechanism, problem = PrefixSums(0.4, 0.7, made, 5, "random", neighbours, N, D), problem_of(K)

    def release(noise):
        sums = []
        mechanism.release(problem, lambda prefix: sums.append(prefix) or -0.3 * prefix, noise)
        return np.stack(sums)

    def expected(units):
        places, design = np.argsort(units[0]), rows_of("clip")
        batches = [places[:5], places[5:10], places[10:]] * passes
        Z = scale * np.concatenate([unit.reshape(-1, P, K) for unit in units[1:]])
        noise = np.tensordot(B, Z, axes=1)
        total, w, sums = np.zeros((P, K)), np.zeros((P, K)), []
        for t, batch in enumerate(batches):
            total = total + clipped_sum(record_gradients(design, w, K, "softmax")[batch], 0.4)
            sums.append(shaped(total + noise[t], K))
            w = -0.3 * (total + noise[t])
        return np.stack(sums)

    counts = [1, 2, 1, 3, 1, 2] if kind == "honaker" else [1] * T
    draws = [("exponential", N, 1.0), *(("normal", count * P * K, scale) for count in counts)]
    return Case(release, draws, expected, 2 * GRID * scale, scale, mechanism, 0.7 * scale)


CASES = {}
for _relation in RELATIONS:
    for _K in OUTPUTS:
        CASES[f"gradient, {_K}, {_relation}"] = gradient_case, (_K, _relation)
        CASES[f"whitened gradient, {_K}, {_relation}"] = whitened_case, (_K, _relation)
        CASES[f"hessian, {_K}, {_relation}"] = hessian_case, (_K, _relation, False)
        CASES[f"majorant, {_K}, {_relation}"] = hessian_case, (_K, _relation, True)
        CASES[f"hidden descent, {_K}, {_relation}"] = hidden_case, (_K, _relation)
        for _kind in ("root", "tree", "honaker"):
            CASES[f"prefix sums, {_kind}, {_K}, {_relation}"] = prefix_case, (_kind, _K, _relation)
        CASES[f"long hidden descent, {_K}, {_relation}"] = hidden_case, (_K, _relation, True)
        CASES[f"objective, {_K}, {_relation}"] = objective_case, (_K, _relation, 1e-6)
        CASES[f"pure objective, {_K}, {_relation}"] = objective_case, (_K, _relation, 0)
        for _method in ("exact", "gd", "gd long", "psgd", "psgd constant", "psgd long"):
            CASES[f"output, {_method}, {_K}, {_relation}"] = output_case, (_method, _K, _relation, False)
        CASES[f"pure output, {_K}, {_relation}"] = output_case, ("exact", _K, _relation, True)
        CASES[f"shortened gradient, {_K}, {_relation}"] = whitened_case, (_K, _relation, "common")
    CASES[f"diagonally whitened gradient, {_relation}"] = whitened_case, (3, _relation, "diagonal")
    for _part, _name in {"full": "second", "arrow": "arrow of the", "diagonal": "diagonal"}.items():
        CASES[f"{_name} moment, {_relation}"] = moment_case, (_part, _relation)
    CASES[f"histogram, {_relation}"] = histogram_case, (_relation,)
    CASES[f"score, {_relation}"] = score_case, (0, _relation)
    CASES[f"Gaussian score, {_relation}"] = score_case, (1e-6, _relation)
for _K in OUTPUTS:
    CASES[f"sampled gradient, {_K}"] = sampled_case, (_K,)


def check_reaches(name):
    """The draws have the stated law, number and scale, and the release is what they make of it."""
    make, arguments = CASES[name]
    case, releases = make(*arguments), []
    for seed in (1, 2):
        tape = Tape(seed)
        released = case.release(tape)
        # what the guarantee tells
        assert case.mechanism.sensitivity == pytest.approx(case.sensitivity, rel=2e-6)
        assert any(case.mechanism.noise_scale == pytest.approx(draw[2], rel=2e-6) for draw in case.draws)
        if case.rounded:
            places = released * 2.0 ** (20 - floor(log2(case.rounded)))
            np.testing.assert_array_equal(places, np.round(places))
        assert [(draw.law, draw.size) for draw in tape.draws] == [draw[:2] for draw in case.draws]
        np.testing.assert_allclose([draw.scale for draw in tape.draws], [draw[2] for draw in case.draws], rtol=2e-6)
        expected = case.expected([draw.unit for draw in tape.draws])
        assert released.shape == np.shape(expected)
        np.testing.assert_allclose(released, expected, rtol=0, atol=case.accuracy)
        releases.append(released)
    # asked again the same source answers with other noise
    assert not np.isclose(case.release(tape), released, rtol=0, atol=3 * case.accuracy).any()


@pytest.mark.parametrize("name", CASES)
def test_a_release_is_what_its_draws_make_of_it(name):
    check_reaches(name)
