import json

import pytest

from coevo import ContextUpdater, ParameterUpdater, UserError
from coevo.host.registry import Registry
from coevo_none import FixedContext, FixedParameters, register_context_updaters, register_parameter_updaters


def test_fixed_parameters_have_no_members_and_no_update(kit):
    none = FixedParameters()
    batch = FixedContext(services=kit.FakeServices(), brief=kit.make_brief()).ask()
    assert isinstance(none, ParameterUpdater)
    assert list(none.ask(batch)) == []
    assert none.tell(kit.play(batch, lambda *_: kit.Answer(7.0))) is None
    assert (none.population, none.answers, none.needs) == (0, 1, "")


def test_a_fixed_context_is_one_cross_batch_of_the_train_split_in_the_tasks_own_words(kit):
    brief = kit.make_brief(hole="none", components={"system": "Solve it.", "skill": ""})
    none = FixedContext(services=kit.FakeServices(), brief=brief)
    batch = none.ask()
    assert isinstance(none, ContextUpdater)
    assert [dict(c.components) for c in batch.contexts] == [{"system": "Solve it.", "skill": ""}]
    assert (batch.pairing, batch.split, batch.examples, batch.samples) == ("cross", "train", None, 1)
    assert batch.adapt
    assert not hasattr(none, "credit")


def test_samples_are_answers_per_example(kit):
    brief = kit.make_brief(hole="none")
    assert FixedContext(services=kit.FakeServices(), brief=brief, samples=3).ask().samples == 3


@pytest.mark.parametrize(("batch_answers", "samples"), [(0, 20), (128, 1)])
def test_a_program_search_is_dealt_and_under_es_the_members_decide_how_many(kit, batch_answers, samples):
    services = kit.FakeServices(batch_answers=batch_answers)
    batch = FixedContext(services=services, brief=kit.make_brief()).ask()
    assert (batch.pairing, batch.samples, len(batch.contexts)) == ("zip", samples, 1)


def test_a_generation_is_one_batch_also_for_a_run_resumed_after_it(kit):
    services = kit.FakeServices()
    none = FixedContext(services=services, brief=kit.make_brief())
    first = none.ask()
    assert none.ask() == first, "asked but not told: the batch is still to come"
    none.tell(kit.play(first, lambda *_: kit.Answer(7.0)))
    resumed = FixedContext(services=services, brief=kit.make_brief())
    resumed.load_state_dict(json.loads(json.dumps(none.state_dict())))
    assert none.ask() is resumed.ask() is None
    services.generation = 1
    assert none.ask() == resumed.ask() == first


def test_both_are_registered_under_the_name_none(kit):
    parameters: Registry[ParameterUpdater] = Registry("parameter updater")
    contexts: Registry[ContextUpdater] = Registry("context updater")
    register_parameter_updaters(parameters)
    register_context_updaters(contexts)
    provided = {"services": kit.FakeServices(), "brief": kit.make_brief()}
    assert isinstance(parameters.create("none", {}, **provided), FixedParameters)
    assert isinstance(contexts.create("none", {"samples": 2}, **provided), FixedContext)
    with pytest.raises(UserError, match="greater than or equal to 1"):
        contexts.create("none", {"samples": 0}, **provided)


def test_fixed_parameters_have_no_state():
    none = FixedParameters()
    none.load_state_dict(json.loads(json.dumps(none.state_dict())))
    assert none.state_dict() == {}
