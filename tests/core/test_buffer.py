import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coevo.numerics.credit import default_credit, member_credits, with_credits
from coevo.records import Batch, Buffer, Context, Perturbation, Provenance, Rollout, Trajectory

CONTEXTS = (Context({"prompt": "a"}), Context({"prompt": "b"}))
MEMBERS = tuple(Perturbation(seed, 1e-3) for seed in range(3))
# Multiples of 1/8: means and differences of few of them are exact.
CREDIT = st.integers(-16, 16).map(lambda n: n / 8)
GRID = [(m, c, e) for m in range(3) for c in range(2) for e in ("x", "y")]


def rollout(member=0, context=0, example="x", *, status="ok", return_=1.0, credit=None) -> Rollout:
    provenance = Provenance(0, 0, 0, member, 0, 1e-3, context, CONTEXTS[context].id, example, 0, 0, "p")
    return Rollout(provenance, status, return_ if status == "ok" else None, Trajectory(), credit=credit)


def with_common_seeds(credits) -> Buffer:
    """credits (members, seeds): one prompt, and the members share their sampling seeds."""
    rollouts = tuple(
        dataclasses.replace(r, provenance=dataclasses.replace(r.provenance, sampling_seed=100 + seed, sample=seed))
        for seed, r in (
            (seed, rollout(member, credit=c)) for member, row in enumerate(credits) for seed, c in enumerate(row)
        )
    )
    return Buffer(Batch(CONTEXTS[:1]), MEMBERS, rollouts)


def credited(credits, *, pairing="cross", contexts=CONTEXTS, places=GRID) -> Buffer:
    batch = Batch(contexts, pairing)
    rollouts = tuple(rollout(*place, credit=c) for place, c in zip(places, credits, strict=True))
    return Buffer(batch, MEMBERS, rollouts)


def default(statuses_and_returns, failure="below") -> list[float | None]:
    rollouts = tuple(rollout(status=s, return_=r) for s, r in statuses_and_returns)
    return [r.credit for r in default_credit(Buffer(Batch(CONTEXTS), MEMBERS, rollouts), failure).rollouts]


def test_credit_is_the_return_and_a_failure_lies_one_deviation_below_the_worst():
    assert default([("ok", 1.0), ("syntax", None), ("ok", 3.0)]) == [1.0, 0.0, 3.0]


def test_a_failure_lies_below_equal_returns_by_one():
    assert default([("ok", 2.0), ("timeout", None), ("ok", 2.0)]) == [2.0, 1.0, 2.0]


def test_where_nothing_is_valid_nothing_differs():
    assert default([("syntax", None), ("timeout", None)]) == [0.0, 0.0]


def test_a_task_may_say_what_a_failure_is_worth():
    assert default([("ok", 1.0), ("no_answer", None)], failure=0.0) == [1.0, 0.0]


def test_engine_and_judge_errors_get_no_credit_whatever_is_given():
    assert default([("engine_error", None), ("judge_error", None), ("ok", 1.0)]) == [None, None, 1.0]
    given_ = with_credits(Buffer(Batch(CONTEXTS), (), (rollout(status="judge_error"),)), [5.0])
    assert given_.rollouts[0].credit is None


def test_credits_must_match_the_rollouts():
    with pytest.raises(ValueError, match="1 credits for 2 rollouts"):
        with_credits(Buffer(Batch(CONTEXTS), (), (rollout(), rollout())), [1.0])


@given(credits=st.lists(CREDIT, min_size=12, max_size=12), shifts=st.lists(CREDIT, min_size=4, max_size=4))
def test_how_hard_an_example_is_does_not_matter_in_cross_batches(credits, shifts):
    cells = {(c, e): shifts[i] for i, (c, e) in enumerate((c, e) for c in range(2) for e in ("x", "y"))}
    shifted = [credit + cells[c, e] for credit, (_, c, e) in zip(credits, GRID, strict=True)]
    plain, moved = member_credits(credited(credits)), member_credits(credited(shifted))
    assert moved.means == pytest.approx(plain.means, abs=1e-12)
    assert sum(plain.means) == pytest.approx(0.0, abs=1e-12)


@given(credits=st.lists(CREDIT, min_size=6, max_size=6), shift=CREDIT)
def test_zip_batches_of_different_contexts_keep_their_own_reference(credits, shift):
    places = [(m, m % 2, "x") for m in (0, 0, 1, 1, 2, 2)]
    reduced = member_credits(credited(credits, pairing="zip", places=places))
    expected = [np.mean(credits[:2]), np.mean(credits[2:4]), np.mean(credits[4:])]
    assert reduced.means == pytest.approx(expected)


def test_zip_batches_of_one_context_are_centred():
    places = [(m, 0, "x") for m in range(3)]
    reduced = member_credits(credited([1.0, 2.0, 6.0], pairing="zip", contexts=CONTEXTS[:1], places=places))
    assert reduced.means.tolist() == [-2.0, -1.0, 3.0]


