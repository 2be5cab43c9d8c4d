"""The canary: proof at start that an engine generates with exactly the weights it was told to.

Engines pack, fuse and copy weights, and one that goes on generating with old ones raises nothing: a run would
look like noise. So every engine that adapts is asked before its first rollout:

1. A member is served and every selected tensor is read back and compared, bit by bit, with the numpy
   definition of what that member is.
2. A tensor that cannot be read back is perturbed alone, by a tenth of its rms: the logits must change. So is one
   that can, but that the engine multiplies with a copy of, and a tied tensor, in the rows that the prompt does not
   look up: a head that was copied would not notice.
3. The centre is served again: everything read back, and the logits of prefill and decode, must be the bits
   they were before (logits only if the engine repeats itself at all, which it is asked first).

Nothing is counted and nothing is trusted that the engine says about itself. An engine that fails is refused
with the names of the tensors.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from coevo.errors import CheckFailedError
from coevo.optional import offers
from coevo.records import Perturbation
from coevo.weights import noise
from coevo.weights.dtypes import Stored, dtype_of
from coevo.weights.master import Master
from coevo.weights.selection import TensorSpec
from coevo.weights.stored import shortened

MEMBER = Perturbation(seed=0x636F65766F, sigma=0.0625)
"""The member that is served: large enough to change the bits of every tensor of ordinary size."""

WHOLE = 1 << 29
"""Up to so many elements the numpy definition is computed for all of them; some 100 M a second and core."""

_PIECE = 1 << 17
_SAMPLED = 8


class Inspectable(Protocol):
    """What the canary needs of an engine. Names are checkpoint names."""

    def serve(self, perturbation: Perturbation | None) -> None:
        """Serve a member, or the centre."""
        ...

    def read_served(self, name: str) -> Stored | None:
        """The tensor that generates, as it is now; None where the engine has it in no readable form."""
        ...

    def serve_alone(self, name: str, seed: int, sigma: float) -> None:
        """Serve the centre with one tensor perturbed. Only called for what reading back does not prove."""
        ...

    def logits(self) -> Mapping[str, NDArray[Any]]:
        """Logits for a fixed prompt, from scratch: `prefill` after it and `decode` one token later.

        Bits that are equal where the logits are, such as a digest of them, do as well.
        """
        ...


class Looking(Protocol):
    """What an engine may offer besides, where weights cannot all be read back."""

    def serve_unseen(self, name: str, seed: int, sigma: float) -> None:
        """As `serve_alone`, but for the rows that the fixed prompt looks up in an embedding."""
        ...

    def prefill(self) -> NDArray[Any]:
        """`logits()["prefill"]` alone."""
        ...


@dataclass(frozen=True, slots=True)
class Canary:
    """What was proved.

    Attributes:
        read_back: tensors compared with the definition.
        reached: tensors that cannot be read back, or have a copy, and whose perturbation changed the logits, now or
            before.
        unproved: tensors of neither kind: no prompt of this length reaches them (experts).
        repeats: whether equal questions gave equal logits.
        seconds: how long it took.
        proved: names of what was reached, to be kept for the next start.
    """

    read_back: int
    reached: int
    unproved: tuple[str, ...]
    repeats: bool
    seconds: float
    proved: tuple[str, ...] = ()


def run_canary(
    engine: Inspectable,
    master: Master,
    *,
    may_be_idle: Callable[[str], bool] = lambda name: "expert" in name,
    proved: Collection[str] = (),
    copied: Collection[str] = (),
) -> Canary:
    """Ask an engine all questions and leave it at the centre.

    Args:
        engine: what serves.
        master: what it serves from; its selection is what must be proved.
        may_be_idle: whether a tensor may take no part in an answer, such as an expert that is not chosen.
        proved: `Canary.proved` of an earlier start of the same engine on the same base, not asked again.
        copied: tensors that can be read back, but that may not be what generates: the engine has a copy.

    Raises:
        CheckFailedError: the engine generates with something else; the message names the tensors.
    """
    started = time.monotonic()
    specs = master.selection.tensors
    engine.serve(None)
    first, again = engine.logits(), engine.logits()
    repeats = _same(first, again)
    hidden = {spec.name for spec in specs if engine.read_served(spec.name) is None}
    readable = [spec for spec in specs if spec.name not in hidden]
    # A frozen one never changes, and a tied one is asked about by its other names.
    packed = [s for s in specs if s.scale and (s.name in hidden or (s.name in copied and not s.aliases))]
    _require_equal(readable, engine, master, None, "at the centre")
    engine.serve(MEMBER)
    _require_equal(readable, engine, master, MEMBER, "of a perturbed member")
    if readable and repeats and _same(first, engine.logits()):
        raise CheckFailedError(
            "canary: the engine holds a member's weights and answers with the centre's; it keeps a copy of the weights"
        )
    asked = [_Question(spec.name, spec, engine.serve_alone) for spec in packed]
    if offers(engine, Looking):
        unseen = engine.serve_unseen
        asked += [_Question(f"{s.name} as {s.aliases[0]}", s, unseen) for s in specs if s.aliases and s.scale]
    unproved = _reach([q for q in asked if q.name not in proved], engine, master, first, may_be_idle)
    engine.serve(None)
    _require_equal(readable, engine, master, None, "of the centre after a member")
    if repeats and not _same(first, engine.logits()):
        raise CheckFailedError("canary: the centre's logits differ after a member was served; the engine keeps state")
    reached = tuple(question.name for question in asked if question.name not in unproved)
    return Canary(
        read_back=len(readable),
        reached=len(reached),
        unproved=unproved,
        repeats=repeats,
        seconds=time.monotonic() - started,
        proved=reached,
    )


@dataclass(frozen=True, slots=True)
class _Question:
    """Do new weights of a tensor reach the answers? `serve` perturbs it."""

    name: str
    spec: TensorSpec
    serve: Callable[[str, int, float], None]


def wrong_tensors(
    specs: Iterable[TensorSpec],
    read: Callable[[str], Stored | None],
    master: Master,
    perturbation: Perturbation | None,
) -> list[str]:
    """Names of the tensors whose served bits are not what the numpy definition says.

    Every tensor is compared. Up to `WHOLE` elements in all, every element is; beyond that the first and last
    piece of each tensor and a few between, and the rest with the compiled kernel, which is the same
    definition and is compared with it by the tests.
    """
    chosen = list(specs)
    thorough = sum(spec.size for spec in chosen) <= WHOLE
    jobs: list[tuple[TensorSpec, NDArray[Any], int]] = []
    wrong: set[str] = set()
    for spec in chosen:
        served = read(spec.name)
        if served is None or served.shape != spec.shape:
            wrong.add(spec.name)
            continue
        flat = np.ascontiguousarray(served).reshape(-1)
        if not thorough and not _equals_kernel(spec, flat, master, perturbation):
            wrong.add(spec.name)
        jobs += [(spec, flat, start) for start in _starts(spec.size, thorough)]

    def check(job: tuple[TensorSpec, NDArray[Any], int]) -> str:
        spec, flat, start = job
        return "" if _equals_definition(spec, flat, start, master, perturbation) else spec.name

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        wrong.update(name for name in pool.map(check, jobs) if name)
    return sorted(wrong)


def _starts(size: int, thorough: bool) -> list[int]:
    starts = list(range(0, size, _PIECE))
    if thorough or len(starts) <= _SAMPLED:
        return starts
    return [starts[round(i * (len(starts) - 1) / (_SAMPLED - 1))] for i in range(_SAMPLED)]


def _equals_definition(
    spec: TensorSpec, flat: NDArray[Any], start: int, master: Master, perturbation: Perturbation | None
) -> bool:
    stop = min(start + _PIECE, spec.size)
    values = master.view(spec.name).reshape(-1)[start:stop]
    dtype = dtype_of(flat)
    if perturbation is None:
        expected = noise.cast(values, dtype)
    else:
        expected = noise.served_reference(
            values, perturbation.seed, spec.name, perturbation.sigma, spec.scale, dtype, start=start
        )
    return np.array_equal(_bits(expected), _bits(flat[start:stop]))


def _equals_kernel(spec: TensorSpec, flat: NDArray[Any], master: Master, perturbation: Perturbation | None) -> bool:
    out: Any = np.empty_like(flat).reshape(spec.shape)
    if perturbation is None:
        master.centre(spec.name, out)
    else:
        master.serve(spec.name, perturbation.seed, perturbation.sigma, out)
    return np.array_equal(_bits(out.reshape(-1)), _bits(flat))


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    return array.view(f"u{array.itemsize}")


def _require_equal(
    specs: Iterable[TensorSpec], engine: Inspectable, master: Master, perturbation: Perturbation | None, what: str
) -> None:
    if wrong := wrong_tensors(specs, engine.read_served, master, perturbation):
        raise CheckFailedError(
            f"canary: {len(wrong)} of {len(master.selection.tensors)} tensors {what} are not the weights "
            f"that were served: {shortened(wrong)}; the engine generates with others"
        )


def _reach(
    questions: Iterable[_Question],
    engine: Inspectable,
    master: Master,
    centre: Mapping[str, NDArray[Any]],
    may_be_idle: Callable[[str], bool],
) -> tuple[str, ...]:
    """Perturbs each tensor alone; names those that nothing was proved of."""
    silent: list[str] = []
    prefill = engine.prefill if offers(engine, Looking) else lambda: engine.logits()["prefill"]
    for question in questions:
        values, scale = master.view(question.spec.name), question.spec.scale
        rms = float(np.sqrt(np.mean(np.square(values, dtype=np.float64)))) or 1.0
        question.serve(question.spec.name, MEMBER.seed, 0.1 * rms / scale)
        if _equal_bits(centre["prefill"], prefill()):
            silent.append(question.name)
    if dead := [name for name in silent if not may_be_idle(name)]:
        raise CheckFailedError(
            f"canary: new weights of {len(dead)} tensors do not reach the answers: {shortened(dead)}; "
            "the engine generates with others"
        )
    return tuple(silent)


def _same(one: Mapping[str, NDArray[Any]], other: Mapping[str, NDArray[Any]]) -> bool:
    return one.keys() == other.keys() and all(_equal_bits(one[key], other[key]) for key in one)


def _equal_bits(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and np.array_equal(_bits(one), _bits(other))
