"""Laws of releases of one weight by quadrature, and checks of what they cost on neighbouring data sets.

As in privacy_by_force, every check raises AssertionError where dpskl promises too much, or pays twice.
"""

from itertools import product
from math import exp, log, log1p, sqrt

import numpy as np
from above_threshold_oracle import log_outcome_probabilities, log_ratio, renyi_divergence
from conftest import Tape
from scipy.signal import fftconvolve
from scipy.stats import laplace, norm

from dpskl.mechanisms.above_threshold import BacktrackingSearch
from dpskl.mechanisms.exponential_chains import calibrate_metropolis, calibrate_proximal
from dpskl.mechanisms.exponential_sampling import calibrate_rejection
from dpskl.mechanisms.gradient import GaussianGradient
from dpskl.mechanisms.noise import SeededNoise
from dpskl.mechanisms.perturbed_objective import PerturbedObjective, calibrate_perturbed_objective
from dpskl.mechanisms.poisson_sample import PoissonSample
from dpskl.records.losses import HuberHinge, Logistic
from dpskl.records.problem import Problem

NEIGHBOURS = ("add_remove", "replace_one")


def cell_masses(x, loss, ridge, sigma, edges):
    """Exact probabilities of the cells between ``edges`` for the one-dimensional minimiser; ``x`` holds y * row.

    The minimiser lies below ``w`` where the gradient at ``w`` exceeds 0, and that gradient increases in ``w``.
    """
    gradient = ridge * edges + (x * loss.slope(np.multiply.outer(edges, x))).sum(axis=1)
    cdf = np.concatenate([[0.0], norm.cdf(gradient / sigma), [1.0]])
    sf = np.concatenate([[1.0], norm.sf(gradient / sigma), [0.0]])
    return np.where(cdf[1:] < 0.5, np.diff(cdf), -np.diff(sf))


def delta_of(p, q, epsilon):
    return np.maximum(p - np.exp(epsilon) * q, 0).sum()


def lower_delta_of_power(p, q, K, epsilon, width=1e-3):
    """A lower bound on delta of K independent copies: losses rounded down to a grid, then convolved."""
    keep = (p > 0) & (q > 0)
    loss = np.floor(np.log(p[keep] / q[keep]) / width).astype(int)
    offset = loss.min()
    mass = np.bincount(loss - offset, weights=p[keep])
    total = np.ones(1)
    for _ in range(K):
        total = np.maximum(fftconvolve(total, mass), 0)
    losses = (np.arange(len(total)) + K * offset) * width
    over = losses > epsilon
    return (total[over] * -np.expm1(epsilon - losses[over])).sum()


def log_density(signed, loss, beta, ridge, grid):
    """Log density on a grid of weights in one dimension; a record is its signed feature."""
    values, counts = np.unique(np.asarray(signed, dtype=float), return_counts=True)
    losses = loss.value(np.multiply.outer(grid, values)) @ counts
    energy = -beta * (losses + ridge / 2 * grid**2)
    return energy - np.logaddexp.reduce(energy) - log(grid[1] - grid[0])


# -- objective perturbation ----------------------------------------------------------------------------------------


def _objective(loss, ridge, K, neighbours, epsilon, delta):
    """The mechanism for one weight an output, and the scale that the linear terms of a release really have."""
    mechanism = calibrate_perturbed_objective(
        loss, row_norm=1.0, ridge=ridge, n_outputs=K, n_samples=1, n_features=1, intercept=False,
        epsilon=epsilon, delta=delta, neighbours=neighbours,
    )  # fmt: skip
    targets = np.ones(1) if K == 1 else np.ones((1, K))
    tape = Tape(0)
    mechanism.release(Problem(np.ones((1, 1)), targets, loss, data_norm=1.0, n_outputs=K), tape)
    (scale,) = {draw.scale for draw in tape.draws[::2]}
    return mechanism, scale


def check_pure_objective():
    """The largest log ratio of densities: reached where the record's slope is whole and its curvature at its most."""
    loss, ridge = HuberHinge(0.05), 4.0
    w = np.unique(np.concatenate([np.linspace(-4, 4, 4001), 0.95 + np.array([-1e-9, 1e-9])]))

    def log_law(x, scale):
        b = ridge * w + (x * loss.slope(np.multiply.outer(w, x))).sum(axis=1)
        stretch = ridge + (x * x * loss.curvature(np.multiply.outer(w, x))).sum(axis=1)
        return laplace.logpdf(b / scale) + np.log(stretch)

    for K, neighbours in product((1, 3), NEIGHBOURS):
        mechanism, scale = _objective(loss, ridge, K, neighbours, 9.0, 0)
        other = np.array([]) if neighbours == "add_remove" else np.array([-1.0])
        # outputs are independent and each may be at its worst
        spent = K * np.abs(log_law(np.array([1.0]), scale) - log_law(other, scale)).max()
        assert spent <= mechanism.cost.pure_epsilon <= 9.0
        assert spent >= 0.95 * 9.0


