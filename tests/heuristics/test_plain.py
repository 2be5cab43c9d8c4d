"""Each problem's plain.py is an evaluator of its own, in plain loops: it and evaluate.py have to agree."""

from __future__ import annotations

import importlib.util
import json
import types
from collections.abc import Callable
from typing import Any

import pytest

from .problem_kit import PROBLEMS, filled, module, seed, specification

# Split and options of `instances` that leave seconds of work to plain loops.
SMALL: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "asp_construct": [("12-7", {})],
    "bpp_aco": [("validation120", {"count": 2, "iterations": 3}), ("train", {"count": 1, "iterations": 1})],
    "bpp_online": [("train1k_100", {}), ("test1k_500", {"count": 1})],
    "cvrp_aco": [
        ("validation20", {"count": 2, "iterations": 20}),
        ("train", {"count": 2, "iterations": 5}),
        ("validation20", {"count": 2, "iterations": 20, "rules": "paper"}),
    ],
    "kp_construct": [("validation50", {"count": 4}), ("train", {"count": 4})],
    "tsp_aco": [("validation20", {"count": 2, "iterations": 20}), ("train", {"count": 2, "iterations": 5})],
    "tsp_construct": [
        ("validation20", {"count": 4}),
        ("train", {"count": 4}),
        ("validation100", {"count": 1, "rules": "paper"}),
    ],
}
# Those count: there is nothing to round.
EXACT = {"asp_construct", "bpp_aco", "bpp_online"}
# Answers for the function hole that are not the seed's: what an expression cannot say.
FUNCTIONS = {
    "asp_construct": "def priority(el, n, w):\n    return sum(e * (i % 3) for i, e in enumerate(el)) % 5\n",
    "bpp_aco": (
        "import numpy as np\ndef heuristics(demand, capacity):\n    pair = demand[:, None] + demand[None, :]\n"
        "    return np.where(pair <= capacity, pair / capacity, 0.0)\n"
    ),
    "bpp_online": (
        "import numpy as np\ndef priority(item, bins):\n    room = bins - item\n"
        "    return np.where(room == 0, 10.0, -np.sqrt(room) - (room < 5))\n"
    ),
    "cvrp_aco": (
        "import numpy as np\ndef heuristics(distance_matrix, coordinates, demands, capacity):\n"
        "    return (demands[None, :] + 1.0) / distance_matrix ** 2\n"
    ),
    "kp_construct": "def select_next_item(remaining_capacity, weights, values):\n    return len(weights) // 2\n",
    "tsp_aco": (
        "import numpy as np\ndef heuristics(distance_matrix):\n    near = distance_matrix.argsort(axis=1)\n"
        "    found = np.full_like(distance_matrix, -1.0)\n    np.put_along_axis(found, near[:, :8], 1.0, axis=1)\n"
        "    return found\n"
    ),
    "tsp_construct": (
        "import numpy as np\ndef select_next_node(current_node, destination_node, unvisited_nodes, distance_matrix):\n"
        "    away = distance_matrix[unvisited_nodes, destination_node]\n"
        "    return unvisited_nodes[np.argmin(distance_matrix[current_node, unvisited_nodes] - 0.3 * away)]\n"
    ),
}
PAPER = {"bpp_aco": "paper", "bpp_online": "paper", "kp_construct": "paper"}


def plain(name: str) -> Any:
    """plain.py of a problem."""
    spec = importlib.util.spec_from_file_location(f"plain_{name}", PROBLEMS / name / "plain.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def sources(name: str) -> dict[str, str]:
    """The seed of both holes, the expressions that prompts show, and a function that is neither."""
    examples = specification(name)["holes"]["expression"]["examples"]
    return {
        "seed of the function hole": seed(name, "function"),
        "seed of the expression hole": seed(name, "expression"),
        **{example: filled(name, example) for example in examples},
        "another function": FUNCTIONS[name],
    }


def entry_in(source: str, name: str) -> Callable[..., Any]:
    candidate = types.ModuleType("candidate")
    exec(source, candidate.__dict__)
    return candidate.__dict__[specification(name)["entry"]]


def shipped(problem: Any, function: Callable[..., Any], instance: Any) -> float:
    """The objective as a run has it: the solution has been JSON."""
    solution = json.loads(json.dumps(problem.solve(function, instance), default=lambda value: value.tolist()))
    return problem.objective(solution, instance)


def test_every_problem_has_one():
    assert {file.parent.name for file in PROBLEMS.glob("*/plain.py")} == set(SMALL)
    assert {file.parent.name for file in PROBLEMS.glob("*/problem.toml")} == set(SMALL)


@pytest.mark.parametrize("name", sorted(SMALL))
def test_it_comes_to_the_objectives_of_the_evaluator(name: str):
    problem, second = module(name), plain(name)
    instances = [one for split, options in SMALL[name] for one in problem.instances(split, **options)]
    seen: set[tuple[float, ...]] = set()
    for label, source in sources(name).items():
        function = entry_in(source, name)
        values = [shipped(problem, function, instance) for instance in instances]
        found = [second.evaluate(function, instance) for instance in instances]
        assert found == (values if name in EXACT else pytest.approx(values, rel=1e-9)), label
        seen.add(tuple(values))
    # Or agreement would mean nothing.
    assert len(seen) >= 3


@pytest.mark.parametrize("name", sorted(SMALL))
def test_it_shares_no_code_with_the_evaluator(name: str):
    text = (PROBLEMS / name / "plain.py").read_text("utf-8")
    assert "numba" not in text
    assert "evaluate import" not in text
    assert "solve" not in vars(plain(name))


@pytest.mark.parametrize("name", sorted(PAPER))
def test_it_refuses_rules_that_it_does_not_know(name: str):
    split, options = SMALL[name][0]
    options = {key: value for key, value in options.items() if key != "iterations"}
    instance = module(name).instances(split, rules=PAPER[name], **options)[0]
    with pytest.raises(ValueError, match="alone, not 'paper'"):
        plain(name).evaluate(entry_in(seed(name, "function"), name), instance)


@pytest.mark.parametrize("name", ["bpp_aco", "cvrp_aco", "tsp_aco"])
def test_a_heuristic_that_is_not_finite_is_refused_by_both(name: str):
    problem, second = module(name), plain(name)
    instance = problem.instances(*SMALL[name][0][:1], count=1, iterations=1)[0]
    function = entry_in("import numpy as np\ndef heuristics(d, *_): return np.full((len(d), len(d)), np.nan)\n", name)
    for evaluate in (problem.solve, second.evaluate):
        with pytest.raises(FloatingPointError, match="not finite"):
            evaluate(function, instance)
