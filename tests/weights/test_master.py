import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from coevo.errors import CheckFailedError, RunError, UserError
from coevo.weights import memory, noise
from coevo.weights.digest import digest_of
from coevo.weights.dtypes import DType, held_as
from coevo.weights.master import Master
from coevo.weights.selection import LoadedTensor, Selection, TensorSpec, select, with_scales

Write = Callable[..., Path]
Tensors = dict[str, np.ndarray]
TERMS = [(1, 5e-4), (2, -2.5e-4), (2**64 - 1, 1e-3)]


@pytest.fixture
def folder(write_checkpoint: Write, tensors: Tensors) -> Path:
    return write_checkpoint(tensors)


@pytest.fixture
def master(folder: Path) -> Master:
    return Master(select(folder), folder)


def storage(selection: Selection, dtype: DType | None = None) -> Tensors:
    return {spec.name: np.zeros(spec.shape, held_as(dtype or spec.dtype)) for spec in selection.tensors}


def same(one: Tensors, other: Tensors) -> bool:
    return one.keys() == other.keys() and all(one[name].tobytes() == other[name].tobytes() for name in one)


def test_the_centre_is_the_checkpoint_to_the_bit(master: Master, tensors: Tensors):
    outs = storage(master.selection)
    master.serve_all(outs, None, 0.0)
    assert same(outs, tensors)


def test_the_master_is_the_checkpoint_widened_exactly(master: Master, tensors: Tensors):
    for name, stored in tensors.items():
        wide = noise.from_bfloat16(stored) if stored.dtype == np.uint16 else stored.astype(np.float32)
        assert master.view(name).tobytes() == wide.tobytes()
        assert master.view(name).shape == stored.shape


def test_sigma_zero_and_scale_zero_serve_the_centre(folder: Path, tensors: Tensors):
    frozen = Master(with_scales(select(folder), [("*", 0.0)]), folder)
    outs = storage(frozen.selection)
    frozen.serve_all(outs, 7, 1e-3)
    assert same(outs, tensors)
    moving = Master(select(folder), folder)
    moving.serve_all(outs, 7, 0.0)
    assert same(outs, tensors)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_member_is_served_as_defined_with_each_tensor_s_scale(folder: Path, dtype: DType):
    scaled = Master(with_scales(select(folder), [("model.layers.*", 0.25)]), folder)
    outs = storage(scaled.selection, dtype)
    scaled.serve_all(outs, 99, -1e-2)
    for spec in scaled.selection.tensors:
        defined = noise.served_reference(scaled.view(spec.name), 99, spec.name, -1e-2, spec.scale, dtype)
        assert outs[spec.name].tobytes() == defined.tobytes()


def test_a_thousand_members_leave_the_centre_as_it_was(master: Master, tensors: Tensors):
    outs = storage(master.selection)
    generator = np.random.default_rng(2)
    before = master.digest()
    for seed in generator.integers(0, 2**63, 1000):
        master.serve_all(outs, int(seed), float(generator.normal(0, 1e-2)))
    master.serve_all(outs, None, 0.0)
    assert same(outs, tensors)
    assert master.digest() == before


def test_shards_of_a_tensor_are_served_like_the_whole(master: Master):
    whole = np.empty((11, 16), np.uint16)
    master.serve("model.embed_tokens.weight", 5, 1e-2, whole)
    for seed in (5, None):
        master.serve("model.embed_tokens.weight", seed, 1e-2, whole)
        rows = np.empty((4, 16), np.uint16)
        master.serve("model.embed_tokens.weight", seed, 1e-2, rows, start=3 * 16)
        assert rows.tobytes() == whole[3:7].tobytes()


@pytest.mark.parametrize("start", [-1, 170])
@pytest.mark.parametrize("seed", [5, None])
def test_a_shard_that_sticks_out_is_refused(master: Master, start: int, seed: int | None):
    with pytest.raises(ValueError, match=r"start is -1|out holds 16 elements"):
        master.serve("model.embed_tokens.weight", seed, 1e-2, np.empty(16, np.uint16), start=start)


def test_an_update_is_as_defined_and_replays_from_the_base(folder: Path, master: Master):
    other = Master(select(folder), folder)
    before = {spec.name: master.view(spec.name).copy() for spec in master.selection.tensors}
    for _ in range(3):
        master.apply(TERMS)
    for _ in range(3):
        before = {name: noise.update_reference(values, TERMS, name, 1.0) for name, values in before.items()}
        other.apply(TERMS)
    assert all(master.view(name).tobytes() == values.tobytes() for name, values in before.items())
    assert master.digest() == other.digest() == digest_of(before)