def check_gaussian_objective():
    """A strong ridge keeps weights where the loss is straight and the law exactly normal, shifted by one record."""
    loss, ridge, epsilon, delta = HuberHinge(0.5), 300.0, 2.0, 1e-3
    for K, neighbours in product((1, 3), NEIGHBOURS):
        mechanism, sigma = _objective(loss, ridge, K, neighbours, epsilon, delta)
        edges = np.linspace(-12 * sigma - 2, 12 * sigma + 2, 40_001) / ridge
        if neighbours == "replace_one" and K > 1:  # the budgets of the outputs add up, which is loose
            outputs, at, allowed = 1, epsilon / K, delta / K
        else:
            outputs, at, allowed = K, epsilon, mechanism.cost.delta(epsilon)
        other = np.array([]) if neighbours == "add_remove" else np.array([-1.0])
        p, q = (cell_masses(x, loss, ridge, sigma, edges) for x in (np.array([1.0]), other))
        exact = max(lower_delta_of_power(p, q, outputs, at), lower_delta_of_power(q, p, outputs, at))
        assert mechanism.cost.delta(epsilon) <= delta * (1 + 1e-9)
        assert 0.9 * delta * outputs / K <= exact <= allowed


def check_logarithms():
    """32 records in the linear part of the loss and one more: K = 4 problems need 4 logarithms at epsilon = 8.0173."""
    loss, sigma, epsilon = HuberHinge(0.003), 2.0, 8.0173
    B = loss.curvature_bound
    ridge = B / 150
    rest = np.full(32, (ridge + 0.5) / 32)
    # the record's curved part sits at w in [1 - h, 1 + h]: resolve it
    edges = np.unique(np.concatenate([np.linspace(-60, 60, 20_001), np.linspace(0.99, 1.01, 20_001)]))
    p = cell_masses(np.append(rest, 1.0), loss, ridge, sigma, edges)
    q = cell_masses(rest, loss, ridge, sigma, edges)
    for K in (1, 4):
        cost = PerturbedObjective(
            sigma, 1e6, ridge, 1.0, B, 1e-9, K, False, "add_remove", epsilon, 1e-3
        ).cost  # fmt: skip
        for at in (epsilon * K / 4, 0.8 * epsilon * K / 4):
            assert max(lower_delta_of_power(p, q, K, at), lower_delta_of_power(q, p, K, at)) <= cost.delta(at)
    # one record in the curved part of the loss, and hardly any pull: what is lost is its determinant alone
    loss, ridge, sigma = HuberHinge(0.05), 1.0, 20.0
    edges = np.linspace(-300, 300, 60_001)
    p, q = (cell_masses(np.array(x), loss, ridge, sigma, edges) for x in ([1.0], []))
    cost = PerturbedObjective(sigma, 1e6, ridge, 1.0, 10.0, 1e-9, 1, False, "add_remove", 1.0, 1e-3).cost
    for share in (0.2, 0.5, 0.8):
        assert delta_of(p, q, share * log(11)) <= cost.delta(share * log(11))


# -- draws from a density -----------------------------------------------------------------------------------------


def _facts(loss, ridge, K, neighbours):
    return {
        "ridge": ridge, "gradient_bound": 1.0, "curvature_bound": loss.curvature_bound, "n_outputs": K,
        "loss_at_zero": float(loss.value(np.zeros(1))[0]), "neighbours": neighbours, "n_samples": 4, "n_features": 1,
        "n_weights": 1,
    }  # fmt: skip


def check_range_of_draws():
    for loss, K, neighbours in product((Logistic(), HuberHinge(0.5)), (1, 3), NEIGHBOURS):
        mechanism = calibrate_rejection(loss, 1.0, 5.0, 3.0, **_facts(loss, 1.0, K, neighbours))
        grid = np.linspace(-5, 5, 1001)
        rest = np.full(3, 0.3)
        other = rest if neighbours == "add_remove" else np.append(rest, -1.0)
        p, q = (
            log_density(data, loss, mechanism.inverse_temperature, mechanism.ridge, grid)
            for data in (np.append(rest, 1.0), other)
        )
        spent = K * np.abs(p - q).max()
        assert spent <= mechanism.cost.pure_epsilon <= 3.0
        # the constants of the laws share the range; an exchange moves both ends alike
        assert spent >= (0.49 if neighbours == "replace_one" else 0.6) * 3.0


