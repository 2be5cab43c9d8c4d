"""Which sigma is chosen, what is proposed for it, and what is said where there is none."""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coevo.tools.tune.proposal import DAMAGE, Finding, Strategy, choose, enough_answers, propose, verdict
from coevo.tools.tune.statistics import Spread

STRATEGY = Strategy("es", sigma=2e-3, population=16, min_moved=0.01, common=True)


def a_spread(between=0.1, within=0.25, shared=0.3, low=1.5, f=3.0):
    return Spread(12, 16, between, within, shared, f, (low, 9.0))


def finding(sigma=2e-3, *, moved=0.9, change=0.0, margin=0.05, centre=0.4, **changes):
    return Finding(
        sigma, moved, 0.6, centre + change, centre, change, margin, a_spread(**changes), 0.1, 192, 999, 1.0
    )  # fmt: skip


def test_alpha_makes_the_random_part_of_an_update_half_of_a_member():
    assert propose(finding(5e-3), STRATEGY)["alpha"] == 1e-2
    assert propose(finding(5e-3), dataclasses.replace(STRATEGY, population=64))["alpha"] == 2e-2


def test_the_gain_is_first_order():
    # rho = .01 / (.01 + .0625/16); alpha/sigma = 2.
    assert finding().gain(STRATEGY) == pytest.approx(2.0 * 0.1 * math.sqrt(0.01 / (0.01 + 0.0625 / 16)))


def test_the_largest_gain_that_nothing_speaks_against_is_chosen():
    small, good = finding(1e-3, between=0.05), finding(2e-3, between=0.1)
    lucky = finding(4e-3, between=0.2, low=0.9)
    harmful = finding(8e-3, between=0.3, change=-0.2)
    assert choose([small, good, lucky, harmful], STRATEGY) is good
    assert [f.obstacle(STRATEGY) for f in (small, good, lucky, harmful)] == ["", "", "noise", "damage"]


def test_damage_must_be_clear_and_more_than_a_tenth():
    worst = DAMAGE * 0.4
    assert finding(change=-worst - 0.049, margin=0.05).obstacle(STRATEGY) == ""
    assert finding(change=-worst - 0.051, margin=0.05).obstacle(STRATEGY) == "damage"
    # Where credits are negative, less is still worse.
    assert finding(change=-0.2, margin=0.05, centre=-1.0).obstacle(STRATEGY) == "damage"
    assert finding(change=-0.1, margin=0.05, centre=-1.0).obstacle(STRATEGY) == ""


def test_what_is_rounded_away_is_not_proposed_unless_the_engine_cannot_tell():
    assert finding(moved=0.009).obstacle(STRATEGY) == "rounded away"
    assert finding(moved=None).obstacle(STRATEGY) == ""


@given(st.floats(0.001, 1.0), st.floats(0.0, 1.0))
def test_answers_are_the_smallest_power_of_two_that_is_reliable(between, within):
    answers = enough_answers(finding(between=between, within=within), common=True)
    assert answers in (4, 8, 16, 32, 64)
    assert answers >= (within / between) ** 2 or answers == 64
    assert answers / 2 < (within / between) ** 2 or answers == 4


def test_a_configuration_without_common_random_numbers_gets_answers_for_that():
    proposal = propose(finding(), STRATEGY)
    assert (proposal["answers"], proposal["answers_without_common_random_numbers"]) == (8, 16)
    without = propose(finding(), dataclasses.replace(STRATEGY, common=False))
    assert (without["answers"], without["common_random_numbers"]) == (16, False)
    assert without["gain"] < propose(finding(), dataclasses.replace(STRATEGY, common=True))["gain"] * 1.5


NONE = float("nan")
VERDICTS = {
    "sigma 0.002 has the largest expected gain": [finding(2e-3), finding(4e-3, between=0.01)],
    "it is the largest that was tried: also try --sigmas 0.004,0.008,0.016": [
        finding(2e-3, between=0.01), finding(4e-3),
    ],
    "even 64 answers a member leave their ranking more luck than truth": [finding(within=2.0)],
    "no sigma separates members: their differences may be luck": [finding(1e-3, low=0.5), finding(2e-3, low=0.99)],
    "--answers (here 16) or --members (here 12)": [finding(1e-3, low=0.5), finding(1e-5, moved=0.0)],
    "costs them more than 10 % of their credit; try --sigmas below 0.002": [
        finding(1e-3, low=0.5), finding(2e-3, change=-0.3),
    ],
    "moving less than 1.0 % of the served weights; try larger --sigmas": [finding(moved=0.0), finding(moved=0.009)],
    "(60 % valid): there is no difference to learn from": [finding(between=0.0, f=NONE, low=NONE)],
}  # fmt: skip


@pytest.mark.parametrize("expected", VERDICTS)
def test_the_verdict_says_what_the_numbers_say(expected):
    found = VERDICTS[expected]
    assert expected in verdict(found, STRATEGY)
    assert verdict(found, STRATEGY).startswith("sigma ") == (choose(found, STRATEGY) is not None)
