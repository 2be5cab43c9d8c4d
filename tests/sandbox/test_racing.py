"""Racing stops what is certain to be worse than the bar, and changes nothing else."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coevo.errors import UserError
from coevo.sandbox import Bar, Evaluation, Evaluator
from coevo.sandbox.author import Valued
from coevo.sandbox.racing import Race, Track, mean, stages
from tests.sandbox_limits import AMPLE, SMALL

from .conftest import PROBLEM, Evaluators, expression, linux, sandbox_processes
from .test_hostile import HOSTILE, judged

ANSWERS = [
    "d_current",
    "d_current - d_home",
    "-d_current",
    "d_mean",
    "d_current * d_home",
    "np.sqrt(d_current) * d_mean",
]
NOBODY, ANYBODY = Bar(0.0, True), Bar(math.inf, True)


def result(found: Evaluation) -> tuple[object, ...]:
    return found.status, found.objective, found.per_instance, found.message


def track(count: int, bound: Callable[[Any], Any] | None) -> Track:
    return Track(SimpleNamespace(bound=bound), range(count))


class Itself:
    """Values numbers by themselves, and refuses what is none."""

    def values(self, first: int, solutions: Sequence[object]) -> Valued:
        numbers = list(itertools.takewhile(lambda one: isinstance(one, int), solutions))
        return Valued([float(cast(int, number)) for number in numbers])


@given(st.integers(1, 300))
def test_the_stages_begin_with_one_instance_and_never_hold_all(instances: int) -> None:
    found = stages(instances)

    assert list(found) == sorted(set(found))
    assert all(0 < stage < instances for stage in found)
    assert len(found) <= 32
    assert instances == 1 or found[0] == 1


@given(
    st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0, 1e3)), min_size=1, max_size=40),
    st.floats(-1e6, 1e6),
    st.booleans(),
)
def test_whoever_is_stopped_would_have_been_worse_than_the_bar(
    drawn: list[tuple[float, float]], bar: float, minimize: bool
) -> None:
    sign = 1.0 if minimize else -1.0
    values = [bound + sign * above for bound, above in drawn]
    course = track(len(values), lambda index: drawn[index][0])
    objective = mean(values)

    stopped = course.outraced(values, Bar(bar, minimize))

    assert not stopped or sign * objective > sign * bar
    assert not course.outraced(values, Bar(objective, minimize)), "who is as good as the bar is not stopped"


def test_rounding_decides_between_equal_and_worse() -> None:
    course = track(2, lambda _: 1.0)

    assert not course.lost([1.000004], Bar(1.0, True))
    assert course.lost([1.00003], Bar(1.0, True))
    assert not course.lost([1.00003], Bar(1.00001, True)), "its mean is 1.000015, which is rounded to the bar or above"


def test_without_a_bound_there_is_no_race() -> None:
    assert track(9, None).stages == ()
    assert not track(9, None).outraced([1e9] * 9, NOBODY)


WRONG: list[tuple[Callable[[Any], Any], str]] = [
    (lambda _: 1 / 0, "raises for instance 0: ZeroDivisionError"),
    (lambda _: "ValueError: odd", "raises for instance 0: ValueError: odd"),
    (lambda _: math.nan, "gives nan for instance 0"),
    (lambda _: None, "raises for instance 0: TypeError"),
    (lambda _: 2.0, r"bound of instance 0 is 1\.99.*a solution has 1\.5, which is better; mend `bound`.*resume"),
]


@pytest.mark.parametrize(("bound", "words"), WRONG)
def test_a_wrong_bound_is_the_users_mistake(bound: Callable[[Any], Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        track(3, bound).lost([1.5], NOBODY)


def test_a_bound_that_says_nothing_stops_nobody() -> None:
    assert not track(3, lambda _: -math.inf).lost([1e9, 1e9], NOBODY)


@pytest.mark.parametrize("text", ANSWERS)
def test_an_answer_ends_as_its_values_say_and_as_without_a_race(text: str, evaluator: Evaluator) -> None:
    full = evaluator.evaluate(expression(text))
    assert full.objective is not None

    for objective in (full.objective, full.objective - 1e-5, 0.9 * full.objective, 6.5, 0.0):
        bar = Bar(objective, True)
        found = evaluator.evaluate(expression(text), bar)

        assert found.raced
        if evaluator.track.outraced(full.per_instance, bar):
            assert (found.status, found.objective, found.per_instance) == ("outraced", None, ())
            assert full.objective > objective
            assert found.seen == full.per_instance[: len(found.seen)]
        else:
            assert result(found) == result(full)


def test_a_long_tour_is_stopped_early_and_saves_time(evaluator: Evaluator) -> None:
    full = evaluator.evaluate(expression("-d_current"))
    found = evaluator.evaluate(expression("-d_current"), Bar(6.5, True))

    assert (full.status, found.status) == ("ok", "outraced")
    assert 0 < len(found.seen) < 20, "farthest first is four times as long as any tour that would be kept"


SLOW = """
import time

