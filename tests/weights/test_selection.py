import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from coevo.errors import UserError
from coevo.weights.selection import LoadedTensor, Selection, TensorSpec, select, with_scales

Write = Callable[..., Path]
F = np.zeros((2, 3), np.float32)
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def loaded(*names: str, shape: tuple[int, ...] = (2, 3)) -> dict[str, LoadedTensor]:
    return {name: LoadedTensor(shape) for name in names}


@pytest.mark.parametrize("shards", [1, 3])
def test_every_float_tensor_is_selected_with_its_format(
    write_checkpoint: Write, tensors: dict[str, np.ndarray], shards: int
):
    selection = select(write_checkpoint(tensors, shards=shards))
    assert [(spec.name, spec.shape, spec.dtype, spec.scale, spec.aliases) for spec in selection.tensors] == [
        ("model.embed_tokens.weight", (11, 16), "bfloat16", 1.0, ()),
        ("model.layers.0.mlp.weight", (7, 5), "float16", 1.0, ()),
        ("model.layers.0.norm.weight", (3, 4, 5), "float32", 1.0, ()),
        ("model.norm.weight", (16,), "bfloat16", 1.0, ()),
    ]
    assert selection.left_out == ()
    assert selection.size == 11 * 16 + 35 + 60 + 16


def test_what_the_text_model_does_not_load_is_listed_with_a_reason(write_checkpoint: Write):
    folder = write_checkpoint(
        {
            "model.w": F,
            "model.rotary_emb.inv_freq": F,
            "visual.blocks.0.weight": F,
            "vision_tower.weight": F,
            "audio_tower.weight": F,
            "mtp.layers.0.weight": F,
            "score.weight": F,
            "steps": np.zeros(1, np.int64),
            "held": F,
            "odd": F,
        }
    )
    selection = select(folder, {**loaded("model.w"), "held": LoadedTensor((2, 3), parameter=False)})
    assert [spec.name for spec in selection.tensors] == ["model.w"]
    assert dict(selection.left_out) == {
        "model.rotary_emb.inv_freq": "buffer",
        "visual.blocks.0.weight": "vision tower",
        "vision_tower.weight": "vision tower",
        "audio_tower.weight": "audio tower",
        "mtp.layers.0.weight": "extra head",
        "score.weight": "extra head",
        "steps": "buffer",
        "held": "buffer",
        "odd": "not loaded by the engine",
    }


@pytest.mark.parametrize(
    "given",
    [
        {EMBEDDING: LoadedTensor((2, 3), tied=(HEAD,))},
        {HEAD: LoadedTensor((2, 3), tied=(EMBEDDING,))},
        {EMBEDDING: LoadedTensor((2, 3), tied=(HEAD,)), HEAD: LoadedTensor((2, 3), tied=(EMBEDDING,))},
    ],
)
@pytest.mark.parametrize(
    ("held", "name", "alias"), [([EMBEDDING], EMBEDDING, HEAD), ([EMBEDDING, HEAD], HEAD, EMBEDDING)]
)
def test_a_tied_group_is_one_tensor_with_the_first_name_in_the_checkpoint(
    write_checkpoint: Write, given: dict[str, LoadedTensor], held: list[str], name: str, alias: str
):
    selection = select(write_checkpoint(dict.fromkeys(held, F)), given)
    assert [(spec.name, spec.aliases) for spec in selection.tensors] == [(name, (alias,))]
    assert selection.left_out == ()


def test_groups_given_in_parts_are_joined(write_checkpoint: Write):
    given = {"b": LoadedTensor((2, 3), tied=("a",)), "c": LoadedTensor((2, 3), tied=("d",))}
    given["d"] = LoadedTensor((2, 3), tied=("a",))
    (spec,) = select(write_checkpoint({"c": F, "b": F}), given).tensors
    assert (spec.name, spec.aliases) == ("b", ("a", "c", "d"))


