"""Digits that say where they are: what is fused, sharded, permuted or padded is found again, and nothing else is."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coevo.weights.selection import TensorSpec
from coevo_vllm.layout import decode, digit, digits_needed, places, runs_of, spread

TOTAL = 5000


def written(at, count):
    """What each round of loading leaves in a parameter whose elements have these places."""
    return [digit(at, which, count) for which in range(count)]


def test_the_place_of_every_element_is_read_back():
    at = places(123, 4000)
    assert np.array_equal(decode(written(at, digits_needed(TOTAL)), TOTAL), at)


@pytest.mark.parametrize("total", [1, 255, 256, 257, 65_536, 65_537, 27_000_000_000])
def test_there_are_as_many_digits_as_the_last_place_needs(total):
    count = digits_needed(total)
    last = np.array([total - 1], dtype=np.int64)
    assert decode(written(last, count), total)[0] == total - 1


@given(st.permutations(list(range(60))), st.integers(0, 7))
@settings(max_examples=50, deadline=None)
def test_a_permuted_and_padded_parameter_gives_each_tensor_its_own(order, padding):
    at = np.concatenate([np.array(order, dtype=np.int64) + 100, np.full(padding, -1)])
    count = digits_needed(TOTAL)
    digits = [np.where(at < 0, 0, digit(np.maximum(at, 0), which, count)).astype(np.uint8) for which in range(count)]
    found = runs_of("p", decode(digits, TOTAL), {"a": (100, 40), "b": (140, 20)})
    for name, (offset, size) in {"a": (100, 40), "b": (140, 20)}.items():
        runs = found[name]
        assert sorted(spread(runs.start, runs.length)) == list(range(size))
        held = at[spread(runs.inside, runs.length)] - offset
        assert np.array_equal(held, spread(runs.start, runs.length))


def test_what_was_never_loaded_is_taken_for_no_place():
    rng = np.random.default_rng(0)
    leftovers = [rng.integers(0, 256, 100_000).astype(np.uint8) for _ in range(digits_needed(TOTAL))]
    assert (decode(leftovers, TOTAL) >= 0).mean() < 1e-3
    zeros = [np.zeros(10, np.uint8)] * digits_needed(TOTAL)
    assert (decode(zeros, TOTAL) == -1).all()


def test_rows_of_a_column_shard_are_runs():
    at = places(0, 64).reshape(8, 8)[:, 4:].reshape(-1)
    runs = runs_of("p", at, {"w": (0, 64)})["w"]
    assert runs.length.tolist() == [4] * 8
    assert runs.start.tolist() == [8 * row + 4 for row in range(8)]
    assert runs.gathered(np.arange(32)).tolist() == list(range(32))


def test_shards_of_two_workers_make_the_tensor_and_one_alone_does_not():
    pytest.importorskip("torch")
    from coevo_vllm.streaming import assemble

    spec = TensorSpec("w", (4, 6), "bfloat16")
    whole = np.arange(24, dtype=np.uint16).reshape(4, 6)
    parts = []
    for columns in (slice(0, 3), slice(3, 6)):
        starts = [6 * row + columns.start for row in range(4)]
        parts.append(["bfloat16", starts, [3] * 4, whole[:, columns].tobytes()])
    assert np.array_equal(assemble(parts, spec), whole)
    assert assemble(parts[:1], spec) is None


def test_workers_that_disagree_about_a_replicated_tensor_are_found_out():
    pytest.importorskip("torch")
    from coevo_vllm.streaming import assemble

    part = lambda value: ["float32", [0], [3], np.full(3, value, np.float32).tobytes()]  # noqa: E731
    with pytest.raises(ValueError, match="different values of 'w'"):
        assemble([part(1.0), part(2.0)], TensorSpec("w", (3,), "float32"))


def test_tensors_of_a_layer_are_loaded_together_and_others_alone():
    pytest.importorskip("torch")
    from coevo_vllm.streaming import groups_of

    names = ["model.embed.weight", "model.layers.0.a.weight", "model.layers.0.b.weight", "model.layers.1.a.weight"]
    assert groups_of([TensorSpec(name, (1,), "float32") for name in names]) == [
        names[:1],
        names[1:3],
        names[3:],
    ]
