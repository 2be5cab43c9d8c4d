import inspect
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coevo.errors import CoevoError, UserError
from coevo.host.registry import Registry
from coevo.sandbox import Limits, load_problem
from coevo.sandbox.problem import load_instances
from coevo.sandbox.work import size_of
from coevo_heuristics import from_folder, register_tasks
from coevo_heuristics.growth import growth, shortage, times
from coevo_heuristics.problem import Problem
from coevo_heuristics.task import HeuristicTask

TSP = Path(inspect.getfile(HeuristicTask)).parent / "problems" / "tsp_construct"
SEED = (
    "def select_next_node(current_node, destination_node, unvisited_nodes, distance_matrix):\n"
    "    return unvisited_nodes[0]\n"
)


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
    ('direction = "minimize"', 'direction = "down"', "key 'direction' got 'down'; expected one of: maximize, minimize"),
    ('direction = "minimize"', 'direction = "minimise"', "key 'direction' got 'minimise'; did you mean 'minimize'?"),
    ("cpu_seconds = 10.0", "cpu_second = 10.0", "key 'limits': unknown key 'cpu_second'; did you mean 'cpu_seconds'?"),
    ("cpu_seconds = 10.0", "cpu_seconds = 0", "key 'limits.cpu_seconds' got 0: input should be greater than 0"),
    ("memory_mb = 512", "memory_mb = -1", "key 'limits.memory_mb' got -1: input should be greater than 0"),
    (
        "memory_mb = 512",
        "memory_mb = 99999999",
        "key 'limits.memory_mb' got 99999999: input should be less than or equal",
    ),
    ("[holes.expression]", "[holes.expresion]", "key 'holes.expresion' got 'expresion'; did you mean 'expression'?"),
    ("value = 7.00437", "value = nan", "finite number"),
    ('train = "train"', 'search = "train"', "[splits] has no 'train'"),
    ('train = "train"', 'train = "test50"', "[splits] has 'test50' as 'test' and as 'train', which a search may see"),
    ('validation = "validation50"', 'validation = "test50"', "has 'test50' as 'test' and as 'validation', which a sea"),
    ('entry = "select_next_node"', 'entry = "select_node"', "expected one of the entry, 'def select_node(…):'"),
    ('name = "tsp_construct"', 'name = "../../x"', "name '../../x' is none"),
    ('entry = "select_next_node"', 'entry = "a b"', "no name of a function"),
    ('entry = "select_next_node"', 'entry = "lambda"', "entry 'lambda' is no name of a function"),
    ('signature = "score ="', 'signature = "score"', "expected what is assigned to, such as 'score ='"),
    ('["d_home",', '["d_mean",', "holes.expression.arguments names 'd_mean' twice"),
    ('["d_home",', '["d home",', "holes.expression.arguments names 'd home', which is no name"),
    ('template = "template.py"', 'template = "template.py"\nreplace = "x"', "replace got 'x', which is for expression"),
    ('split = "test20"', 'split = "test50"', "reference 'nearest_neighbour' of split 'test50' is there twice"),
    (
        'split = "train"',
        'split = "trian"',
        "belongs to split 'trian', which [splits] does not have; did you mean 'tr",
    ),
    ('name = "optimum"', 'name = "optimum"\nbaseline = true', "are the baseline, 'nearest_neighbour' and 'optimum'"),
    ("cpu_seconds = 10.0", "held_out_cpu_seconds = { tset = 9.0 }", "names split 'tset'; did you mean 'test'?"),
    ("cpu_seconds = 10.0", "held_out_cpu_seconds = { train = 9.0 }", "names 'train', the search split; write cpu_sec"),
    ("cpu_seconds = 10.0", "held_out_cpu_seconds = { test = 0 }", "input should be greater than 0"),
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


def limits_of(folder: Path, split: str, options: dict[str, int], cpu_seconds: float | None = None) -> Limits:
    problem = Problem(folder)
    return problem.held_out_limits(problem.limits(cpu_seconds), split, growth(problem, split, options))


def test_limits_grow_with_the_number_and_the_square_of_the_size_of_the_instances(folder: Path) -> None:
    search = Problem(folder).limits()
    same = limits_of(folder, "validation50", {})
    assert same == search
    many = limits_of(folder, "test50", {})
    assert (many.cpu_seconds, many.wall) == (10.0 * 1000 / 64, 10.0 * many.cpu_seconds + 5.0)
    assert many.output_kb == 64000
    assert (many.memory_mb, many.file_mb, many.processes) == (search.memory_mb, search.file_mb, search.processes)
    assert limits_of(folder, "validation200", {}).cpu_seconds == 160.0
    assert limits_of(folder, "validation20", {}).cpu_seconds == 10.0  # never less than a search has


