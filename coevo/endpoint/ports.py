"""Where to listen, without anything that serves."""

from __future__ import annotations

import os
import socket
from collections.abc import Generator
from contextlib import contextmanager

from coevo.errors import UserError


@contextmanager
def listen(host: str, port: int) -> Generator[tuple[socket.socket, str]]:
    """A socket that listens, and its origin such as `http://127.0.0.1:41234`.

    Raises:
        UserError: the host is unknown, or the port is taken.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=128)
    except (OSError, OverflowError) as error:
        # Python adds the address to the system's own words for what bind() refuses.
        number = getattr(error, "errno", None) or 0
        said = os.strerror(number) if number > 0 else getattr(error, "strerror", None) or str(error)
        raise UserError(
            f"cannot listen on {host!r}, port {port}: {said}; give another --host or --port, 0 takes any free port"
        ) from None
    with listening:
        shown = f"[{host}]" if family == socket.AF_INET6 else host
        yield listening, f"http://{shown}:{listening.getsockname()[1]}"


def free_port(host: str, port: int) -> int:
    """`port` where nobody listens, or any free one for 0; another program may still take it first.

    Raises:
        UserError: it is taken.
    """
    with listen(host, port) as (listening, _):
        return int(listening.getsockname()[1])
