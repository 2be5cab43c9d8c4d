import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coevo_es.schedules import scheduled

KINDS = ("constant", "linear", "cosine")
SIZE = st.floats(0.0, 10.0)
SHARE = st.floats(0.0, 1.0)


@pytest.mark.parametrize("kind", KINDS)
@given(start=SIZE, end=SIZE)
def test_a_schedule_begins_at_its_start_and_ends_at_its_end(kind, start, end):
    close = {"rel": 1e-12, "abs": 1e-12}
    assert scheduled(kind, start, end, 0.0) == pytest.approx(start, **close)
    assert scheduled(kind, start, end, 1.0) == pytest.approx(start if kind == "constant" else end, **close)


@pytest.mark.parametrize("kind", KINDS)
@given(start=SIZE, end=SIZE, early=SHARE, late=SHARE, warmup=st.floats(0.0, 0.9))
def test_a_schedule_goes_one_way_and_stays_between_its_ends(kind, start, end, early, late, warmup):
    early, late = sorted((early, late))
    first, second = (scheduled(kind, start, end, p, warmup) for p in (early, late))
    low, high = sorted((start, end))
    assert low - 1e-9 <= second <= high + 1e-9
    assert first >= second - 1e-9 if start >= end else first <= second + 1e-9


def test_the_middle_of_the_cosine_is_the_middle():
    assert scheduled("cosine", 2.0, 1.0, 0.5) == pytest.approx(1.5)
    assert scheduled("cosine", 2.0, 0.0, 0.25) == pytest.approx(1.0 + math.cos(math.pi / 4))


def test_the_cosine_equals_the_published_values():
    # Agentic ESOpt, Math, 25 generations, 1e-3 to 5e-4: sigma of generation 1 with its convention t/(T − 1).
    assert scheduled("cosine", 1e-3, 5e-4, 1 / 24) == pytest.approx(9.97861215343e-4, rel=1e-11)
    assert scheduled("cosine", 1e-3, 2.5e-4, 1 / 99) == pytest.approx(9.99811203394e-4, rel=1e-11)


@pytest.mark.parametrize("kind", KINDS)
@given(progress=st.floats(0.0, 0.4))
def test_warm_up_holds_the_start(kind, progress):
    assert scheduled(kind, 3.0, 1.0, progress, warmup=0.4) == pytest.approx(3.0)


@given(progress=st.floats(allow_nan=False, allow_infinity=False))
def test_progress_outside_the_run_is_clamped(progress):
    assert 1.0 <= scheduled("linear", 2.0, 1.0, progress) <= 2.0


def test_an_unknown_schedule_and_a_warm_up_that_never_ends_are_refused():
    with pytest.raises(ValueError, match="unknown schedule 'step'; expected constant, linear or cosine"):
        scheduled("step", 1.0, 0.0, 0.5)
    with pytest.raises(ValueError, match=r"warmup must be in \[0, 1\), got 1.0"):
        scheduled("cosine", 1.0, 0.0, 0.5, warmup=1.0)
