"""asp_construct: the definition against brute force, known sizes, and what becomes of bad answers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coevo.sandbox import Evaluator

from .problem_kit import evaluator_of, filled, module, references, seed, source, specification

NAME = "asp_construct"
PROBLEM = module(NAME)
BASELINE = references(NAME, "lexicographic")
SYMBOLS = ((0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 1, 2), (0, 2, 1), (1, 1, 1), (2, 2, 2))

HOSTILE = {
    "a crash": ("def priority(el, n, w): return el[99]", "exception"),
    "a crash of the interpreter": ("import ctypes\ndef priority(*_): return ctypes.string_at(0)", "exception"),
    "an endless loop": ("def priority(*_):\n    while True: pass", "timeout"),
    "a not-a-number": ("def priority(*_): return float('nan')", "non_finite"),
    "one not-a-number": ("def priority(el, n, w): return np.nan if el[0] == 2 else 1.0", "non_finite"),
    "an infinity": ("def priority(*_): return -np.inf", "non_finite"),
    "nothing": ("def priority(*_): return None", "exception"),
    "a text": ("def priority(*_): return 'high'", "exception"),
    "a complex number": ("def priority(*_): return 1j", "exception"),
    "a vector": ("def priority(el, n, w): return np.array(el)", "exception"),
    "a memory hog": ("def priority(*_): return bytearray(10**10)", "out_of_memory"),
    "memory bit by bit": ("x = []\ndef priority(*_):\n    while True: x.append(bytearray(10**6))", "out_of_memory"),
    "no function": ("priority = 3", "no_entry"),
    "a patched evaluator": (
        "import sys\nfor name, module in list(sys.modules.items()):\n    if name.startswith('coevo_problem'):\n"
        "        module.solve = lambda f, i: i.words.tolist()\ndef priority(*_): return 0.0",
        "ok",
    ),
    "a forged objective": (
        'import os\nos.write(4, b\'{"status": "ok", "objective": 3003, "value": 3003}\\n\'); os._exit(0)',
        "invalid_solution",
    ),
}


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    with evaluator_of(NAME) as found:
        yield found


@pytest.fixture(scope="module")
def hasty() -> Iterator[Evaluator]:
    with evaluator_of(NAME, hasty=True) as found:
        yield found


def constant(el: tuple[int, ...], n: int, w: int) -> float:
    return 0.0


def expanded(words: list[list[int]]) -> list[tuple[int, ...]]:
    """All vectors of all rotations, by the words of the definition."""
    found: list[tuple[int, ...]] = []
    for word in words:
        groups = [sorted({SYMBOLS[s][i:] + SYMBOLS[s][:i] for i in range(3)}) for s in word]
        found += [tuple(itertools.chain(*choice)) for choice in itertools.product(*groups)]
    return found


def is_admissible(vectors: list[tuple[int, ...]]) -> bool:
    supports = {tuple(entry != 0 for entry in vector) for vector in vectors}
    return len(supports) == len(vectors) and all(
        any(sorted(values) in ([0, 1, 2], [0, 0, 1], [0, 0, 2]) for values in zip(*three, strict=True))
        for three in itertools.combinations(vectors, 3)
    )


def accepts(words: list[list[int]], instance: object) -> bool:
    try:
        size = PROBLEM.objective(words, instance)
    except ValueError:
        return False
    assert size == len(expanded(words))
    return True


SMALL = [PROBLEM.Instance(n, w) for n, w in ((3, 1), (3, 2), (6, 2), (6, 3), (6, 4), (6, 5))]


@given(st.data())
def test_the_objective_agrees_with_the_definition_on_all_vectors(data: st.DataObject) -> None:
    instance = data.draw(st.sampled_from(SMALL))
    words = data.draw(st.lists(st.sampled_from(instance.words.tolist()), min_size=1, max_size=3, unique_by=tuple))

    assert accepts(words, instance) == is_admissible(expanded(words))


@given(st.integers(0, len(SMALL) - 1), st.randoms(use_true_random=False))
def test_what_is_built_is_admissible_and_no_further_word_fits(place: int, random: Random) -> None:
    instance = SMALL[place]
    built = PROBLEM.solve(lambda el, n, w: random.random(), instance)

    assert is_admissible(expanded(built))
    rest = [word for word in instance.words.tolist() if word not in built]
    assert not any(accepts([*built, word], instance) for word in rest)


def test_the_highest_priority_comes_first_and_the_first_of_equal_ones() -> None:
    instance = PROBLEM.instances("validation")[0]

    assert PROBLEM.solve(constant, instance)[0] == instance.words[0].tolist()
    seen: list[tuple[int, ...]] = []
    last = PROBLEM.solve(lambda el, n, w: seen.append(el) or len(seen), instance)
    assert last[0] == instance.words[-1].tolist()
    assert len(seen) == len(set(seen)) == len(instance.words) == 448
    assert all(len(el) == 12 and sum(entry != 0 for entry in el) == 7 for el in seen)


@pytest.mark.parametrize(("split", "words"), [("15-10", 2432), ("12-7", 448), ("21-15", 68768)])
def test_a_split_has_all_words_of_its_size(split: str, words: int) -> None:
    (instance,) = PROBLEM.instances(split)

    assert (len(instance.words), len(set(map(tuple, instance.words.tolist())))) == (words, words)


@pytest.mark.parametrize(("short", "split"), [("train", "15-10"), ("validation", "12-7"), ("test", "21-15")])
def test_the_first_of_equal_priorities_gives_the_baseline(short: str, split: str) -> None:
    for name in (short, split):
        (instance,) = PROBLEM.instances(name)
        assert PROBLEM.objective(PROBLEM.solve(constant, instance), instance) == BASELINE[short]


def test_the_known_sizes_are_the_published_ones_and_within_their_bounds() -> None:
    bounds = {"train": math.comb(15, 10), "validation": math.comb(12, 7)}
    assert references(NAME, "optimum") == bounds == {"train": 3003, "validation": 792}
    best = references(NAME, "best_known")
    assert best == {"test": 43596, "24-17": 237984}
    assert best["test"] < math.comb(21, 15)
    assert best["24-17"] < math.comb(24, 17)


@pytest.mark.parametrize("hole", ["function", "expression"])
def test_both_seeds_have_the_value_of_the_baseline(hole: str, evaluator: Evaluator) -> None:
    found = evaluator.evaluate(seed(NAME, hole))

    assert (found.status, found.objective) == ("ok", BASELINE["train"])


def test_no_example_of_the_prompt_is_better_than_the_baseline(evaluator: Evaluator) -> None:
    for example in specification(NAME)["holes"]["expression"]["examples"]:
        objective = evaluator.evaluate(filled(NAME, example)).objective
        assert objective is not None
        assert objective <= BASELINE["train"], example


@pytest.mark.parametrize(("text", "value"), [("-full", 2712.0), ("changes", 2637.0), ("full", 1338.0)])
def test_an_expression_has_the_value_that_was_measured(text: str, value: float, evaluator: Evaluator) -> None:
    assert evaluator.evaluate(filled(NAME, text)).objective == value


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_candidate_ends_as_written(name: str, evaluator: Evaluator, hasty: Evaluator) -> None:
    text, status = HOSTILE[name]
    found = (hasty if status == "timeout" else evaluator).evaluate(source(text))

    equal = evaluator.evaluate(source("def priority(*_): return 0.0")).objective
    assert (found.status, found.objective) == (status, equal if status == "ok" else None), found
    assert "\n" not in found.message


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        (None, "no list"),
        ("0", "no list"),
        ([], "empty"),
        ([3], "word 0 is not 4 symbols"),
        ([[1, 1, 3]], "word 0 is not 4 symbols"),
        ([[1, 1, 3, 7]], "word 0 is not 4 symbols"),
        ([[1, 1, 3, -1]], "word 0 is not 4 symbols"),
        ([[1, 1, 3, 3.0]], "word 0 is not 4 symbols"),
        ([[True, 1, 3, 5]], "word 0 is not 4 symbols"),
        ([[1, 1, 3, 3]], "7 entries that are not 0"),
        ([[1, 1, 3, 5], [1, 1, 3, 5]], "clashes"),
        ([[1, 1, 3, 5], [1, 1, 3, 6]], "clashes"),
    ],
)
def test_the_objective_refuses_what_is_no_admissible_set(claim: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        PROBLEM.objective(claim, PROBLEM.instances("validation")[0])


def test_an_unknown_split_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(ValueError, match=r"no split '9-5'.*search.*15-10.*24-17"):
        PROBLEM.instances("9-5")
