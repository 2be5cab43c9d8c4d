"""Answers that are no valid program: what a model is told of them, and which are given back to be mended.

Only failures of the model: what an engine or a judge failed of says nothing about an answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from coevo import Buffer, Rollout
from coevo.records import Json

KINDS = {
    "no_answer": "it holds no Python code",
    "syntax": "it is not valid Python",
    "no_entry": "it does not define what was asked for",
    "import": "it imports what does not exist",
    "exception": "it raised an error",
    "timeout": "it took too long",
    "out_of_memory": "it needed too much memory",
    "invalid_solution": "what it gave is no valid solution",
    "non_finite": "it gave a number that is not finite",
}
"""Status → words. The other failures are not the answer's."""

LONGEST_ANSWER = 8_000
"""Characters; a longer answer is not given back: the state of a run is written with every batch."""

LONGEST_MESSAGE = 300
SHOWN = 3
"""Failures that a prompt tells of."""


@dataclass(frozen=True, slots=True)
class Broken:
    """An invalid answer that the model shall mend.

    Attributes:
        id: of its rollout.
        answer: as the model gave it, or what the task's parser took from that.
        reason: what is wrong, in a line.
        parents: ids of the heuristics shown when it was made.
    """

    id: str
    answer: str
    reason: str
    parents: tuple[str, ...]

    def to_json(self) -> Json:
        """As plain JSON."""
        return asdict(self) | {"parents": list(self.parents)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Broken:
        """The inverse of `to_json`."""
        fields: dict[str, Any] = {**data, "parents": tuple(data["parents"])}
        return cls(**fields)


def reason_of(rollout: Rollout) -> str:
    """What was wrong with an answer, in a line; empty for a valid one and where it was not the answer's fault."""
    kind = KINDS.get(rollout.status, "")
    message = " ".join(str(rollout.artifacts.get("message", "")).split())[:LONGEST_MESSAGE]
    return f"{kind}: {message}" if kind and message else kind


def to_mend(buffer: Buffer, most: int) -> tuple[Broken, ...]:
    """The first `most` different invalid answers of a batch, in plan order.

    An empty answer shows nothing that could be mended, and one of more than `LONGEST_ANSWER` characters is left out.
    """
    found: dict[str, Broken] = {}
    for rollout in buffer.rollouts:
        reason, answer = reason_of(rollout), _answer(rollout)
        key = str(rollout.artifacts.get("code_key", "")) or answer
        if not reason or not answer or len(answer) > LONGEST_ANSWER or key in found:
            continue
        parents = buffer.batch.contexts[rollout.provenance.context].parents
        found[key] = Broken(rollout.id, answer, reason, parents)
    return tuple(found.values())[:most]


def _answer(rollout: Rollout) -> str:
    parsed = str(rollout.artifacts.get("answer", "")).strip()
    steps = rollout.trajectory.steps
    return parsed or (steps[-1].text.strip() if steps else "")


def latest(before: Sequence[str], rollouts: Iterable[Rollout]) -> tuple[str, ...]:
    """The `SHOWN` latest reasons, no two equal; those of `rollouts` first, the most frequent of them before others."""
    counts = Counter(reason for rollout in rollouts if (reason := reason_of(rollout)))
    new = [reason for reason, _ in counts.most_common()]
    return tuple(dict.fromkeys([*new, *before]))[:SHOWN]
