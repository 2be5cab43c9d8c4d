"""A task with a bar in its context: what is stopped, and that it does not matter what was evaluated before."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coevo.records import BAR, Batch, Completion, Context, EpisodeResult
from coevo.sandbox import Bar, Evaluation, Evaluator
from coevo.sandbox.racing import Track, mean
from coevo_heuristics import HeuristicTask, from_folder
from coevo_heuristics.memory import Memory

FARTHEST, NEAREST, GOOD = " -d_current", " d_current", " d_current - 0.5 * d_mean"


@pytest.fixture
def task(folder: Path) -> Iterator[HeuristicTask]:
    task = from_folder(folder, hole="expression", workers=2, instance_options={"count": 32})
    task.start()
    yield task
    task.close()


def answered(task: HeuristicTask, text: str, bar: float | None = None) -> EpisodeResult:
    context = Context(data={} if bar is None else {BAR: bar})
    episode = task.episode(task.examples("train")[0], context)
    episode.step([Completion(text, (1,), (2,), "stop")])
    return episode.result()


def test_an_answer_below_the_bar_is_outraced_and_no_failure(task: HeuristicTask) -> None:
    result = answered(task, FARTHEST, bar=-7.0)

    assert (result.status, result.return_, dict(result.metrics)) == ("outraced", None, {})
    assert result.artifacts["answer"] == "-d_current"
    assert result.artifacts["code_key"]
    assert result.artifacts["instances"] == []
    assert "worse than the bar" in result.artifacts["message"]


def test_an_answer_at_the_bar_or_above_is_evaluated_as_ever(task: HeuristicTask) -> None:
    full = answered(task, NEAREST)
    assert full.return_ is not None

    assert answered(task, NEAREST, bar=full.return_) == full
    assert answered(task, NEAREST, bar=-100.0) == full
    assert answered(task, GOOD, bar=full.return_).status == "ok"


def test_what_an_answer_is_told_does_not_depend_on_what_was_evaluated_before(folder: Path) -> None:
    asked = [(FARTHEST, -7.0), (FARTHEST, None), (FARTHEST, -100.0), (NEAREST, -6.6), (" d_home", -6.9), (" 1/0", -6.9)]
    told: list[dict[Any, EpisodeResult]] = []
    for order in (asked, asked[::-1]):
        task = from_folder(folder, hole="expression", workers=2, instance_options={"count": 32})
        task.start()
        told.append({question: answered(task, *question) for question in order})
        task.close()

    assert told[0] == told[1]
    assert {result.status for result in told[0].values()} == {"ok", "outraced", "exception"}


def test_a_problem_without_a_bound_ignores_the_bar(folder: Path) -> None:
    file = folder / "evaluate.py"
    file.write_text(file.read_text("utf-8").replace("def bound(", "def _bound("), "utf-8")
    task = from_folder(folder, hole="expression", instance_options={"count": 4})
    assert answered(task, FARTHEST, bar=-1.0) == answered(task, FARTHEST)
    task.close()


def test_a_maximized_objective_is_raced_from_above(folder: Path) -> None:
    file = folder / "problem.toml"
    file.write_text(file.read_text("utf-8").replace('"minimize"', '"maximize"'), "utf-8")
    evaluator = folder / "evaluate.py"
    evaluator.write_text(evaluator.read_text("utf-8").replace("return one_tree_bound(", "return 50.0 + len("), "utf-8")
    task = from_folder(folder, hole="expression", instance_options={"count": 8})
    full = answered(task, NEAREST)
    assert full.return_ is not None
    assert answered(task, NEAREST, bar=full.return_) == full
    assert answered(task, NEAREST, bar=99.0).status == "outraced"
    task.close()


def test_a_batch_that_adapts_has_no_bar() -> None:
    raced = (Context(data={BAR: 1.0}),)
    assert Batch(raced, adapt=False).contexts == raced
    with pytest.raises(ValueError, match=r"a batch that adapts must not set a bar"):
        Batch(raced)


class Recorded:
    """An evaluator of programs that are the values which they get; counts what it is asked."""

    def __init__(self, values: dict[str, tuple[float, ...]], count: int, fails_at: dict[str, int]) -> None:
        bounds = [0.0] * count
        problem = cast(Any, type("Problem", (), {"bound": staticmethod(lambda index: bounds[index])}))
        self.track = Track(problem, list(range(count)))
        self.values, self.fails_at, self.asked = values, fails_at, 0

    def evaluate(self, code: str, bar: Bar | None = None) -> Evaluation:
        self.asked += 1
        values, raced = self.values[code], bar is not None and bool(self.track.stages)
        got = values[: self.fails_at.get(code, len(values))]
        seen = (
            got if len(got) == len(values) else got[: max((s for s in self.track.stages if s <= len(got)), default=0)]
        )
        if bar is not None and self.track.outraced(seen, bar):
            stopped = next(s for s in self.track.stages if self.track.lost(seen[:s], bar))
            return Evaluation("outraced", None, (), "", "", 0.0, 0.0, True, seen[:stopped])
        if len(got) < len(values):
            return Evaluation("exception", None, (), "broken", "", 0.0, 0.0, raced, seen if raced else ())
        return Evaluation("ok", mean(values), values, "", "", 0.0, 0.0, raced)


PROGRAMS = "abcd"
bars = st.one_of(st.none(), st.sampled_from([0.5, 1.0, 2.0, 3.0]).map(lambda objective: Bar(objective, True)))


@given(
    st.integers(1, 9).flatmap(
        lambda count: st.lists(
            st.tuples(*[st.sampled_from([0.0, 1.0, 2.0, 4.0, 9.0])] * count), min_size=4, max_size=4, unique=False
        )
    ),
    st.dictionaries(st.sampled_from(PROGRAMS), st.integers(0, 8), max_size=2),
    st.lists(st.tuples(st.sampled_from(PROGRAMS), bars), max_size=12),
)
def test_a_memory_gives_what_a_fresh_evaluation_gives(
    values: list[tuple[float, ...]], fails_at: dict[str, int], asked: list[tuple[str, Bar | None]]
) -> None:
    evaluator = Recorded(dict(zip(PROGRAMS, values, strict=True)), len(values[0]), fails_at)
    memory = Memory(lambda _: cast(Evaluator, evaluator))

    for program, bar in asked:
        found, fresh = memory.evaluate(program, "train", program, bar), evaluator.evaluate(program, bar)
        assert (found.status, found.objective, found.per_instance) == (
            fresh.status, fresh.objective, fresh.per_instance,
        )  # fmt: skip


def test_a_known_result_is_raced_over_and_not_evaluated_again() -> None:
    evaluator = Recorded({"a": (1.0,) * 8, "b": (1.0, 9.0, 9.0, 9.0)}, 8, {})
    memory = Memory(lambda _: cast(Evaluator, evaluator))
    statuses = [memory.evaluate("a", "train", "a", bar).status for bar in (None, Bar(0.5, True), Bar(2.0, True), None)]

    assert statuses == ["ok", "outraced", "ok", "ok"]
    assert evaluator.asked == 1


def test_what_was_stopped_stays_stopped_at_a_harder_bar_and_is_evaluated_at_an_easier_one() -> None:
    evaluator = Recorded({"a": (4.0,) * 8}, 8, {})
    memory = Memory(lambda _: cast(Evaluator, evaluator))
    found = [(memory.evaluate("a", "train", "a", bar).status, evaluator.asked) for bar in
             (Bar(1.0, True), Bar(0.5, True), Bar(5.0, True), Bar(1.0, True))]  # fmt: skip

    assert found == [("outraced", 1), ("outraced", 1), ("ok", 2), ("outraced", 2)]


def test_a_fault_of_the_sandbox_is_not_remembered() -> None:
    evaluator = Recorded({"a": (1.0,)}, 1, {})
    faults = itertools.chain([RuntimeError("closed")], itertools.repeat(None))

    def give(_: str) -> Evaluator:
        if (fault := next(faults)) is not None:
            raise fault
        return cast(Evaluator, evaluator)

    memory = Memory(give)
    with pytest.raises(RuntimeError, match="closed"):
        memory.evaluate("a", "train", "a")
    assert memory.evaluate("a", "train", "a").status == "ok"
