import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coevo import ContextUpdater, UserError
from coevo.host.registry import Registry
from coevo_eoh import EvolutionOfHeuristics, register_context_updaters
from coevo_eoh.population import Heuristic, draw_parents, spread, survivors


def heuristic(value: float, code: str = "", behaviour: str = "") -> Heuristic:
    return Heuristic(f"r{value}{code}", value, -value, f"x * {value}", "", code, behaviour or str(value), "m1", ())


@pytest.fixture
def create(kit):
    """Make `eoh` as a user's options make it."""
    registry: Registry[ContextUpdater] = Registry("context updater")
    register_context_updaters(registry)

    def make(services=None, brief=None, **options) -> EvolutionOfHeuristics:
        return registry.create("eoh", options, services=services or kit.FakeServices(), brief=brief or kit.make_brief())

    return make


def numbered(kit):
    """A model that never repeats itself: objectives 10, 9.99, 9.98, ..."""
    count = iter(range(100_000))

    def answer(*_):
        number = next(count)
        return kit.Answer(10.0 - number / 100, code_key=f"k{number}", text=f"d_current * {number}")

    return answer


def play_generation(kit, eoh, services, answer) -> list[str]:
    """One generation as the loop runs it; the operators' labels."""
    labels = []
    services.batch = 0
    while (batch := eoh.ask()) is not None:
        eoh.tell(eoh.credit(kit.play(batch, answer, services=services)))
        labels.append(batch.operator)
        services.batch += 1
    services.generation += 1
    return labels


def test_generation_0_fills_the_population_and_then_every_operator_makes_n(kit, create):
    services = kit.FakeServices()
    eoh = create(services, population=4)
    answer = numbered(kit)
    assert isinstance(eoh, ContextUpdater)
    assert play_generation(kit, eoh, services, answer) == ["i1", "e1", "e2", "m1", "m2"]
    assert play_generation(kit, eoh, services, answer) == ["e1", "e2", "m1", "m2"]


def test_the_first_batch_is_n_draws_from_the_tasks_own_prompt_at_the_centre(kit, create):
    batch = create(population=4).ask()
    assert [dict(c.components) for c in batch.contexts] == [{"prompt": "Visit all cities. Write one line."}] * 4
    assert (batch.operator, batch.adapt, batch.pairing) == ("i1", False, "zip")


def test_filling_stops_after_a_bounded_number_of_tries(kit, create):
    services = kit.FakeServices()
    eoh = create(services, population=4, initial_batches=3)
    # One and the same program every time: the population never has four.
    labels = play_generation(kit, eoh, services, lambda *_: kit.Answer(8.0, code_key="same"))
    assert labels == ["i1", "i1", "i1", "e1", "e2", "m1", "m2"]
    assert len(eoh.population) == 1


def test_with_nothing_valid_operators_ask_the_tasks_own_prompt_and_say_so(kit, create):
    services = kit.FakeServices()
    eoh = create(services, population=2, initial_batches=1)
    labels = play_generation(kit, eoh, services, lambda *_: kit.Answer(None))
    assert labels == ["i1", "e1/i1", "e2/i1", "m1/i1", "m2/i1"]
    assert eoh.population == ()


@pytest.mark.parametrize("learns", [True, False])
def test_only_the_operators_in_adapt_train_the_weights_and_only_where_there_are_any(kit, create, learns):
    services = kit.FakeServices(**({"batch_answers": 8, "member_answers": 2} if learns else {}))
    eoh = create(services, population=2)
    assert eoh.adapting_batches == 2
    assert create(operators=["e1", "m1"]).adapting_batches == 1
    assert create(adapt=[]).adapting_batches == 0
    eoh.tell(kit.play(eoh.ask(), numbered(kit)))
    adapts = {}
    while (batch := eoh.ask()) is not None:
        adapts[batch.operator] = batch.adapt
        eoh.tell(kit.play(batch, numbered(kit)))
    assert adapts == {"e1": False, "e2": False, "m1": learns, "m2": learns}


