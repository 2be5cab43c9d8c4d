"""Bytes on every device and in main memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coevo.tools.sizing.architecture import Architecture
from coevo.tools.sizing.constants import value
from coevo.tools.sizing.deployment import Deployment

UNKNOWN = "unknown: the model's shape or context is not known"


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: bytes, None where they are not known, and what they are made of."""

    what: str
    bytes: int | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Cache:
    """The key/value cache of one device. `sequences` is how many full-length answers it holds, 0 where none fits."""

    bytes: int
    sequences: int


def activations(shape: Architecture, how: Deployment, tokens: int) -> int | None:
    """Bytes of serving: one layer's activations for the prompt tokens of a step, and the logits of all answers."""
    if shape.hidden is None or shape.intermediate is None or shape.vocab is None:
        return None
    layer = tokens * (4 * shape.hidden + 2 * shape.intermediate // how.shards) * how.width
    return layer + how.sequences * shape.vocab // how.shards * 4


def prompt_tokens(how: Deployment, answer: int) -> int:
    """Prompt tokens that a worker computes in one step at most."""
    if how.cache_tokens is None:
        return int(value("prefill"))
    whole = how.sequences * max(1, (how.context or how.cache_tokens) - answer)
    return min(how.cache_tokens, whole)


def sequence_bytes(shape: Architecture, how: Deployment) -> int | None:
    """Bytes of an answer of full length on one device; None where the shape or the context is not known."""
    token = shape.kv_bytes(how.width, how.shards)
    if token is None or how.context is None:
        return None
    return token * how.context + shape.state_bytes(how.width, how.shards)


def cache(shape: Architecture, how: Deployment, left: int | None) -> Cache | None:
    """The cache for all answers at once, or for as many as `left` bytes hold; at least one is always needed.

    Returns:
        None where the shape or the context is not known.
    """
    each = sequence_bytes(shape, how)
    if each is None or how.context is None:
        return None
    if how.cache_bytes is not None:
        return Cache(how.cache_bytes, min(how.sequences, how.cache_bytes // each))
    if how.cache_tokens is not None:
        tokens = max(min(how.cache_tokens, how.sequences * how.context), how.context)
        token = shape.kv_bytes(how.width, how.shards) or 0
        state = how.sequences * shape.state_bytes(how.width, how.shards)
        return Cache(tokens * token + state, max(1, tokens // how.context))
    fitting = how.sequences if left is None else min(how.sequences, max(0, left) // each)
    return Cache(max(1, fitting) * each, fitting)


def device_rows(shape: Architecture, how: Deployment, memory: int | None, answer: int) -> list[Row]:
    """What lies on each device, the sum last.

    Args:
        shape: of the model.
        how: where it is.
        memory: bytes of a device; None on the CPU or where it is not known: the cache is then for all answers.
        answer: tokens of an answer at most.
    """
    weights = -(-shape.parameters * how.width // how.shards)
    step = prompt_tokens(how, answer)
    serving = activations(shape, how, step)
    piece = _piece(shape, how)
    runtime = int(value("runtime")) if how.on_gpu else 0
    master = -(-shape.parameters * 4 // how.shards) if how.master == "device" and how.on_gpu else None
    fixed = weights + (serving or 0) + piece + runtime + (master or 0)
    held = cache(shape, how, None if memory is None else how.usable(memory) - fixed)
    cached = None if held is None else held.bytes
    told = f"{step:,} prompt tokens, one layer, logits"
    rows = [
        Row("weights, served", weights, f"{how.dtype}, {how.width} bytes x parameters / {how.shards}"),
        Row("key/value cache", cached, _cached(how, held)),
        Row("activations", serving, UNKNOWN if serving is None else told),
    ]
    if how.on_gpu:
        rows.append(Row("noise on its way", piece, "two pieces of the master, at most 256 MB each; one tensor"))
        rows.append(Row("runtime", runtime, "CUDA context, libraries, graphs"))
    if master is not None:
        rows.append(Row("fp32 master", master, f"master = 'device': 4 bytes x parameters / {how.shards}"))
    return [*rows, total(rows)]


def total(rows: Sequence[Row]) -> Row:
    """The sum of a table."""
    unknown = any(row.note == UNKNOWN for row in rows)
    note = "at least: something is unknown" if unknown else ""
    return Row("sum", sum(row.bytes or 0 for row in rows), note)


def _piece(shape: Architecture, how: Deployment) -> int:
    """Pieces of the fp32 master, one of them on its way, and the largest tensor as it is served, whole.

    On the CPU the kernel reads the master where it is.
    """
    if not how.on_gpu:
        return 0
    pieces = min(2 * int(value("piece")), 4 * shape.parameters)
    return pieces + (shape.largest_tensor() or 0) * how.width


def _cached(how: Deployment, held: Cache | None) -> str:
    if held is None or how.context is None:
        return UNKNOWN
    if how.cache_tokens is not None:
        return f"{how.sequences} answers at once, at most {how.cache_tokens:,} tokens or one of {how.context:,}"
    if held.sequences < how.sequences:
        return f"room for {held.sequences} of {how.sequences} answers of {how.context:,} tokens; the others wait"
    return f"{held.sequences} answers of {how.context:,} tokens at once"


def host_rows(shape: Architecture, how: Deployment, device: Sequence[Row]) -> list[Row]:
    """What lies in main memory of the node; on the CPU also what would lie on a device, for every worker."""
    rows: list[Row] = []
    if not how.on_gpu:
        copies = how.workers * how.shards
        rows += [Row(r.what, None if r.bytes is None else r.bytes * copies, r.note) for r in device[:-1]]
    else:
        pinned = 2 * how.devices * int(value("piece"))
        rows.append(Row("staging", pinned, "two pinned pieces of at most 256 MB a device"))
    if how.master != "disk" and not (how.master == "device" and how.on_gpu):
        once = "once a node" if how.masters == 1 else f"for each of {how.masters} engines"
        rows.insert(0, Row("fp32 master", 4 * shape.parameters * how.masters, f"4 bytes x parameters, {once}"))
    elif how.master == "device":
        told = "the first copy, from which devices are filled"
        rows.insert(0, Row("fp32 master", 4 * shape.parameters * how.masters, told))
    processes = how.devices or how.workers * how.shards
    running = processes * int(value("process"))
    rows.append(Row("processes", running, f"{processes} with their libraries"))
    return [*rows, total(rows)]
