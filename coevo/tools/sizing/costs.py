"""Disk, network and time of a generation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coevo.host.config import RunConfig
from coevo.tools.sizing.architecture import Architecture
from coevo.tools.sizing.constants import value
from coevo.tools.sizing.deployment import Deployment
from coevo.tools.sizing.rehearsal import BatchCount

SEED_AND_SIGMA = 16
SEED_AND_COEFFICIENT = 16
DIGEST = 64
"""Bytes that cross the network: two numbers for a member, two for a term of an update, a digest that is compared."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a generation asks for, in numbers.

    Attributes:
        rollouts, calls: at most.
        leases: members served, over all batches.
        updates: adapting batches; `terms` are the members in them.
        prompt, answer: tokens of a prompt (about) and of an answer (at most).
        hand: requests of a policy in a batch at most.
    """

    rollouts: int
    calls: int
    leases: int
    updates: int
    terms: int
    prompt: int
    answer: int
    hand: int

    @property
    def tokens(self) -> int:
        """Prompt and answer tokens, at most."""
        return self.calls * (self.prompt + self.answer)


def work_of(batches: Sequence[BatchCount], max_calls: int, prompt: int, answer: int) -> Work:
    """A generation's batches as one sum."""
    rollouts = sum(batch.rollouts for batch in batches)
    adapting = [batch for batch in batches if batch.adapt]
    return Work(
        rollouts=rollouts,
        calls=rollouts * max_calls,
        leases=sum(batch.members for batch in batches),
        updates=len(adapting),
        terms=sum(batch.members for batch in adapting),
        prompt=prompt,
        answer=answer,
        hand=max((batch.hand for batch in batches), default=0),
    )


@dataclass(frozen=True, slots=True)
class Seconds:
    """Estimated seconds: one member made ready, one update, and a generation by its parts."""

    serve: float
    update: float
    noise: float
    rollouts: float
    updates: float

    @property
    def generation(self) -> float:
        """All of them."""
        return self.noise + self.rollouts + self.updates


def seconds(shape: Architecture, how: Deployment, work: Work, cores: int) -> Seconds:
    """Time of a generation: bytes and operations over what the hardware moves and does."""
    serve, update = serve_seconds(shape, how, cores), update_seconds(shape, how, work, cores)
    rollouts = work.calls * work.answer / (token_rate(shape, how, work) * how.workers)
    noise = serve * -(-work.leases // how.workers)
    return Seconds(serve, update, noise, rollouts, work.updates * update)


def serve_seconds(shape: Architecture, how: Deployment, cores: int) -> float:
    """One member made ready on one worker: the master read once, noise added, the served numbers written.

    On a GPU either the host's cores make what is sent, or the master is sent and the device makes it: the faster way.
    Every device of a worker gets all tensors, of which it keeps its part.
    """
    on_host = shape.parameters / (value("cpu_serve") * cores / (how.workers * how.shards))
    if not how.on_gpu:
        return on_host
    if how.master == "device":
        return (4 + how.width) * shape.parameters / how.shards / value("gpu_bandwidth")
    if how.master == "disk":
        return 4 * shape.parameters / value("disk_read")
    return min(on_host, 4 * shape.parameters / value("host_link"))


def update_seconds(shape: Architecture, how: Deployment, work: Work, cores: int) -> float:
    """One update of the node's master: every member's noise once more."""
    terms = work.terms / max(1, work.updates)
    if how.on_gpu and how.master == "device":
        return terms * shape.parameters / how.shards / value("gpu_normals")
    return terms * shape.parameters / (value("cpu_update") * cores / how.masters)


def token_rate(shape: Architecture, how: Deployment, work: Work) -> float:
    """Tokens a second of one worker: on a GPU every step reads all weights and the cache of the answers in it."""
    if not how.on_gpu:
        return value("cpu_tokens") / shape.parameters
    at_once = max(1, min(how.sequences, work.hand))
    length = work.prompt + work.answer // 2
    each = length * (shape.kv_bytes(how.width, how.shards) or 0) + 2 * shape.state_bytes(how.width, how.shards)
    step = (shape.parameters * how.width / how.shards + at_once * each) / value("gpu_bandwidth")
    return at_once / step


def network_bytes(shape: Architecture, how: Deployment, work: Work) -> dict[str, int]:
    """Bytes a generation besides prompts and answers, which every way has: seeds and numbers, and weights instead."""
    update = work.terms * SEED_AND_COEFFICIENT + work.updates * DIGEST
    return {
        "es": work.leases * SEED_AND_SIGMA + how.workers * update,
        "broadcast": work.updates * how.workers * shape.parameters * how.width,
    }


def disk_bytes(config: RunConfig, shape: Architecture, how: Deployment, work: Work, update: float) -> dict[str, int]:
    """Bytes of a generation, of what is there once, and of the whole `run` without the base checkpoint.

    `anchors` is how many `anchor_seconds` asks for in the run.
    """
    line = value("journal_line") * max(1, work.updates)
    journal = int(line + value("journal_term") * work.terms + value("journal_objective") * work.rollouts)
    rollouts = int(work.tokens * value("rollout_bytes"))
    anchors = int(config.generations * work.updates * update // config.anchor_seconds)
    master = 4 * shape.parameters
    kept = how.masters * master if how.master == "disk" else 0
    return {
        "checkpoint": how.width * shape.parameters,
        "journal_generation": journal,
        "rollouts_generation": rollouts,
        "anchors": anchors,
        "anchor": master,
        "run": config.generations * (journal + rollouts) + anchors * master + kept,
    }