@pytest.mark.parametrize(
    ("members", "answers", "offspring", "shared", "count"),
    [
        (0, 0, None, True, 4),
        (8, 4, None, True, 4),
        (8, 4, 32, True, 4),
        (8, 4, None, False, 32),
        (3, 1, None, True, 6),  # more offspring than members have answers: every answer has its own prompt
        (4, 1, None, True, 1),
        (4, 1, None, False, 4),
        (2, 1, 7, True, 8),
    ],
)
def test_an_adapting_batch_has_the_same_number_of_prompts_for_every_member(
    kit, create, members, answers, offspring, shared, count
):
    services = kit.FakeServices(batch_answers=members * answers, member_answers=answers)
    eoh = create(services, population=4, operators=["m1"], offspring=offspring, shared_prompts=shared)
    eoh.tell(kit.play(eoh.ask(), numbered(kit)))
    batch = eoh.ask()
    assert len(batch.contexts) == count
    assert batch.samples == 1


@pytest.mark.parametrize(("population", "members", "answers"), [(4, 16, 8), (10, 4, 2), (5, 3, 1)])
def test_es_and_eoh_deal_every_member_the_same_number_of_answers(kit, create, population, members, answers):
    services = kit.FakeServices(batch_answers=members * answers, member_answers=answers)
    eoh = create(services, population=population, operators=["m1"])
    for labels in (["m1/i1"], ["m1"]):
        while eoh.ask().operator == "i1":
            eoh.tell(kit.play(eoh.ask(), lambda *_: kit.Answer(None)))
        batch = eoh.ask()
        dealt = kit.deal(batch, members, answers)
        per_member = Counter(member for member, _, _ in dealt)
        assert [batch.operator] == labels
        assert len(per_member) == members
        assert len(set(per_member.values())) == 1
        assert len(dealt) >= population
        eoh.tell(kit.play(batch, numbered(kit)))
        services.generation += 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"operators": ["e1", "m8"]}, "operators names 'm8'; did you mean 'm3'"),
        ({"operators": ["crossover"]}, "expected one of: i1, e1, e2, m1, m2"),
        ({"operators": ["e1"], "adapt": ["m1"]}, "adapt names 'm1'; did you mean 'e1'"),
        ({"operators": ["e1", "e1"]}, r"operators names 'e1' twice; for more of its offspring: multiples\.e1 = 2"),
        ({"operators": ["e1", "e1"], "variant": "v0.2"}, r"twice; for more of its offspring: weights\.e1 = 2"),
        ({"adapt": ["m1", "m1"]}, "adapt names 'm1' twice"),
        ({"adapt": ["m1"], "weights": {"m1": 0}}, "adapt names 'm1', whose weight is 0, so that it never has a batch"),
        ({"population": 3, "parents": 4}, "parents got 4, and a population of 3 has no more than that to show"),
        ({"multiples": {"m1": True}}, "'multiples' got .* should be a number"),
        ({"multiples": {"m1": 200_000}}, "makes 2,000,000 offspring; expected at most 1,000,000"),
        ({"offspring": 0}, "greater than or equal to 1"),
        ({"population": -1}, "greater than or equal to 1"),
        ({"operators": []}, "operators is empty"),
        ({"adapt": "m1"}, "valid tuple"),
        ({"population": 0}, "greater than or equal to 1"),
        ({"brief": {"hole": "none"}}, "no program search"),
        ({"brief": {"components": {}}}, "needs the key 'prompt'"),
    ],
)
def test_a_wrong_option_is_the_users_mistake(kit, create, options, said):
    brief = kit.make_brief(**options.pop("brief", {}))
    with pytest.raises(UserError, match=said):
        create(brief=brief, **options)


def test_leaving_out_an_operator_that_adapts_by_default_is_fine(create):
    assert create(operators=["e1", "m2"]).adapting_batches == 1