def select_next_node(current, destination, unvisited, distances):
    {body}
"""


def test_what_comes_after_a_lost_race_does_not_count(evaluator: Evaluator) -> None:
    body = "return unvisited[distances[current, unvisited].argmax()] if once() else stuck()"
    calls = "calls = []\ndef once():\n    calls.append(0)\n    return len(calls) <= 40 * 49\n"
    calls += "def stuck():\n    while True: pass\n"

    found = evaluator.evaluate(calls + SLOW.format(body=body), Bar(6.0, True))

    assert found.status == "outraced"
    with Evaluator(PROBLEM, "train", "select_next_node", limits=SMALL, workers=1) as hasty:
        assert hasty.evaluate(calls + SLOW.format(body=body)).status == "timeout"


def test_a_race_that_is_not_lost_ends_like_any_other_failure(evaluator: Evaluator) -> None:
    source = expression("d_current / (0 if d_current.size == 3 else 1)")

    found = evaluator.evaluate(source, NOBODY)

    assert result(found) == result(evaluator.evaluate(source))
    assert (found.status, found.seen) == ("non_finite", ())


PROBLEM_WITH_STATE = """
def instances(split, count=40, size=1):
    return [(i, size) for i in range(count)]

def solve(function, instance):
    return function(*instance)

def objective(solution, instance):
    if not isinstance(solution, list) or solution[0] < instance[0]:
        raise ValueError(f"{solution!r:.40} for {instance}")
    return float(solution[0])

def bound(instance):
    return float(instance[0])
