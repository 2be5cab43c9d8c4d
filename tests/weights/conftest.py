import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

CODES = {"float64": "F64", "float32": "F32", "uint16": "BF16", "float16": "F16"}
CODES |= {"int64": "I64", "int32": "I32", "int8": "I8", "uint8": "U8"}
GOLDEN = Path(__file__).parents[1] / "golden" / "noise.json"

Write = Callable[..., Path]


@pytest.fixture(scope="session")
def golden() -> dict[str, Any]:
    return json.loads(GOLDEN.read_text())


def write_safetensors(path: Path, tensors: Mapping[str, np.ndarray], codes: Mapping[str, str]) -> None:
    header, at = {}, 0
    for name, array in tensors.items():
        header[name] = {
            "dtype": codes.get(name) or CODES[str(array.dtype)],
            "shape": list(array.shape),
            "data_offsets": [at, at + array.nbytes],
        }
        at += array.nbytes
    encoded = json.dumps(header).encode()
    path.write_bytes(len(encoded).to_bytes(8, "little") + encoded + b"".join(a.tobytes() for a in tensors.values()))


@pytest.fixture
def write_checkpoint(tmp_path: Path) -> Write:
    """Writes a model folder without coevo's help; uint16 arrays become bfloat16."""

    def write(
        tensors: Mapping[str, np.ndarray],
        config: Mapping[str, object] | None = None,
        shards: int = 1,
        codes: Mapping[str, str] | None = None,
        folder: str = "model",
    ) -> Path:
        place = tmp_path / folder
        place.mkdir()
        (place / "config.json").write_text(json.dumps(config or {"model_type": "tiny"}))
        if shards == 1:
            write_safetensors(place / "model.safetensors", tensors, codes or {})
            return place
        files = {name: f"model-{i % shards + 1:05}-of-{shards:05}.safetensors" for i, name in enumerate(tensors)}
        for file in set(files.values()):
            write_safetensors(place / file, {n: a for n, a in tensors.items() if files[n] == file}, codes or {})
        (place / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
        return place

    return write


@pytest.fixture
def tensors() -> dict[str, np.ndarray]:
    """Weights in all three formats, with signed zeros, subnormals and an infinity among them."""
    generator = np.random.default_rng(5)

    def normal(*shape: int) -> np.ndarray:
        return (generator.standard_normal(shape) * 0.02).astype(np.float32)

    half = normal(7, 5).astype(np.float16)
    half[0, :3] = [-0.0, 6e-8, np.inf]
    embedding = (normal(11, 16).view(np.uint32) >> 16).astype(np.uint16)
    embedding[0, :4] = [0x8000, 0x0000, 0x0001, 0x8001]
    single = normal(3, 4, 5)
    single[0, 0, :2] = [-0.0, 1e-42]
    return {
        "model.embed_tokens.weight": embedding,
        "model.layers.0.mlp.weight": half,
        "model.layers.0.norm.weight": single,
        "model.norm.weight": np.full(16, 0x3F80, dtype=np.uint16),
    }
