import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coevo import Buffer, ContextUpdater, UserError
from coevo.host.registry import Registry
from coevo_sample import Sample, register_context_updaters

OBJECTIVES = st.one_of(st.none(), st.floats(1.0, 50.0))


def credits_of(kit, objectives, *, direction="minimize", references=None, failure="syntax") -> list[float | None]:
    changes = {} if references is None else {"references": references}
    sample = Sample(
        services=kit.FakeServices(), brief=kit.make_brief(direction=direction, **changes), batch=len(objectives)
    )
    answers = [kit.Answer(o, status="ok" if o is not None else failure) for o in objectives]
    buffer: Buffer = kit.play(sample.ask(), lambda i, _: answers[i], direction=direction)
    return [r.credit for r in sample.credit(buffer).rollouts]


def test_every_draw_is_from_the_tasks_own_prompt_without_parents(kit):
    sample = Sample(services=kit.FakeServices(), brief=kit.make_brief())
    batch = sample.ask()
    assert isinstance(sample, ContextUpdater)
    assert [dict(c.components) for c in batch.contexts] == [{"prompt": "Visit all cities. Write one line."}]
    assert (batch.pairing, batch.samples, batch.operator, batch.adapt) == ("zip", 20, "i1", True)
    assert batch.contexts[0].parents == ()


def test_under_es_every_member_draws_its_answers(kit):
    sample = Sample(services=kit.FakeServices(batch_answers=128), brief=kit.make_brief(), batch=20)
    batch = sample.ask()
    assert batch.samples == 1
    assert Counter(member for member, _, _ in kit.deal(batch, 16, 8)) == dict.fromkeys(range(16), 8)


def test_a_task_that_is_no_program_search_is_refused_with_what_to_use(kit):
    registry: Registry[ContextUpdater] = Registry("context updater")
    register_context_updaters(registry)
    with pytest.raises(UserError, match=r"'sudoku' is no program search .*; use --context none"):
        registry.create("sample", {}, services=kit.FakeServices(), brief=kit.make_brief(name="sudoku", hole="none"))
    with pytest.raises(UserError, match="needs the key 'prompt'"):
        registry.create("sample", {}, services=kit.FakeServices(), brief=kit.make_brief(components={}))
    with pytest.raises(UserError, match="greater than or equal to 1"):
        registry.create("sample", {"batch": 0}, services=kit.FakeServices(), brief=kit.make_brief())


@pytest.mark.parametrize(
    ("objective", "credit"),
    [
        (None, 0.0), (1e300, 0.3), (7.0 * 1.5, 0.3), (7.0 * 1.25, 0.4), (7.0, 0.5), (7.0 * 0.925, 0.75),
        (7.0 * 0.85, 1.0), (3.0, 1.0),
    ],
)  # fmt: skip
def test_credit_is_linear_in_the_gain_on_either_side_of_the_baseline_between_its_bounds(kit, objective, credit):
    assert credits_of(kit, [objective]) == [pytest.approx(credit)]


def test_credit_follows_the_direction_of_the_problem(kit):
    worse, better = credits_of(kit, [6.0, 8.0], direction="maximize")
    assert worse < better


@given(objectives=st.lists(OBJECTIVES, min_size=1, max_size=12), has_baseline=st.booleans())
def test_a_failure_never_outranks_a_program_and_a_better_program_never_gets_less(kit, objectives, has_baseline):
    credits = credits_of(kit, objectives, references=None if has_baseline else ())
    valid = sorted((o, c) for o, c in zip(objectives, credits, strict=True) if o is not None)
    assert all(c == 0.0 for o, c in zip(objectives, credits, strict=True) if o is None)
    assert all(0.3 <= c <= 1.0 for _, c in valid)
    assert [c for _, c in valid] == sorted((c for _, c in valid), reverse=True)


def test_without_a_baseline_credit_is_the_average_rank_within_the_batch(kit):
    credits = credits_of(kit, [9.0, 5.0, None, 7.0, 7.0], references=())
    assert credits == pytest.approx([0.3, 1.0, 0.0, 0.65, 0.65])
    assert credits_of(kit, [5.0, None], references=()) == pytest.approx([0.65, 0.0])


def test_an_engine_error_is_never_a_reward(kit):
    assert credits_of(kit, [7.0, None], failure="engine_error")[1] is None


def test_a_resumed_run_asks_the_same_batches(kit):
    services = kit.FakeServices()
    sample = Sample(services=services, brief=kit.make_brief())
    first = sample.ask()
    sample.tell(kit.play(first, lambda *_: kit.Answer(7.0)))
    resumed = Sample(services=services, brief=kit.make_brief())
    resumed.load_state_dict(json.loads(json.dumps(sample.state_dict())))
    assert sample.ask() is resumed.ask() is None
    services.generation = 1
    assert resumed.ask() == sample.ask() == first