def test_e1_and_e2_show_as_many_different_parents_as_there_are(kit, create):
    services = kit.FakeServices()
    eoh = create(services, population=5, parents=3, operators=["e1", "e2", "m1", "m2"], initial_batches=1)
    answer = numbered(kit)
    eoh.tell(kit.play(eoh.ask(), answer))
    sizes = {}
    while (batch := eoh.ask()) is not None:
        assert all(len(set(c.parents)) == len(c.parents) for c in batch.contexts)
        sizes[batch.operator] = {len(c.parents) for c in batch.contexts}
        eoh.tell(kit.play(batch, answer))
    assert sizes == {"e1": {3}, "e2": {3}, "m1": {1}, "m2": {1}}


def test_fewer_heuristics_than_parents_are_each_shown_once(kit, create):
    eoh = create(population=4, parents=3, initial_batches=1)
    eoh.tell(kit.play(eoh.ask(), lambda *_: kit.Answer(8.0, code_key="one")))
    assert {len(c.parents) for c in eoh.ask().contexts} == {1}


def test_a_maximising_problem_keeps_the_largest(kit, create):
    eoh = create(brief=kit.make_brief(direction="maximize"), population=2, initial_batches=1)
    answers = iter([3.0, 5.0])
    eoh.tell(kit.play(eoh.ask(), lambda *_: kit.Answer(next(answers)), direction="maximize"))
    assert [h.objective for h in eoh.population] == [5.0, 3.0]


@given(
    values=st.lists(st.integers(-6, 6), max_size=20),
    codes=st.lists(st.sampled_from(["", "a", "b", "c", "d"]), min_size=20, max_size=20),
    size=st.integers(1, 6),
)
def test_a_population_holds_the_best_and_never_two_equal(values, codes, size):
    candidates = [heuristic(float(v), c) for v, c in zip(values, codes, strict=False)]
    kept = survivors(candidates, size)
    keys = [key for h in kept for key in h.keys]
    assert len(keys) == len(set(keys))
    assert len(kept) <= size
    assert [h.value for h in kept] == sorted((h.value for h in kept), reverse=True)
    if candidates:
        assert kept[0].value == max(h.value for h in candidates)
    assert survivors(kept, size) == kept


@given(rounds=st.lists(st.lists(st.one_of(st.none(), st.integers(1, 30)), min_size=3, max_size=3), max_size=8))
@settings(max_examples=40, deadline=None)
def test_the_best_found_is_never_lost(kit, rounds):
    services = kit.FakeServices()
    eoh = EvolutionOfHeuristics(services=services, brief=kit.make_brief(), population=3, initial_batches=1)
    best = float("inf")
    for objectives in rounds:
        if (batch := eoh.ask()) is None:
            services.generation += 1
            batch = eoh.ask()
        eoh.tell(kit.play(batch, lambda i, _, o=objectives: kit.Answer(o[i])))
        best = min([best, *(o for o in objectives if o is not None)])
        assert min([float("inf"), *(h.objective for h in eoh.population)]) == best


def test_of_equal_heuristics_the_one_already_kept_stays():
    old, new = heuristic(1.0, "old"), heuristic(1.0, "new")
    assert survivors([old, new], 3) == (old,)


def test_equal_means_with_different_behaviour_on_the_instances_are_two_heuristics(kit, create):
    eoh = create(population=2, initial_batches=1)
    buffer = kit.play(eoh.ask(), lambda i, _: kit.Answer(8.0, code_key=str(i)))
    for index, rollout in enumerate(buffer.rollouts):
        rollout.artifacts["instances"] = [8.0 - index, 8.0 + index]
    eoh.tell(buffer)
    assert len(eoh.population) == 2


