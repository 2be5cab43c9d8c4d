"""Results on disk: what is kept, for whom it counts, and that a cache which is broken costs a note and no run."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coevo.errors import UserError
from coevo.records import EpisodeResult
from coevo.sandbox import Evaluation, Evaluator, Limits
from coevo_heuristics import HeuristicTask, from_folder
from coevo_heuristics.cache import EvaluationCache, _decoded, _encoded, default_folder, repeatable
from coevo_heuristics.identity import NoIdentityError, evaluator_key
from coevo_heuristics.problem import Problem

OK = Evaluation("ok", 1.5, (1.0, 2.0), "", "", 0.1, 0.2)
FAILED = Evaluation("exception", None, (), "NameError: name 'x' is not defined (line 3)", "", 0.1, 0.2)
PLAIN = "def score(a):\n    return a + 1\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where results are kept in this test."""
    monkeypatch.setenv("COEVO_EVALUATIONS", str(tmp_path / "kept"))
    return tmp_path / "kept"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs that a sandbox was given."""
    sources: list[str] = []
    evaluate = Evaluator.evaluate

    def listed(self: Evaluator, source: str, *rest: Any) -> Evaluation:
        sources.append(source)
        return evaluate(self, source, *rest)

    monkeypatch.setattr(Evaluator, "evaluate", listed)
    return sources


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., HeuristicTask]]:
    """Makes tasks of the folder as new processes would: nothing is known but what is on disk."""
    made: list[HeuristicTask] = []

    def make(**options: Any) -> HeuristicTask:
        task = from_folder(folder, **{"hole": "expression", "workers": 2, "instance_options": {"count": 8}, **options})
        made.append(task)
        task.start()
        return task

    yield make
    for task in made:
        task.close()


ANSWERS = [" d_current - d_home", " d_nowhere", " d_current / 0", " d_current +", " 'near'", " __import__('no_such').x"]


def texts(results: list[EpisodeResult]) -> list[str]:
    return [json.dumps(asdict(result), sort_keys=True, allow_nan=False) for result in results]


def test_a_second_run_evaluates_nothing_but_its_seed_and_says_the_same(
    place: Path, start: Callable[..., HeuristicTask], asked: list[str]
) -> None:
    cold = [task.judge(text, "train") for task in [start()] for text in ANSWERS]
    before = len(asked)
    warm = [task.judge(text, "train") for task in [start()] for text in ANSWERS]
    fresh = [task.judge(text, "train") for task in [start(cache=False)] for text in ANSWERS]

    assert texts(warm) == texts(cold) == texts(fresh)
    assert before == len(ANSWERS), "the seed, and all but the one that does not parse"
    assert len(asked) == 2 * before + 1
    assert place.joinpath("evaluations.sqlite").exists()
    assert place.stat().st_mode & 0o077 == 0


def test_a_warm_cache_answers_a_race_as_a_cold_one(
    place: Path, start: Callable[..., HeuristicTask], asked: list[str]
) -> None:
    questions = [(text, bar) for text in ANSWERS for bar in (None, -6.0, -7.5)]
    runs: list[list[str]] = []
    for options in ({}, {}, {"cache": False}):
        task = start(**options)
        runs.append(texts([task.judge(text, "train", bar=bar) for text, bar in questions]))
        asked.append("|")

    assert runs[0] == runs[1] == runs[2]
    assert len(split(asked, "|")[1]) == 1, "nothing but the seed"


def split(items: list[str], mark: str) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for item in items:
        if item == mark:
            parts.append([])
        else:
            parts[-1].append(item)
    return parts


@pytest.mark.parametrize(
    "change",
    [
        {"instance_options": {"count": 9}},
        {"cpu_seconds": 9.0},
        {"memory_mb": 300},
    ],
)
def test_another_evaluator_does_not_get_the_result(
    place: Path, start: Callable[..., HeuristicTask], asked: list[str], change: dict[str, Any]
) -> None:
    start().judge(ANSWERS[0], "train")
    start(**change).judge(ANSWERS[0], "train")

    assert sum("d_home\n" in source for source in asked) == 2


def test_a_held_out_split_is_not_loaded_for_what_is_known(place: Path, start: Callable[..., HeuristicTask]) -> None:
    first = start().judge(ANSWERS[0], "validation20")
    task = start()

    assert task.judge(ANSWERS[0], "validation20") == first
    assert set(task._evaluators) == {"train"}


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        (" d_current * 2", True),
        (" d_current * __import__('time').time()", False),
        (" d_current + np.random.default_rng().random()", False),
        (" d_current + id(d_home) % 2", False),
    ],
)
def test_what_draws_from_clock_entropy_or_addresses_is_not_kept(
    place: Path, start: Callable[..., HeuristicTask], asked: list[str], answer: str, kept: bool
) -> None:
    for task in (start(), start()):
        task.judge(answer, "train")

    assert len(asked) == (3 if kept else 4)


@pytest.mark.parametrize(
    ("status", "message", "kept"),
    [
        ("ok", "", True),
        ("syntax", "SyntaxError: invalid syntax", True),
        ("syntax", "MemoryError: ", False),
        ("no_entry", "the module defines no function 'f'", True),
        ("import", "ModuleNotFoundError: No module named 'x'", True),
        ("invalid_solution", "instance 3: the tour has 4 of 5 nodes", True),
        ("non_finite", "FloatingPointError: a score is not finite", True),
        ("exception", "NameError: name 'x' is not defined (line 3)", True),
        ("exception", "numpy.exceptions.AxisError: axis 1 is out of bounds", True),
        ("exception", "OSError: [Errno 11] Resource temporarily unavailable", False),
        ("exception", "RuntimeError: can't start new thread", False),
        ("exception", "RecursionError: maximum recursion depth exceeded", False),
        ("exception", "the process was ended by SIGKILL", False),
        ("exception", "printed more than 4096 KB", False),
        ("timeout", "more than 10 s of CPU time", False),
        ("out_of_memory", "more than 512 MB in all its processes", False),
        ("outraced", "stopped", False),
    ],
)
def test_only_what_the_program_itself_brings_about_is_kept(status: str, message: str, kept: bool) -> None:
    found = OK if status == "ok" else replace(FAILED, status=status, message=message)

    assert repeatable(found, PLAIN) == kept


def test_a_program_that_does_not_parse_is_kept_as_that() -> None:
    assert repeatable(replace(FAILED, status="syntax", message="SyntaxError: x"), "def (")
    assert not repeatable(OK, "def (")


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_values_come_back_bit_for_bit(values: list[float], objective: float) -> None:
    found = Evaluation("ok", objective, tuple(values), "", "", 0.0, 0.0)

    back = _decoded(json.loads(json.dumps(_encoded(found))))

    assert repr(back) == repr(found)


def test_the_newest_stay_where_there_is_too_much(tmp_path: Path) -> None:
    cache = EvaluationCache(tmp_path, most_bytes=200_000)
    long = replace(OK, per_instance=(1.5,) * 500)
    for number in range(400):
        cache.put("e", str(number), long)

    assert cache.file.stat().st_size < 1_000_000
    assert cache.get("e", "0") is None
    assert cache.get("e", "399") == replace(long, cpu_seconds=0.0, seconds=0.0)
    cache.close()


def test_several_processes_write_at_once(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom pathlib import Path\nfrom coevo.sandbox import Evaluation\n"
        "from coevo_heuristics.cache import EvaluationCache\ncache = EvaluationCache(Path(sys.argv[1]))\n"
        "for i in range(60): cache.put('e', f'{sys.argv[2]}-{i}', Evaluation('ok', 1.0, (1.0,), '', '', 0.0, 0.0))\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with ThreadPoolExecutor(3) as pool:
        commands = [[sys.executable, "-c", program, str(tmp_path), str(n)] for n in range(3)]
        done = list(
            pool.map(lambda c: subprocess.run(c, env=env, capture_output=True, text=True, check=True), commands)
        )

    assert [process.stderr for process in done] == ["", "", ""]
    with sqlite3.connect(tmp_path / "evaluations.sqlite") as connection:
        (count,) = connection.execute("SELECT COUNT(*) FROM results").fetchone()
    connection.close()
    assert count == 180


def broken(place: Path) -> None:
    place.mkdir()
    place.joinpath("evaluations.sqlite").write_bytes(b"no database " * 1000)


def no_folder(place: Path) -> None:
    place.write_text("a file where the folder should be")


def of_another_kind(place: Path) -> None:
    place.mkdir()
    with sqlite3.connect(place / "evaluations.sqlite") as connection:
        connection.execute("CREATE TABLE results (number INTEGER)")
    connection.close()


@pytest.mark.parametrize("fault", [broken, no_folder, of_another_kind])
def test_a_cache_that_cannot_be_used_costs_one_note_and_no_run(
    place: Path, start: Callable[..., HeuristicTask], capsys: pytest.CaptureFixture[str], fault: Callable[[Path], None]
) -> None:
    fault(place)
    task = start()

    assert [task.judge(text, "train").status for text in ANSWERS[:2]] == ["ok", "exception"]
    said = capsys.readouterr().err
    assert said.count("coevo: note: the cache of evaluations") == 1
    assert "the run goes on without it" in said


def test_a_lock_that_is_held_costs_one_note(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("coevo_heuristics.cache._BUSY_SECONDS", 0.05)
    first, second = EvaluationCache(place), EvaluationCache(place)
    first.put("e", "p", OK)
    other = sqlite3.connect(first.file)
    other.execute("BEGIN EXCLUSIVE")
    second.put("e", "q", OK)
    second.put("e", "r", OK)
    other.rollback()
    other.close()

    assert capsys.readouterr().err.count("database is locked") == 1
    assert second.get("e", "p") is None
    first.close()
    second.close()


def _open_to_others(place: Path) -> None:
    place.chmod(0o777)


def _file_open_to_others(place: Path) -> None:
    (place / "evaluations.sqlite").chmod(0o666)


def _link(place: Path) -> None:
    (place / "evaluations.sqlite").rename(place / "real")
    (place / "evaluations.sqlite").symlink_to(place / "real")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_open_to_others, "kept'; mend it with: chmod go-w"),
        (_file_open_to_others, "evaluations.sqlite'; mend it with: chmod go-w"),
        (_link, "evaluations.sqlite' is no ordinary file"),
    ],
)
def test_what_others_may_have_written_is_not_believed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[[Path], None], said: str
) -> None:
    place = tmp_path / "kept"
    for believed in (True, False):
        cache = EvaluationCache(place)
        if believed:
            cache.put("e", "p", OK)
        assert (cache.get("e", "p") is not None) == believed
        cache.close()
        if believed:
            change(place)
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert said in told


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_cache_of_another_user_is_not_believed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "kept"
    place.mkdir(mode=0o700)
    os.chown(place, 12345, -1)
    cache = EvaluationCache(place)
    cache.put("e", "p", OK)
    assert "is another user's" in capsys.readouterr().err


def test_a_result_that_is_none_is_not_believed(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = EvaluationCache(place)
    cache.put("e", "p", OK)
    with sqlite3.connect(cache.file) as connection:
        connection.execute("""UPDATE results SET result = '{"status": "ok", "objective": null}'""")
    connection.close()

    assert cache.get("e", "p") is None
    assert "holds what is no result" in capsys.readouterr().err
    cache.close()


def test_another_result_for_the_seed_turns_the_cache_off(
    place: Path, start: Callable[..., HeuristicTask], asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    start().judge(ANSWERS[0], "train")
    with sqlite3.connect(place / "evaluations.sqlite") as connection:
        rows = connection.execute("SELECT number, result FROM results WHERE number = 1").fetchall()
        changed = {**json.loads(rows[0][1]), "per_instance": [1.0] * 8}
        connection.execute("UPDATE results SET result = ? WHERE number = 1", (json.dumps(changed),))
    connection.close()
    before = len(asked)

    assert start().judge(ANSWERS[0], "train").status == "ok"
    assert len(asked) == before + 2
    assert "another result for the seed heuristic" in capsys.readouterr().err


def test_the_variable_says_where_results_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COEVO_CACHE", str(tmp_path))
    monkeypatch.delenv("COEVO_EVALUATIONS")
    assert default_folder() == tmp_path / "evaluations"
    for off in ("off", "OFF", " Off ", "0", "false", "No"):
        monkeypatch.setenv("COEVO_EVALUATIONS", off)
        assert default_folder() is None
    for on in ("", "on", "ON", "1", "True"):
        monkeypatch.setenv("COEVO_EVALUATIONS", on)
        assert default_folder() == tmp_path / "evaluations"
    for folder in ("./off", "/some/OFF", "kept/here"):
        monkeypatch.setenv("COEVO_EVALUATIONS", folder)
        assert default_folder() == Path(folder)


def test_a_word_that_is_neither_is_told_and_makes_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COEVO_EVALUATIONS", "offf")
    with pytest.raises(UserError, match=r"COEVO_EVALUATIONS got 'offf' \(did you mean 'off'\?\); .*such as \./offf"):
        default_folder()


ISOLATION = {"files": True, "user": True}


def key(folder: Path, **changes: Any) -> str:
    given_ = {"split": "train", "limits": Limits(), "options": {}, "isolation": ISOLATION} | changes
    return evaluator_key(Problem(folder), **given_)


@pytest.mark.parametrize(
    "changes",
    [
        {"split": "test"},
        {"limits": Limits(cpu_seconds=1.0)},
        {"options": {"count": 2}},
        {"isolation": {"files": False, "user": True}},
    ],
)
def test_the_key_depends_on_how_candidates_are_evaluated(folder: Path, changes: dict[str, Any]) -> None:
    assert key(folder) == key(folder)
    assert key(folder, **changes) != key(folder)


@pytest.mark.parametrize(
    ("file", "counts"),
    [("evaluate.py", True), ("data/table.csv", True), ("template.py", False), (".hidden", False), ("runs/a/x", False)],
)
def test_the_key_depends_on_the_files_that_evaluation_may_read(folder: Path, file: str, counts: bool) -> None:
    before, path = key(folder), folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text((path.read_text("utf-8") if path.exists() else "") + "\n# changed\n", "utf-8")

    assert (key(folder) != before) == counts


def test_a_folder_with_too_much_in_it_has_no_key(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coevo_heuristics.identity._MOST_FILES", 2)
    with pytest.raises(NoIdentityError, match="more than 2 files"):
        key(folder)


def test_a_problem_without_a_key_runs_without_the_cache(
    place: Path,
    start: Callable[..., HeuristicTask],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("coevo_heuristics.identity._MOST_BYTES", 10)

    assert start().judge(ANSWERS[0], "train").status == "ok"
    assert "is not used: more than" in capsys.readouterr().err
    assert not place.exists()


def test_nothing_is_kept_where_a_candidate_could_write_into_the_cache(
    place: Path, start: Callable[..., HeuristicTask], monkeypatch: pytest.MonkeyPatch
) -> None:
    weak = property(lambda _: {"files": False, "user": False})
    monkeypatch.setattr(Evaluator, "isolation", weak)

    assert start().judge(ANSWERS[0], "train").status == "ok"
    assert not place.exists()