def test_what_overrides_the_limit_of_the_search_overrides_the_others_alike(folder: Path) -> None:
    assert limits_of(folder, "test50", {"count": 8}, cpu_seconds=2.0).cpu_seconds == 2.0
    assert limits_of(folder, "test50", {}, cpu_seconds=2.0).cpu_seconds == 2.0 * 1000 / 64


@pytest.mark.parametrize(("key", "seconds"), [("test", 70.0), ("test50", 70.0), ("validation", 156.25)])
def test_a_limit_of_a_split_that_the_file_gives_is_taken_as_it_is(folder: Path, key: str, seconds: float) -> None:
    file = folder / "problem.toml"
    text = file.read_text("utf-8")
    given = f"cpu_seconds = 10.0\nheld_out_cpu_seconds = {{ {key} = 70.0 }}"
    file.write_text(text.replace("cpu_seconds = 10.0", given), "utf-8")
    assert limits_of(folder, "test50", {}).cpu_seconds == seconds


def test_one_limit_for_all_splits_is_for_all_but_the_search(folder: Path) -> None:
    file = folder / "problem.toml"
    text = file.read_text("utf-8")
    file.write_text(text.replace("cpu_seconds = 10.0", "cpu_seconds = 10.0\nheld_out_cpu_seconds = 30.0"), "utf-8")
    assert [limits_of(folder, split, {}).cpu_seconds for split in ("test50", "validation200")] == [30.0, 30.0]
    assert limits_of(folder, "test50", {}, cpu_seconds=1.0).cpu_seconds == 3.0
    assert Problem(folder).limits().cpu_seconds == 10.0


def test_a_task_judges_a_larger_split_with_larger_limits(folder: Path) -> None:
    task = from_folder(folder, hole="function", instance_options={"count": 2})
    try:
        assert task.judge(SEED, "validation200").status == "ok"
        limits = {split: evaluator.sandbox.limits for split, evaluator in task._evaluators.items()}
    finally:
        task.close()
    assert limits == {"validation200": limits_of(folder, "validation200", {"count": 2})}
    assert limits["validation200"].cpu_seconds > 100.0


def growth_of(search: list[object], other: list[object]) -> float:
    here, there = ({"told": None, "size": size_of(each), "count": len(each)} for each in (search, other))
    return times(here, there)


