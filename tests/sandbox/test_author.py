"""The code that the run trusts may be wrong: it is stopped and named, and spoils nothing for other programs."""

from __future__ import annotations

import os
import signal
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coevo.errors import UserError
from coevo.sandbox import AuthorError, Bar, Evaluator, Limits
from coevo.sandbox.pristine import Pristine

from .test_lifecycle import until

TOY = """
import numpy as np

def instances(split, count=3):
    return [np.arange(4.0) + i for i in range(count)]

def solve(function, instance):
    return function(instance)

def objective(solution, instance):
    {objective}
    return float(instance[solution])

def bound(instance):
    {bound}
    return float(instance.min())
"""
CANDIDATE = "def f(instance): return {}"
# Nobody honest comes near it: a call takes microseconds of processor time.
LIMITS = Limits(author_seconds=0.7)

Make = Callable[..., Evaluator]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Evaluator] = []

    def call(objective: str = "pass", bound: str = "pass", head: str = "", limits: Limits = LIMITS) -> Evaluator:
        (tmp_path / "evaluate.py").write_text(head + TOY.format(objective=objective, bound=bound), "utf-8")
        made.append(Evaluator(tmp_path, "train", "f", limits=limits, workers=2))
        return made[-1]

    yield call
    for evaluator in made:
        evaluator.close()


NO_NUMBERS = ["'12'", "True", "np.bool_(True)", "None", "b'1'", "[1.0]", "1j"]


@pytest.mark.parametrize("given", NO_NUMBERS)
def test_an_objective_that_gives_no_number_is_at_fault_and_no_solution_is(make: Make, given: str) -> None:
    found = make(f"return {given}").evaluate(CANDIDATE.format("0"))
    assert found.status == "judge_error"
    assert found.message.startswith("`objective` of evaluate.py gave ")
    assert found.message.endswith(" for instance 0; expected a number")


@pytest.mark.parametrize("given", ["3", "np.float32(3.0)", "np.int64(3)", "np.array(3.0)"])
def test_an_objective_may_give_any_kind_of_number(make: Make, given: str) -> None:
    assert make(f"return {given}").evaluate(CANDIDATE.format("0")).objective == 3.0


@pytest.mark.parametrize("given", ["10 ** 400", "float('inf')"])
def test_an_objective_that_no_float_holds_is_not_finite(make: Make, given: str) -> None:
    assert make(f"return {given}").evaluate(CANDIDATE.format("0")).status == "non_finite"


@pytest.mark.parametrize("given", ["'12'", "True", "None"])
def test_a_bound_that_is_no_number_is_at_fault(make: Make, given: str) -> None:
    with pytest.raises(UserError, match=r"`bound` of evaluate\.py .* for instance 0: it gave .*; expected a number"):
        make(bound=f"return {given}").evaluate(CANDIDATE.format("0"), Bar(1.0, True))


SPOILING = {
    "its instance": ("instance[solution] = 99.0 + instance[solution]", ""),
    "all of its instance": ("instance.sort(); instance[:] = instance[::-1].copy()", ""),
    "a global": ("COUNT.append(1); instance = instance + len(COUNT)", "COUNT = []\n"),
    "a global number": ("global COUNT; COUNT += 1; instance = instance + COUNT", "COUNT = 0\n"),
    "an attribute of a class": ("Kept.count += 1; instance = instance + Kept.count", "class Kept:\n    count = 0\n"),
    "an attribute of itself": (
        "objective.count = getattr(objective, 'count', 0) + 1; instance = instance + objective.count",
        "",
    ),
    "random numbers": ("instance = instance + np.random.rand()", ""),
    "the environment": (
        "import os; os.environ['N'] = str(int(os.environ.get('N', 0)) + 1); instance = instance + int(os.environ['N'])",
        "",
    ),
    "the working directory": ("import os; os.chdir('/'); instance = instance + len(os.getcwd())", ""),
}


@pytest.mark.parametrize("name", SPOILING)
def test_an_objective_that_changes_something_values_every_program_as_the_first(name: str, make: Make) -> None:
    objective, head = SPOILING[name]
    evaluator = make(objective, head=head)
    first = evaluator.evaluate(CANDIDATE.format(1))

    assert first.status == "ok", first
    evaluator.evaluate(CANDIDATE.format(2))
    for _ in range(3):
        assert evaluator.evaluate(CANDIDATE.format(1)).per_instance == first.per_instance
        assert evaluator.evaluate(CANDIDATE.format(1), Bar(1e9, True)).per_instance == first.per_instance


def test_a_bound_that_changes_its_instance_changes_no_value(make: Make) -> None:
    evaluator = make(bound="instance[:] = -5.0")

    assert evaluator.evaluate(CANDIDATE.format(3), Bar(1e9, True)).per_instance == (3.0, 4.0, 5.0)
    assert evaluator.track.bounds(True)[0] == pytest.approx(-5.0)
    assert evaluator.evaluate(CANDIDATE.format(3)).per_instance == (3.0, 4.0, 5.0)


