"""Messages between the run and its zygote: a JSON header and raw bytes, both with their length in front.

The raw bytes are the candidate's; the zygote passes them on unread.
"""

from __future__ import annotations

import json
import select
import socket
import struct
from collections.abc import Mapping
from typing import cast

_LENGTHS = struct.Struct(">II")

NUMBER = struct.Struct("q")
"""For what is shared without a message: the instance in work, the child that a descriptor belongs to."""


def readable(channel: socket.socket, milliseconds: int) -> bool:
    """Whether there is something to receive, or the other side is gone, within a time."""
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    return bool(poll.poll(milliseconds))


def send(channel: socket.socket, header: Mapping[str, object], payload: bytes = b"") -> None:
    """Write one message; blocks until the other side has room.

    Raises:
        OSError: the other side is gone.
    """
    text = json.dumps(header).encode()
    channel.sendall(_LENGTHS.pack(len(text), len(payload)) + text + payload)


def receive(channel: socket.socket) -> tuple[dict[str, object], bytes] | None:
    """Read one message; None when the other side is gone."""
    lengths = _exactly(channel, _LENGTHS.size)
    if lengths is None:
        return None
    header_length, payload_length = _LENGTHS.unpack(lengths)
    header = _exactly(channel, header_length)
    payload = _exactly(channel, payload_length)
    if header is None or payload is None:
        return None
    return cast("dict[str, object]", json.loads(header)), payload


def _exactly(channel: socket.socket, count: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        try:
            part = channel.recv(min(count - len(parts), 1 << 20))
        except ConnectionError:
            return None
        if not part:
            return None
        parts += part
    return bytes(parts)