def test_parents_are_drawn_by_rank_with_weight_1_over_r_plus_1_plus_n():
    """Chi-square over 40 000 draws, 9 degrees of freedom, seed fixed.

    At 33.7 a correct selection fails for 1 seed in 10 000; uniform draws would give about 1900.
    """
    population = [heuristic(float(-rank)) for rank in range(10)]
    rng = np.random.default_rng(11)
    draws = Counter(draw_parents(rng, population, 1)[0].value for _ in range(40_000))
    weights = np.array([1.0 / (rank + 1 + 10) for rank in range(10)])
    expected = 40_000 * weights / weights.sum()
    observed = np.array([draws[float(-rank)] for rank in range(10)])
    assert float(np.sum((observed - expected) ** 2 / expected)) < 33.7


def test_the_spread_of_a_population_is_from_its_median_to_its_best():
    assert spread([heuristic(v) for v in (5.0, 4.0, 1.0)]) == 1.0
    assert spread([]) == 0.0


def test_credit_has_tiers_that_never_cross(kit, create):
    services = kit.FakeServices()
    eoh = create(services, population=2, operators=["m1"], offspring=6, initial_batches=1)
    first = iter([kit.Answer(8.0, "a"), kit.Answer(7.0, "b")])
    eoh.tell(kit.play(eoh.ask(), lambda *_: next(first)))
    batch = eoh.ask()
    answers = [
        kit.Answer(None),  # broken
        kit.Answer(9.0, "b"),  # a parent's code
        kit.Answer(7.0, "c"),  # a parent's behaviour
        kit.Answer(9.5, "d"),  # worse than either parent
        kit.Answer(6.0, "e"),  # better than either parent
        kit.Answer(6.0, "f"),  # the same again
    ]
    credits = [r.credit for r in eoh.credit(kit.play(batch, lambda i, _: answers[i])).rollouts]
    assert credits[0] == 0.0
    assert credits[1] == credits[2] == 0.4
    assert 0.45 <= credits[3] <= 0.6
    assert 0.8 <= credits[4] == credits[5] <= 1.0


ANSWERS = st.tuples(st.one_of(st.none(), st.floats(1.0, 1e6)), st.integers(0, 8))


