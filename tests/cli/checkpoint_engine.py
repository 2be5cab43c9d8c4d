"""A plugin with an engine on a real checkpoint and a real master, but no model: its answers are its weights.

It makes runs that `replay` and `export` can be tried on in milliseconds, without torch.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np

import coevo
from coevo.models.catalogue import resolve
from coevo.weights.master import Master
from coevo.weights.noise import from_bfloat16
from coevo.weights.selection import LoadedTensor, select

SHAPES = {"b.weight": (4, 3), "c.weight": (5,), "head.weight": (4, 3)}


def save_checkpoint(folder: Path, *, shards: bool = False) -> Path:
    """A folder with two bf16 tensors, one of them under two names, an fp32 one and an integer buffer."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "none", "dtype": "bfloat16"}))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "generation_config.json").write_text("{}")
    draw = np.random.default_rng(0)
    b = draw.integers(0x3F00, 0x3F80, 12, dtype=np.uint16).tobytes()
    tensors = {
        "b.weight": ("BF16", (4, 3), b),
        "head.weight": ("BF16", (4, 3), b),
        "c.weight": ("F32", (5,), draw.normal(size=5).astype(np.float32).tobytes()),
        "steps": ("I64", (2,), np.array([3, 4]).tobytes()),
    }
    if not shards:
        write(folder / "model.safetensors", tensors)
        return folder
    places = {name: f"model-{1 + (name == 'c.weight')}-of-2.safetensors" for name in tensors}
    for file in sorted(set(places.values())):
        write(folder / file, {name: tensors[name] for name in tensors if places[name] == file})
    index = {"metadata": {"total_size": 0}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def write(path, tensors):
    header, at = {}, 0
    for name, (code, shape, data) in tensors.items():
        header[name] = {"dtype": code, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    encoded = json.dumps(header).encode()
    path.write_bytes(len(encoded).to_bytes(8, "little") + encoded + b"".join(data for *_, data in tensors.values()))


class Policy:
    def __init__(self, engine, perturbation):
        self.engine, self.perturbation = engine, perturbation
        self.id = repr(perturbation)

    async def complete(self, requests):
        served = np.empty((4, 3), np.uint16)
        p = self.perturbation
        self.engine.master.serve("b.weight", p and p.seed, p.sigma if p else 0.0, served)
        total = float(from_bfloat16(served).sum())
        return [coevo.Completion(repr(total + request.seed % 97 / 1e4), (1, 2), (3,), "stop") for request in requests]


class CheckpointEngine:
    def __init__(self, model: str = ""):
        self.capabilities = coevo.Capabilities(adapts=True)
        self.base = Path(resolve(model))
        loaded = {name: LoadedTensor(shape) for name, shape in SHAPES.items() if name != "head.weight"}
        loaded["b.weight"] = LoadedTensor((4, 3), ("head.weight",))
        self.master = Master(select(self.base, loaded), self.base)

    @asynccontextmanager
    async def lease(self, perturbation):
        yield Policy(self, perturbation)

    def apply(self, update):
        self.master.apply(update.terms)

    def digest(self):
        return self.master.digest()

    def export(self, path, dtype=None):
        raise NotImplementedError

    def record(self):
        return {"base": str(self.base), "selection": self.master.selection.to_json()}


@coevo.hookimpl
def register_engines(engines):
    engines.register("checkpoint", CheckpointEngine)