def test_what_changes_nothing_is_asked_again_in_the_same_process(make: Make) -> None:
    tell = "import os; instance = instance * 0 + os.getpid()"
    honest, other = make(tell), make(f"COUNT.append(1); {tell}", head="COUNT = []\n")

    assert len({honest.evaluate(CANDIDATE.format(0)).objective for _ in range(4)}) == 1
    assert len({other.evaluate(CANDIDATE.format(0)).objective for _ in range(4)}) == 4


ENDLESS = {
    "a loop": "while True: pass",
    "a loop that catches all": "while True:\n        try: np.zeros(1)\n        except BaseException: pass",
    "one call that lets no signal through": "max(__import__('itertools').count())",
}


@pytest.mark.parametrize("name", ENDLESS)
def test_an_objective_that_never_ends_is_stopped_and_named(name: str, make: Make) -> None:
    evaluator = make(ENDLESS[name])
    said = (
        r"`objective` of '.*evaluate\.py' takes more than 0\.7 s of CPU time for instance 0; "
        r"mend it, or raise author_seconds in \[limits\] of problem\.toml"
    )
    for _ in range(2):
        with pytest.raises(AuthorError, match=said):
            evaluator.evaluate(CANDIDATE.format(1))


def test_the_instance_is_named_and_other_programs_go_on(make: Make) -> None:
    evaluator = make("while solution == 2 and instance[0] == 1.0: pass")

    with pytest.raises(AuthorError, match="for instance 1;"):
        evaluator.evaluate(CANDIDATE.format(2))
    with pytest.raises(AuthorError, match="for instance 1;"):
        evaluator.evaluate(CANDIDATE.format(2), Bar(1e9, True))
    assert evaluator.evaluate(CANDIDATE.format(3)).objective == 4.0


def test_a_wait_that_never_ends_is_stopped_as_well(make: Make) -> None:
    evaluator = make("__import__('time').sleep(1e6)", limits=Limits(author_seconds=0.01))

    with pytest.raises((AuthorError, UserError), match=r"takes more than (0\.01 s of CPU time|5\.1 s)"):
        evaluator.evaluate(CANDIDATE.format(1))


def test_a_bound_that_never_ends_is_stopped_and_named(make: Make) -> None:
    evaluator = make(bound="while True: pass")

    with pytest.raises(AuthorError, match=r"`bound` of .* takes more than 0\.7 s of CPU time for instance 0;"):
        evaluator.evaluate(CANDIDATE.format(1), Bar(1e9, True))
    assert evaluator.evaluate(CANDIDATE.format(1)).status == "ok"


LEAVING = {
    "sys.exit": ("raise SystemExit(3)", "raises SystemExit: 3; raise ValueError to refuse a solution"),
    "an interrupt": ("raise KeyboardInterrupt", "raises KeyboardInterrupt; raise ValueError"),
    "what is no error": ("raise BaseException('odd')", "raises BaseException: odd; raise ValueError"),
    "os._exit": ("__import__('os')._exit(0)", "leaves with exit code 0 for instance 0; it must return, or raise"),
    "os._exit with a code": ("__import__('os')._exit(7)", "leaves with exit code 7 for instance 0"),
    "a crash": ("__import__('os').abort()", "is ended by SIGABRT for instance 0"),
    "closed descriptors": ("__import__('os').closerange(3, 64)", "`objective` of"),
}


@pytest.mark.parametrize("name", LEAVING)
def test_an_objective_that_leaves_the_interpreter_is_named_and_the_run_stays(name: str, make: Make) -> None:
    body, said = LEAVING[name]
    evaluator = make(f"if solution == 2: {body}")

    with pytest.raises(AuthorError, match=r"`objective` of '.*evaluate\.py' ") as caught:
        evaluator.evaluate(CANDIDATE.format(2))
    assert said in str(caught.value)
    assert evaluator.evaluate(CANDIDATE.format(3)).objective == 4.0


def test_a_child_that_the_objective_forks_and_leaves_behind_holds_up_nobody(make: Make) -> None:
    behind = "import os, time\n    if os.fork() == 0: time.sleep(1e6)\n    os._exit(5)"
    with pytest.raises(AuthorError, match="leaves with exit code 5"):
        make(behind).evaluate(CANDIDATE.format(2))


def test_a_child_that_the_objective_forks_and_lets_return_gives_no_second_answer(make: Make) -> None:
    evaluator = make("__import__('os').fork()")

    assert evaluator.evaluate(CANDIDATE.format(1)).per_instance == (1.0, 2.0, 3.0)
    assert evaluator.evaluate(CANDIDATE.format(3)).per_instance == (3.0, 4.0, 5.0)


