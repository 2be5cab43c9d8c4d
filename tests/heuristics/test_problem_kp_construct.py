import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coevo.sandbox import Evaluator

from .problem_kit import (
    HOSTILE,
    PROBLEMS,
    attacked,
    entry_of,
    evaluator_of,
    filled,
    module,
    references,
    seed,
    specification,
)

NAME, ENTRY = "kp_construct", "select_next_item"
KP = module(NAME)
GREEDY = 40.14595
# Density greedy and the optimum as the literature has them; what it gives of test500 is the mean of the first 200.
PUBLISHED = {
    "train": (40.145952, 40.188995),
    "validation50": (20.00208, 20.05136),
    "validation100": (40.65194, 40.69449),
    "validation200": (57.83057, 57.88786),
    "test50": (19.98513, 20.03685),
    "test100": (40.22465, 40.27228),
    "test200": (57.39534, 57.44724),
}


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    with evaluator_of(NAME) as evaluator:
        yield evaluator


@pytest.fixture(scope="module")
def hasty() -> Iterator[Evaluator]:
    with evaluator_of(NAME, hasty=True, count=1) as evaluator:
        yield evaluator


def greedy(split: str, **options: object) -> list[float]:
    function = entry_of(NAME)
    return [KP.objective(KP.solve(function, item), item) for item in KP.instances(split, **options)]


@pytest.mark.parametrize("split", PUBLISHED)
def test_density_greedy_has_its_published_value(split: str) -> None:
    published = PUBLISHED[split][0]
    values = greedy(split)

    assert len(values) == (1000 if split.startswith("test") else 64)
    assert np.mean(values) == pytest.approx(published, abs=6e-6)
    assert references(NAME, "density_greedy")[split] == round(math.fsum(values) / len(values), 5)
    assert references(NAME, "optimum")[split] == pytest.approx(PUBLISHED[split][1], abs=6e-6)


def test_the_first_of_the_largest_set_have_their_published_value() -> None:
    assert np.mean(greedy("test500", count=200)) == pytest.approx(90.33386, abs=6e-6)


def bound(instance) -> float:
    """The value with fractions of items, which no packing exceeds."""
    order = np.argsort(-instance.values / instance.weights)
    weights, values = instance.weights[order].cumsum(), instance.values[order].cumsum()
    return float(np.interp(instance.capacity, weights, values))


def test_the_optimum_lies_between_greedy_and_the_fractional_bound() -> None:
    optimum, density = references(NAME, "optimum"), references(NAME, "density_greedy")
    assert set(optimum) == set(density) == {*PUBLISHED, "test500"}
    for split, value in optimum.items():
        bounds = [bound(item) for item in KP.instances(split)]
        assert density[split] < value < np.mean(bounds)


@pytest.mark.parametrize("hole", ["function", "expression"])
def test_the_templates_are_density_greedy_as_they_are(hole: str, evaluator: Evaluator) -> None:
    assert evaluator.evaluate(seed(NAME, hole)).objective == GREEDY


@pytest.mark.parametrize("rules", ["paper", "paper_test"])
@pytest.mark.parametrize("hole", ["function", "expression"])
def test_the_templates_do_not_depend_on_the_rules(hole: str, rules: str) -> None:
    options = {"rules": rules, "count": 8}
    with Evaluator(PROBLEMS / NAME, "train", ENTRY, workers=1, options=options) as evaluator:
        assert list(evaluator.evaluate(seed(NAME, hole)).per_instance) == greedy("train", count=8)


# Measured on the search set; the first three are the examples of the prompt.
MEASURED = {
    "value / weight": GREEDY,
    "value - weight": 39.84655,
    "value / weight + spare": 40.11642,
    "value / weight - spare": 40.15063,
    "value / (weight + 0.05 / free)": 40.16286,
}


@pytest.mark.parametrize(("text", "value"), MEASURED.items())
def test_an_expression_has_the_value_that_was_measured(text: str, value: float, evaluator: Evaluator) -> None:
    evaluation = evaluator.evaluate(filled(NAME, text))

    assert evaluation.objective == value


def test_no_example_of_the_prompt_is_better_than_density_greedy() -> None:
    examples = specification(NAME)["holes"]["expression"]["examples"]
    assert len(examples) == 3
    assert all(MEASURED[text] <= GREEDY for text in examples)


