"""Racing in EoH: the populations, the prompts and the best are those of a run without, on objectives of any kind."""

import itertools
import json
from contextlib import asynccontextmanager
from pathlib import Path

import loop_kit
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coevo
import coevo_eoh
import coevo_heuristics
from coevo.records import BAR
from coevo_eoh import EvolutionOfHeuristics

OBJECTIVES = st.lists(st.one_of(st.none(), st.integers(0, 12)), min_size=40, max_size=40)


def raced(kit, said, context):
    """What becomes of an answer: one that is worse than the bar is stopped."""
    bar = context.data.get(BAR)
    if said.objective is not None and bar is not None and -said.objective < bar:
        return kit.Answer(None, status="outraced", code_key=said.code_key, text=said.text)
    return said


def without_waiting(state):
    """What decides of the rest of the run: of offspring that wait in `v0.2`, those that are stopped never get far."""
    return json.dumps({**state, "waiting": []}, sort_keys=True)


def search(kit, objectives, generations=3, **options):
    """(states after each batch, contexts' texts, statuses) of a search in which answer i has `objectives[i]`."""
    services = kit.FakeServices()
    eoh = EvolutionOfHeuristics(services=services, brief=kit.make_brief(), population=3, initial_batches=2, **options)
    answers = itertools.cycle(objectives)
    told, statuses = [], []
    for services.generation in range(generations):
        services.batch = 0
        while (batch := eoh.ask()) is not None:

            def answer(index, _, batch=batch):
                objective = next(answers)
                # Equal objectives are equal behaviour, and every third is the same program as well.
                key = f"k{objective}" if objective is not None and objective % 3 == 0 else f"{services.batch}-{index}"
                said = kit.Answer(None if objective is None else float(objective), code_key=key, text=key)
                return raced(kit, said, batch.contexts[index])

            buffer = eoh.credit(kit.play(batch, answer, services=services))
            assert not batch.adapt or not any(BAR in context.data for context in batch.contexts)
            statuses += [rollout.status for rollout in buffer.rollouts]
            eoh.tell(buffer)
            told.append((batch.operator, [c.id for c in batch.contexts], without_waiting(eoh.state_dict())))
            services.batch += 1
    return told, statuses


@pytest.mark.parametrize("options", [{}, {"variant": "v0.2", "offspring": 6}, {"adapt": ()}, {"adapt": ("e1",)}])
@given(objectives=OBJECTIVES)
@settings(max_examples=40, deadline=None)
def test_the_populations_are_the_same_with_and_without_racing(kit, options, objectives):
    with_race, _ = search(kit, objectives, **options)
    without, statuses = search(kit, objectives, race=False, **options)

    assert with_race == without
    assert "outraced" not in statuses


def test_answers_are_stopped_where_the_population_is_full(kit):
    _, statuses = search(kit, [1, 2, 3, *range(4, 41)], adapt=())

    assert statuses.count("outraced") > 20
    assert statuses[:3] == ["ok"] * 3


def test_the_bar_is_what_the_worst_of_a_full_population_is_worth(kit):
    services = kit.FakeServices()
    eoh = EvolutionOfHeuristics(services=services, brief=kit.make_brief(), population=3, initial_batches=1)
    count = iter(range(100))
    batch = eoh.ask()
    assert not any(BAR in context.data for context in batch.contexts)
    eoh.tell(kit.play(batch, lambda *_: kit.Answer(7.0 + next(count), code_key=f"k{next(count)}")))
    bars = [context.data.get(BAR) for context in eoh.ask().contexts]

    assert bars == [eoh.population[-1].value] * 3 == [-11.0] * 3


@pytest.mark.parametrize("options", [{"race": False}, {"repair": True}, {"show_failures": True}])
def test_where_failures_count_nothing_is_raced(kit, options):
    """Of an answer that was stopped nobody knows whether it would have failed, and prompts would tell of it."""
    _, statuses = search(kit, list(range(1, 41)), adapt=(), **options)

    assert "outraced" not in statuses


