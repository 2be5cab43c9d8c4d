import re
from collections.abc import Callable
from pathlib import Path

import pytest

from coevo.errors import UserError
from coevo.registry import Registry
from coevo.sandbox import load_problem
from coevo_heuristics import from_folder, register_tasks


def registry() -> Registry:
    tasks: Registry = Registry("task")
    register_tasks(tasks)
    return tasks


def test_every_problem_folder_is_a_task_and_so_is_any_other_folder() -> None:
    tasks = registry()
    assert {"heuristics", "tsp_construct"} <= set(tasks.names)
    assert tasks.entry("tsp_construct").summary == "TSP, constructive"
    options = {option.name for option in tasks.options("tsp_construct")}
    assert options == {"hole", "workers", "cpu_seconds", "memory_mb", "instance_options", "cache"}
    assert {option.name for option in tasks.options("heuristics")} == options | {"folder"}


def test_a_copied_folder_is_a_task(folder: Path) -> None:
    task = registry().create("heuristics", {"folder": str(folder), "instance_options": {"count": 2}})
    task.start()
    try:
        assert task.brief().name == "tsp_construct"
        assert task.judge(" d_current", "train").status == "ok"
    finally:
        task.close()


def test_a_split_may_have_another_name_in_the_evaluator(folder: Path) -> None:
    file = folder / "problem.toml"
    text = file.read_text("utf-8")
    file.write_text(text.replace('train = "train" ', 'train = "validation20" '), "utf-8")
    task = from_folder(folder)
    task.start()
    (example,) = task.examples("train")
    assert task.judge(" d_current", str(example.data["split"])).metrics == {"objective": 4.45027}
    task.close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"hole": "expresion"}, "'expression'"),
        ({"hole": "none"}, "'expression'"),
        ({"workers": 0}, "workers must be greater than 0, got 0"),
        ({"cpu_seconds": -1}, "cpu_seconds must be greater than 0"),
        ({"memory": 3}, "did you mean 'memory_mb'"),
    ],
)
def test_a_wrong_option_is_one_line(options: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)) as caught:
        registry().create("tsp_construct", options)
    assert "\n" not in str(caught.value)


def test_a_folder_that_is_no_problem_says_what_was_expected(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(
            UserError, match=r"expected a folder with problem\.toml, evaluate\.py and a template"
        ) as caught:
            from_folder(place)
        assert "\n" not in str(caught.value)


BREAKAGES = [
    ('direction = "minimize"', 'directoin = "minimize"', "unknown key 'directoin'; did you mean 'direction'?"),
    ('direction = "minimize"', "", "key 'direction' is missing"),
    ('direction = "minimize"', 'direction = "down"', "key 'direction': input should be 'minimize' or 'maximize'"),
    ("cpu_seconds = 10.0", "cpu_second = 10.0", "key 'limits': unknown key 'cpu_second'; did you mean 'cpu_seconds'?"),
    ("cpu_seconds = 10.0", "cpu_seconds = 0", "key 'limits.cpu_seconds': input should be greater than 0"),
    ("[holes.expression]", "[holes.expresion]", "key 'holes.expresion': input should be 'expression' or 'function'"),
    ("value = 7.00437", "value = nan", "finite number"),
    ('train = "train"', 'search = "train"', "[splits] has no 'train'"),
    ('train = "train"', 'train = "test50"', "[splits] has 'test50' as 'test' and as 'train', which a search may see"),
    ('validation = "validation50"', 'validation = "test50"', "has 'test50' as 'test' and as 'validation', which a sea"),
    ('entry = "select_next_node"', 'entry = "select_node"', "defines no function 'select_node'"),
    ('entry = "select_next_node"', 'entry = "a b"', "no name of a function"),
    ('template = "template.py"', 'template = "templat.py"', "names 'templat.py', which cannot be read"),
    ('replace = "d_current  # coevo: hole"', 'replace = "d_gone"', "holds 'd_gone' 0 times; expected it once"),
    ('replace = "d_current  # coevo: hole"', "", "gives no 'replace'"),
    ("value = 7.00437", "value = ", "problem.toml'"),
]


def load_both(folder: Path) -> None:
    for hole in ("expression", "function"):
        from_folder(folder, hole=hole)


@pytest.mark.parametrize(("old", "new", "said"), BREAKAGES)
def test_a_broken_problem_file_is_one_line_with_file_and_key(folder: Path, old: str, new: str, said: str) -> None:
    file = folder / "problem.toml"
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), "utf-8")
    with pytest.raises(UserError) as caught:
        load_both(folder)
    message = str(caught.value)
    assert said in message
    assert str(folder) in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("template.py", "def select_next_node(:", "is no Python"),
        ("template.py", "def select_next_node(a, b, c, d):\n    return c[0]\n", "needs one line '# coevo: hole'"),
        ("template.py", "# coevo: end\n# coevo: hole\ndef select_next_node(a): return a", "and, after it"),
    ],
)
def test_a_broken_template_is_one_line(folder: Path, file: str, text: str, said: str) -> None:
    (folder / file).write_text(text, "utf-8")
    with pytest.raises(UserError, match=re.escape(said)) as caught:
        from_folder(folder, hole="function")
    assert "\n" not in str(caught.value)


