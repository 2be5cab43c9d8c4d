"""Mean, spread and interval, against references of their own."""

import itertools
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coevo.tools.study.comparison import Estimate, bootstrap, estimate

numbers = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=8)


@given(numbers)
def test_an_interval_lies_within_the_numbers_and_around_their_mean(values):
    low, high = bootstrap(values)
    slack = 1e-9 * max(map(abs, values))
    assert min(values) <= low <= fmean(values) + slack
    assert fmean(values) - slack <= high <= max(values)


@given(numbers, st.floats(-1e3, 1e3))
def test_shifted_numbers_have_a_shifted_interval(values, shift):
    before, after = bootstrap(values), bootstrap([value + shift for value in values])
    assert after == pytest.approx([end + shift for end in before], abs=1e-6)


@given(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3))
def test_of_three_numbers_the_interval_is_their_range(values):
    assert bootstrap(values) == pytest.approx((min(values), max(values)), rel=1e-12)


def test_the_interval_is_that_of_all_resamples_where_they_can_be_counted():
    values = [0.3, 1.1, 1.7, 2.0, 4.4]
    every = sorted(fmean(resample) for resample in itertools.product(values, repeat=5))
    exact = np.quantile(every, [0.025, 0.975], method="nearest")
    assert bootstrap(values) == pytest.approx(tuple(exact), abs=0.12)


def test_it_covers_the_true_mean_about_as_often_as_it_says():
    rng = np.random.default_rng(7)
    samples = rng.normal(3.0, 2.0, size=(300, 20))
    covered = fmean(low <= 3.0 <= high for low, high in (bootstrap(list(sample)) for sample in samples))
    assert 0.88 < covered < 0.98  # the percentile method is a little short for 20 numbers


def test_runs_without_a_number_are_left_out():
    assert estimate([None, 2.0, None, 4.0]) == Estimate(2, 3.0, pytest.approx(2.0**0.5), [2.0, 4.0])


def test_one_number_has_no_spread_and_none_no_mean():
    assert estimate([None, 2.0]) == Estimate(1, 2.0)
    assert estimate([None]) == Estimate()