LOADING = {
    "an import that never ends": (
        "while True: pass\n",
        r"the import of '.*evaluate\.py' takes more than 0\.7 s of CPU time; mend it, or raise author_seconds",
    ),
    "an import that leaves": ("import os\nos._exit(0)\n", r"the import of '.*evaluate\.py' leaves with exit code 0"),
    "an import that exits": ("import sys\nsys.exit('no')\n", r"cannot be imported: SystemExit: no"),
    "an import that interrupts": ("raise KeyboardInterrupt\n", r"the import of '.*' raises KeyboardInterrupt"),
}


@pytest.mark.parametrize("name", LOADING)
def test_an_import_that_does_not_end_as_it_should_is_the_users_mistake(name: str, make: Make) -> None:
    head, said = LOADING[name]
    with pytest.raises(UserError, match=said):
        make(head=head)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("while True: pass", r"`instances\('train'\)` of .* takes more than 0\.7 s of CPU time"),
        ("raise SystemExit", r"`instances` raises SystemExit"),
        ("raise KeyError('x')", r"split 'train': `instances` raises KeyError: 'x'"),
        ("__import__('os')._exit(1)", r"`instances\('train'\)` of .* leaves with exit code 1"),
    ],
)
def test_instances_that_do_not_come_are_the_users_mistake(body: str, said: str, tmp_path: Path) -> None:
    text = TOY.format(objective="pass", bound="pass").replace("    return [np", f"    {body}\n    return [np")
    (tmp_path / "evaluate.py").write_text(text, "utf-8")

    with pytest.raises(UserError, match=said):
        Evaluator(tmp_path, "train", "f", limits=LIMITS, workers=1)


def test_what_an_author_prints_goes_to_standard_error(make: Make, capfd: pytest.CaptureFixture[str]) -> None:
    evaluator = make(
        "print('from objective \\x1b[2J\\u202e'); __import__('sys').stdout.write('half a line')",
        head="print('on import')\n",
    )
    evaluator.evaluate(CANDIDATE.format(1))
    evaluator.close()
    said = capfd.readouterr()

    assert said.out == ""
    assert said.err.count("on import") == 1
    assert "from objective \\x1b[2J\\u202e" in said.err
    assert "\x1b" not in said.err
    assert "half a line" in said.err


def test_a_warning_is_told_once_however_often_it_comes(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    evaluator = make("COUNT.append(np.log(-1.0))", head="COUNT = []\n")
    for _ in range(3):
        assert evaluator.evaluate(CANDIDATE.format(1)).status == "ok"

    said = capsys.readouterr().err
    assert said.count("RuntimeWarning: invalid value encountered in log") == 1
    assert said.startswith("coevo: note: evaluate.py warns: ")


def test_an_objective_that_closes_the_streams_is_valued_all_the_same(make: Make) -> None:
    evaluator = make("import sys; sys.stdout.close(); sys.stderr = None")

    assert [evaluator.evaluate(CANDIDATE.format(1)).objective for _ in range(2)] == [2.0, 2.0]


def test_closing_wakes_whoever_waits_for_an_objective(make: Make, tmp_path: Path) -> None:
    begun, before = tmp_path / "begun", author_of(os.getpid())
    evaluator = make(f"open({str(begun)!r}, 'w').close(); __import__('time').sleep(1e6)")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(evaluator.evaluate, CANDIDATE.format(1))
        assert until(begun.exists, 60.0)
        evaluator.close()
        with pytest.raises(RuntimeError, match="closed"):
            waiting.result(60.0)
    assert until(lambda: author_of(os.getpid()) == before, 60.0)


def author_of(run: int) -> list[int]:
    """Processes for the author's code of process `run`."""
    mark, found = b"coevo.sandbox.authoring", list[int]()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path("/proc", name, "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if mark in words and words[-2] == str(run).encode():
            found.append(int(name))
    return found


def test_many_threads_share_one_author(make: Make) -> None:
    evaluator = make()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(evaluator.evaluate, [CANDIDATE.format(i % 4) for i in range(24)]))
    assert [one.objective for one in found] == [float(i % 4) + 1.0 for i in range(24)]


def test_a_killed_author_is_an_error_of_the_run_and_no_value(make: Make) -> None:
    evaluator = make()
    assert evaluator.evaluate(CANDIDATE.format(1)).status == "ok"
    for pid in author_of(os.getpid()):
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(Exception, match=r"the process of '.*evaluate\.py' ended"):
        evaluator.evaluate(CANDIDATE.format(1))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(values, min_size=1, max_size=3), values)
def test_a_change_of_an_instance_is_seen_and_nothing_else(instances: list[object], other: object) -> None:
    pristine = Pristine(types.ModuleType("problem"), instances)
    assert pristine.unchanged(0, len(instances))
    before, instances[0] = instances[0], other
    same = repr(before) == repr(other) or before == other
    assert pristine.unchanged(0, 1) == same or (type(before) is not type(other) and not pristine.unchanged(0, 1))
    assert pristine.unchanged(1, len(instances))
