"""`replay` and `export` on a real master: digests checked, the folder whole, nothing half written."""

import json
from pathlib import Path

import checkpoint_engine
import numpy as np
import pytest

from coevo.errors import UserError
from coevo.models.catalogue import resolve
from coevo.weights.digest import digest_of
from coevo.weights.stored import open_checkpoint

ENGINE = str(Path(checkpoint_engine.__file__))


@pytest.fixture(params=[False, True], ids=["single", "shards"])
def base(request):
    return checkpoint_engine.save_checkpoint(Path("base"), shards=request.param)


@pytest.fixture
def run(coevo, small, base):
    options = ["--plugin", ENGINE, "--engine", "checkpoint", "--model", str(base.absolute())]
    code, _, said = coevo("run", *small, *options, "--generations", "3", "--population", "4", "--name", "a", "--quiet")
    assert (code, said) == (0, "")
    return "a"


def test_replay_verifies_a_line_for_every_batch(coevo, run):
    code, out, _ = coevo("replay", run)
    assert code == 0
    assert out.count("verified\n") == 6
    code, out, _ = coevo("replay", run, "--json")
    found = json.loads(out)
    shown = json.loads(coevo("show", run, "--json")[1])
    assert code == 0
    assert (found["verified"], found["batches"]) == (True, 6)
    assert found["weights_digest"] == shown["weights_digest"] != shown["base_digest"]


def test_replay_at_a_generation_gives_the_weights_of_then(coevo, run):
    digests = [json.loads(coevo("replay", run, "--json", "--at", at)[1])["weights_digest"] for at in "012"]
    lines = [json.loads(line) for line in Path("runs/a/journal.jsonl").read_text().splitlines()]
    assert digests == [line["digest"] for line in lines if line["kind"] == "batch"][1::2]


def test_replay_names_the_first_batch_that_differs(coevo, run):
    # Other base weights, everything else in order: the journal's own checksums cannot tell.
    config = Path("runs/a/run.json")
    changed = config.read_text().replace('"scale": 1.0', '"scale": 0.5', 1)
    config.write_text(changed)
    code, out, said = coevo("replay", run, "--json")
    assert code == 1
    assert json.loads(out)["verified"] is False
    assert said.startswith("coevo: batch 1 of generation 0 (fixed): replay gives ")
    assert said.count("\n") == 1


def test_replay_notices_a_changed_journal(coevo, run):
    journal = Path("runs/a/journal.jsonl")
    journal.write_text(journal.read_text().replace('"sigma": 0.3', '"sigma": 0.4', 1))
    code, _, said = coevo("replay", run)
    assert code == 1
    assert "differs from its checksum" in said


def test_export_is_the_base_folder_with_other_weights(coevo, run, base):
    code, out, said = coevo("export", run, "--out", "new/model", "--json")
    assert (code, said) == (0, "")
    written, before, after = json.loads(out), open_checkpoint(base), open_checkpoint(Path("new/model"))
    assert list(after) == list(before)
    assert {n: (t.code, t.shape, t.file.name) for n, t in after.items()} == {
        n: (t.code, t.shape, t.file.name) for n, t in before.items()
    }
    assert written["dtype"] == "bfloat16, float32"
    assert (after["b.weight"].read() == after["head.weight"].read()).all()
    assert (after["b.weight"].read() != before["b.weight"].read()).any()
    assert _bytes(after["steps"]) == _bytes(before["steps"])
    assert sorted(p.name for p in Path("new/model").iterdir()) == sorted(
        [*(p.name for p in base.iterdir()), "coevo-export.json"]
    )
    assert [p.name for p in Path("new").iterdir()] == ["model"]


def test_an_export_brings_what_tokenizer_and_generation_need_and_nothing_of_other_weights(coevo, run, base):
    (base / "chat_template.jinja").write_text("{{ messages }}")
    (base / "additional_chat_templates").mkdir()
    (base / "additional_chat_templates" / "tools.jinja").write_text("{{ tools }}")
    (base / "pytorch_model.bin").touch()
    (base / "pytorch_model.bin.index.json").write_text("{}")
    (base / "onnx").mkdir()
    (base / "onnx" / "model.onnx").touch()
    coevo("export", run, "--out", "new")
    made = {str(path.relative_to("new")) for path in Path("new").rglob("*") if path.is_file()}
    wanted = {"config.json", "tokenizer.json", "generation_config.json", "chat_template.jinja"}
    weights = {path.name for path in base.iterdir() if "safetensors" in path.name}
    assert made == wanted | weights | {"additional_chat_templates/tools.jinja", "coevo-export.json"}