def test_terms_of_one_seed_are_merged_before_they_are_applied(folder: Path, master: Master):
    other = Master(select(folder), folder)
    master.apply([(4, 1e-3), (5, 2e-3), (4, 3e-3), (6, 1e-3), (6, -1e-3)])
    other.apply([(4, 1e-3 + 3e-3), (5, 2e-3)])
    assert master.digest() == other.digest()


def test_the_order_of_the_terms_is_part_of_the_update(write_checkpoint: Write):
    folder = write_checkpoint({"w": noise.noise(1, "init", 0, 5000)})
    one, other = Master(select(folder), folder), Master(select(folder), folder)
    terms = [(seed, 1.0 / (seed + 1)) for seed in range(9)]
    one.apply(terms)
    other.apply(terms[::-1])
    assert one.digest() != other.digest()  # hence journal order; a fixed case, not a matter of chance


@pytest.mark.parametrize("terms", [[], [(1, 0.0)], [(1, 0.5), (1, -0.5)]])
def test_an_update_of_nothing_changes_no_bit(master: Master, terms: list[tuple[int, float]]):
    before = master.digest()
    master.apply(terms)
    assert master.digest() == before


@pytest.mark.parametrize("terms", [[(1, 1e-3), (2, 1e39)], [(1, 1e-3), (-1, 1e-3)], [(1, float("nan"))]])
def test_a_term_out_of_range_is_refused_before_anything_changes(master: Master, terms: list[tuple[int, float]]):
    before = master.digest()
    with pytest.raises(ValueError, match=r"finite float32|64-bit"):
        master.apply(terms)
    assert master.digest() == before


def test_an_update_that_makes_nan_names_the_tensor(master: Master):
    with pytest.raises(RunError, match=r"turned \d+ weights of 'model\.\S+' into NaN"):
        master.apply([(seed, 3e38) for seed in range(3)])  # infinities of both signs meet


def test_flipping_one_bit_of_a_served_tensor_changes_the_digest(master: Master):
    outs = storage(master.selection)
    master.serve_all(outs, 3, 1e-3)
    before = digest_of(outs)
    outs["model.norm.weight"][7] ^= 1
    assert digest_of(outs) != before


def test_an_alias_means_its_tensor(write_checkpoint: Write, tensors: Tensors):
    folder = write_checkpoint(tensors)
    given = {name: LoadedTensor(array.shape) for name, array in tensors.items()}
    given["model.embed_tokens.weight"] = LoadedTensor((11, 16), tied=("lm_head.weight",))
    master = Master(select(folder, given), folder)
    assert master.view("lm_head.weight") is master.view("model.embed_tokens.weight")
    outs = storage(master.selection)
    outs["lm_head.weight"] = outs.pop("model.embed_tokens.weight")
    master.serve_all(outs, 4, 1e-3)
    defined = noise.served_reference(master.view("lm_head.weight"), 4, "model.embed_tokens.weight", 1e-3, 1, "bfloat16")
    assert outs["lm_head.weight"].tobytes() == defined.tobytes()


def test_tied_tensors_that_differ_in_the_checkpoint_are_refused(write_checkpoint: Write):
    folder = write_checkpoint({"a": np.zeros(3, np.float32), "b": np.array([0, 0, -0.0], np.float32)})
    selection = select(folder, {"a": LoadedTensor((3,), tied=("b",))})
    with pytest.raises(UserError, match="ties 'b' to 'a', but the checkpoint stores them different"):
        Master(selection, folder)


def test_a_checkpoint_with_nan_is_refused_by_name(write_checkpoint: Write):
    folder = write_checkpoint({"w": np.array([0x7FC0, 0], np.uint16)})
    with pytest.raises(UserError, match="the checkpoint's 'w' holds NaN"):
        Master(select(folder), folder)


def test_a_checkpoint_that_lost_a_tensor_is_refused(folder: Path):
    selection = Selection((TensorSpec("gone", (2,), "float32"),))
    with pytest.raises(UserError, match=r"does not hold 'gone' of shape \(2,\)"):
        Master(selection, folder)


def test_serving_wants_every_selected_tensor_once(master: Master):
    outs = storage(master.selection)
    outs["odd"] = outs.pop("model.norm.weight")
    with pytest.raises(ValueError, match=r"missing: 'model\.norm\.weight', not selected: 'odd'"):
        master.serve_all(outs, 1, 1e-3)


