import hashlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from coevo.weights.digest import digest_of

TENSORS = {"b": np.arange(6, dtype=np.float32).reshape(2, 3), "a": np.float32(-0.0).reshape(()), "é": np.zeros((0, 3))}


def test_the_digest_is_the_documented_encoding():
    def number(value: int) -> bytes:
        return value.to_bytes(8, "little")

    expected = hashlib.sha256()
    for name, dimensions in [("a", []), ("b", [2, 3]), ("é", [0, 3])]:
        encoded = name.encode()
        expected.update(number(len(encoded)) + encoded + number(len(dimensions)))
        expected.update(b"".join(number(n) for n in dimensions))
        expected.update(hashlib.sha256(TENSORS[name].tobytes()).digest())
    assert digest_of(TENSORS) == expected.hexdigest()


def test_the_order_of_the_mapping_and_the_threads_do_not_matter():
    turned = dict(reversed(TENSORS.items()))
    assert digest_of(turned, threads=1) == digest_of(TENSORS, threads=3)


def test_a_strided_view_has_the_digest_of_its_copy():
    strided = np.arange(12).reshape(3, 4)[:, ::2]
    assert digest_of({"w": strided}) == digest_of({"w": strided.copy()})


@given(st.integers(0, 191))
def test_flipping_one_bit_changes_the_digest(bit: int):
    flipped = TENSORS["b"].copy()
    flipped.view(np.uint32).reshape(-1)[bit // 32] ^= np.uint32(1 << bit % 32)
    assert digest_of({**TENSORS, "b": flipped}) != digest_of(TENSORS)


def test_names_shapes_and_cuts_are_part_of_the_digest():
    values = np.arange(4, dtype=np.float32)
    variants = [
        {"ab": values, "c": values},
        {"a": values, "bc": values},
        {"ab": values.reshape(2, 2), "c": values},
        {"ab": np.concatenate([values, values])},
        {"ab": values},
        {},
    ]
    assert len({digest_of(variant) for variant in variants}) == len(variants)
