"""What EoH does with invalid answers: give them back once, and tell of them."""

import json

import pytest

from coevo import Completion, Rollout, Trajectory
from coevo.records import Step
from coevo_eoh import EvolutionOfHeuristics
from coevo_eoh.failures import LONGEST_ANSWER, SHOWN, Broken, latest, to_mend
from coevo_eoh.population import Heuristic
from coevo_eoh.prompts import OPERATORS, render, render_repair

FUNCTION = {"hole": "function", "signature": "def select(distances):", "prefill": "", "stop": ()}
PARENT = Heuristic("r1", -6.5, 6.5, "d_current - d_home", "Stay close.", "a", "1", "i1", ())


def broken(rollout: Rollout, status: str, answer: str, message: str = "") -> Rollout:
    rollout.artifacts.update(answer=answer, message=message)
    return Rollout(rollout.provenance, status, None, rollout.trajectory, artifacts=rollout.artifacts)


@pytest.fixture
def create(kit):
    def make(services=None, brief=None, **options):
        options = {"population": 3, "initial_batches": 1, "repair": True, **options}
        return EvolutionOfHeuristics(
            services=services or kit.FakeServices(), brief=brief or kit.make_brief(), **options
        )

    return make


def tell(kit, eoh, services, *answers):
    """Play the batch that is asked; returns it. An answer is (status, text, message) or an objective."""
    batch = eoh.ask()
    said = list(answers) + [9.0] * len(batch.contexts)

    def one(index, _):
        value = said[index]
        return kit.Answer(None) if isinstance(value, tuple) else kit.Answer(value, f"k{services.batch}-{index}-{value}")

    buffer = kit.play(batch, one, services=services)
    rollouts = tuple(broken(r, *said[i]) if isinstance(said[i], tuple) else r for i, r in enumerate(buffer.rollouts))
    eoh.tell(eoh.credit(type(buffer)(buffer.batch, buffer.members, rollouts, buffer.moved)))
    services.batch += 1
    return batch


NAME = ("exception", "d_curent", "NameError: name 'd_curent' is not defined")
CUT = ("syntax", "d_current -", "invalid syntax")


def test_an_invalid_answer_goes_back_once_with_what_is_wrong_with_it(kit, create):
    services = kit.FakeServices()
    eoh = create(services)
    tell(kit, eoh, services, 8.0, NAME, CUT)
    batch = tell(kit, eoh, services, CUT, 7.0)
    assert (batch.operator, batch.adapt, batch.samples) == ("i1/repair", False, 1)
    assert [c.components["prompt"] for c in batch.contexts] == [
        "Visit all cities.\nShorter tours are better.\n\n"
        "You may use these names:\n- d_current: distance to here\n- d_home: distance to the start\n\n"
        "Write one line of Python that begins with 'score ='.\n"
        f"This line fails:\nscore = {answer}\nThe reason: {reason}\n\n"
        "Write the line again so that it works. Answer with the line only."
        for answer, reason in [
            ("d_curent", "it raised an error: NameError: name 'd_curent' is not defined"),
            ("d_current -", "it is not valid Python: invalid syntax"),
        ]
    ]
    # What failed again is given up, and what was mended is kept.
    assert eoh.ask().operator == "e1"
    assert [h.objective for h in eoh.population] == [7.0, 8.0]
    assert eoh.population[0].operator == "i1/repair"


def test_without_repair_a_failure_is_let_go(kit, create):
    services = kit.FakeServices()
    eoh = create(services, repair=False)
    tell(kit, eoh, services, NAME, NAME, 8.0)
    assert eoh.ask().operator == "e1"


def test_a_repair_remembers_the_parents_and_which_answer_it_mends(kit, create):
    services = kit.FakeServices()
    eoh = create(services, operators=["m1"])
    tell(kit, eoh, services, 6.0, 7.0, 8.0)
    asked = tell(kit, eoh, services, NAME)
    repair = tell(kit, eoh, services, 5.0)
    assert repair.operator == "m1/repair"
    assert repair.contexts[0].parents == asked.contexts[0].parents
    assert repair.contexts[0].data == {"repairs": "g0-b1-centre-c0-0-s0"}
    assert eoh.population[0].parents == asked.contexts[0].parents
    assert eoh.ask() is None


def test_a_population_that_repairs_filled_needs_no_more_draws(kit, create):
    services = kit.FakeServices()
    eoh = create(services, initial_batches=4)
    tell(kit, eoh, services, 6.0, NAME, CUT)
    tell(kit, eoh, services, 7.0, 8.0)
    assert eoh.ask().operator == "e1"