def test_a_member_without_credit_is_left_out_and_the_centre_is_no_member():
    buffer = credited([1.0, None, 3.0], places=[(0, 0, "x"), (1, 0, "x"), (2, 0, "x")])
    centre = dataclasses.replace(
        buffer.rollouts[0], provenance=dataclasses.replace(buffer.rollouts[0].provenance, member=None), credit=99.0
    )
    reduced = member_credits(dataclasses.replace(buffer, rollouts=(*buffer.rollouts, centre)))
    assert reduced.members == (0, 2)
    assert reduced.means.tolist() == [-1.0, 1.0]


def test_nothing_scored_is_no_member():
    reduced = member_credits(credited([None] * 12))
    assert reduced.members == ()
    assert len(reduced.means) == 0
    assert reduced.informative == 0
    assert math.isnan(reduced.variance_ratio)


def test_informative_members_differ_from_the_median_member():
    places = [(m, 0, "x") for m in range(3)]
    assert member_credits(credited([0.0, 0.0, 1.0], places=places)).informative == 1
    assert member_credits(credited([0.5, 0.5, 0.5], places=places)).informative == 0


def test_the_variance_ratio_is_that_of_a_one_way_analysis_of_variance():
    # Members 0 and 1 with answers (1, 3) and (5, 9): between 25, within (2 + 8)/2 = 5, on raw zip credits.
    places = [(0, 0, "x"), (0, 0, "x"), (1, 1, "x"), (1, 1, "x")]
    assert member_credits(credited([1.0, 3.0, 5.0, 9.0], pairing="zip", places=places)).variance_ratio == 5.0


def test_members_of_a_zip_batch_that_are_asked_the_same_are_compared_prompt_by_prompt():
    # The second prompt earns 3 more: less their prompts' means the answers are (-2, -3) and (2, 3).
    places = [(0, 0, "x"), (0, 1, "x"), (1, 0, "x"), (1, 1, "x")]
    found = member_credits(credited([1.0, 3.0, 5.0, 9.0], pairing="zip", places=places))
    assert found.means == pytest.approx([-2.5, 2.5])
    assert found.variance_ratio == pytest.approx(25.0 / (1.0 / (4 - 2 - 1)))


def test_prompts_lost_to_engine_errors_do_not_change_how_members_are_compared():
    places = [(0, 0, "x"), (0, 1, "x"), (1, 0, "x"), (1, 1, "x")]
    found = member_credits(credited([1.0, 3.0, 5.0, None], pairing="zip", places=places))
    assert found.means == pytest.approx([-1.0, 2.0])


def test_pure_noise_has_a_variance_ratio_near_one():
    """16 members × 8 answers, standard normal; mean of 200 batches with a fixed seed.

    F(15, 112) has mean 1.02 and deviation 0.38, so the mean of 200 leaves [0.9, 1.14] by chance once in 100 000.
    """
    luck = np.random.default_rng(5)
    ratios = []
    for _ in range(200):
        members = tuple(Perturbation(m, 1e-3) for m in range(16))
        rollouts = tuple(rollout(m, s % 2, credit=float(luck.normal())) for m in range(16) for s in range(8))
        ratios.append(member_credits(Buffer(Batch(CONTEXTS, "zip"), members, rollouts)).variance_ratio)
    assert 0.9 < float(np.mean(ratios)) < 1.14


def test_a_ratio_that_cannot_be_told_is_nan():
    places = [(m, 0, "x") for m in range(3)]
    assert math.isnan(member_credits(credited([1.0, 2.0, 3.0], places=places)).variance_ratio)


@given(st.integers(0, 2**32 - 1), st.floats(0.0, 10.0))
def test_what_a_common_stream_of_random_numbers_is_worth_to_all_is_no_difference(seed, shared):
    rng = np.random.default_rng(seed)
    own = rng.normal(size=(3, 8))
    credits = own + shared * rng.normal(size=8)
    found = member_credits(with_common_seeds(credits))
    # Two-way analysis of variance without interaction, by its textbook sums of squares.
    rows, columns = credits.mean(1, keepdims=True), credits.mean(0, keepdims=True)
    between = 8 * ((rows - credits.mean()) ** 2).sum() / 2
    residual = ((credits - rows - columns + credits.mean()) ** 2).sum() / (2 * 7)
    assert found.variance_ratio == pytest.approx(between / residual)
    assert found.means == pytest.approx((rows - credits.mean())[:, 0])


@pytest.mark.parametrize("unit", [1e-300, 1e-9, 1.0, 1e9, 1e300])
def test_the_variance_ratio_has_no_unit(unit):
    credits = np.random.default_rng(0).normal(size=(3, 8))
    expected = member_credits(with_common_seeds(credits)).variance_ratio
    assert member_credits(with_common_seeds(credits * unit)).variance_ratio == pytest.approx(expected)


def test_the_worth_of_a_failure_is_a_number_also_among_huge_returns():
    (failure,) = default([("ok", 1e300), ("ok", -1e300), ("syntax", None)])[2:]
    assert math.isfinite(failure)
    assert failure < -1e300
