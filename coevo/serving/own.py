"""Serving with coevo's own endpoint, over an engine in this process."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from coevo.endpoint import serve
from coevo.interfaces import Engine
from coevo.serving.learned import Learned


async def serve_own(
    engine: Engine, what: Learned, host: str, port: int, key: str, seed: int, ready: Callable[[str], None]
) -> None:
    """Serve the engine's centre until SIGINT or SIGTERM.

    Args:
        engine: at the weights to serve.
        what: gives model name, context and sampling.
        host: to listen on.
        port: to listen on, 0 for any.
        key: to ask for, empty for none.
        seed: for requests that bring none.
        ready: told the base URL once it can be asked.

    Raises:
        UserError: nothing can listen there.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with (
        engine.lease(None) as policy,
        serve(
            policy,
            sampling=what.sampling,
            seed=seed,
            system=what.system,
            model=what.name,
            host=host,
            port=port,
            key=key,
        ) as endpoint,
    ):
        ready(endpoint.base_url)
        await stop.wait()