def test_of_equal_invalid_answers_one_goes_back_and_at_most_n_in_all(kit, create):
    services = kit.FakeServices()
    eoh = create(services, offspring=8, operators=["e1"])
    tell(kit, eoh, services, 6.0, 7.0, 8.0)
    tell(kit, eoh, services, NAME, NAME, *[("syntax", f"d_current {k}", "") for k in range(6)])
    assert len(eoh.ask().contexts) == 3


def test_an_engines_failure_an_empty_answer_and_an_endless_one_are_not_given_back(kit):
    services = kit.FakeServices()
    eoh = EvolutionOfHeuristics(services=services, brief=kit.make_brief(), population=4)
    buffer = kit.play(eoh.ask(), lambda *_: kit.Answer(None))
    statuses = [("engine_error", "x"), ("judge_error", "x"), ("no_answer", ""), ("syntax", "x" * (LONGEST_ANSWER + 1))]
    rollouts = tuple(broken(r, *said) for r, said in zip(buffer.rollouts, statuses, strict=True))
    assert to_mend(type(buffer)(buffer.batch, (), rollouts), 9) == ()


def test_where_the_parser_found_nothing_the_model_is_shown_what_it_said(kit):
    eoh = EvolutionOfHeuristics(services=kit.FakeServices(), brief=kit.make_brief(), population=1)
    buffer = kit.play(eoh.ask(), lambda *_: kit.Answer(None))
    (rollout,) = buffer.rollouts
    said = Completion("I cannot do that.", (1,), (2,), "stop")
    step = Step((), said.prompt_ids, said.completion_ids, said.finish_reason, said.text)
    rollout = Rollout(
        rollout.provenance, "no_answer", None, Trajectory((step,)), artifacts={"answer": "", "message": ""}
    )
    (mend,) = to_mend(type(buffer)(buffer.batch, (), (rollout,)), 1)
    assert (mend.answer, mend.reason) == ("I cannot do that.", "it holds no Python code")
    prompt = render_repair(kit.make_brief(**FUNCTION), mend)
    assert (
        "\n\nThis answer was given, and it fails:\n```python\nI cannot do that.\n```\n\nThe reason: it holds" in prompt
    )
    assert "def select(distances):" in prompt


def test_an_answer_with_fences_of_its_own_is_fenced_with_more(kit):
    prompt = render_repair(kit.make_brief(**FUNCTION), Broken("r", "```python\nx\n```", "it fails", ()))
    assert "````python\n```python\nx\n```\n````" in prompt


@pytest.mark.parametrize("stop_after", [1, 2, 3, 4, 5])
def test_a_run_resumed_from_json_repairs_what_was_broken(kit, create, stop_after):
    services = kit.FakeServices()
    eoh = create(services, show_failures=True)
    for _ in range(stop_after):
        tell(kit, eoh, services, NAME, 8.0, CUT)
    state = json.loads(json.dumps(eoh.state_dict(), allow_nan=False))
    resumed = create(services, show_failures=True)
    resumed.load_state_dict(state)
    assert resumed.ask() == eoh.ask()
    assert resumed.state_dict() == eoh.state_dict()


def test_prompts_tell_why_the_latest_answers_failed_if_that_is_wanted(kit, create):
    for wanted in (True, False):
        services = kit.FakeServices()
        eoh = create(services, show_failures=wanted, repair=False)
        tell(kit, eoh, services, NAME, CUT, 8.0)
        prompts = {c.components["prompt"] for c in eoh.ask().contexts}
        listed = (
            "Answers before yours failed, for these reasons:\n"
            "- it raised an error: NameError: name 'd_curent' is not defined\n"
            "- it is not valid Python: invalid syntax\n\n"
        )
        assert all((listed in prompt) == wanted for prompt in prompts)


@pytest.mark.parametrize("changes", [{}, FUNCTION])
def test_without_failures_every_prompt_is_what_it_was_without_the_option(kit, changes):
    brief = kit.make_brief(**changes)
    for operator in OPERATORS:
        assert render(brief, operator, [PARENT], True, ()) == render(brief, operator, [PARENT])
        assert "why" in render(brief, operator, [PARENT], True, ("why",))


def test_the_latest_failures_come_first_and_the_most_frequent_of_a_batch_before_others(kit):
    eoh = EvolutionOfHeuristics(services=kit.FakeServices(), brief=kit.make_brief(), population=4)
    rollouts = kit.play(eoh.ask(), lambda *_: kit.Answer(None)).rollouts
    said = [CUT, NAME, NAME, ("engine_error", "", "no server")]
    reasons = latest(("old", "older", "oldest"), [broken(r, *s) for r, s in zip(rollouts, said, strict=True)])
    assert reasons == (
        "it raised an error: NameError: name 'd_curent' is not defined", "it is not valid Python: invalid syntax", "old"
    )  # fmt: skip
    assert len(reasons) == SHOWN
