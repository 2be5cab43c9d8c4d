"""Does it fit, with the number, and what would mend it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from coevo.tools.sizing.architecture import Architecture
from coevo.tools.sizing.constants import GB
from coevo.tools.sizing.costs import Work
from coevo.tools.sizing.deployment import Deployment
from coevo.tools.sizing.memory import Row, device_rows, host_rows

STEP = 256
"""A proposed context is a multiple of it."""

SHARDS = (2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class Machine:
    """What a plan is held against. None is not known; `told` says where the numbers come from.

    Attributes:
        gpus: how many there are.
        gpu_memory, host_memory, disk: bytes.
        cores: of the processor.
        assumed: whether the number of GPUs is what the configuration wants, because nobody told how many there are.
    """

    gpus: int
    gpu_memory: int | None
    host_memory: int | None
    disk: int | None
    cores: int
    told: str
    assumed: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """One place: what it needs, what it has (None: not known), and the mend where that is not enough."""

    where: str
    needs: int
    has: int | None
    mend: str = ""

    @property
    def fits(self) -> bool | None:
        """None where it is not known what there is."""
        return None if self.has is None else self.needs <= self.has


@dataclass(frozen=True, slots=True)
class Question:
    """A model, a way to deploy it, the work of a generation and the machine: what is judged."""

    shape: Architecture
    how: Deployment
    work: Work
    machine: Machine

    def rows(self, how: Deployment) -> list[Row]:
        """The table of a device when deployed like that."""
        return device_rows(self.shape, how, self.machine.gpu_memory, self.work.answer)

    def device(self, how: Deployment) -> int:
        """Bytes that a device needs when deployed like that."""
        return self.rows(how)[-1].bytes or 0

    def host(self, how: Deployment) -> int:
        """Bytes of main memory that the node needs when deployed like that."""
        return host_rows(self.shape, how, self.rows(how))[-1].bytes or 0


def verdicts(asked: Question, disk: Mapping[str, int], seconds_of_updates: float) -> list[Verdict]:
    """Every place that could be too small: number of devices, each device, main memory, disk.

    Args:
        asked: what is judged.
        disk: bytes of the run: `run` in all, of which `anchors` times `anchor`.
        seconds_of_updates: of the whole run.
    """
    how, machine = asked.how, asked.machine
    found: list[Verdict] = []
    if how.on_gpu:
        less = "fewer workers" if how.shards <= machine.gpus else "less tensor parallelism"
        few = f"{less}, or a node of {how.devices} GPUs" if how.devices > machine.gpus else ""
        found.append(Verdict("number of GPUs", how.devices, machine.gpus, few))
        has = None if machine.gpu_memory is None else how.usable(machine.gpu_memory)
        where = devices(how.devices, machine.gpus)
        found.append(_judged(where, asked.device, has, asked))
    found.append(_judged("main memory", asked.host, machine.host_memory, asked))
    needs = disk["run"]
    short = machine.disk is not None and needs > machine.disk
    mend = _disk_mend(disk, machine.disk or 0, seconds_of_updates) if short else ""
    return [*found, Verdict("disk", needs, machine.disk, mend)]


def devices(needed: int, there: int) -> str:
    """What the devices of a plan are called."""
    if needed == 1:
        return "the GPU"
    return f"each of {needed} GPUs" if needed <= there else "each GPU"


def _judged(where: str, measure: Callable[[Deployment], int], has: int | None, asked: Question) -> Verdict:
    needs = measure(asked.how)
    if has is None or needs <= has:
        return Verdict(where, needs, has)
    found = list(_mends(asked, lambda changed: measure(changed) <= has))
    return Verdict(where, needs, has, " or ".join(found) or f"{needs / GB:,.1f} GB; no single option is enough")


def _mends(asked: Question, enough: Callable[[Deployment], bool]) -> Iterator[str]:
    """Every single change of the deployment that is `enough`."""
    how, shape = asked.how, asked.shape
    if how.master != "host" and how.on_gpu and enough(dataclasses.replace(how, master="host")):
        yield "master = 'host'"
    if how.master != "disk" and enough(dataclasses.replace(how, master="disk")):
        yield f"master = 'disk' ({4 * shape.parameters * how.masters / GB:,.1f} GB there)"
    for shards in SHARDS if how.on_gpu else ():
        if shards > asked.machine.gpus and not asked.machine.assumed:
            break
        divides = shape.heads is None or shape.heads % shards == 0
        workers = max(1, min(how.devices, asked.machine.gpus) // shards)
        changed = dataclasses.replace(how, shards=shards, workers=workers)
        if shards > how.shards and divides and enough(changed):
            engine = "" if how.cuts else "an engine that cuts tensors over devices, with "
            yield f"{engine}tensor parallelism {shards} ({workers} worker{'s' if workers > 1 else ''})"
            break
    for tokens in range((how.context or 0) // STEP * STEP, STEP - 1, -STEP):
        if tokens < (how.context or 0) and enough(dataclasses.replace(how, context=tokens)):
            yield f"a context of {tokens:,} tokens instead of {how.context:,}"
            break
    for tokens in range((how.cache_tokens or 0) // STEP * STEP, STEP - 1, -STEP):
        if tokens < (how.cache_tokens or 0) and enough(dataclasses.replace(how, cache_tokens=tokens)):
            yield f"cache_tokens = {tokens} instead of {how.cache_tokens}"
            break


def _disk_mend(disk: Mapping[str, int], free: int, seconds: float) -> str:
    without = disk["run"] - disk["anchors"] * disk["anchor"]
    if not disk["anchors"] or without > free:
        return f"write the run where {disk['run'] / GB:,.1f} GB are free: --set runs=DIR"
    room = (free - without) // disk["anchor"]
    return f"fewer anchors: --set anchor_seconds={int(seconds // (room + 1)) + 1}"