@given(
    population=st.lists(st.floats(1.0, 100.0), max_size=4),
    answers=st.lists(ANSWERS, min_size=6, max_size=6),
    direction=st.sampled_from(["minimize", "maximize"]),
    has_baseline=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_a_better_answer_to_the_same_parents_never_gets_less(kit, population, answers, direction, has_baseline):
    brief = kit.make_brief(direction=direction, **({} if has_baseline else {"references": ()}))
    eoh = EvolutionOfHeuristics(
        services=kit.FakeServices(), brief=brief, population=4, operators=["m1"], offspring=6, initial_batches=1
    )
    start = [kit.Answer(o, f"p{i}") for i, o in enumerate(population)] + [kit.Answer(None)] * 4
    eoh.tell(kit.play(eoh.ask(), lambda i, _: start[i], direction=direction))
    said = [kit.Answer(o, f"k{code}") for o, code in answers]
    buffer = eoh.credit(kit.play(eoh.ask(), lambda i, _: said[i], direction=direction))
    by_context: dict[str, list[tuple[float, float]]] = {}
    for rollout in buffer.rollouts:
        if rollout.return_ is None:
            assert rollout.credit == 0.0
            continue
        assert 0.4 <= rollout.credit <= 1.0
        data = buffer.batch.contexts[rollout.provenance.context].data
        assert "reference" in data or not eoh.population
        if "reference" in data and rollout.credit > 0.4:
            assert (rollout.credit >= 0.8) == (rollout.return_ > data["reference"])
        if rollout.credit > 0.4:
            # The kit's heuristics all read "d_current", so equal prompts may come from different parents.
            key = str(buffer.batch.contexts[rollout.provenance.context].parents)
            by_context.setdefault(key, []).append((rollout.return_, rollout.credit))
    for pairs in by_context.values():
        ordered = [credit for _, credit in sorted(pairs)]
        assert ordered == sorted(ordered)


def test_without_parents_the_baseline_is_the_reference_and_else_the_rank(kit, create):
    for references, expected in ((None, (True, False)), ((), (1.0, 0.45))):
        changes = {} if references is None else {"references": references}
        eoh = create(brief=kit.make_brief(**changes), population=2, operators=["i1"], initial_batches=1)
        eoh.tell(kit.play(eoh.ask(), lambda *_: kit.Answer(None)))
        answers = [kit.Answer(6.0, "a"), kit.Answer(8.0, "b")]
        good, bad = (r.credit for r in eoh.credit(kit.play(eoh.ask(), lambda i, _, a=answers: a[i])).rollouts)
        if references is None:
            assert (good > 0.8, bad > 0.8) == expected
        else:
            assert (good, bad) == pytest.approx(expected)


def test_an_engine_error_gets_no_credit(kit, create):
    eoh = create(population=1)
    buffer = eoh.credit(kit.play(eoh.ask(), lambda *_: kit.Answer(None, status="engine_error")))
    assert buffer.rollouts[0].credit is None


@pytest.mark.parametrize("stop_after", [1, 2, 3, 4, 5, 7])
def test_a_run_resumed_from_json_asks_the_same_batches(kit, create, stop_after):
    services = kit.FakeServices(batch_answers=6, member_answers=2)
    eoh = create(services, population=4)
    script = [kit.Answer(10.0 - (i * 7 % 13), f"k{i * 7 % 13}", f"d_current * {i}") for i in range(13)]

    def step(updater) -> bool:
        batch = updater.ask()
        if batch is None:
            services.generation, services.batch = services.generation + 1, 0
            return False
        updater.tell(kit.play(batch, lambda i, _: script[(i + services.batch) % 13], services=services))
        services.batch += 1
        return True

    for _ in range(stop_after):
        step(eoh)
    place = services.generation, services.batch
    state = json.loads(json.dumps(eoh.state_dict(), allow_nan=False))

    def remaining(updater) -> list:
        services.generation, services.batch = place
        asked = []
        while services.generation < 3:
            asked.append(updater.ask())
            step(updater)
        return asked

    resumed = create(services, population=4)
    resumed.load_state_dict(state)
    assert remaining(resumed) == remaining(eoh)


def test_asking_twice_gives_the_same_batch(kit, create):
    eoh = create(population=4)
    eoh.tell(kit.play(eoh.ask(), numbered(kit)))
    assert eoh.ask() == eoh.ask()


def test_two_runs_with_different_seeds_draw_different_parents(kit, create):
    asked = []
    for root_seed in (1, 2):
        eoh = create(kit.FakeServices(root_seed=root_seed), population=10)
        eoh.tell(kit.play(eoh.ask(), numbered(kit)))
        asked.append([c.parents for c in eoh.ask().contexts])
    assert asked[0] != asked[1]


def test_members_that_share_prompts_are_asked_the_same(kit, create):
    services = kit.FakeServices(batch_answers=12, member_answers=3)
    eoh = create(services, population=5, operators=["m1"])
    while eoh.ask().operator != "m1":
        eoh.tell(kit.play(eoh.ask(), numbered(kit)))
    batch = eoh.ask()
    dealt = kit.deal(batch, 4, 3)
    hands = [[context for member, context, _ in dealt if member == m] for m in range(4)]
    assert hands == [[0, 1, 2]] * 4


def test_what_the_same_batch_said_before_is_no_duplicate(kit, create):
    eoh = create(kit.FakeServices(), population=2, operators=["m1"], offspring=3, initial_batches=1)
    first = iter([kit.Answer(8.0, "a"), kit.Answer(7.0, "b")])
    eoh.tell(kit.play(eoh.ask(), lambda *_: next(first)))
    buffer = eoh.credit(kit.play(eoh.ask(), lambda *_: kit.Answer(6.0, "new")))
    assert all(r.credit > 0.8 for r in buffer.rollouts)
    eoh.tell(buffer)
    assert [h.objective for h in eoh.population] == [6.0, 7.0]
