"""What goes between `solve` and a candidate's function: nothing is lost, and nothing that comes back is run."""

from __future__ import annotations

import os
import threading
from collections import Counter, OrderedDict, namedtuple
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hn

from coevo.sandbox.answers import Opaque, UnanswerableError, as_sent, decode, encode
from coevo.sandbox.calls import Arguments, Copies, GoneError, Received, receive, send

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.text()
    | st.binary()
)
ARRAYS = hn.arrays(
    hn.boolean_dtypes() | hn.integer_dtypes() | hn.unsigned_integer_dtypes() | hn.floating_dtypes(sizes=(32, 64)),
    hn.array_shapes(min_dims=0, min_side=0, max_side=4),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=20,
)


def same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, np.ndarray):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.tobytes() == other.tobytes()
    else:
        assert one == other


@given(VALUES)
def test_an_answer_arrives_as_it_was_given(value: Any) -> None:
    same(decode(encode(value)), value)
    same(as_sent(value), value)


@given(ARRAYS)
def test_an_array_arrives_with_its_type_and_shape(array: Any) -> None:
    same(decode(encode(array)), array)
    same(decode(encode(array.T)), array.T.copy())
    assert as_sent(array) is not array


@pytest.mark.parametrize("value", [np.float32(0.5), np.int64(-3), np.bool_(True), np.float64("inf"), np.uint8(7)])
def test_a_scalar_of_numpy_stays_one(value: Any) -> None:
    same(decode(encode(value)), value)


@pytest.mark.parametrize(
    ("value", "arrives"),
    [
        (OrderedDict(a=1), {"a": 1}),
        (Counter("aab"), {"a": 2, "b": 1}),
        (namedtuple("Pair", "a b")(1, 2), (1, 2)),
        (Fraction(1, 4), 0.25),
        (frozenset({1}), frozenset({1})),
        ({1, 2}, {1, 2}),
        (bytearray(b"x"), b"x"),
        (np.str_("text"), "text"),
    ],
)
def test_what_derives_from_a_value_arrives_as_that_value(value: Any, arrives: Any) -> None:
    same(decode(encode(value)), arrives)


def test_an_array_of_objects_arrives_with_its_values() -> None:
    found = decode(encode(np.array([[1, "a"], [None, 2.5]], object)))
    assert isinstance(found, np.ndarray)
    assert found.tolist() == [[1, "a"], [None, 2.5]]


def test_any_other_object_arrives_as_its_name_and_its_text() -> None:
    found = decode(encode(len))
    assert isinstance(found, Opaque)
    assert (type(found).__name__, repr(found)) == ("builtin_function_or_method", "<built-in function len>")


def test_an_integer_too_long_for_text_arrives_as_a_remark() -> None:
    assert repr(decode(encode(1 << 20000))) == "an integer of 20001 bits"


def test_an_answer_without_end_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(UnanswerableError, match="nested more than 100 deep"):
        encode(value)


@given(
    st.binary() | VALUES.flatmap(lambda value: st.builds(spoilt, st.just(encode(value)), st.integers(), st.binary()))
)
def test_bytes_that_nobody_encoded_are_refused_or_are_a_value(data: bytes) -> None:
    try:
        value = decode(data)
    except ValueError:
        return
    encode(value)


def spoilt(data: bytes, place: int, by: bytes) -> bytes:
    place %= len(data)
    return data[:place] + by + data[place + len(by) :]


@pytest.mark.parametrize(
    "data",
    [b"", b"l\xff\xff\xff\xff", b"a\x03<f8\x02" + b"\xff" * 16, b"a\x02|O\x00" + bytes(8), b"l\x01\0\0\0" * 1000 + b"N",
     b"d\x01\0\0\0N", b"d\x02\0\0\0l\0\0\0\0N", b"I\x01\0\0\0x", b"NN", b"o\x01" + b"\xff" * 8, b"a\x05i4,i4\x00"],
)  # fmt: skip
def test_forged_sizes_and_types_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        decode(data)


def call(arguments: Arguments, received: Received, *given: Any, **named: Any) -> tuple[list[Any], dict[str, Any]]:
    name, found, also = received.unpack(arguments.pack("f", given, named))
    assert name == "f"
    return found, also