def test_a_hole_that_the_problem_lacks_names_those_it_has(folder: Path) -> None:
    file = folder / "problem.toml"
    text = file.read_text("utf-8")
    start, end = text.index("# `replace`"), text.index("# Objective values")
    file.write_text(re.sub(r"^hole = .*\n", "", text[:start] + text[end:], flags=re.MULTILINE), "utf-8")
    assert from_folder(folder).brief().hole == "function"
    with pytest.raises(UserError, match="has no hole 'expression'; it has: function"):
        from_folder(folder, hole="expression")


def test_a_split_that_is_held_out_may_take_longer(folder: Path) -> None:
    file = folder / "problem.toml"
    text = file.read_text("utf-8")
    file.write_text(text.replace("cpu_seconds = 10.0", "cpu_seconds = 0.3\nheld_out_cpu_seconds = 90.0"), "utf-8")
    slow = (
        "def select_next_node(current_node, destination_node, unvisited_nodes, distance_matrix):\n"
        "    import time\n"
        "    spend = 0.02 + time.process_time()\n"
        "    while time.process_time() < spend: pass\n"
        "    return unvisited_nodes[0]\n"
    )
    task = from_folder(folder, hole="function", instance_options={"count": 1})
    statuses = {split: task.judge(slow, split).status for split in ("train", "validation20")}
    task.close()
    hasty = from_folder(folder, hole="function", cpu_seconds=0.3, instance_options={"count": 1})
    statuses["overridden"] = hasty.judge(slow, "validation20").status
    hasty.close()
    assert statuses == {"train": "timeout", "validation20": "ok", "overridden": "timeout"}


def test_a_seed_that_fails_stops_the_start_with_the_reason(folder: Path) -> None:
    file = folder / "template.py"
    file.write_text(file.read_text("utf-8").replace("np.argmin(distances)", "nowhere"), "utf-8")
    task = from_folder(folder, hole="function", instance_options={"count": 1})
    with pytest.raises(
        UserError, match=r"the seed heuristic in .* fails on split 'train': exception: NameError"
    ) as caught:
        task.start()
    task.close()
    assert "\n" not in str(caught.value)


def test_an_evaluator_without_one_of_its_functions_stops_the_start(folder: Path) -> None:
    (folder / "evaluate.py").write_text("def instances(split):\n    return [1]\n", "utf-8")
    task = from_folder(folder)
    with pytest.raises(UserError, match="'solve', 'objective'"):
        task.start()
    task.close()


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_files_with_a_byte_order_mark_and_other_line_ends_are_the_same_problem(folder: Path, end: str) -> None:
    plain = [from_folder(folder, hole=hole).brief() for hole in ("expression", "function")]
    for file in [*folder.glob("*.py"), folder / "problem.toml"]:
        file.write_bytes(file.read_text("utf-8").replace("\n", end).encode("utf-8-sig"))
    assert [from_folder(folder, hole=hole).brief() for hole in ("expression", "function")] == plain


@pytest.mark.parametrize(
    ("file", "load"),
    [
        ("problem.toml", load_both),
        ("template.py", load_both),
        ("evaluate.py", lambda folder: load_problem(folder / "evaluate.py")),
    ],
)
def test_files_in_another_encoding_are_named(folder: Path, file: str, load: Callable[[Path], object]) -> None:
    path = folder / file
    path.write_text(path.read_text("utf-8"), encoding="utf-16")
    with pytest.raises(UserError, match=rf"{file}' is not UTF-8: by its byte-order mark it is UTF-16"):
        load(folder)