def test_a_name_that_is_not_selected_is_a_key_error(master: Master):
    with pytest.raises(KeyError, match="'odd' is not a selected tensor"):
        master.view("odd")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_moved_is_the_share_of_all_weights_of_a_small_model(master: Master, dtype: DType):
    centre, served = storage(master.selection, dtype), storage(master.selection, dtype)
    master.serve_all(centre, None, 0.0)
    master.serve_all(served, 8, 1e-4)
    unsigned = f"u{held_as(dtype).itemsize}"
    changed = sum(int((served[name].view(unsigned) != centre[name].view(unsigned)).sum()) for name in served)
    assert master.moved(8, 1e-4, dtype) == changed / master.selection.size
    assert master.moved(8, 0.0, dtype) == 0.0


def test_moved_samples_a_large_model_evenly(write_checkpoint: Write):
    folder = write_checkpoint({"big": np.ones(190_000, np.float32), "frozen": np.ones(9000, np.float32)})
    master = Master(with_scales(select(folder), [("frozen", 0.0)]), folder)
    served = np.empty(190_000, np.uint16)
    master.serve("big", 8, 1e-3, served)
    exact = float((served != 0x3F80).mean())
    # 65,536 draws: four standard errors are below 0.008.
    assert abs(master.moved(8, 1e-3, "bfloat16") - exact) < 0.008
    assert master.moved(8, 1e-3, "bfloat16") == master.moved(8, 1e-3, "bfloat16")


def test_moved_of_a_frozen_model_is_zero(folder: Path):
    assert Master(with_scales(select(folder), [("*", 0.0)]), folder).moved(1, 1.0, "float32") == 0.0


def test_the_centre_is_the_checkpoint_or_another_format_of_it(master: Master, tensors: Tensors):
    for spec in master.selection.tensors:
        kept, cast = np.empty(spec.shape, held_as(spec.dtype)), np.empty(spec.shape, held_as("bfloat16"))
        master.centre(spec.name, kept)
        master.centre(spec.name, cast)
        assert kept.tobytes() == tensors[spec.name].tobytes()
        assert cast.tobytes() == noise.to_bfloat16(master.view(spec.name)).tobytes()


def test_an_anchor_brings_the_master_back(folder: Path, master: Master, tmp_path: Path):
    master.apply(TERMS)
    digest = master.save_anchor(tmp_path / "anchor.safetensors")
    other = Master(select(folder), folder)
    other.load_anchor(tmp_path / "anchor.safetensors", digest)
    assert other.digest() == digest == master.digest()
    assert other.view("model.norm.weight").tobytes() == master.view("model.norm.weight").tobytes()


def test_an_anchor_is_a_safetensors_file_for_everyone(master: Master, tmp_path: Path):
    master.save_anchor(tmp_path / "anchor.safetensors")
    arrays = safetensors.numpy.load_file(tmp_path / "anchor.safetensors")
    assert all(arrays[spec.name].tobytes() == master.view(spec.name).tobytes() for spec in master.selection.tensors)
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_an_anchor_with_another_digest_leaves_the_master_alone(master: Master, tmp_path: Path):
    master.save_anchor(tmp_path / "anchor")
    before = master.digest()
    data = bytearray((tmp_path / "anchor").read_bytes())
    data[-1] ^= 1
    (tmp_path / "anchor").write_bytes(data)
    with pytest.raises(CheckFailedError, match=r"has digest .*, the journal says"):
        master.load_anchor(tmp_path / "anchor", before)
    assert master.digest() == before


def test_an_anchor_of_another_selection_is_refused(write_checkpoint: Write, master: Master, tmp_path: Path):
    folder = write_checkpoint({"w": np.zeros(3, np.float32)}, folder="other")
    digest = Master(select(folder), folder).save_anchor(tmp_path / "anchor")
    with pytest.raises(CheckFailedError, match="holds other tensors"):
        master.load_anchor(tmp_path / "anchor", digest)


def test_a_failed_write_leaves_the_old_anchor(master: Master, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    digest = master.save_anchor(tmp_path / "anchor")
    old = (tmp_path / "anchor").read_bytes()
    master.apply(TERMS)

    def fail(_: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        master.save_anchor(tmp_path / "anchor")
    assert (tmp_path / "anchor").read_bytes() == old
    assert digest in old.decode("latin1")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("where", ["host", "disk"])
def test_a_master_in_a_scratch_folder_leaves_no_file(folder: Path, tmp_path: Path, master: Master, where: Any):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    private = Master(select(folder), folder, where=where, scratch=scratch)
    assert list(scratch.iterdir()) == []
    assert private.digest() == master.digest()


def test_a_master_on_disk_needs_no_scratch_folder(folder: Path, master: Master):
    assert Master(select(folder), folder, where="disk").digest() == master.digest()


def test_a_scratch_folder_that_is_missing_is_refused_in_one_line(folder: Path, tmp_path: Path):
    with pytest.raises(UserError, match=r"no room for the fp32 master, 0\.00 GB in .*gone'"):
        Master(select(folder), folder, scratch=tmp_path / "gone")


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="reserves by free space here anyway")
def test_a_system_without_fallocate_looks_at_the_free_space(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delattr(os, "posix_fallocate")
    assert Master(select(folder), folder, scratch=tmp_path).nbytes > 0
    monkeypatch.setattr(memory.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10}))
    with pytest.raises(UserError, match="No space left on device"):
        Master(select(folder), folder, scratch=tmp_path)