def test_in_v02_nothing_is_raced_where_weights_learn(kit):
    """A duplicate of an offspring that waits has less credit; one that was stopped would not wait."""
    for answers, races in ((0, True), (4, False)):
        services = kit.FakeServices(batch_answers=answers, member_answers=1)
        eoh = EvolutionOfHeuristics(
            services=services, brief=kit.make_brief(), population=2, variant="v0.2", operators=("e1",), adapt=()
        )
        count = iter(range(100))
        eoh.tell(kit.play(eoh.ask(), lambda *_: kit.Answer(7.0 + next(count), code_key=f"k{next(count)}")))  # noqa: B023
        assert all((BAR in context.data) == races for context in eoh.ask().contexts)


def test_a_population_that_is_not_full_sets_no_bar(kit):
    _, statuses = search(kit, [1, 1, 1, 1], adapt=())

    assert statuses == ["ok"] * len(statuses)


TEXTS = [f" d_current - {a} * d_mean + {b} * d_home" for a in (-1.0, 0.0, 0.3, 0.5, 1.0) for b in (-0.5, 0.0, 0.2)]
TEXTS += [" -d_current", " d_current / 0", " d_nowhere", " d_current -"]


class SpeakingEngine:
    """Says one of the texts, by the seed of the request."""

    capabilities = coevo.Capabilities(adapts=False)
    id = "speaking"

    def __init__(self):
        pass

    @asynccontextmanager
    async def lease(self, perturbation):
        yield self

    async def complete(self, requests):
        said = [TEXTS[np.random.default_rng(request.seed).integers(len(TEXTS))] for request in requests]
        return [coevo.Completion(text, (1, 2, 3), (4, 5), "stop") for text in said]

    def digest(self):
        return "0" * 64


class Plugin:
    @coevo.hookimpl
    def register_engines(self, engines):
        engines.register("speaking", SpeakingEngine)


def ran(folder: Path, name: str, *, race: bool = True, cache: bool = True) -> list[dict]:
    config = {
        "task": "tsp_construct", "engine": "speaking", "param": "none", "context": "eoh", "generations": 2,
        "tsp_construct": {"hole": "expression", "workers": 2, "instance_options": {"count": 16}, "cache": cache},
        "eoh": {"population": 4, "race": race}, "name": name, "runs": str(folder), "loggers": [], "judge_best": False,
        "probe": {"every": 0},
    }  # fmt: skip
    summary = coevo.run(config, loop_kit.plugins(coevo_eoh, coevo_heuristics, Plugin()))
    lines = Path(summary["path"], "journal.jsonl").read_text("utf-8").splitlines()
    return [loop_kit.without_time(json.loads(line)) for line in lines]


def test_a_run_keeps_the_same_with_racing_and_says_the_same_with_a_warm_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("COEVO_EVALUATIONS", str(tmp_path / "kept"))
    cold, warm = ran(tmp_path, "a"), ran(tmp_path / "again", "a")
    uncached, unraced = ran(tmp_path / "uncached", "a", cache=False), ran(tmp_path / "unraced", "a", race=False)

    assert cold == warm == uncached
    batches, others = ([line for line in lines if line["kind"] == "batch"] for lines in (cold, unraced))
    assert sum(line["statuses"].get("outraced", 0) for line in batches) > 5
    assert not any("outraced" in line["statuses"] for line in others)
    for key in ("states", "best", "operator", "ledger"):
        assert [line[key] for line in batches] == [line[key] for line in others]
    for one, other in zip(batches, others, strict=True):
        valid = one["statuses"].get("ok", 0) + one["statuses"].get("outraced", 0)
        # One that would have failed later is stopped earlier: it never counts as worse than it is.
        assert valid >= other["statuses"].get("ok", 0)
