"""Mutations of dpskl that break privacy, or pay for noise twice, and the checks that notice each of them.

A check here is a function that knows neither the formulas nor the constants of dpskl: brute force over neighbours,
quadrature of laws, or an account made from the draws alone. It passes on dpskl as it is, and fails where a line is
changed as the table says. Whoever rewrites such a line rewrites its mutation. All but "laws: system" are seeded or
draw nothing; that one fails by chance once in 10,000 runs.
"""

from functools import partial
from importlib import import_module

import bounds_by_force as bounds
import histograms_by_force as histograms
import laws_by_quadrature as laws
import prefix_sums_by_force as prefix_sums
import privacy_by_force as force
import pytest
import scaled_by_force as scaled
import scores_by_force as scores
from fit_audit import check_fit
from mutation import mutated
from mutations import MUTATIONS
from mutations_metrics import METRICS
from mutations_scaled import SCALED
from mutations_tables import TABLE_MUTATIONS
from prefix_mutations import MUTATIONS as PREFIX_MUTATIONS
from test_noise import test_gamma_vector_has_gamma_norm_and_uniform_direction as check_gamma_vector
from test_noise import test_laws as check_univariate_laws
from test_noise_decides import check_choice, check_draws, check_every_draw_of_a_sampler_counts, check_search
from test_noise_laws import check_blocks, check_covariance, check_streams
from test_noise_reaches import check_reaches

from dpskl.mechanisms.noise import SeededNoise, SystemNoise

CHECKS = {
    name.removeprefix("check_"): check
    for module in (force, bounds, laws, prefix_sums, scaled, scores, histograms)
    for name, check in vars(module).items()
    if name.startswith("check_")
}
CHECKS["streams"] = check_streams


def check_laws(source):
    check_univariate_laws(source)
    check_gamma_vector(source)
    check_blocks(source)


def check_of(name):
    """Return a check: a name above, or "kind: arguments" of the checks of releases, choices, searches and fits."""
    kind, colon, rest = name.partition(": ")
    if not colon:
        return CHECKS[name]
    words = [int(word) if word.isdigit() else word for word in rest.split(" / ")]
    return {
        "release": lambda: check_reaches(rest),
        "moments": lambda: check_covariance(rest),
        "choice": lambda: check_choice(rest),
        "search": lambda: check_search(*words[:2], {"long": 20.0, "short": 0.4}[words[2]], *words[3:]),
        "draws": partial(check_draws, *words),
        "laws": lambda: check_laws({"system": SystemNoise(), "seeded": SeededNoise(7)}[rest]),
        "sampler": partial(check_every_draw_of_a_sampler_counts, *words),
        "fit": partial(check_fit, *words),
        "filled fit": partial(check_fit, *words, rows="fill"),
    }[kind]


# A mechanism or a curator that refuses what was planned has noticed too.
NOTICED = (AssertionError, ValueError, RuntimeError)
TABLES = (MUTATIONS, PREFIX_MUTATIONS, SCALED, METRICS, TABLE_MUTATIONS)
ROWS = [(module, *row) for table in TABLES for module, rows in table.items() for row in rows]


@pytest.mark.parametrize("name", sorted({row[-1] for row in ROWS}))
def test_the_check_passes_on_dpskl_as_it_is(name):
    check_of(name)()


@pytest.mark.parametrize(("module", "before", "after", "name"), ROWS)
def test_the_mutation_is_noticed(module, before, after, name):
    check = check_of(name)
    with mutated(import_module(f"dpskl.{module}"), before, after), pytest.raises(NOTICED):
        check()
