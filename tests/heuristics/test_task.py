import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import pytest

from coevo.interfaces import Task
from coevo.records import Completion, Context, EpisodeResult, Provenance, Rollout, Trajectory
from coevo_heuristics import HeuristicTask, from_folder

BASELINE = 7.00437
NEAREST = """```python
def select_next_node(current_node, destination_node, unvisited_nodes, distance_matrix):
    return unvisited_nodes[np.argmin(distance_matrix[current_node, unvisited_nodes])]
```"""


def attempt(task: HeuristicTask, text: str, finish: str = "stop", context: Context | None = None) -> EpisodeResult:
    episode = task.episode(task.examples("train")[0], context or Context())
    (request,) = episode.requests()
    assert request.prefill == task.brief().prefill
    episode.step([Completion(text, (1,), (2,), finish)])
    assert episode.requests() == []
    return episode.result()


def test_it_is_a_task(expression_task: HeuristicTask) -> None:
    assert isinstance(expression_task, Task)
    assert not hasattr(expression_task, "run")


def test_nearest_neighbour_has_its_known_length_through_both_holes(
    expression_task: HeuristicTask, function_task: HeuristicTask
) -> None:
    results = [attempt(expression_task, " d_current"), attempt(function_task, NEAREST)]
    for result in results:
        assert (result.status, result.return_) == ("ok", -BASELINE)
        assert result.metrics == {"objective": BASELINE}
    assert results[0].artifacts["instances"] == results[1].artifacts["instances"]
    assert len(results[0].artifacts["instances"]) == 64


def test_both_holes_give_the_same_tours_for_the_same_rule(
    expression_task: HeuristicTask, function_task: HeuristicTask
) -> None:
    function = attempt(
        function_task,
        "def select_next_node(now, home, nodes, d):\n"
        "    score = d[now, nodes] - 0.5 * d[np.ix_(nodes, nodes)].mean(axis=1)\n"
        "    return nodes[np.argmin(score)]\n",
    )
    expression = attempt(expression_task, " d_current - 0.5 * d_mean")
    assert function.status == expression.status == "ok"
    assert function.artifacts["instances"] == expression.artifacts["instances"]
    assert expression.metrics["objective"] < BASELINE


ARTIFACTS = {"answer", "thought", "code", "code_key", "message", "instances"}


@pytest.mark.parametrize(
    ("completion", "status", "message"),
    [
        ("\n", "no_answer", "no expression"),
        (" d_current -", "syntax", "invalid syntax"),
        (" d_nowhere", "exception", "NameError"),
        (" np.sqrt(-d_current)", "non_finite", "not finite"),
        (" d_current / 0", "non_finite", ""),
        (" d_current[:3]", "exception", "ValueError"),
        (" [0] * 10**9", "out_of_memory", ""),
        (" 'near'", "exception", ""),
        (" __import__('nowhere_at_all').x", "import", "nowhere_at_all"),
        (" np.random.default_rng(0).no", "exception", "AttributeError"),
    ],
)
def test_a_failing_expression_has_a_status_and_no_number(
    expression_task: HeuristicTask, completion: str, status: str, message: str
) -> None:
    result = attempt(expression_task, completion)
    assert (result.status, result.return_, dict(result.metrics)) == (status, None, {})
    assert set(result.artifacts) == ARTIFACTS
    assert message in result.artifacts["message"]
    assert result.artifacts["message"]
    assert "0x7" not in result.artifacts["message"]
    assert result.artifacts["instances"] == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("return unvisited_nodes[0] + 1000", "invalid_solution"),
        ("return None", "invalid_solution"),
        ("return float('nan')", "non_finite"),
        ("raise SystemExit", "exception"),
        ("while True: pass", "timeout"),
        ("import nothing_like_this", "import"),
        ("return object().x", "exception"),
    ],
)
def test_a_failing_function_has_a_status_and_no_number(
    body: str, status: str, function_task: HeuristicTask, hasty_task: HeuristicTask
) -> None:
    header = "def select_next_node(current_node, destination_node, unvisited_nodes, distance_matrix):"
    task = hasty_task if status == "timeout" else function_task
    result = attempt(task, f"```python\n{header}\n    {body}\n```")
    assert (result.status, result.return_, dict(result.metrics)) == (status, None, {})
    assert result.artifacts["code_key"]
    assert result.artifacts["message"]


@pytest.fixture(scope="module")
def hasty_task(function_task: HeuristicTask):
    task = from_folder(function_task.problem.folder, hole="function", cpu_seconds=0.5, instance_options={"count": 2})
    task.start()
    yield task
    task.close()


def test_failures_before_the_sandbox_are_told_apart_too(function_task: HeuristicTask) -> None:
    assert attempt(function_task, "I am sorry.").status == "no_answer"
    assert attempt(function_task, "```python\ndef select_next_node(a, b, c, d)\n```").status == "syntax"
    assert attempt(function_task, "```python\ndef other(a):\n    return a\n```").status == "no_entry"
    cut = f"{NEAREST[:-4]}\n\ndef helper(x):\n    return ("
    assert attempt(function_task, cut, "length").status == "ok"
    assert attempt(function_task, cut, "stop").status == "syntax"