@pytest.mark.parametrize(
    ("work", "said"),
    [
        ("return instance.size / 50", ""),
        ("return float('inf')", "`work` gives inf for 64 instances; expected more than 0"),
        ("sys.exit(3)", "raises SystemExit: 3"),
        ("os._exit(3)", "leaves with exit code 3"),
        ("while True: pass", "takes more than 1 s of CPU time"),
    ],
)
def test_the_problem_says_how_much_work_a_split_is_in_a_process_of_its_own(
    folder: Path, work: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    evaluate, table = folder / "evaluate.py", folder / "problem.toml"
    asked = f"\n\nimport os, sys\nprint('imported', os.getpid())\n\n\ndef work(instance):\n    {work}\n"
    evaluate.write_text(evaluate.read_text("utf-8") + asked, "utf-8")
    if "while" in work:
        table.write_text(table.read_text("utf-8").replace("[limits]", "[limits]\nauthor_seconds = 1.0"), "utf-8")
    problem = Problem(folder)
    if said:
        with pytest.raises(CoevoError, match=re.escape(said)):
            growth(problem, "validation200", {})
    else:
        assert growth(problem, "validation200", {}) == 4.0
    printed, noted = capfd.readouterr()
    assert printed == ""
    assert f"imported {os.getpid()}" not in noted


@given(
    st.lists(st.integers(0, 400), min_size=1, max_size=6), st.lists(st.integers(0, 400), min_size=1, max_size=6)
)  # fmt: skip
def test_more_instances_or_larger_ones_never_make_a_limit_smaller(here: list[int], more: list[int]) -> None:
    small, large = [bytes(n) for n in here], [bytes(2 * n) for n in here]
    assert growth_of(small, small) == 1.0
    assert growth_of(small, [*small, *map(bytes, more)]) > 1.0
    assert growth_of(small, large) >= 1.0


def test_instances_without_a_size_count_by_their_number() -> None:
    assert growth_of([lambda: 1], [lambda: 1] * 7) == 7.0
    assert growth_of([lambda: 1], [b"x"] * 7) == 7.0


def test_a_check_says_how_long_a_program_may_need_where_that_is_more_than_it_gets() -> None:
    ten, forty = Limits(cpu_seconds=10.0), Limits(cpu_seconds=40.0)
    assert shortage(ten, 0.1, forty, 0.7) == ""
    assert shortage(ten, 0.1, forty, 2.0) == (
        "a program that takes all 10 s of the search would take about 200 s here, where 40 s are allowed; "
        "write held_out_cpu_seconds in [limits]"
    )


INSTANCE_OPTIONS = [
    ("kp_construct", {"rulez": "paper"}, "has no instance option 'rulez'; did you mean 'rules'? (see: coevo options "),
    (
        "kp_construct",
        {"rules": "papr"},
        "instance option 'rules' got 'papr'; did you mean 'paper'? (see: coevo",
    ),
    ("kp_construct", {"rules": 3}, "instance option 'rules' got 3; expected one of: fitting, paper, paper_test"),
    ("kp_construct", {"count": "x"}, "instance option 'count' got 'x': input should be a valid integer"),
    ("kp_construct", {"count": True}, "instance option 'count' got True: input should be a number"),
    ("asp_construct", {"rules": "paper"}, "has no instance option 'rules'; `instances` of its evaluate.py takes the "),
]


@pytest.mark.parametrize(("name", "options", "said"), INSTANCE_OPTIONS)
def test_an_instance_option_that_a_problem_does_not_know_is_one_line(name: str, options: object, said: str) -> None:
    with pytest.raises(UserError) as caught:
        registry().create(name, {"instance_options": options})
    assert said in str(caught.value)
    assert f"coevo options task {name}" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("count", [0, -1])
@pytest.mark.parametrize("name", ["tsp_construct", "kp_construct", "bpp_online", "tsp_aco", "cvrp_aco", "bpp_aco"])
def test_no_problem_takes_a_number_of_instances_that_is_none(name: str, count: int) -> None:
    file = TSP.parent / name / "evaluate.py"
    with pytest.raises(UserError, match=f"count = {count}; expected 1 or more"):
        load_instances(load_problem(file), file, "train", {"count": count})


def test_options_of_instances_are_listed_with_their_values(folder: Path) -> None:
    told = {o.name: (o.annotation, o.default) for o in registry().nested("tsp_construct")}
    assert told["instance_options.rules"] == (Literal["all", "paper"], "all")
    assert told["instance_options.count"] == (int | None, None)
    assert registry().nested("asp_construct") == []
    assert [o.name for o in registry().nested("heuristics", str(folder))] == list(told)
    assert registry().nested("heuristics") == []


@pytest.mark.parametrize(
    "source",
    ["from elsewhere import instances", "def instances(split, **more): ...", "def broken(:", "instances = dict.get"],
)
def test_options_that_cannot_be_told_are_left_to_the_evaluator(folder: Path, source: str) -> None:
    (folder / "evaluate.py").write_text(source, "utf-8")
    assert from_folder(folder, instance_options={"whatever": 1}).problem.table.name == "tsp_construct"


def test_types_that_are_not_plain_go_unchecked(folder: Path) -> None:
    source = "def instances(split, path: Path, kind: Kind = Kind.BIG, *, sizes: list[int] = (1, 2)): ..."
    (folder / "evaluate.py").write_text(source, "utf-8")
    path, kind, sizes = registry().nested("heuristics", str(folder))
    assert (path.annotation, path.default) == (inspect.Parameter.empty, inspect.Parameter.empty)
    assert kind.default == "Kind.BIG"
    assert (sizes.annotation, sizes.default) == (list[int], (1, 2))
    assert from_folder(folder, instance_options={"kind": 3, "sizes": [1]}).problem.table.name == "tsp_construct"
    with pytest.raises(UserError, match="instance option 'sizes' got 'x': input should be a valid list"):
        from_folder(folder, instance_options={"sizes": "x"})


@pytest.mark.parametrize(
    ("body", "said"),
    [("1 / 0", "`work` raises ZeroDivisionError"), ("0", "`work` gives 0.0 for 2 instances; expected more than 0")],
)
def test_a_work_that_is_none_is_one_line(folder: Path, body: str, said: str) -> None:
    file = folder / "evaluate.py"
    file.write_text(file.read_text("utf-8") + f"\n\ndef work(instance):\n    return {body}\n", "utf-8")
    with pytest.raises(UserError, match=re.escape(said)) as caught:
        limits_of(folder, "test50", {"count": 2})
    assert "\n" not in str(caught.value)


def test_a_bound_that_is_no_function_stops_the_start(folder: Path) -> None:
    (folder / "evaluate.py").write_text((folder / "evaluate.py").read_text("utf-8") + "\n\nbound = 3.5\n", "utf-8")
    task = from_folder(folder)
    with pytest.raises(UserError, match=r"bound is 3\.5; expected a function of an instance, or none"):
        task.start()
    task.close()


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