"""


@pytest.fixture
def counting(tmp_path: Path) -> Iterator[Evaluator]:
    """A problem whose solutions are what the candidate returns: 40 instances, the best objective is 19.5."""
    (tmp_path / "evaluate.py").write_text(PROBLEM_WITH_STATE, "utf-8")
    with Evaluator(tmp_path, "train", "answer", limits=replace(AMPLE, output_kb=8), workers=1) as evaluator:
        yield evaluator


def test_a_candidate_with_a_memory_sees_the_same_instances_in_the_same_order(counting: Evaluator) -> None:
    source = "seen = []\ndef answer(i, size):\n    seen.append(i)\n    return [sum(seen)]\n"

    full, raced = counting.evaluate(source), counting.evaluate(source, ANYBODY)

    assert full.status == "ok"
    assert result(raced) == result(full)


def test_a_solution_is_taken_as_it_was_when_it_was_given(counting: Evaluator) -> None:
    source = "kept = [0]\ndef answer(i, size):\n    kept[0] = i\n    return kept\n"

    full, raced = counting.evaluate(source), counting.evaluate(source, ANYBODY)

    assert (full.status, full.objective) == ("ok", 19.5)
    assert result(raced) == result(full)


@pytest.mark.parametrize("more", [0, 1])
def test_the_limit_on_the_size_of_an_answer_holds_over_all_stages_together(counting: Evaluator, more: int) -> None:
    text = "{'status': 'ok', 'value': [" + ", ".join("[39, '']" for _ in range(40)) + "]}"
    fill = 8 * 1024 - len(text) + more
    source = f"def answer(i, size): return [39, 'x' * ({fill} if i == 20 else 0)]\n"

    full, raced = counting.evaluate(source), counting.evaluate(source, ANYBODY)

    assert full.status == ("invalid_solution" if more else "ok"), full
    assert result(raced) == result(full)


def test_a_child_that_comes_back_writes_no_stage(counting: Evaluator) -> None:
    source = "import os\ndef answer(i, size):\n    if i == 3: os.fork()\n    return [i]\n"

    assert result(counting.evaluate(source, ANYBODY)) == result(counting.evaluate("def answer(i, size): return [i]"))


def test_the_mean_of_what_no_sum_holds_is_still_the_mean() -> None:
    assert mean([1.7e308, 1.7e308]) == 1.7e308
    assert mean([1.7e308, -1.7e308]) == 0.0


FORGED = {
    "a stage": "os.write(4, b'[[39]]\\n')",
    "all stages and no answer": "os.write(4, b'[[39]]\\n' * 40); os._exit(0)",
    "all stages and an answer": 'os.write(4, b\'[[39]]\\n\' * 39 + b\'{"status": "ok", "value": [[39]]}\'); os._exit(0)',  # noqa: E501
    "blank lines": "os.write(4, b'\\n' * 5000)",
    "a forged outraced": 'os.write(4, b\'{"status": "outraced"}\\n\'); os._exit(0)',
    "ten megabytes of lines": "os.write(4, b'[]\\n' * (4 << 20)); os._exit(0)",
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_stages_are_answers_to_a_call_and_none_that_can_be_read(name: str, counting: Evaluator) -> None:
    found = counting.evaluate(f"import os\n{FORGED[name]}\ndef answer(i, size): return [i]\n", ANYBODY)

    assert (found.status, found.objective) == ("invalid_solution", None), found
    assert counting.evaluate("def answer(i, size): return [i]", Bar(19.5, True)).objective == 19.5


# What ends in a claim of its own is told above: a line is a stage here.
STAGED = [name for name in HOSTILE if "forged" not in name and name != "a pickle"]


@linux
@pytest.mark.parametrize("name", STAGED)
def test_a_hostile_candidate_in_a_race_ends_as_without(name: str, evaluators: Evaluators, good: str) -> None:
    attack, status = HOSTILE[name]
    evaluator = evaluators(status)
    before = sorted(sandbox_processes())

    class Raced:
        def evaluate(self, source: str) -> Evaluation:
            return evaluator.evaluate(source, ANYBODY)

    found = judged(cast(Any, Raced()), attack, good)

    assert found.status == status, found
    assert sorted(sandbox_processes()) == before


def test_a_zygote_that_dies_in_a_race_takes_what_was_seen_with_it(good: str) -> None:
    with Evaluator(PROBLEM, "train", "select_next_node", workers=1, namespaces=False) as evaluator:
        killer = f"{good}\nimport os\nos.kill(os.getppid(), 9)\n"
        assert evaluator.evaluate(killer, ANYBODY).status == "exception"
        assert evaluator.evaluate(good, ANYBODY).objective == 7.00437


def test_a_race_that_is_begun_again_has_seen_nothing() -> None:
    race = Race(track(3, lambda _: 0.0), NOBODY, Itself())
    assert race.look(b"[1]\n")

    race.begin()

    assert (race.values, race.lost) == ([], False)
    assert not race.look(b"[0]\n")
    assert race.look(b"[1]\n")


@given(st.lists(st.sampled_from([b"[1]", b"[]", b"[2, 3]", b"{}", b"[[", b"", b"[null]", b"[NaN]"]), max_size=9))
def test_stages_of_any_shape_are_looked_at_without_a_fault(lines: list[bytes]) -> None:
    race = Race(track(5, lambda _: 0.0), Bar(100.0, True), Itself())

    assert not race.look(b"".join(line + b"\n" for line in lines))
    assert len(race.values) <= 27
