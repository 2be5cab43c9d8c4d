"""uvicorn inside a running event loop: it takes no signals, prints nothing and ends when it is told to."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import uvicorn

from coevo.endpoint.access import Access
from coevo.endpoint.application import Application
from coevo.endpoint.connection import Connection
from coevo.endpoint.gate import App, Gate
from coevo.endpoint.limits import Limits

_GRACE = 5
"""Seconds that a connection may take to read its last answer."""


@asynccontextmanager
async def running(
    application: Application, listening: socket.socket, access: Access, limits: Limits
) -> AsyncGenerator[None]:
    """Answer on a socket until the context ends; what is then still asked is refused."""
    # uvicorn asks its protocol for nothing but to be called.
    protocol = cast(type[Any], partial(Connection, limits=limits))
    config = uvicorn.Config(
        cast(Any, Gate(cast(App, application.app), access, limits)), http=protocol, ws="none", lifespan="off",
        interface="asgi3", log_config=None, log_level="critical", access_log=False, server_header=False,
        date_header=False, proxy_headers=False, timeout_keep_alive=cast(int, limits.idle_seconds),
        timeout_graceful_shutdown=_GRACE,
    )  # fmt: skip
    config.load()
    server = uvicorn.Server(config)
    # `serve()` would take SIGINT and SIGTERM from the run; what it calls besides is called here.
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listening])
    try:
        yield
    finally:
        application.end()
        await server.shutdown(sockets=[listening])
