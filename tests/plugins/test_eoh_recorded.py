"""A recorded conversation takes EoH through its six operators and the repair of two answers, on a real problem.

`recorded_tsp.json` was written by hand: what a stronger model could say to the function prompts of tsp_construct. The
engine gives it back turn by turn and ends the run where a prompt lacks what the turn was an answer to.
"""

import importlib.util
import json
from contextlib import asynccontextmanager
from pathlib import Path

import loop_kit
import pytest

import coevo
import coevo_eoh
import coevo_heuristics
from coevo.errors import RunError
from coevo.numerics.objectives import written

TURNS = json.loads(Path(__file__).with_name("recorded_tsp.json").read_text("utf-8"))
EOH = {
    "population": 2, "initial_batches": 1, "offspring": 1, "repair": True, "show_failures": True,
    "operators": ["e1", "e2", "m1", "m2", "m3", "i1"],
}  # fmt: skip
TSP = {"hole": "function", "workers": 2, "instance_options": {"count": 6}}


class ReplayEngine:
    """Answers the k-th request with the k-th turn."""

    capabilities = coevo.Capabilities(adapts=False)
    id = "recorded"

    def __init__(self):
        self.turns = iter(TURNS)

    @asynccontextmanager
    async def lease(self, perturbation):
        yield self

    async def complete(self, requests):
        return [self.answer(request.messages[-1]["content"]) for request in requests]

    def answer(self, prompt):
        turn = next(self.turns, None)
        if turn is None:
            raise RunError("the recording is over")
        for text in turn["shows"]:
            if text not in prompt:
                raise RunError(f"turn {turn['id']} answers a prompt with {text!r}, which this is not: {prompt}")
        for text in turn.get("hides", ()):
            if text in prompt:
                raise RunError(f"turn {turn['id']} answers a prompt without {text!r}: {prompt}")
        return coevo.Completion(turn["says"], (1, 2, 3), (4, 5), "stop")

    def digest(self):
        return "0" * 64


class Recorded:
    @coevo.hookimpl
    def register_engines(self, engines):
        engines.register("recorded", ReplayEngine)


@pytest.fixture(scope="module")
def summary(tmp_path_factory):
    runs = tmp_path_factory.mktemp("recorded")
    config = {
        "task": "tsp_construct", "tsp_construct": TSP, "engine": "recorded", "param": "none", "context": "eoh",
        "eoh": EOH, "generations": 1, "calls": len(TURNS), "name": "a", "runs": str(runs), "loggers": [],
    }  # fmt: skip
    return coevo.run(config, loop_kit.plugins(coevo_eoh, coevo_heuristics, Recorded()))


def journal(summary):
    lines = Path(summary["path"], "journal.jsonl").read_text("utf-8").splitlines()
    return [line for text in lines if (line := json.loads(text))["kind"] == "batch"]


def test_every_turn_was_answered_in_the_batch_of_its_operator(summary):
    asked = [(line["operator"], line["calls"]) for line in journal(summary)]
    assert asked == [
        ("i1", 2), ("i1/repair", 1), ("e1", 1), ("e2", 1), ("m1", 1), ("m1/repair", 1), ("m2", 1), ("m3", 1), ("i1", 1),
    ]  # fmt: skip
    assert summary["calls"] == len(TURNS)
    assert [turn["operator"] for turn in TURNS] == [name for name, calls in asked for _ in range(calls)]


def test_two_answers_failed_and_both_were_mended(summary):
    statuses = {line["operator"]: line["statuses"] for line in journal(summary)[:-1]}
    assert summary["statuses"] == {"exception": 1, "invalid_solution": 1, "ok": 8}
    assert statuses["m1"] == {"invalid_solution": 1}
    assert statuses["i1/repair"] == statuses["m1/repair"] == {"ok": 1}


def test_an_answer_that_behaves_like_an_old_one_is_no_second_heuristic(summary):
    """The last turn is nearest neighbour in other words: equal on every instance, a duplicate in the population."""
    *_, before, last = journal(summary)
    assert last["statuses"] == {"ok": 1}
    ids = [[h["id"] for h in line["states"]["contexts"]["population"]] for line in (before, last)]
    assert ids[0] == ids[1]


def test_the_best_is_kept_with_how_it_was_found_and_judged_once_on_instances_it_never_saw(summary):
    best = json.loads(Path(summary["path"], "best", "best.json").read_text("utf-8"))
    source = Path(summary["path"], "best", "heuristic.py").read_text("utf-8")
    found = min((value, line["operator"]) for line in journal(summary) for value in line["objectives"])
    assert best["objective"] == found[0] == summary["best"]["objective"]
    assert set(best["splits"]) == {"validation", "test"}
    task = coevo_heuristics.from_folder(
        Path(coevo_heuristics.__file__).parent / "problems" / "tsp_construct", **{**TSP, "workers": 1}
    )
    for split, verdict in best["splits"].items():
        judged = task.judge(best["answer"], task.examples(split)[0].data["split"])
        assert verdict == {"status": "ok", "objective": judged.metrics["objective"], "instances": 6}
        assert f"# {split}: objective {written(verdict['objective'])} (6 instances)\n" in source
    task.close()
    assert f"# Found by coevo in run 'a': generation 0, batch {best['batch']}, operator {found[1]}, rollout" in source
    assert "# task tsp_construct, param none, context eoh, model smollm2-135m, seed 0\n# Idea: " in source
    spec = importlib.util.spec_from_file_location("found", Path(summary["path"], "best", "heuristic.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert callable(module.select_next_node)


def test_no_buffer_and_no_prompt_holds_the_other_splits(summary):
    for path in Path(summary["path"], "contexts").iterdir():
        assert "validation" not in path.read_text("utf-8")
    assert all("splits" not in json.dumps(line) for line in journal(summary))


def test_a_prompt_that_lacks_what_a_turn_answers_ends_the_run(tmp_path, monkeypatch):
    monkeypatch.setitem(EOH, "show_failures", False)
    config = {
        "task": "tsp_construct", "tsp_construct": TSP, "engine": "recorded", "param": "none", "context": "eoh",
        "eoh": EOH, "generations": 1, "name": "b", "runs": str(tmp_path), "loggers": [],
    }  # fmt: skip
    with pytest.raises(RunError, match="turn e1 answers a prompt with 'Answers before yours failed'"):
        coevo.run(config, loop_kit.plugins(coevo_eoh, coevo_heuristics, Recorded()))