HEADER = "import numpy as np\ndef select_next_item(remaining_capacity, weights, values):"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("return float('nan')", "non_finite"),
        ("return np.array([np.inf])", "non_finite"),
        ("return len(weights)", "invalid_solution"),
        ("return -1", "invalid_solution"),
        ("return None", "invalid_solution"),
        ("return 'first'", "invalid_solution"),
        ("return True", "invalid_solution"),
        ("return 0.5", "invalid_solution"),
        ("return weights", "invalid_solution"),
        ("return weights[0].nothing", "exception"),
        ("weights[:] = 0; values[:] = 9; return 0", "ok"),
        ("return np.array([0])", "ok"),
    ],
)
def test_an_answer_that_is_no_index_has_its_status(body: str, status: str, evaluator: Evaluator) -> None:
    assert evaluator.evaluate(f"{HEADER}\n    {body}\n").status == status


@pytest.mark.parametrize(
    ("text", "status"),
    [("value / 0", "non_finite"), ("value[1:]", "exception"), ("price", "exception"), ("0", "ok")],
)
def test_an_expression_must_give_finite_scores(text: str, status: str, evaluator: Evaluator) -> None:
    assert evaluator.evaluate(filled(NAME, text)).status == status


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_candidate_ends_as_written_and_harms_nobody(
    name: str, evaluator: Evaluator, hasty: Evaluator
) -> None:
    attack, status = HOSTILE[name]
    good = seed(NAME, "function")
    chosen = hasty if status == "timeout" else evaluator

    assert attacked(chosen, attack, good).status == status
    assert chosen.evaluate(good).status == "ok"
    assert evaluator.evaluate(good).objective == GREEDY


FIRST = f"{HEADER}\n    return 0\n"
RENAMED = "def select_next_item(c, w, v):\n    return next(i for i in range(len(w)) if w[i] <= c)\n"
FRACTION = f"{HEADER}\n    return int(np.argmax(np.where(weights <= remaining_capacity, values / weights, -1))) + 0.7\n"
NONE = f"{HEADER}\n    return None if remaining_capacity < 5 else int(np.argmax(values / weights))\n"


@pytest.mark.parametrize(
    ("rules", "source", "status"),
    [
        ("fitting", FIRST, "ok"),
        ("paper", FIRST, "invalid_solution"),
        ("paper_test", FIRST, "ok"),
        ("fitting", RENAMED, "ok"),
        ("paper", RENAMED, "exception"),
        ("paper_test", RENAMED, "ok"),
        ("fitting", FRACTION, "invalid_solution"),
        ("paper", FRACTION, "ok"),
        ("fitting", NONE, "invalid_solution"),
        ("paper", NONE, "invalid_solution"),
        ("paper_test", NONE, "ok"),
    ],
)
def test_the_rules_of_the_paper_differ_where_they_are_said_to(rules: str, source: str, status: str) -> None:
    options = {"rules": rules, "count": 4}
    with Evaluator(PROBLEMS / NAME, "train", ENTRY, workers=1, options=options) as evaluator:
        evaluation = evaluator.evaluate(source)
        assert evaluation.status == status, evaluation
        if source == FRACTION and status == "ok":
            assert list(evaluation.per_instance) == greedy("train", count=4)


def test_rules_that_do_not_exist_are_refused_with_those_that_do() -> None:
    with pytest.raises(ValueError, match="no rules 'papers'; there are fitting, paper, paper_test"):
        KP.instances("train", rules="papers")


def test_an_unknown_split_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(ValueError, match=r"no split 'test51'.*search.*validation200.*test500"):
        KP.instances("test51")


def test_the_capacity_goes_with_the_number_of_items() -> None:
    capacities = {split: KP.instances(split, count=1)[0].capacity for split in ("test50", "test100", "test500")}

    assert capacities == {"test50": 12.5, "test100": 25.0, "test500": 25.0}


@settings(max_examples=50)
@given(st.sets(st.integers(0, 49)))
def test_a_set_of_items_is_worth_its_sum_or_too_heavy(items: set[int]) -> None:
    instance = KP.instances("validation50", count=1)[0]
    packed = sorted(items)
    if instance.weights[packed].sum() > instance.capacity:
        with pytest.raises(ValueError, match=r"more than the capacity of 12\.5"):
            KP.objective(packed, instance)
    else:
        assert KP.objective(packed, instance) == pytest.approx(instance.values[packed].sum(), rel=1e-12)


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        (None, "no list"),
        ({"0": 1}, "no list"),
        ([0, 0], "packs item 0 again"),
        ([100], "no item of 0 to 99"),
        ([-1], "no item"),
        ([True], "no item"),
        ([0.0], "no item"),
        ([float("nan")], "no item"),
        (["choice None of 3 items"], "choice None"),
        ([[1]], "no item"),
        (list(range(100)), "weigh"),
    ],
)
def test_the_objective_refuses_whatever_is_no_packing(claim: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        KP.objective(claim, KP.instances("train", count=1)[0])
