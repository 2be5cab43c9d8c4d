"""Which operators take part in a generation, and how many offspring they make, in EoH's two variants."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coevo import UserError
from coevo.host.registry import Registry
from coevo_eoh import register_context_updaters
from coevo_eoh.turns import Turns

ALL = ("i1", "e1", "e2", "m1", "m2", "m3")
WEIGHTS = st.dictionaries(st.sampled_from(ALL), st.floats(0.0, 1.0), max_size=6)


@pytest.fixture
def create(kit):
    registry = Registry("context updater")
    register_context_updaters(registry)

    def make(services=None, **options):
        return registry.create("eoh", options, services=services or kit.FakeServices(), brief=kit.make_brief())

    return make


def generation(kit, eoh, services, start=0.0):
    """One generation as the loop runs it: the batches, every answer better than the one before."""
    batches, number = [], iter(range(10_000))
    services.batch = 0

    def answer(*_):
        n = next(number)
        return kit.Answer(50.0 - start - n / 1000, f"k{start}-{n}", f"d_current * {start + n}")

    while (batch := eoh.ask()) is not None:
        eoh.tell(eoh.credit(kit.play(batch, answer, services=services)))
        batches.append(batch)
        services.batch += 1
    services.generation += 1
    return batches


def test_all_six_operators_take_turns_in_the_order_in_which_they_are_named(kit, create):
    services = kit.FakeServices()
    eoh = create(services, population=3, operators=["m3", "e1", "i1", "e2", "m2", "m1"])
    assert [b.operator for b in generation(kit, eoh, services)] == ["i1", "m3", "e1", "i1", "e2", "m2", "m1"]
    last = generation(kit, eoh, services, 1.0)
    assert {b.operator: {len(c.parents) for c in b.contexts} for b in last} == {
        "m3": {1}, "e1": {2}, "i1": {0}, "e2": {2}, "m2": {1}, "m1": {1},
    }  # fmt: skip


@given(seed=st.integers(0, 2**32), weights=WEIGHTS.filter(lambda w: any(w.get(n, 1.0) for n in ALL)))
def test_a_generation_has_always_an_operator_and_never_one_of_weight_0(seed, weights):
    for variant in ("paper", "v0.2"):
        turns = Turns(variant, ALL, weights, 5).draw(np.random.default_rng(seed))
        assert turns
        assert all(weights.get(name, 1.0) > 0.0 for name, _ in turns)
        assert [n for n, _ in turns] == [n for n in ALL if n in dict(turns)]
        made = [count for _, count in turns]
        assert sum(made) == 5 if variant == "v0.2" else set(made) == {5}


@pytest.mark.parametrize(
    ("variant", "weights"),
    [("paper", {"e1": 0.5, "m1": 0.25, "m2": 0.0}), ("paper", {"e1": 0.2, "m1": 0.1, "m2": 0.1}),
     ("v0.2", {"e1": 3.0, "m1": 1.0, "m2": 0.0})],
)  # fmt: skip
def test_operators_take_part_as_often_as_is_expected_of_them(variant, weights):
    """20 000 generations, seed fixed: an error of a frequency is at most 0.0036, four of them are allowed."""
    turns, rng = Turns(variant, ("e1", "m1", "m2"), weights, 4), np.random.default_rng(3)
    seen = Counter(name for _ in range(20_000) for name, _ in turns.draw(rng))
    for name in ("e1", "m1", "m2"):
        assert seen[name] / 20_000 == pytest.approx(turns.expected({name}), abs=0.0145)
    if variant == "paper":
        # By hand: e1 alone is 1/2, and none at all, (1/2)(3/4) or .8 .9 .9, is made one by weight.
        e1 = weights["e1"]
        none = (1 - e1) * (1 - weights["m1"]) * (1 - weights["m2"])
        assert turns.expected({"e1"}) == pytest.approx(e1 + none * e1 / sum(weights.values()))
    else:
        assert turns.expected({"m1"}) == pytest.approx(1 - 0.75**4)


def test_v02_makes_n_offspring_in_all_and_the_paper_n_with_each_operator(kit, create):
    made = {}
    for variant in ("paper", "v0.2"):
        services = kit.FakeServices()
        eoh = create(services, population=6, variant=variant)
        first = generation(kit, eoh, services)
        assert (first[0].operator, len(first[0].contexts)) == ("i1", 6 if variant == "paper" else 12)
        made[variant] = sum(len(b.contexts) for b in generation(kit, eoh, services, 1.0))
    assert made == {"paper": 24, "v0.2": 6}


def test_an_operator_with_a_multiple_makes_its_offspring_in_one_batch(kit, create):
    services = kit.FakeServices()
    eoh = create(services, population=10, initial_batches=1, multiples={"m1": 3, "m2": 3})
    sizes = [(b.operator, len(b.contexts)) for b in generation(kit, eoh, services)]
    assert sizes == [("i1", 10), ("e1", 10), ("e2", 10), ("m1", 30), ("m2", 30)]


def test_a_multiple_fills_the_members_of_the_strategy_and_is_no_second_factor(kit, create):
    services = kit.FakeServices(batch_answers=30, member_answers=1)
    eoh = create(services, population=10, initial_batches=1, multiples={"m1": 3}, shared_prompts=False)
    sizes = {b.operator: len(b.contexts) for b in generation(kit, eoh, services)}
    assert sizes == {"i1": 10, "e1": 10, "e2": 10, "m1": 30, "m2": 30}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"multiples": {"m3": 2}}, "multiples names 'm3'; did you mean 'm2'"),
        ({"multiples": {"m1": 0}}, r"multiples gives 'm1' 0; expected at least 1, or weights\.m1 = 0"),
        ({"multiples": {"m1": 2}, "variant": "v0.2"}, r"multiples are for variant 'paper'; in 'v0\.2' weights say"),
        ({"multiples": {"m1": 1.5}}, "valid integer"),
    ],
)
def test_a_wrong_multiple_is_the_users_mistake(create, options, said):
    with pytest.raises(UserError, match=said):
        create(**options)


def test_v02_draws_all_parents_of_a_generation_from_the_one_before(kit, create):
    services = kit.FakeServices()
    eoh = create(services, population=6, variant="v0.2", offspring=40)
    generation(kit, eoh, services)
    before = {h.id for h in eoh.population}
    second = generation(kit, eoh, services, 1.0)
    assert {parent for b in second for c in b.contexts for parent in c.parents} <= before
    # All were better than what was there, and now they have its place.
    assert before.isdisjoint(h.id for h in eoh.population)


def test_of_the_paper_a_later_operator_sees_what_an_earlier_one_found(kit, create):
    services = kit.FakeServices()
    eoh = create(services, population=3, operators=["e1", "e2"])
    generation(kit, eoh, services)
    e1, e2 = generation(kit, eoh, services, 1.0)
    assert {p for c in e2.contexts for p in c.parents} <= {f"g1-b0-centre-c{i}-0-s0" for i in range(len(e1.contexts))}


def test_v02_begins_with_one_batch_whatever_came_of_it(kit, create):
    services = kit.FakeServices()
    eoh = create(services, population=3, variant="v0.2", operators=["e1"])
    eoh.tell(kit.play(eoh.ask(), lambda *_: kit.Answer(None)))
    assert eoh.ask().operator == "e1/i1"


@pytest.mark.parametrize("variant", ["paper", "v0.2"])
def test_a_run_resumed_within_a_generation_takes_the_turns_that_were_drawn(kit, create, variant):
    services = kit.FakeServices()
    options = {"population": 4, "variant": variant, "offspring": 9, "weights": {"e1": 0.4, "m1": 0.6, "m2": 0.5}}
    eoh = create(services, **options)
    generation(kit, eoh, services)
    numbers = iter(range(1000))
    asked = []
    services.batch = 0
    while (batch := eoh.ask()) is not None:
        resumed = create(services, **options)
        resumed.load_state_dict(eoh.state_dict())
        assert resumed.ask() == batch
        asked.append(batch.operator)
        said = kit.play(batch, lambda *_: kit.Answer(9.0 - next(numbers) / 100, f"n{next(numbers)}"), services=services)
        eoh.tell(said)
        services.batch += 1
    assert asked


def test_a_run_of_before_there_were_turns_goes_on(kit, create):
    services = kit.FakeServices()
    eoh = create(services, population=3)
    for _ in range(3):  # i1, e1, e2
        eoh.tell(kit.play(eoh.ask(), lambda i, _: kit.Answer(9.0 - i, f"k{i}")))
        services.batch += 1
    state = {
        k: v for k, v in eoh.state_dict().items() if k in ("generation", "position", "filling", "filled", "population")
    }
    resumed = create(services, population=3)
    resumed.load_state_dict(state)
    assert resumed.ask() == eoh.ask()
    assert resumed.ask().operator == "m1"


def test_the_schedule_of_sigma_counts_the_adapting_batches_that_are_expected(kit, create):
    assert create(weights={"m1": 0.5, "m2": 0.5}).adapting_batches == 1.0
    assert create(operators=["e1", "m3"], adapt=["m3"]).adapting_batches == 1.0
    assert create(variant="v0.2", operators=["m1"], offspring=2).adapting_batches == 1.0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"weights": {"m3": 1.0}}, "weights names 'm3'; did you mean 'm2'"),
        ({"weights": {"m1": 1.5}}, r"gives 'm1' 1.5; expected a probability from 0 to 1 with variant 'paper'"),
        ({"weights": {"m1": -1.0}, "variant": "v0.2"}, "gives 'm1' -1.0; expected a finite number of at least 0"),
        ({"weights": {"m1": float("inf")}, "variant": "v0.2"}, "gives 'm1' inf; expected a finite number"),
        ({"weights": {"m1": float("nan")}}, "gives 'm1' nan; expected a probability"),
        ({"operators": ["m1"], "weights": {"m1": 0}}, "weights are all 0"),
        ({"weights": {"m1": "often"}}, "should be a valid number"),
        ({"variant": "v2"}, "should be 'paper' or 'v0.2'"),
    ],
)
def test_a_wrong_weight_is_the_users_mistake(create, options, said):
    with pytest.raises(UserError, match=said):
        create(**options)
