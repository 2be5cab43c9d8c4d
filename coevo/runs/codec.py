"""Records to JSON and back."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, cast

from coevo.records import Json, Provenance, Rollout, Step, Trajectory
from coevo.reports import BatchReport, Best


def dumps(value: Json, *, indent: int | None = None) -> str:
    """`value` as JSON text that can be written as UTF-8, whatever a model said: a lone surrogate is escaped.

    Raises:
        ValueError: a number that is not finite.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    return text if _is_utf8(text) else json.dumps(value, allow_nan=False, indent=indent)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def to_json(record: object) -> dict[str, Json]:
    """A record as plain JSON; `seconds` moves under `time`, seeds become 16 hex digits."""
    plain = dataclasses.asdict(cast(Any, record))
    return cast(dict[str, Json], _dress(plain))


_SEED_KEYS = frozenset({"seed", "sampling_seed"})
_OPAQUE = frozenset({"metrics", "artifacts", "data", "components"})  # a plugin's own keys stay as they are


def _dress(value: Json) -> Json:
    if isinstance(value, dict):
        items = cast(dict[str, Json], value)
        out: dict[str, Json] = {}
        for key, item in items.items():
            if key == "seconds":
                out.setdefault("time", {})["seconds"] = item
            elif key in _SEED_KEYS:
                out[key] = f"{item:016x}"
            elif key in _OPAQUE:
                out[key] = item
            else:
                out[key.rstrip("_")] = _dress(item)
        return out
    if isinstance(value, list | tuple):
        return [_dress(item) for item in cast(list[Json], value)]
    return value


def rollout_from_json(data: Mapping[str, Json]) -> Rollout:
    """The inverse of `to_json` for a `Rollout`."""
    provenance: dict[str, Any] = {
        key: int(item, 16) if key in _SEED_KEYS else item for key, item in data["provenance"].items()
    }
    steps = tuple(_step_from_json(step) for step in data["trajectory"]["steps"])
    return Rollout(
        provenance=Provenance(**provenance),
        status=data["status"],
        return_=data["return"],
        trajectory=Trajectory(steps),
        credit=data["credit"],
        metrics=data["metrics"],
        artifacts=data["artifacts"],
        prompt_tokens=data["prompt_tokens"],
        completion_tokens=data["completion_tokens"],
        seconds=data["time"]["seconds"],
    )


def _step_from_json(step: Mapping[str, Json]) -> Step:
    fields = dict(step)
    for name in ("messages", "prompt_ids", "completion_ids", "generated_mask", "logprobs", "tokens"):
        fields[name] = None if fields.get(name) is None else tuple(fields[name])
    return Step(**fields)


def best_from_json(data: Mapping[str, Json] | None) -> Best | None:
    """The inverse of `to_json` for a `Best`."""
    return None if data is None else Best(**{("return_" if k == "return" else k): v for k, v in data.items()})


def report_from_json(data: Mapping[str, Json]) -> BatchReport:
    """The inverse of `to_json` for a `BatchReport`; keys that are not its own are left out."""
    names = {field.name for field in dataclasses.fields(BatchReport)}
    own = {key: value for key, value in data.items() if key in names}
    own |= {
        "best": best_from_json(data["best"]),
        "objectives": tuple(data["objectives"]),
        "seconds": data["time"]["seconds"],
    }
    return BatchReport(**own)
