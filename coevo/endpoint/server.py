"""uvicorn inside a running event loop: it takes no signals, prints nothing and ends when it is told to."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import uvicorn

from coevo.endpoint.application import Application

_GRACE = 5
"""Seconds that a connection may take to read its last answer."""


@asynccontextmanager
async def running(application: Application, listening: socket.socket) -> AsyncGenerator[None]:
    """Answer on a socket until the context ends; what is then still asked is refused."""
    config = uvicorn.Config(
        application.app, http="h11", ws="none", lifespan="off", log_config=None, log_level="critical",
        access_log=False, server_header=False, date_header=False, timeout_graceful_shutdown=_GRACE,
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