@given(st.lists(VALUES | ARRAYS, max_size=4), st.dictionaries(st.text(), VALUES | ARRAYS, max_size=3))
def test_arguments_arrive_as_they_were_given(given: list[Any], named: dict[str, Any]) -> None:
    found, also = call(Arguments(), Received(), *given, **named)
    copies = Copies()
    for arrived in ([*found, *also.values()], [copies.take(n, v) for n, v in enumerate([*given, *named.values()])]):
        for one, other in zip(arrived, [*given, *named.values()], strict=True):
            same(one, other)
    assert list(also) == list(named)


@pytest.mark.parametrize("take", ["sent", "copied"])
def test_an_array_that_is_given_again_is_the_same_object_and_follows_its_changes(take: str) -> None:
    arguments, received, copies = Arguments(), Received(), Copies()

    def arrives(array: Any) -> Any:
        return copies.take(0, array) if take == "copied" else call(arguments, received, array)[0][0]

    array = np.arange(4.0)
    first = arrives(array)
    first[0] = 9.0  # what a candidate writes into it stays, as it did when both shared the array
    assert arrives(array) is first
    assert first[0] == 9.0
    array[1] = 5.0  # but what `solve` writes into it arrives
    assert arrives(array) is first
    assert first.tolist() == [0.0, 5.0, 2.0, 3.0]
    assert arrives(array.copy()) is not first
    assert array[0] == 0.0


@pytest.mark.parametrize("take", ["sent", "copied"])
def test_an_array_that_is_read_only_is_given_once_and_can_be_written_there(take: str) -> None:
    arguments, received, copies = Arguments(), Received(), Copies()

    def arrives(array: Any) -> Any:
        return copies.take(0, array) if take == "copied" else call(arguments, received, array)[0][0]

    array = np.arange(4.0)
    array.setflags(write=False)
    first = arrives(array)
    first[0] = 7.0
    assert arrives(array) is first
    array.setflags(write=True)
    array[1] = 9.0
    assert arrives(array).tolist() == [0.0, 9.0, 2.0, 3.0]


@pytest.mark.parametrize("take", ["sent", "copied"])
def test_an_array_whose_shape_or_type_has_changed_arrives_as_it_is_now(take: str) -> None:
    arguments, received, copies = Arguments(), Received(), Copies()

    def arrives(array: Any) -> Any:
        return copies.take(0, array) if take == "copied" else call(arguments, received, array)[0][0]

    array = np.arange(4.0)
    same(arrives(array), array)
    array.shape = (2, 2)
    same(arrives(array), array)
    array.dtype = np.int64
    same(arrives(array), array)
    array += 1
    same(arrives(array), array)


@pytest.mark.parametrize(
    "value", [np.ones(1, "i8,i8")[0], object(), print, np.array([object()]), [{"a": object()}], np.array(["x"])]
)
def test_an_argument_that_cannot_be_sent_is_named(value: Any) -> None:
    with pytest.raises(TypeError, match=r"an? "):
        Arguments().pack("f", [value], {})
    with pytest.raises(TypeError, match=r"an? "):
        Copies().take(0, value)


def test_a_message_of_any_length_is_read_whole_and_a_closed_pipe_says_so() -> None:
    read, write = os.pipe()
    sent = os.urandom(3_000_000)
    writer = threading.Thread(target=send, args=(write, sent))
    writer.start()
    assert receive(read, len(sent)) == sent
    writer.join()
    os.close(write)
    with pytest.raises(GoneError):
        receive(read, 10)
    os.close(read)
    read, write = os.pipe()
    os.close(read)
    with pytest.raises(GoneError):
        send(write, b"x")
    os.close(write)


def test_a_message_that_is_longer_than_allowed_or_two_at_once_is_refused() -> None:
    read, write = os.pipe()
    send(write, bytes(100))
    with pytest.raises(ValueError, match="more than 10 bytes"):
        receive(read, 10)
    send(write, b"x")
    os.read(read, 1000)
    send(write, b"x")
    send(write, b"y")
    with pytest.raises(ValueError, match="more than one answer"):
        receive(read, 10)
    os.close(read)
    os.close(write)
