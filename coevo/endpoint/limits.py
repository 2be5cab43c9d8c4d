"""How much a server lets its clients have, and for how long."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one server. The defaults never meet an agent of a run: only what cannot be one.

    Attributes:
        body_bytes: of a request. A context of a million tokens is about 4 MB of text; most are a hundredth of it.
        held_bytes: of all bodies that are being read or answered.
        requests: answered at once; one more is told to ask again.
        connections: open at once, so that the process always has files left for its own work.
        head_seconds: for the headers of a request, since the connection opened or the last answer was sent.
        body_seconds: for the rest of it.
        rest_seconds: for what a client still sends, or has not yet read, after its answer.
        idle_seconds: between two requests of a connection.
        answer_seconds: for the answer; None waits for ever, as a run does for its engine.
    """

    body_bytes: int = 4 << 20
    held_bytes: int = 256 << 20
    requests: int = 1024
    connections: int = 2048
    head_seconds: float = 20
    body_seconds: float = 60
    rest_seconds: float = 60
    idle_seconds: float = 5
    answer_seconds: float | None = None


FOR_PEOPLE = Limits(requests=128, connections=256, answer_seconds=3600)
"""Of `coevo serve` over an engine in this process, which answers one request after the other."""
