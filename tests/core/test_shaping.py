import math
from statistics import fmean, pstdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coevo.numerics.shaping import average_ranks, centered_rank, max_seeking, shape, zscore

KINDS = ("zscore", "centered_rank", "max_seeking", "none")
# Integers and their halves: exact sums, many ties, and never a spread so small that epsilon matters.
CREDITS = st.lists(st.integers(-8, 8).map(lambda n: n / 2), min_size=2, max_size=12).map(np.array)


@pytest.mark.parametrize("kind", KINDS)
@given(credits=CREDITS)
def test_shaped_credits_sum_to_zero(kind, credits):
    assert shape(kind, credits).sum() == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("kind", ["zscore", "centered_rank", "max_seeking"])
@given(credits=CREDITS)
def test_shaped_credits_have_unit_deviation_or_are_all_zero(kind, credits):
    expected = 0.0 if np.ptp(credits) == 0.0 else 1.0
    assert shape(kind, credits).std() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@given(credits=CREDITS)
def test_a_higher_credit_is_never_shaped_lower_and_equal_ones_stay_equal(kind, credits):
    shaped = shape(kind, credits)
    order = np.argsort(credits, kind="stable")
    assert np.all(np.diff(shaped[order]) >= -1e-12)
    for value in np.unique(credits):
        assert np.ptp(shaped[credits == value]) == 0.0


@pytest.mark.parametrize("kind", KINDS)
@given(credits=CREDITS, data=st.data())
def test_the_order_of_the_members_does_not_matter(kind, credits, data):
    order = np.array(data.draw(st.permutations(range(len(credits)))))
    assert shape(kind, credits[order]) == pytest.approx(shape(kind, credits)[order], abs=1e-9)


@pytest.mark.parametrize("kind", ["zscore", "max_seeking"])
@given(credits=CREDITS, scale=st.sampled_from([0.25, 3.0, 1e4]), shift=st.integers(-100, 100))
def test_unit_and_origin_of_the_credits_do_not_matter(kind, credits, scale, shift):
    assert shape(kind, credits * scale + shift) == pytest.approx(shape(kind, credits), abs=1e-5)


@given(credits=CREDITS)
def test_the_centred_rank_sees_only_the_order(credits):
    for monotone in (np.exp, lambda x: x**3, np.arctan):
        assert centered_rank(monotone(credits)) == pytest.approx(centered_rank(credits))


def test_ties_get_the_mean_of_their_ranks():
    assert average_ranks(np.array([3.0, 1.0, 3.0, 2.0])).tolist() == [2.5, 0.0, 2.5, 1.0]


def test_the_z_score_uses_the_population_deviation():
    assert zscore(np.array([1.0, 3.0])) == pytest.approx([-1.0, 1.0])
    assert zscore(np.array([0.0, 0.0, 3.0])) == pytest.approx([-1 / math.sqrt(2)] * 2 + [math.sqrt(2)])


def test_max_seeking_weighs_the_best_more_than_the_z_score_does():
    credits = np.arange(16.0)
    assert max_seeking(credits)[-1] > zscore(credits)[-1] > max_seeking(credits)[-4]
    assert np.ptp(max_seeking(credits)[:8]) < np.ptp(zscore(credits)[:8]) / 4


def test_max_seeking_reaches_a_divergence_of_ln_2():
    credits = np.arange(16.0)
    shaped = max_seeking(credits)
    # Undo centring and scaling: the smallest weight is positive and all sum to one, so solve for the scale.
    z = zscore(credits)
    beta = math.log((shaped[15] - shaped[13]) / (shaped[14] - shaped[12])) / (z[15] - z[14])
    weights = np.exp(beta * z) / np.exp(beta * z).sum()
    assert float(np.sum(weights * np.log(weights * 16))) == pytest.approx(math.log(2), rel=1e-5)


def test_unshaped_credits_keep_their_unit():
    assert shape("none", np.array([1.0, 2.0, 6.0])).tolist() == [-2.0, -1.0, 3.0]


@pytest.mark.parametrize("kind", KINDS)
def test_no_member_and_no_difference_give_no_step(kind):
    assert shape(kind, np.array([])).tolist() == []
    assert shape(kind, np.full(5, 0.3)).tolist() == [0.0] * 5


def test_an_unknown_shaping_and_a_credit_that_is_not_finite_are_refused():
    with pytest.raises(ValueError, match="unknown shaping 'rank'; expected one of zscore"):
        shape("rank", np.array([1.0, 2.0]))
    for bad in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="credits must be finite"):
            shape("zscore", np.array([1.0, bad]))


@pytest.mark.parametrize("kind", ["zscore", "centered_rank", "max_seeking"])
def test_huge_credits_are_shaped_like_small_ones(kind):
    credits = np.array([1.0, -2.0, 3.0, 0.5])
    assert shape(kind, credits * 1e300) == pytest.approx(shape(kind, credits), rel=1e-6)


# An independent reference: plain Python, sums and comparisons only.


def standardised(values):
    spread = pstdev(values)
    return [(value - fmean(values)) / spread if spread else 0.0 for value in values]


def ranked_by_counting(credits):
    """How many are lower, and half of the others that are equal."""
    return [sum(o < c for o in credits) + (sum(o == c for o in credits) - 1) / 2 for c in credits]


def entropic_by_search(credits):
    """Boltzmann weights whose entropy is ln(n) - ln(2); of the best alone where ties leave no others that low."""
    best, n = max(credits), len(credits)
    gaps = [(best - c) / pstdev(credits) for c in credits]
    ties = credits.count(best)
    if 2 * ties > n:
        return [1 / ties if c == best else 0.0 for c in credits]

    def weights(temperature):
        raw = [math.exp(-gap / temperature) for gap in gaps]
        return [value / math.fsum(raw) for value in raw]

    cold, hot = 1e-3, 1e3
    for _ in range(200):
        middle = math.sqrt(cold * hot)
        entropy = -math.fsum(w * math.log(w) for w in weights(middle) if w > 0.0)
        cold, hot = (middle, hot) if entropy < math.log(n / 2) else (cold, middle)
    return weights(math.sqrt(cold * hot))


REFERENCES = {
    "zscore": standardised,
    "centered_rank": lambda credits: standardised(ranked_by_counting(credits)),
    "max_seeking": lambda credits: standardised(entropic_by_search(credits)),
    "none": lambda credits: [c - fmean(credits) for c in credits],
}


@pytest.mark.parametrize("kind", KINDS)
@given(credits=st.lists(st.integers(-8, 8).map(lambda n: n / 2), min_size=2, max_size=12))
def test_shapings_agree_with_a_reference_in_plain_python(kind, credits):
    expected = [0.0] * len(credits) if len(set(credits)) == 1 else REFERENCES[kind](credits)
    assert shape(kind, np.array(credits)) == pytest.approx(expected, abs=2e-6)
