"""The split of variances against its definition, against `numerics.credit`, published tables and simulated members."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coevo.numerics.credit import member_credits
from coevo.numerics.shaping import zscore
from coevo.records import Batch, Buffer, Context, Perturbation, Provenance, Rollout, Trajectory
from coevo.tools.tune.statistics import change, f_quantiles, spread

SIZES = st.tuples(st.integers(2, 8), st.integers(2, 8), st.integers(0, 2**32 - 1))


def simulated(rng, members, answers, between, within, shared=0.0):
    """Credits (members, answers) with known standard deviations."""
    return (
        between * rng.standard_normal((members, 1))
        + shared * rng.standard_normal(answers)
        + within * rng.standard_normal((members, answers))
    )


def as_buffer(credits):
    """The same credits as the rollouts of a `cross` batch with common random numbers."""
    context = Context({"prompt": "p"})
    members = tuple(Perturbation(m, 1e-3) for m in range(len(credits)))
    rollouts = tuple(
        Rollout(
            Provenance(0, 0, 0, m, m, 1e-3, 0, context.id, "x", s, sampling_seed=s, policy_id="p"),
            "ok", float(value), Trajectory(), credit=float(value),
        )
        for m, row in enumerate(credits)
        for s, value in enumerate(row)
    )  # fmt: skip
    return Buffer(Batch((context,)), members, rollouts)


@settings(deadline=None)  # quantiles of new sizes are drawn first
@given(SIZES)
def test_the_ratio_is_that_which_a_run_journals(sizes):
    members, answers, seed = sizes
    credits = np.random.default_rng(seed).normal(size=(members, answers))
    assert spread(credits).f == pytest.approx(member_credits(as_buffer(credits)).variance_ratio)


@settings(deadline=None)  # quantiles of new sizes are drawn first
@given(SIZES)
def test_reliability_is_what_the_ratio_says_of_it(sizes):
    members, answers, seed = sizes
    found = spread(np.random.default_rng(seed).normal(size=(members, answers)))
    assert found.reliability() == pytest.approx(max(1.0 - 1.0 / found.f, 0.0), abs=1e-12)
    assert found.reliability(10 * answers) >= found.reliability()
    assert found.reliability(common=False) <= found.reliability()


@settings(deadline=None)  # quantiles of new sizes are drawn first
@given(SIZES, st.floats(0.01, 100.0))
def test_units_and_hard_questions_do_not_matter(sizes, unit):
    members, answers, seed = sizes
    rng = np.random.default_rng(seed)
    credits, hard = rng.normal(size=(members, answers)), rng.normal(size=answers)
    one, other = spread(credits), spread(unit * (credits + hard))
    assert other.f == pytest.approx(one.f)
    assert other.within == pytest.approx(unit * one.within)
    assert other.between == pytest.approx(unit * one.between, abs=1e-6 * unit)


def test_known_deviations_are_recovered():
    """Mean of the variances over 400 batches of 12 × 16; their standard errors are about 2 %."""
    rng, found = np.random.default_rng(1), []
    for _ in range(400):
        found.append(spread(simulated(rng, 12, 16, between=0.1, within=0.27, shared=0.3)))
    assert np.mean([s.within**2 for s in found]) == pytest.approx(0.27**2, rel=0.03)
    assert np.mean([s.between**2 for s in found]) == pytest.approx(0.1**2, rel=0.08)
    assert np.mean([s.shared**2 for s in found]) == pytest.approx(0.3**2, rel=0.08)
    assert found[0].noise(common=False) == pytest.approx(math.hypot(found[0].within, found[0].shared))


def test_quantiles_are_those_of_published_tables():
    # Upper 2.5 % points of F(10, 120), F(5, 20) and F(20, 5); the lower one is 1 / 6.329 by symmetry.
    assert f_quantiles(10, 120)[1] == pytest.approx(2.157, rel=0.02)
    assert f_quantiles(5, 20) == pytest.approx((1 / 6.329, 3.289), rel=0.02)
    assert f_quantiles(10, 120, 0.9)[1] == pytest.approx(1.910, rel=0.02)


def test_the_interval_holds_the_truth_as_often_as_it_says():
    """2,000 batches of 12 × 16: 95 % of them, give or take 1.5."""
    rng, truth = np.random.default_rng(2), 1.0 + 16 * (0.1 / 0.25) ** 2
    held = 0
    for _ in range(2000):
        low, high = spread(simulated(rng, 12, 16, between=0.1, within=0.25)).f_interval
        held += low <= truth <= high
    assert 0.935 <= held / 2000 <= 0.965


@pytest.mark.parametrize("coupled", [0.05, 0.3, 1.0])
def test_luck_alone_is_rarely_taken_for_a_difference(coupled):
    """Credits as they are, 0 or 0.3 to 1, most of them equal by common random numbers: at most 2.5 % and a bit."""
    rng = np.random.default_rng(3)

    def draw(*shape):
        return np.where(rng.random(shape) < 0.55, 0.3 + 0.7 * rng.random(shape) ** 3, 0.0)

    wrong = 0
    for _ in range(1000):
        own = rng.random((12, 16)) < coupled
        wrong += spread(np.where(own, draw(12, 16), draw(16))).separates
    assert wrong / 1000 <= 0.035


def test_no_difference_at_all():
    found = spread(np.full((4, 5), 0.3))
    assert (found.between, found.within, found.reliability()) == (0.0, 0.0, 0.0)
    assert math.isnan(found.f)
    assert not found.separates


def test_no_luck_at_all():
    found = spread(np.array([[0.1, 0.1, 0.1], [0.4, 0.4, 0.4]]))
    assert found.f == math.inf
    assert found.separates
    assert (found.within, found.reliability()) == (0.0, 1.0)
    assert found.between == pytest.approx(np.std([0.1, 0.4], ddof=1))


def test_members_that_answer_as_the_centre_does_are_compared_question_by_question():
    wide = np.random.default_rng(4).normal(size=64)
    difference, margin = change(np.tile(wide[:16] - 0.25, (12, 1)), wide[:16], wide, between=0.0)
    assert (difference, margin) == (pytest.approx(-0.25), pytest.approx(0.0, abs=1e-12))


def test_without_luck_the_change_is_exact():
    assert change(np.full((3, 4), 0.25), np.full(4, 0.5), np.full(9, 0.5), between=0.0) == (-0.25, 0.0)


@pytest.mark.parametrize("coupled", [0.0, 0.5, 1.0])
def test_the_margin_of_the_change_is_that_of_repeated_tries(coupled):
    """1,500 tries; `coupled` is the share of the centre's luck with a question that the members have too."""
    rng, tries = np.random.default_rng(5), []
    for _ in range(1500):
        wide = 0.35 * rng.standard_normal(64)
        members = simulated(rng, 12, 16, between=0.1, within=0.25, shared=0.1) + coupled * wide[:16] - 0.2
        tries.append(change(members, wide[:16], wide, spread(members).between))
    found, margins = np.array(tries).T
    assert np.mean(found) == pytest.approx(-0.2, abs=0.01)
    assert np.mean(np.abs(found + 0.2) <= margins) == pytest.approx(0.95, abs=0.03)
    # Where nothing is coupled, what the centre is worth on 16 questions alone would make it 0.19.
    assert np.mean(margins) < 0.14


@pytest.mark.parametrize(("within", "answers"), [(0.0, 2), (2.0, 4), (8.0, 16)])
def test_one_update_gains_what_is_expected_on_a_slope(within, answers):
    """On credit = slope · theta the gain of real ES updates is (alpha/sigma)·b·sqrt(rho).

    Noise of 50 weights, 16 members, 2,000 updates with fixed seeds. That formula is the limit of many members: the
    mean standard deviation of 16 standard normal numbers is 0.952.
    """
    rng, sigma, population = np.random.default_rng(6), 0.01, 16
    alpha = sigma * math.sqrt(population) / 2
    slope = rng.normal(size=50)
    between = sigma * float(np.linalg.norm(slope))
    gains = []
    for _ in range(2000):
        noise = rng.standard_normal((population, 50))
        means = sigma * noise @ slope + within * between / math.sqrt(answers) * rng.standard_normal(population)
        gains.append(slope @ (alpha / population * zscore(means) @ noise))
    reliability = 1.0 / (1.0 + within**2 / answers)
    assert np.mean(gains) == pytest.approx(0.952 * alpha / sigma * between * math.sqrt(reliability), rel=0.04)
