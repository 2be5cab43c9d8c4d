"""Which files of a folder are the model: what engines would read differently is refused, whoever reads it."""

import codecs
import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from coevo.errors import UserError
from coevo.models.catalogue import resolve
from coevo.tools.sizing.architecture import of_folder
from coevo.weights.master import Master
from coevo.weights.selection import select
from coevo.weights.stored import open_checkpoint
from tests.weights.conftest import write_safetensors

Write = Callable[..., Path]
W = np.ones((2, 3), np.float32)
INDEX = "model.safetensors.index.json"


@pytest.fixture
def single(write_checkpoint: Write) -> Path:
    return write_checkpoint({"a": W, "b": W}, folder="single")


@pytest.fixture
def sharded(write_checkpoint: Write) -> Path:
    return write_checkpoint({"a": W, "b": W, "c": W}, shards=2, folder="sharded")


def refused(folder: Path) -> str:
    """What `open_checkpoint`, and with it all that reads weights, says of a folder, in one line."""
    with pytest.raises(UserError) as caught:
        open_checkpoint(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def add(folder: Path, name: str, *tensors: str) -> None:
    write_safetensors(folder / name, dict.fromkeys(tensors or ("a",), W), {})


def test_a_single_file_beside_shards_is_refused_by_both_names(sharded: Path):
    add(sharded, "model.safetensors", "a", "b", "c")
    said = refused(sharded)
    assert "holds 'model.safetensors', which transformers loads" in said
    assert "'model.safetensors.index.json', whose files vLLM loads" in said


def test_every_way_to_a_checkpoint_refuses_alike(sharded: Path):
    selection = select(sharded)
    add(sharded, "model.safetensors", "a", "b", "c")
    for read in (open_checkpoint, select, of_folder, lambda f: Master(selection, f), lambda f: resolve(str(f))):
        with pytest.raises(UserError, match="which transformers loads"):
            read(sharded)


@pytest.mark.parametrize(
    "stray",
    [
        "consolidated.safetensors",
        "adapter_model.safetensors",
        "model.fp16.safetensors",
        "model-00001-of-00002.safetensors",
        "shard-00000-model-00001-of-00001.safetensors",
    ],
)
def test_safetensors_that_are_not_the_model_are_refused_by_name(single: Path, stray: str):
    add(single, stray)
    assert f"holds {stray!r} beside 'model.safetensors', which not every engine leaves out" in refused(single)


def test_a_shard_that_the_index_does_not_name_is_refused(sharded: Path):
    add(sharded, "model-00003-of-00003.safetensors", "d")
    assert "'model-00003-of-00003.safetensors' beside the files that 'model.safetensors.index.json'" in refused(sharded)


@pytest.mark.parametrize("other", ["pytorch_model.bin", "model.onnx", "tf_model.h5", "training_args.bin"])
def test_weights_in_other_formats_are_left_out_by_every_engine(single: Path, other: str):
    (single / other).touch()
    assert set(open_checkpoint(single)) == {"a", "b"}


def test_an_index_of_the_one_file_is_the_one_file(single: Path):
    (single / INDEX).write_text(json.dumps({"weight_map": dict.fromkeys("ab", "model.safetensors")}))
    assert set(open_checkpoint(single)) == {"a", "b"}


def test_shards_that_are_not_there_are_named(sharded: Path):
    (sharded / "model-00001-of-00002.safetensors").unlink()
    assert "names files that are not there: 'model-00001-of-00002.safetensors'" in refused(sharded)


def test_shards_without_their_index_are_named(sharded: Path):
    (sharded / INDEX).unlink()
    assert "'model-00002-of-00002.safetensors' and no file that says what is in which" in refused(sharded)


def test_an_index_that_leaves_tensors_out_is_refused_by_their_names(sharded: Path):
    index = json.loads((sharded / INDEX).read_text())
    del index["weight_map"]["c"]
    (sharded / INDEX).write_text(json.dumps(index))
    assert "does not say what its files hold: 'c' lie in files" in refused(sharded)


def test_a_tensor_in_another_shard_than_said_is_refused(sharded: Path):
    index = json.loads((sharded / INDEX).read_text())
    index["weight_map"]["c"] = index["weight_map"]["b"]
    (sharded / INDEX).write_text(json.dumps(index))
    assert "names tensors that their files do not hold: 'c'" in refused(sharded)


def test_a_tensor_in_two_shards_is_refused(sharded: Path):
    add(sharded, "model-00002-of-00002.safetensors", "a", "b")
    assert "'a' lie in files that it does not name for them" in refused(sharded)


def test_an_adapter_in_the_folder_is_refused(single: Path):
    (single / "adapter_config.json").write_text("{}")
    assert "holds an adapter (adapter_config.json), which transformers adds to the weights" in refused(single)


@pytest.mark.parametrize(("named", "accepted"), [("model.safetensors", True), ("other.safetensors", False)])
def test_a_configuration_that_names_other_weights_is_refused(single: Path, named: str, accepted: bool):
    (single / "config.json").write_text(json.dumps({"transformers_weights": named}))
    if accepted:
        assert set(open_checkpoint(single)) == {"a", "b"}
    else:
        assert "(transformers_weights = 'other.safetensors'), which vLLM does not" in refused(single)


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json", "chat_template.jinja"])
@pytest.mark.parametrize(("encoding", "name"), [("utf-8-sig", "UTF-8"), ("utf-16", "UTF-16")])
def test_byte_order_marks_that_transformers_does_not_read_are_named(single: Path, file: str, encoding: str, name: str):
    (single / file).write_text('{"model_type": "tiny"}', encoding=encoding)
    said = refused(single)
    assert file in said
    assert name in said


def test_a_mark_is_no_part_of_an_index_s_first_name(sharded: Path):
    text = (sharded / INDEX).read_bytes()
    (sharded / INDEX).write_bytes(codecs.BOM_UTF8 + text)
    assert "begins with the byte-order mark of UTF-8" in refused(sharded)


def test_a_folder_of_links_is_read_like_any_other(sharded: Path, tmp_path: Path):
    links = tmp_path / "links"  # as a hub's cache has them
    links.mkdir()
    for path in sharded.iterdir():
        (links / path.name).symlink_to(path)
    assert set(open_checkpoint(links)) == {"a", "b", "c"}
    shutil.rmtree(sharded)
    with pytest.raises(UserError):
        open_checkpoint(links)


def a_folder(path: Path) -> None:
    path.mkdir()


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as own:
        here = os.open(".", os.O_RDONLY)
        os.chdir(path.parent)  # a socket's path may not be long
        try:
            own.bind(path.name)
        finally:
            os.fchdir(here)
            os.close(here)


STRANGE = [
    (a_folder, "is a folder; expected a file"),
    (os.mkfifo, "is a named pipe; expected a file"),
    (a_socket, "is a socket; expected a file"),
    (lambda path: path.symlink_to("/dev/zero"), "is a device; expected a file"),
    (lambda path: path.symlink_to(path.name), "is a link to 'FILE' that leads back to itself"),
    (lambda path: path.symlink_to("gone"), "is a link to 'gone', which is not there"),
]


@pytest.mark.parametrize(("make", "said"), STRANGE)
@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja", INDEX])
def test_what_is_no_file_is_named_and_never_read(single: Path, name: str, make: Callable[[Path], object], said: str):
    (single / name).unlink(missing_ok=True)
    make(single / name)
    wanted = said.replace("FILE", name)
    assert f"{name}' {wanted}" in refused(single)
    with pytest.raises(UserError, match="expected a file"):
        resolve(str(single))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("name", ["model.safetensors", "config.json", ""])
def test_what_may_not_be_read_is_said_in_one_line(single: Path, name: str):
    (single / name).chmod(0)
    try:
        with pytest.raises(UserError, match=r"^cannot read .*: Permission denied$"):
            select(Path(resolve(str(single))))
    finally:
        (single / name).chmod(0o700)


@pytest.mark.parametrize("name", ["x" * 5000, "./no\0where"])
def test_a_name_that_can_be_no_folder_is_said_in_one_line(name: str):
    with pytest.raises(UserError, match=r"^(cannot read the model folder|no model named|there is no model)"):
        resolve(name)


def test_json_nested_without_end_is_refused(single: Path):
    (single / "config.json").write_text('{"a":' * 100_000)
    assert "as JSON: it is nested too deeply" in refused(single)


def header(**entry: object) -> bytes:
    text = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], **entry}}).encode()
    return len(text).to_bytes(8, "little") + text + bytes(4)


