"""The three problems with ants: what holds for a heuristic that is a matrix, whatever the ants do with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coevo.sandbox import Evaluator

from .problem_kit import (
    MATRIX_HOSTILE,
    MATRIX_ODD,
    baseline,
    evaluator_of,
    filled,
    seed,
    source,
    specification,
)


@pytest.fixture(scope="module", params=["bpp_aco", "cvrp_aco", "tsp_aco"])
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def evaluator(name: str) -> Iterator[Evaluator]:
    with evaluator_of(name) as found:
        yield found


@pytest.fixture(scope="module")
def hasty(name: str) -> Iterator[Evaluator]:
    with evaluator_of(name, hasty=True) as found:
        yield found


@pytest.mark.parametrize("hole", ["function", "expression"])
def test_both_seeds_have_the_value_of_the_baseline(hole: str, name: str, evaluator: Evaluator) -> None:
    found = evaluator.evaluate(seed(name, hole))

    assert (found.status, found.objective) == ("ok", baseline(name))


def test_no_example_of_the_prompt_is_better_than_the_baseline(name: str, evaluator: Evaluator) -> None:
    examples = specification(name)["holes"]["expression"]["examples"]
    assert len(examples) == 3
    for example in examples:
        objective = evaluator.evaluate(filled(name, example)).objective
        assert objective is not None
        assert objective >= baseline(name), example


@pytest.mark.parametrize("candidate", MATRIX_HOSTILE)
def test_a_hostile_candidate_ends_as_written(candidate: str, evaluator: Evaluator, hasty: Evaluator) -> None:
    text, status = MATRIX_HOSTILE[candidate]
    found = (hasty if status == "timeout" else evaluator).evaluate(source(text))

    assert (found.status, found.objective) == (status, None), found
    assert "\n" not in found.message


@pytest.mark.parametrize("candidate", MATRIX_ODD)
def test_an_odd_matrix_is_a_heuristic_all_the_same(candidate: str, name: str, evaluator: Evaluator) -> None:
    found = evaluator.evaluate(source(MATRIX_ODD[candidate]))

    assert found.status == "ok", found
    assert found.objective is not None
    assert found.objective > baseline(name)
