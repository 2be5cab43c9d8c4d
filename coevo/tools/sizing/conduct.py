"""From a configuration to a plan: what `coevo plan` does."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from coevo.app.blueprint import Blueprint
from coevo.errors import UserError
from coevo.host.config import RunConfig
from coevo.host.discovery import Plugins
from coevo.machine import resources as here
from coevo.records import Json
from coevo.tools.sizing import costs, memory
from coevo.tools.sizing.architecture import Architecture, architecture
from coevo.tools.sizing.constants import CONSTANTS, GB, value
from coevo.tools.sizing.deployment import Deployment, deployment, footprint_of
from coevo.tools.sizing.refusals import check_cores
from coevo.tools.sizing.rehearsal import BatchCount, Counts, rehearse
from coevo.tools.sizing.verdict import Machine, Question, Verdict, verdicts

ASSUMED_GPU = 80 * GB
ASSUMED_CORES = 32
MOST = 1_000_000


@dataclass(frozen=True, slots=True)
class Given:
    """What the user says of the machine; None: what is found here, or for GPUs that are not here, assumed.

    Attributes:
        gpus: how many.
        gpu_memory, host_memory: in GB (10^9 bytes).
        parameters: of the model.
    """

    gpus: int | None = None
    gpu_memory: float | None = None
    host_memory: float | None = None
    parameters: int | None = None


def make_plan(data: Mapping[str, Json], plugins: Plugins, given: Given) -> dict[str, Json]:
    """Everything that `coevo plan --json` prints. Nothing is started, loaded or downloaded.

    Args:
        data: the configuration as TOML data.
        plugins: already loaded ones.
        given: what the user says of the machine.

    Raises:
        UserError: the configuration is wrong, or nothing is known of the model.
    """
    blueprint = Blueprint.of(data, plugins.registries())
    config, task = blueprint.config, blueprint.make_task()
    brief = task.brief()
    counts = rehearse(blueprint, task)
    answer = blueprint.sampling(brief).max_new_tokens
    prompt = round(counts.characters / value("characters"))
    first, usual = (costs.work_of(batches, brief.max_calls, prompt, answer) for batches in (counts.first, counts.usual))
    plan = _about(config, counts, first, usual)
    if footprint_of(blueprint).remote:
        return {**plan, "model": {"name": config.model}, "served": "elsewhere", "verdicts": [], "fits": True}
    shape = architecture(config.model, given.parameters)
    found = here.gpus()
    how = deployment(blueprint, shape, counts.hand, given.gpus, found)
    machine = _machine(config, how, given, found)
    check_cores(how, machine.cores)
    return {**plan, **_sizes(config, shape, how, machine, usual)}


def _about(config: RunConfig, counts: Counts, first: costs.Work, usual: costs.Work) -> dict[str, Json]:
    return {
        "task": config.task,
        "param": config.param,
        "context": config.context,
        "generations": config.generations,
        "rollouts": {
            "first": _work(first, counts.first),
            "usual": _work(usual, counts.usual),
            "problem": counts.problem,
        },
    }


def _work(work: costs.Work, batches: Sequence[BatchCount]) -> dict[str, Json]:
    """A generation's numbers, and its batches."""
    return {**dataclasses.asdict(work), "tokens": work.tokens, "batches": [dataclasses.asdict(b) for b in batches]}


def _machine(config: RunConfig, how: Deployment, given: Given, found: Sequence[here.Gpu]) -> Machine:
    """What the plan is held against, and where each number comes from."""
    local = not given.gpus and how.devices <= len(found)
    told: list[str] = []

    def choose(what: str, said: float | None, seen: int | None, assumed: int | None) -> int | None:
        number = int(said * GB) if said is not None else seen if local else assumed
        if number is not None:
            source = "as given" if said is not None else "found here" if local else "assumed"
            told.append(f"{what} {number / GB:,.0f} GB ({source})")
        return number

    count = given.gpus if given.gpus is not None else max(len(found), 0 if local else how.devices)
    gpu_memory = None
    if how.on_gpu:
        told.append(f"GPUs {count} ({'as given' if given.gpus is not None else 'found here' if local else 'assumed'})")
        gpu_memory = choose("each", given.gpu_memory, min((g.memory for g in found), default=None), ASSUMED_GPU)
    host = choose("main memory", given.host_memory, here.host_memory(), None)
    if host is None:
        told.append("main memory not known (give --host-memory)")
    disk = here.free_disk(Path(config.runs)) if local else None
    cores = here.cores() if local else ASSUMED_CORES
    assumed = given.gpus is None and not local
    return Machine(
        gpus=count,
        gpu_memory=gpu_memory,
        host_memory=host,
        disk=disk,
        cores=cores,
        told=", ".join(told),
        assumed=assumed,
    )


def _sizes(
    config: RunConfig, shape: Architecture, how: Deployment, machine: Machine, usual: costs.Work
) -> dict[str, Json]:
    rows = memory.device_rows(shape, how, machine.gpu_memory, usual.answer)
    spent = costs.seconds(shape, how, usual, machine.cores)
    disk = costs.disk_bytes(config, shape, how, usual, spent.update)
    found = verdicts(Question(shape, how, usual, machine), disk, config.generations * spent.updates)
    return {
        "model": {"name": config.model, **dataclasses.asdict(shape)},
        "served": "here",
        "deployment": {**dataclasses.asdict(how), "devices": how.devices},
        "machine": dataclasses.asdict(machine),
        "device": [dataclasses.asdict(row) for row in rows] if how.on_gpu else [],
        "host": [dataclasses.asdict(row) for row in memory.host_rows(shape, how, rows)],
        "disk": disk,
        "network": costs.network_bytes(shape, how, usual),
        "seconds": {**dataclasses.asdict(spent), "generation": spent.generation},
        "verdicts": [_verdict(verdict) for verdict in found],
        "fits": all(verdict.fits is not False for verdict in found),
        "constants": {name: dataclasses.asdict(constant) for name, constant in CONSTANTS.items()},
    }


def _verdict(verdict: Verdict) -> dict[str, Json]:
    return {**dataclasses.asdict(verdict), "fits": verdict.fits}


def check_sizes(given: Given) -> None:
    """Refuse numbers that no machine has.

    Raises:
        UserError: which option, and what was expected.
    """
    if given.gpus is not None and not 0 <= given.gpus <= MOST:
        raise UserError(f"--gpus got {given.gpus}: expected how many the node has, or 0 for the CPU")
    for option, size in (("--gpu-memory", given.gpu_memory), ("--host-memory", given.host_memory)):
        if size is not None and not 0 < size <= MOST:
            raise UserError(f"{option} got {size}: expected a size in GB, such as 80")