def test_a_shared_master_is_seen_by_other_processes(folder: Path, tmp_path: Path):
    path = tmp_path / "master"
    owner = Master(select(folder), folder, share_as=path)
    owner.apply(TERMS)
    program = (
        "import sys; from pathlib import Path; from coevo.weights.master import Master; "
        "from coevo.weights.selection import select; import numpy as np\n"
        "m = Master.attach(select(Path(sys.argv[1])), Path(sys.argv[2])); print(m.digest())\n"
        "out = np.empty(16, np.uint16); m.serve('model.norm.weight', 3, 1e-2, out); print(out.tobytes().hex())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder), str(path)], capture_output=True, text=True, check=True
    )
    served = np.empty(16, np.uint16)
    owner.serve("model.norm.weight", 3, 1e-2, served)
    assert done.stdout.split() == [owner.digest(), served.tobytes().hex()]


def test_what_the_owner_applies_is_seen_by_those_attached(folder: Path, tmp_path: Path):
    owner = Master(select(folder), folder, share_as=tmp_path / "master")
    reader = Master.attach(owner.selection, tmp_path / "master")
    writer = Master.attach(owner.selection, tmp_path / "master", writable=True)
    writer.apply(TERMS)
    assert owner.digest() == reader.digest() == writer.digest()


def test_a_reader_cannot_apply(folder: Path, tmp_path: Path):
    owner = Master(select(folder), folder, share_as=tmp_path / "master")
    with pytest.raises(RuntimeError, match="attached for reading"):
        Master.attach(owner.selection, tmp_path / "master").apply(TERMS)


def test_a_shared_master_of_another_selection_is_refused(folder: Path, tmp_path: Path):
    owner = Master(select(folder), folder, share_as=tmp_path / "master")
    other = replace(owner.selection, tensors=owner.selection.tensors[1:])
    with pytest.raises(UserError, match="is not a master of this selection of 3 tensors"):
        Master.attach(other, tmp_path / "master")


@pytest.mark.parametrize("content", [None, b"", b"short"])
def test_a_file_that_is_no_master_is_refused(folder: Path, tmp_path: Path, content: bytes | None):
    if content is not None:
        (tmp_path / "master").write_bytes(content)
    with pytest.raises(UserError, match=r"cannot attach to the master|is not a master"):
        Master.attach(select(folder), tmp_path / "master")


def test_a_shared_master_that_fails_to_load_leaves_no_file(write_checkpoint: Write, tmp_path: Path):
    folder = write_checkpoint({"w": np.array([np.nan], np.float32)})
    shared = tmp_path / "shared"
    shared.mkdir()
    with pytest.raises(UserError, match="holds NaN"):
        Master(select(folder), folder, share_as=shared / "master")
    assert list(shared.iterdir()) == []


def test_a_tensor_of_no_elements_goes_through_everything(write_checkpoint: Write, tmp_path: Path):
    folder = write_checkpoint({"none": np.zeros((0, 3), np.float32), "one": np.ones((), np.float32)})
    master = Master(select(folder), folder)
    outs = storage(master.selection)
    master.serve_all(outs, 5, 1e-2)
    master.apply(TERMS)
    master.load_anchor(tmp_path / "anchor", master.save_anchor(tmp_path / "anchor"))
    assert master.moved(5, 1e-2, "float32") == 1.0
    assert outs["one"] == np.float32(1) + np.float32(1e-2) * noise.noise(5, "one", 0, 1)[0]


def test_empty_tensors_and_scalars_are_moved_like_any_other(write_checkpoint, tmp_path):
    folder = write_checkpoint({"empty": np.zeros((0, 3), np.float32), "scalar": np.array(2, np.float32)}, folder="odd")
    master = Master(select(folder), folder)
    digest = master.digest()
    master.apply([(3, 0.5)])
    assert master.digest() != digest
    assert float(master.view("scalar")) == float(
        noise.update_reference(np.array(2, np.float32), [(3, 0.5)], "scalar", 1.0)
    )
    out = np.empty((0, 3), np.float32)
    master.serve("empty", 1, 0.5, out)
    assert out.shape == master.view("empty").shape == (0, 3)