def check_gaussian_draws():
    loss, ridge, epsilon, delta = HuberHinge(0.5), 300.0, 1.5, 1e-2
    for K, neighbours in product((1, 3), NEIGHBOURS):
        facts = _facts(loss, ridge, K, neighbours)
        for mechanism in (
            calibrate_proximal(epsilon, delta, 5000, **facts),
            calibrate_metropolis(epsilon, delta, 5, **facts),
        ):
            beta = mechanism.inverse_temperature
            grid = np.linspace(-9, 9, 20_001) / sqrt(beta * ridge)
            width = grid[1] - grid[0]
            rest = np.full(3, 1e-9)
            other = rest if neighbours == "add_remove" else np.append(rest, -1.0)
            p, q = (np.exp(log_density(x, loss, beta, ridge, grid)) * width for x in (np.append(rest, 1.0), other))
            exact = lower_delta_of_power(p, q, K, epsilon)
            assert exact <= mechanism.cost.delta(epsilon) <= delta
            assert exact >= 0.9 * delta


# -- searches and samples ------------------------------------------------------------------------------------------


def check_search_law():
    """Outcomes when a record moves the queries within a range of 1 in the worst known ways."""
    rng, count = np.random.default_rng(4), 6
    for law, scales in (("laplace", (0.9, 1.3)), ("gaussian", (1.5, 2.1))):
        cost = BacktrackingSearch(law, *scales, count, 1.0, 1.0, 1.0, "add_remove", 4, 1).cost
        ratio, worst, orders = 0.0, {4.0: 0.0, 16.0: 0.0}, (4.0, 16.0)
        for trial in range(30):
            queries = rng.uniform(-3, 3, count) if trial % 3 else np.r_[np.full(count - 1, -9.0), 9.0 * (trial % 2)]
            moved = rng.choice([0.0, 1.0], count) if trial % 3 else np.r_[np.ones(count - 1), 0.0]
            laws = [log_outcome_probabilities(values, law, *scales) for values in (queries, queries + moved)]
            ratio = max(ratio, log_ratio(*laws))
            worst = {order: max(worst[order], renyi_divergence(*laws, order)) for order in orders}
        for order in orders:
            assert 0.2 * cost.rdp(order) <= worst[order] <= cost.rdp(order)
        if law == "laplace":
            assert 0.6 * cost.pure_epsilon <= ratio <= cost.pure_epsilon * (1 + 1e-9)


def check_sampled_laws():
    """A mixture of the laws with and without the record, with the noise that is drawn and the rate of a sample."""
    rate, n, mu = 0.3, 50, 0.9
    gradient = PoissonSample(GaussianGradient(0.7, mu, "add_remove", n, 1), rate)
    problem = Problem(np.ones((n, 1)), np.ones(n), Logistic(), data_norm=1.0)
    tape = Tape(0)
    gradient.release(problem, np.zeros(1), tape)
    shift = 0.7 / tape.draws[-1].scale  # the largest pull of a record, in units of the noise
    x = np.linspace(-12, 14, 200_001)
    absent, present = norm.pdf(x), (1 - rate) * norm.pdf(x) + rate * norm.pdf(x, loc=shift)
    for epsilon in (0.1, 0.4):
        exact = max(delta_of(*pair, epsilon) for pair in ((present, absent), (absent, present))) * (x[1] - x[0])
        assert exact * (1 - 1e-6) <= gradient.cost.delta(epsilon) <= exact * (1 + 1e-3)
    search = PoissonSample(
        BacktrackingSearch("laplace", 2.0, 4.0, 3, 1.0, 1.0, 1.0, "add_remove", n, 1), rate
    )  # fmt: skip
    assert abs(search.cost.pure_epsilon - log1p(rate * (exp(0.75) - 1))) < 1e-12
    source = SeededNoise(6)
    members = [source.poisson_sample(n, rate) for _ in range(2000)]
    counts = np.bincount(np.concatenate(members), minlength=n)
    assert np.abs(counts - 2000 * rate).max() < 5.5 * sqrt(2000 * rate * (1 - rate))  # seeded; else wrong in 5e5 runs
    sizes = np.array([len(rows) for rows in members])
    assert 0.8 < sizes.var() / (n * rate * (1 - rate)) < 1.2  # each record on its own
