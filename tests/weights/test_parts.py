"""Which files of a folder are the model: what engines would read differently is refused, whoever reads it."""

import codecs
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from coevo.errors import UserError
from coevo.models import resolve
from coevo.sizing.architecture import of_folder
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