def _bytes(entry):
    return entry.file.read_bytes()[entry.begin : entry.end]


def test_an_fp32_export_has_the_digest_of_the_run(coevo, run):
    coevo("export", run, "--out", "fp32", "--dtype", "float32", "--at", "1")
    note = json.loads(Path("fp32/coevo-export.json").read_text())
    assert json.loads(Path("fp32/config.json").read_text())["dtype"] == "float32"
    stored = open_checkpoint(Path("fp32"))
    assert {stored[name].code for name in checkpoint_engine.SHAPES} == {"F32"}
    assert digest_of({name: stored[name].read() for name in ("b.weight", "c.weight")}) == note["weights_digest"]


def test_an_export_that_fails_leaves_nothing(coevo, run, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("coevo.models.export.write_safetensors", full)
    code, _, said = coevo("export", run, "--out", "new")
    assert (code, said) == (1, "coevo: export to 'new' failed: No space left on device\n")
    assert not [p for p in Path().iterdir() if "new" in p.name]


@pytest.mark.parametrize("base", [True], ids=["shards"], indirect=True)
def test_every_command_refuses_a_model_that_engines_would_read_differently(coevo, small, run, base):
    (base / "model.safetensors").write_bytes(next(base.glob("model-*.safetensors")).read_bytes())
    said = "holds 'model.safetensors', which transformers loads, and 'model.safetensors.index.json'"
    adapting = ["--plugin", ENGINE, "--engine", "checkpoint", "--model", str(base.absolute())]
    for command in (
        ["run", *small, *adapting, "--name", "b"],
        ["plan", "--model", str(base)],
        ["replay", run],
        ["export", run, "--out", "new"],
    ):
        code, _, error = coevo(*command)
        assert (code, said in error, error.count("\n")) == (2, True, 1), (command, error)
    with pytest.raises(UserError, match="which transformers loads"):
        resolve(str(base))  # what doctor asks first


def test_a_folder_with_something_in_it_is_refused(coevo, run):
    Path("full").mkdir()
    Path("full/x").touch()
    Path("empty").mkdir()
    assert coevo("export", run, "--out", "full") == (
        2,
        "",
        "coevo: cannot export to 'full': it is not empty; give a folder that does not exist\n",
    )
    assert coevo("export", run, "--out", "empty")[0] == 0


def test_a_run_without_weights_has_nothing_to_replay(coevo, small):
    coevo("run", *small, "--generations", "1", "--name", "n", "--quiet")
    code, _, said = coevo("replay", "n")
    assert (code, said) == (
        2, "coevo: run 'n' has no weights to rebuild: its engine left no list of tensors in run.json, "
        "as engines do that adapt a checkpoint\n"
    )  # fmt: skip


def test_an_exported_tiny_llama_loads_and_differs_as_the_master_says(tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from tiny_llama import save_tiny_llama

    from coevo.models.export import write_model
    from coevo.weights.master import Master
    from coevo.weights.selection import LoadedTensor, select

    base, out = save_tiny_llama(tmp_path / "base"), tmp_path / "out"
    out.mkdir()
    loaded = {n: LoadedTensor(entry.shape) for n, entry in open_checkpoint(base).items()}
    master = Master(select(base, loaded), base)
    master.apply([(7, 0.5)])
    assert write_model(master, base, out) == "bfloat16"
    model = transformers.AutoModelForCausalLM.from_pretrained(out, dtype="auto")
    transformers.AutoTokenizer.from_pretrained(out)
    assert model.dtype == torch.bfloat16
    for name, tensor in model.named_parameters():
        expected = np.empty(tuple(tensor.shape), np.uint16)
        master.centre(name, expected)
        assert (tensor.detach().view(torch.int16).numpy().view(np.uint16) == expected).all()