def test_two_spellings_of_one_answer_have_one_key_and_one_score(expression_task: HeuristicTask) -> None:
    first = attempt(expression_task, " d_current - 0.25 * d_home  # a thought")
    second = attempt(expression_task, " (d_current-(.25*d_home))")
    assert first.artifacts["code_key"] == second.artifacts["code_key"]
    assert first.artifacts["instances"] == second.artifacts["instances"]
    assert (first.artifacts["thought"], second.artifacts["thought"]) == ("a thought", "")
    third = attempt(expression_task, " d_current - 0.5 * d_home")
    assert third.artifacts["code_key"] != first.artifacts["code_key"]


def test_an_answer_from_the_cache_equals_one_from_the_sandbox(expression_task: HeuristicTask) -> None:
    again = from_folder(expression_task.problem.folder, hole="expression")
    text = " d_current - d_home * d_mean + object().__hash__() * 0"
    results = [attempt(expression_task, text), attempt(expression_task, text), attempt(again, text)]
    again.close()
    assert len({json.dumps(asdict(r), sort_keys=True, allow_nan=False) for r in results}) == 1
    assert results[0].metrics["objective"] == 6.58195


def test_many_threads_may_ask_at_once(expression_task: HeuristicTask) -> None:
    texts = [f" d_current - {k % 4} * d_mean" for k in range(16)]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda text: attempt(expression_task, text), texts))
    assert all(result.status == "ok" for result in results)
    assert results[:4] == results[4:8] == results[8:12]


def test_a_context_s_prompt_is_what_the_model_is_asked(expression_task: HeuristicTask) -> None:
    example = expression_task.examples("train")[0]
    (asked,) = expression_task.episode(example, Context({"prompt": "Say d_current."})).requests()
    assert [dict(message) for message in asked.messages] == [{"role": "user", "content": "Say d_current."}]
    assert (asked.prefill, asked.stop, asked.sampling) == ("score =", ("\n", "#"), None)
    (default,) = expression_task.episode(example, Context()).requests()
    assert default.messages[0]["content"] == expression_task.brief().components["prompt"]


def test_splits_are_single_examples_and_nothing_is_loaded_for_them(expression_task: HeuristicTask) -> None:
    for split in ("train", "validation", "validation200", "test", "test1000"):
        (example,) = expression_task.examples(split)
        assert example.id == split
    assert set(expression_task._evaluators) == {"train"}
    with pytest.raises(ValueError, match=r"no split 'tset'; it has: train, validation, test, .*test1000"):
        expression_task.examples("tset")


def test_another_split_is_evaluated_with_its_own_instances(expression_task: HeuristicTask) -> None:
    result = expression_task.judge(" d_current", dict(expression_task.examples("validation20")[0].data)["split"])
    assert result.metrics == {"objective": 4.45027}


def rollout(result: EpisodeResult) -> Rollout:
    where = Provenance(0, 0, 0, None, 0, 0.0, 0, "", "train", 0, 0, "")
    return Rollout(where, result.status, result.return_, Trajectory(), None, result.metrics, result.artifacts)


def test_the_best_file_is_a_module_with_a_header_that_runs_alone(
    expression_task: HeuristicTask, tmp_path: Path
) -> None:
    result = attempt(expression_task, " d_current - d_mean")
    files = expression_task.best_files(rollout(result), "found by a test\n\nobjective 6.44101")
    assert set(files) == {"heuristic.py"}
    assert files["heuristic.py"].startswith("# found by a test\n#\n# objective 6.44101\n")
    (tmp_path / "heuristic.py").write_text(files["heuristic.py"], "utf-8")
    program = (
        "import numpy as np, heuristic\n"
        "print(heuristic.select_next_node(0, 0, np.array([1, 2]), np.array([[0., 3, 1], [3, 0, 2], [1, 2, 0]])))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2"
    assert expression_task.best_files(rollout(attempt(expression_task, "")), "x") == {}


def test_a_result_of_an_unanswered_episode_is_a_fault(expression_task: HeuristicTask) -> None:
    with pytest.raises(RuntimeError, match="not answered"):
        expression_task.episode(expression_task.examples("train")[0], Context()).result()


def test_a_maximized_objective_is_its_own_return(folder: Path) -> None:
    file = folder / "problem.toml"
    file.write_text(file.read_text("utf-8").replace('"minimize"', '"maximize"'), "utf-8")
    task = from_folder(folder, hole="expression", instance_options={"count": 2})
    result = task.judge(" d_current", "train")
    task.close()
    assert result.return_ == result.metrics["objective"] > 0


def test_registering_tasks_loads_no_numpy() -> None:
    program = (
        "import sys, coevo_heuristics\nfrom coevo.host.registry import Registry\n"
        "tasks = Registry('task')\ncoevo_heuristics.register_tasks(tasks)\n"
        "assert 'numpy' not in sys.modules and 'numba' not in sys.modules, 'heavy'"
    )
    env = {"PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-c", program], check=True, env=env)
