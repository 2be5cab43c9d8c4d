"""A rehearsal counts what a run then asks for."""

import json
from collections import Counter
from pathlib import Path

import fakes
import pluggy

import coevo
import coevo_eoh
import coevo_es
import coevo_heuristics
import coevo_none
import coevo_sample
from coevo.app.blueprint import Blueprint
from coevo.host import hookspecs
from coevo.host.config import build
from coevo.host.discovery import Plugins
from coevo.tools.sizing.rehearsal import rehearse


class Chooser:
    """Says one of a few expressions, some of them wrong."""

    capabilities = coevo.Capabilities(adapts=True)
    id = "chooser"

    def __init__(self, model: str = ""):
        self.updates = 0

    def lease(self, perturbation):
        engine = self

        class Lease:
            async def __aenter__(self):
                return engine

            async def __aexit__(self, *error):
                pass

        return Lease()

    async def complete(self, requests):
        said = ["d_current", "d_current -", "d_home", "d_current - d_mean", "d_mean", "d_current + d_home"]
        return [coevo.Completion(" " + said[r.seed % len(said)], (1,), (2,), "stop") for r in requests]

    def apply(self, update):
        self.updates += 1

    def digest(self):
        return f"{self.updates:064x}"


def plugins():
    manager = pluggy.PluginManager("coevo")
    manager.add_hookspecs(hookspecs)
    for plugin in (fakes, coevo_eoh, coevo_es, coevo_heuristics, coevo_none, coevo_sample):
        manager.register(plugin)

    class Chosen:
        @coevo.hookimpl
        def register_engines(self, engines):
            engines.register("chooser", Chooser)

    manager.register(Chosen())
    return Plugins(manager)


def rehearsed(data):
    registries = plugins().registries()
    blueprint = Blueprint(build(data, registries.names), registries)
    return rehearse(blueprint, blueprint.make_task())


def run(data):
    """Rollouts and members of every batch of a real run, by generation."""
    coevo.run({**data, "name": "real", "loggers": [], "probe": {"every": 0}}, plugins())
    lines = [json.loads(line) for line in Path("runs/real/journal.jsonl").read_text().splitlines()]
    batches = [line for line in lines if line["kind"] == "batch"]
    out = {}
    for line in batches:
        made = (sum(line["statuses"].values()), max(1, line["members"]))
        out.setdefault(line["generation"], []).append(made)
    return out


def told(batches):
    return [(batch.rollouts, batch.members) for batch in batches]


def test_eoh_with_es_asks_as_rehearsed():
    data = {
        "task": "tsp_construct", "engine": "chooser", "context": "eoh", "generations": 2,
        "eoh": {"population": 3, "initial_batches": 2}, "es": {"population": 4, "answers": 2},
        "tsp_construct": {"workers": 1, "instance_options": {"count": 2}},
    }  # fmt: skip
    counts = rehearsed(data)
    made = run(data)
    assert told(counts.usual) == made[1]
    # A population that is full sooner needs fewer batches; it never needs more.
    assert len(made[0]) <= len(counts.first)
    assert not Counter(made[0]) - Counter(told(counts.first))
    assert [batch.adapt for batch in counts.usual] == [False, False, True, True]


def test_plain_es_on_several_examples_asks_as_rehearsed():
    data = {
        "task": "aim",
        "engine": "numbers",
        "context": "none",
        "param": "es",
        "generations": 2,
        "es": {"population": 6},
    }
    counts = rehearsed(data)
    assert {0: told(counts.first), 1: told(counts.usual)} == run(data)
    assert counts.hand == 3
    assert counts.characters > 0


def test_without_an_updater_of_the_weights_the_centre_answers_and_nothing_adapts():
    counts = rehearsed({"task": "aim", "engine": "numbers", "context": "none", "param": "none"})
    assert [(b.members, b.adapt) for b in counts.usual] == [(1, False)]


def test_an_updater_that_needs_real_answers_is_not_counted_and_says_why():
    class Needy:
        """Reads the text of the first rollout."""

        def __init__(self, services: coevo.Services):
            self.asked = False

        def ask(self):
            return coevo.Batch((coevo.Context({"prompt": "x"}),))

        def tell(self, buffer):
            buffer.rollouts[0].trajectory.steps[0]

        def state_dict(self):
            return {}

        def load_state_dict(self, state):
            pass

    class Hooks:
        @coevo.hookimpl
        def register_context_updaters(self, updaters):
            updaters.register("needy", Needy)

    found = plugins()
    found.manager.register(Hooks())
    registries = found.registries()
    data = {"task": "aim", "engine": "numbers", "context": "needy", "param": "none"}
    blueprint = Blueprint(build(data, registries.names), registries)
    counts = rehearse(blueprint, blueprint.make_task())
    assert (counts.first, counts.usual) == ((), ())
    assert counts.problem.startswith(
        "'needy' cannot be rehearsed: IndexError: tuple index out of range (test_rehearsal.py:"
    )
