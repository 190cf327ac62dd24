"""Printed bounds are never on the wrong side."""

from decimal import Decimal

import numpy as np
import pytest

from dpskl.accounting.words import at, at_least, at_most


def test_a_bound_is_rounded_to_its_safe_side():
    rng = np.random.default_rng(5)
    values = np.concatenate([rng.random(2000), rng.exponential(size=2000) * 10.0 ** rng.integers(-300, 300, 2000)])
    for value in values.tolist():
        for digits in (3, 6):
            assert Decimal(at_most(value, digits)) >= Decimal(repr(value)) >= Decimal(at_least(value, digits))
            assert float(at_most(value, digits)) == pytest.approx(value, rel=10.0 ** (1 - digits))


def test_round_numbers_print_as_they_were_written():
    for text in ("0.1", "1", "1e-06", "0", "inf", "3.25", "1e-300"):
        assert at_most(float(text)) == at_least(float(text)) == text
    assert at(1.0000049, 1e-6) == "epsilon = 1.00001 at delta = 1e-06"
