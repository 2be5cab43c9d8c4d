"""How objectives are written: what two evaluations differ in is never rounded away."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coevo.numerics.objectives import DECIMALS, written

ROUNDED = st.floats(-1e9, 1e9).map(lambda value: round(value, DECIMALS))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (20.93662, "20.93662"), (20.93671, "20.93671"), (7.0, "7"), (5.7047, "5.7047"), (289.92812, "289.92812"),
        (0.1003164, "0.100316"), (-7.00437, "-7.00437"), (1e-7 / 3, "3.33333e-08"), (1e20, "1e+20"), (0.0, "0"),
        (20.936666666, "20.93667"), (math.inf, "inf"), (math.nan, "nan"),
    ],
)  # fmt: skip
def test_an_objective_has_five_decimals_or_six_digits(value, text):
    assert written(value) == text


@given(ROUNDED, ROUNDED)
def test_objectives_that_differ_are_written_differently(one, other):
    assert (written(one) == written(other)) == (one == other)


@given(ROUNDED)
def test_a_written_objective_is_the_objective(value):
    assert float(written(value)) == value