def test_a_parameter_that_the_checkpoint_lacks_is_refused_by_name(write_checkpoint: Write):
    with pytest.raises(UserError, match=r"the engine loads parameters that .* does not hold: 'model\.qkv\.weight'"):
        select(write_checkpoint({"model.w": F}), loaded("model.w", "model.qkv.weight"))


def test_a_parameter_of_another_shape_is_refused(write_checkpoint: Write):
    with pytest.raises(UserError, match=r"'model.w' has shape \(2, 3\) in the checkpoint, \(3, 2\) in the engine"):
        select(write_checkpoint({"model.w": F}), loaded("model.w", shape=(3, 2)))


def test_a_parameter_in_float64_is_refused(write_checkpoint: Write):
    with pytest.raises(UserError, match=r"'model\.w' is stored as F64"):
        select(write_checkpoint({"model.w": np.zeros((2, 3))}), loaded("model.w"))


@pytest.mark.parametrize(
    ("array", "code"),
    [
        (np.zeros(4, np.int32), "I32"),
        (np.zeros(4, np.uint8), "U8"),
        (np.zeros(4, np.int8), "I8"),
        (np.zeros(4, np.uint8), "F8_E4M3"),
    ],
)
def test_packed_tensors_are_refused_in_one_line(write_checkpoint: Write, array: np.ndarray, code: str):
    folder = write_checkpoint({"model.qweight": array, "model.w": F}, codes={"model.qweight": code})
    with pytest.raises(UserError, match=rf"holds packed tensors \({code}\): 'model.qweight'; expected") as error:
        select(folder)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("config", [{"quantization_config": {"quant_method": "gptq"}}, {"text_config": {}}])
def test_a_quantised_checkpoint_is_refused(write_checkpoint: Write, config: dict[str, Any]):
    config = {"text_config": {"quantization_config": {"quant_method": "gptq"}}} if "text_config" in config else config
    with pytest.raises(UserError, match=r"is quantised \(gptq\); expected float32"):
        select(write_checkpoint({"model.w": F}, config=config))


def test_a_folder_with_a_quantiser_s_settings_is_refused(write_checkpoint: Write):
    folder = write_checkpoint({"model.w": F})
    (folder / "hf_quant_config.json").write_text("{}")
    with pytest.raises(UserError, match=r"is quantised \(hf_quant_config.json\)"):
        select(folder)


@pytest.mark.parametrize(
    ("files", "match"),
    [
        (None, "there is no model folder .*; expected 'model.safetensors'"),
        ([], "holds no weights; expected 'model.safetensors' or 'model.safetensors.index.json'"),
        (["config.json", "model-Q4.gguf"], r"holds a packed GGUF model \(model-Q4.gguf\)"),
        (["config.json", "pytorch_model.bin"], r"holds pickled weights \(pytorch_model.bin\)"),
    ],
)
def test_a_folder_without_safetensors_says_what_was_expected(tmp_path: Path, files: list[str] | None, match: str):
    folder = tmp_path / "model"
    if files is not None:
        folder.mkdir()
        for file in files:
            (folder / file).write_text("{}")
    with pytest.raises(UserError, match=match):
        select(folder)


def test_a_folder_without_config_is_refused(write_checkpoint: Write):
    folder = write_checkpoint({"model.w": F})
    (folder / "config.json").unlink()
    with pytest.raises(UserError, match=r"has no config\.json; expected a transformers model folder"):
        select(folder)


@pytest.mark.parametrize("text", ["not json", "[1]"])
def test_a_broken_config_is_refused(write_checkpoint: Write, text: str):
    folder = write_checkpoint({"model.w": F})
    (folder / "config.json").write_text(text)
    with pytest.raises(UserError, match=r"config\.json"):
        select(folder)


def test_an_engine_that_loads_nothing_is_refused(write_checkpoint: Write):
    with pytest.raises(UserError, match="holds no tensor that the engine loads"):
        select(write_checkpoint({"model.w": F}), {})


