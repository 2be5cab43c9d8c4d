import numpy as np
import pytest

from coevo.errors import UserError
from coevo.weights.finite import require_finite
from coevo.weights.selection import select
from coevo.weights.stored import open_checkpoint

DTYPES = {"float32": np.float32, "float16": np.float16}


def check(folder, dtype=None):
    require_finite(select(folder), open_checkpoint(folder), dtype)


def with_value(value, stored):
    """A tensor in a format, with one value in its middle."""
    array = np.zeros((5, 7), np.float32)
    array[2, 3] = value
    if stored == "bfloat16":
        return (array.view(np.uint32) >> 16).astype(np.uint16)
    return array.astype(DTYPES[stored])


@pytest.mark.parametrize("stored", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(
    ("value", "what"), [(np.nan, "NaN"), (-np.nan, "NaN"), (np.inf, "an infinity"), (-np.inf, "an infinity")]
)
def test_a_tensor_that_is_not_finite_is_refused_with_its_name_and_file(write_checkpoint, value, what, stored):
    good = with_value(-3.0, stored)
    folder = write_checkpoint({"a": good, "b": with_value(value, stored)}, shards=2)
    with pytest.raises(UserError, match=f"'b' in .*model-00002-of-00002.safetensors' holds {what}; expected"):
        check(folder)


@pytest.mark.parametrize(
    ("stored", "value", "served", "fits"),
    [
        ("float32", 65504, "float16", True),
        ("float32", -65519, "float16", True),  # is rounded down to the largest one
        ("float32", -65520, "float16", False),
        ("bfloat16", 65536, "float16", False),
        ("bfloat16", 65536, "float32", True),
        ("float32", 3.4e38, "bfloat16", False),
        ("float32", -3.3e38, "bfloat16", True),
    ],
)
def test_weights_beyond_the_served_format_are_refused(write_checkpoint, stored, value, served, fits):
    folder = write_checkpoint({"w": with_value(value, stored)})
    check(folder)
    if fits:
        check(folder, served)
    else:
        with pytest.raises(UserError, match=rf"'w' in .* holds .*, more than {served} goes to; choose another dtype"):
            check(folder, served)


def test_an_empty_tensor_is_finite(write_checkpoint):
    check(write_checkpoint({"w": np.ones(3, np.float32), "none": np.ones((0, 4), np.float32)}))