@pytest.mark.parametrize(
    "data",
    [
        header(shape=[1e999]),
        header(shape=["x"]),
        header(data_offsets=[0.0, 4.0]),
        header(data_offsets=["0", "4"]),
        header(data_offsets=[0]),
        (8 + 200_000).to_bytes(8, "little") + b'{"a":' * 40_002,
        (24).to_bytes(8, "little") + b'{"__metadata__": [1, 2]}',
        b"",
        bytes(100),
    ],
)
def test_a_header_of_nonsense_is_refused_in_one_line(single: Path, data: bytes):
    (single / "model.safetensors").write_bytes(data)
    assert "model.safetensors' is not a whole safetensors file" in refused(single)


@pytest.mark.parametrize(
    ("entry", "value"),
    [("hidden_size", "wide"), ("num_attention_heads", 0), ("vocab_size", -1), ("num_hidden_layers", 1.5)],
)
def test_a_size_that_is_none_is_told_with_its_entry_and_value(single: Path, entry: str, value: object):
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 5}
    (single / "config.json").write_text(json.dumps({"text_config": {**sizes, entry: value}}))
    with pytest.raises(UserError, match=rf"config.json' has {entry} = {value!r}; expected a whole number"):
        of_folder(single)


@pytest.mark.parametrize("part", [[], "", None, {}, 3])
def test_a_text_configuration_that_is_no_table_is_left_out(single: Path, part: object):
    (single / "config.json").write_text(json.dumps({"text_config": part, "hidden_size": 8}))
    assert of_folder(single).hidden == 8