@pytest.mark.parametrize(
    ("weight_map", "match"),
    [
        ({}, "has no weight_map"),
        ({"w": "../elsewhere.safetensors"}, "files outside its folder"),
        ({"w": "gone.safetensors"}, "names files that are not there: 'gone.safetensors'; fetch"),
        ({"w": "model.safetensors"}, "names tensors that their files do not hold: 'w'"),
    ],
)
def test_a_broken_index_is_refused(write_checkpoint: Write, weight_map: dict[str, str], match: str):
    folder = write_checkpoint({"model.w": F})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(UserError, match=match):
        select(folder)


def cut(data: bytes) -> bytes:
    return data[:-1]


def lengthened(data: bytes) -> bytes:
    return (len(data)).to_bytes(8, "little") + data[8:]


def reshaped(data: bytes) -> bytes:
    return data.replace(b"[2, 3]", b"[2, 9]")


def relisted(data: bytes) -> bytes:
    return data.replace(b'"shape"', b'"shapf"')


@pytest.mark.parametrize("damage", [cut, lengthened, reshaped, relisted, lambda _: b""])
def test_a_damaged_safetensors_file_is_refused(write_checkpoint: Write, damage: Callable[[bytes], bytes]):
    file = write_checkpoint({"model.w": F}) / "model.safetensors"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(UserError, match="is not a whole safetensors file"):
        select(file.parent)


def test_files_of_the_safetensors_package_are_read(tmp_path: Path):
    (tmp_path / "config.json").write_text("{}")
    arrays = {"w": F, "v": np.ones(5, np.float16), "scalar": np.array(2, np.float32)}
    safetensors.numpy.save_file(arrays, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert [(spec.name, spec.shape) for spec in select(tmp_path).tensors] == [
        ("scalar", ()),
        ("v", (5,)),
        ("w", (2, 3)),
    ]


def test_a_selection_survives_json():
    spec = TensorSpec("w", (2, 3), "bfloat16", scale=0.5, aliases=("v",))
    selection = Selection((spec,), (("x", "buffer"),))
    assert Selection.from_json(json.loads(json.dumps(selection.to_json()))) == selection


@pytest.mark.parametrize("data", [{}, {"tensors": [{}], "left_out": []}, {"tensors": 3, "left_out": []}])
def test_json_of_something_else_is_no_selection(data: dict[str, object]):
    with pytest.raises(ValueError, match="not a selection"):
        Selection.from_json(data)


@pytest.mark.parametrize("names", [[("b", ()), ("a", ())], [("a", ()), ("a", ())], [("a", ("b",)), ("b", ())]])
def test_a_selection_holds_each_name_once_and_sorted(names: list[tuple[str, tuple[str, ...]]]):
    with pytest.raises(ValueError, match="sorted by name"):
        Selection(tuple(TensorSpec(name, (1,), "float32", aliases=aliases) for name, aliases in names))


def test_the_last_matching_rule_scales_a_tensor():
    specs = [TensorSpec(name, (1,), "float32") for name in ("layers.0.norm", "layers.0.q", "layers.1.q")]
    tied = TensorSpec("lm_head", (1,), "float32", aliases=("model.embed",))
    selection = Selection((*specs, tied))
    scaled = with_scales(selection, [("layers.*", 0.5), ("*.norm", 0.0), ("model.embed", 2.0)])
    assert [spec.scale for spec in scaled.tensors] == [0.0, 0.5, 0.5, 2.0]
    assert [spec.scale for spec in selection.tensors] == [1.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("scale", [-1.0, float("nan"), float("inf")])
def test_a_scale_that_is_no_factor_is_refused(scale: float):
    with pytest.raises(UserError, match=r"the scale of '\*' is .*, expected a finite number of 0 or more"):
        with_scales(Selection((TensorSpec("w", (1,), "float32"),)), [("*", scale)])


def test_a_rule_that_matches_nothing_is_refused():
    with pytest.raises(UserError, match="no selected tensor matches 'q_proj'; there are 'w'"):
        with_scales(Selection((TensorSpec("w", (1,), "float32"),)), [("q_proj", 1.0)])
